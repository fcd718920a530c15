"""Manifests and manifest lists: the Avro files of one snapshot.

The only module that rests on PyIceberg's inner layout: the positions of `ManifestFile`'s fields and the
Avro writer (contract tests hold both). Entries are written many to an Avro block, which makes a
manifest a quarter of what one block per entry does. Source: Iceberg spec, "Manifests" and "Manifest
Lists"; sequence numbers are inherited, so a manifest is written once and used in every attempt.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, AvroCompressionCodec
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    UNASSIGNED_SEQ,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import TableVersion
from pyiceberg.types import NestedField

from iceberg_ds.messages import WriteIdentity

_BLOCK_ENTRIES = 500
_AVRO_CODEC_PROPERTY = "write.avro.compression-codec"
# Iceberg's names of codecs that need nothing installed; others fall back to the first.
_AVRO_CODECS: dict[str, AvroCompressionCodec] = {"gzip": "deflate", "zstd": "zstandard", "uncompressed": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDraft:
    """A manifest to write.

    Attributes:
        path: Where it goes.
        spec_id: The partition spec that its files share.
        entries: What it lists, each with its status.
        content: Whether these are data files or delete files.
    """

    path: str
    spec_id: int
    entries: tuple[ManifestEntry, ...]
    content: ManifestContent = ManifestContent.DATA


def draft_added(
    metadata: TableMetadata, data_files: Iterable[DataFile], write: WriteIdentity, name: str = "m"
) -> list[ManifestDraft]:
    """Return the manifests that add `data_files`, one for each partition spec among them.

    Args:
        metadata: The table.
        data_files: What to add.
        write: The write that adds them.
        name: Tells these manifests from others of the same write.
    """
    by_spec: dict[int, list[DataFile]] = defaultdict(list)
    for data_file in data_files:
        by_spec[data_file.spec_id].append(data_file)
    return [
        ManifestDraft(
            path=metadata_path(metadata, f"{write.operation_id}-{name}{number}.avro"),
            spec_id=spec_id,
            entries=tuple(_added(data_file, write.snapshot_id) for data_file in files),
        )
        for number, (spec_id, files) in enumerate(sorted(by_spec.items()))
    ]


def draft_filtered(
    path: str, manifest: ManifestFile, kept: Iterable[ManifestEntry], dropped: Iterable[ManifestEntry], snapshot_id: int
) -> ManifestDraft:
    """Return the manifest that takes the place of `manifest` in a snapshot that drops some of its files.

    Args:
        path: Where it goes.
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


