"""Pure: Spark's and Arrow's schemas against Iceberg's.

Creates an Iceberg schema from a DataFrame's, names every difference between the two, and gives the
Arrow schema of the table's files. Columns are matched by name: the exact one, else the only one that
differs in case. A value is only ever widened, never narrowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark

from iceberg_ds.conform import FileShape
from iceberg_ds.errors import SchemaMismatchError

_PRIMITIVES: dict[type[spark.DataType], IcebergType] = {
    spark.BooleanType: BooleanType(),
    spark.ByteType: IntegerType(),
    spark.ShortType: IntegerType(),
    spark.IntegerType: IntegerType(),
    spark.LongType: LongType(),
    spark.FloatType: FloatType(),
    spark.DoubleType: DoubleType(),
    spark.StringType: StringType(),
    spark.CharType: StringType(),
    spark.VarcharType: StringType(),
    spark.BinaryType: BinaryType(),
    spark.DateType: DateType(),
    spark.TimestampType: TimestamptzType(),
    spark.TimestampNTZType: TimestampType(),
}


class _UnsupportedTypeError(ValueError):
    """A Spark type without an exact Iceberg counterpart; the message is the type's name."""


def iceberg_schema(dataframe: spark.StructType) -> Schema:
    """Return the Iceberg schema of a new table for `dataframe`, with nullability and column comments.

    Field ids are assigned from 1 in the order of the columns; a catalog assigns its own on creation.

    Raises:
        SchemaMismatchError: Names every column whose type has no exact Iceberg counterpart.
    """
    problems: list[str] = []
    ids = itertools.count(1)
    fields = [field for column in dataframe if (field := _convert_column(column, ids, problems)) is not None]
    problems += _repeated_names(column.name for column in dataframe)
    if problems:
        raise SchemaMismatchError("Cannot create a table for this DataFrame:\n" + _bullets(problems))
    return Schema(*fields)


def _convert_column(column: spark.StructField, ids: Iterator[int], problems: list[str]) -> NestedField | None:
    field_id = next(ids)
    try:
        field_type = _convert(column.dataType, ids)
    except _UnsupportedTypeError as unsupported:
        problems.append(
            f"column '{column.name}' holds {unsupported}, which has no exact Iceberg type here: "
            "cast it, for example to string, or drop it"
        )
        return None
    comment = (column.metadata or {}).get("comment")
    return NestedField(
        field_id=field_id, name=column.name, field_type=field_type, required=not column.nullable, doc=comment
    )


def _convert(data_type: spark.DataType, ids: Iterator[int]) -> IcebergType:
    match data_type:
        case spark.DecimalType():
            return DecimalType(data_type.precision, data_type.scale)
        case spark.StructType():
            if repeated := _repeated_names(data_type.names):
                raise _UnsupportedTypeError(f"a struct whose {'; '.join(repeated)}")
            return StructType(*(_convert_nested(field, ids) for field in data_type))
        case spark.ArrayType():
            return ListType(
                element_id=next(ids),
                element_type=_convert(data_type.elementType, ids),
                element_required=not data_type.containsNull,
            )
        case spark.MapType():
            return MapType(
                key_id=next(ids),
                key_type=_convert(data_type.keyType, ids),
                value_id=next(ids),
                value_type=_convert(data_type.valueType, ids),
                value_required=not data_type.valueContainsNull,
            )
    if isinstance(data_type, spark.StringType) and data_type.collation != "UTF8_BINARY":
        raise _UnsupportedTypeError(data_type.simpleString())
    # The exact class counts: a subclass (a user-defined type) may mean something else.
    primitive = _PRIMITIVES.get(type(data_type))
    if primitive is None:
        raise _UnsupportedTypeError(data_type.simpleString())
    return primitive


def _convert_nested(field: spark.StructField, ids: Iterator[int]) -> NestedField:
    return NestedField(
        field_id=next(ids),
        name=field.name,
        field_type=_convert(field.dataType, ids),
        required=not field.nullable,
        doc=(field.metadata or {}).get("comment"),
    )


def check_fits(dataframe: spark.StructType, table: Schema, *, table_name: str) -> None:
    """Check that every column of `dataframe` fits its column of `table`, and that none is missing or extra.

    A nullable column may feed a required one; the rows are checked as they are written.

    Raises:
        SchemaMismatchError: Names every column that does not fit, with both types and what to do.
    """
    problems = _repeated_names(column.name for column in dataframe)
    matched: set[int] = set()
    for column in dataframe:
        field = find_field(column.name, table.fields)
        if field is None:
            problems.append(
                f"column '{column.name}' {column.dataType.simpleString()} is not in the table: "
                "drop it from the DataFrame or add it to the table"
            )
            continue
        matched.add(field.field_id)
        problems += _differences(column.dataType, field.field_type, column.name)
    problems += [_missing(field) for field in table.fields if field.field_id not in matched]
    if problems:
        raise SchemaMismatchError(f"Cannot write to {table_name}:\n" + _bullets(problems))


