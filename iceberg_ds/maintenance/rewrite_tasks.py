"""One task of a rewrite: writes the visible rows of some data files into new files, and moves deletes that come late.

Rows that are deleted are left out; all others are counted, and digested before they are written and again as the new
files have them, in their order where the new files keep it. A position delete that lands meanwhile is moved: from a row
of an old file to the same row of a new one. Knows neither Spark nor the catalog, and publishes nothing. A task that
fails says so and leaves no file.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from iceberg_ds.cdc.keys import numbers_from
from iceberg_ds.cdc.row_digest import OrderedDigest, RowDigest
from iceberg_ds.deletes.hidden import hidden_by_position, hidden_rows
from iceberg_ds.deletes.work import FileWork
from iceberg_ds.errors import RowCountError
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.io.parallel import ahead
from iceberg_ds.maintenance.moved_places import MOST_BY_VALUE, LateRows, places_by_value, places_in_order
from iceberg_ds.maintenance.rewrite_work import DeletesMoved, DeletesToMove, FileGroup, GroupRewritten, RewritePlan
from iceberg_ds.messages import check_rows
from iceberg_ds.plan import WritePlan
from iceberg_ds.secrets import task_problem
from iceberg_ds.snapshots.version_3 import lineage_of
from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.lineage import FileLineage, has_lineage
from iceberg_ds.table.locations import FilePaths, data_locations
from iceberg_ds.table.name_mapping import parsed_mapping
from iceberg_ds.table.partitioning import PartitionKey
from iceberg_ds.table.zorder import ZRowOrder
from iceberg_ds.writers.deletion_vectors import write_deletion_vectors
from iceberg_ds.writers.position_deletes import HiddenRows, without, write_position_deletes
from iceberg_ds.writers.rewriting import rows_of_file
from iceberg_ds.writers.rolling import RollingWriter, TaskFiles
from iceberg_ds.writers.task_writer import (
    ClusteredWriter,
    PartitioningWriter,
    TaskAttempt,
    discarding,
    name_prefix,
    task_rows,
)

_Answer = TypeVar("_Answer")


def rewrite_group(plan: RewritePlan, number: int, group: FileGroup) -> GroupRewritten:
    """Write the visible rows of a group of data files into new files.

    Args:
        plan: The plan of the rewrite.
        number: Number of the group.
        group: The files.
    """
    task = _Task(plan, number)
    return task.answered(lambda: task.rewrite(group), lambda problem: GroupRewritten(problem=problem))


def move_deletes(plan: RewritePlan, number: int, work: DeletesToMove) -> DeletesMoved:
    """Write the position deletes that came late for a group that was rewritten, for the group's new files.

    Args:
        plan: The plan of the rewrite.
        number: Number of the group.
        work: The group.
    """
    task = _Task(plan, number)
    return task.answered(lambda: task.move(work), lambda problem: DeletesMoved(problem=problem))


@dataclass(slots=True)
class _Visible:
    """What the visible rows of a group are: their digest, how many each file has, and how many are left out."""

    digest: OrderedDigest | RowDigest
    kept: list[int] = field(default_factory=list)
    left_out: int = 0

    def digested(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows, which then count for the digest."""
        for batch in rows:
            self.digest = self.digest.with_rows(batch)
            yield batch


