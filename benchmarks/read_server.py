"""The session of the benchmarks of reads: that of `upsert_server.py`, which also reads tables and copies them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import remote
from peer_server import RUNTIME
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from upsert_server import UpsertServer

import iceberg_ds

ROWS = "rows_read"


class ReadServer(UpsertServer):
    """The session and what it can be told beside writes."""

    def read(
        self, table: str, variant: str, query: str, options: Mapping[str, str], where: str | None = None
    ) -> dict[str, float]:
        """Run a query over the rows of a table, planning included; return as `timed`.

        Args:
            table: The table.
            variant: `jvm` for the runtime; else the reader of `iceberg_ds.read`.
            query: A statement over `rows_read`; empty to read all columns of all rows.
            options: The options that lead to the table.
            where: The rows that are read; None for all.
        """

        def work() -> None:
            frame = self._frame(table, variant, options, where)
            if not query:
                frame.write.format("noop").mode("overwrite").save()
                return
            frame.createOrReplaceTempView(ROWS)
            self._answer = [list(map(str, row)) for row in self._spark.sql(query).collect()]

        self._answer: list[list[str]] = []
        return self._timed(work)

    def read_changes(self, table: str, variant: str, start: int, options: Mapping[str, str]) -> dict[str, float]:
        """Read all columns of the changes after a snapshot, with updates by `id`, planning included; return as `timed`.

        The answer is how many there are of each kind.

        Args:
            table: The table.
            variant: `jvm` for the view of the runtime, or `spark`.
            start: The snapshot.
            options: The options that lead to the table.
        """

        def work() -> None:
            frame = self._changes(table, variant, start, options)
            names = [name for name in frame.columns if not name.startswith("_")]
            # Each value is looked at, and few rows are collected.
            counted = frame.groupBy("_change_type").agg(F.count("*"), *(F.count(name) for name in names))
            self._answer = sorted([list(map(str, row)) for row in counted.collect()])

        self._answer = []
        return self._timed(work)

    def copy(
        self, table: str, variant: str, target: str, options: dict[str, str], load: dict[str, int]
    ) -> dict[str, Any]:
        """Copy a table by a stream, one file in a micro-batch, and return as `stream`.

        Args:
            table: The table.
            variant: `jvm` for source and sink of the runtime, or `ours`.
            target: The table that the rows go to.
            options: The options that lead to the tables.
            load: How many `warming` micro-batches are not counted, and how many `batches` are.
        """
        source, sink = (RUNTIME, RUNTIME) if variant == "jvm" else ("icebergsource", "icebergsink")
        given = {} if variant == "jvm" else options
        reader = self._spark.readStream.format(source).options(**given)
        rows = reader.option("streaming-max-files-per-micro-batch", "1").load(table)
        return self._stream_of(rows, sink, target, given, load)

    def answer(self) -> list[list[str]]:
        """Return what the last query answered."""
        return self._answer

    def _changes(self, table: str, variant: str, start: int, options: Mapping[str, str]) -> DataFrame:
        if variant == "spark":
            return iceberg_ds.read_changes(self._spark, table, options=options, start=start, keys=["id"])
        catalog = self._spark.catalog.currentCatalog()
        arguments = f"options => map('start-snapshot-id', '{start}'), identifier_columns => array('id')"
        call = f"CALL {catalog}.system.create_changelog_view(table => '{table}', changelog_view => 'seen', {arguments})"
        self._spark.sql(call)
        return self._spark.table("seen")

    def _frame(self, table: str, variant: str, options: Mapping[str, str], where: str | None) -> DataFrame:
        if variant == "jvm":
            rows = self._spark.table(table)
            return rows if where is None else rows.where(where)
        return iceberg_ds.read(self._spark, table, options=options, reader=variant, where=where)  # type: ignore[arg-type]  # given


if __name__ == "__main__":
    remote.serve(ReadServer(**remote.arguments()))
