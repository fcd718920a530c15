"""Writes the rows of an upsert by a job of Spark: each task writes data files, and files of the keys to look for.

A task that fails says so in its answer and leaves no file; so no message of another task is lost, as it would be with
the job. Only where Spark tries a task again it may fail.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from iceberg_ds.errors import CommitMessageError, DataFileError, IcebergSinkError
from iceberg_ds.messages import TaskCommit, WriteIdentity
from iceberg_ds.plan import WritePlan
from iceberg_ds.steps import Step, reach
from iceberg_ds.writing.keyed import write_keyed_task
from iceberg_ds.writing.writers import TaskAttempt

_ANSWER = "answer BINARY"
_DEFAULT_TRIES = 4


def write_by_keys(df: DataFrame, plan: WritePlan) -> list[TaskCommit | IcebergSinkError]:
    """Write the changes of a DataFrame, and return what each task reports, or why it failed.

    Args:
        df: The rows; those of one key are in one task.
        plan: What the driver decided.

    Raises:
        DataFileError: The job failed as a whole; what its tasks have written is not known.
    """
    try:
        rows = df.mapInArrow(_task(plan, _tries(df.sparkSession)), _ANSWER).collect()
    except Exception as error:  # Spark's own
        raise DataFileError(
            f"Cannot upsert into {plan.table}, nothing was committed: Spark's job failed: {error}. Files with "
            f"{plan.operation_id} in their names may be left behind; iceberg-ds verify lists them."
        ) from error
    return [pickle.loads(row["answer"]) for row in rows]  # noqa: S301  # made by our own tasks


def _task(plan: WritePlan, tries: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        if task is None:
            raise CommitMessageError("Cannot upsert: this is not a Spark task.")
        attempt = TaskAttempt(partition_id=task.partitionId(), task_attempt_id=task.taskAttemptId())
        answer = _written(plan, batches, attempt, is_last_try=task.attemptNumber() + 1 >= tries)
        yield pa.RecordBatch.from_pydict({"answer": pa.array([pickle.dumps(answer)], pa.binary())})

    return run


def _written(
    plan: WritePlan, batches: Iterator[pa.RecordBatch], attempt: TaskAttempt, *, is_last_try: bool
) -> TaskCommit | IcebergSinkError:
    try:
        written = write_keyed_task(plan, batches, attempt)
    except IcebergSinkError as problem:
        if isinstance(problem, DataFileError) and not is_last_try:
            raise
        return problem
    reach(Step.TASK_WRITTEN)
    return TaskCommit(
        WriteIdentity.of(plan, None),
        attempt.partition_id,
        written.data_files,
        delete_files=written.delete_files,
        keys=written.keys,
    )


def _tries(spark: SparkSession) -> int:
    """Return how often Spark tries a task, 1 if it does not say."""
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect has none
        return 1
    if context.master.startswith("local"):
        return 1
    return int(context.getConf().get("spark.task.maxFailures", str(_DEFAULT_TRIES)))
