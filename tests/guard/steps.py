"""The steps that Spark's processes take with the sink, in one process: plan, tasks, commit, with pickles in between.

Everything goes through `IcebergSink` itself, as Spark calls it, so that no step of the sink can move out of the count.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from iceberg_ds.datasource import IcebergSink

if TYPE_CHECKING:
    import pyarrow as pa  # what a planner or committer loads of it, the sink is to answer for

QUERY = "0b9f2c1e-1111-4222-8333-444455556666"
RUN = "7c1d2e3f-1111-4222-8333-444455556666"
SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("part", LongType()),
        StructField("name", StringType()),
        StructField("amount", DoubleType()),
    ]
)
_spark = CloudPickleSerializer()

# Called with the name of each step and what the step does.
Watch = Callable[[str, Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What travelled between the processes, in bytes.

    Attributes:
        writer: The writer that each task gets.
        message: The longest message of a task.
    """

    writer: int
    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a job.

    Attributes:
        tasks: How many tasks write them.
        batches: How many batches each gets.
        batch_rows: Rows of each batch.
        parts: Different values of column `part`, mixed.
    """

    tasks: int = 2
    batches: int = 1
    batch_rows: int = 1_000
    parts: int = 8

    def of_task(self, task: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task, the same in every run."""
        import pyarrow as pa  # noqa: PLC0415

        for batch in range(self.batches):
            first = (task * self.batches + batch) * self.batch_rows
            ids = range(first, first + self.batch_rows)
            columns = {
                "id": _fixed(pa.int64(), array("q", ids)),
                "part": _fixed(pa.int64(), array("q", (number * 7919 % self.parts for number in ids))),
                "name": _texts([f"row {number * 104729 % 1_000_003}" for number in ids]),
                "amount": _fixed(pa.float64(), array("d", (number * 0.37 for number in ids))),
            }
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _fixed(kind: pa.DataType, values: array[Any]) -> pa.Array:
    """Return the values as Arrow has them. Its own way from Python would load pandas."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _texts(values: Sequence[str]) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415

    ends = array("i", accumulate(map(len, values), initial=0))
    return pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(ends), pa.py_buffer("".join(values).encode())]
    )


def as_spark_sends(value: object) -> bytes:
    """Return the value as Spark's Python pickles it."""
    return bytes(_spark.dumps(value))


@contextmanager
def task_of(number: int, epoch: int | None) -> Iterator[None]:
    """Be a task of Spark: partition and attempt `number`, of a micro-batch unless `epoch` is None."""
    before = TaskContext._taskContext
    TaskContext._taskContext = None
    context = TaskContext._getOrCreate()
    context._partitionId, context._taskAttemptId = number, number
    told = {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": str(epoch), "spark.jobGroup.id": RUN}
    context._localProperties = {} if epoch is None else told
    try:
        yield
    finally:
        TaskContext._taskContext = before


def run_tasks(writer: bytes, rows: Rows, epoch: int | None) -> list[bytes]:
    """Run the tasks, each with a writer of its own; return what they report."""
    messages = []
    for number in range(rows.tasks):
        with task_of(number, epoch):
            messages.append(as_spark_sends(pickle.loads(writer).write(rows.of_task(number))))  # noqa: S301  # ours
    return messages


# What each of Spark's long-lived processes has connected to, by its role.
_connected: dict[str, dict[Any, Any]] = {"planner": {}, "committer": {}}


@contextmanager
def _process_of(role: str) -> Iterator[None]:
    """Be the planner or the committer: neither knows the tables that the other one has seen."""
    from iceberg_ds.catalog import client  # noqa: PLC0415  # tasks do not load it

    before, client._clients = client._clients, _connected[role]
    try:
        yield
    finally:
        client._clients = before


def _unwatched(_: str, step: Callable[[], Any]) -> Any:
    return step()


def batch_write(options: Mapping[str, str], rows: Rows, watch: Watch = _unwatched) -> Sizes:
    """Append the rows as one batch."""

    def plan() -> tuple[bytes, bytes]:
        with _process_of("planner"):
            writer = IcebergSink(dict(options)).writer(SCHEMA, overwrite=False)
        return as_spark_sends(writer), as_spark_sends(writer)  # the tasks' first, then the committer's

    def commit() -> None:
        with _process_of("committer"):
            pickle.loads(for_commit).commit(_read(messages))  # noqa: S301  # ours

    for_tasks, for_commit = watch("plan", plan)
    messages = watch("tasks", lambda: run_tasks(for_tasks, rows, None))
    watch("commit", commit)
    return Sizes(writer=len(for_tasks), message=max(map(len, messages)))


def micro_batch(options: Mapping[str, str], rows: Rows, epoch: int, watch: Watch = _unwatched) -> Sizes:
    """Append the rows as micro-batch `epoch` of the stream."""
    for_tasks = watch("plan", lambda: plan_stream(options))
    messages = watch("tasks", lambda: run_tasks(for_tasks, rows, epoch))
    watch("commit", lambda: commit_stream(options, messages, epoch))
    return Sizes(writer=len(for_tasks), message=max(map(len, messages)))


def plan_stream(options: Mapping[str, str]) -> bytes:
    """Plan a micro-batch; return the writer as tasks get it."""
    with _process_of("planner"):
        return as_spark_sends(IcebergSink(dict(options)).streamWriter(SCHEMA, overwrite=False))


def commit_stream(options: Mapping[str, str], messages: Sequence[bytes], epoch: int) -> None:
    """Commit a micro-batch as Spark does: by a writer of an unpickled data source."""
    with _process_of("committer"):
        source = pickle.loads(as_spark_sends(IcebergSink(dict(options))))  # noqa: S301  # ours
        source.streamWriter(SCHEMA, overwrite=False).commit(_read(messages), epoch)


def _read(messages: Sequence[bytes]) -> list[Any]:
    return [pickle.loads(message) for message in messages]  # noqa: S301  # ours
