"""`format("faultysink")`: the sink with one planned fault, which strikes once, in whatever process it is due.

Importable by Spark's workers through PYTHONPATH. The fault is an option; a file is its fuse, and
who removes it strikes, so a restarted query with the same options meets no second fault.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from iceberg_ds import IcebergSink
from iceberg_ds.datasource import DataSourceStreamArrowWriter  # Spark 4.0 has none of its own

_OPTION = "fault"
_WAIT_S = 300


class Point(Enum):
    """Where a fault is due."""

    IN_TASK = "in a task, after its first rows were written"
    AFTER_TASK = "in a task, after its last file was written and before Spark hears of it"
    BEFORE_COMMIT = "in the committer, before the commit"
    AFTER_COMMIT = "in the committer, after the commit and before Spark hears of it"


class Action(Enum):
    """What a fault does."""

    RAISE = "raise an exception"
    KILL_WORKER = "kill this Python worker"
    EXIT_WORKER = "end this Python worker at once"
    KILL_DRIVER = "kill Spark's driver"
    KILL_EXECUTOR = "kill the executor of this task; where Spark is local, that is its driver"
    WAIT = "wait until somebody ends this process, or removes the file beside the fuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        point: Where it is due.
        action: What it does.
        fuse: The file whose removal lets it strike once.
        epoch_id: The epoch that it waits for, None for any; tasks do not look at it.
    """

    point: Point
    action: Action
    fuse: Path
    epoch_id: int | None = None

    def arm(self) -> dict[str, str]:
        """Lay the fuse and return the options that a write needs to meet the fault."""
        self.fuse.touch()
        text = {"point": self.point.name, "action": self.action.name, "fuse": str(self.fuse)}
        return {_OPTION: json.dumps({**asdict(self), **text})}

    @property
    def has_struck(self) -> bool:
        """Whether it has."""
        return not self.fuse.exists()

    @property
    def barrier(self) -> Path:
        """The file that `Action.WAIT` makes, and waits for to go."""
        return self.fuse.with_suffix(".waiting")

    def strike_at(self, point: Point, epoch_id: int | None = None) -> None:
        """Strike if this is the place and it has not struck yet."""
        if point is not self.point or (self.epoch_id is not None and epoch_id != self.epoch_id):
            return
        try:
            self.fuse.unlink()
        except FileNotFoundError:
            return
        self._strike()

    def _strike(self) -> None:
        match self.action:
            case Action.RAISE:
                raise RuntimeError(f"planned fault {self.point.value}")
            case Action.KILL_WORKER:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.EXIT_WORKER:
                os._exit(3)
            case Action.KILL_DRIVER | Action.KILL_EXECUTOR:
                os.kill(_find_java(), signal.SIGKILL)
                os._exit(3)
            case Action.WAIT:
                self.barrier.touch()
                deadline = time.monotonic() + _WAIT_S
                while self.barrier.exists() and time.monotonic() < deadline:
                    time.sleep(0.02)


def _find_java() -> int:
    """Return the process id of the Java process that started this worker."""
    pid = os.getpid()
    while pid > 1:
        status = Path(f"/proc/{pid}/stat").read_text()
        name, _, rest = status.partition("(")[2].rpartition(")")
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    raise RuntimeError("No Java process is above this worker.")


def _load(text: str) -> Fault:
    values = json.loads(text)
    return Fault(
        point=Point[values["point"]],
        action=Action[values["action"]],
        fuse=Path(values["fuse"]),
        epoch_id=values["epoch_id"],
    )


class FaultySink(IcebergSink):
    """The sink with the fault of its option `fault`, or without one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__({key: value for key, value in options.items() if key != _OPTION})
        self._fault = _load(options[_OPTION]) if _OPTION in options else None

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "faultysink"

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  # Spark's signature
        """Plan a batch write."""
        return FaultyBatchWriter(super().writer(schema, overwrite), self._fault)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001, N802  # Spark's signature
        """Plan a micro-batch, or make the writer that commits one."""
        return FaultyStreamWriter(super().streamWriter(schema, overwrite), self._fault)


class FaultyBatchWriter(DataSourceArrowWriter):
    """A batch writer with a fault around it."""

    def __init__(self, inner: DataSourceArrowWriter, fault: Fault | None) -> None:
        self._inner = inner
        self._fault = fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, or fail."""
        return _write(self._inner, iterator, self._fault)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit, or fail before or after it."""
        _strike(self._fault, Point.BEFORE_COMMIT)
        self._inner.commit(messages)
        _strike(self._fault, Point.AFTER_COMMIT)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort."""
        self._inner.abort(messages)


class FaultyStreamWriter(DataSourceStreamArrowWriter):
    """A streaming writer with a fault around it."""

    def __init__(self, inner: DataSourceStreamArrowWriter, fault: Fault | None) -> None:
        self._inner = inner
        self._fault = fault

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, or fail."""
        return _write(self._inner, iterator, self._fault)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Commit an epoch, or fail before or after it."""
        _strike(self._fault, Point.BEFORE_COMMIT, batchId)
        self._inner.commit(messages, batchId)
        _strike(self._fault, Point.AFTER_COMMIT, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort an epoch."""
        self._inner.abort(messages, batchId)


def _write(
    inner: DataSourceArrowWriter | DataSourceStreamArrowWriter, batches: Iterator[pa.RecordBatch], fault: Fault | None
) -> WriterCommitMessage:
    message = inner.write(_interrupted(batches, fault))
    _strike(fault, Point.AFTER_TASK)
    return message


def _interrupted(batches: Iterator[pa.RecordBatch], fault: Fault | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        _strike(fault, Point.IN_TASK)


def _strike(fault: Fault | None, point: Point, epoch_id: int | None = None) -> None:
    if fault is not None:
        fault.strike_at(point, epoch_id)
