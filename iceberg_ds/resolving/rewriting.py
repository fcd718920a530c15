"""Writes the rows of a data file again, in their order and into the same partition, but for some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.sorting import SortOrder

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.layouts.partitioning import PartitionKey, identity_values
from iceberg_ds.plan import WritePlan
from iceberg_ds.row_counts import check_rows, rows_in
from iceberg_ds.schemas.conform import conform
from iceberg_ds.schemas.shape import file_shape
from iceberg_ds.writing.remaining_rows import NoFieldIdsError, count_positions, remaining_rows
from iceberg_ds.writing.rolling import RollingWriter, TaskFiles
from iceberg_ds.writing.writers import TaskAttempt, name_prefix


class FileRewriter:
    """Writes data files of a table again, in the columns that it has now.

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
        self._count = 0
        self._shape = file_shape(plan.schema, case_sensitive=True)

    def rewrite(
        self, data_file: DataFile, spec: PartitionSpec, order: SortOrder | None, left_out: pa.Array
    ) -> tuple[DataFile, ...]:
        """Return files with the rows of a data file; none if no row is left. What fails leaves no file.

        Args:
            data_file: The file.
            spec: Its partition spec.
            order: The sort order that its rows are in, None for none.
            left_out: The positions of rows that are not written, from 0.

        Raises:
            UnsupportedTableError: The file does not say which of the table's fields its columns are.
            RowCountError: The new files do not have the other rows.
        """
        self._count += 1
        plan = replace(self._plan, spec=spec, sort_order=order)
        files = TaskFiles(plan, f"{self._prefix}-{self._count:05d}", self._shape.schema)
        writer = RollingWriter(PartitionKey.of(data_file.partition), files)
        try:
            for rows in self._rows(data_file.file_path, left_out, identity_values(data_file, spec)):
                if rows.num_rows:
                    writer.append(rows)
            writer.close()
            written = files.close()
            found = {
                "left out": count_positions(left_out, data_file.record_count),
                f"in {len(written)} new files": rows_in(written),
            }
            check_rows(f"write to {self._plan.table}", f"{data_file.file_path} has", data_file.record_count, found)
        except BaseException:
            files.discard_all()
            raise
        self.read_bytes += data_file.file_size_in_bytes
        return written

    def _rows(self, path: str, left_out: pa.Array, partition_values: Mapping[int, object]) -> Iterator[pa.RecordBatch]:
        try:
            for rows in remaining_rows(self._io, path, self._plan.schema, left_out, partition_values):
                yield conform(rows, self._shape)
        except NoFieldIdsError as problem:
            raise UnsupportedTableError(
                f"Cannot rewrite {path}: {problem}. Rewrite it first with Iceberg's rewrite_data_files, or mark rows "
                "by position."
            ) from problem
