"""Reads the rows of a data file, batch by batch, in the columns that the table has now.

PyIceberg's own scan takes all rows of a file into memory before it returns the first, and turns null lists
of structs into empty ones; of it, only the reading of position deletes is used.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.pyiceberg_inner import deleted_positions
from iceberg_ds.schemas.conform import conform
from iceberg_ds.schemas.projection import has_field_ids, project
from iceberg_ds.schemas.shape import FileShape, file_shape

_BATCH_ROWS = 65_536


def read_rows(metadata: TableMetadata, io: FileIO, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file, without those that are deleted by position.

    Args:
        metadata: The table, whose columns the batches have in its order, with its own names at any depth.
        io: Opens the table's storage.
        task: The file, and the position deletes that apply to it.

    Raises:
        UnsupportedTableError: The file does not say which of the table's fields its columns are.
    """
    named = file_shape(metadata.schema()).named
    shape = FileShape(schema=named, named=named, case_sensitive=True)
    deleted = deleted_positions(io, task)
    first = 0
    with io.new_input(task.file.file_path).open() as stream:
        file = pq.ParquetFile(stream)
        if not has_field_ids(file.schema_arrow):
            raise UnsupportedTableError(
                f"Cannot write some rows of {task.file.file_path} again, nothing was committed: its columns have no "
                "field ids, as in files that were written without Iceberg and added to the table. Compact the table "
                "first, or replace whole files."
            )
        for batch in file.iter_batches(_BATCH_ROWS):
            rows = project(_without(batch, first, deleted), metadata.schema())
            first += batch.num_rows
            yield conform(rows, shape)


def _without(batch: pa.RecordBatch, first: int, deleted: set[int]) -> pa.RecordBatch:
    """Return the rows that are not deleted.

    Args:
        batch: Rows of a file.
        first: Position of the first of them in the file.
        deleted: Positions of deleted rows in the file.
    """
    here = [position for position in range(batch.num_rows) if first + position not in deleted] if deleted else None
    return batch if here is None else batch.take(pa.array(here, pa.int64()))
