"""Conversions of deletes, and what others do to a table while one is under way."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from support.checks.reader import Listed, listed, rows_of
from support.keys.messages import COLUMNS
from support.tables.sink import Sink, write_batches

from iceberg_ds.commit.commit import commit_rewrite
from iceberg_ds.commit.overwrite import FilteredManifest, FilteredManifests
from iceberg_ds.commit.write_files import Added
from iceberg_ds.deletes.convert import Conversion, ConvertResult
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.metrics.commit_meter import CommitMeter
from iceberg_ds.snapshots.live_files import only_path
from iceberg_ds.snapshots.manifests import live_entries, live_manifests
from iceberg_ds.snapshots.refs import branch_head, snapshots_since

ENCODINGS: tuple[RowEncoding, ...] = ("position", "copy-on-write")


def convert(sink: Sink, encoding: RowEncoding = "position", **options: Any) -> ConvertResult:
    """Convert the deletes of the table in this process."""
    parsed = sink.options if not options else sink.options.__class__(**{**_fields(sink.options), **options})
    return Conversion(sink.catalog, parsed, None, encoding).run(CommitMeter())


def _fields(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}


def numbers(table: Table, content: DataFileContent, branch: str = "main") -> list[int]:
    """Return the data sequence numbers of the live files of a kind, ascending."""
    return sorted(found.number for found in listed(table, branch)[content])


def keyed_deletes(table: Table, branch: str = "main") -> list[Listed]:
    """Return the live files of deletes by key."""
    return listed(table, branch)[DataFileContent.EQUALITY_DELETES]


@contextmanager
def meanwhile(step: FaultPoint, action: Callable[[], object], times: int = 1) -> Iterator[list[int]]:
    """Do something when this process comes to a step, the first `times` times; yield when it was done."""
    done: list[int] = []

    def act(reached: FaultPoint) -> None:
        if reached is step and len(done) < times:
            done.append(len(done))
            listen(None)  # what it does comes to steps, too
            try:
                action()
            finally:
                listen(act)

    listen(act)
    try:
        yield done
    finally:
        listen(None)


class CompactionRefusedError(CommitConflictError):
    """A compaction does not land, because others have changed what it was made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Takes the place of data files, as Iceberg's `rewrite_data_files` does.

    Attributes:
        files: The data files.
        added: The new ones.
        base: The snapshot that it began with.
        sequence_numbers: Data sequence numbers of the new files.
    """

    files: Sequence[Listed]
    added: Added
    base: Snapshot
    sequence_numbers: Mapping[str, int] = field(default_factory=dict)
    keeps_rows: bool = True

    @property
    def paths(self) -> frozenset[str]:
        """Where the data files are."""
        return frozenset(found.path for found in self.files)

    def filtered(self, table: Table) -> FilteredManifests:
        """Return what it drops.

        Raises:
            CompactionRefusedError: Iceberg's Java library would refuse it.
        """
        self._validate(table)
        untouched, replaced = [], []
        for manifest in live_manifests(table.io, branch_head(table.metadata, "main")):
            entries = live_entries(table.io, manifest)
            dropped = [entry for entry in entries if entry.data_file.file_path in self.paths]
            if not dropped:
                untouched.append(manifest)
                continue
            kept = tuple(entry for entry in entries if entry not in dropped)
            replaced.append(FilteredManifest(manifest=manifest, kept=kept, dropped=tuple(dropped), listed_rows=None))
        return FilteredManifests(untouched=tuple(untouched), replaced=tuple(replaced))

    def _validate(self, table: Table) -> None:
        """Look for what Java looks for (`BaseRewriteFiles.validate`), and for nothing else.

        Of deletes it finds those that snapshots of two kinds have added; those by keys only if the new files do not get
        the number that the table had when it began.
        """
        gone = self.paths - {found.path for found in listed(table)[DataFileContent.DATA]}
        if gone:
            raise CompactionRefusedError(f"Missing required files to delete: {min(gone)}")
        since = snapshots_since(table.metadata, branch_head(table.metadata, "main"), self.base.snapshot_id)
        assert since is not None
        for snapshot in since:
            if snapshot.summary is not None and snapshot.summary.operation in {Operation.OVERWRITE, Operation.DELETE}:
                self._check_deletes(table, snapshot)

    def _check_deletes(self, table: Table, snapshot: Snapshot) -> None:
        for manifest in snapshot.manifests(table.io):
            is_global = table.specs()[manifest.partition_spec_id].is_unpartitioned()
            for entry in manifest.fetch_manifest_entry(table.io) if manifest.content == ManifestContent.DELETES else ():
                if entry.status is not ManifestEntryStatus.ADDED or entry.snapshot_id != snapshot.snapshot_id:
                    continue
                delete = Listed(entry=entry, spec_id=manifest.partition_spec_id)
                is_by_key = entry.data_file.content == DataFileContent.EQUALITY_DELETES
                if is_by_key and self.sequence_numbers:
                    continue
                path = None if is_by_key else only_path(entry.data_file)
                if any(
                    found.path == path if path is not None else found.place == delete.place or (is_by_key and is_global)
                    for found in self.files
                ):
                    raise CompactionRefusedError(
                        f"Cannot commit, found new delete for replaced data file: {delete.path}"
                    )


def compact(sink: Sink, begun: Table | None = None, *, keeps_numbers: bool = True) -> None:
    """Write all rows of `main` into new files, as a compaction that began with the table `begun` (None: just now).

    They get the sequence number that the table had then, so that deletes that came meanwhile apply to them, or a new
    one.

    Raises:
        CompactionRefusedError: Iceberg's Java library would refuse it.
    """
    base = begun or sink.table()
    head = base.current_snapshot()
    assert head is not None
    plan = sink.plan(COLUMNS)
    files = write_batches(plan, rows_of(base), COLUMNS, partition_id=uuid.uuid4().int % 10_000)
    rewrite = Compaction(
        files=listed(base)[DataFileContent.DATA],
        added=Added(tuple(files)),
        base=head,
        sequence_numbers={file.file_path: head.sequence_number or 0 for file in files} if keeps_numbers else {},
    )
    commit_rewrite(sink.catalog, plan.write, rewrite, CommitMeter(plan.write))
