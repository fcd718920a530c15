"""Streams of changes by Spark: a copy that is kept by them is the table, whatever changes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from support.exhaustive import few
from support.spark.tables import Warehouse
from support.tables.sink import NAME

import iceberg_ds

COPY = "db.copy"
BY_KEY = {"keys": "id", "operation-column": "_change_type", "sequence-by": "_change_ordinal"}


def copy(spark: SparkSession, house: Warehouse, checkpoint: Path, **options: str) -> None:
    """Bring the copy to where the table is."""
    reading = {**house.options, "on-change": "changes", **options}
    changes = spark.readStream.format("icebergsource").options(**reading).load(NAME)
    changes = changes.drop("_commit_snapshot_id", "_commit_timestamp")
    writer = changes.writeStream.format("icebergsink").options(**house.options, **BY_KEY)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(COPY).awaitTermination()


def rows(spark: SparkSession, house: Warehouse, table: str) -> list[tuple[object, ...]]:
    """Return the rows of a table."""
    found = iceberg_ds.read(spark, table, options=house.options, columns=["id", "name", "region"])
    return sorted(tuple(row) for row in found.collect())


@pytest.mark.parametrize("version", few(1, ["3", "2"]))
def test_copy_by_a_stream_is_the_table(spark: SparkSession, house: Warehouse, tmp_path: Path, version: str) -> None:
    """Rows of the copy would be lost, or stay although they were deleted."""
    iceberg_ds.register(spark)
    columns = "id BIGINT, name STRING, region STRING"
    first = spark.createDataFrame([(number, f"row {number}", f"r{number % 3}") for number in range(9)], columns)
    writing = {**house.options, "format-version": version, "partition-by": "region"}
    first.write.format("icebergsink").mode("append").options(**writing).save(NAME)
    keyed = {**house.options, "keys": "region, id"}
    changes = [
        lambda: iceberg_ds.update(NAME, {"name": "'one'"}, "id = 1", spark, options=house.options),
        lambda: iceberg_ds.update(
            NAME, {"region": "'r0'"}, "id IN (2, 4)", spark, options=house.options, mode="copy-on-write"
        ),
        lambda: iceberg_ds.delete_from(NAME, "id = 3", spark, options=house.options),
        lambda: iceberg_ds.rewrite_data_files(NAME, spark, options={**house.options, "rewrite-all": "true"}),
        lambda: iceberg_ds.delete_from(NAME, "region = 'r2'", spark, options=house.options),
        lambda: iceberg_ds.upsert(
            spark.createDataFrame([(0, "zero", "r0"), (10, "ten", "r1")], columns), NAME, options=keyed
        ),
        lambda: (
            first.where("id > 6")
            .write.format("icebergsink")
            .mode("overwrite")
            .options(**house.options, **{"overwrite-mode": "dynamic"})
            .save(NAME)
        ),
    ]
    for number, change in enumerate(changes):
        change()
        if number == len(changes) // 2:
            copy(spark, house, tmp_path / "checkpoint", keys="id")
    copy(spark, house, tmp_path / "checkpoint", keys="id")

    assert rows(spark, house, COPY) == rows(spark, house, NAME)


def test_two_rows_of_one_key_end_the_query(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """A copy would have one of them."""
    iceberg_ds.register(spark)
    columns = "id BIGINT, name STRING, region STRING"
    twice = spark.createDataFrame([(1, "one", "r1"), (1, "eins", "r1")], columns)
    once = spark.createDataFrame([(1, "uno", "r1")], columns)
    once.write.format("icebergsink").mode("append").options(**house.options).save(NAME)
    twice.write.format("icebergsink").mode("overwrite").options(**house.options).save(NAME)

    with pytest.raises(StreamingQueryException, match=r"changed several rows of one key: \{'id': 1\}"):
        copy(spark, house, tmp_path / "checkpoint", keys="id")
