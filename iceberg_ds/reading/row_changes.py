"""What a snapshot changed row by row, found by one Python task: without rows that it wrote again, updates told apart.

The files are read twice: for two digests of 64 bits of each row, by seeds of this task alone, and then for the rows
that are left. So memory holds digests, and no rows. Two different rows count as the same if they have equal digests by
both seeds: one chance in 2^128, for which no rows can be prepared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.cdc.keys import numbered, numbers_from
from iceberg_ds.cdc.row_digest import digest_rows, random_seeds
from iceberg_ds.errors import StreamHistoryError
from iceberg_ds.reading.extras import CHANGE_TYPE, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from iceberg_ds.reading.python_scan import PythonScan
from iceberg_ds.reading.scan_task import ScanTask, TaskFiles

# Columns of the digests of rows and keys, and whether a row was inserted.
_OF_ROWS, _OF_KEYS, _INSERTED = ("row_1", "row_2"), ("key_1", "key_2"), "inserted"


def changed_rows(scan: PythonScan, files: TaskFiles) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task; of files that are compared the deleted ones come first.

    Args:
        scan: How they are read.
        files: The files; those of one partition follow each other.

    Raises:
        StreamHistoryError: The snapshot changed several rows of one key.
        UnsupportedTableError: A file has no field ids, or values of other types than the table.
        DataFileError: A delete file is missing or damaged.
    """
    if not files.compared:
        yield from scan.rows(files.tasks)
        return
    keys, in_order = files.keys, sorted(files.tasks, key=lambda task: task.state)
    rows = _digests(scan, in_order, files)
    is_left = pc.invert(carried_over(rows))
    kinds = pc.if_else(rows.column(_INSERTED), INSERT, DELETE)
    if keys:
        is_update = _updated(scan, in_order, keys, rows, is_left)
        kinds = pc.if_else(is_update, pc.if_else(rows.column(_INSERTED), UPDATE_AFTER, UPDATE_BEFORE), kinds)
    kinds = kinds.combine_chunks()
    for first, batch in _with_places(scan.rows(in_order)):
        kept = is_left.slice(first, batch.num_rows)
        if kept.true_count:
            yield _named(batch.filter(kept), kinds.slice(first, batch.num_rows).filter(kept))


def has_both_sides(tasks: Sequence[ScanTask]) -> bool:
    """Return whether rows of the files were deleted, and rows inserted."""
    return len({task.change.kind for task in tasks if task.change is not None}) > 1


def _digests(scan: PythonScan, tasks: Sequence[ScanTask], files: TaskFiles) -> pa.Table:
    """Return the digests of each row, in the order in which the tasks' rows are read."""
    seeds = random_seeds()
    keys, names = list(files.keys), list(files.compared)
    whole = replace(scan, columns=tuple(dict.fromkeys((*names, *keys, CHANGE_TYPE))))
    found = []
    for batch in whole.rows(tasks):
        digests = [digest_rows(batch.select(names), seed) for seed in seeds]
        if keys:
            digests += [digest_rows(_key_values(batch.select(keys)), seed) for seed in seeds]
        is_inserted = pc.equal(batch.column(CHANGE_TYPE), INSERT)
        columns = (*_OF_ROWS, *(_OF_KEYS if keys else ()), _INSERTED)
        found.append(pa.RecordBatch.from_arrays([*digests, is_inserted], names=columns))
    return pa.Table.from_batches(found) if found else _NOTHING


