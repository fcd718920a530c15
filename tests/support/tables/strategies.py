"""Hypothesis strategies: any DataFrame that the sink takes, any partition spec, any filter."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    TimeType,
    UUIDType,
)
from pyspark.sql import types as spark
from support.tables.sink import Row

from iceberg_ds.table.spark_types import iceberg_schema

UTC = dt.timezone.utc
ROW = "row"  # a column that every DataFrame here has: the number of the row
_MAX_DEPTH = 2

TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(3),
    TruncateTransform(2),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]


class UuidText(spark.StringType):
    """Text in Spark, a uuid in the table."""


class TimeText(spark.StringType):
    """Text in Spark, a time in the table."""


class UuidBytes(spark.BinaryType):
    """Bytes in Spark, a uuid in the table."""


class FixedBytes(spark.BinaryType):
    """Bytes in Spark, a fixed in the table."""


FIXED_LENGTH = 3
_TIMES: tuple[spark.DataType, ...] = (spark.TimeType(6),) if hasattr(spark, "TimeType") else ()
# Values that are read, as they are written, as something that Spark has no type for.
_READ_AS: dict[type[spark.DataType], tuple[spark.DataType, PrimitiveType]] = {
    UuidText: (spark.StringType(), UUIDType()),
    TimeText: (spark.StringType(), TimeType()),
    UuidBytes: (spark.BinaryType(), UUIDType()),
    FixedBytes: (spark.BinaryType(), FixedType(FIXED_LENGTH)),
}


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Which values are drawn: some readers cannot hold all that Iceberg can.

    Attributes:
        first_day: The earliest date.
        last_day: The latest date.
        names: Names of columns and fields.
        truncates_decimals: Whether a decimal may be truncated to a partition value.
        more_types: Types beside those that Spark and Iceberg both have.
        unpartitioned: Types of columns that are no source of a partition.
    """

    first_day: dt.date
    last_day: dt.date
    names: tuple[str, ...]
    truncates_decimals: bool = True
    more_types: tuple[spark.DataType, ...] = ()
    unpartitioned: tuple[type[PrimitiveType], ...] = ()


EVERYTHING = Ranges(
    first_day=dt.date(1, 1, 2),
    last_day=dt.date(9999, 12, 30),
    names=("a", "b", "C", "d_1", "with space", "ünï", "1st", "x-y", "p/q", "_", "select"),
)
# ClickHouse knows dates from 1900 to 2299, and cannot prune by a truncated decimal.
CLICKHOUSE = Ranges(
    first_day=dt.date(1900, 1, 2),
    last_day=dt.date(2298, 12, 30),
    names=("a", "b", "c", "d", "e"),
    truncates_decimals=False,
)


# With every type that a table may have; this one cannot prune by a uuid, and reads the seconds of a time alone.
ALL_TYPES = replace(EVERYTHING, more_types=(UuidText(), TimeText(), UuidBytes(), FixedBytes(), *_TIMES))
CLICKHOUSE_TYPES = replace(
    CLICKHOUSE, more_types=(UuidText(), UuidBytes(), FixedBytes()), unpartitioned=(UUIDType, FixedType)
)


@dataclass(frozen=True)
class Frame:
    """A DataFrame: its schema and its rows, maps as lists of pairs.

    Attributes:
        schema: The DataFrame's schema.
        rows: The DataFrame's rows.
        table: Schema of a table for it, None for the one that it would create.
        stored: The rows as that table has them, None if it has the same.
        drawn: The schema with the types that were drawn, None if the DataFrame has these.
    """

    schema: spark.StructType
    rows: list[Row]
    table: Schema | None = None
    stored: list[Row] | None = None
    drawn: spark.StructType | None = None


def _decimals() -> st.SearchStrategy[spark.DataType]:
    return st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda scale: spark.DecimalType(precision, scale))
    )


