"""The private names of PyIceberg that decisions on files need, behind functions of our own.

Contract tests hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
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


def deleted_positions(io: FileIO, task: FileScanTask) -> pa.Array:
    """Return the positions, from 0, of the rows of a file that position deletes hide; in any order."""
    hidden = _read_all_delete_files(io, [task]) if task.delete_files else {}
    chunks = [chunk.cast(pa.int64()) for positions in hidden.get(task.file.file_path, []) for chunk in positions.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.int64())
