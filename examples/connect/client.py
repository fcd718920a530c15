"""A Spark Connect client that writes through the server. It needs `pyspark[connect]`, and nothing of iceberg-ds."""

from __future__ import annotations

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()  # of the address in SPARK_REMOTE; waits for a server that is starting

readings = spark.range(100).selectExpr("id", "concat('sensor ', id % 5) AS sensor", "20 + id % 7 * 0.5D AS celsius")
for _ in range(2):  # the second one is what a client does that has lost the first one's answer
    (
        readings.write.format("icebergsink")
        .mode("append")
        .option("catalog", "lake")
        .option("txn-app-id", "readings")
        .option("txn-version", 20261121)
        .save("home.readings")
    )
print("written by a client of Spark", spark.version)
