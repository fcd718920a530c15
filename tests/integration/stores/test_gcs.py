"""Google Cloud Storage through gcsfs, against a small store of our own that speaks its JSON interface.

Shows what is sent and what appears; not run against Google's own store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.io import FileIO
from support.gcs_fake import FakeGcs, serve_gcs
from support.tables import NAME, Sink, rows

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.io.files import ObjectIO
from iceberg_ds.options.parse import parse_options

BLOCK = 8 * 1024 * 1024
LOCATION = "gs://bucket/folder/x"


@pytest.fixture
def store() -> Iterator[FakeGcs]:
    """Return an empty store."""
    with serve_gcs() as fake:
        yield fake


def write_half(io: FileIO, data: bytes) -> None:
    """Begin a file, and fail."""
    with io.new_output(LOCATION).create(overwrite=True) as stream:
        stream.write(data)
        raise KeyError


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 7])
def test_bytes_come_back_as_they_were_written(store: FakeGcs, size: int) -> None:
    """A file of a certain size would be corrupt."""
    io, data = ObjectIO(store.properties), os.urandom(size)
    with io.new_output(LOCATION).create(overwrite=True) as stream:
        stream.write(data)
    with io.new_input(LOCATION).open() as source:
        assert source.read() == data

    assert len(io.new_input(LOCATION)) == size
    assert store.sessions == {}


def test_small_file_takes_one_request_to_write_and_one_to_read(store: FakeGcs) -> None:
    """Each commit would take longer and cost more."""
    io = ObjectIO(store.properties)
    with io.new_output(LOCATION).create(overwrite=True) as stream:
        stream.write(b"{}")
    with io.new_input(LOCATION).open() as source:
        source.read()

    assert store.requests == ["POST multipart", "GET media"]


@pytest.mark.parametrize("written", [10, 2 * BLOCK])
def test_error_while_writing_leaves_neither_object_nor_upload(store: FakeGcs, written: int) -> None:
    """A truncated file would lie in the table's folder."""
    with pytest.raises(KeyError):
        write_half(ObjectIO(store.properties), bytes(written))

    assert store.objects == {}
    assert store.sessions == {}


@pytest.mark.parametrize("written", [10, 2 * BLOCK])
def test_stream_that_is_forgotten_leaves_neither_object_nor_upload(store: FakeGcs, written: int) -> None:
    """A truncated file would appear when Python collects a stream that nobody closed."""
    stream = ObjectIO(store.properties).new_output(LOCATION).create(overwrite=True)
    stream.write(bytes(written))
    del stream

    assert store.objects == {}
    assert store.sessions == {}


def test_file_that_is_given_up_after_its_end_is_deleted(store: FakeGcs) -> None:
    """Files of failed tasks would fill the bucket."""
    stream = ObjectIO(store.properties).new_output(LOCATION).create(overwrite=True)
    stream.write(b"x")
    stream.close()
    stream.discard()  # type: ignore[attr-defined]  # ours has it

    assert store.objects == {}


def test_existing_object_is_not_overwritten_without_leave(store: FakeGcs) -> None:
    """Two writers of one metadata file would both believe that it is theirs."""
    io = ObjectIO(store.properties)
    with io.new_output(LOCATION).create() as stream:
        stream.write(b"x")

    with pytest.raises(FileExistsError), io.new_output(LOCATION).create() as stream:
        stream.write(b"y")
    assert list(store.objects.values()) == [b"x"]


def test_token_is_sent(store: FakeGcs) -> None:
    """The store would not know who asks, or be asked as whoever the machine belongs to."""
    ObjectIO(store.properties).new_input(LOCATION).exists()

    assert store.tokens == {"of-the-user"}


def test_table_is_written_and_read_back(store: FakeGcs, tmp_path: Path) -> None:
    """A user could not write to Google Cloud Storage at all."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": "gs://bucket/wh",
        **store.properties,
    }
    options = parse_options(
        {"table": NAME, "catalog": "gcs", **{f"catalog.{key}": value for key, value in catalog.items()}}
    )
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    sink.append(1, 2)
    sink.overwrite(rows(3))
    asked = set(store.requests)

    assert sink.ids() == [3]
    assert asked == {"POST multipart", "GET media"}
