"""A change feed as a stream of JSON files into a table with keys, and the rows that the table must have afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession, types
from support.checks.delete_soundness import check_deletes
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import rows_of
from support.hooks.faults import Fault
from support.hooks.hooked_sink import HookedSink
from support.spark.jobs import StreamJob, UpsertJob, write_file
from support.spark.tables import Warehouse

# Operation, id, region, amount and lsn.
Event = tuple[str | None, int | None, str | None, int | None, int]
# The events of each task of an epoch.
Epoch = Sequence[Sequence[Event]]

NAMES = ("op", "id", "region", "amount", "lsn")
COLUMNS = "op STRING, id BIGINT, region STRING, amount BIGINT, lsn BIGINT"
# Of the tables that have the changes.
SCHEMA = types.StructType().add("id", "long").add("region", "string").add("amount", "long").add("lsn", "long")
BY_KEY = {"keys": "id", "operation-column": "op", "sequence-by": "lsn"}
TASKS = 2  # of an epoch: Spark makes one of each file
DELETES = ("d", "D", "delete", "-D")
BEFORE = ("-U", "update_preimage")

# Rows move between partitions, a key moves with its images, one comes in both tasks, one comes back after its delete.
FEED: tuple[Epoch, ...] = (
    (
        [("c", 1, "EU", 10, 1), ("c", 2, "EU", 20, 2), ("c", 3, "US", 30, 3)],
        [("r", 4, "US", 40, 4), ("+I", 5, "US", 50, 5)],
    ),
    (
        [("u", 1, "US", 11, 6), ("-U", 3, "US", 30, 8), ("u", 5, "EU", 51, 10), ("U", 4, "US", 41, 9)],
        [("d", 2, None, None, 7), ("+U", 6, "US", 31, 8), ("u", 5, "US", 52, 11), ("u", 7, "EU", 70, 12)],
    ),
    (
        [("insert", 2, "EU", 22, 13), ("D", 7, None, None, 15)],
        [("u", 7, "US", 71, 14), ("delete", 1, None, None, 16)],
    ),
)


def rows_after(epochs: Iterable[Epoch], before: Iterable[tuple[Any, ...]] = ()) -> list[tuple[Any, ...]]:
    """Return the rows that a table has after these epochs, as `id`, `region`, `amount` and `lsn`.

    Args:
        epochs: The feed; its keys have no ties.
        before: The rows that were there.
    """
    rows = {row[0]: tuple(row) for row in before}
    for epoch in epochs:
        events = [event for part in epoch for event in part]
        # Of one sequence, an image before a change comes first.
        for operation, *row in sorted(events, key=lambda event: (event[4], event[0] not in BEFORE)):
            rows.pop(row[0], None)
            if operation not in (*DELETES, *BEFORE):
                rows[row[0]] = tuple(row)
    return sorted(rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedStream:
    """One streaming query of changes: its source, its checkpoint and its table `db.t`.

    Attributes:
        folder: Holds all three.
        options: Options of the sink beside those of the catalog.
        name: What its source and checkpoint are called.
    """

    folder: Path
    options: Mapping[str, str] = field(default_factory=lambda: BY_KEY)
    name: str = "feed"

    @property
    def source(self) -> Path:
        """The folder of the source's files."""
        return self.folder / f"{self.name}-source"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / f"{self.name}-checkpoint"

    @property
    def house(self) -> Warehouse:
        """The table's catalog."""
        return Warehouse(folder=self.folder / "warehouse")

    def asking(self, **options: str) -> KeyedStream:
        """Return the stream with more options; `_` stands for `-`."""
        return replace(
            self, options={**self.options, **{name.replace("_", "-"): value for name, value in options.items()}}
        )

    def feed(self, *epochs: Epoch) -> KeyedStream:
        """Add epochs to the source, each with a file for each of its tasks."""
        number = len(list(self.source.glob("*.json")))
        for epoch in epochs:
            assert len(epoch) == TASKS
            for part in epoch:
                lines = "".join(json.dumps(dict(zip(NAMES, event, strict=True))) + "\n" for event in part)
                write_file(self.source, number, lines)
                number += 1
        return self

    def job(self, fault: Fault | None = None) -> StreamJob:
        """Return the query; it takes what there is and ends."""
        return StreamJob(
            source=str(self.source),
            checkpoint=str(self.checkpoint),
            options={**self.house.options, **self.options, **(fault.arm() if fault is not None else {})},
            sink=HookedSink.name() if fault is not None else "icebergsink",
            files_per_epoch=TASKS,
            columns=COLUMNS,
        )

    def upsert_job(self, fault: Fault | None = None) -> UpsertJob:
        """Return the query that does the same by `upsert_into`."""
        job = self.job()
        faults = fault.arm() if fault is not None else {}
        return UpsertJob(**{**asdict(job), "options": {**job.options, **faults}})

    def run(self, spark: SparkSession, *epochs: Epoch) -> KeyedStream:
        """Run the query until it has taken all that there is, these epochs among it."""
        self.feed(*epochs).job().run(spark)
        return self

    def rows(self, branch: str = "main") -> list[tuple[Any, ...]]:
        """Return the rows of a branch."""
        return rows_in(self.house, branch)

    def snapshots(self) -> int:
        """Return how many snapshots the table has; none if there is no table."""
        return len(self.house.table().metadata.snapshots) if self.house.has_table() else 0


def rows_in(house: Warehouse, branch: str = "main", name: str = "db.t") -> list[tuple[Any, ...]]:
    """Return the rows of a branch of a table, after checking every file of it."""
    table = house.table(name)
    check_sound(table)
    check_deletes(table)
    return sorted(tuple(row.values()) for row in rows_of(table, branch))


def check_tidy(house: Warehouse) -> None:
    """Assert that nothing lies around in the table's folder."""
    check_clean(house.table())
