"""Pure: the Arrow types of a table's columns, and the Arrow schema of its Parquet files.

PyIceberg has such types too, but its module loads Arrow's datasets, and with them pandas where it is installed: in
every task and every commit. A test holds that both are alike, but for the 64-bit offsets that Spark does not send.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from iceberg_ds.table.names import safe_names

FIELD_ID_KEY = b"PARQUET:field_id"
_DOC_KEY = b"doc"
_PRIMITIVES: dict[type[IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.DateType: pa.date32(),
    ice.TimeType: pa.time64("us"),
    ice.TimestampType: pa.timestamp("us"),
    ice.TimestamptzType: pa.timestamp("us", tz="UTC"),
    ice.TimestampNanoType: pa.timestamp("ns"),
    ice.TimestamptzNanoType: pa.timestamp("ns", tz="UTC"),
    ice.StringType: pa.string(),
    ice.BinaryType: pa.binary(),
    ice.UUIDType: pa.uuid(),
    ice.UnknownType: pa.null(),
}


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
    named = [_arrow_field(field) for field in schema.fields]
    return FileShape(
        schema=pa.schema([_optional_below(field) for field in _with_safe_names(named)]),
        named=pa.schema(named),
        case_sensitive=case_sensitive,
    )


def arrow_type(kind: IcebergType) -> pa.DataType:
    """Return the Arrow type of a column, with the 32-bit offsets that Spark sends.

    Raises:
        TypeError: The type has no such Arrow type, as `geometry` and `geography` have none.
    """
    match kind:
        case StructType():
            return pa.struct([_arrow_field(field) for field in kind.fields])
        case ListType():
            return pa.list_(_arrow_field(kind.element_field))
        case MapType():
            return pa.map_(_arrow_field(kind.key_field), _arrow_field(kind.value_field))
        case ice.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ice.FixedType():
            return pa.binary(len(kind))
    if (data_type := _PRIMITIVES.get(type(kind))) is None:
        raise TypeError(f"Iceberg's type {kind} has no Arrow type here.")
    return data_type


def _arrow_field(field: NestedField) -> pa.Field:
    metadata = {_DOC_KEY: field.doc} if field.doc else {}
    metadata[FIELD_ID_KEY] = str(field.field_id)
    return pa.field(field.name, arrow_type(field.field_type), nullable=field.optional, metadata=metadata)


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