def data_types(ranges: Ranges, depth: int = 0) -> st.SearchStrategy[spark.DataType]:
    """Return any type that has an Iceberg counterpart."""
    flat = st.one_of(
        st.sampled_from(
            [
                *ranges.more_types,
                spark.BooleanType(),
                spark.ByteType(),
                spark.ShortType(),
                spark.IntegerType(),
                spark.LongType(),
                spark.FloatType(),
                spark.DoubleType(),
                spark.StringType(),
                spark.BinaryType(),
                spark.DateType(),
                spark.TimestampType(),
                spark.TimestampNTZType(),
            ]
        ),
        _decimals(),
    )
    if depth == _MAX_DEPTH:
        return flat
    inner = data_types(ranges, depth + 1)
    keys = st.sampled_from([spark.StringType(), spark.IntegerType(), spark.LongType(), spark.DateType()])
    return st.one_of(
        flat,
        flat,
        struct_types(ranges, depth + 1),
        st.builds(spark.ArrayType, inner, st.booleans()),
        st.builds(spark.MapType, keys, inner, st.booleans()),
    )


def struct_types(ranges: Ranges, depth: int = 0) -> st.SearchStrategy[spark.StructType]:
    """Return any struct of one to four fields whose names differ."""
    names = st.lists(st.sampled_from(ranges.names), min_size=1, max_size=4, unique=True)

    def with_fields(given: list[str]) -> st.SearchStrategy[spark.StructType]:
        fields = [
            st.builds(spark.StructField, st.just(name), data_types(ranges, depth), st.booleans()) for name in given
        ]
        return st.tuples(*fields).map(lambda built: spark.StructType(list(built)))

    return names.flatmap(with_fields)


def values(data_type: spark.DataType, ranges: Ranges, *, nullable: bool) -> st.SearchStrategy[Any]:
    """Return any value of that type, None among them if it may be null."""
    drawn = _values(data_type, ranges)
    return st.one_of(drawn, drawn, st.none()) if nullable else drawn


def _values(data_type: spark.DataType, ranges: Ranges) -> st.SearchStrategy[Any]:  # one return a type
    match data_type:
        case spark.StructType():
            return st.fixed_dictionaries(
                {field.name: values(field.dataType, ranges, nullable=field.nullable) for field in data_type}
            )
        case spark.ArrayType():
            return st.lists(values(data_type.elementType, ranges, nullable=data_type.containsNull), max_size=3)
        case spark.MapType():
            keys = st.lists(values(data_type.keyType, ranges, nullable=False), max_size=3, unique=True)
            item = values(data_type.valueType, ranges, nullable=data_type.valueContainsNull)
            return keys.flatmap(lambda known: st.tuples(*(st.tuples(st.just(key), item) for key in known)).map(list))
        case spark.DecimalType():
            highest = 10**data_type.precision - 1
            scale = data_type.scale
            # The lowest of all has no truncated partition value within its own precision.
            return st.integers(1 - highest, highest).map(lambda digits: _decimal(digits, scale))
    return _flat_values(data_type, ranges)


def _decimal(digits: int, scale: int) -> decimal.Decimal:
    return decimal.Decimal((int(digits < 0), tuple(int(digit) for digit in str(abs(digits))), -scale))


def _flat_values(data_type: spark.DataType, ranges: Ranges) -> st.SearchStrategy[Any]:
    first, last = ranges.first_day, ranges.last_day
    moments = st.datetimes(dt.datetime(first.year, 1, 2), dt.datetime(last.year, 12, 30))  # noqa: DTZ001  # Hypothesis' way
    known: dict[type[spark.DataType], st.SearchStrategy[Any]] = {
        spark.BooleanType: st.booleans(),
        spark.ByteType: st.integers(-(2**7), 2**7 - 1),
        spark.ShortType: st.integers(-(2**15), 2**15 - 1),
        spark.IntegerType: st.integers(-(2**31), 2**31 - 1),
        spark.LongType: st.integers(-(2**63), 2**63 - 1),
        spark.FloatType: st.floats(width=32),
        spark.DoubleType: st.floats(),
        spark.StringType: texts(),
        spark.BinaryType: st.binary(max_size=20),
        spark.DateType: st.dates(first, last),
        spark.TimestampType: moments.map(lambda moment: moment.replace(tzinfo=UTC)),
        spark.TimestampNTZType: moments,
        UuidText: st.uuids(),
        UuidBytes: st.uuids(),
        TimeText: st.times(),
        FixedBytes: st.binary(min_size=FIXED_LENGTH, max_size=FIXED_LENGTH),
        **{type(time): st.times() for time in _TIMES},
    }
    return known[type(data_type)]


