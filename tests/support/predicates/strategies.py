"""Hypothesis strategies: predicates as text, beside what plain Python says of a row, and values that meet often."""

from __future__ import annotations

import datetime as dt
import math
import operator
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from pyiceberg import types as ice
from pyspark.sql import types as spark
from support.tables.sink import Row

UTC = dt.timezone.utc
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def _nearest_float(value: float) -> float:
    (nearest,) = struct.unpack("<f", struct.pack("<f", value))
    return float(nearest)


@dataclass(frozen=True)
class Kind:
    """A type of columns.

    Attributes:
        iceberg: In Iceberg.
        spark: In Spark, from which it is written.
        values: Values that rows and predicates are drawn from.
        literal: How a value is written in a predicate.
    """

    iceberg: ice.PrimitiveType
    spark: spark.DataType
    values: tuple[Any, ...]
    literal: Callable[[Any], str]

    @property
    def has_nan(self) -> bool:
        """Whether a value may be NaN."""
        return isinstance(self.spark, spark.FloatType | spark.DoubleType)


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", "''") + "'"


KINDS: dict[str, Kind] = {
    "boolean": Kind(ice.BooleanType(), spark.BooleanType(), (True, False), str),
    "int": Kind(ice.IntegerType(), spark.IntegerType(), (-(2**31), -1, 0, 1, 7, 2**31 - 1), str),
    "long": Kind(ice.LongType(), spark.LongType(), (-(2**63), -1, 0, 1, 7, 2**63 - 1), str),
    "float": Kind(
        ice.FloatType(),
        spark.FloatType(),
        tuple(map(_nearest_float, (-math.inf, -1.5, -0.0, 0.0, 0.1, 7.0, math.inf, math.nan))),
        lambda value: f"float('{value!r}')",
    ),
    "double": Kind(
        ice.DoubleType(),
        spark.DoubleType(),
        (-math.inf, -1.5, -0.0, 0.0, 0.1, 7.0, 5e-324, math.inf, math.nan),
        lambda value: f"double('{value!r}')",
    ),
    "decimal": Kind(
        ice.DecimalType(9, 2),
        spark.DecimalType(9, 2),
        tuple(map(Decimal, ("-9999999.98", "-1.29", "-1.28", "0.00", "0.01", "9999999.99"))),
        str,
    ),
    "string": Kind(
        ice.StringType(),
        spark.StringType(),
        ("", "a", "ab", "b", "it's", "customer-number-1-of-two", "customer-number-2-of-two", "ünï", "\U0001f600"),
        _quoted,
    ),
    "binary": Kind(
        ice.BinaryType(),
        spark.BinaryType(),
        (b"", b"\x00", b"a", b"\xff" * 20, b"\xff" * 21),
        lambda value: f"X'{value.hex()}'",
    ),
    "uuid": Kind(
        ice.UUIDType(),
        spark.StringType(),
        tuple(str(uuid.UUID(int=number)) for number in (0, 1, 2**127, 2**128 - 1)),
        _quoted,
    ),
    "date": Kind(
        ice.DateType(),
        spark.DateType(),
        (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 11, 30), dt.date(9999, 12, 31)),
        _quoted,
    ),
    "timestamp": Kind(
        ice.TimestampType(),
        spark.TimestampNTZType(),
        (
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001  # without zone
            dt.datetime(1970, 1, 1),  # noqa: DTZ001
            dt.datetime(2026, 11, 30, 23, 30),  # noqa: DTZ001
            dt.datetime(2026, 12, 1, 0, 30),  # noqa: DTZ001
        ),
        _quoted,
    ),
    "timestamptz": Kind(
        ice.TimestamptzType(),
        spark.TimestampType(),
        (
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            dt.datetime(2026, 11, 30, 23, 30, tzinfo=UTC),
            dt.datetime(2026, 12, 1, 0, 30, tzinfo=UTC),
        ),
        _quoted,
    ),
}


def values(kind: Kind) -> st.SearchStrategy[Any]:
    """Return values of a column, null among them."""
    return st.none() | st.sampled_from(kind.values)


class Predicate(ABC):
    """A predicate as text, and what it says of a row."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The predicate as a user writes it."""

    @abstractmethod
    def holds(self, row: Row, *, negated: bool = False) -> bool:
        """Return whether it, or its negation, is true of a row; of a null, neither is."""


