"""Manifests and manifest lists of format version 3, which PyIceberg 0.12 describes but neither reads whole nor writes.

PyIceberg reads the fields of version 2 alone, and refuses to write version 3 (apache/iceberg-python#1551). So entries
are held with the fields of version 3 here, for tables of any version; writing leaves out what a version
does not have. What this module does goes once PyIceberg does it.

Rows of version 3 have ids. A snapshot gives each manifest of data files that has none the next free ids; the files that
the manifest adds inherit them in their order, and the rows of a file in theirs. Source: Iceberg spec, "Row Lineage" and
"First Row ID Inheritance".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DEFAULT_READ_VERSION,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV1,
    ManifestListWriterV2,
    PartitionFieldSummary,
)
from pyiceberg.table import CreateTableTransaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import IcebergBaseModel, TableVersion

from iceberg_ds.snapshots.avro_files import AvroEncoding, AvroLayout, AvroWriter, read_avro
from iceberg_ds.table.lineage import FileLineage

VERSION_3: TableVersion = 3
_POSITIONS = {field.field_id: position for position, field in enumerate(DATA_FILE_TYPE[VERSION_3].fields)}
# Spec, "Manifests": first_row_id, referenced_data_file, content_offset and content_size_in_bytes.
_FILE_FIRST_ROW_ID, _REFERENCED = _POSITIONS[142], _POSITIONS[143]
_SIZE = _POSITIONS[104]
_CONTENT_OFFSET, _CONTENT_SIZE = _POSITIONS[144], _POSITIONS[145]
_LIST_FIELDS = MANIFEST_LIST_FILE_SCHEMAS[VERSION_3].fields
# Spec, "Manifest Lists": first_row_id.
_LIST_FIRST_ROW_ID = [field.field_id for field in _LIST_FIELDS].index(520)
# Row ids, and the one that follows the last, are of type long.
_HIGHEST_ROW_ID = 2**63 - 1
_LISTED: AvroLayout[ManifestFile] = AvroLayout(
    schema=MANIFEST_LIST_FILE_SCHEMAS[VERSION_3],
    types={-1: ManifestFile, 508: PartitionFieldSummary},
    enums={517: ManifestContent},
)


def with_all_fields(data_file: DataFile) -> DataFile:
    """Return a data or delete file with a place for each field of version 3; itself if it has them."""
    missing = len(_POSITIONS) - len(data_file)
    return data_file if not missing else _rebuilt(data_file, [*_values(data_file), *[None] * missing])


def with_own_size(data_file: DataFile) -> DataFile:
    """Return an entry with the bytes that are its own: those of a deletion vector, because several share a file."""
    if (place := deletion_vector(data_file)) is None:
        return data_file
    values = _values(data_file)
    values[_SIZE] = place[1]
    return _rebuilt(data_file, values)


def _values(data_file: DataFile) -> list[object]:
    return [data_file[position] for position in range(len(data_file))]


def _rebuilt(data_file: DataFile, values: Iterable[object]) -> DataFile:
    rebuilt = DataFile(*values)
    rebuilt.spec_id = data_file.spec_id
    return rebuilt


def deletion_vector(data_file: DataFile) -> tuple[int, int] | None:
    """Return offset and length, in bytes, of the deletion vector that an entry of a manifest names, or None."""
    offset, length = _field(data_file, _CONTENT_OFFSET), _field(data_file, _CONTENT_SIZE)
    return None if offset is None or length is None else (int(str(offset)), int(str(length)))


def referenced_data_file(data_file: DataFile) -> str | None:
    """Return the path of the only data file that the deletes of an entry of a manifest are of, or None."""
    path = _field(data_file, _REFERENCED)
    return None if path is None else str(path)


def first_row_id(data_file: DataFile) -> int | None:
    """Return the id of the first row of a data file that was read from a manifest; None before its rows have ids."""
    number = _field(data_file, _FILE_FIRST_ROW_ID)
    return None if number is None else int(str(number))


def lineage_of(data_file: DataFile, sequence_number: int | None) -> FileLineage | None:
    """Return what the rows of a data file inherit, None before they have ids.

    Args:
        data_file: The file, from a manifest.
        sequence_number: Its data sequence number.
    """
    first = first_row_id(data_file)
    return None if first is None else FileLineage(first_row_id=first, sequence_number=sequence_number or 0)


def _field(data_file: DataFile, position: int) -> object:
    return data_file[position] if position < len(data_file) else None


def inherit_row_ids(live: Iterable[ManifestEntry], manifest: ManifestFile) -> None:
    """Give data files without a first row id theirs, as the manifest that lists them says.

    Args:
        live: The live entries of the manifest, in its order; they are changed.
        manifest: The manifest, as a manifest list has it.
    """
    if manifest.content != ManifestContent.DATA:
        return
    following = manifest_first_row_id(manifest)
    for entry in live:
        if following is None:  # nor have those that claim one: a table of an older version has no ids
            entry.data_file[_FILE_FIRST_ROW_ID] = None
        elif first_row_id(entry.data_file) is None:
            entry.data_file[_FILE_FIRST_ROW_ID] = following
            following += entry.data_file.record_count


def manifest_first_row_id(manifest: ManifestFile) -> int | None:
    """Return the first row id of a manifest, None if no snapshot has given it one, as those of delete files."""
    number = manifest[_LIST_FIRST_ROW_ID] if len(manifest) > _LIST_FIRST_ROW_ID else None
    return None if number is None else int(number)


def known_first_row_id(entries: Iterable[ManifestEntry]) -> int | None:
    """Return the first row id of a new manifest whose live files all have theirs, else None: a snapshot gives it one.

    Args:
        entries: All that the manifest lists.
    """
    found = [first_row_id(entry.data_file) for entry in entries if entry.status is not ManifestEntryStatus.DELETED]
    known = [number for number in found if number is not None]
    return min(known) if known and len(known) == len(found) else None


def unnumbered_rows(manifest: ManifestFile) -> int:
    """Return how many row ids the snapshot that lists a manifest reserves for it, 0 if it has its ids already."""
    if manifest.content != ManifestContent.DATA or manifest_first_row_id(manifest) is not None:
        return 0
    return (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)


def metadata_json(metadata: TableMetadata) -> str:
    """Return metadata as PyIceberg writes it, also that of version 3, whose own class refuses to."""
    return IcebergBaseModel.model_dump_json(metadata)


def staged_metadata(transaction: CreateTableTransaction) -> TableMetadata:
    """Return the metadata of a staged table in any version; the transaction's own property refuses version 3."""
    return transaction._table.metadata  # noqa: SLF001


