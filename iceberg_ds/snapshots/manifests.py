"""Manifests and manifest lists: the Avro files of one snapshot, written and read.

Rests on PyIceberg's inner layout: the positions of `ManifestFile`'s fields and the writer of lists (contract tests hold
both). Entries are not read by its fast Avro decoder, for two reasons. It cuts doubles to the digits of floats:
partitions would not be told apart, and entries that are written again would have wrong ones. And it does not know
the Avro types that a schema defines once and then names, as Iceberg's Java library writes several partition fields of
one decimal type, or of uuid. Source: Iceberg spec, "Manifests" and "Manifest Lists".
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroFile, AvroFileHeader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import TableVersion
from pyiceberg.types import DoubleType

from iceberg_ds.plan import WriteIdentity
from iceberg_ds.snapshots.manifest_file import ManifestDraft, added_entry, layout_of, write_manifest
from iceberg_ds.snapshots.manifest_lists import KNOWN_LISTS, copy_of
from iceberg_ds.table.locations import metadata_locations

_WITH_DELETION_VECTORS: TableVersion = 3
_POSITIONS = {field.field_id: position for position, field in enumerate(DATA_FILE_TYPE[_WITH_DELETION_VECTORS].fields)}
# Spec, "Manifests": content_offset and content_size_in_bytes.
_CONTENT_OFFSET, _CONTENT_SIZE = _POSITIONS[144], _POSITIONS[145]
_AVRO_SCHEMA = "avro.schema"
# The parts of an Avro schema that are types (Avro spec, "Complex Types").
_TYPES = frozenset({"type", "fields", "items", "values"})
_ADDED_SNAPSHOT_ID = 6


def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of `manifest` whose files are in the table, with inherited sequence numbers filled in."""
    entries = _entries(io, manifest, DEFAULT_READ_VERSION)
    live = [entry for entry in entries if entry.status is not ManifestEntryStatus.DELETED]
    return [_inherit_from_manifest(entry, manifest) for entry in live]


