"""A reader of Avro files, as far as Iceberg's manifests need it; shares no code with the sink or PyIceberg.

Source: Avro specification 1.11, "Binary encoding" and "Object container files".
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_FILE_METADATA = {"type": "map", "values": "bytes"}


class AvroError(ValueError):
    """A file is no Avro file that this reader knows."""


def read_avro(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise AvroError(f"{path} is no Avro file.")
        metadata = _read(file, _FILE_METADATA, {})
        codec = metadata.get("avro.codec", b"null").decode()
        sync = file.read(_SYNC_BYTES)
        return list(_records(file, json.loads(metadata["avro.schema"]), codec, sync, path))


def _records(file: io.BufferedReader, schema: Any, codec: str, sync: bytes, path: Path) -> Iterator[dict[str, Any]]:
    while file.peek(1):
        count, size = _long(file), _long(file)
        block = _unpacked(_exactly(file, size), codec)
        if _exactly(file, _SYNC_BYTES) != sync:
            raise AvroError(f"{path} has a block that does not end where it says.")
        for _ in range(count):
            yield _read(block, schema, {})


def _unpacked(block: bytes, codec: str) -> BinaryIO:
    match codec:
        case "null":
            return io.BytesIO(block)
        case "deflate":
            return io.BytesIO(zlib.decompress(block, wbits=-zlib.MAX_WBITS))
    raise AvroError(f"The codec {codec} is not known.")


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise AvroError("The file ends too early.")
    return data


def _long(file: BinaryIO) -> int:
    value = shift = 0
    while True:
        byte = _exactly(file, 1)[0]
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1)


def _read(file: BinaryIO, schema: Any, names: dict[str, Any]) -> Any:
    """Return the next value of a schema; `names` holds the records that have been named so far."""
    if isinstance(schema, list):
        return _read(file, schema[_long(file)], names)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if not isinstance(kind, str):
        return _read(file, kind, names)
    if kind in _PRIMITIVE:
        return _PRIMITIVE[kind](file)
    if kind in _COMPLEX:
        return _COMPLEX[kind](file, schema, names)
    return _read(file, names[kind], names)


def _bytes(file: BinaryIO) -> bytes:
    return _exactly(file, _long(file))


def _record(file: BinaryIO, schema: Any, names: dict[str, Any]) -> dict[str, Any]:
    names[schema["name"]] = schema
    return {part["name"]: _read(file, part["type"], names) for part in schema["fields"]}


def _fixed(file: BinaryIO, schema: Any, names: dict[str, Any]) -> bytes:
    names[schema["name"]] = schema
    return _exactly(file, schema["size"])


def _array(file: BinaryIO, schema: Any, names: dict[str, Any]) -> list[Any]:
    return [_read(file, schema["items"], names) for _ in _blocks(file)]


def _map(file: BinaryIO, schema: Any, names: dict[str, Any]) -> dict[str, Any]:
    return {_bytes(file).decode(): _read(file, schema["values"], names) for _ in _blocks(file)}


def _blocks(file: BinaryIO) -> Iterator[int]:
    """Yield once for each item of an array or a map, right before it is to be read."""
    while count := _long(file):
        if count < 0:  # the size in bytes follows, for those who skip it
            _long(file)
        yield from range(abs(count))


_PRIMITIVE: dict[str, Callable[[BinaryIO], Any]] = {
    "null": lambda _: None,
    "boolean": lambda file: _exactly(file, 1) == b"\x01",
    "int": _long,
    "long": _long,
    "float": lambda file: struct.unpack("<f", _exactly(file, 4))[0],
    "double": lambda file: struct.unpack("<d", _exactly(file, 8))[0],
    "bytes": _bytes,
    "string": lambda file: _bytes(file).decode(),
}
_COMPLEX: dict[str, Callable[[BinaryIO, Any, dict[str, Any]], Any]] = {
    "record": _record,
    "fixed": _fixed,
    "array": _array,
    "map": _map,
}
