"""From the Arrow batches of one task to its data files: fan-out by partition, rolling by size.

Rows wait in buffers until they make a row group. Memory is bounded by `BUFFER_BYTES` over all
partitions of the task, whatever the size of the DataFrame's partition and however many table
partitions its rows go to; open files are bounded by `MAX_OPEN_FILES`. Knows neither Spark nor the
catalog, and publishes nothing: a file counts only if the task's message reaches the commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table.locations import load_location_provider

from iceberg_ds.cleanup import Proof, delete_files
from iceberg_ds.conform import conform
from iceberg_ds.errors import DataFileError, IcebergSinkError
from iceberg_ds.leaves import leaf_columns
from iceberg_ds.parquet import ParquetFile
from iceberg_ds.partitioning import PartitionKey, PartitionPath, PartitionSplitter
from iceberg_ds.plan import WritePlan
from iceberg_ds.range_check import RangeCheck
from iceberg_ds.shape import file_shape
from iceberg_ds.storage import file_io

# Arrow bytes of one row group at most; compressed it is a third of that or less.
ROW_GROUP_BYTES = 64 * 1024 * 1024
# Arrow bytes that wait in all buffers of a task at most.
BUFFER_BYTES = 64 * 1024 * 1024
# Rows are split by partition in portions of this many Arrow bytes, not batch by batch.
SPLIT_BYTES = 16 * 1024 * 1024
# Files that are open at once; beyond it the one begun first is finished.
MAX_OPEN_FILES = 100
# Column chunks in the footers of all open files at most: a footer stays in memory until its file is finished,
# at about 2 kB a chunk.
MAX_OPEN_COLUMN_CHUNKS = 40_000
# A file that is this close to its target size is full: the next row group would be tiny.
FULL_AT = 0.97

UNPARTITIONED = PartitionKey(())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """Which attempt of which task writes.

    Attributes:
        partition_id: Number of the DataFrame's partition, from 0.
        task_attempt_id: Unique among all attempts of all tasks of the Spark application.
    """

    partition_id: int
    task_attempt_id: int


def write_task(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt, check: RangeCheck | None = None
) -> tuple[DataFile, ...]:
    """Write the rows of one task and return its files.

    Args:
        plan: What the driver decided.
        batches: The task's rows as Spark sends them; may be empty.
        attempt: Becomes part of the files' names, so that no two attempts share a path.
        check: Holds the rows against the range that the write replaces; None for rows that need no check.

    Raises:
        SchemaMismatchError: A required column holds a null.
        DataFileError: The rows could not be written. Every file of this attempt was deleted, or its
            path was logged.
    """
    writer = TaskWriter(plan, attempt, check)
    with _discarding(writer, plan):
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        return writer.close()


@contextmanager
def _discarding(writer: TaskWriter, plan: WritePlan) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        writer.discard()
        if isinstance(error, IcebergSinkError) or not isinstance(error, Exception):
            raise
        raise DataFileError(
            f"Cannot write a data file of {plan.table} below {plan.location}: {type(error).__name__}: {error}. "
            "Nothing was committed; files of this attempt were deleted."
        ) from error


class TaskWriter:
    """The buffers and files of one task attempt, one rolling writer for each table partition."""

    def __init__(self, plan: WritePlan, attempt: TaskAttempt, check: RangeCheck | None = None) -> None:
        self._shape = file_shape(plan.schema, case_sensitive=plan.case_sensitive)
        self._check = check
        self._splitter = None if plan.spec.is_unpartitioned() else PartitionSplitter(plan.spec, plan.schema)
        self._files = TaskFiles(plan, attempt, self._shape.schema)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._partitions: dict[PartitionKey, RollingWriter] = {}
        self._buffered_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch as Spark sent it."""
        rows = conform(batch, self._shape)
        if self._check is not None:
            rows = self._check.passing(rows)
        if self._splitter is None:
            self._append(UNPARTITIONED, rows)
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= SPLIT_BYTES:
            self._split_waiting(self._splitter)

    def close(self) -> tuple[DataFile, ...]:
        """Write what waits, finish all files and return them."""
        if self._splitter is not None:
            self._split_waiting(self._splitter)
        for partition in self._partitions.values():
            partition.close()
        return tuple(self._files.finished)

    def discard(self) -> None:
        """Delete every file of this attempt."""
        self._files.discard_all()

    def _split_waiting(self, splitter: PartitionSplitter) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._waiting_bytes = [], 0
        for portion in table.to_batches():
            for key, rows in splitter.split(portion):
                self._append(key, rows)

    def _append(self, key: PartitionKey, rows: pa.RecordBatch) -> None:
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = RollingWriter(key, self._files)
        before = partition.buffered_bytes
        partition.append(rows)
        self._buffered_bytes += partition.buffered_bytes - before
        if self._buffered_bytes > BUFFER_BYTES:
            self._shrink_buffers()

    def _shrink_buffers(self) -> None:
        """Write the largest buffers until half of the allowance is free, so that this is seldom needed."""
        for partition in sorted(self._partitions.values(), key=lambda other: other.buffered_bytes, reverse=True):
            if self._buffered_bytes <= BUFFER_BYTES // 2:
                break
            self._buffered_bytes -= partition.buffered_bytes
            partition.flush()


