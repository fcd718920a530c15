"""Pure: casts of values row by row into the type of a table's column: a value that a cast would change is told apart.

A value that lands is the value that was sent: numbers that overflow, lose digits or lose their fraction, and text that
is no number, date or time, become null and are reported. Text of a decimal fraction becomes the nearest `float` or
`double`. Nothing is guessed: no spaces are cut off, no time zone is assumed.

Arrow's own checks are not relied on: some of its casts wrap around or round in silence. Every cast of numbers is made
in three steps. What lies outside the exact limits of the new type is taken out first, so that no cast can wrap; the
rest is cast; and what comes out is cast back, and must be what was sent. A decimal and a fraction in a `float` or
`double` are the same value if the decimal is the shortest text of the fraction, as everything prints it, or is exactly
equal to it; whole numbers are the same only if they are exactly equal. The work is done on columns; Python looks only
at single values that Arrow cannot cast exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.table.nested_arrow import to_json

_FRACTION = r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
_INTEGER_TEXT = r"^-?[0-9]+$"
_LEADING_ZEROS = r"^(-?)0+([0-9])"
_DECIMAL_TEXT = rf"^{_FRACTION}$"
_FLOAT_TEXT = rf"^({_FRACTION}|-?(?i:nan|inf|infinity))$"
_INFINITE_TEXT = r"^-?(?i:inf|infinity)$"
_OTHER_THAN_ZERO = r"^-?[0-9.]*[1-9]"
_LONG_TEXT = {pa.float32(): r"^-?[0-9]{8,}$", pa.float64(): r"^-?[0-9]{16,}$"}  # shorter whole numbers are exact
_DECIMAL_PARTS = re.compile(r"(-?)([0-9]*)\.?([0-9]*)(?:[eE]([-+]?)0*([0-9]*))?")
_BOOLEAN_TEXT = r"^(?i:true|false)$"
_YEAR = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"  # there is no year 0 in Spark and Python
_DATE_TEXT = rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}$"
_TIMESTAMP_TEXT = rf"^{_YEAR}" + r"-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_ZONED_TEXT = (
    rf"^{_YEAR}" + r"-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[-+][0-9]{2}(:?[0-9]{2})?)$"
)

# Of the years 1 to 9999, in microseconds since the Unix epoch.
_FIRST_MOMENT, _LAST_MOMENT = -62135596800000000, 253402300799999999

_OF_INTEGERS = pa.decimal128(20, 0)  # holds every integer
_MOST_DIGITS = 38
_WIDE = pa.decimal256(76, 38)  # holds every text of up to 38 digits, and every decimal of 38 digits
_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_LARGEST_DOUBLE = (2 - 2**-52) * 2.0**1023
_DIGITS_OF_DOUBLE = 15  # a decimal of so many digits comes back out of the nearest double
_DIGITS_OF_EXPONENT = 9  # no text that fits has more


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Values after a cast.

    Attributes:
        values: The values in the new type, null where they were null or bad.
        is_bad: True for each value that the new type cannot hold, else false; None if there is no such value.
    """

    values: pa.Array
    is_bad: pa.Array | None


