"""Manifests and manifest lists: the Avro files of one snapshot, written and read.

A manifest list never changes: its name holds a UUID, and each commit writes another list, which has nearly all entries
of the one before. So the blocks of a list that a process has read or written are kept as they are in the file; a commit
encodes what it adds and fills up the first block with it, and all full blocks behind it go into the next file
unchanged. A freshly read table decides what a snapshot lists; only the file that the snapshot names is not read twice.
Callers must not change the entries that they get.

Rests on PyIceberg's inner layout: the positions of `ManifestFile`'s fields, and its writers of lists (contract tests
hold them). Source: Iceberg spec, "Manifests" and "Manifest Lists"; Avro spec, "Object Container Files".
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriter,
    _inherit_from_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType

from iceberg_ds.garbage_collection import no_garbage_collection
from iceberg_ds.io.known_files import KnownFiles
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.snapshots.avro_files import AvroLayout, read_avro
from iceberg_ds.snapshots.manifest_file import ManifestDraft, added_entry, avro_codec, layout_of, write_manifest
from iceberg_ds.snapshots.refs import find_snapshot
from iceberg_ds.snapshots.version_3 import VERSION_3, ManifestList, inherit_row_ids, list_writer, read_list
from iceberg_ds.table.locations import metadata_locations

# The name of a file that cannot have been another file before, as PyIceberg, Iceberg and Trino form it.
_UNIQUE_NAME = re.compile(r"/snap-\d+-\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.avro$")
_MAX_ENTRIES = 20_000
_LIST_WEIGHT = 10  # room that a list takes beside its own entries, in entries
_BLOCK_ENTRIES = 100

_ENTRIES: AvroLayout[ManifestEntry] = AvroLayout(
    schema=MANIFEST_ENTRY_SCHEMAS[VERSION_3],
    types={-1: ManifestEntry, 2: DataFile},
    enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)
# The positions of what is read of an entry for its path alone, and of its file.
_STATUS, _DATA_FILE, _CONTENT, _FILE_PATH = 0, 1, 0, 1
_PATHS: AvroLayout[Record] = AvroLayout(
    schema=Schema(
        _ENTRIES.schema.find_field("status"),
        NestedField(
            2,
            "data_file",
            StructType(
                _ENTRIES.schema.find_field("data_file.content"), _ENTRIES.schema.find_field("data_file.file_path")
            ),
            required=True,
        ),
    ),
    types={},
    enums={number: _ENTRIES.enums[number] for number in (0, 134)},
)
_ADDED_SNAPSHOT_ID = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    file: ManifestFile
    encoded: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """A block of an Avro file.

    Attributes:
        entries: The entries that it holds.
        live: The manifests among these that list a live file.
        content: The entries, encoded and compressed.
    """

    entries: tuple[_Entry, ...]
    live: tuple[ManifestFile, ...]
    content: bytes

    @property
    def is_full(self) -> bool:
        """Whether the block takes no more entries."""
        return len(self.entries) == _BLOCK_ENTRIES

    def is_end_of(self, manifests: Sequence[ManifestFile], end: int) -> bool:
        """Return whether the manifests just before position `end` are this block's very objects."""
        own = (entry.file for entry in self.entries)
        start = end - len(self.entries)
        return start >= 0 and all(map(operator.is_, islice(manifests, start, end), own))


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """A manifest list.

    Attributes:
        live: The manifests that list a live file.
        blocks: The blocks of its file; empty if unknown.
        form: How the blocks are encoded: their format version, and how they are compressed.
    """

    live: tuple[ManifestFile, ...]
    blocks: tuple[_Block, ...] = ()
    form: tuple[int, str] | None = None


def _weight(known: _List) -> int:
    """Return the room that a list takes, in entries."""
    return _LIST_WEIGHT + len(known.live)


