"""Pure: which rows of a batch satisfy a predicate, row by row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, NestedField, UUIDType

from iceberg_ds.plan import OverwriteByFilter
from iceberg_ds.predicates.predicates import parse_predicate
from iceberg_ds.predicates.typed import typed_predicate


class RowFilter:
    """Tells rows that satisfy a predicate from those that do not, a predicate that is unknown of a row among these.

    Args:
        predicate: As `predicates.parse_predicate` gives it.
        schema: The table's schema.
        case_sensitive: As in `typed_predicates.typed_predicate`.

    Raises:
        ValueError: A column is missing, ambiguous or within a struct, or does not compare with its value.
    """

    def __init__(self, predicate: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> None:
        typed = typed_predicate(predicate, schema, case_sensitive=case_sensitive)
        fields = [_comparable_field(field) for field in schema.fields]
        bound = bind(Schema(*fields), typed, case_sensitive=True)
        self._constant = {AlwaysTrue: True, AlwaysFalse: False}.get(type(bound))
        self._is_true = expression_to_pyarrow(bound)
        used = extract_field_ids(bound)
        self._columns = [(number, field.name) for number, field in enumerate(fields) if field.field_id in used]

    @property
    def positions(self) -> tuple[int, ...]:
        """Where the columns that the predicate looks at stand in the schema; none if it looks at none."""
        return tuple(number for number, _ in self._columns)

    @classmethod
    def of(cls, overwrite: OverwriteByFilter, schema: Schema) -> RowFilter:
        """Return the filter of the rows that a write replaces; raises as the constructor does."""
        return cls(parse_predicate(overwrite.predicate), schema, case_sensitive=overwrite.case_sensitive)

    def satisfying(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that satisfy the predicate. Columns are taken by their position in the table."""
        return batch if self._constant is True else batch.filter(self.mask(batch))

    def failing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the other rows."""
        return batch if self._constant is False else batch.filter(pc.invert(self.mask(batch)))

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether the predicate is true of it, never null. Columns are taken by their position."""
        if self._constant is not None:
            return pa.repeat(self._constant, batch.num_rows)
        used = pa.table(
            [_comparable(batch.column(number)) for number, _ in self._columns], [name for _, name in self._columns]
        )
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(used))
        answer = acero.Declaration("project", acero.ProjectNodeOptions([self._is_true]), inputs=[source])
        (column,) = answer.to_table(use_threads=False).columns
        return column.combine_chunks().fill_null(False)  # noqa: FBT003  # Arrow's signature


def _comparable_field(field: NestedField) -> NestedField:
    if not isinstance(field.field_type, UUIDType):
        return field
    return NestedField(field.field_id, field.name, FixedType(16), required=field.required)


def _comparable(column: pa.Array) -> pa.Array:
    """Return the column as Arrow compares it: UUIDs as their bytes, zeros without a sign, which IN would tell apart."""
    if isinstance(column.type, pa.BaseExtensionType):
        return column.storage
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
