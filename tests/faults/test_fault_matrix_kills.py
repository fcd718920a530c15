"""SIGKILL at every named step of a write, batch and stream, of the Python process that comes to it; then Spark goes on.

One Spark session, one table for each kind of write: every cell leaves its rows behind, each once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from support.checks.version_3 import row_ids
from support.exhaustive import few
from support.hooks.faults import Action, Fault
from support.hooks.hooked_sink import HookedSink
from support.spark.jobs import BatchJob
from support.spark.stream_runs import Stream
from support.spark.tables import Warehouse, read_with_chdb

from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.snapshots.version_3 import VERSION_3

ROWS = 20
# Rows are written as soon as a task has them, so that a task has several files.
WRITE_AT_ONCE = {"target-file-size-bytes": "100", "small-task-size-bytes": "0"}
# Rows are so few that every task hands them over, and the committer writes them.
HAND_OVER: Mapping[str, str] = {}
COMMITTER_STEPS = [FaultPoint.TASK_WRITTEN, FaultPoint.FILE_OPENED, FaultPoint.FILE_CLOSED, FaultPoint.REQUEST_ANSWERED]
# Steps that only a write that fails by itself comes to, and where it fails.
AFTER_A_FAILURE = {FaultPoint.ABORT_BEGUN: FaultPoint.TASK_WRITTEN, FaultPoint.CLEANING_UP: FaultPoint.FILE_CLOSED}
LANDED_BY_THEN = {FaultPoint.REQUEST_ANSWERED, FaultPoint.COMMITTED}
# Writes into several tables alone come to these: `test_many_tables_kills`, and `test_report_kills` for a quarantine.
OF_MANY_TABLES = {
    FaultPoint.QUARANTINED,
    FaultPoint.TABLES_SEEN,
    FaultPoint.TABLES_CREATED,
    FaultPoint.TABLES_PREPARED,
    FaultPoint.POINTERS_READY,
    FaultPoint.TABLES_ANSWERED,
    FaultPoint.CUT_BEGUN,
    FaultPoint.CUT_TAGGED,
}
# To these come writes with `publish-converted`, expiries, and row-level operations.
OF_OTHERS = {FaultPoint.PUBLISHED, FaultPoint.SNAPSHOTS_EXPIRED, FaultPoint.ROWS_CHANGED}
STREAM_STEPS = [step for step in FaultPoint if step not in OF_OTHERS | OF_MANY_TABLES]
# A batch without a number has nothing to skip.
BATCH_STEPS = [step for step in STREAM_STEPS if step is not FaultPoint.SKIPPED]


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stream]:
    """Return a stream for each format version that all cells of it go on with."""
    return {version: Stream(folder=tmp_path_factory.mktemp("kills") / "stream", version=version) for version in "23"}


@pytest.fixture(scope="module")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Warehouse]:
    """Return a catalog for each format version that all batches of it write into."""
    return {version: Warehouse(folder=tmp_path_factory.mktemp("kills") / "batches") for version in "23"}


def kill_at(step: FaultPoint, folder: Path) -> tuple[Fault, Mapping[str, str]]:
    """Return the kill, and the options of a write that comes to it."""
    kill = Fault(point=step, action=Action.KILL_WORKER, fuse=folder / "kill")
    if step not in AFTER_A_FAILURE:
        return kill, kill.arm()
    failure = Fault(point=AFTER_A_FAILURE[step], action=Action.RAISE, fuse=folder / "failure")
    return kill, kill.arm(failure)


def in_each_version(steps: Sequence[FaultPoint]) -> list[Any]:
    """Return all steps in each format version; one step in version 2 is without a mark."""
    return [*few(1, [("2", step) for step in steps]), *few(0, [("3", step) for step in steps])]


@pytest.mark.parametrize(("version", "step"), in_each_version(STREAM_STEPS))
def test_stream_goes_on_after_a_kill_at_any_step(
    streams: dict[str, Stream], spark: SparkSession, tmp_path: Path, version: str, step: FaultPoint
) -> None:
    """Rows of the epoch would be lost, or be there twice."""
    begun = streams[version].grow(1)
    if step is FaultPoint.SKIPPED:  # which only the replay of an epoch comes to that has landed
        die(begun, spark, FaultPoint.COMMITTED, tmp_path / "before")
    epochs = begun.snapshots()

    die(begun, spark, step, tmp_path / "at")

    begun.check_no_duplicate()
    assert begun.snapshots() == epochs + (step in LANDED_BY_THEN)
    begun.run(spark)
    assert begun.snapshots() == epochs + (step is not FaultPoint.SKIPPED)
    assert [row["id"] for row in read_with_chdb(begun.warehouse.folder / "db" / "t", "id")] == begun.source_ids()
    check_ids(begun.warehouse)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("version", "step"), in_each_version(COMMITTER_STEPS))
def test_stream_whose_tasks_hand_rows_over_goes_on_after_a_kill(
    streams: dict[str, Stream], spark: SparkSession, tmp_path: Path, version: str, step: FaultPoint
) -> None:
    """Rows that no task had written would be lost with the process that had them, or be there twice."""
    begun = streams[version].grow(1)
    epochs = begun.snapshots()
    files = len(begun.warehouse.referenced()) if epochs else 0

    die(begun, spark, step, tmp_path / "at", HAND_OVER)

    assert begun.snapshots() == epochs + (step in LANDED_BY_THEN)
    begun.run(spark)
    assert begun.snapshots() == epochs + 1
    assert len(begun.warehouse.referenced()) == files + 1
    assert [row["id"] for row in read_with_chdb(begun.warehouse.folder / "db" / "t", "id")] == begun.source_ids()
    check_ids(begun.warehouse)


def die(
    stream: Stream, spark: SparkSession, step: FaultPoint, folder: Path, more: Mapping[str, str] = WRITE_AT_ONCE
) -> None:
    """Run the stream until one of its processes is killed."""
    folder.mkdir()
    kill, options = kill_at(step, folder)
    job = stream.job(kill)
    job = replace(job, options={**job.options, **more, **options})
    with pytest.raises(StreamingQueryException):
        job.run(spark)
    assert kill.has_struck


@pytest.mark.parametrize(("version", "step"), in_each_version(BATCH_STEPS))
def test_batch_lands_whole_or_not_at_all_after_a_kill_at_any_step(
    warehouses: dict[str, Warehouse], spark: SparkSession, tmp_path: Path, version: str, step: FaultPoint
) -> None:
    """Half of the rows would be in the table, or those that landed would lose their files."""
    batches = warehouses[version]
    before = batches.ids() if batches.has_table() else []
    kill, options = kill_at(step, tmp_path)
    job = BatchJob(
        first=len(before),
        rows=ROWS,
        options={**batches.options, "format-version": version, **WRITE_AT_ONCE, **options},
        sink=HookedSink.name(),
    )

    with pytest.raises((Py4JJavaError, PySparkException)):
        job.run(spark)

    assert kill.has_struck
    after = list(range(len(before) + ROWS)) if step in LANDED_BY_THEN else before
    assert (batches.ids() if batches.has_table() else []) == after
    if step not in LANDED_BY_THEN:
        job.run(spark)  # its fuse is burnt
    assert batches.ids() == list(range(len(before) + ROWS))
    assert [row["id"] for row in read_with_chdb(batches.folder / "db" / "t", "id")] == batches.ids()
    check_ids(batches)


def check_ids(house: Warehouse) -> None:
    """Assert that each row of a table of version 3 has an id of its own, and that it has all its rows."""
    table = house.table()
    if table.metadata.format_version == VERSION_3:
        assert sorted(row["id"] for row in row_ids(table).values()) == house.ids()