def in_spark(data_type: spark.DataType) -> spark.DataType:
    """Return the type that a DataFrame has for one that was drawn."""
    match data_type:
        case spark.StructType():
            return spark.StructType(
                [spark.StructField(field.name, in_spark(field.dataType), field.nullable) for field in data_type]
            )
        case spark.ArrayType():
            return spark.ArrayType(in_spark(data_type.elementType), data_type.containsNull)
        case spark.MapType():
            return spark.MapType(
                in_spark(data_type.keyType), in_spark(data_type.valueType), data_type.valueContainsNull
            )
    known = _READ_AS.get(type(data_type))
    return known[0] if known else data_type


def in_table(data_type: spark.DataType, created: IcebergType) -> IcebergType:
    """Return the type that a table has for one that was drawn; `created` is what its DataFrame would create."""
    match data_type, created:
        case spark.StructType(), StructType():
            pairs = zip(data_type, created.fields, strict=True)
            return StructType(
                *(
                    field.model_copy(update={"field_type": in_table(drawn.dataType, field.field_type)})
                    for drawn, field in pairs
                )
            )
        case spark.ArrayType(), ListType():
            return created.model_copy(update={"element_type": in_table(data_type.elementType, created.element_type)})
        case spark.MapType(), MapType():
            key, item = in_table(data_type.keyType, created.key_type), in_table(data_type.valueType, created.value_type)
            return created.model_copy(update={"key_type": key, "value_type": item})
    known = _READ_AS.get(type(data_type))
    return known[1] if known else created


def spelled(value: Any, data_type: spark.DataType) -> Any:
    """Return a value of the table as Spark holds it; of the texts for the same uuid, one is taken."""
    match data_type:
        case _ if value is None:
            return None
        case spark.StructType():
            return {field.name: spelled(value[field.name], field.dataType) for field in data_type}
        case spark.ArrayType():
            return [spelled(item, data_type.elementType) for item in value]
        case spark.MapType():
            return [(spelled(key, data_type.keyType), spelled(item, data_type.valueType)) for key, item in value]
    return _spelled_flat(value, data_type)


def _spelled_flat(value: Any, data_type: spark.DataType) -> Any:
    match data_type:
        case UuidText():
            return [str(value), str(value).upper(), value.hex, value.hex.upper()][value.int % 4]
        case UuidBytes():
            return value.bytes
        case TimeText():
            return value.isoformat("auto" if value.second or value.microsecond else "minutes")
    return value


def texts() -> st.SearchStrategy[str]:
    """Return any text, often with a prefix that makes truncated bounds interesting."""
    plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    ends = st.sampled_from(["", "\ud7ff", "\U0010ffff" * 3, "\uffff", "\x7f", "z" * 17])
    return st.builds(lambda start, end, rest: start + end + rest, plain, ends, plain)


@st.composite
def frames(draw: st.DrawFn, ranges: Ranges = EVERYTHING, min_rows: int = 0, max_rows: int = 12) -> Frame:
    """Return any DataFrame, with a first column that numbers the rows."""
    drawn = draw(struct_types(ranges))
    whole = spark.StructType([spark.StructField(ROW, spark.LongType(), nullable=False), *drawn])
    data = draw(st.lists(_values(drawn, ranges), min_size=min_rows, max_size=max_rows))
    stored = [{ROW: number, **row} for number, row in enumerate(data)]
    schema = in_spark(whole)
    assert isinstance(schema, spark.StructType)
    if schema == whole:
        return Frame(whole, stored)
    table = in_table(whole, iceberg_schema(schema).as_struct())
    assert isinstance(table, StructType)
    return Frame(schema, [spelled(row, whole) for row in stored], Schema(*table.fields), stored, whole)


