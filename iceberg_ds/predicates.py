"""Pure: predicates on rows, in SQL's words, with one meaning wherever they are evaluated.

A predicate is true of a row, or it is not: a comparison with a null is not true, nor is any comparison with a NaN but
`<>`. Iceberg's own metrics count a null as different from every value, so what is parsed here is written in a form that
means the same to rows, partition values and metrics. Source: Iceberg spec, "Scan Planning"; SQL's three-valued logic.
"""

from __future__ import annotations

import re

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
)
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import rewrite_not
from pyparsing import ParseException

EVERY_ROW = "true"

_QUOTED = re.compile(r"('(?:[^']|'')*')|`([^`]*)`")


def parse_predicate(text: str) -> BooleanExpression:
    """Return the predicate that `text` states: comparisons, IN, IS NULL, IS NAN, LIKE 'x%', AND, OR, NOT.

    Raises:
        ValueError: It cannot be parsed.
    """
    quoted = _QUOTED.sub(lambda match: match[1] or f'"{match[2]}"', text)  # a column in backticks, as Spark writes it
    try:
        expression = parse(quoted)
    except ParseException as problem:
        raise ValueError(
            f"cannot be read from character {problem.loc} on; expected a predicate such as "
            "day >= '2026-11-01' AND region IN ('EU', 'US')"
        ) from None
    return _three_valued(rewrite_not(expression))


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
