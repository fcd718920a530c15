"""The files of a branch that a write replaces, read from the branch's current manifests, and their rows that stay.

A file counts as new if a snapshot after the write's base added it: under `serializable` a new file in the replaced
range is a conflict, under `snapshot` the file stays. A file that the write saw at its base and that is gone now is a
conflict under either, because its rows may live on elsewhere. The committer writes rows outside the range again, batch
by batch, so memory does not grow with the file, and once per file, however many attempts the commit takes. A
`RewriteFiles` says at each attempt what it drops and whether that still fits; the condition on the branch that guards
all commits makes sure that this still holds when the request is carried out. Source: Iceberg spec, "Commit Conflict
Resolution and Retry".
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.commit.write_files import Added
from iceberg_ds.errors import CommitConflictError, UnsupportedTableError
from iceberg_ds.expressions.metrics_evaluator import Coverage, FilterRange, PartitionRange, Range
from iceberg_ds.expressions.parser import parse_predicate
from iceberg_ds.expressions.row_filter import RowFilter
from iceberg_ds.messages import CountedBatches, check_rows, rows_in
from iceberg_ds.plan import Overwrite, OverwriteByFilter, WriteIdentity, WritePlan
from iceberg_ds.snapshots.live_files import HiddenBy, LiveFile, LiveFiles, PositionIndex
from iceberg_ds.snapshots.manifests import live_entries, live_manifests, live_rows
from iceberg_ds.snapshots.refs import snapshots_since, write_base
from iceberg_ds.snapshots.version_3 import VERSION_3, deletion_vector, first_row_id, lineage_of, referenced_data_file
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.lineage import FileLineage, with_lineage
from iceberg_ds.table.name_mapping import NAME_MAPPING, UnknownColumnsError, parsed_mapping
from iceberg_ds.table.partitioning import identity_values
from iceberg_ds.writers.deletion_vectors import hidden_in
from iceberg_ds.writers.rewriting import count_positions, remaining_rows
from iceberg_ds.writers.task_writer import TaskAttempt, write_task


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredManifest:
    """A manifest that lists files to drop, and what becomes of its live entries.

    Attributes:
        manifest: The manifest; one of several if their entries become one manifest.
        kept: The entries that stay.
        dropped: The entries that are dropped.
        listed_rows: Rows, or deletes, of all these entries by the manifest list; None if it does not say.
    """

    manifest: ManifestFile
    kept: tuple[ManifestEntry, ...]
    dropped: tuple[ManifestEntry, ...]
    listed_rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredManifests:
    """What a write does to the manifests of its branch.

    Attributes:
        untouched: Manifests that the new snapshot keeps as they are.
        replaced: Manifests that the new snapshot replaces.
        partial: Dropped data files whose other rows must be written again.
    """

    untouched: tuple[ManifestFile, ...]
    replaced: tuple[FilteredManifest, ...] = ()
    partial: tuple[DataFile, ...] = ()

    @property
    def removed(self) -> list[DataFile]:
        """All files that are dropped."""
        return [entry.data_file for change in self.replaced for entry in change.dropped]


def filter_manifests(table: Table, write: WriteIdentity, added: Sequence[DataFile]) -> FilteredManifests:
    """Return what `write`, which adds `added`, replaces in the current table.

    Raises:
        CommitConflictError: Another writer changed the range since the write began.
        UnsupportedTableError: The partitions to replace cannot be told from other partitions.
    """
    head = write_base(table.metadata, write.route)
    manifests = live_manifests(table.io, head)
    if write.overwrite is None:
        return FilteredManifests(untouched=tuple(manifests))
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
        self._has_vectors = table.metadata.format_version >= VERSION_3

    def run(self, manifests: Sequence[ManifestFile]) -> FilteredManifests:
        """Look through the manifests of the branch's newest snapshot."""
        untouched: list[ManifestFile] = []
        replaced: list[FilteredManifest] = []
        partial: list[DataFile] = []
        gone: set[str] = set()
        # Data manifests first, as writers list them: deletion vectors go with their data files.
        for manifest in sorted(manifests, key=lambda found: found.content == ManifestContent.DELETES):
            change = None
            if self._may_drop_from(manifest):
                change = self._filter(manifest, partial, gone)
            elif manifest.content == ManifestContent.DELETES and gone:
                change = self._without_vectors(manifest, gone)
            if self._has_vectors and change is not None:
                gone |= {entry.data_file.file_path for entry in change.dropped}
            if change is None:
                untouched.append(manifest)
            else:
                replaced.append(change)
        if self._since and self._overwrite.isolation_level != "none":
            live = {entry.data_file.file_path for change in replaced for entry in change.dropped}
            self._check_still_there(live)
        if self._since and partial:
            self._check_no_new_deletes(manifests)
        return FilteredManifests(untouched=tuple(untouched), replaced=tuple(replaced), partial=tuple(partial))

    def _filter(
        self, manifest: ManifestFile, partial: list[DataFile], gone: AbstractSet[str]
    ) -> FilteredManifest | None:
        kept, dropped = [], []
        for entry in live_entries(self._io, manifest):
            coverage = self._range.coverage(entry.data_file)
            if coverage is Coverage.OUTSIDE or (self._came_meanwhile(entry) and not _is_vector_of(entry, gone)):
                kept.append(entry)
                continue
            dropped.append(entry)
            if coverage is Coverage.PARTIAL:
                partial.append(entry.data_file)
        return _filtered(manifest, kept, dropped)

    def _without_vectors(self, manifest: ManifestFile, gone: AbstractSet[str]) -> FilteredManifest | None:
        """Drop the deletion vectors of data files that are dropped; None if the manifest has none."""
        kept: list[ManifestEntry] = []
        dropped: list[ManifestEntry] = []
        for entry in live_entries(self._io, manifest):
            (dropped if _is_vector_of(entry, gone) else kept).append(entry)
        return _filtered(manifest, kept, dropped)

    def _may_drop_from(self, manifest: ManifestFile) -> bool:
        if manifest.content == ManifestContent.DELETES:  # equal, not identical: in version 1 it is a plain number
            # Deletes whose data files are gone do no harm; they are dropped too only where no row stays.
            return self._range.is_everything
        return self._range.may_touch(manifest)

    def _came_meanwhile(self, entry: ManifestEntry) -> bool:
        if self._overwrite.isolation_level == "none":
            return False
        if self._overwrite.base_snapshot_id is not None and entry.snapshot_id not in self._since:
            return False
        if self._overwrite.isolation_level == "snapshot":
            return True
        # Deletes change nothing if no row came meanwhile: all rows that they may apply to are dropped.
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

    def _check_no_new_deletes(self, manifests: Sequence[ManifestFile]) -> None:
        """Refuse to write rows again that another writer may have deleted meanwhile."""
        for manifest in manifests:
            if manifest.content != ManifestContent.DELETES or manifest.added_snapshot_id not in self._since:
                continue
            # A rewritten manifest is new, and the delete files that it lists may all be old.
            for entry in live_entries(self._io, manifest):
                if entry.snapshot_id in self._since:
                    raise CommitConflictError(
                        f"Cannot commit {self._write}, nothing was committed: snapshot {entry.snapshot_id} deleted "
                        f"rows after this write began{self._base_text()}, maybe of files that it replaces in part. "
                        "Run the write again."
                    )


