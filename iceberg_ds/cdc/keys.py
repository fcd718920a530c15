"""Pure: when keys are equal, and digests of 64 bits that narrow the search for equal ones, column by column.

Equal keys have equal digests. Keys with equal digests are most likely equal, but nothing relies on that: where digests
are equal, the keys themselves are compared. So a collision costs a comparison, and never a row.

A key is a sequence of 64-bit words. Each word is mixed into the digest so far by a bijection of 64 bits with full
avalanche, the finaliser of MurmurHash3 in the variant 13 of David Stafford, as in SplitMix64. The digest starts from a
seed that differs in every write, so that no keys can be prepared that collide in all writes. Keys of one word never
collide with each other. Knows only Arrow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_MAX_DIGITS = 38
# Name of the column where digests stand in a table.
DIGEST = "digest"
_WORD_BYTES = 8
_WORD_BITS = 64
# Strings with more bytes are digested one by one.
_MAX_VECTOR_BYTES = 128
# Shifts and odd factors, so that no step loses information.
_FIRST_SHIFT, _FIRST_FACTOR = 30, 0xBF58476D1CE4E5B9
_SECOND_SHIFT, _SECOND_FACTOR = 27, 0x94D049BB133111EB
_LAST_SHIFT = 31
_INTEGERS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def same_rows(one: Sequence[pa.Array], other: Sequence[pa.Array]) -> pa.Array:
    """Return for each row, never null, whether both sides have the same values in all columns (at least one)."""
    is_same = same_values(one[0], other[0])
    for mine, others in zip(one[1:], other[1:], strict=True):
        is_same = pc.and_(is_same, same_values(mine, others))
    return is_same


def same_values(one: pa.Array, other: pa.Array) -> pa.Array:
    """Return for each row whether two columns of one type have the same value: a null is a value, and so is NaN."""
    one, other = stored(one), stored(other)
    is_same = pc.equal(one, other)
    if one.null_count or other.null_count:
        is_same = pc.or_(pc.fill_null(is_same, False), pc.and_(one.is_null(), other.is_null()))  # noqa: FBT003  # Arrow's signature
    if pa.types.is_floating(one.type):
        both = pc.and_(pc.fill_null(pc.is_nan(one), False), pc.fill_null(pc.is_nan(other), False))  # noqa: FBT003  # as above
        is_same = pc.or_(is_same, both)
    return is_same


def numbered(columns: Sequence[pa.Array]) -> pa.Array:
    """Return a number for each row as uint64, equal for rows with the same values and different for other rows."""
    names = [str(place) for place in range(len(columns))]
    rows = pa.Table.from_arrays([stored(column) for column in columns], names=names)
    places = numbers_from(0, rows.num_rows)
    groups = rows.append_column("place", places).group_by(names, use_threads=False).aggregate([("place", "list")])
    members = groups.column("place_list").combine_chunks()
    numbers = pc.list_parent_indices(members)
    return numbers.take(pc.array_sort_indices(members.flatten())).cast(pa.uint64())


def numbers_from(first: int, count: int) -> pa.Array:
    """Return so many numbers as int64: the first one, the one after it, and so on."""
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=first - 1)


def stored(column: pa.Array) -> pa.Array:
    """Return the storage values of a column of an extension type, and any other column unchanged."""
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def plain(column: pa.Array) -> pa.Array:
    """Return the values of a key column in a form in which equal keys are equal, whichever types their files have.

    `deletes.key_reader` brings the same values into the same form.
    """
    values = stored(column)
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == pa.int32().bit_width else pa.int64())
    return values.cast(plain_type(column.type))


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of `plain` values."""
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if pa.types.is_boolean(data_type):
        return pa.bool_()
    if pa.types.is_decimal128(data_type):
        return pa.decimal128(_MAX_DIGITS, data_type.scale)
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        return pa.int64()
    return pa.binary()


def digest_seed(operation_id: str) -> bytes:
    """Return the seed of the digests that the tasks of a write report."""
    return hashlib.blake2b(operation_id.encode(), digest_size=_WORD_BYTES).digest()


def digest_keys(columns: Sequence[pa.Array], seed: bytes) -> pa.Array:
    """Return the digest of each row's key as uint64.

    Args:
        columns: The key columns, all of the same length and without nulls.
        seed: 8 bytes, the same in all tasks of a write.

    Raises:
        ValueError: A column is of a type that cannot be a key.
    """
    digests = pa.repeat(_unsigned(int.from_bytes(seed, "little")), len(columns[0]))
    for column in columns:
        digests = mix_column(digests, column)
    return digests


