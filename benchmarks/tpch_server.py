"""A session of `bench_tpch.py`: that of `upsert_server.py`, which also writes TPC-H's tables and queries them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import remote
from pyspark.sql import DataFrame
from tpch import as_answer
from upsert_server import UpsertServer

import iceberg_ds


class TpchServer(UpsertServer):
    """The session and what it can be told beside writes."""

    def load(self, file: str, table: str, options: Mapping[str, str]) -> None:
        """Let the sink write a Parquet file into a new table."""
        self._spark.read.parquet(file).write.format("icebergsink").options(**options).mode("append").save(table)

    def query(self, statement: str, views: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
        """Run a query, planning included; return as `timed`, and its `answer`.

        Args:
            statement: The query.
            views: The tables that `iceberg_ds.read` reads for it, by the names that it has for them; none for a query
                over the runtime's tables.
            options: The options that lead to these tables.
        """
        columns: list[str] = []
        rows: list[Any] = []

        def work() -> None:
            for name, table in views.items():
                self._read(table, options).createOrReplaceTempView(name)
            frame = self._spark.sql(statement)
            columns.extend(frame.columns)
            rows.extend(frame.collect())

        measured = self._timed(work)
        return {**measured, "answer": as_answer(columns, rows)}

    def _read(self, table: str, options: Mapping[str, str]) -> DataFrame:
        return iceberg_ds.read(self._spark, table, options=options, reader="spark")


if __name__ == "__main__":
    remote.serve(TpchServer(**remote.arguments()))
