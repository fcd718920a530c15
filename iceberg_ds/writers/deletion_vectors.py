"""Deletion vectors, written and read: each says which rows of one data file are deleted, in tables of version 3.

The vectors of several data files, of any partitions, share one Puffin file; each has its own manifest entry. A data
file has at most one live vector, so a new one has the positions of the one that it replaces, too. Source: Iceberg spec,
"Deletion Vectors"; Puffin spec, "deletion-vector-v1".
"""

from __future__ import annotations

import json
import logging
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO, InputStream
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import TableVersion
from pyroaring import BitMap64

from iceberg_ds._version import __version__
from iceberg_ds.errors import DataFileError
from iceberg_ds.io.cleanup import discard_output
from iceberg_ds.messages import check_rows
from iceberg_ds.snapshots.live_files import DeletionVector, HiddenBy
from iceberg_ds.writers.position_deletes import HiddenRows, hidden_positions

logger = logging.getLogger(__name__)

_VERSION: TableVersion = 3
_VECTOR_MAGIC = bytes.fromhex("D1D33964")
_FRAME = struct.Struct(">I")  # before the vector its length, behind it its checksum
_PUFFIN_MAGIC = b"PFA1"
_BLOB_TYPE = "deletion-vector-v1"
_FOOTER_END = struct.Struct("<iI")  # length of the payload, and flags: none is set
# The most bytes of a vector: a row takes two alone, four as a run, and its share of what is noted of the rows near it.
_FEW_BYTES, _ROW_BYTES = 4096, 16
# Spec, "Reserved Field IDs": the position of a row, in each blob's list of the columns that it is about.
_POSITION_ID = 2147483645
# Puffin spec: a blob that is written before its snapshot is known inherits both.
_INHERITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blob:
    """A deletion vector as it lies in its file.

    Attributes:
        data_file: The data file whose rows it hides.
        content: Its bytes.
        offset: Its first byte in the file.
        cardinality: How many rows it hides.
    """

    data_file: DataFile
    content: bytes
    offset: int
    cardinality: int


def has_vectors(metadata: TableMetadata) -> bool:
    """Return whether position deletes that a table gets from now on are deletion vectors, and nothing else."""
    return metadata.format_version >= _VERSION


def vector_positions(io: FileIO, vector: DeletionVector, rows: int) -> pa.Array:
    """Return the positions, from 0 and ascending, of the rows that a deletion vector hides.

    Args:
        io: Opens the table's storage.
        vector: The vector.
        rows: How many rows its data file has.

    Raises:
        DataFileError: It is damaged, is another one than its manifest says, or is not of that data file.
    """
    with io.new_input(vector.path).open() as stream:
        return read_vector(stream, vector, rows)


def hidden_in(io: FileIO, file: DataFile, hidden_by: HiddenBy) -> pa.Array:
    """Return the positions, from 0 and in any order, of the rows of a data file that are hidden by position.

    Args:
        io: Opens the table's storage.
        file: The data file.
        hidden_by: What may hide rows of it.

    Raises:
        DataFileError: The deletion vector is damaged.
    """
    if hidden_by.vector is not None:
        return vector_positions(io, hidden_by.vector, file.record_count)
    return hidden_positions(io, hidden_by.positions, file.file_path)


def read_vector(stream: InputStream, vector: DeletionVector, rows: int) -> pa.Array:
    """Return what `vector_positions` returns, from the open file that the vector is in.

    Raises:
        DataFileError: As `vector_positions`.
    """
    name = f"Cannot read the deletion vector at {vector.offset} in {vector.path}"
    try:
        bitmap = _bitmap(_content(stream, vector, rows), vector.length)
    except ValueError as problem:
        raise DataFileError(f"{name}: it is damaged, {problem}.") from problem
    if len(bitmap) != vector.cardinality:
        raise DataFileError(f"{name}: it hides {len(bitmap)} rows, and its manifest says {vector.cardinality}.")
    if bitmap and (last := bitmap.max()) >= rows:
        raise DataFileError(f"{name}: it hides row {last}, counted from 0, and its data file has {rows} rows.")
    return _positions(bitmap)


def _content(stream: InputStream, vector: DeletionVector, rows: int) -> bytes:
    """Return the bytes of a vector; fail if there are more than the rows of its data file can take."""
    if vector.offset < 0 or not 0 <= vector.length <= _FEW_BYTES + _ROW_BYTES * rows:
        raise ValueError(f"it is said to have {vector.length} bytes there, for a data file with {rows} rows")
    stream.seek(vector.offset)
    return stream.read(vector.length)


def vector_owners(stream: InputStream, size_bytes: int) -> dict[tuple[int, int], str]:
    """Return the data file of each deletion vector by the footer of its Puffin file, by offset and length in bytes.

    Readers find a vector by its manifest entry alone, so a footer that is compressed, or cannot be read, says nothing.

    Args:
        stream: The open file.
        size_bytes: Its size.
    """
    try:
        stream.seek(size_bytes - _FOOTER_END.size - len(_PUFFIN_MAGIC))
        length, flags = _FOOTER_END.unpack(stream.read(_FOOTER_END.size))
        if flags or stream.read(len(_PUFFIN_MAGIC)) != _PUFFIN_MAGIC:
            return {}
        stream.seek(size_bytes - _FOOTER_END.size - len(_PUFFIN_MAGIC) - length)
        return {
            (blob["offset"], blob["length"]): blob["properties"]["referenced-data-file"]
            for blob in json.loads(stream.read(length))["blobs"]
            if blob["type"] == _BLOB_TYPE
        }
    except (OSError, ValueError, LookupError, TypeError, struct.error):
        return {}


