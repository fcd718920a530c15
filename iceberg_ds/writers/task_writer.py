"""From the Arrow batches of one task to its data files, in the order of arrival or sorted.

Unsorted rows fan out to one writer for each table partition; memory is bounded over all writers (`rolling`),
for a DataFrame partition of any size. Sorted rows come partition by partition, so
that one writer is enough. Knows neither Spark nor the catalog, and commits nothing: a file counts only if
the task's message reaches the commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyiceberg.manifest import DataFile

from iceberg_ds.error_hints import advice
from iceberg_ds.errors import DataFileError, IcebergSinkError
from iceberg_ds.io.vended_credentials import why_ended
from iceberg_ds.messages import check_rows, rows_in
from iceberg_ds.plan import WritePlan
from iceberg_ds.secrets import mask_text, masked_cause
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.partitioning import PartitionKey, PartitionSplitter
from iceberg_ds.table.sort_order import RowOrder
from iceberg_ds.writers.encodings import ChosenEncodings
from iceberg_ds.writers.rolling import RollingWriter, TaskFiles
from iceberg_ds.writers.row_predicates import RangeCheck
from iceberg_ds.writers.spill import ExternalSort

# Rows are split by partition in portions of this many Arrow bytes, not batch by batch,
SPLIT_BYTES = 16 * 1024 * 1024
# and in portions this many times as large where a partition gets few rows: fewer rows cost as much as `_FEW_ROWS`.
MOST_PORTIONS = 3
_FEW_ROWS = 256

UNPARTITIONED = PartitionKey(())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """The attempt of a task that writes.

    Attributes:
        partition_id: Number of the DataFrame's partition, from 0.
        task_attempt_id: Unique among all attempts of all tasks of the Spark application.
        encodings: How the attempt's files are encoded, as far as that has been chosen.
    """

    partition_id: int
    task_attempt_id: int
    encodings: ChosenEncodings = field(default_factory=ChosenEncodings, compare=False, repr=False)


def write_task(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt, check: RangeCheck | None = None
) -> tuple[DataFile, ...]:
    """Write the rows of one task and return its files.

    Args:
        plan: What the driver decided.
        batches: The task's rows as Spark sends them; may be empty.
        attempt: Becomes part of the files' names, so that no two attempts share a path.
        check: Checks the rows against the range that the write replaces; None for rows that need no check.

    Raises:
        SchemaMismatchError: A required column holds a null.
        DataFileError: The rows could not be written. Every file of this attempt was deleted, or its
            path was logged.
        RowCountError: The files do not have the rows that came. The files are treated as above.
    """
    writer = TaskWriter(plan, attempt, check)
    with discarding(writer, plan):
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        return writer.close()


class Discardable(Protocol):
    """A writer of files of a task attempt."""

    def discard(self) -> None:
        """Delete every file of this attempt."""


@contextmanager
def discarding(writer: Discardable, plan: WritePlan) -> Iterator[None]:
    """Delete the writer's files if it fails, and raise as `naming_failure` does."""
    with naming_failure(plan):
        try:
            yield
        except BaseException:
            writer.discard()
            raise


@contextmanager
def naming_failure(plan: WritePlan) -> Iterator[None]:
    """Turn an error of another library into a DataFileError that names the table and shows no secret."""
    try:
        yield
    except Exception as error:
        if isinstance(error, IcebergSinkError):
            raise
        reason = mask_text(f"{type(error).__name__}: {error}", plan.io_properties)
        ended = why_ended(plan.io_properties, int(time.time() * 1000))
        raise DataFileError(
            f"Cannot write a data file of {plan.write.table} below {plan.location}: {reason}. "
            "Nothing was committed; files of this attempt were deleted. "
            f"{f'{ended}.' if ended else advice(error)}".rstrip()
        ) from masked_cause(error, plan.io_properties)


