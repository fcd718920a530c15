"""Pure: values that have nothing inside as JSON text, whole columns at a time.

Printed as Spark's `to_json` prints them, except for timestamps, which are in UTC and keep their microseconds, and large
and small floats, whose exponent is written as in Python: `1e+21`, where Java has `1.0E21`.
"""

from __future__ import annotations

import binascii
import math

import pyarrow as pa
import pyarrow.compute as pc

_MUST_BE_ESCAPED = r'["\\\x00-\x1f]'
# The backslash is escaped first.
_SHORT_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_LONG_ESCAPES = {chr(code): f"\\u{code:04X}" for code in range(0x20) if chr(code) not in _SHORT_ESCAPES}
ESCAPES = _SHORT_ESCAPES | _LONG_ESCAPES
_OUT_OF_RANGE = "<"  # Arrow prints a year beyond 32,767 as "<value out of range: ...>"
_NANOSECONDS_OF_A_DAY = 86_400_000_000_000


def flat_json(values: pa.Array) -> pa.Array:
    """Return the JSON text of every value, null for a null."""
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return quoted_json(values.cast(pa.string()))
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return _quoted(_base64(values))
    if pa.types.is_floating(data_type):
        return _floats(values)
    if pa.types.is_date(data_type):
        return _quoted(_dates(values))
    if pa.types.is_timestamp(data_type):
        return _quoted(_timestamps(values))
    text = values.cast(pa.string())
    return _quoted(pc.replace_substring_regex(text, r"\.?0+$", "")) if pa.types.is_time(data_type) else text


def quoted_json(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings."""
    return _quoted(_escaped(texts))


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _escaped(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(texts, _MUST_BE_ESCAPED)).as_py():
        return texts
    for character, escape in _SHORT_ESCAPES.items():
        texts = pc.replace_substring(texts, character, escape)
    for character, escape in _LONG_ESCAPES.items():
        if pc.any(pc.match_substring(texts, character)).as_py():
            texts = pc.replace_substring(texts, character, escape)
    return texts


def _base64(values: pa.Array) -> pa.Array:
    encoded = [None if raw is None else binascii.b2a_base64(raw, newline=False) for raw in values.to_pylist()]
    return pa.array(encoded, pa.binary()).cast(pa.string())


def _floats(values: pa.Array) -> pa.Array:
    """Return floats as text with a point or an exponent, so that they are read as floats again."""
    text = pc.replace_substring_regex(values.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    if pc.all(pc.is_finite(values)).as_py() is not False:
        return text
    text = pc.if_else(pc.is_nan(values), '"NaN"', text)
    text = pc.if_else(pc.equal(values, pa.scalar(math.inf, values.type)), '"Infinity"', text)
    return pc.if_else(pc.equal(values, pa.scalar(-math.inf, values.type)), '"-Infinity"', text)


def _dates(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    if pc.any(pc.match_substring(text, _OUT_OF_RANGE)).as_py():
        days = values.cast(pa.int32()).to_pylist()
        return pa.array([None if day is None else iso_date(day) for day in days], pa.string())
    return _with_sign(text)


def _timestamps(values: pa.Array) -> pa.Array:
    microseconds = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
    text = microseconds.view(pa.timestamp("us")).cast(pa.string())
    if pc.any(pc.match_substring(text, _OUT_OF_RANGE)).as_py():
        numbers = microseconds.to_pylist()
        text = pa.array(
            [None if number is None else iso_timestamp(number * 1000, "T", 6) for number in numbers], pa.string()
        )
    else:
        text = _with_sign(pc.replace_substring(text, " ", "T"))
    text = pc.replace_substring_regex(text, r"000$", "")  # Spark prints milliseconds
    return pc.binary_join_element_wise(text, "Z", "") if values.type.tz else text


def _with_sign(texts: pa.Array) -> pa.Array:
    """Return dates with the sign that ISO 8601 requires for years above 9999."""
    return pc.replace_substring_regex(texts, r"^([0-9]{5})", r"+\1")


def iso_date(day: int) -> str:
    """Return the ISO date of a day, counted from 1970-01-01, in any year (proleptic Gregorian)."""
    # Years begin in March here, so that the leap day is the last; 146,097 days are 400 years.
    era, day_of_era = divmod(day + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    month = (month_from_march + 2) % 12 + 1
    year = 400 * era + year_of_era + (month < 3)  # noqa: PLR2004  # January and February
    sign = "" if 0 <= year <= 9999 else "+" if year > 0 else "-"  # noqa: PLR2004  # four digits
    return f"{sign}{abs(year):04d}-{month:02d}-{day_of_year - (153 * month_from_march + 2) // 5 + 1:02d}"


def iso_timestamp(nanoseconds: int, separator: str, digits: int) -> str:
    """Return an ISO timestamp, counted from 1970-01-01, in any year, with so many digits behind its seconds."""
    day, rest = divmod(nanoseconds, _NANOSECONDS_OF_A_DAY)
    return f"{iso_date(day)}{separator}{iso_time(rest, digits)}"


def iso_time(nanoseconds: int, digits: int) -> str:
    """Return a time of a day with so many digits behind its seconds."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}" + f".{fraction:09d}"[: digits + 1]
