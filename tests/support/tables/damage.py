"""Damages a table of the embedded catalog in one place, so that all else still agrees."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from support.tables.metadata import identity
from support.tables.sink import Sink, local

from iceberg_ds.inspect.contents import read_contents
from iceberg_ds.inspect.metadata_checks import ManifestTally, expected_summary
from iceberg_ds.snapshots.manifests import ManifestDraft, all_entries, write_list, write_manifests
from iceberg_ds.snapshots.version_3 import ManifestList, read_list

Json = dict[str, Any]


def edit_metadata(sink: Sink, edit: Callable[[Json], None]) -> None:
    """Change the table's current metadata file in place."""
    path = local(sink.table().metadata_location)
    document: Json = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def edit_summary(sink: Sink, position: int, **changed: str | None) -> None:
    """Change entries of the summary of a snapshot, by its position; None takes one out, `_` stands for `-`."""

    def edit(document: Json) -> None:
        summary = document["snapshots"][position]["summary"]
        for name, value in changed.items():
            key = name.replace("_", "-").replace("-dot-", ".")
            summary.pop(key, None)
            if value is not None:
                summary[key] = value

    edit_metadata(sink, edit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The newest snapshot of branch `main`, and what it lists."""

    table: Table
    snapshot: Snapshot
    manifests: list[ManifestFile]

    @classmethod
    def of(cls, sink: Sink) -> Listing:
        """Read the listing as it is."""
        table = sink.table()
        snapshot = table.current_snapshot()
        assert snapshot is not None
        manifests = list(read_list(table.io, ManifestList.of(snapshot)))
        return cls(table=table, snapshot=snapshot, manifests=manifests)


def header_bytes(content: bytes) -> int:
    """Return how many bytes the header of an Avro file has."""
    decoder = StreamingBinaryDecoder(content)
    construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    return decoder.tell()


def cut_off(path: str, *, behind_header: int = 0) -> None:
    """Cut off an Avro file behind its header, or so many bytes further on."""
    content = local(path).read_bytes()
    local(path).write_bytes(content[: header_bytes(content) + behind_header])


def edit_list(sink: Sink, edit: Callable[[list[ManifestFile]], list[ManifestFile]]) -> None:
    """Change the manifest list of the newest snapshot in place."""
    listing = Listing.of(sink)
    manifests = edit(listing.manifests)
    local(listing.snapshot.manifest_list).unlink()
    write_list(listing.table.io, listing.table.metadata, listing.snapshot, manifests)


def edit_entries(
    sink: Sink,
    edit: Callable[[list[ManifestEntry]], list[ManifestEntry]],
    content: ManifestContent = ManifestContent.DATA,
) -> None:
    """Change the entries of the newest snapshot's first manifest of data, or of deletes, in place.

    List and summary agree with them.
    """
    listing = Listing.of(sink)
    place = next(number for number, manifest in enumerate(listing.manifests) if manifest.content == content)
    first = listing.manifests[place]
    entries = edit(all_entries(listing.table.io, first))
    draft = ManifestDraft(
        path=first.manifest_path, spec_id=first.partition_spec_id, entries=tuple(entries), content=first.content
    )
    local(first.manifest_path).unlink()
    (written,) = write_manifests(listing.table.io, listing.table.metadata, [draft], identity())
    written.sequence_number, written.min_sequence_number = first.sequence_number, first.min_sequence_number
    written[6] = first.added_snapshot_id
    edit_list(sink, lambda manifests: [*manifests[:place], written, *manifests[place + 1 :]])
    _correct_summary(sink)


def leave_out_last_manifest(sink: Sink) -> None:
    """Let the newest snapshot no longer list one of its parent's manifests; its summary agrees."""
    edit_list(sink, lambda manifests: manifests[:-1])
    _correct_summary(sink)


def _correct_summary(sink: Sink) -> None:
    table = sink.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    contents = read_contents(table.io, table.metadata)
    listed = [ManifestTally(contents.manifests[used.manifest_path].entries) for used in snapshot.manifests(table.io)]
    expected = expected_summary(snapshot.snapshot_id, listed)

    def edit(document: Json) -> None:
        for found in document["snapshots"]:
            if found["snapshot-id"] == snapshot.snapshot_id:
                known = found["summary"]
                known.update({key: str(value) for key, value in expected.items() if key in known})

    edit_metadata(sink, edit)


def changed(entry: ManifestEntry, **numbers: Any) -> ManifestEntry:
    """Return the entry with some of its own values changed."""
    values = {
        "status": entry.status,
        "snapshot_id": entry.snapshot_id,
        "sequence_number": entry.sequence_number,
        "file_sequence_number": entry.file_sequence_number,
        "data_file": entry.data_file,
    }
    return ManifestEntry.from_args(**{**values, **numbers})
