"""Filters that Spark pushes down mean what they mean in Spark, or are passed over."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, make_dataclass
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimeType, UUIDType

from iceberg_ds.expressions.parser import parse_predicate
from iceberg_ds.reading.pushed_filters import predicate_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StructType(NestedField(3, "x", StringType()))),
    NestedField(4, "u", UUIDType()),
    NestedField(5, "clock", TimeType()),
    NestedField(6, "a.b", StringType()),
)
ID = ("id",)


@dataclass(frozen=True)
class Not:
    """As Spark's."""

    child: Any


def one(kind: str, attribute: tuple[str, ...] = ID, *value: object) -> Any:
    """Return a filter as Spark 4.1 has it; the tests run with 4.0, too."""
    return make_dataclass(kind, ["attribute", *(["value"] if value else [])])(attribute, *value)


@pytest.mark.parametrize(
    ("pushed", "text"),
    [
        (one("EqualTo", ID, 5), "id = 5"),
        (one("EqualNullSafe", ID, 2**40), f"id <=> {2**40}"),
        (one("GreaterThan", ID, Decimal("1.50")), "id > 1.50BD"),
        (one("GreaterThanOrEqual", ("s", "x"), "it's"), "s.x >= 'it\\'s'"),
        (one("LessThan", ("a.b",), "x"), "`a.b` < 'x'"),
        (one("LessThanOrEqual", ID, dt.date(2026, 11, 30)), "id <= DATE'2026-11-30'"),
        (one("In", ID, (True,)), "id IN (true)"),
        (
            one("EqualTo", ID, dt.datetime(2026, 11, 30, 1, 2, 3, 4, dt.timezone.utc)),
            "id = TIMESTAMP'2026-11-30 01:02:03.000004+00:00'",
        ),
        (one("EqualTo", ID, dt.datetime.fromisoformat("2026-11-30")), "id = TIMESTAMP_NTZ'2026-11-30 00:00:00'"),
        (one("In", ID, (1, 2)), "id IN (1, 2)"),
        (one("IsNull"), "id IS NULL"),
        (one("IsNotNull"), "id IS NOT NULL"),
        (Not(one("EqualTo", ID, 5)), "NOT id = 5"),
        (one("StringStartsWith", ("s", "x"), "a%_\\b"), "s.x LIKE 'a\\%\\_\\\\\\\\b%'"),
    ],
)
def test_filters_are_predicates(pushed: Any, text: str) -> None:
    """Files would be passed over whose rows satisfy the filter."""
    assert predicate_of([pushed], SCHEMA) == parse_predicate(text)


@pytest.mark.parametrize(
    "pushed",
    [
        one("EqualTo", ID, 1.5),
        one("EqualTo", ID, None),
        one("EqualTo", ID, b"x"),
        one("EqualTo", ID, [1]),
        one("In", ID, (1, None)),
        one("In", ID, ()),
        Not(one("EqualTo", ID, 1.5)),
        one("StringEndsWith", ID, "x"),
        one("StringContains", ID, "x"),
        one("EqualTo", ("u",), "9e0a5f7c-0000-4000-8000-000000000000"),
        one("GreaterThan", ("clock",), "10:00"),
        one("IsNull", ("clock",)),
        one("EqualTo", ("none",), 5),
        make_dataclass("OfALaterSpark", ["children"])(()),
    ],
)
def test_what_is_not_understood_is_passed_over(pushed: Any) -> None:
    """It would be taken for something else: uuids and times are texts in Spark alone."""
    assert predicate_of([pushed], SCHEMA) is None
    assert predicate_of([pushed, one("EqualTo", ID, 5)], SCHEMA) == parse_predicate("id = 5")


def test_all_filters_count() -> None:
    """Files would be read without need."""
    several = [one("EqualTo", ID, 5), one("IsNotNull"), one("LessThan", ("s", "x"), "b")]

    assert predicate_of(several, SCHEMA) == parse_predicate("id = 5 AND id IS NOT NULL AND s.x < 'b'")
    assert predicate_of([], SCHEMA) is None
