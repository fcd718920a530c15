"""Manifests and manifest lists: the Avro files of one snapshot.

The only module that rests on PyIceberg's inner layout: the positions of `ManifestFile`'s fields and the
Avro writer (contract tests hold both). Entries are written many to an Avro block, which makes a
manifest a quarter of what one block per entry does. Source: Iceberg spec, "Manifests" and "Manifest
Lists"; sequence numbers are inherited, so a manifest is written once and used in every attempt.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
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
from pyiceberg.types import NestedField, StructType

from iceberg_ds.messages import WriteIdentity

_BLOCK_ENTRIES = 500
_AVRO_CODEC_PROPERTY = "write.avro.compression-codec"
# Iceberg's names of codecs that need nothing installed; others fall back to the first.
_AVRO_CODECS: dict[str, AvroCompressionCodec] = {"gzip": "deflate", "zstd": "zstandard", "uncompressed": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDraft:
    """A manifest to write: its path, the partition spec that its files share, and the files."""

    path: str
    spec_id: int
    data_files: tuple[DataFile, ...]


def draft_manifests(
    metadata: TableMetadata, data_files: Sequence[DataFile], write: WriteIdentity
) -> list[ManifestDraft]:
    """Return the manifests that add `data_files`, one for each partition spec among them."""
    by_spec: dict[int, list[DataFile]] = defaultdict(list)
    for data_file in data_files:
        by_spec[data_file.spec_id].append(data_file)
    return [
        ManifestDraft(
            path=metadata_path(metadata, f"{write.operation_id}-m{number}.avro"),
            spec_id=spec_id,
            data_files=tuple(files),
        )
        for number, (spec_id, files) in enumerate(sorted(by_spec.items()))
    ]


def write_manifests(
    io: FileIO, metadata: TableMetadata, drafts: Sequence[ManifestDraft], write: WriteIdentity
) -> list[ManifestFile]:
    """Write the manifests. Sequence numbers are left to the commit that lands.

    Args:
        io: Opens the table's storage.
        metadata: The table.
        drafts: What to write, as `draft_manifests` gives it.
        write: The write that adds the files.
    """
    specs = metadata.specs()
    return [
        _write_manifest(io.new_output(draft.path), metadata, specs[draft.spec_id], draft.data_files, write.snapshot_id)
        for draft in drafts
    ]


def _write_manifest(
    output: OutputFile, metadata: TableMetadata, spec: PartitionSpec, files: Sequence[DataFile], snapshot_id: int
) -> ManifestFile:
    schema = metadata.schema()
    codec = _avro_codec(metadata)
    with AvroOutputFile[ManifestEntry](
        output_file=output,
        file_schema=_entry_schema(metadata.format_version, spec, schema),
        record_schema=_entry_schema(DEFAULT_READ_VERSION, spec, schema),
        schema_name="manifest_entry",
        metadata=_manifest_properties(metadata.format_version, spec, schema, codec),
    ) as writer:
        for block in _blocks(files):
            writer.write_block([_added(data_file, snapshot_id) for data_file in block])
        length = writer.tell()
    return ManifestFile.from_args(
        manifest_path=output.location,
        manifest_length=length,
        partition_spec_id=spec.spec_id,
        content=ManifestContent.DATA,
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=UNASSIGNED_SEQ,
        added_snapshot_id=snapshot_id,
        added_files_count=len(files),
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=sum(data_file.record_count for data_file in files),
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=construct_partition_summaries(spec, schema, [data_file.partition for data_file in files]),
        key_metadata=None,
    )


def _entry_schema(format_version: TableVersion, spec: PartitionSpec, schema: Schema) -> Schema:
    # Partition fields are optional in the spec, and null under a null struct or a void transform; PyIceberg takes
    # the source's word for it.
    fields = spec.partition_type(schema).fields
    partition_type = StructType(
        *(NestedField(field.field_id, field.name, field.field_type, required=False) for field in fields)
    )
    data_file = data_file_with_partition(format_version=format_version, partition_type=partition_type)
    return manifest_entry_schema_with_data_file(format_version=format_version, data_file=data_file)


def _manifest_properties(
    format_version: TableVersion, spec: PartitionSpec, schema: Schema, codec: AvroCompressionCodec
) -> dict[str, str]:
    fields = ",".join(field.model_dump_json() for field in spec.fields)
    properties = {
        "schema": schema.model_dump_json(),
        "partition-spec": f"[{fields}]",
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(format_version),
        AVRO_CODEC_KEY: codec,
    }
    return properties if format_version == 1 else {**properties, "content": "data"}


def _added(data_file: DataFile, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=data_file,
    )


def _blocks(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    remaining = iter(files)
    while block := list(itertools.islice(remaining, _BLOCK_ENTRIES)):
        yield block


def write_list(io: FileIO, metadata: TableMetadata, snapshot: Snapshot, added: Sequence[ManifestFile]) -> None:
    """Write the manifest list of `snapshot`: the manifests it adds, then those of its parent.

    Args:
        io: Opens the table's storage.
        metadata: The table that the snapshot is decided for.
        snapshot: The snapshot; it says where the list goes.
        added: Manifests that the snapshot adds; they are left as they are, for another attempt.
    """
    parent_id = snapshot.parent_snapshot_id
    parent = metadata.snapshot_by_id(parent_id) if parent_id is not None else None
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=io.new_output(snapshot.manifest_list),
        snapshot_id=snapshot.snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=snapshot.sequence_number,
        avro_compression=_avro_codec(metadata),
    ) as writer:
        # PyIceberg's writer fills sequence numbers into the very objects it is given.
        writer.add_manifests([_copy(manifest) for manifest in added])
        if parent is not None and (kept := parent.manifests(io)):
            writer.add_manifests(kept)


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
