"""The rows of data files as Spark's own Parquet reader reads them, by the names and types of the table.

The driver names the files, and Spark reads, splits, prunes and filters them as any Parquet files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.types import NestedField, PrimitiveType
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.types import BinaryType, StructType

from iceberg_ds.deletes.work import KeyFile
from iceberg_ds.errors import DataFileError
from iceberg_ds.io.local_paths import is_local
from iceberg_ds.reading.file_errors import GONE
from iceberg_ds.reading.file_marks import MARK, Portion
from iceberg_ds.reading.scan import ScanPlan
from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.reading.spark_columns import ReadColumn, as_text, read_columns
from iceberg_ds.spark.filesystems import count_of_files, listing_files
from iceberg_ds.table.names import quoted
from iceberg_ds.table.spark_types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Name of the column with the position of a row in its file, from 0.
ROW = "__row_index"
# How Spark finds columns by field id; it asks when a query runs, so these stay in the session.
_SETTINGS = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "false",  # a file without ids is an error, and not nulls
}
_OPTIONS = {
    "ignoreMissingFiles": "false",  # even if the session says otherwise: a missing file is an error
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",  # Iceberg's dates are of the proleptic Gregorian calendar
    "int96RebaseMode": "CORRECTED",
}
_UUID = r"^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5"
_PLAIN = re.compile(r"\w+", re.ASCII)
_S3 = re.compile(r"^s3n?://")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFiles:
    """Reads files of a table.

    Attributes:
        spark: The session.
        io: Opens the table's storage on the driver, to read delete files.
        plan: What is read.
    """

    spark: SparkSession
    io: FileIO
    plan: ScanPlan

    def let_spark_read(self) -> None:
        """Set in the session what Spark asks for when a query runs."""
        for key, value in _SETTINGS.items():
            self.spark.conf.set(key, value)

    def columns(
        self, fields: Sequence[NestedField], keys: Iterable[KeyFile], lineage: Sequence[NestedField] = ()
    ) -> list[ReadColumn]:
        """Return the columns to read: those of a result, then those that rows are deleted by, and of the lineage."""
        found = {field.field_id: field for field in fields}
        for number in sorted({number for key in keys for number in key.field_ids} - found.keys()):
            found[number] = column_of(self.plan, number)
        own = {field.field_id: field for field in lineage}  # under names that no column of the table has
        unfiltered = self.plan.early_times | own.keys()
        return read_columns([*found.values(), *own.values()], self.plan.metadata.schemas, unfiltered)

    def read(self, files: Sequence[DataFile], columns: Iterable[ReadColumn]) -> DataFrame:
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
            raise DataFileError(f"Cannot read {self.plan.name}: {str(error).splitlines()[0]} {GONE}") from error
        if missing:  # Spark passes over a file that goes away while it lists them
            raise DataFileError(f"Cannot read {self.plan.name}: {missing} of {len(wanted)} files are missing. {GONE}")
        return rows

    def marked(self, portion: Portion[ScanTask], columns: Sequence[ReadColumn]) -> DataFrame:
        """Return all rows of a portion of the data files, with `MARK` and `ROW`; values of partitions are filled in.

        Raises:
            DataFileError: A file is missing.
        """
        rows = self.read([task.data_file for task in portion.files], columns)
        rows = rows.selectExpr("*", portion.mark_text(), f"_metadata.row_index AS {ROW}")
        if any(task.absent for task in portion.files):
            rows = rows.select(*(_filled(self.spark, column, portion) for column in columns), MARK, ROW)
        return rows


def alike(tasks: Iterable[ScanTask], lineage: Sequence[NestedField] = ()) -> Iterable[Sequence[ScanTask]]:
    """Return data files in groups whose rows are deleted by the same columns, and that lack the same columns.

    If the lineage is asked for, all rows of a group have ids, or none has.
    """
    groups: dict[tuple[object, ...], list[ScanTask]] = defaultdict(list)
    for task in tasks:
        deleted_by = frozenset(key.field_ids for key in task.work.keys)
        groups[deleted_by, frozenset(task.absent), bool(lineage) and task.lineage is not None].append(task)
    return groups.values()


def together(frames: Iterable[DataFrame]) -> DataFrame:
    """Return the rows of some DataFrames, one at least, that have the same columns."""
    return reduce(lambda one, other: one.unionByName(other), frames)


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


def shown(rows: DataFrame, columns: Sequence[ReadColumn]) -> DataFrame:
    """Return the columns of the result as they are in the files."""
    texts = [text for column in columns if (text := _text_of(column)) is not None]
    if len(texts) == len(columns):  # each Column takes several calls of the JVM
        return rows.selectExpr(*texts)
    return rows.select(*map(as_shown, columns))


def as_shown(column: ReadColumn) -> Column:
    """Return a column of the result as it is in the files."""
    if (text := _text_of(column)) is not None:
        return F.expr(text)
    return _in_type(F.col(quoted(column.name)), column).alias(column.field.name, metadata=_comment(column))


def _text_of(column: ReadColumn) -> str | None:
    """Return a column of the result as SQL, without the id of its field; None if it is not shown as it is read."""
    is_shown = column.has_own_names or isinstance(column.field.field_type, PrimitiveType)
    if column.is_uuid or column.field.doc is not None or not is_shown:
        return None
    # What else is in a name a session may take for a pattern or for a variable, even between backticks.
    if not (_PLAIN.fullmatch(column.name) and _PLAIN.fullmatch(column.field.name)):
        return None
    if column.is_void:
        return f"NULL AS {quoted(column.field.name)}"
    # Which Spark's optimiser takes away, so that filters and the columns of a query reach the files.
    return f"coalesce({quoted(column.name)}) AS {quoted(column.field.name)}"


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
    if column.is_void:
        return F.lit(None)
    kind = column.field.field_type
    # A cast from struct to struct goes by position, and gives the fields their names.
    return read if column.has_own_names or isinstance(kind, PrimitiveType) else read.cast(spark_type(kind))


def _comment(column: ReadColumn) -> dict[str, str]:
    return {} if column.field.doc is None else {"comment": column.field.doc}
