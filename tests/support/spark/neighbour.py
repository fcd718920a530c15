"""Another process with Spark that works on tables beside the one that a test kills, and lives on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.spark.jobs import CallJob, Job, dump
from support.spark.process import SparkProcess

TIMEOUT_S = 300
# What a commit that came too late raises; nothing of it is in the table.
CONFLICT = "CommitConflictError"
# What is said where a commit was killed before the catalog had its metadata file, until the next commit: another
# catalog may have that file. Nothing is removed.
KILLED = "is a newer state of this table"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    name: str
    job: Job
    then: Callable[[], object]


class Neighbour:
    """Another process.

    Args:
        folder: For its log and answers; created if missing.
        problems: Is told what failed.

    Attributes:
        done: How often each job was done, by its name, and how often a conflict or a kill kept it from that.
    """

    def __init__(self, folder: Path, problems: list[str]) -> None:
        self.done: Counter[str] = Counter()
        self._folder = folder
        self._problems = problems
        self._process = SparkProcess(folder)
        self._begun: list[_Begun] = []

    def begin(self, name: str, job: Job, then: Callable[[], object] = lambda: None) -> None:
        """Let it do a job after those that it was given before.

        Args:
            name: What the job is called in reports.
            job: The job.
            then: Is called when `finish` has seen that the job is done.
        """
        self._process.send(dump(job))
        self._begun.append(_Begun(name=name, job=job, then=then))

    def finish(self) -> None:
        """Wait until all is done."""
        for begun in self._begun:
            error = self._process.wait_answer(TIMEOUT_S)
            if error is None:
                self.done[begun.name] += 1
                begun.then()
            elif error.startswith(CONFLICT):
                self.done[f"{begun.name}, given up after a conflict"] += 1
            elif KILLED in error:
                self.done[f"{begun.name}, refused after a kill"] += 1
            else:
                self._problems.append(f"{begun.name} ({begun.job}) failed: {error}")
        self._begun.clear()

    def read(
        self, table: str, columns: Sequence[str], options: Mapping[str, str], reader: str = "auto"
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a table as `iceberg_ds.read` reads them.

        Raises:
            RuntimeError: It does not read them.
        """
        answer = self._folder / "rows.json"
        arguments = {"table": table, "columns": list(columns), "options": dict(options), "reader": reader}
        job = CallJob(function="read", arguments=arguments, answer=str(answer))
        if (error := self._process.run(dump(job), TIMEOUT_S)) is not None:
            raise RuntimeError(f"Table {table} cannot be read: {error}")
        return [tuple(row) for row in json.loads(answer.read_text())]

    def close(self) -> None:
        """End it."""
        self._process.close()
