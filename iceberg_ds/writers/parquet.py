"""One Parquet file, from its first row group to its `DataFile`; and the options of Arrow's Parquet writer for it.

Runs in tasks; knows nothing of partition routing, rolling or Spark. A file that is not finished with
`close` is removed with `discard`. Older versions of Arrow lack some options: `can_honour` says which. Without
such an option a file is laid out differently, and still correct.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from iceberg_ds.io.cleanup import discard_output
from iceberg_ds.plan import FileSettings
from iceberg_ds.table.metrics_config import KEY_STEP, LIST_STEP, VALUE_STEP, Leaf
from iceberg_ds.table.variant import VariantType
from iceberg_ds.writers.encodings import DEFAULT_ENCODINGS, Encodings
from iceberg_ds.writers.metrics import count_nans, file_metrics
from iceberg_ds.writers.parquet_footer import MarkedOutput

logger = logging.getLogger(__name__)

PAGE_ROW_LIMIT, BLOOM_FILTERS = "max_rows_per_page", "bloom_filter_options"

_STEPS = {LIST_STEP: "list.element", KEY_STEP: "key_value.key", VALUE_STEP: "key_value.value"}
# Parquet spec, "Bloom Filter": blocks of 8 words, one bit of each word is set for a value.
_BLOCK_WORDS = 8
_LEAST_BYTES, _MOST_BYTES = 32, 128 * 1024 * 1024
_MOST_VALUES = 2**31 - 1
# Approximate bytes of one column chunk in the footer, short bounds included.
_FOOTER_BYTES = 120
# Rows that Arrow's writer converts at once: it keeps the memory for them until the file is closed.
_CONVERTED_ROWS = 10_000


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
        group_rows: Rows of its largest row group, None if unknown.
    """
    options = layout_options(settings)
    if settings.bloom_filter_fpp and can_honour(BLOOM_FILTERS):
        options[BLOOM_FILTERS] = _bloom_filter_options(settings, schema, leaves, group_rows)
    return options


def layout_options(settings: FileSettings) -> dict[str, object]:
    """Return the arguments of Arrow's `ParquetWriter` that depend on the settings and not on the columns."""
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
    """Return the approximate bytes of all Bloom filters of a row group.

    Args:
        settings: How the file is written.
        group_rows: As for `writer_options`.
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
    """Return whether this version of Arrow shrinks a filter that got few values."""
    sink = pa.BufferOutputStream()
    options = {BLOOM_FILTERS: {"x": {"ndv": 1_000_000, "fpp": 0.01}}}
    pq.write_table(pa.table({"x": [1]}), sink, **options)
    return bool(sink.tell() < filter_bytes(1_000_000, 0.01))


def filter_bytes(ndv: int, fpp: float) -> int:
    """Return the bytes of Arrow's Bloom filter for `ndv` distinct values and false positive probability `fpp`."""
    bits = -_BLOCK_WORDS * ndv / math.log(1 - fpp ** (1 / _BLOCK_WORDS))
    return min(max(_LEAST_BYTES, 1 << math.ceil(math.log2(max(bits / 8, 1)))), _MOST_BYTES)


def most_values(max_bytes: int, fpp: float) -> int:
    """Return how many distinct values a filter of at most `max_bytes` holds at false positive probability `fpp`."""
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
    """Return how many distinct values a filter is sized for: the table's number, else all rows, at most what fits."""
    most = most_values(settings.bloom_filter_max_bytes, settings.bloom_filter_fpp[field_id])
    wished = settings.bloom_filter_ndv.get(field_id, group_rows)
    return most if wished is None else max(1, min(wished, most))


