"""One streaming query in two hands: the sink's, and those of Iceberg's own Spark runtime (`jvm_peer`).

Each takes what the source has, under the same checkpoint and so with the same query id, and ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pyspark.sql import SparkSession
from support.catalogs.shared_catalog import SharedCatalog
from support.peer.jvm_peer import PeerCatalog
from support.spark.jobs import SCHEMA, remove_last_commit
from support.spark.stream_runs import FILES_PER_EPOCH, Stream
from support.tables.sink import NAME
from support.tables.sink import SCHEMA as ROW

from iceberg_ds.snapshots.txn import EPOCHS


class Writer(Enum):
    """Whose sink runs the query."""

    SINK = "icebergsink"
    JVM = "iceberg"

    @property
    def other(self) -> Writer:
        """The one that takes over."""
        return Writer.JVM if self is Writer.SINK else Writer.SINK


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStream:
    """A query that both run, each in a Spark of its own, and table `db.t`, which both know.

    Attributes:
        stream: Its source, checkpoint and table.
        shared: The table's catalog.
        spark: The sink's Spark.
    """

    stream: Stream
    shared: SharedCatalog
    spark: SparkSession

    def run(self, writer: Writer, epochs: int = 0) -> None:
        """Add rows for so many epochs to the source, and have `writer` take all that it has not recorded yet."""
        self.stream.grow(epochs)
        if writer is Writer.SINK:
            self.stream.job().run(self.spark)
        else:
            run_by_jvm(self.shared.jvm, self.stream.source, self.stream.checkpoint)

    def lose_last_record(self) -> int:
        """Leave the checkpoint as a crash between the last commit and Spark's record of it; return the epoch."""
        return remove_last_commit(self.stream.checkpoint)

    def append_by_another_writer(self, *ids: int) -> None:
        """Append rows that are not the stream's."""
        self.shared.append_by_jvm([{"id": row, "name": "other"} for row in ids], ROW)

    def expire_all_but_newest(self) -> None:
        """Expire every snapshot but the current one, as the runtime's own procedure does it."""
        self.shared.call("expire_snapshots", "older_than => TIMESTAMP '2200-01-01', retain_last => 1")
        assert self.stream.snapshots() == 1

    def epochs(self) -> list[int]:
        """Return the epochs that the snapshots tell of, oldest first, after checking that they are of one query."""
        marks = [summary for summary in self.stream.warehouse.snapshots() if summary.get(EPOCHS.writer_key)]
        assert len({summary[EPOCHS.writer_key] for summary in marks}) <= 1
        return [int(summary[EPOCHS.number_key] or -1) for summary in marks]

    def check_ids(self, *others: int) -> None:
        """Assert that both readers find every row of the source once, and these rows of others."""
        self.check_exactly([*others, *self.stream.source_ids()])

    def check_exactly(self, ids: Sequence[int]) -> None:
        """Assert that both readers find rows with these ids."""
        assert self.stream.ids() == sorted(ids)
        assert [row["id"] for row in self.shared.rows_of_jvm()] == sorted(ids)


def run_by_jvm(jvm: PeerCatalog, source: Path, checkpoint: Path) -> None:
    """Run the stream of `support.spark.stream_runs` into `db.t` with `format("iceberg")` until it has taken all.

    Raises:
        PeerError: It failed.
    """
    options = {"checkpointLocation": str(checkpoint), "maxFilesPerTrigger": str(FILES_PER_EPOCH)}
    jvm.peer.ask("stream", session=jvm.session, table=NAME, schema=SCHEMA, source=str(source), options=options)
