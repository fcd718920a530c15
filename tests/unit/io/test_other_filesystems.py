"""Filesystems that nobody here knows, through fsspec: they work as any does, or are refused by name."""

from __future__ import annotations

import errno
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.fs as pa_fs
import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry
from support.services.stored_files import write, write_half

from iceberg_ds.errors import OptionError
from iceberg_ds.io import stores
from iceberg_ds.io.files import ObjectIO, file_io
from iceberg_ds.io.parallel import in_parallel
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


class Drawer(AbstractFileSystem):
    """A filesystem with one connection, as that of FTP, which keeps listings."""

    protocol = "drawer"
    busy = 0  # how many threads use it
    shelf = Shelf()

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)

    @contextmanager
    def _used(self) -> Iterator[Shelf]:
        Drawer.busy += 1
        try:
            time.sleep(0.001)
            assert Drawer.busy == 1, "two threads use one connection"
            yield self.shelf
        finally:
            Drawer.busy -= 1

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        with self._used() as shelf:
            return shelf.open(path, mode)

    def ls(self, path: str, *, detail: bool = True, **_: Any) -> list[Any]:
        """List a folder."""
        if path not in self.dircache:
            with self._used() as shelf:
                listed = shelf.ls(path, detail=True)
            self.dircache[path] = listed
        else:
            listed = self.dircache[path]
        return listed if detail else [entry["name"] for entry in listed]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Find a file in the listing of its folder."""
        found = [entry for entry in self.ls(path.rpartition("/")[0]) if entry["name"] == path]
        if not found:
            raise FileNotFoundError(path)
        return found[0]

    def makedirs(self, path: str, *, exist_ok: bool = False) -> None:
        """Make a folder."""
        with self._used() as shelf:
            shelf.makedirs(path, exist_ok=exist_ok)

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        with self._used() as shelf:
            shelf.rm_file(path)


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
    monkeypatch.setitem(_registry, "drawer", Drawer)


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


@pytest.mark.parametrize("failure", [TimeoutError("later"), PermissionError("no"), ConnectionResetError("gone")])
def test_file_that_cannot_be_looked_up_is_not_replaced(
    place: str, failure: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table's metadata would be replaced by that of another writer while its server has trouble."""
    write(ObjectIO(), place, b"first", overwrite=False)

    def fail(*_: Any, **__: Any) -> None:
        raise failure

    for kind in (Shelf, ArrowShelf):
        monkeypatch.setattr(kind, "info", fail)
    with pytest.raises(type(failure)):
        write(ObjectIO(), place, b"second", overwrite=False)

    assert on_disk(place).read_bytes() == b"first"


@pytest.mark.parametrize("size", [10, LARGE])
def test_error_of_a_write_is_told_if_its_file_cannot_be_removed(
    place: str, size: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A user would read that he may not delete, and not that the disk is full."""

    def refuse(*_: Any) -> None:
        raise PermissionError("may not delete")

    for kind in (Shelf, ArrowShelf):
        monkeypatch.setattr(kind, "rm_file", refuse)
    with pytest.raises(KeyError):
        write_half(ObjectIO(), place, bytes(size))

    told = [record.message for record in caplog.records if "Left behind" in record.message]
    assert told == [f"Left behind {place}, a part of a file: PermissionError"] * len(told)
    assert len(told) == on_disk(place).exists()


def test_missing_file_may_be_told_by_the_number_of_an_error(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No table could be made on SMB, whose library has errors of its own."""

    class OwnError(OSError):
        pass

    def tell(*_: Any, **__: Any) -> None:
        error = OwnError()
        error.errno = errno.ENOENT
        raise error

    for kind in (Shelf, ArrowShelf):
        monkeypatch.setattr(kind, "info", tell)
    write(ObjectIO(), place, b"first", overwrite=False)

    assert on_disk(place).read_bytes() == b"first"


def test_files_of_others_are_seen_at_once_in_a_filesystem_that_keeps_listings(tmp_path: Path) -> None:
    """The metadata of another writer would be missing, or be replaced."""
    place = f"drawer://{tmp_path}/x"
    assert not ObjectIO().new_input(place).exists()
    (tmp_path / "x").write_bytes(b"another's")

    assert ObjectIO().new_input(place).exists()
    with pytest.raises(FileExistsError):
        write(ObjectIO(), place, b"mine", overwrite=False)


def test_filesystem_with_one_connection_is_used_by_one_thread_at_a_time(tmp_path: Path) -> None:
    """Manifests, which are read side by side, would be answers to each other's requests, or none would come."""
    io = ObjectIO()
    places = [f"drawer://{tmp_path}/{number}" for number in range(16)]
    list(in_parallel(lambda place: write(io, place, place.encode()), places))

    found = in_parallel(lambda place: io.new_input(place).open().read(), places)

    assert list(found) == [place.encode() for place in places]


@pytest.mark.parametrize("length", [200, 1024, 5000])
def test_token_of_google_of_any_length_is_taken_as_it_is(length: int) -> None:
    """A long token, as those of service accounts are, would be taken for the path of a file."""
    properties = {"gcs.oauth2.token": "A" * length, "gcs.service.host": "http://127.0.0.1:1"}

    assert ObjectIO(properties).new_input("gs://b/k").location == "gs://b/k"


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
