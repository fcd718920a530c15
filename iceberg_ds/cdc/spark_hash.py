"""Pure: Spark's hash of keys, and what it proves about the keys of different tasks.

`repartition(n, *keys)` puts a row into task `hash % n`. If the hashes of all rows of a task are congruent to the
task's number modulo some modulus, two tasks cannot have the same key unless their numbers are congruent modulo the
greatest common divisor of their moduli. One integer per task proves that, however the rows were distributed: the proof
only needs equal keys to have equal hashes. So the hash is taken of the values that the table gets, but in the width in
which Spark had them. Knows only Arrow.
Source: Spark, `Murmur3Hash` with seed 42; its bytes beyond the last full word are hashed one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_SEED = 42
_C1, _C2, _ADDED = 0xCC9E2D51, 0x1B873593, 0xE6546B64
_M1, _M2 = 0x85EBCA6B, 0xC2B2AE35
# Decimals of more digits are hashed differently.
_MAX_LONG_DIGITS = 18
_WORD_BYTES = 4
# Longer strings are not worth the proof.
_MAX_BYTES = 256


class LayoutProof:
    """Finds the modulus that the rows of one task prove.

    Args:
        partition_id: The task's number, from 0.
    """

    def __init__(self, partition_id: int) -> None:
        self._partition_id = partition_id
        self.modulus = 0

    def note(self, columns: Sequence[pa.Array], sent: Sequence[pa.DataType]) -> None:
        """Take the keys of rows into account.

        Args:
            columns: The key columns as they are written, without nulls.
            sent: The types in which Spark sent them.
        """
        if self.modulus == 1 or not len(columns[0]):
            return
        hashes = spark_hash([_as_sent(column, was) for column, was in zip(columns, sent, strict=True)])
        if hashes is None:
            self.modulus = 1
            return
        distances = pc.subtract(hashes.cast(pa.int64()), pa.scalar(self._partition_id, pa.int64()))
        self.modulus = _common_divisor(self.modulus, distances)


def can_share(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether two tasks, each given by its number and its modulus, may have rows of the same key.

    A modulus of 0 is that of a task without rows, or of a task whose rows all have its own number as their hash.
    """
    (number, modulus), (other_number, other_modulus) = one, other
    common = math.gcd(modulus, other_modulus)
    return (number - other_number) % common == 0 if common else number == other_number


def spark_hash(columns: Sequence[pa.Array]) -> pa.Array | None:
    """Return Spark's `hash(...)` of each row as int32, or None for types, and lengths of text, not hashed here.

    Args:
        columns: Key columns as Spark sends them, without nulls.
    """
    hashes = pa.repeat(pa.scalar(_SEED, pa.uint32()), len(columns[0]))
    for column in columns:
        mixed = _hash_column(column, hashes)
        if mixed is None:
            return None
        hashes = mixed
    return hashes.view(pa.int32())


def _as_sent(column: pa.Array, sent: pa.DataType) -> pa.Array:
    return column.cast(sent) if pa.types.is_int64(column.type) and _is_small_integer(sent) else column


def _hash_column(column: pa.Array, seeds: pa.Array) -> pa.Array | None:
    data_type = column.type
    if pa.types.is_boolean(data_type) or pa.types.is_date32(data_type) or _is_small_integer(data_type):
        number = column.view(pa.int32()) if pa.types.is_date32(data_type) else column.cast(pa.int32())
        return _finish(_mix(seeds, number.view(pa.uint32())), _WORD_BYTES)
    if pa.types.is_int64(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type):
        return _hash_longs(column.view(pa.uint64()), seeds)
    if pa.types.is_decimal128(data_type) and data_type.precision <= _MAX_LONG_DIGITS:
        return _hash_longs(_lower_halves(column), seeds)
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return _hash_bytes(column, seeds)
    return None


def _is_small_integer(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_int8(data_type) or pa.types.is_int16(data_type) or pa.types.is_int32(data_type))


def _lower_halves(decimals: pa.Array) -> pa.Array:
    """Return the unscaled values of decimals that fit into 64 bits."""
    words = pa.Array.from_buffers(
        pa.uint64(), 2 * len(decimals), [None, decimals.buffers()[1]], offset=2 * decimals.offset
    )
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(2, pa.int64()), len(decimals)), start=-2)
    return words.take(numbers)


