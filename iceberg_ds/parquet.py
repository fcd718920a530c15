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

from iceberg_ds.cleanup import Proof, delete_files
from iceberg_ds.leaves import Leaf
from iceberg_ds.metrics import count_nans, file_metrics
from iceberg_ds.plan import FileSettings

logger = logging.getLogger(__name__)


class ParquetFile:
    """A Parquet file that is being written, one row group at a time.

    Args:
        io: Where it is written.
        path: Its full location; nothing is there yet.
        schema: Arrow schema with Iceberg field ids.
        leaves: Its leaf columns, for the metrics.
        settings: Codec and level.
    """

    def __init__(
        self, io: FileIO, path: str, schema: pa.Schema, leaves: tuple[Leaf, ...], settings: FileSettings
    ) -> None:
        self.path = path
        self.arrow_bytes = 0
        self.column_chunks = 0
        self.is_closed = False
        self._io = io
        self._leaves = leaves
        self._nan_counts: Counter[int] = Counter()
        self._footers: list[pq.FileMetaData] = []
        self._stream = io.new_output(path).create(overwrite=True)  # the name is unique: no need to look first
        try:
            self._writer = self._begin(schema, settings)
        except BaseException:
            self.discard()
            raise

    def _begin(self, schema: pa.Schema, settings: FileSettings) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._stream,
            schema,
            compression="NONE" if settings.compression_codec == "uncompressed" else settings.compression_codec,
            compression_level=settings.compression_level,
            store_schema=False,
            store_decimal_as_integer=True,
            metadata_collector=self._footers,
        )

    @property
    def written_bytes(self) -> int:
        """Compressed bytes written so far, the footer not included."""
        return int(self._stream.tell())

    def write_row_group(self, batches: list[pa.RecordBatch]) -> None:
        """Write the batches, which have the file's exact schema, as one row group."""
        for batch in batches:
            self._nan_counts.update(count_nans(batch, self._leaves))
            self.arrow_bytes += batch.nbytes
        table = pa.Table.from_batches(batches)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self.column_chunks += len(self._leaves)

    def close(self, partition: Record, spec_id: int) -> DataFile:
        """Finish the file and return its manifest entry.

        Args:
            partition: Its partition tuple, in the order of the spec.
            spec_id: The partition spec that it is written with.
        """
        self._writer.close()
        size = self.written_bytes
        self._stream.close()
        self.is_closed = True
        metrics = file_metrics(self._footers[0], self._leaves, self._nan_counts)
        data_file = DataFile.from_args(
            content=DataFileContent.DATA,
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
            equality_ids=None,
            sort_order_id=None,
        )
        data_file.spec_id = spec_id
        logger.debug("Wrote %s: %d rows, %d bytes", self.path, metrics.record_count, size)
        return data_file

    def discard(self) -> None:
        """Close and delete the file, whatever state it is in."""
        # An open stream to an object store would hang the interpreter at its exit.
        with contextlib.suppress(Exception):
            self._writer.close()
        with contextlib.suppress(Exception):
            self._stream.close()
        delete_files(self._io, [self.path], Proof.TASK_FAILED)
