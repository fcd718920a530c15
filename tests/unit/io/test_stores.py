"""Files of object stores while they are written: seen whole or not at all, whatever store they go to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from io import BytesIO
from weakref import WeakSet

import pytest

from iceberg_ds.io import stores
from iceberg_ds.io.stores import Download, ObjectStore, Upload

LOCATION = "s3://bucket/file.parquet"


class Store(ObjectStore, dict[str, bytes]):
    """A store of objects by their locations, in memory."""

    block_bytes = 100

    def __init__(self) -> None:
        super().__init__()
        self.aborted_within_s: list[float | None] = []

    def put(self, location: str, data: BytesIO, *, if_absent: bool) -> None:
        """Make an object appear."""
        if if_absent and location in self:
            raise FileExistsError(location)
        self[location] = data.getvalue()

    def begin(self, location: str, *, if_absent: bool) -> StoredBlocks:
        """Begin a large object."""
        return StoredBlocks(self, location, if_absent)

    def get(self, location: str, start: int | None = None, end: int | None = None) -> bytes:  # type: ignore[override]
        """Return the bytes of an object."""
        return self[location][start:end]

    def size(self, location: str) -> int:
        """Return the size of an object."""
        return len(self[location])

    def delete(self, location: str) -> None:
        """Delete an object."""
        del self[location]


@dataclass(slots=True)
class StoredBlocks:
    """A large object on its way to a store."""

    store: Store
    location: str
    if_absent: bool
    sent: list[bytes] = field(default_factory=list)

    def send(self, block: BytesIO) -> None:
        """Send a block."""
        self.sent.append(block.getvalue())

    def complete(self, last: BytesIO) -> None:
        """Make the object appear."""
        self.store.put(self.location, BytesIO(b"".join([*self.sent, last.getvalue()])), if_absent=self.if_absent)

    def abort(self, within_s: float | None = None) -> None:
        """Remove the blocks."""
        self.store.aborted_within_s.append(within_s)
        self.sent.clear()


def upload_to(store: Store) -> Upload:
    """Return a stream into an object that may be replaced."""
    return Upload(store, LOCATION, if_absent=False)


@pytest.fixture
def store() -> Store:
    """Return an empty store."""
    return Store()


def test_file_that_was_written_appears(store: Store) -> None:
    """A file whose writer ended would be missing from the table."""
    with upload_to(store) as upload:
        upload.write(b"rows")

    assert store == {LOCATION: b"rows"}


def test_file_whose_writing_failed_does_not_appear(store: Store) -> None:
    """Half a file would be there, under a name that readers of the folder take for a whole one."""

    def write() -> None:
        with upload_to(store) as upload:
            upload.write(b"half of the ro")
            raise OSError("the rows ended")

    with pytest.raises(OSError, match="the rows ended"):
        write()

    assert store == {}


def test_file_that_is_dropped_without_a_word_does_not_appear(store: Store) -> None:
    """A task that is ended would leave half a file in the store."""
    upload = upload_to(store)
    upload.write(b"half of the ro")

    del upload

    assert store == {}


def test_encoder_that_writes_its_end_after_the_file_was_given_up_is_heard_and_forgotten(store: Store) -> None:
    """The error that made a task fail would be hidden by one about a closed file."""
    upload = upload_to(store)
    upload.write(b"half of the ro")
    upload.discard()

    assert upload.write(b"footer") == 6
    assert store == {}


class ShakyBlocks(StoredBlocks):
    """Blocks of which the second is lost on its way."""

    def send(self, block: BytesIO) -> None:
        """Send a block."""
        super().send(block)
        if len(self.sent) == 2:
            self.sent.pop()
            raise ConnectionError("a hiccup")


class ShakyStore(Store):
    """A store that loses a block."""

    def begin(self, location: str, *, if_absent: bool) -> StoredBlocks:
        """Begin a large object."""
        return ShakyBlocks(self, location, if_absent)


def test_file_that_lacks_a_block_never_appears() -> None:
    """A file without some of its bytes would appear, because only one of the writes into it failed."""
    store = ShakyStore()
    upload = upload_to(store)
    upload.write(bytes(150))
    with pytest.raises(ConnectionError, match="a hiccup"):
        upload.write(bytes(100))
    upload.write(bytes(100))  # as an encoder does that is closed later

    with pytest.raises(OSError, match=f"Cannot write {LOCATION}: bytes of it could not be uploaded"):
        upload.close()
    assert store == {}
    assert store.aborted_within_s == [None]


def test_open_files_of_an_interpreter_that_ends_share_a_short_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python worker with many open files would wait for a store that is away, for each file anew."""
    monkeypatch.setattr(stores, "_unfinished", WeakSet())
    uploads = [upload_to(store) for _ in range(2)]
    for upload in uploads:
        upload.write(bytes(150))
    clock_s = iter((0.0, 1.0, 7.0))
    monkeypatch.setattr(stores.time, "monotonic", lambda: next(clock_s))

    stores._discard_unfinished()

    assert store.aborted_within_s == [4, 0]


class ForgetfulStore(Store):
    """A store whose answers are lost."""

    def put(self, location: str, data: BytesIO, *, if_absent: bool) -> None:
        """Make an object appear, and say nothing."""
        super().put(location, data, if_absent=if_absent)
        raise ConnectionError("no answer")


@pytest.mark.parametrize(("if_absent", "left"), [(True, {LOCATION: b"rows"}), (False, {})])
def test_file_whose_answer_was_lost_is_removed_unless_it_may_be_anothers(
    *, if_absent: bool, left: dict[str, bytes]
) -> None:
    """A failed commit would remove the metadata file of the writer that won, or a failed task leave its file."""
    store = ForgetfulStore()
    upload = Upload(store, LOCATION, if_absent=if_absent)
    upload.write(b"rows")
    with pytest.raises(ConnectionError, match="no answer"):
        upload.close()

    upload.discard()

    assert store == left


def test_file_that_is_given_up_after_it_appeared_is_removed(store: Store) -> None:
    """A failed task would leave its finished files in the store."""
    upload = upload_to(store)
    upload.write(b"rows")
    upload.close()

    upload.discard()

    assert store == {}


def test_closed_file_takes_no_rows(store: Store) -> None:
    """Rows would be written to nowhere without a word."""
    upload = upload_to(store)
    upload.close()

    with pytest.raises(ValueError, match="it is closed"):
        upload.write(b"rows")


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 200, 201, 350])
def test_blocks_make_the_same_file(store: Store, size: int) -> None:
    """A file of a certain size would be corrupt."""
    data = os.urandom(size)
    with upload_to(store) as upload:
        for start in range(0, size, 7):
            upload.write(data[start : start + 7])

    assert store == {LOCATION: data}


def test_reader_may_jump(store: Store) -> None:
    """Readers that look for a footer or a column would see other bytes."""
    store[LOCATION] = bytes(range(100))
    source = Download(store, LOCATION)
    source.seek(-10, os.SEEK_END)

    assert source.read(20) == bytes(range(90, 100))
    assert source.read(1) == b""
    assert source.seek(5) == 5
    assert source.read() == bytes(range(5, 100))
