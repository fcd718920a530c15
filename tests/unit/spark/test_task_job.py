"""What tasks of a job answer, as Spark carries it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.keys.writes import keyed_plan

from iceberg_ds import _version
from iceberg_ds._version import __version__
from iceberg_ds.errors import DataFileError
from iceberg_ds.spark.task_job import TaskJob


@dataclass(frozen=True)
class Answer:
    """A text, or why there is none."""

    text: str = ""
    problem: str | None = None


def answer(plan: str, number: int, work: list[str]) -> Answer:
    """Return all that a task was told."""
    return Answer(f"{plan} {number} {work}")


def refuse(problem: str) -> Answer:
    """Return the answer of a task that cannot begin."""
    return Answer(problem=problem)


@pytest.fixture
def job(tmp_path: Path) -> TaskJob[str, list[str], Answer]:
    """Return a job."""
    return TaskJob(plan="plan", write=keyed_plan(tmp_path).write, action="try", answer=answer, refuse=refuse)


def test_task_is_told_the_plan_and_its_work(job: TaskJob[str, list[str], Answer]) -> None:
    """It would do the work of another task."""
    found = pickle.loads(job._task()(3, pickle.dumps(["a"])))  # noqa: S301  # our own

    assert found == (3, Answer("plan 3 ['a']"))
    assert job.run(None, [["a"], ["b"]]) == [Answer("plan 0 ['a']"), Answer("plan 1 ['b']")]


def test_other_version_on_an_executor_is_named(
    job: TaskJob[str, list[str], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user would read of attributes that some object does not have."""
    task = job._task()  # what Spark pickles
    monkeypatch.setattr(_version, "__version__", "0.0.1")

    number, found = pickle.loads(task(3, b"not to be read"))  # noqa: S301  # our own

    assert number == 3
    assert (
        found.problem == f"the driver has iceberg_ds {__version__}, and an executor 0.0.1: install one version on all"
    )


def test_answers_of_a_try_outlive_a_later_job_that_fails(
    job: TaskJob[str, list[str], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would know of the files that their tasks wrote, and delete them."""
    tries: list[object] = [[Answer("written"), Answer(problem="a disk is full")]]

    def run(*_: object) -> list[Answer]:
        if not tries:
            raise DataFileError("the job failed")
        return tries.pop()  # type: ignore[return-value]

    monkeypatch.setattr(TaskJob, "_try", run)

    assert job.run(None, [["a"], ["b"]]) == [Answer("written"), Answer(problem="the job failed")]
    with pytest.raises(DataFileError, match="the job failed"):
        job.run(None, [["a"]])
