"""Digests tell keys apart, and say the same of a key wherever it stands."""

from __future__ import annotations

import decimal
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.changes.digests import digest_keys

SEED = bytes(range(16))


def pairs(columns: list[pa.Array], seed: bytes = SEED) -> list[tuple[int, int]]:
    """Return both halves of each digest."""
    digests = digest_keys(columns, seed)
    return list(zip(digests.high.to_pylist(), digests.low.to_pylist(), strict=True))


KEYS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    (pa.int32(), st.integers(-5, 5)),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2)),
    (pa.string(), st.text(max_size=20) | st.integers(0, 300).map(lambda length: "x" * length)),
    (pa.binary(), st.binary(max_size=20) | st.integers(0, 300).map(bytes)),
    (pa.binary(11), st.binary(min_size=11, max_size=11)),
    (pa.uuid(), st.uuids().map(lambda value: value.bytes)),
]


@st.composite
def tables(draw: st.DrawFn) -> list[pa.Array]:
    """Return key columns of any types."""
    chosen = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
    length = draw(st.integers(1, 12))
    columns = []
    for data_type, values in chosen:
        drawn = draw(st.lists(values, min_size=length, max_size=length))
        columns.append(pa.array(drawn, data_type))
    return columns


@given(tables(), st.integers(0, 11))
def test_digests_are_equal_just_where_keys_are(columns: list[pa.Array], start: int) -> None:
    """Two keys would be taken for one, and a row be lost; or one key for two, and be in the table twice."""
    keys = list(zip(*(column.to_pylist() for column in columns), strict=True))
    digests = pairs(columns)

    assert [keys.index(key) for key in keys] == [digests.index(digest) for digest in digests]
    assert pairs([column.slice(start) for column in columns]) == digests[start:]
    assert [pairs([column.slice(row, 1) for column in columns])[0] for row in range(len(keys))] == digests


@pytest.mark.parametrize("length", [*range(18), 127, 128, 129, 130])
def test_every_byte_counts(length: int) -> None:
    """Long keys that differ in one byte would be one key."""
    texts = [bytes(length), *(bytes(at) + b"\x01" + bytes(length - at - 1) for at in range(length)), bytes(length + 1)]

    assert len(set(pairs([pa.array(texts, pa.binary())]))) == len(texts)


def test_columns_do_not_run_into_each_other() -> None:
    """('ab', 'c') and ('a', 'bc') would be one key."""
    found = pairs([pa.array(["ab", "a", "", "abc"]), pa.array(["c", "bc", "abc", ""])])

    assert len(set(found)) == 4


def test_an_integer_has_one_digest_in_any_width() -> None:
    """A key would be another one after its column was widened."""
    assert pairs([pa.array([-1, 7], pa.int32())]) == pairs([pa.array([-1, 7], pa.int64())])


def test_another_write_has_other_digests() -> None:
    """Somebody could prepare keys that are taken for one."""
    column = pa.array([1, 2, 3])

    assert not set(pairs([column])) & set(pairs([column], uuid.uuid4().bytes))


def test_half_a_digest_tells_all_integers_apart() -> None:
    """Neighbouring numbers, the most usual keys, would collide in a half and cost a comparison each."""
    numbers = pa.array(range(100_000), pa.int64())
    digests = digest_keys([numbers], SEED)
    of_two_columns = digest_keys([numbers, pa.repeat(7, 100_000)], SEED)

    assert (
        len(digests.high.unique()) == len(of_two_columns.high.unique()) == len(of_two_columns.low.unique()) == 100_000
    )


def test_the_other_half_of_a_numbers_digest_costs_nothing() -> None:
    """Every task would send bytes to the driver that tell it nothing."""
    digests = digest_keys([pa.array(range(1_000), pa.int64())], SEED)

    assert digests.low.unique().to_pylist() == [0]


def test_no_rows_have_no_digests() -> None:
    """A task without rows would fail."""
    empty = [pa.array([], data_type) for data_type in (pa.string(), pa.int64(), pa.decimal128(38, 0))]

    assert pairs(empty) == []


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([[1]])], ids=["double", "list"])
def test_other_types_are_no_keys(column: pa.Array) -> None:
    """NaN or -0 would be a key that no delete finds."""
    with pytest.raises(ValueError, match="cannot be a key"):
        digest_keys([column], SEED)


def test_decimals_differ_in_their_upper_halves() -> None:
    """Large decimal keys would be taken for one."""
    values = [decimal.Decimal(2**64 * number + 5) for number in range(4)]

    assert len(set(pairs([pa.array(values, pa.decimal128(38, 0))]))) == 4
