"""Expiry whose files Spark finds: the same go as in one process, and none that a snapshot refers to."""

from __future__ import annotations

import logging
from contextlib import redirect_stdout
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate
from pyspark.sql import DataFrame, SparkSession
from support.checks.invariants import check_clean, check_sound, referenced_files
from support.exhaustive import EXHAUSTIVE
from support.keys.conversions import meanwhile
from support.tables.changes_by_others import plain_catalog, register_elsewhere
from support.tables.damage import cut_off
from support.tables.expiry import expired, soon_ms
from support.tables.sink import NAME, Sink, epoch, local, rows

import iceberg_ds
from iceberg_ds.errors import DataFileError, OptionError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.maintenance.expire_snapshots import Expiry, Wish
from iceberg_ds.maintenance.expired_on_spark import ExpiredOnSpark
from iceberg_ds.maintenance.places_on_spark import PlacesOnSpark
from iceberg_ds.snapshots.manifests import live_manifests


def history(sink: Sink) -> None:
    """Give the table a history with replaced rows, merged manifests, a branch and a tag."""
    sink.append(0)
    change = SetPropertiesUpdate(updates={"commit.manifest.min-count-to-merge": "2"})
    sink.catalog.send(sink.table(), (), (change,))
    for number in range(1, 4):
        sink.append(number, of_epoch=epoch(number))
    sink.commit(sink.write(rows(7), plan=sink.plan(branch="audit", create_branch=True)))
    sink.overwrite(rows(4, 8))
    sink.overwrite(rows(5))
    sink.append(6)


def stored(sink: Sink) -> set[Path]:
    """Return the table's files."""
    return {path for path in local(sink.table().metadata.location).rglob("*") if path.is_file()}


def counts(result: iceberg_ds.ExpireResult) -> dict[str, object]:
    """Return a result without its time."""
    return {name: value for name, value in asdict(result).items() if name not in {"seconds", "dry_run"}}


@pytest.mark.parametrize("streams", [pytest.param(False, marks=EXHAUSTIVE), True])
@EXHAUSTIVE
def test_the_same_files_go_as_in_one_process(spark: SparkSession, sink: Sink, streams: bool) -> None:  # noqa: FBT001
    """A large table would expire by other rules."""
    history(sink)
    expected = expired(sink, dry_run=True)
    before = stored(sink)

    seen = expired(sink, spark=spark, dry_run=True, stream_results=streams)
    assert stored(sink) == before
    done = expired(sink, spark=spark, stream_results=streams, max_concurrent_deletes=2)

    assert counts(seen) == counts(expected)
    assert counts(done) == counts(expected)
    assert done.deleted_data_files_count == 1
    assert done.deleted_manifest_files_count > 0
    assert sink.ids() == [5, 6]
    check_sound(sink.table())


