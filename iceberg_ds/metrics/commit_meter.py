"""`CommitMeter`: what one commit takes, noted where it happens, and made into a report when the commit ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.errors import CommitStateUnknownError, IcebergSinkError
from iceberg_ds.metrics.delivery import Reporting, waiting_once
from iceberg_ds.metrics.report import NO_TASKS, CommitReport, Outcome, TaskFigures, counts_of, outcome_of
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.pyiceberg_inner import summary_entries

logger = logging.getLogger(__name__)

_LANDED = ("committed", "replayed")


class CommitMeter:
    """What one commit takes, as far as it has come.

    Args:
        write: The write; None if `begin` is to tell it.
        tasks: What its tasks report of themselves.
        shown_on: The branch that the write is published to, for readers; None for the one that its route tells.

    Attributes:
        attempts: Requests sent so far.
        conflicts: Requests lost to faster commits.
        answers_lost: Requests without an answer that tells what became of them.
        answers_resolved: Those that the table showed to have been carried out.
        files_left: Files that could not be deleted, or must not be.
        files_at_stake: Files that stay if the commit is interrupted.
        is_in_doubt: Whether a request may have been carried out, or may still be, that the table does not show.
    """

    def __init__(
        self, write: WriteIdentity | None = None, tasks: TaskFigures = NO_TASKS, *, shown_on: str | None = None
    ) -> None:
        self.attempts = self.conflicts = self.answers_lost = self.answers_resolved = 0
        self.files_left = self.files_at_stake = 0
        self.is_in_doubt = False
        self._write = write
        self._tasks = tasks
        self._shown_on = shown_on
        self._catalog_ms = self._store_ms = 0.0
        self._started = time.monotonic()
        self._outcome: Outcome = "empty"
        self._snapshot: Snapshot | None = None
        self._snapshot_id: int | None = None
        self._table_uuid: str | None = None
        self._counts: Mapping[str, int] = {}

    @property
    def of_tasks(self) -> TaskFigures:
        """What the tasks of the write report of themselves."""
        return self._tasks

    def begin(self, write: WriteIdentity) -> None:
        """Note which write is committed; again once it is made anew, and then what it took before counts."""
        if self._write is None:
            self._started = time.monotonic()
        self._write = write

    @contextmanager
    def catalog(self) -> Iterator[None]:
        """Count the time of the block as waiting for the catalog."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._catalog_ms += _ms_since(began)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Note that a request for the write is sent, and count the time of the block as `catalog` does."""
        self.attempts += 1
        self.is_in_doubt = True
        with self.catalog():
            yield

    @contextmanager
    def store(self) -> Iterator[None]:
        """Count the time of the block as waiting for the store."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._store_ms += _ms_since(began)

    def gave_up(self, left: int) -> None:
        """Note that the files of the write were deleted, but for so many."""
        self.files_left, self.files_at_stake = self.files_left + left, 0

    def drop(self) -> None:
        """Make no report: whoever shows readers what this commit has staged tells of it."""
        self._write = None

    def committed(self, metadata: TableMetadata, snapshot: Snapshot | None, manifests: Mapping[str, int]) -> None:
        """Note that the write is in the table.

        Args:
            metadata: The table, which another writer may have created in place of the one that was planned.
            snapshot: Its snapshot; None if that has expired already.
            manifests: Counts of manifests by Iceberg's names, which a snapshot's summary may lack.
        """
        self._outcome, self._snapshot, self._snapshot_id = "committed", snapshot, self._begun.snapshot_id
        self._counts, self._table_uuid = manifests, str(metadata.table_uuid)

    def replayed(self, metadata: TableMetadata, snapshot_id: int | None) -> None:
        """Note that the table had the write already, in that snapshot; None for a number that was passed over."""
        self._outcome, self._snapshot_id, self._table_uuid = "replayed", snapshot_id, str(metadata.table_uuid)
        self._snapshot = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)

    def report(self, failure: BaseException | None, *, of_others: BaseException | None = None) -> CommitReport | None:
        """Return the report on the commit; None if no write was begun.

        A write that landed and could not be published has failed: readers do not see it.

        Args:
            failure: What the commit raised; None if it did not.
            of_others: What others raised, so that this write was given up, and can no longer land; None if it was not.
        """
        if self._write is None:
            return None
        write, published_to = self._write, self._shown_on or self._write.route.publish_to
        outcome, snapshot, counts = self._outcome, self._snapshot, self._counts
        raised = of_others if failure is None else failure
        is_interrupted = raised is not None and not isinstance(raised, IcebergSinkError) and outcome not in _LANDED
        if raised is not None and (outcome not in _LANDED or published_to is not None):
            may_be_there = self.is_in_doubt or outcome in _LANDED or isinstance(failure, CommitStateUnknownError)
            is_in_doubt = failure is not None and may_be_there
            outcome, snapshot, counts = outcome_of(raised, is_in_doubt=is_in_doubt), None, {}
        counts = {**counts, **counts_of({} if snapshot is None else summary_entries(snapshot))}
        if write.route.converts and counts.get("total-equality-deletes"):  # readers get the totals of the conversion
            counts = {name: count for name, count in counts.items() if not name.startswith("total-")}
        return CommitReport(
            table=write.table,
            table_uuid=self._table_uuid or write.table_uuid,
            branch=published_to or write.branch,
            outcome=outcome,
            at_ms=int(time.time() * 1000),
            duration_ms=_ms_since(self._started),
            stream=write.stream.name if write.stream else write.txn.app_id if write.txn else None,
            query_id=write.epoch.query_id if write.epoch else None,
            number=write.numbered.number if write.numbered else None,
            error=type(raised).__name__ if raised is not None else None,
            snapshot_id=self._snapshot_id if outcome in _LANDED else None,
            sequence_number=snapshot.sequence_number if snapshot else None,
            schema_id=snapshot.schema_id if snapshot else None,
            operation=snapshot.summary.operation.value if snapshot and snapshot.summary else None,
            counts=counts,
            attempts=self.attempts,
            conflicts=self.conflicts,
            answers_lost=self.answers_lost,
            answers_resolved=self.answers_resolved,
            catalog_ms=self._catalog_ms,
            store_ms=self._store_ms,
            files_left=self.files_left + (self.files_at_stake if is_interrupted else 0),
            tasks=self._tasks,
        )

    @property
    def _begun(self) -> WriteIdentity:
        if self._write is None:
            raise AssertionError("unreachable: a write is begun before it is committed")
        return self._write


def _ms_since(began: float) -> float:
    return (time.monotonic() - began) * 1000


@contextmanager
def metered(
    reporting: Reporting,
    write: WriteIdentity | None = None,
    tasks: TaskFigures = NO_TASKS,
    *,
    shown_on: str | None = None,
) -> Iterator[CommitMeter]:
    """Yield a meter for the commit of `write` in the block, and hand out the report on the commit, however it ends.

    The arguments are those of `CommitMeter`.
    """
    meter = CommitMeter(write, tasks, shown_on=shown_on)
    with waiting_once():  # a write that is published reports the conversions before itself
        try:
            yield meter
        except BaseException as failure:
            hand_out(reporting, meter, failure)
            raise
        hand_out(reporting, meter, None)


def hand_out(
    reporting: Reporting,
    meter: CommitMeter,
    failure: BaseException | None,
    *,
    of_others: BaseException | None = None,
) -> None:
    """Hand out the report on a commit that has ended; the arguments are those of `CommitMeter.report`."""
    try:
        if (report := meter.report(failure, of_others=of_others)) is not None:
            reporting.report(report)
    except Exception:  # the outcome of the commit matters more than the report on it
        logger.warning("A commit is not reported", exc_info=True)
