"""Pure: values of key columns in the one form in which equal ones are the same bytes, whoever wrote them.

Older files have narrower types, other writers other labels. Zeros of either sign differ and NaN is equal to itself, as
Iceberg's Java library has it; the spec knows no keys of floating point. Knows Arrow alone, and Iceberg's types.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc
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

_PRECISION = 38


def canonical_type(field_type: IcebergType) -> pa.DataType:
    """Return the Arrow type of canonical values.

    Raises:
        ValueError: Values of the type are no keys.
    """
    match field_type:
        case BooleanType():
            return pa.bool_()
        case IntegerType() | LongType() | DateType() | TimeType() | TimestampType() | TimestamptzType():
            return pa.int64()
        case FloatType() | DoubleType():
            return pa.int64()
        case DecimalType(scale=scale):
            return pa.decimal128(_PRECISION, scale)
        case StringType() | BinaryType() | FixedType() | UUIDType():
            return pa.binary()
    raise ValueError(f"a column of type {field_type} cannot be a key")


def canonical(values: pa.Array, field_type: IcebergType) -> pa.Array:
    """Return the values of a column whose type in the table is `field_type`, in canonical form.

    Raises:
        ValueError: They are no values of that type, or of one that it may have been widened from.
    """
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), canonical_type(field_type))
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    match field_type:
        case DateType():
            return values.cast(pa.date32()).view(pa.int32()).cast(pa.int64())
        case TimeType():
            return values.cast(pa.time64("us")).view(pa.int64())
        case TimestampType() | TimestamptzType():
            # What is finer than microseconds is cut, as Java does with timestamps of 96 bits.
            return values.cast(pa.timestamp("us", values.type.tz), safe=False).view(pa.int64())
        case FloatType() | DoubleType():
            wide = values.cast(pa.float64())
            return pc.if_else(pc.is_nan(wide), pa.scalar(math.nan, pa.float64()), wide).view(pa.int64())
    if pa.types.is_large_string(values.type):
        values = values.cast(pa.large_binary())
    return values.cast(canonical_type(field_type))
