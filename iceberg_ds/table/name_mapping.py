"""Pure: which columns of a file are which of the table, by their field ids, or by a name mapping without such ids.

Files that were written without Iceberg and added to a table have no field ids: a property of the table tells their
columns by name. Source: Iceberg spec, "Column Projection" and "Name Mapping Serialization".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import MappedField, NameMapping, parse_mapping_from_json
from pyiceberg.types import StructType

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.table.nested_fields import FIELD_ID_KEY, at_any_depth
from iceberg_ds.table.projection import NO_VALUES, field_id
from iceberg_ds.table.variant import is_stored_variant

NAME_MAPPING = TableProperties.DEFAULT_NAME_MAPPING
# As Arrow's own schema in a file tells them: Polars, for one, writes large lists.
_LISTS = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_fixed_size_list, pa.list_),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)


class UnknownColumnsError(ValueError):
    """It is not known which columns of the table those of a file are.

    Attributes:
        next_step: What to do.
    """

    def __init__(self, reason: str, next_step: str) -> None:
        super().__init__(reason)
        self.next_step = next_step


def parsed_mapping(text: str | None) -> NameMapping | None:
    """Return the name mapping that a table's property has, or None if the table has none.

    Raises:
        UnsupportedTableError: It is none.
    """
    if not text:
        return None
    try:
        return parse_mapping_from_json(text)
    except ValueError as malformed:
        raise UnsupportedTableError(
            f"The table's property {NAME_MAPPING} is no name mapping, and columns of files without field ids would be "
            "mixed up: correct or remove it."
        ) from malformed


def identified(
    own: pa.Schema,
    schema: Schema,
    mapping: NameMapping | None,
    partition_values: Mapping[int, object] = NO_VALUES,
) -> pa.Schema:
    """Return the columns of a file with the field ids of the table's columns; without those that no name is known of.

    Args:
        own: The columns of the file.
        schema: The table's columns.
        mapping: What names mean in files without field ids; None if nothing tells.
        partition_values: The values of the file's identity partition fields, by the ids of their columns.

    Raises:
        UnknownColumnsError: The file has no field ids and nothing tells its columns, or lacks a required one.
    """
    if has_field_ids(own, schema):
        return own
    if mapping is None:
        raise UnknownColumnsError(
            "its columns have no field ids, as in files that were written without Iceberg and added to the table, and "
            f"the table has no property {NAME_MAPPING}",
            "Give the table the property, a name mapping.",
        )
    known = with_field_ids(own, mapping)
    there = {field_id(column) for column in known} | set(partition_values)
    required = (field for field in schema.fields if field.required and field.initial_default is None)
    if (lacking := next((field.name for field in required if field.field_id not in there), None)) is not None:
        raise UnknownColumnsError(
            f"it has no column for '{lacking}', which is required: it was written without Iceberg, and the table's "
            f"name mapping (property {NAME_MAPPING}) knows none of its columns by that name; names are compared letter "
            "by letter",
            "Add the name there, or remove the file.",
        )
    return known


def has_field_ids(file_schema: pa.Schema, schema: Schema) -> bool:
    """Return whether every field of a file, at any depth, has a field id; the parts of a variant have none.

    Args:
        file_schema: The columns of the file.
        schema: Columns of the table: what is a struct there is no variant, whatever its fields are called.
    """
    fields = at_any_depth(schema.fields)
    structs = frozenset(field.field_id for field in fields if isinstance(field.field_type, StructType))
    return all(_has_ids(field, structs) for field in file_schema)


def _has_ids(field: pa.Field, structs: AbstractSet[int]) -> bool:
    data_type, number = field.type, field_id(field)
    if number is None:
        return False
    if pa.types.is_map(data_type):
        return _has_ids(data_type.key_field, structs) and _has_ids(data_type.item_field, structs)
    if _is_list(data_type):
        return _has_ids(data_type.value_field, structs)
    if not pa.types.is_struct(data_type) or (is_stored_variant(data_type) and number not in structs):
        return True
    return all(_has_ids(child, structs) for child in data_type)


def with_field_ids(file_schema: pa.Schema, mapping: NameMapping) -> pa.Schema:
    """Return the columns of a file that have field ids, and those without that a name mapping knows, with their ids."""
    return pa.schema([field for field in _mapped(file_schema, mapping.root) if field_id(field) is not None])


def _mapped(fields: Iterable[pa.Field], known: Sequence[MappedField]) -> list[pa.Field]:
    """Return fields with the ids that they have, or else that their names have, unless another one has that id."""
    fields = list(fields)
    by_name = {name: field for field in known for name in field.names}
    by_id = {field.field_id: field for field in known if field.field_id is not None}
    taken = {number for field in fields if (number := field_id(field)) is not None}

    def found(field: pa.Field) -> MappedField | None:
        if (number := field_id(field)) is not None:
            return by_id.get(number)
        named = by_name.get(field.name)
        return None if named is None or named.field_id in taken else named

    return [field if (of := found(field)) is None else _with_id(field, of) for field in fields]


def _with_id(field: pa.Field, found: MappedField) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct(_mapped(kind, found.fields))
    elif pa.types.is_map(kind):
        parts = (kind.key_field.with_name("key"), kind.item_field.with_name("value"))
        kind = pa.map_(*_mapped(parts, found.fields))
    elif _is_list(kind):
        kind = _list_of(kind, *_mapped([kind.value_field.with_name("element")], found.fields))
    ids = {} if found.field_id is None else {FIELD_ID_KEY: str(found.field_id).encode()}
    return pa.field(field.name, kind, field.nullable, ids)


def _is_list(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one, _ in _LISTS)


def _list_of(kind: pa.DataType, element: pa.Field) -> pa.DataType:
    """Return Arrow's kind of lists that a file has, with another element."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return next(made for is_one, made in _LISTS if is_one(kind))(element)
