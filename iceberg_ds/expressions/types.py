"""Pure: the types of expressions, which are Arrow's, and the type in which Spark's ANSI mode compares two of them.

Source: Spark's SQL reference, "ANSI Compliance", "Type Promotion and Precedence".
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as ice

DATE = pa.date32()
LOCAL = pa.timestamp("us")
INSTANT = pa.timestamp("us", "UTC")
TIME = pa.time64("us")
# UUIDs; for all other bytes, fixed ones too, the length is no part of the type.
UUID = pa.binary(16)
# The type of columns that compare with nothing, such as structs and lists.
OPAQUE = pa.struct([])

MOST_DIGITS = 38
_DIGITS = {pa.int32(): 10, pa.int64(): 20}
_ARROW: dict[type[ice.IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.StringType: pa.string(),
    ice.BinaryType: pa.binary(),
    ice.FixedType: pa.binary(),
    ice.DateType: DATE,
    ice.TimeType: TIME,
    ice.TimestampType: LOCAL,
    ice.TimestamptzType: INSTANT,
    ice.UUIDType: UUID,
}
_NAMES = {
    DATE: "date",
    LOCAL: "timestamp without zone",
    INSTANT: "timestamp",
    TIME: "time",
    pa.bool_(): "boolean",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.binary(): "binary",
    UUID: "UUID",
    pa.null(): "NULL",
}


class IncomparableTypesError(ValueError):
    """Two types that Spark's ANSI mode does not compare, or that it compares by rounding one of them."""


def arrow_type(field_type: ice.IcebergType) -> pa.DataType:
    """Return the type of a column in expressions."""
    if isinstance(field_type, ice.DecimalType):
        return pa.decimal128(field_type.precision, field_type.scale)
    return _ARROW.get(type(field_type), OPAQUE)


def type_name(one: pa.DataType) -> str:
    """Return the type in Spark's words."""
    if is_decimal(one):
        return f"decimal({one.precision},{one.scale})"
    return "struct, list or map" if one == OPAQUE else _NAMES.get(one, str(one))


def is_decimal(one: pa.DataType) -> bool:
    """Return whether it is a decimal."""
    return bool(pa.types.is_decimal(one))


def is_integer(one: pa.DataType) -> bool:
    """Return whether it is a whole number."""
    return bool(pa.types.is_integer(one))


def is_number(one: pa.DataType) -> bool:
    """Return whether it is a number."""
    return is_integer(one) or is_decimal(one) or bool(pa.types.is_floating(one))


def as_decimal(one: pa.DataType, digits: int | None = None) -> pa.DataType:
    """Return the decimal that holds all values of an integer or decimal type, or a literal of this many digits."""
    return one if is_decimal(one) else pa.decimal128(digits or _DIGITS[one], 0)


def decimal(whole: int, scale: int) -> pa.DataType:
    """Return the decimal with that many digits before and after the point.

    Raises:
        IncomparableTypesError: Spark has no decimal that long, and rounds.
    """
    if whole + scale > MOST_DIGITS:
        raise IncomparableTypesError(
            f"that takes a decimal of {whole + scale} digits, and Spark, which has {MOST_DIGITS}, rounds it: write a "
            "number with fewer digits"
        )
    return pa.decimal128(max(whole + scale, 1), scale)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type in which values of two types are compared.

    Raises:
        IncomparableTypesError: The types do not compare.
    """
    if one == other and one != OPAQUE:
        return one
    for first, second in ((one, other), (other, one)):
        if pa.types.is_null(first) and second != OPAQUE:
            return second
    for first, second in ((one, other), (other, one)):
        if pa.types.is_string(first) and second != OPAQUE:
            return _with_string(second)
    if is_number(one) and is_number(other):
        return _common_number(one, other)
    if {one, other} <= {DATE, LOCAL, INSTANT}:
        return INSTANT if INSTANT in (one, other) else LOCAL
    raise IncomparableTypesError(f"Spark does not compare {type_name(one)} with {type_name(other)}")


def _with_string(other: pa.DataType) -> pa.DataType:
    if is_integer(other):
        return pa.int64()
    return pa.float64() if is_number(other) else other


def _common_number(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        return pa.float64()
    if is_integer(one) and is_integer(other):
        return pa.int64()
    first, second = as_decimal(one), as_decimal(other)
    whole = max(first.precision - first.scale, second.precision - second.scale)
    return decimal(whole, max(first.scale, second.scale))
