"""A scan as a DataFrame over Spark's own Parquet reader: no row passes through Python.

The driver names the files, and Spark reads, splits, prunes and filters them as any Parquet files. Rows that are deleted
by position are left out by a bit for each row, which tasks look up by the row's position in its file; rows that are
deleted by key, by an anti-join with the equality delete files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.types import NestedField, PrimitiveType
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from iceberg_ds.deletes.index import is_global
from iceberg_ds.deletes.work import KeyFile
from iceberg_ds.errors import DataFileError
from iceberg_ds.io.files import is_local
from iceberg_ds.reading.deleted_keys import BELOW, MOST_KEYS, PLACE, KeyDeletes, deleted_keys
from iceberg_ds.reading.deleted_rows import as_words, deleted_positions
from iceberg_ds.reading.extras import EXTRAS, PARTITION, POS, extra_field, extra_value
from iceberg_ds.reading.file_marks import MARK, Portion, constant, portions
from iceberg_ds.reading.partition_column import partition_type, partitions_of
from iceberg_ds.reading.scan import ScanPlan
from iceberg_ds.reading.scan_task import ScanTask, rounds
from iceberg_ds.reading.spark_columns import ReadColumn, as_text, read_columns
from iceberg_ds.spark.filesystems import count_of_files, listing_files
from iceberg_ds.table.lineage import LINEAGE, ROW_ID, is_lineage
from iceberg_ds.table.names import quoted
from iceberg_ds.table.partitioning import place_of
from iceberg_ds.table.spark_types import spark_struct, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# How Spark finds columns by field id; it asks when a query runs, so these stay in the session.
_SETTINGS = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",  # a file without ids is an error, and not nulls
}
_OPTIONS = {
    "ignoreMissingFiles": "false",  # whatever the session says: a missing file is an error
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",  # Iceberg's dates are of the proleptic Gregorian calendar
    "int96RebaseMode": "CORRECTED",
}
_BROADCAST_BYTES = 64 * 1024 * 1024
_BITS_IN_WORD, _WORD_SHIFT = 63, 6
_UUID = r"^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5"
_EVERYWHERE = -1  # the place of deletes that apply in all partitions
# A column of our own in the course of a read.
_ROW = "__row_index"
_PLAIN = re.compile(r"\w+", re.ASCII)
_S3 = re.compile(r"^s3n?://")
_GONE = "If its snapshot has expired meanwhile, read the table again; else iceberg_ds.verify names what is missing."


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkScan:
    """A scan that Spark carries out.

    Attributes:
        spark: The session.
        io: Opens the table's storage on the driver, to read delete files.
        plan: What is read.
        fields: The columns of the result, in order.
        extras: Further columns of the result: `_file`, `_pos`, `_spec_id`, `_partition` and those of the lineage.
    """

    spark: SparkSession
    io: FileIO
    plan: ScanPlan
    fields: Sequence[NestedField]
    extras: Sequence[str] = ()

    def frame(self) -> DataFrame:
        """Return the rows.

        Raises:
            DataFileError: A data file is missing, or a delete file is damaged.
        """
        for key, value in _SETTINGS.items():
            self.spark.conf.set(key, value)
        frames = [frame for tasks in rounds(self.plan.tasks) for frame in self._frames(tasks)]
        return reduce(_both, frames) if frames else self._nothing()

    def _frames(self, tasks: Sequence[ScanTask]) -> Iterator[DataFrame]:
        """Yield the rows of different files."""
        plain, special = list[ScanTask](), list[ScanTask]()
        for task in tasks:
            (special if task.has_deletes or task.absent or self.extras else plain).append(task)
        if plain:
            yield self._plain(plain)
        positions = deleted_positions(self.io, special)
        hiding = deleted_positions(self.io, [task.hidden_by for task in special if task.hidden_by is not None])
        for some in _alike(special, self._lineage):
            for portion in portions(some):
                yield self._portion(portion, positions, hiding)

    def _nothing(self) -> DataFrame:
        partition = partition_type(self.plan.metadata)
        fields = spark_struct([*self.fields, *(extra_field(name, partition) for name in self.extras)])
        return self.spark.createDataFrame([], fields)

    def _plain(self, tasks: Sequence[ScanTask]) -> DataFrame:
        columns = self._columns(())
        return _shown(self.read_files([task.data_file for task in tasks], columns), columns)

    def _portion(
        self, portion: Portion[ScanTask], positions: Mapping[str, Sequence[int]], hiding: Mapping[str, Sequence[int]]
    ) -> DataFrame:
        """Return the visible rows of a portion of the files; of files that are hidden by further deletes, these alone.

        Args:
            portion: The files, all or none of them hidden by further deletes.
            positions: The positions of the deleted rows, by path.
            hiding: Those of the rows that the further deletes hide, by path.
        """
        further = [task.hidden_by for task in portion.files if task.hidden_by is not None]
        columns = self._columns(key for task in (*portion.files, *further) for key in task.work.keys)
        rows = self.read_files([task.data_file for task in portion.files], columns)
        rows = rows.selectExpr("*", portion.mark_text(), f"_metadata.row_index AS {_ROW}")
        if any(task.absent for task in portion.files):
            rows = rows.select(*(_filled(self.spark, column, portion) for column in columns), MARK, _ROW)
        if any(positions.get(task.work.path) for task in portion.files):
            rows = rows.where(_is_visible(self.spark, portion, positions))
        for deleting in self._deleting(portion, columns):
            rows = deleting.kept(rows)
        if further:
            rows = self._hidden(rows, portion.of(further), columns, hiding)
        if not self.extras:
            return _shown(rows, columns[: len(self.fields)])
        shown = [_as_shown(column) for column in columns[: len(self.fields)]]
        own = {column.field.name: F.col(quoted(column.name)) for column in columns if is_lineage(column.field)}
        return rows.select(
            *shown,
            *(
                _inherited(own[name], name, portion) if name in own else self._extra(name, portion)
                for name in self.extras
            ),
        )

    def _extra(self, name: str, portion: Portion[ScanTask]) -> Column:
        """Return a metadata column that is not of the lineage."""
        if name != PARTITION:
            return _extra(self.spark, name, portion)
        files = [task.data_file for task in portion.files]
        values = partitions_of(files, partition_type(self.plan.metadata), self.plan.specs)
        return portion.value(self.spark, values).alias(name)

    def _deleting(self, portion: Portion[ScanTask], columns: Sequence[ReadColumn]) -> Iterator[_Deleting]:
        """Yield what deletes rows of a portion by key, one for each combination of columns."""
        by_columns: dict[tuple[int, ...], dict[str, KeyFile]] = defaultdict(dict)
        for task in portion.files:
            for key in task.work.keys:
                by_columns[key.field_ids][key.path] = key
        for field_ids, keys in by_columns.items():
            named = [column for column in columns if column.field.field_id in field_ids]
            yield _Deleting(self, portion, named, [*keys.values()])

    def _hidden(
        self,
        rows: DataFrame,
        portion: Portion[ScanTask],
        columns: Sequence[ReadColumn],
        positions: Mapping[str, Sequence[int]],
    ) -> DataFrame:
        """Return those rows that a delete of the portion's files hides, each once, however many deletes hide it."""
        found = []
        if any(positions.get(task.work.path) for task in portion.files):
            is_visible = _is_visible(self.spark, portion, positions)
            found.append(rows.where(~is_visible))
            rows = rows.where(is_visible)
        for deleting in self._deleting(portion, columns):
            found.append(deleting.taken(rows))
            rows = deleting.kept(rows)
        return reduce(_both, found) if found else rows.limit(0)

    def _columns(self, keys: Iterable[KeyFile]) -> list[ReadColumn]:
        """Return the columns to read: those of the result, then those that rows are deleted by, and of the lineage."""
        fields = {field.field_id: field for field in self.fields}
        for number in sorted({number for key in keys for number in key.field_ids} - fields.keys()):
            fields[number] = column_of(self.plan, number)
        lineage = {field.field_id: field for field in self._lineage}  # under names that no column of the table has
        unfiltered = self.plan.early_times | lineage.keys()
        return read_columns([*fields.values(), *lineage.values()], self.plan.metadata.schemas, unfiltered)

    @property
    def _lineage(self) -> list[NestedField]:
        """The columns of the lineage that are asked for."""
        return [LINEAGE[name] for name in self.extras if name in LINEAGE]

    def read_files(self, files: Sequence[DataFile], columns: Iterable[ReadColumn]) -> DataFrame:
        """Return the rows of files as they are; columns that a file lacks are null.

        Raises:
            DataFileError: A file is missing.
        """
        schema = StructType([column.struct_field() for column in columns])
        wanted = [hadoop_path(file.file_path) for file in files]
        try:
            with listing_files(self.spark, len(wanted), are_local=all(map(is_local, wanted))):
                rows = self.spark.read.options(**_OPTIONS).schema(schema).parquet(*wanted)
                missing = len(wanted) - count_of_files(rows)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise DataFileError(f"Cannot read {self.plan.name}: {str(error).splitlines()[0]} {_GONE}") from error
        if missing:  # Spark passes over a file that goes away while it lists them
            raise DataFileError(f"Cannot read {self.plan.name}: {missing} of {len(wanted)} files are missing. {_GONE}")
        return rows


