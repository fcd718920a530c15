"""Orphan files that Spark looks for: the same go as in one process, and no file of a table does."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate
from pyspark.sql import DataFrame, SparkSession
from support.checks.invariants import check_clean, check_sound
from support.exhaustive import EXHAUSTIVE, few
from support.tables.changes_by_others import plain_catalog
from support.tables.damage import Listing
from support.tables.sink import NAME, Sink, epoch, local, paths_of, rows

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.inspect.orphan_rules import PrefixMismatchMode

DAY_S = 86_400


def removed(sink: Sink, spark: SparkSession, **arguments: Any) -> iceberg_ds.OrphanFilesResult:
    """Remove the orphans of the sink's table on Spark."""
    options = {"warehouse": str(sink.options.warehouse)}
    return iceberg_ds.remove_orphan_files(NAME, spark, options=options, **arguments)


def age(path: Path, days: float = 5) -> Path:
    """Let a file be so old."""
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))
    return path


def age_all(sink: Sink) -> list[Path]:
    """Let all files of the table be old; return them."""
    files = [path for path in local(sink.table().metadata.location).rglob("*") if path.is_file()]
    return [age(path) for path in files]


def left_behind(sink: Sink, days: float = 5) -> Path:
    """Write a data file as a task does whose driver is killed, and return it."""
    (path,) = paths_of(sink.write(rows(99)))
    return age(path, days)


def deleted(result: iceberg_ds.OrphanFilesResult) -> set[Path]:
    """Return the files that were deleted."""
    return {local(orphan.path) for orphan in result.orphan_files if orphan.deleted}


def file_list(spark: SparkSession, files: Mapping[str, float]) -> DataFrame:
    """Return an inventory of these paths, each so many days old."""
    now = datetime.now(tz=timezone.utc).timestamp()
    data = [(path, datetime.fromtimestamp(now - days * DAY_S, tz=timezone.utc)) for path, days in files.items()]
    return spark.createDataFrame(data, "file_path STRING, last_modified TIMESTAMP")


def before_load(monkeypatch: pytest.MonkeyPatch, number: int, action: Callable[[], object]) -> None:
    """Let something happen before the load of the table with this number."""
    load, loads = CatalogClient.load_table, 0

    def counting(client: CatalogClient, identifier: Any) -> Table:
        nonlocal loads
        loads += 1
        if loads == number:
            action()
        return load(client, identifier)

    monkeypatch.setattr(CatalogClient, "load_table", counting)


@EXHAUSTIVE
def test_the_same_files_go_as_in_one_process(spark: SparkSession, sink: Sink) -> None:
    """A large table would be cleaned up by other rules, or names with spaces and signs be taken for others."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))
    sink.commit(sink.write(rows(7), plan=sink.plan(branch="audit", create_branch=True)))
    folder = local(sink.table().metadata.location) / "data"
    names = ("plain.parquet", "a b.parquet", "p=50%25/x%2Fy.parquet", "p=\u00e9 +/%.parquet", "cut#off.parquet")
    strays = {folder / name for name in names}
    for stray in strays:
        stray.parent.mkdir(exist_ok=True)
        stray.write_bytes(b"stray")
    age_all(sink)
    young = left_behind(sink, days=1)
    expected = removed(sink, None, dry_run=True)

    seen = removed(sink, spark, dry_run=True)
    done = removed(sink, spark)

    assert {one.path for one in seen.orphan_files} == {one.path for one in expected.orphan_files}
    assert {local(one.path) for one in seen.orphan_files} == strays
    assert (seen.too_young, done.too_young) == (expected.too_young, expected.too_young) == (1, 1)
    assert deleted(done) == strays - {folder / "cut#off.parquet"}  # some libraries would delete another file for it
    assert young.exists()
    assert sink.ids() == [0, 1, 2]
    check_sound(sink.table())


@EXHAUSTIVE
def test_sample_and_counts_are_all_that_a_streamed_result_holds(
    spark: SparkSession, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would run out of memory where millions of files go."""
    sink.append(1)
    strays = [left_behind(sink) for _ in range(5)]
    monkeypatch.setattr("iceberg_ds.maintenance.remove_orphan_files.MOST_SAMPLES", 2)

    result = removed(sink, spark, stream_results=True, max_concurrent_deletes=3)

    assert (len(result.orphan_files), result.orphan_files_count, result.deleted_files_count) == (2, 5, 5)
    assert not any(path.exists() for path in strays)
    check_clean(sink.table())


