"""Commits the writes of one epoch to several tables: each table exactly once, by the marker of its own write.

Where the catalog takes a request for several tables, one request changes all tables or none, under the conditions of
each table's own commit. The loop is that of one table (`retry`), over all of them: load and look at every table, send
one request for those that are due, and look again. No answer is believed, and that the catalog is atomic is not
believed either: only what each table shows counts. A catalog that shows a request in some of its tables is named in the
log, and the other tables are committed one by one: the epoch is finished forward, never undone. If a table can never
take its rows, and no table of the epoch shows that it has them, none gets them.

Some writes have to land first: those of quarantine tables, whose rows would be lost if the tables had
the epoch without them. They take part in the request only where the catalog surely carries it out as a whole, by one
transaction of its database. Else they are committed before it, one after the other, and if one fails, no table gets
its rows.

Elsewhere each table gets a request of its own. The same loop runs: the files of all tables are written and checked
before the first request is sent, and then one follows the other. So a table that can never take its rows keeps all
others from theirs, and readers see some tables without the others no longer than these requests take. If one is refused
before any table shows its rows, all begin again; after that, the rest is committed one by one. If the driver dies in
between, a repeated epoch skips the tables that have their rows, and goes on with the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table

from iceberg_ds.catalog.answers import (
    CommitAnswerLostError,
    CommitRefusedError,
    ManyTablesRefusedError,
    stays_refused,
)
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.metadata_files import planned_metadata
from iceberg_ds.catalog.staged_metadata import tidying_metadata
from iceberg_ds.commit.commit import (
    Publish,
    begin_commit,
    commit_to_branch,
    end_commit,
    give_up_write,
    has_number,
    with_rewritten,
)
from iceberg_ds.commit.create_table import create_without_rows
from iceberg_ds.commit.overwrite import RewriteFiles, RewriteValidationError
from iceberg_ds.commit.retry import Pace, RetryPolicy, bring_in, would_fail_again
from iceberg_ds.commit.snapshot_update import CommitResult, SnapshotUpdate
from iceberg_ds.commit.write_files import Added
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    IcebergSinkError,
    OptionError,
)
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof
from iceberg_ds.messages import TaskCommit, complete_commits
from iceberg_ds.metrics.commit_meter import CommitMeter, hand_out, metered
from iceberg_ds.metrics.delivery import waiting_once
from iceberg_ds.metrics.report import figures_of
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.table.names import parse_identifier
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)

_told: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """The write of one of several tables, ready to be committed.

    Attributes:
        commits: What its tasks report; a message for each partition.
        rewrite: Further files to add, and the files that they replace; None for no replacement.
        late_keys: As `begin_commit` takes it.
        publish: As `end_commit` takes it.
        renew: Makes the write anew, with a new operation, once its rewrite has become stale and no request for it can
            land any more. None if a stale rewrite is a failure.
        sources: Identifiers of the tables that these rows could not be written into, if it is the write of a quarantine
            table. None of them had the epoch or version when it was made.
    """

    commits: Sequence[TaskCommit]
    rewrite: RewriteFiles | None = None
    late_keys: pa.Table | None = None
    publish: Publish | None = None
    renew: Callable[[RewriteValidationError], TableWrite] | None = None
    sources: Sequence[str] = ()

    @property
    def table(self) -> str:
        """Identifier of the table."""
        return self.commits[0].write.table

    def renewed(self, catalog: CatalogClient, meter: CommitMeter, stale: RewriteValidationError) -> TableWrite:
        """Return the write made anew.

        Raises:
            RewriteValidationError: It cannot be made anew.
            IcebergSinkError: It can no longer be made; its files were deleted.
        """
        if self.renew is None:
            raise stale
        logger.info("Preparing the write of %s again: %s", self.table, stale)
        try:
            write = self.renew(stale)
        except BaseException:
            meter.gave_up(give_up_write(catalog, self.table, self.commits, self.rewrite, Proof.REFUSED))
            raise
        meter.begin(write.commits[0].write)
        return write


@contextmanager
def giving_up(
    catalog: CatalogClient, writes: Iterable[TableWrite] | Callable[[], Iterable[TableWrite]]
) -> Iterator[None]:
    """Give writes up if the block raises, which comes before their commits: delete their files, and report each.

    Args:
        catalog: The catalog of their tables.
        writes: The writes; or what returns them, where they may have other files by then.
    """
    try:
        yield
    except BaseException as failure:
        with waiting_once():
            for write in writes() if callable(writes) else writes:
                meter = CommitMeter(write.commits[0].write, figures_of(write.commits))
                meter.gave_up(give_up_write(catalog, write.table, write.commits, write.rewrite))
                hand_out(catalog.reporting, meter, None, of_others=failure)
        raise


@waiting_once()
def commit_tables(
    catalog: CatalogClient,
    writes: Sequence[TableWrite],
    *,
    first: Sequence[TableWrite] = (),
    epoch_id: int | None = None,
) -> list[CommitResult]:
    """Commit the writes of one epoch or batch, no two of them to one table, and return their results in their order.

    A table that cannot take its rows keeps the other tables from theirs, unless a table has the epoch already.

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
    return _commit_together(catalog, writes, first, epoch_id)


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
                    raise _overtaken(write.table, other.table)
        with giving_up(catalog, [*first[number:], *writes]):
            try:
                _check_first(write.table, _commit_one(catalog, write, epoch_id))
            except IcebergSinkError as failure:
                raise type(failure)(f"{_none_without_first(writes)}: {failure}") from failure