def _key_values(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return key columns in which equal numbers have equal bits, as of zeros and of NaN."""
    columns = [
        pc.if_else(pc.is_nan(column), pa.scalar(math.nan, column.type), pc.add(column, pa.scalar(0.0, column.type)))
        if pa.types.is_floating(column.type)
        else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


_NOTHING = pa.table(
    {name: pa.array([], pa.uint64()) for name in (*_OF_ROWS, *_OF_KEYS)} | {_INSERTED: pa.array([], pa.bool_())}
)


def carried_over(rows: pa.Table) -> pa.BooleanArray:
    """Return which rows were deleted and inserted again, copy by copy.

    Args:
        rows: Two digests of each row, and whether it was inserted.
    """
    groups, deleted, inserted = _sides(rows, _OF_ROWS)
    copies = pc.min_element_wise(deleted, inserted)
    is_inserted = rows.column(_INSERTED).combine_chunks()
    of_kind = pc.if_else(is_inserted, inserted, deleted)
    is_carried = pc.equal(copies, of_kind)
    # Of rows with other numbers of copies on both sides the first ones are carried over.
    uneven = pc.indices_nonzero(pc.and_(pc.greater(copies, 0), pc.less(copies, of_kind)))
    if not len(uneven):
        return is_carried
    kinds = pa.table({"group": groups.take(uneven), "inserted": is_inserted.take(uneven), "place": uneven})
    kinds = kinds.append_column("copies", copies.take(uneven)).sort_by(
        [("group", "ascending"), ("inserted", "ascending"), ("place", "ascending")]
    )
    side = pc.add(pc.multiply(kinds.column("group"), 2), kinds.column("inserted").cast(pa.uint64()))
    first = kinds.filter(pc.less(_ranks(side.combine_chunks()), kinds.column("copies"))).column("place")
    return pc.or_(is_carried, pc.is_in(numbers_from(0, rows.num_rows).cast(pa.uint64()), first.combine_chunks()))


def _ranks(values: pa.Array) -> pa.Array:
    """Return for each of some values in order how many equal ones come before it."""
    ends = pc.run_end_encode(values, run_end_type=pa.int64()).run_ends
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends[:-1]])
    of_each = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, starts))
    return pc.subtract(numbers_from(0, len(values)), of_each)


def _sides(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return for each row the number of its group, and how many rows of the group were deleted, and inserted."""
    groups = numbered([rows.column(name).combine_chunks() for name in names])
    counted = pa.table({"group": groups, "inserted": rows.column(_INSERTED)})
    counted = counted.group_by("group", use_threads=False).aggregate([("inserted", "sum"), ("inserted", "count")])
    counted = counted.sort_by("group")
    inserted = counted.column("inserted_sum").combine_chunks().cast(pa.int64())
    deleted = pc.subtract(counted.column("inserted_count").combine_chunks(), inserted)
    return groups, deleted.take(groups), inserted.take(groups)


def _updated(
    scan: PythonScan, tasks: Sequence[ScanTask], keys: Sequence[str], rows: pa.Table, is_left: pa.BooleanArray
) -> pa.BooleanArray:
    """Return which rows are the row before or after an update.

    Raises:
        StreamHistoryError: Several rows of one key were changed.
    """
    left = rows.filter(is_left)
    _, deleted, inserted = _sides(left, _OF_KEYS)
    is_update = pc.and_(pc.greater(deleted, 0), pc.greater(inserted, 0))
    is_several = pc.or_(pc.greater(deleted, 1), pc.and_(is_update, pc.greater(inserted, 1)))
    if is_several.true_count:
        place = pc.indices_nonzero(is_left)[pc.index(is_several, True).as_py()].as_py()
        raise StreamHistoryError(
            f"Cannot read changes of {scan.name} with keys {', '.join(keys)}: snapshot {_snapshot_id(tasks)} changed "
            f"several rows of one key: {_row_at(replace(scan, columns=tuple(keys)), tasks, place)}. Give columns that "
            "no two rows have in common, or leave keys out."
        )
    return pc.replace_with_mask(pa.repeat(pa.scalar(value=False), rows.num_rows), is_left, is_update)


def _snapshot_id(tasks: Sequence[ScanTask]) -> int | None:
    return next((task.change.snapshot_id for task in tasks if task.change is not None), None)


def _row_at(scan: PythonScan, tasks: Sequence[ScanTask], place: int) -> dict[str, object]:
    for first, batch in _with_places(scan.rows(tasks)):
        if place < first + batch.num_rows:
            row: dict[str, object] = batch.slice(place - first, 1).to_pylist()[0]
            return row
    return {}


def _with_places(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches, each with the number of its first row."""
    first = 0
    for batch in batches:
        yield first, batch
        first += batch.num_rows


def _named(rows: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
    """Return rows with what became of each, if that is shown."""
    names = rows.schema.names
    columns = [kinds if name == CHANGE_TYPE else rows.column(name) for name in names]
    return pa.RecordBatch.from_arrays(columns, names=names)
