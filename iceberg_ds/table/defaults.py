"""Pure: default values of columns, which tables of format version 3 may have.

Files from before a column lack it: their rows have its initial default. Rows that a write has no value for get its
write default; an explicit null stays null. Source: Iceberg spec, "Default values".
"""

from __future__ import annotations

import uuid

from pyiceberg.types import IcebergType, NestedField

from iceberg_ds.table.nested_fields import at_any_depth, children


def physical(value: object) -> object:
    """Return a default as Arrow takes it: a UUID as its bytes."""
    return value.bytes if isinstance(value, uuid.UUID) else value


def why_not_searched(field: NestedField) -> str | None:
    """Return why rows are not looked for by the values of a column, or None if they are."""
    if field.initial_default is None:
        return None
    return f"column '{field.name}' has an initial default, and rows are not looked for by the values of such a column"


def has_initial_default(kind: IcebergType) -> bool:
    """Return whether a field inside a type has an initial default."""
    return any(field.initial_default is not None for field in at_any_depth(children(kind)))