class _Task:
    def __init__(self, plan: RewritePlan, number: int) -> None:
        self._plan = plan
        # A random number, so that no two attempts share a path.
        self._attempt = TaskAttempt(partition_id=number, task_attempt_id=uuid.uuid4().int >> 96)
        self._io = file_io(plan.writing.io_properties, plan.writing.location)
        self._mapping = parsed_mapping(plan.writing.name_mapping)
        self._written: list[DataFile] = []

    def answered(self, work: Callable[[], _Answer], failed: Callable[[str], _Answer]) -> _Answer:
        """Return what the work returns; if it fails, delete its files and return what `failed` makes of the reason."""
        try:
            return work()
        except Exception as error:  # of any storage library
            self._discard()
            return failed(task_problem(error, self._plan.writing.io_properties))
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        delete_files(self._io, dict.fromkeys(file.file_path for file in self._written), Proof.TASK_FAILED)

    def rewrite(self, group: FileGroup) -> GroupRewritten:
        writing = _writing(self._plan, group)
        prefix, shape = name_prefix(writing, self._attempt), file_shape(writing.schema)
        files = TaskFiles(writing, prefix, shape.schema, self._attempt.encodings)
        rows, visible = _Rows(self._plan, group, writing, files), _Visible(self._of_no_rows(group))
        with discarding(rows, writing):
            for batch in ahead(visible.digested(ahead(self._visible_rows(group, visible)))):
                rows.add(batch)
            rows.close()
        self._written += files.close()
        fault_point(FaultPoint.TASK_WRITTEN)
        self._check(group, visible)
        read = sum(item.size_bytes for item in group.files)
        return GroupRewritten(files=tuple(self._written), kept=tuple(visible.kept), read_bytes=read)

    def _visible_rows(self, group: FileGroup, visible: _Visible) -> Iterator[pa.RecordBatch]:
        """Yield the visible rows of a group, and note how many they are."""
        for item, hidden in hidden_rows(self._io, self._plan.key_types, group.files, self._mapping):
            kept = 0
            for batch in self._rows_of(item.data_file, hidden, self._lineage(item)):
                kept += batch.num_rows
                yield batch
            visible.kept.append(kept)
            visible.left_out += len(hidden)

    def _of_no_rows(self, group: FileGroup) -> OrderedDigest | RowDigest:
        return OrderedDigest() if self._plan.keeps_order(group) else RowDigest()

    def _check(self, group: FileGroup, visible: _Visible) -> None:
        """Check that the new files have the visible rows of the group, by reading them again.

        Raises:
            RowCountError: They do not.
        """
        action = f"rewrite {len(group.files)} data files of {self._plan.writing.write.table}"
        there = sum(item.data_file.record_count for item in group.files)
        after = self._of_no_rows(group)
        for batch in ahead(batch for file in self._written for batch in self._rows_of(file, _NONE)):
            after = after.with_rows(batch)
        found = {"deleted": visible.left_out, f"in {len(self._written)} new files": after.count}
        check_rows(action, "the files have", there, found)
        if visible.digest != after:
            raise RowCountError(
                f"Cannot {action}, nothing was committed: the new files have {after.count} rows as they should, and "
                "not the same ones, or in another order. This is a defect of iceberg_ds or of a library below it: "
                f"please report it with the versions of both. The first of the files is {group.files[0].path}."
            )

    def _lineage(self, item: FileWork) -> FileLineage | None:
        """Return what the rows of an old file inherit; None if new files have no ids of rows."""
        return lineage_of(item.data_file, item.sequence_number) if has_lineage(self._plan.writing.schema) else None

    def _rows_of(
        self, file: DataFile, left_out: pa.Array, lineage: FileLineage | None = None
    ) -> Iterator[pa.RecordBatch]:
        spec = self._plan.specs[file.spec_id]
        rows = rows_of_file(self._io, file, spec, self._plan.writing.schema, left_out, lineage, self._mapping)
        return (batch for batch in rows if batch.num_rows)

    def move(self, work: DeletesToMove) -> DeletesMoved:
        late = []
        hidden = hidden_rows(self._io, self._plan.key_types, [item for item, _ in work.files()], self._mapping)
        for (item, left_out), (_, first) in zip(hidden, work.files(), strict=True):
            before = hidden_by_position(self._io, item)
            now = hidden_by_position(self._io, work.now[item.path])
            if len(without(before, now)):
                return DeletesMoved(is_undone=True)
            positions = pc.unique(without(now, left_out)).sort()
            positions = positions.filter(pc.less(positions, item.data_file.record_count))
            if len(positions):
                late.append(LateRows(item=item, first=first, left_out=left_out, positions=positions))
        if not late:
            return DeletesMoved()
        if not self._plan.keeps_order(work.group) and sum(len(rows.positions) for rows in late) > MOST_BY_VALUE:
            return DeletesMoved(is_undone=True)
        files = work.rewritten.files
        if self._plan.keeps_order(work.group):
            found = places_in_order(files, late)
        else:
            found = places_by_value(self._deleted(late), (self._rows_of(file, _NONE) for file in files))
        with_vectors = any(item.hidden_by.vector is not None for item in work.now.values())
        moved = [HiddenRows(data_file=files[place], positions=sorted(rows)) for place, rows in found.items()]
        self._write_deletes(moved, with_vectors=with_vectors)
        fault_point(FaultPoint.TASK_WRITTEN)
        return DeletesMoved(files=tuple(self._written))

    def _deleted(self, late: Iterable[LateRows]) -> Iterator[pa.RecordBatch]:
        """Yield rows of old files as new files have them."""
        for rows in late:
            every = numbers_from(0, rows.item.data_file.record_count)
            yield from self._rows_of(rows.item.data_file, without(every, rows.positions), self._lineage(rows.item))

    def _write_deletes(self, hidden: Sequence[HiddenRows], *, with_vectors: bool) -> None:
        writing = self._plan.writing
        places = data_locations(writing.location, writing.properties, writing.write.location_provider)
        paths = FilePaths(places, writing.schema, name_prefix(writing, self._attempt), are_deletes=True)
        if with_vectors:
            self._written += write_deletion_vectors(self._io, paths.next_of_vectors(), hidden)
            return
        by_partition: dict[PartitionKey, list[HiddenRows]] = {}
        for rows in hidden:
            by_partition.setdefault(PartitionKey.of(rows.data_file.partition), []).append(rows)
        for some in by_partition.values():
            path = paths.next(writing.spec, some[0].data_file.partition)
            self._written.append(write_position_deletes(self._io, path, some, writing.write.files))


