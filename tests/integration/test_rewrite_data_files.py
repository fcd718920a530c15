"""Rewrites of data files as Spark jobs: from a notebook's session, from the command, and beside a stream."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.manifest import DataFileContent
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import listed, rows_of
from support.exhaustive import EXHAUSTIVE
from support.spark.tables import FORMAT, Warehouse
from support.tables.sink import NAME

import iceberg_ds
from iceberg_ds import cli
from iceberg_ds.cli import main
from iceberg_ds.spark.task_job import TaskJob


def fill(spark: SparkSession, house: Warehouse, **more: str) -> None:
    """Write a table in six batches of small files."""
    iceberg_ds.register(spark)
    for number in range(6):
        rows = spark.range(100 * number, 100 * number + 100, 1, 2).select("id", (F.col("id") % 3).alias("part"))
        rows.write.format(FORMAT).mode("append").options(**house.options, **more).save(NAME)


def ids(house: Warehouse) -> list[int]:
    """Return the ids of all rows in order."""
    return sorted(row["id"] for row in rows_of(house.table()))


@pytest.mark.parametrize("more", [{}, {"partition-by": "part", "sort-by": "id desc"}], ids=["plain", "partitioned"])
def test_job_rewrites_what_spark_wrote(spark: SparkSession, house: Warehouse, more: dict[str, str]) -> None:
    """A user's notebook could not compact a table."""
    fill(spark, house, **more)

    result = iceberg_ds.rewrite_data_files(NAME, spark, strategy="sort" if more else "binpack", options=house.options)

    assert ids(house) == list(range(600))
    assert result.added_data_files_count == len(house.table().inspect.data_files()) == (3 if more else 1)
    check_clean(house.table())


def test_job_sorts_by_several_columns_alike(spark: SparkSession, house: Warehouse) -> None:
    """A user's notebook could not use Z-order, or a task not read what it is told."""
    fill(spark, house)
    options = {**house.options, "var-length-contribution": "4", "max-output-size": "16"}

    result = iceberg_ds.rewrite_data_files(NAME, spark, strategy="sort", sort_order="zorder(part, id)", options=options)

    assert ids(house) == list(range(600))
    assert result.added_data_files_count == 1
    (file,) = listed(house.table())[DataFileContent.DATA]
    found = [(row["part"], row["id"]) for row in file.rows()]
    assert found not in (sorted(found), sorted(found, key=lambda pair: pair[1]))
    assert [part >= 2 for part, _ in found] == sorted(part >= 2 for part, _ in found)  # the first bit
    check_clean(house.table())


def test_failed_job_commits_nothing(spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files would be dropped whose rows were not written anew."""
    fill(spark, house)

    def broken(*_: Any) -> Any:
        def run(*_: Any) -> bytes:
            raise MemoryError("planned")

        return run

    monkeypatch.setattr(TaskJob, "_task", broken)
    with pytest.raises(iceberg_ds.DataFileError, match="nothing was committed: Spark's job failed"):
        iceberg_ds.rewrite_data_files(NAME, spark, options=house.options)

    assert ids(house) == list(range(600))
    assert len(house.table().metadata.snapshots) == 6


@EXHAUSTIVE
def test_upserts_beside_rewrites_keep_their_rows(spark: SparkSession, house: Warehouse) -> None:
    """A rewrite would take back an upsert, or an upsert find no row to replace."""
    fill(spark, house)
    options = {**house.options, "min-input-files": "2", "delete-ratio-threshold": "0.01"}
    done = threading.Event()
    failed: list[BaseException] = []
    rewritten: list[int] = []

    def rewrite() -> None:
        try:
            while not done.is_set():
                rewritten.append(iceberg_ds.rewrite_data_files(NAME, options=options).rewritten_data_files_count)
        except BaseException as problem:  # shown below
            failed.append(problem)

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        for number in range(6):
            changed = spark.range(number, 600, 7).select("id", F.lit(10 + number).cast("bigint").alias("part"))
            iceberg_ds.upsert(changed, NAME, keys="id", options=house.options)
    finally:
        done.set()
        thread.join()

    assert failed == []
    assert sum(rewritten) > 0
    found = {row["id"]: row["part"] for row in rows_of(house.table())}
    assert found == {number: 10 + number % 7 if number % 7 < 6 else number % 3 for number in range(600)}
    check_sound(house.table())


@EXHAUSTIVE
def test_command_says_what_it_did(spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler could not compact tables, or not see whether it did."""
    fill(spark, house)

    class _Lasting:
        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> SparkSession:
            return spark

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(cli, "_session", _Lasting)
    options = ("--option", f"warehouse={house.folder}", "--option", "min-input-files=2")
    first = CliRunner().invoke(main, ["rewrite-data-files", NAME, *options, "--where", "id < 300", "--json"])
    second = CliRunner().invoke(main, ["rewrite-data-files", NAME, *options, "--strategy", "sort"])

    said = json.loads(first.stdout)
    assert (said["rewritten_data_files_count"], said["added_data_files_count"]) == (3, 1)
    assert second.exit_code == 2
    assert "the table has no sort order. Give sort_order." in second.stderr
    assert ids(house) == list(range(600))
