"""Pure: digests of 128 bits that tell keys apart, computed column by column.

A digest is two 64-bit lanes that mix the same words in different ways. A key of one integer, date or time is told
from every other by one lane alone, for certain, so the other is 0; other keys but for a chance of 2^-128 a pair. The
lanes start from a seed that is another in every write, so nobody can prepare keys that collide. Knows Arrow alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

# Names of the columns where digests stand in a table.
HIGH, LOW = "high", "low"
_SEED_BYTES = 16
_WORD_BYTES = 8
_WORD_BITS = 64
# Strings with more bytes are digested one by one.
_MAX_VECTOR_BYTES = 128
# Odd, so that multiplication loses nothing.
_FACTORS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
_LAST_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFT, _LAST_SHIFT = 32, 29
_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of rows: two columns of 64-bit integers without sign."""

    high: pa.Array
    low: pa.Array


def digest_seed(operation_id: str) -> bytes:
    """Return the seed of the digests that the tasks of a write report."""
    return hashlib.blake2b(operation_id.encode(), digest_size=_SEED_BYTES).digest()


def distinct(digests: Iterable[Digests]) -> Digests | None:
    """Return each digest once, None if there is none."""
    parts = [pa.table({HIGH: part.high, LOW: part.low}) for part in digests]
    if not parts:
        return None
    found = pa.concat_tables(parts).group_by([HIGH, LOW]).aggregate([]).combine_chunks()
    return Digests(*(found.column(name).combine_chunks() for name in (HIGH, LOW))) if found.num_rows else None


def digest_keys(columns: Sequence[pa.Array], seed: bytes) -> Digests:
    """Return the digest of each row's key.

    Args:
        columns: The key columns, all of the same length and without nulls.
        seed: 16 bytes, the same in all tasks of a write.

    Raises:
        ValueError: A column is of a type that cannot be a key.
    """
    length = len(columns[0])
    halves = (seed[:8],) if _is_one_word(columns) else (seed[:8], seed[8:16])
    lanes = [pa.repeat(_unsigned(int.from_bytes(half, "little")), length) for half in halves]
    for column in columns:
        lanes = _mix_column(lanes, column)
    high, *low = [_stir(lane, factor, _LAST_SHIFT) for lane, factor in zip(lanes, _LAST_FACTORS, strict=False)]
    return Digests(high, *(low or [pa.repeat(_unsigned(0), length)]))


def _is_one_word(columns: Sequence[pa.Array]) -> bool:
    """Return whether the key is one value of 64 bits at most."""
    data_type = columns[0].type
    is_short = pa.types.is_boolean(data_type) or pa.types.is_integer(data_type) or pa.types.is_temporal(data_type)
    return len(columns) == 1 and is_short


def _unsigned(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


def _mix_column(lanes: list[pa.Array], column: pa.Array) -> list[pa.Array]:
    values = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return _mix_strings(lanes, values)
    return _mix_words(lanes, _fixed_words(values))


def _mix_words(lanes: list[pa.Array], words: Iterable[pa.Array]) -> list[pa.Array]:
    for word in words:
        lanes = [_mix(lane, word, number) for number, lane in enumerate(lanes)]
    return lanes


def _mix(lane: pa.Array, word: pa.Array, number: int) -> pa.Array:
    # Each step is a bijection of the lane for any word, and of the word for any lane.
    mixed = pc.bit_wise_xor(lane, word) if number == 0 else pc.add(lane, word)
    return _stir(mixed, _FACTORS[number], _SHIFT)


def _stir(lane: pa.Array, factor: int, shift: int) -> pa.Array:
    lane = pc.multiply(lane, _unsigned(factor))
    return pc.bit_wise_xor(lane, pc.shift_right(lane, _unsigned(shift)))


def _fixed_words(values: pa.Array) -> list[pa.Array]:
    """Return the 64-bit words of values of one width; integers of any width have one word, the same for a value."""
    data_type = values.type
    if pa.types.is_boolean(data_type):
        return [values.cast(pa.uint64())]
    if pa.types.is_decimal128(data_type) or pa.types.is_fixed_size_binary(data_type):
        return _byte_words(values, data_type.byte_width)
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        signed = values.view(_INTEGERS[data_type.bit_width]) if pa.types.is_temporal(data_type) else values
        return [signed.cast(pa.int64()).view(pa.uint64())]
    raise ValueError(f"a column of type {data_type} cannot be a key")


def _byte_words(values: pa.Array, width: int) -> list[pa.Array]:
    starts = _multiples(width, len(values))
    cursor = _Cursor(values.buffers()[1], values.offset * width, len(values) * width, starts)
    return [cursor.next_words(min(width - step, _WORD_BYTES)) for step in range(0, width, _WORD_BYTES)]


def _multiples(width: int, count: int) -> pa.Array:
    """Return 0, `width`, twice `width` and so on."""
    return pc.cumulative_sum(pa.repeat(pa.scalar(width, pa.int64()), count), start=-width)


def _mix_strings(lanes: list[pa.Array], values: pa.Array) -> list[pa.Array]:
    """Mix the length and the bytes of each value; of long ones, 16 bytes that were made of all bytes."""
    if not len(values):
        return lanes
    offsets = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, values.buffers()[1]], offset=values.offset)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    starts = pc.subtract(offsets[:-1].cast(pa.int64()), pa.scalar(first, pa.int64()))
    lengths = pc.binary_length(values).cast(pa.int64())
    lanes = _mix_words(lanes, [lengths.view(pa.uint64())])
    longest = pc.max(lengths).as_py()
    if longest > _MAX_VECTOR_BYTES:
        is_long = pc.greater(lengths, pa.scalar(_MAX_VECTOR_BYTES, pa.int64()))
        lanes = _mix_long(lanes, values, is_long)
        lengths = pc.if_else(is_long, pa.scalar(0, pa.int64()), lengths)
        longest = pc.max(lengths).as_py()
    cursor = _Cursor(values.buffers()[2], first, last - first, starts)
    if pc.min(lengths).as_py() == longest:  # as identifiers often are
        return _mix_words(lanes, (cursor.next_words(longest - step) for step in range(0, longest, _WORD_BYTES)))
    has_more: pa.Array | None = None
    for step in range(0, longest, _WORD_BYTES):
        left = pc.subtract(lengths, pa.scalar(step, pa.int64()))
        had_more, has_more = has_more, pc.greater(left, pa.scalar(0, pa.int64()))
        if has_more.true_count == len(left):
            lanes = _mix_words(lanes, [cursor.next_words(left)])
        else:
            cursor.keep(has_more if had_more is None else has_more.filter(had_more))
            mixed = _mix_words([lane.filter(has_more) for lane in lanes], [cursor.next_words(left.filter(has_more))])
            lanes = [pc.replace_with_mask(lane, has_more, new) for lane, new in zip(lanes, mixed, strict=True)]
    return lanes


