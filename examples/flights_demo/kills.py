"""Where to kill a driver, and what a kill has hit.

Needs the standard library alone. It looks from outside, every few milliseconds: at the catalog's
SQLite file, the table's newest metadata, its folder of data files and Spark's checkpoint. That says
when to strike; what was hit is decided afterwards, from what is left on the disk.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flights_demo.processes import Driver

FLIGHTS = "flights"
DEPARTURES = "departures"
_CHECKPOINTS = {FLIGHTS: "checkpoint", DEPARTURES: "checkpoint-of-departures"}
EPOCH_KEY = "spark.sql.streaming.epochId"

_LOOK_EVERY_S = 0.003
_STUCK_AFTER_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What the disk shows at one moment.

    Attributes:
        landed: How many epochs are in the table.
        checkpointed: How many epochs Spark has in its log of finished ones.
        rows: How many rows are in the table.
        new_files: How many data files have come since an epoch landed or was checkpointed.
    """

    landed: int
    checkpointed: int
    rows: int
    new_files: int


Trigger = Callable[[Sight], bool]


def never(_: Sight) -> bool:
    """Do not strike."""
    return False


def in_task(first: int) -> Trigger:
    """Strike when a task of epoch `first`, or of a later one, has begun a data file."""
    return lambda sight: first <= sight.landed == sight.checkpointed and sight.new_files > 0


def before_checkpoint(first: int) -> Trigger:
    """Strike when epoch `first`, or a later one, is in the table and not in Spark's log yet."""
    return lambda sight: sight.landed > max(first, sight.checkpointed)


def at_random(first: int) -> Trigger:
    """Strike at a random moment of the half second after `first` epochs have landed."""
    moments: list[float] = []

    def strikes(sight: Sight) -> bool:
        if sight.landed >= first and not moments:
            moments.append(time.monotonic() + random.uniform(0, 0.5))  # noqa: S311  # no secret
        return bool(moments) and time.monotonic() >= moments[0]

    return strikes


class Disk:
    """The stream as the files in the demo's folder show it.

    Attributes:
        data: The folder of the table's data files.
        files_seen: Names of all data files that were ever seen, also of those that are gone.
    """

    def __init__(self, folder: Path, table: str = FLIGHTS) -> None:
        self.data = folder / "warehouse" / "nyc" / table / "data"
        self._table = table
        self.files_seen: frozenset[str] = frozenset()
        self._catalog = folder / "warehouse" / "catalog.db"
        self._commits = folder / _CHECKPOINTS[table] / "commits"
        self._catalog_written_ns = 0
        self._landed = self._rows = self._checkpointed = 0
        self._progress = (-1, -1)
        self._files_before: frozenset[str] = frozenset()

    def look(self) -> Sight:
        """Return what the disk shows now; nothing is read that has not changed."""
        self._look_at_table()
        self._look_at_checkpoint()
        files, progress = list_files(self.data), (self._landed, self._checkpointed)
        self.files_seen |= files
        if progress != self._progress:
            self._progress, self._files_before = progress, files
        new_files = len(files - self._files_before)
        return Sight(landed=self._landed, checkpointed=self._checkpointed, rows=self._rows, new_files=new_files)

    def _look_at_table(self) -> None:
        with suppress(FileNotFoundError, sqlite3.OperationalError):  # no catalog yet, or busy
            written_ns = self._catalog.stat().st_mtime_ns
            if written_ns != self._catalog_written_ns:
                summary = _read_newest_summary(self._catalog, self._table)
                self._landed, self._rows = 1 + int(summary[EPOCH_KEY]), int(summary["total-records"])
                self._catalog_written_ns = written_ns

    def _look_at_checkpoint(self) -> None:
        while (self._commits / str(self._checkpointed)).exists():
            self._checkpointed += 1