@st.composite
def specs(draw: st.DrawFn, schema: Schema, ranges: Ranges = EVERYTHING) -> PartitionSpec:
    """Return any partition spec of the schema; it may have no field at all."""
    sources = [
        (field, transform)
        for field in _reachable(schema.as_struct())
        for transform in TRANSFORMS
        if isinstance(field.field_type, PrimitiveType)
        and transform.can_transform(field.field_type)
        and not isinstance(field.field_type, ranges.unpartitioned)
        and not (isinstance(transform, IdentityTransform) and isinstance(field.field_type, FixedType))  # is refused
        and (
            ranges.truncates_decimals
            or not isinstance(transform, TruncateTransform)
            or not isinstance(field.field_type, DecimalType)
        )
    ]
    chosen = draw(st.lists(st.sampled_from(sources), max_size=2, unique_by=str))
    return PartitionSpec(
        *(
            PartitionField(source_id=field.field_id, field_id=1000 + number, transform=transform, name=f"part_{number}")
            for number, (field, transform) in enumerate(chosen)
        )
    )


def _reachable(parent: StructType) -> list[NestedField]:
    """Return the fields that a partition may have as its source: those outside of lists and maps."""
    return [
        found
        for field in parent.fields
        for found in (_reachable(field.field_type) if isinstance(field.field_type, StructType) else [field])
    ]


@dataclass(frozen=True)
class Filter:
    """A filter, as PyIceberg takes it and as plain Python does."""

    expression: BooleanExpression
    keeps: Callable[[Row], bool]

    def __repr__(self) -> str:
        return repr(self.expression)


def _comparisons(column: str, value: Any) -> list[Filter]:
    def of(expression: BooleanExpression, test: Callable[[Any], bool]) -> Filter:
        return Filter(expression, lambda row: row[column] is not None and test(row[column]))

    # Arrow skips a row group of one float and NaN for "not that float", as its bounds do not show the NaN.
    unequal = [] if isinstance(value, float) else [of(NotEqualTo(column, value), lambda found: found != value)]
    return [
        *unequal,
        of(EqualTo(column, value), lambda found: found == value),
        of(LessThan(column, value), lambda found: found < value),
        of(LessThanOrEqual(column, value), lambda found: found <= value),
        of(GreaterThan(column, value), lambda found: found > value),
        of(GreaterThanOrEqual(column, value), lambda found: found >= value),
    ]


def _may_be_compared(value: Any) -> bool:
    # PyIceberg turns a comparison of a float with an infinity into "always true", nulls included.
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


@st.composite
def filters(draw: st.DrawFn, column: str, value: st.SearchStrategy[Any]) -> Filter:
    """Return any filter on one column, with values that `value` draws."""
    usable = value.filter(_may_be_compared)
    first = draw(usable)
    # Arrow finds no zero among several floats where a row group's bounds are -0.0 and 0.0, as every writer has them.
    found = draw(st.sets(usable.filter(lambda other: not isinstance(other, float) or other), min_size=1, max_size=3))
    choices = [
        *_comparisons(column, first),
        Filter(IsNull(column), lambda row: row[column] is None),
        Filter(NotNull(column), lambda row: row[column] is not None),
        Filter(In(column, found), lambda row: row[column] is not None and row[column] in found),
    ]
    if isinstance(first, str):
        prefix = first[:3]
        if prefix:
            choices.append(
                Filter(
                    StartsWith(column, prefix), lambda row: row[column] is not None and row[column].startswith(prefix)
                )
            )
    if isinstance(first, float):
        choices.append(Filter(IsNaN(column), lambda row: row[column] is not None and math.isnan(row[column])))
    return draw(st.sampled_from(choices))


def both(first: Filter, second: Filter) -> Filter:
    """Return the filter that keeps what both keep."""
    return Filter(And(first.expression, second.expression), lambda row: first.keeps(row) and second.keeps(row))


def either(first: Filter, second: Filter) -> Filter:
    """Return the filter that keeps what one of them keeps."""
    return Filter(Or(first.expression, second.expression), lambda row: first.keeps(row) or second.keeps(row))
