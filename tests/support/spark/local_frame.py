"""DataFrames without Spark: what the package's jobs see of a DataFrame, with tasks that run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.types import StructType
from support.tables.sink import arrow_batch

from iceberg_ds.spark import distribution, write_job

Rows = Sequence[Mapping[str, Any]]
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_attempts = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFrame:
    """Rows as the package's jobs see a DataFrame of them; Spark would have brought rows of one key together.

    Attributes:
        parts: The rows, by task.
        schema: Their columns.
        isStreaming: Whether it says that it is a stream.
        jobs: The number of tasks of each job that has run.
    """

    parts: Sequence[Rows]
    schema: StructType
    isStreaming: bool = False  # noqa: N815  # Spark's name
    sparkSession: None = None  # noqa: N815
    jobs: list[int] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names

    def toDF(self, *_: str) -> LocalFrame:  # noqa: N802  # Spark's name
        """Return these rows: a task gives the columns their names again."""
        return self

    def mapInArrow(self, task: Task, _: str) -> Any:  # noqa: N802  # Spark's name
        """Return what runs the tasks when it is collected."""

        def collect() -> list[dict[str, Any]]:
            self.jobs.append(len(self.parts))
            return [row for number, part in enumerate(self.parts) for row in self._run(task, number, part)]

        return SimpleNamespace(collect=collect)

    def _run(self, task: Task, number: int, part: Rows) -> list[dict[str, Any]]:
        attempt = next(_attempts)
        context = SimpleNamespace(partitionId=lambda: number, taskAttemptId=lambda: attempt, attemptNumber=lambda: 0)
        with patch.object(write_job.TaskContext, "get", lambda: context):
            batches = [arrow_batch(part, self.schema)] if part else []
            return [row for answer in task(iter(batches)) for row in answer.to_pylist()]


@contextmanager
def without_moving_rows() -> Iterator[None]:
    """Let the rows of local frames stay in their tasks."""
    with patch.object(distribution, "distribute", lambda rows, **_: rows):
        yield
