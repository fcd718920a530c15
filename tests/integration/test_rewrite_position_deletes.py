"""Rewrites of position delete files as Spark jobs: from a session, from the command, and with tasks that fail."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from support.checks.invariants import check_clean
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE
from support.spark.tables import Warehouse
from support.tables.delete_files import delete_positions, entries
from support.tables.regions import in_region, partitioned, run
from support.tables.rewrites import hidden_rows
from support.tables.sink import NAME, Sink, embedded_options

import iceberg_ds
from iceberg_ds import cli
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.cli import main
from iceberg_ds.spark import task_job


@pytest.fixture
def filled(house: Warehouse) -> Sink:
    """Return the sink of a table of two regions with three delete files in each."""
    options = embedded_options(house.folder)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    run(partitioned(sink), "append", [*in_region("EU", *range(9)), *in_region("US", *range(20, 29))])
    for entry in entries(sink):
        for position in (1, 4, 7):
            delete_positions(sink, entry.data_file.file_path, [position])
    return sink


def test_job_rewrites_each_partition(
    spark: SparkSession, house: Warehouse, filled: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors could not run the tasks, or the driver alone would write the files of a large table."""
    rows, hidden = rows_of(filled.table()), hidden_rows(filled.table())
    real, sessions = task_job._frame, list[Any]()

    def noting(session: SparkSession, work: Any, tasks: int) -> Any:
        sessions.append((session, len(work)))
        return real(session, work, tasks)

    monkeypatch.setattr(task_job, "_frame", noting)
    options = {**house.options, "min-input-files": "2"}

    result = iceberg_ds.rewrite_position_delete_files(NAME, spark, options=options)

    assert sessions == [(spark, 2)]
    assert (result.rewritten_delete_files_count, result.added_delete_files_count) == (6, 2)
    assert hidden_rows(filled.table()) == hidden
    assert rows_of(filled.table()) == rows
    check_clean(filled.table())


def test_failed_job_commits_nothing(
    spark: SparkSession, house: Warehouse, filled: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletes would be dropped that were not written again."""
    rows = rows_of(filled.table())

    def broken(*_: Any) -> Any:
        def run(*_: Any) -> bytes:
            raise MemoryError("planned")

        return run

    monkeypatch.setattr(task_job.TaskJob, "_task", broken)
    with pytest.raises(iceberg_ds.DataFileError, match="nothing was committed: Spark's job failed"):
        iceberg_ds.rewrite_position_delete_files(NAME, spark, options={**house.options, "min-input-files": "2"})

    assert rows_of(filled.table()) == rows
    check_clean(filled.table())


@EXHAUSTIVE
def test_command_runs_a_job(
    spark: SparkSession, house: Warehouse, filled: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user could not run it from a shell."""
    monkeypatch.setattr(cli, "_session", lambda *_: nullcontext(spark))
    pairs = [part for key, value in house.options.items() for part in ("--option", f"{key}={value}")]

    told = CliRunner().invoke(
        main, ["rewrite-position-delete-files", NAME, *pairs, "--option", "min-input-files=2", "--json"]
    )

    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["added_delete_files_count"] == 2
    assert filled.ids() == [number for number in (*range(9), *range(20, 29)) if number % 20 not in (1, 4, 7)]
