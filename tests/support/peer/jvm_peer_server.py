"""The program of `jvm_peer.JvmPeer`: a Spark with Iceberg's runtime that does what it reads from standard input.

Runs in the peer's own environment, which has PySpark and nothing else. One JSON object a line in, one out.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from support.spark.typed_json import decode, encode_rows

_AT_ONCE = 16


class Server:
    """The sessions, by the names that the client has given them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._sessions: dict[str, SparkSession] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE)
        self._begun: dict[str, Future[dict[str, Any]]] = {}

    def open(self, session: str, conf: dict[str, str]) -> dict[str, Any]:
        """Begin a session with settings of its own, and so with catalogs of its own."""
        self._sessions[session] = self._spark.newSession()
        for key, value in conf.items():
            self._sessions[session].conf.set(key, value)
        return {}

    def close(self, session: str) -> dict[str, Any]:
        """Forget a session."""
        del self._sessions[session]
        return {}

    def sql(self, session: str, statement: str) -> dict[str, Any]:
        """Run a statement and return its rows, and how long it took."""
        started = time.perf_counter()
        result = self._sessions[session].sql(statement)
        rows = result.collect()
        seconds = time.perf_counter() - started
        return {"columns": result.columns, "rows": encode_rows(rows, result.schema), "seconds": seconds}

    def constants(self, name: str) -> dict[str, Any]:
        """Return the public constants of a Java class that are text, numbers or booleans, and sets of text."""
        java = self._spark._jvm.java
        found = {}
        for field in java.lang.Class.forName(name).getFields():
            value = field.get(None)
            found[field.getName()] = sorted(value) if hasattr(value, "iterator") else value
        return {"constants": found}

    def begin(self, session: str, statement: str, name: str) -> dict[str, Any]:
        """Let a statement run beside what is asked for next, under a name."""
        self._begun[name] = self._threads.submit(self.sql, session, statement)
        return {}

    def finish(self, name: str) -> dict[str, Any]:
        """Wait for a statement that was begun, and return what it answers."""
        return self._begun.pop(name).result()

    def view(self, session: str, name: str, schema: dict[str, Any], rows: list[Any]) -> dict[str, Any]:
        """Give rows a name in a session's statements."""
        data_type = StructType.fromJson(schema)
        # The rows have been checked where they come from: dates and maps would be checked a second time.
        frame: DataFrame = self._sessions[session].createDataFrame(decode(rows, dict), data_type, verifySchema=False)
        frame.coalesce(1).createOrReplaceTempView(name)
        return {}

    def stream(self, session: str, table: str, schema: str, source: str, options: dict[str, str]) -> dict[str, Any]:
        """Run a stream of JSON files into a table, with options for both, until it has taken all that there is."""
        spark = self._sessions[session]
        # Iceberg looks its table up in the session that Java holds for the active one, which is the first.
        sessions = self._spark._jvm.org.apache.spark.sql.classic.SparkSession
        sessions.setActiveSession(spark._jsparkSession)
        files = spark.readStream.schema(schema).options(**options).json(source)
        query = files.writeStream.format("iceberg").options(**options).trigger(availableNow=True).toTable(table)
        try:
            query.awaitTermination()
        finally:
            query.stop()
            sessions.clearActiveSession()
        return {"epochs": [progress["batchId"] for progress in query.recentProgress]}


def main() -> None:
    """Start Spark, say so, and serve until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what Java prints goes to the log

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    builder = SparkSession.Builder()
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    server = Server(spark)
    answer({"spark": spark.version})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer(getattr(server, request.pop("do"))(**request))
        except Exception as error:
            traceback.print_exc()
            lines = [line for line in str(error).splitlines() if not line.lstrip().startswith(("at ", "... "))]
            answer({"error": "\n".join([type(error).__name__, *lines])})
    spark.stop()


if __name__ == "__main__":
    main()
