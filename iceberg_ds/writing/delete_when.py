"""Pure: which rows of a DataFrame satisfy the predicate that marks deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from iceberg_ds.plan import WritePlan
from iceberg_ds.schemas.conform import conform
from iceberg_ds.schemas.shape import file_shape

if TYPE_CHECKING:
    from iceberg_ds.changes.reading import DeleteTest


def delete_test(predicate: str | None, plan: WritePlan) -> DeleteTest | None:
    """Return what tells which rows of a batch are deletes; None if there is no predicate.

    Args:
        predicate: On columns of the DataFrame; None for none.
        plan: What the driver decided; its `frame` is the columns that the predicate looks at, None without one.

    Raises:
        ValueError: The predicate cannot be read, a column is missing or ambiguous, or something does not compare or
            cannot be computed exactly.
    """
    frame = plan.frame
    if predicate is None or frame is None:
        return None
    # Most tasks need no predicates.
    from iceberg_ds.predicates.predicates import parse_predicate  # noqa: PLC0415
    from iceberg_ds.predicates.row_filter import RowFilter  # noqa: PLC0415

    is_deleted = RowFilter(
        parse_predicate(predicate), frame, case_sensitive=bool(plan.case_sensitive), time_zone=plan.time_zone
    )
    # Of another engine's rows a null may be anywhere, and columns are taken by position.
    optional = Schema(*(NestedField(field.field_id, field.name, field.field_type) for field in frame.fields))
    shape = file_shape(optional, case_sensitive=True)

    def test(batch: pa.RecordBatch) -> pa.Array:
        return is_deleted.mask(conform(batch, shape))

    return test
