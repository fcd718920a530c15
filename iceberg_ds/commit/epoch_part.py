"""The write of one table on its way into the catalog, as a part of an epoch of several tables.

A part notes what became of its table, instead of raising. Whoever brings the parts in (`together`, `in_turn`) asks
what they show of their epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import NoReturn

from pyiceberg.table import Table

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError, stays_refused
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.metadata_files import planned_metadata
from iceberg_ds.commit.commit import begin_commit, end_commit, with_rewritten
from iceberg_ds.commit.create_table import create_without_rows
from iceberg_ds.commit.overwrite import RewriteValidationError
from iceberg_ds.commit.retry import Attempts, RetryPolicy, TableChange, bring_in
from iceberg_ds.commit.snapshot_update import CommitResult, SnapshotUpdate
from iceberg_ds.commit.table_write import TableWrite
from iceberg_ds.commit.write_files import Added
from iceberg_ds.errors import CatalogError, CommitConflictError, IcebergSinkError
from iceberg_ds.messages import complete_commits
from iceberg_ds.metrics.commit_meter import CommitMeter, hand_out
from iceberg_ds.metrics.report import figures_of
from iceberg_ds.table.names import parse_identifier
from iceberg_ds.table.requests import CommitRequest


def shows_rows(parts: Sequence[EpochPart]) -> bool:
    """Return whether a table shows its rows, so that the epoch is finished forward."""
    return any(part.has_rows for part in parts)


def lacks_first(parts: Sequence[EpochPart]) -> bool:
    """Return whether a table failed without whose rows no other one may get its own."""
    return any(part.is_first and part.failure is not None for part in parts)


def is_hopeless(parts: Sequence[EpochPart]) -> bool:
    """Return whether no table that is due may get its rows.

    A table can never get its rows, and no table of the epoch shows that it has them, or they had to be there first.
    """
    return lacks_first(parts) or (any(part.failure is not None for part in parts) and not shows_rows(parts))


def heed_sources(parts: Sequence[EpochPart]) -> None:
    """Give tables up whose rows are not to land beside what became of the tables that these rows were written for."""
    replayed = {part.name for part in parts if part.result is not None and part.result.was_replayed}
    failed = {part.name for part in parts if part.failure is not None}
    for part in parts:
        if part.is_due and (overtaken := replayed.intersection(part.sources)):
            part.refuse(overtaken_error(part.name, min(overtaken)))
        elif part.is_due and part.sources and failed.issuperset(part.sources):
            part.abandon()


def overtaken_error(table: str, source: str) -> CommitConflictError:
    """Return the error of a quarantine table whose rows another run may have written into their own table."""
    return CommitConflictError(
        f"Cannot commit to {table}: another run of the same epoch or version committed to {source} at the same moment, "
        "maybe with the rows that cannot be written by this one. Let one of them run at a time, and run this again."
    )


def check_first(table: str, result: CommitResult) -> CommitResult:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A request whose files are written, and the table for which it was made."""

    table: Table
    request: CommitRequest


class _UntilReady:
    """A write as the loop brings it in, but for the request, which is kept instead of sent."""

    def __init__(self, update: SnapshotUpdate) -> None:
        self._update = update

    def load(self) -> Table:
        return self._update.load()

    def look(self, table: Table, base: Table | None) -> _Ready | CommitResult | None:
        return self._update.look(table, base)

    def send(self, table: Table) -> _Ready | CommitResult | Exception:
        prepared = self._update.prepare(table)
        return _Ready(table=table, request=prepared) if isinstance(prepared, CommitRequest) else prepared

    def give_up(self, table: Table, problem: Exception | None) -> NoReturn:
        self._update.give_up(table, problem)

    def give_up_unseen(self, unreachable: CatalogError) -> NoReturn:
        self._update.give_up_unseen(unreachable)

    def waits_for_catalog(self) -> bool:
        return self._update.waits_for_catalog()


