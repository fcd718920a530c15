"""Portions of files in which each file has a mark of its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile

from iceberg_ds.reading import file_marks
from iceberg_ds.reading.file_marks import portions


def file(number: int, size: int) -> DataFile:
    """Return a data file of a size."""
    return DataFile.from_args(
        file_path=f"s3://b/t/{number:05d}-0-file.parquet", file_size_in_bytes=size, record_count=1
    )


@given(st.lists(st.integers(1, 40), min_size=1, max_size=120))
def test_every_file_is_in_one_portion_by_a_mark_of_its_own(sizes: list[int]) -> None:
    """A file would not be read, be read twice, or be taken for another one."""
    files = [file(number, size) for number, size in enumerate(sizes)]

    found = portions(files)

    assert sorted(one.file_path for portion in found for one in portion.files) == [one.file_path for one in files]
    for portion in found:
        assert portion.marks == sorted(set(portion.marks))
        assert portion.is_by_name or portion.marks == [one.file_size_in_bytes for one in portion.files]
        assert len(portion.files) <= file_marks._MOST_FILES


def test_many_files_of_one_size_are_told_apart_by_name() -> None:
    """Each would be a scan of its own, and a plan of thousands of scans ends no query."""
    found = portions([file(number, 1000) for number in range(2000)])

    assert len(found) <= 2000 // file_marks._MOST_FILES + 2
    assert all(portion.is_by_name for portion in found)
