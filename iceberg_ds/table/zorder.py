"""Pure: the Z-order of rows: the bits of several columns' values in turn, so that rows near each other are so by each.

A value becomes unsigned 64-bit words that sort as the values do; nulls come first, NaN last, and of text and bytes the
first bytes count. Where the range of a column is known, its values count from the lowest one on and by as many bits as
the range needs: else a column of small numbers would begin with bits that never change, and only the other columns
would decide. Words go no further than a key to sort by; they are in no file.
Source: Iceberg's Java library, `ZOrderByteUtils`, which knows no ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import NestedField, UnknownType

from iceberg_ds.table.sort_order import RowOrder, ordered_bits, source_path, source_values
from iceberg_ds.table.spec_parser import find_source

_WORD = pa.uint64()
_WORD_BITS, _WORD_BYTES = 64, 8
_SIGN = pa.scalar(1 << 63, _WORD)
_ZERO, _ONE = pa.scalar(0, _WORD), pa.scalar(1, _WORD)
# Digits of a decimal that fits into one word.
_SHORT_DECIMAL = 18
# Rows whose words are in memory at once, beside those that are done.
_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class ZOrder:
    """Columns whose values are interleaved.

    Attributes:
        field_ids: Ids of the columns; earlier ones count more.
        var_length_contribution: How many bytes of text and bytes count.
        max_output_size: How many bytes of the interleaved value count.
    """

    field_ids: tuple[int, ...]
    var_length_contribution: int
    max_output_size: int


def z_order_columns(names: Sequence[str], schema: Schema) -> list[NestedField]:
    """Return the columns that are to be interleaved, by names as `parse_z_order` returns them.

    Raises:
        ValueError: Names every column that is missing, is named twice, or has no order.
    """
    found: list[NestedField] = []
    problems = []
    for name in names:
        try:
            field = find_source(name, schema)
        except ValueError as problem:
            problems.append(str(problem))
            continue
        if not field.field_type.is_primitive or isinstance(field.field_type, UnknownType):
            problems.append(f"column {name} is {field.field_type}, which has no order")
        elif field in found:
            problems.append(f"column {name} is given more than once, expected each once")
        found.append(field)
    if problems:
        raise ValueError("; ".join(problems))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bounds of all values of a column; a value outside counts as the bound that is next to it.

    Attributes:
        low: A lower bound, as metrics of files have it: a number, the bytes of a text, or bytes.
        high: An upper bound.
    """

    low: Any
    high: Any


class ZRowOrder(RowOrder):
    """The Z-order of the rows of one schema: first by table partition, then by the interleaved value.

    Args:
        order: The columns.
        schema: The table's schema, whose columns the batches have in this order.
        spec: Partition spec by whose partitions rows are clustered first, or None.
        ranges: The ranges of columns, by id, where they are known.

    Raises:
        ValueError: A column is dropped or lies in a list or map.
    """

    def __init__(
        self, order: ZOrder, schema: Schema, spec: PartitionSpec | None, ranges: Mapping[int, Range] | None = None
    ) -> None:
        super().__init__(SortOrder(), schema, spec)
        self._order = order
        self._columns: list[tuple[tuple[int, ...], Range | None]] = []
        for field_id in order.field_ids:
            if (path := source_path(field_id, schema)) is None:
                raise ValueError(f"column {field_id} is dropped, or no primitive column outside of lists and maps")
            self._columns.append((path, (ranges or {}).get(field_id)))

    def _more_keys(self, batch: pa.RecordBatch) -> Iterable[pa.Array]:
        parts = [self._words(batch.slice(first, _ROWS)) for first in range(0, max(batch.num_rows, 1), _ROWS)]
        return map(pa.concat_arrays, zip(*parts, strict=True))

    def _words(self, rows: pa.RecordBatch) -> list[pa.Array]:
        length = self._order.var_length_contribution
        columns = [_bits_of(source_values(rows, path), length, within) for path, within in self._columns]
        return _interleaved(columns, self._order.max_output_size * 8, rows.num_rows)


@dataclass(frozen=True, slots=True)
class _Bits:
    """The bits of a column's values: the `count` last ones of the words of each value, the highest bit first."""

    words: Sequence[pa.Array]
    count: int

    def of(self, position: int) -> pa.Array:
        """Return the bit at a position, as words of 0 and 1."""
        word, place = divmod(position + len(self.words) * _WORD_BITS - self.count, _WORD_BITS)
        return pc.bit_wise_and(pc.shift_right(self.words[word], pa.scalar(_WORD_BITS - 1 - place, _WORD)), _ONE)


