"""Reads which rows of a data file position deletes hide already."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from iceberg_ds.table.names import FILE_PATH, POS


def hidden_positions(io: FileIO, deletes: Sequence[str], path: str) -> pa.Array:
    """Return the positions, from 0, of the rows of the data file at `path` that are hidden; in any order.

    Args:
        io: Opens the table's storage.
        deletes: The files of position deletes that may hide some.
        path: The data file.
    """
    found = []
    for file in deletes:
        with io.new_input(file).open() as stream:
            # Row groups of other data files are passed over by their statistics.
            rows = pq.read_table(stream, columns=[POS.name], filters=pc.field(FILE_PATH.name) == path)
        found += [chunk.cast(pa.int64()) for chunk in rows.column(POS.name).chunks]
    return pa.concat_arrays(found) if found else pa.array([], pa.int64())


def without(positions: pa.Array, hidden: pa.Array) -> pa.Array:
    """Return the positions that are not among the hidden ones, in their order."""
    return positions.filter(pc.invert(pc.is_in(positions, value_set=hidden))) if len(hidden) else positions
