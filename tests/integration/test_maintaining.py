"""A stream of upserts that looks after its own table."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession
from support.checks.invariants import check_sound
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE
from support.spark.process import wait_until
from support.spark.tables import FORMAT, Warehouse
from support.tables.sink import NAME

import iceberg_ds

KEYS = 50
POLICY = iceberg_ds.MaintenancePolicy(
    max_small_files=6,
    max_equality_delete_files=3,
    max_position_delete_files=4,
    max_manifests=12,
    max_snapshots=20,
    min_snapshot_age_s=0,
)


@pytest.mark.timeout(300)
@EXHAUSTIVE
def test_stream_of_upserts_keeps_its_table_healthy(spark: SparkSession, house: Warehouse) -> None:
    """Files, deletes and snapshots would pile up until nobody can read the table, or its rows be others."""
    iceberg_ds.register(spark)
    rate = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    changes = rate.selectExpr(f"value % {KEYS} AS id", "value AS v")
    options = {**house.options, "keys": "id", "sequence-by": "v"}
    writer = (
        changes.writeStream.format(FORMAT)
        .options(**options)
        .option("checkpointLocation", str(house.folder / "checkpoint"))
    )
    before = time.monotonic()
    with iceberg_ds.maintaining(spark, {NAME: POLICY}, options=house.options, every_s=1.0):
        query = writer.trigger(processingTime="200 milliseconds").start(NAME)
        try:
            wait_until(lambda: epochs(query) > 40, "there were 40 epochs", 150)
        finally:
            query.stop()
    for _ in range(2):
        result = iceberg_ds.maintain(NAME, spark, options=house.options, policy=POLICY)
        assert result.ok, str(result)

    found = {row["id"]: row["v"] for row in rows_of(house.table())}
    newest = max(found.values())
    assert found == {key: newest - (newest - key) % KEYS for key in range(KEYS)}
    health = iceberg_ds.table_health(NAME, options=house.options)
    assert health.snapshots <= 20 + 5
    assert health.small_files <= 6
    assert health.equality_delete_files is not None
    assert health.equality_delete_files <= 3
    check_sound(house.table())
    assert time.monotonic() - before < 300


@pytest.mark.timeout(300)
@EXHAUSTIVE
def test_stream_keeps_its_own_history_short(spark: SparkSession, house: Warehouse) -> None:
    """Snapshots would pile up until commits are slow, without a second job beside the stream."""
    iceberg_ds.register(spark)
    kept = {"min-snapshots-to-keep": "4", "max-snapshot-age-ms": "0"}
    options = {**house.options, **{f"table-property.history.expire.{name}": text for name, text in kept.items()}}
    rate = spark.readStream.format("rate").option("rowsPerSecond", 200).load().selectExpr("value AS id")
    writer = rate.writeStream.format(FORMAT).options(**options, maintenance="auto")
    writer = writer.option("checkpointLocation", str(house.folder / "checkpoint"))
    query = writer.trigger(processingTime="100 milliseconds").start(NAME)
    try:
        wait_until(lambda: epochs(query) > 30, "there were 30 epochs", 150)
    finally:
        query.stop()

    found = sorted(row["id"] for row in rows_of(house.table()))
    assert found == list(range(len(found)))
    assert len(house.table().metadata.snapshots) <= 4 + 10
    check_sound(house.table())


def epochs(query: object) -> int:
    """Return how many epochs a query has made."""
    progress = query.lastProgress  # type: ignore[attr-defined]
    failure = query.exception()  # type: ignore[attr-defined]
    if failure is not None:
        raise RuntimeError(str(failure))
    return -1 if progress is None else int(progress["batchId"])
