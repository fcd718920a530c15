"""Digests tell keys apart, and say the same of a key wherever it stands."""

from __future__ import annotations

import decimal
import itertools
import random
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.cdc.keys import digest_keys

SEED = bytes(range(8))


def digests_of(columns: list[pa.Array], seed: bytes = SEED) -> list[int]:
    """Return the digests of keys."""
    found: list[int] = digest_keys(columns, seed).to_pylist()
    return found


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
    """One key would be taken for two, and be in the table twice; or keys be compared that are not equal."""
    keys = list(zip(*(column.to_pylist() for column in columns), strict=True))
    digests = digests_of(columns)

    assert [keys.index(key) for key in keys] == [digests.index(digest) for digest in digests]
    assert digests_of([column.slice(start) for column in columns]) == digests[start:]
    assert [digests_of([column.slice(row, 1) for column in columns])[0] for row in range(len(keys))] == digests


@pytest.mark.parametrize("length", [*range(18), 127, 128, 129, 130])
def test_every_byte_counts(length: int) -> None:
    """Long keys that differ in one byte would be one key."""
    texts = [bytes(length), *(bytes(at) + b"\x01" + bytes(length - at - 1) for at in range(length)), bytes(length + 1)]

    assert len(set(digests_of([pa.array(texts, pa.binary())]))) == len(texts)


def test_columns_do_not_run_into_each_other() -> None:
    """('ab', 'c') and ('a', 'bc') would be one key."""
    found = digests_of([pa.array(["ab", "a", "", "abc"]), pa.array(["c", "bc", "abc", ""])])

    assert len(set(found)) == 4


def test_an_integer_has_one_digest_in_any_width() -> None:
    """A key would be another one after its column was widened."""
    assert digests_of([pa.array([-1, 7], pa.int32())]) == digests_of([pa.array([-1, 7], pa.int64())])


def test_another_write_has_other_digests() -> None:
    """Somebody could prepare keys that are taken for one."""
    column = pa.array([1, 2, 3])

    assert not set(digests_of([column])) & set(digests_of([column], uuid.uuid4().bytes[:8]))


def test_digests_tell_all_integers_apart() -> None:
    """Neighbouring numbers, the most usual keys, would cost a comparison each."""
    numbers = pa.array(range(100_000), pa.int64())
    digests = digest_keys([numbers], SEED)
    of_two_columns = digest_keys([numbers, pa.repeat(7, 100_000)], SEED)

    assert len(digests.unique()) == len(of_two_columns.unique()) == 100_000


@pytest.mark.parametrize("words", [1, 2, 3])
def test_every_bit_of_a_key_changes_half_of_its_digest(words: int) -> None:
    """Keys could be made that have the same digest in every write, and each pair of them would cost a comparison."""
    generator = random.Random(words)  # noqa: S311  # the same keys every time
    keys, changed = [], []
    for word in range(words):
        for bit in range(64):
            for _ in range(200):
                key = [generator.getrandbits(64) for _ in range(words)]
                keys.append(key)
                changed.append([value ^ (1 << bit) if place == word else value for place, value in enumerate(key)])
    before, after = (digest_keys(list(map(words_of, zip(*rows, strict=True))), SEED) for rows in (keys, changed))

    differences = pc.bit_wise_xor(before, after).to_pylist()

    for bit in range(64):
        flips = [difference >> bit & 1 for difference in differences]
        shares = [sum(flips[start : start + 200]) / 200 for start in range(0, len(flips), 200)]
        assert min(shares) > 0.3
        assert max(shares) < 0.7


def words_of(values: Sequence[int]) -> pa.Array:
    """Return 64-bit words as keys of longs."""
    return pa.array(values, pa.uint64()).view(pa.int64())


def four_longs(rows: Sequence[Sequence[int]]) -> list[pa.Array]:
    """Return keys of four columns."""
    return [words_of(column) for column in zip(*rows, strict=True)]


def two_decimals(rows: Sequence[Sequence[int]]) -> list[pa.Array]:
    """Return the same words as keys of two decimals, whatever their digits."""
    return [
        pa.Array.from_buffers(pa.decimal128(38, 0), len(rows), [None, pa.py_buffer(b"".join(column))])
        for column in zip(*([texts(row[:2]), texts(row[2:])] for row in rows), strict=True)
    ]


def one_text(rows: Sequence[Sequence[int]], kind: pa.DataType) -> list[pa.Array]:
    """Return the same words as keys of bytes."""
    return [pa.array([texts(row) for row in rows], kind)]


def texts(words: Sequence[int]) -> bytes:
    """Return the bytes of words."""
    return b"".join(word.to_bytes(8, "little") for word in words)


@pytest.mark.parametrize("distance", range(1, 4))
@pytest.mark.parametrize(
    "keys_of",
    [four_longs, two_decimals, partial(one_text, kind=pa.binary()), partial(one_text, kind=pa.binary(32))],
    ids=["longs", "decimals", "binary", "fixed"],
)
def test_keys_that_differ_in_a_few_bits_have_other_digests(
    keys_of: Callable[[list[list[int]]], list[pa.Array]], distance: int
) -> None:
    """Whoever knows the package could make keys whose digests are equal under half of all seeds."""
    generator = random.Random(distance)  # noqa: S311  # the same keys every time
    high = [1 << bit for bit in (63, 31, 62, 30, 0)]
    flips = [sum(some) for count in (1, 2) for some in itertools.combinations(high, count)]
    pairs = [
        ([first, 7, 9, second], [first ^ one, *(7, 9)[: distance - 1], second ^ other, *(7, 9)[distance - 1 :]])
        for one, other in itertools.product(flips, repeat=2)
        for first, second in [(generator.getrandbits(64), generator.getrandbits(64))]
    ]
    left, right = (keys_of([pair[side] for pair in pairs]) for side in (0, 1))

    for number in range(50):
        seed = number.to_bytes(8, "big")
        assert not pc.any(pc.equal(digest_keys(left, seed), digest_keys(right, seed))).as_py()


def test_known_collisions_are_none_any_more() -> None:
    """Two keys that were taken for one under half of all seeds would be so again."""
    columns = [pa.array([5, -9223372036854775803]), pa.array([7, -9223372034707292153])]

    assert all(len(set(digests_of(columns, seed.to_bytes(8, "big")))) == 2 for seed in range(200))


def test_no_rows_have_no_digests() -> None:
    """A task without rows would fail."""
    empty = [pa.array([], data_type) for data_type in (pa.string(), pa.int64(), pa.decimal128(38, 0))]

    assert digests_of(empty) == []


@pytest.mark.parametrize("column", [pa.array([1.5]), pa.array([[1]])], ids=["double", "list"])
def test_other_types_are_no_keys(column: pa.Array) -> None:
    """NaN or -0 would be a key that no delete finds."""
    with pytest.raises(ValueError, match="cannot be a key"):
        digest_keys([column], SEED)


def test_decimals_differ_in_their_upper_halves() -> None:
    """Large decimal keys would be taken for one."""
    values = [decimal.Decimal(2**64 * number + 5) for number in range(4)]

    assert len(set(digests_of([pa.array(values, pa.decimal128(38, 0))]))) == 4
