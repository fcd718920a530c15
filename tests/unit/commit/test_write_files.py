"""The files of a write: none is overlooked, be it of rows or of deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.checks.invariants import stored_files
from support.keys.messages import with_deletes
from support.tables.sink import Sink, local, paths_of, rows

from iceberg_ds.commit.producer import SnapshotProducer
from iceberg_ds.commit.write_files import Added
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.writers import reporting

IO = LocalFileIO()


def test_files_of_deletes_are_found_with_those_of_rows(sink: Sink) -> None:
    """A write that is given up would leave its deletes behind."""
    messages = [with_deletes(message) for message in sink.write(rows(1, 2), rows(3))]
    added = Added.of(messages)

    assert set(paths_of(messages)) == stored_files(sink.plan().location)
    assert {path for path, _ in added.told_sizes()} == set(added.every_path(IO))
    assert set(SnapshotProducer(messages[0].write, added).all_paths(IO)) == set(added.every_path(IO))
    assert added.file_count == len(added.files) == 4


def test_deletes_are_no_rows(sink: Sink) -> None:
    """The record of an epoch would tell of rows that it does not have."""
    (message,) = sink.write(rows(1, 2))
    (data_file,) = message.data_files
    added = Added.of([with_deletes(message)])

    assert added.record_count == 2
    assert added.size_bytes == data_file.file_size_in_bytes + 7


def test_write_of_deletes_alone_is_something(sink: Sink) -> None:
    """An epoch that only deletes would be dropped, or its files be left behind."""
    (message,) = sink.write(rows(1))
    (delete_file,) = with_deletes(message).delete_files
    delete_file.spec_id = 3
    added = Added.of([replace(message, data_files=(), delete_files=(delete_file,))])

    assert added
    assert added.any_path() == delete_file.file_path
    assert added.spec_ids == {3}
    assert added.record_count == 0


def test_files_that_manifests_name_are_read_and_deletes_stay(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted rows would come back in a table that was upgraded meanwhile."""
    (singly,) = sink.write(rows(1, 2))
    deleting = with_deletes(singly)
    monkeypatch.setattr(reporting, "MANY_FILES", 1)
    (by_manifest,) = sink.write(rows(3))
    added = Added.of([deleting, by_manifest])

    found = added.one_by_one(IO)

    assert found.manifests == ()
    assert found.delete_files == deleting.delete_files
    assert sorted(file.record_count for file in found.data_files) == [1, 2]
    assert all(local(file.file_path).exists() for file in found.files)
