"""One manifest: what it lists, and how it is written, by a task or by the commit.

Rests on PyIceberg's inner layout: the positions of `ManifestFile`'s fields (a contract test holds them). Many entries
share an Avro block, which makes a manifest a quarter of its size with one block per entry. Source: Iceberg spec,
"Manifests"; sequence numbers are inherited, so a manifest is written once and used in every attempt.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast
from uuid import UUID

from pyiceberg.avro.codecs import AVRO_CODEC_KEY, AvroCompressionCodec
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    construct_partition_summaries,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, TruncateTransform, UnknownTransform
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UnknownType,
    UUIDType,
)

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.plan import ManifestLayout
from iceberg_ds.snapshots.avro_files import AvroEncoding, AvroWriter
from iceberg_ds.snapshots.version_3 import VERSION_3, known_first_row_id, with_all_fields

_BLOCK_ENTRIES = 500
_KNOWN_ENCODINGS = 32  # one for each partition spec and format version
# PyIceberg has a list of longs, which Iceberg's Java library cannot read; the spec has a list of ints.
_EQUALITY_IDS = NestedField(
    field_id=135,
    name="equality_ids",
    field_type=ListType(element_id=136, element_type=IntegerType(), element_required=True),
    required=False,
    doc="Field ids used to determine row equality in equality delete files.",
)
# Of values of partition fields, by their types in Python: nulls alone fit every type.
_TYPES: Mapping[type, IcebergType] = {
    type(None): IntegerType(),
    bool: BooleanType(),
    int: LongType(),
    float: DoubleType(),
    str: StringType(),
    bytes: BinaryType(),
    UUID: UUIDType(),
}
_MOST_DIGITS = 38  # of a decimal
_AVRO_CODEC_PROPERTY = "write.avro.compression-codec"
# Iceberg's names of the codecs that need no installation; other codecs fall back to the first.
_AVRO_CODECS: dict[str, AvroCompressionCodec] = {"gzip": "deflate", "zstd": "zstandard", "uncompressed": "null"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDraft:
    """A manifest to write.

    Attributes:
        path: Path of the manifest.
        spec_id: Id of the partition spec that its files share.
        entries: The entries that it lists, each with its status.
        content: Whether these are data files or delete files.
    """

    path: str
    spec_id: int
    entries: tuple[ManifestEntry, ...]
    content: ManifestContent = ManifestContent.DATA


def added_entry(data_file: DataFile, snapshot_id: int, sequence_number: int | None = None) -> ManifestEntry:
    """Return the entry by which a snapshot adds a file; the commit that lands gives it its sequence numbers.

    Args:
        data_file: The file.
        snapshot_id: The snapshot.
        sequence_number: Data sequence number of a file whose rows are older than the snapshot; else None.
    """
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        file_sequence_number=None,
        data_file=with_all_fields(data_file),
    )


def layout_of(metadata: TableMetadata, spec_id: int) -> ManifestLayout:
    """Return how manifests of this partition spec are written."""
    spec = metadata.specs()[spec_id]
    return ManifestLayout(
        format_version=metadata.format_version,
        schema=metadata.schema(),
        spec=spec,
        sources=_sources(metadata, spec),
        avro_codec=avro_codec(metadata.properties),
    )


def avro_codec(properties: Mapping[str, str]) -> AvroCompressionCodec:
    """Return Avro's name of the codec that a table's properties ask for."""
    return _AVRO_CODECS.get(properties.get(_AVRO_CODEC_PROPERTY, "gzip").lower(), "deflate")


def write_manifest(io: FileIO, layout: ManifestLayout, draft: ManifestDraft, snapshot_id: int) -> ManifestFile:
    """Write a manifest and return its entry in a manifest list.

    The commit that lands assigns the sequence numbers and row ids of the files that it adds.

    Args:
        io: Opens the table's storage.
        layout: The layout for the draft's partition spec.
        draft: What to write.
        snapshot_id: The snapshot that adds the manifest.

    Raises:
        UnsupportedTableError: A partition field has a transform that is not known, and values of a type of its own.
    """
    spec, version = layout.spec, cast("TableVersion", layout.format_version)
    partitions = [entry.data_file.partition for entry in draft.entries]
    _check_known(spec, partitions)
    sources = Schema(*layout.sources, *_forgotten_sources(layout, partitions))
    output = io.new_output(draft.path)
    encoding = _entry_encoding(version, spec.partition_type(sources))
    with AvroWriter[ManifestEntry](output, encoding, _manifest_properties(layout, draft.content)) as writer:
        for block in _blocks(draft.entries):
            writer.write_block(block)
        length = writer.tell()
    counts = Counter(entry.status for entry in draft.entries)
    rows: Counter[ManifestEntryStatus] = Counter()
    for entry in draft.entries:
        rows[entry.status] += entry.data_file.record_count
    is_data = draft.content == ManifestContent.DATA
    return ManifestFile.from_args(
        VERSION_3,
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
        partitions=construct_partition_summaries(spec, sources, partitions),
        key_metadata=None,
        first_row_id=known_first_row_id(draft.entries) if is_data else None,
    )


def _check_known(spec: PartitionSpec, partitions: Sequence[Record]) -> None:
    """Refuse values of a transform that is not known, unless they are text, for which PyIceberg takes them."""
    for position, field in enumerate(spec.fields):
        if not isinstance(field.transform, UnknownTransform):
            continue
        if any(not isinstance(partition[position], str | None) for partition in partitions):
            raise UnsupportedTableError(
                f"Cannot write a manifest of partition spec {spec.spec_id}: its field '{field.name}' has the transform "
                f"'{field.transform}', which is not known here, so neither is the type of its values. Appends and "
                "reads go on; let the engine that knows the transform change or compact the files of this spec."
            )


def _lowest_sequence_number(entries: Iterable[ManifestEntry]) -> int:
    """Return the lowest data sequence number of the live files, or that the commit assigns it if no file has one."""
    known = [entry.sequence_number for entry in entries if entry.status is not ManifestEntryStatus.DELETED]
    return min((number for number in known if number is not None), default=UNASSIGNED_SEQ)


def _sources(metadata: TableMetadata, spec: PartitionSpec) -> tuple[NestedField, ...]:
    """Return the columns that `spec` is computed from, as they are now, or were when they were dropped.

    Columns that no schema has any more, or that have no values, are left out. All are optional, because partition
    fields are optional (spec, "Partitioning"), and null under a null struct or a void transform; PyIceberg relies on
    what the source column says.
    """
    oldest_first = [*sorted(metadata.schemas, key=lambda schema: schema.schema_id), metadata.schema()]
    types = {
        field.source_id: schema.find_type(field.source_id)
        for schema in oldest_first
        for field in spec.fields
        if field.source_id in schema.field_ids
    }
    return tuple(_source(number, kind) for number, kind in types.items() if not isinstance(kind, UnknownType))


def _source(number: int, kind: IcebergType) -> NestedField:
    return NestedField(number, f"source_{number}", kind, required=False)


def _forgotten_sources(layout: ManifestLayout, partitions: Sequence[Record]) -> list[NestedField]:
    """Return a source for each field of the spec that has none, of a type that holds the field's values.

    A field without a type would make an Avro union of two nulls, which no reader opens. Readers do not take the type
    from here: for them it is unknown, too.
    """
    known = {source.field_id for source in layout.sources}
    forgotten: dict[int, list[int]] = {}
    for position, field in enumerate(layout.spec.fields):
        if field.source_id not in known:
            # The values of other transforms have a type of their own.
            holds_source = isinstance(field.transform, (IdentityTransform, TruncateTransform))
            forgotten.setdefault(field.source_id, []).extend([position] if holds_source else [])
    return [
        _source(number, _type_of(partition[position] for partition in partitions for position in positions))
        for number, positions in forgotten.items()
    ]


def _type_of(values: Iterable[Any]) -> IcebergType:
    value = next((value for value in values if value is not None), None)
    if isinstance(value, Decimal):
        return DecimalType(_MOST_DIGITS, -int(value.as_tuple().exponent))
    return _TYPES[type(value)]


@lru_cache(_KNOWN_ENCODINGS)
def _entry_encoding(format_version: TableVersion, partition: StructType) -> AvroEncoding:
    file, record = (_entry_schema(version, partition) for version in (format_version, VERSION_3))
    return AvroEncoding.of("manifest_entry", file, record)


def _entry_schema(format_version: TableVersion, partition: StructType) -> Schema:
    data_file = data_file_with_partition(format_version=format_version, partition_type=partition)
    fields = (_EQUALITY_IDS if field.field_id == _EQUALITY_IDS.field_id else field for field in data_file.fields)
    return manifest_entry_schema_with_data_file(format_version=format_version, data_file=StructType(*fields))


def _manifest_properties(layout: ManifestLayout, content: ManifestContent) -> dict[str, str]:
    fields = ",".join(field.model_dump_json() for field in layout.spec.fields)
    properties = {
        "schema": layout.schema.model_dump_json(),
        "partition-spec": f"[{fields}]",
        "partition-spec-id": str(layout.spec.spec_id),
        "format-version": str(layout.format_version),
        AVRO_CODEC_KEY: layout.avro_codec,
    }
    # Manifests of version 1 have a plain number.
    kind = "data" if content == ManifestContent.DATA else "deletes"
    return properties if layout.format_version == 1 else {**properties, "content": kind}


def _blocks(entries: Iterable[ManifestEntry]) -> Iterator[list[ManifestEntry]]:
    remaining = iter(entries)
    while block := list(itertools.islice(remaining, _BLOCK_ENTRIES)):
        yield block
