"""Objects of Google Cloud Storage and of Azure, on real servers: what appears, what never does, how many requests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.exhaustive import EXHAUSTIVE
from support.services.cloud_stores import BLOCK, CloudBucket, GcsBucket
from support.services.stored_files import read, write, write_half

from iceberg_ds.io.cleanup import Proof, delete_files

EXIT_TIMEOUT_S = 60


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 7])
def test_bytes_come_back_as_they_were_written(cloud: CloudBucket, size: int) -> None:
    """A file of a certain size would be corrupt."""
    io, location, data = cloud.io(), f"{cloud.location}/folder/x", os.urandom(size)
    write(io, location, data)

    assert read(io, location) == data
    assert len(io.new_input(location)) == size


def test_many_pieces_make_the_same_file(cloud: CloudBucket) -> None:
    """A file would be corrupt if its encoder writes it in pieces."""
    io, location, data = cloud.io(), f"{cloud.location}/x", os.urandom(2 * BLOCK + 100)
    with io.new_output(location).create(overwrite=True) as stream:
        for start in range(0, len(data), 1_999_983):
            assert stream.tell() == start
            stream.write(data[start : start + 1_999_983])

    assert read(io, location) == data


def test_small_file_takes_one_request_to_write_and_one_to_read(cloud: CloudBucket) -> None:
    """Each commit would take longer and cost more."""
    io, location = cloud.io(), f"{cloud.location}/metadata.json"
    write(io, location, b"{}")
    read(io, location)

    assert cloud.requests() == ["write", "read"]


def test_large_file_is_uploaded_in_blocks_and_nothing_else_is_asked(cloud: CloudBucket) -> None:
    """A large file would need its whole size in memory, or rights that the documentation does not name."""
    write(cloud.io(), f"{cloud.location}/x", bytes(2 * BLOCK + 1))
    asked = Counter(cloud.requests())

    # Google's upload is begun, and its last part ends it; Azure's blocks need no beginning.
    assert asked.pop("begin" if isinstance(cloud, GcsBucket) else "finish") == 1
    assert set(asked) == {"part"}
    assert asked["part"] <= 3


def test_parquet_file_is_read_by_its_end_first(cloud: CloudBucket) -> None:
    """Readers that look for a footer or a column would see other bytes."""
    io, location = cloud.io(), f"{cloud.location}/x.parquet"
    table = pa.table({"a": range(300_000), "b": [str(number) for number in range(300_000)]})
    with io.new_output(location).create(overwrite=True) as stream:
        pq.write_table(table, stream, compression="none")
    with io.new_input(location).open() as source:
        found = pq.read_table(source)

    assert found.equals(table)


def test_missing_object_is_said_to_be_missing(cloud: CloudBucket) -> None:
    """A user would not learn which file of the table is gone."""
    io, location = cloud.io(), f"{cloud.location}/missing"

    assert not io.new_input(location).exists()
    with pytest.raises(FileNotFoundError, match="missing"):
        read(io, location)
    with pytest.raises(FileNotFoundError):
        io.delete(location)


def test_folder_of_objects_is_no_object(cloud: CloudBucket) -> None:
    """A file that is not there would seem to be, with no bytes in it."""
    io = cloud.io()
    write(io, f"{cloud.location}/folder/x", b"x")

    assert not io.new_input(f"{cloud.location}/folder").exists()


@pytest.mark.parametrize("written", [10, 2 * BLOCK])
def test_error_while_writing_leaves_neither_object_nor_upload(cloud: CloudBucket, written: int) -> None:
    """A truncated file would lie in the table's folder, or parts that are paid for and never seen."""
    with pytest.raises(KeyError):
        write_half(cloud.io(), f"{cloud.location}/x", bytes(written))

    assert cloud.object_keys() == []
    # What is left of blocks is never seen, and Azure drops it by itself.
    assert cloud.requests().count("begin") == cloud.requests().count("cancel")


@pytest.mark.parametrize("written", [10, 2 * BLOCK])
def test_stream_that_is_forgotten_leaves_neither_object_nor_upload(cloud: CloudBucket, written: int) -> None:
    """A truncated file would appear when Python collects a stream that nobody closed."""
    stream = cloud.io().new_output(f"{cloud.location}/x").create(overwrite=True)
    stream.write(bytes(written))
    del stream

    assert cloud.object_keys() == []
    assert cloud.requests().count("begin") == cloud.requests().count("cancel")


