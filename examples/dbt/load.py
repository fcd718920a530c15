"""Write the orders of a day with the sink: what dbt then reads. It needs no jar."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

day = sys.argv[1]  # such as 20261121
spark = SparkSession.builder.master("local[2]").getOrCreate()
orders = spark.range(1_000).selectExpr(
    f"{day} * 1000L + id AS id", f"to_date('{day}', 'yyyyMMdd') AS day", "id % 97 * 0.5D AS price"
)
(
    orders.write.format("icebergsink")
    .mode("append")
    .option("catalog", "lake")
    .option("txn-app-id", "load-orders")
    .option("txn-version", day)
    .save("shop.orders")
)
