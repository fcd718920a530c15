"""Pure: Spark's types as Iceberg's, the schema of a new table, and which values go into which column.

Every Spark type either has an exact Iceberg counterpart here or is refused by name, with what to do instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyspark.sql import types as spark

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.arrow_schema import arrow_type
from iceberg_ds.table.bad_values import needs_cast
from iceberg_ds.table.defaults import physical
from iceberg_ds.table.names import repeated_names, why_reserved
from iceberg_ds.table.variant import VARIANT, VariantType, holds_variant

# Types that Iceberg has no types of their own for.
_SAME = (spark.ByteType, spark.ShortType, spark.CharType, spark.VarcharType)
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
    spark.VariantType: VariantType(),
}
_SPARK_TYPES: dict[type[IcebergType], spark.DataType] = {
    type(ours): theirs() for theirs, ours in reversed(_PRIMITIVES.items()) if theirs not in _SAME
} | {UnknownType: spark.NullType()}
_NUMBERS = (IntegerType, LongType, FloatType, DoubleType, DecimalType)
# What Spark casts to a type, with ANSI on; everything to text.
_CASTS: dict[type[IcebergType], tuple[type[IcebergType], ...]] = {
    **dict.fromkeys(_NUMBERS, (*_NUMBERS, StringType, BooleanType, TimestamptzType)),
    BooleanType: (*_NUMBERS, StringType),
    DateType: (StringType, TimestampType, TimestamptzType),
    TimestampType: (StringType, DateType, TimestamptzType),
    TimestamptzType: (*_NUMBERS, StringType, BooleanType, DateType, TimestampType),
    BinaryType: (StringType,),
}
_FORMS: dict[type[IcebergType], str] = {
    UUIDType: "give it as string, such as f79c3e09-677c-4bbd-a479-3f349cb785e7, or as binary of 16 bytes",
    FixedType: "give it as binary of that length",
    TimeType: "give it as string, such as 10:00:00.5, or as time",
    VariantType: "make a variant of it: parse_json of a text, to_variant_object of a struct, an array or a map, which "
    "nested-as-variant=true does, too",
}
_TIME: type[spark.DataType] | None = getattr(spark, "TimeType", None)  # since Spark 4.1
# Where Spark's Parquet reader looks for the id of a field.
PARQUET_FIELD_ID = "parquet.field.id"
_MOST_DIGITS = 38  # of a decimal
_MICROSECONDS = 6  # fractional digits of a second in Iceberg's time

# By the name of the class, since no Spark version has all of these types.
_HINTS = {
    "NullType": 'cast it to the type that the column shall have, for example lit(None).cast("string")',
    "DayTimeIntervalType": "cast it to decimal(20, 6), which are seconds, or to string",
    "YearMonthIntervalType": "cast it to interval month and that to int, or to string",
    "CalendarIntervalType": "cast it to string",
    "GeometryType": "write it as binary, for example st_asbinary(column)",
    "GeographyType": "write it as binary, for example st_asbinary(column)",
    "StringType": "cast it to plain string, for example collate(column, 'UTF8_BINARY')",
    "TimeType": "cast it to time(6), which are microseconds",
}
_HINT_FOR_USER_DEFINED = "select what it consists of, for example vector_to_array(column)"
_HINT_FOR_ANY = "cast it, for example to string, or drop it"


class UnsupportedTypeError(ValueError):
    """A Spark type without an exact Iceberg counterpart; the message is its name and what to do."""

    def __init__(self, name: str, hint: str = _HINT_FOR_ANY) -> None:
        super().__init__(f"{name}, which has no exact Iceberg type here: {hint}")


class UnreadTypeError(ValueError):
    """An Iceberg type without an exact Spark counterpart; the message is its name."""

    def __init__(self, kind: IcebergType) -> None:
        super().__init__(f"{kind}, which has no exact Spark type here")


def iceberg_schema(
    dataframe: spark.StructType, *, case_sensitive: bool | None = None, format_version: int = 2
) -> Schema:
    """Return the Iceberg schema of a new table for `dataframe`, with nullability and column comments.

    Field ids are assigned from 1 in the order of the columns; a catalog assigns its own on creation.

    Args:
        dataframe: The columns.
        case_sensitive: True if names that differ only in case are two names.
        format_version: That of the table: from 3 on a column without a type is of type `unknown`.

    Raises:
        SchemaMismatchError: Names every column whose name or type has no exact Iceberg counterpart.
    """
    problems: list[str] = []
    ids = itertools.count(1)
    convert = converter(format_version)
    converted = [_convert_column(column, ids, problems, convert, case_sensitive) for column in dataframe]
    problems += repeated_names(dataframe.names, case_sensitive=case_sensitive)
    if problems:
        raise SchemaMismatchError("Cannot create a table for this DataFrame:\n" + bullets(problems))
    try:
        return Schema(*(field for field in converted if field is not None))
    except ValueError as error:  # such as a column 'a.b' beside a struct 'a' with a field 'b'
        raise SchemaMismatchError(f"Cannot create a table for this DataFrame: {error}: rename one.") from error


def _convert_column(
    column: spark.StructField,
    ids: Iterator[int],
    problems: list[str],
    convert: Callable[..., IcebergType],
    case_sensitive: bool | None,  # noqa: FBT001
) -> NestedField | None:
    if not column.name:
        problems.append(f"a column of type {column.dataType.simpleString()} has no name: name it")
        return None
    if (reason := why_reserved(column.name)) is not None:
        problems.append(reason)
        return None
    try:
        return _convert_field(column, ids, convert, case_sensitive)
    except UnsupportedTypeError as unsupported:
        problems.append(f"column '{column.name}' holds {unsupported}")
        return None


def _convert_field(
    field: spark.StructField,
    ids: Iterator[int],
    convert: Callable[..., IcebergType],
    case_sensitive: bool | None,  # noqa: FBT001
) -> NestedField:
    return NestedField(
        field_id=next(ids),
        name=field.name,
        field_type=convert(field.dataType, ids, case_sensitive=case_sensitive),
        required=not (field.nullable or isinstance(field.dataType, spark.NullType)),
        doc=comment_of(field),
    )


def comment_of(field: spark.StructField) -> str | None:
    """Return the comment of a column or field, or None if it has none."""
    comment = (field.metadata or {}).get("comment")
    return comment if isinstance(comment, str) else None  # metadata may mean anything by that word


def converter(format_version: int) -> Callable[..., IcebergType]:
    """Return what finds the type of a whole column in tables of a format version: `convert_type` or `column_type`."""
    return column_type if format_version >= UnknownType().minimum_format_version() else convert_type


def column_type(data_type: spark.DataType, ids: Iterator[int], *, case_sensitive: bool | None = None) -> IcebergType:
    """Return the type of a whole column in a table of format version 3, which void is, too; as `convert_type`."""
    if isinstance(data_type, spark.NullType):
        return UnknownType()
    return convert_type(data_type, ids, case_sensitive=case_sensitive)


def convert_type(data_type: spark.DataType, ids: Iterator[int], *, case_sensitive: bool | None = None) -> IcebergType:
    """Return the exact Iceberg counterpart of `data_type`; nested fields take their ids from `ids`.

    Args:
        data_type: Spark's type.
        ids: Gives the ids of nested fields, outer ones first.
        case_sensitive: True if names of fields that differ only in case are two names.

    Raises:
        UnsupportedTypeError: The type, or one nested in it, has no counterpart. Says which one, and what to do.
    """
    match data_type:
        case spark.StructType():
            _check_struct(data_type, case_sensitive=case_sensitive)
            return StructType(*(_convert_field(field, ids, convert_type, case_sensitive) for field in data_type))
        case spark.ArrayType():
            return ListType(
                element_id=next(ids),
                element_type=convert_type(data_type.elementType, ids, case_sensitive=case_sensitive),
                element_required=not data_type.containsNull,
            )
        case spark.MapType():
            return MapType(
                key_id=next(ids),
                key_type=convert_type(data_type.keyType, ids, case_sensitive=case_sensitive),
                value_id=next(ids),
                value_type=convert_type(data_type.valueType, ids, case_sensitive=case_sensitive),
                value_required=not data_type.valueContainsNull,
            )
    return _convert_primitive(data_type)


def _check_struct(data_type: spark.StructType, *, case_sensitive: bool | None) -> None:
    if not data_type.fields:
        raise UnsupportedTypeError("a struct without fields", "drop it")  # Parquet has none either
    if not all(data_type.names):
        raise UnsupportedTypeError("a struct with a field without a name", "name it")
    if repeated := repeated_names(data_type.names, case_sensitive=case_sensitive):
        raise UnsupportedTypeError(f"a struct whose {'; '.join(repeated)}")


def _convert_primitive(data_type: spark.DataType) -> IcebergType:
    match data_type:
        case spark.DecimalType(scale=scale) if scale < 0:
            digits = data_type.precision - scale
            hint = f"cast it to decimal({digits}, 0)" if digits <= _MOST_DIGITS else "cast it to string"
            raise UnsupportedTypeError(data_type.simpleString(), hint)
        case spark.DecimalType():
            return DecimalType(data_type.precision, data_type.scale)
        case spark.StringType() if data_type.collation != "UTF8_BINARY":
            raise _unsupported(data_type)
    if _TIME is not None and isinstance(data_type, _TIME) and getattr(data_type, "precision", 0) <= _MICROSECONDS:
        return TimeType()
    # The exact class counts: a subclass (a user-defined type) may mean something else.
    primitive = _PRIMITIVES.get(type(data_type))
    if primitive is None:
        raise _unsupported(data_type)
    return primitive


def _unsupported(data_type: spark.DataType) -> UnsupportedTypeError:
    name = type(data_type).__name__
    if isinstance(data_type, spark.UserDefinedType):
        return UnsupportedTypeError(f"user-defined type {name}", _HINT_FOR_USER_DEFINED)
    return UnsupportedTypeError(data_type.simpleString(), _HINTS.get(name, _HINT_FOR_ANY))


def is_writable(data_type: spark.DataType, target: IcebergType) -> bool:
    """Return whether values of `data_type`, which is no struct, list or map, can be written into `target`.

    True for types that are the same or wider in the table, and for values that are checked one by one as they
    are written: text into a uuid or time, binary into a uuid or fixed, and void, whose values are all null.
    """
    match data_type, target:
        case spark.NullType(), _:
            return True
        case spark.BinaryType(), FixedType() | UUIDType():
            return True
    try:
        source = convert_type(data_type, itertools.count(1))
    except UnsupportedTypeError:
        return False
    return is_lossless(source, target) or (isinstance(source, StringType) and isinstance(target, UUIDType | TimeType))


def cast_type(data_type: spark.DataType, target: IcebergType) -> spark.DataType | None:
    """Return the Spark type of a table's column if values of `data_type` must be cast one by one for it, else None."""
    try:
        source = convert_type(data_type, itertools.count(1))
        is_cast = needs_cast(arrow_type(source), arrow_type(target))
    except (UnsupportedTypeError, TypeError):
        return None
    if not is_cast or holds_variant(source):
        return None
    if isinstance(target, DecimalType):
        return spark.DecimalType(target.precision, target.scale)
    return _SPARK_TYPES[type(target)]