def _is_vector_of(entry: ManifestEntry, paths: AbstractSet[str]) -> bool:
    """Return whether an entry is the deletion vector of one of these data files."""
    return deletion_vector(entry.data_file) is not None and referenced_data_file(entry.data_file) in paths


def _filtered(
    manifest: ManifestFile, kept: Sequence[ManifestEntry], dropped: Sequence[ManifestEntry]
) -> FilteredManifest | None:
    if not dropped:
        return None
    return FilteredManifest(
        manifest=manifest, kept=tuple(kept), dropped=tuple(dropped), listed_rows=live_rows(manifest)
    )


def _range(table: Table, overwrite: Overwrite, added: Sequence[DataFile], write: WriteIdentity) -> Range:
    if isinstance(overwrite, OverwriteByFilter):
        predicate = parse_predicate(overwrite.predicate)
        return FilterRange(
            table.metadata, predicate, case_sensitive=overwrite.case_sensitive, time_zone=overwrite.time_zone
        )
    return PartitionRange(table.metadata, added, write.table)


class RewriteValidationError(CommitConflictError):
    """Other writers have changed files that the rewrite was made from; files that tasks wrote stay for another try."""


class RewriteFiles(Protocol):
    """Files to add, and the files that they replace."""

    @property
    def keeps_rows(self) -> bool:
        """Whether the table has the same rows afterwards."""

    @property
    def added(self) -> Added:
        """The files that replace other files, without the files of the write's own rows."""

    @property
    def sequence_numbers(self) -> Mapping[str, int]:
        """Data sequence numbers, by path, of added files whose rows are older than the snapshot."""

    def filtered(self, table: Table) -> FilteredManifests:
        """Return what to drop from the current table.

        Raises:
            RewriteValidationError: The files to add no longer fit the table.
        """