def column_of(plan: ScanPlan, number: int) -> NestedField:
    """Return a column by its field id; one that the table has dropped as it last was.

    Raises:
        LookupError: It is no column, but a field of one.
    """
    for schema in (plan.schema, *reversed(plan.metadata.schemas)):
        for field in schema.fields:
            if field.field_id == number:
                return field
    raise LookupError(number)


def hadoop_path(path: str) -> str:
    """Return a path as Spark's filesystems take it: those of Hadoop know S3 as `s3a`."""
    return _S3.sub("s3a://", path)


class _Deleting:
    """Leaves out the rows of some data files that equality delete files of the same columns delete.

    Args:
        scan: The scan.
        portion: The data files.
        columns: The columns that rows are deleted by.
        keys: The delete files.
    """

    def __init__(
        self, scan: SparkScan, portion: Portion[ScanTask], columns: Sequence[ReadColumn], keys: Sequence[KeyFile]
    ) -> None:
        self._scan = scan
        self._portion = portion
        self._columns = columns
        self._keys = keys
        numbered = enumerate(dict.fromkeys(place_of(task.data_file) for task in portion.files))
        self._places = {place: number for number, place in numbered}

    def kept(self, rows: DataFrame) -> DataFrame:
        """Return the rows that no key deletes."""
        return self._joined(rows, "left_anti")

    def taken(self, rows: DataFrame) -> DataFrame:
        """Return the rows that a key deletes, each once."""
        return self._joined(rows, "left_semi")

    def _joined(self, rows: DataFrame, how: str) -> DataFrame:
        keys = self._keys
        files = [self._scan.plan.key_files[key.path] for key in keys]
        deletes = self._deletes(keys, files)
        if sum(file.file_size_in_bytes for file in files) <= _BROADCAST_BYTES:
            deletes = F.broadcast(deletes)
        matches = [deletes[BELOW] > self._portion.number(lambda task: task.work.sequence_number)]
        if not all(map(self._is_global, files)):
            place = self._portion.number(lambda task: self._places[place_of(task.data_file)])
            matches.append((deletes[PLACE] == _EVERYWHERE) | (deletes[PLACE] == place))
        for column in self._columns:
            # Between backticks a session may take a name for a pattern.
            name = column.name if _PLAIN.fullmatch(column.name) else quoted(column.name)
            mine, deleted = rows[name], deletes[_key_name(column)]
            matches.append(mine == deleted if column.field.required else mine.eqNullSafe(deleted))
        return rows.join(deletes, reduce(and_, matches), how)

    def _deletes(self, keys: Sequence[KeyFile], files: Sequence[DataFile]) -> DataFrame:
        """Return the deleted keys, each once a partition, with the sequence number below which rows are deleted."""
        if sum(file.record_count for file in files) <= MOST_KEYS:
            return self._read_here(keys, files)
        columns = [ReadColumn(field=column.field, name=_key_name(column)) for column in self._columns]
        names = [column.name for column in columns]
        below = {key.path: key.applies_below for key in keys}
        parts = [
            self._scan.read_files(portion.files, columns)
            .selectExpr("*", portion.mark_text())
            .select(
                *names,
                portion.number(lambda file: below[file.file_path]).alias(BELOW),
                portion.number(self._place).alias(PLACE),
            )
            for portion in portions(files)
        ]
        deletes = reduce(_both, parts)
        return deletes if len(files) == 1 else deletes.groupBy(*names, PLACE).agg(F.max(BELOW).alias(BELOW))

    def _read_here(self, keys: Sequence[KeyFile], files: Sequence[DataFile]) -> DataFrame:
        wanted = [
            KeyDeletes(path=key.path, below=key.applies_below, place=self._place(file))
            for key, file in zip(keys, files, strict=True)
        ]
        types = {column.field.field_id: column.field.field_type for column in self._columns}
        found = deleted_keys(self._scan.io, types, wanted)
        kinds = [spark_type(kind, with_field_ids=True) for kind in types.values()]
        fields = [*zip(map(_key_name, self._columns), kinds, strict=True), (PLACE, IntegerType()), (BELOW, LongType())]
        schema = StructType([StructField(name, kind) for name, kind in fields])
        return self._scan.spark.createDataFrame(found.rename_columns(schema.names), schema)

    def _place(self, file: DataFile) -> int:
        return _EVERYWHERE if self._is_global(file) else self._places.get(place_of(file), len(self._places))

    def _is_global(self, file: DataFile) -> bool:
        return is_global(self._scan.plan.specs[file.spec_id])