def _overtaken(table: str, source: str) -> CommitConflictError:
    """Return the error of a quarantine table whose rows another run may have written into their own table."""
    return CommitConflictError(
        f"Cannot commit to {table}: another run of the same epoch or version committed to {source} at the same moment, "
        "maybe with the rows that cannot be written by this one. Let one of them run at a time, and run this again."
    )


def _check_first(table: str, result: CommitResult) -> CommitResult:
    """Return the result of a write that is to land first.

    Raises:
        CommitConflictError: The table has its number by now, maybe with other rows.
    """
    if result.was_replayed:
        raise CommitConflictError(
            f"Cannot commit to {table}: another run of the same epoch or version committed to it at the same moment, "
            "maybe other rows. Let one of them run at a time, and run this again."
        )
    return result


def _none_without_first(writes: Sequence[TableWrite]) -> str:
    return (
        f"Nothing was committed to {', '.join(write.table for write in writes) or 'any table'}, because the rows that "
        "cannot be written there did not get into their quarantine table"
    )


def check_apart(catalog: CatalogClient, writes: Sequence[TableWrite], first: Sequence[TableWrite] = ()) -> None:
    """Refuse two writes to one table: one would be taken for a repetition of the other.

    Of the writes that land first, only those of one writer are refused.

    Raises:
        OptionError: Names the table; nothing was committed.
    """
    seen: dict[tuple[str, str | None], str] = {}
    everything = [*first, *writes]
    # Some catalogs take names for one that differ in case alone; a table that is not there yet has no UUID to tell.
    new = {write.table.lower() for write in everything if write.commits[0].write.new_table is not None}
    for number, write in enumerate(everything):
        name = write.table.lower() if write.table.lower() in new else write.table
        identity = write.commits[0].write
        writer = None if identity.numbered is None else identity.numbered.writer
        if not catalog.takes_many_tables and writer is None and _is_plain_append(identity):
            continue  # one lands after the other, and nothing tells them to be one
        by = writer if number < len(first) or not catalog.takes_many_tables else None
        for key in (name, identity.table_uuid):
            if (key, by) in seen:
                raise OptionError(
                    f"Cannot write to {write.table}, nothing was committed: rows come to this table in two ways, also "
                    f"as {seen[key, by]}, and it gets one snapshot of an epoch. A quarantine table takes no other "
                    "rows, and a table is to be named in one way, in upper and lower case, too, for example by "
                    "lower() of the names in the rows."
                )
        for told in {by, None} if catalog.takes_many_tables else {by}:
            seen[name, told] = seen[identity.table_uuid, told] = write.table


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


