"""Notes of the steps of maintenance that a process takes: a file has them even if the process is killed in a step."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from iceberg_ds.errors import TableNotFoundError
from iceberg_ds.maintenance import maintain
from iceberg_ds.maintenance.policy import Step

_BEGUN, _LANDED, _IDLE, _FAILED = "begun", "landed", "nothing to do", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNotes:
    """The steps of one process.

    Attributes:
        landed: How often each step has changed the table.
        idle: How often each has found nothing to do.
        failed: The failures: the step, or `maintain` for what failed outside of steps; the class of the error; its
            text.
        under_way: The step that had begun and not ended when the process ended; None if none had.
    """

    landed: Counter[str]
    idle: Counter[str]
    failed: list[tuple[str, str, str]]
    under_way: str | None

    @classmethod
    def read(cls, file: Path) -> StepNotes:
        """Read the notes that `noting_steps` wrote; none if there is no file."""
        notes: list[dict[str, Any]] = []
        for line in file.read_text().splitlines() if file.exists() else []:
            with suppress(ValueError):  # the process was killed in this line
                notes.append(json.loads(line))
        last = notes[-1] if notes else None
        return cls(
            landed=Counter(note["step"] for note in notes if note["is"] == _LANDED),
            idle=Counter(note["step"] for note in notes if note["is"] == _IDLE),
            failed=[(note["step"], note["error"], note["text"]) for note in notes if note["is"] == _FAILED],
            under_way=last["step"] if last is not None and last["is"] == _BEGUN else None,
        )


@contextmanager
def noting_steps(file: Path) -> Iterator[None]:
    """Note each step of maintenance that this process takes in the block, when it begins and when it ends."""
    work, run = maintain._Keeper._work, maintain.maintain

    def note(step: str, what: str, **more: str) -> None:
        with file.open("a") as stream:
            stream.write(json.dumps({"at_ms": time.time_ns() // 1_000_000, "step": step, "is": what, **more}) + "\n")

    def noted_work(keeper: Any, step: Step, health: Any) -> Any:
        note(step.value, _BEGUN)
        try:
            result = work(keeper, step, health)
        except Exception as error:
            note(step.value, _FAILED, error=type(error).__name__, text=str(error))
            raise
        has_landed = getattr(result, "snapshot_id", None) is not None or bool(getattr(result, "snapshot_ids", ()))
        note(step.value, _LANDED if has_landed else _IDLE, text=str(result))
        return result

    def noted_run(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except TableNotFoundError:
            raise
        except Exception as error:
            note("maintain", _FAILED, error=type(error).__name__, text=str(error))
            raise

    with patch.object(maintain._Keeper, "_work", noted_work), patch.object(maintain, "maintain", noted_run):
        yield
