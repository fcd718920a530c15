"""The list of checks that `check` and `verify` make, one after the other, and how their results are shown.

Each check has a time limit, and is skipped if it depends on a failed check. A `Check` is the result of one check, a
`CheckResult` that of all; a terminal shows a table with a coloured mark and the next step for each check.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iceberg_ds.error_hints import Service, hint_for
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.options.sink_options import CATALOG_PREFIX
from iceberg_ds.secrets import mask_text

Outcome: TypeAlias = Literal["ok", "failed", "warning", "skipped"]
DRIVER = "driver"
_SIGNS: dict[Outcome, str] = {"ok": "+", "failed": "x", "warning": "!", "skipped": "-"}
_MARKS: dict[Outcome, str] = {
    "ok": "[green]✔[/green]",
    "failed": "[red]✘[/red]",
    "warning": "[yellow]![/yellow]",
    "skipped": "[dim]-[/dim]",
}
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check, and what it found.

    Attributes:
        name: What was checked, such as `catalog is reached`.
        outcome: `ok`; `failed`; `warning` if something is not as it should be, but a write is still safe;
            `skipped` if the check was not made, for the reason in `detail`.
        where: The machine: `driver`, or host and process of an executor.
        seconds: Seconds that the check took.
        detail: What was found, in words; it holds no secret.
        next_step: What to do about it; empty if there is nothing to do.
    """

    name: str
    outcome: Outcome
    where: str = DRIVER
    seconds: float = 0.0
    detail: str = ""
    next_step: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What all checks of `check` found; `str` has one line for each check.

    Attributes:
        checks: The checks, in the order in which they were made.
    """

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed; warnings and skipped checks do not count."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.outcome == "failed")

    def to_json(self) -> str:
        """Return a JSON object with `ok` and the attributes, such as `checks`, each with its own attributes."""
        return json.dumps({"ok": self.ok, **asdict(self)}, indent=2)

    def __str__(self) -> str:
        return "\n".join(line for check in self.checks for line in _lines(check))


def _lines(check: Check) -> list[str]:
    place = "" if check.where == DRIVER else f" [{check.where}]"
    head = f"{_SIGNS[check.outcome]} {check.name}{place} ({check.seconds:.2f} s): {check.detail}"
    return [head, f"    next: {check.next_step}"] if check.next_step else [head]


def print_result(result: CheckResult, console: Console, verdicts: tuple[str, str] = ("Ready", "Not ready")) -> None:
    """Print the table of checks and the verdict: the first of `verdicts` if no check failed, else the second."""
    table = Table(show_header=True, header_style="bold", show_lines=False)
    for title, options in (
        ("", {}),
        ("check", {}),
        ("where", {}),
        ("s", {"justify": "right"}),
        ("found", {"overflow": "fold"}),
    ):
        table.add_column(title, **options)  # type: ignore[arg-type]  # its own
    for check in result.checks:
        table.add_row(
            _MARKS[check.outcome], escape(check.name), escape(check.where), f"{check.seconds:.2f}", _found(check)
        )
    console.print(table)
    console.print(_summary(result.checks, verdicts))


def _found(check: Check) -> str:
    detail = escape(check.detail)
    return f"{detail}\n[yellow]next: {escape(check.next_step)}[/yellow]" if check.next_step else detail


def _summary(checks: Sequence[Check], verdicts: tuple[str, str]) -> str:
    count = {outcome: sum(check.outcome == outcome for check in checks) for outcome in _MARKS}
    verdict = f"[red]{verdicts[1]}[/red]" if count["failed"] else f"[green]{verdicts[0]}[/green]"
    warnings = f"{count['warning']} warned, " if count["warning"] else ""
    return f"{verdict}: {count['ok']} passed, {count['failed']} failed, {warnings}{count['skipped']} skipped."


class CheckFailedError(Exception):
    """A check found something wrong, and names the next step."""

    def __init__(self, detail: str, next_step: str) -> None:
        super().__init__(detail)
        self.next_step = next_step


class CheckWarnedError(CheckFailedError):
    """A check found something that is not as it should be, but a write is still safe."""


class NotTriedError(Exception):
    """A check does not apply here, or cannot be made; the message says why."""


def within(limit_s: float, call: Callable[[], _Found]) -> _Found:
    """Return what `call` returns.

    Libraries have time-outs of their own, or none; a call that hangs keeps running in a daemon thread.

    Raises:
        TimeoutError: `call` did not return within `limit_s` seconds.
    """
    found: list[_Found] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:  # raised again in the thread of the caller
            raised.append(error)

    thread = threading.Thread(target=run, name="iceberg-ds-check", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise TimeoutError(f"no answer in {limit_s:g} s")
    if raised:
        raise raised[0]
    return found[0]


class Checklist:
    """The checks that have been made on one machine.

    Args:
        secrets: Properties whose secret values are masked in all texts.
        limit_s: Seconds that a check may take.
        where: The machine: `driver`, or host and process of an executor.
    """

    def __init__(self, secrets: Mapping[str, str], limit_s: float, where: str = DRIVER) -> None:
        self.checks: list[Check] = []
        self.secrets = dict(secrets)
        self.limit_s = limit_s
        self._where = where

    @classmethod
    def for_options(cls, options: Mapping[str, str], limit_s: float) -> Checklist:
        """Return the driver's checklist, which masks the secrets among these options; keys are in lower case."""
        return cls({key.removeprefix(CATALOG_PREFIX): value for key, value in options.items()}, limit_s)

    def attempt(
        self,
        name: str,
        call: Callable[[], tuple[str, _Found]],
        *,
        needs: Sequence[str] = (),
        asked: Service | None = None,
    ) -> _Found | None:
        """Make a check, and return the value that it found, or None if it failed or was skipped.

        Args:
            name: What is checked.
            call: Returns what was found, as text and as a value.
            needs: Names of checks that must have passed.
            asked: The service that is called, for hints about errors; None for no service.
        """
        if (failed := next((need for need in needs if not self.passed(need)), None)) is not None:
            self.skip(name, f"not tried, because '{failed}' did not pass")
            return None
        started = time.monotonic()
        try:
            detail, found = within(self.limit_s, call)
        except NotTriedError as reason:
            self.skip(name, str(reason))
            return None
        except Exception as error:  # every library below raises its own
            self.fail(name, error, seconds=time.monotonic() - started, asked=asked)
            return None
        self.note(Check(name=name, outcome="ok", seconds=time.monotonic() - started, detail=detail))
        return found

    def passed(self, name: str) -> bool:
        """Return whether a check was made and passed."""
        return any(check.name == name and check.outcome == "ok" for check in self.checks)

    def skip(self, name: str, reason: str) -> None:
        """Note that a check was skipped."""
        self.note(Check(name=name, outcome="skipped", detail=reason))

    def fail(self, name: str, error: Exception, *, seconds: float, asked: Service | None = None) -> None:
        """Note that a check failed, with the next step."""
        is_own = type(error).__module__.startswith("iceberg_ds.")
        text = str(error) if is_own else f"{type(error).__name__}: {error}"
        step = error.next_step if isinstance(error, CheckFailedError) else hint_for(error, asked).next_step
        if isinstance(error, IcebergSinkError) and error.__context__ is None:
            step = ""  # the message already has the next step
        detail = text.removesuffix(step).rstrip()
        outcome: Outcome = "warning" if isinstance(error, CheckWarnedError) else "failed"
        self.note(Check(name=name, outcome=outcome, seconds=seconds, detail=detail, next_step=step))

    def note(self, check: Check) -> None:
        """Add a check that was made, with secrets masked."""
        masked = {text: mask_text(getattr(check, text), self.secrets) for text in ("detail", "next_step")}
        where = self._where if check.where == DRIVER else check.where
        self.checks.append(
            Check(name=check.name, outcome=check.outcome, where=where, seconds=round(check.seconds, 3), **masked)
        )