def ordered_words(values: pa.Array, length: int, skipped: int = 0) -> list[pa.Array]:
    """Return words that sort as the values do, nulls as the lowest value.

    Args:
        values: Values of a primitive type.
        length: How many bytes of text and bytes count.
        skipped: How many bytes before these are passed over.
    """
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        values, kind = values.storage, values.storage.type
    if pa.types.is_boolean(kind):
        words = [pc.shift_left(values.cast(_WORD), pa.scalar(_WORD_BITS - 1, _WORD))]
    elif pa.types.is_floating(kind):
        words = [_signed(ordered_bits(values.cast(pa.float64())))]
    elif pa.types.is_decimal128(kind):
        words = _decimal_words(values)
    elif pa.types.is_date32(kind):
        words = [_signed(values.cast(pa.int32()).cast(pa.int64()))]
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        words = [_signed(values.cast(pa.int64()))]
    else:
        words = _first_bytes(values, length, skipped)
    return [pc.if_else(values.is_valid(), word, _ZERO) for word in words] if values.null_count else words


def _signed(values: pa.Array) -> pa.Array:
    return pc.bit_wise_xor(values.view(_WORD), _SIGN)


def _decimal_words(values: pa.Array) -> list[pa.Array]:
    """Return the high and the low half of the unscaled numbers; of short decimals the low half is all."""
    halves = pa.Array.from_buffers(_WORD, 2 * len(values), [None, values.buffers()[1]], offset=2 * values.offset)
    low, high = (halves.take(pa.array(range(half, len(halves), 2), pa.int64())) for half in (0, 1))
    if values.type.precision <= _SHORT_DECIMAL:
        return [pc.bit_wise_xor(low, _SIGN)]
    return [pc.bit_wise_xor(high, _SIGN), low]


def _first_bytes(values: pa.Array, length: int, skipped: int) -> list[pa.Array]:
    """Return bytes, with zeros behind those that are too short, as words."""
    count = -(-length // _WORD_BYTES)
    shown = pc.binary_slice(values.cast(pa.binary()).fill_null(b""), skipped, skipped + length)
    padded = pc.binary_join_element_wise(shown, bytes(count * _WORD_BYTES), b"")
    return [
        # Words are read with the last byte first.
        pc.binary_reverse(pc.binary_slice(padded, first, first + _WORD_BYTES)).cast(pa.binary(_WORD_BYTES)).view(_WORD)
        for first in range(0, count * _WORD_BYTES, _WORD_BYTES)
    ]


def _bits_of(values: pa.Array, length: int, within: Range | None) -> _Bits:
    """Return the bits of a column's values, without those that are alike in all values of the range."""
    skipped = 0
    if within is not None and isinstance(within.low, bytes):
        pairs = zip(within.low, within.high, strict=False)
        skipped = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    words = ordered_words(values, length, skipped)
    if within is None or len(words) > 1:
        return _Bits(words, len(words) * _WORD_BITS)
    (bounds,) = ordered_words(pa.array([within.low, within.high]), length, skipped)
    low, high = bounds
    clamped = pc.min_element_wise(pc.max_element_wise(words[0], low), high)
    return _Bits([pc.subtract(clamped, low)], max(high.as_py() - low.as_py(), 0).bit_length())


def _interleaved(columns: Sequence[_Bits], most: int, rows: int) -> list[pa.Array]:
    """Return the bits of all columns in turn, as words, `most` bits at most; a column without further bits is left out.

    At least one word is returned, so that there is a key to sort by.
    """
    turns = _turns(columns, most)
    found = [pa.repeat(_ZERO, rows) for _ in range(max(1, -(-len(turns) // _WORD_BITS)))]
    for number, (column, position) in enumerate(turns):
        word, place = divmod(number, _WORD_BITS)
        bit = pc.shift_left(column.of(position), pa.scalar(_WORD_BITS - 1 - place, _WORD))
        found[word] = pc.bit_wise_or(found[word], bit)
    return found


def _turns(columns: Iterable[_Bits], most: int) -> list[tuple[_Bits, int]]:
    columns = list(columns)
    longest = max((column.count for column in columns), default=0)
    all_turns = [(column, at) for at in range(longest) for column in columns if at < column.count]
    return all_turns[:most]
