"""Keep an Iceberg table equal to a table of PostgreSQL, from the changes that Debezium sends to a Kafka topic.

    spark-submit --packages PACKAGES stream.py --broker HOST:PORT --topic TOPIC --table shop.orders --checkpoint FOLDER

The README beside this file says what PACKAGES are.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

import iceberg_ds

# Options of your catalog. Without any, tables go into ./iceberg-warehouse.
CATALOG: dict[str, str] = {}
ROW = "id BIGINT, customer STRING, amount DECIMAL(10, 2), paid BOOLEAN, note STRING, at TIMESTAMP"
# Debezium sends all changes of one key to one partition, in their order, so the offset says which is newer.
BY_KEY = {"keys": "id", "operation-column": "op", "sequence-by": "offset"}


def read_changes(topic: DataFrame) -> DataFrame:
    """Return the row of each change with its operation and offset: the new row, or for a delete the old one."""
    change = from_json(
        col("value").cast("string"),
        f"before STRUCT<{ROW}>, after STRUCT<{ROW}>, op STRING",
        {"mode": "FAILFAST"},  # a message that is no change stops the stream
    )
    return (
        topic.where("value IS NOT NULL")  # else it is a tombstone, which follows a delete
        .select(change.alias("change"), "offset")
        .selectExpr("coalesce(change.after, change.before) AS row", "change.op", "offset")
        .select("row.*", "op", "offset")
    )


def main() -> None:
    """Write until the process is stopped, or until all that the topic has now is written."""
    arguments = parse_arguments()
    spark = SparkSession.builder.appName("debezium-to-iceberg").getOrCreate()
    iceberg_ds.register(spark)
    topic = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.broker)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")  # of the first run; later runs go on where the checkpoint says
        .load()
    )

    trigger = {"availableNow": True} if arguments.available_now else {"processingTime": arguments.every}
    stream = read_changes(topic).writeStream.option("checkpointLocation", arguments.checkpoint).trigger(**trigger)
    if arguments.equality_deletes:
        query = stream.format("icebergsink").options(**CATALOG, **BY_KEY).start(arguments.table)
    else:
        query = stream.foreachBatch(iceberg_ds.upsert_into(arguments.table, options={**CATALOG, **BY_KEY})).start()
    query.awaitTermination()


def parse_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, help="host:port, or several with commas between them")
    parser.add_argument("--topic", required=True, help="such as shop.public.orders")
    parser.add_argument("--table", required=True, help="such as shop.orders")
    parser.add_argument("--checkpoint", required=True, help="folder of the checkpoint, kept from run to run")
    parser.add_argument(
        "--equality-deletes", action="store_true", help="write faster, for Spark, Flink and Trino alone"
    )
    parser.add_argument("--every", default="10 seconds", help="time between commits (default: %(default)s)")
    parser.add_argument("--available-now", action="store_true", help="stop when all that the topic has is written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
