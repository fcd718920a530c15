"""A new Spark session that appends a few rows with one sink: the measuring process of `bench_first.py`."""

from __future__ import annotations

import time
from pathlib import Path

import remote
from noop_sink import register_noop
from peer_server import RUNTIME, PeerServer


class FirstSession(PeerServer):
    """The session, which also knows the sink that drops its rows."""

    def first(self, sink: str, rows: int, table: str, options: dict[str, str]) -> list[float]:
        """Append rows twice and return the seconds that each append took.

        The rows are made by Spark, and the table is new. The session has run nothing before.

        Args:
            sink: What `format()` takes.
            rows: How many.
            table: The table.
            options: Options of the sink.
        """
        if sink not in {RUNTIME, "icebergsink"}:
            register_noop(self._spark)
        taken = []
        for _ in range(2):
            started = time.perf_counter()
            few = self._spark.range(rows, numPartitions=2).selectExpr("id", "concat('row ', id) AS name")
            if sink == RUNTIME and not taken:
                few.writeTo(table).create()
            elif sink == RUNTIME:
                few.writeTo(table).append()
            else:
                few.write.format(sink).options(**options).mode("append").save(table)
            taken.append(time.perf_counter() - started)
        return taken


if __name__ == "__main__":
    arguments = remote.arguments()
    Path(str(arguments["folder"])).mkdir(parents=True, exist_ok=True)
    remote.serve(FirstSession(**arguments))
