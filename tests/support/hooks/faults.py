"""Planned faults at named steps of the sink, in whatever process comes to them: a hook (`hooked_sink`).

The faults are an option; each has a file as its fuse, and who removes it strikes, so a restarted query with the
same options meets no second fault.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from support.hooks.hook import Call

from iceberg_ds.fault_points import FaultPoint, listen

_OPTION = "fault"
_WAIT_S = 300


class Point:
    """The steps at which most faults are due, by what is going on."""

    IN_TASK = FaultPoint.FILE_CLOSED
    AFTER_TASK = FaultPoint.TASK_WRITTEN
    BEFORE_COMMIT = FaultPoint.COMMIT_BEGUN
    AFTER_COMMIT = FaultPoint.COMMITTED


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
        point: The step at which it is due.
        action: What it does.
        fuse: The file whose removal lets it strike once.
        epoch_id: The epoch that it waits for, None for any; tasks do not look at it.
    """

    point: FaultPoint
    action: Action
    fuse: Path
    epoch_id: int | None = None

    def arm(self, *others: Fault) -> dict[str, str]:
        """Lay the fuse, and those of `others`; return the options that a write needs to meet the faults."""
        faults = (self, *others)
        for fault in faults:
            fault.fuse.touch()
        return {_OPTION: json.dumps([fault._described() for fault in faults])}

    def _described(self) -> dict[str, Any]:
        return {**asdict(self), "point": self.point.name, "action": self.action.name, "fuse": str(self.fuse)}

    @property
    def has_struck(self) -> bool:
        """Whether it has."""
        return not self.fuse.exists()

    @property
    def barrier(self) -> Path:
        """The file that `Action.WAIT` makes, and waits for to go."""
        return self.fuse.with_suffix(".waiting")

    def strike_at(self, step: FaultPoint) -> None:
        """Strike if this is the step and it has not struck yet."""
        if step is not self.point:
            return
        try:
            self.fuse.unlink()
        except FileNotFoundError:
            return
        self._strike()

    def _strike(self) -> None:
        match self.action:
            case Action.RAISE:
                raise RuntimeError(f"planned fault at {self.point.name}: {self.point.value}")
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


def _load(text: str) -> tuple[Fault, ...]:
    return tuple(
        Fault(
            point=FaultPoint[values["point"]],
            action=Action[values["action"]],
            fuse=Path(values["fuse"]),
            epoch_id=values["epoch_id"],
        )
        for values in json.loads(text)
    )


def _let_strike(faults: Sequence[Fault]) -> None:
    def strike(step: FaultPoint) -> None:
        for fault in faults:
            fault.strike_at(step)

    listen(strike if faults else None)


def struck_from_now_on(options: Mapping[str, str]) -> dict[str, str]:
    """Let the faults of option `fault` strike in this process for good, and return the other options."""
    _let_strike(_load(options.get(_OPTION, "[]")))
    return {key: value for key, value in options.items() if key != _OPTION}


class Faults:
    """Lets the faults of option `fault` strike in the process that makes a call, which others will use after us."""

    option: ClassVar[str] = _OPTION

    def __init__(self, text: str) -> None:
        self._faults = _load(text)

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """Let those strike that are due in the call: tasks do not know their epoch."""
        _let_strike([fault for fault in self._faults if call.role == "task" or fault.epoch_id in {None, call.epoch_id}])
        try:
            yield
        finally:
            listen(None)
