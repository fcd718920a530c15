"""Reads single columns of Parquet files by their field ids, whatever schema of the table a file was written with.

Source: Iceberg spec, "Column Projection"; of files without field ids nobody can say which column is which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.types import IcebergType

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.resolving.canonical import canonical
from iceberg_ds.schemas.projection import NO_VALUES, absent, field_id

_BATCH_ROWS = 131_072


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnBatch:
    """Some rows of a file.

    Attributes:
        first: Position of the first one in the file.
        columns: Canonical values of the columns that were asked for, in that order.
    """

    first: int
    columns: list[pa.Array]


class ColumnReader:
    """The key columns of one Parquet file.

    Args:
        io: Opens the table's storage.
        path: The file.
        wanted: The types of the columns in the table, by field id.
        partition_values: The values of the file's identity partition fields, by the ids of their columns; any other
            column that the file lacks is null.

    Attributes:
        read_bytes: Compressed bytes of the columns that were read so far.
    """

    def __init__(
        self,
        io: FileIO,
        path: str,
        wanted: Mapping[int, IcebergType],
        partition_values: Mapping[int, object] = NO_VALUES,
    ) -> None:
        self.read_bytes = 0
        self._io = io
        self._path = path
        self._wanted = wanted
        self._partition_values = partition_values

    def batches(self) -> Iterator[ColumnBatch]:
        """Yield all rows in order.

        Raises:
            UnsupportedTableError: The file does not say which of its columns are which, or has values of other types.
        """
        with self._io.new_input(self._path).open() as stream:
            file = pq.ParquetFile(stream)
            steps = self._find(file.schema_arrow)
            names = [".".join(found) for found in steps.values()]
            self.read_bytes += _column_bytes(file.metadata, names)
            if not names:
                yield from self._without_any(file.metadata.num_rows)
                return
            first = 0
            for batch in file.iter_batches(_BATCH_ROWS, columns=names):
                yield ColumnBatch(first=first, columns=[self._values(batch, steps, number) for number in self._wanted])
                first += batch.num_rows

    def _find(self, schema: pa.Schema) -> dict[int, tuple[str, ...]]:
        """Return the names that lead to each of the columns that the file has."""
        known = dict(_leaves(list(schema), ()))
        missing = [number for number in self._wanted if number not in known and number not in self._partition_values]
        if missing and None in known:
            raise UnsupportedTableError(
                f"Cannot find rows by key in {self._path}: it does not say which column has field id {missing[0]}, as "
                "files do that were written without Iceberg and added to the table. Rewrite it first, for example "
                "with Iceberg's rewrite_data_files."
            )
        return {number: known[number] for number in self._wanted if number in known}

    def _values(self, batch: pa.RecordBatch, steps: Mapping[int, tuple[str, ...]], number: int) -> pa.Array:
        if number not in steps:
            return self._absent(number, batch.num_rows)
        top, *below = steps[number]
        values = batch.column(batch.schema.get_field_index(top))
        for name in below:
            # Unlike StructArray.field, struct_field makes the child null where the struct is null.
            values = pc.struct_field(values, [name])
        try:
            return canonical(values, self._wanted[number])
        except (pa.ArrowException, ValueError) as problem:
            raise UnsupportedTableError(
                f"Cannot find rows by key in {self._path}: its column {'.'.join(steps[number])} is {values.type}, "
                f"which cannot be read as the table's {self._wanted[number]}: {problem}."
            ) from problem

    def _without_any(self, rows: int) -> Iterator[ColumnBatch]:
        for first in range(0, rows, _BATCH_ROWS):
            count = min(_BATCH_ROWS, rows - first)
            yield ColumnBatch(first=first, columns=[self._absent(number, count) for number in self._wanted])

    def _absent(self, number: int, count: int) -> pa.Array:
        kind = self._wanted[number]
        return canonical(absent(number, kind, self._partition_values, count), kind)


def _leaves(fields: list[pa.Field], above: tuple[str, ...]) -> Iterator[tuple[int | None, tuple[str, ...]]]:
    """Yield field id and names of the columns that are in no list or map; the id is None of any field without one."""
    for column in fields:
        path = (*above, column.name)
        number = field_id(column)
        is_struct = pa.types.is_struct(column.type)
        if number is None or not is_struct:
            yield number, path
        if is_struct:
            yield from _leaves(list(column.type), path)


def _column_bytes(footer: pq.FileMetaData, names: list[str]) -> int:
    numbers = [number for number in range(footer.num_columns) if footer.schema.column(number).path in names]
    groups = (footer.row_group(group) for group in range(footer.num_row_groups))
    return sum(group.column(number).total_compressed_size for group in groups for number in numbers)