def _some_failed(failures: Sequence[IcebergSinkError], writes: Sequence[TableWrite]) -> str:
    doubtful = sum(isinstance(failure, CommitStateUnknownError) for failure in failures)
    failed, count = len(failures) - doubtful, len(writes)
    if failed == count:
        return f"None of {count} tables was committed"
    told = f"{failed} of {count} tables were not committed"
    if doubtful:
        unknown = f"t is unknown of {doubtful} of {count} tables whether they have their rows"
        told = f"{told}, and i{unknown}" if failed else f"I{unknown}"
    if len(failures) == count:
        return told
    told = f"{told}; the other tables have their rows"
    if writes[0].commits[0].write.numbered is None:
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
def _commit_together(
    catalog: CatalogClient, writes: Sequence[TableWrite], first: Sequence[TableWrite], epoch_id: int | None
) -> list[CommitResult]:
    parts = [_Part(catalog, write, is_first=number < len(first)) for number, write in enumerate([*first, *writes])]
    try:
        for part in parts:
            part.begin(epoch_id)
        is_one_request = catalog.takes_many_tables and not any(_begins_a_branch(write) for write in writes)
        together = _Together(catalog, parts, is_one_request=is_one_request)
        together.bring_in()
        for part in parts:
            part.end()
    except BaseException as interruption:
        for part in parts:
            part.report(part.failure or interruption)
        raise
    failures = [part.failure for part in parts if part.failure is not None]
    for part in parts:
        part.report(part.failure, of_others=failures[0] if part.is_abandoned else None)
    if failures:
        raise _of_several(failures, together.summary(failures, writes))
    return [part.result for part in parts[len(first) :] if part.result is not None]


