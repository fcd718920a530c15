"""Which columns keep a table from being written, because of its format version or of what is not done with it."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import GeographyType, GeometryType, TimestampNanoType, TimestamptzNanoType, UnknownType

from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.lineage import why_not_with_lineage
from iceberg_ds.table.variant import variant_ids, why_not_opened

# Other types that only version 3 has.
_NEW_TYPES = (TimestampNanoType, TimestamptzNanoType, GeometryType, GeographyType)


def why_not_written(metadata: TableMetadata) -> list[str]:
    """Return which columns keep a table from being written, and why; empty if none does."""
    schema, version = metadata.schema(), metadata.format_version
    if version < VERSION_3:
        return why_not_in_version(schema, version)
    return [*why_not_upgraded(schema), *_why_not_laid_out(metadata)]


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
    columns = {field.field_id for field in schema.fields}
    for number in sorted(schema.field_ids):
        field, name = schema.find_field(number), schema.find_column_name(number)
        if isinstance(field.field_type, _NEW_TYPES):
            found.append(
                f"column '{name}' is of type {field.field_type}, which is not written: drop the column, or change the "
                "table with an engine that writes it"
            )
        elif isinstance(field.field_type, UnknownType) and number not in columns:
            found.append(f"column '{name}' is of type unknown inside another column, which is not written")
    if schema.fields and all(isinstance(field.field_type, UnknownType) for field in schema.fields):
        found.append("all its columns are of type unknown, and files have none of them: give it another column")
    return found


def _why_not_laid_out(metadata: TableMetadata) -> list[str]:
    """Return which columns without values a table is partitioned or sorted by."""
    parts = (field for field in metadata.spec().fields if not isinstance(field.transform, VoidTransform))
    named = {*(field.source_id for field in parts), *(field.source_id for field in metadata.sort_order().fields)}
    return [
        f"column '{field.name}' is of type unknown, and the table is partitioned or sorted by it, which is not written"
        for field in metadata.schema().fields
        if isinstance(field.field_type, UnknownType) and field.field_id in named
    ]
