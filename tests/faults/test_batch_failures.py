"""A batch write that fails on its way: in the query above it, in the catalog, or because it is cancelled."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Thread

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.invariants import unreferenced_files
from support.spark_jobs import BatchJob, numbered
from support.spark_process import wait_until
from support.spark_tables import Warehouse

ROWS = 10
REFUSAL = "RAISE(FAIL, 'this catalog takes no commits')"


@pytest.fixture
def house_with_rows(house: Warehouse, spark: SparkSession) -> Warehouse:
    """Return a warehouse whose table `db.t` has ten rows."""
    BatchJob(rows=ROWS, options=house.options).run(spark)
    return house


@contextmanager
def refusing_catalog(house: Warehouse) -> Iterator[None]:
    """Let the database of the catalog refuse every commit."""
    with closing(sqlite3.connect(house.folder / "catalog.db")) as database:
        database.execute(
            f"CREATE TRIGGER refuse BEFORE UPDATE ON iceberg_tables BEGIN SELECT {REFUSAL}; END"  # noqa: S608  # constant
        )
        database.commit()
        yield
        database.execute("DROP TRIGGER refuse")
        database.commit()


def check_unchanged(house: Warehouse) -> None:
    """Assert that the table has the rows that it had, and that nothing else lies in its folder."""
    assert house.ids() == list(range(ROWS))
    assert len(house.snapshots()) == 1
    assert not unreferenced_files(house.table())


def test_failing_query_commits_nothing(house_with_rows: Warehouse, spark: SparkSession) -> None:
    """Half of a result would be in the table: to its writer, a task that fails above it ends as if it were done."""
    rows = numbered(spark, 0, 40_000).selectExpr(
        "if(id = 35000, raise_error('bad row'), id) AS id", "concat('row ', id) AS name"
    )

    with pytest.raises(PySparkException, match="bad row"):
        house_with_rows.append(rows)

    assert house_with_rows.ids() == list(range(ROWS))
    assert len(house_with_rows.snapshots()) == 1


def test_finished_task_of_failing_query_leaves_no_file(house_with_rows: Warehouse, spark: SparkSession) -> None:
    """Every failed job would leave the files of its finished tasks in the table's folder for ever."""
    # One core's worth of tasks: the second one begins when the first has ended.
    slow_failure = "if(id < 5, id, if(java_method('java.lang.Thread', 'sleep', 1) IS NULL, id, id))"
    assert slow_failure
