"""Rows that are deleted by key, in Spark: what equality delete files name, as a DataFrame that rows are joined with.

The driver reads these files itself where they have few keys: a job of Spark takes longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import and_, attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql import types as spark

from iceberg_ds.deletes.key_reader import ColumnReader, canonical_type
from iceberg_ds.deletes.work import KeyFile
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.reading.file_errors import naming_delete_file
from iceberg_ds.reading.file_marks import Portion, portions
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.reading.spark_columns import ReadColumn
from iceberg_ds.reading.spark_files import SparkFiles, together
from iceberg_ds.snapshots.live_files import is_global
from iceberg_ds.spark.arrow_frame import arrow_frame
from iceberg_ds.table.arrow_schema import arrow_type
from iceberg_ds.table.names import quoted
from iceberg_ds.table.partitioning import place_of
from iceberg_ds.table.spark_types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The place of deletes that apply in all partitions.
EVERYWHERE = -1
# The most keys that the driver reads.
MOST_KEYS = 1_000_000
BELOW, PLACE = "__below", "__place"
_BROADCAST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkKeys:
    """Equality delete files of the same columns.

    Attributes:
        files: Reads files, and knows the table.
        columns: The columns that rows are deleted by.
        keys: The delete files.
    """

    files: SparkFiles
    columns: Sequence[ReadColumn]
    keys: Sequence[KeyFile]

    def frame(self, below: Callable[[KeyFile], int], place: Callable[[KeyFile], int]) -> DataFrame:
        """Return the deleted keys, each once a place, with the highest number of `below` as `BELOW`.

        Args:
            below: Rows of data files with lower sequence numbers are deleted by the keys of a file.
            place: Number of the place, `PLACE`, in which a file deletes.
        """
        if sum(map(self._row_count, self.keys)) <= MOST_KEYS:
            return self._read_here(below, place)
        parts = [
            self._read_by_spark(portion, key_of, below, place)
            for key_of in _each_path_once(self.keys)
            for portion in portions([self._file(key) for key in key_of.values()])
        ]
        found = together(parts)
        return found if len(self.keys) == 1 else found.groupBy(*self.names, PLACE).agg(F.max(BELOW).alias(BELOW))

    def joined(self, rows: DataFrame, keys: DataFrame, how: str, *matches: Column) -> DataFrame:
        """Return rows joined with a DataFrame that has the columns of the keys, where all of these are the same.

        Args:
            rows: The rows, with the key columns as they are read.
            keys: The keys.
            how: Spark's kind of join.
            *matches: What has to be true, too.
        """
        if sum(self._file(key).file_size_in_bytes for key in self.keys) <= _BROADCAST_BYTES:
            keys = F.broadcast(keys)
        conditions = list(matches)
        for column in self.columns:
            mine, deleted = F.col(quoted(column.name)), keys[_key_name(column)]
            conditions.append(mine == deleted if column.is_never_null else mine.eqNullSafe(deleted))
        return rows.join(keys, reduce(and_, conditions), how)

    @property
    def names(self) -> list[str]:
        """Names of the key columns in a DataFrame of keys."""
        return list(map(_key_name, self.columns))

    def applies_everywhere(self, key: KeyFile) -> bool:
        """Return whether a file deletes rows of all partitions."""
        return is_global(self.files.plan.specs[self._file(key).spec_id])

    def place(self, places: Places, key: KeyFile) -> int:
        """Return the number of the place in which a file deletes, of those of data files."""
        return EVERYWHERE if self.applies_everywhere(key) else places.of(self._file(key))

    def _read_by_spark(
        self,
        portion: Portion[DataFile],
        key_of: Mapping[str, KeyFile],
        below: Callable[[KeyFile], int],
        place: Callable[[KeyFile], int],
    ) -> DataFrame:
        columns = [ReadColumn(field=column.field, name=_key_name(column)) for column in self.columns]
        rows = self.files.read(portion.files, columns).selectExpr("*", portion.mark_text())
        return rows.select(
            *self.names,
            portion.number(lambda file: below(key_of[file.file_path])).alias(BELOW),
            portion.number(lambda file: place(key_of[file.file_path])).alias(PLACE),
        )

    def _read_here(self, below: Callable[[KeyFile], int], place: Callable[[KeyFile], int]) -> DataFrame:
        wanted = [_KeyDeletes(path=key.path, below=below(key), place=place(key)) for key in self.keys]
        types = {column.field.field_id: column.field.field_type for column in self.columns}
        found = _deleted_keys(self.files.io, types, wanted)
        kinds = [spark_type(kind, with_field_ids=True) for kind in types.values()]
        named = [*zip(self.names, kinds, strict=True), (PLACE, spark.IntegerType()), (BELOW, spark.LongType())]
        schema = spark.StructType([spark.StructField(name, kind) for name, kind in named])
        return arrow_frame(self.files.spark, found.rename_columns(schema.names), schema)

    def _file(self, key: KeyFile) -> DataFile:
        return self.files.plan.key_files[key.path]

    def _row_count(self, key: KeyFile) -> int:
        return self._file(key).record_count


@dataclass(slots=True)
class Places:
    """Numbers for the partitions of data files, from 0; a delete file of another partition has the next one."""

    _numbers: dict[object, int] = field(default_factory=dict)

    @classmethod
    def among(cls, files: Iterable[DataFile]) -> Places:
        """Number the partitions of data files."""
        return cls({place: number for number, place in enumerate(dict.fromkeys(map(place_of, files)))})

    def of(self, file: DataFile) -> int:
        """Return the number of a file's partition."""
        return self._numbers.get(place_of(file), len(self._numbers))


