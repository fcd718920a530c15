"""From the change feed of one task to its data files, its equality delete files and its report on keys.

Nothing is written before the last row has come, because only then are the winning rows known (`cdc`). The keys to
delete come first, then the rows, so that the buffers of both are never in memory at once. A task that fails
leaves no file of either kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from iceberg_ds.cdc.keys import digest_seed
from iceberg_ds.cdc.task_changes import TaskChanges
from iceberg_ds.errors import CommitMessageError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.messages import CountedBatches, TaskCommit, TimedBatches, check_rows, rows_in
from iceberg_ds.plan import ChangeFeed, TaskKeys, WritePlan
from iceberg_ds.table.metrics_config import METRICS_PREFIX
from iceberg_ds.writers.bad_rows import BadRowFilter, row_counts
from iceberg_ds.writers.rolling import TaskFiles
from iceberg_ds.writers.row_predicates import delete_test
from iceberg_ds.writers.spill import ExternalSort, Spool, spilled_bytes
from iceberg_ds.writers.task_writer import FanoutWriter, TaskAttempt, discarding, name_prefix, task_rows

# Readers skip a delete file by the bounds of its keys, so it has bounds under any metrics mode of the table.
_METRICS = {f"{METRICS_PREFIX}default": "full"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFiles:
    """What one task of a keyed write wrote.

    Attributes:
        data_files: Files of the rows that win in the task, in the order in which `keys` reports the rows.
        delete_files: Equality delete files for the keys that the table may have.
        keys: The report on the task's keys, for the commit.
        left_out: How many of the received rows are in no data file.
    """

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DataFile, ...]
    keys: TaskKeys
    left_out: int


def write_keyed_task(plan: WritePlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt) -> KeyedFiles:
    """Write the changes of one task, and return its files and its report on keys.

    Args:
        plan: What the driver decided, with `changes` and `delete_spec`.
        batches: The task's rows as Spark sends them; may be empty.
        attempt: Becomes part of the files' names, so that no two attempts share a path.

    Raises:
        SchemaMismatchError: A required column holds a null in a row that is to be written.
        DataFileError: The rows could not be written. Every file of this attempt was deleted, or its
            path was logged.
        RowCountError: The files do not have the rows and keys that they should. The files are treated as above.
    """
    writer = KeyedTaskWriter(plan, attempt)
    with discarding(writer, plan):
        for batch in batches:
            if batch.num_rows:
                writer.write(batch)
        return writer.close()


def report_keyed_task(plan: WritePlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt) -> TaskCommit:
    """Write the changes of one task as `write_keyed_task` does, and return the task's message.

    Args:
        plan: What the driver decided for this micro-batch, or for a batch.
        batches: As for `write_keyed_task`.
        attempt: As for `write_keyed_task`.
    """
    arriving, spilled_before = CountedBatches(batches), spilled_bytes()
    bad = BadRowFilter.of(plan)
    passing = TimedBatches(arriving if bad is None else bad.passing(arriving), plan.event_time)
    written = write_keyed_task(plan, passing, attempt)
    fault_point(FaultPoint.TASK_WRITTEN)
    return TaskCommit(
        plan.write,
        attempt.partition_id,
        written.data_files,
        delete_files=written.delete_files,
        keys=written.keys,
        counts=row_counts(arriving.rows, written.left_out, bad),
        metrics=arriving.metrics(spilled_bytes() - spilled_before, passing.newest_us),
        bad=None if bad is None else bad.report(),
    )


class KeyedTaskWriter:
    """The changes and files of one task attempt."""

    def __init__(self, plan: WritePlan, attempt: TaskAttempt) -> None:
        feed, spec = _by_keys(plan)
        self._changes = TaskChanges(
            feed,
            plan.schema,
            case_sensitive=plan.case_sensitive,
            partition_id=attempt.partition_id,
            seed=digest_seed(plan.write.operation_id),
            sorter=ExternalSort,
            spool=Spool,
            is_delete=delete_test(feed.delete_when, plan),
            added=plan.added,
        )
        prefix, encodings = name_prefix(plan, attempt), attempt.encodings
        self._width = len(plan.schema.fields)
        self._files = TaskFiles(plan, prefix, pa.schema(list(self._changes.row_schema)[: self._width]), encodings)
        self._rows = task_rows(plan, self._files)
        deletes = _plan_of_deletes(plan, feed, spec)
        self._delete_files = TaskFiles(deletes, prefix, self._changes.delete_schema, encodings, feed.key_ids)
        self._deletes = FanoutWriter(deletes, self._delete_files)
        self._action = f"write to {plan.write.table}"
        self._task = f"task {attempt.partition_id}"
        self._received = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch as Spark sent it."""
        self._received += batch.num_rows
        self._changes.add(batch)

    def close(self) -> KeyedFiles:
        """Write all keys to delete and all rows that win, finish all files and return them.

        Raises:
            RowCountError: The files do not have the rows and keys that they should.
        """
        delete_files = self._write_deletes()
        is_reported = self._changes.is_reported
        for rows in self._changes.rows():
            self._rows.add(rows if is_reported else rows.select(range(self._width)))
        self._changes.close()
        self._rows.close()
        data_files, left_out = self._files.close(), self._changes.left_out
        found = {f"in {len(data_files)} files": rows_in(data_files), **left_out}
        check_rows(self._action, f"{self._task} got", self._received, found)
        keys = self._changes.report(self._files.hidden)
        return KeyedFiles(data_files=data_files, delete_files=delete_files, keys=keys, left_out=sum(left_out.values()))

    def discard(self) -> None:
        """Delete every file of this attempt, data files and delete files."""
        self._changes.close()
        for waiting in (self._deletes, self._rows):
            waiting.discard()
        for files in (self._delete_files, self._files):
            files.discard_all()

    def _write_deletes(self) -> tuple[DataFile, ...]:
        count = 0
        for keys in self._changes.keys_to_delete():
            count += keys.num_rows
            self._deletes.add(keys)
        self._deletes.close()
        delete_files = self._delete_files.close()
        found = {f"in {len(delete_files)} files of deletes": rows_in(delete_files)}
        check_rows(self._action, f"{self._task} has to delete the keys of", count, found)
        return delete_files


def _by_keys(plan: WritePlan) -> tuple[ChangeFeed, PartitionSpec]:
    if plan.write.changes is None or plan.delete_spec is None:
        raise CommitMessageError(
            f"Cannot write to {plan.write.table} by keys: the plan names none. Nothing was committed."
        )
    return plan.write.changes, plan.delete_spec


def _plan_of_deletes(plan: WritePlan, feed: ChangeFeed, spec: PartitionSpec) -> WritePlan:
    """Return the plan of delete files: the key columns, and the sequence if that of the table's rows counts."""
    files = replace(
        plan.write.files,
        target_file_size_bytes=plan.write.files.delete_file_size_bytes,
        metrics_properties=_METRICS,
        bloom_filter_fpp={},
    )
    sequence = [field.field_id for field in feed.sequence] if feed.counts_stored else []
    columns = Schema(*(plan.schema.find_field(field_id) for field_id in (*feed.key_ids, *sequence)))
    return replace(plan, write=replace(plan.write, files=files), schema=columns, spec=spec, sort_order=None)
