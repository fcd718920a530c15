"""Casts of values one by one: what lands is what was sent, and everything else is told apart."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.table.casts import cast_rows, is_castable

TEXT, LONG, INT, DOUBLE, FLOAT = pa.string(), pa.int64(), pa.int32(), pa.float64(), pa.float32()
LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
UTC = dt.timezone.utc
MIDNIGHT = dt.datetime.fromisoformat("2026-01-01")
HUGE = "53817946063107624193820912097094051831"
LONG_FRACTION = "871999142656265626.30897734952675178575"
WIDE = pa.decimal128(38, 38)
NO = "no value of that type"

CASES: list[tuple[pa.DataType, pa.DataType, list[Any], list[Any]]] = [
    (TEXT, INT, ["1", "-7", "x", "0x1F", "99999999999", " 1", "1.0", ""], [1, -7, NO, NO, NO, NO, NO, NO]),
    (TEXT, DOUBLE, ["1.5", "1e3", "1e999", "-inf", "x"], [1.5, 1000.0, NO, -math.inf, NO]),
    (TEXT, DOUBLE, ["9007199254740993", str(2**200), "9007199254740993.5", "1e-400"], [NO, 2.0**200, 2.0**53 + 2, NO]),
    (TEXT, FLOAT, ["16777217", "-16777216", "16777217.5", "1e-50", "-0.0e9"], [NO, -(2.0**24), 2.0**24 + 2, NO, -0.0]),
    (TEXT, DOUBLE, ["0" * 5000 + "1", "9" * 5000, "00000000000000000.1"], [1.0, NO, 0.1]),
    (TEXT, pa.decimal128(5, 1), ["1.2", "1.25", "12345.1", "1E2"], [Decimal("1.2"), NO, NO, Decimal("100.0")]),
    # Arrow makes 18446744064246438474 of it.
    (TEXT, pa.decimal128(38, 0), ["18446744071553946661", "0e0"], [Decimal(18446744071553946661), Decimal(0)]),
    (TEXT, pa.bool_(), ["true", "FALSE", "1", "yes"], [True, False, NO, NO]),
    (TEXT, pa.date32(), ["2026-01-31", "2026-02-30", "0000-01-01"], [dt.date(2026, 1, 31), NO, NO]),
    (TEXT, LOCAL, ["2026-01-01 10:00", "2026-01-01T10:00:00Z"], [MIDNIGHT.replace(hour=10), NO]),
    (TEXT, INSTANT, ["2026-01-01T10:00:00+02:00", "2026-01-01 10:00"], [dt.datetime(2026, 1, 1, 8, tzinfo=UTC), NO]),
    # No reader in Python holds the year 0 or 10000, which a zone makes of these.
    (TEXT, INSTANT, ["0001-01-01 00:00+02:00", "9999-12-31 23:59-02:00"], [NO, NO]),
    (TEXT, INSTANT, ["0001-01-01 00:00Z"], [dt.datetime(1, 1, 1, tzinfo=UTC)]),
    (TEXT, INSTANT, ["9999-12-31T23:59:59.999999Z"], [dt.datetime.max.replace(tzinfo=UTC)]),
    (LONG, INT, [5, 2**31, -(2**31)], [5, NO, -(2**31)]),
    (LONG, DOUBLE, [7, 2**53 + 1], [7.0, NO]),
    (LONG, pa.decimal128(5, 2), [123, 12345], [Decimal("123.00"), NO]),
    (LONG, TEXT, [123], ["123"]),
    (DOUBLE, LONG, [2.0, 1.5, 9.3e18, 2.0**63, math.nan], [2, NO, NO, NO, NO]),
    (DOUBLE, FLOAT, [0.5, 0.1, 1e300, math.inf], [0.5, NO, NO, math.inf]),
    (DOUBLE, pa.decimal128(5, 2), [0.1, 0.125, 1e10], [Decimal("0.10"), NO, NO]),
    (pa.decimal128(5, 2), pa.decimal128(5, 1), [Decimal("1.20"), Decimal("1.25")], [Decimal("1.2"), NO]),
    (pa.decimal128(5, 2), LONG, [Decimal("1.00"), Decimal("1.25")], [1, NO]),
    (pa.decimal128(19, 2), DOUBLE, [Decimal("0.1"), Decimal("12345678901234567.89")], [0.1, NO]),
    # Arrow's products of 128 bits wrap around.
    (LONG, WIDE, [0, 1, -9, 340282366921], [Decimal(0), NO, NO, NO]),
    (pa.decimal128(38, 0), pa.decimal128(38, 10), [Decimal(7), Decimal(HUGE)], [Decimal(7), NO]),
    (pa.decimal128(20, 2), pa.decimal128(38, 30), [Decimal("1.25"), Decimal(340282366921)], [Decimal("1.25"), NO]),
    (TEXT, pa.decimal128(38, 18), [str(2**128), str(2**128 + 1), "3e30", "1.5"], [NO, NO, NO, Decimal("1.5")]),
    (TEXT, pa.decimal128(5, 2), ["3e-41", "0e-41", "0" * 50 + "1.50", "1e-400"], [NO, Decimal(0), Decimal("1.5"), NO]),
    (TEXT, pa.decimal128(38, 20), ["871999142656265626.3089773495267517857500", "1."], [Decimal(LONG_FRACTION), 1]),
    # Arrow's products of floats are rounded; whole floats are taken exactly.
    (DOUBLE, pa.decimal128(38, 10), [409984.01, 2.0**60, 2.0**94], [Decimal("409984.01"), 2**60, NO]),
    (FLOAT, pa.decimal128(38, 10), [0.1, 2.0**40, 2.0**90], [Decimal("0.1"), 2**40, 2**90]),
    (pa.decimal128(38, 18), DOUBLE, [Decimal("123.45"), Decimal("0.100000000000000001")], [123.45, NO]),
    (LONG, DOUBLE, [-(2**63), 2**63 - 1], [-(2.0**63), NO]),
    (TEXT, INT, ["0" * 40 + "7", "-0"], [7, 0]),
    (LOCAL, pa.date32(), [MIDNIGHT, MIDNIGHT.replace(hour=1)], [dt.date(2026, 1, 1), NO]),
    (pa.date32(), LOCAL, [dt.date(2026, 1, 1)], [MIDNIGHT]),
    (INSTANT, TEXT, [dt.datetime(2026, 1, 1, 10, tzinfo=UTC)], ["2026-01-01T10:00:00.000Z"]),
]


@pytest.mark.parametrize(("source", "target", "values", "expected"), CASES, ids=lambda case: str(case)[:20])
def test_value_is_kept_or_told(
    source: pa.DataType, target: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    """A number would land cut off, or a row would be refused that can be written."""
    assert is_castable(source, target)
    given_values = pa.array([*values, None], source)

    cast = cast_rows(given_values, target)

    is_bad = [False] * len(given_values) if cast.is_bad is None else cast.is_bad.to_pylist()
    assert is_bad == [*(value is NO for value in expected), False]
    assert cast.values.type == target
    assert cast.values.to_pylist() == [*(None if value is NO else value for value in expected), None]


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=50))
def test_integers_are_those_that_fit(numbers: list[int | None]) -> None:
    """The search for the bad ones would lose its place among the good ones."""
    cast = cast_rows(pa.array(numbers, LONG), INT)

    fits = [number is None or -(2**31) <= number < 2**31 for number in numbers]
    assert cast.values.to_pylist() == [number if fit else None for number, fit in zip(numbers, fits, strict=True)]
    assert (cast.is_bad is None and all(fits)) or [not bad for bad in cast.is_bad.to_pylist()] == fits


@pytest.mark.parametrize(
    ("source", "target"),
    [(INSTANT, LOCAL), (LOCAL, INSTANT), (pa.binary(), TEXT), (pa.bool_(), LONG), (pa.list_(LONG), TEXT), (TEXT, TEXT)],
)
def test_what_would_have_to_be_guessed_is_not_cast(source: pa.DataType, target: pa.DataType) -> None:
    """A time would be moved by a time zone that no one gave."""
    assert not is_castable(source, target)
