"""Writes and commits with the sink's own writers as Spark does, but without Spark: a process of `peer_commits.py`.

Spark plans, writes and commits in different Python processes, and ships writers and messages pickled. So one of these
processes plans and writes, and leaves pickles in a file; another one unpickles and commits them, and is timed.
Importing only what Spark's own process would import is part of that: nothing here loads a catalog before the sink does.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import remote
from peer_memory import peak_bytes
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from iceberg_ds import IcebergSink

# More than a task would hand over within its message: every task writes files.
TASK_BYTES = 16_000_000
_MOMENT = dt.datetime(2024, 5, 6, tzinfo=dt.timezone.utc)
# The columns of `commit_case.table_schema`, in the types that Spark sends.
_KINDS: tuple[tuple[pa.DataType, int, Callable[[int], object]], ...] = (
    (pa.int64(), 3, int),
    (pa.int32(), 1, int),
    (pa.float64(), 2, float),
    (pa.decimal128(12, 2), 2, decimal.Decimal),
    (pa.string(), 5, str),
    (pa.date32(), 3, lambda number: _MOMENT.date() + dt.timedelta(days=number % 1000)),
    (pa.timestamp("us", "UTC"), 1, lambda number: _MOMENT + dt.timedelta(seconds=number)),
)
_PARTITION, _TEXT = 3, 8  # positions of an integer, by which partitioned tables are, and of a text


def task_batch(files: int) -> pa.RecordBatch:
    """Return the rows of one task: `TASK_BYTES` in so many partitions, all of them in every stretch of rows."""
    rows = max(files, 1_000)
    columns = [pa.array([make(row) for row in range(rows)], kind) for kind, times, make in _KINDS for _ in range(times)]
    columns[_PARTITION] = pa.array([row % files for row in range(rows)], pa.int32())
    columns[_TEXT] = pa.array(["x" * (TASK_BYTES // rows)] * rows)
    return pa.record_batch(columns, names=[f"c{number}" for number in range(1, len(columns) + 1)])


class Committer:
    """A process that plans and writes, or commits.

    The catalog stands in its environment: a batch forgets options of a catalog when it is committed, and these batches
    are committed in every round.
    """

    def __init__(self, options: dict[str, str]) -> None:
        prefix = f"PYICEBERG_CATALOG__{options['catalog'].upper()}__"
        for option, value in options.items():
            if option.startswith("catalog."):
                os.environ[prefix + option.removeprefix("catalog.").replace(".", "__").upper()] = value
        self._options = {"catalog": options["catalog"]}
        self._batches: dict[int, pa.RecordBatch] = {}

    def write_batch(self, table: str, tasks: int, files: int, target: str) -> int:
        """Write a batch of `tasks` tasks with `files` files each, leave it in file `target`, and return its rows."""
        batch, schema = self._rows(files)
        writer = self._sink(table).writer(schema, overwrite=False)
        in_task = pickle.loads(pickle.dumps(writer))  # noqa: S301  # Spark pickles it for the tasks first
        messages = [pickle.dumps(_in_task(in_task, iter([batch]), task)) for task in range(tasks)]
        Path(target).write_bytes(pickle.dumps((pickle.dumps(writer), messages)))
        return tasks * batch.num_rows

    def write_epoch(self, table: str, query: str, epoch: int, target: str) -> None:
        """Write a micro-batch of one task with one file, and leave it in file `target`."""
        batch, schema = self._rows(1)
        source = self._sink(table)
        in_task = pickle.loads(pickle.dumps(source.streamWriter(schema, overwrite=False)))  # noqa: S301
        properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(epoch), "spark.jobGroup.id": query}
        messages = [pickle.dumps(_in_task(in_task, iter([batch]), 0, properties))]
        Path(target).write_bytes(pickle.dumps((pickle.dumps(source), messages)))

    def commit_batch(self, target: str) -> dict[str, float]:
        """Commit what `write_batch` has left; messages are unpickled within the time, as Spark's process does it."""
        before = peak_bytes()
        pickled, pickles = pickle.loads(Path(target).read_bytes())  # noqa: S301
        started = time.perf_counter()
        writer = pickle.loads(pickled)  # noqa: S301
        writer.commit([pickle.loads(message) for message in pickles])  # noqa: S301
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "memory_added_bytes": peak_bytes() - before,
            "message_bytes": sum(map(len, pickles)),
        }

    def commit_epoch(self, target: str, epoch: int) -> float:
        """Commit what `write_epoch` has left, and return the seconds; a new writer does it, as in Spark."""
        pickled, pickles = pickle.loads(Path(target).read_bytes())  # noqa: S301
        _, schema = self._rows(1)
        started = time.perf_counter()
        writer = pickle.loads(pickled).streamWriter(schema, overwrite=False)  # noqa: S301
        writer.commit([pickle.loads(message) for message in pickles], epoch)  # noqa: S301
        return time.perf_counter() - started

    def _sink(self, table: str) -> IcebergSink:
        return IcebergSink({**self._options, "path": table})

    def _rows(self, files: int) -> tuple[pa.RecordBatch, StructType]:
        batch = self._batches.get(files) or self._batches.setdefault(files, task_batch(files))
        return batch, from_arrow_schema(batch.schema)


def _in_task(
    writer: Any,  # noqa: ANN401  # of a batch or of a stream
    batches: Iterator[pa.RecordBatch],
    number: int,
    properties: dict[str, str] | None = None,
) -> object:
    """Have a writer write the rows of task `number`, in a task as Spark describes it to its workers."""
    task = TaskContext._getOrCreate()  # noqa: SLF001  # as Spark's worker does
    task._partitionId = number  # noqa: SLF001
    task._taskAttemptId = number  # noqa: SLF001
    task._localProperties = properties or {}  # noqa: SLF001
    return writer.write(batches)


if __name__ == "__main__":
    remote.serve(Committer(**remote.arguments()))
