"""Runs tasks that read and write files as a Spark job, or in this process if there is no Spark session.

Works with classic Spark and with Spark Connect, without a jar: one function is applied to a DataFrame of work. Tasks
get the properties that open storage, and no property of the catalog.
"""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import BinaryType

from iceberg_ds._version import __version__
from iceberg_ds.deletes.tasks import answer_group, answer_of_task
from iceberg_ds.deletes.work import FileWork, GroupAnswer, SearchPlan
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.spark.write_job import job_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_WORK = "number INT, work BINARY"
# Bytes that a task reads: the least that is worth a task of its own, and the most, unless one file is larger.
_LEAST_BYTES, _MOST_BYTES = 16 * 1024 * 1024, 512 * 1024 * 1024
_PARALLELISM_IF_UNKNOWN = 16
_TRIES = 3


def active_session() -> SparkSession | None:
    """Return the session that is active in this process, or None."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # loaded late: a command may need no Spark

    with suppress(Exception):  # where there is no JVM
        return SparkSession.getActiveSession()
    return None


def grouped(work: Sequence[FileWork], parallelism: int) -> list[list[FileWork]]:
    """Return the work in groups of about equal bytes to read; files of a partition stay close together.

    Args:
        work: The data files.
        parallelism: How many tasks run at once.
    """
    ordered = sorted(work, key=lambda item: (item.place, item.path))
    total = sum(_weight(item) for item in ordered)
    most = max(1, math.ceil(total / _LEAST_BYTES))
    count = max(min(2 * parallelism, most), math.ceil(total / _MOST_BYTES))
    groups: list[list[FileWork]] = []
    before = 0
    for item in ordered:
        if not groups or before * count >= total * len(groups):
            groups.append([])
        groups[-1].append(item)
        before += _weight(item)
    return groups


def _weight(item: FileWork) -> int:
    return 1 + item.read_bytes


def resolve(spark: SparkSession | None, plan: SearchPlan, work: Sequence[FileWork]) -> list[GroupAnswer]:
    """Search data files for keys, try failed tasks again, and return what all tasks found and wrote.

    Args:
        spark: Runs the tasks; None to run them in this process, one after the other.
        plan: What the tasks are told.
        work: The data files.

    Returns:
        The answers; an answer with a problem is of a task that failed in every try.

    Raises:
        DataFileError: The job failed as a whole; what its tasks wrote is unknown.
    """
    return run_groups(
        spark,
        grouped(work, _parallelism(spark)),
        lambda number, group: answer_group(plan, number, group),
        lambda: _task(plan),
        action=f"search {plan.writing.write.table} for keys",
        write=plan.writing.write,
    )


class Answered(Protocol):
    """What a task answers."""

    @property
    def problem(self) -> str | None:
        """Why the task failed, or None if it did not fail; a failed task has deleted its files."""


_Group = TypeVar("_Group")
_Answer = TypeVar("_Answer", bound=Answered)


def run_groups(  # noqa: PLR0913  # the last ones by name
    spark: SparkSession | None,
    groups: Sequence[_Group],
    answer: Callable[[int, _Group], _Answer],
    task: Callable[[], Callable[[int, bytes], bytes]],
    *,
    action: str,
    write: WriteIdentity,
) -> list[_Answer]:
    """Run a task for each group of work, try failed tasks again, and return all answers.

    Args:
        spark: Runs the tasks; None to run them in this process, one after the other.
        groups: What each task gets; picklable.
        answer: Does the work of a group, with its number, in this process.
        task: Makes what does the same on an executor: it takes number and group, pickled, and returns number and
            answer, pickled.
        action: What is being done, such as `search db.t for keys`, for errors.
        write: The write that the tasks are of.

    Returns:
        The answers; an answer with a problem is of a task that failed in every try.

    Raises:
        DataFileError: The job failed as a whole; what its tasks wrote is unknown.
    """
    left = list(groups)
    answers: list[_Answer] = []
    for tried in range(1, _TRIES + 1):
        if spark is None:
            given = [answer(number, group) for number, group in enumerate(left)]
        else:
            given = _run(spark, left, task(), action, write)
        failed = [number for number, answer in enumerate(given) if answer.problem is not None]
        answers += [answer for answer in given if answer.problem is None or tried == _TRIES]
        if not failed:
            break
        logger.warning("%d of %d tasks failed, try %d: %s", len(failed), len(left), tried, given[failed[0]].problem)
        left = [left[number] for number in failed]
    return answers


def _run(
    spark: SparkSession,
    groups: Sequence[object],
    task: Callable[[int, bytes], bytes],
    action: str,
    write: WriteIdentity,
) -> list[Any]:
    rows = [(number, pickle.dumps(group)) for number, group in enumerate(groups)]
    try:
        # A plain Python function, because Spark's functions on Arrow batches need pandas.
        function = F.udf(task, BinaryType(), useArrow=False).asNondeterministic()
        answered = _frame(spark, rows).select(function("number", "work").alias("answer")).collect()
    except Exception as error:  # Spark's own
        raise job_failure(action, write, error) from error
    given = dict(pickle.loads(row["answer"]) for row in answered)  # noqa: S301  # made by our own tasks
    return [given[number] for number in range(len(groups))]


def _frame(spark: SparkSession, rows: Sequence[tuple[int, bytes]]) -> DataFrame:
    """Return a DataFrame of the rows, with one task per row where Spark lets us choose."""
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect has no SparkContext, and distributes rows as it likes
        return spark.createDataFrame(list(rows), _WORK)
    return spark.createDataFrame(context.parallelize(rows, len(rows)), _WORK)


def _task(plan: SearchPlan) -> Callable[[int, bytes], bytes]:
    version, packed = __version__, pickle.dumps(plan)

    def run(number: int, work: bytes) -> bytes:
        return answer_of_task(version, packed, number, work)

    return run


def _parallelism(spark: SparkSession | None) -> int:
    if spark is None:
        return 1
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect does not tell the parallelism
        return _PARALLELISM_IF_UNKNOWN
