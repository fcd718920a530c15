"""Whether the files that a table refers to are there, as long as recorded, and hold as many rows.

Each file is looked at once, with one request where the storage allows: the end of a Parquet file tells both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table

from iceberg_ds.verification.contents import ListedFile
from iceberg_ds.verification.findings import in_parallel, why_unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a look at a file has shown.

    Attributes:
        file: The file, as it is listed.
        problem: Why it is not the file that was recorded, None if it is.
        rows: How many rows its footer counts, None if they were not counted.
        rows_problem: Why they could not be, None if they were or need not be.
    """

    file: ListedFile
    problem: str | None = None
    rows: int | None = None
    rows_problem: str | None = None

    @property
    def is_miscounted(self) -> bool:
        """Whether it holds another number of rows than recorded."""
        return self.rows is not None and self.rows != self.file.record_count


def look_at(io: FileIO, files: Iterable[ListedFile]) -> Iterator[Look]:
    """Yield what a look at each of the files shows."""
    return in_parallel(lambda file: _look(io, file), files)


def kind(file: ListedFile) -> str:
    """Return what a file is in words."""
    return "data file" if file.content is DataFileContent.DATA else "delete file"


def _look(io: FileIO, file: ListedFile) -> Look:
    name = f"{kind(file)} {file.path}"
    try:
        found = io.new_input(file.path)
        if file.file_format is not FileFormat.PARQUET or file.is_encrypted:
            return Look(file=file, problem=_wrong_size(name, len(found), file.size_bytes))
        with found.open() as stream:
            problem = _wrong_size(name, stream.seek(0, os.SEEK_END), file.size_bytes)
            if problem is not None:
                return Look(file=file, problem=problem)
            try:
                return Look(file=file, rows=pq.read_metadata(stream).num_rows)
            except Exception as error:  # Arrow's, and those of the storage library
                return Look(file=file, rows_problem=f"the footer of {name} {why_unreadable(error)}")
    except Exception as error:  # whatever a storage library raises
        return Look(file=file, problem=f"{name} {why_unreadable(error)}")


def _wrong_size(name: str, size: int, recorded: int) -> str | None:
    return None if size == recorded else f"{name} has {size:,} bytes, its recorded size is {recorded:,}"


def statistics_problems(table: Table) -> Iterator[str]:
    """Yield the statistics files of a table that are missing or not as long as recorded."""
    metadata = table.metadata
    every = [*metadata.statistics, *metadata.partition_statistics]
    recorded = [(found.statistics_path, found.file_size_in_bytes) for found in every]
    for (path, size), (actual, problem) in zip(
        recorded, in_parallel(lambda found: _size(table.io, found[0]), recorded), strict=True
    ):
        name = f"statistics file {path}"
        if problem is not None:
            yield f"{name} {problem}"
        elif actual is not None and (wrong := _wrong_size(name, actual, size)) is not None:
            yield wrong


def metadata_problems(table: Table, load: Callable[[], Table]) -> Iterator[str]:
    """Yield the metadata files that the table's log refers to, and that are not there; the current one first.

    Args:
        table: The table.
        load: Loads it afresh: a commit meanwhile may have let go of files, and deleted them.
    """
    paths = _metadata_files(table)
    looks = in_parallel(lambda path: _size(table.io, path), paths)
    problems = {path: problem for path, (_, problem) in zip(paths, looks, strict=True) if problem is not None}
    still = _metadata_files(load()) if problems else []
    yield from (f"metadata file {path} {problem}" for path, problem in problems.items() if path in still)


def _metadata_files(table: Table) -> list[str]:
    return [table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)]


def _size(io: FileIO, path: str) -> tuple[int | None, str | None]:
    try:
        return len(io.new_input(path)), None
    except Exception as error:  # whatever a storage library raises
        return None, why_unreadable(error)
