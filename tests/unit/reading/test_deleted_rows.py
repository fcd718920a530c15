"""Rows that are deleted by position, as bits, and deletion vectors, whole and damaged."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from iceberg_ds.deletes.work import FileWork
from iceberg_ds.errors import DataFileError
from iceberg_ds.reading.deleted_rows import as_words, vector_positions
from iceberg_ds.reading.scan_task import DeletionVector, ScanTask

IO = PyArrowFileIO()


def task(number: int, rows: int) -> ScanTask:
    """Return the task of a file of so many rows."""
    file = DataFile.from_args(
        file_path=f"/{number}.parquet", record_count=rows, file_size_in_bytes=1, partition=Record()
    )
    return ScanTask(work=FileWork(data_file=file, sequence_number=1, keys=()), vector=None, absent={})


@given(st.lists(st.tuples(st.integers(1, 300), st.sets(st.integers(0, 400))), min_size=1, max_size=5))
def test_each_row_has_the_bit_that_says_whether_it_is_deleted(files: list[tuple[int, set[int]]]) -> None:
    """The deletes of one file would hide rows of the next one."""
    tasks = [task(number, rows) for number, (rows, _) in enumerate(files)]
    positions = {one.work.path: sorted(deleted) for one, (_, deleted) in zip(tasks, files, strict=True)}

    words, first = as_words(tasks, positions)

    for one, (rows, deleted) in zip(tasks, files, strict=True):
        bits = [
            words[first[one.work.path] + (row >> 6)].as_py() >> (row & 63) & 1  # as Spark looks it up
            for row in range(rows)
        ]
        assert [row for row, bit in enumerate(bits) if bit] == sorted(row for row in deleted if row < rows)


def blob(positions: list[int]) -> bytes:
    """Return a deletion vector as the Puffin spec has it."""
    body = bytes.fromhex("D1D33964") + BitMap64(positions).serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


@given(st.sets(st.integers(0, 2**33), max_size=30))
def test_deletion_vector_comes_back(tmp_path_factory: pytest.TempPathFactory, positions: set[int]) -> None:
    """Rows of version 3 that are deleted would come back."""
    path = tmp_path_factory.mktemp("vectors") / "dv.puffin"
    content = blob(sorted(positions))
    path.write_bytes(b"PFA1" + content)
    vector = DeletionVector(path=str(path), offset=4, length=len(content), cardinality=len(positions))

    assert vector_positions(IO, vector) == sorted(positions)


@pytest.mark.parametrize("byte", [0, 3, 4, 7, 8, 20, -5, -4, -1])
def test_damaged_deletion_vector_fails_the_read(tmp_path: Path, byte: int) -> None:
    """Deleted rows would come back, or others would be hidden."""
    content = bytearray(blob([1, 5, 70_000]))
    content[byte] ^= 0x55
    path = tmp_path / "dv.puffin"
    path.write_bytes(content)
    vector = DeletionVector(path=str(path), offset=0, length=len(content), cardinality=3)

    with pytest.raises(DataFileError, match=r"the deletion vector at 0 in .*dv\.puffin: it is damaged"):
        vector_positions(IO, vector)


@pytest.mark.parametrize("length", [0, 3, 8, 20])
def test_cut_off_deletion_vector_fails_the_read(tmp_path: Path, length: int) -> None:
    """Deleted rows would come back."""
    path = tmp_path / "dv.puffin"
    path.write_bytes(blob([1, 5]))

    with pytest.raises(DataFileError, match="it is damaged"):
        vector_positions(IO, DeletionVector(path=str(path), offset=0, length=length, cardinality=2))


def test_deletion_vector_of_another_file_fails_the_read(tmp_path: Path) -> None:
    """A whole vector in the wrong place would hide the wrong rows."""
    path = tmp_path / "dv.puffin"
    path.write_bytes(blob([1, 5]))
    length = path.stat().st_size

    with pytest.raises(DataFileError, match="it hides 2 rows, and its manifest says 3"):
        vector_positions(IO, DeletionVector(path=str(path), offset=0, length=length, cardinality=3))