class RollingWriter:
    """Writes the rows of one table partition into files of about the target size, one after the other.

    The compression ratio of the file so far tells how many Arrow bytes the rest of it needs, so the last
    row group of a file is as large as what is missing.
    """

    def __init__(self, key: PartitionKey, files: TaskFiles) -> None:
        self.buffered_bytes = 0
        self._key = key
        self._files = files
        self._buffer: list[pa.RecordBatch] = []
        self._file: ParquetFile | None = None

    def append(self, rows: pa.RecordBatch) -> None:
        """Take rows that have the file's schema and belong to this partition."""
        while rows.num_rows:
            size = rows.nbytes
            room = max(self._flush_at() - self.buffered_bytes, 1)
            if size > room:
                fitting = min(rows.num_rows, max(1, rows.num_rows * room // size))
                portion, rows = rows.slice(0, fitting), rows.slice(fitting)
            else:
                portion, rows = rows, rows.slice(rows.num_rows)
            self._buffer.append(portion)
            self.buffered_bytes += portion.nbytes
            if self.buffered_bytes >= self._flush_at():
                self.flush()

    def flush(self) -> None:
        """Write the buffer as a row group, and finish the file if it is full."""
        if not self._buffer:
            return
        if self._file is None or self._file.is_closed:
            self._file = self._files.open(self._key)
        self._file.write_row_group(self._buffer)
        self._buffer, self.buffered_bytes = [], 0
        if self._file.written_bytes >= FULL_AT * self._files.target_file_size_bytes:
            self._files.finish(self._file)
        self._files.bound_footers()

    def close(self) -> None:
        """Write the buffer and finish the file."""
        self.flush()
        if self._file is not None and not self._file.is_closed:
            self._files.finish(self._file)

    def _flush_at(self) -> int:
        """Return how many Arrow bytes the next row group should have."""
        target = self._files.target_file_size_bytes
        if self._file is None or self._file.is_closed:
            return min(ROW_GROUP_BYTES, target)
        missing = target - self._file.written_bytes
        return max(1, min(ROW_GROUP_BYTES, missing * self._file.arrow_bytes // self._file.written_bytes))


class TaskFiles:
    """All files of one task attempt: their names, which are open, which are finished."""

    def __init__(self, plan: WritePlan, attempt: TaskAttempt, schema: pa.Schema) -> None:
        self.finished: list[DataFile] = []
        self.target_file_size_bytes = plan.files.target_file_size_bytes
        self._plan = plan
        self._attempt = attempt
        self._schema = schema
        self._io = file_io(plan.io_properties, plan.location)
        self._location = load_location_provider(plan.location, dict(plan.properties))
        self._leaves = leaf_columns(plan.schema, plan.files.metrics_properties)
        self._counter = itertools.count()
        # Insertion order is the order of use: the first is the least recently used.
        self._open: dict[ParquetFile, PartitionKey] = {}

    def open(self, key: PartitionKey) -> ParquetFile:
        """Begin a file of partition `key`; the least recently begun one is finished if too many are open."""
        while len(self._open) >= MAX_OPEN_FILES:
            self.finish(next(iter(self._open)))
        file = ParquetFile(self._io, self._new_path(key), self._schema, self._leaves, self._plan.files)
        self._open[file] = key
        return file

    def finish(self, file: ParquetFile) -> None:
        """Close an open file and keep its manifest entry."""
        key = self._open[file]
        data_file = file.close(key.record(), self._plan.spec.spec_id)
        del self._open[file]
        self.finished.append(data_file)

    def bound_footers(self) -> None:
        """Finish the open files with the largest footers while all of them together are too large."""
        chunks = sum(file.column_chunks for file in self._open)
        while chunks > MAX_OPEN_COLUMN_CHUNKS:
            largest = max(self._open, key=lambda file: file.column_chunks)
            chunks -= largest.column_chunks
            self.finish(largest)

    def discard_all(self) -> None:
        """Delete all files, open or finished."""
        for file in self._open:
            file.discard()
        delete_files(self._io, [data_file.file_path for data_file in self.finished], Proof.TASK_FAILED)
        self._open, self.finished = {}, []

    def _new_path(self, key: PartitionKey) -> str:
        # partition, attempt, write and a counter: one search finds everything that a dead attempt left.
        name = (
            f"{self._attempt.partition_id:05d}-{self._attempt.task_attempt_id}"
            f"-{self._plan.operation_id}-{next(self._counter):05d}.parquet"
        )
        if self._plan.spec.is_unpartitioned():
            return self._location.new_data_location(name)
        path = PartitionPath(key, self._plan.spec, self._plan.schema)
        # Location providers only ever ask a partition key for its path.
        return self._location.new_data_location(name, path)  # type: ignore[arg-type]