class _Part:
    """The write of one table on its way into the catalog, together with those of other tables.

    Attributes:
        name: Identifier of the table.
        table: The table as last loaded.
        base: The table that the last request was made for; None before the first request.
        result: The outcome, once the table shows it.
        failure: Why the table did not get its rows, or may not have them.
        is_abandoned: Whether it was given up because of another table.
        is_first: Whether no other table may get its rows unless this one does.
    """

    def __init__(self, catalog: CatalogClient, write: TableWrite, *, is_first: bool = False) -> None:
        self._catalog = catalog
        self._write = write
        self._identity = write.commits[0].write
        self._meter = CommitMeter(self._identity, figures_of(write.commits))
        self._meter.files_at_stake = with_rewritten(Added.of(write.commits), write.rewrite).file_count
        self._update: SnapshotUpdate | None = None
        self._epoch_id: int | None = None
        self.name = self._identity.table
        self.table: Table | None = None
        self.base: Table | None = None
        self.result: CommitResult | None = None
        self.failure: IcebergSinkError | None = None
        self.is_abandoned = False
        self.is_first = is_first

    @property
    def sources(self) -> Sequence[str]:
        """As in `TableWrite`."""
        return self._write.sources

    @property
    def is_due(self) -> bool:
        """Whether the table still has to get its rows: it does not show them, and its write has not failed."""
        return self.result is None and self.failure is None and not self.is_abandoned

    @property
    def has_rows(self) -> bool:
        """Whether the table shows the rows of this epoch, from this commit or an earlier one."""
        return self.has_landed or (self.result is not None and self.result.was_replayed)

    @property
    def has_landed(self) -> bool:
        """Whether the table shows the snapshot of this very commit."""
        return self.result is not None and self.result.snapshot_id is not None

    @property
    def is_new(self) -> bool:
        """Whether the table has to be created."""
        return self._update is not None and self._update.is_new

    def begin(self, epoch_id: int | None) -> None:
        """Check what the tasks report."""
        self._epoch_id = epoch_id
        with self._failing():
            commits = complete_commits(self._write.commits, epoch_id=epoch_id)
            begun = begin_commit(self._catalog, commits, self._meter, self._write.rewrite, self._write.late_keys)
            if isinstance(begun, SnapshotUpdate):
                self._update = begun
            else:
                self.result = begun

    def look(self) -> None:
        """Load the table, and look whether it shows the rows, may get them, or can never get them.

        Raises:
            CatalogError: The catalog cannot be reached.
        """
        with self._failing(but=(CatalogError,)):
            self.table = self._update_due.load()
        if self.is_due:
            with self._failing():
                self._take(self._update_due.look(self.table_seen, self.base))
        if not self.is_due:
            self.table = self.base = None  # of many tables, only those that are due need memory

    def create(self) -> None:
        """Create the table without rows."""
        new_table = self._identity.new_table
        if new_table is not None:
            with self._failing():
                metadata = planned_metadata(new_table)
                create_without_rows(self._catalog, parse_identifier(self.name), metadata)
                self._update_due.note_created()

    def prepare(self) -> CommitRequest | Exception | None:
        """Return the table's part of a request, or None if the table is done or failed.

        Or the failure of the store; or `RewriteValidationError` if others made the rewrite stale, and the write was
        made anew.
        """
        self.base = self.table
        prepared: CommitRequest | CommitResult | Exception | None = None
        with self._failing():
            try:
                prepared = self._update_due.prepare(self.table_seen)
            except RewriteValidationError as stale:
                self._renew(stale)
                prepared = stale
        if isinstance(prepared, CommitResult):
            self.result = prepared
            return None
        return prepared

    def note(self, failure: CommitRefusedError | CommitAnswerLostError | None) -> None:
        """Note that a request was sent, and failed or (None) was confirmed."""
        if failure is None:
            self._update_due.note_confirmed(self.table_seen)
        else:
            self._update_due.note_failure(self.table_seen, failure)

    def send(self, request: CommitRequest) -> CommitRefusedError | CommitAnswerLostError | None:
        """Send the request for this table alone; return the failure that the next look confirms or refutes, or None."""
        sent: CommitResult | CommitRefusedError | CommitAnswerLostError | None = None
        with self._failing():
            sent = self._update_due.send_prepared(self.table_seen, request)
        if not isinstance(sent, CommitResult):
            return sent
        self.result = sent
        return None

    def asking(self, stack: ExitStack) -> None:
        """Note that a request is sent, and count the time until the stack ends as waiting for the catalog."""
        stack.enter_context(self._meter.request())

    def stays_refused(self, problem: Exception | None) -> bool:
        """Return whether the catalog refused for a reason that lasts as long as this table stays as it was."""
        return stays_refused(problem, self.base, self.table_seen)

    def finish_singly(self) -> None:
        """Commit the table by a request of its own, made anew as often as others make its rewrite stale."""
        while self.is_due:
            with self._failing():
                try:
                    self._take(bring_in(self._update_due))
                except RewriteValidationError as stale:
                    self._renew(stale)

    def _take(self, result: CommitResult | None) -> None:
        self.result = _check_first(self.name, result) if self.is_first and result is not None else result

    def _renew(self, stale: RewriteValidationError) -> None:
        """Make the write anew; no request for it can land any more."""
        self._write = self._write.renewed(self._catalog, self._meter, stale)
        self._identity = self._write.commits[0].write
        self._update, self.base = None, None
        self.begin(self._epoch_id)

    def abandon(self) -> None:
        """Give the table up, because another one of its epoch cannot get its rows."""
        self.is_abandoned = True
        with self._failing():
            self._update_due.abandon(self.table_seen)

    def refuse(self, reason: CommitConflictError) -> None:
        """Give the table up, because another run of the epoch was faster."""
        with self._failing():
            self._update_due.abandon(self.table_seen)
        self.failure = self.failure or reason

    def give_up(self, problem: Exception | None) -> None:
        """Give the table up; the last attempt failed with `problem`."""
        with self._failing():
            self._update_due.give_up(self.table_seen, problem)

    def give_up_unseen(self, unreachable: CatalogError) -> None:
        """Give the table up; it cannot be loaded."""
        with self._failing():
            self._update_due.give_up_unseen(unreachable)

    def end(self) -> None:
        """Publish the rows if that is asked for."""
        if self.result is not None:
            with self._failing():
                self.result = end_commit(self._catalog, self._identity, self.result, self._write.publish)

    def report(self, failure: BaseException | None, *, of_others: BaseException | None = None) -> None:
        """Hand out the report on this table's commit."""
        hand_out(self._catalog.reporting, self._meter, failure, of_others=of_others)

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often and how long the table's properties let a commit be tried again."""
        return RetryPolicy() if self.table is None else RetryPolicy.of(self.table.metadata.properties)

    @property
    def _update_due(self) -> SnapshotUpdate:
        if self._update is None:
            raise AssertionError("unreachable: a part without an update is not due")
        return self._update

    @property
    def table_seen(self) -> Table:
        """The table as last loaded."""
        if self.table is None:
            raise AssertionError("unreachable: a table is loaded before it is looked at")
        return self.table

    @contextmanager
    def _failing(self, *, but: tuple[type[IcebergSinkError], ...] = ()) -> Iterator[None]:
        """Note an error in the block as the failure of this table; those of the types `but` pass."""
        try:
            yield
        except but:
            raise
        except IcebergSinkError as failure:
            self.failure = failure


