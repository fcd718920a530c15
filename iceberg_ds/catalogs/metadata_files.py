"""Table metadata that a process has read or written before: not read again, and not put into words again.

A metadata file never changes: its name holds a UUID, and each commit writes another one. The catalog is asked at each
load where the table stands, so that a look at the table is as fresh as ever; only the file that it names is not read
twice. What is handed out shares its snapshots with what is kept, and nobody may change those; its lists and
dictionaries are its own.

PyIceberg's catalogs read and write these files by functions that take no part of theirs from outside. So these are
replaced, for the calls that `MetadataFiles.at_hand` surrounds; all others are carried out as before.
"""

from __future__ import annotations

import operator
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from io import BytesIO
from threading import Lock
from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pyiceberg import serializers
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.serializers import Compressor, FromByteStream, FromInputFile, ToOutputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.utils.config import Config

from iceberg_ds.catalogs.garbage_collection import no_garbage_collection

# A file that cannot have been another one before: PyIceberg's, Iceberg's and Trino's names of it.
_UNIQUE_NAME = re.compile(r"/\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.gz)?\.metadata\.json(\.gz)?$")
# About 5 kB each, beside what the table has beyond them.
_MAX_SNAPSHOTS = 20_000
_TABLE_WEIGHT = 200
_FORMAT_VERSION = 2  # PyIceberg writes the snapshots of version 1 otherwise than it holds them
# The parts that grow with each commit, by PyIceberg's name of the field and the spec's.
_GROWING: dict[str, tuple[str, TypeAdapter[Any]]] = {
    "snapshots": ("snapshots", TypeAdapter(list[Snapshot])),
    "snapshot_log": ("snapshot-log", TypeAdapter(list[SnapshotLogEntry])),
}

# JSON of list entries, in pieces that stand one after another with a comma in between.
_Words: TypeAlias = tuple[bytes, ...]
_MAX_PIECES = 100

_HEAD_BYTES = 4096  # within which files of PyIceberg name their table

_read_whole = FromByteStream.table_metadata
_read_as_before = FromInputFile.table_metadata
_write_as_before = ToOutputFile.table_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A metadata file.

    Attributes:
        metadata: What it holds.
        words: The growing parts by field, as PyIceberg writes them, without their brackets; None if nobody needed them.
        is_foreign: Another engine wrote it, in other words.
    """

    metadata: TableMetadata
    words: dict[str, _Words] | None = None
    is_foreign: bool = False

    @property
    def weight(self) -> int:
        """How many snapshots it takes the room of."""
        return _TABLE_WEIGHT + len(self.metadata.snapshots)


class MetadataFiles:
    """The metadata files at which the tables of a catalog stood when they were last seen; threads may share it.

    Args:
        max_snapshots: How many snapshots are kept in all; tables that were not used for the longest time go first.
    """

    def __init__(self, max_snapshots: int = _MAX_SNAPSHOTS) -> None:
        self._max_snapshots = max_snapshots
        self._lock = Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Let PyIceberg's catalogs use it in the block, in this thread."""
        token = _at_hand.set(self)
        try:
            yield
        finally:
            _at_hand.reset(token)

    def read(self, file: InputFile) -> TableMetadata:
        """Return what the file holds."""
        known = self._find(file.location)
        if known is None:
            known = self._parsed(_content(file))
            self._keep(file.location, known)
        return _with_own_containers(known.metadata)

    def write(self, metadata: TableMetadata, file: OutputFile, *, overwrite: bool) -> None:
        """Write the file, byte for byte as PyIceberg does."""
        if metadata.format_version != _FORMAT_VERSION or Config().get_bool("legacy-current-snapshot-id"):
            _write_as_before(metadata, file, overwrite)
            return
        words = _words(metadata, self._known_if(lambda known: known.metadata.table_uuid == metadata.table_uuid))
        content = Compressor.get_compressor(file.location).bytes_compressor()(_text(metadata, words))
        with file.create(overwrite=overwrite) as stream:
            stream.write(content)
        self._keep(file.location, _Known(metadata=_with_own_containers(metadata), words=words))

    def _parsed(self, content: bytes) -> _Known:
        """Return what a file holds, of which only what is new is parsed if it goes on from what is known."""
        head = content[:_HEAD_BYTES]
        before = self._known_if(lambda known: str(known.metadata.table_uuid).encode() in head)
        with no_garbage_collection():
            if before is not None and not before.is_foreign and (known := _continued(before, content)) is not None:
                return known
            metadata = _read_whole(BytesIO(content))
        return _Known(metadata=metadata, is_foreign=not _is_in_our_words(metadata, content))

    def _find(self, location: str) -> _Known | None:
        with self._lock:
            known = self._known.get(location)
            if known is not None:
                self._known.move_to_end(location)
            return known

    def _keep(self, location: str, known: _Known) -> None:
        """Keep it in the place of what is known of the same table, unless that alone would be too much."""
        with self._lock:
            table = known.metadata.table_uuid
            for other in [other for other, seen in self._known.items() if seen.metadata.table_uuid == table]:
                del self._known[other]
            if _UNIQUE_NAME.search(location) and known.weight <= self._max_snapshots:
                self._known[location] = known
            while sum(seen.weight for seen in self._known.values()) > self._max_snapshots:
                self._known.popitem(last=False)

    def _known_if(self, is_wanted: Callable[[_Known], bool]) -> _Known | None:
        with self._lock:
            return next((known for known in self._known.values() if is_wanted(known)), None)


