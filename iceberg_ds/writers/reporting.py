"""How a task reports its rows: as files, as a manifest if the files are many, or inline if the rows are few.

With manifests the commit reads a line for each task, and not one for each file. A few rows are handed over inline in
the task's message, and the committer writes one file for all such tasks (`commit.write_files`). The checks of the
task writer are made here too, so that a row that may not be written is refused by the same error. The bytes that a
task may hand over shrink with its number, because a task does not know how many tasks there are, and the driver has
all messages in memory at once. Knows neither Spark nor the catalog.
"""

from __future__ import annotations

import itertools
import logging
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.io.local_paths import is_local
from iceberg_ds.messages import CountedBatches, HandedOverRows, TaskCommit, TaskManifest, TimedBatches
from iceberg_ds.plan import ManifestLayout, WritePlan
from iceberg_ds.secrets import mask_text
from iceberg_ds.snapshots.manifest_file import ManifestDraft, added_entry, write_manifest
from iceberg_ds.snapshots.snapshot import totals_of
from iceberg_ds.table.arrow_schema import conform, file_shape, with_short_offsets
from iceberg_ds.table.locations import metadata_locations
from iceberg_ds.table.partitioning import PartitionSplitter
from iceberg_ds.writers.bad_rows import BadRowFilter, row_counts
from iceberg_ds.writers.row_predicates import RangeCheck, delete_test
from iceberg_ds.writers.spill import spilled_bytes
from iceberg_ds.writers.task_writer import TaskAttempt, naming_failure, write_task

logger = logging.getLogger(__name__)

# This many tasks may hand over as much as the plan says; the share of later tasks falls as 1/number, so that
# 10,000 tasks hand over at most 6 times as much as these, and 100,000 tasks 8 times.
FULL_SHARES = 64
# Most table partitions of rows that are handed over: the driver writes a file for each, while tasks write in parallel.
MOST_PARTITIONS = 8

_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")
# From this many files of a task on, a manifest pays: named one by one, files take the commit 0.15 ms each, which is by
# then more than a task needs for another small file.
MANY_FILES = 64


def report_task(plan: WritePlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt) -> TaskCommit:
    """Write the rows of one task, and return its message.

    Args:
        plan: What the driver decided, for this micro-batch or for a batch.
        batches: The rows as Spark sends them; may be empty.
        attempt: Becomes part of the files' names, so that no two attempts share a path.

    Raises:
        SchemaMismatchError, DataFileError, RowCountError: As `write_task`; no file of the attempt is left.
    """
    batches = with_short_offsets(batches)
    if plan.write.changes is not None:
        from iceberg_ds.writers.keyed import report_keyed_task  # noqa: PLC0415  # most writes have no keys

        return report_keyed_task(plan, batches, attempt)
    spilled_before = spilled_bytes()
    check, arriving = RangeCheck(plan), CountedBatches(batches)
    bad = BadRowFilter.of(plan)
    passing = TimedBatches(arriving if bad is None else bad.passing(arriving), plan.event_time)
    data_files, rows = write_or_hand_over(plan, passing, attempt, check)
    report = report_files(plan, attempt, data_files)
    fault_point(FaultPoint.TASK_WRITTEN)
    return TaskCommit(
        plan.write,
        attempt.partition_id,
        report.data_files,
        check.refused,
        manifests=report.manifests,
        rows=rows,
        counts=row_counts(arriving.rows, check.left_out, bad),
        metrics=arriving.metrics(spilled_bytes() - spilled_before, passing.newest_us),
        bad=None if bad is None else bad.report(),
    )


def write_or_hand_over(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], attempt: TaskAttempt, check: RangeCheck
) -> tuple[tuple[DataFile, ...], HandedOverRows | None]:
    """Write the rows of one task, or hand them over if they are few.

    Returns:
        The files of the task, and the rows that it hands over; at least one of the two is empty.

    Raises:
        SchemaMismatchError, DataFileError: As `write_task`, or a row of a change feed cannot be read.
    """
    arriving = _with_added_columns(plan, batches)
    first, is_small = _first_rows(arriving, share_of(plan, attempt.partition_id))
    if is_small:
        with naming_failure(plan):
            rows = _rows_of(plan, first, check)
            if rows is None:
                return (), None
            if _lies_in_few_partitions(plan, rows):
                handed_over = _hand_over(plan, rows)
                if len(handed_over.arrow_stream) <= share_of(plan, attempt.partition_id):
                    return (), handed_over
    return write_task(plan, itertools.chain(first, arriving), attempt, check), None


