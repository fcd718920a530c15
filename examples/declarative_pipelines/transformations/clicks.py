"""A flow that appends the clicks of new files to the Iceberg table `web.clicks`."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

# Spark finds the format by itself wherever the package is installed.
dp.create_sink("clicks", format="icebergsink", options={"catalog": "lake", "table": "web.clicks"})


@dp.append_flow(target="clicks")
def new_clicks() -> DataFrame:
    """Return the clicks of all files that have come since the last run."""
    return spark.readStream.schema("id BIGINT, page STRING, at TIMESTAMP").json("incoming")
