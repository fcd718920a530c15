"""Holds the rows of a task against the range that the write replaces.

A row outside it would stay in the table beside the rows of the next such write. Such rows are counted, and
the commit refuses them by the count over all tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from iceberg_ds.messages import RefusedRows
from iceberg_ds.plan import EVERY_ROW, OverwriteByFilter, WritePlan

if TYPE_CHECKING:
    from iceberg_ds.predicates.row_filter import RowFilter


class RangeCheck:
    """The check of one task's rows; everything passes if the write replaces no range.

    Args:
        plan: What the driver decided.

    Attributes:
        left_out: How many rows were not passed.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._filter: RowFilter | None = None
        self._count = 0
        self.left_out = 0
        self._example = ""
        overwrite = plan.overwrite
        if isinstance(overwrite, OverwriteByFilter) and overwrite.predicate != EVERY_ROW:
            from iceberg_ds.predicates.row_filter import RowFilter  # noqa: PLC0415  # most tasks need no predicates

            self._filter = RowFilter.of(overwrite, plan.schema)

    @property
    def refused(self) -> RefusedRows | None:
        """The rows outside the range, None if there were none."""
        return RefusedRows(count=self._count, example=self._example) if self._count else None

    def passing(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows to write: all, or none as soon as one was outside, because nothing will be committed then.

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
