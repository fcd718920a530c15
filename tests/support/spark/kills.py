"""Kills of a running stream at random moments, and what the disk shows of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from support.checks.invariants import unreferenced_files
from support.spark.process import SparkProcess
from support.spark.tables import Warehouse

# A micro-batch makes about eight changes: it is planned, its tasks write, it is committed, Spark notes it.
_MOST_CHANGES = 24
_LONGEST_DELAY_S = 0.15
_CHANGES_TIMEOUT_S = 600
_LOOK_EVERY_S = 0.005


class Met(Enum):
    """What the disk shows of the moment of a kill."""

    LANDED = "the epoch had landed, and Spark did not know yet"
    WRITTEN = "data files of the epoch were there, and it had not landed"
    PLANNED = "the epoch was planned, and had no files"
    IDLE = "between two epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What the disk shows of a stream that does not run.

    Attributes:
        planned: The last epoch in Spark's log of planned ones, -1 for none.
        landed: The last epoch in the table.
        checkpointed: The last epoch in Spark's log of finished ones.
        orphans: Data files that are not in the table.
    """

    planned: int
    landed: int
    checkpointed: int
    orphans: frozenset[Path]

    def met_since(self, before: Disk) -> Met:
        """Return what the kill met that came between `before` and this."""
        if self.landed > self.checkpointed:
            return Met.LANDED
        if self.planned == self.checkpointed:
            return Met.IDLE
        return Met.WRITTEN if self.orphans - before.orphans else Met.PLANNED


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A stream into `db.t`, looked at from outside.

    Attributes:
        checkpoint: The folder of its checkpoint.
        warehouse: The table's catalog.
    """

    checkpoint: Path
    warehouse: Warehouse

    def disk(self) -> Disk:
        """Look at the disk."""
        return Disk(
            planned=_last_number(self.checkpoint / "offsets"),
            landed=max(self.landed_epochs(), default=-1),
            checkpointed=self.checkpointed(),
            orphans=frozenset(self.orphans()),
        )

    def checkpointed(self) -> int:
        """Return the last epoch in Spark's log of finished ones, -1 for none."""
        return _last_number(self.checkpoint / "commits")

    def landed_epochs(self) -> list[int]:
        """Return the epoch of each snapshot that has one."""
        if not self.warehouse.has_table():
            return []
        epochs = (summary.get("spark.sql.streaming.epochId") for summary in self.warehouse.snapshots())
        return [int(number) for number in epochs if number is not None]

    def orphans(self) -> set[Path]:
        """Return the data files that no snapshot refers to."""
        if not self.warehouse.has_table():
            return self.warehouse.data_files()
        return {path for path in unreferenced_files(self.warehouse.table()) if path.suffix == ".parquet"}

    def touched(self) -> list[int]:
        """Return when the folders that a running stream writes to were last changed."""
        of_spark = [self.checkpoint / "offsets", self.checkpoint / "commits"]
        # SQLite's journal is in the folder of the warehouse.
        return changed_at(*of_spark, *folders_of(self.warehouse), self.warehouse.folder)


class Touched(Protocol):
    """What a killed job changes, looked at from outside."""

    def touched(self) -> list[int]:
        """Return when the folders that the running job writes to were last changed."""


def folders_of(warehouse: Warehouse, name: str = "db.t") -> list[Path]:
    """Return the folders that change when a table does."""
    table = warehouse.folder.joinpath(*name.split("."))
    return [table / "data", table / "metadata"]


def changed_at(*folders: Path) -> list[int]:
    """Return when folders were last changed, 0 for those that are not there."""
    return [folder.stat().st_mtime_ns if folder.exists() else 0 for folder in folders]


def _last_number(log: Path) -> int:
    return max((int(path.name) for path in log.glob("[0-9]*") if path.name.isdigit()), default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When to kill.

    Attributes:
        changes: So many changes on the disk after the stream was started,
        delay_s: and so long after the last of them.
    """

    changes: int
    delay_s: float

    @classmethod
    def draw(cls, draw: random.Random, most_changes: int = _MOST_CHANGES) -> Moment:
        """Draw one."""
        return cls(changes=draw.randint(1, most_changes), delay_s=draw.uniform(0, _LONGEST_DELAY_S))

    def wait(self, watched: Touched, untouched: Sequence[int], has_ended: Callable[[], bool] = lambda: False) -> None:
        """Wait for it, or until the job has ended.

        Args:
            watched: The job.
            untouched: When the folders were last changed, when the job was started.
            has_ended: Whether it has ended by itself.

        Raises:
            TimeoutError: It does not come.
        """
        left, last = self.changes, untouched
        deadline = time.monotonic() + _CHANGES_TIMEOUT_S
        while left > 0 and not has_ended():
            now = watched.touched()
            left -= sum(before != after for before, after in zip(last, now, strict=True))
            last = now
            if time.monotonic() > deadline:
                raise TimeoutError(f"The job changed the disk only {self.changes - left} times: {watched}.")
            time.sleep(_LOOK_EVERY_S)
        time.sleep(self.delay_s)


class Drivers:
    """Spark drivers that run a job, one after the other: each is killed, and by then the next one has started.

    Args:
        folder: For the folder of each.

    Attributes:
        killed: How many were killed.
    """

    def __init__(self, folder: Path) -> None:
        self.killed = 0
        self._folder = folder
        self._next = SparkProcess(folder / "round-0")

    def kill(self, job: str, wait: Callable[[Callable[[], bool]], None]) -> str | None:
        """Let a driver run the job, and kill Python, Java and all workers.

        Args:
            job: The job, as `jobs.dump` writes it.
            wait: Returns when it is time; gets what tells whether the job has ended by itself.

        Returns:
            The error of a job that failed by itself; None if it did not.
        """
        with self._next as driver:
            self._next = SparkProcess(self._folder / f"round-{self.killed + 1}")
            driver.send(job)
            wait(driver.has_answered)
            error = driver.wait_answer() if driver.has_answered() else None
        self.killed += 1
        return error

    def run(self, job: str, timeout_s: float) -> str | None:
        """Let the last driver run the job to its end; return its error, None if it went well."""
        return self._next.run(job, timeout_s)

    def close(self) -> None:
        """End the one that waits."""
        self._next.close()


def wait_for_change(watched: Touched, untouched: Sequence[int], has_ended: Callable[[], bool]) -> None:
    """Wait until a job has changed the disk for the first time, or has ended.

    Args:
        watched: The job.
        untouched: When the folders were last changed, when the job was started.
        has_ended: Whether it has ended by itself.
    """
    Moment(changes=1, delay_s=0).wait(watched, untouched, has_ended)


def wait_for_s(seconds: float, has_ended: Callable[[], bool]) -> None:
    """Wait so many seconds, or until the job has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not has_ended():
        time.sleep(_LOOK_EVERY_S)
