"""Predicates held against a schema: which column is meant, and values that say just what was written."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg import types as ice
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, In, NotNull, Or, Reference
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from iceberg_ds.predicates.predicates import parse_predicate
from iceberg_ds.predicates.typed import typed_predicate

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # a timestamp without zone
MICROSECOND = dt.timedelta(microseconds=1)
TYPES: dict[str, ice.IcebergType] = {
    "flag": ice.BooleanType(),
    "i": ice.IntegerType(),
    "l": ice.LongType(),
    "f": ice.FloatType(),
    "d": ice.DoubleType(),
    "price": ice.DecimalType(10, 2),
    "digits": ice.DecimalType(38, 0),
    "fraction": ice.DecimalType(38, 38),
    "text": ice.StringType(),
    "day": ice.DateType(),
    "clock": ice.TimeType(),
    "ts": ice.TimestampType(),
    "tstz": ice.TimestamptzType(),
    "uuid": ice.UUIDType(),
    "bytes": ice.BinaryType(),
    "three": ice.FixedType(3),
    "list": ice.ListType(100, ice.IntegerType(), element_required=False),
    "struct": ice.StructType(NestedField(101, "inner", ice.IntegerType(), required=False)),
}
SCHEMA = Schema(*(NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(TYPES.items())))


def typed(text: str, schema: Schema = SCHEMA, *, case_sensitive: bool = False) -> BooleanExpression:
    """Return the predicate that `text` states, in terms of the schema."""
    return typed_predicate(parse_predicate(text), schema, case_sensitive=case_sensitive)


def days(year: int, month: int, day: int) -> int:
    """Return the date as the days that Iceberg stores."""
    return (dt.date(year, month, day) - EPOCH.date()).days


def micros(*moment: int) -> int:
    """Return the moment as the microseconds that Iceberg stores."""
    return (dt.datetime(*moment) - EPOCH) // MICROSECOND  # type: ignore[arg-type,misc]  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("flag = true", True),
        ("i = 2147483647", 2**31 - 1),
        ("i = -2147483648", -(2**31)),
        ("i = 2.0", 2),
        ("i = 1e3", 1000),
        ("i = '7'", 7),
        ("l = 9223372036854775807", 2**63 - 1),
        ("d = 0.1", 0.1),
        ("d = 7", 7.0),
        ("d = '1e-320'", 1e-320),
        ("f = 0.1", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        ("price = 19.99", Decimal("19.99")),
        ("price = '19.99'", Decimal("19.99")),
        ("price = 5", Decimal("5.00")),
        ("price = 5.5", Decimal("5.50")),
        ("price = 5.500", Decimal("5.50")),
        ("price = 1e2", Decimal("100.00")),
        ("price = -0.0", Decimal("0.00")),
        ("price = 99999999.99", Decimal("99999999.99")),
        (f"digits = {'9' * 38}", Decimal("9" * 38)),
        (f"fraction = 0.{'9' * 38}", Decimal("0." + "9" * 38)),
        ("text = '2026'", "2026"),
        ("day = '2026-11-01'", days(2026, 11, 1)),
        ("day = '0001-01-01'", days(1, 1, 1)),
        ("clock = '10:00:00.000001'", 36_000_000_001),
        ("ts = '2026-11-01'", micros(2026, 11, 1)),
        ("ts = '2026-11-01 12:30:00'", micros(2026, 11, 1, 12, 30)),
        ("ts = '1960-11-01T12:30:00.000001'", micros(1960, 11, 1, 12, 30, 0, 1)),
        ("tstz = '2026-11-01 12:30:00+02:00'", micros(2026, 11, 1, 10, 30)),
        ("tstz = '2026-11-01T12:30:00Z'", micros(2026, 11, 1, 12, 30)),
        ("uuid = 'F79C3E09-677C-4BBD-A479-3F349CB785E7'", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes),
        ("bytes = X'00ff'", b"\x00\xff"),
        ("bytes = X''", b""),
        ("three = X'616263'", b"abc"),
    ],
)
def test_value_becomes_one_of_the_columns_type(text: str, value: Any) -> None:
    """Rows would be compared with something else than what the user wrote."""
    expression = typed(text)

    assert isinstance(expression, EqualTo)
    assert expression.literal.value == value
    assert type(expression.literal.value) is type(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("flag = 'true'", "expected TRUE or FALSE"),
        ("flag = 1", "expected TRUE or FALSE"),
        ("i < 2147483648", "'i' is int and does not compare with 2147483648: expected a whole number in the column's"),
        ("i > 1.5", "does not compare with 1.5: expected a whole number"),
        ("i in (1, 2, 99999999999)", "does not compare with 99999999999"),
        ("i = 'x'", "does not compare with 'x'"),
        ("i = true", "does not compare with TRUE"),
        ("l = 9223372036854775808", "expected a whole number in the column's range"),
        ("f = 1e39", "expected a number in the column's range"),
        ("d = 1e309", "expected a number in the column's range"),
        ("d = 'NaN'", "does not compare with 'NaN'"),
        ("d = 'inf'", "does not compare with 'inf'"),
        ("price = 0.001", "expected a number that the column can hold without rounding"),
        ("price = 100000000", "expected a number that the column can hold without rounding"),
        (f"digits = 1{'0' * 38}", "without rounding"),
        ("fraction = 1", "without rounding"),
        ("text = 5", "expected a text in quotes"),
        ("text = X'00'", "does not compare with X'00'"),
        ("day = '2026-11-01 00:00:00'", "expected a date such as"),
        ("day = '2026-02-30'", "expected a date such as"),
        ("day = 20000", "expected a date such as"),
        ("clock = '25:00'", "expected a time such as"),
        ("clock = '10:00:00+01:00'", "expected a time such as"),
        ("ts = '2026-11-01T00:00:00Z'", "expected a timestamp without zone"),
        ("ts = '2026-11-01T00:00:00.0000001'", "expected a timestamp without zone"),
        ("ts = 0", "expected a timestamp without zone"),
        ("tstz = '2026-11-01 00:00:00'", "expected a timestamp with its zone"),
        ("tstz = '2026-11-01'", "expected a timestamp with its zone"),
        ("uuid = '1'", "expected a UUID"),
        ("bytes = '00'", "expected bytes such as X'0aff'"),
        ("three = X'6162'", "expected as many bytes as the column has"),
        ("list = 1", "'list' is list<int>, which compares with no value"),
        ("i like '1%'", "'i' is int, and only strings"),
        ("i not like '1%'", "'i' is int, and only strings"),
        ("struct.inner = 1", "'struct.inner' lies within a struct"),
        ("list.element = 1", "'list.element' lies within a struct"),
        ("missing = 1", "no column 'missing' .columns: flag, i, l,"),
        ("l = 1 and not (i = 1 or text = 5)", "'text' is string"),
    ],
)
def test_value_or_column_that_does_not_fit_is_refused(text: str, reason: str) -> None:
    """A range would silently be another one, such as all rows and those with nulls for a number out of range."""
    with pytest.raises(ValueError, match=reason):
        typed(text)


def test_tests_for_null_take_any_whole_column() -> None:
    """Rows whose struct or list is missing could not be replaced."""
    assert typed("list is not null and struct is not null") == And(NotNull("list"), NotNull("struct"))


def test_every_part_of_a_predicate_is_typed() -> None:
    """A value deep within would be compared as it was written."""
    expression = typed("PRICE in (1, '2') or not (I = '3' and day <> '2026-11-01')")

    assert isinstance(expression, Or)
    assert expression.left == In("price", {Decimal("1.00"), Decimal("2.00")})
    assert "StringLiteral" not in repr(expression)
    assert "literal('" not in repr(expression)
    assert typed("true") == AlwaysTrue()


def schema_of(*names: str) -> Schema:
    """Return a schema of numbers."""
    return Schema(*(NestedField(number, name, ice.IntegerType()) for number, name in enumerate(names, start=1)))


@pytest.mark.parametrize(
    ("text", "names", "case_sensitive", "column"),
    [
        ("x = 1", ("X", "y"), False, "X"),
        ("x = 1", ("X", "x"), False, "x"),
        ("X = 1", ("X", "x"), False, "X"),
        ("X = 1", ("X", "x"), True, "X"),
        ("`a.b` = 1", ("a", "a.b"), False, "a.b"),
        ("`A.B` = 1", ("a.b",), False, "a.b"),
        ("Ü = 1", ("ü",), False, "ü"),
    ],
)
def test_name_means_the_column_that_has_it(
    text: str, names: tuple[str, ...], column: str, *, case_sensitive: bool
) -> None:
    """Rows would be replaced by the values of another column."""
    expression = typed(text, schema_of(*names), case_sensitive=case_sensitive)

    assert isinstance(expression, EqualTo)
    assert expression.term == Reference(column)


@pytest.mark.parametrize(
    ("names", "case_sensitive", "reason"),
    [(("X",), True, "no column 'x' .columns: X"), (("X", "X "), True, "no column 'x'")],
)
def test_name_in_another_case_is_refused_where_case_counts(
    names: tuple[str, ...], reason: str, *, case_sensitive: bool
) -> None:
    """The wrong one of two columns would be taken."""
    with pytest.raises(ValueError, match=reason):
        typed("x = 1", schema_of(*names), case_sensitive=case_sensitive)


def test_name_that_could_be_either_of_two_columns_is_refused() -> None:
    """Rows would be replaced by the values of whichever column came last."""
    with pytest.raises(ValueError, match="'xY' could be any of 'XY', 'xy'"):
        typed("xY = 1", schema_of("XY", "xy"))