class ParquetFile:
    """A Parquet file that is being written, one row group at a time.

    Args:
        io: Opens the table's storage.
        path: Its full location; nothing is there yet.
        schema: Arrow schema with Iceberg field ids.
        leaves: Its leaf columns, for the metrics.
        settings: How it is laid out.
        group_rows: Rows of its largest row group, for which Bloom filters are sized; None if unknown.
        encodings: How its columns are encoded.

    Attributes:
        hidden: The rows' columns after those of the schema, which are not written, in the order of the rows.
    """

    def __init__(  # noqa: PLR0913  # each is a separate input, and there is one caller
        self,
        io: FileIO,
        path: str,
        schema: pa.Schema,
        leaves: tuple[Leaf, ...],
        settings: FileSettings,
        *,
        group_rows: int | None = None,
        encodings: Encodings = DEFAULT_ENCODINGS,
    ) -> None:
        self.path = path
        self.column_chunks = 0
        self.end_bytes = 0  # approximate bytes of the footer and the Bloom filters
        self.hidden: list[pa.RecordBatch] = []
        self._io = io
        self._width = len(schema)
        # Columns of type unknown are not stored (spec, "Parquet").
        self._stored = [place for place, field in enumerate(schema) if not pa.types.is_null(field.type)]
        self._leaves = leaves
        self._nan_counts: Counter[int] = Counter()
        self._footers: list[pq.FileMetaData] = []
        self._settings = settings
        self._group_rows = group_rows
        self._stream = io.new_output(path).create(overwrite=True)  # the name is unique: no need to check first
        variants = {leaf.field_id for leaf in leaves if isinstance(leaf.field_type, VariantType)}
        self._marked = MarkedOutput(self._stream, variants) if variants else None
        try:
            self._writer = pq.ParquetWriter(
                self._stream if self._marked is None else self._marked,
                pa.schema([schema.field(place) for place in self._stored]),
                metadata_collector=self._footers,
                **writer_options(settings, schema, leaves, group_rows),
                **encodings.options(),
            )
        except BaseException:
            self.discard()
            raise

    @property
    def row_bytes(self) -> int:
        """Compressed bytes written so far."""
        return int(self._stream.tell())

    @property
    def written_bytes(self) -> int:
        """Approximate bytes of the file if it were closed now."""
        return self.row_bytes + self.end_bytes

    def write_row_group(self, batches: list[pa.RecordBatch]) -> None:
        """Write the batches as one row group; they have the schema, and hidden columns after it."""
        for batch in batches:
            self._nan_counts.update(count_nans(batch, self._leaves))
        table = pa.Table.from_batches(batches)
        table = pa.Table.from_batches(table.to_batches(_CONVERTED_ROWS))
        if table.num_columns > self._width:
            self.hidden += [batch.select(range(self._width, batch.num_columns)) for batch in batches]
        if table.num_columns > len(self._stored):
            table = table.select(self._stored)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.column_chunks += len(self._leaves)
        self.end_bytes += len(self._leaves) * _FOOTER_BYTES
        self.end_bytes += bloom_filter_bytes(self._settings, self._group_rows, table.num_rows)

    def close(
        self,
        partition: Record,
        spec_id: int,
        sort_order_id: int | None = None,
        equality_ids: tuple[int, ...] | None = None,
    ) -> DataFile:
        """Finish the file and return its manifest entry.

        Args:
            partition: Its partition tuple, in the order of the spec.
            spec_id: The partition spec that it is written with.
            sort_order_id: Id of the sort order of its rows, None if they are unsorted.
            equality_ids: Field ids of the columns by which it deletes rows, None for a data file.
        """
        if self._marked is not None:
            self._marked.hold()
        self._writer.close()
        if self._marked is not None:
            self._marked.release()
        size = self.row_bytes
        self._stream.close()
        metrics = file_metrics(self._footers[0], self._leaves, self._nan_counts)
        data_file = DataFile.from_args(
            content=DataFileContent.DATA if equality_ids is None else DataFileContent.EQUALITY_DELETES,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=partition,
            record_count=metrics.record_count,
            file_size_in_bytes=size,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts=metrics.nan_value_counts,
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            key_metadata=None,
            split_offsets=metrics.split_offsets,
            equality_ids=None if equality_ids is None else list(equality_ids),
            sort_order_id=sort_order_id,
        )
        data_file.spec_id = spec_id
        logger.debug("Wrote %s: %d rows, %d bytes", self.path, metrics.record_count, size)
        return data_file

    def discard(self) -> None:
        """Close and delete the file, in any state."""
        # Without a writer, if that is what failed.
        discard_output(self._io, self.path, self._stream, lambda: self._writer.close())  # noqa: PLW0108
