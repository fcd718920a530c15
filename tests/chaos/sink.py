"""`format("chaossink")`: the sink, in a run that orders faults at its named steps.

Importable by Spark's workers through PYTHONPATH. Everything is done by a listener of `iceberg_ds.fault_points`: the
product runs unchanged. The option `chaos` names the run's folder and the stream.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from chaos.events import Event, Fault, Kind, tell
from chaos.orders import Order, Place, forget_place, lay, note_place, take
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from iceberg_ds import IcebergSink
from iceberg_ds.datasource import DataSourceStreamArrowWriter  # Spark 4.0 has none of its own
from iceberg_ds.fault_points import FaultPoint, listen

OPTION = "chaos"
_FIRST_STEP = "BEGUN"
_TOLD = {FaultPoint.COMMITTED: Kind.LANDED, FaultPoint.SKIPPED: Kind.SKIPPED}
_clock = time.time


def options(folder: Path, stream: str) -> dict[str, str]:
    """Return the option that a write of `stream` in the run in `folder` needs."""
    return {OPTION: json.dumps({"folder": str(folder), "stream": stream})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What this process does at the steps that it comes to.

    Attributes:
        folder: The run's folder.
        stream: The query or the writer of batches.
        role: `planner`, `task` or `committer`.
        epoch: The micro-batch, None if it is not known.
    """

    folder: Path
    stream: str
    role: str = "planner"
    epoch: int | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen while the process does one thing for the stream."""
        note_place(self.folder, self._place(_FIRST_STEP))
        listen(self.hear)
        try:
            yield
        finally:
            forget_place(self.folder)

    def hear(self, step: FaultPoint) -> None:
        """Tell what has to be told, and strike if it is ordered."""
        with _able_to_write():
            order = self._note_and_take(step)
        if order is not None:
            _strike(order)

    def _note_and_take(self, step: FaultPoint) -> Order | None:
        note_place(self.folder, self._place(step.name))
        if step in _TOLD:
            tell(self.folder, self._event(_TOLD[step], step))
        order = take(self.folder, self.stream, step.name)
        if order is None:
            return None
        if order.then is not None:
            lay(self.folder, replace(order, step=order.then, then=None))
        fault = self._event(Kind.FAULT, step)
        tell(self.folder, replace(fault, fault=order.fault, order=order.number, is_planned=True, text=_amount(order)))
        return order

    def _place(self, step: str) -> Place:
        return Place(stream=self.stream, step=step, epoch=self.epoch, role=self.role)

    def _event(self, kind: Kind, step: FaultPoint) -> Event:
        return Event(kind=kind, stream=self.stream, place=step.name, role=self.role, epoch=self.epoch)


def _amount(order: Order) -> str | None:
    return f"{order.amount:+.1f} s" if order.amount else None


def _strike(order: Order) -> None:
    match order.fault:
        case Fault.KILL_PYTHON:
            os.kill(os.getpid(), signal.SIGKILL)
        case Fault.KILL_DRIVER:
            os.killpg(os.getsid(0), signal.SIGKILL)  # a driver leads its session; its workers have groups of their own
            os.kill(os.getpid(), signal.SIGKILL)
        case Fault.KILL_EXECUTOR:
            os.kill(find_java(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case Fault.ZOMBIE:
            for ending in (signal.SIGHUP, signal.SIGTERM):
                signal.signal(ending, signal.SIG_IGN)  # Spark's daemon would take this process along
            os.killpg(os.getsid(0), signal.SIGKILL)
            time.sleep(order.amount)
        case Fault.FULL_DISK:
            _fill_disk(order.amount)
        case Fault.CLOCK:
            time.time = lambda: _clock() + order.amount  # of this process, as long as it lives


def _fill_disk(seconds: float) -> None:
    """Let this process grow no file for so long; it gets EFBIG where a full disk gives ENOSPC."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    timer = threading.Timer(seconds, resource.setrlimit, (resource.RLIMIT_FSIZE, (hard, hard)))
    timer.daemon = True
    timer.start()


@contextmanager
def _able_to_write() -> Iterator[None]:
    """Lift a full disk for as long as the run's own files are written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limits[0] != 0:
        yield
        return
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def find_java() -> int:
    """Return the process id of the Java process that started this worker."""
    pid = os.getpid()
    while pid > 1:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    raise RuntimeError("No Java process is above this worker.")


class ChaosSink(IcebergSink):
    """The sink with a listener in each of its processes."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({key: value for key, value in options.items() if key != OPTION})
        values = json.loads(options[OPTION])
        self._listener = Listener(folder=Path(values["folder"]), stream=values["stream"])

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "chaossink"

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  # Spark's signature
        """Plan a batch write."""
        with self._listener.listening():
            return ChaosBatchWriter(super().writer(schema, overwrite), self._listener)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001, N802  # Spark's signature
        """Plan a micro-batch, or make the writer that commits one."""
        with self._listener.listening():
            return ChaosStreamWriter(super().streamWriter(schema, overwrite), self._listener)


class ChaosBatchWriter(DataSourceArrowWriter):
    """A batch writer with a listener."""

    def __init__(self, inner: DataSourceArrowWriter, listener: Listener) -> None:
        self._inner = inner
        self._listener = listener

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        with replace(self._listener, role="task").listening():
            return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit."""
        with replace(self._listener, role="committer").listening():
            self._inner.commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort."""
        with replace(self._listener, role="committer").listening():
            self._inner.abort(messages)


class ChaosStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer with a listener."""

    def __init__(self, inner: DataSourceStreamArrowWriter, listener: Listener) -> None:
        self._inner = inner
        self._listener = listener

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        with replace(self._listener, role="task", epoch=_epoch_of_task()).listening():
            return self._inner.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit an epoch."""
        with replace(self._listener, role="committer", epoch=batchId).listening():
            self._inner.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort an epoch."""
        with replace(self._listener, role="committer", epoch=batchId).listening():
            self._inner.abort(messages, batchId)


def _epoch_of_task() -> int | None:
    task = TaskContext.get()
    with suppress(TypeError, ValueError):
        return int((task.getLocalProperty("streaming.sql.batchId") if task is not None else None) or "")
    return None
