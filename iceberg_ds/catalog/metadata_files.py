"""Metadata files of tables: only what is new in them is read, parsed or serialised.

A metadata file never changes: its name holds a UUID, and each commit writes another one. Each load asks the catalog
where the table stands, so a load is as fresh as ever; only a file that is known is not read again. Returned metadata
shares its snapshots with what is kept, so no caller may change those; its lists and dictionaries are its own.

Snapshots and their log grow with each commit, and old entries never change. So these lists begin with the same JSON as
in the file before, if the same engine wrote both files: PyIceberg, as this sink does, or another engine, such as
Iceberg's Java library, which begins its lists as in its own last file. JSON that equals known JSON need not be parsed.
Python's garbage collector pauses while a whole history is parsed.

PyIceberg's catalogs read and write these files through this module (`pyiceberg_patches`) in the calls that
`MetadataFiles.at_hand` surrounds; all other calls are carried out as before.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.serializers import Compressor, FromByteStream, ToOutputFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from iceberg_ds.catalog.unknown_transforms import with_named_transforms
from iceberg_ds.catalog.unparsed import telling_unparsed
from iceberg_ds.garbage_collection import no_garbage_collection
from iceberg_ds.io.configuration import read_configuration
from iceberg_ds.io.known_files import KnownFiles
from iceberg_ds.snapshots.version_3 import VERSION_3, metadata_json
from iceberg_ds.table.encryption import noting_encryption
from iceberg_ds.table.variant import knowing_variants

# PyIceberg writes snapshots of version 1 differently from how it holds them, and refuses to write version 3 by itself
# (apache/iceberg-python#1551).
SERIALISED_VERSIONS = frozenset({2, 3})
# The lists that grow with each commit, by PyIceberg's name of the field, with the spec's name.
_GROWING: dict[str, tuple[str, TypeAdapter[Any]]] = {
    "snapshots": ("snapshots", TypeAdapter(list[Snapshot])),
    "snapshot_log": ("snapshot-log", TypeAdapter(list[SnapshotLogEntry])),
}
# Inside a string these quotes would stand behind backslashes, and no other list of the spec has these names.
_BEGIN = {name: re.compile(rf'"{key}"\s*:\s*\[\s*'.encode()) for name, (key, _) in _GROWING.items()}
_END = re.compile(rb'\]\s*(?:,\s*"[a-z-]+"\s*:|\}\s*$)')
_MORE = re.compile(rb"\s*,\s*")

# JSON of list entries, in pieces that stand one after another with a comma in between.
_Json: TypeAlias = tuple[bytes, ...]
_MAX_PIECES = 100

# Names that no two files ever share: those that PyIceberg, Iceberg and Trino give.
_UNIQUE_NAME = re.compile(r"/\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.gz)?\.metadata\.json(\.gz)?$")
# About 5 kB each. A table without snapshots and columns takes as much as four of them, two columns as much as one.
_MAX_SNAPSHOTS = 20_000
_TABLE_WEIGHT = 4
_COLUMNS_OF_SNAPSHOT = 2

_HEAD_BYTES = 4096  # PyIceberg's files name their table within these
_TABLE_UUID = re.compile(rb'"table-uuid"\s*:\s*"([0-9A-Fa-f-]{36})"')

_write_as_before = ToOutputFile.table_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForeignLists:
    """The growing lists as another engine wrote them.

    Attributes:
        entries: Their entries, by field.
        texts: Their JSON without brackets, by field.
    """

    entries: Mapping[str, Sequence[Any]]
    texts: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMetadata:
    """The content of a metadata file.

    Attributes:
        metadata: The table metadata.
        lists: JSON of the growing lists by field, as PyIceberg writes them, without brackets; None if not needed yet.
        foreign: The growing lists in the last file of another engine, or None without such a file.
    """

    metadata: TableMetadata
    lists: dict[str, _Json] | None = None
    foreign: _ForeignLists | None = None


def read_whole(content: bytes) -> KnownMetadata:
    """Return the content of a file that continues no known file."""
    metadata = _parse(content)
    foreign = None if _is_as_we_serialise(metadata, content) else _foreign_lists(metadata, content)
    return KnownMetadata(metadata=metadata, foreign=foreign)


def continued(before: KnownMetadata, content: bytes) -> KnownMetadata | None:
    """Return the content of a file whose growing lists begin as those of `before` do, or None if they do not."""
    own = before.lists or (_serialised_lists(before.metadata, None) if before.foreign is None else None)
    if own is not None:
        texts = {name: b",".join(pieces) for name, pieces in own.items()}
        entries = {name: getattr(before.metadata, name) for name in _GROWING}
        found = _beginning_with(_ForeignLists(entries=entries, texts=texts), content)
        if found is not None:
            known = replace(before, lists=own)
            return replace(known, metadata=found, lists=_serialised_lists(found, known))
    if before.foreign is None or (found := _beginning_with(before.foreign, content)) is None:
        return None
    metadata = found.model_copy(update={name: _shared(before.metadata, found, name) for name in _GROWING})
    lists = None if before.lists is None else _serialised_lists(metadata, before)
    return KnownMetadata(metadata=metadata, lists=lists, foreign=_foreign_lists(metadata, content))


def planned_metadata(text: str) -> TableMetadata:
    """Return the table that a write plans to create, from its JSON in `WriteIdentity.new_table`."""
    with knowing_variants():
        return TableMetadataUtil.parse_raw(text)


def serialised(metadata: TableMetadata, before: KnownMetadata | None) -> KnownMetadata:
    """Return the metadata with its serialised lists, reusing the JSON of `before`."""
    return KnownMetadata(
        metadata=metadata, lists=_serialised_lists(metadata, before), foreign=None if before is None else before.foreign
    )


def text_of(known: KnownMetadata) -> bytes:
    """Return metadata with serialised lists as JSON, byte for byte as PyIceberg writes it."""
    lists = known.lists or {}
    rest = metadata_json(known.metadata.model_copy(update={name: [] for name in lists})).encode()
    pieces: list[bytes] = []
    for name, inner in lists.items():
        before, empty, rest = rest.partition(f'"{_GROWING[name][0]}":[]'.encode())
        if not empty:
            return metadata_json(known.metadata).encode()
        pieces += [before, empty[:-1], b",".join(inner), b"]"]
    return b"".join([*pieces, rest])


def _parse(content: bytes) -> TableMetadata:
    return with_named_transforms(FromByteStream.table_metadata(BytesIO(content)))


def _serialised_lists(metadata: TableMetadata, before: KnownMetadata | None) -> dict[str, _Json]:
    """Return the JSON of the growing lists, serialising only entries that are new since `before`."""
    lists: dict[str, _Json] = {}
    for name, (_, adapter) in _GROWING.items():
        entries = getattr(metadata, name)
        said = getattr(before.metadata, name) if before is not None else []
        old = before.lists[name] if before is not None and before.lists and _begins_with(entries, said) else ()
        new = entries[len(said) :] if old else entries
        if new:
            old = (*old, adapter.dump_json(new, by_alias=True, exclude_none=True)[1:-1])
        lists[name] = old if len(old) < _MAX_PIECES else (b",".join(old),)
    return lists


def _begins_with(entries: Sequence[object], first: Sequence[object]) -> bool:
    """Return whether the entries begin with these very objects."""
    return len(entries) >= len(first) and all(map(operator.is_, entries, first))


def _is_as_we_serialise(metadata: TableMetadata, content: bytes) -> bool:
    """Return whether the first snapshot in a file stands as PyIceberg writes it, so that all others may, too."""
    if metadata.format_version not in SERIALISED_VERSIONS:
        return False
    key, adapter = _GROWING["snapshots"]
    first = adapter.dump_json(metadata.snapshots[:1], by_alias=True, exclude_none=True)[1:-1]
    return f'"{key}":['.encode() + first in content


def _beginning_with(first: _ForeignLists, content: bytes) -> TableMetadata | None:
    """Return the content of a file whose growing lists begin with the JSON in `first`, or None if they do not."""
    for name, text in first.texts.items():
        if not text:
            continue
        begin = _BEGIN[name].search(content)
        if begin is None or not content.startswith(text, begin.end()):
            return None
        end = begin.end() + len(text)
        more = _MORE.match(content, end)
        if more is None and not content[end : end + 100].lstrip().startswith(b"]"):
            return None
        content = content[: begin.end()] + content[end if more is None else more.end() :]
    try:
        rest = _parse(content)
    except (ValueError, ValidationError):  # what was cut out was something else
        return None
    return rest.model_copy(update={name: [*first.entries[name], *getattr(rest, name)] for name in _GROWING})


def _foreign_lists(metadata: TableMetadata, content: bytes) -> _ForeignLists | None:
    """Return the growing lists as they stand in a file, or None if that cannot be told for certain."""
    if metadata.format_version not in SERIALISED_VERSIONS:
        return None
    texts: dict[str, bytes] = {}
    for name in _GROWING:
        begin = _BEGIN[name].search(content)
        end = None if begin is None else _END.search(content, begin.end())
        if begin is None or end is None:
            return None
        texts[name] = content[begin.end() : end.start()].rstrip()
    foreign = _ForeignLists(entries={name: list(getattr(metadata, name)) for name in _GROWING}, texts=texts)
    return foreign if _beginning_with(foreign, content) == metadata else None


def _shared(before: TableMetadata, found: TableMetadata, name: str) -> list[Any]:
    """Return the entries of a growing list; entries that are known are the very objects that are known."""
    known, entries = getattr(before, name), getattr(found, name)
    pairs = zip(entries, [*known, *[None] * len(entries)], strict=False)
    return [other if entry is other or entry == other else entry for entry, other in pairs]


class MetadataFiles:
    """The last seen metadata file of each table of a catalog; threads may share this object.

    Args:
        max_snapshots: How many snapshots are kept in all, or what takes their room; the least recently used tables are
            dropped first.
    """

    def __init__(self, max_snapshots: int = _MAX_SNAPSHOTS) -> None:
        self._known = KnownFiles(_UNIQUE_NAME, _weight, max_snapshots)

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Let PyIceberg's catalogs use these files in the block, in this thread."""
        token = _at_hand.set(self)
        try:
            with knowing_variants():
                yield
        finally:
            _at_hand.reset(token)

    def read(self, file: InputFile) -> TableMetadata:
        """Return the content of the file."""
        known = self._known.find(file.location)
        if known is None:
            known = self._parsed(_content(file))
            self._keep(file.location, known)
        return _with_own_containers(known.metadata)

    def write(self, metadata: TableMetadata, file: OutputFile, *, overwrite: bool) -> None:
        """Write the file, byte for byte as PyIceberg does."""
        version, is_legacy = metadata.format_version, read_configuration().get_bool("legacy-current-snapshot-id")
        if version not in SERIALISED_VERSIONS or (is_legacy and version != VERSION_3):
            _write_as_before(metadata, file, overwrite)
            return
        known = serialised(metadata, self._known.find_of(str(metadata.table_uuid)))
        content = Compressor.get_compressor(file.location).bytes_compressor()(text_of(known))
        with file.create(overwrite=overwrite) as stream:
            stream.write(content)
        self._keep(file.location, replace(known, metadata=_with_own_containers(metadata)))

    def _parsed(self, content: bytes) -> KnownMetadata:
        """Return the content of a file; if it continues a known file, only what is new is parsed.

        Raises:
            UnparsedMetadataError: It cannot be parsed.
        """
        uuid = _TABLE_UUID.search(content, 0, _HEAD_BYTES)
        before = None if uuid is None else self._known.find_of(uuid[1].decode().lower())
        with no_garbage_collection(), telling_unparsed():
            known = None if before is None else continued(before, content)
            known = read_whole(content) if known is None else known
        return replace(known, metadata=noting_encryption(known.metadata, content))

    def _keep(self, location: str, known: KnownMetadata) -> None:
        """Keep `known` in place of what is kept of the same table."""
        self._known.keep(location, known, owner=str(known.metadata.table_uuid))


def _weight(known: KnownMetadata) -> int:
    """Return the size of what is known, in snapshots."""
    metadata = known.metadata
    columns = len(metadata.schemas) * metadata.last_column_id
    return _TABLE_WEIGHT + columns // _COLUMNS_OF_SNAPSHOT + len(metadata.snapshots)


def _content(file: InputFile) -> bytes:
    compressor = Compressor.get_compressor(file.location)
    with file.open() as stream, compressor.stream_decompressor(stream) as plain:
        return plain.read()


def _with_own_containers(metadata: TableMetadata) -> TableMetadata:
    containers = {name: copy(value) for name, value in vars(metadata).items() if isinstance(value, list | dict)}
    return metadata.model_copy(update=containers)


_at_hand: ContextVar[MetadataFiles | None] = ContextVar("_at_hand", default=None)


def files_at_hand() -> MetadataFiles | None:
    """Return the files that the current call may use, or None if the sink did not make the call."""
    return _at_hand.get()