def without_deleted(
    files: SparkFiles, rows: DataFrame, portion: Portion[ScanTask], columns: Sequence[ReadColumn]
) -> DataFrame:
    """Return those rows of a portion of the data files that no key deletes."""
    places = Places.among(task.data_file for task in portion.files)
    for keys in spark_keys(files, portion.files, columns):
        deletes = keys.frame(attrgetter("applies_below"), partial(keys.place, places))
        matches = [deletes[BELOW] > portion.number(lambda task: task.work.sequence_number)]
        if not all(map(keys.applies_everywhere, keys.keys)):
            place = portion.number(lambda task: places.of(task.data_file))
            matches.append((deletes[PLACE] == EVERYWHERE) | (deletes[PLACE] == place))
        rows = keys.joined(rows, deletes, "left_anti", *matches)
    return rows


def spark_keys(files: SparkFiles, tasks: Iterable[ScanTask], columns: Sequence[ReadColumn]) -> list[SparkKeys]:
    """Return what deletes rows of data files by key, one for each combination of columns."""
    by_columns: dict[tuple[int, ...], dict[KeyFile, None]] = defaultdict(dict)
    for task in tasks:
        for key in task.work.keys:
            by_columns[key.field_ids][key] = None
    return [
        SparkKeys(
            files=files,
            columns=[column for column in columns if column.field.field_id in field_ids],
            keys=[*found],
        )
        for field_ids, found in by_columns.items()
    ]


def _each_path_once(keys: Iterable[KeyFile]) -> Iterable[dict[str, KeyFile]]:
    """Return files of keys by their paths, those apart that were added again with another sequence number."""
    by_path: dict[str, list[KeyFile]] = defaultdict(list)
    for key in keys:
        by_path[key.path].append(key)
    most = max(map(len, by_path.values()))
    return [{path: some[number] for path, some in by_path.items() if number < len(some)} for number in range(most)]


def _key_name(column: ReadColumn) -> str:
    return f"__key_{column.field.field_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyDeletes:
    """An equality delete file of a read.

    Attributes:
        path: Where it is.
        below: It deletes rows of data files with lower data sequence numbers.
        place: Number of the partition in which it deletes rows.
    """

    path: str
    below: int
    place: int


def _deleted_keys(io: FileIO, types: Mapping[int, IcebergType], files: Sequence[_KeyDeletes]) -> pa.Table:
    """Return the deleted keys, each once a partition, with the highest `below` and the `place`.

    The columns are named by the field ids, and come in the order of `types`.

    Args:
        io: Opens the table's storage.
        types: The types of the key columns, by field id.
        files: The equality delete files of these columns.

    Raises:
        UnsupportedTableError: A file cannot be read.
        DataFileError: A file is missing or damaged.
    """
    keys = [(str(number), canonical_type(kind)) for number, kind in types.items()]
    schema = pa.schema([*keys, (PLACE, pa.int32()), (BELOW, pa.int64())])

    def read(file: _KeyDeletes) -> list[pa.RecordBatch]:
        numbers = pa.scalar(file.place, pa.int32()), pa.scalar(file.below, pa.int64())
        with naming_delete_file(io, file.path):
            return [
                pa.RecordBatch.from_arrays(
                    [*batch.columns, *(pa.repeat(number, len(batch.columns[0])) for number in numbers)], schema=schema
                )
                for batch in ColumnReader(io, file.path, types).batches()
            ]

    found = pa.Table.from_batches([batch for batches in in_parallel(read, files) for batch in batches], schema)
    grouped = found.group_by(schema.names[:-1]).aggregate([(BELOW, "max")])
    shown = [_shown(grouped.column(str(number)).combine_chunks(), kind) for number, kind in types.items()]
    return pa.table([*shown, grouped.column(PLACE), grouped.column(f"{BELOW}_max")], names=schema.names)


def _shown(values: pa.Array, kind: IcebergType) -> pa.Array:
    """Return canonical values of a key column (`key_reader.canonical`) in the type that Spark takes."""
    match kind:
        case DateType():
            return values.cast(pa.int32()).view(pa.date32())
        case TimestampType() | TimestamptzType():
            return values.view(pa.timestamp("us", "UTC" if isinstance(kind, TimestamptzType) else None))
        case IntegerType() | StringType() | DecimalType():
            return values.cast(arrow_type(kind))
    return values
