"""Load the orders of one day, each night. A run that is repeated, for whatever reason, changes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow.sdk import dag, task


@dag(schedule="@daily", start_date=datetime(2026, 11, 20, tzinfo=timezone.utc), catchup=True, max_active_runs=1)
def nightly_load() -> None:
    """Write one numbered batch a day into `shop.orders`."""

    # A number below the last one is skipped, so no day may overtake the day before it: `depends_on_past`.
    @task(retries=3, retry_delay=timedelta(seconds=5), depends_on_past=True)
    def load(day: str) -> None:
        """Write the orders of a day, such as `20261121`."""
        from pyspark.sql import SparkSession  # noqa: PLC0415  # the scheduler reads this file without starting Spark

        spark = SparkSession.builder.master("local[2]").getOrCreate()
        orders = spark.range(1_000).selectExpr("id", f"to_date('{day}', 'yyyyMMdd') AS day", "id % 97 * 0.5D AS price")
        (
            orders.write.format("icebergsink")
            .mode("append")
            .option("catalog", "lake")
            .option("txn-app-id", "nightly-load")
            .option("txn-version", day)
            .save("shop.orders")
        )
        spark.stop()

    load(day="{{ ds_nodash }}")


nightly_load()