class ManifestLists:
    """A cache of the manifest lists that were used last; threads may share it.

    Args:
        max_entries: How many entries are kept in all; the least recently used lists are evicted first.
    """

    def __init__(self, max_entries: int = _MAX_ENTRIES) -> None:
        self._known = KnownFiles(_UNIQUE_NAME, _weight, max_entries)

    def live(self, io: FileIO, listed: ManifestList) -> tuple[ManifestFile, ...]:
        """Return the manifests of a list that list a live file; callers must not change them.

        Args:
            io: Opens the table's storage.
            listed: The list.
        """
        known = self._known.find(listed.path)
        if known is None:
            known = _List(live=tuple(filter(lists_live_files, read_list(io, listed))))
            self._known.keep(listed.path, known)
        return known.live

    def write(self, io: FileIO, metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> None:
        """Write the manifest list of `snapshot`; arguments as in `manifests.write_list`."""
        version, codec = metadata.format_version, avro_codec(metadata.properties)
        form = (version, codec)
        with list_writer(version, io.new_output(snapshot.manifest_list), snapshot, codec) as writer:
            if version == 1 or not manifests:  # fields that version 1 omits are read back changed
                writer.add_manifests([copy_of(manifest) for manifest in manifests])
                return
            blocks = _blocks(writer, manifests, self._before(metadata, snapshot), form)
            _write_blocks(writer, blocks)
        live = tuple(chain.from_iterable(block.live for block in blocks))
        self._known.keep(snapshot.manifest_list, _List(live=live, blocks=blocks, form=form))

    def _before(self, metadata: TableMetadata, snapshot: Snapshot) -> _List | None:
        parent = None if snapshot.parent_snapshot_id is None else find_snapshot(metadata, snapshot.parent_snapshot_id)
        return None if parent is None else self._known.find(parent.manifest_list)


def copy_of(manifest: ManifestFile) -> ManifestFile:
    """Return the same entry of a manifest list as an object of its own."""
    return ManifestFile(*(manifest[position] for position in range(len(manifest))))


def lists_live_files(manifest: ManifestFile) -> bool:
    """Return whether a manifest may list a live file, by the counts in its list."""
    return manifest.has_added_files() or manifest.has_existing_files()


def _blocks(
    writer: ManifestListWriter, manifests: Sequence[ManifestFile], before: _List | None, form: tuple[int, str]
) -> tuple[_Block, ...]:
    """Return the blocks of a list, reusing the full blocks that end both it and `before`; the first is filled last."""
    old = list(before.blocks) if before is not None and before.form == form else []
    same: list[_Block] = []
    end = len(manifests)
    while old and old[-1].is_full and old[-1].is_end_of(manifests, end):
        same.insert(0, old.pop())
        end -= _BLOCK_ENTRIES
    known = {id(entry.file): entry for block in old for entry in block.entries}
    entries = [known.get(id(manifest)) or _encoded(writer, manifest) for manifest in manifests[:end]]
    return (*(_compressed(writer, part) for part in _parts(entries)), *same)


def _encoded(writer: ManifestListWriter, manifest: ManifestFile) -> _Entry:
    # PyIceberg's writer fills sequence numbers into the very object it is given.
    prepared = writer.prepare_manifest(copy_of(manifest))
    buffer = BytesIO()
    writer._writer.writer.write(BinaryEncoder(buffer), prepared)  # noqa: SLF001
    return _Entry(file=prepared, encoded=buffer.getvalue())


def _parts(entries: Sequence[_Entry]) -> Iterator[Sequence[_Entry]]:
    """Yield the entries of each block: all blocks are full but the first."""
    first = len(entries) % _BLOCK_ENTRIES
    if first:
        yield entries[:first]
    for start in range(first, len(entries), _BLOCK_ENTRIES):
        yield entries[start : start + _BLOCK_ENTRIES]


def _compressed(writer: ManifestListWriter, entries: Sequence[_Entry]) -> _Block:
    content = b"".join(entry.encoded for entry in entries)
    codec = writer._writer.compression_codec()  # noqa: SLF001
    return _Block(
        entries=tuple(entries),
        live=tuple(entry.file for entry in entries if lists_live_files(entry.file)),
        content=content if codec is None else codec.compress(content)[0],
    )


def _write_blocks(writer: ManifestListWriter, blocks: Sequence[_Block]) -> None:
    file = writer._writer  # noqa: SLF001
    buffer = BytesIO()
    encoder = BinaryEncoder(buffer)
    for block in blocks:
        encoder.write_int(len(block.entries))
        encoder.write_bytes(block.content)
        encoder.write(file.sync_bytes)
    file.encoder.write(buffer.getvalue())


KNOWN_LISTS = ManifestLists()


def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of `manifest` whose files are in the table, with inherited numbers and row ids filled in."""
    return [entry for entry in all_entries(io, manifest) if entry.status is not ManifestEntryStatus.DELETED]


class Recorded(NamedTuple):
    """What a manifest list says of a manifest.

    Attributes:
        entries: How many entries it has; 0 if the list does not say.
        size_bytes: Its size in bytes.
    """

    entries: int
    size_bytes: int

    @classmethod
    def of(cls, manifest: ManifestFile) -> Recorded:
        """Return what a list says."""
        counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
        return cls(sum(count for count in counts if count is not None), manifest.manifest_length)


def all_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return all entries of `manifest`, removed files too, with inherited numbers and row ids filled in.

    Raises:
        ValueError: It was cut off, or cannot be read.
    """
    entries = stored_entries(io, manifest)
    inherit_row_ids((entry for entry in entries if entry.status is not ManifestEntryStatus.DELETED), manifest)
    return entries


@no_garbage_collection()
def stored_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return all entries of `manifest`, removed files too, with inherited numbers, and row ids as they are stored.

    Which row ids files inherit is up to each snapshot that lists the manifest: it may have given it others.

    Raises:
        ValueError: It was cut off, or cannot be read.
    """
    entries = list(read_avro(io.new_input(manifest.manifest_path), _ENTRIES))
    _check_whole(io, manifest.manifest_path, len(entries), Recorded.of(manifest))
    return [_inherit_from_manifest(entry, manifest) for entry in entries]


@no_garbage_collection()
def live_paths(io: FileIO, manifest_path: str, recorded: Recorded) -> list[tuple[DataFileContent, str]]:
    """Return what each live file of a manifest is, and its path.

    Args:
        io: Opens the table's storage.
        manifest_path: The manifest.
        recorded: What its list says of it.

    Raises:
        ValueError: It was cut off, or cannot be read.
    """
    entries = list(read_avro(io.new_input(manifest_path), _PATHS))
    _check_whole(io, manifest_path, len(entries), recorded)
    return [
        (DataFileContent(entry[_DATA_FILE][_CONTENT] or 0), entry[_DATA_FILE][_FILE_PATH])
        for entry in entries
        if entry[_STATUS] is not ManifestEntryStatus.DELETED
    ]


def _check_whole(io: FileIO, manifest_path: str, found: int, recorded: Recorded) -> None:
    """Check that a manifest was not cut off right behind a block: it has fewer entries then, and is smaller.

    One of them alone says less. Iceberg's procedure `rewrite_table_path` writes smaller manifests, and leaves the sizes
    in the lists; some writers count more files in a list than there are.

    Raises:
        ValueError: It was.
    """
    if found < recorded.entries and len(io.new_input(manifest_path)) < recorded.size_bytes:
        raise ValueError(f"{manifest_path} was cut off: it has {found:,} entries, and had {recorded.entries:,}")


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
    return [] if snapshot is None else list(KNOWN_LISTS.live(io, ManifestList.of(snapshot)))


def added_entries(io: FileIO, snapshot: Snapshot) -> list[ManifestEntry]:
    """Return the entries of the data files that `snapshot` added, in the order of its manifests."""
    number = snapshot.snapshot_id
    # A manifest that the snapshot merged also has files of earlier ones.
    manifests = [
        manifest
        for manifest in live_manifests(io, snapshot)
        if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id in {None, number}
    ]
    return [
        entry
        for entries in in_parallel(partial(all_entries, io), manifests)
        for entry in entries
        if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == number
    ]


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


def metadata_path(metadata: TableMetadata, file_name: str) -> str:
    """Return the path for a metadata file of this name."""
    return metadata_locations(metadata.location, metadata.properties).new_metadata_location(file_name)
