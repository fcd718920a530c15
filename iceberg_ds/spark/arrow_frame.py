"""Arrow rows of the driver as a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def arrow_frame(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return rows as a DataFrame.

    Spark 4.3 takes an empty chunk of a column for the end of the rows, or for that of those before it, so each column
    is handed over as one.

    Args:
        spark: The session.
        rows: The rows.
        schema: Names and types in Spark; None for those of Arrow.
    """
    return spark.createDataFrame(rows.combine_chunks(), schema)
