"""Pure: typed expressions, each evaluated in two ways: over the rows of a batch, and over what a file's metrics allow.

Both ways stand side by side in each class, because they must agree: `among` allows every value that the rows of a file
give. Null is SQL's third truth value; NaN equals NaN and is above all numbers; zeros have no sign; texts compare by
their bytes. Source: Spark's SQL reference, "Null Semantics" and "NaN Semantics".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.expressions.domains import (
    Values,
    arrow_values,
    may_start_with,
    must_start_with,
    orders,
    physical,
    physical_values,
    truth,
)
from iceberg_ds.expressions.types import INSTANT, LOCAL, UUID

# Returns what a file's metrics allow for a column.
Facts = Callable[["Column"], Values]
# No two clocks differ by more, so instants keep their order if their local times are further apart than this.
_FURTHEST_CLOCKS_US = 48 * 3_600_000_000


class Expression(ABC):
    """An expression over the columns of a schema."""

    type: pa.DataType
    operands: tuple[Expression, ...]

    @abstractmethod
    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ANN401  # array or scalar
        """Return the value for each row: an array or, for constants alone, maybe a scalar.

        Args:
            operands: The operands' values in these rows.
            batch: The rows; None if no column is needed.
        """

    @abstractmethod
    def among(self, facts: Facts) -> Values:
        """Return the domain of the expression over rows with these known `facts`."""

    def rows(self, batch: pa.RecordBatch | None) -> Any:  # noqa: ANN401  # array or scalar
        """Return the value for each row of a batch; columns are taken by their position."""
        return self.over([operand.rows(batch) for operand in self.operands], batch)

    def columns(self) -> list[Column]:
        """Return the columns that the expression reads, in any order."""
        return [column for operand in self.operands for column in operand.columns()]


@dataclass(frozen=True)
class Column(Expression):
    """A column, or a field of a struct.

    Attributes:
        type: Its type in expressions.
        field_id: Its id.
        name: Its name; for a field of a struct, after the names of the structs that hold it.
        path: Its position in the schema, followed by the positions in its structs.
    """

    type: pa.DataType
    field_id: int
    name: str
    path: tuple[int, ...]
    operands = ()

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Take the column as Arrow compares it."""
        assert batch is not None  # noqa: S101  # expressions with columns are never evaluated without rows
        column = batch.column(self.path[0])
        for position in self.path[1:]:
            column = pc.struct_field(column, [position])
        if isinstance(column.type, pa.BaseExtensionType):
            return column.storage
        if pa.types.is_fixed_size_binary(column.type):
            return column if self.type == UUID else column.cast(pa.binary())
        if self.type == INSTANT:
            return column.cast(INSTANT)
        return column

    def among(self, facts: Facts) -> Values:
        """Return what is known about the column."""
        return facts(self)

    def columns(self) -> list[Column]:
        """Return the column itself."""
        return [self]


