"""Structs, lists and maps as JSON text."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pytest

from iceberg_ds.table.nested_arrow import to_json

UTC = dt.timezone.utc


def printed(value: Any, data_type: pa.DataType) -> Any:
    """Return the JSON text of one value, as it stands in a struct."""
    (text,) = to_json(pa.array([{"c": value}], pa.struct({"c": data_type}))).to_pylist()
    return text.removeprefix('{"c":').removesuffix("}")


FLAT: list[tuple[pa.DataType, Any, str]] = [
    (pa.bool_(), True, "true"),
    (pa.int8(), -128, "-128"),
    (pa.int64(), -(2**63), "-9223372036854775808"),
    (pa.float32(), 0.1, "0.1"),
    (pa.float64(), 1.0, "1.0"),
    (pa.float64(), -0.0, "-0.0"),
    (pa.float64(), 5e-324, "5e-324"),
    (pa.float64(), math.nan, '"NaN"'),
    (pa.float64(), math.inf, '"Infinity"'),
    (pa.float32(), -math.inf, '"-Infinity"'),
    (pa.decimal128(5, 2), decimal.Decimal("-1.50"), "-1.50"),
    (pa.decimal128(38, 0), decimal.Decimal("9" * 38), "9" * 38),
    (pa.decimal128(38, 38), decimal.Decimal("-0." + "9" * 38), "-0." + "9" * 38),
    (pa.string(), "", '""'),
    (pa.string(), "Ünï 👍 \u2028/", '"Ünï 👍 \u2028/"'),
    (pa.string(), 'a"b\\c\n\t\r\b\f\x00\x1f', '"a\\"b\\\\c\\n\\t\\r\\b\\f\\u0000\\u001F"'),
    (pa.large_string(), 'a"', '"a\\""'),
    (pa.binary(), b"\x00\xff", '"AP8="'),
    (pa.large_binary(), b"", '""'),
    (pa.date32(), dt.date(2024, 2, 29), '"2024-02-29"'),
    (pa.date32(), dt.date(1, 1, 1), '"0001-01-01"'),
    (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, tzinfo=UTC), '"2020-01-01T00:00:00.000Z"'),
    (pa.timestamp("us", "Asia/Tokyo"), dt.datetime(2020, 1, 1, tzinfo=UTC), '"2020-01-01T00:00:00.000Z"'),
    (pa.timestamp("us", "UTC"), dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), '"1969-12-31T23:59:59.999999Z"'),
    (pa.timestamp("us"), dt.datetime(1, 1, 1, 0, 0, 0, 120_000), '"0001-01-01T00:00:00.120"'),  # noqa: DTZ001  # no zone
    (pa.time64("ns"), dt.time(1, 2, 3), '"01:02:03"'),
    (pa.time64("ns"), dt.time(10, 0, 0, 100), '"10:00:00.0001"'),
    (pa.null(), None, "null"),
    (pa.int32(), None, "null"),
    (pa.string(), None, "null"),
    (pa.float64(), None, "null"),
    (pa.struct([]), {}, "{}"),
    (pa.list_(pa.int32()), [], "[]"),
    (pa.list_(pa.null()), [], "[]"),
    (pa.list_(pa.int32()), None, "null"),
    (pa.map_(pa.string(), pa.int32()), [], "{}"),
]


@pytest.mark.parametrize(("data_type", "value", "expected"), FLAT, ids=str)
def test_value_is_printed_as_spark_prints_it(data_type: pa.DataType, value: Any, expected: str) -> None:
    """Readers would find other values than Spark had, or text that is no JSON."""
    assert printed(value, data_type) == expected
    json.loads(expected)


FAR: list[tuple[pa.DataType, int, str]] = [
    (pa.date32(), 2_932_897, '"+10000-01-01"'),
    (pa.date32(), -719_529, '"-0001-12-31"'),
    (pa.date32(), 2**31 - 1, '"+5881580-07-11"'),
    (pa.date32(), -(2**31), '"-5877641-06-23"'),
    (pa.timestamp("us", "UTC"), 253_402_300_800_000_000, '"+10000-01-01T00:00:00.000Z"'),
    (pa.timestamp("us", "America/New_York"), 2**63 - 1, '"+294247-01-10T04:00:54.775807Z"'),
    (pa.timestamp("us"), -(2**63), '"-290308-12-21T19:59:05.224192"'),
]


@pytest.mark.parametrize(("data_type", "number", "expected"), FAR, ids=str)
def test_moments_beyond_pythons_range_are_printed(data_type: pa.DataType, number: int, expected: str) -> None:
    """A task would fail on a date that Spark holds and Python does not."""
    physical = pa.int32() if data_type == pa.date32() else pa.int64()
    column = pa.array([number, 0, None], physical).view(data_type)

    text = to_json(pa.StructArray.from_arrays([column], names=["c"]))

    assert text[0].as_py() == f'{{"c":{expected}}}'
    assert text[1].as_py().startswith('{"c":"1970-01-01')
    assert text[2].as_py() == '{"c":null}'


@pytest.mark.parametrize(
    ("key_type", "keys", "expected"),
    [
        (pa.string(), ["", 'a"b'], ["", 'a"b']),
        (pa.int32(), [1, -1], ["1", "-1"]),
        (pa.bool_(), [True, False], ["true", "false"]),
        (pa.float64(), [1.5, math.nan], ["1.5", "NaN"]),
        (pa.decimal128(3, 1), [decimal.Decimal("1.0")], ["1.0"]),
        (pa.date32(), [dt.date(2020, 1, 1)], ["2020-01-01"]),
        (pa.binary(), [b"\x00"], ["AA=="]),
        (pa.struct({"a": pa.string()}), [{"a": "x"}], ['{"a":"x"}']),
    ],
    ids=str,
)
def test_keys_of_maps_are_text(key_type: pa.DataType, keys: list[Any], expected: list[str]) -> None:
    """The text would be no JSON, whose keys are all strings."""
    value = [(key, number) for number, key in enumerate(keys)]

    assert json.loads(printed(value, pa.map_(key_type, pa.int32()))) == {key: n for n, key in enumerate(expected)}


DEEP = pa.struct(
    {
        'a "quoted" näme': pa.list_(pa.map_(pa.string(), pa.struct({"x": pa.int32(), "y": pa.list_(pa.string())}))),
        "b": pa.struct({"c": pa.struct({"d": pa.float64()})}),
    }
)
ROWS: list[Any] = [
    {'a "quoted" näme': [{"k": {"x": 1, "y": ["a", None]}, "l": None}, {}, None], "b": {"c": {"d": 0.5}}},
    None,
    {'a "quoted" näme': None, "b": None},
    {'a "quoted" näme': [], "b": {"c": None}},
    {'a "quoted" näme': [{"m": {"x": None, "y": None}}, {"n": {"x": 2, "y": []}}], "b": {"c": {"d": None}}},
]


def deep_rows() -> pa.Array:
    """Return the rows as Arrow has them."""
    pairs = [
        row and {**row, 'a "quoted" näme': lists and [entry and list(entry.items()) for entry in lists]}
        for row in ROWS
        for lists in [row and row['a "quoted" näme']]
    ]
    return pa.array(pairs, DEEP)


def test_every_slice_of_nested_values_is_printed() -> None:
    """Rows would get the values of other rows, or lose their own; nulls would become something else."""
    rows = deep_rows()

    for start in range(len(ROWS) + 1):
        for end in range(start, len(ROWS) + 1):
            texts = to_json(rows.slice(start, end - start)).to_pylist()
            assert [None if text is None else json.loads(text) for text in texts] == ROWS[start:end]


def test_lists_without_offsets_are_none() -> None:
    """A task would crash on lists of lists that are all empty: the inner ones may come without a buffer."""
    inner = pa.Array.from_buffers(pa.list_(pa.int32()), 0, [None, None], children=[pa.array([], pa.int32())])
    outer = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), inner)

    assert to_json(inner).to_pylist() == []
    assert to_json(outer).to_pylist() == ["[]", "[]"]


def test_entries_that_a_null_hides_are_not_printed() -> None:
    """A null list would push its hidden elements into the next one."""
    mask = pa.array([True, False])
    numbers = pa.array([1, 2, 3])
    hidden = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), numbers, mask=mask)
    hidden_pairs = pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), numbers, numbers, mask=mask)

    assert to_json(hidden).to_pylist() == [None, "[3]"]
    assert to_json(hidden_pairs).to_pylist() == [None, '{"3":3}']


def test_text_that_is_no_utf8_is_kept() -> None:
    """A task would fail on a string that Spark holds and Python does not."""
    column = pa.array([b'\xff"']).view(pa.string())

    text = to_json(pa.StructArray.from_arrays([column], names=["c"]))

    assert text.cast(pa.binary()).to_pylist() == [b'{"c":"\xff\\""}']
