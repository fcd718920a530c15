"""A batch write one of whose processes dies, and what the table shows afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.checks.invariants import unreferenced_files
from support.exhaustive import EXHAUSTIVE, few
from support.hooks.faults import Action, Fault, Point
from support.hooks.hooked_sink import HookedSink
from support.spark.jobs import BatchJob, dump
from support.spark.process import SparkProcess
from support.spark.tables import Warehouse

from iceberg_ds.fault_points import FaultPoint

ROWS = 1000
# Rows are written as soon as a task has them, so that a fault in a task finds files.
WRITE_AT_ONCE = {"target-file-size-bytes": "400", "small-task-size-bytes": "0"}


@pytest.fixture
def used(house: Warehouse, spark: SparkSession) -> Warehouse:
    """Return a warehouse whose table `db.t` has the rows from 0 on."""
    BatchJob(rows=ROWS, options=house.options).run(spark)
    return house


def job(house: Warehouse, fault: Fault | None = None) -> BatchJob:
    """Return a job that appends the next rows, and meets the fault."""
    options = {**house.options, **WRITE_AT_ONCE, **(fault.arm() if fault else {})}
    return BatchJob(first=ROWS, rows=ROWS, options=options, sink=HookedSink.name() if fault else "icebergsink")


def fault_at(point: FaultPoint, action: Action, tmp_path: Path) -> Fault:
    """Return a fault of the coming job."""
    return Fault(point=point, action=action, fuse=tmp_path / "fuse")


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", [Action.KILL_WORKER, Action.EXIT_WORKER])
def test_committer_dies_before_commit(used: Warehouse, spark: SparkSession, tmp_path: Path, action: Action) -> None:
    """Rows would be in the table of a job that failed, and twice when it is run again."""
    fault = fault_at(Point.BEFORE_COMMIT, action, tmp_path)
    with pytest.raises(Py4JJavaError, match="Python worker exited unexpectedly"):
        job(used, fault).run(spark)
    assert used.ids() == list(range(ROWS))

    job(used).run(spark)

    assert fault.has_struck
    assert used.ids() == list(range(2 * ROWS))


@EXHAUSTIVE
@pytest.mark.parametrize("action", few(1, [Action.KILL_WORKER, Action.EXIT_WORKER]))
def test_committer_dies_after_commit(used: Warehouse, spark: SparkSession, tmp_path: Path, action: Action) -> None:
    """Spark's `abort`, which knows nothing of the commit, would delete the files of rows that are in the table."""
    fault = fault_at(Point.AFTER_COMMIT, action, tmp_path)
    with pytest.raises(Py4JJavaError, match="Python worker exited unexpectedly"):
        job(used, fault).run(spark)

    assert fault.has_struck
    assert used.ids() == list(range(2 * ROWS))
    assert unreferenced_files(used.table()) == set()


@pytest.mark.exhaustive
def test_exception_after_commit_keeps_what_has_landed(used: Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    """Spark's `abort`, which gets all messages here, would delete the files of rows that are in the table."""
    fault = fault_at(Point.AFTER_COMMIT, Action.RAISE, tmp_path)
    with pytest.raises(PySparkException, match="planned fault at COMMITTED"):
        job(used, fault).run(spark)

    assert used.ids() == list(range(2 * ROWS))
    assert unreferenced_files(used.table()) == set()


@pytest.mark.exhaustive
@pytest.mark.parametrize("point", [Point.IN_TASK, Point.AFTER_TASK])
def test_worker_dies_in_its_only_attempt(
    used: Warehouse, spark: SparkSession, tmp_path: Path, point: FaultPoint
) -> None:
    """Half of a job that failed would be in the table."""
    fault = fault_at(point, Action.KILL_WORKER, tmp_path)
    with pytest.raises(Py4JJavaError, match="Python worker exited unexpectedly"):
        job(used, fault).run(spark)

    assert fault.has_struck
    assert used.ids() == list(range(ROWS))
    assert len(used.snapshots()) == 1


@EXHAUSTIVE
@pytest.mark.parametrize(
    ("point", "action"),
    few(
        2,
        [
            (Point.IN_TASK, Action.RAISE),
            (Point.AFTER_TASK, Action.RAISE),
            (Point.IN_TASK, Action.KILL_WORKER),
            (Point.AFTER_TASK, Action.KILL_WORKER),
        ],
    ),
)
def test_spark_repeats_task(
    house: Warehouse, retrying_spark: SparkSession, tmp_path: Path, point: FaultPoint, action: Action
) -> None:
    """The rows of a task's first attempt would be in the table beside those of its second one."""
    fault = fault_at(point, action, tmp_path)
    job(house, fault).run(retrying_spark)

    assert fault.has_struck
    assert house.ids() == list(range(ROWS, 2 * ROWS))
    assert len(house.snapshots()) == 1
    if point is Point.IN_TASK and action is Action.RAISE:  # the only attempt that could clean up
        assert unreferenced_files(house.table()) == set()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("point", "lands"), [(Point.AFTER_COMMIT, True), (Point.BEFORE_COMMIT, False)])
def test_driver_dies_around_the_commit(used: Warehouse, tmp_path: Path, point: FaultPoint, *, lands: bool) -> None:
    """A job would leave part of its rows in the table, or a table that cannot be read."""
    fault = fault_at(point, Action.KILL_DRIVER, tmp_path)
    with SparkProcess(tmp_path / "driver") as driver:
        driver.send(dump(job(used, fault)))
        driver.wait_java_dead()

    assert fault.has_struck
    assert used.ids() == list(range(2 * ROWS if lands else ROWS))


@pytest.mark.exhaustive
def test_driver_dies_in_task_of_a_new_table(house: Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    """A table without rows would be left behind, or stand in the way of the next run."""
    fault = fault_at(Point.IN_TASK, Action.KILL_DRIVER, tmp_path)
    with SparkProcess(tmp_path / "driver") as driver:
        driver.send(dump(job(house, fault)))
        driver.wait_java_dead()
    assert fault.has_struck
    assert not house.has_table()

    job(house).run(spark)

    assert house.ids() == list(range(ROWS, 2 * ROWS))