def _unsigned(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


def mix_column(digests: pa.Array, column: pa.Array) -> pa.Array:
    """Return the next digests: the values of a column without nulls, mixed into the digests so far.

    Raises:
        ValueError: The column is of a type that cannot be a key.
    """
    values = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return _mix_strings(digests, values)
    return _mix_words(digests, _fixed_words(values))


def _mix_words(digests: pa.Array, words: Iterable[pa.Array]) -> pa.Array:
    for word in words:
        digests = mix(digests, word)
    return digests


def mix(digests: pa.Array, words: pa.Array) -> pa.Array:
    """Return the next digests: a bijection of the digest for any word, and of the word for any digest."""
    mixed = pc.bit_wise_xor(digests, words)
    mixed = pc.multiply(_folded(mixed, _FIRST_SHIFT), _unsigned(_FIRST_FACTOR))
    mixed = pc.multiply(_folded(mixed, _SECOND_SHIFT), _unsigned(_SECOND_FACTOR))
    return _folded(mixed, _LAST_SHIFT)


def _folded(values: pa.Array, shift: int) -> pa.Array:
    return pc.bit_wise_xor(values, pc.shift_right(values, _unsigned(shift)))


def _fixed_words(values: pa.Array) -> list[pa.Array]:
    """Return the 64-bit words of fixed-width values; an integer is one word, which is the same in every width."""
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


def _mix_strings(digests: pa.Array, values: pa.Array) -> pa.Array:
    """Mix in the length and the bytes of each value; for a long value, a 16-byte hash of all its bytes."""
    if not len(values):
        return digests
    offsets = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, values.buffers()[1]], offset=values.offset)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    starts = pc.subtract(offsets[:-1].cast(pa.int64()), pa.scalar(first, pa.int64()))
    lengths = pc.binary_length(values).cast(pa.int64())
    digests = mix(digests, lengths.view(pa.uint64()))
    longest = pc.max(lengths).as_py()
    if longest > _MAX_VECTOR_BYTES:
        is_long = pc.greater(lengths, pa.scalar(_MAX_VECTOR_BYTES, pa.int64()))
        digests = _mix_long(digests, values, is_long)
        lengths = pc.if_else(is_long, pa.scalar(0, pa.int64()), lengths)
        longest = pc.max(lengths).as_py()
    cursor = _Cursor(values.buffers()[2], first, last - first, starts)
    if pc.min(lengths).as_py() == longest:  # as identifiers often are
        return _mix_words(digests, (cursor.next_words(longest - step) for step in range(0, longest, _WORD_BYTES)))
    has_more: pa.Array | None = None
    for step in range(0, longest, _WORD_BYTES):
        left = pc.subtract(lengths, pa.scalar(step, pa.int64()))
        had_more, has_more = has_more, pc.greater(left, pa.scalar(0, pa.int64()))
        if has_more.true_count == len(left):
            digests = mix(digests, cursor.next_words(left))
        else:
            cursor.keep(has_more if had_more is None else has_more.filter(had_more))
            mixed = mix(digests.filter(has_more), cursor.next_words(left.filter(has_more)))
            digests = pc.replace_with_mask(digests, has_more, mixed)
    return digests


def _mix_long(digests: pa.Array, values: pa.Array, is_long: pa.Array) -> pa.Array:
    texts = values.filter(is_long).cast(pa.binary()).to_pylist()
    made = [hashlib.blake2b(text, digest_size=2 * _WORD_BYTES).digest() for text in texts]
    words = [
        pa.array([int.from_bytes(digest[half : half + _WORD_BYTES], "little") for digest in made], pa.uint64())
        for half in (0, _WORD_BYTES)
    ]
    return pc.replace_with_mask(digests, is_long, _mix_words(digests.filter(is_long), words))


class _Cursor:
    """Reads some bytes of a column as 64-bit words, for many values at once, from any byte on.

    Args:
        data: The column's bytes, None if it has none.
        first: The first byte to look at.
        length: How many bytes there are to look at.
        starts: Offset of each value among these bytes.
    """

    def __init__(self, data: pa.Buffer | None, first: int, length: int, starts: pa.Array) -> None:
        # One extra word, because a word that begins at any byte ends in the next one.
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
        """Return the next word of each value, with zeros beyond its `left` bytes."""
        self._positions = pc.add(self._positions, pa.scalar(1, pa.int64()))
        lower, self._current = self._current, self._words.take(self._positions)
        # In two steps, because a shift by all 64 bits does nothing.
        upper = pc.shift_left(pc.shift_left(self._current, self._rest), _unsigned(1))
        return _cut(pc.bit_wise_or(pc.shift_right(lower, self._bits), upper), left)

    def keep(self, mask: pa.Array) -> None:
        """Go on with only the values where `mask` is true."""
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
