"""Metadata files of tables: a known file is not read or serialised again, and one that lost a race is deleted.

A metadata file never changes: its name holds a UUID, and each commit writes another one. Each load asks the catalog
where the table stands, so a load is as fresh as ever; only a file that is known is not read again. Returned metadata
shares its snapshots with what is kept, so no caller may change those; its lists and dictionaries are its own.

PyIceberg's catalogs read and write these files through this module (`pyiceberg_patches`) in the calls that
`MetadataFiles.at_hand` surrounds; all other calls are carried out as before.

PyIceberg's catalogs that keep only a pointer (SQL, Hive, Glue) write the table's next metadata file first, and then
move the pointer to it if that still is where they found it. If another commit was faster, the file is left behind. A
REST server writes, and tidies up, its own files.

A table's metadata file is the table: if its current file were deleted, all would be lost. So no answer of the catalog
counts here, because a refusal may follow a first try that landed, and no state of the table counts that may be an old
one. A file is deleted only if the table's own log holds the file that it was to follow, and not the file itself:
another file has followed, the pointer has moved on, and a request that is still under way must fail. All others stay.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum, auto

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.serializers import Compressor, FromInputFile, ToOutputFile
from pyiceberg.table import StagedTable
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.catalog.metadata_json import (
    SPOKEN_VERSION,
    KnownMetadata,
    continued,
    no_garbage_collection,
    read_whole,
    spoken,
    text_of,
)
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.configuration import read_configuration
from iceberg_ds.io.known_files import KnownFiles
from iceberg_ds.snapshots.history import in_order

logger = logging.getLogger(__name__)

# Names that no two files ever share: those that PyIceberg, Iceberg and Trino give.
_UNIQUE_NAME = re.compile(r"/\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.gz)?\.metadata\.json(\.gz)?$")
# About 5 kB each, beside what else the metadata of each table holds.
_MAX_SNAPSHOTS = 20_000
_TABLE_WEIGHT = 200

_HEAD_BYTES = 4096  # PyIceberg's files name their table within these

_read_as_before = FromInputFile.table_metadata
_write_as_before = ToOutputFile.table_metadata


class MetadataFiles:
    """The last seen metadata file of each table of a catalog; threads may share this object.

    Args:
        max_snapshots: How many snapshots are kept in all; the least recently used tables are dropped first.
    """

    def __init__(self, max_snapshots: int = _MAX_SNAPSHOTS) -> None:
        self._known = KnownFiles(_UNIQUE_NAME, _weight, max_snapshots)

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Let PyIceberg's catalogs use these files in the block, in this thread."""
        token = _at_hand.set(self)
        try:
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
        if metadata.format_version != SPOKEN_VERSION or read_configuration().get_bool("legacy-current-snapshot-id"):
            _write_as_before(metadata, file, overwrite)
            return
        known = spoken(metadata, self._known.find_such(lambda known: known.metadata.table_uuid == metadata.table_uuid))
        content = Compressor.get_compressor(file.location).bytes_compressor()(text_of(known))
        with file.create(overwrite=overwrite) as stream:
            stream.write(content)
        self._keep(file.location, replace(known, metadata=_with_own_containers(metadata)))

    def _parsed(self, content: bytes) -> KnownMetadata:
        """Return the content of a file; if it continues a known file, only what is new is parsed."""
        head = content[:_HEAD_BYTES]
        before = self._known.find_such(lambda known: str(known.metadata.table_uuid).encode() in head)
        with no_garbage_collection():
            known = None if before is None else continued(before, content)
            return read_whole(content) if known is None else known

    def _keep(self, location: str, known: KnownMetadata) -> None:
        """Keep `known` in place of what is kept of the same table."""
        table_uuid = known.metadata.table_uuid
        self._known.keep(location, known, replaces=lambda seen: seen.metadata.table_uuid == table_uuid)


def _weight(known: KnownMetadata) -> int:
    """Return the size of what is known, in snapshots."""
    return _TABLE_WEIGHT + len(known.metadata.snapshots)


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


def read_metadata(input_file: InputFile, encoding: str = "utf-8") -> TableMetadata:
    """Return the content of a metadata file, through the files at hand, if the call has any."""
    files = _at_hand.get()
    return _read_as_before(input_file, encoding) if files is None else files.read(input_file)


