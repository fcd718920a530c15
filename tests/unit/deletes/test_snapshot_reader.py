"""Which manifests are read to know the files of a snapshot."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from support.tables.changes_by_others import head_of
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_ids, entries
from support.tables.sink import Sink

from iceberg_ds.deletes import search
from iceberg_ds.deletes.search import ReadSnapshot, SnapshotReader
from iceberg_ds.io.known_files import KnownFiles
from iceberg_ds.snapshots.manifests import copy_of, live_manifests
from iceberg_ds.snapshots.refs import find_snapshot

_SEQUENCE_NUMBER = 4  # its place in an entry of a manifest list


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of the manifests that are read from here on."""
    found: list[str] = []
    inner = search.live_entries

    def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
        found.append(manifest.manifest_path)
        return inner(io, manifest)

    monkeypatch.setattr(search, "live_entries", live_entries)
    return found


def snapshot_of(sink: Sink, reader: SnapshotReader | None = None) -> ReadSnapshot:
    """Return what a new reader reads of the head, or the one that is given."""
    table = sink.table()
    return (reader or SnapshotReader()).read(table.io, find_snapshot(table.metadata, head_of(sink)))


def files_of(found: ReadSnapshot) -> set[str]:
    """Return the paths of all live files."""
    return {entry.data_file.file_path for listed in found.manifests.values() for entry in listed}


def test_manifests_that_earlier_epochs_read_are_not_read_again(sink: Sink, read: list[str]) -> None:
    """Each epoch would take longer, by one request for each epoch before it."""
    for number in range(3):
        sink.append(number)
    snapshot_of(sink)
    delete_ids(sink, 1)

    found = snapshot_of(sink)

    assert len(read) == len(set(read)) == len(found.manifests) == 4
    assert files_of(found) == {entry.data_file.file_path for entry in entries(sink)}
    rewrite(sink, rewrite_all="true")
    assert files_of(snapshot_of(sink)) == {entry.data_file.file_path for entry in entries(sink)}


def test_manifest_that_is_listed_with_another_number_is_read_again(
    sink: Sink, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files would have the numbers of another snapshot, and deletes would hide other rows."""
    sink.append(1)
    (before,) = snapshot_of(sink).files.data

    def renumbered(*given: object) -> Sequence[ManifestFile]:
        (manifest,) = (copy_of(one) for one in live_manifests(*given))  # type: ignore[arg-type]  # as they are
        manifest[_SEQUENCE_NUMBER] = 9
        return [manifest]

    monkeypatch.setattr(search, "live_manifests", renumbered)
    (after,) = snapshot_of(sink).files.data

    assert (before.sequence_number, after.sequence_number) == (1, 9)
    assert len(read) == 2


def test_only_so_many_entries_are_kept(sink: Sink, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that looks for rows of large tables would need more and more memory."""
    for number in range(3):
        sink.append(number)
    monkeypatch.setattr(search, "_KNOWN_ENTRIES", KnownFiles(re.compile(""), lambda _: 1, 2))
    reader = SnapshotReader()
    snapshot_of(sink, reader)
    assert len(read) == 3

    snapshot_of(sink, reader)  # which keeps what it needs by itself
    assert len(read) == 3
    snapshot_of(sink)
    assert len(read) == 4
