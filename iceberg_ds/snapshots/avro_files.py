"""Avro files of manifests and manifest lists, read and written by PyIceberg's readers and writers of values.

PyIceberg works out for each file how its schema is decoded or encoded, which takes longer than most manifests take. It
is kept here for each schema: the manifests of a table have few.

PyIceberg also takes a file that was cut off in the frame of a block, or has an empty block, for one with fewer records:
files that a manifest lists would be deleted as if nothing listed them. So the frame is read here. Who reads a file has
to tell by other means that it was cut off right behind a block.

And values are read otherwise than by PyIceberg in three respects. Its fast decoder cuts doubles to the digits of
floats: partitions would not be told apart, and entries that are written again would have wrong ones. It does not know
the Avro types that a schema defines once and then names, as Iceberg's Java library writes several partition fields of
one decimal type, or of uuid. And it cannot pass over all that is not asked for: it refuses maps, such as the metrics of
a file, and loses its place at a decimal.

Rests on PyIceberg's inner layout: the readers of its headers, and how its files are written (contract tests hold it).
Source: Avro spec, "Object Container Files".
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from types import TracebackType
from typing import Any, Generic, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import (
    ReadSchemaResolver,
    SchemaPartnerAccessor,
    construct_reader,
    construct_writer,
    resolve_writer,
)
from pyiceberg.avro.writer import Writer
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import DoubleType, IcebergType, NestedField
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from iceberg_ds.io.stores import DiscardableStream

_T = TypeVar("_T", bound=StructProtocol)
_AVRO_SCHEMA = "avro.schema"
# The parts of an Avro schema that are types (Avro spec, "Complex Types").
_TYPES = frozenset({"type", "fields", "items", "values"})
# The largest number of schemas whose decoders are kept: a table has one for each partition spec and format version.
_KNOWN_SCHEMAS = 128


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AvroLayout(Generic[_T]):
    """What the records of a kind of files are read into; told from others by which object it is.

    Attributes:
        schema: The fields to read; those that a file lacks are null.
        types: The classes of records, by the id of the field that holds them, -1 for the whole.
        enums: The enumerations, by field id.
    """

    schema: Schema
    types: Mapping[int, Callable[..., StructProtocol]]
    enums: Mapping[int, Callable[..., Enum]]


def read_avro(file: InputFile, layout: AvroLayout[_T], *, has_blocks: bool = False) -> Iterator[_T]:
    """Yield the records of a file.

    Args:
        file: The file.
        layout: What its records are read into.
        has_blocks: Whether it must have a block: without one it was cut off right behind its header.

    Raises:
        ValueError: The file is no Avro file, or is damaged, or was cut off elsewhere than right behind a block.
    """
    with file.open() as stream:
        content = stream.read()
    checked = StreamingBinaryDecoder(content)  # the fast one reads on behind the end of what it is given
    try:
        header: AvroFileHeader = _header_reader().read(checked)
        if header.magic != MAGIC or _AVRO_SCHEMA not in header.meta:
            raise ValueError(f"{file.location} is no Avro file")
        reader, has_doubles = _decoding(header.meta[_AVRO_SCHEMA], layout)
        if has_blocks and checked.tell() == len(content):
            raise ValueError(f"{file.location} was cut off behind its header")
        while checked.tell() < len(content):
            count, block = checked.read_int(), checked.read(checked.read_int())
            if count < 0 or checked.read(SYNC_SIZE) != header.sync:
                raise ValueError(f"{file.location} is damaged before byte {checked.tell():,}")
            block = _decompressed(block, header)
            inner = new_decoder(block)
            decoder = _ExactDecoder(inner) if has_doubles else inner
            for _ in range(count):
                yield reader.read(decoder)  # type: ignore[arg-type]  # quacks alike
            if inner.tell() != len(block):
                raise ValueError(f"{file.location} is damaged before byte {checked.tell():,}")
    except EOFError as error:
        raise ValueError(f"{file.location} was cut off: {len(content):,} bytes are not all of it") from error


def _decompressed(block: bytes, header: AvroFileHeader) -> bytes:
    codec = header.compression_codec() if AVRO_CODEC_KEY in header.meta else None
    return block if codec is None else codec.decompress(block)


@lru_cache(_KNOWN_SCHEMAS)
def _decoding(text: str, layout: AvroLayout[Any]) -> tuple[Reader, bool]:
    """Return what reads records of an Avro schema, and whether there are doubles among their values."""
    parsed = json.loads(text)
    schema = AvroSchemaConversion().avro_to_iceberg(_spelled_out(parsed, {}) if '"fixed"' in text else parsed)
    resolver = _Resolver(dict(layout.types), dict(layout.enums))
    reader: Reader = visit_with_partner(schema, layout.schema, resolver, _Partners())  # type: ignore[misc]  # as there
    return reader, any(isinstance(schema.find_type(field_id), DoubleType) for field_id in schema.field_ids)


class _Resolver(ReadSchemaResolver):
    """Works out how records are read; what is not asked for is passed over."""

    def field(self, field: NestedField, expected_field: IcebergType | None, field_reader: Reader) -> Reader:
        """Return what reads a field, or passes over it."""
        reader = super().field(field, expected_field, field_reader)
        return _Passed(reader) if expected_field is None else reader


class _Partners(SchemaPartnerAccessor):
    """Finds what is asked for of each field of a file: nothing of what is within a field that is not asked for."""

    def field_partner(self, partner: IcebergType | None, field_id: int, field_name: str) -> IcebergType | None:
        """Return what is asked for of a field."""
        return None if partner is None else super().field_partner(partner, field_id, field_name)

    def list_element_partner(self, partner_list: IcebergType | None) -> IcebergType | None:
        """Return what is asked for of the elements of a list."""
        return None if partner_list is None else super().list_element_partner(partner_list)

    def map_key_partner(self, partner_map: IcebergType | None) -> IcebergType | None:
        """Return what is asked for of the keys of a map."""
        return None if partner_map is None else super().map_key_partner(partner_map)

    def map_value_partner(self, partner_map: IcebergType | None) -> IcebergType | None:
        """Return what is asked for of the values of a map."""
        return None if partner_map is None else super().map_value_partner(partner_map)


class _Passed(Reader):
    """Passes over a value by reading it.

    PyIceberg's own skipping takes twice as long for maps, and takes a decimal for another type.
    """

    def __init__(self, whole: Reader) -> None:
        self._whole = whole

    def read(self, decoder: BinaryDecoder) -> object:
        """Return the value."""
        return self._whole.read(decoder)

    def skip(self, decoder: BinaryDecoder) -> None:
        """Read the value for nothing."""
        self._whole.read(decoder)


def _spelled_out(schema: Any, known: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON
    """Return an Avro schema with the definitions of fixed types in place of their names.

    Args:
        schema: The schema, or a part of it.
        known: The definitions before it, by name; definitions in it are added.
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
    """A decoder that reads doubles as the Avro spec defines them, and leaves all else to the inner decoder."""

    def __init__(self, inner: BinaryDecoder) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any attribute that the reader asks for
        return getattr(self._inner, name)

    def read_double(self) -> float:
        """Read eight bytes, the lowest first (Avro spec, "Primitive Types")."""
        (number,) = struct.unpack("<d", self._inner.read(8))
        return float(number)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AvroEncoding:
    """How the records of a kind of files are written.

    Attributes:
        writer: Writes a record.
        schema_text: The Avro schema of a file.
    """

    writer: Writer
    schema_text: str

    @classmethod
    def of(cls, name: str, schema: Schema, records: Schema | None = None) -> AvroEncoding:
        """Return how records are written.

        Args:
            name: Name of the records.
            schema: The fields in the file.
            records: The fields of the records in memory, None for the same.
        """
        return cls(
            writer=construct_writer(schema) if records is None else resolve_writer(records, schema),
            schema_text=json.dumps(AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)),
        )


class AvroWriter(AvroOutputFile[_T]):
    """A file that is written block by block, and does not appear in an object store if its block of code fails.

    Args:
        file: Where it goes.
        encoding: How its records are written.
        metadata: Further entries of its header, Avro's name of the codec among them.
    """

    def __init__(self, file: OutputFile, encoding: AvroEncoding, metadata: Mapping[str, str]) -> None:
        self.output_file = file
        self.sync_bytes = os.urandom(SYNC_SIZE)
        self.writer = encoding.writer
        self.metadata = {**metadata, _AVRO_SCHEMA: encoding.schema_text}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file; PyIceberg would close it after an error, too, and what is written of it would appear."""
        if kind is not None and isinstance(self.output_stream, DiscardableStream):
            self.output_stream.discard()
        super().__exit__(kind, error, traceback)

    def _write_header(self) -> None:
        _header_writer().write(self.encoder, AvroFileHeader(MAGIC, self.metadata, self.sync_bytes))


@cache
def _header_writer() -> Writer:
    return construct_writer(META_SCHEMA)


@cache
def _header_reader() -> Reader:
    return construct_reader(META_SCHEMA, {-1: AvroFileHeader})
