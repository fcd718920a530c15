"""One write on its way into the table, as the loop brings it in: what it looks for, sends, tidies up and reports."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError, is_lost_race
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.metadata_files import planned_metadata
from iceberg_ds.catalog.staged_metadata import tidy_metadata
from iceberg_ds.commit.outcomes import (
    fate_of_files,
    given_up,
    gone,
    needs_a_warning,
    neighbour_warning,
    renamed,
    skipped,
    unknown,
    why_refused,
)
from iceberg_ds.commit.overwrite import RewriteFiles, RewriteValidationError
from iceberg_ds.commit.producer import SnapshotProducer
from iceberg_ds.commit.requests import marker_request, reply_of, with_new_schema, write_request
from iceberg_ds.commit.retry import would_fail_again
from iceberg_ds.commit.validate import check_target
from iceberg_ds.commit.write_files import WriteFiles
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitMessageError,
    CommitStateUnknownError,
    DataFileError,
    IcebergSinkError,
    RefusedRowsError,
    RowCountError,
    TableNotFoundError,
    UnsupportedTableError,
)
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.metrics.commit_meter import CommitMeter
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.secrets import masked_cause
from iceberg_ds.snapshots.commit_status import (
    Attempt,
    CommitStatus,
    Reply,
    StatusCheck,
    check_commit_status,
    unknown_neighbour,
)
from iceberg_ds.snapshots.growth import timed, warn_of_growth
from iceberg_ds.snapshots.manifest_merge import merge_for_next_commit
from iceberg_ds.snapshots.manifests import live_entries
from iceberg_ds.snapshots.refs import branch_head, find_snapshot
from iceberg_ds.snapshots.snapshot import dropped_metadata_files
from iceberg_ds.table.names import parse_identifier
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)

# Errors that no further attempt would mend.
_REFUSALS = (CommitConflictError, CommitMessageError, RefusedRowsError, RowCountError, UnsupportedTableError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A table as a commit that landed has just seen it, so that it need not be loaded again.

    Attributes:
        table: Identifier of the table.
        branch: The branch that was written.
        metadata: The table.
        manifests: The manifests that the new snapshot lists.
    """

    table: str
    branch: str
    metadata: TableMetadata
    manifests: Sequence[ManifestFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """The outcome of a commit that did not fail.

    Attributes:
        snapshot_id: The snapshot that holds the rows; None if there were none to add.
        was_replayed: The table had this epoch, or this version of the application's; this commit added nothing.
        record_count: How many rows the table got, hidden rows excluded; None if unknown.
        lost_files: How many data files were left out and deleted, because they had late rows only.
        seen: The table as this commit saw it; None if it landed nothing.
    """

    snapshot_id: int | None
    was_replayed: bool = False
    record_count: int | None = None
    lost_files: int = 0
    seen: Seen | None = field(default=None, compare=False, repr=False)


class SnapshotUpdate:
    """One write on its way into the table.

    Args:
        catalog: The catalog of the table.
        write: The write.
        files: The files that it adds.
        meter: Notes what the commit takes.
        rewrite: Further files to add, and the files that they replace; None for no replacement.
    """

    def __init__(
        self,
        catalog: CatalogClient,
        write: WriteIdentity,
        files: WriteFiles,
        meter: CommitMeter,
        rewrite: RewriteFiles | None = None,
    ) -> None:
        self._catalog = catalog
        self._write = write
        self._files = files
        self._meter = meter
        if rewrite is not None:
            files.include(rewrite.added)
        meter.files_at_stake = files.added.file_count
        self._identifier = parse_identifier(write.table)
        self._attempts: list[Attempt] = []
        told = meter.of_tasks.summary() if catalog.reporting.is_in_summary else {}
        self._producer = SnapshotProducer(write, files.added, rewrite, told)
        self._is_first_of_writer = False
        self._is_confirmed = False  # whether the catalog confirmed the last request
        self._is_new = False  # whether this commit creates the table, as of the last load
        self._is_created = False  # whether it was created without rows before the first request
        self._first: Snapshot | None = None  # of the table that this commit creates
        self._finding = StatusCheck(status=CommitStatus.ABSENT, is_final=True)  # of the last look
        self._load_ms = 0.0
        self._started = time.monotonic()

    @property
    def is_new(self) -> bool:
        """Whether the table did not exist when it was last loaded, so that this commit has to create it."""
        return self._is_new

    def load(self) -> Table:
        """Return the table, or the table that this commit has to create."""
        with self._meter.catalog():
            (table, self._is_new), self._load_ms = timed(self._load)
        fault_point(FaultPoint.TABLE_LOADED)
        return table

    def waits_for_catalog(self) -> bool:
        """Return True: a catalog that cannot be reached is asked again, because files are written already."""
        return True

    def _load(self) -> tuple[Table, bool]:
        """Return the table, and whether this commit has to create it."""
        if self._write.new_table is None or self._is_created:
            return self._load_existing(), False
        table = self._catalog.find_table(self._identifier)
        if table is not None:
            return table, False
        staged = planned_metadata(self._write.new_table)
        return self._catalog.staged_table(self._identifier, staged), True

    def _load_existing(self) -> Table:
        try:
            return self._catalog.load_table(self._identifier)
        except TableNotFoundError as gone_error:
            self._meter.files_left += self._files.added.file_count
            if any(attempt.reply is not Reply.REFUSED for attempt in self._attempts):
                raise CommitStateUnknownError(gone(self._write)) from gone_error
            raise CommitConflictError(
                f"Cannot commit {self._write}, nothing was committed to it: the table was dropped or renamed before "
                "its rows were committed. Its files were left where they are. Run the write again."
            ) from gone_error

    def look(self, table: Table, base: Table | None) -> CommitResult | None:
        """Return the result if the write has landed or is done, or None if it may be sent; raise if it cannot land."""
        self._finding = finding = self._check(table)
        if finding.status is CommitStatus.REPLAYED:
            return self._skip(table, finding)
        if finding.status is CommitStatus.SUCCESS:
            self._meter.answers_resolved += not self._is_confirmed
            return self._succeed(table, base=(base or table).metadata, committed=table.metadata)
        return None

    def _check(self, table: Table) -> StatusCheck:
        """Ask the table what became of the write, and raise if it can no longer land."""
        write, metadata = self._write, table.metadata
        finding = check_commit_status(
            metadata, write, self._attempts, lambda: self._shares_manifest(table), partial(self._is_taken, table)
        )
        self._meter.is_in_doubt = not finding.is_final
        if (reason := why_refused(write, finding)) is not None:
            refusal = CommitConflictError(reason)
            self._clean_up_refused(finding, table, refusal)
            raise refusal
        if finding.status is CommitStatus.UNKNOWN:
            self._raise_unknown("the snapshots that would show it have expired")
        if finding.status is CommitStatus.ELSEWHERE:
            self._meter.files_left += self._files.added.file_count
            raise CommitStateUnknownError(renamed(write))
        if finding.status is CommitStatus.ABSENT:
            self._check_target(table, finding)
        return finding

    def _check_target(self, table: Table, finding: StatusCheck) -> None:
        try:
            check_target(table.metadata, self._write, self._files.spec_ids, is_placed=self._catalog.places_tables)
        except IcebergSinkError as refusal:
            self._clean_up_refused(finding, table, refusal)
            raise

    def send(self, table: Table) -> CommitResult | Exception:
        """Send one request. Return the result, or the failure, which the next look confirms or refutes."""
        request = self.prepare(table)
        return self.send_prepared(table, request) if isinstance(request, CommitRequest) else request

    def send_prepared(
        self, table: Table, request: CommitRequest
    ) -> CommitResult | CommitRefusedError | CommitAnswerLostError:
        """Send the request that `prepare` has returned for the table as it was; return as `send`."""
        try:
            with self._meter.request():
                committed = self._catalog.send(table, request.requirements, request.updates)
        except (CommitRefusedError, CommitAnswerLostError) as failure:
            self.note_failure(table, failure)
            return failure
        fault_point(FaultPoint.REQUEST_ANSWERED)
        return self._succeed(table, base=table.metadata, committed=committed.metadata)

    def prepare(self, table: Table) -> CommitRequest | CommitResult | Exception:
        """Write what a request refers to, and return the request.

        Returns:
            The request; or the result, if the write would change nothing; or the failure of the store, after which
            another attempt may follow.

        Raises:
            IcebergSinkError: The write can never land; its files were deleted as far as no request may still land.
        """
        finding = self._finding
        try:
            with self._meter.store():
                if self._files.complete(table, is_new=self._is_new):
                    self._producer.take(self._files.added)
                    self._meter.files_at_stake = self._files.added.file_count
                self._files.check_rows(f"commit {self._write}")
                snapshot = self._produce(table)
        except _REFUSALS as refusal:
            self._clean_up_refused(finding, table, refusal)
            raise
        except Exception as failure:  # of any storage library; nothing was sent
            return masked_cause(failure, table.io.properties)
        if snapshot is None:
            self._delete(table.io, self._files.lost_paths, Proof.NEVER_SENT)
            return CommitResult(snapshot_id=None)
        fault_point(FaultPoint.MANIFESTS_WRITTEN)
        self._is_first_of_writer = finding.marker is None
        count = self._files.record_count
        return write_request(table, self._write, snapshot, finding, is_new=self._is_new, record_count=count)

    def note_created(self) -> None:
        """Note that the table was created without rows: it is not created again, which would make two of one UUID."""
        self._is_created = True

    def note_failure(self, table: Table, failure: CommitRefusedError | CommitAnswerLostError) -> None:
        """Note that a request for the table was sent and failed; the next look confirms or refutes it."""
        self._is_confirmed = False
        self._meter.conflicts += is_lost_race(failure)
        self._meter.answers_lost += isinstance(failure, CommitAnswerLostError)
        attempt = Attempt.on(table.metadata, self._write, reply_of(failure), creates=self._is_new)
        self._attempts.append(attempt)
        self._meter.is_in_doubt = not (attempt.was_refused and self._finding.is_final)
        logger.debug("Attempt %d to commit %s failed: %s", len(self._attempts), self._write, failure)

    def note_confirmed(self, table: Table) -> None:
        """Note that the catalog confirmed a request for this and other tables; the next look confirms or refutes it.

        A catalog may confirm such a request and lose a part of it: no more is known of it than after a lost answer.
        """
        self._is_confirmed = True
        self._attempts.append(Attempt.on(table.metadata, self._write, Reply.LOST))

    def _produce(self, table: Table) -> Snapshot | None:
        """Return the snapshot to add; the same one for each request to create the table.

        A table that was created by a request whose answer was lost may be renamed before the next look. It refers to
        the files of that request, so no later request may put others in their place.
        """
        if self._is_new and self._first is not None:
            return self._first
        snapshot = self._producer.produce(with_new_schema(table, self._write))
        if self._is_new:
            self._first = snapshot
        return snapshot

    def _shares_manifest(self, table: Table) -> bool:
        """Return whether the branch lists a manifest of the write, as far as its manifest list can be read."""
        return any(listed.manifest_path in self._producer.manifest_paths for listed in self._listed(table))

    def _is_taken(self, table: Table, sequence_number: int) -> bool:
        """Return whether the branch has a file that another snapshot added under this number, as far as can be read."""
        ours = self._write.snapshot_id
        try:
            return any(
                entry.file_sequence_number == sequence_number and entry.snapshot_id != ours
                for listed in self._listed(table)
                if listed.min_sequence_number <= sequence_number <= listed.sequence_number
                for entry in live_entries(table.io, listed)
            )
        except Exception as failure:  # of any storage library; others may have deleted a manifest meanwhile
            logger.debug("Cannot read what branch '%s' of %s has: %s", self._write.branch, self._write.table, failure)
            return False

    def _listed(self, table: Table) -> list[ManifestFile]:
        head = branch_head(table.metadata, self._write.branch)
        try:
            return [] if head is None else head.manifests(table.io)
        except Exception as failure:  # of any storage library; others may have expired the snapshot meanwhile
            logger.debug("Cannot read what branch '%s' of %s lists: %s", self._write.branch, self._write.table, failure)
            return []

    def _succeed(self, table: Table, base: TableMetadata, committed: TableMetadata) -> CommitResult:
        """Tidy up after landing: delete what lost attempts wrote, and metadata files that the table no longer needs."""
        snapshot = find_snapshot(committed, self._write.snapshot_id)
        self._meter.committed(committed, snapshot, self._producer.manifest_counts)
        if snapshot is not None:  # else it has expired already, and its manifest list is not known
            superseded = [*self._files.lost_paths, *self._producer.superseded_paths(snapshot, tidy_metadata())]
            self._delete(table.io, superseded, Proof.SUPERSEDED)
        self._delete(table.io, dropped_metadata_files(base, committed), Proof.SUPERSEDED)
        fault_point(FaultPoint.COMMITTED)
        if self._is_first_of_writer and (neighbour := unknown_neighbour(base, self._write)) is not None:
            logger.warning("%s", neighbour_warning(self._write, neighbour))
        logger.info(
            "Committed %s: snapshot %d, %d files, %s rows, %d bytes, attempt %d, %.0f ms",
            self._write,
            self._write.snapshot_id,
            self._files.added.file_count,
            self._files.record_count,
            self._files.added.size_bytes,
            self._producer.attempts,
            (time.monotonic() - self._started) * 1000,
        )
        if self._write.epoch is not None:
            merge_for_next_commit(table.io, committed, self._producer.listed, self._write)
        warn_of_growth(self._write.table, committed, len(self._producer.listed), self._load_ms)
        return CommitResult(
            snapshot_id=self._write.snapshot_id,
            record_count=self._files.record_count,
            lost_files=len(self._files.lost_files),
            seen=Seen(
                table=self._write.table, branch=self._write.branch, metadata=committed, manifests=self._producer.listed
            ),
        )

    def _skip(self, table: Table, finding: StatusCheck) -> CommitResult:
        """Drop the files of a write that was done before."""
        count = self._files.record_count
        self._meter.replayed(table.metadata, finding.own_id)
        self._delete_if(finding, table)
        self._record(table, finding)
        fault_point(FaultPoint.SKIPPED)
        level = logging.WARNING if needs_a_warning(self._write, finding, count) else logging.INFO
        logger.log(level, "%s. %s", skipped(self._write, finding, count), fate_of_files(finding))
        return CommitResult(snapshot_id=None, was_replayed=True)

    def _record(self, table: Table, finding: StatusCheck) -> None:
        """Write the markers that only the branch's history holds into the table's properties, because history expires.

        Tried once: for now, history proves the writes as well without the properties.
        """
        request = marker_request(table.metadata, self._write, finding)
        if request is None:
            return
        try:
            self._catalog.send(table, request.requirements, request.updates)
        except (CommitRefusedError, CommitAnswerLostError, UnsupportedTableError) as failure:
            logger.info(
                "Markers beside %s are in the branch's history alone, and were not recorded: %s", self._write, failure
            )

    def _delete_if(self, finding: StatusCheck, table: Table) -> None:
        """Delete all files of this write if it can neither be in the table nor come into it."""
        if finding.is_final:
            proof = Proof.REFUSED if self._attempts else Proof.NEVER_SENT
            self._delete(table.io, self._all_paths(table.io), proof)

    def _delete(self, io: FileIO, paths: list[str], proof: Proof) -> None:
        standing = tidy_metadata()  # first what names these files
        if proof is Proof.REFUSED and not standing.isdisjoint(paths):
            logger.warning(
                "Left behind %d files of %s: a metadata file that names them still stands", len(paths), self._write
            )
            self._meter.files_left += len(paths)
            return
        self._meter.files_left += delete_files(io, paths, proof)

    def _all_paths(self, io: FileIO) -> list[str]:
        return [*self._files.lost_paths, *self._producer.all_paths(io)]

    def _clean_up_refused(self, finding: StatusCheck, table: Table, refusal: Exception) -> None:
        """Delete the files of a write that may no longer be tried, if it is certain that no attempt lands.

        Files that tasks have made for a rewrite stay, because they are used again.
        """
        if not finding.is_final:
            self._raise_unknown(f"the last request may still be carried out, and it cannot be tried again: {refusal}")
        if isinstance(refusal, RewriteValidationError):
            own = [*self._files.own_paths, *self._producer.own_paths]
            self._delete(table.io, own, Proof.REFUSED if self._attempts else Proof.NEVER_SENT)
        else:
            self._delete_if(finding, table)

    def abandon(self, table: Table) -> None:
        """Delete the files of a write that is not tried any more, because another table of its epoch cannot land.

        Args:
            table: The table as last loaded; it was looked at, and no request was sent since.

        Raises:
            CommitStateUnknownError: A request may still be carried out; nothing was deleted.
        """
        if not self._finding.is_final:
            self._raise_unknown(
                "an earlier request may still be carried out, and it is not tried again, because another table cannot "
                "be committed"
            )
        self._delete_if(self._finding, table)

    def give_up(self, table: Table, problem: Exception | None) -> NoReturn:
        """Raise the error that fits what is known of the write; the last attempt failed with `problem`."""
        finding = self._finding
        if not finding.is_final:
            self._raise_unknown(
                f"the catalog says that another one was faster ({problem}), and the table shows none"
                if is_lost_race(problem)
                else f"the last request may still be carried out ({problem})"
            )
        self._delete_if(finding, table)
        if isinstance(problem, DataFileError) and would_fail_again(problem):  # as a task would
            raise problem
        raise given_up(self._write, len(self._attempts), problem) from problem

    def give_up_unseen(self, unreachable: CatalogError) -> NoReturn:
        """Raise the error that fits what is known of the write; the table cannot be loaded."""
        if self._attempts:
            self._raise_unknown(str(unreachable))
        if (path := self._producer.any_path or next(iter(self._files.lost_paths), None)) is not None:
            io = self._catalog.storage_of(path)
            self._delete(io, self._all_paths(io), Proof.NEVER_SENT)
        raise CatalogError(f"Cannot commit {self._write}, nothing was committed: {unreachable}") from unreachable

    def _raise_unknown(self, reason: str) -> NoReturn:
        self._meter.files_left += self._files.added.file_count
        raise CommitStateUnknownError(unknown(self._write, reason))