def test_plans_do_not_hold_those_of_what_was_found_before(
    spark: SparkSession, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps the texts of a thousand plans: a session that lives long would run out of memory."""
    history(sink)
    keep, lines = PlacesOnSpark.keep, []

    def counting(places: PlacesOnSpark, frame: DataFrame) -> DataFrame:
        found = keep(places, frame)
        with redirect_stdout(StringIO()) as plan:
            found.explain()
        lines.append(plan.getvalue().count("\n"))
        return found

    monkeypatch.setattr(PlacesOnSpark, "keep", counting)

    assert expired(sink, spark=spark, dry_run=True).deleted_data_files_count == 1
    assert len(lines) > 3
    assert max(lines) < 10


@EXHAUSTIVE
def test_table_that_was_appended_to_loses_lists_alone(spark: SparkSession, sink: Sink) -> None:
    """Files that live on would go with the snapshot that brought them."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))

    result = expired(sink, spark=spark)

    assert (result.deleted_manifest_lists_count, result.deleted_manifest_files_count) == (2, 0)
    assert result.deleted_data_files_count == 0
    assert sink.ids() == [0, 1, 2]
    check_clean(sink.table())


@EXHAUSTIVE
def test_file_that_a_later_snapshot_refers_to_stays(spark: SparkSession, sink: Sink) -> None:
    """Whoever adds a file again, or picks it, would lose its rows."""
    sink.append(1)
    sink.overwrite(rows(2))
    sink.overwrite(rows(3))
    table = sink.table()
    first = live_manifests(table.io, table.metadata.snapshots[0])[0]
    entry = first.fetch_manifest_entry(table.io)[0]

    def add() -> None:
        with plain_catalog(sink).load_table(NAME).transaction() as done, done.update_snapshot().fast_append() as append:
            append.append_data_file(entry.data_file)

    with meanwhile(FaultPoint.SNAPSHOTS_EXPIRED, add):
        result = expired(sink, spark=spark)

    assert (result.deleted_data_files_count, result.left_files) == (1, 0)
    assert sink.ids() == [1, 3]
    check_sound(sink.table())


@EXHAUSTIVE
def test_manifest_that_cannot_be_read_leaves_all_files(spark: SparkSession, sink: Sink) -> None:
    """Files of a snapshot that stays would go, because nobody could read that it has them."""
    history(sink)
    table = sink.table()
    kept = live_manifests(table.io, table.metadata.current_snapshot())
    cut_off(kept[0].manifest_path)
    before = stored(sink)

    with pytest.raises(DataFileError, match=r"nothing was removed: what the table refers to is not known: manifest .*"):
        expired(sink, spark=spark)

    assert stored(sink) == before


@EXHAUSTIVE
def test_job_that_fails_once_snapshots_are_removed_is_told(
    spark: SparkSession, sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call would seem to have removed nothing."""
    history(sink)
    caplog.set_level(logging.WARNING)

    def broken(*_: object) -> Any:
        raise DataFileError("Cannot expire snapshots: Spark's job failed: planned")

    monkeypatch.setattr(ExpiredOnSpark, "paths", broken)

    result = expired(sink, spark=spark)

    assert result.snapshot_ids
    assert (result.deleted_data_files_count, result.why_left) == (0, "some could not be deleted, see the log")
    assert "Spark's job failed: planned" in caplog.text
    assert sink.ids() == [5, 6]


@EXHAUSTIVE
def test_files_in_the_folder_of_another_table_stay(spark: SparkSession, sink: Sink) -> None:
    """`add_files` brings in files of other tables, which would lose their rows."""
    sink.append(1)
    other = plain_catalog(sink).create_table("db.other", sink.table().schema())
    other.append(sink.table().scan().to_arrow())
    (theirs,) = other.inspect.files().to_pydict()["file_path"]
    plain_catalog(sink).load_table(NAME).add_files([theirs])
    sink.overwrite(rows(2))

    result = expired(sink, spark=spark)

    assert (result.left_files, result.deleted_data_files_count) == (1, 1)
    assert local(theirs).exists()


@EXHAUSTIVE
def test_files_of_a_state_that_another_catalog_may_have_stay(spark: SparkSession, sink: Sink, tmp_path: Path) -> None:
    """A commit of another catalog looks like one that was killed: its rows would go."""
    sink.append(1)
    sink.overwrite(rows(9))
    other = register_elsewhere(sink, tmp_path / "elsewhere")
    other.append(77)
    sink.overwrite(rows(10))
    seen = referenced_files(other.table())

    result = expired(sink, spark=spark)

    assert result.left_files > 0
    assert "other tables, or another catalog" in str(result)
    assert all(path.exists() for path in seen)
    assert other.ids() == [9, 77]


def test_streaming_needs_a_session(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument would be taken and not heeded."""
    sink.append(1)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)

    with pytest.raises(OptionError, match="with stream_results: it needs Spark"):
        Expiry(sink.catalog, sink.options.table, Wish.of(soon_ms(), stream_results=True))
