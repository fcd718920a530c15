"""Commits by Iceberg's own Java library, as its Spark runtime makes them on the driver, timed without any write.

`commit_all` is what the runtime does when a batch ends: `newAppend`, `appendFile` for every file that tasks report,
`commit`. `commit_one` is what it does when a micro-batch ends: refresh the table, `newFastAppend`, the epoch in the
summary, `appendFile`, `commit`. The files are entries of another table's snapshot that Java has in memory already.
"""

from __future__ import annotations

import time
from typing import Any

from peer_memory import SessionMemory
from pyspark.sql import SparkSession

_CATALOG = "default"
_API = "org.apache.iceberg"


class JavaCommits:
    """Tables of catalog `default`, loaded by Java."""

    def __init__(self, spark: SparkSession, memory: SessionMemory) -> None:
        self._spark = spark
        self._memory = memory
        self._tables: dict[str, Any] = {}
        self._files: list[Any] = []

    def hold_files(self, table: str) -> int:
        """Keep the files of the table's current snapshot for the commits to come, and return their number."""
        loaded = self._load(table)
        self._files = loaded.currentSnapshot().addedDataFiles(loaded.io())
        return len(self._files)

    def commit_all(self, table: str) -> dict[str, float]:
        """Append all held files to a table in one commit."""
        loaded = self._load(table)
        self._memory.reset()
        started = time.perf_counter()
        append = loaded.newAppend()
        # One call from Python for all files: Java itself hands each to `appendFile`.
        self._files.forEach(self._taker(append))
        append.commit()
        return {"seconds": time.perf_counter() - started, **self._memory.peaks()}

    def commit_one(self, table: str, query: str, epoch: int) -> float:
        """Append the first held file to a table, as the given epoch, and return the seconds."""
        loaded = self._tables[table] if table in self._tables else self._load(table)
        file = self._files[0]
        started = time.perf_counter()
        loaded.refresh()
        append = loaded.newFastAppend()
        append.set("spark.sql.streaming.queryId", query)
        append.set("spark.sql.streaming.epochId", str(epoch))
        append.appendFile(file)
        append.commit()
        return time.perf_counter() - started

    def _load(self, name: str) -> Any:  # noqa: ANN401  # an object of Java
        java = self._spark._jvm  # noqa: SLF001
        catalogs = self._spark._jsparkSession.sessionState().catalogManager()  # noqa: SLF001
        identifier = java.org.apache.iceberg.catalog.TableIdentifier.parse(name)
        self._tables[name] = catalogs.catalog(_CATALOG).icebergCatalog().loadTable(identifier)
        return self._tables[name]

    def _taker(self, append: Any) -> Any:  # noqa: ANN401  # objects of Java
        """Return a consumer that hands what it gets to `appendFile`."""
        java = self._spark._jvm  # noqa: SLF001
        named = java.java.lang.Class.forName
        of = java.java.lang.invoke
        kind = of.MethodType.methodType(named(f"{_API}.AppendFiles"), named(f"{_API}.DataFile"))
        handle = of.MethodHandles.publicLookup().findVirtual(named(f"{_API}.AppendFiles"), "appendFile", kind)
        return of.MethodHandleProxies.asInterfaceInstance(named("java.util.function.Consumer"), handle.bindTo(append))
