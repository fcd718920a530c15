"""Pure: casts, arithmetic and functions that a predicate may use, computed by Arrow exactly as Spark's ANSI mode does.

Left out is what Spark computes differently, or may fail on for some rows only: division by columns, numbers read from
columns of texts, regular expressions. Source: Spark's SQL reference, "Functions" and "ANSI Compliance".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.expressions.literals import NO_ZONE, Zone, parsed
from iceberg_ds.expressions.nodes import (
    Column,
    Constant,
    Expression,
    FirstOf,
    Function,
    IsNaN,
    IsNull,
    IsTruth,
    Not,
    folded,
)
from iceberg_ds.expressions.types import (
    DATE,
    INSTANT,
    LOCAL,
    TIME,
    IncomparableTypesError,
    as_decimal,
    common_type,
    decimal,
    is_decimal,
    is_integer,
    is_number,
    type_name,
)

_Kernel = Callable[..., Any]

# Every name of a cast's target type.
_TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": DATE,
    "timestamp": INSTANT,
    "timestamp_ltz": INSTANT,
    "timestamp_ntz": LOCAL,
    "time": TIME,
}
# Types for which Spark has a function of the same name.
_CASTS = ("boolean", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp")
_UNITS = {
    "year": "year",
    "yyyy": "year",
    "yy": "year",
    "quarter": "quarter",
    "month": "month",
    "mon": "month",
    "mm": "month",
    "week": "week",
    "day": "day",
    "dd": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
}
_WITHIN_DAYS = {"hour", "minute", "second"}
_WITHIN_WEEKS = {"day", *_WITHIN_DAYS}
_PARTS = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "day": pc.day,
    "dayofmonth": pc.day,
    "dayofyear": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
}
# Parts that a date does not have.
_CLOCK_PARTS = {"hour", "minute"}
_TODAY = {"current_date", "current_timestamp", "now", "localtimestamp", "current_time", "rand", "uuid", "curdate"}


def type_named(name: str) -> pa.DataType:
    """Return the type that a cast names `name`.

    Raises:
        ValueError: No cast to this type can be computed exactly.
    """
    if name in _TYPES:
        return _TYPES[name]
    family, _, arguments = name.partition("(")
    digits = arguments.rstrip(")").split(",")
    if family in ("decimal", "dec", "numeric") and all(part.isdigit() for part in digits):
        precision, scale = int(digits[0]), int(digits[1]) if len(digits) > 1 else 0
        return decimal(precision - scale, scale)
    raise ValueError(f"a cast to {name} is not computed (known types: {', '.join(sorted(_TYPES))}, decimal)")


def cast(one: Expression, to: pa.DataType, zone: Zone | None) -> Expression:
    """Return the expression cast to another type.

    Args:
        one: The expression.
        to: The type.
        zone: The session's time zone, or None if unknown.

    Raises:
        ValueError: Spark has no such cast, or the cast fails for some values; the message says what to write.
    """
    if one.type == to:
        return one
    if isinstance(one, Constant):
        if pa.types.is_null(one.type) or not one.value.is_valid:
            return Constant(pa.scalar(None, to))
        if pa.types.is_string(one.type) and not is_decimal(to):
            return Constant(parsed(one.value.as_py(), to, zone))
        if is_integer(one.type) and _holds(to, as_decimal(one.type, _digits(one))):
            return Constant(pa.scalar(Decimal(one.value.as_py()), to))
    kernel, keeps_order = _cast_kernel(one, to, zone)
    reads_clocks = zone is not None and not zone.is_fixed and INSTANT in (one.type, to)
    return folded(Function((one,), to, kernel, keeps_order=keeps_order, reads_clocks=reads_clocks))


def _cast_kernel(one: Expression, to: pa.DataType, zone: Zone | None) -> tuple[_Kernel, bool]:  # noqa: PLR0911  # by type
    given = one.type
    if is_number(given) and to == pa.float64():
        # Arrow's own cast from decimals to doubles does not always give the nearest double.
        return (partial(_through_text, to) if is_decimal(given) else partial(pc.cast, target_type=to, safe=False)), True
    if is_integer(given) and (is_integer(to) or _holds(to, as_decimal(given, _digits(one)))):
        return partial(pc.cast, target_type=to), True
    if is_decimal(given) and _holds(to, given):
        return partial(pc.cast, target_type=to), True
    if pa.types.is_string(given) and pa.types.is_binary(to):
        return partial(pc.cast, target_type=to), True
    if to == pa.string() and is_integer(given):
        return partial(pc.cast, target_type=to), False
    if (given, to) in ((DATE, LOCAL), (LOCAL, DATE)):
        return partial(pc.cast, target_type=to, safe=False), True
    if given in (DATE, LOCAL) and to == INSTANT:
        return partial(_instant, _known(zone), given == DATE), True
    if given == INSTANT and to in (DATE, LOCAL):
        return partial(_local, _known(zone), to), True
    raise IncomparableTypesError(_refusal(one, to))


def _holds(to: pa.DataType, given: pa.DataType) -> bool:
    """Return whether `to` is a decimal that holds all values of the decimal `given`."""
    if not is_decimal(to):
        return False
    return bool(to.scale >= given.scale and to.precision - to.scale >= given.precision - given.scale)


def _digits(one: Expression) -> int | None:
    return len(str(abs(one.value.as_py()))) if isinstance(one, Constant) and one.value.is_valid else None


def _refusal(one: Expression, to: pa.DataType) -> str:
    if isinstance(one, Column) and pa.types.is_string(one.type):
        return (
            f"column '{one.name}' is string, and each of its texts would have to be read as {type_name(to)}, which "
            "fails for some: compare it with a text in quotes"
        )
    what = f"column '{one.name}', which is {type_name(one.type)}," if isinstance(one, Column) else type_name(one.type)
    return f"{what} is not computed as {type_name(to)} exactly as Spark does: compare it with a value of its own type"


def _known(zone: Zone | None) -> Zone:
    if zone is None:
        raise ValueError(NO_ZONE)
    return zone


def _through_text(to: pa.DataType, values: Any) -> Any:  # noqa: ANN401  # array or scalar
    return pc.cast(pc.cast(values, pa.string()), to)


def _instant(zone: Zone, is_date: bool, values: Any) -> Any:  # noqa: ANN401, FBT001  # array or scalar
    """Return dates or local times as instants: the earlier of two, and in a gap of the clocks as if they went on."""
    local = pc.cast(values, LOCAL)
    if is_date:
        # The first moment of the day, no matter what the clocks show then.
        there = pc.assume_timezone(local, zone.arrow, ambiguous="earliest", nonexistent="latest")
        return pc.cast(there, INSTANT)
    before = pc.assume_timezone(local, zone.arrow, ambiguous="earliest", nonexistent="earliest")
    offset = pc.subtract(pc.local_timestamp(before), pc.cast(pc.cast(before, INSTANT), LOCAL))
    return pc.cast(pc.assume_timezone(pc.subtract(local, offset), "UTC"), INSTANT)


def _local(zone: Zone, to: pa.DataType, values: Any) -> Any:  # noqa: ANN401  # array or scalar
    there = pc.local_timestamp(pc.cast(values, pa.timestamp("us", zone.arrow)))
    return pc.cast(there, to, safe=False)


def arithmetic(sign: str, left: Expression, right: Expression) -> Expression:
    """Return the sum, difference, product, quotient or remainder of two numbers.

    Raises:
        ValueError: An operand is no number, or Spark rounds the result, or fails for some rows only.
    """
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        left, right = (cast(one, common_type(left.type, right.type), None) for one in (left, right))
    if left.type == DATE and is_integer(right.type) and sign in "+-":
        return _days_later(sign, left, right)
    if not (is_number(left.type) and is_number(right.type)):
        raise ValueError(f"{type_name(left.type)} {sign} {type_name(right.type)} is not computed: only numbers are")
    if sign in ("/", "%", "div"):
        return _division(sign, left, right)
    kernel = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}[sign]
    kinds = (left.type, right.type)
    if any(map(is_decimal, kinds)) and not any(map(pa.types.is_floating, kinds)):
        return _of_decimals(sign, kernel, left, right)
    to = left.type if left.type == right.type else common_type(left.type, right.type)
    left, right = cast(left, to, None), cast(right, to, None)
    if sign == "+" and isinstance(left, Constant):
        left, right = right, left
    keeps_order = sign in "+-" and isinstance(right, Constant)
    return folded(Function((left, right), to, kernel, keeps_order=keeps_order))


def _of_decimals(sign: str, kernel: _Kernel, left: Expression, right: Expression) -> Expression:
    one, other = (as_decimal(side.type, _digits(side) if is_integer(side.type) else None) for side in (left, right))
    whole, scale = one.precision - one.scale, max(one.scale, other.scale)
    if sign == "*":
        to = decimal(whole + other.precision - other.scale + 1, one.scale + other.scale)
    else:
        to = decimal(max(whole, other.precision - other.scale) + 1, scale)
        one = other = to
    left, right = cast(left, one, None), cast(right, other, None)
    keeps_order = sign != "*" and isinstance(right, Constant)

    def compute(first: Any, second: Any) -> Any:  # noqa: ANN401  # array or scalar
        return pc.cast(kernel(first, second), to)

    return folded(Function((left, right), to, compute, keeps_order=keeps_order))


def _days_later(sign: str, day: Expression, days: Expression) -> Expression:
    kernel = pc.add_checked if sign == "+" else pc.subtract_checked

    def compute(date: Any, number: Any) -> Any:  # noqa: ANN401  # array or scalar
        return pc.cast(kernel(pc.cast(date, pa.int32()), pc.cast(number, pa.int32())), DATE)

    return folded(Function((day, days), DATE, compute, keeps_order=isinstance(days, Constant)))


def _division(sign: str, left: Expression, right: Expression) -> Expression:
    if not isinstance(right, Constant) or not right.value.is_valid or right.value.as_py() in (0, -1):
        raise ValueError(f"{sign} is computed only with a number other than 0 and -1 behind it, so that no row fails")
    if sign == "/":
        if is_decimal(left.type) or is_decimal(right.type):
            raise ValueError("/ of decimals is rounded by rules of Spark's: multiply the other side instead")
        left, right = cast(left, pa.float64(), None), cast(right, pa.float64(), None)
        return folded(Function((left, right), pa.float64(), pc.divide))
    if not (is_integer(left.type) and is_integer(right.type)):
        raise ValueError(f"{sign} is computed only of whole numbers")
    to = pa.int64() if sign == "div" else common_type(left.type, right.type)
    left, right = cast(left, to, None), cast(right, to, None)
    return folded(Function((left, right), to, pc.divide if sign == "div" else _remainder))


def _remainder(left: Any, right: Any) -> Any:  # noqa: ANN401  # array or scalar
    """Return the remainder, which has the sign of the dividend."""
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def negative(one: Expression) -> Expression:
    """Return the number with its sign reversed.

    Raises:
        ValueError: The operand is no number.
    """
    if not is_number(one.type):
        raise ValueError(f"- of {type_name(one.type)} is not computed: only of numbers")
    return folded(Function((one,), one.type, pc.negate_checked))


def is_nan(one: Expression) -> Expression:
    """Return whether a number is NaN; unknown for null.

    Raises:
        ValueError: The operand's type has no NaN.
    """
    if not pa.types.is_floating(one.type):
        raise ValueError(f"only a float or a double is NaN, and this is {type_name(one.type)}")
    return folded(IsNaN((one,)))


def call(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:
    """Return the function `name` of the operands.

    Args:
        name: Its name, in lower case.
        operands: The operands.
        zone: The session's time zone, or None if unknown.

    Raises:
        ValueError: The function is not known here, or does not take these operands.
    """
    if name in _TODAY:
        raise ValueError(
            f"{name}() is not the same whenever it is asked, and tasks and commit must agree: write the value itself"
        )
    if name not in _FUNCTIONS and name not in _PARTS:
        known = ", ".join(sorted([*_FUNCTIONS, *_PARTS]))
        raise ValueError(
            f"function {name} is not computed as Spark does it (known: {known}): give the rows a column with its value"
        )
    if name in _PARTS:
        return _part(name, _only(name, operands), zone)
    return _FUNCTIONS[name](name, operands, zone)


def _only(name: str, operands: Sequence[Expression]) -> Expression:
    if len(operands) != 1:
        raise ValueError(f"{name} is computed of one value, not of {len(operands)}")
    return operands[0]


def _on_clocks(name: str, one: Expression, zone: Zone | None, to: pa.DataType) -> Expression:
    """Return a date or time as clocks show it."""
    if one.type not in (DATE, LOCAL, INSTANT):
        raise ValueError(f"{name} of {type_name(one.type)} is not computed: only of dates and timestamps")
    return one if one.type == DATE and to == LOCAL else cast(one, to, zone)


def _part(name: str, one: Expression, zone: Zone | None) -> Expression:
    local = _on_clocks(name, one, zone, LOCAL)
    if local.type == DATE and name in _CLOCK_PARTS:
        raise ValueError(f"{name} of a date is not computed: a date has none")
    kernel = _PARTS[name]
    return folded(Function((local,), pa.int32(), lambda values: pc.cast(kernel(values), pa.int32()), name == "year"))


def _to_date(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:
    one = _only(name, operands)
    if isinstance(one, Constant) and pa.types.is_string(one.type):
        return cast(one, DATE, zone)
    return _on_clocks(name, one, zone, DATE)


def _unit(name: str, one: Expression) -> str:
    text = one.value.as_py() if isinstance(one, Constant) else None
    unit = _UNITS.get(text.lower()) if isinstance(text, str) else None
    if unit is None:
        raise ValueError(f"{name} takes one of {', '.join(repr(known) for known in _UNITS)}")
    return unit


def _date_trunc(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:
    if len(operands) != 2:  # noqa: PLR2004  # of its signature
        raise ValueError(f"{name} takes a unit and a timestamp")
    unit, one = _unit(name, operands[0]), operands[1]
    if one.type == DATE:
        one = cast(one, INSTANT, zone)
    local = _on_clocks(name, one, zone, LOCAL)
    begun = folded(Function((local,), LOCAL, partial(pc.floor_temporal, unit=unit), keeps_order=True))
    # Of a time without a zone, too: Spark takes it for one of the session's, where clocks may skip it.
    if unit in _WITHIN_DAYS and not _known(zone).is_fixed:
        raise ValueError(f"{name} to the {unit} is not computed where clocks change: compare with >= and <")
    if one.type == LOCAL:
        return begun
    # The first moment of a day is not always the one at which clocks show 0.
    return cast(begun if unit in _WITHIN_DAYS else cast(begun, DATE, zone), INSTANT, zone)


def _trunc(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:
    if len(operands) != 2:  # noqa: PLR2004  # of its signature
        raise ValueError(f"{name} takes a date and a unit")
    unit = _unit(name, operands[1])
    if unit in _WITHIN_WEEKS:
        raise ValueError(f"{name} takes a week at least; use date_trunc")
    date = _on_clocks(name, operands[0], zone, DATE)
    return folded(Function((date,), DATE, partial(pc.floor_temporal, unit=unit), keeps_order=True))


def _text(name: str, one: Expression) -> Expression:
    if not pa.types.is_string(one.type):
        raise ValueError(f"{name} of {type_name(one.type)} is not computed: only of texts")
    return one


def _in_case(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:  # noqa: ARG001
    is_lower = name in ("lower", "lcase")
    one = _text(name, _only(name, operands))

    def compute(values: Any) -> Any:  # noqa: ANN401  # an array
        if pc.all(pc.string_is_ascii(values)).as_py() is not False:
            return (pc.ascii_lower if is_lower else pc.ascii_upper)(values)
        # Java and Python follow Unicode's special cases, in which one letter becomes several; Arrow does not.
        changed = (None if text is None else text.lower() if is_lower else text.upper() for text in values.to_pylist())
        return pa.array(changed, values.type)

    return folded(Function((one,), pa.string(), compute))


def _length(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:  # noqa: ARG001
    one = _only(name, operands)
    if not (pa.types.is_string(one.type) or pa.types.is_binary(one.type)):
        raise ValueError(f"{name} of {type_name(one.type)} is not computed: only of texts and bytes")
    count = pc.utf8_length if pa.types.is_string(one.type) else pc.binary_length
    return folded(Function((one,), pa.int32(), lambda values: pc.cast(count(values), pa.int32())))


def _first(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:
    if name in ("ifnull", "nvl") and len(operands) != 2:  # noqa: PLR2004  # of its signature
        raise ValueError(f"{name} takes two values")
    to = operands[0].type
    for operand in operands[1:]:
        to = common_type(to, operand.type)
    return folded(FirstOf(tuple(cast(operand, to, zone) for operand in operands), to))


def _is_null(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:  # noqa: ARG001
    test = folded(IsNull((_only(name, operands),)))
    return test if name == "isnull" else folded(Not((test,)))


def _is_nan(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:  # noqa: ARG001
    # Unlike IS NAN, the function is false for null.
    return folded(IsTruth((is_nan(_only(name, operands)),), expected=True))


def _cast_to(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:
    return cast(_only(name, operands), _TYPES[name], zone)


def _days(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:
    if len(operands) != 2 or not is_integer(operands[1].type):  # noqa: PLR2004  # of its signature
        raise ValueError(f"{name} takes a date and a whole number")
    return _days_later("-" if name == "date_sub" else "+", _to_date(name, operands[:1], zone), operands[1])


def _remainder_of(name: str, operands: Sequence[Expression], zone: Zone | None) -> Expression:  # noqa: ARG001
    if len(operands) != 2:  # noqa: PLR2004  # of its signature
        raise ValueError(f"{name} takes two numbers")
    return arithmetic("%", operands[0], operands[1])


_FUNCTIONS: dict[str, Callable[[str, Sequence[Expression], Zone | None], Expression]] = {
    "to_date": _to_date,
    "date_add": _days,
    "date_sub": _days,
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "lower": _in_case,
    "lcase": _in_case,
    "upper": _in_case,
    "ucase": _in_case,
    "length": _length,
    "len": _length,
    "char_length": _length,
    "character_length": _length,
    "coalesce": _first,
    "ifnull": _first,
    "nvl": _first,
    "isnull": _is_null,
    "isnotnull": _is_null,
    "isnan": _is_nan,
    "mod": _remainder_of,
    **dict.fromkeys(_CASTS, _cast_to),
}
