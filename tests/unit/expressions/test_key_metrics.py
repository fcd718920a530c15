"""Whether the metrics of a data file and of a file of keys allow rows that have one of the keys."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
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
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    UUIDType,
)

from iceberg_ds.expressions.metrics_evaluator import FactsOf, facts_of, may_share_rows

ID = 7
# Values of a type in ascending order.
ASCENDING: list[tuple[PrimitiveType, list[Any]]] = [
    (BooleanType(), [False, True]),
    (IntegerType(), [-5, 3, 400]),
    (LongType(), [-(2**40), -1, 0, 2**40]),
    (DateType(), [-3, 20_000]),
    (TimestampType(), [-1, 1_700_000_000_000_000]),
    (FloatType(), [-1.5, 0.25, 1e30]),
    (DoubleType(), [-math.inf, -1.5, 0.0, math.inf]),
    (DecimalType(20, 2), [Decimal("-130.00"), Decimal("-0.01"), Decimal("1.27"), Decimal("1.28")]),
    (StringType(), ["", "a", "b", "ä", "\U0001f600"]),
    (BinaryType(), [b"", b"\x00", b"\x7f", b"\x80"]),
    (FixedType(2), [b"\x00\x01", b"\xff\x00"]),
]


def a_file(  # noqa: PLR0913  # most are given by name
    kind: PrimitiveType | None = None,
    low: Any = None,
    high: Any = None,
    *,
    values: int | None = 10,
    nulls: int | None = 0,
    nans: int | None = 0,
    path: str = "f",
) -> DataFile:
    """Return a file of which these metrics of column `ID` are known."""

    def counted(count: int | None) -> dict[int, int]:
        return {} if count is None else {ID: count}

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=10,
        file_size_in_bytes=1,
        value_counts=counted(values),
        null_value_counts=counted(nulls),
        nan_value_counts=counted(nans),
        lower_bounds={} if low is None or kind is None else {ID: to_bytes(kind, low)},
        upper_bounds={} if high is None or kind is None else {ID: to_bytes(kind, high)},
    )


def may_share(one: DataFile, other: DataFile, kind: IcebergType) -> bool:
    """Return the same for two files, whichever is asked first."""
    facts = [[facts_of(found, ID, kind)] for found in (one, other)]
    assert may_share_rows(*facts) == may_share_rows(*reversed(facts))
    return may_share_rows(*facts)


@pytest.mark.parametrize(("kind", "values"), ASCENDING, ids=lambda value: str(value)[:20])
def test_only_ranges_that_lie_apart_share_nothing(kind: PrimitiveType, values: list[Any]) -> None:
    """Rows would stay that are deleted, or all files be read for each delete."""
    for place, low in enumerate(values):
        for high in values[place:]:
            data = a_file(kind, low, high)
            for end, key in enumerate(values):
                is_inside = place <= end <= values.index(high)
                assert may_share(data, a_file(kind, key, key), kind) is is_inside, (low, high, key)


@pytest.mark.parametrize(
    ("narrow", "wide", "low", "high", "key"),
    [
        (IntegerType(), LongType(), -5, 3, 2**40),
        (FloatType(), DoubleType(), -1.5, 0.25, 0.5),
        (DecimalType(4, 2), DecimalType(30, 2), Decimal("1.00"), Decimal("9.00"), Decimal("1000000.00")),
    ],
    ids=str,
)
def test_bounds_of_before_a_column_was_widened_are_understood(
    narrow: PrimitiveType, wide: PrimitiveType, low: Any, high: Any, key: Any
) -> None:
    """Old files would be passed over although they have deleted rows."""
    old = a_file(narrow, low, high)

    assert may_share(old, a_file(wide, high, high), wide)
    assert not may_share(old, a_file(wide, key, key), wide)


def test_bounds_of_uuids_are_not_relied_on() -> None:
    """Writers order UUIDs differently, so rows would stay that are deleted."""
    low, high = b"\x00" * 16, b"\x80" * 16

    assert may_share(a_file(FixedType(16), low, low), a_file(FixedType(16), high, high), UUIDType())


def test_null_meets_null_whatever_the_bounds() -> None:
    """A row with a null key would stay that a null deletes."""
    kind = LongType()
    data = a_file(kind, 1, 5, nulls=1)

    assert may_share(data, a_file(kind, 9, 9, nulls=1), kind)
    assert not may_share(data, a_file(kind, 9, 9, nulls=0), kind)
    assert may_share(data, a_file(kind, 9, 9, nulls=None), kind)


def test_null_is_looked_for_where_values_are_left_uncounted() -> None:
    """A deleted row whose key is a field of a null struct would come back: some writers do not count it at all."""
    kind = LongType()
    data, null = a_file(kind, 1, 5, values=9), a_file(values=10, nulls=10)

    assert may_share(data, null, kind)
    assert not may_share(data, a_file(kind, 9, 9), kind)
    assert may_share(a_file(values=9, nulls=9), null, kind)
    assert not may_share(a_file(values=9, nulls=9), a_file(kind, 9, 9), kind)


def test_columns_of_nothing_but_nulls_share_nothing_with_those_without() -> None:
    """Each delete of a null would have all files read."""
    kind = LongType()
    nothing = a_file(nulls=10)

    assert not may_share(nothing, a_file(kind, 1, 9), kind)
    assert may_share(nothing, a_file(kind, 1, 9, nulls=1), kind)
    assert may_share(nothing, a_file(nulls=10), kind)


def test_nan_lies_within_no_bounds() -> None:
    """A row with NaN would stay that NaN deletes."""
    kind = DoubleType()
    data = a_file(kind, 1.0, 5.0, nans=2)

    assert may_share(data, a_file(kind, 9.0, 9.0, nans=1), kind)
    assert may_share(data, a_file(kind, 9.0, 9.0, nans=None), kind)
    assert not may_share(data, a_file(kind, 9.0, 9.0, nans=0), kind)
    assert may_share(data, a_file(kind, 9.0, 9.0, nans=1), kind)


def test_bound_that_is_nan_bounds_nothing() -> None:
    """Files of writers that put NaN into bounds would be passed over."""
    kind = DoubleType()
    nan = a_file(kind, math.nan, math.nan, nans=0)

    assert may_share(nan, a_file(kind, 9.0, 9.0), kind)


def test_what_is_not_known_may_be() -> None:
    """Rows of files without metrics, or without the column, would stay that are deleted."""
    kind = LongType()
    unknown = a_file(values=None, nulls=None, nans=None)

    assert may_share(unknown, a_file(kind, 1, 1), kind)
    assert may_share(a_file(kind, low=5), a_file(kind, 9, 9), kind)
    assert not may_share(a_file(kind, low=5), a_file(kind, 1, 1), kind)
    assert may_share(a_file(kind, high=5), a_file(kind, 1, 1), kind)
    assert not may_share(a_file(kind, high=5), a_file(kind, 9, 9), kind)


def test_one_column_apart_is_enough() -> None:
    """Deletes by several columns would have every file read."""
    types: dict[int, IcebergType] = {ID: LongType(), 8: LongType()}
    facts = FactsOf(types)
    data, keys = a_file(LongType(), 1, 5), a_file(LongType(), 9, 9, path="k")

    assert not may_share_rows(facts(data, (ID, 8)), facts(keys, (ID, 8)))
    assert may_share_rows(facts(data, (8,)), facts(keys, (8,)))
    assert facts(data, (ID,)) is facts(data, (ID,))
