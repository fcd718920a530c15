"""The log of a chaos run: lines of JSON that all its processes append to, and what one line says.

Imports the standard library alone, because Spark's workers write here, too. Times are of the clock that
counts since the machine's start: every process reads the same, and no fault changes it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path


class Kind(Enum):
    """What an event is."""

    FAULT = "something was done to the run"
    FAULT_OVER = "what was done has ended"
    LANDED = "a write is known to have landed"
    SKIPPED = "a write was recognised as one that had landed before"
    STARTED = "a query or a writer of batches was started"
    FAILED = "a query or a batch ended with an error"
    SETBACK = "the run itself could not do what it meant to; no fault came of it"


class Fault(Enum):
    """What is done to the run."""

    KILL_PYTHON = "SIGKILL of one Python process of Spark: planner, task or committer"
    KILL_DRIVER = "SIGKILL of Spark's driver, Python and Java"
    KILL_EXECUTOR = "SIGKILL of an executor's Java"
    ZOMBIE = "SIGKILL of the driver, while its committer lives on for some seconds and commits late"
    FULL_DISK = "a process can write no file any more, for some seconds"
    CLOCK = "a process's clock jumps"
    CATALOG_AWAY = "the catalog answers nobody, for some seconds"
    STORE_AWAY = "the object store answers nobody, for some seconds"
    COMPACTION = "somebody else rewrites the data files of a branch into one"
    EXPIRY = "somebody else expires all snapshots but the newest of each branch"
    SECOND_DRIVER = "a second driver runs the same query from a copy of its checkpoint"
    ROLLED_BACK_ONE = "a checkpoint is put back to before the last epoch that landed"
    ROLLED_BACK_MANY = "a checkpoint is put back by several epochs"

    @property
    def is_kill(self) -> bool:
        """Whether processes are killed."""
        return self in {Fault.KILL_PYTHON, Fault.KILL_DRIVER, Fault.KILL_EXECUTOR, Fault.ZOMBIE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the log.

    Attributes:
        kind: What it is.
        fault: Which fault, of `FAULT` and `FAULT_OVER`.
        stream: Name of the query or the writer of batches, None if it is about no single one.
        place: Name of the step of the write that the process was at, None if that is not known.
        is_planned: Whether the fault was ordered for that step; else the process had come to it last.
        role: `planner`, `task`, `committer`, `driver`, `executor` or `run`.
        epoch: The micro-batch, None if it is not known.
        order: Number of the order of a fault, None for none.
        run_id: Spark's run of the query, of `STARTED`.
        text: More, for people.
        at_s: Seconds since the machine's start.
        pid: The process that tells it.
    """

    kind: Kind
    fault: Fault | None = None
    stream: str | None = None
    place: str | None = None
    is_planned: bool = False
    role: str | None = None
    epoch: int | None = None
    order: int | None = None
    run_id: str | None = None
    text: str | None = None
    at_s: float = field(default_factory=time.monotonic)
    pid: int = field(default_factory=os.getpid)

    def line(self) -> str:
        """Return it as a line of the log."""
        values = asdict(self) | {"kind": self.kind.name, "fault": self.fault.name if self.fault else None}
        return (
            json.dumps({key: value for key, value in values.items() if value is not None and value is not False}) + "\n"
        )

    @classmethod
    def of(cls, line: str) -> Event:
        """Return the event of a line."""
        values = json.loads(line)
        fault = values.pop("fault", None)
        return cls(kind=Kind[values.pop("kind")], fault=Fault[fault] if fault else None, **values)


def tell(folder: Path, event: Event) -> None:
    """Append an event to the log of the run in `folder`; never half a line, however the process ends."""
    log = os.open(log_path(folder), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(log, event.line().encode())
    finally:
        os.close(log)


def log_path(folder: Path) -> Path:
    """Return where the log of the run in `folder` is."""
    return folder / "events.jsonl"


class Log:
    """The log as the run reads it, on and on.

    Attributes:
        events: All events read so far.
    """

    def __init__(self, folder: Path) -> None:
        self.events: list[Event] = []
        self._path = log_path(folder)
        self._offset = 0

    def read(self) -> list[Event]:
        """Read on, and return the events that are new."""
        new = list(self._new())
        self.events += new
        return new

    def _new(self) -> Iterator[Event]:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield Event.of(line.decode())
