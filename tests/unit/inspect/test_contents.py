"""What is kept of manifests and their entries, and of those that cannot be read."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from support.checks.invariants import referenced_files
from support.tables.sink import Sink

from iceberg_ds.inspect.contents import ListedFile, read_contents


def vector(offset: int, size: int = 10) -> ListedFile:
    """Return a deletion vector as version 3 lists it, in a file with others."""
    data_file = DataFile.from_args(
        _table_format_version=3,
        content=DataFileContent.POSITION_DELETES,
        file_path="s3://b/t/data/deletes.puffin",
        file_format=FileFormat.PUFFIN,
        partition=Record(),
        record_count=2,
        file_size_in_bytes=1000,
        referenced_data_file="s3://b/t/data/1.parquet",
        content_offset=offset,
        content_size_in_bytes=size,
    )
    return ListedFile.of(data_file)


def test_deletion_vectors_of_one_file_are_told_apart() -> None:
    """A table whose deletion vectors share a file would be called one that lists files twice."""
    assert vector(4).vector == (4, 10)
    assert vector(4).path == vector(14).path
    assert vector(4).name != vector(14).name


def test_deletion_vector_counts_its_own_bytes_only() -> None:
    """The summaries of every table with deletion vectors would be called wrong."""
    assert vector(4, 44).own_bytes == 44


@pytest.mark.parametrize("is_missing", [True, False])
@pytest.mark.parametrize("kind", ["snap-", "m0"])
def test_file_that_is_not_there_is_told_from_one_that_cannot_be_read(
    sink: Sink, kind: str, *, is_missing: bool
) -> None:
    """A clean-up would take rows for expired whose manifest a store does not give out just now."""
    sink.append(1)
    (path,) = [found for found in referenced_files(sink.table()) if kind in found.name and found.suffix == ".avro"]
    path.unlink() if is_missing else path.write_bytes(b"half of it")

    (problem,) = read_contents(sink.table().io, sink.table().metadata).every_problem()

    assert problem.is_missing == is_missing
    assert path.name in str(problem)
