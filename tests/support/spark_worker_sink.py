"""`format("workersink")`: the sink, which reports in what state its calls find and leave their Python processes.

Importable by Spark's workers through PYTHONPATH. Option `reports` names a folder for the reports.
"""

from __future__ import annotations

import gc
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from iceberg_ds import IcebergSink
from iceberg_ds.spark import workers

_OPTION = "reports"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a call found and left in its process.

    Attributes:
        role: `plan`, `task` or `commit`.
        process: Its id.
        before: How many objects the garbage collector left alone when the call began.
        after: How many when it ended.
        connections: How many of the process's connections were such as Spark's, over which a task's rows come.
    """

    role: str
    process: int
    before: int
    after: int
    connections: int


def read_worker_reports(folder: Path) -> list[WorkerReport]:
    """Return what the calls reported, in the order in which they ended."""
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return [WorkerReport(**json.loads(path.read_text())) for path in files]


@contextmanager
def _reporting(folder: Path, role: str) -> Iterator[None]:
    before = gc.get_freeze_count()
    connections = list(workers._local_connections())
    for connection in connections:
        connection.close()
    yield
    report = WorkerReport(
        role=role,
        process=os.getpid(),
        before=before,
        after=gc.get_freeze_count(),
        connections=len(connections),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / uuid.uuid4().hex).write_text(json.dumps(asdict(report)))


class WorkerSink(IcebergSink):
    """The sink with reports of its planner, tasks and committers; for batches."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({key: value for key, value in options.items() if key != _OPTION})
        self._folder = Path(options[_OPTION])

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "workersink"

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  # Spark's signature
        """Plan a batch write."""
        with _reporting(self._folder, "plan"):
            return WorkerBatchWriter(super().writer(schema, overwrite), self._folder)


class WorkerBatchWriter(DataSourceArrowWriter):
    """A batch writer that reports."""

    def __init__(self, inner: DataSourceArrowWriter, folder: Path) -> None:
        self._inner = inner
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        with _reporting(self._folder, "task"):
            return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit."""
        with _reporting(self._folder, "commit"):
            self._inner.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort."""
        self._inner.abort(messages)