def spark_name(kind: IcebergType) -> str:
    """Return Spark's name of a type of the table; Iceberg's own name of a type that Spark lacks, such as `uuid`."""
    match kind:
        case StructType(fields=fields):
            return f"struct<{','.join(f'{field.name}:{spark_name(field.field_type)}' for field in fields)}>"
        case ListType():
            return f"array<{spark_name(kind.element_type)}>"
        case MapType():
            return f"map<{spark_name(kind.key_type)},{spark_name(kind.value_type)}>"
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
    known = _SPARK_TYPES.get(type(kind))
    return str(kind) if known is None else known.simpleString()


def spark_type(kind: IcebergType, *, with_field_ids: bool = False) -> spark.DataType:  # noqa: PLR0911  # one a kind
    """Return the Spark type of a column as it is read: uuid and time as text, fixed as binary.

    Args:
        kind: The column's type in the table.
        with_field_ids: Whether fields of structs carry their ids, as Spark's Parquet reader takes them; uuid, which
            that reader knows as bytes only, is binary then, and void, which it does not know, is boolean.

    Raises:
        UnreadTypeError: Spark has no such type.
    """
    match kind:
        case UUIDType() if with_field_ids:
            return spark.BinaryType()
        case UnknownType() if with_field_ids:  # of files without it, as any type
            return spark.BooleanType()
        case UUIDType() | TimeType():
            return spark.StringType()
        case FixedType():
            return spark.BinaryType()
        case DecimalType(precision=precision, scale=scale):
            return spark.DecimalType(precision, scale)
        case StructType(fields=fields):
            return spark_struct(fields, with_field_ids=with_field_ids)
        case ListType(element_type=element, element_required=is_required):
            return spark.ArrayType(spark_type(element, with_field_ids=with_field_ids), not is_required)
        case MapType(key_type=key, value_type=value, value_required=is_required):
            keys, values = (spark_type(one, with_field_ids=with_field_ids) for one in (key, value))
            return spark.MapType(keys, values, not is_required)
    if type(kind) not in _SPARK_TYPES:
        raise UnreadTypeError(kind)
    return _SPARK_TYPES[type(kind)]


