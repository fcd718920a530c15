"""The private names of PyIceberg that decisions on files need, behind functions of our own.

Contract tests hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

FileTest: TypeAlias = Callable[[DataFile], bool]


def may_match(schema: Schema, predicate: BooleanExpression, *, case_sensitive: bool) -> FileTest:
    """Return the test whether a file's metrics allow a row that satisfies `predicate`."""
    return _InclusiveMetricsEvaluator(schema, predicate, case_sensitive).eval


def must_match(schema: Schema, predicate: BooleanExpression, *, case_sensitive: bool) -> FileTest:
    """Return the test whether a file's metrics prove that each row satisfies `predicate`."""
    return _StrictMetricsEvaluator(schema, predicate, case_sensitive).eval
