"""Reads the rows of a data file that stay when it is written again, batch by batch, in the columns of the table now.

PyIceberg's own scan takes all rows of a file into memory before it returns the first, and turns null lists of structs
into empty ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from iceberg_ds.schemas.projection import has_field_ids, project

_BATCH_ROWS = 65_536


class NoFieldIdsError(ValueError):
    """A file does not say which of the table's fields its columns are."""

    def __init__(self) -> None:
        super().__init__(
            "its columns have no field ids, as in files that were written without Iceberg and added to the table"
        )


def remaining_rows(
    io: FileIO, path: str, schema: Schema, left_out: pa.Array, partition_values: Mapping[int, object]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file but for some, with the names and the order of the table's columns.

    Args:
        io: Opens the table's storage.
        path: The file.
        schema: The table's schema.
        left_out: The positions of rows that are left out, from 0; in any order.
        partition_values: The values of the file's identity partition fields, by the ids of their columns.

    Raises:
        NoFieldIdsError: Columns cannot be told.
    """
    ascending = left_out.sort()
    first = 0
    with io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        if not has_field_ids(file.schema_arrow):
            raise NoFieldIdsError
        for batch in file.iter_batches(_BATCH_ROWS):
            yield project(_without(batch, first, ascending), schema, partition_values)
            first += batch.num_rows


def count_positions(positions: pa.Array, count: int) -> int:
    """Return how many rows of a file with `count` rows these positions mean; a row may be meant more than once."""
    return len(pc.unique(positions.filter(pc.less(positions, pa.scalar(count, positions.type)))))


def _without(batch: pa.RecordBatch, first: int, left_out: pa.Array) -> pa.RecordBatch:
    """Return the rows of a batch, whose first one is at `first`, that are not left out."""
    begin, end = (bisect_left(left_out, at, key=lambda found: found.as_py()) for at in (first, first + batch.num_rows))
    if begin == end:
        return batch
    own = pc.add(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)), first - 1)
    return batch.filter(pc.invert(pc.is_in(own, value_set=left_out[begin:end])))
