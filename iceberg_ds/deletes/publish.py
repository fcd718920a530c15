"""Commits writes by keys so that no reader meets their equality deletes: stage, convert, publish.

Each write is published exactly once, even if a process dies at any moment:

1. The epoch lands on a staging branch, exactly once, as any write lands on its branch (`commit`).
2. Its equality deletes, and all other ones of the staging branch, become position deletes in one more snapshot there.
3. One request fast-forwards the readers' branch to that snapshot, and drops the staging branch. The request names the
   snapshot that is known to have no equality deletes, so it is refused if anything was staged after it meanwhile.

So the staging branch exists while something waits on it. Each step finds out from the table whether it was done. A
replay of an epoch repeats all three: it finds the epoch on the staging branch, or on the readers' branch if nothing
waits, adds nothing, and finishes what is left. Only then is the epoch reported as done. If the readers' branch moves on
while an epoch waits, the staging branch cannot be published any more. The write fails and is repeated, as it is not
reported as done. A staging branch where only such writes wait then starts anew from the readers' branch (`refs.waits`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.fast_forward import DivergedError, StagedMeanwhileError, fast_forward_whole
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.deletes.convert import Conversion
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, IcebergSinkError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.messages import reported_commits
from iceberg_ds.metrics.commit_meter import CommitMeter, metered
from iceberg_ds.metrics.report import counts_of
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.planning.quarantine import commit_with_quarantine
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.refs import contains, waits
from iceberg_ds.snapshots.txn import find_last_marker, kind_of
from iceberg_ds.table.names import parse_identifier

logger = logging.getLogger(__name__)

# The largest number of rounds: each one also converts what other writers staged during the one before.
_ROUNDS = 10


def commit_converted(
    catalog: CatalogClient, options: SinkOptions, messages: Sequence[object], *, epoch_id: int | None = None
) -> CommitResult:
    """Commit what the tasks of one write by keys report, convert its equality deletes, and publish it.

    Args:
        catalog: The catalog of the table.
        options: The options of the write.
        messages: What Spark hands to `commit`: one message per task.
        epoch_id: The micro-batch that Spark commits; None for a batch write.

    Raises:
        IcebergSinkError: As `commit_write`. Or the rows are staged, and could not be converted or published; the
            message says so, and what to do.
    """

    def publish(staged: CommitResult) -> None:
        write = reported_commits(messages)[0].write
        if (to := write.route.publish_to) is not None:
            _Publication(catalog, options, write, to, staged).run()

    return commit_with_quarantine(catalog, options, messages, epoch_id=epoch_id, publish=publish)


class _Publication:
    """The steps left for a write that was staged, now or earlier; for a write without rows, those of what waits."""

    def __init__(
        self, catalog: CatalogClient, options: SinkOptions, write: WriteIdentity, to: str, result: CommitResult
    ) -> None:
        self._catalog = catalog
        self._options = replace(options, branch=write.branch, staging_branch=None)
        self._identifier = parse_identifier(write.table)
        self._write = write
        self._to = to
        self._result = result
        self._landed: dict[int, CommitMeter] = {}  # the conversions of this run, by their snapshots

    def run(self) -> None:
        """Convert and publish until nothing waits, and check that the write is published."""
        try:
            # Readers see a conversion once it is published, so none is reported before that.
            with ExitStack() as conversions, self._dropping_unpublished():
                metadata = self._publish(conversions)
                self._drop_those_outside(metadata)
            if not self._is_published(metadata):
                raise DivergedError(f"'{self._to}' has moved on before that, or '{self._write.branch}' was dropped.")
        except IcebergSinkError as failure:
            raise type(failure)(f"{self._failed(failure)}: {failure} {self._next_step(failure)}") from failure
        fault_point(FaultPoint.PUBLISHED)

    @contextmanager
    def _dropping_unpublished(self) -> Iterator[None]:
        """Leave the conversions that have landed to the reports of whoever publishes them, if the block raises."""
        try:
            yield
        except BaseException:
            for meter in self._landed.values():
                meter.drop()
            raise

    def _drop_those_outside(self, metadata: TableMetadata) -> None:
        """Leave out conversions that readers do not see: others have dropped the staging branch, or begun it anew."""
        for snapshot_id, meter in self._landed.items():
            if not contains(metadata, self._to, snapshot_id):
                meter.drop()

    def _publish(self, conversions: ExitStack) -> TableMetadata:
        """Return the table's metadata at a time when nothing waits any more; the stack reports the conversions."""
        # A write that was just staged is assumed to wait.
        metadata = self._if_nothing_waits() if self._result.snapshot_id is None else None
        if metadata is not None:
            return metadata
        for _ in range(_ROUNDS):
            try:
                metadata = self._converted_and_published(conversions)
            except DivergedError:
                raise
            except IcebergSinkError:
                metadata = self._if_nothing_waits()  # another writer may have published it
                if metadata is None:
                    raise
            metadata = metadata or self._if_nothing_waits()
            if metadata is not None:
                return metadata
            logger.info("Converting %s again: others stage rows on branch %s", self._write.table, self._write.branch)
        raise CommitConflictError(f"others stage rows faster than they are converted, {_ROUNDS} times.")

    def _converted_and_published(self, conversions: ExitStack) -> TableMetadata | None:
        """Return the table's metadata after the fast-forward, or None if others staged rows meanwhile."""
        conversion = Conversion(self._catalog, self._options, None, "position")
        meter = conversions.enter_context(metered(self._catalog.reporting, shown_on=self._to))
        if (landed := conversion.run(meter).snapshot_id) is not None:
            self._landed[landed] = meter
        if conversion.clean_id is None:
            return None
        with suppress(StagedMeanwhileError):
            metadata, gained = fast_forward_whole(
                self._catalog, self._identifier, self._write.branch, self._to, conversion.clean_id
            )
            self._report_earlier(metadata, gained)
            return metadata
        return None

    def _report_earlier(self, metadata: TableMetadata, gained: Sequence[Snapshot]) -> None:
        """Hand out the reports on conversions of earlier runs, which could not be published then."""
        write = replace(self._write, epoch=None, txn=None, stream=None)
        for snapshot in reversed(gained):
            counts = counts_of(summary_entries(snapshot))
            if counts.get("removed-equality-delete-files") and snapshot.snapshot_id not in self._landed:
                with metered(self._catalog.reporting, write, shown_on=self._to) as meter:
                    meter.replayed(metadata, snapshot.snapshot_id)

    def _if_nothing_waits(self) -> TableMetadata | None:
        """Return the table's current metadata, or None if something waits on the staging branch."""
        metadata = self._catalog.load_table(self._identifier).metadata
        return None if waits(metadata, self._write.branch, self._to) else metadata

    def _is_published(self, metadata: TableMetadata) -> bool:
        """Return whether readers see the write: not if the staging branch was begun anew, or dropped."""
        numbered, staged_id = self._write.numbered, self._result.snapshot_id
        if staged_id is None and not self._result.was_replayed:
            return True  # the write had no rows
        if staged_id is not None and contains(metadata, self._to, staged_id):
            return True
        marker = None if numbered is None else find_last_marker(metadata, self._to, kind_of(numbered), numbered.writer)
        if marker is None or numbered is None:
            return False
        return marker.snapshot_id == staged_id or (self._result.was_replayed and marker.number >= numbered.number)

    def _failed(self, failure: IcebergSinkError) -> str:
        staging, snapshot_id = self._write.branch, self._result.snapshot_id
        if snapshot_id is None and not self._result.was_replayed:
            return f"Cannot publish what others have staged on branch '{staging}' of {self._write.table}"
        at = "" if snapshot_id is None else f" as snapshot {snapshot_id}"
        is_unknown = isinstance(failure, CommitStateUnknownError)
        yet = f"perhaps not on branch '{self._to}'" if is_unknown else f"not on branch '{self._to}' yet"
        return f"The rows of {self._write} are staged{at}, and {yet}"

    def _next_step(self, failure: IcebergSinkError) -> str:
        write, has_diverged = self._write, isinstance(failure, DivergedError)
        if write.numbered is not None:
            again = "query again" if write.epoch is not None else "write again with the same txn-version"
            done = "written anew, on top of that" if has_diverged else "found there, converted and published"
            return f"Run the {again}: they are {done}."
        if has_diverged:
            return f"Drop branch '{write.branch}', and run the write again."
        return (
            "The next write with publish-converted converts and publishes them; so do "
            f"iceberg_ds.convert_deletes('{write.table}', branch='{write.branch}') and then "
            f"iceberg_ds.publish('{write.table}', '{write.branch}', to='{self._to}')."
        )
