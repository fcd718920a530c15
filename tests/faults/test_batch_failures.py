"""A batch write that fails on its way: in the query above it, in the catalog, or because it is cancelled."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType
from support.checks.invariants import unreferenced_files
from support.exhaustive import EXHAUSTIVE, few
from support.spark.jobs import BatchJob, numbered
from support.spark.process import wait_until
from support.spark.stream_upstream import HeldBack, finished_tasks
from support.spark.tables import Warehouse

ROWS = 10


@pytest.fixture
def used(house: Warehouse, spark: SparkSession) -> Warehouse:
    """Return a warehouse whose table `db.t` has ten rows, and whose commits are tried twice."""
    BatchJob(rows=ROWS, options=house.options).run(spark)
    with house.table().transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "1"})
    return house


@contextmanager
def trigger_on_commit(house: Warehouse, raises: str) -> Iterator[None]:
    """Let SQLite do this, in the words of its `RAISE`, instead of a commit."""
    with closing(sqlite3.connect(house.folder / "catalog.db")) as database:
        database.execute(f"CREATE TRIGGER refuse BEFORE UPDATE ON iceberg_tables BEGIN SELECT RAISE({raises}); END")
        try:
            yield
        finally:
            database.execute("DROP TRIGGER refuse")


def append_and_disturb(house: Warehouse, spark: SparkSession, gate: Path, disturb: Callable[[], None]) -> str:
    """Append two partitions, the second of which fails at `gate`; disturb when the first is done. Return the error."""
    # Its rows come to the sink in two batches, and it fails in the second one.
    id_or_failure = udf(HeldBack(row=35_000, gate=gate), LongType(), useArrow=False)
    rows = numbered(spark, 0, 40_000).withColumn("id", id_or_failure("id"))

    def disturb_in_time() -> None:
        wait_until(lambda: finished_tasks(spark.sparkContext) == 1, "the first task is done")
        disturb()

    # Spark 4.3 finds Python data sources in the thread that made the session only, so that one appends.
    with ThreadPoolExecutor(max_workers=1) as background:
        disturbance = background.submit(disturb_in_time)
        with pytest.raises((PySparkException, Py4JJavaError)) as raised:
            house.append(rows)
        disturbance.result()
    return str(raised.value)


def check_unchanged(house: Warehouse) -> None:
    """Assert that the table has the rows that it had."""
    assert house.ids() == list(range(ROWS))
    assert len(house.snapshots()) == 1


def check_finished_task_left_nothing(house: Warehouse) -> None:
    """Assert that no file of the first task stayed; Spark's death of a task gives the other no chance to clean up."""
    assert not [path for path in unreferenced_files(house.table()) if path.name.startswith("00000-")]


@EXHAUSTIVE
def test_failing_query_commits_nothing(used: Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    """Half of a result would be in the table: a task whose rows fail above the sink ends there as if it were done."""
    gate = tmp_path / "gate"

    error = append_and_disturb(used, spark, gate, gate.touch)

    assert "planned fault above the sink" in error
    check_unchanged(used)
    check_finished_task_left_nothing(used)


@pytest.mark.exhaustive
def test_cancelled_job_commits_nothing(used: Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    """Half of a result would be in the table after Ctrl-C."""
    error = append_and_disturb(used, spark, tmp_path / "gate", spark.sparkContext.cancelAllJobs)

    assert "cancelled" in error
    check_unchanged(used)
    check_finished_task_left_nothing(used)


@pytest.mark.parametrize(
    "raises", few(1, ["FAIL, 'disk on fire'", "IGNORE"]), ids=["an error", "a race that nobody won"]
)
def test_commit_of_unknown_outcome_keeps_its_files(used: Warehouse, spark: SparkSession, raises: str) -> None:
    """Files of rows that may still land would be deleted, and the table could not be read any more."""
    with trigger_on_commit(used, raises), pytest.raises(PySparkException, match="is unknown"):
        BatchJob(first=ROWS, rows=ROWS, options={**used.options, "small-task-size-bytes": "0"}).run(spark)

    check_unchanged(used)
    assert len([path for path in unreferenced_files(used.table()) if path.suffix == ".parquet"]) == 2