def _key_name(column: ReadColumn) -> str:
    return f"__key_{column.field.field_id}"


def _both(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other)


def _alike(tasks: Sequence[ScanTask], lineage: Sequence[NestedField]) -> Iterable[Sequence[ScanTask]]:
    """Return the files in groups whose rows are deleted by the same columns, and that lack the same columns.

    Files of which some are deleted by key are of one snapshot. If the lineage is asked for, all rows of a group have
    ids, or none has.
    """
    groups: dict[tuple[object, ...], list[ScanTask]] = defaultdict(list)
    for task in tasks:
        own, further = _deleted_by(task), None if task.hidden_by is None else _deleted_by(task.hidden_by)
        state = task.state if own or further else None
        have_ids = bool(lineage) and task.lineage is not None
        groups[own, further, state, frozenset(task.absent), have_ids].append(task)
    return groups.values()


def _deleted_by(task: ScanTask) -> frozenset[tuple[int, ...]]:
    return frozenset(key.field_ids for key in task.work.keys)


def _is_visible(spark: SparkSession, portion: Portion[ScanTask], positions: Mapping[str, Sequence[int]]) -> Column:
    """Return whether the bit of a row is not set."""
    words, first = as_words(portion.files, positions)
    first_word = portion.number_text(lambda task: first[task.work.path])
    at = F.expr(f"{first_word} + int(shiftright({_ROW}, {_WORD_SHIFT}))")
    bit = F.bit_get(F.get(constant(spark, words), at), F.expr(f"int({_ROW} & {_BITS_IN_WORD})"))
    return F.coalesce(bit, F.lit(0)) == 0