@dataclass(frozen=True)
class Constant(Expression):
    """A value."""

    value: pa.Scalar
    operands = ()

    @property
    def type(self) -> pa.DataType:
        """Its type."""
        return self.value.type

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Return the value for all rows."""
        return self.value

    def among(self, facts: Facts) -> Values:  # noqa: ARG002
        """Return the domain of this one value."""
        return self._domain

    @cached_property
    def _domain(self) -> Values:
        return physical(self.value)


@dataclass(frozen=True)
class _Truth(Expression):
    """An expression that is true, false or unknown for a row."""

    operands: tuple[Expression, ...]
    type = pa.bool_()


@dataclass(frozen=True)
class Comparison(_Truth):
    """A comparison of two operands of one type; `sign` is one of =, <>, <, <=, > and >=."""

    sign: str

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ANN401
        """Compare row by row."""
        left, right = operands
        if not pa.types.is_floating(self.operands[0].type):
            return _COMPARE[self.sign](left, right)
        # No Kleene functions: a null on one side must give unknown, no matter what is on the other side.
        is_left, is_right = pc.is_nan(left), pc.is_nan(right)
        match self.sign:
            case "=":
                return pc.or_(pc.equal(left, right), pc.and_(is_left, is_right))
            case "<":
                return pc.or_(pc.less(left, right), pc.and_not(is_right, is_left))
            case "<=":
                return pc.or_(pc.less_equal(left, right), is_right)
        mirrored = {"<>": "=", ">": "<=", ">=": "<"}[self.sign]
        return pc.invert(Comparison(self.operands, mirrored).over(operands, batch))

    def among(self, facts: Facts) -> Values:
        """Return which outcomes the bounds of both sides allow."""
        left, right = (operand.among(facts) for operand in self.operands)
        found = orders(left, right)
        fitting = _ORDERS[self.sign]
        return truth(true=bool(found & fitting), false=bool(found - fitting), unknown=left.has_nulls or right.has_nulls)


_FALSE = truth(true=False, false=True, unknown=False)
_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_ORDERS = {"=": {0}, "<>": {-1, 1}, "<": {-1}, "<=": {-1, 0}, ">": {1}, ">=": {0, 1}}


@dataclass(frozen=True)
class SameOrBothNull(_Truth):
    """`<=>`: never unknown."""

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ANN401
        """Compare row by row, with null equal to null."""
        left, right = operands
        is_equal = Comparison(self.operands, "=").over(operands, batch)
        both = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(pc.coalesce(is_equal, pa.scalar(False)), both)  # noqa: FBT003  # Arrow's signature

    def among(self, facts: Facts) -> Values:
        """Return which outcomes the bounds and nulls of both sides allow."""
        left, right = (operand.among(facts) for operand in self.operands)
        found = orders(left, right)
        one_null = (left.has_nulls and (right.has_values or right.has_nans)) or (
            right.has_nulls and (left.has_values or left.has_nans)
        )
        return truth(
            true=0 in found or (left.has_nulls and right.has_nulls),
            false=bool(found - {0}) or one_null,
            unknown=False,
        )


@dataclass(frozen=True)
class OneOf(_Truth):
    """IN with constants.

    Attributes:
        members: The constants, without nulls, of the operand's type.
        has_null: Whether the list has a null, so that no value is surely absent from it.
    """

    members: pa.Array
    has_null: bool

    @cached_property
    def _choices(self) -> list[Values]:
        return [physical(member) for member in self.members]

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Look each row's value up."""
        (column,) = operands
        members = self.members
        if pa.types.is_floating(members.type):
            column, members = _alike(column), _alike(members)
        found = pc.is_in(column, value_set=members.cast(column.type), skip_nulls=True)
        missing = pa.scalar(None, pa.bool_()) if self.has_null else pa.scalar(False)  # noqa: FBT003
        answer = pc.if_else(found, True, missing)  # noqa: FBT003  # Arrow's signature
        return pc.if_else(pc.is_valid(column), answer, pa.scalar(None, pa.bool_()))

    def among(self, facts: Facts) -> Values:
        """Return which outcomes the bounds allow."""
        left = self.operands[0].among(facts)
        found = [orders(left, member) for member in self._choices]
        is_surely_there = any(one == {0} for one in found)
        may_miss = not is_surely_there and (left.has_values or left.has_nans)
        return truth(
            true=any(0 in one for one in found),
            false=may_miss and not self.has_null,
            unknown=left.has_nulls or (may_miss and self.has_null),
        )


def _alike(numbers: pa.Array) -> pa.Array:
    """Return floats with the same bits for equal values, zeros and NaN alike: Arrow looks floats up by their bits."""
    return pc.if_else(pc.is_nan(numbers), pa.scalar(math.nan, numbers.type), pc.add(numbers, 0.0))


