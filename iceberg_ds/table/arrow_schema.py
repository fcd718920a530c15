"""Pure: the Arrow schema of a table's Parquet files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema

from iceberg_ds.table.names import safe_names


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """The schema of a file's rows, twice: the same fields in the same order.

    Attributes:
        schema: Schema of the Parquet file, field ids in its metadata, names made safe. Fields below an
            optional struct are optional, because Arrow's writer takes a null struct for nulls in its fields.
        named: The table's own names and required fields, by which the columns of a batch are found and checked.
        case_sensitive: How columns are found: True exactly, False ignoring case, None exactly, else ignoring case.
    """

    schema: pa.Schema
    named: pa.Schema
    case_sensitive: bool | None = None


def file_shape(schema: Schema, *, case_sensitive: bool | None = None) -> FileShape:
    """Return the Arrow schema of the table's Parquet files, with and without names made safe for Avro.

    The file's names are made safe as Iceberg's own writers make them safe; readers go by field id.

    Args:
        schema: The table's schema.
        case_sensitive: How the columns of a batch are matched with the table's.
    """
    named = [_with_small_offsets(field) for field in schema_to_pyarrow(schema)]
    return FileShape(
        schema=pa.schema([_optional_below(field) for field in _with_safe_names(named)]),
        named=pa.schema(named),
        case_sensitive=case_sensitive,
    )


def _with_safe_names(fields: Iterable[pa.Field]) -> list[pa.Field]:
    fields = list(fields)
    names = safe_names([field.name for field in fields])
    return [_with_safe_names_below(field.with_name(name)) for field, name in zip(fields, names, strict=True)]


def _with_safe_names_below(field: pa.Field) -> pa.Field:
    data_type = field.type
    if pa.types.is_struct(data_type):
        return field.with_type(pa.struct(_with_safe_names(data_type)))
    if pa.types.is_list(data_type):
        return field.with_type(pa.list_(_with_safe_names_below(data_type.value_field)))
    if pa.types.is_map(data_type):
        key, item = _with_safe_names_below(data_type.key_field), _with_safe_names_below(data_type.item_field)
        return field.with_type(pa.map_(key, item))
    return field


def _optional_below(field: pa.Field) -> pa.Field:
    """Return the field with every nested field optional that can be missing because a struct around it is null."""
    data_type = field.type
    if pa.types.is_struct(data_type):
        children = [child.with_nullable(child.nullable or field.nullable) for child in data_type]
        return field.with_type(pa.struct([_optional_below(child) for child in children]))
    if pa.types.is_list(data_type):
        return field.with_type(pa.list_(_optional_below(data_type.value_field)))
    if pa.types.is_map(data_type):
        key, item = _optional_below(data_type.key_field), _optional_below(data_type.item_field)
        return field.with_type(pa.map_(key, item))
    return field


def _with_small_offsets(field: pa.Field) -> pa.Field:
    return field.with_type(_small_type(field.type))


def _small_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type with 32-bit offsets, as Spark sends it, where PyIceberg chooses 64-bit ones."""
    if pa.types.is_large_string(data_type):
        return pa.string()
    if pa.types.is_large_binary(data_type):
        return pa.binary()
    if pa.types.is_struct(data_type):
        return pa.struct([_with_small_offsets(field) for field in data_type])
    if pa.types.is_large_list(data_type) or pa.types.is_list(data_type):
        return pa.list_(_with_small_offsets(data_type.value_field))
    if pa.types.is_map(data_type):
        return pa.map_(_with_small_offsets(data_type.key_field), _with_small_offsets(data_type.item_field))
    return data_type