def _words(metadata: TableMetadata, before: _Known | None) -> dict[str, _Words]:
    """Return the growing parts as JSON, of which only what is new since `before` is put into words."""
    words: dict[str, _Words] = {}
    for name, (_, adapter) in _GROWING.items():
        entries = getattr(metadata, name)
        spoken = getattr(before.metadata, name) if before is not None else []
        old = before.words[name] if before is not None and before.words and _begins_with(entries, spoken) else ()
        new = entries[len(spoken) :] if old else entries
        if new:
            old = (*old, adapter.dump_json(new, by_alias=True, exclude_none=True)[1:-1])
        words[name] = old if len(old) < _MAX_PIECES else (b",".join(old),)
    return words


def _content(file: InputFile) -> bytes:
    compressor = Compressor.get_compressor(file.location)
    with file.open() as stream, compressor.stream_decompressor(stream) as plain:
        return plain.read()


def _start_of(key: str, content: bytes) -> int:
    """Return where the first entry of a list is, 0 if there is no such list."""
    opening = f'"{key}":['.encode()  # within a string the quotes would stand behind backslashes
    return content.find(opening) + len(opening) if opening in content else 0


def _is_in_our_words(metadata: TableMetadata, content: bytes) -> bool:
    """Return whether the first snapshot stands in a file as PyIceberg writes it, so that others may, too."""
    if metadata.format_version != _FORMAT_VERSION:
        return False
    key, adapter = _GROWING["snapshots"]
    first = adapter.dump_json(metadata.snapshots[:1], by_alias=True, exclude_none=True)[1:-1]
    return content.startswith(first, _start_of(key, content))


def _continued(before: _Known, content: bytes) -> _Known | None:
    """Return what a file holds whose growing parts begin as those of a known one do, None if they do not."""
    metadata = before.metadata
    words = before.words or _words(metadata, None)
    for name, (key, _) in _GROWING.items():
        text = b",".join(words[name])
        start = _start_of(key, content)
        end = start + len(text)
        after = content[end : end + 1]
        if text and not (start and content.startswith(text, start) and after in (b",", b"]")):
            return None
        if text:
            content = content[:start] + content[end + (after == b",") :]
    rest = _read_whole(BytesIO(content))
    lists = {name: [*getattr(metadata, name), *getattr(rest, name)] for name in _GROWING}
    whole = rest.model_copy(update=lists)
    return _Known(metadata=whole, words=_words(whole, _Known(metadata=metadata, words=words)))


def _begins_with(entries: Sequence[object], first: Sequence[object]) -> bool:
    """Return whether the entries begin with these very objects."""
    return len(entries) >= len(first) and all(map(operator.is_, entries, first))


def _text(metadata: TableMetadata, words: dict[str, _Words]) -> bytes:
    """Return the metadata as JSON, with these words for its growing parts."""
    rest = metadata.model_copy(update={name: [] for name in words}).model_dump_json().encode()
    pieces: list[bytes] = []
    for name, inner in words.items():
        # Within a string the quotes would stand behind backslashes, and no other list of the spec has these names.
        before, empty, rest = rest.partition(f'"{_GROWING[name][0]}":[]'.encode())
        if not empty:
            return metadata.model_dump_json().encode()
        pieces += [before, empty[:-1], b",".join(inner), b"]"]
    return b"".join([*pieces, rest])


def _with_own_containers(metadata: TableMetadata) -> TableMetadata:
    containers = {name: copy(value) for name, value in vars(metadata).items() if isinstance(value, list | dict)}
    return metadata.model_copy(update=containers)


_at_hand: ContextVar[MetadataFiles | None] = ContextVar("_at_hand", default=None)


def files_at_hand() -> MetadataFiles | None:
    """Return what the current call may use, None if it is none of ours."""
    return _at_hand.get()


def _read(input_file: InputFile, encoding: str = "utf-8") -> TableMetadata:
    files = _at_hand.get()
    return _read_as_before(input_file, encoding) if files is None else files.read(input_file)


def _write(metadata: TableMetadata, output_file: OutputFile, overwrite: bool = False) -> None:  # noqa: FBT001, FBT002  # PyIceberg's signature
    files = _at_hand.get()
    if files is None:
        _write_as_before(metadata, output_file, overwrite)
    else:
        files.write(metadata, output_file, overwrite=overwrite)


def share_metadata_files() -> None:
    """Let PyIceberg's catalogs of this process read and write through what is at hand."""
    serializers.FromInputFile.table_metadata = staticmethod(_read)  # type: ignore[method-assign]
    serializers.ToOutputFile.table_metadata = staticmethod(_write)  # type: ignore[method-assign]
