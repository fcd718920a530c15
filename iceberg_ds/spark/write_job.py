"""Writes a DataFrame by a Spark job whose tasks answer with their messages, so that the commit is the caller's.

Works with classic Spark and with Spark Connect. A failing task leaves no file and says so in its answer instead of
failing the job, which would lose the messages of the other tasks. The task fails only if Spark will try it again.
Tasks get the properties that open storage, and no property of the catalog.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from iceberg_ds._version import __version__, why_not_version
from iceberg_ds.errors import CommitMessageError, DataFileError, IcebergSinkError
from iceberg_ds.messages import RowCounts, TaskCommit, complete_commits
from iceberg_ds.plan import TaskKeys, WriteIdentity, WritePlan
from iceberg_ds.spark.pandas_warning import without_pandas_warning
from iceberg_ds.spark.session_settings import check_audit_settings, check_zone_of_session, in_zone_of_option
from iceberg_ds.spark.workers import acknowledging, eased
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt

_ANSWER = "answer"
_DEFAULT_TRIES = 4
_QUERY_ID = "sql.streaming.queryId"

_Report = TypeVar("_Report")
# Writes the rows of one task, and returns what it reports; a function of a module.
ReportTask: TypeAlias = Callable[[WritePlan, Iterator[pa.RecordBatch], TaskAttempt], _Report]


def check_session(plan: WritePlan, spark: SparkSession) -> None:
    """Refuse a write that does not do as the settings of its session say.

    Raises:
        OptionError: As `check_audit_settings` and `check_zone_of_session`.
    """
    for check in (check_audit_settings, check_zone_of_session):
        check(plan, lambda key: spark.conf.get(key, None))


def query_id_of(spark: SparkSession) -> str | None:
    """Return the id of the streaming query whose `foreachBatch` function runs in this thread, or None if unknown."""
    try:
        found = spark.sparkContext.getLocalProperty(_QUERY_ID)
    except Exception:  # Spark Connect has no SparkContext
        return None
    return None if found is None else str(found)


def write_rows(
    df: DataFrame, plan: WritePlan, action: str, discard: Callable[[Sequence[TaskCommit]], object]
) -> list[TaskCommit]:
    """Write the rows of a DataFrame, all rows of a key in one task, and return the messages of the tasks.

    Args:
        df: The rows.
        plan: The plan of the write.
        action: What is being done, such as `upsert into db.t`, for errors.
        discard: Is called with the messages of the other tasks if a task has failed, and deletes their files.

    Raises:
        DataFileError: The job could not begin, or it failed as a whole, and what its tasks wrote is unknown.
        CommitMessageError: The tasks did not report each once.
        IcebergSinkError: What a task raised.
    """
    answers = run_job(_brought_together(df, plan), plan, action, report_task)
    commits = [answer for answer in answers if isinstance(answer, TaskCommit)]
    problem = next((answer for answer in answers if isinstance(answer, IcebergSinkError)), None)
    if problem is not None:
        discard(commits)
        raise problem
    try:
        # Spark runs no task for a DataFrame that it knows to be empty.
        return complete_commits(commits or [of_no_rows(plan)], epoch_id=None)
    except CommitMessageError:
        discard(commits)
        raise


def _brought_together(df: DataFrame, plan: WritePlan) -> DataFrame:
    if plan.write.changes is None:
        return df
    from iceberg_ds.spark.distribution import distribute  # noqa: PLC0415  # tasks load this module, and no catalog

    return distribute(df, keys=[str(plan.schema.find_column_name(key)) for key in plan.write.changes.key_ids])


def of_no_rows(plan: WritePlan) -> TaskCommit:
    """Return the message of a write whose DataFrame is known to be empty, for which Spark runs no task."""
    keys = None if plan.write.changes is None else TaskKeys(count=0, modulus=0)
    return TaskCommit(plan.write, 0, (), keys=keys, counts=RowCounts(received=0))


def run_job(
    df: DataFrame, plan: WritePlan, action: str, report: ReportTask[_Report]
) -> list[_Report | IcebergSinkError]:
    """Write the rows of a DataFrame as they are distributed, and return what each task reports, or why it failed.

    Args:
        df: The rows.
        plan: The plan of the write.
        action: As `write_rows`.
        report: Does the work of a task.

    Raises:
        DataFileError: As `write_rows`.
    """
    try:
        names = df.columns
        numbered = df.toDF(*map(str, range(len(names))))  # mapInArrow takes no name with a dot or a backtick
        task = _task(plan, action, _tries(df.sparkSession), names, report)
        with without_pandas_warning():
            answers = numbered.mapInArrow(task, f"{_ANSWER} BINARY")
        rows = answers.collect()
    except ImportError as missing:
        raise DataFileError(
            f"Cannot {action}, nothing was written: Spark's mapInArrow needs pandas ({missing}). "
            "Install it here: pip install 'iceberg-ds[upserts]'."
        ) from missing
    except Exception as error:  # Spark's own
        raise job_failure(action, plan.write, error) from error
    return [pickle.loads(row[_ANSWER]) for row in rows]  # noqa: S301  # made by our own tasks


def job_failure(action: str, write: WriteIdentity, error: Exception) -> DataFileError:
    """Return the error to raise if a job that writes files failed as a whole.

    Args:
        action: The action that failed, such as `upsert into db.t`.
        write: The write whose tasks failed.
        error: What Spark raised.
    """
    return DataFileError(
        f"Cannot {action}, nothing was committed: Spark's job failed: {error}. Files with {write.operation_id} in "
        "their names may be left behind; iceberg-ds verify lists them."
    )


def _task(
    plan: WritePlan, action: str, tries: int, names: Sequence[str], report: ReportTask[_Report]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    version, packed = __version__, pickle.dumps(plan)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if (problem := why_not_version(version)) is not None:
            answer: _Report | IcebergSinkError = DataFileError(f"Cannot {action}, nothing was written: {problem}.")
        else:
            named = (batch.rename_columns(names) for batch in acknowledging(batches))
            answer = answer_of_task(pickle.loads(packed), action, tries, report, named)  # noqa: S301  # our own
        yield pa.RecordBatch.from_pydict({_ANSWER: pa.array([pickle.dumps(answer)], pa.binary())})

    return run


@eased
def answer_of_task(
    plan: WritePlan, action: str, tries: int, report: ReportTask[_Report], batches: Iterator[pa.RecordBatch]
) -> _Report | IcebergSinkError:
    """Write the rows of one task, and return what it reports, or why it failed.

    Args:
        plan: The plan of the write.
        action: What is being done, for errors.
        tries: How often Spark tries a task.
        report: Does the work of the task.
        batches: The rows.
    """
    task = TaskContext.get()
    if task is None:
        raise CommitMessageError(f"Cannot {action}: this is not a Spark task.")
    attempt = TaskAttempt(partition_id=task.partitionId(), task_attempt_id=task.taskAttemptId())
    try:
        return report(plan, in_zone_of_option(plan, batches), attempt)
    except IcebergSinkError as problem:
        if isinstance(problem, DataFileError) and task.attemptNumber() + 1 < tries:
            raise
        return problem


def _tries(spark: SparkSession) -> int:
    """Return how often Spark tries a task, or 1 if that is unknown."""
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect has none
        return 1
    if str(context.master).startswith("local"):
        return 1
    return int(context.getConf().get("spark.task.maxFailures", str(_DEFAULT_TRIES)))
