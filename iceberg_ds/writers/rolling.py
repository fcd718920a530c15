"""The files of one task: for each table partition one file after the other, each of about the target size.

Rows wait until they make a row group, in memory or in a temporary file. The compressed size of a row group is
estimated from the row groups before it, with care: a row group that is too large makes the file too large, one that is
too small only costs another row group. When memory is short, the table partition with the most waiting rows gives way
first. Knows neither Spark nor the catalog.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import pyarrow as pa
from pyiceberg.manifest import DataFile

from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.plan import FileSettings, WritePlan
from iceberg_ds.table.locations import FilePaths, data_locations
from iceberg_ds.table.metrics_config import leaf_columns
from iceberg_ds.table.partitioning import PartitionKey
from iceberg_ds.writers.encodings import ChosenEncodings
from iceberg_ds.writers.parquet import ParquetFile, layout_options
from iceberg_ds.writers.spill import Chunk, SpillFile

# Most Arrow bytes of one row group, unless the table sets its size; compressed it is a third of that or less.
ROW_GROUP_BYTES = 64 * 1024 * 1024
# Most Arrow bytes of one row group for each byte of the compressed size that the table sets.
MOST_EXPANSION = 4
# A file that is this close to its target size is full: the next row group would be tiny.
FULL_AT = 0.97

# The rest of a file up to its target size is filled at once if it is at most this share of the target.
_NEAR = 0.1
# Else a row group takes this share of the rest, as long as its compressed size is a guess,
_CAREFUL = 0.6
# and is at most this many times as large as any before it: later rows may compress less.
_GROWTH = 8
# The compressed size counts as known if the last row groups' compression ratios differ by at most this factor.
_STEADY = 1.25
# Row groups smaller than this share of the target size say little about how larger ones compress.
_TELLING = 0.2
# Most Arrow bytes that wait in all buffers of a task together; more if the table asks for larger row groups.
BUFFER_BYTES = 64 * 1024 * 1024
# Least Arrow bytes of a row group that is written early because memory is short: as good as a full one.
LEAST_ROW_GROUP_BYTES = 16 * 1024 * 1024
# Arrow bytes of other partitions after which a partition that got no row meanwhile counts as complete.
IDLE_BYTES = 128 * 1024 * 1024
# Most column chunks in the footers of all open files: a footer stays in memory until its file is finished,
# at about 2 kB a chunk.
MAX_OPEN_COLUMN_CHUNKS = 40_000


class GroupSizes:
    """Decides how many Arrow bytes the next row group of a partition has.

    Args:
        target: Compressed bytes of a file.
        group_size: Compressed bytes of a row group, None for the compressed size of `ROW_GROUP_BYTES`.
    """

    def __init__(self, target: int, group_size: int | None) -> None:
        self._target = target
        self._group_size = group_size
        self._ratios: deque[float] = deque(maxlen=3)
        self._overhead = 0
        self._largest = 0

    def is_full(self, written: int) -> bool:
        """Return whether a file of `written` bytes is near its target size."""
        has_no_room = written + self._overhead >= self._target and written >= (1 - _NEAR) * self._target
        return has_no_room or written >= FULL_AT * self._target

    def next_group(self, written: int) -> int:
        """Return the Arrow bytes of the next row group in a file of `written` bytes."""
        missing = self._target - written - self._overhead
        ratio = max(self._ratios, default=1.0)
        is_known = written > 0 and len(self._ratios) > 1 and ratio <= _STEADY * min(self._ratios)
        share = 1 if is_known or missing <= _NEAR * self._target else _CAREFUL
        most = self._limit() if is_known or not self._largest else min(_GROWTH * self._largest, self._limit())
        return max(1, min(int(missing * share / ratio), most))

    def note(self, arrow_bytes: int, written: int, overhead: int = 0) -> None:
        """Learn from a row group: the bytes `written` for its rows, and the `overhead` bytes of any row group."""
        self._overhead = overhead
        self._largest = max(self._largest, arrow_bytes)
        if not self._ratios or arrow_bytes >= self._limit() // 2 or written >= _TELLING * self._target:
            self._ratios.append(max(written, 1) / max(arrow_bytes, 1))

    def _limit(self) -> int:
        if self._group_size is None:
            return ROW_GROUP_BYTES
        return int(self._group_size * min(1 / max(self._ratios, default=1.0), MOST_EXPANSION))


class BufferingWriter(Protocol):
    """A writer that has rows of one table partition in memory."""

    buffered_bytes: int

    @property
    def has_open_file(self) -> bool:
        """Whether a file is begun and not finished."""

    def shrink(self) -> None:
        """Move the buffer out of memory, into the file or onto the disk."""

    def flush(self) -> None:
        """Write all waiting rows into the file."""


class Buffers:
    """The buffers of one task.

    Args:
        settings: How files are written.

    Attributes:
        buffered_bytes: Arrow bytes in all buffers together.
    """

    def __init__(self, settings: FileSettings) -> None:
        self.buffered_bytes = 0
        self._most_bytes = max(BUFFER_BYTES, MOST_EXPANSION * (settings.row_group_size_bytes or 0))
        self._has_one_file = settings.max_open_files == 1
        self._writers: dict[BufferingWriter, None] = {}  # those with rows in memory

    def count(self, writer: BufferingWriter, added: int) -> None:
        """Note that the buffer of `writer` has grown by `added` bytes."""
        writer.buffered_bytes += added
        self.buffered_bytes += added
        if writer.buffered_bytes:
            self._writers[writer] = None
        else:
            self._writers.pop(writer, None)

    def bound(self, latest: BufferingWriter) -> None:
        """Shrink the largest buffers, if all together are too large, until half is free, so that this is seldom needed.

        If rows are clustered by partition, all partitions but the latest are complete, so its buffer comes last.
        """
        if self.buffered_bytes <= self._most_bytes:
            return
        enough = self._most_bytes // 2
        if self._has_one_file and latest.has_open_file:  # which shrinking other buffers would finish
            latest.flush()
            enough = self._most_bytes
        others = [writer for writer in self._writers if writer is not latest]
        for writer in (*sorted(others, key=lambda other: other.buffered_bytes, reverse=True), latest):
            if self.buffered_bytes <= enough:
                break
            writer.shrink()


class RollingWriter:
    """Writes the rows of one table partition into files of about the target size, one after the other.

    Rows wait in memory, or in the task's temporary file, until they make a row group. A complete row group waits
    there as long as no file may be opened for it.
    """

    def __init__(self, key: PartitionKey, files: TaskFiles) -> None:
        self.key = key
        self.buffered_bytes = 0
        self._files = files
        self._sizes = GroupSizes(files.target_file_size_bytes, files.row_group_size_bytes)
        self._buffer: list[pa.RecordBatch] = []
        self._spilled: list[Chunk] = []
        self._spilled_bytes = 0
        self._held: list[list[Chunk]] = []  # row groups
        self._flush_at = 0
        self._file: ParquetFile | None = None

    @property
    def has_open_file(self) -> bool:
        """Whether a file is begun and not finished."""
        return self._file is not None

    @property
    def _has_waiting_rows(self) -> bool:
        """Whether rows wait for their row group; bytes do not tell that, because rows may take no bytes."""
        return bool(self._buffer or self._spilled)

    @property
    def _waiting_bytes(self) -> int:
        """Arrow bytes of the rows that wait for their row group."""
        return self.buffered_bytes + self._spilled_bytes

    def append(self, rows: pa.RecordBatch) -> None:
        """Take rows that have the file's schema and belong to this partition."""
        self._files.use(self, rows.nbytes)
        while rows.num_rows:
            if not self._has_waiting_rows:
                self._flush_at = self._sizes.next_group(0 if self._file is None else self._file.written_bytes)
            portion, rows = _cut(rows, max(self._flush_at - self._waiting_bytes, 1))
            self._buffer.append(portion)
            self._count(portion.nbytes)
            if self._waiting_bytes >= self._flush_at:
                self._write_or_hold()

    def shrink(self) -> None:
        """Move the buffer out of memory: into the file if it makes a fair row group, else into the temporary file."""
        size = self._waiting_bytes if self.has_open_file else self.buffered_bytes
        if self._files.may_open(self) and (self._files.has_one_file or size >= LEAST_ROW_GROUP_BYTES):
            self.flush()
        else:
            self._spill()

    def flush(self) -> None:
        """Write all waiting rows, and finish the file when it is full."""
        held, self._held = self._held, []
        for chunks in held:
            self._write_group(self._files.spilled_rows(chunks), is_last=False)
        if not self._has_waiting_rows:
            return
        waiting = [*self._files.spilled_rows(self._spilled), *self._buffer]
        is_last = self._waiting_bytes < self._flush_at and not held
        self._count(-self.buffered_bytes)
        self._buffer, self._spilled, self._spilled_bytes = [], [], 0
        self._write_group(waiting, is_last=is_last)

    def finish(self) -> None:
        """Finish the file if one is open; waiting rows go into the next file."""
        if self._file is not None:
            self._file = None
            self._files.finish(self)

    def close(self) -> None:
        """Write all waiting rows and finish the file."""
        self.flush()
        self.finish()

    def _write_or_hold(self) -> None:
        """Write the complete row group, or keep it for later if too many files are open."""
        if self._files.may_open(self):
            self.flush()
            return
        self._spill()
        self._held.append(self._spilled)
        self._spilled, self._spilled_bytes = [], 0

    def _spill(self) -> None:
        if not self._buffer:
            return
        self._spilled += self._files.spill(self._buffer)
        self._spilled_bytes += self.buffered_bytes
        self._count(-self.buffered_bytes)
        self._buffer = []

    def _write_group(self, rows: list[pa.RecordBatch], *, is_last: bool) -> None:
        if self._file is None:
            self._file = self._files.open(self, rows, is_last=is_last)
        rows_before, end_before = self._file.row_bytes, self._file.end_bytes
        self._file.write_row_group(rows)
        written = self._file.row_bytes - rows_before
        self._sizes.note(sum(batch.nbytes for batch in rows), written, self._file.end_bytes - end_before)
        if self._sizes.is_full(self._file.written_bytes):
            self.finish()
        self._files.bound_footers()

    def _count(self, added: int) -> None:
        self._files.buffers.count(self, added)