def _read_newest_summary(catalog: Path, table: str) -> dict[str, str]:
    """Return the summary of the newest snapshot of the table that the catalog shows."""
    # A killed driver may leave a transaction that the next reader has to roll back: open to write.
    with closing(sqlite3.connect(f"{catalog.as_uri()}?mode=rw", uri=True)) as connection:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        location = next((str(location) for (location,) in connection.execute(query, (table,))), None)
    metadata = json.loads(Path(location.removeprefix("file://")).read_text()) if location else {}
    return (
        metadata["snapshots"][-1]["summary"] if metadata.get("snapshots") else {EPOCH_KEY: "-1", "total-records": "0"}
    )


def list_files(data: Path) -> frozenset[str]:
    """Return the names of the data files in a folder."""
    with suppress(FileNotFoundError), os.scandir(data) as entries:
        return frozenset(entry.name for entry in entries if entry.name.endswith(".parquet"))
    return frozenset()


def watch(driver: Driver, disk: Disk, trigger: Trigger, report: Callable[[Sight], None]) -> float | None:
    """Look at the disk until `trigger` strikes, then kill the driver.

    Args:
        driver: The driver whose turn it is.
        disk: What to look at.
        trigger: Decides after each look.
        report: Is told of each change.

    Returns:
        When it was killed, in seconds since the Unix epoch; None if it came to its end before.

    Raises:
        DemoError: It failed, or nothing changed for too long.
    """
    last, changed_s = None, time.monotonic()
    while driver.exit_code() is None:
        sight = disk.look()
        if trigger(sight):
            killed_s = time.time()
            driver.kill()
            return killed_s
        if sight != last:
            last, changed_s = sight, time.monotonic()
            report(sight)
        if time.monotonic() - changed_s > _STUCK_AFTER_S:
            driver.kill()
            raise driver.explain(f"did nothing for {_STUCK_AFTER_S} s and was killed")
        time.sleep(_LOOK_EVERY_S)
    if driver.exit_code():
        raise driver.explain(f"failed with exit code {driver.exit_code()}")
    report(disk.look())
    return None


class Place(Enum):
    """Where in an epoch a kill can hit."""

    BEFORE_FILES = "before the first data file of"
    IN_TASK = "in a task of"
    BEFORE_COMMIT = "after the tasks, before the commit of"
    BEFORE_CHECKPOINT = "between commit and checkpoint of"
    BETWEEN_EPOCHS = "between two epochs, before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A data file that no snapshot refers to; `rows` is None if it lacks its end, as its writer died."""

    name: str
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What a killed driver left.

    Attributes:
        landed: How many epochs are in the table.
        checkpointed: How many epochs Spark knows to be finished.
        planned: How many epochs Spark has begun.
        rows_under_way: How many rows it has planned and not landed.
        leftovers: The data files that it wrote in vain.
    """

    landed: int
    checkpointed: int
    planned: int
    rows_under_way: int
    leftovers: tuple[Leftover, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A kill, and what it hit as the disk shows it.

    Attributes:
        driver: Number of the driver.
        killed_s: When, in seconds since the Unix epoch.
        place: Where in the epoch.
        epoch_id: Which epoch, from 0.
        traces: What the driver left.
    """

    driver: int
    killed_s: float
    place: Place
    epoch_id: int
    traces: Traces


def find_place(traces: Traces) -> tuple[Place, int]:
    """Return where a kill hit, and in which epoch, or before which one."""
    epoch_id = traces.landed
    if traces.landed > traces.checkpointed:
        return Place.BEFORE_CHECKPOINT, epoch_id - 1
    if traces.planned == traces.landed:
        return Place.BETWEEN_EPOCHS, epoch_id
    if not traces.leftovers:
        return Place.BEFORE_FILES, epoch_id
    written = sum(leftover.rows or 0 for leftover in traces.leftovers)
    return (Place.IN_TASK if written < traces.rows_under_way else Place.BEFORE_COMMIT), epoch_id
