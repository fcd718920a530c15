"""Maps a DataFrame to another one by a function that runs in tasks, so that the rows stay where the tasks run.

Works with classic Spark and with Spark Connect. Tasks get the properties that open storage, and no property of the
catalog. What a task raises fails its job: use this for work that can be done again, and leaves nothing behind.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa

from iceberg_ds._version import __version__, why_not_version
from iceberg_ds.errors import DataFileError
from iceberg_ds.spark.pandas_warning import without_pandas_warning

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Plan = TypeVar("_Plan")
_Batches: TypeAlias = Iterator[pa.RecordBatch]
# Gets the plan and the rows of a partition. A function of a module.
Task: TypeAlias = Callable[[_Plan, _Batches], _Batches]


def in_tasks(frame: DataFrame, task: Task[_Plan], plan: _Plan, columns: str, action: str) -> DataFrame:
    """Return what a function makes of the rows of a DataFrame, one call for each of its partitions.

    Args:
        frame: The rows.
        task: The function.
        plan: What all tasks are told.
        columns: The columns of the batches that `task` yields, as Spark writes them.
        action: What is being done, such as `remove orphan files`, for errors.

    Raises:
        DataFileError: pandas is not installed here.
    """
    version, packed = __version__, pickle.dumps(plan)

    def run(batches: _Batches) -> _Batches:
        if (problem := why_not_version(version)) is not None:
            raise DataFileError(f"Cannot {action}: {problem}.")
        yield from task(pickle.loads(packed), batches)  # noqa: S301  # our own

    try:
        with without_pandas_warning():
            return frame.mapInArrow(run, columns)
    except ImportError as missing:
        raise DataFileError(
            f"Cannot {action} on Spark: its mapInArrow needs pandas ({missing}). "
            "Install it here: pip install 'iceberg-ds[upserts]'."
        ) from missing


def work_frame(spark: SparkSession, work: Sequence[object], tasks: int) -> DataFrame:
    """Return a DataFrame with a row for each piece of work, pickled in column `work`, in at most so many tasks."""
    rows = [(pickle.dumps(piece),) for piece in work]
    frame = spark.createDataFrame(rows, "work BINARY")
    return frame.repartition(max(1, min(tasks, len(rows))))


def work_of(batches: _Batches) -> Iterator[object]:
    """Yield the pieces of work in a task's rows."""
    for batch in batches:
        for packed in batch.column("work"):
            yield pickle.loads(packed.as_py())  # noqa: S301  # our own
