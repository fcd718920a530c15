"""Branches through Spark: streams that die and come back, checks before publishing, and names that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from support.checks.invariants import unreferenced_files
from support.exhaustive import EXHAUSTIVE
from support.hooks.faults import Action, Fault, Point
from support.spark.jobs import dump, numbered, write_source
from support.spark.process import SparkProcess
from support.spark.stream_runs import Stream
from support.spark.tables import Warehouse

import iceberg_ds
from iceberg_ds.snapshots.txn import EPOCHS

ON_BRANCH = {"branch": "audit", "create_branch": "true"}


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Return a stream into a new table."""
    return Stream(folder=tmp_path)


def ids_of(house: Warehouse, branch: str) -> list[int]:
    """Return the ids of a branch in order."""
    table = house.table()
    found: list[int] = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.mark.exhaustive
def test_stream_to_a_branch_whose_driver_is_killed_lands_once_and_leaves_main_alone(
    spark: SparkSession, stream: Stream, tmp_path: Path
) -> None:
    """After a crash between commit and checkpoint, rows would be on the branch twice, or on main."""
    house = stream.warehouse
    house.append(numbered(spark, 10_000, 10_003))
    main = house.table().metadata.current_snapshot_id
    stream.grow(3)
    fault = Fault(point=Point.AFTER_COMMIT, action=Action.KILL_DRIVER, fuse=tmp_path / "fuse", epoch_id=1)
    with SparkProcess(tmp_path / "driver") as driver:
        driver.send(dump(stream.job(fault, **ON_BRANCH)))
        driver.wait_java_dead()
    assert fault.has_struck
    landed = len(house.snapshots())

    stream.job(**ON_BRANCH).run(spark)

    assert landed == 3
    assert ids_of(house, "audit") == [*stream.source_ids(), 10_000, 10_001, 10_002]
    assert [summary.get(EPOCHS.number_key) for summary in house.snapshots()] == [None, "0", "1", "2"]
    assert house.table().metadata.current_snapshot_id == main
    assert unreferenced_files(house.table()) == set()


@EXHAUSTIVE
def test_stream_goes_on_beside_the_publishing_of_its_branch(spark: SparkSession, stream: Stream) -> None:
    """Each publishing would stop the stream, or its rows be published twice."""
    house = stream.warehouse
    house.append(numbered(spark, 10_000, 10_001))
    for _ in range(2):
        stream.grow(1).job(**ON_BRANCH).run(spark)
        iceberg_ds.publish("db.t", "audit", options=house.options)

    assert house.ids() == [*stream.source_ids(), 10_000]
    assert ids_of(house, "audit") == house.ids()
    stream.job(**ON_BRANCH).run(spark)
    assert len(house.snapshots()) == 3


@pytest.mark.exhaustive
def test_stream_may_create_its_table_on_a_branch(spark: SparkSession, stream: Stream) -> None:
    """A pipeline that publishes after checks could not create its table."""
    stream.grow(1).job(**ON_BRANCH).run(spark)

    assert ids_of(stream.warehouse, "audit") == stream.source_ids()
    assert stream.warehouse.ids() == []


@EXHAUSTIVE
def test_unknown_branch_is_refused_in_batch_and_stream(spark: SparkSession, stream: Stream) -> None:
    """Rows would land on a branch that nobody reads because of a typing error."""
    house = stream.warehouse
    house.append(numbered(spark, 0, 3))
    write_source(stream.source, [range(3)])

    with pytest.raises(PySparkException, match=r"no branch 'audti' \(known: main\)"):
        house.append(numbered(spark, 3, 6), branch="audti")
    with pytest.raises(StreamingQueryException, match=r"no branch 'audti' \(known: main\)"):
        stream.job(branch="audti").run(spark)

    assert house.ids() == [0, 1, 2]
    assert set(house.table().metadata.refs) == {"main"}


@pytest.mark.exhaustive
def test_branch_that_is_dropped_between_two_runs_of_a_stream_stops_it(spark: SparkSession, stream: Stream) -> None:
    """The stream would begin the branch anew without the rows that it has already written there."""
    house = stream.warehouse
    house.append(numbered(spark, 10_000, 10_001))
    stream.grow(1).job(**ON_BRANCH).run(spark)
    with house.table().manage_snapshots() as change:
        change.remove_branch("audit")

    with pytest.raises(StreamingQueryException, match="no branch 'audit'"):
        stream.grow(1).job(branch="audit").run(spark)

    assert set(house.table().metadata.refs) == {"main"}


def test_staged_batch_that_main_overtook_is_a_conflict_that_says_where_its_rows_are(
    spark: SparkSession, house: Warehouse
) -> None:
    """Rows that came to main meanwhile would be lost, or the staged ones be looked for in vain."""
    house.append(numbered(spark, 0, 3))
    house.append(numbered(spark, 3, 4), branch="staging", create_branch="true")

    with pytest.raises(PySparkException, match=r"'staging' holds snapshot \d+, which 'main' has not"):
        house.append(numbered(spark, 5, 6), staging_branch="staging")
    iceberg_ds.publish("db.t", "staging", options=house.options)
    house.append(numbered(spark, 5, 6), staging_branch="staging")

    assert house.ids() == [0, 1, 2, 3, 5]
    assert unreferenced_files(house.table()) == set()
