"""An asset with a partition for each day. Materialising a partition replaces the rows of its day."""

import dagster as dg
from pyspark.sql import SparkSession


def write_takings(day: str) -> None:
    """Replace the rows of a day, such as `2026-11-20`, in `shop.takings`."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    rows = spark.range(1_000).selectExpr("id", f"DATE'{day}' AS day", "id % 97 * 0.5D AS price")
    (
        rows.write.format("icebergsink")
        .mode("overwrite")
        .option("catalog", "lake")
        .option("partition-by", "day")
        .option("replace-where", f"day = '{day}'")
        .save("shop.takings")
    )


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition(start_date="2026-11-20"),
    retry_policy=dg.RetryPolicy(max_retries=3, delay=1),
)
def takings(context: dg.AssetExecutionContext) -> None:
    """Write the takings of one day."""
    write_takings(context.partition_key)


defs = dg.Definitions(assets=[takings])
