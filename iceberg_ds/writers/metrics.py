"""Pure: the metrics of one Parquet file, as Iceberg's manifests hold them, from its footer.

Counts, sizes and bounds come from the column statistics of the row groups; NaN counts are taken from
the rows as they are written, because Parquet does not record them and readers would otherwise skip
a file that holds a NaN. Bounds are built from physical values, so no date or timestamp is too large.
Fields inside lists and maps get only sizes, as in Iceberg's own writers: Parquet counts an empty container as a
value and a null, which would be wrong counts of elements. Source: Iceberg spec, "Manifests" (data_file)
and appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    PrimitiveType,
    StringType,
)

from iceberg_ds.table.metrics_config import KEY_STEP, LIST_STEP, VALUE_STEP, Leaf

_HIGHEST_CODE_POINT = 0x10FFFF
_HIGHEST_BYTE = 0xFF
_SURROGATES = range(0xD800, 0xE000)


def count_nans(batch: pa.RecordBatch, leaves: tuple[Leaf, ...]) -> dict[int, int]:
    """Return the NaN count of each float and double column of `batch` outside lists and maps, by field id."""
    return {
        leaf.field_id: _count_nans(leaf_values(batch, leaf.path))
        for leaf in leaves
        if leaf.mode.counts and not leaf.is_repeated and isinstance(leaf.field_type, FloatType | DoubleType)
    }


def _count_nans(values: pa.Array) -> int:
    return pc.sum(pc.is_nan(values)).as_py() or 0


def leaf_values(batch: pa.RecordBatch, path: tuple[int | str, ...]) -> pa.Array:
    """Return the values of a leaf column at any depth, null where a struct around them is null."""
    top, *steps = path
    values = batch.column(top)
    for step in steps:
        if step == LIST_STEP:
            values = values.flatten()
        elif step in (KEY_STEP, VALUE_STEP):
            entries = values.keys if step == KEY_STEP else values.items
            first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
            values = entries.slice(first, last - first)  # unlike flatten(), both cover the whole, unsliced map
        else:
            # Unlike StructArray.field, this makes the child null where the struct is null.
            values = pc.struct_field(values, step)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMetrics:
    """The metrics of one data file, under the names of Iceberg's `data_file`; maps are by field id."""

    record_count: int
    column_sizes: dict[int, int]
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]
    split_offsets: list[int]


def file_metrics(footer: pq.FileMetaData, leaves: tuple[Leaf, ...], nan_counts: Mapping[int, int]) -> FileMetrics:
    """Return the metrics of the file with `footer`.

    Args:
        footer: The file's footer, statistics included.
        leaves: Its leaf columns, as `leaf_columns` gives them.
        nan_counts: NaN counts of the whole file by field id, as `count_nans` gives them for its rows.
    """
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    for index, leaf in enumerate(leaves):
        if not leaf.mode.counts:
            continue
        chunks = [group.column(index) for group in groups]
        # A variant has two columns.
        size = sum(chunk.total_compressed_size for chunk in chunks)
        sizes[leaf.field_id] = sizes.get(leaf.field_id, 0) + size
        if leaf.is_repeated:
            continue
        values[leaf.field_id] = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks]
        if all(known is not None and known.has_null_count for known in statistics):
            nulls[leaf.field_id] = sum(known.null_count for known in statistics)
        if leaf.mode.bounds:
            low, high = _bounds(statistics, leaf)
            lower.update({} if low is None else {leaf.field_id: low})
            upper.update({} if high is None else {leaf.field_id: high})
    return FileMetrics(
        record_count=footer.num_rows,
        column_sizes=sizes,
        value_counts=values,
        null_value_counts=nulls,
        nan_value_counts=dict(nan_counts),
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=[_first_byte(group.column(0)) for group in groups],
    )


def _first_byte(chunk: pq.ColumnChunkMetaData) -> int:
    """Return the byte offset of a row group: of the dictionary page if the first column chunk has one."""
    if chunk.dictionary_page_offset:
        return int(min(chunk.dictionary_page_offset, chunk.data_page_offset))
    return int(chunk.data_page_offset)


class _Statistics(Protocol):
    has_min_max: bool
    has_null_count: bool
    null_count: int
    num_values: int
    min_raw: object
    max_raw: object


def _bounds(statistics: list[_Statistics | None], leaf: Leaf) -> tuple[bytes | None, bytes | None]:
    """Return the column's serialized lower and upper bound; None for a bound that is absent or uncertain."""
    known = [group for group in statistics if group is not None and group.has_min_max]
    for group in statistics:
        if group is None or not (group.has_min_max or _may_lack_bounds(group, leaf.field_type)):
            return None, None
    if not known:
        return None, None
    low = min(_comparable(group.min_raw, leaf.field_type) for group in known)  # type: ignore[type-var]  # one type a column
    high = max(_comparable(group.max_raw, leaf.field_type) for group in known)  # type: ignore[type-var]  # one type a column
    return _serialize_lower(low, leaf), _serialize_upper(high, leaf)


def _may_lack_bounds(group: _Statistics, field_type: PrimitiveType) -> bool:
    """Return whether a row group without bounds holds nothing but nulls and NaN.

    Any other group without bounds has values too long for Parquet's statistics.
    """
    return isinstance(field_type, FloatType | DoubleType) or group.num_values == 0


def _comparable(raw: object, field_type: PrimitiveType) -> object:
    if isinstance(field_type, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _serialize_lower(value: object, leaf: Leaf) -> bytes | None:
    length = leaf.mode.length
    match leaf.field_type, value:
        case StringType(), bytes():
            text = _decode(value)
            return text[:length].encode() if text is not None else None
        case BinaryType(), bytes():
            return value[:length]
    return _serialize(value, leaf.field_type)


def _serialize_upper(value: object, leaf: Leaf) -> bytes | None:
    length = leaf.mode.length
    match leaf.field_type, value:
        case StringType(), bytes():
            text = _decode(value)
            return _truncate_text_up(text, length) if text is not None else None
        case BinaryType(), bytes():
            return _truncate_bytes_up(value, length)
    return _serialize(value, leaf.field_type)


def _decode(value: bytes) -> str | None:
    """Return the text, or None for bytes that are not UTF-8, which Spark can hold in a string."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _truncate_text_up(text: str, length: int | None) -> bytes | None:
    """Return the lowest upper bound of `text` with at most `length` code points, or None if no such bound exists."""
    if length is None or len(text) <= length:
        return text.encode()
    for end in range(length, 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:  # not characters, and not valid in UTF-8
            following = _SURROGATES.stop
        if following <= _HIGHEST_CODE_POINT:
            return (text[: end - 1] + chr(following)).encode()
    return None


def _truncate_bytes_up(value: bytes, length: int | None) -> bytes | None:
    """Return the lowest upper bound of `value` with at most `length` bytes, or None if no such bound exists."""
    if length is None or len(value) <= length:
        return value
    for end in range(length, 0, -1):
        if value[end - 1] < _HIGHEST_BYTE:
            return value[: end - 1] + bytes([value[end - 1] + 1])
    return None


def _serialize(value: object, field_type: PrimitiveType) -> bytes:  # noqa: PLR0911  # one return a type
    match field_type, value:
        case _, bytes():
            return value
        case BooleanType(), _:
            return b"\x01" if value else b"\x00"
        case DecimalType(), int():
            # Two's complement with a sign bit and no byte more than needed.
            return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
        case ((IntegerType() | DateType()), _):
            return struct.pack("<i", value)
        case FloatType(), _:
            return struct.pack("<f", value)
        case DoubleType(), _:
            return struct.pack("<d", value)
    return struct.pack("<q", value)
