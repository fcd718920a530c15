"""What a check found, as values: one `Check` for each thing that was tried, and the `CheckResult` of all."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["ok", "failed", "warning", "skipped"]
DRIVER = "driver"
_MARKS: dict[Outcome, str] = {"ok": "+", "failed": "x", "warning": "!", "skipped": "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried.

    Attributes:
        name: What was tried.
        where: On which machine: `driver`, or an executor's host and process.
        outcome: `warning` if it does not hold and a write is safe all the same; `skipped` if it was not tried: `detail`
            says why.
        seconds: How long it took.
        detail: What was found; no secret is in it.
        next_step: What to do about it, empty if nothing.
    """

    name: str
    outcome: Outcome
    where: str = DRIVER
    seconds: float = 0.0
    detail: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What all checks found; its text is a table.

    Attributes:
        checks: In the order in which they were made.
    """

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.outcome == "failed")

    def to_json(self) -> str:
        """Return the result as JSON: `ok`, and the result's attributes with theirs, such as `checks`."""
        return json.dumps({"ok": self.ok, **asdict(self)}, indent=2)

    def __str__(self) -> str:
        return "\n".join(line for check in self.checks for line in _lines(check))


def _lines(check: Check) -> list[str]:
    place = "" if check.where == DRIVER else f" [{check.where}]"
    head = f"{_MARKS[check.outcome]} {check.name}{place} ({check.seconds:.2f} s): {check.detail}"
    return [head, f"    next: {check.next_step}"] if check.next_step else [head]
