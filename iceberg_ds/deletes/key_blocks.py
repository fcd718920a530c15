"""Sorted keys of data files in one local file, in blocks that are read and checked one by one.

A file has the rows of several data files, sorted by a digest of their keys, in blocks; behind them the names of the
data files, and of each block its first digest, its place and its checksum. It is written once and never changed. What
is read is believed only if its checksum fits, so a damaged file is noticed.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

# Rows of a block: as many are read to look a single key up.
_BLOCK_ROWS = 256
DIGEST, FILE = "digest", "file"
_FILES = pa.schema([("path", pa.string()), ("size_bytes", pa.int64()), ("record_count", pa.int64())])
_BLOCKS = pa.schema([("first", pa.uint64()), ("offset", pa.int64()), ("length", pa.int64()), ("check", pa.uint32())])


class DamagedBlocksError(Exception):
    """A file of blocks is not as it was written."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """A data file whose keys are in a file of blocks; another one at the same path would differ.

    Attributes:
        path: Its path.
        size_bytes: Its size.
        record_count: Its number of rows; each has an entry.
    """

    path: str
    size_bytes: int
    record_count: int

    @classmethod
    def of(cls, data_file: DataFile) -> Indexed:
        """Return the data file of a manifest's entry."""
        return cls(data_file.file_path, data_file.file_size_in_bytes, data_file.record_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksEntry:
    """What must be known of a file of blocks to read it.

    Attributes:
        name: Its name in the folder.
        rows: Number of rows.
        offset: Where the directory of its blocks begins, in bytes.
        size_bytes: Its size.
        check: Checksum of everything from `offset` on.
    """

    name: str
    rows: int
    offset: int
    size_bytes: int
    check: int


class Blocks:
    """A file of blocks; opening it reads its directory.

    Args:
        folder: Where it is.
        entry: What is known of it.
        schema: The columns of its rows: `DIGEST`, `FILE` (a number in `files`), and others.

    Raises:
        DamagedBlocksError: The file is missing or damaged.
    """

    def __init__(self, folder: Path, entry: BlocksEntry, schema: pa.Schema) -> None:
        self.entry = entry
        self._path = folder / entry.name
        self._schema = schema
        directory = self._read([(entry.offset, entry.size_bytes - entry.offset, entry.check)])[0]
        stream = pa.BufferReader(directory)
        files, blocks = (pa.ipc.read_record_batch(pa.ipc.read_message(stream), kind) for kind in (_FILES, _BLOCKS))
        self.files = [Indexed(**row) for row in files.to_pylist()]
        self._places = blocks
        if sum(file.record_count for file in self.files) != entry.rows:
            raise DamagedBlocksError(f"{self._path} has not all rows of its data files")

    @cached_property
    def _firsts(self) -> memoryview:
        column = self._places.column("first")
        return memoryview(column.buffers()[1])[: 8 * len(column)].cast("Q")

    def find(self, digests: Iterable[int]) -> pa.Table:
        """Return the rows of all blocks that may have one of these digests.

        Raises:
            DamagedBlocksError: A block is damaged.
        """
        firsts, numbers = self._firsts, set[int]()
        for digest in digests:
            # Rows of one digest may begin in the block before the first that begins with it.
            begin = max(bisect_left(firsts, digest) - 1, 0)
            numbers.update(range(begin, bisect_right(firsts, digest)))
        return self._rows(sorted(numbers))

    def between(self, low: int, high: int) -> pa.Table:
        """Return the rows whose digests are at least `low` and less than `high`.

        Raises:
            DamagedBlocksError: A block is damaged.
        """
        firsts = self._firsts
        rows = self._rows(range(max(bisect_left(firsts, low) - 1, 0), bisect_left(firsts, high)))
        digests = rows.column(DIGEST)
        is_in = pc.greater_equal(digests, pa.scalar(low, pa.uint64()))
        if high <= _LAST:
            is_in = pc.and_(is_in, pc.less(digests, pa.scalar(high, pa.uint64())))
        return rows.filter(is_in)

    def _rows(self, numbers: Sequence[int]) -> pa.Table:
        places = self._places.take(pa.array(numbers, pa.int64())).to_pydict()
        parts = self._read(list(zip(places["offset"], places["length"], places["check"], strict=True)))
        return pa.Table.from_batches([pa.ipc.read_record_batch(part, self._schema) for part in parts], self._schema)

    def _read(self, parts: Sequence[tuple[int, int, int]]) -> list[bytes]:
        """Return parts of the file, each given by its offset, length and checksum."""
        read = []
        try:
            with self._path.open("rb", buffering=0) as file:
                for offset, length, _ in parts:
                    file.seek(offset)
                    read.append(file.read(length))
        except OSError as problem:
            raise DamagedBlocksError(f"{self._path} cannot be read: {problem}") from problem
        if any(zlib.crc32(data) != check for data, (_, _, check) in zip(read, parts, strict=True)):
            raise DamagedBlocksError(f"{self._path} is damaged")
        return read


_LAST = (1 << 64) - 1


def write_blocks(folder: Path, name: str, files: Collection[Indexed], parts: Iterable[pa.Table]) -> BlocksEntry:
    """Write a file of blocks, which is there as a whole or not at all, and return what is known of it.

    Args:
        folder: Where to write it.
        name: Its name.
        files: The data files, in the order of their numbers.
        parts: All rows of these, sorted by digest: every digest of a part is higher than those of the part before.

    Raises:
        OSError: It cannot be written.
    """
    unfinished = folder / f"{name}.new"
    try:
        with unfinished.open("wb") as file:
            rows, places = 0, []
            for block in _blocks(parts):
                rows += block.num_rows
                places.append(_write(file, block.serialize(), block.column(0)[0].as_py()))
            offset = file.tell()
            listed = pa.RecordBatch.from_pylist([_row(found) for found in files], schema=_FILES)
            placed = pa.RecordBatch.from_pylist(places, schema=_BLOCKS)
            directory = b"".join(batch.serialize().to_pybytes() for batch in (listed, placed))
            file.write(directory)
            size = file.tell()
        unfinished.replace(folder / name)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
    return BlocksEntry(name=name, rows=rows, offset=offset, size_bytes=size, check=zlib.crc32(directory))


def _row(found: Indexed) -> dict[str, object]:
    return {"path": found.path, "size_bytes": found.size_bytes, "record_count": found.record_count}


def _write(file: IO[bytes], data: pa.Buffer, first: int) -> dict[str, int]:
    place = {"first": first, "offset": file.tell(), "length": data.size, "check": zlib.crc32(data)}
    file.write(data)
    return place


def _blocks(parts: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        for batch in part.combine_chunks().to_batches():
            for start in range(0, batch.num_rows, _BLOCK_ROWS):
                yield batch.slice(start, _BLOCK_ROWS)
