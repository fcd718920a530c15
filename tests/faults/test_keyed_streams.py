"""A stream of changes by key that dies at each step of an epoch, and is started again: nothing twice, nothing back."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from support.exhaustive import few
from support.hooks.faults import Action, Fault, Point
from support.keys.publications import STAGING, keyed_deletes_of
from support.keys.streams import FEED, KeyedStream, check_tidy, rows_after, rows_in
from support.spark.jobs import dump
from support.spark.process import SparkProcess

from iceberg_ds.fault_points import FaultPoint

BEFORE_FAULT = rows_after(FEED[:1])
ALL = rows_after(FEED)


@pytest.fixture
def begun(tmp_path: Path, spark: SparkSession) -> KeyedStream:
    """Return a stream that has run its first epoch, and has two more to run."""
    return KeyedStream(folder=tmp_path / "stream").run(spark, FEED[0]).feed(*FEED[1:])


def fault_at(stream: KeyedStream, point: FaultPoint, action: Action) -> Fault:
    """Return a fault that strikes in the first epoch that it meets."""
    return Fault(point=point, action=action, fuse=stream.folder / "fuse")


@pytest.mark.exhaustive
@pytest.mark.parametrize("point", [Point.AFTER_COMMIT, Point.IN_TASK, Point.BEFORE_COMMIT])
def test_driver_dies(begun: KeyedStream, spark: SparkSession, tmp_path: Path, point: FaultPoint) -> None:
    """The replayed epoch would add its rows twice, bring deleted ones back, or not be there at all."""
    fault = fault_at(begun, point, Action.KILL_DRIVER)
    with SparkProcess(tmp_path / "driver") as driver:
        driver.send(dump(begun.job(fault)))
        driver.wait_java_dead()
    assert fault.has_struck
    landed = point is Point.AFTER_COMMIT
    assert begun.rows() == (rows_after(FEED[:2]) if landed else BEFORE_FAULT)

    begun.run(spark)

    assert begun.rows() == ALL
    assert begun.snapshots() == len(FEED)
    if landed:
        check_tidy(begun.house)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "point", few(1, [FaultPoint.REQUEST_ANSWERED, Point.IN_TASK, Point.AFTER_TASK, FaultPoint.MANIFESTS_WRITTEN])
)
def test_worker_dies(begun: KeyedStream, spark: SparkSession, point: FaultPoint) -> None:
    """Spark's `abort` would delete files of rows or of deletes that have landed, or the replay would double them."""
    fault = fault_at(begun, point, Action.KILL_WORKER)
    with pytest.raises(StreamingQueryException):
        begun.job(fault).run(spark)
    assert fault.has_struck
    assert begun.rows() == (rows_after(FEED[:2]) if point is FaultPoint.REQUEST_ANSWERED else BEFORE_FAULT)

    begun.run(spark)

    assert begun.rows() == ALL
    assert begun.snapshots() == len(FEED)


@pytest.mark.exhaustive
def test_worker_dies_while_an_epoch_waits_to_be_converted(spark: SparkSession, tmp_path: Path) -> None:
    """Readers of main would meet deletes that they cannot read, or never get the epoch."""
    options = {"publish_converted": "true", "partition_by": "region", "readers": "pyiceberg, snowflake"}
    stream = KeyedStream(folder=tmp_path / "stream").asking(**options).run(spark, FEED[0]).feed(*FEED[1:])
    fault = fault_at(stream, FaultPoint.COMMITTED, Action.KILL_WORKER)
    with pytest.raises(StreamingQueryException):
        stream.job(fault).run(spark)
    assert fault.has_struck
    assert (stream.rows(), stream.rows(STAGING)) == (BEFORE_FAULT, rows_after(FEED[:2]))

    stream.run(spark)

    assert stream.rows() == ALL
    assert sorted(tuple(row.values()) for row in stream.house.rows().to_pylist()) == ALL
    table = stream.house.table()
    assert [keyed_deletes_of(table, entry.snapshot_id) for entry in table.metadata.snapshot_log] == [[]] * 4
    assert stream.snapshots() == 1 + 2 * len(FEED)
    assert set(table.metadata.refs) == {"main"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", [Action.RAISE, Action.KILL_WORKER])
def test_spark_repeats_a_task(tmp_path: Path, retrying_spark: SparkSession, action: Action) -> None:
    """A task that Spark runs twice would tell of its keys twice, and hide the rows of the winner."""
    stream = KeyedStream(folder=tmp_path / "stream").feed(*FEED)
    fault = fault_at(stream, Point.IN_TASK, action)

    stream.job(fault).run(retrying_spark)

    assert fault.has_struck
    assert rows_in(stream.house) == ALL
    assert stream.snapshots() == len(FEED)
    if action is Action.RAISE:  # a killed worker cannot clean up
        check_tidy(stream.house)
