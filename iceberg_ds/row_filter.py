"""Pure: which rows of a batch satisfy a predicate, row by row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema


class RowFilter:
    """Tells rows that satisfy a predicate from those that do not, a predicate that is unknown of a row among these.

    Args:
        predicate: As `predicates.parse_predicate` gives it.
        schema: The table's schema.
        case_sensitive: Whether the predicate's names must have the case of the table's.

    Raises:
        ValueError: A column is missing in the schema, lies within a struct, or does not compare with its literal.
    """

    def __init__(self, predicate: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> None:
        self._names = [field.name for field in schema.fields]
        if isinstance(predicate, AlwaysTrue):
            self._is_true = pc.scalar(True)  # noqa: FBT003
            return
        bound = bind(schema, predicate, case_sensitive)
        top_level = {field.field_id for field in schema.fields}
        if nested := extract_field_ids(bound) - top_level:
            names = sorted(schema.find_column_name(field_id) or str(field_id) for field_id in nested)
            raise ValueError(f"{', '.join(names)} lies within a struct; only whole columns can be compared")
        self._is_true = expression_to_pyarrow(bound)

    def satisfying(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that satisfy the predicate. Columns are taken by their position in the table."""
        return self._select(batch, self._is_true)

    def failing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the other rows."""
        return self._select(batch, ~self._is_true | self._is_true.is_null())

    def _select(self, batch: pa.RecordBatch, condition: pc.Expression) -> pa.RecordBatch:
        table = pa.Table.from_batches([batch.rename_columns(self._names)]).filter(condition).combine_chunks()
        if not table.num_rows:
            return batch.slice(0, 0)
        (selected,) = table.to_batches()
        return selected.rename_columns(batch.schema.names).cast(batch.schema)
