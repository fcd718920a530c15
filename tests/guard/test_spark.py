"""The steps that the guard counts are those that Spark takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from guard.counting import counting_objects
from guard.limits import MEASURED
from guard.measuring import options_on_s3
from guard.steps import SCHEMA
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.services.bucket import Bucket
from support.services.servers import ObjectStore


@EXHAUSTIVE
def test_spark_asks_the_store_for_what_the_guard_counts(
    spark: SparkSession, object_store: ObjectStore, tmp_path: Path
) -> None:
    """The guard would count something else than what users pay for."""
    bucket = Bucket(store=object_store, name="guard-spark")
    options = options_on_s3(bucket, tmp_path)
    rows = spark.range(0, 40_000, 1, 2).selectExpr("id", "id % 8 AS part", "string(id) AS name", "id * 0.37D AS amount")
    rows.write.format("icebergsink").mode("append").options(**options).save()
    writes = [Counter[str]() for _ in range(3)]
    for found in writes:
        with counting_objects(bucket, found):
            rows.write.format("icebergsink").mode("append").options(**options).save()
    counted: Counter[str] = Counter()
    for name, number in MEASURED.items():
        if name.startswith("batch write / "):
            counted[name.partition(": ")[2]] += number

    assert rows.schema.names == SCHEMA.names
    # A Python worker that Spark has started anew meanwhile asks for what the one before knew.
    assert {name: number for name, number in counted.items() if name.startswith("S3") or name.endswith("files")} in [
        {name: number for name, number in found.items() if "bytes" not in name} for found in writes
    ]
