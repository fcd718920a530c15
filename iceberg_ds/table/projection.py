"""Pure: rows of a file, written with any schema that the table has had, in the table's current columns.

Fields are matched by id at any depth. A column that the file lacks has the value of its identity partition field, else
its initial default, else null. Values keep the types of the file. Files without field ids get them from a name mapping,
where the caller has one. Source: Iceberg spec, "Column Projection".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UnknownType

from iceberg_ds.table.arrow_schema import repeated
from iceberg_ds.table.defaults import physical
from iceberg_ds.table.nested_arrow import split_lists, split_maps
from iceberg_ds.table.nested_fields import FIELD_ID_KEY, at_any_depth
from iceberg_ds.table.variant import VariantType, as_variants, is_stored_variant

NO_VALUES: Mapping[int, object] = {}


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
    """Return the columns of a file without field ids that a name mapping knows, with their ids.

    Source: Iceberg spec, "Name Mapping Serialization".
    """
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


def field_id(field: pa.Field) -> int | None:
    """Return the field id of a file's column, or None."""
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return None if text is None else int(text)


def absent(number: int, kind: IcebergType, partition_values: Mapping[int, object], count: int) -> pa.Array:
    """Return the values of a column that a file does not have.

    Args:
        number: The column's field id.
        kind: Its type in the table.
        partition_values: The physical values of the file's identity partition fields, by the ids of their columns.
        count: How many rows there are.
    """
    return repeated(partition_values.get(number), kind, count)


def project(
    batch: pa.RecordBatch, schema: Schema, partition_values: Mapping[int, object] = NO_VALUES
) -> pa.RecordBatch:
    """Return the rows of a file with the names and the order of the columns of `schema`.

    Args:
        batch: Rows as the file has them, with field ids.
        schema: The table's schema.
        partition_values: The physical values of the file's identity partition fields, by the ids of their columns.
    """
    columns = _Projection(partition_values).fields(list(batch.schema), batch.columns, schema.fields, batch.num_rows)
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in schema.fields])


class _Projection:
    def __init__(self, partition_values: Mapping[int, object]) -> None:
        self._partition_values = partition_values

    def fields(
        self, own: Sequence[pa.Field], values: Sequence[pa.Array], wanted: Sequence[NestedField], length: int
    ) -> list[pa.Array]:
        by_id = {field_id(field): array for field, array in zip(own, values, strict=True)}
        return [
            self._values(by_id[field.field_id], field.field_type)
            if field.field_id in by_id
            else self._absent(field, length)
            for field in wanted
        ]

    def _absent(self, field: NestedField, length: int) -> pa.Array:
        if field.field_id in self._partition_values:
            return absent(field.field_id, field.field_type, self._partition_values, length)
        return repeated(physical(field.initial_default), field.field_type, length)

    def _values(self, values: pa.Array, wanted: IcebergType) -> pa.Array:
        mask = values.is_null()
        match wanted:
            case VariantType():
                return as_variants(values)
            case UnknownType():
                return pa.nulls(len(values))  # other writers store such columns
            case StructType():
                own = list(values.type)
                inside = [pc.struct_field(values, position) for position in range(len(own))]
                children = self.fields(own, inside, wanted.fields, len(values))
                return pa.StructArray.from_arrays(children, names=[field.name for field in wanted.fields], mask=mask)
            case ListType():
                offsets, elements = split_lists(values)
                return pa.ListArray.from_arrays(offsets, self._values(elements, wanted.element_type), mask=mask)
            case MapType():
                offsets, keys, items = split_maps(values)
                return pa.MapArray.from_arrays(
                    offsets,
                    self._values(keys, wanted.key_type),
                    self._values(items, wanted.value_type),
                    mask=mask,
                )
        return values
