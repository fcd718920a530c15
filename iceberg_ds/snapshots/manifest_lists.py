"""Manifest lists that a process has read or written before: it does not read or encode them again.

A manifest list never changes: its name holds a UUID, and each commit writes another list, which has nearly all entries
of the one before. So the blocks of a list are kept as they are in the file; a commit encodes what it adds and fills up
the first block with it, and all full blocks behind it go into the next file unchanged. A freshly read table decides
what a snapshot lists; only the file that the snapshot names is not read twice.

Callers must not change the entries that they get. Rests on PyIceberg's inner layout: its writers of lists and of Avro
files (contract tests hold both). Source: Avro spec, "Object Container Files".
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, islice

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, ManifestListWriter, read_manifest_list, write_manifest_list
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.io.known_files import KnownFiles
from iceberg_ds.snapshots.manifest_file import avro_codec
from iceberg_ds.snapshots.refs import find_snapshot

# The name of a file that cannot have been another file before, as PyIceberg, Iceberg and Trino form it.
_UNIQUE_NAME = re.compile(r"/snap-\d+-\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.avro$")
_MAX_ENTRIES = 20_000
_LIST_WEIGHT = 100  # room that a list takes beside its own entries, in entries
_BLOCK_ENTRIES = 100


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
        codec: How the blocks are compressed.
    """

    live: tuple[ManifestFile, ...]
    blocks: tuple[_Block, ...] = ()
    codec: str = ""


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

    def live(self, io: FileIO, path: str) -> tuple[ManifestFile, ...]:
        """Return the manifests of a list that list a live file; callers must not change them.

        Args:
            io: Opens the table's storage.
            path: Path of the list.
        """
        known = self._known.find(path)
        if known is None:
            known = _List(live=tuple(filter(_is_live, read_manifest_list(io.new_input(path)))))
            self._known.keep(path, known)
        return known.live

    def write(self, io: FileIO, metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> None:
        """Write the manifest list of `snapshot`; arguments as in `manifests.write_list`."""
        codec = avro_codec(metadata.properties)
        with write_manifest_list(
            format_version=metadata.format_version,
            output_file=io.new_output(snapshot.manifest_list),
            snapshot_id=snapshot.snapshot_id,
            parent_snapshot_id=snapshot.parent_snapshot_id,
            sequence_number=snapshot.sequence_number,
            avro_compression=codec,
        ) as writer:
            if metadata.format_version == 1 or not manifests:  # fields that version 1 omits are read back changed
                writer.add_manifests([copy_of(manifest) for manifest in manifests])
                return
            blocks = _blocks(writer, manifests, self._before(metadata, snapshot), codec)
            _write_blocks(writer, blocks)
        live = tuple(chain.from_iterable(block.live for block in blocks))
        self._known.keep(snapshot.manifest_list, _List(live=live, blocks=blocks, codec=codec))

    def _before(self, metadata: TableMetadata, snapshot: Snapshot) -> _List | None:
        parent = None if snapshot.parent_snapshot_id is None else find_snapshot(metadata, snapshot.parent_snapshot_id)
        return None if parent is None else self._known.find(parent.manifest_list)


def copy_of(manifest: ManifestFile) -> ManifestFile:
    """Return the same entry of a manifest list as an object of its own."""
    return ManifestFile(*(manifest[position] for position in range(len(manifest))))


def _is_live(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()


def _blocks(
    writer: ManifestListWriter, manifests: Sequence[ManifestFile], before: _List | None, codec: str
) -> tuple[_Block, ...]:
    """Return the blocks of a list, reusing the full blocks that end both it and `before`; the first is filled last."""
    old = [] if before is None else list(before.blocks)
    is_same_codec = before is not None and before.codec == codec
    same: list[_Block] = []
    end = len(manifests)
    while is_same_codec and old and old[-1].is_full and old[-1].is_end_of(manifests, end):
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
        live=tuple(entry.file for entry in entries if _is_live(entry.file)),
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
