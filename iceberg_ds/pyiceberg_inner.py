"""The private names of PyIceberg that decisions on files need, behind functions of our own.

Contract tests hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

FileTest: TypeAlias = Callable[[DataFile], bool]


def may_match(schema: Schema, predicate: BooleanExpression) -> FileTest:
    """Return the test whether a file's metrics allow a row that satisfies `predicate`."""
    return _InclusiveMetricsEvaluator(schema, predicate).eval


def must_match(schema: Schema, predicate: BooleanExpression) -> FileTest:
    """Return the test whether a file's metrics prove that each row satisfies `predicate`.

    It takes nulls and NaN that were not counted for none.
    """
    return _StrictMetricsEvaluator(schema, predicate).eval


def deleted_positions(io: FileIO, task: FileScanTask) -> set[int]:
    """Return the positions, from 0, of the rows of a file that position deletes hide."""
    if not task.delete_files:
        return set()
    hidden = _read_all_delete_files(io, [task]).get(task.file.file_path, [])
    return {position for positions in hidden for position in positions.to_pylist()}