def _mix_long(lanes: list[pa.Array], values: pa.Array, is_long: pa.Array) -> list[pa.Array]:
    texts = values.filter(is_long).cast(pa.binary()).to_pylist()
    digests = [hashlib.blake2b(text, digest_size=16).digest() for text in texts]
    words = [
        pa.array([int.from_bytes(digest[half : half + 8], "little") for digest in digests], pa.uint64())
        for half in (0, 8)
    ]
    mixed = _mix_words([lane.filter(is_long) for lane in lanes], words)
    return [pc.replace_with_mask(lane, is_long, new) for lane, new in zip(lanes, mixed, strict=True)]


class _Cursor:
    """Reads some bytes of a column as 64-bit words, for many values at once, from any byte on.

    Args:
        data: The column's bytes, None if it has none.
        first: The first byte to look at.
        length: How many bytes there are to look at.
        starts: Where each value begins among these.
    """

    def __init__(self, data: pa.Buffer | None, first: int, length: int, starts: pa.Array) -> None:
        # One word more than there is, because a word that begins anywhere ends in the next.
        size = (length // _WORD_BYTES + 2) * _WORD_BYTES
        padded = pa.allocate_buffer(size)
        sink = pa.FixedSizeBufferWriter(padded)
        if data is not None:
            sink.write(data.slice(first, length))
        sink.write(bytes(size - length))
        self._words = pa.Array.from_buffers(pa.uint64(), size // _WORD_BYTES, [None, padded])
        self._positions = pc.shift_right(starts, pa.scalar(3, pa.int64()))
        bits = pc.shift_left(pc.bit_wise_and(starts, pa.scalar(7, pa.int64())), pa.scalar(3, pa.int64()))
        self._bits = bits.view(pa.uint64())
        self._rest = pc.subtract(_unsigned(_WORD_BITS - 1), self._bits)
        self._current = self._words.take(self._positions)

    def next_words(self, left: pa.Array | int) -> pa.Array:
        """Return the next word of each value, zeros in place of what lies beyond its `left` bytes."""
        self._positions = pc.add(self._positions, pa.scalar(1, pa.int64()))
        lower, self._current = self._current, self._words.take(self._positions)
        # In two steps, because a shift by all 64 bits is none.
        upper = pc.shift_left(pc.shift_left(self._current, self._rest), _unsigned(1))
        return _cut(pc.bit_wise_or(pc.shift_right(lower, self._bits), upper), left)

    def keep(self, mask: pa.Array) -> None:
        """Go on with some of the values."""
        if mask.true_count < len(mask):
            self._positions, self._bits = self._positions.filter(mask), self._bits.filter(mask)
            self._rest, self._current = self._rest.filter(mask), self._current.filter(mask)


def _cut(words: pa.Array, left: pa.Array | int) -> pa.Array:
    """Return the words with only their `left` lowest bytes."""
    if isinstance(left, int):
        return words if left >= _WORD_BYTES else pc.bit_wise_and(words, _unsigned((1 << (8 * left)) - 1))
    missing = pc.subtract(pa.scalar(_WORD_BYTES, pa.int64()), left)
    is_part = pc.greater(missing, pa.scalar(0, pa.int64()))
    if not is_part.true_count:
        return words
    missing = pc.if_else(is_part, missing, pa.scalar(0, pa.int64()))
    shift = pc.shift_left(missing, pa.scalar(3, pa.int64())).view(pa.uint64())
    return pc.shift_right(pc.shift_left(words, shift), shift)