class TaskWriter:
    """The rows and files of one task attempt."""

    def __init__(self, plan: WritePlan, attempt: TaskAttempt, check: RangeCheck | None = None) -> None:
        self._shape = file_shape(plan.schema, case_sensitive=plan.case_sensitive)
        self._check = check
        self._files = TaskFiles(plan, name_prefix(plan, attempt), self._shape.schema, attempt.encodings)
        self._rows = task_rows(plan, self._files)
        self._action = f"write to {plan.write.table}"
        self._task = attempt.partition_id
        self._received = 0

    @property
    def file_schema(self) -> pa.Schema:
        """The schema of the files."""
        return self._shape.schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch as Spark sent it."""
        self._received += batch.num_rows
        rows = conform(batch, self._shape)
        self._rows.add(rows if self._check is None else self._check.passing(rows))

    def write_conformed(self, rows: pa.RecordBatch) -> None:
        """Take rows that are checked and have the files' schema."""
        self._received += rows.num_rows
        self._rows.add(rows)

    def close(self) -> tuple[DataFile, ...]:
        """Write all waiting rows, finish all files and return them.

        Raises:
            RowCountError: The files do not have the rows that were taken.
        """
        self._rows.close()
        data_files = self._files.close()
        found = {f"in {len(data_files)} files": rows_in(data_files)}
        if self._check is not None:
            found["left out because of the range to replace"] = self._check.left_out
        check_rows(self._action, f"task {self._task} got", self._received, found)
        return data_files

    def discard(self) -> None:
        """Delete every file of this attempt."""
        self._rows.discard()
        self._files.discard_all()


def name_prefix(plan: WritePlan, attempt: TaskAttempt) -> str:
    """Return the prefix of the names of all files of an attempt."""
    # partition, attempt, write and a counter: one search finds everything that a dead attempt left.
    return f"{attempt.partition_id:05d}-{attempt.task_attempt_id}-{plan.write.operation_id}"


def task_rows(plan: WritePlan, files: TaskFiles) -> PartitioningWriter:
    """Return the clustered writer into the files if the plan has a sort order, else the fan-out writer."""
    if plan.sort_order is None or plan.sort_order.is_unsorted:
        return FanoutWriter(plan, files)
    return ClusteredWriter(plan, RowOrder(plan.sort_order, plan.schema, plan.spec), files)


class PartitioningWriter(Protocol):
    """Brings a task's rows into files; columns after those of the files go with the rows, and are not written."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows that have the files' schema."""

    def close(self) -> None:
        """Write all waiting rows and finish all files."""

    def discard(self) -> None:
        """Forget all waiting rows."""


class FanoutWriter:
    """Brings rows to the writers of their table partitions, in the order in which the rows come."""

    def __init__(self, plan: WritePlan, files: TaskFiles) -> None:
        self._files = files
        self._splitter = _splitter(plan)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._portions = 1
        self._writers: dict[PartitionKey, RollingWriter] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows that have the files' schema."""
        if self._splitter is None:
            self._append(UNPARTITIONED, rows)
            return
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= self._portions * SPLIT_BYTES:
            self._split_waiting(self._splitter)

    def close(self) -> None:
        """Write all waiting rows and finish all files."""
        if self._splitter is not None:
            self._split_waiting(self._splitter)
        for writer in self._writers.values():
            writer.close()

    def discard(self) -> None:
        """Forget all waiting rows."""
        self._waiting, self._writers = [], {}

    def _split_waiting(self, splitter: PartitionSplitter) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._waiting_bytes = [], 0
        parts = 0
        for portion in table.to_batches():
            for key, rows in splitter.split(portion):
                self._append(key, rows)
                parts += 1
        if table.num_rows < parts * _FEW_ROWS:
            self._portions = MOST_PORTIONS

    def _append(self, key: PartitionKey, rows: pa.RecordBatch) -> None:
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = RollingWriter(key, self._files)
        writer.append(rows)
        self._files.buffers.bound(writer)


class ClusteredWriter:
    """Sorts rows by partition and by the plan's order, and then writes one partition after the other."""

    def __init__(self, plan: WritePlan, order: RowOrder, files: TaskFiles) -> None:
        self._files = files
        self._splitter = _splitter(plan)
        self._sort = ExternalSort(order)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows that have the files' schema."""
        self._sort.add(rows)

    def close(self) -> None:
        """Write all waiting rows and finish all files."""
        writer: RollingWriter | None = None
        for key, rows in self._sorted_rows():
            if writer is not None and writer.key != key:
                writer.close()
                writer = None
            writer = writer or RollingWriter(key, self._files)
            writer.append(rows)
        if writer is not None:
            writer.close()
        self._sort.close()

    def discard(self) -> None:
        """Forget all waiting rows, in memory and on disk."""
        self._sort.close()

    def _sorted_rows(self) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
        for rows in self._sort.sorted_batches():
            if self._splitter is None:
                yield UNPARTITIONED, rows
            else:
                yield from self._splitter.split(rows)


def _splitter(plan: WritePlan) -> PartitionSplitter | None:
    return None if plan.spec.is_unpartitioned() else PartitionSplitter(plan.spec, plan.schema)
