"""What cannot be done yet with tables of format version 3, and why.

Rows are appended, overwritten and written by key. What hides or moves single rows of files that are there needs
deletion vectors that are merged with older ones, and copies of row ids; a table where it was done otherwise would break
the promises that version 3 makes to its readers (Iceberg spec, "Row Lineage" and "Deletion Vectors").
"""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import GeographyType, GeometryType, TimestampNanoType, TimestamptzNanoType, UnknownType

from iceberg_ds.options.rules import Kind
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.snapshots.version_3 import VERSION_3

# Types that only version 3 has; a table with a variant cannot even be loaded by PyIceberg.
_NEW_TYPES = (TimestampNanoType, TimestamptzNanoType, UnknownType, GeometryType, GeographyType)
_REWRITES_ROWS = (
    "its format version is 3, and rows that are there cannot be hidden or moved in that version yet: use Iceberg's own "
    "procedures and statements"
)


def why_not_rewritable(metadata: TableMetadata) -> list[str]:
    """Return why no file of a table can be rewritten, and none of its rows be hidden; empty if it can."""
    return [_REWRITES_ROWS] if metadata.format_version >= VERSION_3 else []


def why_not_writable_as_asked(metadata: TableMetadata, options: SinkOptions, kind: Kind) -> list[str]:
    """Return what of a write is not done in tables of version 3; empty for tables of other versions.

    Args:
        metadata: The table.
        options: The options of the write.
        kind: Kind of the write.
    """
    if metadata.format_version < VERSION_3:
        return []
    found = _of_columns(metadata.schema())
    if Kind.UPSERT in kind or Kind.ROW_LEVEL in kind:
        found += why_not_rewritable(metadata)
    for name, is_asked in (
        ("publish-converted", options.publish_converted),
        ("sequence-scope=table", options.sequence_scope == "table"),
    ):
        if is_asked:
            found.append(f"its format version is 3, where option '{name}' needs deletion vectors: leave the option out")
    return found


def _of_columns(schema: Schema) -> list[str]:
    found = []
    for number in sorted(schema.field_ids):
        field, name = schema.find_field(number), schema.find_column_name(number)
        if isinstance(field.field_type, _NEW_TYPES):
            found.append(f"column '{name}' is of type {field.field_type}, which is not written")
        if field.initial_default is not None or field.write_default is not None:
            found.append(f"column '{name}' has a default value, which is not written into rows that lack it")
    return found