def _missing(field: NestedField) -> str:
    if field.required:
        return f"column '{field.name}' {field.field_type} is required in the table and missing in the DataFrame: add it"
    return (
        f"column '{field.name}' {field.field_type} is missing in the DataFrame: add it, "
        f"for example as lit(None) cast to the type"
    )


def _differences(data_type: spark.DataType, target: IcebergType, path: str) -> list[str]:
    """Return one sentence for every place at or below `path` where a value of `data_type` does not fit `target`."""
    match data_type, target:
        case spark.StructType(), StructType():
            return _struct_differences(data_type, target, path)
        case spark.ArrayType(), ListType():
            return _differences(data_type.elementType, target.element_type, f"{path}.element")
        case spark.MapType(), MapType():
            return _differences(data_type.keyType, target.key_type, f"{path}.key") + _differences(
                data_type.valueType, target.value_type, f"{path}.value"
            )
    try:
        source = _convert(data_type, itertools.count(1))
    except _UnsupportedTypeError as unsupported:
        return [f"column '{path}' holds {unsupported}, which has no exact Iceberg type here: cast it to {target}"]
    if is_lossless(source, target):
        return []
    return [
        f"column '{path}' is {data_type.simpleString()} in the DataFrame and {target} in the table: cast it to that"
    ]


def _struct_differences(data_type: spark.StructType, target: StructType, path: str) -> list[str]:
    problems: list[str] = []
    matched: set[int] = set()
    for child in data_type:
        field = find_field(child.name, target.fields)
        if field is None:
            problems.append(f"field '{path}.{child.name}' {child.dataType.simpleString()} is not in the table: drop it")
            continue
        matched.add(field.field_id)
        problems += _differences(child.dataType, field.field_type, f"{path}.{child.name}")
    return problems + [
        f"field '{path}.{field.name}' {field.field_type} is missing in the DataFrame: add it"
        for field in target.fields
        if field.field_id not in matched
    ]


def is_lossless(source: IcebergType, target: IcebergType) -> bool:
    """Return whether every value of primitive `source` is kept by `target` (the spec's type promotions)."""
    match source, target:
        case IntegerType(), LongType():
            return True
        case FloatType(), DoubleType():
            return True
        case DecimalType(), DecimalType():
            return source.scale == target.scale and source.precision <= target.precision
    return bool(source == target)


def can_still_read(written: Schema, current: Schema) -> list[str]:
    """Return why files written with schema `written` would not be readable in a table of schema `current`.

    Fields are matched by id (spec, "Column Projection"). An empty list means that they are readable.
    """
    return _unreadable(written.as_struct(), current.as_struct(), "")


def _unreadable(written: IcebergType, current: IcebergType, path: str) -> list[str]:
    if written.is_primitive or current.is_primitive:
        is_readable = written.is_primitive and current.is_primitive and is_lossless(written, current)
        return [] if is_readable else [f"column '{path}' was {written} and is {current}"]
    before = {field.field_id: field for field in _children(written)}
    problems = []
    for field in _children(current):
        name = f"{path}.{field.name}" if path else field.name
        old = before.get(field.field_id)
        if field.required and (old is None or old.optional):
            problems.append(f"column '{name}' has become required")
        if old is not None:
            problems += _unreadable(old.field_type, field.field_type, name)
    return problems


def _children(parent: IcebergType) -> tuple[NestedField, ...]:
    match parent:
        case StructType():
            return parent.fields
        case ListType():
            return (parent.element_field,)
        case MapType():
            return (parent.key_field, parent.value_field)
    return ()


def find_field(name: str, fields: Iterable[NestedField]) -> NestedField | None:
    """Return the field called `name`, else the only one whose name differs in case alone, else None."""
    candidates = [field for field in fields if field.name.lower() == name.lower()]
    exact = [field for field in candidates if field.name == name]
    if exact:
        return exact[0]
    return candidates[0] if len(candidates) == 1 else None


def _repeated_names(names: Iterable[str]) -> list[str]:
    seen: dict[str, str] = {}
    problems = []
    for name in names:
        if name.lower() in seen:
            problems.append(f"columns '{seen[name.lower()]}' and '{name}' have the same name: rename one")
        seen.setdefault(name.lower(), name)
    return problems


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"  - {line}" for line in lines)


def file_shape(schema: Schema) -> FileShape:
    """Return the Arrow schema of the table's Parquet files, with and without names made safe for Avro.

    The file's names are made safe as Iceberg's own writers do; readers go by field id.
    """
    safe = _arrow_schema(sanitize_column_names(schema))
    return FileShape(schema=pa.schema([_optional_below(field) for field in safe]), named=_arrow_schema(schema))


def _arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([_with_small_offsets(field) for field in schema_to_pyarrow(schema)])


def _optional_below(field: pa.Field) -> pa.Field:
    """Return the field with everything optional that can be missing because a struct around it is null."""
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
