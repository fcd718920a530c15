"""One Parquet file, from its first row group to its `DataFile`.

Runs in tasks; knows nothing of partitions' routing, rolling or Spark. A file that is not finished with
`close` is removed with `discard`.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import DiscardableStream
from iceberg_ds.plan import FileSettings
from iceberg_ds.table.metrics_config import Leaf
from iceberg_ds.writers.encodings import DEFAULT_ENCODINGS, Encodings
from iceberg_ds.writers.metrics import count_nans, file_metrics
from iceberg_ds.writers.parquet_options import bloom_filter_bytes, writer_options

logger = logging.getLogger(__name__)

# About what the footer says of one column chunk, short bounds included.
_FOOTER_BYTES = 120
# Rows that Arrow's writer converts at once: it keeps the memory for them until the file is closed.
_CONVERTED_ROWS = 10_000


class ParquetFile:
    """A Parquet file that is being written, one row group at a time.

    Args:
        io: Where it is written.
        path: Its full location; nothing is there yet.
        schema: Arrow schema with Iceberg field ids.
        leaves: Its leaf columns, for the metrics.
        settings: How it is laid out.
        group_rows: Rows of its largest row group, None if that is not known: Bloom filters are made for so many.
        encodings: How its columns are encoded.

    Attributes:
        hidden: Columns that rows had after those of the schema, which are not written, in the order of the rows.
    """

    def __init__(  # noqa: PLR0913  # each is another thing, and there is one caller
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
        self.end_bytes = 0  # about what the footer and the Bloom filters will take
        self.hidden: list[pa.RecordBatch] = []
        self._io = io
        self._width = len(schema)
        self._leaves = leaves
        self._nan_counts: Counter[int] = Counter()
        self._footers: list[pq.FileMetaData] = []
        self._settings = settings
        self._group_rows = group_rows
        self._stream = io.new_output(path).create(overwrite=True)  # the name is unique: no need to look first
        try:
            self._writer = pq.ParquetWriter(
                self._stream,
                schema,
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
        """About the file's size if it were closed now."""
        return self.row_bytes + self.end_bytes

    def write_row_group(self, batches: list[pa.RecordBatch]) -> None:
        """Write the batches, which have the file's exact schema and hidden columns after it, as one row group."""
        for batch in batches:
            self._nan_counts.update(count_nans(batch, self._leaves))
        table = pa.Table.from_batches(batches)
        table = pa.Table.from_batches(table.to_batches(_CONVERTED_ROWS))
        if table.num_columns > self._width:
            self.hidden += [batch.select(range(self._width, batch.num_columns)) for batch in batches]
            table = table.select(range(self._width))
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
            sort_order_id: The sort order that its rows are in, None for none.
            equality_ids: Field ids of the columns by which it deletes rows, None for a file of rows.
        """
        self._writer.close()
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
        """Close and delete the file, whatever state it is in."""
        is_discarded = isinstance(self._stream, DiscardableStream)
        if isinstance(self._stream, DiscardableStream):  # before anything closes it, which would make the file appear
            self._stream.discard()
        # An open stream of Arrow to an object store would hang the interpreter at its exit.
        with contextlib.suppress(Exception):
            self._writer.close()
        with contextlib.suppress(Exception):
            self._stream.close()
        if not is_discarded:
            delete_files(self._io, [self.path], Proof.TASK_FAILED)
