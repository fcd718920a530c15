"""Pure: which rows of a batch satisfy a predicate, row by row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from iceberg_ds.expressions.binding import typed_predicate
from iceberg_ds.expressions.nodes import Constant
from iceberg_ds.expressions.parser import parse_predicate
from iceberg_ds.plan import BoundColumn, OverwriteByFilter
from iceberg_ds.secrets import masked_problem


class RowFilter:
    """Separates the rows that satisfy a predicate from all others, including those for which it is unknown.

    Args:
        predicate: The text of the predicate.
        schema: The table's schema.
        case_sensitive: As in `binding.typed_predicate`.
        time_zone: As in `binding.typed_predicate`.

    Raises:
        ValueError: The text cannot be parsed, a column is missing or ambiguous, or a value does not compare or cannot
            be computed exactly. No secret that the text holds is in the error or its causes.
    """

    def __init__(self, predicate: str, schema: Schema, *, case_sensitive: bool, time_zone: str | None = None) -> None:
        try:
            tree = parse_predicate(predicate)
            self._expression = typed_predicate(tree, schema, case_sensitive=case_sensitive, time_zone=time_zone)
        except ValueError as problem:  # it quotes names and values of the predicate
            raise ValueError(masked_problem(predicate, str(problem))) from None
        self._constant: bool | None = None
        if isinstance(self._expression, Constant):
            self._constant = self._expression.value.as_py() is True

    @property
    def positions(self) -> tuple[int, ...]:
        """Positions in the schema of the columns that the predicate reads, ascending; empty if it reads none."""
        return tuple(sorted({column.path[0] for column in self._expression.columns()}))

    @property
    def columns(self) -> tuple[BoundColumn, ...]:
        """What the column names in the predicate mean, each column once, in the order of field ids."""
        found = {column.field_id: str(column.type) for column in self._expression.columns()}
        return tuple(BoundColumn(field_id=number, type=found[number]) for number in sorted(found))

    @classmethod
    def of(cls, overwrite: OverwriteByFilter, schema: Schema) -> RowFilter:
        """Return the filter of the rows that a write replaces; raises as the constructor does."""
        return cls(
            overwrite.predicate,
            schema,
            case_sensitive=overwrite.case_sensitive,
            time_zone=overwrite.time_zone,
        )

    def failing(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that do not satisfy the predicate. Columns are taken by their position in the table."""
        return batch if self._constant is False else batch.filter(pc.invert(self.mask(batch)))

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return, for each row, whether the predicate is true, never null. Columns are taken by their position.

        Raises:
            ValueError: The predicate has no value for some row, such as a sum that is out of range.
        """
        if self._constant is not None:
            return pa.repeat(self._constant, batch.num_rows)
        try:
            found = self._expression.rows(batch)
        except pa.ArrowInvalid as problem:
            raise ValueError(f"the predicate has no value for some row: {problem}") from problem
        return found.fill_null(False)  # noqa: FBT003  # Arrow's signature
