"""Which files of a branch a write replaces, read from its manifests as they are now.

Files count as new if a snapshot after the write's base brought them: under `serializable` one of those in
the replaced range is a conflict, under `snapshot` it stays. A file that the write saw at its base and that
is gone by now is a conflict under either, because its rows may live on elsewhere. Source: Iceberg spec,
"Commit Conflict Resolution and Retry".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.commits.manifest_reader import live_entries
from iceberg_ds.commits.manifests import live_manifests, live_rows
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.messages import WriteIdentity
from iceberg_ds.plan import Overwrite, OverwriteByFilter
from iceberg_ds.predicates.predicates import parse_predicate
from iceberg_ds.predicates.ranges import Coverage, FilterRange, PartitionRange, Range
from iceberg_ds.snapshots.branches import snapshots_since, write_base


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedManifest:
    """A manifest that lists files to drop, and what becomes of its live entries.

    Attributes:
        manifest: The manifest; one of several if their entries become one manifest.
        kept: The entries that stay.
        dropped: The entries that do not.
        listed_rows: How many rows, or deletes, all of them have by the manifest list, None if it does not say.
    """

    manifest: ManifestFile
    kept: tuple[ManifestEntry, ...]
    dropped: tuple[ManifestEntry, ...]
    listed_rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What a write does to the manifests of its branch.

    Attributes:
        untouched: Manifests that the new snapshot keeps as they are.
        replaced: Manifests that it replaces.
        partial: Data files among the dropped ones whose other rows must be written again.
    """

    untouched: tuple[ManifestFile, ...]
    replaced: tuple[ReplacedManifest, ...] = ()
    partial: tuple[DataFile, ...] = ()

    @property
    def removed(self) -> list[DataFile]:
        """All files that are dropped."""
        return [entry.data_file for change in self.replaced for entry in change.dropped]


def find_replacement(table: Table, write: WriteIdentity, added: Sequence[DataFile]) -> Replacement:
    """Return what `write`, which adds `added`, replaces in the table as it is now.

    Raises:
        CommitConflictError: Another writer changed the range since the write began.
        UnsupportedTableError: The partitions to replace cannot be told from others.
    """
    head = write_base(table.metadata, write.route)
    manifests = live_manifests(table.io, head)
    if write.overwrite is None:
        return Replacement(untouched=tuple(manifests))
    return _Search(table, write, write.overwrite, added, head).run(manifests)


