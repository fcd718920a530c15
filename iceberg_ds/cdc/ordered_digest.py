"""Pure: a digest of many rows in their order, over all their columns at any depth.

Equal digests mean the same rows in the same order, in whatever batches they came: what makes up a column goes through
SHA-256 (FIPS 180-4), of which no two inputs with one digest are known. Values count bit by bit: a NaN is itself, and
`-0.0` is not `0.0`. Knows only Arrow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.cdc.keys import stored

if TYPE_CHECKING:
    from hashlib import _Hash

_BITS = 8
_NOTHING = pa.py_buffer(b"")  # the buffers of no values may be missing


class OrderedDigest:
    """The digest of some rows in their order.

    Args:
        count: How many rows they are.
        hashes: A hash of each of the streams of bytes that their columns are; empty if there are no rows.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, count: int = 0, hashes: Sequence[_Hash] = ()) -> None:
        self.count = count
        self._hashes = hashes

    def with_rows(self, rows: pa.RecordBatch) -> OrderedDigest:
        """Return the digest of these rows and of further ones; all batches have the same columns in the same order."""
        streams = [stream for column in rows.columns for stream in _streams(column)]
        hashes = [so_far.copy() for so_far in self._hashes] or [hashlib.sha256() for _ in streams]
        for so_far, stream in zip(hashes, streams, strict=True):
            so_far.update(stream)
        return OrderedDigest(self.count + rows.num_rows, hashes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OrderedDigest):
            return NotImplemented
        return (self.count, self.of_streams) == (other.count, other.of_streams)

    @property
    def of_streams(self) -> list[bytes]:
        """The digest of each of these streams."""
        return [so_far.digest() for so_far in self._hashes]


def _streams(column: pa.Array) -> Iterator[pa.Buffer]:
    """Yield the bytes of a column, which together say each of its values: which are null, how long they are, what else.

    How many streams there are depends on the type alone, and each goes on where that of the rows before ended.
    """
    values = stored(column)
    yield _fixed(values.is_valid())
    kind = values.type
    if pa.types.is_null(kind):
        return
    if pa.types.is_struct(kind):
        for part in values.flatten():  # null where the struct is
            yield from _streams(part)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        lists = _entries(values) if pa.types.is_map(kind) else values
        lengths = pc.list_value_length(lists).drop_null()
        yield _fixed(lengths)
        yield from _streams(_elements(lists, pc.sum(lengths).as_py() or 0))
    else:
        values = values.drop_null() if values.null_count else values
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            yield _fixed(pc.binary_length(values))
            yield _text(values)
        else:
            yield _fixed(values)


def _entries(maps: pa.MapArray) -> pa.ListArray:
    """Return maps as lists of their entries."""
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], ["key", "value"])
    offsets = pa.concat_arrays([maps.offsets]) if len(maps) else pa.array([0], pa.int32())
    return pa.ListArray.from_arrays(offsets, entries, mask=maps.is_null() if maps.null_count else None)


def _elements(lists: pa.ListArray, count: int) -> pa.Array:
    """Return the elements of lists, of which there are so many in those that are not null."""
    if not count:
        return lists.values.slice(0, 0)
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    # There may be others behind nulls; they are seldom, and Arrow cannot leave out those of all types.
    return lists.values.slice(first, count) if last - first == count else lists.flatten()


def _fixed(values: pa.Array) -> pa.Buffer:
    """Return the bytes of values of a fixed width, none of which is null."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    width = values.type.bit_width // _BITS
    return values.buffers()[1].slice(values.offset * width, len(values) * width) if len(values) else _NOTHING


def _text(values: pa.Array) -> pa.Buffer:
    """Return the bytes of strings, none of which is null, one behind the other."""
    if not len(values):
        return _NOTHING
    _, offsets, text = values.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, offsets], offset=values.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    return text.slice(first, last - first) if last > first else _NOTHING
