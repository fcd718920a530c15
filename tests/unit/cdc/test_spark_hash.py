"""Spark's hash of keys, and what it proves."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.cdc.spark_hash import LayoutProof, can_share, spark_hash

NUMBERS = [0, 1, -1, 30000, -7]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
OF_INTEGERS = [933211791, -559580957, -1604776387, 1190950438, -1618159745]
OF_LONGS = [-1670924195, -1712319331, -939490007, 152310282, 222034016]
# What Spark 4.3's `hash` returned.
KNOWN: list[tuple[list[pa.Array], list[int]]] = [
    ([pa.array(NUMBERS, pa.int32())], OF_INTEGERS),
    ([pa.array(NUMBERS, pa.int16())], OF_INTEGERS),
    ([pa.array(NUMBERS, pa.int32()).view(pa.date32())], OF_INTEGERS),
    ([pa.array(NUMBERS, pa.int64())], OF_LONGS),
    (
        [pa.array([decimal.Decimal(number) for number in NUMBERS], pa.decimal128(18, 3))],
        [-1670924195, -803323719, -993842656, -163373665, -2121228327],
    ),
    ([pa.array([number > 0 for number in NUMBERS])], [933211791, -559580957, 933211791, -559580957, 933211791]),
    (
        [pa.array([number * 1_000_001 for number in NUMBERS], pa.timestamp("us", "UTC"))],
        [-1670924195, 1470413641, 366770570, -2064919235, 60199939],
    ),
    (
        [pa.array(["", "a", "abc", "abcd", "abcdefg", "ünïcode-ß", "0123456789abcdef"])],
        [142593372, 1485273170, 1322437556, -396302900, 2132013596, -1713943514, -1729524877],
    ),
    (
        [pa.array([b"", b"\xff", b"\x00\xff\x80", b"\x01\x02\x03\x04\x05"])],
        [142593372, 1398487324, -2052482636, -2064006189],
    ),
    ([pa.array([1, -5, 2**63 - 1]), pa.array(["a", "région", ""])], [573093329, 486544931, 601254022]),
]


@pytest.mark.parametrize(("columns", "expected"), KNOWN, ids=lambda given: str(given[0])[:20])
def test_hashes_are_sparks(columns: list[pa.Array], expected: list[int]) -> None:
    """Rows that were distributed by key would not be recognised, and every key would be reported."""
    hashes = spark_hash(columns)

    assert hashes is not None
    assert hashes.to_pylist() == expected


@pytest.mark.parametrize(("columns", "expected"), KNOWN, ids=lambda given: str(given[0])[:20])
def test_slices_hash_as_their_rows_do(columns: list[pa.Array], expected: list[int]) -> None:
    """A batch that is part of another one would prove nothing."""
    hashes = spark_hash([column.slice(1) for column in columns])

    assert hashes is not None
    assert hashes.to_pylist() == expected[1:]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5]),
        pa.array([decimal.Decimal(1)], pa.decimal128(20, 3)),
        pa.array(["x" * 300]),
        pa.array([b"x" * 16], pa.binary(16)),
    ],
    ids=lambda column: str(column.type),
)
def test_what_is_not_hashed_here_proves_nothing(column: pa.Array) -> None:
    """A wrong proof would let one key into the table twice."""
    proof = LayoutProof(0)
    proof.note([column], [column.type])

    assert spark_hash([column]) is None
    assert proof.modulus == 1


def test_rows_of_one_remainder_prove_it() -> None:
    """Tasks of `distribute` would have to report all their keys."""
    keys = pa.array(range(5000), pa.int64())
    hashes = spark_hash([keys])
    assert hashes is not None
    for task in range(6):
        mine = [key for key, value in zip(keys.to_pylist(), hashes.to_pylist(), strict=True) if value % 6 == task]
        proof = LayoutProof(task)
        for start in range(0, len(mine), 100):
            proof.note([pa.array(mine[start : start + 100], pa.int64())], [pa.int64()])

        assert proof.modulus % 6 == 0


def test_one_row_elsewhere_disproves_it() -> None:
    """A key in two tasks would be taken for impossible."""
    hashes = spark_hash([pa.array(range(5000), pa.int64())])
    assert hashes is not None
    mine = [key for key, value in enumerate(hashes.to_pylist()) if value % 6 == 2]
    stranger = next(key for key, value in enumerate(hashes.to_pylist()) if value % 6 == 3)
    proof = LayoutProof(2)
    proof.note([pa.array(mine, pa.int64())], [pa.int64()])
    proof.note([pa.array([stranger], pa.int64())], [pa.int64()])

    assert math.gcd(proof.modulus, 6) < 6


def test_integers_that_the_table_widens_hash_as_spark_had_them() -> None:
    """Keys that are int in Spark and long in the table would always be reported."""
    proofs = [LayoutProof(0), LayoutProof(0)]
    proofs[0].note([pa.array([7], pa.int64())], [pa.int32()])
    proofs[1].note([pa.array([7], pa.int32())], [pa.int32()])

    assert proofs[0].modulus == proofs[1].modulus


@given(st.lists(st.tuples(st.integers(-30, 30), st.integers(0, 5)), min_size=1, max_size=8))
def test_tasks_that_share_a_hash_are_never_proven_apart(rows: list[tuple[int, int]]) -> None:
    """One key would be in the table twice."""
    hashes: dict[int, set[int]] = {}
    for value, task in rows:
        hashes.setdefault(task, set()).add(value)
    moduli = {task: math.gcd(*(value - task for value in values)) for task, values in hashes.items()}

    for one, other in itertools.combinations(hashes, 2):
        if hashes[one] & hashes[other]:
            assert can_share((one, moduli[one]), (other, moduli[other]))
