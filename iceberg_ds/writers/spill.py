"""Rows of a task that do not fit in memory: temporary files for them, in the order in which they came or sorted.

A temporary file has no name, so it vanishes with the process, however that ends. To be sorted, rows are collected up to
`RUN_BYTES` and spilled as a sorted run, in chunks of `CHUNK_BYTES`. The merge knows the first row of every chunk, so it
reads the chunks of all runs in the order in which their rows are due: no row that is still on disk comes before the
first row of the next chunk. Knows only rows and their order, neither table nor partition.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.table.arrow_schema import one_batch
from iceberg_ds.table.sort_order import RowOrder

# Arrow bytes that are sorted at once, for a new run as well as in a merge.
RUN_BYTES = 64 * 1024 * 1024
# Arrow bytes that are read at once from a run.
CHUNK_BYTES = 512 * 1024
# Arrow bytes of a batch of sorted rows.
_BATCH_BYTES = 4 * 1024 * 1024

_RUN = "run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows in the file: their offset and length there in bytes, and the Arrow bytes that they take in memory."""

    offset: int
    length: int
    arrow_bytes: int


@dataclass(slots=True)
class _Process:
    """What this process has spilled so far; a Python worker runs one task at a time."""

    spilled_bytes: int = 0


_process = _Process()


def spilled_bytes() -> int:
    """Return how many bytes this process has written to temporary files so far."""
    return _process.spilled_bytes


class SpillFile:
    """A file without a name in Spark's local folder, or in the system's temporary folder.

    Args:
        purpose: Why the rows are there, such as `being sorted`, for errors.
    """

    # Compression halves the disk space at no cost in time; threads would take the cores of Spark's other tasks.
    _writing = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    _reading = pa.ipc.IpcReadOptions(use_threads=False)

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._folder = spill_folder()
        self._size = 0
        with self._explained():
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  # open until the merge is done

    def write(self, rows: pa.RecordBatch) -> Chunk:
        """Append rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=self._writing) as stream:
            stream.write_batch(rows)
        content = sink.getvalue()
        with self._explained():
            self._file.seek(self._size)
            self._file.write(content)
        _process.spilled_bytes += content.size
        chunk = Chunk(offset=self._size, length=content.size, arrow_bytes=rows.nbytes)
        self._size += content.size
        return chunk

    def read(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the rows of a chunk."""
        with self._explained():
            self._file.seek(chunk.offset)
            content = self._file.read(chunk.length)
        return pa.ipc.open_stream(content, options=self._reading).read_next_batch()

    def close(self) -> None:
        """Close and so delete the file."""
        with contextlib.suppress(OSError):  # of a last write, which is not read any more
            self._file.close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(f"rows that are {self._purpose} cannot be kept in {self._folder}: {error}") from error


def spill_folder() -> str:
    """Return one of the folders that Spark names to its Python workers, else the system's temporary folder."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    usable = [folder for folder in named if folder and os.access(folder, os.W_OK)]
    return usable[os.getpid() % len(usable)] if usable else tempfile.gettempdir()


class Spool:
    """Takes batches of one schema and gives them back in the same order; no file exists before the first batch."""

    def __init__(self) -> None:
        self._chunks: list[Chunk] = []
        self._spill: SpillFile | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            OSError: The rows could not be kept on disk.
        """
        self._spill = self._spill or SpillFile("waiting for others of their keys")
        self._chunks.append(self._spill.write(rows))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches.

        Raises:
            OSError: The rows could not be read again.
        """
        if self._spill is not None:
            for chunk in self._chunks:
                yield self._spill.read(chunk)

    def close(self) -> None:
        """Forget all rows."""
        self._chunks = []
        if self._spill is not None:
            self._spill.close()


class ExternalSort:
    """Takes batches of one schema and gives back their rows in order; equal rows keep the order in which they came."""

    def __init__(self, order: RowOrder) -> None:
        self._order = order
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._runs: list[_Run] = []
        self._spill: SpillFile | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            OSError: The rows could not be kept on disk.
        """
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= RUN_BYTES:
            self._spill_runs(self._take_waiting())

    def sorted_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order.

        Raises:
            OSError: The rows could not be kept on disk, or not be read again.
        """
        waiting = self._take_waiting()
        if not self._runs and len(waiting) == 1:
            yield from self._in_order(waiting.pop(), _BATCH_BYTES)
            return
        self._spill_runs(waiting)
        if self._spill is not None:
            self._runs = _merge_until_few(self._runs, self._order, self._spill)
            yield from _merge(self._runs, self._order, self._spill)

    def close(self) -> None:
        """Forget all rows, in memory and on disk."""
        self._waiting, self._waiting_bytes, self._runs = [], 0, []
        if self._spill is not None:
            self._spill.close()

    def _take_waiting(self) -> list[pa.RecordBatch]:
        """Return the waiting rows as one batch, or as several batches if their strings are too long for one."""
        if not self._waiting:
            return []
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        return list(table.combine_chunks().to_batches())

    def _spill_runs(self, portions: list[pa.RecordBatch]) -> None:
        """Spill each portion as a run, and drop the portion."""
        while portions:
            self._spill = self._spill or SpillFile("being sorted")
            self._runs.append(_write_run(self._in_order(portions.pop(0), CHUNK_BYTES), self._order, self._spill))

    def _in_order(self, rows: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        return _taken(rows, self._order.positions(self._order.keys(rows)), batch_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Sorted rows, in chunks; `first_keys` has the keys of each chunk's first row."""

    chunks: tuple[Chunk, ...]
    first_keys: pa.RecordBatch


