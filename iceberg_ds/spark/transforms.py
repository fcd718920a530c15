"""The values of Iceberg's transforms as Spark columns, for `distribution`.

They equal what `partitioning` computes from the rows as they are written, no matter the session's time zone,
so rows of one table partition are rows of one value here. Uses Spark's own expressions where they are exact;
else a Python function on PyIceberg's transform, over Arrow where Spark has such functions (from 4.1 on).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
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
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql import types as spark

from iceberg_ds.table.partitioning import apply_transform

_CASTS: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "bigint",
    LongType: "bigint",
    StringType: "string",
    BinaryType: "binary",
    FixedType: "binary",
    UUIDType: "binary",
    DateType: "date",
    TimestamptzType: "timestamp",
    TimestampType: "timestamp_ntz",
}
_MICROSECONDS = 1_000_000
_SECONDS_OF_HOUR = 3_600
_SECONDS_OF_DAY = 24 * _SECONDS_OF_HOUR
_HOURS_OF_DAY = 24
_MONTHS_OF_YEAR = 12
_EPOCH_YEAR = 1970


@dataclass(frozen=True, slots=True)
class TransformedColumn:
    """The values of a transform; `is_python` tells that Spark should compute them only once."""

    column: Column
    is_python: bool = False


def transformed(
    source: Column, source_type: spark.DataType, field_type: IcebergType, transform: Transform[Any, Any]
) -> TransformedColumn:
    """Return the transform's values of a column.

    Args:
        source: The column of the DataFrame.
        source_type: Its type.
        field_type: The type of the table's column that it is written into.
        transform: Any but void and unknown ones; it can be applied to `field_type`.
    """
    values = _stored(source, source_type, field_type)
    match transform, field_type:
        case IdentityTransform(), _:
            return TransformedColumn(values)
        case BucketTransform(), _:
            hashed, hashed_type = _hashed(values, field_type)
            return TransformedColumn(_in_python(hashed, hashed_type, transform, spark.IntegerType()), is_python=True)
        case TruncateTransform(width=width), IntegerType() | LongType():
            # Null instead of Spark's error where the value would overflow: the writer refuses the row, and says why.
            return TransformedColumn(F.try_subtract(values, F.pmod(values, F.lit(width).cast("bigint"))))
        case TruncateTransform(width=width), DecimalType(precision=precision, scale=scale):
            # Spark's decimals lose digits in arithmetic at full precision.
            exact = spark.DecimalType(precision, scale)
            safe = F.when(values >= F.lit(_lowest_multiple(field_type, width)), values)
            return TransformedColumn(_in_python(safe, field_type, transform, exact), is_python=True)
        case TruncateTransform(width=width), _:
            return TransformedColumn(F.substring(values, 1, width))
    return TransformedColumn(_time(values, field_type, transform))


def _stored(source: Column, source_type: spark.DataType, field_type: IcebergType) -> Column:
    """Return the values as the table holds them: values that are one value there are one value here."""
    match field_type:
        case DecimalType(precision=precision, scale=scale):
            return source.cast(spark.DecimalType(precision, scale))
        case FloatType() | DoubleType():
            return source.cast("double") + F.lit(0.0)  # -0 becomes 0
        case TimeType():
            return _microseconds(F.concat(F.lit("1970-01-01 "), source.cast("string")).cast("timestamp_ntz"))
        case UUIDType() if isinstance(source_type, spark.StringType):
            return F.unhex(F.replace(source, F.lit("-"), F.lit("")))
    return source.cast(_CASTS[type(field_type)])


def _hashed(values: Column, field_type: IcebergType) -> tuple[Column, IcebergType]:
    """Return what Iceberg hashes in place of the values, and its type (spec, appendix B)."""
    match field_type:
        case DateType():
            return F.unix_date(values).cast("bigint"), LongType()
        case TimestamptzType():
            return F.unix_micros(values), LongType()
        case TimestampType():
            return _microseconds(values), LongType()
        case IntegerType() | TimeType():
            return values, LongType()
        case UUIDType() | FixedType():
            return values, BinaryType()
    return values, field_type


def _lowest_multiple(decimal_type: DecimalType, width: int) -> decimal.Decimal:
    """Return the lowest value that truncation can give; values below it would overflow."""
    multiple = (10**decimal_type.precision - 1) // width * width
    return decimal.Decimal((1, tuple(map(int, str(multiple))), -decimal_type.scale))


def _time(values: Column, field_type: IcebergType, transform: Transform[Any, Any]) -> Column:
    days = F.unix_date(_utc_date(values, field_type))
    match transform:
        case YearTransform():
            return F.year(_utc_date(values, field_type)) - _EPOCH_YEAR
        case MonthTransform():
            date = _utc_date(values, field_type)
            return (F.year(date) - _EPOCH_YEAR) * _MONTHS_OF_YEAR + F.month(date) - 1
        case DayTransform():
            return days
        case HourTransform() if isinstance(field_type, TimestampType):
            return days * _HOURS_OF_DAY + F.hour(values)
        case HourTransform():
            return F.floor(F.unix_seconds(values) / _SECONDS_OF_HOUR)
    raise AssertionError(f"unreachable: {transform} is no transform of {field_type}")


def _utc_date(values: Column, field_type: IcebergType) -> Column:
    """Return the dates, for instants those in UTC, no matter the session's time zone."""
    if isinstance(field_type, TimestamptzType):
        return F.date_from_unix_date(F.floor(F.unix_seconds(values) / _SECONDS_OF_DAY).cast("int"))
    return values.cast("date")


def _microseconds(values: Column) -> Column:
    """Return the microseconds since 1970 of timestamps without a time zone, unaffected by the session's zone."""
    seconds = F.unix_date(values.cast("date")).cast("bigint") * _SECONDS_OF_DAY
    seconds = seconds + F.hour(values) * _SECONDS_OF_HOUR + F.minute(values) * 60
    fraction = (F.date_part(F.lit("SECOND"), values) * _MICROSECONDS).cast("bigint")
    return seconds * _MICROSECONDS + fraction


def _in_python(
    values: Column, values_type: IcebergType, transform: Transform[Any, Any], result_type: spark.DataType
) -> Column:
    arrow_udf: Callable[..., Callable[[Column], Column]] | None = getattr(F, "arrow_udf", None)
    if arrow_udf is None:
        return F.udf(transform.transform(values_type), result_type)(values)

    def compute(array: pa.Array) -> pa.Array:
        return apply_transform(transform, values_type, array)

    return arrow_udf(compute, result_type)(values)
