"""`register(spark)`: makes the sink known to a session, and sets what makes it fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from iceberg_ds.datasource import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_BYTES_PER_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
# Exactly this value makes Spark skip a size check per row that halves the throughput to Python.
_UNCHECKED = "2147483647"


def register(spark: SparkSession) -> None:
    """Make `format("icebergsink")` known to `spark`, and tune its Arrow batches.

    Sets `spark.sql.execution.arrow.maxBytesPerBatch` to 2147483647, unless it is set already: batches are
    then bounded by `spark.sql.execution.arrow.maxRecordsPerBatch` alone, which rows of more than about
    100 kB should lower.
    """
    try:
        spark.dataSource.register(IcebergSink)
    except AnalysisException as error:
        # Spark 4.0 refuses a name that it has already found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    if spark.conf.get(_MAX_BYTES_PER_BATCH, None) is None:
        spark.conf.set(_MAX_BYTES_PER_BATCH, _UNCHECKED)
