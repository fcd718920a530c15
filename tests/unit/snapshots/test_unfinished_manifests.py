"""Manifests and manifest lists whose writing fails: nothing of them appears in an object store."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField
from support.tables.metadata import identity
from support.tables.sink import Sink

from iceberg_ds.io.stores import Blocks, ObjectStore, StoreFileIO
from iceberg_ds.snapshots import manifest_file, manifests
from iceberg_ds.snapshots.manifests import draft_added, metadata_path, write_list, write_manifests
from iceberg_ds.snapshots.snapshot import new_snapshot
from iceberg_ds.snapshots.version_3 import VERSION_3

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
VERSIONS = [1, 2, 3]


@dataclass
class Shelf(ObjectStore):
    """An object store in memory.

    Attributes:
        objects: What has appeared, by location.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    block_bytes = 8 << 20

    def put(self, location: str, data: io.BytesIO, *, if_absent: bool) -> None:
        """Make an object appear."""
        assert not if_absent
        self.objects[location] = data.getvalue()

    def begin(self, location: str, *, if_absent: bool) -> Blocks:
        """Refuse objects of several blocks."""
        raise NotImplementedError

    def get(self, location: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes of an object."""
        return self.objects[location][start:end]

    def size(self, location: str) -> int:
        """Return the size of an object."""
        return len(self.objects[location])

    def delete(self, location: str) -> None:
        """Remove an object."""
        del self.objects[location]


class ShelfIO(StoreFileIO):
    """Opens files of a shelf."""

    def __init__(self) -> None:
        super().__init__({})
        self.shelf = Shelf()

    def _store(self, _location: str) -> ObjectStore:
        return self.shelf


class Broken(BaseException):
    """Ends a process, as an interrupt does."""


def metadata_of_version(version: int) -> TableMetadata:
    """Return an empty table in an object store."""
    properties = {"format-version": str(version)}
    made = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "shelf://b/t", properties)
    return made.model_copy(update={"next_row_id": 0}) if version == VERSION_3 else made


@pytest.mark.parametrize("version", VERSIONS)
def test_manifest_whose_writing_breaks_off_does_not_appear(
    sink: Sink, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest that ends in the middle would stand in the table's folder, with every file that it should list."""
    files = [file for message in sink.write([{"id": 1}], [{"id": 2}]) for file in message.data_files]
    metadata, shelf = metadata_of_version(version), ShelfIO()
    drafts = draft_added(metadata, files, identity())

    def first_alone(entries: Sequence[ManifestEntry]) -> Iterator[list[ManifestEntry]]:
        yield list(entries[:1])
        raise Broken

    monkeypatch.setattr(manifest_file, "_blocks", first_alone)
    with pytest.raises(Broken):
        write_manifests(shelf, metadata, drafts, identity())

    assert shelf.shelf.objects == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_manifest_list_whose_writing_breaks_off_does_not_appear(
    sink: Sink, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list without some of its manifests would hide their rows, should anything name it."""
    files = [file for message in sink.write([{"id": 1}]) for file in message.data_files]
    metadata, shelf = metadata_of_version(version), ShelfIO()
    (manifest,) = write_manifests(shelf, metadata, draft_added(metadata, files, identity()), identity())
    snapshot = new_snapshot(metadata, identity(), Operation.APPEND, {}, metadata_path(metadata, "snap-1.avro"))

    def breaking(_manifest: ManifestFile) -> ManifestFile:
        raise Broken

    monkeypatch.setattr(manifests, "copy_of", breaking)
    monkeypatch.setattr(manifests, "_write_blocks", lambda *_: breaking(manifest))
    with pytest.raises(Broken):
        write_list(shelf, metadata, snapshot, [manifest])

    assert list(shelf.shelf.objects) == [manifest.manifest_path]
