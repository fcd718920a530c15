"""Reads the entries of manifests.

Rests on PyIceberg's inner layout, as `manifests` does (contract tests hold it), because its fast Avro decoder cuts
doubles to the digits of floats: partitions would not be told apart, and entries that are written again would
say the wrong ones.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.types import DoubleType


def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of `manifest` whose files are in the table, with inherited numbers filled in."""
    with _ManifestAvroFile(
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        live = [entry for entry in entries if entry.status is not ManifestEntryStatus.DELETED]
    return [_inherit_from_manifest(entry, manifest) for entry in live]


class _ManifestAvroFile(AvroFile[ManifestEntry]):
    """A manifest whose partition values of type double are read with all their digits."""

    @cached_property
    def _has_doubles(self) -> bool:
        return any(isinstance(self.schema.find_type(field_id), DoubleType) for field_id in self.schema.field_ids)

    def _read_block(self) -> int:
        count = super()._read_block()
        if self.block is not None and self._has_doubles:
            self.block.block_decoder = _ExactDecoder(self.block.block_decoder)  # type: ignore[assignment]  # quacks alike
        return count


class _ExactDecoder:
    """A decoder that reads doubles as the Avro spec has them, and leaves all else to another one."""

    def __init__(self, inner: BinaryDecoder) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the reader asks for
        return getattr(self._inner, name)

    def read_double(self) -> float:
        """Read eight bytes, the lowest first (Avro spec, "Primitive Types")."""
        (number,) = struct.unpack("<d", self._inner.read(8))
        return float(number)
