"""Makes Python data sources known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource


def make_known(spark: SparkSession, source: type[DataSource]) -> None:
    """Let `format()` of a session find a data source by its name; again changes nothing."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 refuses a name that it has already found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
