"""Runs the tasks of a search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from iceberg_ds.deletes.tasks import answer_group
from iceberg_ds.deletes.work import FileWork, GroupAnswer, SearchPlan
from iceberg_ds.spark.task_job import TaskJob, parallelism

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Bytes that a task reads: the least that is worth a task of its own, and the most, unless one file is larger.
_LEAST_BYTES, _MOST_BYTES = 32 * 1024 * 1024, 512 * 1024 * 1024
# As many bytes as looking up the keys of a row takes time for, however few bytes they are compressed to.
_ROW_BYTES = 8


def grouped(work: Sequence[FileWork], at_once: int) -> list[list[FileWork]]:
    """Return the work in groups that take about as long; files of a partition stay close together.

    Args:
        work: The data files.
        at_once: How many tasks run at once.
    """
    ordered = in_order(work)
    total = sum(_weight(item) for item in ordered)
    worth = max(1, math.ceil(total / _LEAST_BYTES))
    # Each task reads all keys, so there is no second round of tasks that would not fill it.
    rounds = min(2, max(1, worth // at_once))
    count = max(min(rounds * at_once, worth), math.ceil(total / _MOST_BYTES))
    groups: list[list[FileWork]] = []
    before = 0
    for item in ordered:
        if not groups or before * count >= total * len(groups):
            groups.append([])
        groups[-1].append(item)
        before += _weight(item)
    return groups


def in_order(work: Iterable[FileWork]) -> list[FileWork]:
    """Return the work in an order in which files of one partition follow each other."""
    return sorted(work, key=lambda item: (item.place, item.path))


def _weight(item: FileWork) -> int:
    looked_up = item.data_file.record_count if item.keys else 0
    return 1 + max(item.read_bytes, looked_up * _ROW_BYTES)


def resolve(
    spark: SparkSession | None, plan: SearchPlan, work: Sequence[FileWork], action: str = "search {} for keys"
) -> list[GroupAnswer]:
    """Search data files for rows, try failed tasks again, and return what all tasks found and wrote.

    Args:
        spark: Runs the tasks; None to run them in this process, one after the other.
        plan: What the tasks are told.
        work: The data files.
        action: What is being done, with `{}` for the table, for errors.

    Returns:
        The answers; an answer with a problem is of a task that failed in every try.

    Raises:
        DataFileError: The job failed as a whole; what its tasks wrote is unknown.
    """
    write = plan.writing.write
    groups = [in_order(work)] if plan.index is not None else grouped(work, parallelism(spark))  # one has the index
    job = TaskJob(plan=plan, write=write, action=action.format(write.table), answer=answer_group, refuse=_refused)
    return job.run(spark, groups)


def _refused(problem: str) -> GroupAnswer:
    return GroupAnswer(problem=problem)