def sql_constant(value: object, data_type: spark.DataType) -> str:
    """Return a default value of a column as an expression of SQL that means the same in every session.

    Args:
        value: The value, as PyIceberg has it.
        data_type: The type in which Spark reads or writes the column.
    """
    if isinstance(data_type, spark.BinaryType):
        return f"X'{bytes(physical(value)).hex()}'"  # type: ignore[call-overload]
    text = value.isoformat(" ") if isinstance(value, datetime) else str(value)
    # A session decides what a backslash means in a text, hence digits, and which of two types TIMESTAMP is.
    name = "timestamp_ltz" if isinstance(data_type, spark.TimestampType) else data_type.simpleString()
    return f"CAST(CAST(X'{text.encode().hex()}' AS STRING) AS {name})"


def spark_struct(fields: Iterable[NestedField], *, with_field_ids: bool = False) -> spark.StructType:
    """Return the Spark struct of some columns, all of them nullable; arguments and errors as of `spark_type`."""
    return spark.StructType(
        [
            spark.StructField(
                field.name,
                spark_type(field.field_type, with_field_ids=with_field_ids),
                nullable=True,
                metadata=_metadata(field, with_field_ids=with_field_ids),
            )
            for field in fields
        ]
    )


def _metadata(field: NestedField, *, with_field_ids: bool) -> dict[str, object]:
    if with_field_ids:
        return {PARQUET_FIELD_ID: field.field_id}
    return {} if field.doc is None else {"comment": field.doc}


