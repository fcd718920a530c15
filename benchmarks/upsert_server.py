"""The session of `bench_upserts.py` and `bench_rewrites.py`: that of `peer_server.py`, which makes changes of keys."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import remote
from peer_server import PeerServer

import iceberg_ds

# Odd and no divisor of round numbers: multiplied by it, neighbours lie far apart, and no two come to one place.
_SCATTER = 6_700_417


def columns_of(number: str, version: int) -> dict[str, str]:
    """Return the columns of a row, in SQL: the key is `number`, all others are hashes of it and of `version`."""
    drawn = f"xxhash64({number}, {version})"
    return {
        "id": number,
        "region": f"concat('region ', pmod({drawn}, 20))",
        "amount": f"pmod({drawn}, 1000000) / 100D",
        "units": f"CAST(pmod({drawn}, 50) AS INT)",
        "at": f"timestamp_seconds(1700000000 + pmod({drawn}, 10000000))",
        "note": f"concat_ws(' ', hex({drawn}), hex(xxhash64({drawn})), 'as ordered')",
    }


class UpsertServer(PeerServer):
    """The session and what it can be told beside appends."""

    def fill(self, table: str, rows: int, files: int) -> None:
        """Let the runtime insert rows with the keys from 0 on into a table, in so many files of neighbours."""
        self._spark.range(0, rows, 1, files).createOrReplaceTempView("numbers")
        columns = ", ".join(f"{text} AS {name}" for name, text in columns_of("id", 0).items())
        self._spark.sql(f"INSERT INTO {table} SELECT {columns} FROM numbers")  # noqa: S608  # no outside input

    def changes(self, name: str, *, order: str, number: int, keys: int, rows: int) -> None:
        """Write the changes of a round into two files, and name them: nine of ten keys exist, one of ten is deleted.

        Args:
            name: What they are called from then on.
            order: `random` or `clustered`, how the keys lie in the table.
            number: The round's; each has other keys.
            keys: How many.
            rows: The table's rows, whose keys are 0 to below that.
        """
        if rows % _SCATTER == 0:
            raise ValueError(f"choose another number of rows than {rows}")
        first = number * keys
        places = {"random": f"((id + {first}) * {_SCATTER}) % {rows}", "clustered": f"({first} * 7 + id) % {rows}"}
        found = self._spark.range(0, keys, 1, 2).selectExpr(
            "CASE id % 10 WHEN 0 THEN 'I' WHEN 1 THEN 'D' ELSE 'U' END AS op",
            f"IF(id % 10 = 0, {rows + first} + id, {places[order]}) AS key",
        )
        folder = str(self._folder / name)
        columns = [f"{text} AS {name}" for name, text in columns_of("key", number + 1).items()]
        found.selectExpr("op", *columns).write.parquet(folder)
        self._sources[name] = self._spark.read.parquet(folder)
        self._sources[name].createOrReplaceTempView(name)

    def distribute(self, name: str, *, of: str, keys: Sequence[str], tasks: int) -> None:
        """Name a source whose rows are distributed by key whenever it is written."""
        self._sources[name] = iceberg_ds.distribute(self._sources[of], keys=list(keys), num_partitions=tasks)

    def upsert(self, source: str, table: str, options: dict[str, str]) -> dict[str, float]:
        """Upsert a source by the function that looks for the old rows; return as `timed`."""
        return self._timed(lambda: iceberg_ds.upsert(self._sources[source], table, options=options))

    def convert(self, table: str, options: dict[str, str]) -> dict[str, float]:
        """Convert a table's deletes by keys; return as `timed`."""
        return self._timed(lambda: iceberg_ds.convert_deletes(table, self._spark, options=options))

    def rewrite(self, table: str, options: dict[str, str], sort_order: str | None) -> dict[str, float]:
        """Rewrite all data files of a table, sorted if an order is given; return as `timed`."""
        return self._timed(
            lambda: iceberg_ds.rewrite_data_files(
                table,
                self._spark,
                strategy="binpack" if sort_order is None else "sort",
                sort_order=sort_order,
                options=options,
            )
        )

    def timed(self, statement: str) -> dict[str, float]:
        """Run a statement; return the seconds that it took, and peaks of memory."""
        return self._timed(lambda: self._spark.sql(statement).collect())

    def _timed(self, work: Callable[[], object]) -> dict[str, float]:
        self._memory.reset()
        os.sync()
        started = time.perf_counter()
        work()
        return {"seconds": time.perf_counter() - started, **self._memory.peaks()}


if __name__ == "__main__":
    remote.serve(UpsertServer(**remote.arguments()))
