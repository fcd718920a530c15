"""The language of predicates: what is read, how it binds, and what is refused with the place."""

from __future__ import annotations

from decimal import Decimal

import pytest

from iceberg_ds.expressions.parser import Call, CastTo, Name, Tree, Value, parse_predicate, predicate_text


def shown(tree: Tree) -> str:
    """Return the tree with brackets around each operator's operands."""
    match tree:
        case Name(parts=parts):
            return ".".join(parts)
        case Value(kind="string", value=value):
            return repr(value)
        case Value(kind=kind, value=value) if kind in ("date", "timestamp", "timestamp_ntz", "timestamp_ltz", "time"):
            return f"{kind} {value}"
        case Value(value=value):
            return str(value)
        case CastTo(operand=operand, type_name=name):
            return f"cast({shown(operand)} {name})"
    return f"{tree.name}({' '.join(map(shown, tree.operands))})"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "=(x 1)"),
        ("x == 1", "=(x 1)"),
        ("(((x = 1)))", "=(x 1)"),
        ("  x=1\n", "=(x 1)"),
        ("x -- = 2\n= 1 -- AND", "=(x 1)"),
        ("x /* = /* 2 */ OR */ = 1", "=(x 1)"),
        ("x <> 1", "<>(x 1)"),
        ("x != 1", "<>(x 1)"),
        ("x !< -1", ">=(x -1)"),
        ("x !> +1", "<=(x 1)"),
        ("x <=> NULL", "<=>(x None)"),
        ("5 < x", "<(5 x)"),
        ("1 = 1", "=(1 1)"),
        ("x = y", "=(x y)"),
        ("flag", "flag"),
        ("NOT flag = TRUE", "not(=(flag True))"),
        ("! flag AND x = 1", "and(not(flag) =(x 1))"),
        ("not not x = 1", "not(not(=(x 1)))"),
        ("x between 1 and 2 and y = 2", "and(and(>=(x 1) <=(x 2)) =(y 2))"),
        ("x not between 1 and 2", "not(and(>=(x 1) <=(x 2)))"),
        ("x in (1, NULL)", "in(x 1 None)"),
        ("x not in (1)", "not(in(x 1))"),
        ("a = b in (true)", "in(=(a b) True)"),
        ("a = b is null", "is null(=(a b))"),
        ("x is not null", "not(is null(x))"),
        ("x IS NaN", "is nan(x)"),
        ("x is not true", "not(is true(x))"),
        ("x is unknown", "is unknown(x)"),
        ("x is distinct from 1", "not(<=>(x 1))"),
        ("x is not distinct from 1", "<=>(x 1)"),
        ("x like 'a%'", r"like(x 'a%' '\\')"),
        ("x not like 'a' escape '/'", "not(like(x 'a' '/'))"),
        ("x = 1 or y = 2 and x = 1", "or(=(x 1) and(=(y 2) =(x 1)))"),
        ("(x = 1 or y = 2) and x = 1", "and(or(=(x 1) =(y 2)) =(x 1))"),
        ("a < b < c", "<(<(a b) c)"),
        ("1 + 2 * x - 3 % y = z div 2", "=(-(+(1 *(2 x)) %(3 y)) div(z 2))"),
        ("-x * -2 = x-1", "=(*(- of(x) -2) -(x 1))"),
        ("to_date(ts) = DATE '2026-01-01'", "=(to_date(ts) date 2026-01-01)"),
        ("ts > TIMESTAMP_NTZ'2026-01-01'", ">(ts timestamp_ntz 2026-01-01)"),
        ("cast(x AS Decimal(9, 2)) = y::date", "=(cast(x decimal(9,2)) cast(y date))"),
        ("date = 1 and year < time", "and(=(date 1) <(year time))"),
    ],
)
def test_predicate_binds_as_in_spark(text: str, expected: str) -> None:
    """Other rows would be replaced than those that the user asked for."""
    assert shown(parse_predicate(text)) == expected


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("'EU'", "string", "EU"),
        ('"EU"', "string", "EU"),
        ("'O''Brien'", "string", "O'Brien"),
        ('"O\'Brien"', "string", "O'Brien"),
        (r"'O\'Brien'", "string", "O'Brien"),
        ("'a' \"b\"", "string", "ab"),
        ("''", "string", ""),
        ("'back`tick` and \"quote\"'", "string", 'back`tick` and "quote"'),
        (r"'a\tb\\c\d\%\_\u00fc\101'", "string", "a\tb\\cd\\%\\_üA"),
        (r"'\177\234\341\18'", "string", "\x7f23434118"),
        (r"'a\ud83d\ude00\U0000d83d\U0000de00'", "string", "a😀😀"),
        (r"r'a\tb'", "string", r"a\tb"),
        ("'ünï 😀'", "string", "ünï 😀"),
        ("'and x = 1 -- /*'", "string", "and x = 1 -- /*"),
        ("2147483647", "int", 2**31 - 1),
        ("-2147483648", "int", -(2**31)),
        ("2147483648", "bigint", 2**31),
        ("3L", "bigint", 3),
        ("-9223372036854775808", "bigint", -(2**63)),
        ("9223372036854775808", "decimal", Decimal(2**63)),
        ("3S", "int", 3),
        ("19.990", "decimal", Decimal("19.990")),
        (".5", "decimal", Decimal("0.5")),
        ("1e3BD", "decimal", Decimal("1E+3")),
        ("-1e3", "double", -1000.0),
        ("2.5D", "double", 2.5),
        ("2.5f", "float", 2.5),
        ("true", "boolean", True),
        ("NULL", "void", None),
        ("X'00Ff'", "binary", b"\x00\xff"),
        ("X'abc'", "binary", b"\x0a\xbc"),
        ("x''", "binary", b""),
    ],
)
def test_value_is_taken_digit_by_digit(text: str, kind: str, value: object) -> None:
    """A bound would be a little off, and rows at it replaced or kept wrongly."""
    tree = parse_predicate(f"x = {text}")

    assert isinstance(tree, Call)
    assert repr(tree.operands[1]) == repr(Value(kind, value))  # type: ignore[arg-type]  # of every kind


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("x", ("x",)),
        ("_x1", ("_x1",)),
        ("ünï", ("ünï",)),
        ("`with space`", ("with space",)),
        ("`a.b`", ("a.b",)),
        ("a.b", ("a", "b")),
        ("a.`b c`.d", ("a", "b c", "d")),
        ("`in`", ("in",)),
        ("a.in", ("a", "IN")),
        ("`1st`", ("1st",)),
        ("`a``b`", ("a`b",)),
        ("`x = 'y' or`", ("x = 'y' or",)),
        ('`quo"ted`', ('quo"ted',)),
        (r"`back\slash`", (r"back\slash",)),
    ],
)
def test_column_may_have_any_name_in_backticks(text: str, parts: tuple[str, ...]) -> None:
    """Tables with such columns could not be overwritten in part."""
    assert parse_predicate(f"{text} = 1") == Call("=", (Name(parts), Value("int", 1)))


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", "its end", "a column, a value or ("),
        ("x = ", "its end", "a column, a value or ("),
        ("x = 1 and", "its end", "a column, a value or ("),
        ("x = 1;", "character 6, ';'", "a column, a value or a sign"),
        ("x = 1 /* all", "its end", "*/"),
        ("x = 1 y = 2", "character 7, 'y'", "AND, OR or the end"),
        ("(x = 1", "its end", ")"),
        ("x = 'EU", "character 5", "a column, a value or a sign"),
        ("x = 5abc", "character 5, '5abc'", "a column, a value or a sign"),
        ("x = X'0g'", "character 5, \"X'0g'\"", "bytes such as X'0aff'"),
        ("x in ()", "character 7, ')'", "a column, a value or ("),
        ("x is 5", "character 6, '5'", "IS NULL"),
        ("x not 5", "character 7, '5'", "IN, BETWEEN, LIKE"),
        ("x like 'a' escape 5", "character 19, '5'", "ESCAPE and a sign in quotes"),
        ("in = 5", "character 1, 'IN'", "a column"),
        ("`` = 1", "character 1", "a column"),
        ("x = 300Y", "character 5, '300Y'", "a whole number that Y can hold"),
        ("x = 1e309", "character 5, '1e309'", "a number that a double can hold"),
        (f"x = 1{'0' * 38}", "character 5", "a number of at most 38 digits"),
        ("cast(x, date)", "character 7, ','", "AS"),
        (r"x = '\ud83d'", "character 5", "a text without signs that do not exist"),
        ("x = \u0663", "character 5, '\u0663'", "a column, a value or a sign"),
        ("x = 1e\u0663", "character 5, '1e\u0663'", "a column, a value or a sign"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, place: str, expected: str) -> None:
    """A user would not find the mistake, or it would be read as something else."""
    with pytest.raises(ValueError, match="expected a predicate such as day >= '2026-11-01'") as caught:
        parse_predicate(text)

    assert f"cannot be read at {place}" in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "word", "instead"),
    [
        ("x rlike 'a.*'", "character 3: RLIKE", "write it with LIKE"),
        ("x not ilike 'a'", "character 7: ILIKE", "lower(...) LIKE"),
        ("case when x then y end", "character 1: CASE", "AND and OR"),
        ("x = interval 1 day", "character 5: INTERVAL", "the date or the time itself"),
        ("a || b = 'x'", "character 3: ||", "LIKE"),
        ("a & 1 = 1", "character 3: &", "%"),
        ("exists (select 1)", "character 1: EXISTS", "IN and the values"),
    ],
)
def test_what_spark_reads_and_this_does_not_is_refused_by_name(text: str, word: str, instead: str) -> None:
    """A user would look for a mistake where there is none."""
    with pytest.raises(ValueError, match="is not evaluated exactly as Spark does") as caught:
        parse_predicate(text)

    assert word in str(caught.value)
    assert instead in str(caught.value)


@pytest.mark.parametrize("text", ["(" * 5_000 + "x = 1" + ")" * 5_000, "not " * 5_000 + "x", "- " * 5_000 + "x = 1"])
def test_deep_nesting_is_refused(text: str) -> None:
    """A generated predicate would end the driver's Python with an error that names no option."""
    with pytest.raises(ValueError, match="nests too deeply"):
        parse_predicate(text)


def test_thousands_of_alternatives_are_read() -> None:
    """A generated predicate with a comparison for each key would be refused."""
    many = parse_predicate(" or ".join(f"x = {number}" for number in range(2_000)))

    assert isinstance(many, Call)
    assert len(many.operands) == 2_000


def test_option_keeps_the_text_that_it_was_given() -> None:
    """The plan would carry another predicate than the user wrote."""
    assert predicate_text("x = 1 -- all") == "x = 1 -- all"
    with pytest.raises(ValueError, match="cannot be read"):
        predicate_text("x = ")
