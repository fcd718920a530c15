"""Several writers at once: nobody's rows are lost, nobody's land twice, and nobody fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.checks.delete_soundness import check_deletes
from support.checks.invariants import unreferenced_files
from support.checks.version_3 import check_version_3, row_ids
from support.exhaustive import few
from support.keys.upserts import commit_upsert
from support.programs.races import all_ids, leftovers, race, wins
from support.spark.jobs import numbered
from support.spark.tables import Warehouse
from support.tables.sink import Sink, rows

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options
from iceberg_ds.planning.plan_write import WriteMode

WRITERS = 8
TIMEOUT_S = 600


@pytest.mark.exhaustive
@pytest.mark.parametrize("repetition", few(1, range(3)))
def test_processes_that_create_one_table_at_once_all_succeed(house: Warehouse, tmp_path: Path, repetition: int) -> None:
    """Of jobs that start together on a new table, some would fail or lose their rows."""
    options = {**house.options, "table": "db.t"}

    commits = race(options, tmp_path / f"race-{repetition}", writers=WRITERS, commits=1, timeout_s=TIMEOUT_S)

    assert [commit.error for commit in commits if commit.error] == []
    assert house.ids() == all_ids(WRITERS, commits=1)
    assert len(house.snapshots()) == WRITERS
    assert not leftovers(house.table(), house.folder / "db" / "t")


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", ["2", "3"])
def test_processes_that_append_at_once_lose_nothing(house: Warehouse, tmp_path: Path, version: str) -> None:
    """Under contention, commits would overwrite each other, give up, or fill the folder with files of no use."""
    options = {**house.options, "table": "db.t", "format-version": version}
    appends = 12

    commits = race(options, tmp_path / "race", writers=WRITERS, commits=appends, timeout_s=TIMEOUT_S)

    assert [commit.error for commit in commits if commit.error] == []
    assert wins(commits) == dict.fromkeys(range(WRITERS), appends)
    assert house.ids() == all_ids(WRITERS, appends)
    assert len(house.snapshots()) == WRITERS * appends
    assert not leftovers(house.table(), house.folder / "db" / "t")
    if version == "3":
        assert len(row_ids(house.table())) == len(all_ids(WRITERS, appends))


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", ["2", "3"])
def test_processes_that_upsert_rows_of_one_file_at_once_lose_nothing(
    house: Warehouse, tmp_path: Path, version: str
) -> None:
    """A row would be there twice because another writer's deletion vector took the place of ours, or be lost."""
    options = {**house.options, "table": "db.t", "format-version": version, "keys": "id"}
    writers, upserts = 3, 2
    parsed = parse_options({**options, "table-property.commit.retry.num-retries": "100"})
    sink = Sink(catalog=connect(catalog_settings(parsed)), options=parsed)
    plan = sink.plan(mode=WriteMode.UPSERT)
    old = [{"id": number, "name": "old"} for number in all_ids(writers, upserts)]
    commit_upsert(sink, plan, "position", sink.write(old, plan=plan))

    commits = race(options, tmp_path / "race", writers=writers, commits=upserts, timeout_s=TIMEOUT_S)

    assert [commit.error for commit in commits if commit.error] == []
    assert house.rows().to_pylist() == rows(*all_ids(writers, upserts))
    assert unreferenced_files(house.table()) == set()
    check_deletes(house.table())
    if version == "3":
        check_version_3(house.table())


def test_threads_of_one_session_append_at_once(spark: SparkSession, house: Warehouse) -> None:
    """Parallel jobs of one Spark session would fail, or take each other's commits."""
    frames = [numbered(spark, 100 * number, 100 * number + 50) for number in range(4)]

    with ThreadPoolExecutor(max_workers=2, initializer=iceberg_ds.register, initargs=(spark,)) as threads:
        list(threads.map(house.append, frames))

    assert house.ids() == [100 * number + row for number in range(4) for row in range(50)]
    assert len(house.snapshots()) == 4
