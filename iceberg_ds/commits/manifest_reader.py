"""Reads the entries of manifests.

Rests on PyIceberg's inner layout, as `manifests` does (contract tests hold it), for two reasons. Its fast Avro decoder
cuts doubles to the digits of floats: partitions would not be told apart, and entries that are written again would
say the wrong ones. And it does not know the Avro types that a schema defines once and then names, as Iceberg's Java
library writes several partition fields of one decimal type, or of uuid.
"""

from __future__ import annotations

import json
import struct
from functools import cached_property
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroFile, AvroFileHeader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
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
from pyiceberg.typedef import TableVersion
from pyiceberg.types import DoubleType

_WITH_DELETION_VECTORS: TableVersion = 3
_POSITIONS = {field.field_id: position for position, field in enumerate(DATA_FILE_TYPE[_WITH_DELETION_VECTORS].fields)}
# Spec, "Manifests": content_offset and content_size_in_bytes.
_CONTENT_OFFSET, _CONTENT_SIZE = _POSITIONS[144], _POSITIONS[145]
_AVRO_SCHEMA = "avro.schema"
# The parts of an Avro schema that are types (Avro spec, "Complex Types").
_TYPES = frozenset({"type", "fields", "items", "values"})


def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of `manifest` whose files are in the table, with inherited numbers filled in."""
    entries = _entries(io, manifest, DEFAULT_READ_VERSION)
    live = [entry for entry in entries if entry.status is not ManifestEntryStatus.DELETED]
    return [_inherit_from_manifest(entry, manifest) for entry in live]


def all_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return all entries of `manifest`, removed files too, with inherited numbers filled in, as version 3 has them."""
    return [_inherit_from_manifest(entry, manifest) for entry in _entries(io, manifest, _WITH_DELETION_VECTORS)]


def deletion_vector(data_file: DataFile) -> tuple[int, int] | None:
    """Return offset and length of the deletion vector that an entry of `all_entries` names, None if it names a file."""
    offset, length = data_file[_CONTENT_OFFSET], data_file[_CONTENT_SIZE]
    return None if offset is None else (int(offset), int(length))


def _entries(io: FileIO, manifest: ManifestFile, version: TableVersion) -> list[ManifestEntry]:
    with _ManifestAvroFile(
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[version],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        return list(entries)


class _ManifestAvroFile(AvroFile[ManifestEntry]):
    """A manifest, whatever the types of its partition values."""

    def _read_header(self) -> AvroFileHeader:
        header = super()._read_header()
        text = header.meta[_AVRO_SCHEMA]
        if '"fixed"' in text:
            header.meta[_AVRO_SCHEMA] = json.dumps(_spelled_out(json.loads(text), {}))
        return header

    @cached_property
    def _has_doubles(self) -> bool:
        return any(isinstance(self.schema.find_type(field_id), DoubleType) for field_id in self.schema.field_ids)

    def _read_block(self) -> int:
        count = super()._read_block()
        if self.block is not None and self._has_doubles:
            self.block.block_decoder = _ExactDecoder(self.block.block_decoder)  # type: ignore[assignment]  # quacks alike
        return count


def _spelled_out(schema: Any, known: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON
    """Return an Avro schema with the definitions of fixed types in place of their names.

    Args:
        schema: The schema, or a part of it.
        known: The definitions before it, by name; those in it are added.
    """
    if isinstance(schema, str):
        return known.get(schema, schema)
    if isinstance(schema, list):
        return [_spelled_out(part, known) for part in schema]
    if schema.get("type") == "fixed":
        known[schema["name"]] = schema
        return schema
    return {key: _spelled_out(part, known) if key in _TYPES else part for key, part in schema.items()}


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