_NONE = pa.array([], pa.int64())


def _writing(plan: RewritePlan, group: FileGroup) -> WritePlan:
    """Return how the files of a group are written."""
    write = plan.writing.write
    settings = replace(write.files, target_file_size_bytes=group.file_size_bytes)
    order = plan.writing.sort_order if plan.is_sorted else None
    return replace(plan.writing, write=replace(write, files=settings), sort_order=order)


def _in_z_order(plan: RewritePlan, group: FileGroup, writing: WritePlan, files: TaskFiles) -> PartitioningWriter | None:
    """Return a writer of rows in the plan's Z-order; None if it has none."""
    if plan.z_order is None:
        return None
    return ClusteredWriter(writing, ZRowOrder(plan.z_order, writing.schema, writing.spec, group.ranges), files)


class _Rows:
    """Brings the rows of a group into new files: in their order, or sorted, or by the partitions of another spec."""

    def __init__(self, plan: RewritePlan, group: FileGroup, writing: WritePlan, files: TaskFiles) -> None:
        self._files = files
        self._writer: RollingWriter | None = None
        self._parted: PartitioningWriter | None = None
        if plan.keeps_order(group):
            self._writer = RollingWriter(PartitionKey.of(group.files[0].data_file.partition), files)
        else:
            self._parted = _in_z_order(plan, group, writing, files) or task_rows(writing, files)

    def add(self, rows: pa.RecordBatch) -> None:
        if self._writer is not None:
            self._writer.append(rows)
        elif self._parted is not None:
            self._parted.add(rows)

    def close(self) -> None:
        for writer in (self._writer, self._parted):
            if writer is not None:
                writer.close()

    def discard(self) -> None:
        if self._parted is not None:
            self._parted.discard()
        self._files.discard_all()