def _hash_longs(values: pa.Array, seeds: pa.Array) -> pa.Array:
    low = pc.bit_wise_and(values, pa.scalar(0xFFFFFFFF, pa.uint64())).cast(pa.uint32())
    high = pc.shift_right(values, pa.scalar(32, pa.uint64())).cast(pa.uint32())
    return _finish(_mix(_mix(seeds, low), high), 2 * _WORD_BYTES)


def _hash_bytes(values: pa.Array, seeds: pa.Array) -> pa.Array | None:
    lengths = pc.binary_length(values)
    if (pc.max(lengths).as_py() or 0) > _MAX_BYTES:
        return None
    texts = values.cast(pa.binary())
    aligned = pc.bit_wise_and(lengths, pa.scalar(-4, lengths.type))
    for start in range(0, pc.max(aligned).as_py() or 0, _WORD_BYTES):
        seeds = _mix_word(texts, seeds, start, pc.greater(aligned, pa.scalar(start, lengths.type)))
    for tail in range(3):
        begin = pc.add(aligned, pa.scalar(tail, lengths.type))
        seeds = _mix_tail(texts, seeds, begin, pc.less(begin, lengths))
    return _finish(seeds, lengths.cast(pa.uint32()))


def _mix_word(texts: pa.Array, seeds: pa.Array, start: int, has_more: pa.Array) -> pa.Array:
    """Mix in the four bytes from `start` on, for the values that have them."""
    slices = pc.binary_slice(texts.filter(has_more), start, start + _WORD_BYTES)
    words = pa.Array.from_buffers(pa.uint32(), len(slices), [None, slices.buffers()[2]])
    return pc.replace_with_mask(seeds, has_more, _mix(seeds.filter(has_more), words))


def _mix_tail(texts: pa.Array, seeds: pa.Array, begin: pa.Array, has_more: pa.Array) -> pa.Array:
    """Mix in one byte, with its sign, for the values that have a byte left."""
    if not has_more.true_count:
        return seeds
    chosen, at = texts.filter(has_more), begin.filter(has_more)
    offsets = pa.Array.from_buffers(pa.int32(), len(chosen) + 1, [None, chosen.buffers()[1]], offset=chosen.offset)
    content = chosen.buffers()[2]
    signed = pa.Array.from_buffers(pa.int8(), content.size, [None, content])
    found = signed.take(pc.add(offsets[:-1], at)).cast(pa.int32()).view(pa.uint32())
    return pc.replace_with_mask(seeds, has_more, _mix(seeds.filter(has_more), found))


def _mix(hashes: pa.Array, words: pa.Array) -> pa.Array:
    words = pc.multiply(_rotated(pc.multiply(words, _uint(_C1)), 15), _uint(_C2))
    mixed = _rotated(pc.bit_wise_xor(hashes, words), 13)
    return pc.add(pc.multiply(mixed, _uint(5)), _uint(_ADDED))


def _finish(hashes: pa.Array, length: int | pa.Array) -> pa.Array:
    hashes = pc.bit_wise_xor(hashes, _uint(length) if isinstance(length, int) else length)
    hashes = pc.multiply(_folded(hashes, 16), _uint(_M1))
    hashes = pc.multiply(_folded(hashes, 13), _uint(_M2))
    return _folded(hashes, 16)


def _rotated(values: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_or(pc.shift_left(values, _uint(bits)), pc.shift_right(values, _uint(32 - bits)))


def _folded(values: pa.Array, bits: int) -> pa.Array:
    return pc.bit_wise_xor(values, pc.shift_right(values, _uint(bits)))


def _uint(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint32())


def _common_divisor(divisor: int, values: pa.Array) -> int:
    """Return the greatest number that divides `divisor` and all values; 0 if all are 0."""
    while divisor != 1:
        if divisor == 0:
            rest = values.filter(pc.not_equal(values, pa.scalar(0, pa.int64())))
        else:
            whole = pc.multiply(pc.divide(values, pa.scalar(divisor, pa.int64())), pa.scalar(divisor, pa.int64()))
            rest = values.filter(pc.not_equal(values, whole))
        if not len(rest):
            break
        divisor = math.gcd(divisor, rest[0].as_py())
    return divisor