@dataclass(frozen=True)
class Comparison(Predicate):
    """A column beside a value."""

    column: str
    sign: str
    value: Any
    literal: str
    mirrored: bool

    @property
    def text(self) -> str:
        """The comparison, with the value on either side."""
        if self.mirrored:
            return f"{self.literal} {_MIRRORED[self.sign]} `{self.column}`"
        return f"`{self.column}` {self.sign} {self.literal}"

    def holds(self, row: Row, *, negated: bool = False) -> bool:
        """Compare; nothing is true of a null, and NaN is above all values."""
        found = row[self.column]
        sign = _NEGATED[self.sign] if negated else self.sign
        return found is not None and _OPERATORS[sign](_rank(found), _rank(self.value))


@dataclass(frozen=True)
class Membership(Predicate):
    """A column in a list of values."""

    column: str
    members: tuple[Any, ...]
    literals: tuple[str, ...]

    @property
    def text(self) -> str:
        """The column and the list."""
        return f"`{self.column}` IN ({', '.join(self.literals)})"

    def holds(self, row: Row, *, negated: bool = False) -> bool:
        """Look for the value; nothing is true of a null."""
        found = row[self.column]
        return found is not None and any(_rank(found) == _rank(member) for member in self.members) != negated


@dataclass(frozen=True)
class Test(Predicate):
    """IS NULL, IS NAN or LIKE."""

    __test__ = False  # no test of pytest's

    column: str
    words: str
    is_true: Callable[[Any], bool]
    is_known: Callable[[Any], bool]

    @property
    def text(self) -> str:
        """The column and the words."""
        return f"`{self.column}` {self.words}"

    def holds(self, row: Row, *, negated: bool = False) -> bool:
        """Apply the test, unless the answer is unknown."""
        found = row[self.column]
        return self.is_known(found) and self.is_true(found) != negated


@dataclass(frozen=True)
class Negation(Predicate):
    """NOT."""

    inner: Predicate

    @property
    def text(self) -> str:
        """The negated text."""
        return f"NOT ({self.inner.text})"

    def holds(self, row: Row, *, negated: bool = False) -> bool:
        """Negate each comparison within."""
        return self.inner.holds(row, negated=not negated)


@dataclass(frozen=True)
class Combination(Predicate):
    """AND or OR."""

    word: str
    left: Predicate
    right: Predicate

    @property
    def text(self) -> str:
        """Both sides and the word."""
        return f"({self.left.text}) {self.word} ({self.right.text})"

    def holds(self, row: Row, *, negated: bool = False) -> bool:
        """Combine; a negation turns each word into the other."""
        sides = (self.left.holds(row, negated=negated), self.right.holds(row, negated=negated))
        return all(sides) if (self.word == "AND") != negated else any(sides)


def predicates(columns: dict[str, Kind]) -> st.SearchStrategy[Predicate]:
    """Return predicates on these columns."""
    leaves = st.one_of([_leaves(name, kind) for name, kind in columns.items()])
    return st.recursive(
        leaves,
        lambda inner: st.builds(Negation, inner) | st.builds(Combination, st.sampled_from(["AND", "OR"]), inner, inner),
        max_leaves=4,
    )


def _leaves(column: str, kind: Kind) -> st.SearchStrategy[Predicate]:
    member = st.sampled_from(kind.values)
    choices: list[st.SearchStrategy[Predicate]] = [
        st.builds(
            lambda sign, value, mirrored: Comparison(column, sign, value, kind.literal(value), mirrored),
            st.sampled_from(sorted(_OPERATORS)),
            member,
            st.booleans(),
        ),
        st.lists(member, min_size=1, max_size=3).map(
            lambda found: Membership(column, tuple(found), tuple(kind.literal(value) for value in found))
        ),
        st.just(Test(column, "IS NULL", lambda found: found is None, lambda _: True)),
    ]
    if kind.has_nan:
        choices.append(st.just(Test(column, "IS NAN", math.isnan, _is_known)))
    if isinstance(kind.iceberg, ice.StringType):
        prefixes = st.sampled_from(["", "a", "ab", "customer-number-1", "ü", "zz"])
        choices.append(prefixes.map(lambda prefix: _like(column, prefix)))
    return st.one_of(choices)


def _like(column: str, prefix: str) -> Predicate:
    return Test(column, f"LIKE {_quoted(prefix + '%')}", lambda found: found.startswith(prefix), _is_known)


def _rank(value: Any) -> Any:
    """Return a value as Spark orders it, NaN above all."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def _is_known(found: object) -> bool:
    return found is not None
