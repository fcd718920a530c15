"""Predicates held against a schema: which column is meant, what compares with what, and what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from iceberg_ds.expressions.binding import typed_predicate
from iceberg_ds.expressions.nodes import Column, Comparison, Constant, Expression
from iceberg_ds.expressions.parser import parse_predicate

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
    "struct": ice.StructType(
        NestedField(101, "inner", ice.IntegerType(), required=False),
        NestedField(
            102,
            "deep",
            ice.StructType(NestedField(103, "x y", ice.StringType(), required=False)),
            required=False,
        ),
    ),
}
SCHEMA = Schema(*(NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(TYPES.items())))


def typed(
    text: str, schema: Schema = SCHEMA, *, case_sensitive: bool = False, time_zone: str | None = None
) -> Expression:
    """Return the predicate that `text` states, in terms of the schema."""
    return typed_predicate(parse_predicate(text), schema, case_sensitive=case_sensitive, time_zone=time_zone)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("flag = 'yes'", "True"),
        ("l = '7'", "7"),
        ("l = 7", "7"),
        ("f = 0.1F", "0.10000000149011612"),
        ("d = 0.1", "0.1"),
        ("d = '1e-320'", "1e-320"),
        ("d = 'NaN'", "nan"),
        ("price = 5", "5.00"),
        (f"digits = {'9' * 38}", "9" * 38),
        (f"fraction = 0.{'9' * 38}", "0." + "9" * 38),
        ("text = '2026'", "2026"),
        ("day = '2026-1-2'", "2026-01-02"),
        ("day = DATE '0001-01-01'", "0001-01-01"),
        ("clock = '10:00:00.000001'", "10:00:00.000001"),
        ("clock = TIME '1:2'", "01:02:00"),
        ("ts = '2026-11-01'", "2026-11-01 00:00:00"),
        ("ts = TIMESTAMP_NTZ '1960-11-01T12:30:00.000001'", "1960-11-01 12:30:00.000001"),
        ("ts = DATE '2026-11-01'", "2026-11-01 00:00:00"),
        ("tstz = '2026-11-01 12:30:00+02:00'", "2026-11-01 10:30:00+00:00"),
        ("tstz = TIMESTAMP '2026-11-01T12:30:00Z'", "2026-11-01 12:30:00+00:00"),
        ("tstz = '2026-11-01 12:30:00 Europe/Paris'", "2026-11-01 11:30:00+00:00"),
        ("uuid = 'F79C3E09-677C-4BBD-A479-3F349CB785E7'", "b'\\xf7\\x9c>\\tg|K\\xbd\\xa4y?4\\x9c\\xb7\\x85\\xe7'"),
        ("bytes = X'00ff'", "b'\\x00\\xff'"),
        ("bytes = 'ü'", "b'\\xc3\\xbc'"),
        ("three = X'6162'", "b'ab'"),
        ("i = 2 + 3 * 4", "14"),
        ("day = date_add('2026-02-28', 1)", "2026-03-01"),
    ],
)
def test_value_becomes_one_of_the_columns_type(text: str, value: str) -> None:
    """Rows would be compared with something else than what the user wrote."""
    expression = typed(text)

    assert isinstance(expression, Comparison)
    column, constant = expression.operands
    assert isinstance(column, Column)
    assert isinstance(constant, Constant)
    assert constant.type == column.type
    assert str(constant.value.as_py()) == value


@pytest.mark.parametrize(
    ("zone", "text", "value"),
    [
        ("America/New_York", "tstz = '2026-01-02'", "2026-01-02 05:00:00+00:00"),
        ("America/New_York", "tstz = '2026-03-08 02:30:00'", "2026-03-08 07:30:00+00:00"),
        ("America/New_York", "tstz = '2026-11-01 01:30:00'", "2026-11-01 05:30:00+00:00"),
        ("+05:30", "tstz = DATE '2026-01-02'", "2026-01-01 18:30:00+00:00"),
        ("GMT-2", "tstz = TIMESTAMP_NTZ '2026-01-02 00:00:00'", "2026-01-02 02:00:00+00:00"),
        ("UTC", "tstz = TIMESTAMP '2026-01-02'", "2026-01-02 00:00:00+00:00"),
    ],
)
def test_time_without_zone_is_in_the_one_that_is_named(zone: str, text: str, value: str) -> None:
    """A range would begin hours too early or too late."""
    expression = typed(text, time_zone=zone)

    assert isinstance(expression, Comparison)
    constant = expression.operands[1]
    assert isinstance(constant, Constant)
    assert str(constant.value.as_py()) == value


@pytest.mark.parametrize(
    "text",
    [
        "tstz = '2026-11-01 00:00:00'",
        "tstz >= DATE '2026-11-01'",
        "tstz > TIMESTAMP '2026-11-01'",
        "to_date(tstz) = '2026-11-01'",
        "year(tstz) = 2026",
        "cast(tstz as date) = day",
        "ts = tstz",
        "date_trunc('day', tstz) = '2026-11-01Z'",
    ],
)
def test_what_needs_the_sessions_zone_is_refused_without_it(text: str) -> None:
    """Rows would be replaced by the clocks of another place."""
    with pytest.raises(ValueError, match=r"session's time zone.*write the zone.*option 'time-zone'"):
        typed(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("i", "column 'i' is int, which is neither true nor false"),
        ("flag and i", "column 'i' is int, which is neither true nor false"),
        ("not 'x'", "what NOT is of is string"),
        ("flag = 1", "'flag' is boolean: Spark does not compare boolean with int"),
        ("flag = 'maybe'", "'maybe' is no boolean"),
        ("i = 'x'", "'i' is int: 'x' is no bigint"),
        ("i = '1.5'", "'1.5' is no bigint"),
        ("i = true", "Spark does not compare int with boolean"),
        ("d = '1_0'", "'1_0' is no double"),
        ("i = '\u0663'", "is no bigint"),
        ("i = '\u00a03'", "is no bigint"),
        ("d = '\u0663.5'", "is no double"),
        ("flag = '\u3000true'", "is no boolean"),
        ("day = '\u0662\u0660\u0662\u0666-01-02'", "is no date"),
        ("clock = '1\u0660:00'", "is no time"),
        ("tstz = '2026-01-02 12:00:00+0\u0661:00'", "there is no time zone"),
        ("fraction = 1", "a decimal of 39 digits, and Spark, which has 38, rounds it"),
        ("text = 5", "'text' is string: column 'text' is string, and each of its texts .* compare it with a text"),
        ("cast(text as date) = day", "column 'text' is string, and each of its texts would have to be read as date"),
        ("day = '2026-11-01 00:00:00'", "has a time, which a date has not: write the date alone"),
        ("day = '2026-02-30'", "'2026-02-30' is no date"),
        ("day = 20000", "Spark does not compare date with int"),
        ("clock = '25:00'", "'25:00' is no time"),
        ("clock = '10:00:00+01:00'", "has a zone, which a time has not"),
        ("ts = '2026-11-01T00:00:00Z'", "has a zone, and a timestamp without zone is compared with it"),
        ("ts = '2026-11-01T00:00:00.0000001'", "is no timestamp without zone"),
        ("ts = 0", "Spark does not compare timestamp without zone with int"),
        ("tstz = '2026-11-01 00:00:00 Nowhere/City'", "there is no time zone 'Nowhere/City'"),
        ("uuid = '1'", "'1' is no UUID"),
        ("list = 1", "'list' is a struct, a list or a map"),
        ("i like '1%'", "'i' is int, and only texts"),
        ("text like text", "only with a pattern in quotes"),
        (r"text like r'a\b'", "before something else than"),
        ("text like 'a' escape '//'", "no single sign"),
        ("missing = 1", "no column 'missing' .columns: flag, i, l,"),
        ("struct.missing = 1", "struct 'struct' has no field 'missing' .fields: inner, deep"),
        ("i.x = 1", "'i' is no struct, and has no field 'x'"),
        ("l = 1 and not (i = 1 or text = 5)", "'text' is string"),
        ("i % 0 = 1", "only with a number other than 0 and -1"),
        ("i % l = 1", "only with a number other than 0 and -1"),
        ("price / 2 = 1", "/ of decimals is rounded by rules of Spark's"),
        ("text + 1 = 2", "string . int is not computed"),
        ("2147483647 + 1 = l", "it has no value: overflow"),
        ("current_date() = day", "not the same whenever it is asked"),
        ("regexp_replace(text, 'a', 'b') = 'x'", r"function regexp_replace is not computed as Spark does it .known: "),
        ("hour(day) = 1", "a date has none"),
        ("date_trunc('eon', ts) = ts", "takes one of 'year'"),
        ("cast(i as interval) = 1", "a cast to interval is not computed"),
        ("cast(d as int) = 1", "column 'd', which is double, is not computed as int exactly as Spark does"),
        ("i is nan", "only a float or a double is NaN, and this is int"),
    ],
)
def test_what_does_not_compare_is_refused_and_says_why(text: str, reason: str) -> None:
    """A range would silently be another one, such as all rows, or those that are read wrongly."""
    with pytest.raises(ValueError, match=reason):
        typed(text, time_zone="UTC")


@pytest.mark.parametrize("column", ["tstz", "ts"])
def test_part_of_an_hour_is_refused_where_clocks_change(column: str) -> None:
    """Rows of the hour that clocks show twice would be taken for those of one hour, those of one they skip for it."""
    with pytest.raises(ValueError, match="not computed where clocks change"):
        typed(f"date_trunc('hour', {column}) = '2026-11-01'", time_zone="Europe/Paris")


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("ts = TIMESTAMP '2026-03-08 02:30:00'", True),
        ("ts >= TIMESTAMP '2026-03-08 03:59:59'", True),
        ("ts <=> TIMESTAMP '2026-11-01 01:30:00 -05:00'", True),
        ("ts IN (TIMESTAMP '2026-03-08 03:30:00', NULL)", True),
        ("cast(ts AS timestamp) = '2026-03-08 02:30:00'", True),
        ("cast(tstz AS timestamp_ntz) = TIMESTAMP_NTZ '2026-11-01 01:30:00'", True),
        ("ts = '2026-03-08 02:30:00'", False),
        ("ts = TIMESTAMP_NTZ '2026-03-08 02:30:00'", False),
        ("tstz = TIMESTAMP_NTZ '2026-03-08 02:30:00'", False),
        ("ts = tstz", False),
        ("ts >= TIMESTAMP '2026-11-01'", False),
        ("ts >= TIMESTAMP '2026-03-08 04:00:00'", False),
        ("ts > TIMESTAMP '9999-12-31 12:00:00'", False),
        ("ts > TIMESTAMP '0001-01-01'", False),
    ],
)
def test_constant_near_a_change_of_clocks_is_refused(text: str, *, is_refused: bool) -> None:
    """Spark compares clocks or instants, as it optimizes: rows would be replaced that it does not select."""
    if is_refused:
        with pytest.raises(ValueError, match=r"clocks in America/New_York are changed near 2026-.*TIMESTAMP_NTZ"):
            typed(text, time_zone="America/New_York")
    else:
        typed(text, time_zone="America/New_York")
    typed(text, time_zone="-05:00")


@pytest.mark.parametrize(
    "text", ["1 = 1", "true or i = 1", "not (1 > 2)", "i = 1 or 2 in (1, 2)", "coalesce(NULL, true)"]
)
def test_what_is_true_of_every_row_is_known_to_be(text: str) -> None:
    """A table would be read and written again to replace all of it."""
    expression = typed(text)

    assert isinstance(expression, Constant)
    assert expression.value == pa.scalar(True)  # noqa: FBT003


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
    (found,) = typed(text, schema_of(*names), case_sensitive=case_sensitive).columns()

    assert found.name == column


def test_field_of_a_struct_is_found_by_its_path() -> None:
    """Rows would be replaced by the values of another field."""
    first, second = typed("struct.inner = 1 and STRUCT.deep.`x y` = 'a'").columns()

    assert (first.field_id, first.path) == (101, (17, 0))
    assert (second.field_id, second.path) == (103, (17, 1, 0))


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


def test_column_with_a_dot_in_its_name_is_named_in_backticks() -> None:
    """A user would not find out how to write it."""
    with pytest.raises(ValueError, match=r"write the column 'a\.b' as `a\.b`"):
        typed("a.b = 1", schema_of("a.b"))
