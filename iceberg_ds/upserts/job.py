"""Writes the rows of an upsert by a job of Spark: each task writes data files, and files of the keys to look for.

A task that fails says so in its answer and leaves no file; so no message of another task is lost, as it would be with
the job. Only where Spark tries a task again it may fail.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from iceberg_ds._version import __version__, why_not_version
from iceberg_ds.errors import CommitMessageError, DataFileError, IcebergSinkError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import WritePlan
from iceberg_ds.resolving.job import job_failure
from iceberg_ds.writing.keyed import report_keyed_task
from iceberg_ds.writing.writers import TaskAttempt

_ANSWER = "answer"
_DEFAULT_TRIES = 4

# What a task reports, or why it failed.
Answer: TypeAlias = TaskCommit | IcebergSinkError


def write_by_keys(df: DataFrame, plan: WritePlan) -> list[Answer]:
    """Write the changes of a DataFrame; works with classic Spark and with Spark Connect.

    Args:
        df: The rows; those of one key are in one task.
        plan: What the driver decided.

    Raises:
        DataFileError: The job failed as a whole, and what its tasks have written is not known; or it cannot begin.
    """
    try:
        with warnings.catch_warnings():
            # PySpark says that it does not know this pandas, which is not used here.
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            rows = df.mapInArrow(_task(plan, _tries(df.sparkSession)), f"{_ANSWER} BINARY").collect()
    except ImportError as missing:
        raise DataFileError(
            f"Cannot upsert into {plan.table}, nothing was written: Spark's mapInArrow needs pandas ({missing}). "
            "Install it here: pip install 'iceberg-ds[upserts]'."
        ) from missing
    except Exception as error:  # Spark's own
        raise job_failure(f"upsert into {plan.table}", plan, error) from error
    return [pickle.loads(row[_ANSWER]) for row in rows]  # noqa: S301  # made by our own tasks


def _task(plan: WritePlan, tries: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    version, packed = __version__, pickle.dumps(plan)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        answer = answer_of_task(version, packed, tries, batches)
        yield pa.RecordBatch.from_pydict({_ANSWER: pa.array([answer], pa.binary())})

    return run


def answer_of_task(version: str, plan: bytes, tries: int, batches: Iterator[pa.RecordBatch]) -> bytes:
    """Write the rows of one task, and return its answer as Spark carries it.

    Args:
        version: That of the driver's package.
        plan: The plan, pickled.
        tries: How often Spark tries a task.
        batches: The rows.
    """
    if (problem := why_not_version(version)) is not None:
        return pickle.dumps(DataFileError(f"Cannot upsert, nothing was written: {problem}."))
    task = TaskContext.get()
    if task is None:
        raise CommitMessageError("Cannot upsert: this is not a Spark task.")
    attempt = TaskAttempt(partition_id=task.partitionId(), task_attempt_id=task.taskAttemptId())
    is_last_try = task.attemptNumber() + 1 >= tries
    return pickle.dumps(_written(pickle.loads(plan), batches, attempt, is_last_try=is_last_try))  # noqa: S301  # our own


def _written(plan: WritePlan, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt, *, is_last_try: bool) -> Answer:
    try:
        return report_keyed_task(plan, batches, attempt)
    except IcebergSinkError as problem:
        if isinstance(problem, DataFileError) and not is_last_try:
            raise
        return problem


def _tries(spark: SparkSession) -> int:
    """Return how often Spark tries a task, 1 if it does not say."""
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect has none
        return 1
    if str(context.master).startswith("local"):
        return 1
    return int(context.getConf().get("spark.task.maxFailures", str(_DEFAULT_TRIES)))
