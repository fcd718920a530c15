"""Rewrites a data file without some of its rows, in the same order and the same partition.

The remaining rows are read batch by batch, in the table's current columns: PyIceberg's own scan reads all rows of a
file into memory before it returns the first, and turns null lists of structs into empty ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.table.sorting import SortOrder

from iceberg_ds.cdc.keys import numbers_from
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.io.parquet_files import open_parquet
from iceberg_ds.messages import check_rows, rows_in
from iceberg_ds.plan import WritePlan
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.lineage import FileLineage, KeptIds, with_lineage
from iceberg_ds.table.name_mapping import UnknownColumnsError, identified, parsed_mapping
from iceberg_ds.table.partitioning import PartitionKey, identity_values
from iceberg_ds.table.projection import NO_VALUES, field_id, project
from iceberg_ds.writers.rolling import RollingWriter, TaskFiles
from iceberg_ds.writers.task_writer import TaskAttempt, name_prefix

_BATCH_ROWS = 65_536


def remaining_rows(  # noqa: PLR0913, PLR0917  # the last one is seldom given
    io: FileIO,
    path: str,
    schema: Schema,
    left_out: pa.Array,
    partition_values: Mapping[int, object],
    lineage: FileLineage | KeptIds | None = None,
    mapping: NameMapping | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file except those left out, with the names and the order of the table's columns.

    Args:
        io: Opens the table's storage.
        path: The file.
        schema: The table's schema.
        left_out: The positions of the rows to leave out, from 0; in any order.
        partition_values: The values of the file's identity partition fields, by the ids of their columns.
        lineage: What its rows inherit, in columns behind the table's own; None for a table whose rows have no ids.
        mapping: As for `batches_of`.

    Raises:
        UnknownColumnsError: As `batches_of`.
    """
    wanted = schema if lineage is None else with_lineage(schema)
    for positions, batch in batches_of(io, path, wanted, left_out, mapping, partition_values):
        rows = project(batch, wanted, partition_values)
        yield rows if lineage is None else lineage.filled(rows, positions)


def batches_of(  # noqa: PLR0913, PLR0917  # the last ones are of files without field ids
    io: FileIO,
    path: str,
    schema: Schema,
    left_out: pa.Array,
    mapping: NameMapping | None = None,
    partition_values: Mapping[int, object] = NO_VALUES,
) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
    """Yield the rows of a data file except those left out, with their positions, and with the columns that it has.

    Args:
        io: Opens the table's storage.
        path: The file.
        schema: The columns to read, by field id; at least one column of the file is read.
        left_out: The positions of the rows to leave out, from 0; in any order.
        mapping: Gives columns of a file without field ids those of the table, by name; None to refuse such a file.
        partition_values: The values of the file's identity partition fields, by the ids of their columns.

    Raises:
        UnknownColumnsError: The file's columns have no field ids and nothing tells what they are, or one is missing.
    """
    ascending = left_out.sort()
    first = 0
    with io.new_input(path).open() as stream:
        file = open_parquet(stream)
        own = file.schema_arrow
        known = identified(own, schema, mapping, partition_values)
        wanted = {field.field_id for field in schema.fields}
        # A file without any of them has rows, too.
        columns = [column for column in known if field_id(column) in wanted] or [own.field(0)]
        names, read = [column.name for column in columns], pa.schema(columns)
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            positions = numbers_from(first, batch.num_rows)
            kept = _kept(positions, ascending)
            rows = batch if known is own else batch.cast(read)
            yield (positions, rows) if kept is None else (positions.filter(kept), rows.filter(kept))
            first += batch.num_rows


def count_positions(positions: pa.Array, count: int) -> int:
    """Return how many rows of a file with `count` rows these positions name; a row may be named more than once."""
    return len(pc.unique(positions.filter(pc.less(positions, pa.scalar(count, positions.type)))))


