"""A Python sink that drops its rows: what Spark needs to bring rows to any Python sink."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType


def register_noop(spark: SparkSession) -> None:
    """Make `format("python-noop")` known to the session."""
    # By value: Spark's Python workers do not find this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(NoopSink)


class NoopSink(DataSource):
    """A sink that takes all rows and keeps none."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "python-noop"

    def writer(self, schema: StructType, overwrite: bool) -> NoopWriter:  # noqa: ARG002, FBT001  # Spark's signature
        """Return the writer."""
        return NoopWriter()


class NoopWriter(DataSourceArrowWriter):
    """Drains its Arrow batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take all batches of a task."""
        for _ in iterator:
            pass
        return WriterCommitMessage()
