"""Pure: the domain of an expression: the values that it may take over all rows of a file, as far as known.

Every operation returns at least what is possible, so a doubt costs the reading of a file and never a row. Values have
the form in which Spark compares them: dates and times as the numbers that Iceberg stores, texts as their UTF-8 bytes,
UUIDs as bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

from iceberg_ds.expressions.types import is_decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The values that an expression may take: null, NaN, or a value between two bounds.

    Attributes:
        low: Lower bound of all values but NaN, or None if unknown.
        high: Upper bound of all values but NaN, or None if unknown.
        is_open: Whether no value equals `high` either.
        has_values: Whether a value that is neither null nor NaN is possible.
        has_nulls: Whether null is possible.
        has_nans: Whether NaN is possible.
        rules_out: Returns whether one given value is impossible; None if bounds alone tell.
    """

    low: Any = None
    high: Any = None
    is_open: bool = False
    has_values: bool = True
    has_nulls: bool = True
    has_nans: bool = True
    rules_out: Callable[[Any], bool] | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether no value is possible: the known facts contradict each other."""
        return not (self.has_values or self.has_nulls or self.has_nans)

    @property
    def may_be_true(self) -> bool:
        """Whether a truth value may be true."""
        return self.has_values and self.high is not False

    @property
    def may_be_false(self) -> bool:
        """Whether a truth value may be false."""
        return self.has_values and self.low is not True

    def and_also(self, other: Values) -> Values:
        """Return what both allow; if they contradict each other, one of them is wrong, and nothing is known."""
        low = max((one.low for one in (self, other) if one.low is not None), default=None)
        highs = [(one.high, not one.is_open) for one in (self, other) if one.high is not None]
        high, is_closed = min(highs, default=(None, True))
        is_empty = low is not None and high is not None and (low > high or (low == high and not is_closed))
        both = Values(
            low=low,
            high=high,
            is_open=not is_closed,
            has_values=self.has_values and other.has_values,
            has_nulls=self.has_nulls and other.has_nulls,
            has_nans=self.has_nans and other.has_nans,
            rules_out=self.rules_out or other.rules_out,
        )
        return UNKNOWN if is_empty or both.is_nothing else both

    def or_else(self, other: Values) -> Values:
        """Return what either allows."""
        if not self.has_values:
            bounds = other
        elif not other.has_values:
            bounds = self
        else:
            low = None if self.low is None or other.low is None else min(self.low, other.low)
            high = None if self.high is None or other.high is None else max(self.high, other.high)
            bounds = Values(low=low, high=high)
        return replace(
            bounds,
            has_values=self.has_values or other.has_values,
            has_nulls=self.has_nulls or other.has_nulls,
            has_nans=self.has_nans or other.has_nans,
            rules_out=None,
        )


UNKNOWN = Values()


@cache
def truth(*, true: bool, false: bool, unknown: bool) -> Values:
    """Return the domain of a truth value; all eight are cached, because each comparison with a file asks for one."""
    return Values(low=not false, high=true, has_values=true or false, has_nulls=unknown, has_nans=False)


def orders(one: Values, other: Values) -> set[int]:
    """Return how a value of `one` may compare with a value of `other`: below it (-1), equal (0) or above (1).

    NaN is above all values, and equal to NaN.
    """
    found: set[int] = set()
    if one.has_values and other.has_values:
        found |= _orders_of_bounds(one, other)
    if one.has_nans and other.has_values:
        found.add(1)
    if one.has_values and other.has_nans:
        found.add(-1)
    if one.has_nans and other.has_nans:
        found.add(0)
    return found


def _orders_of_bounds(one: Values, other: Values) -> set[int]:
    if _is_single(one) and _is_single(other):
        return {(one.low > other.low) - (one.low < other.low)}
    found: set[int] = set()
    if one.low is None or other.high is None or one.low < other.high:
        found.add(-1)
    if other.low is None or one.high is None or other.low < one.high:
        found.add(1)
    if not (_ends_below(one, other) or _ends_below(other, one) or _is_ruled_out(one, other)):
        found.add(0)
    return found


def _ends_below(one: Values, other: Values) -> bool:
    if one.high is None or other.low is None:
        return False
    return bool(one.high < other.low or (one.is_open and one.high == other.low))


def _is_ruled_out(one: Values, other: Values) -> bool:
    return any(
        first.rules_out is not None and _is_single(second) and first.rules_out(second.low)
        for first, second in ((one, other), (other, one))
    )


def _is_single(one: Values) -> bool:
    return one.low is not None and bool(one.low == one.high) and not one.is_open


def may_start_with(one: Values, beginning: bytes) -> bool:
    """Return whether a text may start with `beginning`."""
    if not one.has_values:
        return False
    if one.high is not None and (one.high < beginning or (one.is_open and one.high == beginning)):
        return False
    return one.low is None or one.low[: len(beginning)] <= beginning


def must_start_with(one: Values, beginning: bytes) -> bool:
    """Return whether every text starts with `beginning`."""
    if not beginning:
        return True
    if one.low is None or one.high is None:
        return False
    return bool(one.low.startswith(beginning) and one.high.startswith(beginning))


def physical(scalar: pa.Scalar) -> Values:
    """Return the domain of a constant."""
    (value,) = physical_values([scalar])
    is_nan = isinstance(value, float) and math.isnan(value)
    has_value = value is not None and not is_nan
    single = value if has_value else None
    return Values(low=single, high=single, has_values=has_value, has_nulls=value is None, has_nans=is_nan)


def physical_values(scalars: Iterable[pa.Scalar]) -> list[Any]:
    """Return each Arrow scalar in the form in which it compares, None for null."""
    return [_physical(scalar) if scalar.is_valid else None for scalar in scalars]


def _physical(scalar: pa.Scalar) -> Any:  # noqa: ANN401  # of any type
    kind = scalar.type
    if pa.types.is_temporal(kind):
        return scalar.value
    value = scalar.as_py()
    return value.encode() if isinstance(value, str) else value


def arrow_values(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an Arrow array of a numeric or time type; None becomes null."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or is_decimal(kind)):
        raise TypeError(f"{kind} has no order that functions keep")
    return pa.array(values, kind)
