"""Overwrites through Spark where it matters who else writes, who dies, and what Spark does around them."""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql.streaming import StreamingQuery
from support.checks.invariants import unreferenced_files
from support.exhaustive import EXHAUSTIVE
from support.hooks.faults import Action, Fault, Point
from support.hooks.hooked_sink import HookedSink
from support.spark.jobs import SCHEMA, numbered, remove_last_commit, write_source
from support.spark.process import wait_until
from support.spark.tables import FORMAT, Warehouse

from iceberg_ds.snapshots.txn import EPOCHS

TIMEOUT_S = 300


def overwrite(rows: DataFrame, house: Warehouse, name: str = FORMAT, **options: str) -> None:
    """Write with `mode("overwrite")`; `_` in the name of an option stands for `-`."""
    more = {key.replace("_", "-"): value for key, value in options.items()}
    rows.write.format(name).mode("overwrite").options(**house.options, **more).save("db.t")


def check_clean(house: Warehouse) -> None:
    """Assert that the table is whole, and that nothing lies around."""
    house.rows()
    assert unreferenced_files(house.table()) == set()


@pytest.mark.exhaustive
def test_alias_of_delta_is_taken(spark: SparkSession, house: Warehouse) -> None:
    """A job that comes from Delta would be refused, or replace the whole table."""
    house.append(numbered(spark, 0, 6))

    overwrite(numbered(spark, 3, 4), house, replaceWhere="id >= 3")

    assert house.ids() == [0, 1, 2, 3]
    check_clean(house)


def test_dataframe_without_rows_does_what_the_mode_says(spark: SparkSession, house: Warehouse) -> None:
    """A day without events would keep those of the run before, or cost all other days."""
    house.append(numbered(spark, 0, 10), partition_by="bucket(2, id)")
    nothing = numbered(spark, 0, 0)

    overwrite(nothing, house, overwrite_mode="dynamic")
    assert house.ids() == list(range(10))

    overwrite(nothing, house, replace_where="id < 5")
    assert house.ids() == [5, 6, 7, 8, 9]

    overwrite(nothing, house)
    assert house.ids() == []
    check_clean(house)


def test_dynamic_overwrite_of_a_shuffled_dataframe_replaces_each_partition_once(
    spark: SparkSession, house: Warehouse
) -> None:
    """Tasks that write into the same partition would replace each other's rows."""
    house.append(numbered(spark, 0, 40), partition_by="truncate(10, id)")

    overwrite(numbered(spark, 10, 30, partitions=4).repartition(4), house, overwrite_mode="dynamic")

    assert house.ids() == list(range(40))
    check_clean(house)


@pytest.mark.exhaustive
def test_values_of_every_type_bound_a_range(spark: SparkSession, house: Warehouse) -> None:
    """Ranges over columns of some types would be refused, or replace other rows."""
    columns = (
        "id BIGINT, d DATE, ts TIMESTAMP, ntz TIMESTAMP_NTZ, price DECIMAL(9,2), x DOUBLE, name STRING, raw BINARY"
    )
    moment = dt.datetime(2026, 11, 1, 12, tzinfo=dt.timezone.utc)
    rows = [
        (n, dt.date(2026, 11, n), moment, moment.replace(tzinfo=None), Decimal(n), float(n), f"n{n}", bytes([n]))
        for n in range(1, 9)
    ]
    rows.append((9, None, None, None, None, math.nan, None, None))
    house.append(spark.createDataFrame(rows, columns))
    nothing = spark.createDataFrame([], columns)

    for number, predicate in enumerate(
        [
            "d = '2026-11-01'",
            "ts = '2026-11-01T14:00:00+02:00' AND id = 2",
            "ntz = '2026-11-01 12:00:00' AND id = 3",
            "price BETWEEN 3.01 AND 4.99",
            "x >= 5 AND x < 6",
            "name LIKE 'n6%'",
            "raw = X'07'",
            "`NAME` NOT IN ('n1', 'n9')",
            "x IS NAN",
        ],
        start=1,
    ):
        overwrite(nothing, house, replace_where=predicate)
        assert house.ids() == list(range(number + 1, 10)), predicate
    check_clean(house)