@pytest.mark.parametrize(("written", "refused"), [(10, "write"), (3 * BLOCK, "part"), (3 * BLOCK, "finish")])
def test_upload_that_is_refused_is_an_error_and_leaves_nothing(cloud: CloudBucket, written: int, refused: str) -> None:
    """A file with a missing part would be committed."""
    cloud.refuse(refused if refused in cloud.REQUESTS else "part")
    with pytest.raises(Exception, match=r"403|planned fault|Forbidden|refused"):
        write(cloud.io(), f"{cloud.location}/x", bytes(written))

    assert cloud.object_keys() == []


def test_file_that_is_given_up_after_its_end_is_deleted(cloud: CloudBucket) -> None:
    """Files of failed tasks would fill the bucket."""
    stream: Any = cloud.io().new_output(f"{cloud.location}/x").create(overwrite=True)
    stream.write(b"x")
    stream.close()
    assert cloud.object_keys() == ["x"]
    stream.discard()

    assert cloud.object_keys() == []


@pytest.mark.parametrize("size", [5, 2 * BLOCK])
def test_existing_object_is_not_overwritten_without_leave(cloud: CloudBucket, size: int) -> None:
    """Two writers of one metadata file would both believe that it is theirs."""
    io, location = cloud.io(), f"{cloud.location}/x"
    write(io, location, b"first", overwrite=False)
    with pytest.raises(FileExistsError):
        write(io, location, bytes(size), overwrite=False)

    assert read(io, location) == b"first"


@pytest.mark.parametrize("size", [5, 2 * BLOCK])
def test_existing_object_is_replaced_with_leave(cloud: CloudBucket, size: int) -> None:
    """A file that is written again would stay as it was."""
    io, location, data = cloud.io(), f"{cloud.location}/x", os.urandom(size)
    write(io, location, b"first")
    write(io, location, data)

    assert read(io, location) == data


def test_files_are_deleted_and_missing_ones_are_no_failure(cloud: CloudBucket) -> None:
    """A failed write would not be cleaned up, or warn of files that are not there."""
    io = cloud.io()
    paths = [f"{cloud.location}/folder/{name}" for name in ("a", "b c", "d%2Fe", "ü")]
    for path in paths:
        write(io, path, b"x")

    assert delete_files(io, [*paths, f"{cloud.location}/missing"], Proof.TASK_FAILED) == 0
    assert cloud.object_keys() == []


PROGRAM = """
import os
from iceberg_ds.io.files import ObjectIO
io = ObjectIO({properties})
small, large = (io.new_output("{location}/" + name).create(overwrite=True) for name in ("small", "large"))
small.write(b"some")
large.write(bytes({written}))
{ending}
"""


def run(cloud: CloudBucket, ending: str) -> subprocess.CompletedProcess[str]:
    """Run a process that writes two files and does not close them."""
    script = PROGRAM.format(
        properties=cloud.properties, location=cloud.location, written=2 * BLOCK + 1000, ending=ending
    )
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=EXIT_TIMEOUT_S, check=False
    )


@EXHAUSTIVE
@pytest.mark.parametrize("ending", ["", "raise KeyError"])
def test_interpreter_with_open_streams_ends_and_leaves_nothing(cloud: CloudBucket, ending: str) -> None:
    """A Python worker would hang for ever at its end, or leave a truncated file."""
    done = run(cloud, ending)

    assert done.returncode == (1 if ending else 0), done.stderr
    assert cloud.object_keys() == []


@EXHAUSTIVE
def test_child_of_a_fork_does_not_end_the_parents_uploads(cloud: CloudBucket) -> None:
    """A program that forks while it writes would lose its files, or have truncated ones."""
    ending = (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    del small, large\n"
        "    os._exit(0)\n"  # as `multiprocessing` ends its processes; adlfs lets others wait for ever
        "assert os.waitpid(child, 0)[1] == 0\n"
        "large.write(b'end')\n"
        "large.close()"
    )
    done = run(cloud, ending)

    assert done.stderr == ""
    assert cloud.object_keys() == ["large"]
    assert len(cloud.io().new_input(f"{cloud.location}/large")) == 2 * BLOCK + 1003