def is_castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether values of type `source`, which is no struct, list or map, may be cast one by one to `target`."""
    if source == target or pa.types.is_nested(source) or pa.types.is_nested(target):
        return False
    if pa.types.is_string(target):
        return _is_number(source) or pa.types.is_boolean(source) or _is_moment(source)
    if pa.types.is_string(source):
        return _is_number(target) or pa.types.is_boolean(target) or _is_moment(target)
    if _is_number(source) and _is_number(target):
        return True
    return (pa.types.is_date32(source) and _is_local(target)) or (_is_local(source) and pa.types.is_date32(target))


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type))


def _is_moment(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type))


def _is_local(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(data_type) and data_type.tz is None)


def cast_rows(values: pa.Array, target: pa.DataType) -> Cast:
    """Return values of a castable type (`is_castable`) as type `target`, and which of them it cannot hold."""
    if pa.types.is_string(target):
        return Cast(values=_as_text(values), is_bad=None)
    if pa.types.is_string(values.type):
        return _text_cast(values, target)
    if _is_number(target):
        found = _nearest(values, target)
        lost = _where(pc.and_(values.is_valid(), pc.invert(_is_same(values, found))))
    else:
        found = _refused(values, target)
        back = _refused(found, values.type)
        lost = _where(pc.and_(values.is_valid(), pc.invert(_equal(values, back))))
    return Cast(values=found if lost is None else _without(found, lost), is_bad=lost)


def _text_cast(values: pa.Array, target: pa.DataType) -> Cast:
    is_bad = _where(pc.invert(pc.match_substring_regex(values, _pattern(target))))
    if is_bad is not None:
        values = _without(values, is_bad)
    if pa.types.is_decimal(target):
        found = _decimals(values, target)
    elif pa.types.is_integer(target):
        found = _integers(values, target)
    else:
        found = _refused(values, target)
    lost = _where(pc.and_(values.is_valid(), found.is_null()))
    if pa.types.is_floating(target):
        lost = _or(lost, _where(pc.and_not(pc.is_inf(found), pc.match_substring_regex(values, _INFINITE_TEXT))))
        lost = _or(lost, _rounded(values, found))
    if pa.types.is_timestamp(target) and target.tz is not None:
        lost = _or(lost, _where(_beyond_years(found)))
    return Cast(values=found if lost is None else _without(found, lost), is_bad=_or(is_bad, lost))


def _beyond_years(moments: pa.Array) -> pa.Array:
    """Return where moments have no year from 1 to 9999 in UTC: a zone may bring a text of these years there."""
    microseconds = moments.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return pc.or_(pc.less(microseconds, _FIRST_MOMENT), pc.greater(microseconds, _LAST_MOMENT))


def _rounded(texts: pa.Array, found: pa.Array) -> pa.Array | None:
    """Return where the float of a text is not its number, apart from rounded fractions; None if nowhere."""
    became_zero = pc.and_(pc.equal(found, 0), pc.match_substring_regex(texts, _OTHER_THAN_ZERO))
    is_long = pc.match_substring_regex(texts, _LONG_TEXT[found.type])
    numbers = pc.indices_nonzero(is_long)
    pairs = zip(texts.take(numbers).to_pylist(), found.take(numbers).to_pylist(), strict=True)
    is_other = pc.replace_with_mask(
        is_long, is_long, pa.array([Decimal(text) != number for text, number in pairs], pa.bool_())
    )
    return _or(_where(became_zero), _where(is_other))


def _as_text(values: pa.Array) -> pa.Array:
    """Return values as text: dates and times in ISO's form, times with a zone in UTC."""
    if _is_moment(values.type):
        return pc.utf8_slice_codeunits(to_json(values), 1, -1)  # without quotes
    return values.cast(pa.string())


def _pattern(target: pa.DataType) -> str:
    """Return the form of texts that are a value of a type; Arrow itself reads more, such as `0x1F` and `1`."""
    if pa.types.is_integer(target):
        return _INTEGER_TEXT
    if pa.types.is_floating(target):
        return _FLOAT_TEXT
    if pa.types.is_decimal(target):
        return _DECIMAL_TEXT
    if pa.types.is_boolean(target):
        return _BOOLEAN_TEXT
    if pa.types.is_date32(target):
        return _DATE_TEXT
    return _TIMESTAMP_TEXT if target.tz is None else _ZONED_TEXT


