"""Reads the keys of rows that the tasks of a write have written: of those in doubt alone, a row group at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from iceberg_ds.schemas.projection import field_id


def read_keys(io: FileIO, path: str, positions: Sequence[int], key_ids: Sequence[int]) -> pa.Table:
    """Return the key columns of some rows of a data file, in the types of the file.

    Args:
        io: Opens the table's storage.
        path: The data file, with the keys among its top-level columns.
        positions: Where the rows are in the file, from 0, ascending.
        key_ids: Field ids of the key columns, in the order in which they are returned.
    """
    wanted = pa.array(positions, pa.int64())
    with io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        by_id = {field_id(field): field.name for field in file.schema_arrow}
        names = [by_id[key_id] for key_id in key_ids]
        read, start = [], 0
        for group in range(file.metadata.num_row_groups):
            end = start + file.metadata.row_group(group).num_rows
            is_here = pc.and_(
                pc.greater_equal(wanted, pa.scalar(start, pa.int64())), pc.less(wanted, pa.scalar(end, pa.int64()))
            )
            if is_here.true_count:
                places = pc.subtract(wanted.filter(is_here), pa.scalar(start, pa.int64()))
                read.append(file.read_row_group(group, columns=names).select(names).take(places))
            start = end
    return pa.concat_tables(read).combine_chunks()
