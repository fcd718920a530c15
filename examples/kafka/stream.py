"""Write the messages of a Kafka topic into an Iceberg table, and those that cannot be read into a second one.

    spark-submit --packages PACKAGES stream.py --broker HOST:PORT --topic orders --table shop.orders --checkpoint FOLDER

The README beside this file says what PACKAGES are. Each message is in one of the two tables, once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, expr, from_json, try_validate_utf8, when

import iceberg_ds

# Options of your catalog. Without any, tables go into ./iceberg-warehouse.
CATALOG: dict[str, str] = {}
COLUMNS = "id BIGINT, customer STRING, amount DECIMAL(10, 2), at TIMESTAMP"


def read_json(value: Column) -> Column:
    """Return the order in a message, or null if the message is no JSON object with values of these types."""
    text = try_validate_utf8(value.cast("string"))
    order = from_json(text, f"{COLUMNS}, unread STRING", {"columnNameOfCorruptRecord": "unread"})
    return when(order.unread.isNull(), order.dropFields("unread"))


def read_avro(value: Column, schema: str) -> Column:
    """Return the order in a message of the schema; its fields are null if the message cannot be decoded."""
    return from_avro(value, schema, {"mode": "PERMISSIVE"})


def cut_header(schema_id: int) -> Column:
    """Return what follows Confluent's header in the value, or null if the header names another schema.

    The header has 5 bytes: a zero, and the id that the schema registry gave to the schema, most significant byte first.
    """
    return expr(f"if(substring(value, 1, 5) = X'00{schema_id:08X}', substring(value, 6), NULL)")


def main() -> None:
    """Write until the process is stopped, or until all that the topic has now is written."""
    arguments = parse_arguments()
    spark = SparkSession.builder.appName("kafka-to-iceberg").getOrCreate()
    iceberg_ds.register(spark)
    topic = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.broker)
        .option("subscribe", arguments.topic)
        .option("startingOffsets", "earliest")  # of the first run; later runs go on where the checkpoint says
        .load()
    )

    value = col("value") if arguments.schema_id is None else cut_header(arguments.schema_id)
    schema = arguments.avro_schema
    order = read_json(value) if schema is None else read_avro(value, schema.read_text())
    messages = topic.withColumn("order", order)
    orders = messages.where("order.id IS NOT NULL").select("order.*", "partition", "offset")
    unread = messages.where("order.id IS NULL").select("topic", "partition", "offset", "timestamp", "key", "value")

    trigger = {"availableNow": True} if arguments.available_now else {"processingTime": arguments.every}
    queries = [
        rows.writeStream.format("icebergsink")
        .options(**CATALOG)
        .option("checkpointLocation", f"{arguments.checkpoint}/{table}")
        .trigger(**trigger)
        .start(table)
        for table, rows in ((arguments.table, orders), (f"{arguments.table}_unread", unread))
    ]
    if arguments.available_now:
        for query in queries:
            query.awaitTermination()
    else:
        spark.streams.awaitAnyTermination()  # the error of either query ends the program


def parse_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, help="host:port, or several with commas between them")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--table", required=True, help="such as shop.orders; unread messages go to shop.orders_unread")
    parser.add_argument("--checkpoint", required=True, help="folder of the checkpoints, kept from run to run")
    parser.add_argument("--avro-schema", type=Path, help="file of the Avro schema; without it messages are JSON")
    parser.add_argument("--schema-id", type=int, help="the schema's id in the registry, if messages have its header")
    parser.add_argument("--every", default="10 seconds", help="time between commits (default: %(default)s)")
    parser.add_argument("--available-now", action="store_true", help="stop when all that the topic has is written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