def all_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return all entries of `manifest`, removed files too, with inherited numbers filled in, as version 3 has them."""
    return [_inherit_from_manifest(entry, manifest) for entry in _entries(io, manifest, _WITH_DELETION_VECTORS)]


def deletion_vector(data_file: DataFile) -> tuple[int, int] | None:
    """Return offset and length, in bytes, of the deletion vector that an entry of `all_entries` names, or None."""
    offset, length = data_file[_CONTENT_OFFSET], data_file[_CONTENT_SIZE]
    return None if offset is None else (int(offset), int(length))


def _entries(io: FileIO, manifest: ManifestFile, version: TableVersion) -> list[ManifestEntry]:
    with _ManifestAvroFile(
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[version],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        return list(entries)


class _ManifestAvroFile(AvroFile[ManifestEntry]):
    """A manifest file with partition values of any types."""

    def _read_header(self) -> AvroFileHeader:
        header = super()._read_header()
        text = header.meta[_AVRO_SCHEMA]
        if '"fixed"' in text:
            header.meta[_AVRO_SCHEMA] = json.dumps(_spelled_out(json.loads(text), {}))
        return header

    @cached_property
    def _has_doubles(self) -> bool:
        return any(isinstance(self.schema.find_type(field_id), DoubleType) for field_id in self.schema.field_ids)

    def _read_block(self) -> int:
        count = super()._read_block()
        if self.block is not None and self._has_doubles:
            self.block.block_decoder = _ExactDecoder(self.block.block_decoder)  # type: ignore[assignment]  # quacks alike
        return count


def _spelled_out(schema: Any, known: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON
    """Return an Avro schema with the definitions of fixed types in place of their names.

    Args:
        schema: The schema, or a part of it.
        known: The definitions before it, by name; definitions in it are added.
    """
    if isinstance(schema, str):
        return known.get(schema, schema)
    if isinstance(schema, list):
        return [_spelled_out(part, known) for part in schema]
    if schema.get("type") == "fixed":
        known[schema["name"]] = schema
        return schema
    return {key: _spelled_out(part, known) if key in _TYPES else part for key, part in schema.items()}


class _ExactDecoder:
    """A decoder that reads doubles as the Avro spec defines them, and leaves all else to the inner decoder."""

    def __init__(self, inner: BinaryDecoder) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any attribute that the reader asks for
        return getattr(self._inner, name)

    def read_double(self) -> float:
        """Read eight bytes, the lowest first (Avro spec, "Primitive Types")."""
        (number,) = struct.unpack("<d", self._inner.read(8))
        return float(number)


def draft_added(  # noqa: PLR0913, PLR0917  # most are seldom given
    metadata: TableMetadata,
    data_files: Iterable[DataFile],
    write: WriteIdentity,
    name: str = "m",
    content: ManifestContent = ManifestContent.DATA,
    numbers: Mapping[str, int] = MappingProxyType({}),
) -> list[ManifestDraft]:
    """Return the manifests that add `data_files`, one for each partition spec among them.

    Args:
        metadata: The table.
        data_files: The files to add.
        write: The write that adds them.
        name: Tells these manifests from other manifests of the same write.
        content: Whether these are data files or delete files.
        numbers: Data sequence numbers, by path, of files whose rows are older than the snapshot.
    """
    by_spec: dict[int, list[DataFile]] = defaultdict(list)
    for data_file in data_files:
        by_spec[data_file.spec_id].append(data_file)
    return [
        ManifestDraft(
            path=metadata_path(metadata, f"{write.operation_id}-{name}{number}.avro"),
            spec_id=spec_id,
            entries=tuple(
                added_entry(data_file, write.snapshot_id, numbers.get(data_file.file_path)) for data_file in files
            ),
            content=content,
        )
        for number, (spec_id, files) in enumerate(sorted(by_spec.items()))
    ]


def draft_filtered(
    path: str, manifest: ManifestFile, kept: Iterable[ManifestEntry], dropped: Iterable[ManifestEntry], snapshot_id: int
) -> ManifestDraft:
    """Return the manifest that takes the place of `manifest` in a snapshot that drops some of its files.

    Args:
        path: Path of the new manifest.
        manifest: The manifest as it is.
        kept: Its live entries that stay, with the snapshot and sequence numbers that they have.
        dropped: Its live entries that the snapshot drops.
        snapshot_id: The snapshot.
    """
    existing = (_with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in kept)
    deleted = (_with_status(entry, ManifestEntryStatus.DELETED, snapshot_id) for entry in dropped)
    return ManifestDraft(
        path=path,
        spec_id=manifest.partition_spec_id,
        entries=(*existing, *deleted),
        content=manifest.content,
    )


def draft_merged(path: str, like: ManifestFile, entries: Iterable[ManifestEntry]) -> ManifestDraft:
    """Return the manifest that lists the live entries of several others, with their snapshots and sequence numbers.

    Args:
        path: Path of the new manifest.
        like: One of the merged manifests, which share their partition spec and their content.
        entries: The entries.
    """
    existing = (_with_status(entry, ManifestEntryStatus.EXISTING, entry.snapshot_id) for entry in entries)
    return ManifestDraft(
        path=path, spec_id=like.partition_spec_id, entries=tuple(existing), content=ManifestContent(like.content)
    )


def listed_by(manifest: ManifestFile, snapshot_id: int) -> ManifestFile:
    """Return the entry of a manifest in the list of the first snapshot that lists it."""
    entry = copy_of(manifest)
    entry[_ADDED_SNAPSHOT_ID] = snapshot_id
    return entry


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def live_manifests(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Return the manifests of `snapshot` that list a live file, none without one; callers must not change them."""
    return [] if snapshot is None else list(KNOWN_LISTS.live(io, snapshot.manifest_list))


def live_rows(manifest: ManifestFile) -> int | None:
    """Return how many rows, or deletes, the live files of a manifest have, or None if its list entry does not say."""
    added, existing = manifest.added_rows_count, manifest.existing_rows_count
    return None if added is None or existing is None else added + existing


def write_manifests(
    io: FileIO, metadata: TableMetadata, drafts: Sequence[ManifestDraft], write: WriteIdentity
) -> list[ManifestFile]:
    """Write the manifests; the commit that lands assigns the sequence numbers of what they add.

    Args:
        io: Opens the table's storage.
        metadata: The table.
        drafts: The manifests to write.
        write: The write that adds them.
    """
    layouts = {spec_id: layout_of(metadata, spec_id) for spec_id in {draft.spec_id for draft in drafts}}
    return [write_manifest(io, layouts[draft.spec_id], draft, write.snapshot_id) for draft in drafts]


def write_list(io: FileIO, metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> None:
    """Write the manifest list of `snapshot`.

    Args:
        io: Opens the table's storage.
        metadata: The table that the snapshot was made for.
        snapshot: The snapshot, which has the path of the list.
        manifests: All its manifests, new and kept; they are left unchanged, for another attempt.
    """
    KNOWN_LISTS.write(io, metadata, snapshot, manifests)


def manifest_paths(io: FileIO, snapshot: Snapshot) -> set[str]:
    """Return the paths of all manifests of `snapshot`."""
    return {manifest.manifest_path for manifest in snapshot.manifests(io)}


def metadata_path(metadata: TableMetadata, file_name: str) -> str:
    """Return the path for a metadata file of this name."""
    return metadata_locations(metadata.location, metadata.properties).new_metadata_location(file_name)