def _nearest(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return numbers in the new type, rounded where it has none that is equal, null where it has none near."""
    source = values.type
    if source == pa.float32():
        if pa.types.is_decimal(target):
            return _decimals_of_floats(values, target)
        values, source = values.cast(pa.float64()), pa.float64()
    if source == target:
        return values
    if pa.types.is_floating(source) and pa.types.is_decimal(target):
        return _decimals_of_floats(values, target)
    values = _within(values, target)
    if pa.types.is_decimal(source) and pa.types.is_floating(target):
        return values.cast(pa.string()).cast(target)  # reads text correctly rounded, unlike its cast of decimals
    if pa.types.is_integer(source) and pa.types.is_decimal(target):
        values = values.cast(_OF_INTEGERS)
    return values.cast(options=pc.CastOptions(target, allow_float_truncate=True, allow_decimal_truncate=True))


def _within(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return numbers without those beyond the least and the greatest value of a type; what is infinite may be so."""
    lowest, highest = _limits(values.type, target)
    if lowest is None and highest is None:
        return values
    is_within = pc.and_(pc.greater_equal(values, lowest), pc.less_equal(values, highest))
    if pa.types.is_floating(target):
        is_within = pc.or_(is_within, pc.invert(pc.is_finite(values)))
    return pc.if_else(is_within, values, pa.scalar(None, values.type))


@lru_cache(maxsize=256)
def _limits(source: pa.DataType, target: pa.DataType) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    """Return the least and the greatest value of type `source` within the limits of `target`, or twice None if all are.

    `source` is no `float`, whose values are looked at as `double`.
    """
    (lowest, highest), (own_lowest, own_highest) = _range(target), _range(source)
    if pa.types.is_floating(source):
        if pa.types.is_floating(target) and highest >= own_highest:
            return None, None  # else NaN and what is infinite have limits, too
        return pa.scalar(-_float_within(-lowest), source), pa.scalar(_float_within(highest), source)
    if lowest <= own_lowest and own_highest <= highest:
        return None, None
    ends = max(lowest, own_lowest), min(highest, own_highest)
    if pa.types.is_integer(source):
        return pa.scalar(math.ceil(ends[0]), source), pa.scalar(math.floor(ends[1]), source)
    units = math.ceil(ends[0] * 10**source.scale), math.floor(ends[1] * 10**source.scale)
    low, high = (pa.scalar(_decimal(unit, source.scale), source) for unit in units)
    return low, high


def _range(data_type: pa.DataType) -> tuple[Fraction, Fraction]:
    """Return the least and the greatest finite number of a type."""
    if pa.types.is_integer(data_type):
        half = 2 ** (data_type.bit_width - 1)
        return Fraction(-half), Fraction(half - 1)
    if pa.types.is_decimal(data_type):
        most = Fraction(10**data_type.precision - 1, 10**data_type.scale)
    else:
        most = Fraction(_LARGEST_FLOAT if data_type == pa.float32() else _LARGEST_DOUBLE)
    return -most, most


def _float_within(limit: Fraction) -> float:
    """Return the greatest `double` up to a limit, which is not negative."""
    nearest = float(limit)
    return nearest if Fraction(nearest) <= limit else math.nextafter(nearest, 0)


def _decimal(units: int, scale: int) -> Decimal:
    return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))


def _is_same(values: pa.Array, found: pa.Array) -> pa.Array:
    """Return where numbers are the same value in two types; never null."""
    source = values.type
    if pa.types.is_floating(source) and pa.types.is_decimal(found.type):
        return found.is_valid()  # looked at on the way
    if pa.types.is_decimal(source) and found.type == pa.float64() and source.precision <= _DIGITS_OF_DOUBLE:
        return found.is_valid()  # the nearest double has no other decimal with so few digits
    is_same = _equal(values, _nearest(found, source))
    if pa.types.is_decimal(source) and pa.types.is_floating(found.type) and is_same.true_count != len(values):
        numbers = pc.indices_nonzero(pc.invert(is_same))
        pairs = zip(values.take(numbers).to_pylist(), found.take(numbers).to_pylist(), strict=True)
        exact = [one is not None and other is not None and Fraction(one) == Fraction(other) for one, other in pairs]
        is_same = pc.replace_with_mask(is_same, pc.invert(is_same), pa.array(exact, pa.bool_()))
    return is_same


def _equal(values: pa.Array, back: pa.Array) -> pa.Array:
    is_equal = pc.equal(back, values)
    if pa.types.is_floating(values.type):
        is_equal = pc.or_(is_equal, pc.and_(pc.is_nan(values), pc.is_nan(back)))
    return _sure(is_equal)