class PartialRewriter:
    """Writes again the rows to keep of the files that one write replaces in part.

    Args:
        write: The write.
    """

    def __init__(self, write: WriteIdentity) -> None:
        self._write = write
        self._written: dict[tuple[str, int | None], tuple[DataFile, ...]] = {}
        self._numbers = itertools.count()
        # A unique id in place of a task attempt's, so that no two files share a path.
        self._attempt_id = uuid.uuid4().int >> 96

    @property
    def all_paths(self) -> list[str]:
        """Paths of all files that were written."""
        return [data_file.file_path for written in self._written.values() for data_file in written]

    def rewrite(self, table: Table, partial: Sequence[DataFile], snapshot_id: int | None) -> list[DataFile]:
        """Return the files that hold the rows of `partial` outside the range.

        Args:
            table: The table, freshly loaded.
            partial: Files with some rows to replace.
            snapshot_id: The snapshot that has these files.

        Raises:
            UnsupportedTableError: A file is not Parquet, is listed more than once, has rows that equality deletes
                hide, or has a row for which the predicate has no value.
        """
        new = [data_file for data_file in partial if _key(data_file) not in self._written]
        self._check_formats(new)
        if new:
            live = self._with_deletes(table, snapshot_id, new)
            index = PositionIndex(live)
            for found in live.data:
                self._write_again(table, found, index.of(found))
        return [again for data_file in partial for again in self._written[_key(data_file)]]

    def _check_formats(self, data_files: Sequence[DataFile]) -> None:
        for data_file in data_files:
            if data_file.file_format is not FileFormat.PARQUET:
                raise UnsupportedTableError(
                    f"Cannot write to {self._write.table} with replace-where, nothing was committed: some rows of "
                    f"{data_file.file_path} must be written again, which is a file of {data_file.file_format.value}, "
                    "and only Parquet is read. Rewrite it as Parquet with the engine that wrote it, or replace whole "
                    "partitions."
                )

    def _with_deletes(self, table: Table, snapshot_id: int | None, partial: Sequence[DataFile]) -> LiveFiles:
        """Return data files as a snapshot has them, and all its deletes; refuse what does not tell which rows stay."""
        head = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
        entries = (entry for manifest in live_manifests(table.io, head) for entry in live_entries(table.io, manifest))
        wanted = {data_file.file_path for data_file in partial}
        needed = (
            entry
            for entry in entries
            if entry.data_file.content != DataFileContent.DATA or entry.data_file.file_path in wanted
        )
        refused = f"Cannot write to {self._write.table} with replace-where, nothing was committed"
        try:
            live = LiveFiles.of(map(LiveFile.of, needed))
        except ValueError as problem:
            raise UnsupportedTableError(
                f"{refused}: {problem}. Readers refuse the table; iceberg_ds.verify says what else is wrong with it."
            ) from problem
        times = Counter(found.path for found in live.data)
        if twice := next((path for path, count in times.items() if count > 1), None):
            raise UnsupportedTableError(
                f"{refused}: some rows of {twice} must be written again, and the table lists it more than once, as "
                "after files were added twice, so that deletes may hide other rows of each entry. Rewrite its files "
                "with Iceberg's rewrite_data_files first, or replace whole partitions."
            )
        for deletes in (*live.equalities, *live.positions):
            if (kind := _unread_kind(deletes.data_file)) is not None:
                raise UnsupportedTableError(
                    f"{refused}: the rows of {partial[0].file_path} and {len(partial) - 1} other files must be written "
                    f"again in part, and they cannot be read: {deletes.path} has deletes by {kind}. Compact the table "
                    "first, or replace whole partitions."
                )
        return live

    def _write_again(self, table: Table, found: LiveFile, hidden_by: HiddenBy) -> None:
        overwrite, data_file = self._write.overwrite, found.data_file
        if not isinstance(overwrite, OverwriteByFilter):
            raise TypeError(f"{overwrite} replaces whole partitions")
        attempt = TaskAttempt(partition_id=next(self._numbers), task_attempt_id=self._attempt_id)
        row_filter = RowFilter.of(overwrite, table.metadata.schema())
        lineage = lineage_of(data_file, found.sequence_number)
        hidden = hidden_in(table.io, data_file, hidden_by)
        there = CountedBatches(read_rows(table, data_file, hidden, lineage))
        staying = CountedBatches(_failing(row_filter, found.path, there))
        written = self._written[_key(data_file)] = write_task(self._plan(table, lineage), staying, attempt)
        counts = {
            "deleted before": count_positions(hidden, data_file.record_count),
            "replaced": there.rows - staying.rows,
            f"in {len(written)} new files": rows_in(written),
        }
        check_rows(f"commit {self._write}", f"{found.path} has", data_file.record_count, counts)

    def _plan(self, table: Table, lineage: FileLineage | None) -> WritePlan:
        plan = WritePlan.into(table.metadata, self._write, table.io.properties)
        schema = plan.schema if lineage is None else with_lineage(plan.schema)
        return replace(plan, schema=schema, case_sensitive=True)


