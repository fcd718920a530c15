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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from iceberg_ds.commit.write_files import Added
from iceberg_ds.errors import CommitConflictError, UnsupportedTableError
from iceberg_ds.expressions.metrics_evaluator import Coverage, FilterRange, PartitionRange, Range
from iceberg_ds.expressions.parser import parse_predicate
from iceberg_ds.expressions.row_filter import RowFilter
from iceberg_ds.messages import CountedBatches, check_rows, rows_in
from iceberg_ds.plan import Overwrite, OverwriteByFilter, WriteIdentity, WritePlan
from iceberg_ds.snapshots.manifests import live_entries, live_manifests, live_rows
from iceberg_ds.snapshots.refs import snapshots_since, write_base
from iceberg_ds.snapshots.version_3 import VERSION_3, deletion_vector, first_row_id, lineage_of, referenced_data_file
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.lineage import FileLineage, with_lineage
from iceberg_ds.table.name_mapping import NAME_MAPPING, UnknownColumnsError, parsed_mapping
from iceberg_ds.table.partitioning import PartitionKey, identity_values
from iceberg_ds.writers.deletion_vectors import hidden_in, owner_of, vector_of
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
        tasks = _scan_tasks(table, new, snapshot_id, self._write.table) if new else {}
        for data_file in new:
            self._write_again(table, *tasks[data_file.file_path])
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

    def _write_again(self, table: Table, task: FileScanTask, lineage: FileLineage | None) -> None:
        overwrite, path = self._write.overwrite, task.file.file_path
        if not isinstance(overwrite, OverwriteByFilter):
            raise TypeError(f"{overwrite} replaces whole partitions")
        attempt = TaskAttempt(partition_id=next(self._numbers), task_attempt_id=self._attempt_id)
        row_filter = RowFilter.of(overwrite, table.metadata.schema())
        hidden = _hidden_positions(table.io, task)
        there = CountedBatches(read_rows(table, task, hidden, lineage))
        staying = CountedBatches(_failing(row_filter, path, there))
        written = self._written[_key(task.file)] = write_task(self._plan(table, lineage), staying, attempt)
        found = {
            "deleted before": count_positions(hidden, task.file.record_count),
            "replaced": there.rows - staying.rows,
            f"in {len(written)} new files": rows_in(written),
        }
        check_rows(f"commit {self._write}", f"{path} has", task.file.record_count, found)

    def _plan(self, table: Table, lineage: FileLineage | None) -> WritePlan:
        plan = WritePlan.into(table.metadata, self._write, table.io.properties)
        schema = plan.schema if lineage is None else with_lineage(plan.schema)
        return replace(plan, schema=schema, case_sensitive=True)


def _hidden_positions(io: FileIO, task: FileScanTask) -> pa.Array:
    vectors = (vector for deletes in task.delete_files if (vector := vector_of(deletes)) is not None)
    return hidden_in(io, task.file, [deletes.file_path for deletes in task.delete_files], next(vectors, None))


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
    table: Table, task: FileScanTask, hidden: pa.Array, lineage: FileLineage | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that are not deleted by position, with the table's own names at any depth.

    Args:
        table: The table.
        task: The scan task that reads the file.
        hidden: The positions of deleted rows.
        lineage: What its rows inherit, to have it in columns behind the table's own; None to leave it out.

    Raises:
        UnsupportedTableError: It is not known which columns of the table the file's are.
    """
    path, schema = task.file.file_path, table.metadata.schema()
    values = identity_values(task.file, table.metadata.specs()[task.file.spec_id])
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


def _scan_tasks(
    table: Table, data_files: Sequence[DataFile], snapshot_id: int | None, name: str
) -> dict[str, tuple[FileScanTask, FileLineage | None]]:
    """Return the scan task of each file, by path, with the position deletes that apply to it, and its rows' lineage.

    PyIceberg's own plan misses deletes in a NaN partition, because NaN is not equal to itself there.
    """
    paths = {data_file.file_path for data_file in data_files}
    found: dict[str, ManifestEntry] = {}
    deletes = DeleteFileIndex()
    vectors: dict[str, DataFile] = {}
    head = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    for entry in (entry for manifest in live_manifests(table.io, head) for entry in live_entries(table.io, manifest)):
        listed = entry.data_file
        if listed.content == DataFileContent.DATA:
            if listed.file_path in found:
                raise UnsupportedTableError(
                    f"Cannot write to {name} with replace-where, nothing was committed: some rows of "
                    f"{listed.file_path} must be written again, and the table lists it more than once, as after files "
                    "were added twice, so that deletes may hide other rows of each entry. Rewrite its files with "
                    "Iceberg's rewrite_data_files first, or replace whole partitions."
                )
            if listed.file_path in paths:
                found[listed.file_path] = entry
        elif listed.file_format is FileFormat.PUFFIN:
            try:
                vectors[owner_of(listed, vectors)] = listed
            except ValueError as problem:
                raise UnsupportedTableError(
                    f"Cannot write to {name} with replace-where, nothing was committed: {problem}. Readers refuse the "
                    "table; iceberg_ds.verify says what else is wrong with it."
                ) from problem
        elif listed.content == DataFileContent.POSITION_DELETES and listed.file_format is FileFormat.PARQUET:
            deletes.add_delete_file(entry, _partition_of(listed))
        else:
            reason = f"{listed.file_path} has deletes by {_kind_of(listed)}"
            raise UnsupportedTableError(
                f"Cannot write to {name} with replace-where, nothing was committed: the rows of "
                f"{data_files[0].file_path} and {len(data_files) - 1} other files must be written again in part, and "
                f"they cannot be read: {reason}. Compact the table first, or replace whole partitions."
            )
    return {
        path: (_scan_task(entry, deletes, vectors.get(path)), lineage_of(entry.data_file, entry.sequence_number))
        for path, entry in found.items()
    }


def _scan_task(entry: ManifestEntry, deletes: DeleteFileIndex, vector: DataFile | None) -> FileScanTask:
    data_file = entry.data_file
    if vector is not None:  # it has the positions of all other deletes
        return FileScanTask(data_file, delete_files={vector})
    applying = deletes.for_data_file(entry.sequence_number or 0, data_file, _partition_of(data_file))
    return FileScanTask(data_file, delete_files=applying)


def _partition_of(data_file: DataFile) -> Record:
    return Record(PartitionKey.of(data_file.partition).text)


def _kind_of(deletes: DataFile) -> str:
    by_key = deletes.content == DataFileContent.EQUALITY_DELETES
    return "key (equality deletes)" if by_key else f"position in a file of {deletes.file_format.value}"
