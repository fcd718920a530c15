"""Files on a local disk, through the FileIO that local locations get."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import FileIO

from iceberg_ds.io.files import file_io
from iceberg_ds.io.local_paths import local_path


@pytest.fixture(params=["", "file:", "file://"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where a file is to be, in a folder that is missing."""
    return f"{request.param}{tmp_path}/new folder/ü=%2F.bin"


@pytest.fixture
def io(location: str) -> FileIO:
    """Return the FileIO of the location."""
    return file_io({}, location)


def test_file_is_written_read_and_deleted(io: FileIO, location: str) -> None:
    """No local table could be written."""
    assert not io.new_input(location).exists()
    with io.new_output(location).create() as stream:
        stream.write(b"12345")

    found = io.new_input(location)
    with found.open() as opened:
        opened.seek(2)
        assert opened.read(2) == b"34"
    with found.open(seekable=False) as opened:
        assert opened.read() == b"12345"
    assert (found.exists(), len(found)) == (True, 5)
    io.delete(location)
    assert not found.exists()


def test_missing_file_is_told_as_missing(io: FileIO, location: str) -> None:
    """A missing file would count as storage that does not answer, and be tried again."""
    with pytest.raises(FileNotFoundError):
        io.new_input(location).open()
    with pytest.raises(FileNotFoundError):
        len(io.new_input(location))
    with pytest.raises(FileNotFoundError):
        io.delete(location)


def test_file_that_exists_stays_unless_it_may_be_replaced(io: FileIO, location: str) -> None:
    """A file that another writer's table refers to would be lost."""
    with io.new_output(location).create() as stream:
        stream.write(b"first")

    with pytest.raises(FileExistsError):
        io.new_output(location).create()
    with io.new_input(location).open() as opened:
        assert opened.read() == b"first"
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(b"2nd")
    assert len(io.new_input(location)) == 3


def test_one_of_many_writers_makes_a_file(io: FileIO, location: str) -> None:
    """Two writers that look before they make it would both be told that it is theirs."""

    def make(number: int) -> bool:
        try:
            stream = io.new_output(location).create()
        except FileExistsError:
            return False
        with stream:
            stream.write(str(number).encode())
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(make, range(64))) == 1


def test_new_file_needs_no_right_to_be_written_again(io: FileIO, location: str) -> None:
    """Where files are made read-only, each metadata file would be left empty, and the commit fail."""
    before = os.umask(0o277)
    try:
        Path(local_path(location)).parent.mkdir(mode=0o700, exist_ok=True)
        with io.new_output(location).create() as stream:
            stream.write(b"12")
    finally:
        os.umask(before)

    assert len(io.new_input(location)) == 2


def test_parquet_is_written_and_read_through_it(io: FileIO, location: str) -> None:
    """Arrow's encoder and decoder ask more of a stream than reading and writing."""
    table = pa.table({"id": list(range(1000))})
    with io.new_output(location).create() as stream:
        pq.write_table(table, stream)

    with io.new_input(location).open() as opened:
        assert pq.ParquetFile(opened).read().equals(table)


def test_it_can_be_shipped(io: FileIO, location: str) -> None:
    """Tasks of a read get it with their plan."""
    with pickle.loads(pickle.dumps(io)).new_output(location).create() as stream:  # noqa: S301
        stream.write(b"x")

    assert len(io.new_input(location)) == 1


def test_opening_local_files_loads_no_datasets(tmp_path: Path) -> None:
    """The first plan and the first commit of a session would take a quarter of a second longer."""
    script = (
        f"from iceberg_ds.io.files import file_io; file_io({{}}, {str(tmp_path)!r}); import sys; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "iceberg_ds.io.local_io" in done.stdout.split()
    assert not {"pandas", "pyarrow.dataset", "pyiceberg.io.pyarrow"} & set(done.stdout.split())
