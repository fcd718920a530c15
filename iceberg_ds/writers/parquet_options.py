"""Pure: what Arrow's Parquet writer is told, from the settings of a file, and how large Bloom filters are.

Older versions of Arrow lack some of its options: `can_honour` says which. Without one of these a file is
laid out differently, and still right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_ds.plan import FileSettings
from iceberg_ds.table.metrics_config import KEY_STEP, LIST_STEP, VALUE_STEP, Leaf

PAGE_ROW_LIMIT, BLOOM_FILTERS = "max_rows_per_page", "bloom_filter_options"

_STEPS = {LIST_STEP: "list.element", KEY_STEP: "key_value.key", VALUE_STEP: "key_value.value"}
# Parquet spec, "Bloom Filter": blocks of 8 words, one bit of each word is set for a value.
_BLOCK_WORDS = 8
_LEAST_BYTES, _MOST_BYTES = 32, 128 * 1024 * 1024
_MOST_VALUES = 2**31 - 1


@cache
def can_honour(option: str) -> bool:
    """Return whether this version of Arrow has the option `PAGE_ROW_LIMIT` or `BLOOM_FILTERS`."""
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([]), **{option: None}).close()
    except TypeError:
        return False
    return True


def writer_options(
    settings: FileSettings, schema: pa.Schema, leaves: Sequence[Leaf], group_rows: int | None
) -> dict[str, object]:
    """Return the arguments of Arrow's `ParquetWriter` that depend on the settings.

    Args:
        settings: How the file is written.
        schema: Its Arrow schema.
        leaves: Its leaf columns.
        group_rows: Rows of its largest row group, None if that is not known.
    """
    options = layout_options(settings)
    if settings.bloom_filter_fpp and can_honour(BLOOM_FILTERS):
        options[BLOOM_FILTERS] = _bloom_filter_options(settings, schema, leaves, group_rows)
    return options


def layout_options(settings: FileSettings) -> dict[str, object]:
    """Return those of them that do not depend on the columns."""
    options: dict[str, object] = {
        "compression": "NONE" if settings.compression_codec == "uncompressed" else settings.compression_codec,
        "compression_level": settings.compression_level,
        "data_page_size": settings.page_size_bytes,
        "dictionary_pagesize_limit": settings.dictionary_size_bytes,
        "store_schema": False,
        "store_decimal_as_integer": True,
    }
    if settings.page_row_limit is not None and can_honour(PAGE_ROW_LIMIT):
        options[PAGE_ROW_LIMIT] = settings.page_row_limit
    return options


def bloom_filter_bytes(settings: FileSettings, group_rows: int | None, rows: int) -> int:
    """Return about the size of all Bloom filters of a row group.

    Args:
        settings: How the file is written.
        group_rows: As `writer_options` was told.
        rows: Rows of this row group.
    """
    if not settings.bloom_filter_fpp or not can_honour(BLOOM_FILTERS):
        return 0
    most = rows if _are_filters_folded() else _MOST_VALUES
    return sum(
        filter_bytes(min(_distinct_values(settings, field_id, group_rows), most), fpp)
        for field_id, fpp in settings.bloom_filter_fpp.items()
    )


@cache
def _are_filters_folded() -> bool:
    """Return whether this version of Arrow makes a filter smaller that got few values."""
    sink = pa.BufferOutputStream()
    options = {BLOOM_FILTERS: {"x": {"ndv": 1_000_000, "fpp": 0.01}}}
    pq.write_table(pa.table({"x": [1]}), sink, **options)
    return bool(sink.tell() < filter_bytes(1_000_000, 0.01))


def filter_bytes(ndv: int, fpp: float) -> int:
    """Return the size that Arrow gives a Bloom filter for `ndv` values and that share of false positives."""
    bits = -_BLOCK_WORDS * ndv / math.log(1 - fpp ** (1 / _BLOCK_WORDS))
    return min(max(_LEAST_BYTES, 1 << math.ceil(math.log2(max(bits / 8, 1)))), _MOST_BYTES)


def most_values(max_bytes: int, fpp: float) -> int:
    """Return for how many values a Bloom filter of at most `max_bytes` has that share of false positives."""
    size = 1 << int(math.log2(min(max(max_bytes, _LEAST_BYTES), _MOST_BYTES)))
    values = int(-size * 8 * math.log(1 - fpp ** (1 / _BLOCK_WORDS)) / _BLOCK_WORDS)
    return min(max(values, 1), _MOST_VALUES)


def parquet_path(schema: pa.Schema, path: Sequence[int | str]) -> str:
    """Return the name of a leaf column in the Parquet file, such as `tags.list.element`."""
    names = []
    fields: pa.Schema | pa.DataType = schema
    for step in path:
        if isinstance(step, int):
            inner = fields.field(step)
            names.append(inner.name)
            fields = inner.type
        else:
            names.append(_STEPS[step])
            fields = _below(fields, step)
    return ".".join(names)


def _below(data_type: pa.DataType, step: str) -> pa.DataType:
    if step == LIST_STEP:
        return data_type.value_type
    return data_type.key_type if step == KEY_STEP else data_type.item_type


def _bloom_filter_options(
    settings: FileSettings, schema: pa.Schema, leaves: Sequence[Leaf], group_rows: int | None
) -> dict[str, dict[str, int | float]]:
    return {
        parquet_path(schema, leaf.path): {
            "ndv": _distinct_values(settings, leaf.field_id, group_rows),
            "fpp": settings.bloom_filter_fpp[leaf.field_id],
        }
        for leaf in leaves
        if leaf.field_id in settings.bloom_filter_fpp
    }


def _distinct_values(settings: FileSettings, field_id: int, group_rows: int | None) -> int:
    """Return how many distinct values a filter is made for: what the table says, else all rows, if that fits."""
    most = most_values(settings.bloom_filter_max_bytes, settings.bloom_filter_fpp[field_id])
    wished = settings.bloom_filter_ndv.get(field_id, group_rows)
    return most if wished is None else max(1, min(wished, most))
