"""Only has to type-check: the public surface as users call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import iceberg_ds
from pyspark_icebergsink import DefaultSource

registers: Callable[[SparkSession], None] = iceberg_ds.register
version: str = iceberg_ds.__version__
exported: list[str] = iceberg_ds.__all__

source: type[DataSource] = iceberg_ds.IcebergSink
found_by_name: type[iceberg_ds.IcebergSink] = DefaultSource
format_name: str = iceberg_ds.IcebergSink.name()


def plan_batch(options: dict[str, str], schema: StructType) -> DataSourceArrowWriter:
    """Make the writer of a batch, as Spark does."""
    return iceberg_ds.IcebergSink(options).writer(schema, overwrite=False)


def plan_stream(options: dict[str, str], schema: StructType) -> DataSourceStreamWriter:
    """Make the writer of a micro-batch, as Spark does."""
    return iceberg_ds.IcebergSink(options).streamWriter(schema, overwrite=False)


def commit_stream(options: dict[str, str], schema: StructType, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit a micro-batch, as Spark does."""
    writer = iceberg_ds.IcebergSink(options).streamWriter(schema, overwrite=False)
    writer.commit(messages, 0)
    writer.abort(messages, 0)


def check_set_up(spark: SparkSession | None, options: dict[str, str], schema: StructType) -> list[str]:
    """Try all that a write needs."""
    result = iceberg_ds.check(spark, options, schema=schema)
    return [] if result.ok else [f"{check.name}: {check.detail} {check.next_step}" for check in result.failures]


def distribute_by_key(df: DataFrame) -> DataFrame:
    """Bring rows of one key to one task."""
    return iceberg_ds.distribute(df, keys=["region", "id"], num_partitions=8)


def convert(spark: SparkSession | None, table: str, options: dict[str, str]) -> int:
    """Let every reader read a table, and count the rows that were hidden by keys."""
    result = iceberg_ds.convert_deletes(table, spark, encoding="copy-on-write", branch="main", options=options)
    return 0 if result.snapshot_id is None else result.rows


def verify_table(table: str, options: dict[str, str]) -> list[str]:
    """Prove a table whole, and name what was deleted."""
    result = iceberg_ds.verify(table, options=options, deep=True, older_than="5d", delete_orphans=True)
    if not result.ok:
        return [f"{check.name}: {check.detail} {check.next_step}" for check in result.failures]
    return [orphan.path for orphan in result.orphans if orphan.deleted]


root: type[Exception] = iceberg_ds.IcebergSinkError
errors: list[type[iceberg_ds.IcebergSinkError]] = [
    iceberg_ds.CatalogError,
    iceberg_ds.CommitConflictError,
    iceberg_ds.CommitMessageError,
    iceberg_ds.CommitStateUnknownError,
    iceberg_ds.DataFileError,
    iceberg_ds.OptionError,
    iceberg_ds.SchemaMismatchError,
    iceberg_ds.TableNotFoundError,
    iceberg_ds.UnsupportedTableError,
]
values: list[type[ValueError]] = [
    iceberg_ds.OptionError,
    iceberg_ds.SchemaMismatchError,
    iceberg_ds.UnsupportedTableError,
]
look_ups: type[LookupError] = iceberg_ds.TableNotFoundError
connections: type[ConnectionError] = iceberg_ds.CatalogError
storage: type[OSError] = iceberg_ds.DataFileError
