"""A stream that dies at each step of a micro-batch, and is started again.

Epochs 0 and 1 run undisturbed; the fault strikes in epoch 2, and epoch 3 follows it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE, few
from support.hooks.faults import Action, Fault, Point
from support.spark.jobs import dump
from support.spark.process import SparkProcess
from support.spark.stream_runs import Stream

from iceberg_ds.fault_points import FaultPoint

EPOCHS = 4
# Rows are written as soon as a task has them, so that a fault in a task finds files.
WRITE_AT_ONCE = {"target_file_size_bytes": "100", "small_task_size_bytes": "0"}


@pytest.fixture
def begun(stream: Stream, spark: SparkSession) -> Stream:
    """Return a stream that has run two epochs, and has two more to run."""
    stream.grow(2).run(spark)
    return stream.grow(2)


def fault_at(stream: Stream, point: FaultPoint, action: Action) -> Fault:
    """Return a fault that strikes in the first epoch that it meets."""
    return Fault(point=point, action=action, fuse=stream.folder / "fuse")


def run_until_driver_dies(stream: Stream, point: FaultPoint, tmp_path: Path) -> None:
    """Run the stream in a process of its own, whose Java process is killed at `point` of epoch 2."""
    fault = fault_at(stream, point, Action.KILL_DRIVER)
    with SparkProcess(tmp_path / "driver") as driver:
        driver.send(dump(stream.job(fault, **WRITE_AT_ONCE)))
        driver.wait_java_dead()
    assert fault.has_struck


def run_until_worker_dies(stream: Stream, point: FaultPoint, action: Action, spark: SparkSession) -> None:
    """Run the stream in this process's Spark, one of whose Python workers dies at `point` of epoch 2."""
    fault = fault_at(stream, point, action)
    with pytest.raises(StreamingQueryException):
        stream.job(fault, **WRITE_AT_ONCE).run(spark)
    assert fault.has_struck


def test_driver_dies_after_commit_before_checkpoint(begun: Stream, spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the replayed epoch would be in the table twice, and its files would stay for ever."""
    run_until_driver_dies(begun, Point.AFTER_COMMIT, tmp_path)
    assert begun.snapshots() == 3

    begun.run(spark)

    assert begun.snapshots() == EPOCHS
    assert not begun.orphans()


@EXHAUSTIVE
def test_driver_dies_before_commit(begun: Stream, spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the epoch would be lost."""
    run_until_driver_dies(begun, Point.BEFORE_COMMIT, tmp_path)
    assert begun.snapshots() == 2

    begun.run(spark)

    assert begun.snapshots() == EPOCHS


@EXHAUSTIVE
def test_driver_dies_in_task(begun: Stream, spark: SparkSession, tmp_path: Path) -> None:
    """Half an epoch would be in the table, or its rows lost."""
    run_until_driver_dies(begun, Point.IN_TASK, tmp_path)
    assert begun.snapshots() == 2

    begun.run(spark)

    assert begun.snapshots() == EPOCHS


@EXHAUSTIVE
@pytest.mark.parametrize("action", few(1, [Action.KILL_WORKER, Action.EXIT_WORKER]))
def test_committer_dies_after_commit(begun: Stream, spark: SparkSession, action: Action) -> None:
    """Spark's `abort` would delete the files of rows that have landed, or the replay would double them."""
    run_until_worker_dies(begun, Point.AFTER_COMMIT, action, spark)
    assert begun.snapshots() == 3

    begun.run(spark)

    assert begun.snapshots() == EPOCHS
    assert not begun.orphans()


@EXHAUSTIVE
@pytest.mark.parametrize("action", few(1, [Action.KILL_WORKER, Action.EXIT_WORKER]))
def test_committer_dies_before_commit(begun: Stream, spark: SparkSession, action: Action) -> None:
    """The rows of the epoch would be lost."""
    run_until_worker_dies(begun, Point.BEFORE_COMMIT, action, spark)
    assert begun.snapshots() == 2

    begun.run(spark)

    assert begun.snapshots() == EPOCHS


@pytest.mark.parametrize("point", few(1, [Point.IN_TASK, Point.AFTER_TASK]))
def test_task_worker_dies(begun: Stream, spark: SparkSession, point: FaultPoint) -> None:
    """Rows of a task that Spark gave up would be in the table, or the epoch's rows lost."""
    run_until_worker_dies(begun, point, Action.KILL_WORKER, spark)
    assert begun.snapshots() == 2

    begun.run(spark)

    assert begun.snapshots() == EPOCHS


@pytest.mark.exhaustive
@pytest.mark.parametrize("action", [Action.RAISE, Action.KILL_WORKER])
def test_spark_repeats_task(stream: Stream, retrying_spark: SparkSession, action: Action) -> None:
    """Rows of a task that Spark ran twice would be in the table twice."""
    fault = fault_at(stream.grow(2), Point.IN_TASK, action)

    stream.job(fault, **WRITE_AT_ONCE).run(retrying_spark)

    assert fault.has_struck
    stream.check_complete()
    assert stream.snapshots() == 2
    if action is Action.RAISE:  # a killed worker cannot clean up
        assert not stream.orphans()