@contextmanager
def appending_at(fault: Fault, house: Warehouse) -> Iterator[None]:
    """Append row 5, from another thread, as soon as a write waits at its fault, and let it go on then."""

    def append() -> None:
        wait_until(fault.barrier.exists, "the overwrite is about to commit", TIMEOUT_S)
        try:
            table = house.table()
            table.append(pa.Table.from_pylist([{"id": 5, "name": "row 5"}], schema=table.schema().as_arrow()))
        finally:
            fault.barrier.unlink()

    thread = threading.Thread(target=append)
    thread.start()
    yield
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def test_rows_that_come_while_tasks_run_are_a_conflict(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Rows that another job appended meanwhile would be dropped unseen."""
    house.append(numbered(spark, 0, 3))
    spark.dataSource.register(HookedSink)
    fault = Fault(point=Point.BEFORE_COMMIT, action=Action.WAIT, fuse=tmp_path / "fuse")

    with appending_at(fault, house), pytest.raises(PySparkException) as caught:
        overwrite(numbered(spark, 10, 13), house, HookedSink.name(), **fault.arm())

    assert f"snapshot {house.table().metadata.current_snapshot_id} brought" in str(caught.value)
    assert house.ids() == [0, 1, 2, 5]
    check_clean(house)


@pytest.mark.exhaustive
def test_rows_that_come_while_tasks_run_stay_under_snapshot_isolation(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """Rows that another job appended meanwhile would be dropped unseen."""
    house.append(numbered(spark, 0, 3))
    spark.dataSource.register(HookedSink)
    fault = Fault(point=Point.BEFORE_COMMIT, action=Action.WAIT, fuse=tmp_path / "fuse")

    with appending_at(fault, house):
        overwrite(numbered(spark, 10, 13), house, HookedSink.name(), isolation_level="snapshot", **fault.arm())

    assert house.ids() == [5, 10, 11, 12]
    check_clean(house)


@pytest.mark.exhaustive
def test_snapshot_that_a_job_has_read_bounds_what_it_may_replace(spark: SparkSession, house: Warehouse) -> None:
    """A job that reads the table, computes and writes it back would drop what came in between."""
    house.append(numbered(spark, 0, 3))
    read_at = str(house.table().metadata.current_snapshot_id)
    house.append(numbered(spark, 3, 6))

    with pytest.raises(PySparkException, match=f"after this write began .at snapshot {read_at}"):
        overwrite(numbered(spark, 0, 3), house, validate_from_snapshot_id=read_at)

    assert house.ids() == list(range(6))
    check_clean(house)


@EXHAUSTIVE
def test_predicate_that_does_not_fit_is_refused_before_any_task(spark: SparkSession, house: Warehouse) -> None:
    """Hours of computing would end in an error that the driver could have told at once."""
    house.append(numbered(spark, 0, 3))

    with pytest.raises(PySparkException, match=r"option 'replace-where': there is no column 'day'.*id, name"):
        overwrite(numbered(spark, 0, 3).where("1 / (id - id) > 0"), house, replace_where="day = '2026-11-01'")
    with pytest.raises(PySparkException, match=r"option 'replace-where' is 'id = ': cannot be read at its end"):
        overwrite(numbered(spark, 0, 3), house, replace_where="id = ")

    assert house.ids() == [0, 1, 2]


@EXHAUSTIVE
def test_foreach_batch_replaces_the_range_of_each_micro_batch_once(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """A replayed micro-batch, which `foreachBatch` is given again, would double its rows."""
    write_source(tmp_path / "source", [range(5), range(5, 10)])

    def replace_range(rows: DataFrame, _: int) -> None:
        bounds = rows.agg(F.min("id"), F.max("id")).first()
        assert bounds is not None
        overwrite(rows, house, replace_where=f"id BETWEEN {bounds[0]} AND {bounds[1]}")

    def run() -> None:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(tmp_path / "source"))
        writer = rows.writeStream.foreachBatch(replace_range).option("checkpointLocation", str(tmp_path / "c"))
        finish(writer.trigger(availableNow=True).start())

    run()
    remove_last_commit(tmp_path / "c")
    run()

    assert house.ids() == list(range(10))
    check_clean(house)


def finish(query: StreamingQuery) -> None:
    """Wait until a query has done all that there is, and fail with its error."""
    try:
        assert query.awaitTermination(TIMEOUT_S), query.status
    finally:
        query.stop()


@EXHAUSTIVE
def test_complete_epoch_that_landed_before_a_crash_is_skipped_after_the_restart(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """The replayed epoch would replace rows that came after it, or leave its files behind."""
    write_source(tmp_path / "source", [range(9), range(9, 12)])
    spark.dataSource.register(HookedSink)
    fault = Fault(point=Point.AFTER_COMMIT, action=Action.RAISE, fuse=tmp_path / "fuse", epoch_id=1)

    def run(name: str, **options: str) -> None:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(tmp_path / "source"))
        counts = rows.groupBy((F.col("id") % 3).alias("id")).count()
        writer = counts.writeStream.format(name).outputMode("complete").options(**house.options, **options)
        finish(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start("db.t"))

    with pytest.raises(StreamingQueryException, match="planned fault"):
        run(HookedSink.name(), **fault.arm())
    landed = [summary[EPOCHS.number_key] for summary in house.snapshots()]
    run(FORMAT)

    assert landed == ["0", "1"]
    assert [summary[EPOCHS.number_key] for summary in house.snapshots()] == ["0", "1"]
    assert house.rows().to_pylist() == [{"id": number, "count": 4} for number in range(3)]
    check_clean(house)


def test_append_option_of_an_overwrite_is_refused_in_a_stream(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """A stream's user would take rows for replaced that are still there."""
    write_source(tmp_path / "source", [range(3)])
    rows = spark.readStream.schema(SCHEMA).json(str(tmp_path / "source"))
    writer = rows.writeStream.format(FORMAT).options(**house.options).option("overwrite-mode", "dynamic")

    with pytest.raises(StreamingQueryException, match=r'only outputMode\("complete"\) takes overwrite-mode'):
        finish(writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start("db.t"))

    assert not house.has_table()
