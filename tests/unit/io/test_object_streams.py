"""Files of object stores while they are written: seen whole or not at all, whatever store they go to."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_ds.io.object_streams import Upload

LOCATION = "s3://bucket/file.parquet"


class Store(dict[str, bytes]):
    """The objects of a store, by their locations."""


class StoredUpload(Upload):
    """An upload into a `Store`."""

    def __init__(self, store: Store) -> None:
        super().__init__(LOCATION, if_absent=False)
        self._store = store
        self._written = bytearray()

    def tell(self) -> int:
        """Return how many bytes were written."""
        return len(self._written)

    def close(self) -> None:
        """Make the object appear."""
        self.closed = self._may_exist = True
        self._store[LOCATION] = bytes(self._written)

    def _take(self, data: Any) -> None:
        self._written += data

    def _give_up(self) -> None:
        self._written.clear()

    def _delete(self) -> None:
        del self._store[LOCATION]


@pytest.fixture
def store() -> Store:
    """Return an empty store."""
    return Store()


def test_file_that_was_written_appears(store: Store) -> None:
    """A file whose writer ended would be missing from the table."""
    with StoredUpload(store) as upload:
        upload.write(b"rows")

    assert store == {LOCATION: b"rows"}


def test_file_whose_writing_failed_does_not_appear(store: Store) -> None:
    """Half a file would be there, under a name that readers of the folder take for a whole one."""

    def write() -> None:
        with StoredUpload(store) as upload:
            upload.write(b"half of the ro")
            raise OSError("the rows ended")

    with pytest.raises(OSError, match="the rows ended"):
        write()

    assert store == {}


def test_file_that_is_dropped_without_a_word_does_not_appear(store: Store) -> None:
    """A task that is ended would leave half a file in the store."""
    upload = StoredUpload(store)
    upload.write(b"half of the ro")

    del upload

    assert store == {}


def test_encoder_that_writes_its_end_after_the_file_was_given_up_is_heard_and_forgotten(store: Store) -> None:
    """The error that made a task fail would be hidden by one about a closed file."""
    upload = StoredUpload(store)
    upload.write(b"half of the ro")
    upload.discard()

    assert upload.write(b"footer") == 6
    assert store == {}


def test_file_that_is_given_up_after_it_appeared_is_removed(store: Store) -> None:
    """A failed task would leave its finished files in the store."""
    upload = StoredUpload(store)
    upload.write(b"rows")
    upload.close()

    upload.discard()

    assert store == {}


def test_closed_file_takes_no_rows(store: Store) -> None:
    """Rows would be written to nowhere without a word."""
    upload = StoredUpload(store)
    upload.close()

    with pytest.raises(ValueError, match="it is closed"):
        upload.write(b"rows")
