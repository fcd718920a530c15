"""Table metadata that a process has read or written before: not read again, and not put into words again.

A metadata file never changes: its name holds a UUID, and each commit writes another one. The catalog is asked at each
load where the table stands, so that a look at the table is as fresh as ever; only the file that it names is not read
twice. What is handed out shares its snapshots with what is kept, and nobody may change those; its lists and
dictionaries are its own.

PyIceberg's catalogs read and write these files through this module (`pyiceberg_patches`) in the calls that
`MetadataFiles.at_hand` surrounds; all others are carried out as before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import replace

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.serializers import Compressor, FromInputFile, ToOutputFile
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.catalogs.garbage_collection import no_garbage_collection
from iceberg_ds.catalogs.metadata_words import (
    SPOKEN_VERSION,
    KnownMetadata,
    continued,
    read_whole,
    spoken,
    text_of,
)
from iceberg_ds.configuration import read_configuration
from iceberg_ds.storage.known_files import KnownFiles

# A file that cannot have been another one before: PyIceberg's, Iceberg's and Trino's names of it.
_UNIQUE_NAME = re.compile(r"/\d+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.gz)?\.metadata\.json(\.gz)?$")
# About 5 kB each, beside what the table has beyond them.
_MAX_SNAPSHOTS = 20_000
_TABLE_WEIGHT = 200

_HEAD_BYTES = 4096  # within which files of PyIceberg name their table

_read_as_before = FromInputFile.table_metadata
_write_as_before = ToOutputFile.table_metadata


class MetadataFiles:
    """The metadata files at which the tables of a catalog stood when they were last seen; threads may share it.

    Args:
        max_snapshots: How many snapshots are kept in all; tables that were not used for the longest time go first.
    """

    def __init__(self, max_snapshots: int = _MAX_SNAPSHOTS) -> None:
        self._known = KnownFiles(_UNIQUE_NAME, _weight, max_snapshots)

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
        """Return what a file holds, of which only what is new is parsed if it goes on from what is known."""
        head = content[:_HEAD_BYTES]
        before = self._known.find_such(lambda known: str(known.metadata.table_uuid).encode() in head)
        with no_garbage_collection():
            known = None if before is None else continued(before, content)
            return read_whole(content) if known is None else known

    def _keep(self, location: str, known: KnownMetadata) -> None:
        """Keep it in the place of what is known of the same table."""
        table_uuid = known.metadata.table_uuid
        self._known.keep(location, known, replaces=lambda seen: seen.metadata.table_uuid == table_uuid)


def _weight(known: KnownMetadata) -> int:
    """Return how many snapshots it takes the room of."""
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
    """Return what the current call may use, None if it is none of ours."""
    return _at_hand.get()


def read_metadata(input_file: InputFile, encoding: str = "utf-8") -> TableMetadata:
    """Return what a metadata file holds, by what the call has at hand, if anything."""
    files = _at_hand.get()
    return _read_as_before(input_file, encoding) if files is None else files.read(input_file)


def write_metadata(metadata: TableMetadata, output_file: OutputFile, overwrite: bool = False) -> None:  # noqa: FBT001, FBT002  # PyIceberg's signature
    """Write a metadata file, by what the call has at hand, if anything."""
    files = _at_hand.get()
    if files is None:
        _write_as_before(metadata, output_file, overwrite)
    else:
        files.write(metadata, output_file, overwrite=overwrite)
