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

ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)


def with_lineage(schema: Schema) -> Schema:
    """Return a table's columns with those of the lineage behind them; the schema itself if it has them."""
    if has_lineage(schema):
        return schema
    ids = schema.identifier_field_ids
    return Schema(*schema.fields, ROW_ID, LAST_UPDATED, schema_id=schema.schema_id, identifier_field_ids=ids)


def has_lineage(schema: Schema) -> bool:
    """Return whether a schema has the columns of the lineage."""
    return ROW_ID.field_id in schema.field_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLineage:
    """What the rows of a data file inherit.

    Attributes:
        first_row_id: Id of its first row; the others follow in their order.
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
        inherited = {
            ROW_ID.name: pc.add(positions, self.first_row_id),
            LAST_UPDATED.name: pa.repeat(pa.scalar(self.sequence_number, pa.int64()), rows.num_rows),
        }
        for name, values in inherited.items():
            own = rows.column(name).cast(pa.int64())
            rows = rows.set_column(rows.schema.get_field_index(name), name, pc.coalesce(own, values))
        return rows
