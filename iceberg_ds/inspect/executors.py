"""Lets every executor try what a write needs, in a Spark job of many small tasks, and collects the answers.

The job uses a plain Python function, so that an executor without PyArrow can still report that. Works with classic
Spark and with Spark Connect, which does not tell how many executors there are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import StringType

from iceberg_ds.inspect.checklist import Check, CheckFailedError, within
from iceberg_ds.inspect.machine_checks import MAX_SKEW_S, Place, describe, skew_s, version_problems

EXECUTORS, VERSIONS, EXECUTOR_CLOCK = "executors", "versions", "clock against the driver's"
_TASKS_IF_UNKNOWN = 16
_MOST_TASKS = 2000
_ROUNDS = 3


def ask_executors(
    spark: SparkSession, place: Place | None, run: str, driver: Mapping[str, str], limit_s: float
) -> list[Check]:
    """Return the checks of the executors, and one about how many of them answered.

    Args:
        spark: The session.
        place: The place in the storage to try; None to try no storage.
        run: Name of this run of the check.
        driver: Versions on the driver.
        limit_s: Seconds that the job may take.

    Raises:
        CheckFailedError: The job failed, or did not end in time.
    """
    known = known_executors(spark)
    started = time.time()
    answers: dict[str, dict[str, Any]] = {}
    for _ in range(_ROUNDS):
        for answer in _run(spark, place, run, limit_s):
            if "checks" in answer or answer["executor"] not in answers:
                answers[answer["executor"]] = answer
        if known is None or len(answers) >= known:
            break
    checks = [_count(len(answers), known, time.time() - started)]
    for _, answer in sorted(answers.items()):
        checks += _checks_of(answer, driver, started, time.time())
    return checks


def _run(spark: SparkSession, place: Place | None, run: str, limit_s: float) -> list[dict[str, Any]]:
    count = _task_count(spark)
    function = F.udf(_task(None if place is None else asdict(place), run), StringType(), useArrow=False)
    rows = spark.range(0, count, 1, count).select(function("id").alias("answer"))
    tag = f"iceberg-ds-check-{run}"

    def collect() -> list[str]:
        with suppress(Exception):  # a session that cannot be interrupted can still be asked
            spark.addTag(tag)
        try:
            return [str(row["answer"]) for row in rows.collect()]
        finally:
            with suppress(Exception):
                spark.removeTag(tag)

    try:
        return [json.loads(text) for text in within(limit_s, collect)]
    except TimeoutError:
        with suppress(Exception):
            spark.interruptTag(tag)
        raise CheckFailedError(
            f"the job of {count} tasks did not end in {limit_s:g} s",
            "Check in Spark's UI whether executors are free, and that they reach the storage; then allow more time.",
        ) from None


def _task(place: Mapping[str, object] | None, run: str) -> Callable[[int], str]:
    def answer(_: int) -> str:
        # Executors get this function by value, so that an executor without the package can report that.
        import json  # noqa: PLC0415
        import platform  # noqa: PLC0415

        try:
            from iceberg_ds.inspect.machine_checks import answer_of_executor  # noqa: PLC0415
        except ImportError as error:
            return json.dumps({"executor": platform.node(), "problem": f"{type(error).__name__}: {error}"})
        try:
            return answer_of_executor(place, run)
        except Exception as error:
            # The text of the error could contain anything.
            return json.dumps({"executor": platform.node(), "problem": f"{type(error).__name__} in the check"})

    return answer


def _task_count(spark: SparkSession) -> int:
    """Return how many tasks fill all executors: one for each of their cores."""
    try:
        return min(spark.sparkContext.defaultParallelism, _MOST_TASKS)
    except Exception:  # Spark Connect does not tell the parallelism
        return _TASKS_IF_UNKNOWN


def known_executors(spark: SparkSession) -> int | None:
    """Return how many executors Spark has now, or None with Spark Connect, which does not tell."""
    try:
        context = spark.sparkContext
        count = int(context._jsc.sc().getExecutorMemoryStatus().size())  # noqa: SLF001  # there is no public way to ask
        master = str(context.master)
    except Exception:  # sessions of Spark Connect have no SparkContext
        return None
    # The count includes the driver, which is the only executor without a cluster.
    return count if master.startswith("local") and "cluster" not in master else count - 1


def _count(answered: int, known: int | None, seconds: float) -> Check:
    if known is None:
        detail = f"{answered} answered; with Spark Connect it is not known how many there are"
        return Check(name=EXECUTORS, outcome="ok", seconds=seconds, detail=detail)
    if answered >= known:
        return Check(name=EXECUTORS, outcome="ok", seconds=seconds, detail=f"{answered} of {known} answered")
    return Check(
        name=EXECUTORS,
        outcome="failed",
        seconds=seconds,
        detail=f"{answered} of {known} answered",
        next_step="Check again when the cluster is idle: executors that are busy get no task.",
    )


def _checks_of(answer: Mapping[str, Any], driver: Mapping[str, str], before: float, after: float) -> Sequence[Check]:
    where = str(answer["executor"])
    if "problem" in answer:
        return [_missing_package(where, str(answer["problem"]))]
    versions: Mapping[str, str] = answer.get("versions", {})
    found = [versions_check(versions, driver, where), _clock(where, answer["time"], before, after)]
    return [*found, *(Check(**check) for check in answer.get("checks", ()))]


def _missing_package(where: str, problem: str) -> Check:
    return Check(
        name=VERSIONS,
        where=where,
        outcome="failed",
        detail=problem,
        next_step="Install iceberg-ds with all it needs on every executor, or ship it with --py-files and an archive.",
    )


def versions_check(found: Mapping[str, str], driver: Mapping[str, str], where: str) -> Check:
    """Check that a machine has the required versions, and the same as the driver."""
    problems = version_problems(found, driver)
    if not problems:
        return Check(name=VERSIONS, where=where, outcome="ok", detail=describe(found))
    step = "Install the same versions on the driver and on every executor; docs/clusters.md says which are supported."
    return Check(name=VERSIONS, where=where, outcome="failed", detail="; ".join(problems), next_step=step)


def _clock(where: str, told: float, before: float, after: float) -> Check:
    skew = -skew_s(told, before, after)
    if abs(skew) <= MAX_SKEW_S:
        return Check(name=EXECUTOR_CLOCK, where=where, outcome="ok", detail=f"{skew:+.0f} s")
    return Check(
        name=EXECUTOR_CLOCK,
        where=where,
        outcome="failed",
        detail=f"the executor's clock is {skew:+.0f} s from the driver's",
        next_step="Set the clocks of both machines with NTP.",
    )
