"""`maintenance=auto`: after a commit that landed, the committer does what is due for its table and needs no Spark.

What is due is told by what the commit has in memory: the snapshots in the table's metadata and the manifests that it
listed. A commit after which nothing is due sends no request. Work comes in portions, so that few commits do any, and
each portion is bounded; a commit waits `LONGEST_WAIT_S` for it at most. The rows have landed before: nothing that fails
here fails the write. What could not be done is left alone for a while, which a table property tells all committers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.snapshot_update import CommitResult, Seen
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.maintenance.retention import MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.parsing import deciding_number, whole_number
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)

RESTS_KEY = "icebergsink.maintenance-rests-until"
# What a table keeps that does not say so itself.
KEPT_SNAPSHOTS, KEPT_AGE_MS = 800, 3_600_000
# Snapshots expire once so many can: a share of those that are kept, but never one with each commit;
_PORTION_SHARE, _LEAST_PORTION = 4, 10
# and no more at once than this.
_MOST_SNAPSHOTS = 500
MOST_MANIFESTS = 100
# More than this takes too long beside a stream.
_MOST_MANIFEST_BYTES = 64 * 1024 * 1024
LONGEST_WAIT_S = 60.0
_REST_MS = 3_600_000
_LEASE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DueWork:
    """What is due for a table.

    Attributes:
        older_than_ms: Snapshots from before this time expire, in milliseconds since 1970; None for no expiry.
        retain_last: How many snapshots each branch keeps.
        rewrites_manifests: Whether manifests are rewritten.
    """

    older_than_ms: int | None = None
    retain_last: int = KEPT_SNAPSHOTS
    rewrites_manifests: bool = False


def due_work(seen: Seen, now_ms: int) -> DueWork | None:
    """Return what is due for a table that a commit has just seen, or None for nothing; reads nothing but memory.

    Raises:
        UnsupportedTableError: What the table says of the snapshots that it keeps is no number.
    """
    metadata = seen.metadata
    kept = deciding_number(metadata.properties, MIN_SNAPSHOTS, KEPT_SNAPSHOTS)
    older_than_ms = _older_than_ms(metadata, kept, now_ms)
    lengths = [manifest.manifest_length for manifest in seen.manifests]
    are_many = len(lengths) > MOST_MANIFESTS and sum(lengths) <= _MOST_MANIFEST_BYTES
    if older_than_ms is None and not are_many:
        return None
    from iceberg_ds.maintenance.lease import holder_of  # noqa: PLC0415  # most commits need nothing of it

    if whole_number(metadata.properties, RESTS_KEY, 0) > now_ms or holder_of(metadata, now_ms) is not None:
        return None
    return DueWork(older_than_ms=older_than_ms, retain_last=max(1, kept), rewrites_manifests=are_many)


def _older_than_ms(metadata: TableMetadata, kept: int, now_ms: int) -> int | None:
    """Return the time before which snapshots are to expire; None if too few can."""
    portion = max(kept // _PORTION_SHARE, _LEAST_PORTION)
    surplus = len(metadata.snapshots) - kept
    if surplus < portion:
        return None
    old_ms = now_ms - deciding_number(metadata.properties, MAX_SNAPSHOT_AGE, KEPT_AGE_MS)
    times = sorted(snapshot.timestamp_ms for snapshot in metadata.snapshots)[:surplus]
    old = [time_ms for time_ms in times if time_ms < old_ms][:_MOST_SNAPSHOTS]
    return None if len(old) < portion else old[-1] + 1


def maintain_after(
    catalog: CatalogClient, options_of: Callable[[str], SinkOptions], results: Iterable[CommitResult]
) -> None:
    """Do what is due for the tables of commits that landed; raise nothing, and return in bounded time.

    Args:
        catalog: The catalog of the tables.
        options_of: Returns the options of a write from the identifier of its table.
        results: What became of the commits.
    """
    now_ms = time.time_ns() // 1_000_000
    due: list[_AutoMaintenance] = []
    for seen in (result.seen for result in results if result.seen is not None):
        try:
            options = options_of(seen.table)
            work = due_work(seen, now_ms) if options.maintenance == "auto" else None
        except Exception as problem:  # the rows have landed
            logger.warning("Whether %s is due for maintenance is unknown: %s", seen.table, catalog.describe(problem))
        else:
            due += [] if work is None else [_AutoMaintenance(catalog, options, seen, work)]
    if not due:
        return
    # A catalog or a store that does not answer would hold up the next micro-batch.
    working = threading.Thread(target=_run, args=(due,), name="iceberg-ds-maintenance", daemon=True)
    tables = ", ".join(one.table for one in due)
    try:
        working.start()
    except RuntimeError as problem:  # no thread can be had
        logger.warning("Maintenance of %s waits for a later commit: %s", tables, problem)
        return
    working.join(LONGEST_WAIT_S)
    if working.is_alive():
        logger.warning("Maintenance of %s takes longer than %.0f s: the write goes on", tables, LONGEST_WAIT_S)


def _run(due: Sequence[_AutoMaintenance]) -> None:
    ends = time.monotonic() + LONGEST_WAIT_S
    for one in due:
        if time.monotonic() < ends:  # else a later commit finds the same work due
            one.run()


class _AutoMaintenance:
    """What is due for one table.

    Args:
        catalog: Its catalog.
        options: The options of the write.
        seen: The table as the commit saw it.
        work: What is due.
    """

    def __init__(self, catalog: CatalogClient, options: SinkOptions, seen: Seen, work: DueWork) -> None:
        self.table = seen.table
        self._catalog = catalog
        self._identifier = options.table
        self._options = options.beside(options.table, None)
        self._seen = seen
        self._work = work

    def run(self) -> None:
        """Do it, if no other maintainer is at work; what fails is told in the log, and left alone for a while."""
        from iceberg_ds.maintenance.lease import leased  # noqa: PLC0415  # most commits need nothing of it
        from iceberg_ds.maintenance.reports import reported  # noqa: PLC0415

        told = reported(self._catalog.reporting, "maintain", self.table)  # steps report themselves
        with self._told(), told, leased(self._catalog, self._identifier, _LEASE_S) as other:
            if other is not None:
                return
            done = [self._is_done(step) for step in self._steps()]
            if not any(done):
                self._rest()

    def _steps(self) -> Iterator[Callable[[], bool]]:
        if self._work.older_than_ms is not None:
            yield self._expire
        if self._work.rewrites_manifests:
            yield self._rewrite_manifests

    def _is_done(self, step: Callable[[], bool]) -> bool:
        """Take a step; return whether it changed the table."""
        with self._told():
            return step()
        return False

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell the log of what fails in the block, and go on after it."""
        try:
            with self._catalog.hiding_secrets():
                yield
        except Exception as problem:  # of any library; the rows have landed
            reason = str(problem) if isinstance(problem, IcebergSinkError) else self._catalog.describe(problem)
            logger.warning("The rows of %s are committed, and its maintenance failed: %s", self.table, reason)

    def _expire(self) -> bool:
        from iceberg_ds.maintenance.expire_snapshots import Expiry, Wish  # noqa: PLC0415  # as above
        from iceberg_ds.maintenance.reports import reported  # noqa: PLC0415

        wish = Wish.of(self._work.older_than_ms, self._work.retain_last)
        with reported(self._catalog.reporting, "expire_snapshots", self.table) as note:
            result = note(Expiry(self._catalog, self._identifier, wish).run(dry_run=False))
        logger.log(logging.WARNING if result.left_files else logging.INFO, "%s", result)
        return bool(result.snapshot_ids)

    def _rewrite_manifests(self) -> bool:
        from iceberg_ds.maintenance.rewrite_manifests import ManifestRewrite  # noqa: PLC0415  # as above
        from iceberg_ds.metrics.commit_meter import metered  # noqa: PLC0415

        options = replace(self._options, branch=self._seen.branch)
        with metered(self._catalog.reporting) as meter:
            result = ManifestRewrite(self._catalog, options, None, None).run(meter)
        return result.snapshot_id is not None

    def _rest(self) -> None:
        """Keep all committers from trying again for a while."""
        from iceberg_ds.commit.alter import alter_table  # noqa: PLC0415  # as above

        until_ms = time.time_ns() // 1_000_000 + _REST_MS

        def propose(metadata: TableMetadata) -> CommitRequest | None:
            if whole_number(metadata.properties, RESTS_KEY, 0) >= until_ms:
                return None
            return CommitRequest(
                requirements=(AssertTableUUID(uuid=metadata.table_uuid),),
                updates=(SetPropertiesUpdate(updates={RESTS_KEY: str(until_ms)}),),
            )

        alter_table(self._catalog, self._identifier, propose)