def next_step(source: IcebergType, target: IcebergType) -> str:
    """Return how values of a type may get into a column of type `target`, which cannot take them as they are."""
    if isinstance(target, UnknownType):
        again = "" if isinstance(source, PrimitiveType) else ", or drop the table's, and let a write add it again"
        return f"the table's has no type yet, and takes nothing but nulls: leave the column out{again}"
    if (form := _FORMS.get(type(target))) is not None:
        return form
    if isinstance(source, VariantType):
        return "take the value out of it, for example with variant_get, or try_variant_get for null where it has none"
    if isinstance(target, StringType) or isinstance(source, _CASTS.get(type(target), ())):
        return "cast it to that"
    if isinstance(source, StringType):
        return "Spark has no cast to that; read the text with from_json"
    return "Spark has no cast to that; make a column of that type of it, or drop it"


def is_lossless(source: IcebergType, target: IcebergType) -> bool:
    """Return whether `target` can hold every value of primitive `source` (the spec's type promotions)."""
    match source, target:
        case IntegerType(), LongType():
            return True
        case FloatType(), DoubleType():
            return True
        case UnknownType(), PrimitiveType():
            return True
        case DecimalType(), DecimalType():
            return source.scale == target.scale and source.precision <= target.precision
    return bool(source == target)


def with_nullable_fields(dataframe: spark.StructType) -> spark.StructType:
    """Return the columns as nullable, with their fields, elements and map values nullable at any depth."""
    return spark.StructType([nullable_field(column) for column in dataframe])


def nullable_field(field: spark.StructField) -> spark.StructField:
    """Return the field as nullable, with everything nested in it nullable."""
    return spark.StructField(field.name, _nullable_type(field.dataType), nullable=True, metadata=field.metadata)