def _key(data_file: DataFile) -> tuple[str, int | None]:
    # Rows that were written again before they had ids would lose those that they have now.
    return data_file.file_path, first_row_id(data_file)


def _failing(row_filter: RowFilter, path: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        try:
            kept = row_filter.failing(batch)
        except ValueError as problem:
            raise UnsupportedTableError(
                f"Cannot write some rows of {path} again, nothing was committed: {problem}. Write option "
                "'replace-where' without it."
            ) from problem
        yield kept


def read_rows(
    table: Table, data_file: DataFile, hidden: pa.Array, lineage: FileLineage | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that are not deleted by position, with the table's own names at any depth.

    Args:
        table: The table.
        data_file: The file.
        hidden: The positions of deleted rows.
        lineage: What its rows inherit, to have it in columns behind the table's own; None to leave it out.

    Raises:
        UnsupportedTableError: It is not known which columns of the table the file's are.
    """
    path, schema = data_file.file_path, table.metadata.schema()
    values = identity_values(data_file, table.metadata.specs()[data_file.spec_id])
    mapping = parsed_mapping(table.metadata.properties.get(NAME_MAPPING))
    shape = file_shape(schema if lineage is None else with_lineage(schema), case_sensitive=True)
    by_own_names = replace(shape, schema=shape.named)
    try:
        for rows in remaining_rows(table.io, path, schema, hidden, values, lineage, mapping):
            yield conform(rows, by_own_names)
    except UnknownColumnsError as problem:
        raise UnsupportedTableError(
            f"Cannot write some rows of {path} again, nothing was committed: {problem}. {problem.next_step}"
        ) from problem


def _unread_kind(deletes: DataFile) -> str | None:
    """Return by what a delete file deletes that is not read here; None if it is read."""
    if deletes.content == DataFileContent.EQUALITY_DELETES:
        return "key (equality deletes)"
    is_read = deletes.file_format is FileFormat.PARQUET
    return None if is_read else f"position in a file of {deletes.file_format.value}"
