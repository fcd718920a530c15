"""A PyIceberg catalog around a real one, whose calls fail on demand and in a fixed order.

`fail_next` names what happens to the coming `commit_table` calls; `strike` lets the nth call of any method fail in
any of the kinds of `fault_kinds`. Whatever is not named goes through. Everything is counted, so that a test can tell
how often the catalog was asked.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    ServerError,
    TooManyRequestsError,
)
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from support.faults.kinds import Effect, Kind, Way

from iceberg_ds.catalog.own_storage import with_own_storage
from iceberg_ds.snapshots.version_3 import next_row_id
from iceberg_ds.table.requests import CommitRequest

# What the sink asks a catalog for.
CALLS = (
    "load_table",
    "view_exists",
    "namespace_exists",
    "create_namespace_if_not_exists",
    "create_table_transaction",
    "create_table",
    "commit_table",
)


class When(Enum):
    """Whether a failing commit took effect."""

    BEFORE = "before it took effect"
    AFTER = "after it took effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One failing commit: `error` is raised before or after the real catalog carried it out."""

    error: Exception
    when: When = When.BEFORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A call that is to fail.

    Attributes:
        method: Which of `CALLS`.
        number: Which of these calls since the last `begin`, from 1.
        kind: How.
    """

    method: str
    number: int
    kind: Kind


class FalseRefusal(CommitFailedException):
    """A refusal for a race that nobody won, as of a request that somebody on the way sent twice."""


def refusal() -> Exception:
    """Return what a catalog raises for a commit that lost a race."""
    return CommitFailedException("branch main has changed")


def false_refusal() -> Exception:
    """Return the same, although no other commit came between."""
    return FalseRefusal("branch main has changed")


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
        together: How many of them were for several tables.
        loads: How many times a table was loaded.
        calls: How often each of `CALLS` was made since the last `begin`.
        passed: What else was called.
        struck: The strikes that have happened since then.
        lied: Whether a commit was refused since then for a race that nobody won.
    """

    def __init__(self, inner: Catalog) -> None:
        self.commits = 0
        self.together = 0
        self.loads = 0
        self.calls: Counter[str] = Counter()
        self.passed: set[str] = set()
        self.struck: list[Strike] = []
        self.lied = False
        self._strikes: dict[tuple[str, int], Strike] = {}
        self._late: list[tuple[Effect, Callable[[], object]]] = []
        self._before_last: Table | None = None
        self._inner = with_own_storage(inner)
        self._faults: deque[Fault | None] = deque()
        self._load_faults: deque[Exception | None] = deque()
        self._stale: deque[Table] = deque()
        self._lost: deque[frozenset[str]] = deque()
        self._is_held = False
        self._before_commit: dict[int, Callable[[], None]] = {}
        self._after_commit: dict[int, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in CALLS:
            self.passed |= {name} if callable(found) else set()
            return found
        return lambda *args, **kwargs: self._struck_or(name, lambda: found(*args, **kwargs))

    @property
    def inner(self) -> Any:
        """The real catalog."""
        return self._inner

    def copy(self, inner: Catalog) -> FaultyCatalog:
        """Return a catalog around a copy of this one's, without faults."""
        twin = FaultyCatalog(inner)
        twin._before_last = self._before_last
        return twin

    def begin(self, *strikes: Strike) -> None:
        """Count calls anew, and let these fail."""
        self.calls.clear()
        self.struck.clear()
        self.lied = False
        self._strikes = {(strike.method, strike.number): strike for strike in strikes}

    def deliver(self, *effects: Effect) -> int:
        """Carry out the requests that were held up, all unless `effects` are given; return how many there were."""
        due = [request for effect, request in self._late if not effects or effect in effects]
        self._late = [(effect, request) for effect, request in self._late if effects and effect not in effects]
        for request in due:
            with suppress(Exception):  # nobody hears its answer
                request()
        return len(due)

    def _struck_or(self, method: str, call: Callable[[], Any], *, faster: Callable[[], None] | None = None) -> Any:
        """Make a call, or let it fail as a strike says; where that is a lost race, it is lost to what `faster` does."""
        self.calls[method] += 1
        if method == "commit_table":
            self.deliver(Effect.BEFORE_NEXT_COMMIT)
        strike = self._strikes.get((method, self.calls[method]))
        if strike is None:
            return call()
        self.struck.append(strike)
        kind = strike.kind
        if kind.way is Way.STALE:
            if self._before_last is None:
                raise NoSuchTableError("as it was before the last commit")
            return self._before_last
        error = kind.error(method)
        if faster is not None and _is_lost_race(error, was_carried_out=kind.effect is not Effect.NEVER):
            faster()
        if kind.effect is Effect.AT_ONCE:
            with suppress(Exception):
                call()
        elif kind.effect is not Effect.NEVER:
            self._late.append((kind.effect, call))
        raise error

    def fail_next(self, times: int, error: Callable[[], Exception], *, when: When = When.BEFORE) -> None:
        """Let the next `times` commits that have no fault yet fail with what `error` returns.

        Where that is `refusal`, before the commit took effect, another one is made: of a snapshot beside all branches.
        """
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

    def lose_changes(self, *names: str) -> None:
        """Let the next commit of several tables change all but these, and be answered as if it had changed all."""
        self._lost.append(frozenset(names))

    def hold_next(self) -> None:
        """Let the next commit of several tables be answered by a broken connection, and carried out at `deliver`."""
        self._is_held = True

    def commit_tables(self, changes: Sequence[tuple[Table, CommitRequest]]) -> None:
        """Commit to several tables, or fail as the test asked for."""
        self.commits += 1
        self.together += 1
        number = self.commits
        self._before_commit.get(number, _nothing)()
        fault = self._faults.popleft() if self._faults else None
        lost = self._lost.popleft() if self._lost else frozenset[str]()
        try:
            if self._is_held:
                self._is_held = False
                self._late.append((Effect.AT_LAST, lambda: self._inner.commit_tables(changes)))
                raise connection_lost()
            if fault is not None and fault.when is When.BEFORE:
                if _is_lost_race(fault.error, was_carried_out=False):
                    self._commit_another(changes[0][0])
                raise fault.error
            if lost:
                for table, request in changes:
                    if table.name()[-1] not in lost:
                        self._inner.commit_table(table, request.requirements, request.updates)
            else:
                self._inner.commit_tables(changes)
            if fault is not None:
                raise fault.error
        finally:
            self._after_commit.get(number, _nothing)()

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        """Load a table, or fail or answer from the past."""
        self.loads += 1
        return self._struck_or("load_table", lambda: self._load(identifier))

    def _load(self, identifier: str | tuple[str, ...]) -> Table:
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
            return self._struck_or(
                "commit_table",
                lambda: self._commit(fault, table, requirements, updates),
                faster=lambda: self._commit_another(table),
            )
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
            if _is_lost_race(fault.error, was_carried_out=False):
                self._commit_another(table)
            raise fault.error
        self._before_last = None
        with suppress(Exception):  # there is none yet
            self._before_last = self._inner.load_table(table.name())
        response = self._inner.commit_table(table, requirements, updates)
        if fault is not None:
            raise fault.error
        return response

    def _commit_another(self, table: Table) -> None:
        try:
            current = self._inner.load_table(table.name())
            self._inner.commit_table(current, (), (AddSnapshotUpdate(snapshot=beside(current.metadata)),))
        except (NoSuchTableError, OSError, NoSnapshotError):  # it was to be created, or its store fails
            self.lied = True


class NoSnapshotError(Exception):
    """The table has no snapshot yet: one beside it cannot be told from one before it."""


def beside(metadata: TableMetadata) -> Snapshot:
    """Return a snapshot that another writer adds beside all branches, as one that stages does; it shows the same files.

    Raises:
        NoSnapshotError: The table has none so far.
    """
    shown = metadata.current_snapshot()
    if shown is None:
        raise NoSnapshotError
    told = shown.summary.additional_properties if shown.summary is not None else {}
    totals = {key: text for key, text in told.items() if key.startswith("total-")}
    numbers = {} if shown.first_row_id is None else {"first_row_id": next_row_id(metadata), "added_rows": 0}
    return shown.model_copy(
        update={
            **numbers,
            "summary": Summary(operation=Operation.APPEND, **totals),
            "snapshot_id": random.getrandbits(62),
            "parent_snapshot_id": None,
            "sequence_number": metadata.next_sequence_number(),
            "timestamp_ms": metadata.last_updated_ms + 1,
        }
    )


def _is_lost_race(error: Exception, *, was_carried_out: bool) -> bool:
    """Return whether a commit that fails so was refused because another one was faster: then another one is made."""
    return type(error) is CommitFailedException and not was_carried_out  # `FalseRefusal` says so, and lies


def _nothing() -> None:
    """Do nothing."""