class EpochPart:
    """The write of one table on its way into the catalog, together with those of other tables.

    Attributes:
        name: Identifier of the table.
        table_uuid: UUID of the table.
        table: The table as last loaded.
        result: The outcome, once the table shows it.
        failure: Why the table did not get its rows, or may not have them.
        is_abandoned: Whether it was given up because of another table.
        is_first: Whether no other table may get its rows unless this one does.
        is_ended: Whether nothing is left to do for it, its publication included.
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
        self.table_uuid = self._identity.table_uuid
        self.table: Table | None = None
        self.result: CommitResult | None = None
        self.failure: IcebergSinkError | None = None
        self.is_abandoned = False
        self.is_first = is_first
        self.is_ended = False
        self._tried = Attempts()
        self._ready: _Ready | None = None

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
                self._take(self._update_due.look(self.table_seen, self._tried.base))
        if not self.is_due:
            self.table = self._tried.base = None  # of many tables, only those that are due need memory

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
        self._tried.base = self.table
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

    def asking(self, stack: ExitStack) -> None:
        """Note that a request is sent, and count the time until the stack ends as waiting for the catalog."""
        stack.enter_context(self._meter.request())

    def stays_refused(self, problem: Exception | None) -> bool:
        """Return whether the catalog refused for a reason that lasts as long as this table stays as it was."""
        return stays_refused(problem, self._tried.base, self.table_seen)

    @property
    def is_ready(self) -> bool:
        """Whether `make_ready` was called, and its request is not sent yet."""
        return self._ready is not None

    def make_ready(self) -> None:
        """Load, look and write until nothing is left to do but to send the request for this table alone.

        Or until the table is done, or has failed. What fails is tried again as in a commit of one table.
        """

        def until_ready() -> None:
            until: TableChange[_Ready | CommitResult] = _UntilReady(self._update_due)
            found = bring_in(until, self._tried)
            if isinstance(found, _Ready):
                self._ready = found
            else:
                self._take(found)

        while self.is_due and not self.is_ready:
            self._anew_if_stale(until_ready)

    def send_ready(self) -> None:
        """Send the request that is ready, once; the table is still due if the request failed."""
        ready, self._ready = self._ready, None
        if ready is None:
            raise AssertionError("unreachable: only what is ready is sent")
        with self._failing(), self._tried.pace.counting():
            self._tried.pace.begin_attempt()
            sent = self._update_due.send_prepared(ready.table, ready.request)
            if isinstance(sent, CommitResult):
                self._take(sent)
            else:
                self._tried.base, self._tried.problem = ready.table, sent

    def finish(self) -> None:
        """Commit the table by requests of its own, as often as it is tried alone."""
        while self.is_due:
            self._anew_if_stale(lambda: self._take(bring_in(self._update_due, self._tried)))

    def _anew_if_stale(self, step: Callable[[], None]) -> None:
        """Take a step, whose time counts; make the write anew if others have made its rewrite stale."""
        with self._failing(), self._tried.pace.counting():
            try:
                step()
            except RewriteValidationError as stale:
                self._renew(stale)

    def _take(self, result: CommitResult | None) -> None:
        self.result = check_first(self.name, result) if self.is_first and result is not None else result

    def _renew(self, stale: RewriteValidationError) -> None:
        """Make the write anew; no request for it can land any more."""
        self._write = self._write.renewed(self._catalog, self._meter, stale)
        self._identity = self._write.commits[0].write
        self._update, self._ready, self._tried = None, None, Attempts()
        self.begin(self._epoch_id)

    def abandon(self) -> None:
        """Give the table up, because another one of its epoch cannot get its rows."""
        self.is_abandoned = True
        with self._failing():
            self._update_due.abandon(self._last_seen)
        self._ready = None
        self._meter.files_at_stake = 0

    def refuse(self, reason: CommitConflictError) -> None:
        """Give the table up, because another run of the epoch was faster."""
        with self._failing():
            self._update_due.abandon(self._last_seen)
        self._ready = None
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
        self.is_ended = True

    def report(self, raised: BaseException | None) -> None:
        """Hand out the report on this table's commit; `raised` is what the epoch is given up for, or interrupted by."""
        if self.failure is None and self.is_abandoned:
            hand_out(self._catalog.reporting, self._meter, None, of_others=raised)
        else:
            hand_out(self._catalog.reporting, self._meter, self.failure or (None if self.is_ended else raised))

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

    @property
    def _last_seen(self) -> Table:
        return self.table_seen if self._ready is None else self._ready.table

    @contextmanager
    def _failing(self, *, but: tuple[type[IcebergSinkError], ...] = ()) -> Iterator[None]:
        """Note an error in the block as the failure of this table; those of the types `but` pass."""
        try:
            yield
        except but:
            raise
        except IcebergSinkError as failure:
            self.failure = failure