def _shown(rows: DataFrame, columns: Sequence[ReadColumn]) -> DataFrame:
    """Return the columns of the result as they are in the files."""
    texts = [text for column in columns if (text := _text_of(column)) is not None]
    if len(texts) == len(columns):  # each Column takes several calls of the JVM
        return rows.selectExpr(*texts)
    return rows.select(*map(_as_shown, columns))


def _text_of(column: ReadColumn) -> str | None:
    """Return a column of the result as SQL, without the id of its field; None if it is not shown as it is read."""
    is_shown = column.has_own_names or isinstance(column.field.field_type, PrimitiveType)
    if column.is_uuid or column.field.doc is not None or not is_shown:
        return None
    # What else is in a name a session may take for a pattern or for a variable, even between backticks.
    if not (_PLAIN.fullmatch(column.name) and _PLAIN.fullmatch(column.field.name)):
        return None
    # Which Spark's optimiser takes away, so that filters and the columns of a query reach the files.
    return f"coalesce({quoted(column.name)}) AS {quoted(column.field.name)}"


def _as_shown(column: ReadColumn) -> Column:
    """Return a column of the result as it is in the files."""
    if (text := _text_of(column)) is not None:
        return F.expr(text)
    return _in_type(F.col(quoted(column.name)), column).alias(column.field.name, metadata=_comment(column))