def write_metadata(metadata: TableMetadata, output_file: OutputFile, overwrite: bool = False) -> None:  # noqa: FBT001, FBT002  # PyIceberg's signature
    """Write a metadata file, through the files at hand, if the call has any."""
    files = _at_hand.get()
    if files is None:
        _write_as_before(metadata, output_file, overwrite)
    else:
        files.write(metadata, output_file, overwrite=overwrite)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedMetadata:
    """A metadata file that a commit wrote, or was about to.

    Attributes:
        path: Its location.
        follows: The metadata file that the table stood at, or None if the commit creates the table.
        table_uuid: UUID of the table.
        io: Opens its storage.
    """

    path: str
    follows: str | None
    table_uuid: str
    io: FileIO


class Fate(Enum):
    """What a state of the table says of a staged file."""

    TAKEN = auto()  # the table stands at it, or stood at it
    PASSED_OVER = auto()  # another file has taken its place
    OPEN = auto()  # the state does not tell


def fate(staged: StagedMetadata, metadata: TableMetadata, location: str) -> Fate:
    """Return what became of a staged file, as shown by a table that was loaded after the file was staged.

    Args:
        staged: The file.
        metadata: The table of that name; it may be another one by now, or an old state of it.
        location: The metadata file that this table stands at.
    """
    log = {entry.metadata_file for entry in metadata.metadata_log}
    if staged.path == location or staged.path in log:
        return Fate.TAKEN
    if staged.follows is None:
        return Fate.OPEN if str(metadata.table_uuid) == staged.table_uuid else Fate.PASSED_OVER
    return Fate.PASSED_OVER if staged.follows in log else Fate.OPEN


class _Staged:
    """The files that one commit has staged so far, attempt by attempt."""

    def __init__(self) -> None:
        self._open: list[StagedMetadata] = []
        self._passed_over: list[StagedMetadata] = []
        self.paths: set[str] = set()

    def note(self, staged: StagedMetadata) -> None:
        self.paths.add(staged.path)
        self._open.append(staged)

    def see(self, metadata: TableMetadata, location: str) -> None:
        fates = [(staged, fate(staged, metadata, location)) for staged in self._open]
        self._open = [staged for staged, found in fates if found is Fate.OPEN]
        self._passed_over += [staged for staged, found in fates if found is Fate.PASSED_OVER]

    def tidy(self) -> None:
        if self._passed_over:
            delete_files(self._passed_over[-1].io, [staged.path for staged in self._passed_over], Proof.REFUSED)
        for staged in self._open:
            logger.info("Left %s where it is, if it was written: the catalog may still take it", staged.path)


_current: ContextVar[_Staged | None] = ContextVar("_current", default=None)


@contextmanager
def tidying_metadata() -> Iterator[None]:
    """Delete, at the end of the block, the metadata files of those of its commits that are proven not to have landed.

    Also let no time in these files go back. A file whose fate no load of the table has shown by then stays.
    """
    staged = _Staged()
    token = _current.set(staged)
    try:
        yield
    finally:
        _current.reset(token)
        staged.tidy()


def see_table(metadata: TableMetadata, location: str | None) -> None:
    """Take note of a table that was just loaded or committed to.

    Args:
        metadata: The table.
        location: The metadata file that the table stands at, or None if the catalog does not say.
    """
    staged = _current.get()
    if staged is not None and location:
        staged.see(metadata, location)


def note_staged(table: StagedTable, follows: str | None) -> StagedTable:
    """Take note of a metadata file that is about to be written; return its table with no time that goes back.

    Args:
        table: The table as it will be.
        follows: The metadata file that the table stands at, or None if the commit creates the table.
    """
    staged = _current.get()
    if staged is not None:
        table.metadata = in_order(table.metadata)
        staged.note(
            StagedMetadata(
                path=table.metadata_location,
                follows=follows,
                table_uuid=str(table.metadata.table_uuid),
                io=table.io,
            )
        )
    return table


@contextmanager
def noting_metadata() -> Iterator[set[str]]:
    """Yield the paths of all metadata files that commits in the block were about to write; all of them stay."""
    staged = _Staged()
    token = _current.set(staged)
    try:
        yield staged.paths
    finally:
        _current.reset(token)