def _decimals_of_floats(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the decimals that are the same values as floats, null where the type has none."""
    values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
    sizes = pc.abs(values.cast(pa.float64()))
    is_large = pc.greater_equal(sizes, float(2 ** (24 if values.type == pa.float32() else 53)))  # whole, all of them
    of_text = values if not is_large.true_count else _without(values, _sure(is_large))
    found = _decimals(of_text.cast(pa.string()), target)
    if not is_large.true_count:
        return found
    is_long = pc.and_(is_large, pc.less(sizes, 2.0**63))
    longs = pc.if_else(is_long, values.cast(pa.float64()), pa.scalar(None, pa.float64())).cast(pa.int64())
    found = pc.coalesce(found, _nearest(longs, target))
    most = 10 ** (target.precision - target.scale)

    def exact(value: float) -> Decimal | None:
        return Decimal(int(value)) if abs(int(value)) < most else None

    return _replaced(found, values, pc.greater_equal(sizes, 2.0**63), exact)


def _decimals(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the decimals that texts of the form `_DECIMAL_TEXT` are, null where the type has none that is equal."""
    lengths = pc.utf8_length(texts)
    longest = pc.max(lengths).as_py() or 0
    is_hard = _where(pc.match_substring_regex(texts, r"[eE]|\.$"))
    if is_hard is None and longest + target.scale <= _MOST_DIGITS:  # cannot wrap
        try:
            return texts.cast(target)
        except pa.ArrowInvalid:  # some are bad
            pass
    if longest > _MOST_DIGITS:
        is_hard = _or(is_hard, _where(pc.greater(lengths, _MOST_DIGITS)))
    plain = texts if is_hard is None else _without(texts, is_hard)
    found = _of_wide(plain.cast(_WIDE), target)  # up to 38 digits, and 38 more of the scale
    # Arrow divides some numbers beyond 64 bits wrongly: those are looked at again.
    is_hard = _where(pc.and_(texts.is_valid(), found.is_null()))
    if is_hard is None:
        return found
    return _replaced(found, texts, is_hard, lambda text: _parse(text, target))


def _of_wide(wide: pa.Array, target: pa.DataType) -> pa.Array:
    """Return decimals of type `_WIDE` in a narrower type, null where it has none that is equal."""
    wide = _within(wide, target)
    found = wide.cast(options=pc.CastOptions(target, allow_decimal_truncate=True))
    return pc.if_else(pc.equal(found.cast(_WIDE), wide), found, pa.scalar(None, target))


def _replaced(found: pa.Array, sent: pa.Array, mask: pa.Array, value_of: Callable[..., Decimal | None]) -> pa.Array:
    """Return decimals with those that are masked computed from what was sent, one by one; each value once."""
    encoded = sent.filter(mask).dictionary_encode()
    if not len(encoded):
        return found
    values = pa.array([value_of(value) for value in encoded.dictionary.to_pylist()], found.type)
    return pc.replace_with_mask(found, _sure(mask), values.take(encoded.indices))


def _parse(text: str, target: pa.DataType) -> Decimal | None:
    """Return the decimal that a text of the form `_DECIMAL_TEXT` is, or None if the type has none that is equal."""
    parts = _DECIMAL_PARTS.fullmatch(text)
    assert parts is not None  # noqa: S101  # texts of another form are bad already
    sign, whole, fraction, sign_of_exponent, exponent_text = parts.groups()
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return Decimal(0)
    if len(exponent_text or "") > _DIGITS_OF_EXPONENT:
        return None
    exponent = int(f"{sign_of_exponent or ''}{exponent_text or 0}") - len(fraction) + len(digits)
    digits = digits.rstrip("0")
    exponent -= len(digits)
    if exponent + target.scale < 0 or len(digits) + exponent > target.precision - target.scale:
        return None
    return Decimal(f"{sign}{digits}e{exponent}")


def _integers(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the integers that texts of the form `_INTEGER_TEXT` are, null where the type has none."""
    try:
        return texts.cast(target)
    except pa.ArrowInvalid:  # Arrow refuses many zeros in front, too
        return _refused(pc.replace_substring_regex(texts, _LEADING_ZEROS, r"\1\2"), target)


def _refused(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the values in the new type, with nulls for those that Arrow refuses."""
    parts: list[pa.Array] = []
    _cast_into(parts, values, target)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _cast_into(parts: list[pa.Array], values: pa.Array, target: pa.DataType) -> None:
    """Append the values after a cast; halve them until the bad ones are alone."""
    try:
        parts.append(values.cast(target))
    except pa.ArrowInvalid:
        if len(values) == 1:
            parts.append(pa.nulls(1, target))
            return
        middle = len(values) // 2
        _cast_into(parts, values.slice(0, middle), target)
        _cast_into(parts, values.slice(middle), target)


def _sure(mask: pa.Array) -> pa.Array:
    return pc.fill_null(mask, False)  # noqa: FBT003  # Arrow's signature


def _where(mask: pa.Array) -> pa.Array | None:
    """Return a mask without nulls, or None if it is true nowhere."""
    return _sure(mask) if mask.true_count else None


def _or(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    return other if one is None else one if other is None else pc.or_(one, other)


def _without(values: pa.Array, is_bad: pa.Array) -> pa.Array:
    return pc.if_else(is_bad, pa.scalar(None, values.type), values)
