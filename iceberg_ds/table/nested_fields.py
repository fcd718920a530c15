"""Pure: the fields inside a type, one level below it or at any depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

# Where Arrow has the id of a field of a Parquet file.
FIELD_ID_KEY = b"PARQUET:field_id"


def children(parent: IcebergType) -> tuple[NestedField, ...]:
    """Return the fields right below a type: of a struct, the element of a list, key and value of a map."""
    match parent:
        case StructType():
            return parent.fields
        case ListType():
            return (parent.element_field,)
        case MapType():
            return (parent.key_field, parent.value_field)
    return ()


def at_any_depth(fields: Iterable[NestedField]) -> Iterator[NestedField]:
    """Yield fields, each followed by those inside it."""
    for field in fields:
        yield field
        yield from at_any_depth(children(field.field_type))


def all_optional(fields: Iterable[NestedField]) -> Schema:
    """Return columns as they are, but optional."""
    return Schema(*(field.model_copy(update={"required": False}) for field in fields))
