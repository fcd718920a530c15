"""A warm Spark session that writes with the sink, and with Iceberg's runtime where the session has its jar.

The measuring process of `bench_peer.py` (`remote`), started in the environment of the runtime's Spark, or in the
project's own. Its catalog `default` is an SQLite file that both sinks know.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import remote
from datasets import session
from peer_java import JavaCommits
from peer_memory import SessionMemory
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.streaming import StreamingQuery

import iceberg_ds

RUNTIME = "iceberg"  # the name of its format
_QUERY_TIMEOUT_S = 600
_LOOK_EVERY_S = 0.1


class PeerServer:
    """The session and what it can be told.

    Args:
        folder: For the session's own files.
        jars: Jars of Iceberg's runtime, none for a session of the sink alone.
        conf: Settings of the session.
    """

    def __init__(self, folder: str, jars: list[str], conf: dict[str, str]) -> None:
        self._folder = Path(folder)
        settings = {"spark.sql.streaming.numRecentProgressUpdates": "1000", **conf}
        if jars:
            settings["spark.driver.extraClassPath"] = os.pathsep.join(jars)
            settings["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        self._spark = session("bench_peer", self._folder, settings)
        iceberg_ds.register(self._spark)
        self._memory = SessionMemory.of(self._spark)
        self._sources: dict[str, DataFrame] = {}
        self.commits = JavaCommits(self._spark, self._memory)

    def versions(self) -> dict[str, str]:
        """Return the versions of Spark and of Iceberg's runtime, if the session has it."""
        known = {"spark": self._spark.version}
        if self._spark.conf.get("spark.sql.extensions", ""):
            ((known["iceberg"],),) = self.sql("SELECT system.iceberg_version()")
        return known

    def sql(self, statement: str) -> list[list[Any]]:
        """Run a statement and return its rows."""
        rows = [list(row) for row in self._spark.sql(statement).collect()]
        decoded: list[list[Any]] = json.loads(json.dumps(rows, default=str))
        return decoded

    def source(self, name: str, folder: str, key: str) -> dict[str, Any]:
        """Give Parquet files a name, and return their columns, number of rows, sum of keys and tasks."""
        self._sources[name] = rows = self._spark.read.parquet(folder)
        rows.createOrReplaceTempView(name)
        ((count, total),) = self.sql(f"SELECT count(*), sum({key}) FROM {name}")  # noqa: S608  # no outside input
        columns = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in rows.schema)
        return {"columns": columns, "totals": [count, total], "tasks": rows.rdd.getNumPartitions()}

    def small_source(self, name: str, of: str, rows: int) -> None:
        """Name the first rows of a source, in one partition that is kept in memory."""
        self._sources[name] = few = self._sources[of].limit(rows).coalesce(1).cache()
        few.createOrReplaceTempView(name)
        few.count()

    def append(self, sink: str, source: str, table: str, options: dict[str, str]) -> dict[str, float]:
        """Append a source once and return the seconds that it took, and peaks of memory."""
        self._memory.reset()
        os.sync()  # the disk is not shared with what earlier jobs left to write
        started = time.perf_counter()
        if sink == RUNTIME:
            self._spark.sql(f"INSERT INTO {table} SELECT * FROM {source}")  # noqa: S608  # no outside input
        else:
            self._sources[source].write.format(sink).options(**options).mode("append").save(table)
        return {"seconds": time.perf_counter() - started, **self._memory.peaks()}

    def divide(self, sink: str, source: str, tables: list[str], options: dict[str, str]) -> dict[str, float]:
        """Append each row of a source to one of several tables, and return the seconds that it took, and peaks.

        The sink takes one pass over the rows. The runtime gets what its users write in `foreachBatch`: the rows are
        kept in memory, and each table gets a write of those that a filter leaves.

        Args:
            sink: The name of its format.
            source: The source.
            tables: Identifiers of the tables; the part key of a row says which of them is its own.
            options: Options of the sink.
        """
        named = F.element_at(
            F.array(*map(F.lit, tables)), F.pmod(F.col("l_partkey"), F.lit(len(tables))).cast("int") + 1
        )
        rows = self._sources[source].withColumn("kind", named)
        self._memory.reset()
        os.sync()
        started = time.perf_counter()
        if sink == RUNTIME:
            rows.persist()
            for table in tables:
                rows.filter(F.col("kind") == table).drop("kind").writeTo(table).append()
            rows.unpersist(blocking=True)
        else:
            routed = {"route-by": "kind", "route-tables": ",".join(tables), **options}
            rows.write.format(sink).options(**routed).mode("append").save()
        return {"seconds": time.perf_counter() - started, **self._memory.peaks()}

    def stream(self, sink: str, table: str, options: dict[str, str], load: dict[str, int]) -> dict[str, Any]:
        """Run micro-batches into a table, and return the milliseconds of those after the first ones.

        Args:
            sink: What `format()` takes.
            table: The table.
            options: Options of the sink.
            load: `rows` and `tasks` of a micro-batch, `warming` ones that are not counted, and `batches` that are.
        """
        source = self._spark.readStream.format("rate-micro-batch").options(
            rowsPerBatch=load["rows"], numPartitions=load["tasks"]
        )
        return self._stream_of(source.load(), sink, table, options, load)

    def _stream_of(
        self, rows: DataFrame, sink: str, table: str, options: dict[str, str], load: dict[str, int]
    ) -> dict[str, Any]:
        """Run micro-batches of rows, as `stream` does."""
        checkpoint = self._folder / f"checkpoint-{time.monotonic_ns()}"
        writer = rows.writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint))
        # `toTable` would take the table from the session's catalog, and so write with the runtime, whatever the format.
        query = writer.toTable(table) if sink == RUNTIME else writer.start(table)
        try:
            counted = _counted(query, load["warming"], load["batches"])
        finally:
            query.stop()
        return {
            "triggers": [progress["durationMs"]["triggerExecution"] for progress in counted],
            "median_add_batch": statistics.median(progress["durationMs"]["addBatch"] for progress in counted),
            "committed": len(list((checkpoint / "commits").glob("[0-9]*"))),
        }


def _counted(query: StreamingQuery, warming: int, batches: int) -> list[Any]:
    """Wait for so many micro-batches and return the progress of those after the first `warming`.

    Raises:
        RuntimeError: The query has failed, or takes too long.
    """
    deadline = time.monotonic() + _QUERY_TIMEOUT_S
    while True:
        done = [progress for progress in query.recentProgress if progress["numInputRows"]]
        if len(done) >= warming + batches:
            return done[warming : warming + batches]
        if not query.isActive or time.monotonic() > deadline:
            raise RuntimeError(f"The query has done {len(done)} micro-batches; its error: {query.exception()}")
        time.sleep(_LOOK_EVERY_S)


class _Doors:
    """What requests may name: the server's own methods, and those of the Java API."""

    def __init__(self, server: PeerServer) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any method
        return getattr(self._server if hasattr(self._server, name) else self._server.commits, name)


if __name__ == "__main__":
    remote.serve(_Doors(PeerServer(**remote.arguments())))
