"""Pure: the columns by which rows keep their identity when they move into another file, in tables of format version 3.

Rows of a new file inherit their ids and sequence numbers from manifests. Rows that were in another file before have
both in columns, so that they stay the same rows. Source: Iceberg spec, "Row Lineage" and "Reserved Field IDs".
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_ds.errors import UnsupportedTableError

ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
# By name.
LINEAGE = {field.name: field for field in (ROW_ID, LAST_UPDATED)}


def why_not_with_lineage(schema: Schema) -> list[str]:
    """Return why rows of a table with these columns cannot keep their identity; empty if they can.

    Fields of structs may have the names of the lineage's columns.
    """
    return [
        f"column '{field.name}' has the name of a column that keeps the identity of rows in format version 3: rename "
        "the column of the table first, with the engine that made it"
        for field in schema.fields
        if field.name.lower() in LINEAGE
    ]


def with_lineage(schema: Schema) -> Schema:
    """Return a table's columns with those of the lineage behind them; the schema itself if it has them.

    Raises:
        UnsupportedTableError: The table has a column of its own of such a name.
    """
    if has_lineage(schema):
        return schema
    if problems := why_not_with_lineage(schema):
        raise UnsupportedTableError(f"Cannot keep the identity of rows: {'; '.join(problems)}.")
    ids = schema.identifier_field_ids
    return Schema(*schema.fields, ROW_ID, LAST_UPDATED, schema_id=schema.schema_id, identifier_field_ids=ids)


def has_lineage(schema: Schema) -> bool:
    """Return whether a schema has the columns of the lineage."""
    return ROW_ID.field_id in schema.field_ids


def is_lineage(field: NestedField) -> bool:
    """Return whether a column is one of the lineage; a column of the table with the same name is not."""
    return field.field_id in {ROW_ID.field_id, LAST_UPDATED.field_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLineage:
    """What the rows of a data file inherit.

    Attributes:
        first_row_id: Id of its first row; the ids of the next rows follow in order.
        sequence_number: Its data sequence number.
    """

    first_row_id: int
    sequence_number: int

    def filled(self, rows: pa.RecordBatch, positions: pa.Array) -> pa.RecordBatch:
        """Return rows of the file with the lineage of each.

        Args:
            rows: The rows, with the columns of `with_lineage`; null where a row inherits.
            positions: Their positions in the file, from 0.
        """
        for name in LINEAGE:
            values = self.column(name, rows.column(name), positions)
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        return rows

    def column(self, name: str, own: pa.Array, positions: pa.Array) -> pa.Array:
        """Return a column of the lineage of some rows of the file.

        Args:
            name: Name of the column.
            own: What the file has in it; null where a row inherits.
            positions: Positions of the rows in the file, from 0.
        """
        inherited = (
            pc.add(positions, self.first_row_id) if name == ROW_ID.name else pa.scalar(self.sequence_number, pa.int64())
        )
        return pc.coalesce(own.cast(pa.int64()), inherited)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptIds:
    """Ids that rows of a data file take over from rows that they replace.

    Attributes:
        positions: Positions of these rows in the file, from 0, each once.
        row_ids: Their ids.
    """

    positions: pa.Array
    row_ids: pa.Array

    def filled(self, rows: pa.RecordBatch, positions: pa.Array) -> pa.RecordBatch:
        """Return rows of the file with these ids, and null for all that is inherited; as `FileLineage.filled`."""
        kept = self.row_ids.take(pc.index_in(positions, value_set=self.positions))
        return rows.set_column(rows.schema.get_field_index(ROW_ID.name), ROW_ID.name, kept)
