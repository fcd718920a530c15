"""Writes the rows again that a replaced file holds outside the replaced range.

Runs in the committer, batch by batch, so memory does not grow with the file. Each file is written again
once, however many attempts the commit takes.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.typedef import Record

from iceberg_ds.commits.manifest_reader import live_entries
from iceberg_ds.commits.manifests import live_manifests
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.layouts.partitioning import PartitionKey, identity_values
from iceberg_ds.messages import WriteIdentity
from iceberg_ds.plan import OverwriteByFilter, WritePlan
from iceberg_ds.predicates.row_filter import RowFilter
from iceberg_ds.pyiceberg_inner import deleted_positions
from iceberg_ds.row_counts import CountedBatches, check_rows, rows_in
from iceberg_ds.schemas.conform import conform
from iceberg_ds.schemas.shape import file_shape
from iceberg_ds.writing.remaining_rows import NoFieldIdsError, count_positions, remaining_rows
from iceberg_ds.writing.writers import TaskAttempt, write_task


class PartialRewriter:
    """The rows to keep of the files that one write replaces in part.

    Args:
        write: The write.
    """

    def __init__(self, write: WriteIdentity) -> None:
        self._write = write
        self._written: dict[str, tuple[DataFile, ...]] = {}
        self._numbers = itertools.count()
        # A name of its own in place of a task's attempt, so that no two files share a path.
        self._attempt_id = uuid.uuid4().int >> 96

    @property
    def all_paths(self) -> list[str]:
        """Every file that was written."""
        return [data_file.file_path for written in self._written.values() for data_file in written]

    def rewrite(self, table: Table, partial: Sequence[DataFile], snapshot_id: int | None) -> list[DataFile]:
        """Return the files that hold the rows of `partial` outside the range.

        Args:
            table: The table, freshly loaded.
            partial: Files of which some rows are replaced.
            snapshot_id: The snapshot that they are in.

        Raises:
            UnsupportedTableError: One of them is no Parquet file, has rows that equality deletes hide, or a row for
                which the predicate has no value.
        """
        new = [data_file for data_file in partial if data_file.file_path not in self._written]
        self._check_formats(new)
        tasks = _scan_tasks(table, new, snapshot_id, self._write.table) if new else {}
        for data_file in new:
            self._write_again(table, tasks[data_file.file_path])
        return [again for data_file in partial for again in self._written[data_file.file_path]]

    def _check_formats(self, data_files: Sequence[DataFile]) -> None:
        for data_file in data_files:
            if data_file.file_format is not FileFormat.PARQUET:
                raise UnsupportedTableError(
                    f"Cannot write to {self._write.table} with replace-where, nothing was committed: some rows of "
                    f"{data_file.file_path} must be written again, which is a file of {data_file.file_format.value}, "
                    "and only Parquet is read. Rewrite it as Parquet with the engine that wrote it, or replace whole "
                    "partitions."
                )

    def _write_again(self, table: Table, task: FileScanTask) -> None:
        overwrite, path = self._write.overwrite, task.file.file_path
        if not isinstance(overwrite, OverwriteByFilter):
            raise TypeError(f"{overwrite} replaces whole partitions")
        attempt = TaskAttempt(partition_id=next(self._numbers), task_attempt_id=self._attempt_id)
        row_filter, hidden = RowFilter.of(overwrite, table.metadata.schema()), deleted_positions(table.io, task)
        there = CountedBatches(read_rows(table, task, hidden))
        staying = CountedBatches(_failing(row_filter, path, there))
        written = self._written[path] = write_task(self._plan(table), staying, attempt)
        found = {
            "deleted before": count_positions(hidden, task.file.record_count),
            "replaced": there.rows - staying.rows,
            f"in {len(written)} new files": rows_in(written),
        }
        check_rows(f"commit {self._write}", f"{path} has", task.file.record_count, found)

    def _plan(self, table: Table) -> WritePlan:
        metadata, write = table.metadata, self._write
        return WritePlan(
            table=write.table,
            table_uuid=write.table_uuid,
            route=write.route,
            schema=metadata.schema(),
            spec=metadata.spec(),
            location=metadata.location,
            properties=metadata.properties,
            io_properties=table.io.properties,
            operation_id=write.operation_id,
            snapshot_id=write.snapshot_id,
            files=write.files,
            case_sensitive=True,
            location_provider=write.location_provider,
        )


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


def read_rows(table: Table, task: FileScanTask, hidden: pa.Array) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that are not deleted by position, with the table's own names at any depth.

    Args:
        table: The table.
        task: Reads the file.
        hidden: The positions of deleted rows.

    Raises:
        UnsupportedTableError: The file does not say which of the table's fields its columns are.
    """
    path, schema = task.file.file_path, table.metadata.schema()
    values = identity_values(task.file, table.metadata.specs()[task.file.spec_id])
    shape = file_shape(schema, case_sensitive=True)
    by_own_names = replace(shape, schema=shape.named)
    try:
        for rows in remaining_rows(table.io, path, schema, hidden, values):
            yield conform(rows, by_own_names)
    except NoFieldIdsError as problem:
        raise UnsupportedTableError(
            f"Cannot write some rows of {path} again, nothing was committed: {problem}. Compact the table first, or "
            "replace whole files."
        ) from problem


def _scan_tasks(
    table: Table, data_files: Sequence[DataFile], snapshot_id: int | None, name: str
) -> dict[str, FileScanTask]:
    """Return, by path, how to read each file with the position deletes that apply to it.

    PyIceberg's own plan passes over deletes in the partition of NaN, which is not equal to itself there.
    """
    paths = {data_file.file_path for data_file in data_files}
    found: dict[str, ManifestEntry] = {}
    deletes = DeleteFileIndex()
    head = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    for entry in (entry for manifest in live_manifests(table.io, head) for entry in live_entries(table.io, manifest)):
        listed = entry.data_file
        if listed.content == DataFileContent.DATA:
            if listed.file_path in paths:
                found[listed.file_path] = entry
        elif listed.content == DataFileContent.POSITION_DELETES and listed.file_format is FileFormat.PARQUET:
            deletes.add_delete_file(entry, _partition_of(listed))
        else:
            reason = f"{listed.file_path} has deletes by {_kind_of(listed)}"
            raise UnsupportedTableError(
                f"Cannot write to {name} with replace-where, nothing was committed: the rows of "
                f"{data_files[0].file_path} and {len(data_files) - 1} other files must be written again in part, and "
                f"they cannot be read: {reason}. Compact the table first, or replace whole partitions."
            )
    return {path: _scan_task(entry, deletes) for path, entry in found.items()}


def _scan_task(entry: ManifestEntry, deletes: DeleteFileIndex) -> FileScanTask:
    data_file = entry.data_file
    applying = deletes.for_data_file(entry.sequence_number or 0, data_file, _partition_of(data_file))
    return FileScanTask(data_file, delete_files=applying)


def _partition_of(data_file: DataFile) -> Record:
    return Record(PartitionKey.of(data_file.partition).text)


def _kind_of(deletes: DataFile) -> str:
    by_key = deletes.content == DataFileContent.EQUALITY_DELETES
    return "key (equality deletes)" if by_key else f"position in a file of {deletes.file_format.value}"