def _with_added_columns(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if plan.added is None:
        yield from batches
        return
    from iceberg_ds.cdc.reader import AppendedFeed  # noqa: PLC0415  # most tasks read no change feed

    is_delete = delete_test(plan.added.delete_when, plan)
    feed = AppendedFeed(plan.added, is_delete)
    for batch in batches:
        with naming_failure(plan):
            read = feed.read(batch)
        yield read


def share_of(plan: WritePlan, partition_id: int) -> int:
    """Return how many bytes of rows the task of that DataFrame partition may hand over."""
    # The commit hides a row by file and position if another task wins its key, so the row must be in a task's file.
    if plan.write.changes is not None:
        return 0
    # On a disk that the driver does not see, the task writes the files and the commit refuses them.
    if is_local(plan.location) and plan.driver_host not in (None, platform.node()):
        return 0
    share = min(plan.small_task_size_bytes, plan.write.files.target_file_size_bytes)
    return share * FULL_SHARES // max(FULL_SHARES, partition_id + 1)


def _first_rows(batches: Iterable[pa.RecordBatch], most_bytes: int) -> tuple[list[pa.RecordBatch], bool]:
    """Return the batches up to the one that exceeds `most_bytes`, and whether all batches stay within the limit."""
    taken: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        taken.append(batch)
        size += batch.nbytes
        if size > most_bytes:
            return taken, False
    return taken, True


def _rows_of(plan: WritePlan, batches: Sequence[pa.RecordBatch], check: RangeCheck) -> pa.RecordBatch | None:
    """Return all rows as one batch in the schema of the files, or None if no row is to be written."""
    shape = file_shape(plan.schema, case_sensitive=plan.case_sensitive)
    conformed = [check.passing(conform(batch, shape)) for batch in batches if batch.num_rows]
    if check.refused is not None:
        return None
    table = pa.Table.from_batches(conformed, schema=shape.schema).combine_chunks()
    return table.to_batches()[0] if table.num_rows else None


def _lies_in_few_partitions(plan: WritePlan, rows: pa.RecordBatch) -> bool:
    if plan.spec.is_unpartitioned():
        return True
    found = PartitionSplitter(plan.spec, plan.schema).split(rows)
    return sum(1 for _ in itertools.islice(found, MOST_PARTITIONS + 1)) <= MOST_PARTITIONS


def _hand_over(plan: WritePlan, rows: pa.RecordBatch) -> HandedOverRows:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as stream:
        stream.write_batch(rows)
    order = plan.sort_order
    return HandedOverRows(
        record_count=rows.num_rows,
        arrow_stream=sink.getvalue().to_pybytes(),
        spec_id=plan.spec.spec_id,
        sort_order_id=None if order is None or order.is_unsorted else order.order_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A task's report on its files.

    Attributes:
        data_files: Files that it names one by one.
        manifests: Manifests that name the other files.
    """

    data_files: tuple[DataFile, ...] = ()
    manifests: tuple[TaskManifest, ...] = ()


def report_files(plan: WritePlan, attempt: TaskAttempt, data_files: Sequence[DataFile]) -> Report:
    """Return a task's report on the files that it wrote, and write the manifest if the report needs one.

    If the manifest cannot be written, the task does not fail: the report names its files one by one. If the task is
    stopped meanwhile, all its files are deleted.

    Args:
        plan: What the driver decided.
        attempt: Becomes part of the manifest's name, so that no two attempts share a path.
        data_files: All files of the attempt.
    """
    singly = Report(data_files=tuple(data_files))
    # The commit of a keyed write must see each file, because it hides rows by file and position.
    if plan.manifests is None or plan.write.changes is not None or len(data_files) < MANY_FILES:
        return singly
    io = file_io(plan.io_properties, plan.location)
    name = f"{attempt.partition_id:05d}-{attempt.task_attempt_id}-{plan.write.operation_id}-m0.avro"
    path = metadata_locations(plan.location, plan.properties).new_metadata_location(name)
    try:
        return Report(manifests=(_write(io, plan, plan.manifests, path, data_files),))
    except Exception as problem:  # of any storage library
        reason = mask_text(f"{type(problem).__name__}: {problem}", plan.io_properties)
        logger.warning("Cannot write manifest %s, so the message names %d files: %s", path, len(data_files), reason)
        delete_files(io, [path], Proof.NEVER_SENT)
        return singly
    except BaseException:
        delete_files(io, [*(data_file.file_path for data_file in data_files), path], Proof.TASK_FAILED)
        raise


def _write(
    io: FileIO, plan: WritePlan, layout: ManifestLayout, path: str, data_files: Sequence[DataFile]
) -> TaskManifest:
    entries = tuple(added_entry(data_file, plan.write.snapshot_id) for data_file in data_files)
    draft = ManifestDraft(path=path, spec_id=plan.spec.spec_id, entries=entries)
    return TaskManifest(
        file=write_manifest(io, layout, draft, plan.write.snapshot_id),
        format_version=layout.format_version,
        totals=totals_of(data_files, {plan.spec.spec_id: plan.spec}, plan.schema),
        example=(data_files[0].file_path, data_files[0].file_size_in_bytes),
    )
