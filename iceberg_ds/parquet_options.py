"""Pure: what Arrow's Parquet writer is told, from the settings of a file, and how large Bloom filters are.

Older versions of Arrow lack some of its options: `can_honour` says which. Without one of these a file is
laid out differently, and still right.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_ds.leaves import KEY_STEP, LIST_STEP, VALUE_STEP, Leaf
from iceberg_ds.plan import FileSettings

PAGE_ROW_LIMIT, BLOOM_FILTERS = "max_rows_per_page", "bloom_filter_options"
_KNOWN = frozenset(inspect.signature(pq.ParquetWriter.__init__).parameters)

_STEPS = {LIST_STEP: "list.element", KEY_STEP: "key_value.key", VALUE_STEP: "key_value.value"}
# Parquet spec, "Bloom Filter": blocks of 8 words, one bit of each word is set for a value.
_BLOCK_WORDS = 8
_LEAST_BYTES, _MOST_BYTES = 32, 128 * 1024 * 1024
_MOST_VALUES = 2**31 - 1


def can_honour(option: str) -> bool:
    """Return whether this version of Arrow has the option `PAGE_ROW_LIMIT` or `BLOOM_FILTERS`."""
    return option in _KNOWN


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
    options = {
        "compression": "NONE" if settings.compression_codec == "uncompressed" else settings.compression_codec,
        "compression_level": settings.compression_level,
        "data_page_size": settings.page_size_bytes,
        "dictionary_pagesize_limit": settings.dictionary_size_bytes,
        PAGE_ROW_LIMIT: settings.page_row_limit,
        BLOOM_FILTERS: _bloom_filter_options(settings, schema, leaves, group_rows),
    }
    return {name: value for name, value in options.items() if can_honour(name) or name == "data_page_size"}


def bloom_filter_bytes(settings: FileSettings, group_rows: int | None) -> int:
    """Return the size of all Bloom filters of one row group."""
    if not can_honour(BLOOM_FILTERS):
        return 0
    return sum(
        filter_bytes(_distinct_values(settings, field_id, group_rows), fpp)
        for field_id, fpp in settings.bloom_filter_fpp.items()
    )


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
) -> dict[str, dict[str, int | float]] | None:
    return {
        parquet_path(schema, leaf.path): {
            "ndv": _distinct_values(settings, leaf.field_id, group_rows),
            "fpp": settings.bloom_filter_fpp[leaf.field_id],
        }
        for leaf in leaves
        if leaf.field_id in settings.bloom_filter_fpp
    } or None


def _distinct_values(settings: FileSettings, field_id: int, group_rows: int | None) -> int:
    """Return how many distinct values a filter is made for: what the table says, else all rows, if that fits."""
    most = most_values(settings.bloom_filter_max_bytes, settings.bloom_filter_fpp[field_id])
    wished = settings.bloom_filter_ndv.get(field_id, group_rows)
    return most if wished is None else max(1, min(wished, most))
