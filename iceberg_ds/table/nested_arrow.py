"""Pure: takes Arrow's structs, lists and maps apart, or turns them into JSON text, whole columns at a time.

A slice shares its entries with other rows, and a null may hide entries: only entries of a column's own rows are seen.
JSON is printed as Spark's `to_json` prints it, except for nulls, which are kept; timestamps, which are in UTC and keep
their microseconds; and keys of maps, which are printed like values. Knows Arrow, and how Spark prints a variant.
"""

from __future__ import annotations

import binascii
import decimal
import json
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.table.variant import as_variants, is_sent_variant

if TYPE_CHECKING:
    from pyspark.sql.variant_utils import VariantUtils

_NULL = "null"
_MUST_BE_ESCAPED = r'["\\\x00-\x1f]'
# The backslash is escaped first.
_SHORT_ESCAPES = {"\\": "\\\\", '"': '\\"', "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_LONG_ESCAPES = {chr(code): f"\\u{code:04X}" for code in range(0x20) if chr(code) not in _SHORT_ESCAPES}
_OUT_OF_RANGE = "<"  # Arrow prints a year beyond 32,767 as "<value out of range: ...>"
_MICROSECONDS_OF_A_DAY = 86_400_000_000
# More than a decimal of a variant has; Python's own 28 round longer ones.
_DIGITS = 60


def split_lists(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the offsets and the elements of lists; a null list has none."""
    elements = lists.flatten()
    offsets = lists.offsets
    if len(elements) == offsets[-1].as_py() - offsets[0].as_py():
        return pc.subtract(offsets, offsets[0]), elements
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)]), elements


def split_maps(maps: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the offsets, keys and values of maps; a null map has none."""
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    offsets = pc.subtract(maps.offsets, maps.offsets[0])
    # Unlike flatten(), both cover the whole, unsliced map.
    keys, items = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    if not _hides_entries(maps, offsets):
        return offsets, keys, items
    numbers = pa.array(range(last - first), pa.int32())
    offsets, seen = split_lists(pa.ListArray.from_arrays(offsets, numbers, mask=maps.is_null()))
    return offsets, keys.take(seen), items.take(seen)


def _hides_entries(maps: pa.Array, offsets: pa.Array) -> bool:
    if not maps.null_count:
        return False
    lengths = pc.subtract(offsets[1:], offsets[:-1])
    return pc.any(pc.and_(maps.is_null(), pc.greater(lengths, 0))).as_py() is True


def to_json(values: pa.Array) -> pa.Array:
    """Return the JSON text of every value, null for a null."""
    if not len(values):  # an empty array may come without any offsets
        return pa.array([], pa.string())
    if not pa.types.is_nested(values.type):
        return _flat(values)
    if pa.types.is_struct(values.type):
        text = _variants(values) if is_sent_variant(values.type) else _structs(values)
    elif pa.types.is_map(values.type):
        text = _maps(values)
    else:
        text = _lists(values)
    return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _inside(values: pa.Array) -> pa.Array:
    return pc.fill_null(to_json(values), _NULL)


def _structs(values: pa.Array) -> pa.Array | pa.Scalar:
    if not values.type.num_fields:
        return pa.scalar("{}")
    parts: list[pa.Array | str] = []
    for position, field in enumerate(values.type):
        parts += ["," if parts else "{", json.dumps(field.name, ensure_ascii=False), ":"]
        parts.append(_inside(pc.struct_field(values, position)))
    return _joined(*parts, "}")


def _lists(values: pa.Array) -> pa.Array:
    offsets, elements = split_lists(values)
    return _joined("[", _with_commas(offsets, _inside(elements)), "]")


def _maps(values: pa.Array) -> pa.Array:
    offsets, keys, items = split_maps(values)
    return _joined("{", _with_commas(offsets, _joined(_as_text(to_json(keys)), ":", _inside(items))), "}")


def _with_commas(offsets: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")


def _as_text(json_texts: pa.Array) -> pa.Array:
    """Return keys as JSON strings, which numbers, for example, are not yet."""
    return pc.if_else(pc.starts_with(json_texts, '"'), json_texts, _quoted(_escaped(json_texts)))


def _flat(values: pa.Array) -> pa.Array:
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return _quoted(_escaped(values.cast(pa.string())))
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


def _quoted(texts: pa.Array) -> pa.Array:
    return _joined('"', texts, '"')


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


def _variants(values: pa.Array) -> pa.Array:
    """Return variants that Spark sends as text, as Spark prints them in UTC; of a null, any text."""
    parts = as_variants(values)
    found = zip(parts.field("value").to_pylist(), parts.field("metadata").to_pylist(), strict=True)
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        return pa.array(
            ["" if not value else _printer().to_json(value, metadata) for value, metadata in found], pa.string()
        )


@cache
def _printer() -> type[VariantUtils]:
    """Return PySpark's printer of variants, with numbers as Spark's JVM prints them."""
    from pyspark.sql.variant_utils import VariantUtils  # noqa: PLC0415  # only rows that are written as JSON need it

    class Printer(VariantUtils):
        """PySpark's has each digit of a 32-bit float's 64 bits, and infinities as words without quotes."""

        @classmethod
        def _get_scalar(cls, variant_type: Any, value: bytes, metadata: bytes, pos: int, zone_id: str) -> Any:  # noqa: ANN401
            found = super()._get_scalar(variant_type, value, metadata, pos, zone_id)
            if isinstance(found, decimal.Decimal):
                return _Printed(format(found.normalize(), "f"))
            if isinstance(found, float):
                kind = pa.float32() if cls._get_type_info(value, pos)[1] == cls.FLOAT else pa.float64()
                return _Printed(_floats(pa.array([found], kind))[0].as_py())
            return found

    return Printer


@dataclass(frozen=True, slots=True)
class _Printed:
    """A value whose text is known."""

    text: str

    def __str__(self) -> str:
        return self.text


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
        return pa.array([None if day is None else _iso_date(day) for day in days], pa.string())
    return _with_sign(text)


def _timestamps(values: pa.Array) -> pa.Array:
    microseconds = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
    text = microseconds.view(pa.timestamp("us")).cast(pa.string())
    if pc.any(pc.match_substring(text, _OUT_OF_RANGE)).as_py():
        numbers = microseconds.to_pylist()
        text = pa.array([None if number is None else _iso_timestamp(number) for number in numbers], pa.string())
    else:
        text = _with_sign(pc.replace_substring(text, " ", "T"))
    text = pc.replace_substring_regex(text, r"000$", "")  # Spark prints milliseconds
    return _joined(text, "Z") if values.type.tz else text


def _with_sign(texts: pa.Array) -> pa.Array:
    """Return dates with the sign that ISO 8601 requires for years above 9999."""
    return pc.replace_substring_regex(texts, r"^([0-9]{5})", r"+\1")


def _iso_date(day: int) -> str:
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


def _iso_timestamp(microseconds: int) -> str:
    day, rest = divmod(microseconds, _MICROSECONDS_OF_A_DAY)
    seconds, fraction = divmod(rest, 1_000_000)
    return f"{_iso_date(day)}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
