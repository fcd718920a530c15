"""Which implementation opens which location, and what moves between processes."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_ds.errors import OptionError
from iceberg_ds.io.files import OBJECT_IO, ObjectIO, default_file_io, file_io
from iceberg_ds.io.s3_io import object_arguments
from iceberg_ds.io.stores import DiscardableStream

KEYS = {"s3.access-key-id": "k", "s3.secret-access-key": "s"}


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("s3://b/k", "S3FileIO"),
        ("s3a://b/k", "S3FileIO"),
        ("s3n://b/k", "S3FileIO"),
        ("oss://b/k", "S3FileIO"),
        ("hdfs://h/k", "OtherFileIO"),
        ("ftp://h/k", "OtherFileIO"),
        ("gs://b/k", "GcsFileIO"),
        ("abfss://c@a.dfs.core.windows.net/k", "AzureFileIO"),
        ("wasbs://c@a.blob.core.windows.net/k", "AzureFileIO"),
        ("file:///x", "LocalFileIO"),
        ("/x", "LocalFileIO"),
    ],
)
def test_scheme_names_the_implementation(location: str, name: str) -> None:
    """Files would be opened by a library that leaves truncated objects."""
    assert type(ObjectIO().store_of(location)).__name__ == name


def test_local_files_are_written_read_and_deleted(tmp_path: Path) -> None:
    """The embedded catalog would not work."""
    io, location = ObjectIO(), f"file://{tmp_path}/folder/x"
    with io.new_output(location).create() as stream:
        stream.write(b"abc")
    with io.new_input(location).open() as source:
        assert source.read() == b"abc"
    io.delete(location)

    with pytest.raises(FileNotFoundError):
        io.delete(location)


def test_stream_to_a_local_file_is_arrows_own(tmp_path: Path) -> None:
    """Local files would be written by slower code."""
    with ObjectIO().new_output(f"file://{tmp_path}/x").create() as stream:
        assert not isinstance(stream, DiscardableStream)


def test_file_io_is_loaded_from_its_name() -> None:
    """Tables of the driver's catalogs would be opened by other code than the tasks'."""
    assert isinstance(load_file_io({"py-io-impl": OBJECT_IO}, "s3://b/k"), ObjectIO)
    assert isinstance(file_io({}, "s3://b/k"), ObjectIO)


def test_user_may_choose_another_file_io() -> None:
    """A user with a FileIO of his own could not use it."""
    chosen = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}

    assert isinstance(file_io(chosen, "s3://b/k"), PyArrowFileIO)


def test_configuration_of_pyiceberg_may_choose_another_file_io(monkeypatch: pytest.MonkeyPatch) -> None:
    """A FileIO that is set in PyIceberg's configuration would be replaced."""
    assert default_file_io("c") == {"py-io-impl": OBJECT_IO}
    monkeypatch.setenv("PYICEBERG_CATALOG__C__PY_IO_IMPL", "pyiceberg.io.pyarrow.PyArrowFileIO")

    assert default_file_io("c") == {}


def test_wrong_properties_are_refused_before_any_file_is_opened() -> None:
    """A job would run for an hour before its first file is refused."""
    with pytest.raises(OptionError, match=r"s3\.sse\.tpye"):
        file_io({"s3.sse.tpye": "kms"}, "s3://b/k")


@pytest.mark.parametrize(("scheme", "library", "extra"), [("gs", "gcsfs", "gcs"), ("abfss", "adlfs", "azure")])
def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str, library: str, extra: str) -> None:
    """A user would see that some module is missing, and not what to install."""
    importlib.import_module("iceberg_ds.io.fsspec_io")
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(OptionError, match=rf"{library}.*pip install 'iceberg-ds\[{extra}\]'"):
        ObjectIO().store_of(f"{scheme}://c/k")


@pytest.mark.parametrize("location", ["s3://b/k", "gs://b/k", "abfss://c@a.dfs.core.windows.net/k"])
def test_file_io_moves_to_another_process(location: str) -> None:
    """A table could not be sent to a worker."""
    io = ObjectIO(KEYS)
    io.store_of(location)

    copy: FileIO = pickle.loads(pickle.dumps(io))  # noqa: S301  # made above
    assert copy.properties == KEYS
    assert pickle.loads(pickle.dumps(io.store_of(location))).properties == KEYS  # noqa: S301  # made above


@pytest.mark.parametrize("name", ["day=2026-11-21", "a%2Fb", "with space", "ü", "a+b", "a&b=c", "..x"])
def test_key_is_spelled_as_in_the_location(name: str) -> None:
    """A file would be written where the table does not look for it."""
    assert object_arguments(f"s3://bucket/table/{name}") == {"Bucket": "bucket", "Key": f"table/{name}"}


@pytest.mark.parametrize("location", ["s3://bucket", "s3://bucket/", "s3:///key", "s3://b/a?b", "s3://b/a#b"])
def test_location_that_readers_understand_in_different_ways_is_refused(location: str) -> None:
    """Files would be written over each other, or where no reader finds them."""
    with pytest.raises(ValueError, match=r"Location '?s3:"):
        object_arguments(location)


def test_task_on_s3_loads_no_catalog_code() -> None:
    """Every executor would pay for the catalog's libraries, and have the code that reads credentials."""
    script = (
        "import sys, iceberg_ds.writers.task_writer; from iceberg_ds.io.files import file_io;"
        "file_io({}, 's3://b/k').new_output('s3://b/k').create(overwrite=True);"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert "iceberg_ds.io.s3_io" in loaded
    assert not set(loaded) & {"pyiceberg.catalog", "pyiceberg.catalog.rest", "sqlalchemy", "iceberg_ds.catalog.client"}