@dataclass(frozen=True)
class Like(_Truth):
    """LIKE with a constant pattern.

    Attributes:
        pieces: The texts between the wildcards, one more than there are wildcards.
        wildcards: The wildcards, % and _.
    """

    pieces: tuple[str, ...]
    wildcards: str

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Match row by row."""
        (column,) = operands
        match self.wildcards, self.pieces:
            case "", (text,):
                return pc.equal(column, pa.scalar(text))
            case "%", (beginning, ""):
                return pc.starts_with(column, beginning)
            case "%", ("", end):
                return pc.ends_with(column, end)
            case "%%", ("", middle, ""):
                return pc.match_substring(column, middle)
        parts = [_literally(self.pieces[0])]
        for sign, piece in zip(self.wildcards, self.pieces[1:], strict=True):
            parts += [".*" if sign == "%" else ".", _literally(piece)]
        return pc.match_substring_regex(column, rf"(?s)\A(?:{''.join(parts)})\z")

    def among(self, facts: Facts) -> Values:
        """Return which outcomes the bounds allow for the text before the first wildcard."""
        text, beginning = self.operands[0].among(facts), self.pieces[0].encode()
        is_beginning = self.wildcards == "%" and not self.pieces[1]
        return truth(
            true=may_start_with(text, beginning),
            false=text.has_values and not (is_beginning and must_start_with(text, beginning)),
            unknown=text.has_nulls,
        )


def _literally(text: str) -> str:
    return "".join(sign if sign.isalnum() or not sign.isascii() else f"\\x{ord(sign):02x}" for sign in text)


@dataclass(frozen=True)
class IsNull(_Truth):
    """IS NULL, of any column."""

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Look for nulls."""
        return pc.is_null(operands[0])

    def among(self, facts: Facts) -> Values:
        """Return whether nulls and other values are possible."""
        found = self.operands[0].among(facts)
        return truth(true=found.has_nulls, false=found.has_values or found.has_nans, unknown=False)


@dataclass(frozen=True)
class IsNaN(_Truth):
    """IS NAN; unknown for null, unlike Spark's function of that name."""

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Look for NaN."""
        return pc.is_nan(operands[0])

    def among(self, facts: Facts) -> Values:
        """Return whether NaN and other values are possible."""
        found = self.operands[0].among(facts)
        return truth(true=found.has_nans, false=found.has_values, unknown=found.has_nulls)


@dataclass(frozen=True)
class IsTruth(_Truth):
    """IS TRUE or IS FALSE: never unknown."""

    expected: bool

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Compare; unknown is neither true nor false."""
        given = operands[0] if self.expected else pc.invert(operands[0])
        return pc.coalesce(given, pa.scalar(False))  # noqa: FBT003  # Arrow's signature

    def among(self, facts: Facts) -> Values:
        """Return which outcomes the operand's outcomes allow."""
        found = self.operands[0].among(facts)
        is_it, is_not = found.may_be_true, found.may_be_false
        if not self.expected:
            is_it, is_not = is_not, is_it
        return truth(true=is_it, false=is_not or found.has_nulls, unknown=False)


@dataclass(frozen=True)
class Not(_Truth):
    """NOT; unknown stays unknown."""

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Negate."""
        return pc.invert(operands[0])

    def among(self, facts: Facts) -> Values:
        """Return the operand's outcomes, negated."""
        found = self.operands[0].among(facts)
        return truth(true=found.may_be_false, false=found.may_be_true, unknown=found.has_nulls)


@dataclass(frozen=True)
class And(_Truth):
    """AND: false if an operand is false, else unknown if an operand is unknown."""

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Combine row by row."""
        return reduce(pc.and_kleene, operands)

    def among(self, facts: Facts) -> Values:
        """Return which outcomes the operands' outcomes allow; what follows one that is surely false is not asked."""
        found = []
        for operand in self.operands:
            found.append(operand.among(facts))
            if found[-1] is _FALSE:
                return _FALSE
        return truth(
            true=all(one.may_be_true for one in found),
            false=any(one.may_be_false for one in found),
            unknown=any(one.has_nulls for one in found) and all(one.may_be_true or one.has_nulls for one in found),
        )


