"""A stream of numbered rows into a table, run again and again, and what its table must hold afterwards."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from support.checks.invariants import unreferenced_files
from support.hooks.faults import Fault
from support.hooks.hooked_sink import HookedSink
from support.spark.jobs import StreamJob, write_source
from support.spark.tables import Warehouse

ROWS_PER_FILE = 25
FILES_PER_EPOCH = 2  # each is a task of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One streaming query: its source, its checkpoint and its table.

    Attributes:
        folder: Holds all three.
        checkpoint_name: Name of the checkpoint's folder; a copy of it is a second driver's.
        version: Format version of the table.
    """

    folder: Path
    checkpoint_name: str = "checkpoint"
    version: str = "2"

    @property
    def source(self) -> Path:
        """The folder of the source's files."""
        return self.folder / "source"

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / self.checkpoint_name

    @property
    def warehouse(self) -> Warehouse:
        """The table's catalog."""
        return Warehouse(folder=self.folder / "warehouse")

    def grow(self, epochs: int) -> Stream:
        """Add rows for so many epochs to the source."""
        first = len(self.source_files())
        files = range(first, first + epochs * FILES_PER_EPOCH)
        write_source(
            self.source,
            (range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE) for number in files),
            first_file=first,
        )
        return self

    def source_files(self) -> list[Path]:
        """Return the files of the source."""
        return list(self.source.glob("*.json"))

    def source_ids(self) -> list[int]:
        """Return the ids of all rows in the source, in order."""
        return list(range(len(self.source_files()) * ROWS_PER_FILE))

    def job(self, fault: Fault | None = None, **options: str) -> StreamJob:
        """Return the query; it takes what there is and ends.

        Args:
            fault: The fault that it meets.
            options: More options of the sink; `_` stands for `-`.
        """
        armed = fault.arm() if fault is not None else {}
        more = {key.replace("_", "-"): value for key, value in options.items()}
        return StreamJob(
            source=str(self.source),
            checkpoint=str(self.checkpoint),
            options={**self.warehouse.options, "format-version": self.version, **armed, **more},
            sink=HookedSink.name() if fault is not None else "icebergsink",
            files_per_epoch=FILES_PER_EPOCH,
        )

    def run(self, spark: SparkSession) -> None:
        """Run the query until it has taken all that there is, and check that it skips or doubles nothing."""
        self.job().run(spark)
        self.check_complete()

    def start_live(self, spark: SparkSession, fault: Fault | None = None) -> StreamingQuery:
        """Start the query so that it goes on until it is stopped."""
        return replace(self.job(fault), trigger={"processingTime": "0 seconds"}).start(spark)

    def copy(self, checkpoint_name: str) -> Stream:
        """Return a second driver of the query, that has a copy of the checkpoint."""
        shutil.copytree(self.checkpoint, self.folder / checkpoint_name)
        return replace(self, checkpoint_name=checkpoint_name)

    def roll_back_to(self, backup: Stream) -> None:
        """Put the checkpoint of `backup` in the place of this one's."""
        shutil.rmtree(self.checkpoint)
        shutil.copytree(backup.checkpoint, self.checkpoint)

    def ids(self) -> list[int]:
        """Return the ids in the table, in order; none if there is no table."""
        return self.warehouse.ids() if self.warehouse.has_table() else []

    def snapshots(self) -> int:
        """Return how many snapshots the table has."""
        return len(self.warehouse.table().metadata.snapshots) if self.warehouse.has_table() else 0

    def orphans(self) -> set[Path]:
        """Return the data and metadata files that no snapshot refers to."""
        return unreferenced_files(self.warehouse.table())

    def check_complete(self) -> None:
        """Assert that the table holds every row of the source exactly once, in files that exist."""
        assert self.ids() == self.source_ids()

    def check_no_duplicate(self) -> None:
        """Assert that the table holds no row twice, and none that is not in the source."""
        ids = self.ids()
        assert len(ids) == len(set(ids))
        assert set(ids) <= set(self.source_ids())
