"""The files of a snapshot: its manifests and its manifest list, written anew only where an attempt needs them.

What a write adds never changes, so its manifests are written once. What it replaces depends on the branch
as it is at each attempt. The producer records every file, so that the caller can tidy up afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.commit.overwrite import FilteredManifests, PartialRewriter, RewriteFiles, filter_manifests
from iceberg_ds.commit.requests import check_no_row_stays
from iceberg_ds.commit.validate import check_version
from iceberg_ds.commit.write_files import Added
from iceberg_ds.messages import check_rows, rows_in
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.snapshots.manifest_merge import Merged, merged_for, sources_of
from iceberg_ds.snapshots.manifests import (
    draft_added,
    draft_filtered,
    listed_by,
    live_rows,
    metadata_path,
    write_list,
    write_manifests,
)
from iceberg_ds.snapshots.refs import write_base
from iceberg_ds.snapshots.snapshot import Change, change_summary, new_snapshot

_COUNTS_OF_OTHERS = (
    "The writer of that list may have counted wrongly: check 'manifests' of `iceberg-ds verify` tells. If so, "
    "Iceberg's procedure rewrite_manifests mends the list. If not, this is a defect of iceberg_ds or of a library "
    "below it: please report it with these numbers."
)


class SnapshotProducer:
    """Makes the snapshot of one write, once for each attempt.

    Args:
        write: The write.
        added: The files that its tasks wrote.
        rewrite: Files to add and the files that they replace; None if the write itself says what it replaces.
        told: Further entries of the snapshot's summary.

    Attributes:
        manifest_counts: How many manifests the last snapshot creates, keeps and replaces, under the keys of Iceberg's
            Java library; empty before the first.
    """

    def __init__(
        self,
        write: WriteIdentity,
        added: Added,
        rewrite: RewriteFiles | None = None,
        told: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._write = write
        self._told = told
        self._rewrite_files = rewrite
        self._of_tasks = added
        self._one_by_one: Added | None = None
        self._rewriter = PartialRewriter(write)
        self._added: dict[Added, list[ManifestFile]] = {}
        self._added_counts: dict[str, str] = {}
        self._written: list[str] = []
        self._used: dict[str, set[str]] = {}
        self._numbers = itertools.count()
        self.manifest_counts: dict[str, int] = {}
        self._listed: list[ManifestFile] = []
        self._merged: list[Merged] | None = None

    def take(self, added: Added) -> None:
        """Add these files instead of those given before."""
        self._of_tasks, self._one_by_one = added, None

    def all_paths(self, io: FileIO) -> list[str]:
        """Return the paths of all files that this write has made, those of its tasks included."""
        return [*self._of_tasks.every_path(io), *self._rewriter.all_paths, *self._written]

    @property
    def own_paths(self) -> list[str]:
        """Paths of all files that were made here, without those of tasks."""
        return [*self._rewriter.all_paths, *self._written]

    @property
    def any_path(self) -> str | None:
        """Path of one file that this write has made; None if it has made no file."""
        return self._of_tasks.any_path() or next(iter([*self._rewriter.all_paths, *self._written]), None)

    @property
    def manifest_paths(self) -> set[str]:
        """Paths of the manifests that no snapshot of another write lists."""
        return {*self._of_tasks.manifest_paths, *self._written} - self._used.keys()

    @property
    def attempts(self) -> int:
        """How many snapshots were made."""
        return len(self._used)

    @property
    def listed(self) -> list[ManifestFile]:
        """Manifests that the last snapshot lists, empty before the first; added ones lack their sequence numbers."""
        return self._listed

    def produce(self, table: Table) -> Snapshot | None:
        """Return the snapshot to add to the current table, or None if it would change nothing.

        A version of an application is recorded even if it has no rows: its snapshot adds only the marker.

        Raises:
            CommitConflictError: Another writer changed what this write replaces, or rows stay whose types it replaces.
            RewriteValidationError: Another writer changed what the rewrite was made from.
            UnsupportedTableError: What this write replaces cannot be determined or read.
        """
        metadata, write = table.metadata, self._write
        added = self._fitting(table)
        rewrite = self._rewrite_files
        filtered = filter_manifests(table, write, added.data_files) if rewrite is None else rewrite.filtered(table)
        check_version(metadata, write, added.delete_files)
        check_no_row_stays(table, write, filtered)
        again = self._rewrite(table, filtered)
        change = Change(
            added=[*added.files, *again],
            removed=filtered.removed,
            manifests=added.manifests,
            keeps_rows=rewrite is not None and rewrite.keeps_rows,
        )
        if change.is_empty and not added.merged and write.txn is None:
            return None
        ours = self._manifests(table, added, filtered, again)
        self._check_rows(ours, added, filtered, again)
        kept, merged = self._merge(table, filtered.untouched, added)
        path = self._path(table, f"snap-{write.snapshot_id}-{len(self._used)}-{write.operation_id}.avro")
        counts = {**self._counts(table, change), **self._told}
        replaced = len(filtered.replaced) + len(filtered.untouched) - len(kept)
        self.manifest_counts = {
            "manifests-created": len(ours) + sum(len(found.files) for found in merged),
            "manifests-kept": len(kept),
            "manifests-replaced": replaced,
        }
        if merged:
            counts = {**counts, **{name: str(count) for name, count in self.manifest_counts.items()}}
        ours += [listed_by(file, write.snapshot_id) for found in merged for file in found.files]
        rewritten = {data_file.file_path for data_file in again}
        self._used[path] = {path, *rewritten, *(manifest.manifest_path for manifest in ours)}
        # Delete manifests come after all data manifests, as Iceberg's Java library lists them.
        self._listed = sorted([*ours, *kept], key=lambda manifest: manifest.content == ManifestContent.DELETES)
        snapshot = new_snapshot(metadata, write, change.operation, counts, path, self._listed)
        write_list(table.io, metadata, snapshot, self._listed)
        return snapshot

    def superseded_paths(self, landed: Snapshot, standing: Collection[str] = ()) -> list[str]:
        """Return the paths of the files that attempts other than the landed one made.

        Args:
            landed: The snapshot of the attempt that landed.
            standing: Manifest lists of attempts all of whose files are to stay.
        """
        if landed.manifest_list not in self._used:
            return []
        used = set[str]().union(*(self._used.get(path, ()) for path in (landed.manifest_list, *standing)))
        ours = [*self._rewriter.all_paths, *self._written, *self._of_tasks.manifest_paths]
        return [path for path in ours if path not in used]

    def _fitting(self, table: Table) -> Added:
        """Return the files to add, in the tasks' manifests only if the snapshot can list them as they are."""
        tasks, version = self._of_tasks, table.metadata.format_version
        fits = self._write.overwrite is None and all(found.format_version == version for found in tasks.manifests)
        if fits or not tasks.manifests:
            return tasks
        if self._one_by_one is None:
            self._one_by_one = tasks.one_by_one(table.io)
        return self._one_by_one

    def _merge(
        self, table: Table, listed: Sequence[ManifestFile], added: Added
    ) -> tuple[list[ManifestFile], list[Merged]]:
        """Return the manifests that stay, and the merged ones for the rest; a write that replaces rows merges none."""
        metadata, write = table.metadata, self._write
        if self._rewrite_files is not None:
            self._merged = list(added.merged)
        elif write.overwrite is not None:
            return list(listed), []
        elif self._merged is None:
            self._merged = merged_for(table.io, metadata, listed, write)
            self._written += [path for merged in self._merged for path in merged.paths]
        if not self._merged:
            return list(listed), []
        by_path = {manifest.manifest_path: manifest for manifest in listed}
        sources = sources_of(listed)
        usable = [merged for merged in self._merged if merged.can_stand_in(metadata, sources)]
        for merged in usable:
            self._check_merged(merged, [by_path[path] for path in merged.replaces])
        gone = frozenset[str]().union(*(merged.replaces for merged in usable))
        return [manifest for manifest in listed if manifest.manifest_path not in gone], usable

    def _check_merged(self, merged: Merged, replaced: Sequence[ManifestFile]) -> None:
        """Check that merged manifests list all rows, or deletes, of the manifests whose place they take."""
        counts = [live_rows(manifest) for manifest in replaced]
        known = [count for count in counts if count is not None]
        if len(known) < len(counts):
            return
        listed = sum(file.existing_rows_count or 0 for file in merged.files)
        source = f"the manifest list says that {replaced[0].manifest_path} and {len(replaced) - 1} others have"
        action, found = f"commit {self._write}", {"listed again": listed}
        check_rows(action, source, sum(known), found, advice=_COUNTS_OF_OTHERS)

    def _rewrite(self, table: Table, filtered: FilteredManifests) -> list[DataFile]:
        if not filtered.partial:
            return []
        head = write_base(table.metadata, self._write.route)
        return self._rewriter.rewrite(table, filtered.partial, head.snapshot_id if head else None)

    def _counts(self, table: Table, change: Change) -> dict[str, str]:
        """Count what the snapshot adds and drops; count an append once: it may be large and stays the same."""
        if change.removed:
            return change_summary(table.metadata, change)
        if not self._added_counts:
            self._added_counts = change_summary(table.metadata, change)
        return self._added_counts

    def _manifests(
        self, table: Table, added: Added, filtered: FilteredManifests, again: Sequence[DataFile]
    ) -> list[ManifestFile]:
        """Write the manifests that this snapshot adds, reusing those of an earlier attempt that stay the same."""
        metadata, write = table.metadata, self._write
        if added not in self._added:
            name = "m" if added is self._of_tasks else "o"
            numbers = self._rewrite_files.sequence_numbers if self._rewrite_files else {}
            drafts = draft_added(metadata, added.data_files, write, name=name, numbers=numbers)
            drafts += draft_added(
                metadata, added.delete_files, write, name="d", content=ManifestContent.DELETES, numbers=numbers
            )
            self._written += [draft.path for draft in drafts]
            of_tasks = [manifest.file for manifest in added.manifests]
            self._added[added] = [*write_manifests(table.io, metadata, drafts, write), *of_tasks]
        drafts = draft_added(metadata, again, write, name=f"r{len(self._used)}-")
        drafts += [
            draft_filtered(
                metadata_path(metadata, f"{write.operation_id}-f{next(self._numbers)}.avro"),
                change.manifest,
                change.kept,
                change.dropped,
                write.snapshot_id,
            )
            for change in filtered.replaced
        ]
        self._written += [draft.path for draft in drafts]
        return [*self._added[added], *write_manifests(table.io, metadata, drafts, write)]

    def _check_rows(
        self, ours: Sequence[ManifestFile], added: Added, filtered: FilteredManifests, again: Sequence[DataFile]
    ) -> None:
        """Check that the new manifests list all rows that were written, and all rows of the manifests they replace."""
        action = f"commit {self._write}"
        of_rows = [manifest for manifest in ours if manifest.content == ManifestContent.DATA]
        of_deletes = [manifest for manifest in ours if manifest.content != ManifestContent.DATA]
        rows, deletes = added.record_count + rows_in(again), rows_in(added.delete_files)
        for name, count, manifests in (("rows", rows, of_rows), ("deletes", deletes, of_deletes)):
            listed = sum(manifest.added_rows_count or 0 for manifest in manifests)
            check_rows(action, f"its files of {name} have", count, {"added by its manifests": listed})
        for change in filtered.replaced:
            kept, dropped = (rows_in(entry.data_file for entry in part) for part in (change.kept, change.dropped))
            if change.listed_rows is not None:
                source = f"the manifest list says that {change.manifest.manifest_path} and those like it have"
                found = {"in files that stay": kept, "in others": dropped}
                check_rows(action, source, change.listed_rows, found, advice=_COUNTS_OF_OTHERS)
        kept = sum(rows_in(entry.data_file for entry in change.kept) for change in filtered.replaced)
        listed = sum(manifest.existing_rows_count or 0 for manifest in ours)
        check_rows(action, "the files that stay in the manifests that it replaces have", kept, {"listed again": listed})

    def _path(self, table: Table, name: str) -> str:
        path = metadata_path(table.metadata, name)
        self._written.append(path)
        return path
