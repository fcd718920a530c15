"""Rows that are deleted by position, as bits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from iceberg_ds.deletes.work import FileWork
from iceberg_ds.reading.deleted_rows import as_words
from iceberg_ds.reading.scan_task import ScanTask


def task(number: int, rows: int) -> ScanTask:
    """Return the task of a file of so many rows."""
    file = DataFile.from_args(
        file_path=f"/{number}.parquet", record_count=rows, file_size_in_bytes=1, partition=Record()
    )
    return ScanTask(work=FileWork(data_file=file, sequence_number=1, keys=()), absent={})


@given(st.lists(st.tuples(st.integers(1, 300), st.sets(st.integers(-70, 400))), min_size=1, max_size=5))
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
        assert [row for row, bit in enumerate(bits) if bit] == sorted(row for row in deleted if 0 <= row < rows)