def in_version(metadata: TableMetadata, version: int) -> TableMetadata:
    """Return the table in a newer format version, not checked; in version 3, row ids begin at 0."""
    changed: dict[str, object] = {"format_version": version}
    if version == VERSION_3:
        changed["next_row_id"] = 0
    return TableMetadataUtil._construct_without_validation(metadata.model_copy(update=changed))  # noqa: SLF001


def next_row_id(metadata: TableMetadata) -> int:
    """Return the first row id that is free in a table of version 3; 0 in one that is not in a catalog yet."""
    number = getattr(metadata, "next_row_id", None)
    return 0 if number is None else int(number)


def why_not_numbered(metadata: TableMetadata, rows: int = 0) -> str | None:
    """Return why a table of version 3 has no ids for so many new rows, None if it has, or is of an older version.

    Tables that were upgraded have snapshots from before that state no ids.
    """
    if metadata.format_version < VERSION_3:
        return None
    following = getattr(metadata, "next_row_id", None)
    if following is None:
        return "its metadata has no next-row-id, and its new rows would get ids that other rows have"
    if following < 0:
        return f"its next-row-id is {following}, and row ids begin at 0"
    end, last = 0, None
    for snapshot in metadata.snapshots:
        first, added = snapshot.first_row_id, snapshot.added_rows
        if first is not None and added is not None and first + added > end:
            end, last = first + added, snapshot.snapshot_id
    if following < end:
        return (
            f"its next-row-id is {following}, and snapshot {last} has given the row ids below {end}: new rows would "
            "get ids that other rows have"
        )
    if following + rows > _HIGHEST_ROW_ID:
        wanted = rows or "some"
        return f"its next-row-id is {following}, row ids end at {_HIGHEST_ROW_ID}, and its new rows need {wanted}"
    return None


