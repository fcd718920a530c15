"""Kills of a running stream at random moments, and what the disk shows of each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from support.checks.invariants import unreferenced_files
from support.spark.tables import Warehouse

# A micro-batch makes about eight changes: it is planned, its tasks write, it is committed, Spark notes it.
_MOST_CHANGES = 24
_LONGEST_DELAY_S = 0.15
_CHANGES_TIMEOUT_S = 180
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
        table = self.warehouse.folder / "db" / "t"
        checkpoint = [self.checkpoint / "offsets", self.checkpoint / "commits"]
        folders = [*checkpoint, table / "data", table / "metadata", self.warehouse.folder]  # SQLite's journal is there
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

    def wait(self, watched: Watched, untouched: Sequence[int], has_ended: Callable[[], bool] = lambda: False) -> None:
        """Wait for it, or until the stream has ended.

        Args:
            watched: The stream.
            untouched: When the folders were last changed, when the stream was started.
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
                raise TimeoutError(
                    f"The stream changed the disk only {self.changes - left} times; see {watched.checkpoint}."
                )
            time.sleep(_LOOK_EVERY_S)
        time.sleep(self.delay_s)
