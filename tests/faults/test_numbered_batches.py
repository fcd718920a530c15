"""Batches with `txn-app-id` and `txn-version` in real Spark, run again by a scheduler and by `foreachBatch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.checks.invariants import unreferenced_files
from support.exhaustive import EXHAUSTIVE, few
from support.hooks.faults import Action, Fault, Point
from support.hooks.hooked_sink import HookedSink
from support.spark.jobs import SCHEMA, BatchJob, dump, numbered, remove_last_commit, write_source
from support.spark.process import SparkProcess
from support.spark.stream_runs import Stream
from support.spark.tables import FORMAT, Warehouse

TIMEOUT_S = 300
ROWS = 100


def job(house: Warehouse, fault: Fault | None = None, mode: str = "append", version: int = 20261121) -> BatchJob:
    """Return the batch of one day, as a scheduler runs it."""
    named = {"txnAppId": "nightly-load", "txnVersion": str(version)}
    options = {**house.options, **named, **(fault.arm() if fault else {})}
    return BatchJob(rows=ROWS, options=options, sink=HookedSink.name() if fault else "icebergsink", mode=mode)


@pytest.mark.exhaustive
@pytest.mark.parametrize("point", [Point.AFTER_COMMIT, Point.BEFORE_COMMIT])
def test_run_whose_driver_was_killed_can_be_repeated(
    house: Warehouse, spark: SparkSession, tmp_path: Path, point: Point
) -> None:
    """The retry of a task that a scheduler makes would lose its rows or double them."""
    fault = Fault(point=point, action=Action.KILL_DRIVER, fuse=tmp_path / "fuse")
    with SparkProcess(tmp_path / "first") as driver:
        driver.send(dump(job(house, fault)))
        driver.wait_java_dead()

    job(house).run(spark)  # in another driver
    job(house).run(spark)

    assert fault.has_struck
    assert house.ids() == list(range(ROWS))


@EXHAUSTIVE
@pytest.mark.parametrize("mode", few(1, ["append", "overwrite"]))
def test_run_whose_committer_was_killed_can_be_repeated(
    house: Warehouse, spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """A retry would double the rows, or replace those that came after the first run."""
    fault = Fault(point=Point.AFTER_COMMIT, action=Action.RAISE, fuse=tmp_path / "fuse")
    with pytest.raises(PySparkException, match="planned fault"):
        job(house, fault, mode).run(spark)
    house.append(numbered(spark, ROWS, ROWS + 10))

    job(house, mode=mode).run(spark)

    assert house.ids() == list(range(ROWS + 10))
    assert unreferenced_files(house.table()) == set()


def into_two_tables(house: Warehouse, armed: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return what writes each micro-batch into two tables, the second with these options of a fault."""

    def write(rows: DataFrame, epoch_id: int) -> None:
        for table, sink, more in (("db.t", FORMAT, {}), ("db.u", HookedSink.name(), armed)):
            writer = rows.write.format(sink).mode("append").options(**house.options, **more)
            writer.options(txnAppId="orders", txnVersion=epoch_id).save(table)

    return write


@EXHAUSTIVE
@pytest.mark.parametrize("point", few(1, [Point.AFTER_COMMIT, Point.BEFORE_COMMIT]))
def test_micro_batch_that_is_repeated_lands_once_in_each_table(
    house: Warehouse, spark: SparkSession, tmp_path: Path, point: Point
) -> None:
    """A micro-batch that died between two tables would be twice in the first, or be missing in the second."""
    spark.dataSource.register(HookedSink)
    source = tmp_path / "source"
    write_source(source, [range(10), range(10, 20), range(20, 30)])
    fault = Fault(point=point, action=Action.KILL_WORKER, fuse=tmp_path / "fuse")

    def run(armed: Mapping[str, str]) -> None:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
        writer = rows.writeStream.foreachBatch(into_two_tables(house, armed))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(TIMEOUT_S)
        finally:
            query.stop()

    with pytest.raises(StreamingQueryException, match="exited unexpectedly"):
        run(fault.arm())
    run({})
    remove_last_commit(tmp_path / "checkpoint")
    run({})

    assert fault.has_struck
    assert house.ids("db.t") == house.ids("db.u") == list(range(30))
    assert len(house.snapshots("db.t")) == len(house.snapshots("db.u")) == 3


def test_stream_with_a_version_is_refused_and_told_where_it_counts(stream: Stream, spark: SparkSession) -> None:
    """All epochs of a stream but the first would be skipped."""
    stream.grow(1)

    with pytest.raises(StreamingQueryException, match="'txn-app-id' and 'txn-version' are for batches") as raised:
        stream.job(txn_app_id="orders", txn_version="1").run(spark)

    assert "foreachBatch" in str(raised.value)
    assert not stream.warehouse.has_table()


@EXHAUSTIVE
def test_batch_with_the_name_of_a_stream_is_refused(house: Warehouse, spark: SparkSession) -> None:
    """A user of foreachBatch would believe that a wiped checkpoint is refused."""
    with pytest.raises(PySparkException, match="'stream-name' is for writeStream"):
        house.append(numbered(spark, 0, 1), stream_name="orders")

    assert not house.has_table()
