"""The session of `bench_read.py`: that of `upsert_server.py`, which also reads tables in several ways."""

from __future__ import annotations

from collections.abc import Mapping

import remote
from pyspark.sql import DataFrame
from upsert_server import UpsertServer

import iceberg_ds

ROWS = "rows_read"


class ReadServer(UpsertServer):
    """The session and what it can be told beside writes."""

    def read(self, table: str, variant: str, query: str, options: Mapping[str, str]) -> dict[str, float]:
        """Run a query over the rows of a table, planning included; return as `timed`.

        Args:
            table: The table.
            variant: `jvm` for the runtime; else the reader of `iceberg_ds.read`.
            query: A statement over `rows_read`; empty to read all columns of all rows.
            options: The options that lead to the table.
        """

        def work() -> None:
            frame = self._frame(table, variant, options)
            if not query:
                frame.write.format("noop").mode("overwrite").save()
                return
            frame.createOrReplaceTempView(ROWS)
            self._answer = [list(map(str, row)) for row in self._spark.sql(query).collect()]

        self._answer: list[list[str]] = []
        return self._timed(work)

    def answer(self) -> list[list[str]]:
        """Return what the last query answered."""
        return self._answer

    def _frame(self, table: str, variant: str, options: Mapping[str, str]) -> DataFrame:
        if variant == "jvm":
            return self._spark.table(table)
        return iceberg_ds.read(self._spark, table, options=options, reader=variant)  # type: ignore[arg-type]  # given


if __name__ == "__main__":
    remote.serve(ReadServer(**remote.arguments()))
