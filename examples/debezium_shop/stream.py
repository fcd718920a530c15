"""Keep ten Iceberg tables equal to ten tables of PostgreSQL, from the changes that Debezium sends to one Kafka topic.

    spark-submit --packages PACKAGES stream.py --broker HOST:PORT --checkpoint FOLDER

The README beside this file says what PACKAGES are.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

import iceberg_ds

# Options of your catalog. Without any, tables go into ./iceberg-warehouse.
CATALOG: dict[str, str] = {}
TOPIC, NAMESPACE = "shop", "shop"
# The columns of each table, and its primary key where that is not `id`.
TABLES = {
    "suppliers": "id, name",
    "categories": "id, name",
    "products": "id, supplier_id, category_id, name, price",
    "customers": "id, name",
    "addresses": "id, customer_id, street",
    "orders": "id, customer_id, address_id, at, pieces",
    "order_items": "order_id, line, product_id, quantity",
    "payments": "id, order_id, amount, at",
    "shipments": "id, order_id, address_id, at",
    "reviews": "id, customer_id, product_id, note",
}
KEYS = {"order_items": "order_id, line"}
# The columns of all tables; those that a table lacks are null in its rows.
ROW = """
    id BIGINT, supplier_id BIGINT, category_id BIGINT, customer_id BIGINT, address_id BIGINT, order_id BIGINT,
    product_id BIGINT, line BIGINT, quantity BIGINT, pieces BIGINT, price DECIMAL(10, 2), amount DECIMAL(10, 2),
    name STRING, street STRING, note STRING, at TIMESTAMP
"""


def read_changes(topic: DataFrame) -> DataFrame:
    """Return the row of each change with its table, operation and offset: the new row, or for a delete the old one.

    The changes of a transaction, and those of the first reading, are in one epoch.
    """
    message = from_json(
        col("value").cast("string"),
        f"""before STRUCT<{ROW}>, after STRUCT<{ROW}>, op STRING, source STRUCT<table STRING, snapshot STRING>,
        transaction STRUCT<id STRING>, status STRING, id STRING""",
        {"mode": "FAILFAST"},  # a message of another kind stops the stream
    )
    changes = (
        topic.where("value IS NOT NULL")  # else it is a tombstone, which follows a delete
        .select(message.alias("m"), "offset")
        .where("m.status IS NULL OR m.status = 'END'")  # the others are changes, or say that a transaction has begun
        .selectExpr(
            "coalesce(m.after, m.before) AS row",
            "m.source.table",
            "m.op",
            "offset",
            # `ID:LSN`, of which each message has another LSN.
            "IF(m.op = 'r', 'first reading', split_part(coalesce(m.transaction.id, m.id), ':', 1)) AS transaction",
            # The last change of the first reading says that it is; that is said once more, in a row of its own.
            "explode(IF(m.source.snapshot = 'last', array(false, true), array(m.status IS NOT NULL))) AS is_end",
        )
        .select("row.*", "table", "op", "offset", "transaction", "is_end")
    )
    whole = iceberg_ds.whole_transactions(changes, "transaction", position="offset", end="is_end")
    return whole.drop("transaction", "is_end")


def write_options() -> dict[str, str]:
    """Return the options of the write into all tables."""
    options = {
        **CATALOG,
        "route-by": "table",
        "route-tables": ", ".join(f"{NAMESPACE}.{table}" for table in TABLES),
        "route-namespace": NAMESPACE,
        "keys": "id",
        "operation-column": "op",
        # The topic has one partition, so the offset says which change is newer, over all tables.
        "sequence-by": "offset",
        "stream-name": "shop",
        "consistent-cut": "meta.cuts",
    }
    of_keys = {f"route-options.{NAMESPACE}.{table}.keys": keys for table, keys in KEYS.items()}
    of_columns = {f"route-columns.{NAMESPACE}.{table}": f"{columns}, op, offset" for table, columns in TABLES.items()}
    return options | of_keys | of_columns


def main() -> None:
    """Write until the process is stopped, or until all that the topic has now is written."""
    arguments = parse_arguments()
    spark = SparkSession.builder.appName("shop-to-iceberg").config("spark.sql.shuffle.partitions", 1).getOrCreate()
    iceberg_ds.register(spark)
    topic = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", arguments.broker)
        .option("subscribe", TOPIC)
        .option(
            "kafka.isolation.level", "read_committed"
        )  # a connector that was killed leaves messages that do not count
        .option("startingOffsets", "earliest")  # of the first run; later runs go on where the checkpoint says
        .option("maxOffsetsPerTrigger", arguments.at_most)
        .load()
    )

    trigger = {"availableNow": True} if arguments.available_now else {"processingTime": arguments.every}
    stream = read_changes(topic).writeStream.format("icebergsink").options(**write_options()).trigger(**trigger)
    stream.option("checkpointLocation", arguments.checkpoint).start().awaitTermination()


def parse_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True, help="host:port, or several with commas between them")
    parser.add_argument("--checkpoint", required=True, help="folder of the checkpoint, kept from run to run")
    parser.add_argument("--every", default="10 seconds", help="time between commits (default: %(default)s)")
    parser.add_argument("--at-most", default=100_000, help="changes in a commit (default: %(default)s)")
    parser.add_argument("--available-now", action="store_true", help="stop when all that the topic has is written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