def write_deletion_vectors(io: FileIO, path: str, hidden: Sequence[HiddenRows]) -> tuple[DataFile, ...]:
    """Write a Puffin file of deletion vectors and return their manifest entries; a file that fails is removed.

    Args:
        io: Opens the table's storage.
        path: Full location of the new file.
        hidden: The rows to hide, each data file once: all of its rows that are hidden by position from now on.

    Returns:
        An entry, as version 3 has it, for each data file, in the order of `hidden`.

    Raises:
        RowCountError: A vector does not hide exactly the rows of its data file.
        ValueError: A data file comes twice, and would have two vectors.
    """
    times = Counter(rows.data_file.file_path for rows in hidden)
    if (twice := next((name for name, count in times.items() if count > 1), None)) is not None:
        raise ValueError(f"{twice} would have two deletion vectors in {path}")
    blobs = tuple(_blobs(path, hidden))
    parts = [_PUFFIN_MAGIC, *(blob.content for blob in blobs), _footer(blobs)]
    size = sum(map(len, parts))
    stream = io.new_output(path).create(overwrite=True)  # the name is unique: no need to check first
    try:
        for part in parts:
            stream.write(part)
        stream.close()
    except BaseException:
        discard_output(io, path, stream)
        raise
    logger.debug("Wrote %s: %d deletion vectors, %d bytes", path, len(blobs), size)
    return tuple(_entry(path, size, blob) for blob in blobs)


def _blobs(path: str, hidden: Sequence[HiddenRows]) -> Iterator[_Blob]:
    offset = len(_PUFFIN_MAGIC)
    for rows in hidden:
        content = _encoded(rows.positions)
        cardinality = len(_bitmap(content, len(content)))
        source = f"the deletion vector of {rows.data_file.file_path} is to hide"
        check_rows(f"write {path}", source, len(rows.positions), {"in it": cardinality})
        yield _Blob(data_file=rows.data_file, content=content, offset=offset, cardinality=cardinality)
        offset += len(content)


def _encoded(positions: Sequence[int]) -> bytes:
    bitmap = BitMap64(_numbers(pa.array(positions, pa.int64())))
    bitmap.run_optimize()
    body = _VECTOR_MAGIC + bitmap.serialize()
    return _FRAME.pack(len(body)) + body + _FRAME.pack(zlib.crc32(body))


def _numbers(positions: pa.Array) -> Sequence[int]:
    """Return the values of an array in its own memory."""
    if not len(positions):
        return ()
    first = positions.offset
    return memoryview(positions.buffers()[1]).cast("B").cast("q")[first : first + len(positions)]


def _bitmap(content: bytes, length: int) -> BitMap64:
    """Return the positions of a deletion vector.

    Args:
        content: Its bytes, as they were read.
        length: How many bytes it has.

    Raises:
        ValueError: It is damaged.
    """
    size = _FRAME.size
    body = content[size:-size]
    if len(content) != length or length <= 2 * size + len(_VECTOR_MAGIC):
        raise ValueError(f"{len(content)} bytes of {length} are there")
    if _FRAME.unpack(content[:size])[0] != len(body):
        raise ValueError(f"its length is not that of its {len(body)} bytes")
    if not body.startswith(_VECTOR_MAGIC):
        raise ValueError(f"it begins with {body[: len(_VECTOR_MAGIC)].hex()}")
    if _FRAME.unpack(content[-size:])[0] != zlib.crc32(body):
        raise ValueError("its checksum is wrong")
    return BitMap64.deserialize(body[len(_VECTOR_MAGIC) :])


def _positions(bitmap: BitMap64) -> pa.Array:
    numbers = bitmap.to_array()
    found = pa.Array.from_buffers(pa.uint64(), len(numbers), [None, pa.py_buffer(numbers)])
    return found.cast(pa.int64())


def _footer(blobs: Sequence[_Blob]) -> bytes:
    listed = [
        {
            "type": _BLOB_TYPE,
            "fields": [_POSITION_ID],
            "snapshot-id": _INHERITED,
            "sequence-number": _INHERITED,
            "offset": blob.offset,
            "length": len(blob.content),
            "properties": {"referenced-data-file": blob.data_file.file_path, "cardinality": str(blob.cardinality)},
        }
        for blob in blobs
    ]
    payload = json.dumps({"blobs": listed, "properties": {"created-by": f"iceberg-ds {__version__}"}}).encode()
    return _PUFFIN_MAGIC + payload + _FOOTER_END.pack(len(payload), 0) + _PUFFIN_MAGIC


def _entry(path: str, size_bytes: int, blob: _Blob) -> DataFile:
    entry = DataFile.from_args(
        _table_format_version=_VERSION,
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PUFFIN,
        partition=blob.data_file.partition,
        record_count=blob.cardinality,
        file_size_in_bytes=size_bytes,
        referenced_data_file=blob.data_file.file_path,
        content_offset=blob.offset,
        content_size_in_bytes=len(blob.content),
    )
    entry.spec_id = blob.data_file.spec_id
    return entry
