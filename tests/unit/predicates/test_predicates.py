"""The language of predicates: what is read, what it means, and what is refused with the place."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
)

from iceberg_ds.predicates.predicates import parse_predicate, predicate_text

ONE = EqualTo("x", 1)
TWO = EqualTo("y", 2)


def known(test: BooleanExpression) -> BooleanExpression:
    """Return a test of `x` that is not true of a null."""
    return And(NotNull("x"), test)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", ONE),
        ("x == 1", ONE),
        ("(((x = 1)))", ONE),
        ("  x=1\n", ONE),
        ("x <> 1", known(NotEqualTo("x", 1))),
        ("x != 1", known(NotEqualTo("x", 1))),
        ("x < -1", LessThan("x", -1)),
        ("x <= +1", LessThanOrEqual("x", 1)),
        ("x > 1", GreaterThan("x", 1)),
        ("x >= 1", GreaterThanOrEqual("x", 1)),
        ("5 < x", GreaterThan("x", 5)),
        ("5 <= x", GreaterThanOrEqual("x", 5)),
        ("5 > x", LessThan("x", 5)),
        ("5 >= x", LessThanOrEqual("x", 5)),
        ("1 = x", ONE),
        ("x between 1 and 2", And(GreaterThanOrEqual("x", 1), LessThanOrEqual("x", 2))),
        ("x not between 1 and 2", Or(LessThan("x", 1), GreaterThan("x", 2))),
        ("x in (1, 2)", In("x", {1, 2})),
        ("x IN (1)", ONE),
        ("x not in (1, 2)", known(NotIn("x", {1, 2}))),
        ("x is null", IsNull("x")),
        ("x is not null", NotNull("x")),
        ("x IS NaN", IsNaN("x")),
        ("x is not nan", known(NotNaN("x"))),
        ("x like 'a%'", StartsWith("x", "a")),
        ("x like '%'", StartsWith("x", "")),
        ("x like 'a'", EqualTo("x", "a")),
        (r"x like 'a\%\_b\\%'", StartsWith("x", "a%_b\\")),
        ("x not like 'a%'", known(NotStartsWith("x", "a"))),
        ("not x = 1", known(NotEqualTo("x", 1))),
        ("not x < 1", GreaterThanOrEqual("x", 1)),
        ("not (x = 1 or y = 2)", And(known(NotEqualTo("x", 1)), And(NotNull("y"), NotEqualTo("y", 2)))),
        ("not not x = 1", ONE),
        ("x = 1 and y = 2", And(ONE, TWO)),
        ("x = 1 or y = 2 and x = 1", Or(ONE, And(TWO, ONE))),
        ("(x = 1 or y = 2) and x = 1", And(Or(ONE, TWO), ONE)),
        ("true", AlwaysTrue()),
        ("FALSE", AlwaysFalse()),
        ("x = 1 or true", AlwaysTrue()),
        ("x = 1 and not true", AlwaysFalse()),
        ("true = x", EqualTo("x", value=True)),
        ("(false) or true > x", LessThan("x", value=True)),
    ],
)
def test_predicate_means_what_sql_means(text: str, expected: BooleanExpression) -> None:
    """Other rows would be replaced than those that the user asked for."""
    assert parse_predicate(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'EU'", "EU"),
        ("'O''Brien'", "O'Brien"),
        ("''", ""),
        ("'back`tick` and \"quote\"'", 'back`tick` and "quote"'),
        ("'ünï 😀'", "ünï 😀"),
        ("'and x = 1'", "and x = 1"),
        ("9223372036854775808", 2**63),
        ("19.99", Decimal("19.99")),
        (".5", Decimal("0.5")),
        ("-1e3", Decimal("-1E+3")),
        ("true", True),
        ("X'00Ff'", b"\x00\xff"),
        ("x''", b""),
    ],
)
def test_value_is_taken_digit_by_digit(text: str, value: object) -> None:
    """A bound would be a little off, and rows at it replaced or kept wrongly."""
    expression = parse_predicate(f"x = {text}")

    assert isinstance(expression, EqualTo)
    assert expression.literal.value == value
    assert type(expression.literal.value) is type(value)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x", "x"),
        ("_x1", "_x1"),
        ("ünï", "ünï"),
        ("`with space`", "with space"),
        ("`a.b`", "a.b"),
        ("a.b", "a.b"),
        ("a.`b c`.d", "a.b c.d"),
        ("`in`", "in"),
        ("`null`", "null"),
        ("`1st`", "1st"),
        ("`a``b`", "a`b"),
        ("`x = 'y' or`", "x = 'y' or"),
        ('`quo"ted`', 'quo"ted'),
        (r"`back\slash`", r"back\slash"),
    ],
)
def test_column_may_have_any_name_in_backticks(text: str, name: str) -> None:
    """Tables with such columns could not be overwritten in part."""
    expression = parse_predicate(f"{text} = 1")

    assert isinstance(expression, EqualTo)
    assert expression.term == Reference(name)


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", "its end", "a column, a value or ("),
        ("x", "its end", "a comparison, IN, BETWEEN"),
        ("x = ", "its end", "a value"),
        ("x = 1 and", "its end", "a column, a value or ("),
        ("x = 1;", "character 6, ';'", "a column, a value or a sign"),
        ("x = 1 -- all of them", "character 7, '-- all of them'", "a column, a value or a sign"),
        ("x = 1 y = 2", "character 7, 'y'", "AND, OR or the end"),
        ("(x = 1", "its end", ")"),
        ("x = y", "character 5, 'y'", "a value"),
        ('x = "EU"', "character 5", "a column, a value or a sign"),
        ("x = 'EU", "character 5", "a column, a value or a sign"),
        ("x = 5abc", "character 5, '5abc'", "a column, a value or a sign"),
        ("x = X'abc'", "character 5, 'X'", "a value"),
        ("x = NULL", "character 5, 'NULL'", "write IS NULL"),
        ("x in (1, NaN)", "character 10, 'NAN'", "write IS NAN"),
        ("x in ()", "character 7, ')'", "a value"),
        ("x is 5", "character 3, 'IS'", "IS NULL"),
        ("x not 5", "character 7, '5'", "IN, BETWEEN, LIKE"),
        ("x like 5", "character 8, '5'", "LIKE"),
        ("x like '%a'", "character 8", "one % at the end"),
        ("x like 'a_b%'", "character 8", r"\_"),
        ("in = 5", "character 1, 'IN'", "a column"),
        ("year(x) = 2026", "character 5, '('", "a comparison"),
        ("x <=> 1", "character 5, '>'", "a value"),
        ("1 = 1", "character 5, '1'", "a column"),
        ("`` = 1", "character 1", "a column"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, place: str, expected: str) -> None:
    """A user would not find the mistake, or it would be read as something else."""
    with pytest.raises(ValueError, match="expected a predicate such as day >= '2026-11-01'") as caught:
        parse_predicate(text)

    assert f"cannot be read at {place}" in str(caught.value)
    assert expected in str(caught.value)


def test_deep_nesting_is_refused() -> None:
    """A generated predicate would end the driver's Python with an error that names no option."""
    with pytest.raises(ValueError, match="nests too deeply"):
        parse_predicate("(" * 5_000 + "x = 1" + ")" * 5_000)


def test_thousands_of_alternatives_are_read() -> None:
    """A generated predicate with a comparison for each key would be refused."""
    many = " or ".join(f"x = {number}" for number in range(2_000))

    assert isinstance(parse_predicate(many), Or)


def test_option_keeps_the_text_that_it_was_given() -> None:
    """The plan would carry another predicate than the user wrote."""
    assert predicate_text("x = 1 -- no".removesuffix(" -- no")) == "x = 1"
    with pytest.raises(ValueError, match="cannot be read"):
        predicate_text("x = ")
