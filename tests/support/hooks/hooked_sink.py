"""`format("hookedsink")`: the sink with hooks around its calls: planned faults, and reports of what a call finds.

Importable by Spark's workers through PYTHONPATH. A hook is there if the option of its name is; without any of them
this is the sink.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from support.hooks.commit_note import CommitNote
from support.hooks.evidence import Evidence
from support.hooks.faults import Faults
from support.hooks.hook import Call, Hook
from support.hooks.memory_probe import MemoryProbe
from support.hooks.worker_reports import WorkerReports

from iceberg_ds import IcebergSink
from iceberg_ds.datasource import DataSourceStreamArrowWriter  # Spark 4.0 has none of its own

# From the outermost to the innermost.
_HOOKS: tuple[type[Hook], ...] = (CommitNote, WorkerReports, MemoryProbe, Evidence, Faults)
Message = WriterCommitMessage | None


@contextmanager
def _around(hooks: Sequence[Hook], call: Call) -> Iterator[Call]:
    with ExitStack() as stack:
        for hook in hooks:
            stack.enter_context(hook.around(call))
        yield call


class HookedSink(IcebergSink):
    """The sink with the hooks that its options name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._hooks = [hook(options[hook.option]) for hook in _HOOKS if hook.option in options]
        super().__init__({key: value for key, value in options.items() if key not in {hook.option for hook in _HOOKS}})

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "hookedsink"

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  # Spark's signature
        """Plan a batch write."""
        with _around(self._hooks, Call(role="plan")) as call:
            call.writer = super().writer(schema, overwrite)
        return _HookedBatchWriter(call.writer, self._hooks)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001, N802  # Spark's signature
        """Plan a micro-batch, or make the writer that commits one."""
        with _around(self._hooks, Call(role="plan")) as call:
            call.writer = super().streamWriter(schema, overwrite)
        return _HookedStreamWriter(call.writer, self._hooks)


class _HookedBatchWriter(DataSourceArrowWriter):
    """A batch writer with hooks."""

    def __init__(self, inner: DataSourceArrowWriter, hooks: list[Hook]) -> None:
        self._inner = inner
        self._hooks = hooks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        with _around(self._hooks, Call(role="task", writer=self._inner)):
            return self._inner.write(iterator)

    def commit(self, messages: Sequence[Message]) -> None:
        """Commit."""
        with _around(self._hooks, Call(role="commit", writer=self._inner, messages=messages)):
            self._inner.commit(messages)

    def abort(self, messages: Sequence[Message]) -> None:
        """Abort."""
        with _around(self._hooks, Call(role="abort", writer=self._inner, messages=messages)):
            self._inner.abort(messages)


class _HookedStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer with hooks."""

    def __init__(self, inner: DataSourceStreamArrowWriter, hooks: list[Hook]) -> None:
        self._inner = inner
        self._hooks = hooks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        with _around(self._hooks, Call(role="task", writer=self._inner)):
            return self._inner.write(iterator)

    def commit(self, messages: Sequence[Message], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit an epoch."""
        with _around(self._hooks, Call(role="commit", writer=self._inner, messages=messages, epoch_id=batchId)):
            self._inner.commit(messages, batchId)

    def abort(self, messages: Sequence[Message], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort an epoch."""
        with _around(self._hooks, Call(role="abort", writer=self._inner, messages=messages, epoch_id=batchId)):
            self._inner.abort(messages, batchId)
