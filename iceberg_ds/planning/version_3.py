"""Which columns keep a table from being written, because of its format version or of what is not done with it."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import GeographyType, GeometryType, TimestampNanoType, TimestamptzNanoType, UnknownType

from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.lineage import why_not_with_lineage
from iceberg_ds.table.variant import variant_ids, why_not_opened

# Other types that only version 3 has.
_NEW_TYPES = (TimestampNanoType, TimestamptzNanoType, UnknownType, GeometryType, GeographyType)


def why_not_written(metadata: TableMetadata) -> list[str]:
    """Return which columns keep a table from being written, and why; empty if none does."""
    schema, version = metadata.schema(), metadata.format_version
    return why_not_upgraded(schema) if version >= VERSION_3 else why_not_in_version(schema, version)


def why_not_in_version(schema: Schema, version: int) -> list[str]:
    """Return which columns a table of that format version cannot have, and why; empty if it can have them all."""
    if version >= VERSION_3:
        return []
    return [
        f"column '{schema.find_column_name(number)}' is of type variant, which tables have from format version "
        f"{VERSION_3} on: give format-version={VERSION_3}, with upgrade-format=true for a table that is there, or "
        "write the column as text, for example to_json(column)"
        for number in sorted(variant_ids(schema))
    ]


def why_not_upgraded(schema: Schema) -> list[str]:
    """Return which columns would keep a table from being written once it is of version 3, and why.

    Args:
        schema: The table's columns.
    """
    found = why_not_with_lineage(schema)
    if (variants := sorted(variant_ids(schema))) and (reason := why_not_opened()) is not None:
        found.append(f"column '{schema.find_column_name(variants[0])}' is of type variant, and {reason}")
    for number in sorted(schema.field_ids):
        field, name = schema.find_field(number), schema.find_column_name(number)
        if isinstance(field.field_type, _NEW_TYPES):
            found.append(f"column '{name}' is of type {field.field_type}, which is not written")
    return found
