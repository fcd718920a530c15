"""Runs one function on pieces of work as the tasks of a Spark job, or in this process if there is no Spark session.

Works with classic Spark and with Spark Connect, without a jar: the function is applied to a DataFrame of work. Tasks
get the properties that open storage, and no property of the catalog. A task that fails says so in its answer, so that
no answer of another task is lost, as it would be if the job failed.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import BinaryType

from iceberg_ds._version import __version__, why_not_version
from iceberg_ds.errors import DataFileError
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.spark.workers import eased
from iceberg_ds.spark.write_job import job_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_WORK = "number INT, work BINARY"
_PARALLELISM_IF_UNKNOWN = 16
_TRIES = 3


class TaskAnswer(Protocol):
    """What a task answers."""

    @property
    def problem(self) -> str | None:
        """Why the task failed, or None if it did not fail; a failed task has deleted its files."""


_Plan = TypeVar("_Plan")
_Work = TypeVar("_Work")
_Answer = TypeVar("_Answer", bound=TaskAnswer)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskJob(Generic[_Plan, _Work, _Answer]):
    """A job of tasks.

    Attributes:
        plan: What all tasks are told.
        write: The write whose files they write.
        action: What is being done, such as `search db.t for keys`, for errors.
        answer: Answers one piece of work; gets the plan, the number of the work, and the work. A function of a module.
        refuse: Returns the answer of a task that cannot begin, from the reason.
    """

    plan: _Plan
    write: WriteIdentity
    action: str
    answer: Callable[[_Plan, int, _Work], _Answer]
    refuse: Callable[[str], _Answer]

    def run(self, spark: SparkSession | None, work: Sequence[_Work], at_once: int | None = None) -> list[_Answer]:
        """Run the tasks, try failed ones again, and return the answers in the order of the work.

        Args:
            spark: Runs the tasks; None to run them in this process, one after the other.
            work: A piece of work for each task.
            at_once: How many tasks run at once, at most; None for as many as the cluster runs.

        Returns:
            The answers; an answer with a problem is of a task that failed in every try.

        Raises:
            DataFileError: The first job failed as a whole; what its tasks wrote is unknown.
        """
        answers: dict[int, _Answer] = {}
        for tried in range(1, _TRIES + 1):
            left = [number for number in range(len(work)) if number not in answers or answers[number].problem]
            if not left:
                break
            if answers:
                logger.warning(
                    "%d of %d tasks failed, try %d: %s", len(left), len(work), tried - 1, answers[left[0]].problem
                )
            try:
                found = self._try(spark, [work[number] for number in left], at_once)
            except DataFileError as failure:
                if not answers:
                    raise
                found = [self.refuse(str(failure)) for _ in left]  # the answers of earlier tries name files
            answers.update(zip(left, found, strict=True))
        return [answers[number] for number in range(len(work))]

    def _try(self, spark: SparkSession | None, work: Sequence[_Work], at_once: int | None) -> list[_Answer]:
        if spark is None:
            return [self.answer(self.plan, number, piece) for number, piece in enumerate(work)]
        rows = [(number, pickle.dumps(piece)) for number, piece in enumerate(work)]
        try:
            # A plain Python function, because Spark's functions on Arrow batches need pandas.
            function = F.udf(self._task(), BinaryType(), useArrow=False).asNondeterministic()
            frame = _frame(spark, rows, at_once or len(rows))
            answered = frame.select(function("number", "work").alias("answer")).collect()
        except Exception as error:  # Spark's own
            raise job_failure(self.action, self.write, error) from error
        given = dict(pickle.loads(row["answer"]) for row in answered)  # noqa: S301  # made by our own tasks
        return [given[number] for number in range(len(work))]

    def _task(self) -> Callable[[int, bytes], bytes]:
        version, packed, answer, refuse = __version__, pickle.dumps(self.plan), self.answer, self.refuse

        def run(number: int, work: bytes) -> bytes:
            if (problem := why_not_version(version)) is not None:
                return pickle.dumps((number, refuse(problem)))
            return pickle.dumps((number, eased(answer)(pickle.loads(packed), number, pickle.loads(work))))  # noqa: S301

        return run


def _frame(spark: SparkSession, rows: Sequence[tuple[int, bytes]], tasks: int) -> DataFrame:
    """Return a DataFrame of the rows in this many tasks, where Spark lets us choose."""
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect has no SparkContext, and distributes rows as it likes
        return spark.createDataFrame(list(rows), _WORK)
    return spark.createDataFrame(context.parallelize(rows, min(tasks, len(rows))), _WORK)


def parallelism(spark: SparkSession | None) -> int:
    """Return how many tasks run at once."""
    if spark is None:
        return 1
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect does not tell the parallelism
        return _PARALLELISM_IF_UNKNOWN


def active_session() -> SparkSession | None:
    """Return the session that is active in this process, or None."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # loaded late: a command may need no Spark

    with suppress(Exception):  # where there is no JVM
        return SparkSession.getActiveSession()
    return None
