"""What cannot be done yet with tables of format version 3, and why.

Rows are written, changed and deleted. Compaction would have to move rows with their ids, and deletion vectors to the
new files; done otherwise, it would break what version 3 promises its readers (Iceberg spec, "Row Lineage").
"""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import GeographyType, GeometryType, TimestampNanoType, TimestamptzNanoType, UnknownType

from iceberg_ds.snapshots.version_3 import VERSION_3

# Types that only version 3 has; a table with a variant cannot even be loaded by PyIceberg.
_NEW_TYPES = (TimestampNanoType, TimestamptzNanoType, UnknownType, GeometryType, GeographyType)
_COMPACTS = "its format version is 3, whose files are not compacted yet: use Iceberg's own procedures"


def why_not_compacted(metadata: TableMetadata) -> list[str]:
    """Return why the files of a table cannot be compacted; empty if they can."""
    return [_COMPACTS] if metadata.format_version >= VERSION_3 else []


def why_not_written(schema: Schema) -> list[str]:
    """Return which columns of a table cannot be written; empty if all can."""
    found = []
    for number in sorted(schema.field_ids):
        field, name = schema.find_field(number), schema.find_column_name(number)
        if isinstance(field.field_type, _NEW_TYPES):
            found.append(f"column '{name}' is of type {field.field_type}, which is not written")
        if field.initial_default is not None or field.write_default is not None:
            found.append(f"column '{name}' has a default value, which is not written into rows that lack it")
    return found
