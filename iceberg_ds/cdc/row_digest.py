"""Pure: digests of rows over all their columns, and one of many rows that does not depend on their order.

Each row has a digest of 64 bits, at any depth; the digest of many rows, for a proof that files have the same ones, is
their count and the sum of their digests. Values count bit by bit: a NaN is itself, and `-0.0` is not `0.0`. Two
different rows, or collections of rows, have equal digests by chance only, about once in 2^64 cases; with a seed that is
known, as the proof has, they prove nothing against somebody who wants rows to collide. Knows only Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from secrets import randbits

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.cdc.keys import mix, mix_column, numbers_from, stored

_SEED = 0x1CEBE56
_SEED_BITS = 64
_OF_ELEMENTS, _OF_NULLS, _OF_STRUCTS = (pa.scalar(value, pa.uint64()) for value in (0xE1E3E27, 0x9011, 0x57C7))
_MODULUS = 2**64
_BITS = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}


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
