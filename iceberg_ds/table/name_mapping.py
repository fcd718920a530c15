"""Pure: which columns of a file are which of the table, by their field ids, or by a name mapping without such ids.

Files that were written without Iceberg and added to a table have no field ids: a property of the table tells their
columns by name. Source: Iceberg spec, "Column Projection" and "Name Mapping Serialization".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return _has_ids(data_type.value_field, structs)
    if not pa.types.is_struct(data_type) or (is_stored_variant(data_type) and number not in structs):
        return True
    return all(_has_ids(child, structs) for child in data_type)


def with_field_ids(file_schema: pa.Schema, mapping: NameMapping) -> pa.Schema:
    """Return the columns of a file without field ids that a name mapping knows, with their ids."""
    by_name = _by_name(mapping.root)
    return pa.schema([_mapped(field, by_name[field.name]) for field in file_schema if field.name in by_name])


def _by_name(fields: Sequence[MappedField]) -> dict[str, MappedField]:
    return {name: field for field in fields for name in field.names}


def _mapped(field: pa.Field, found: MappedField) -> pa.Field:
    inside, kind = _by_name(found.fields), field.type

    def mapped(own: pa.Field, name: str) -> pa.Field:
        return _mapped(own, inside[name]) if name in inside else own

    if pa.types.is_struct(kind):
        kind = pa.struct([mapped(own, own.name) for own in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(mapped(kind.key_field, "key"), mapped(kind.item_field, "value"))
    elif pa.types.is_list(kind):
        kind = pa.list_(mapped(kind.value_field, "element"))
    ids = {} if found.field_id is None else {FIELD_ID_KEY: str(found.field_id).encode()}
    return pa.field(field.name, kind, field.nullable, ids)
