"""Send orders to a Kafka topic for a try-out of `stream.py`; every twentieth message is one that cannot be read.

    spark-submit --packages PACKAGES produce.py --broker HOST:PORT --topic orders --first 0 --count 1000

Messages are JSON, or with `--avro-schema` and `--schema-id` Avro behind the header of Confluent's schema registry.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.functions import concat, expr, lit, struct, to_json, unhex

ORDER = (
    "id",
    "concat('customer ', id % 7) AS customer",
    "IF(id % 3 = 0, NULL, CAST(id / 100 AS DECIMAL(10, 2))) AS amount",
    "timestamp_micros(1790000000000000 + id * 1000001) AS at",
)
# What is wrong with a JSON message: absent, no JSON, cut off, another type, no id, and a byte that is no UTF-8.
BROKEN_JSON = """CASE id DIV 20 % 6
    WHEN 0 THEN NULL
    WHEN 1 THEN encode('no JSON', 'utf-8')
    WHEN 2 THEN substring(message, 1, 20)
    WHEN 3 THEN encode('{"id": "one", "customer": "x"}', 'utf-8')
    WHEN 4 THEN encode('{"customer": "x"}', 'utf-8')
    WHEN 5 THEN concat(encode('{"id": 1, "customer": "', 'utf-8'), X'FF', encode('"}', 'utf-8'))
END"""
# What is wrong with an Avro message: absent, another schema's, cut off, and without the header.
BROKEN_AVRO = """CASE id DIV 20 % 4
    WHEN 0 THEN NULL
    WHEN 1 THEN concat(X'00', X'7FFFFFFF', substring(message, 6))
    WHEN 2 THEN substring(message, 1, 7)
    WHEN 3 THEN substring(message, 6)
END"""


def write_json(orders: DataFrame) -> DataFrame:
    """Return messages of JSON."""
    to_the_microsecond = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    messages = orders.withColumn("message", to_json(struct("*"), to_the_microsecond).cast("binary"))
    return messages.withColumn("value", expr(f"IF(id % 20 = 0, {BROKEN_JSON}, message)"))


def write_avro(orders: DataFrame, schema: str, schema_id: int) -> DataFrame:
    """Return messages of Avro, each behind a zero and the id of its schema in the registry."""
    header = unhex(lit(f"00{schema_id:08X}"))
    messages = orders.withColumn("message", concat(header, to_avro(struct("*"), schema)))
    return messages.withColumn("value", expr(f"IF(id % 20 = 0, {BROKEN_AVRO}, message)"))


def main() -> None:
    """Send the messages, by customer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--first", type=int, default=0, help="the first order's id")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--avro-schema", type=Path)
    parser.add_argument("--schema-id", type=int, default=1)
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("produce-orders").getOrCreate()
    orders = spark.range(arguments.first, arguments.first + arguments.count).selectExpr(*ORDER)
    schema = arguments.avro_schema
    messages = write_json(orders) if schema is None else write_avro(orders, schema.read_text(), arguments.schema_id)
    topic = {"kafka.bootstrap.servers": arguments.broker, "topic": arguments.topic}
    messages.selectExpr("CAST(customer AS BINARY) AS key", "value").write.format("kafka").options(**topic).save()


if __name__ == "__main__":
    main()
