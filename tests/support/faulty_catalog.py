"""A PyIceberg catalog around a real one, whose commits fail on demand and in a fixed order.

`fail_next` names what happens to the coming `commit_table` calls; whatever is not named goes through.
Everything is counted, so that a test can tell how often the catalog was asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServerError,
    TooManyRequestsError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate


class When(Enum):
    """Whether a failing commit took effect."""

    BEFORE = "before it took effect"
    AFTER = "after it took effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failing commit: `error` is raised before or after the real catalog carried it out."""

    error: Exception
    when: When = When.BEFORE


def refusal() -> Exception:
    """Return what a catalog raises for a commit that lost a race."""
    return CommitFailedException("branch main has changed")


def state_unknown() -> Exception:
    """Return what PyIceberg raises for an answer 500, 502 or 504 of a REST catalog."""
    return CommitStateUnknownException("gateway time-out")


def server_error() -> Exception:
    """Return what PyIceberg raises for another answer 5xx."""
    return ServerError("internal error")


def connection_lost() -> Exception:
    """Return what the HTTP client raises when the connection breaks."""
    return requests.ConnectionError("connection reset by peer")


def throttled() -> Exception:
    """Return what PyIceberg raises for an answer 429."""
    return TooManyRequestsError("slow down")


def forbidden() -> Exception:
    """Return what PyIceberg raises for an answer 403."""
    return ForbiddenError("no right to write")


def timed_out() -> Exception:
    """Return what a socket raises when no answer comes."""
    return TimeoutError("no answer in 60 s")


class FaultyCatalog:
    """Passes everything on to `inner`, except for the faults that a test asks for.

    Attributes:
        commits: How many commits were sent.
        loads: How many times a table was loaded.
    """

    def __init__(self, inner: Catalog) -> None:
        self.commits = 0
        self.loads = 0
        self._inner = inner
        self._faults: deque[Fault | None] = deque()
        self._load_faults: deque[Exception | None] = deque()
        self._stale: deque[Table] = deque()
        self._before_commit: dict[int, Callable[[], None]] = {}
        self._after_commit: dict[int, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def fail_next(self, times: int, error: Callable[[], Exception], *, when: When = When.BEFORE) -> None:
        """Let the next `times` commits that have no fault yet fail with what `error` returns."""
        self._faults.extend(Fault(error=error(), when=when) for _ in range(times))

    def pass_next(self, times: int) -> None:
        """Let the next `times` commits that have no fault yet go through."""
        self._faults.extend([None] * times)

    def forget(self) -> None:
        """Let all further commits go through."""
        self._faults.clear()

    def fail_next_loads(self, times: int, error: Callable[[], Exception], *, after: int = 0) -> None:
        """Let `times` loads of a table fail, the first of them after `after` more loads."""
        self._load_faults.extend([None] * after)
        self._load_faults.extend(error() for _ in range(times))

    def serve_stale(self, table: Table, times: int = 1) -> None:
        """Answer the next `times` loads with `table`, as a cache in front of the catalog might."""
        self._stale.extend([table] * times)

    def before_commit(self, number: int, action: Callable[[], None]) -> None:
        """Run `action` right before commit `number` (from 1) reaches the real catalog."""
        self._before_commit[number] = action

    def after_commit(self, number: int, action: Callable[[], None]) -> None:
        """Run `action` right after commit `number` (from 1), whatever became of it."""
        self._after_commit[number] = action

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        """Load a table, or fail or answer from the past."""
        self.loads += 1
        error = self._load_faults.popleft() if self._load_faults else None
        if error is not None:
            raise error
        return self._stale.popleft() if self._stale else self._inner.load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit, or fail as the test asked for."""
        self.commits += 1
        number = self.commits
        self._before_commit.get(number, _nothing)()
        fault = self._faults.popleft() if self._faults else None
        try:
            return self._commit(fault, table, requirements, updates)
        finally:
            self._after_commit.get(number, _nothing)()

    def _commit(
        self,
        fault: Fault | None,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        if fault is not None and fault.when is When.BEFORE:
            raise fault.error
        response = self._inner.commit_table(table, requirements, updates)
        if fault is not None:
            raise fault.error
        return response


def _nothing() -> None:
    """Do nothing."""