def _write_run(batches: Iterable[pa.RecordBatch], order: RowOrder, spill: SpillFile) -> _Run:
    first_keys, chunks = [], []
    for rows in batches:
        for start, count in _portions(rows.num_rows, rows.nbytes, CHUNK_BYTES):
            chunk = rows.slice(start, count)
            first_keys.append(order.keys(chunk.slice(0, 1)))
            chunks.append(spill.write(chunk))
    return _Run(chunks=tuple(chunks), first_keys=one_batch(first_keys))


def _merge_until_few(runs: list[_Run], order: RowOrder, spill: SpillFile) -> list[_Run]:
    """Merge neighbouring runs into longer ones, until one chunk of each takes at most half of the memory together."""
    first = 0
    while len(runs) > (most := _most_runs(runs)):
        first = first if first + 1 < len(runs) else 0
        end = first + min(most, len(runs) - most + 1)
        runs = [*runs[:first], _write_run(_merge(runs[first:end], order, spill), order, spill), *runs[end:]]
        first += 1
    return runs


def _most_runs(runs: Sequence[_Run]) -> int:
    largest = max(chunk.arrow_bytes for run in runs for chunk in run.chunks)
    return max(2, RUN_BYTES // 2 // max(largest, 1))


def _merge(runs: Sequence[_Run], order: RowOrder, spill: SpillFile) -> Iterator[pa.RecordBatch]:
    merge = _Merge(_scheduled(runs, order), order, spill)
    while not merge.is_done:
        yield from merge.next_batches()


class _Merge:
    """Reads the chunks of a schedule; between two calls, only rows that are not yet due are in memory."""

    def __init__(self, schedule: _Schedule, order: RowOrder, spill: SpillFile) -> None:
        self._schedule = schedule
        self._order = order
        self._spill = spill
        self._position = 0
        self._carried: list[pa.RecordBatch] = []

    @property
    def is_done(self) -> bool:
        """Whether all rows were handed out."""
        return self._position == len(self._schedule.chunks)

    def next_batches(self) -> Iterator[pa.RecordBatch]:
        """Read chunks and yield, in order, the rows that no unread row can precede; carry the rest."""
        rows = self._load()
        keys, numbers = self._order.keys(rows), rows.column(rows.num_columns - 1)
        if self.is_done:
            positions = self._order.positions(keys, numbers)
        else:
            # The first row of the next chunk shows where to stop.
            keys = one_batch([keys, self._schedule.first_keys.slice(self._position, 1)])
            numbers = pa.concat_arrays([numbers, self._schedule.runs.slice(self._position, 1)])
            positions = self._order.positions(keys, numbers)
            due = pc.index(positions, pa.scalar(rows.num_rows, positions.type)).as_py()
            self._carried = [rows.take(positions.slice(due + 1))]
            positions = positions.slice(0, due)
        yield from _without_run(_taken(rows, positions, _BATCH_BYTES))

    def _load(self) -> pa.RecordBatch:
        """Return the carried rows and the rows of further chunks, until memory is full, with their run's number."""
        loaded, self._carried = self._carried, []
        room = RUN_BYTES - sum(rows.nbytes for rows in loaded)
        while not self.is_done:
            chunk, run = self._schedule.chunks[self._position], self._schedule.runs[self._position]
            loaded.append(_with_run(self._spill.read(chunk), run))
            self._position += 1
            room -= chunk.arrow_bytes
            if room <= 0:
                break
        return one_batch(loaded)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schedule:
    """The chunks of several runs in the order in which their first rows are due.

    Attributes:
        chunks: The chunks.
        first_keys: Keys of each chunk's first row.
        runs: Number of each chunk's run, which decides between equal keys.
    """

    chunks: tuple[Chunk, ...]
    first_keys: pa.RecordBatch
    runs: pa.Array


def _scheduled(runs: Sequence[_Run], order: RowOrder) -> _Schedule:
    chunks = [chunk for run in runs for chunk in run.chunks]
    keys = one_batch([run.first_keys for run in runs])
    numbers = pa.array([number for number, run in enumerate(runs) for _ in run.chunks], pa.int32())
    positions = order.positions(keys, numbers)
    return _Schedule(
        chunks=tuple(chunks[position] for position in positions.to_pylist()),
        first_keys=keys.take(positions),
        runs=numbers.take(positions),
    )


def _with_run(rows: pa.RecordBatch, number: pa.Scalar) -> pa.RecordBatch:
    columns = [*rows.columns, pa.repeat(number, rows.num_rows)]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema.append(pa.field(_RUN, pa.int32())))


def _without_run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        schema = rows.schema.remove(rows.num_columns - 1)
        yield pa.RecordBatch.from_arrays(rows.columns[:-1], schema=schema)


def _taken(rows: pa.RecordBatch, positions: pa.Array, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield copies of the rows at `positions`, in batches."""
    row_bytes = rows.nbytes / max(rows.num_rows, 1)
    for start, count in _portions(len(positions), int(len(positions) * row_bytes), batch_bytes):
        yield rows.take(positions.slice(start, count))


def _portions(rows: int, size: int, portion_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the start and row count of each portion of about `portion_bytes`; all `rows` rows take `size` bytes."""
    step = max(1, rows * portion_bytes // max(size, 1))
    for start in range(0, rows, step):
        yield start, min(step, rows - start)
