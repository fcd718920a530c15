"""Variants as JSON text: what of them Spark prints too is as Spark's JVM prints it."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.table.nested_arrow import to_json
from iceberg_ds.table.variant import SPARK_VARIANT, as_variants
from iceberg_ds.table.variant_encoding import to_variants
from iceberg_ds.table.variant_json import variant_json
from iceberg_ds.writers.bad_rows import has_raw_bytes

_NO_NAMES = b"\x01\x00\x00"


def test_json_of_a_variant_is_that_of_spark() -> None:
    """Rows that are kept as text would hold bytes."""
    texts = ['{"a":[1,"x",null]}', '"17"', "null"]
    found = [VariantVal.parseJson(text) for text in texts]
    values = [{"value": one.value, "metadata": one.metadata} for one in found]

    assert to_json(pa.array([*values, None], SPARK_VARIANT)).to_pylist() == [*texts, None]
    inside = pa.array([{"v": values[0]}, None], pa.struct([pa.field("v", SPARK_VARIANT)]))
    assert to_json(inside).to_pylist() == ['{"v":{"a":[1,"x",null]}}', None]


_AS_SPARK_PRINTS = {
    "whole number of 38 digits": (Decimal(-12345678901234567890123456789012345678), pa.decimal128(38, 0), None),
    "38 digits behind the point": (Decimal("0.12345678901234567890123456789012345678"), pa.decimal128(38, 38), None),
    "decimal that ends in zeros": (Decimal("100.50"), pa.decimal128(5, 2), "100.5"),
    "small decimal": (Decimal("0.00000000000000000001"), pa.decimal128(38, 20), "0.00000000000000000001"),
    "short float": (1.1, pa.float32(), "1.1"),
    "whole double": (3.0, pa.float64(), "3.0"),
    "large double": (1e300, pa.float64(), "1e+300"),
    "infinity": (math.inf, pa.float64(), '"Infinity"'),
    "negative infinity": (-math.inf, pa.float32(), '"-Infinity"'),
    "no number": (math.nan, pa.float64(), '"NaN"'),
}


@pytest.mark.parametrize("case", _AS_SPARK_PRINTS)
def test_numbers_in_variants_keep_their_digits_as_json(case: str) -> None:
    """Digits would be lost, or the text be no JSON, so that nothing reads the row again."""
    value, kind, text = _AS_SPARK_PRINTS[case]
    variants = to_variants(pa.array([{"n": [value]}], pa.struct([("n", pa.list_(kind))])), "c")

    (printed,) = to_json(as_variants(variants, SPARK_VARIANT)).to_pylist()

    assert printed == f'{{"n":[{text or value}]}}'
    assert json.loads(printed, parse_float=Decimal, parse_constant=pytest.fail)


def primitive(kind: int, raw: bytes) -> bytes:
    """Return a value by the number of its type."""
    return bytes([kind << 2]) + raw


_DAYS = {-719_163: "0000-12-31", -719_529: "-0001-12-31", 2_932_897: "+10000-01-01", 2**31 - 1: "+5881580-07-11"}
_MOMENTS = {
    -62_167_219_200_000_001: "-0001-12-31 23:59:59.999999",
    253_402_300_800_000_000: "+10000-01-01 00:00:00",
    1_700_000_000_123_000: "2023-11-14 22:13:20.123",
    2**63 - 1: "+294247-01-10 04:00:54.775807",
    -(2**63): "-290308-12-21 19:59:05.224192",
}
# What Spark's JVM prints was noted from it; it prints no time, and no nanoseconds.
_FLAT = {
    **{primitive(11, struct.pack("<i", day)): text for day, text in _DAYS.items()},
    **{primitive(12, struct.pack("<q", moment)): f"{text}+00:00" for moment, text in _MOMENTS.items()},
    **{primitive(13, struct.pack("<q", moment)): text for moment, text in _MOMENTS.items()},
    primitive(17, struct.pack("<q", 86_399_999_999)): "23:59:59.999999",
    primitive(18, struct.pack("<q", 1_700_000_000_000_000_001)): "2023-11-14 22:13:20.000000001+00:00",
    primitive(19, struct.pack("<q", -1)): "1969-12-31 23:59:59.999999999",
    primitive(20, bytes(range(16))): str(UUID(bytes=bytes(range(16)))),
    primitive(15, struct.pack("<i", 2) + b"\xff\x00"): "/wA=",
}


@pytest.mark.parametrize("value", _FLAT, ids=_FLAT.get)
def test_any_year_and_every_type_is_printed(value: bytes) -> None:
    """One such row would fail the whole write, although it was to be quarantined."""
    assert variant_json(value, _NO_NAMES) == f'"{_FLAT[value]}"'.encode()


def test_any_depth_is_printed() -> None:
    """One such row would fail the whole write, although it was to be quarantined."""
    value = b"\x00"
    for _ in range(20_000):
        value = b"\x0f\x01" + (0).to_bytes(4, "little") + len(value).to_bytes(4, "little") + value

    assert variant_json(value, _NO_NAMES) == b"[" * 20_000 + b"null" + b"]" * 20_000


@pytest.mark.parametrize("text", ["\U0001f4a9", "the end \U0001f480", "\u00e9\u65e5\u672c", '"\\/\b\f\n\r\t\x00\x1f'])
def test_text_is_not_taken_for_bytes_that_are_none(text: str) -> None:
    """`requeue` would never write the row, and say that its text is no UTF-8."""
    found = VariantVal.parseJson(json.dumps({text: [text, text * 100]}))
    printed = variant_json(found.value, found.metadata).decode()

    assert json.loads(printed) == {text: [text, text * 100]}
    assert not has_raw_bytes(printed)


def test_text_that_is_no_utf_8_keeps_its_bytes() -> None:
    """The row would be refused, or its bytes be replaced."""
    assert variant_json(b"\x09\xff\x80", _NO_NAMES) == b'"\xff\x80"'
    sent = pa.array([{"value": b"\x09\xff\x80", "metadata": _NO_NAMES}], SPARK_VARIANT)
    assert to_json(sent).cast(pa.binary()).to_pylist() == [b'"\xff\x80"']


_OBJECT = VariantVal.parseJson('{"a": [1, "text", 2.5], "b": {"c": "d"}}')


@pytest.mark.parametrize(
    "value",
    [
        *(_OBJECT.value[:size] for size in range(len(_OBJECT.value))),
        primitive(21, b""),
        primitive(8, b"\x00\x01"),
        primitive(16, b"\xff\xff\xff\x7fa"),
        primitive(3, b""),
    ],
    ids=bytes.hex,
)
def test_damaged_variant_is_refused(value: bytes) -> None:
    """Another value would be written as JSON, or an error be raised that names nothing."""
    with pytest.raises(UnsupportedTableError, match="Cannot write a variant as JSON: its bytes are damaged"):
        variant_json(value, _OBJECT.metadata)


@pytest.mark.parametrize("size", range(len(_OBJECT.metadata)))
def test_damaged_names_are_refused(size: int) -> None:
    """Another name would be written as JSON, or an error be raised that names nothing."""
    with pytest.raises(UnsupportedTableError, match="Cannot write a variant as JSON: its bytes are damaged"):
        variant_json(_OBJECT.value, _OBJECT.metadata[:size])
