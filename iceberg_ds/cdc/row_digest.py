"""Pure: digests of rows over all their columns at any depth: of each row, and of many, in their order or in any.

Values count bit by bit: a NaN is itself, and `-0.0` is not `0.0`.

In any order (`RowDigest`): each row has a digest of 64 bits; the digest of many rows, for a proof that files have the
same ones, is their count and the sum of their digests. Two different rows, or collections of rows, have equal digests
by chance only, about once in 2^64 cases; with a seed that is known, as the proof has, they prove nothing against
somebody who wants rows to collide.

In their order (`OrderedDigest`): equal digests mean the same rows in the same order, however they are divided into
batches. The bytes of a column go through SHA-256 (FIPS 180-4), for which no two inputs with the same digest are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from secrets import randbits
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.cdc.keys import mix, mix_column, numbers_from, stored

if TYPE_CHECKING:
    from hashlib import _Hash

_SEED = 0x1CEBE56
_SEED_BITS = 64
_OF_ELEMENTS, _OF_NULLS, _OF_STRUCTS = (pa.scalar(value, pa.uint64()) for value in (0xE1E3E27, 0x9011, 0x57C7))
_MODULUS = 2**64
_BITS = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
_BITS_OF_BYTE = 8
_NOTHING = pa.py_buffer(b"")  # the buffers of no values may be missing


@dataclass(frozen=True, slots=True)
class RowDigest:
    """The digest of some rows.

    Attributes:
        count: How many rows they are.
        total: The sum of their digests, modulo 2^64.
    """

    count: int = 0
    total: int = 0

    def with_rows(self, rows: pa.RecordBatch) -> RowDigest:
        """Return the digest of these rows and of further ones; all batches have the same columns in the same order."""
        added = pc.sum(digest_rows(rows, _SEED)).as_py() or 0
        return RowDigest(self.count + rows.num_rows, (self.total + added) % _MODULUS)


def random_seeds() -> tuple[int, int]:
    """Return two seeds of `digest_rows` that cannot be known before, so that rows that collide cannot be prepared."""
    return randbits(_SEED_BITS), randbits(_SEED_BITS)


def digest_rows(rows: pa.RecordBatch, seed: int) -> pa.Array:
    """Return the digest of each row as uint64; digests by several seeds collide independently of each other.

    Args:
        rows: The rows.
        seed: From 0, below 2^64.
    """
    digests = pa.repeat(pa.scalar(seed, pa.uint64()), rows.num_rows)
    for column in rows.columns:
        digests = _mixed(digests, column)
    return digests


def _mixed(digests: pa.Array, column: pa.Array) -> pa.Array:
    """Return the next digests: those so far, and the values of a column of any type."""
    values = stored(column)
    if not values.null_count:
        return _mixed_values(digests, values)
    is_there = values.is_valid()
    # Inverted, because every word that is mixed is a value of some type.
    of_nulls = pc.bit_wise_not(mix(digests, pa.repeat(_OF_NULLS, len(values))))
    there = _mixed_values(digests.filter(is_there), values.filter(is_there))
    return pc.replace_with_mask(of_nulls, is_there, there)


def _mixed_values(digests: pa.Array, values: pa.Array) -> pa.Array:
    """Return the next digests for values without nulls."""
    kind = values.type
    if pa.types.is_null(kind):
        return digests
    if pa.types.is_struct(kind):
        digests = mix(digests, pa.repeat(_OF_STRUCTS, len(values)))  # a struct of nulls is no null
        for part in values.flatten():
            digests = _mixed(digests, part)
        return digests
    if pa.types.is_list(kind):
        return _mixed_elements(digests, values.offsets, values.values)
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
        return _mixed_elements(digests, values.offsets, entries)
    if pa.types.is_floating(kind):
        return mix(digests, values.view(_BITS[kind.bit_width]).cast(pa.uint64()))
    return mix_column(digests, values)


def _mixed_elements(digests: pa.Array, offsets: pa.Array, elements: pa.Array) -> pa.Array:
    """Return the next digests for lists: the length of each, and its elements with their places in it.

    An element's digest begins with that of its row, so that other seeds make other sums.
    """
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    starts = pc.subtract(offsets.cast(pa.int64()), pa.scalar(first, pa.int64()))
    lengths = pc.subtract(starts[1:], starts[:-1])
    lists = pa.ListArray.from_arrays(starts.cast(pa.int32()), elements.slice(first, last - first))
    parents = pc.list_parent_indices(lists)
    places = pc.subtract(numbers_from(0, last - first), starts.take(parents))
    of_rows = mix(digests, pa.repeat(_OF_ELEMENTS, len(digests)))
    seeds = mix(of_rows.take(parents), places.view(pa.uint64()))
    sums = pc.cumulative_sum(
        pa.concat_arrays([pa.array([0], pa.uint64()), _mixed(seeds, elements.slice(first, last - first))])
    )
    of_each = pc.subtract(sums.take(starts[1:]), sums.take(starts[:-1]))
    return mix(mix(digests, lengths.view(pa.uint64())), of_each)


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
    """Return the elements of the lists that are not null; `count` says how many elements these lists have."""
    if not count:
        return lists.values.slice(0, 0)
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    # There may be others behind nulls; they are seldom, and Arrow cannot leave out those of all types.
    return lists.values.slice(first, count) if last - first == count else lists.flatten()


def _fixed(values: pa.Array) -> pa.Buffer:
    """Return the bytes of values that have a fixed width and no nulls."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    width = values.type.bit_width // _BITS_OF_BYTE
    return values.buffers()[1].slice(values.offset * width, len(values) * width) if len(values) else _NOTHING


def _text(values: pa.Array) -> pa.Buffer:
    """Return the bytes of strings without nulls, one after the other."""
    if not len(values):
        return _NOTHING
    _, offsets, text = values.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, offsets], offset=values.offset)
    first, last = ends[0].as_py(), ends[-1].as_py()
    return text.slice(first, last - first) if last > first else _NOTHING
