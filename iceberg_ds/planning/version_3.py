"""What is not done with tables of format version 3, and why."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, TimestampNanoType, TimestamptzNanoType, UnknownType

# Types that only version 3 has; a table with a variant cannot even be loaded by PyIceberg.
_NEW_TYPES = (TimestampNanoType, TimestamptzNanoType, UnknownType, GeometryType, GeographyType)


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
