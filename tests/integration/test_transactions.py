"""`transaction` through Spark: several tables of one epoch, exactly once, whatever plan the DataFrames have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.exhaustive import few
from support.spark.jobs import numbered, write_file
from support.spark.tables import Warehouse
from support.tables.shop import CUSTOMERS, ORDERS, PRICES, TABLES, Shop, epoch_of, rows_after

import iceberg_ds
from iceberg_ds.errors import DataFileError
from iceberg_ds.fault_points import FaultPoint, listen

COLUMNS = "kind STRING, a BIGINT, b BIGINT, name STRING"


@pytest.fixture(autouse=True)
def _nobody_listens() -> Iterator[None]:
    """Let no fault strike after the test."""
    yield
    listen(None)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Return the tables of a shop, none of which exists yet."""
    return Shop(folder=tmp_path / "warehouse")


def feed(source: Path, number: int) -> None:
    """Write the rows of an epoch as a file of the stream."""
    values = [(table, a, b) for table, rows in epoch_of(number).items() for a, b in rows]
    rows = [{"kind": table, "a": a, "name" if isinstance(b, str) else "b": b} for table, a, b in values]
    write_file(source, number, "".join(json.dumps(row) + "\n" for row in rows))


def run_stream(spark: SparkSession, shop: Shop, folder: Path) -> list[iceberg_ds.TransactionResult]:
    """Run the stream until it has taken all that there is, and return what each of its transactions did."""
    results = []

    def write(rows: DataFrame, epoch_id: int) -> None:
        with iceberg_ds.transaction(version=epoch_id, options=shop.house.options) as epoch:
            orders, customers, prices = (rows.where(f"kind = '{table}'") for table in TABLES)
            epoch.append(orders.selectExpr("a AS id", "b AS customer"), ORDERS)
            epoch.upsert(customers.selectExpr("a AS id", "name"), CUSTOMERS, keys="id")
            epoch.overwrite(prices.selectExpr("a AS day", "b AS price"), PRICES, replace_where=f"day = {epoch_id % 2}")
        results.append(epoch.result)

    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(folder / "source"))
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return results


@pytest.mark.parametrize("landed", few(1, [1, 2, 3]))
def test_micro_batch_that_dies_between_tables_lands_once_in_each(
    spark: SparkSession, shop: Shop, tmp_path: Path, landed: int
) -> None:
    """Tables would have the rows of an epoch twice, or not at all, after a crash."""
    left = landed

    def die(reached: FaultPoint) -> None:
        nonlocal left
        left -= reached is FaultPoint.COMMITTED
        if reached is FaultPoint.COMMITTED and left == 0:
            raise RuntimeError("planned fault")

    feed(tmp_path / "source", 0)
    listen(die)
    with pytest.raises(StreamingQueryException, match="planned fault"):
        run_stream(spark, shop, tmp_path)
    listen(None)
    feed(tmp_path / "source", 1)

    repeated, new = run_stream(spark, shop, tmp_path)

    assert shop.rows() == rows_after([0, 1])
    assert shop.snapshots() == dict.fromkeys(TABLES, 2)
    assert any(table.was_replayed for table in repeated.tables)
    assert not any(table.was_replayed for table in new.tables)


def test_dataframes_of_any_plan_are_written_whole(spark: SparkSession, house: Warehouse) -> None:
    """Spark numbers the tasks of some plans in other ways, and their rows would be refused, or lost."""
    rows = numbered(spark, 0, 100, 5)
    plans = {
        "a union": rows.where("id < 40").union(rows.where("id >= 40")),
        "one task": rows.coalesce(1),
        "a shuffle": rows.groupBy("id").agg({"name": "max"}).selectExpr("id", "`max(name)` AS name"),
        "a join": rows.select("id").join(rows, "id"),
        "a limit": rows.orderBy("id").limit(100),
        "local": spark.createDataFrame(rows.collect(), rows.schema),
    }

    with iceberg_ds.transaction(spark, options=house.options) as epoch, ThreadPoolExecutor(3) as side_by_side:
        names = [f"db.t{number}" for number in range(len(plans))]
        list(side_by_side.map(epoch.append, plans.values(), names))

    assert [table.rows for table in epoch.result.tables] == [100] * len(plans)
    for number in range(len(plans)):
        assert house.ids(f"db.t{number}") == list(range(100))


def test_job_that_fails_leaves_no_table_and_no_file(spark: SparkSession, shop: Shop) -> None:
    """Files of the lines before it would be left, or be committed without its rows."""
    broken = numbered(spark, 0, 4).selectExpr("id", "IF(id = 3, CAST(raise_error('planned fault') AS BIGINT), id) AS b")

    with pytest.raises(DataFileError, match="planned fault") as failed, shop.begin(1) as epoch:  # noqa: PT012  # the block is what fails
        epoch.append(numbered(spark, 0, 100), ORDERS, options={"small-task-size-bytes": "0"})
        assert shop.data_files()
        epoch.append(broken, PRICES)

    assert isinstance(failed.value.__cause__, PySparkException)
    assert not any(shop.house.has_table(table) for table in TABLES)
    assert [path for path in shop.data_files() if "orders" in str(path)] == []
