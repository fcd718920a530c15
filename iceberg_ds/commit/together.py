"""Commits the writes of one epoch to several tables: each table exactly once, by the marker of its own write.

Where the catalog takes a request for several tables, one request changes all tables or none, under the conditions of
each table's own commit. The loop is that of one table (`retry`), over all of them: load and look at every table, send
one request for those that are due, and look again. No answer is believed, and that the catalog is atomic is not
believed either: only what each table shows counts. A catalog that shows a request in some of its tables is named in the
log, and the other tables are committed one after the other (`in_turn`): the epoch is finished forward, never undone.
If a table can never take its rows, and no table of the epoch shows that it has them, none gets them.

Some writes have to land first: those of quarantine tables, whose rows would be lost if the tables had
the epoch without them. They take part in the request only where the catalog surely carries it out as a whole, by one
transaction of its database. Else they are committed before it, one after the other, and if one fails, no table gets
its rows.

Elsewhere each table gets a request of its own (`in_turn`). If the driver dies in between, or a table fails, a repeated
epoch skips the tables that have their rows, and goes on with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError, ManyTablesRefusedError
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.staged_metadata import tidying_metadata
from iceberg_ds.commit.commit import commit_to_branch, end_commit, has_number
from iceberg_ds.commit.epoch_part import (
    EpochPart,
    check_first,
    heed_sources,
    is_hopeless,
    lacks_first,
    overtaken_error,
    shows_rows,
)
from iceberg_ds.commit.in_turn import bring_in_turn
from iceberg_ds.commit.overwrite import RewriteValidationError
from iceberg_ds.commit.retry import Pace, RetryPolicy, would_fail_again
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite, giving_up
from iceberg_ds.errors import (
    CatalogError,
    CommitStateUnknownError,
    IcebergSinkError,
    OptionError,
)
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.messages import complete_commits
from iceberg_ds.metrics.commit_meter import metered
from iceberg_ds.metrics.delivery import waiting_once
from iceberg_ds.metrics.report import figures_of
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)

_told: set[tuple[str, str]] = set()


@waiting_once()
def commit_tables(
    catalog: CatalogClient,
    writes: Sequence[TableWrite],
    *,
    first: Sequence[TableWrite] = (),
    epoch_id: int | None = None,
) -> list[CommitResult]:
    """Commit the writes of one epoch or batch, no two of them to one table, and return their results in their order.

    A table that cannot take its rows keeps the other tables from theirs, unless a table shows the epoch already.

    Args:
        catalog: The catalog of all tables.
        writes: The writes.
        first: Writes that land before the others or together with them, and without which none of these may land; those
            to one table have different writers. They have rows, and were not there when they were made.
        epoch_id: The micro-batch that Spark commits; None for a batch.

    Raises:
        CommitStateUnknownError: Of a table it is unknown whether it has its rows; names every table that failed.
        IcebergSinkError: Names every table that failed, and is of the type of the first failure, as `commit_write`
            raises it. If one of `first` failed, no other one was committed, and their files were deleted.
    """
    if len(writes) == 1 and not first:
        return [_commit_one(catalog, writes[0], epoch_id)]
    with giving_up(catalog, [*first, *writes]):
        check_apart(catalog, writes, first)
    if first and not _may_go_along(catalog, writes, first):
        _commit_first(catalog, writes, first, epoch_id)
        with giving_up(catalog, writes):
            fault_point(FaultPoint.QUARANTINED)
        return commit_tables(catalog, writes, epoch_id=epoch_id)
    _tell_once(
        catalog,
        logging.INFO,
        "Tables of one epoch are committed by one request in %r, which is to change all of them or none"
        if catalog.takes_many_tables
        else "Tables of one epoch are committed one after the other in %r, which takes no request for several tables",
    )
    return _commit_parts(catalog, writes, first, epoch_id)


def _may_go_along(catalog: CatalogClient, writes: Sequence[TableWrite], first: Sequence[TableWrite]) -> bool:
    """Return whether the writes that are to land first may land in one request with the rest."""
    names = {write.table.lower() for write in first}
    uuids = {write.commits[0].write.table_uuid for write in first}
    is_each_alone = len(names) == len(uuids) == len(first)
    return catalog.is_atomic_over_tables and is_each_alone and not any(map(_begins_a_branch, writes))


def _commit_first(
    catalog: CatalogClient, writes: Sequence[TableWrite], first: Sequence[TableWrite], epoch_id: int | None
) -> None:
    """Commit the writes that are to land first; if one fails, delete the files of all writes after it.

    Raises:
        IcebergSinkError: One did not land, and nothing is committed after it.
    """
    for number, write in enumerate(first, start=1):
        with giving_up(catalog, [*first[number - 1 :], *writes]):
            for other in writes:
                if other.table in write.sources and has_number(catalog, other.commits[0].write):
                    raise overtaken_error(write.table, other.table)
        with giving_up(catalog, [*first[number:], *writes]):
            try:
                check_first(write.table, _commit_one(catalog, write, epoch_id))
            except IcebergSinkError as failure:
                raise type(failure)(f"{_none_without_first(writes)}: {failure}") from failure


def _none_without_first(writes: Sequence[TableWrite]) -> str:
    return (
        f"Nothing was committed to {', '.join(write.table for write in writes) or 'any table'}, because the rows that "
        "cannot be written there did not get into their quarantine table"
    )


def check_apart(catalog: CatalogClient, writes: Sequence[TableWrite], first: Sequence[TableWrite] = ()) -> None:
    """Refuse two writes to one table: one would be taken for a repetition of the other.

    Of the writes that land first, only those of one writer are refused: their table takes no other rows.

    Raises:
        OptionError: Names the table; nothing was committed.
    """
    seen: dict[tuple[str, str | None], str] = {}
    landing_first: dict[str, str] = {}
    everything = [*first, *writes]
    # Some catalogs take names for one that differ in case alone; a table that is not there yet has no UUID to tell.
    new = {write.table.lower() for write in everything if write.commits[0].write.new_table is not None}
    for number, write in enumerate(everything):
        identity, is_first = write.commits[0].write, number < len(first)
        keys = (write.table.lower() if write.table.lower() in new else write.table, identity.table_uuid)
        by = None if identity.numbered is None else identity.numbered.writer
        if catalog.takes_many_tables and not is_first:
            by = None
        for key in keys:
            other = seen.get((key, by)) if is_first else landing_first.get(key, seen.get((key, by)))
            if other is not None:
                raise OptionError(
                    f"Cannot write to {write.table}, nothing was committed: rows come to this table in two ways, also "
                    f"as {other}, and it gets one snapshot of an epoch. A quarantine table takes no other "
                    "rows, and a table is to be named in one way, in upper and lower case, too, for example by "
                    "lower() of the names in the rows."
                )
        if is_first:
            landing_first |= dict.fromkeys(keys, write.table)
        if catalog.takes_many_tables or by is not None or not _is_plain_append(identity):
            # Else one lands after the other, and nothing tells them to be one.
            seen |= {(key, by): write.table for key in keys}


def _is_plain_append(write: WriteIdentity) -> bool:
    """Return whether a write only adds files to a table that is there: what another one does there stays."""
    return write.new_table is None and write.overwrite is None and write.changes is None


def _begins_a_branch(write: TableWrite) -> bool:
    """Return whether the write creates its table with rows on another branch than main.

    Catalogs take the first snapshot of an existing table on main alone, and a request for several tables creates no
    table.
    """
    identity = write.commits[0].write
    return identity.new_table is not None and identity.branch != MAIN_BRANCH


def _tell_once(catalog: CatalogClient, level: int, text: str, *arguments: object) -> None:
    """Log a text about the catalog, at most once per process."""
    if (repr(catalog), text) not in _told:
        _told.add((repr(catalog), text))
        logger.log(level, text, catalog, *arguments)


@tidying_metadata()
def _commit_one(catalog: CatalogClient, write: TableWrite, epoch_id: int | None) -> CommitResult:
    """Commit the write of one table, made anew as often as others make its rewrite stale."""
    with metered(catalog.reporting, write.commits[0].write, figures_of(write.commits)) as meter:
        while True:
            commits = complete_commits(write.commits, epoch_id=epoch_id)
            try:
                result = commit_to_branch(catalog, commits, meter, write.rewrite, write.late_keys)
            except RewriteValidationError as stale:
                write = write.renewed(catalog, meter, stale)
            else:
                return end_commit(catalog, commits[0].write, result, write.publish)


def _some_failed(count: int, failed: int, doubtful: int, *, is_numbered: bool) -> str:
    """Return what became of `count` tables: how many failed, and how many are in doubt."""
    if failed == count:
        return f"None of {count} tables was committed"
    told = f"{failed} of {count} tables were not committed"
    if doubtful:
        unknown = f"t is unknown of {doubtful} of {count} tables whether they have their rows"
        told = f"{told}, and i{unknown}" if failed else f"I{unknown}"
    if failed + doubtful == count:
        return told
    told = f"{told}; the other tables have their rows"
    if not is_numbered:
        return f"{told}, and get them a second time if this runs again, because it has no epoch and no version"
    return f"{told}, and are skipped when this runs again under the same epoch or version"


def _of_several(failures: Sequence[IcebergSinkError], summary: str) -> IcebergSinkError:
    """Return one error for those of several tables; if the state of a table is unknown, it says so by its type."""
    first = next((failure for failure in failures if isinstance(failure, CommitStateUnknownError)), failures[0])
    listed = "\n".join(f"  - {failure}" for failure in failures)
    error = type(first)(f"{summary}:\n{listed}")
    error.__cause__ = first
    return error


@tidying_metadata()
def _commit_parts(
    catalog: CatalogClient, writes: Sequence[TableWrite], first: Sequence[TableWrite], epoch_id: int | None
) -> list[CommitResult]:
    is_one_request = catalog.takes_many_tables and not any(_begins_a_branch(write) for write in writes)
    parts = [EpochPart(catalog, write, is_first=number < len(first)) for number, write in enumerate([*first, *writes])]
    try:
        for part in parts:
            part.begin(epoch_id)
        if is_one_request:
            _Together(catalog, parts).bring_in()
        else:
            bring_in_turn(parts)
        for part in parts:
            part.end()
    except BaseException as interruption:
        for part in parts:
            part.report(interruption)
        raise
    failures = [part.failure for part in parts if part.failure is not None]
    for part in parts:
        part.report(failures[0] if failures else None)
    if failures:
        raise _of_several(failures, _summary(parts, failures, writes))
    return [part.result for part in parts[len(first) :] if part.result is not None]


def _summary(parts: Sequence[EpochPart], failures: Sequence[IcebergSinkError], writes: Sequence[TableWrite]) -> str:
    """Return what became of the epoch, of whose writes some have failed."""
    if lacks_first(parts) and not any(part.has_rows for part in parts if not part.is_first):
        return _none_without_first(writes)
    count, doubtful = len(parts), sum(isinstance(failure, CommitStateUnknownError) for failure in failures)
    if shows_rows(parts):
        left_out = [part.is_first for part in parts if part.is_abandoned and part.failure is None]
        failed = len(failures) - doubtful + left_out.count(False)
        is_numbered = writes[0].commits[0].write.numbered is not None
        return _some_failed(count - left_out.count(True), failed, doubtful, is_numbered=is_numbered)
    if doubtful == count:
        return f"{count} tables are committed together, and what became of them is unknown"
    if doubtful:
        return f"It is unknown of {doubtful} of {count} tables whether they have their rows; no other table has them"
    return f"None of {count} tables was committed: if one fails, the other tables of its epoch are not committed either"


class _Together:
    """The writes of one epoch on their way into their tables, by requests for all that are due.

    Args:
        catalog: The catalog of the tables.
        parts: The writes.
    """

    def __init__(self, catalog: CatalogClient, parts: Sequence[EpochPart]) -> None:
        self._catalog = catalog
        self._parts = parts
        self._asked: list[EpochPart] = []  # those in the last request
        self._concerned: list[EpochPart] | None = None  # those that `_problem` is about; None for all
        self._is_confirmed = False  # whether the catalog confirmed the last request
        self._problem: Exception | None = None  # of the last attempt; None to try again at once
        self._was_renewed = False  # whether the last attempt found a stale rewrite, so that it is no failure

    @property
    def _due(self) -> list[EpochPart]:
        return [part for part in self._parts if part.is_due]

    def bring_in(self) -> None:
        """Load, look and send repeatedly until no table is due any more; each part then knows what became of it."""
        pace = Pace()
        while self._due:
            is_exhausted = pace.begin_attempt()
            self._was_renewed = False
            try:
                self._look()
            except CatalogError as unreachable:
                self._problem = unreachable
                if is_exhausted:
                    self._give_up_unseen()
            else:
                pace.policy = RetryPolicy.most_patient(part.retry_policy for part in self._due or self._parts)
                self._go_on(is_exhausted=is_exhausted)
            if self._due and not self._was_renewed:
                pace.wait_after(self._problem)

    def _give_up_unseen(self) -> None:
        """Give up the tables that cannot be loaded; those that can be loaded may show that the epoch has begun."""
        for part in self._due:
            try:
                part.look()
            except CatalogError as unreachable:
                part.give_up_unseen(unreachable)
                self._concerned = []  # the others may go on

    def _look(self) -> None:
        """Load every table that is due, and look at it.

        Raises:
            CatalogError: The catalog cannot be reached.
        """
        for part in self._due:
            part.look()
        if self._is_confirmed or any(part.has_rows for part in self._asked):
            # The catalog may have carried the request out between two of these loads.
            for part in self._due:
                part.look()

    def _go_on(self, *, is_exhausted: bool) -> None:
        """Do what the last look at all tables calls for."""
        heed_sources(self._parts)
        due = self._due
        concerned = due if self._concerned is None else [part for part in self._concerned if part.is_due]
        is_over = would_fail_again(self._problem) or all(part.stays_refused(self._problem) for part in concerned)
        if is_hopeless(self._parts):
            for part in due:
                part.abandon()
        elif self._must_go_in_turn() or len(due) == 1:
            bring_in_turn(self._parts)
        elif is_exhausted or is_over:
            for part in concerned:
                part.give_up(self._problem)
            if shows_rows(self._parts):
                bring_in_turn(self._parts)
        else:
            self._attempt(due)

    def _must_go_in_turn(self) -> bool:
        """Return whether the catalog does not do what it is asked for, which is said in the log."""
        missing = [part.name for part in self._asked if part.is_due]
        shown = [part.name for part in self._asked if part.has_landed]
        if missing and (shown or self._is_confirmed):
            _tell_once(
                self._catalog,
                logging.WARNING,
                "%r is not atomic over tables: after one request for all of them, %s shows its rows, and %s does not. "
                "What is missing is committed one table after the other",
                ", ".join(shown) or "no table",
                ", ".join(missing),
            )
            return True
        if isinstance(self._problem, ManyTablesRefusedError) or (
            isinstance(self._problem, CommitRefusedError) and self._problem.is_gone
        ):
            _tell_once(
                self._catalog,
                logging.WARNING,
                "%r refuses requests for several tables, although it says that it takes them: %s. Tables are "
                "committed one after the other",
                self._problem,
            )
            return True
        return False

    def _attempt(self, due: Sequence[EpochPart]) -> None:
        """Create the tables that are missing, or else send one request."""
        fault_point(FaultPoint.TABLES_SEEN)
        self._asked, self._concerned, self._is_confirmed, self._problem = [], None, False, None
        if missing := [part for part in due if part.is_new]:
            for part in missing:
                part.create()
            fault_point(FaultPoint.TABLES_CREATED)
            return
        requests: dict[EpochPart, CommitRequest] = {}
        for part in due:
            prepared = part.prepare()
            if isinstance(prepared, RewriteValidationError):
                self._was_renewed = True
                return
            if isinstance(prepared, Exception):
                self._problem, self._concerned = prepared, [part]
                return
            if prepared is not None:
                requests[part] = prepared
        if is_hopeless(self._parts) or len(requests) <= 1:  # the next look finds out what to do
            return
        fault_point(FaultPoint.TABLES_PREPARED)
        self._send(requests)
        fault_point(FaultPoint.TABLES_ANSWERED)

    def _send(self, requests: Mapping[EpochPart, CommitRequest]) -> None:
        self._asked = list(requests)
        failure: CommitRefusedError | CommitAnswerLostError | None = None
        try:
            with ExitStack() as meters:
                for part in self._asked:
                    part.asking(meters)
                self._catalog.send_together([(part.table_seen, request) for part, request in requests.items()])
        except (CommitRefusedError, CommitAnswerLostError) as problem:
            failure = problem
        for part in self._asked:
            part.note(failure)
        self._is_confirmed, self._problem = failure is None, failure