class _Search:
    def __init__(
        self, table: Table, write: WriteIdentity, overwrite: Overwrite, added: Sequence[DataFile], head: Snapshot | None
    ) -> None:
        self._table = table
        self._io: FileIO = table.io
        self._write = write
        self._overwrite = overwrite
        self._range = _range(table, overwrite, added, write)
        self._since = self._snapshots_since(head)

    def run(self, manifests: Sequence[ManifestFile]) -> Replacement:
        """Look through the manifests of the branch's newest snapshot."""
        untouched: list[ManifestFile] = []
        replaced: list[ReplacedManifest] = []
        partial: list[DataFile] = []
        for manifest in manifests:
            change = self._filter(manifest, partial) if self._may_drop_from(manifest) else None
            if change is None:
                untouched.append(manifest)
            else:
                replaced.append(change)
        if self._since and self._overwrite.isolation_level != "none":
            live = {entry.data_file.file_path for change in replaced for entry in change.dropped}
            self._check_still_there(live)
        if self._since:
            self._check_no_new_deletes(manifests, partial)
        return Replacement(untouched=tuple(untouched), replaced=tuple(replaced), partial=tuple(partial))

    def _filter(self, manifest: ManifestFile, partial: list[DataFile]) -> ReplacedManifest | None:
        kept, dropped = [], []
        for entry in live_entries(self._io, manifest):
            coverage = self._range.coverage(entry.data_file)
            if coverage is Coverage.OUTSIDE or self._came_meanwhile(entry):
                kept.append(entry)
                continue
            dropped.append(entry)
            if coverage is Coverage.PARTIAL:
                partial.append(entry.data_file)
        if not dropped:
            return None
        return ReplacedManifest(
            manifest=manifest, kept=tuple(kept), dropped=tuple(dropped), listed_rows=live_rows(manifest)
        )

    def _may_drop_from(self, manifest: ManifestFile) -> bool:
        if manifest.content == ManifestContent.DELETES:  # equal, not identical: in version 1 it is a plain number
            # Deletes whose data files are gone do no harm; only where no row stays are they dropped, too.
            return self._range.is_everything
        return self._range.may_touch(manifest)

    def _came_meanwhile(self, entry: ManifestEntry) -> bool:
        if self._overwrite.isolation_level == "none":
            return False
        if self._overwrite.base_snapshot_id is not None and entry.snapshot_id not in self._since:
            return False
        if self._overwrite.isolation_level == "snapshot":
            return True
        # Deletes change nothing if no row came meanwhile: all that they may apply to is dropped.
        if entry.data_file.content == DataFileContent.DATA:
            raise CommitConflictError(
                f"Cannot commit {self._write}, nothing was committed: snapshot {entry.snapshot_id} brought "
                f"{entry.data_file.file_path} into the replaced range after this write began"
                f"{self._base_text()}. Run the write again, or use isolation-level=snapshot, which keeps such rows."
            )
        return False

    def _base_text(self) -> str:
        base_id = self._overwrite.base_snapshot_id
        return f" (at snapshot {base_id})" if base_id is not None else ""

    def _snapshots_since(self, head: Snapshot | None) -> frozenset[int]:
        base_id = self._overwrite.base_snapshot_id
        since = snapshots_since(self._table.metadata, head, base_id)
        if since is None:
            raise CommitConflictError(
                f"Cannot commit {self._write}, nothing was committed: snapshot {base_id}, from which changes are "
                f"looked for, does not lie behind branch '{self._write.branch}' any more: it has expired, or "
                "the branch was set back. Run the write again."
            )
        return frozenset(snapshot.snapshot_id for snapshot in since)

    def _check_still_there(self, live: set[str]) -> None:
        gone = next((path for path in self._paths_at_base() if path not in live), None)
        if gone is not None:
            raise CommitConflictError(
                f"Cannot commit {self._write}, nothing was committed: {gone}, which it replaces, was removed by "
                f"another writer after this write began{self._base_text()}. Run the write again."
            )

    def _paths_at_base(self) -> Iterator[str]:
        base_id = self._overwrite.base_snapshot_id
        base = self._table.metadata.snapshot_by_id(base_id) if base_id is not None else None
        for manifest in live_manifests(self._io, base):
            if manifest.content == ManifestContent.DATA and self._range.may_touch(manifest):
                for entry in live_entries(self._io, manifest):
                    if self._range.coverage(entry.data_file) is not Coverage.OUTSIDE:
                        yield entry.data_file.file_path

    def _check_no_new_deletes(self, manifests: Sequence[ManifestFile], partial: Sequence[DataFile]) -> None:
        """Refuse to write rows again that another writer may have deleted meanwhile."""
        new = [
            manifest.added_snapshot_id
            for manifest in manifests
            if manifest.content == ManifestContent.DELETES and manifest.added_snapshot_id in self._since
        ]
        if new and partial:
            raise CommitConflictError(
                f"Cannot commit {self._write}, nothing was committed: snapshot {new[0]} deleted rows after this write "
                f"began{self._base_text()}, maybe of files that it replaces in part. Run the write again."
            )


def _range(table: Table, overwrite: Overwrite, added: Sequence[DataFile], write: WriteIdentity) -> Range:
    if isinstance(overwrite, OverwriteByFilter):
        predicate = parse_predicate(overwrite.predicate)
        return FilterRange(
            table.metadata, predicate, case_sensitive=overwrite.case_sensitive, time_zone=overwrite.time_zone
        )
    return PartitionRange(table.metadata, added, write.table)
