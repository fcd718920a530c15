"""Position delete files, written and read: they say which rows of which data files are deleted.

Each belongs to one table partition, as its data files do, because it applies only to files of its partition. Source:
Iceberg spec, "Position Delete Files".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema

from iceberg_ds.messages import check_rows
from iceberg_ds.plan import FileSettings
from iceberg_ds.table.arrow_schema import file_shape, one_batch
from iceberg_ds.table.metrics_config import METRICS_PREFIX, leaf_columns
from iceberg_ds.table.names import FILE_PATH, POS
from iceberg_ds.writers.parquet import ParquetFile

_SCHEMA = Schema(FILE_PATH, POS)
# Equal bounds of the path tell readers that all positions are of one data file, so paths are not truncated.
_FULL_METRICS = {f"{METRICS_PREFIX}default": "full"}
# Rows that are in memory at once, each with a path.
_GROUP_ROWS = 100_000


def hidden_positions(io: FileIO, deletes: Sequence[str], path: str) -> pa.Array:
    """Return the positions, from 0 and in any order, of the hidden rows of the data file at `path`.

    Args:
        io: Opens the table's storage.
        deletes: Paths of the position delete files that may hide rows of it.
        path: Path of the data file.
    """
    found = []
    for file in deletes:
        with io.new_input(file).open() as stream:
            # Row groups of other data files are skipped by their statistics.
            rows = pq.read_table(stream, columns=[POS.name], filters=pc.field(FILE_PATH.name) == path)
        found += [chunk.cast(pa.int64()) for chunk in rows.column(POS.name).chunks]
    return pa.concat_arrays(found) if found else pa.array([], pa.int64())


def positions_by_file(io: FileIO, deletes: str, paths: Sequence[str]) -> Iterator[tuple[str, pa.Array]]:
    """Yield the positions of rows that a position delete file names, data file by data file.

    In a file that is in order, as the spec asks for, each data file comes once, and positions ascend.

    Args:
        io: Opens the table's storage.
        deletes: Path of the position delete file.
        paths: Paths of the data files that are wanted.
    """
    wanted = pc.field(FILE_PATH.name).isin(pa.array(paths, pa.string()))
    with io.new_input(deletes).open() as stream:
        # Row groups of other data files are skipped by their statistics.
        rows = pq.read_table(stream, columns=[FILE_PATH.name, POS.name], filters=wanted)
    if not rows.num_rows:
        return
    begin, rows = 0, rows.combine_chunks()
    runs = pc.run_end_encode(rows.column(FILE_PATH.name).combine_chunks())
    positions = rows.column(POS.name).combine_chunks()
    for path, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield path, positions[begin:end].cast(pa.int64())
        begin = end


def without(positions: pa.Array, hidden: pa.Array) -> pa.Array:
    """Return the positions that are not among the hidden ones, in unchanged order."""
    return positions.filter(pc.invert(pc.is_in(positions, value_set=hidden))) if len(hidden) else positions


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenRows:
    """Rows of a data file to hide.

    Attributes:
        data_file: The file.
        positions: Their positions in it, from 0, ascending.
    """

    data_file: DataFile
    positions: Sequence[int]


def write_position_deletes(io: FileIO, path: str, hidden: Sequence[HiddenRows], settings: FileSettings) -> DataFile:
    """Write a position delete file and return its manifest entry; a file that fails is removed.

    Args:
        io: Opens the table's storage.
        path: Full location of the new file.
        hidden: The rows to hide, in data files of one partition of one spec.
        settings: How files of the write are written.

    Raises:
        RowCountError: The file does not name exactly these rows.
    """
    shape = file_shape(_SCHEMA)
    file = ParquetFile(io, path, shape.schema, leaf_columns(_SCHEMA, _FULL_METRICS), settings)
    try:
        for rows in _groups(hidden, shape.schema):
            file.write_row_group([rows])
        first = hidden[0].data_file
        written = file.close(first.partition, first.spec_id)
        count = sum(len(rows.positions) for rows in hidden)
        check_rows(f"write {path}", "it is to hide", count, {"named in it": written.record_count})
    except BaseException:
        file.discard()
        raise
    # The entry has no value counts, because Iceberg's own writers leave them out for these columns.
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=written.file_format,
        partition=written.partition,
        record_count=written.record_count,
        file_size_in_bytes=written.file_size_in_bytes,
        column_sizes=written.column_sizes,
        lower_bounds=written.lower_bounds,
        upper_bounds=written.upper_bounds,
        key_metadata=None,
        split_offsets=written.split_offsets,
        equality_ids=None,
        sort_order_id=None,
    )
    deletes.spec_id = written.spec_id
    return deletes


def _groups(hidden: Sequence[HiddenRows], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the file in order, row group by row group."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for rows in sorted(hidden, key=lambda rows: rows.data_file.file_path):
        positions = pa.array(rows.positions, pa.int64())
        while len(positions):
            part, positions = positions[: _GROUP_ROWS - count], positions[_GROUP_ROWS - count :]
            paths = pa.repeat(pa.scalar(rows.data_file.file_path, pa.string()), len(part))
            waiting.append(pa.RecordBatch.from_arrays([paths, part], schema=schema))
            count += len(part)
            if count == _GROUP_ROWS:
                yield one_batch(waiting)
                waiting, count = [], 0
    if waiting:
        yield one_batch(waiting)