class _Together:
    """The writes of one epoch on their way into their tables.

    Args:
        catalog: The catalog of the tables.
        parts: The writes.
        is_one_request: Whether one request changes all that are due; else there is a request for each of them.
    """

    def __init__(self, catalog: CatalogClient, parts: Sequence[_Part], *, is_one_request: bool) -> None:
        self._catalog = catalog
        self._parts = parts
        self._is_one_request = is_one_request
        self._asked: list[_Part] = []  # those that the last attempt sent a request for
        self._concerned: list[_Part] = []  # those that `_problem` is about
        self._is_confirmed = False  # whether the catalog confirmed the last request
        self._problem: Exception | None = None  # of the last attempt; None to try again at once
        self._was_renewed = False  # whether the last attempt found a stale rewrite, so that it is no failure

    @property
    def _due(self) -> list[_Part]:
        return [part for part in self._parts if part.is_due]

    @property
    def _shows_rows(self) -> bool:
        return any(part.has_rows for part in self._parts)

    @property
    def _lacks_first(self) -> bool:
        """Whether a table failed without whose rows no other one may get its own."""
        return any(part.is_first and part.failure is not None for part in self._parts)

    @property
    def _is_hopeless(self) -> bool:
        """Whether no table that is due may get its rows.

        A table can never get its rows, and no table of the epoch shows that it has them, or they had to be there first.
        """
        return self._lacks_first or (any(part.failure is not None for part in self._parts) and not self._shows_rows)

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
                for part in self._due if is_exhausted else []:
                    part.give_up_unseen(unreachable)
            else:
                pace.policy = RetryPolicy.most_patient(part.retry_policy for part in self._due or self._parts)
                self._go_on(is_exhausted=is_exhausted)
            if self._due and not self._was_renewed:
                pace.wait_after(self._problem)

    def summary(self, failures: Sequence[IcebergSinkError], writes: Sequence[TableWrite]) -> str:
        """Return what became of the epoch, of whose writes some have failed."""
        if self._lacks_first and not any(part.has_rows for part in self._parts if not part.is_first):
            return _none_without_first(writes)
        if self._shows_rows:
            return _some_failed(failures, writes)
        count = len(self._parts)
        if doubtful := sum(isinstance(failure, CommitStateUnknownError) for failure in failures):
            if self._is_one_request:
                return f"{count} tables are committed together, and what became of them is unknown"
            return f"It is unknown of {doubtful} of {count} tables if they have their rows; no other has them"
        return f"None of {count} tables was committed, because they are committed together"

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
        self._refuse_overtaken()
        due = self._due
        if self._is_hopeless:
            for part in due:
                part.abandon()
        elif self._must_go_singly() or len(due) == 1:
            for part in due:  # those that are to land first come first
                if self._lacks_first:
                    part.abandon()
                else:
                    part.finish_singly()
        elif self._is_refused_together():
            self._is_one_request = False
            self._attempt(due)
        elif is_exhausted or would_fail_again(self._problem) or self._stays_refused(due):
            for part in self._concerned or due:
                part.give_up(self._problem)
        else:
            self._attempt(due)

    def _refuse_overtaken(self) -> None:
        """Give quarantine tables up whose rows another run may have written into their own tables."""
        replayed = {part.name for part in self._parts if part.result is not None and part.result.was_replayed}
        for part in self._due:
            if overtaken := replayed.intersection(part.sources):
                part.refuse(_overtaken(part.name, min(overtaken)))

    def _stays_refused(self, due: Sequence[_Part]) -> bool:
        """Return whether the catalog refused for a reason that lasts."""
        return all(part.stays_refused(self._problem) for part in self._concerned or due)

    def _must_go_singly(self) -> bool:
        """Return whether some tables show their rows after a request, and others do not.

        The log says so of a catalog that was to change all of them.
        """
        if not self._is_one_request:
            return bool(self._asked) and self._shows_rows
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
        return False

    def _is_refused_together(self) -> bool:
        """Return whether the catalog refuses requests for several tables, which is said in the log."""
        problem = self._problem
        is_gone = isinstance(problem, CommitRefusedError) and problem.is_gone
        if not self._is_one_request or not (is_gone or isinstance(problem, ManyTablesRefusedError)):
            return False
        _tell_once(
            self._catalog,
            logging.WARNING,
            "%r refuses requests for several tables, although it says that it takes them: %s. Tables are committed "
            "one after the other",
            problem,
        )
        return True

    def _attempt(self, due: Sequence[_Part]) -> None:
        """Send one request, before which tables that are missing are created, or a request for each table."""
        fault_point(FaultPoint.TABLES_SEEN)
        self._asked, self._concerned, self._is_confirmed, self._problem = [], [], False, None
        if self._is_one_request and (missing := [part for part in due if part.is_new]):
            for part in missing:
                part.create()
            fault_point(FaultPoint.TABLES_CREATED)
            return
        requests: dict[_Part, CommitRequest] = {}
        for part in due:
            prepared = part.prepare()
            if isinstance(prepared, RewriteValidationError):
                self._was_renewed = True
                return
            if isinstance(prepared, Exception):
                self._problem = prepared
                return
            if prepared is not None:
                requests[part] = prepared
        if self._is_hopeless or len(requests) <= 1:  # the next look finds out what to do
            return
        fault_point(FaultPoint.TABLES_PREPARED)
        if self._is_one_request:
            self._send(requests)
        else:
            self._send_in_turn(requests)
        fault_point(FaultPoint.TABLES_ANSWERED)

    def _send_in_turn(self, requests: Mapping[_Part, CommitRequest]) -> None:
        """Send a request for each table; stop at one that fails, as long as no other one may show its rows."""
        self._asked = list(requests)
        for part, request in requests.items():
            self._problem = part.send(request)
            if not part.has_rows and (part.is_first or not self._shows_rows):
                self._concerned = [part] if part.is_due else []
                return

    def _send(self, requests: Mapping[_Part, CommitRequest]) -> None:
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