def _filled(spark: SparkSession, column: ReadColumn, portion: Portion[ScanTask]) -> Column:
    """Return a column as it is read; files that lack it have the value of their partition."""
    number = column.field.field_id
    read = F.col(quoted(column.name))
    if not any(number in task.absent for task in portion.files):
        return read
    kind = spark_type(column.field.field_type, with_field_ids=True)
    texts = portion.text(spark, lambda task: as_text(task.absent.get(number), column.field.field_type))
    value = F.unhex(texts) if isinstance(kind, BinaryType) else texts.cast(kind)
    # Spark has put an initial default where a file lacks the column; all files of a portion have values of partitions.
    return (value if column.field.initial_default is not None else F.coalesce(read, value)).alias(column.name)


def _in_type(read: Column, column: ReadColumn) -> Column:
    if column.is_uuid:
        return F.lower(F.regexp_replace(F.hex(read), *_UUID))
    kind = column.field.field_type
    # A cast from struct to struct goes by position, and gives the fields their names.
    return read if column.has_own_names or isinstance(kind, PrimitiveType) else read.cast(spark_type(kind))


def _comment(column: ReadColumn) -> dict[str, str]:
    return {} if column.field.doc is None else {"comment": column.field.doc}


def _inherited(own: Column, name: str, portion: Portion[ScanTask]) -> Column:
    """Return a column of the lineage.

    Args:
        own: What the files have in it; null where a row inherits, and where a file lacks it.
        name: Name of the column.
        portion: The files: the rows of all of them have ids, or of none.
    """

    def number(task: ScanTask) -> int:
        lineage = task.lineage
        assert lineage is not None  # noqa: S101  # the rows of all files have ids
        return lineage.first_row_id if name == ROW_ID.name else lineage.sequence_number

    if portion.files[0].lineage is None:
        return F.lit(None).cast(LongType()).alias(name)
    first = portion.number(number)
    inherited = first + F.col(_ROW) if name == ROW_ID.name else first
    return F.coalesce(own, inherited.cast(LongType())).alias(name)


def _extra(spark: SparkSession, name: str, portion: Portion[ScanTask]) -> Column:
    """Return a metadata column of Iceberg."""
    kind = spark_type(EXTRAS[name].field_type)
    if name == POS:
        value = F.col(_ROW)
    elif isinstance(kind, StringType):
        value = portion.text(spark, lambda task: str(extra_value(name, task)))
    else:
        number = portion.number(lambda task: int(extra_value(name, task)))
        value = F.timestamp_micros(number) if isinstance(kind, TimestampType) else number.cast(kind)
    return value.alias(name)
