"""Pure: predicates on rows, in SQL's words, with one meaning wherever they are evaluated.

A predicate is true of a row, or it is not: a comparison with a null is not true, nor is any comparison with a NaN but
`<>`. Iceberg's own metrics count a null as different from every value, so what is parsed here is written in a form that
means the same to rows, partition values and metrics. Source: Iceberg spec, "Scan Planning"; SQL's three-valued logic.

What is parsed names columns and values as the text does; `typed` holds it against a schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

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
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import BinaryLiteral, BooleanLiteral, DecimalLiteral, LongLiteral, StringLiteral
from pyiceberg.expressions.visitors import rewrite_not

EVERY_ROW = "true"

_EXAMPLE = "such as day >= '2026-11-01' AND region IN ('EU', 'US')"
_ANY_TEST = "a comparison, IN, BETWEEN, LIKE or IS NULL"
_NAME_PART = r"(?:`(?:[^`]|``)+`|[^\W\d]\w*)"
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<bytes>[xX]'(?:[0-9a-fA-F]{{2}})*')
    | (?P<string>'(?:[^']|'')*')
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?!\w))
    | (?P<name>{_NAME_PART}(?:\.{_NAME_PART})*)
    | (?P<sign><=|>=|<>|!=|==|<|>|=|\(|\)|,)
    )""",
    re.VERBOSE,
)
_WORDS = {"AND", "OR", "NOT", "IS", "NULL", "NAN", "IN", "LIKE", "BETWEEN", "TRUE", "FALSE"}
_COMPARISONS: dict[str, Callable[..., BooleanExpression]] = {
    "=": EqualTo,
    "==": EqualTo,
    "<>": NotEqualTo,
    "!=": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_TESTS: dict[tuple[str, ...], Callable[..., BooleanExpression]] = {
    ("IS", "NULL"): IsNull,
    ("IS", "NOT", "NULL"): NotNull,
    ("IS", "NAN"): IsNaN,
    ("IS", "NOT", "NAN"): NotNaN,
}
# What a comparison becomes when its sides change places.
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
# A text without a wildcard of its own, and at its end the only one that bounds can tell.
_LIKE = re.compile(r"((?:[^%_\\]|\\[%_\\])*)(%?)", re.DOTALL)

_Value = BinaryLiteral | BooleanLiteral | DecimalLiteral | LongLiteral | StringLiteral


def parse_predicate(text: str) -> BooleanExpression:
    """Return the predicate that `text` states: comparisons, BETWEEN, IN, IS NULL, IS NAN, LIKE 'x%', AND, OR, NOT.

    Names may stand in backticks, which they need if they are words of this language or hold other signs than letters,
    digits and underscores. Bytes are written as X'0aff'.

    Raises:
        ValueError: It cannot be parsed.
    """
    try:
        return _three_valued(rewrite_not(_Parser(text).parse()))
    except RecursionError:
        raise ValueError("nests too deeply") from None


def predicate_text(text: str) -> str:
    """Return `text`, which states a predicate; it is parsed again wherever it is needed.

    Raises:
        ValueError: It cannot be parsed.
    """
    parse_predicate(text)
    return text


def _three_valued(expression: BooleanExpression) -> BooleanExpression:
    """Return the expression with a test for null beside everything that Iceberg takes for true of a null."""
    match expression:
        case And(left=left, right=right):
            return And(_three_valued(left), _three_valued(right))
        case Or(left=left, right=right):
            return Or(_three_valued(left), _three_valued(right))
        case NotEqualTo() | NotIn() | NotNaN() | NotStartsWith():
            return And(NotNull(term=expression.term), expression)
    return expression


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, name, value or sign: `kind` is a group of `_TOKEN`, `word` or `end`."""

    kind: str
    text: str
    start: int


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            unread = text[position:].lstrip()
            _refuse("a column, a value or a sign", _Token("", unread, len(text) - len(unread)))
        kind = str(match.lastgroup)
        token = _Token(kind, match[kind], match.start(kind))
        if kind == "name" and token.text.upper() in _WORDS:
            token = _Token("word", token.text.upper(), token.start)
        tokens.append(token)
        position = match.end()
    return [*tokens, _Token("end", "", end)]


def _refuse(expected: str, found: _Token) -> NoReturn:
    what = f"character {found.start + 1}, {found.text[:20]!r}" if found.text else "its end"
    raise ValueError(f"cannot be read at {what}: it needs {expected} there; expected a predicate {_EXAMPLE}")


class _Parser:
    """Reads one predicate, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._rest = _tokens(text)
        self._rest.reverse()

    def parse(self) -> BooleanExpression:
        """Return the whole predicate."""
        expression = self._alternatives()
        if self._next.kind != "end":
            _refuse("AND, OR or the end", self._next)
        return expression

    @property
    def _next(self) -> _Token:
        return self._rest[-1]

    def _takes(self, *texts: str) -> bool:
        """Take the next words or signs if they are these."""
        ahead = [token.text for token in self._rest[: -len(texts) - 1 : -1] if token.kind in ("word", "sign")]
        if ahead != list(texts):
            return False
        del self._rest[-len(texts) :]
        return True

    def _need(self, text: str) -> None:
        if not self._takes(text):
            _refuse(text, self._next)

    def _alternatives(self) -> BooleanExpression:
        parts = [self._conjunction()]
        while self._takes("OR"):
            parts.append(self._conjunction())
        return Or(*parts) if len(parts) > 1 else parts[0]

    def _conjunction(self) -> BooleanExpression:
        parts = [self._negation()]
        while self._takes("AND"):
            parts.append(self._negation())
        return And(*parts) if len(parts) > 1 else parts[0]

    def _negation(self) -> BooleanExpression:
        return Not(self._negation()) if self._takes("NOT") else self._test()

    def _test(self) -> BooleanExpression:
        if self._takes("("):
            inner = self._alternatives()
            self._need(")")
            return inner
        if self._next.kind == "name":
            return self._test_of(self._column())
        value = self._value("a column, a value or (")
        if isinstance(value, BooleanLiteral) and self._next.text not in _COMPARISONS:
            return AlwaysTrue() if value.value else AlwaysFalse()
        sign = self._comparison()
        return _COMPARISONS[_MIRRORED.get(sign, sign)](term=self._column(), value=value)

    def _test_of(self, column: Reference) -> BooleanExpression:
        for words, test in _TESTS.items():
            if self._takes(*words):
                return test(term=column)
        if self._takes("NOT"):
            return Not(self._test_in_words(column))
        if self._next.kind == "word":
            return self._test_in_words(column)
        return _COMPARISONS[self._comparison()](term=column, value=self._value())

    def _test_in_words(self, column: Reference) -> BooleanExpression:
        if self._takes("BETWEEN"):
            lowest = self._value()
            self._need("AND")
            highest = self._value()
            return And(GreaterThanOrEqual(term=column, value=lowest), LessThanOrEqual(term=column, value=highest))
        if self._takes("LIKE"):
            return self._like(column)
        if not self._takes("IN"):
            _refuse(_ANY_TEST, self._next)
        self._need("(")
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        self._need(")")
        return In(term=column, literals=values)

    def _like(self, column: Reference) -> BooleanExpression:
        token = self._next
        pattern = self._value("a pattern in quotes")
        match = _LIKE.fullmatch(pattern.value) if isinstance(pattern, StringLiteral) else None
        if match is None:
            _refuse(r"LIKE with one % at the end, and \% and \_ for the signs themselves", token)
        text = StringLiteral(re.sub(r"\\(.)", r"\1", match[1]))
        return StartsWith(term=column, value=text) if match[2] else EqualTo(term=column, value=text)

    def _column(self) -> Reference:
        if self._next.kind != "name":
            _refuse("a column", self._next)
        parts = re.findall(_NAME_PART, self._rest.pop().text)
        return Reference(".".join(part[1:-1].replace("``", "`") if part[0] == "`" else part for part in parts))

    def _comparison(self) -> str:
        if self._next.text not in _COMPARISONS:
            _refuse(_ANY_TEST, self._next)
        return self._rest.pop().text

    def _value(self, expected: str = "a value") -> _Value:
        token = self._next
        match token.kind, token.text:
            case "string", text:
                value: _Value = StringLiteral(text[1:-1].replace("''", "'"))
            case "bytes", text:
                value = BinaryLiteral(bytes.fromhex(text[2:-1]))
            case "number", text:
                number = Decimal(text)
                value = LongLiteral(int(text)) if text.lstrip("+-").isdigit() else DecimalLiteral(number)
            case "word", "TRUE" | "FALSE":
                value = BooleanLiteral(token.text == "TRUE")
            case "word", "NULL" | "NAN":
                _refuse(f"a value; nothing is equal to it, so write IS {token.text}", token)
            case _:
                _refuse(expected, token)
        self._rest.pop()
        return value
