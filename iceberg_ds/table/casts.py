"""Pure: casts of values row by row into the type of a table's column: a value that a cast would change is told apart.

A value that lands is the value that was sent: numbers that overflow, lose digits or lose their fraction, and text that
is no number, date or time, become null and are reported. Text of a decimal fraction becomes the nearest `float` or
`double`. Nothing is guessed: no spaces are cut off, no time zone is assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.table.nested_arrow import to_json

_FRACTION = r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
_INTEGER_TEXT = r"^-?[0-9]+$"
_DECIMAL_TEXT = rf"^{_FRACTION}$"
_FLOAT_TEXT = rf"^({_FRACTION}|-?(?i:nan|inf|infinity))$"
_INFINITE_TEXT = r"^-?(?i:inf|infinity)$"
_BOOLEAN_TEXT = r"^(?i:true|false)$"
_YEAR = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"  # there is no year 0 in Spark and Python
_DATE_TEXT = rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}$"
_TIMESTAMP_TEXT = rf"^{_YEAR}" + r"-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?$"
_ZONED_TEXT = (
    rf"^{_YEAR}" + r"-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[-+][0-9]{2}(:?[0-9]{2})?)$"
)


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
    is_bad = None
    if pa.types.is_string(values.type):
        is_bad = _where(pc.invert(pc.match_substring_regex(values, _pattern(target))))
        if is_bad is not None:
            values = _without(values, is_bad)
    found = _cast(values, target)
    lost = _or(_is_lost(values, found, target), _where(pc.and_(values.is_valid(), found.is_null())))
    if lost is not None:
        found = _without(found, lost)
    return Cast(values=found, is_bad=_or(is_bad, lost))


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


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the values in the new type, with nulls for those that Arrow refuses."""
    if pa.types.is_integer(values.type) and pa.types.is_decimal(target):
        values = values.cast(pa.decimal128(20, 0))  # holds every integer; Arrow would ask for 19 more digits
    parts: list[pa.Array] = []
    _cast_into(parts, values, lambda some: some.cast(target), target)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _cast_into(
    parts: list[pa.Array], values: pa.Array, cast: Callable[[pa.Array], pa.Array], target: pa.DataType
) -> None:
    """Append the values after a cast; halve them until the bad ones are alone."""
    try:
        parts.append(cast(values))
    except pa.ArrowInvalid:
        if len(values) == 1:
            parts.append(pa.nulls(1, target))
            return
        middle = len(values) // 2
        _cast_into(parts, values.slice(0, middle), cast, target)
        _cast_into(parts, values.slice(middle), cast, target)


def _is_lost(values: pa.Array, found: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Return where a cast that Arrow allows has changed a value, or None if it changed none."""
    source = values.type
    if pa.types.is_string(source):
        if not pa.types.is_floating(target):
            return None
        return _where(pc.and_not(pc.is_inf(found), pc.match_substring_regex(values, _INFINITE_TEXT)))
    is_rounded = (
        (pa.types.is_floating(source) and not pa.types.is_integer(target))
        or (pa.types.is_decimal(source) and pa.types.is_floating(target))
        or _is_local(source)
    )
    if not is_rounded:
        return None
    back = _cast(found, source)
    is_same = pc.equal(back, values)
    if pa.types.is_floating(source):
        is_same = pc.or_(is_same, pc.and_(pc.is_nan(values), pc.is_nan(back)))
    return _where(pc.invert(pc.fill_null(is_same, found.is_null())))


def _where(mask: pa.Array) -> pa.Array | None:
    """Return a mask without nulls, or None if it is true nowhere."""
    return pc.fill_null(mask, False) if mask.true_count else None  # noqa: FBT003  # Arrow's signature


def _or(one: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    return other if one is None else one if other is None else pc.or_(one, other)


def _without(values: pa.Array, is_bad: pa.Array) -> pa.Array:
    return pc.if_else(is_bad, pa.scalar(None, values.type), values)
