"""Orders of faults at named steps: files that the run lays and that the first process to come by takes.

A file is taken by renaming it, so that each order strikes once, in whatever process it is due. Imports the
standard library and `events` alone, because Spark's workers look here at each step.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from chaos.events import Fault

_WAITING = ".order"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A fault that waits for a process to come to a step.

    Attributes:
        number: Its number in the run.
        fault: What to do.
        stream: The query or the writer of batches that it is for.
        step: Name of the step.
        amount: Seconds that the fault lasts, or by which the clock jumps; kills do not look at it.
        then: Name of a step at which the same fault waits next, None for none.
    """

    number: int
    fault: Fault
    stream: str
    step: str
    amount: float = 0
    then: str | None = None


def lay(folder: Path, order: Order) -> None:
    """Let an order wait."""
    waiting = folder / "orders"
    waiting.mkdir(exist_ok=True)
    hidden = waiting / f".{order.number}"
    hidden.write_text(json.dumps(asdict(order) | {"fault": order.fault.name}))
    hidden.rename(waiting / f"{order.number}.{order.stream}.{order.step}{_WAITING}")


def take(folder: Path, stream: str, step: str) -> Order | None:
    """Take an order for this step away, or return None; no two processes get the same one."""
    for path in (folder / "orders").glob(f"*.{stream}.{step}{_WAITING}"):
        taken = path.with_suffix(".taken")
        with suppress(FileNotFoundError):
            path.rename(taken)
            values = json.loads(taken.read_text())
            taken.unlink()
            return Order(**values | {"fault": Fault[values["fault"]]})
    return None


def withdraw(folder: Path, stream: str) -> bool:
    """Take back what waits for a stream; return whether there was anything."""
    removed = [_remove(path) for path in (folder / "orders").glob(f"*.{stream}.*{_WAITING}")]
    return any(removed)


def waits(folder: Path, stream: str) -> bool:
    """Return whether an order waits for a stream."""
    return next((folder / "orders").glob(f"*.{stream}.*{_WAITING}"), None) is not None


def _remove(path: Path) -> bool:
    with suppress(FileNotFoundError):
        path.unlink()
        return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a process of Spark is in its write.

    Attributes:
        stream: The query or the writer of batches.
        step: Name of the step that it came to last.
        epoch: The micro-batch, None if it is not known.
        role: `planner`, `task` or `committer`.
    """

    stream: str
    step: str
    epoch: int | None
    role: str


def note_place(folder: Path, place: Place) -> None:
    """Note where this process is, for whoever kills it."""
    with suppress(OSError):  # a note; the write is not to fail of it
        (folder / "places" / str(os.getpid())).write_text(json.dumps(asdict(place)))


def forget_place(folder: Path) -> None:
    """Note that this process is done, and waits for more to do."""
    with suppress(OSError):
        (folder / "places" / str(os.getpid())).unlink()


def place_of(folder: Path, pid: int) -> Place | None:
    """Return where a process noted to be last, None if it noted nothing."""
    with suppress(OSError, ValueError):
        return Place(**json.loads((folder / "places" / str(pid)).read_text()))
    return None
