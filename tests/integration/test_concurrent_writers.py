"""Several Spark drivers that write into one table at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checks.invariants import unreferenced_files
from support.exhaustive import EXHAUSTIVE
from support.hooks.faults import Action, Fault, Point
from support.hooks.hooked_sink import HookedSink
from support.keys.streams import rows_in
from support.spark.jobs import BatchJob, StreamJob, dump, write_source
from support.spark.process import SparkProcess, wait_until
from support.spark.tables import Warehouse


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SparkProcess]]:
    """Return two Spark drivers in processes of their own."""
    with (
        SparkProcess(tmp_path_factory.mktemp("left")) as left,
        SparkProcess(tmp_path_factory.mktemp("right")) as right,
    ):
        yield [left, right]


@pytest.mark.exhaustive
def test_spark_drivers_that_create_one_table_at_once_both_succeed(
    drivers: list[SparkProcess], house: Warehouse, tmp_path: Path
) -> None:
    """Of two jobs that both find no table, one would fail, or replace the table with the rows of the other in it."""
    faults = [
        Fault(point=Point.BEFORE_COMMIT, action=Action.WAIT, fuse=tmp_path / f"{number}.fuse") for number in (0, 1)
    ]
    for number, (driver, fault) in enumerate(zip(drivers, faults, strict=True)):
        options = {**house.options, **fault.arm()}
        driver.send(dump(BatchJob(first=number * 10, options=options, sink=HookedSink.name())))
    wait_until(lambda: all(fault.barrier.exists() for fault in faults), "both are about to commit")
    assert not house.has_table()
    for fault in faults:
        fault.barrier.unlink()
    errors = [driver.wait_answer() for driver in drivers]

    assert errors == [None, None]
    assert house.ids() == list(range(20))
    assert len(house.snapshots()) == 2
    assert unreferenced_files(house.table()) == set()


@pytest.mark.exhaustive
def test_drivers_that_create_one_table_with_keys_at_once_leave_one_row_of_each(
    drivers: list[SparkProcess], house: Warehouse, tmp_path: Path
) -> None:
    """Of two jobs that both find no table, one would fail, or both leave a row of the same key."""
    faults = [
        Fault(point=Point.BEFORE_COMMIT, action=Action.WAIT, fuse=tmp_path / f"{number}.fuse") for number in (0, 1)
    ]
    for number, (driver, fault) in enumerate(zip(drivers, faults, strict=True)):
        options = {**house.options, "keys": "id", "partition-by": "truncate(10, name)", **fault.arm()}
        driver.send(dump(BatchJob(first=number * 5, options=options, sink=HookedSink.name())))
    wait_until(lambda: all(fault.barrier.exists() for fault in faults), "both are about to commit")
    assert not house.has_table()
    for fault in faults:
        fault.barrier.unlink()
    errors = [driver.wait_answer() for driver in drivers]

    assert errors == [None, None]
    assert rows_in(house) == [(i, f"row {i}") for i in range(15)]
    assert len(house.snapshots()) == 2
    assert unreferenced_files(house.table()) == set()


@EXHAUSTIVE
def test_spark_drivers_that_append_at_once_lose_nothing(drivers: list[SparkProcess], house: Warehouse) -> None:
    """Rows of jobs that run beside one another would be lost, or their jobs fail."""
    for number, driver in enumerate(drivers):
        driver.send(dump(BatchJob(first=number * 50, appends=5, options=house.options)))
    errors = [driver.wait_answer() for driver in drivers]

    assert errors == [None, None]
    assert house.ids() == list(range(100))
    assert len(house.snapshots()) == 10
    assert unreferenced_files(house.table()) == set()


@pytest.mark.exhaustive
def test_stream_and_batches_of_another_driver_lose_nothing(
    drivers: list[SparkProcess], house: Warehouse, tmp_path: Path
) -> None:
    """A backfill beside a running stream would cost rows of one of them, or stop the stream."""
    stream, batches = drivers
    write_source(tmp_path / "source", [range(number * 10, number * 10 + 10) for number in range(4)])
    job = StreamJob(source=str(tmp_path / "source"), checkpoint=str(tmp_path / "checkpoint"), options=house.options)
    stream.send(dump(job))
    batches.send(dump(BatchJob(first=1000, appends=4, options=house.options)))
    errors = [stream.wait_answer(), batches.wait_answer()]

    assert errors == [None, None]
    assert house.ids() == [*range(40), *range(1000, 1040)]
    assert len(house.snapshots()) == 8
