"""The one form of key values in which equal ones are the same, whoever wrote them and when."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_ds.deletes.key_reader import canonical, canonical_type

A_UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff").bytes
NOON = dt.datetime(2026, 11, 22, 12, tzinfo=dt.timezone.utc)
NAIVE = NOON.replace(tzinfo=None)
# The type in the table, and arrays that have the same values.
SAME: list[tuple[IcebergType, list[pa.Array]]] = [
    (BooleanType(), [pa.array([True, None, False])]),
    (LongType(), [pa.array([1, None, -2], pa.int32()), pa.array([1, None, -2], pa.int64())]),
    (IntegerType(), [pa.array([1, None, -2], pa.int32()), pa.array([1, None, -2], pa.int8())]),
    (DoubleType(), [pa.array([1.5, None, -0.0], pa.float32()), pa.array([1.5, None, -0.0], pa.float64())]),
    (
        DecimalType(20, 2),
        [pa.array([Decimal("1.20"), None], pa.decimal128(precision, 2)) for precision in (4, 9, 20, 38)],
    ),
    (
        StringType(),
        [
            pa.array(["a", None, ""], pa.string()),
            pa.array(["a", None, ""], pa.large_string()),
            pa.array(["a", None, ""], pa.string_view()),
            pa.array(["a", None, ""], pa.string()).dictionary_encode(),
            pa.array([b"a", None, b""], pa.binary()),
        ],
    ),
    (
        BinaryType(),
        [
            pa.array([b"\xff", None], pa.binary()),
            pa.array([b"\xff", None], pa.large_binary()),
            pa.array([b"\xff", None], pa.binary_view()),
        ],
    ),
    (FixedType(1), [pa.array([b"\xff", None], pa.binary(1)), pa.array([b"\xff", None], pa.binary())]),
    (
        UUIDType(),
        [
            pa.array([A_UUID, None], pa.binary(16)),
            pa.ExtensionArray.from_storage(pa.uuid(), pa.array([A_UUID, None], pa.binary(16))),
        ],
    ),
    (DateType(), [pa.array([dt.date(2026, 11, 22), None], pa.date32())]),
    (TimeType(), [pa.array([dt.time(1, 2, 3), None], unit) for unit in (pa.time64("us"), pa.time32("ms"))]),
    (TimestampType(), [pa.array([NAIVE, None], pa.timestamp(unit)) for unit in ("ms", "us", "ns")]),
    (
        TimestamptzType(),
        [pa.array([NOON, None], pa.timestamp("us", zone)) for zone in ("UTC", "+00:00", "Europe/Berlin")]
        + [pa.array([NAIVE, None], pa.timestamp("us"))],
    ),
]


@pytest.mark.parametrize(("kind", "arrays"), SAME, ids=lambda value: str(value) if not isinstance(value, list) else "")
def test_values_that_are_equal_are_the_same_bytes(kind: IcebergType, arrays: list[pa.Array]) -> None:
    """Rows of older files, or of other writers, would stay that are deleted."""
    first = canonical(arrays[0], kind)

    assert first.type == canonical_type(kind)
    assert [value.is_valid for value in first] == [value.is_valid for value in arrays[0]]
    for other in arrays[1:]:
        assert canonical(other, kind).equals(first)


@pytest.mark.parametrize("kind", [kind for kind, _ in SAME], ids=str)
def test_column_of_nothing_but_nulls_has_the_type_of_the_others(kind: IcebergType) -> None:
    """Files from before a column was added could not be searched."""
    assert canonical(pa.nulls(2), kind).equals(pa.nulls(2, canonical_type(kind)))


def test_floats_are_told_apart_as_by_java() -> None:
    """A table would have other rows after its conversion than Java reads before."""
    bits = canonical(pa.array([0.0, -0.0, math.nan, -math.nan, None]), DoubleType()).to_pylist()

    assert bits[0] != bits[1]
    assert bits[2] == bits[3]
    assert canonical(pa.array([math.nan], pa.float32()), FloatType()).to_pylist() == bits[2:3]


def test_finer_timestamps_are_those_of_the_microsecond_that_they_are_in() -> None:
    """Rows from before 1970 would be found by the next microsecond's key, and by no other reader."""
    fine = pa.array([1_001, -1, -1_500], pa.timestamp("ns"))

    assert canonical(fine, TimestampType()).to_pylist() == [1, -1, -2]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array(["a"]), LongType()),
        (pa.array([2**40]), StringType()),
        (pa.array([Decimal("1.234")]), DecimalType(9, 2)),
    ],
    ids=str,
)
def test_values_of_other_types_are_refused(values: Any, kind: IcebergType) -> None:
    """Rows would be compared with what they are not."""
    with pytest.raises((ValueError, NotImplementedError)):
        canonical(values, kind)


def test_lists_are_no_keys() -> None:
    """The error would come from Arrow."""
    with pytest.raises(ValueError, match="cannot be a key"):
        canonical_type(ListType(1, LongType()))
