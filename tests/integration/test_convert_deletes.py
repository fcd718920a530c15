"""Conversions as Spark jobs: from a notebook's session, from the command, and with tasks that fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from support.checks.invariants import check_clean, unreferenced_files
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE
from support.keys.conversions import ENCODINGS, keyed_deletes
from support.spark.tables import FORMAT, Warehouse
from support.tables.sink import NAME

import iceberg_ds
from iceberg_ds import cli
from iceberg_ds.cli import main
from iceberg_ds.deletes import job
from iceberg_ds.deletes.work import FileWork, RowEncoding
from iceberg_ds.spark import task_job
from iceberg_ds.spark.task_job import TaskJob


def upsert(house: Warehouse, rows: Any, **more: str) -> None:
    """Write rows by key."""
    options = {"keys": "id, region", "partition-by": "region", **house.options, **more}
    rows.write.format(FORMAT).mode("append").options(**options).save(NAME)


def fill(spark: SparkSession, house: Warehouse) -> list[dict[str, Any]]:
    """Write a table by key in three batches, the last of which deletes; return its rows."""
    iceberg_ds.register(spark)
    old = spark.range(0, 300, 1, 3).select("id", F.expr("concat('r', id % 3)").alias("region"), F.lit("old").alias("v"))
    upsert(house, old)
    upsert(house, old.where("id % 5 = 0").withColumn("v", F.lit("new")))
    upsert(house, old.where("id % 7 = 0"), **{"delete-when": "v = 'old'"})
    return [
        {"id": number, "region": f"r{number % 3}", "v": "old" if number % 5 else "new"}
        for number in range(300)
        if number % 7
    ]


def check(house: Warehouse, expected: list[dict[str, Any]]) -> None:
    """Assert that PyIceberg reads these rows from a whole table."""
    assert house.rows().to_pylist() == expected
    assert keyed_deletes(house.table()) == []
    check_clean(house.table())


@EXHAUSTIVE
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_job_converts_what_spark_wrote(
    spark: SparkSession, house: Warehouse, encoding: RowEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's notebook could not convert a table."""
    expected = fill(spark, house)
    monkeypatch.setattr(job, "_LEAST_BYTES", 1)

    result = iceberg_ds.convert_deletes(NAME, spark, encoding=encoding, options=house.options)

    assert result.rows == 60 + 43
    check(house, expected)
    assert iceberg_ds.convert_deletes(NAME, spark, options=house.options).snapshot_id is None


def test_active_session_is_used_if_none_is_given(
    spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large table would be searched by the driver alone, although there is a cluster."""
    expected = fill(spark, house)
    used: list[Any] = []
    real = task_job._frame

    def noting(session: SparkSession, *work: Any) -> Any:
        used.append(session)
        return real(session, *work)

    monkeypatch.setattr(task_job, "_frame", noting)
    iceberg_ds.convert_deletes(NAME, options=house.options)

    assert used
    check(house, expected)


def test_failed_job_commits_nothing(spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes would be dropped whose rows were not found."""
    fill(spark, house)
    before = rows_of(house.table())

    def broken(*_: Any) -> Any:
        def run(*_: Any) -> bytes:
            raise MemoryError("planned")

        return run

    monkeypatch.setattr(TaskJob, "_task", broken)
    with pytest.raises(iceberg_ds.DataFileError, match="nothing was committed: Spark's job failed"):
        iceberg_ds.convert_deletes(NAME, spark, options=house.options)

    assert rows_of(house.table()) == before
    assert len(house.table().metadata.snapshots) == 3


@EXHAUSTIVE
def test_missing_data_file_fails_without_a_trace(
    spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that other tasks wrote would be left behind, or the error not say which file it is."""
    fill(spark, house)
    monkeypatch.setattr(job, "_LEAST_BYTES", 1)
    real = job.grouped

    def with_a_missing_one(work: Sequence[FileWork], parallelism: int) -> list[list[FileWork]]:
        groups = real(work, parallelism)
        groups[-1][-1].data_file[1] = f"{groups[-1][-1].path}-gone"
        return groups

    monkeypatch.setattr(job, "grouped", with_a_missing_one)
    with pytest.raises(iceberg_ds.DataFileError, match=r"a task failed: FileNotFoundError: .*-gone"):
        iceberg_ds.convert_deletes(NAME, spark, options=house.options)

    assert unreferenced_files(house.table()) == set()


def run(house: Warehouse, *arguments: str) -> Result:
    """Run the command with a local Spark of one task."""
    options = ("--option", f"warehouse={house.folder}")
    return CliRunner().invoke(main, ["convert-deletes", NAME, *options, *arguments])


@pytest.fixture
def _own_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command have this process's session, which it must not stop."""

    class _Lasting:
        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> SparkSession:
            return spark

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(cli, "_session", _Lasting)


@pytest.mark.usefixtures("_own_session")
def test_command_says_what_it_did(spark: SparkSession, house: Warehouse) -> None:
    """A scheduler could not convert tables, or not see whether it did."""
    expected = fill(spark, house)

    first = run(house, "--encoding", "copy-on-write", "--json")
    second = run(house)

    assert first.exit_code == second.exit_code == 0, first.output
    said = json.loads(first.stdout)
    assert (said["table"], said["branch"], said["rows"]) == (NAME, "main", 103)
    assert said["snapshot_id"] == house.table().metadata.current_snapshot_id
    assert second.output == "Nothing to convert: branch 'main' of db.t has no equality deletes.\n"
    check(house, expected)


@pytest.mark.usefixtures("_own_session")
def test_command_ends_with_an_error_when_it_fails(house: Warehouse) -> None:
    """A scheduler would take a failure for a success."""
    missing = run(house)
    wrong = run(house, "--option", "werehouse=x")

    assert (missing.exit_code, wrong.exit_code) == (1, 2)
    assert "Error: Table db.t does not exist" in missing.stderr
    assert "unknown option 'werehouse'" in wrong.stderr


def test_command_brings_its_own_session(house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command would need a Spark that somebody has started."""
    asked: list[tuple[Any, ...]] = []
    real = cli._session

    def noting(*arguments: Any) -> Any:
        asked.append(arguments)
        return real(None, None)

    monkeypatch.setattr(cli, "_session", noting)
    run(house)
    run(house, "--remote", "sc://somewhere")

    assert [arguments[:2] for arguments in asked] == [("local[*]", None), (None, "sc://somewhere")]
