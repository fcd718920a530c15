"""Which rows of a task satisfy the predicates of its write: that of the range to replace, and that of deletes.

A row outside the range would stay in the table beside the rows of the next write of that range. Such rows are counted,
and the commit refuses them by the count over all tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from iceberg_ds.messages import RefusedRows
from iceberg_ds.plan import EVERY_ROW, OverwriteByFilter, WritePlan
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.nested_fields import all_optional

if TYPE_CHECKING:
    from iceberg_ds.cdc.reader import DeleteTest
    from iceberg_ds.expressions.row_filter import RowFilter


class RangeCheck:
    """Checks that one task's rows lie in the range to replace; all rows pass if the write replaces no range.

    Args:
        plan: What the driver decided.

    Attributes:
        left_out: How many rows did not pass.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._filter: RowFilter | None = None
        self._count = 0
        self.left_out = 0
        self._example = ""
        overwrite = plan.write.overwrite
        if isinstance(overwrite, OverwriteByFilter) and overwrite.predicate != EVERY_ROW:
            from iceberg_ds.expressions.row_filter import RowFilter  # noqa: PLC0415  # most tasks need no predicates

            self._filter = RowFilter.of(overwrite, plan.schema)

    @property
    def refused(self) -> RefusedRows | None:
        """Count and example of the rows outside the range, or None."""
        return RefusedRows(count=self._count, example=self._example) if self._count else None

    def passing(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows to write: all, or none once a row was outside the range, because then nothing is committed.

        Args:
            rows: Rows that have the columns of the table, in its order.
        """
        if self._filter is None:
            return rows
        outside = self._filter.failing(rows)
        if outside.num_rows and not self._count:
            self._example = str(outside.slice(0, 1).to_pylist()[0])[:1_000]
        self._count += outside.num_rows
        if not self._count:
            return rows
        self.left_out += rows.num_rows
        return rows.slice(0, 0)


def delete_test(predicate: str | None, plan: WritePlan) -> DeleteTest | None:
    """Return a function that tells which rows of a batch are deletes, or None if there is no predicate.

    Args:
        predicate: A predicate on columns of the DataFrame, or None.
        plan: What the driver decided; its `frame` has the columns that the predicate reads, if there is one.

    Raises:
        ValueError: The predicate cannot be read, a column is missing or ambiguous, or values do not compare or
            cannot be computed exactly.
    """
    frame = plan.frame
    if predicate is None or frame is None:
        return None
    # Most tasks need no predicates.
    from iceberg_ds.expressions.row_filter import RowFilter  # noqa: PLC0415

    is_deleted = RowFilter(predicate, frame, case_sensitive=bool(plan.case_sensitive), time_zone=plan.time_zone)
    # Rows of another engine may have a null anywhere, and columns are taken by position.
    shape = file_shape(all_optional(frame.fields), case_sensitive=True)

    def test(batch: pa.RecordBatch) -> pa.Array:
        return is_deleted.mask(conform(batch, shape))

    return test