def with_settled_ids(metadata: TableMetadata, manifests: Iterable[ManifestFile]) -> list[ManifestFile]:
    """Return the manifests whose rows keep their ids in any snapshot that lists them, or their entries.

    A manifest without ids, as in a table that was just upgraded, gets them from the next snapshot, whoever commits it;
    entries that were copied from it before would get other ones.
    """
    if metadata.format_version < VERSION_3:
        return list(manifests)
    return [
        manifest
        for manifest in manifests
        if manifest.content != ManifestContent.DATA or manifest_first_row_id(manifest) is not None
    ]


class ManifestList(NamedTuple):
    """A manifest list that is to be read.

    Attributes:
        snapshot_id: Its snapshot.
        path: The file.
        has_files: Whether the snapshot's summary says that it has data or delete files.
    """

    snapshot_id: int
    path: str
    has_files: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot) -> ManifestList:
        """Return the manifest list of a snapshot."""
        summary = {} if snapshot.summary is None else snapshot.summary.additional_properties
        return cls(snapshot.snapshot_id, snapshot.manifest_list, says_files(summary))


def says_files(summary: Mapping[str, object]) -> bool:
    """Return whether the summary of a snapshot says that it has data or delete files."""
    totals = (str(summary.get(total, "")) for total in ("total-data-files", "total-delete-files"))
    return any(text.isdecimal() and int(text) for text in totals)


def read_list(io: FileIO, listed: ManifestList) -> Iterator[ManifestFile]:
    """Yield the manifests of a manifest list of any version, with the fields of version 3.

    Raises:
        ValueError: It is damaged or cut off. One of a snapshot with files that ends behind its header was; of a list
            without manifests that has a block, the totals in the summary are wrong, as increments of wrong ones are.
    """
    yield from read_avro(io.new_input(listed.path), _LISTED, has_blocks=listed.has_files)


def list_writer(
    version: TableVersion, output: OutputFile, snapshot: Snapshot, codec: AvroCompressionCodec
) -> ManifestListWriter:
    """Return what writes the manifest list of a snapshot.

    Args:
        version: The format version of the table.
        output: The file.
        snapshot: The snapshot; that of a table of version 3 has its first row id.
        codec: How the blocks are compressed.
    """
    if version == 1:
        return _Version1(output, snapshot.snapshot_id, snapshot.parent_snapshot_id, codec)
    return (_Version3 if version == VERSION_3 else _Version2)(output, snapshot, codec)


@cache
def _list_encoding(version: TableVersion) -> AvroEncoding:
    records = None if version == VERSION_3 else MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION]
    return AvroEncoding.of("manifest_file", MANIFEST_LIST_FILE_SCHEMAS[version], records)


class _ListWriter(ManifestListWriter):
    """Writes a manifest list by our writer of Avro files."""

    def __enter__(self) -> ManifestListWriter:
        """Open the file."""
        self._writer = AvroWriter[ManifestFile](self._output_file, _list_encoding(self._format_version), self._meta)
        self._writer.__enter__()
        return self


class _Version1(_ListWriter, ManifestListWriterV1):
    """Writes a manifest list of version 1."""


class _Version2(_ListWriter, ManifestListWriterV2):
    """Writes a manifest list of version 2."""

    def __init__(self, output: OutputFile, snapshot: Snapshot, codec: AvroCompressionCodec) -> None:
        if snapshot.sequence_number is None:
            raise ValueError(f"A snapshot of format version 2 and higher needs a sequence number: {snapshot}")
        super().__init__(output, snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.sequence_number, codec)


class _Version3(_Version2):
    """Writes a manifest list of version 3, and numbers the rows of its manifests in the order of the list."""

    def __init__(self, output: OutputFile, snapshot: Snapshot, codec: AvroCompressionCodec) -> None:
        if snapshot.first_row_id is None:
            raise ValueError(f"A snapshot of format version 3 needs a first row id: {snapshot}")
        super().__init__(output, snapshot, codec)
        self._format_version = VERSION_3
        self._meta |= {"format-version": str(VERSION_3), "first-row-id": str(snapshot.first_row_id)}
        self._following = snapshot.first_row_id

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        """Return the entry with what the snapshot gives it: sequence numbers, and row ids if it has none."""
        prepared = super().prepare_manifest(manifest_file)
        if rows := unnumbered_rows(prepared):
            prepared[_LIST_FIRST_ROW_ID] = self._following
            self._following += rows
        elif prepared.content == ManifestContent.DATA and manifest_first_row_id(prepared) is None:
            prepared[_LIST_FIRST_ROW_ID] = self._following  # it has no live rows, and readers want a number
        return prepared