@EXHAUSTIVE
def test_file_that_is_committed_between_the_looks_stays(
    spark: SparkSession, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that lands late would lose its rows."""
    sink.append(1)
    late, other = sink.write(rows(2)), left_behind(sink)
    (path,) = paths_of(late)
    age(path)
    before_load(monkeypatch, 3, lambda: sink.commit(late))

    result = removed(sink, spark)

    assert deleted(result) == {other}
    assert path.exists()
    assert sink.ids() == [1, 2]


@EXHAUSTIVE
def test_file_of_a_running_write_is_too_young(spark: SparkSession, sink: Sink) -> None:
    """Its commit would name a file that is gone."""
    sink.append(1)
    running = sink.write(rows(2))

    result = removed(sink, spark)
    sink.commit(running)

    assert (result.orphan_files_count, result.too_young) == (0, 1)
    assert sink.ids() == [1, 2]


@EXHAUSTIVE
def test_nothing_goes_while_a_manifest_cannot_be_read(spark: SparkSession, sink: Sink) -> None:
    """Of a table that is half broken, the sound half would be deleted."""
    sink.append(1)
    stray = left_behind(sink)
    local(Listing.of(sink).manifests[0].manifest_path).unlink()

    with pytest.raises(UnsupportedTableError, match=r"what the table refers to is not known: manifest .* is missing"):
        removed(sink, spark)

    assert stray.exists()


@EXHAUSTIVE
def test_listing_that_misses_files_deletes_no_other(spark: SparkSession, sink: Sink) -> None:
    """Files that an inventory leaves out would be taken for moved ones, or others for them."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))
    stray = left_behind(sink)
    age_all(sink)
    half = file_list(spark, {f"file://{stray}": 5, f"file://{paths_of(sink.write(rows(5)))[0]}": 0})

    result = removed(sink, spark, file_list=half)

    assert deleted(result) == {stray}
    assert sink.ids() == [0, 1, 2]
    check_sound(sink.table())


@EXHAUSTIVE
def test_files_of_a_table_whose_name_begins_with_this_ones_stay(spark: SparkSession, sink: Sink) -> None:
    """Of two tables side by side, `t` and `t_old`, the clean-up of one would take the files of the other."""
    sink.append(1)
    location = local(sink.table().metadata.location)
    beside = location.with_name(f"{location.name}_old")
    shutil.copytree(location, beside)
    stray = left_behind(sink)
    for path in beside.rglob("*"):
        age(path)
    files = [path for path in beside.rglob("*") if path.is_file()]
    every = {f"file://{path}": 5.0 for path in [*files, stray]}

    listed = removed(sink, spark, dry_run=True)
    result = removed(sink, spark, file_list=file_list(spark, every))

    assert [local(one.path) for one in listed.orphan_files] == [stray]
    assert deleted(result) == {stray}
    assert all(path.exists() for path in files)
    with pytest.raises(OptionError, match=r"location .*t_old is not within the table's folders"):
        removed(sink, spark, location=f"file://{beside}")


@EXHAUSTIVE
@pytest.mark.parametrize("by", few(1, ["listing", "inventory", "inventory without metadata"]))
def test_files_of_a_table_below_stay(spark: SparkSession, sink: Sink, by: str) -> None:
    """Another table would be deleted with this one's rubbish, most of all where an inventory has data files alone."""
    sink.append(1)
    location = local(sink.table().metadata.location)
    nested = location / "data" / "nested"
    catalog = plain_catalog(sink)
    schema = sink.table().schema()
    other = catalog.create_table("db.nested", schema, location=f"file://{nested}")
    other.append(sink.table().scan().to_arrow())
    stray = left_behind(sink)
    kept = set(age_all(sink)) - {stray}
    every = {f"file://{path}": 5.0 for path in [*kept, stray] if by == "inventory" or path.suffix == ".parquet"}
    given = {} if by == "listing" else {"file_list": file_list(spark, every)}

    result = removed(sink, spark, **given)

    assert deleted(result) == {stray}
    assert all(path.exists() for path in kept)
    assert catalog.load_table("db.nested").scan().to_arrow().num_rows == 1


@EXHAUSTIVE
def test_rows_of_an_old_inventory_cost_nothing(spark: SparkSession, sink: Sink) -> None:
    """A file that was written anew since the inventory would be deleted, and one that is gone be counted."""
    sink.append(1)
    anew, stray = left_behind(sink, days=0), left_behind(sink)
    gone = stray.with_name("gone.parquet")
    inventory = file_list(spark, {f"file://{path}": 9 for path in (anew, stray, gone)})

    result = removed(sink, spark, file_list=inventory)

    assert (deleted(result), result.orphan_files_count) == ({stray}, 1)
    assert anew.exists()


@EXHAUSTIVE
def test_inventory_may_be_a_view(spark: SparkSession, sink: Sink) -> None:
    """A user of the procedure names a view, and wrong columns or names would be taken for no files."""
    sink.append(1)
    stray = left_behind(sink)
    file_list(spark, {f"file:{stray}": 5}).createOrReplaceTempView("inventory")

    assert deleted(removed(sink, spark, file_list="inventory")) == {stray}
    with pytest.raises(OptionError, match="file_list is 'none', which Spark does not find"):
        removed(sink, spark, file_list="none")
    with pytest.raises(OptionError, match="columns id bigint, expected file_path string and last_modified timestamp"):
        removed(sink, spark, file_list=spark.range(1))


@EXHAUSTIVE
@pytest.mark.parametrize("mode", few(1, ["error", "ignore", "delete"]))
def test_path_that_differs_in_its_prefix_is_told_by_the_mode(
    spark: SparkSession, sink: Sink, mode: PrefixMismatchMode
) -> None:
    """All files of a table would be deleted whose store has a second name."""
    sink.append(1)
    stray = left_behind(sink)

    table = sink.table()
    statistics = StatisticsFile(
        snapshot_id=table.metadata.snapshots[-1].snapshot_id,
        statistics_path=f"hdfs://bucket{stray}",
        file_size_in_bytes=1,
        file_footer_size_in_bytes=1,
        blob_metadata=[],
    )
    sink.catalog.send(table, (), (SetStatisticsUpdate(statistics=statistics),))
    same = {"equal_schemes": {"hdfs": "file"}, "equal_authorities": {"bucket": ""}}

    for session in (spark, None) if mode == "error" else ():
        with pytest.raises(UnsupportedTableError, match="may be the same file"):
            removed(sink, session)
        assert removed(sink, session, **same).orphan_files_count == 0
    if mode != "error":
        seen = removed(sink, None, prefix_mismatch_mode=mode, dry_run=True)
        result = removed(sink, spark, prefix_mismatch_mode=mode)
        assert seen.orphan_files_count == result.orphan_files_count == (1 if mode == "delete" else 0)
    assert stray.exists() == (mode != "delete")


@EXHAUSTIVE
def test_files_that_were_moved_stop_the_deletion(spark: SparkSession, sink: Sink) -> None:
    """Rows would be deleted for good that are only at the wrong place."""
    sink.append(1)
    folder = local(sink.table().metadata.location)
    (path,) = (folder / "data").glob("*.parquet")
    (folder / "data_old").mkdir()
    moved = age(path.rename(folder / "data_old" / path.name))

    with pytest.raises(UnsupportedTableError, match="may be the same file"):
        removed(sink, spark)

    assert moved.exists()


@EXHAUSTIVE
def test_only_the_files_of_a_location_go(spark: SparkSession, sink: Sink) -> None:
    """A user who names a folder would lose files of others."""
    sink.append(1)
    inside, outside = left_behind(sink), left_behind(sink)
    folder = inside.parent / "p=1"
    folder.mkdir()
    inside = inside.rename(folder / inside.name)

    for session in (None, spark):
        seen = removed(sink, session, location=f"file://{folder}", dry_run=True)
        assert [local(one.path) for one in seen.orphan_files] == [inside]
    result = removed(sink, spark, location=f"file:{folder}/")

    assert deleted(result) == {inside}
    assert outside.exists()
