"""Pure: which columns of a file are which of the table, by their field ids, or by a name mapping without such ids.

Files that were written without Iceberg and added to a table have no field ids: a property of the table tells their
columns by name. Source: Iceberg spec, "Column Projection" and "Name Mapping Serialization".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.name_mapping import MappedField, NameMapping, parse_mapping_from_json
from pyiceberg.types import StructType

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.table.file_types import first_unlike
from iceberg_ds.table.nested_arrow import is_list, list_of
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
        UnsupportedTableError: It is none, or has a name twice.
    """
    if not text:
        return None
    try:
        mapping = parse_mapping_from_json(text)
    except ValueError as malformed:
        raise UnsupportedTableError(
            f"The table's property {NAME_MAPPING} is no name mapping, and columns of files without field ids would be "
            "mixed up: correct or remove it."
        ) from malformed
    if (name := _twice(mapping.root)) is not None:
        raise UnsupportedTableError(
            f"The table's property {NAME_MAPPING} has the name '{name}' for more than one column, and columns of files "
            "without field ids would be mixed up: correct it."
        )
    return mapping


def _twice(fields: Sequence[MappedField]) -> str | None:
    """Return a name that more than one of these fields has, or of those inside one of them, or None if all differ."""
    names = Counter(name for field in fields for name in set(_names(field)))
    own = next((name for name, count in names.items() if count > 1), None)
    return own or next((name for field in fields if (name := _twice(field.fields)) is not None), None)


def _names(field: MappedField) -> Sequence[str]:
    return field.names if isinstance(field.names, list) else ()  # PyIceberg's default is no list


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
        UnknownColumnsError: The file has no field ids and nothing tells its columns, or it lacks a required one or has
            one as another type.
    """
    if has_field_ids(own, schema):
        return own
    if mapping is None:
        raise UnknownColumnsError(
            "its columns, or some of them, have no field ids, as in files that were written without Iceberg and added "
            f"to the table, and the table has no property {NAME_MAPPING}",
            "Give the table the property, a name mapping.",
        )
    known = with_field_ids(own, mapping)
    if (unlike := first_unlike(known, schema.fields, set(partition_values))) is None:
        return known
    if unlike.found is not None:
        raise UnknownColumnsError(
            f"its column for '{unlike.name}' is {unlike.found}, which cannot be read as {unlike.wanted}, as which the "
            f"table has it: the file was written without Iceberg, and the table's name mapping (property "
            f"{NAME_MAPPING}) takes one for the other",
            "Correct the name mapping, or remove the file.",
        )
    raise UnknownColumnsError(
        f"it has no column for '{unlike.name}', which is required: it was written without Iceberg, and the table's "
        f"name mapping (property {NAME_MAPPING}) knows none of its columns by that name; names are compared letter "
        "by letter",
        "Add the name there, or remove the file.",
    )


def has_field_ids(file_schema: pa.Schema, schema: Schema) -> bool:
    """Return whether every field of a file, at any depth, has a field id; the parts of a variant have none.

    Args:
        file_schema: The columns of the file.
        schema: Columns of the table: a struct there is no variant, even if its fields have the names of one.
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
    if is_list(data_type):
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
    by_name = {name: field for field in known for name in _names(field)}
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
    elif is_list(kind):
        kind = list_of(kind, *_mapped([kind.value_field.with_name("element")], found.fields))
    elif pa.types.is_string_view(kind):  # which cannot be filtered
        kind = pa.string()
    elif pa.types.is_binary_view(kind):
        kind = pa.binary()
    ids = {} if found.field_id is None else {FIELD_ID_KEY: str(found.field_id).encode()}
    return pa.field(field.name, kind, field.nullable, ids)
