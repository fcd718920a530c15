"""Marks variants in the footer of a Parquet file, which PyArrow reads there and cannot write.

Readers that go by Parquet alone, as Spark's without a schema, would take a variant for a struct. So what Arrow's writer
writes last is held back, and the mark is put into its schema: nothing before the footer changes its place. A footer is
a structure of Thrift's compact protocol. Sources: Parquet spec, "File Format" and "LogicalTypes", `parquet.thrift`;
Thrift spec, "Compact protocol encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from pyiceberg.io import OutputStream

_TRAILER = struct.Struct("<I4s")
# `FileMetaData.schema`, and in each `SchemaElement` of it `field_id` and `logicalType`.
_SCHEMA, _FIELD_ID, _LOGICAL_TYPE = 2, 9, 10
# `LogicalType.VARIANT`, its number 16, whose `specification_version`, a byte, is 1; and the ends of both.
_VARIANT = bytes([0x0C, 0x20, 0x13, 0x01, 0x00, 0x00])
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_VARINTS = (4, 5, 6)
_STOP = b"\0"
_LONG_LIST = 15
_DOUBLE_BYTES = 8


class MarkedOutput:
    """Where Arrow's writer writes a Parquet file with variants to, as to the output stream behind it.

    Args:
        stream: Where the file goes.
        variants: The field ids of its variants, at any depth.
    """

    closed = False  # Arrow asks; the stream is closed by the one who opened it

    def __init__(self, stream: OutputStream, variants: Collection[int]) -> None:
        self._stream = stream
        self._variants = variants
        self._held: bytearray | None = None

    def tell(self) -> int:
        """Return how many bytes the file has, with those that are held back."""
        return self._stream.tell() + len(self._held or b"")

    def write(self, data: bytes) -> int:
        """Write, or hold back."""
        if self._held is None:
            return self._stream.write(data)
        self._held += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: the stream is flushed when it is closed."""

    def hold(self) -> None:
        """Hold back what comes from now on: the end of the file, to its last byte."""
        self._held = bytearray()

    def release(self) -> None:
        """Write what was held back, with the marks."""
        held, self._held = bytes(self._held or b""), None
        length, magic = _TRAILER.unpack(held[-_TRAILER.size :])
        begin = len(held) - _TRAILER.size - length
        footer = with_variants(held[begin : -_TRAILER.size], self._variants)
        self._stream.write(held[:begin] + footer + _TRAILER.pack(len(footer), magic))


def with_variants(footer: bytes, variants: Collection[int]) -> bytes:
    """Return the footer of a file, in Thrift's compact protocol, with the groups marked that are variants.

    Args:
        footer: The footer; nothing in it is marked yet.
        variants: The field ids of the variants, at any depth.
    """
    cursor = _Cursor(footer, _Cursor(footer).fields()[_SCHEMA])
    count = cursor.count()
    parts = [footer[: cursor.at]]
    for _ in range(count):
        begin = cursor.at
        fields = cursor.fields()
        parts.append(footer[begin : cursor.at - len(_STOP)])
        if _FIELD_ID in fields and _Cursor(footer, fields[_FIELD_ID]).number() in variants:
            steps = _LOGICAL_TYPE - max(fields)
            parts += [bytes([steps << 4 | _STRUCT]), _VARIANT]
        parts.append(_STOP)
    return b"".join([*parts, footer[cursor.at :]])


class _Cursor:
    """A place in bytes of Thrift's compact protocol."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at

    def fields(self) -> dict[int, int]:
        """Return where the value of each field of a structure begins, by its number, in their order; go behind it."""
        found: dict[int, int] = {}
        last = 0
        while header := self._byte():
            steps, kind = header >> 4, header & 0xF
            last = last + steps if steps else self.number()
            found[last] = self.at
            self._skip(kind)
        return found

    def number(self) -> int:
        """Return a whole number with a sign; go behind it."""
        raw = self._varint()
        return raw >> 1 ^ -(raw & 1)

    def count(self) -> int:
        """Return how many elements a list has; go to the first."""
        return self._list_header()[0]

    def _list_header(self) -> tuple[int, int]:
        header = self._byte()
        count = header >> 4
        return (self._varint() if count == _LONG_LIST else count), header & 0xF

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004  # the last one
                return value

    def _skip(self, kind: int, *, is_element: bool = False) -> None:
        if kind in (_TRUE, _FALSE):  # the header of a field says it
            self.at += is_element
        elif kind == _BYTE:
            self.at += 1
        elif kind in _VARINTS:
            self._varint()
        elif kind == _DOUBLE:
            self.at += _DOUBLE_BYTES
        elif kind == _BINARY:
            length = self._varint()
            self.at += length
        elif kind in (_LIST, _SET):
            count, inside = self._list_header()
            for _ in range(count):
                self._skip(inside, is_element=True)
        elif kind == _STRUCT:
            self.fields()
        else:
            raise ValueError(f"a Parquet footer has no values of Thrift's type {kind}")