def _nullable_type(data_type: spark.DataType) -> spark.DataType:
    match data_type:
        case spark.StructType():
            return with_nullable_fields(data_type)
        case spark.ArrayType():
            return spark.ArrayType(_nullable_type(data_type.elementType), containsNull=True)
        case spark.MapType():
            key, value = _nullable_type(data_type.keyType), _nullable_type(data_type.valueType)
            return spark.MapType(key, value, valueContainsNull=True)
    return data_type


def json_schema(dataframe: spark.StructType) -> spark.StructType:
    """Return the schema with every struct, array and map among the columns replaced by string.

    A column that holds a type without a JSON form stays unchanged, so that it is refused by name.
    """
    return spark.StructType([_as_json(column) for column in dataframe])


def _as_json(column: spark.StructField) -> spark.StructField:
    if not (is_nested(column.dataType) and _has_json_form(column.dataType)):
        return column
    return retyped(column, spark.StringType())


def retyped(column: spark.StructField, data_type: spark.DataType) -> spark.StructField:
    """Return the column with another type."""
    return spark.StructField(column.name, data_type, column.nullable, column.metadata)


def _has_json_form(data_type: spark.DataType) -> bool:
    match data_type:
        case spark.StructType():
            is_unique = len(set(data_type.names)) == len(data_type.names)
            return is_unique and all(_has_json_form(field.dataType) for field in data_type)
        case spark.ArrayType():
            return _has_json_form(data_type.elementType)
        case spark.MapType():
            return _has_json_form(data_type.keyType) and _has_json_form(data_type.valueType)
        case spark.NullType() | spark.StringType():  # of any collation
            return True
    try:
        convert_type(data_type, itertools.count(1))
    except UnsupportedTypeError:
        return False
    return True


def is_nested(data_type: spark.DataType) -> bool:
    """Return whether values are structs, arrays or maps."""
    return isinstance(data_type, spark.StructType | spark.ArrayType | spark.MapType)


def why_no_variant(data_type: spark.DataType) -> str | None:
    """Return the type in which a column of structs, arrays or maps cannot become variants, with what to do, or None."""
    if isinstance(data_type, spark.StructType) and _is_like_variant(data_type):
        return f"{data_type.simpleString()}, which tasks cannot tell from a variant: rename a field of it"
    return _without_variant_form(data_type)


def variant_schema(dataframe: spark.StructType) -> spark.StructType:
    """Return the schema with every struct, array and map among the columns that can be a variant replaced by it."""
    return spark.StructType([
        retyped(column, spark.VariantType())
        if is_nested(column.dataType) and why_no_variant(column.dataType) is None
        else column
        for column in dataframe
    ])  # fmt: skip


def _is_like_variant(data_type: spark.StructType) -> bool:
    parts = {field.name: field.dataType for field in data_type}
    return parts == dict.fromkeys((field.name for field in VARIANT), spark.BinaryType())


def _without_variant_form(data_type: spark.DataType) -> str | None:  # noqa: PLR0911  # one a kind
    match data_type:
        case spark.StructType():
            if repeated := repeated_names(data_type.names, case_sensitive=True):
                return f"a struct whose {'; '.join(repeated)}"
            return next(filter(None, (_without_variant_form(field.dataType) for field in data_type)), None)
        case spark.ArrayType():
            return _without_variant_form(data_type.elementType)
        case spark.MapType(keyType=spark.StringType()):
            return _without_variant_form(data_type.valueType)
        case spark.MapType():
            return (
                f"{data_type.simpleString()}, whose keys are no text, as the names of a variant's fields are: cast "
                "them, for example transform_keys(column, (key, value) -> cast(key AS string))"
            )
        case spark.NullType() | spark.StringType():  # of any collation
            return None
    if _TIME is not None and isinstance(data_type, _TIME):
        return f"{data_type.simpleString()}, which Spark does not convert to a variant: cast it to string"
    try:
        convert_type(data_type, itertools.count(1))
    except UnsupportedTypeError as unsupported:
        return str(unsupported)
    return None


def bullets(lines: Iterable[str]) -> str:
    """Return the sentences as a bulleted list, one per line."""
    return "\n".join(f"  - {line}" for line in lines)