def _kept(positions: pa.Array, left_out: pa.Array) -> pa.Array | None:
    """Return which of these positions, which follow each other, are not left out; None if none is."""
    bounds = (positions[0].as_py(), positions[-1].as_py() + 1) if len(positions) else (0, 0)
    begin, end = (bisect_left(left_out, at, key=lambda found: found.as_py()) for at in bounds)
    return None if begin == end else pc.invert(pc.is_in(positions, value_set=left_out[begin:end]))


def rows_of_file(  # noqa: PLR0913, PLR0917  # the last one is seldom given
    io: FileIO,
    data_file: DataFile,
    spec: PartitionSpec,
    schema: Schema,
    left_out: pa.Array,
    lineage: FileLineage | KeptIds | None = None,
    mapping: NameMapping | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a data file except those left out, as new files of the table have them.

    Args:
        io: Opens the table's storage.
        data_file: The file.
        spec: Its partition spec.
        schema: The table's schema.
        left_out: The positions of the rows to leave out, from 0; in any order.
        lineage: What its rows inherit, as for `remaining_rows`.
        mapping: As for `batches_of`.

    Raises:
        UnsupportedTableError: It is not known which columns of the table the file's are.
    """
    written = schema if lineage is None else with_lineage(schema)
    shape, path = file_shape(written, case_sensitive=True), data_file.file_path
    try:
        for rows in remaining_rows(io, path, schema, left_out, identity_values(data_file, spec), lineage, mapping):
            yield conform(rows, shape)
    except UnknownColumnsError as problem:
        raise UnsupportedTableError(f"Cannot rewrite {path}: {problem}. {problem.next_step}") from problem


class FileRewriter:
    """Rewrites data files of a table in the table's current columns.

    Args:
        io: Opens the table's storage.
        plan: How files are written.
        attempt: Becomes part of the files' names.

    Attributes:
        read_bytes: Bytes of the files that were read so far.
    """

    def __init__(self, io: FileIO, plan: WritePlan, attempt: TaskAttempt) -> None:
        self.read_bytes = 0
        self._io = io
        self._plan = plan
        self._prefix = name_prefix(plan, attempt)
        self._encodings = attempt.encodings
        self._mapping = parsed_mapping(plan.name_mapping)
        self._count = 0

    def rewrite(
        self,
        data_file: DataFile,
        spec: PartitionSpec,
        order: SortOrder | None,
        left_out: pa.Array,
        lineage: FileLineage | KeptIds | None = None,
    ) -> tuple[DataFile, ...]:
        """Return new files with the remaining rows of a data file, none if no row is left. A failure leaves no file.

        Args:
            data_file: The file.
            spec: Its partition spec.
            order: The sort order of its rows, None if they are unsorted.
            left_out: The positions of the rows to leave out, from 0.
            lineage: What its rows inherit, which they keep in columns of their own; None if they have no ids.

        Raises:
            UnsupportedTableError: It is not known which columns of the table the file's are.
            RowCountError: The new files do not have the remaining rows.
        """
        self._count += 1
        schema = self._plan.schema if lineage is None else with_lineage(self._plan.schema)
        plan = replace(self._plan, schema=schema, spec=spec, sort_order=order)
        prefix, shape = f"{self._prefix}-{self._count:05d}", file_shape(schema, case_sensitive=True)
        files = TaskFiles(plan, prefix, shape.schema, self._encodings)
        writer = RollingWriter(PartitionKey.of(data_file.partition), files)
        try:
            schema = self._plan.schema
            for rows in rows_of_file(self._io, data_file, spec, schema, left_out, lineage, self._mapping):
                if rows.num_rows:
                    writer.append(rows)
            writer.close()
            written = files.close()
            found = {
                "left out": count_positions(left_out, data_file.record_count),
                f"in {len(written)} new files": rows_in(written),
            }
            check_rows(
                f"write to {self._plan.write.table}", f"{data_file.file_path} has", data_file.record_count, found
            )
        except BaseException:
            files.discard_all()
            raise
        self.read_bytes += data_file.file_size_in_bytes
        return written
