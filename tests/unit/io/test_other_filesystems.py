"""Filesystems that nobody here knows, through fsspec: they work as any does, or are refused by name."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow.fs as pa_fs
import pytest
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry
from support.services.stored_files import write, write_half

from iceberg_ds.errors import OptionError
from iceberg_ds.io import stores
from iceberg_ds.io.files import ObjectIO, file_io
from iceberg_ds.io.store_settings import other_arguments

LARGE = 20 * 1024 * 1024


class Shelf(LocalFileSystem):
    """A user's own filesystem, whose streams write in place."""

    protocol = "shelf"
    given: dict[str, Any] = {}  # noqa: RUF012  # what the last one was made with

    def __init__(self, **arguments: Any) -> None:
        Shelf.given = {name: value for name, value in arguments.items() if name != "skip_instance_cache"}
        super().__init__()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("shelf://").rstrip("/")


class ArrowShelf(ArrowFSWrapper):
    """What fsspec makes of Arrow's filesystems, as it does for HDFS."""

    protocol = "arrowshelf"

    def __init__(self, **_: Any) -> None:
        super().__init__(pa_fs.LocalFileSystem())

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("arrowshelf://").rstrip("/")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_shared", {})
    monkeypatch.setitem(_registry, "shelf", Shelf)
    monkeypatch.setitem(_registry, "arrowshelf", ArrowShelf)


@pytest.fixture(params=["shelf", "arrowshelf"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the location of a file that is not there, nor are its folders."""
    return f"{request.param}://{tmp_path}/table/data/x"


def on_disk(place: str) -> Path:
    """Return where the file of a location is."""
    return Path(place.partition("://")[2])


@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_files_are_written_read_and_deleted(place: str, size: int) -> None:
    """A user could not keep tables in a filesystem of his own."""
    io, data = ObjectIO(), bytes(range(256)) * (size // 256) or bytes(size)
    write(io, place, data)
    with io.new_input(place).open() as source:
        assert source.read() == data
    with io.new_input(place).open() as source:
        source.seek(-1 if data else 0, 2)
        assert source.read(2) == data[-1:]

    assert len(io.new_input(place)) == len(data)
    io.delete(place)
    assert not io.new_input(place).exists()


@pytest.mark.parametrize("size", [10, LARGE])
def test_file_whose_writing_failed_is_removed(place: str, size: int) -> None:
    """Half a file would lie in the table's folder."""
    with pytest.raises(KeyError):
        write_half(ObjectIO(), place, bytes(size))

    assert not on_disk(place).exists()


@pytest.mark.parametrize("size", [10, LARGE])
def test_file_that_is_there_is_not_replaced_without_leave(place: str, size: int) -> None:
    """A table's metadata would be replaced by that of another writer."""
    write(ObjectIO(), place, b"first", overwrite=False)

    with pytest.raises(FileExistsError):
        write(ObjectIO(), place, bytes(size), overwrite=False)
    assert on_disk(place).read_bytes() == b"first"


def test_missing_file_is_said_to_be_missing(place: str) -> None:
    """A user would not learn which file of the table is gone."""
    with pytest.raises(FileNotFoundError):
        ObjectIO().new_input(place).open().read()
    with pytest.raises(FileNotFoundError):
        ObjectIO().delete(place)


def test_properties_of_the_scheme_are_arguments_of_the_filesystem(tmp_path: Path) -> None:
    """A user could not give his filesystem its server and its password."""
    properties = {"fsspec.shelf.port": "22", "fsspec.shelf.password": "123", "fsspec.shelf.user": "me"}
    write(ObjectIO({**properties, "s3.region": "eu"}), f"shelf://{tmp_path}/x", b"x")

    assert Shelf.given == {"port": 22, "password": "123", "user": "me"}


def test_property_that_a_filesystem_does_not_take_is_named(tmp_path: Path) -> None:
    """A misspelt property would end in an error of another library's code."""

    class Strict(Shelf):
        def __init__(self, *, number: int = 0) -> None:
            super().__init__(number=number)

    _registry["shelf"] = Strict

    with pytest.raises(OptionError, match=r"does not take the properties fsspec\.shelf\.\*.*'nmber'"):
        ObjectIO({"fsspec.shelf.nmber": "1"}).new_input(f"shelf://{tmp_path}/x")


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("nowhere://b/k", "fsspec knows no filesystem of that name"),
        ("memory://b/k", "their files are in the memory of one process"),
        ("oci://b/k", "Install it on the driver and where the executors run"),
    ],
)
def test_filesystem_that_cannot_carry_a_table_is_refused_by_name(location: str, reason: str) -> None:
    """A job would run for an hour, and its rows be in no file that anybody can read."""
    with pytest.raises(OptionError, match=rf"{location.partition(':')[0]}://.*{reason}"):
        file_io({}, location)


def test_file_io_of_another_filesystem_moves_to_another_process(place: str) -> None:
    """A table could not be sent to a worker."""
    io = ObjectIO({"fsspec.shelf.user": "me"}).store_of(place)

    assert pickle.loads(pickle.dumps(io)).properties == {"fsspec.shelf.user": "me"}  # noqa: S301  # made above


def test_properties_of_hdfs_are_pyicebergs() -> None:
    """A user's settings of PyIceberg would be taken and do nothing."""
    properties = {"hdfs.host": "namenode", "hdfs.port": "8020", "hdfs.user": "me", "hdfs.kerberos_ticket": "/t"}

    assert other_arguments(properties, "hdfs") == {
        "host": "namenode",
        "port": 8020,
        "user": "me",
        "kerb_ticket": "/t",
    }