@dataclass(frozen=True)
class Or(_Truth):
    """OR: true if an operand is true, else unknown if an operand is unknown."""

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Combine row by row."""
        return reduce(pc.or_kleene, operands)

    def among(self, facts: Facts) -> Values:
        """Return which outcomes the operands' outcomes allow."""
        found = [operand.among(facts) for operand in self.operands]
        return truth(
            true=any(one.may_be_true for one in found),
            false=all(one.may_be_false for one in found),
            unknown=any(one.has_nulls for one in found) and all(one.may_be_false or one.has_nulls for one in found),
        )


@dataclass(frozen=True)
class FirstOf(Expression):
    """coalesce: the first operand that is not null."""

    operands: tuple[Expression, ...]
    type: pa.DataType

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Take the first value that is not null, row by row."""
        return pc.coalesce(*operands)

    def among(self, facts: Facts) -> Values:
        """Return what any operand may be."""
        found = [operand.among(facts) for operand in self.operands]
        both = reduce(Values.or_else, found)
        all_null = all(one.has_nulls for one in found)
        return Values(
            low=both.low,
            high=both.high,
            has_values=both.has_values,
            has_nulls=all_null,
            has_nans=both.has_nans,
        )


@dataclass(frozen=True)
class Function(Expression):
    """A function or a cast, null if an operand is null.

    Attributes:
        operands: The operands, some of them columns.
        type: The type of its result.
        kernel: Computes the result from Arrow arrays or scalars.
        keeps_order: Whether the result never falls as the first operand rises while all further operands are constant.
        reads_clocks: Whether it turns instants into local times or back, so that it keeps the order of distant times
            only.
    """

    operands: tuple[Expression, ...]
    type: pa.DataType
    kernel: Callable[..., Any]
    keeps_order: bool = False
    reads_clocks: bool = False

    def over(self, operands: Sequence[Any], batch: pa.RecordBatch | None) -> Any:  # noqa: ARG002, ANN401
        """Compute it row by row."""
        return self.kernel(*operands)

    def among(self, facts: Facts) -> Values:
        """Return the values between the function's results at the operand's bounds."""
        found = [operand.among(facts) for operand in self.operands]
        has_nulls = any(one.has_nulls for one in found)
        is_float = pa.types.is_floating(self.type)
        first = found[0]
        anything = Values(has_values=any(one.has_values for one in found), has_nulls=has_nulls, has_nans=is_float)
        if not self.keeps_order:
            return anything
        has_nans = is_float and (first.has_nans or len(found) > 1)  # such as the sum of two infinities
        if not first.has_values:
            return Values(has_values=False, has_nulls=has_nulls, has_nans=has_nans)
        try:
            low, high = self._at(first.low, -1), self._at(first.high, 1)
        except (pa.ArrowException, ArithmeticError, TypeError):
            return anything
        return Values(low=low, high=high, has_nulls=has_nulls, has_nans=has_nans)

    def _at(self, bound: Any, side: int) -> Any:  # noqa: ANN401  # of the operand's type
        if bound is None:
            return None
        kind = self.operands[0].type
        if self.reads_clocks and kind in (INSTANT, LOCAL):
            bound += side * _FURTHEST_CLOCKS_US
        arguments = [operand.rows(None) for operand in self.operands[1:]]
        (value,) = physical_values(self.kernel(arrow_values([bound], kind), *arguments))
        return None if isinstance(value, float) and math.isnan(value) else value


def folded(expression: Expression) -> Expression:
    """Return the expression, as a constant if it has no columns.

    Raises:
        ValueError: The constant has no value, such as a number that is out of range.
    """
    if not expression.operands or not all(isinstance(operand, Constant) for operand in expression.operands):
        return expression
    operands = [pa.repeat(one.rows(None), 1) for one in expression.operands]
    found = expression.over(operands, None)[0]
    return Constant(found if found.type == expression.type else found.cast(expression.type))