def _with_status(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def live_manifests(io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Return the manifests of `snapshot` that list a live file; none if there is no snapshot."""
    if snapshot is None:
        return []
    return [
        manifest for manifest in snapshot.manifests(io) if manifest.has_added_files() or manifest.has_existing_files()
    ]


def write_manifests(
    io: FileIO, metadata: TableMetadata, drafts: Sequence[ManifestDraft], write: WriteIdentity
) -> list[ManifestFile]:
    """Write the manifests. Sequence numbers of what they add are left to the commit that lands.

    Args:
        io: Opens the table's storage.
        metadata: The table.
        drafts: What to write.
        write: The write that adds them.
    """
    return [_write_manifest(io.new_output(draft.path), metadata, draft, write.snapshot_id) for draft in drafts]


def _write_manifest(
    output: OutputFile, metadata: TableMetadata, draft: ManifestDraft, snapshot_id: int
) -> ManifestFile:
    spec = metadata.specs()[draft.spec_id]
    sources = _sources(metadata, spec)
    with AvroOutputFile[ManifestEntry](
        output_file=output,
        file_schema=_entry_schema(metadata.format_version, spec, sources),
        record_schema=_entry_schema(DEFAULT_READ_VERSION, spec, sources),
        schema_name="manifest_entry",
        metadata=_manifest_properties(metadata, spec, draft.content),
    ) as writer:
        for block in _blocks(draft.entries):
            writer.write_block(block)
        length = writer.tell()
    counts = Counter(entry.status for entry in draft.entries)
    rows: Counter[ManifestEntryStatus] = Counter()
    for entry in draft.entries:
        rows[entry.status] += entry.data_file.record_count
    return ManifestFile.from_args(
        manifest_path=output.location,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=draft.content,
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=_lowest_sequence_number(draft.entries),
        added_snapshot_id=snapshot_id,
        added_files_count=counts[ManifestEntryStatus.ADDED],
        existing_files_count=counts[ManifestEntryStatus.EXISTING],
        deleted_files_count=counts[ManifestEntryStatus.DELETED],
        added_rows_count=rows[ManifestEntryStatus.ADDED],
        existing_rows_count=rows[ManifestEntryStatus.EXISTING],
        deleted_rows_count=rows[ManifestEntryStatus.DELETED],
        partitions=construct_partition_summaries(spec, sources, [entry.data_file.partition for entry in draft.entries]),
        key_metadata=None,
    )


def _lowest_sequence_number(entries: Iterable[ManifestEntry]) -> int:
    """Return the lowest data sequence number of files that stay, or that the commit gives it."""
    known = [entry.sequence_number for entry in entries if entry.status is ManifestEntryStatus.EXISTING]
    return min((number for number in known if number is not None), default=UNASSIGNED_SEQ)


def _sources(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """Return a schema of the columns that `spec` is computed from, as they are now, or were when they were dropped.

    All are optional, because partition fields are (spec, "Partitioning"), and null under a null struct or a void
    transform; PyIceberg takes the source's word for it.
    """
    oldest_first = [*sorted(metadata.schemas, key=lambda schema: schema.schema_id), metadata.schema()]
    types = {
        field.source_id: schema.find_type(field.source_id)
        for schema in oldest_first
        for field in spec.fields
        if field.source_id in schema.field_ids
    }
    return Schema(*(NestedField(number, f"source_{number}", kind, required=False) for number, kind in types.items()))


def _entry_schema(format_version: TableVersion, spec: PartitionSpec, sources: Schema) -> Schema:
    data_file = data_file_with_partition(format_version=format_version, partition_type=spec.partition_type(sources))
    return manifest_entry_schema_with_data_file(format_version=format_version, data_file=data_file)


def _manifest_properties(metadata: TableMetadata, spec: PartitionSpec, content: ManifestContent) -> dict[str, str]:
    fields = ",".join(field.model_dump_json() for field in spec.fields)
    properties = {
        "schema": metadata.schema().model_dump_json(),
        "partition-spec": f"[{fields}]",
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(metadata.format_version),
        AVRO_CODEC_KEY: _avro_codec(metadata),
    }
    # Manifests of version 1 say a plain number.
    kind = "data" if content == ManifestContent.DATA else "deletes"
    return properties if metadata.format_version == 1 else {**properties, "content": kind}


def _added(data_file: DataFile, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=data_file,
    )


def _blocks(entries: Iterable[ManifestEntry]) -> Iterator[list[ManifestEntry]]:
    remaining = iter(entries)
    while block := list(itertools.islice(remaining, _BLOCK_ENTRIES)):
        yield block


def write_list(io: FileIO, metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> None:
    """Write the manifest list of `snapshot`.

    Args:
        io: Opens the table's storage.
        metadata: The table that the snapshot is decided for.
        snapshot: The snapshot; it says where the list goes.
        manifests: All its manifests, new and kept; they are left as they are, for another attempt.
    """
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=io.new_output(snapshot.manifest_list),
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number,
        avro_compression=_avro_codec(metadata),
    ) as writer:
        # PyIceberg's writer fills sequence numbers into the very objects it is given.
        writer.add_manifests([_copy(manifest) for manifest in manifests])


def _copy(manifest: ManifestFile) -> ManifestFile:
    return ManifestFile(*(manifest[position] for position in range(len(manifest))))


def manifest_paths(io: FileIO, snapshot: Snapshot) -> set[str]:
    """Return the paths of all manifests of `snapshot`."""
    return {manifest.manifest_path for manifest in snapshot.manifests(io)}


def metadata_path(metadata: TableMetadata, file_name: str) -> str:
    """Return where a metadata file of that name goes."""
    return load_location_provider(metadata.location, metadata.properties).new_metadata_location(file_name)


def _avro_codec(metadata: TableMetadata) -> AvroCompressionCodec:
    return _AVRO_CODECS.get(metadata.properties.get(_AVRO_CODEC_PROPERTY, "gzip").lower(), "deflate")