class TaskFiles:
    """All files of one task attempt: their names, which are open, which are finished.

    Args:
        plan: What the driver decided.
        name_prefix: Begins the name of every file, so that no two attempts share a path.
        schema: Arrow schema of the files.
        encodings: Chooses how the columns are encoded, for all files of the attempt.
        equality_ids: Field ids of the columns by which the files delete rows, None for data files.
    """

    def __init__(
        self,
        plan: WritePlan,
        name_prefix: str,
        schema: pa.Schema,
        encodings: ChosenEncodings,
        equality_ids: tuple[int, ...] | None = None,
    ) -> None:
        self.finished: list[DataFile] = []
        self.hidden: list[pa.RecordBatch] = []  # columns after those of the files, row by row of `finished`
        self.buffers = Buffers(plan.write.files)
        self.target_file_size_bytes = plan.write.files.target_file_size_bytes
        self.row_group_size_bytes = plan.write.files.row_group_size_bytes
        self.has_one_file = plan.write.files.max_open_files == 1
        self._plan = plan
        self._schema = schema
        self._equality_ids = equality_ids
        self._io = file_io(plan.io_properties, plan.location)
        places = data_locations(plan.location, plan.properties, plan.write.location_provider)
        self._paths = FilePaths(places, plan.schema, name_prefix, are_deletes=equality_ids is not None)
        self._leaves = leaf_columns(plan.schema, plan.write.files.metrics_properties, plan.sort_order)
        self._encodings = encodings
        self._layout = layout_options(plan.write.files)
        # In the order of use: the first is the least recently used.
        self._open: dict[RollingWriter, ParquetFile] = {}
        self._last_used: dict[RollingWriter, int] = {}
        self._received_bytes = 0
        self._spill: SpillFile | None = None

    def open(self, writer: RollingWriter, rows: list[pa.RecordBatch], *, is_last: bool) -> ParquetFile:
        """Begin a file for `writer`; if too many files are open, complete the least recently used ones.

        Args:
            writer: A writer without an open file.
            rows: The file's first row group, which the caller writes next.
            is_last: Whether no other row group follows in this file.
        """
        while len(self._open) >= self._plan.write.files.max_open_files:
            next(iter(self._open)).close()
        path, settings = self._paths.next(self._plan.spec, writer.key.record()), self._plan.write.files
        group = pa.Table.from_batches(rows).select(range(len(self._schema)))
        file = ParquetFile(
            self._io,
            path,
            self._schema,
            self._leaves,
            settings,
            group_rows=group.num_rows if is_last else None,
            encodings=self._encodings.of(group, self._leaves, settings, self._layout),
        )
        self._open[writer] = file
        self._last_used[writer] = self._received_bytes
        fault_point(FaultPoint.FILE_OPENED)
        return file

    def may_open(self, writer: RollingWriter) -> bool:
        """Return whether `writer` has a file, or may open one without finishing another file before it is full.

        With a limit of one open file, that file may be finished: the limit says that partitions come one by one.
        So may a file whose partition got no row for long.
        """
        if writer.has_open_file or self.has_one_file or len(self._open) < self._plan.write.files.max_open_files:
            return True
        return self._received_bytes - self._last_used[next(iter(self._open))] > IDLE_BYTES

    def use(self, writer: RollingWriter, size: int) -> None:
        """Note that `writer` got `size` bytes of rows."""
        self._received_bytes += size
        if writer in self._open:
            self._open[writer] = self._open.pop(writer)
            self._last_used[writer] = self._received_bytes

    def spill(self, rows: list[pa.RecordBatch]) -> list[Chunk]:
        """Keep rows in the task's temporary file.

        Raises:
            OSError: The rows could not be kept on disk.
        """
        self._spill = self._spill or SpillFile("waiting for their row group")
        return [self._spill.write(batch) for batch in pa.Table.from_batches(rows).combine_chunks().to_batches()]

    def spilled_rows(self, chunks: list[Chunk]) -> list[pa.RecordBatch]:
        """Return rows from the task's temporary file.

        Raises:
            OSError: The rows could not be read again.
        """
        if self._spill is None and chunks:
            raise OSError(f"the temporary file with {len(chunks)} portions of rows is gone")
        return [] if self._spill is None else [self._spill.read(chunk) for chunk in chunks]

    def finish(self, writer: RollingWriter) -> None:
        """Close the open file of `writer` and keep its manifest entry."""
        file, order, spec_id = self._open[writer], self._plan.sort_order, self._plan.spec.spec_id
        order_id = None if order is None or order.is_unsorted else order.order_id
        data_file = file.close(writer.key.record(), spec_id, order_id, self._equality_ids)
        del self._open[writer], self._last_used[writer]
        self.finished.append(data_file)
        self.hidden += file.hidden
        fault_point(FaultPoint.FILE_CLOSED)

    def bound_footers(self) -> None:
        """Finish the open files with the largest footers while all footers together are too large."""
        chunks = sum(file.column_chunks for file in self._open.values())
        while chunks > MAX_OPEN_COLUMN_CHUNKS:
            largest = max(self._open, key=lambda writer: self._open[writer].column_chunks)
            chunks -= self._open[largest].column_chunks
            largest.finish()

    def close(self) -> tuple[DataFile, ...]:
        """Return all files, which are finished, and delete the temporary file."""
        if self._spill is not None:
            self._spill.close()
        return tuple(self.finished)

    def discard_all(self) -> None:
        """Delete all files, open, finished or temporary."""
        if self._spill is not None:
            self._spill.close()
        for file in self._open.values():
            file.discard()
        delete_files(self._io, [data_file.file_path for data_file in self.finished], Proof.TASK_FAILED)
        self._open, self.finished, self.hidden = {}, [], []


def _cut(rows: pa.RecordBatch, room: int) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the first rows, at least one, that fit into `room` Arrow bytes, and the remaining rows."""
    # The size of exactly these rows: sizes of slices do not add up to the whole, because bitmaps are rounded up.
    size = rows.nbytes
    if size <= room:
        return rows, rows.slice(rows.num_rows)
    fitting = min(rows.num_rows, max(1, rows.num_rows * room // size))
    return rows.slice(0, fitting), rows.slice(fitting)
