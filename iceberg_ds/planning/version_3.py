"""What is not done with tables of format version 3, and why."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import GeographyType, GeometryType, TimestampNanoType, TimestamptzNanoType, UnknownType

from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.lineage import why_not_with_lineage

# Types that only version 3 has; a table with a variant cannot even be loaded by PyIceberg.
_NEW_TYPES = (TimestampNanoType, TimestamptzNanoType, UnknownType, GeometryType, GeographyType)


def why_not_written(metadata: TableMetadata) -> list[str]:
    """Return which columns keep a table of version 3 from being written, and why; empty if none does."""
    return [] if metadata.format_version < VERSION_3 else why_not_upgraded(metadata.schema())


def why_not_upgraded(schema: Schema) -> list[str]:
    """Return which columns would keep a table from being written once it is of version 3, and why.

    Args:
        schema: The table's columns.
    """
    found = why_not_with_lineage(schema)
    for number in sorted(schema.field_ids):
        field, name = schema.find_field(number), schema.find_column_name(number)
        if isinstance(field.field_type, _NEW_TYPES):
            found.append(f"column '{name}' is of type {field.field_type}, which is not written")
    return found
