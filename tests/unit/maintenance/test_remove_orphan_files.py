"""Files that nothing refers to: which are told and deleted, and which are not."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support import reporters
from support.checks.invariants import check_clean, check_sound
from support.tables.changes_by_others import plain_catalog
from support.tables.sink import NAME, Sink, local, rows

import iceberg_ds
from iceberg_ds.cli import main
from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.inspect.checklist import NotTriedError
from iceberg_ds.inspect.orphan_rules import EVERY_FILE, OrphanRules, split_key
from iceberg_ds.inspect.orphans import listed_folders, now_of_stores_ms


def options_of(sink: Sink) -> dict[str, str]:
    """Return the options that lead to the sink's catalog."""
    return {"warehouse": str(sink.options.warehouse)}


def leave_behind(sink: Sink, days: float = 5) -> Path:
    """Write a file that no commit names, so many days ago, and return its path."""
    sink.append(1, 2)
    (message,) = sink.write(rows(3))
    path = local(message.data_files[0].file_path)
    then = time.time() - days * 86_400
    os.utime(path, (then, then))
    return path


def test_old_file_that_nothing_refers_to_is_deleted(sink: Sink) -> None:
    """Killed writes would cost space for ever."""
    path = leave_behind(sink)

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink))

    assert [local(orphan.path) for orphan in result.orphan_files] == [path]
    assert (result.deleted_files_count, result.left_files_count, result.too_young) == (1, 0, 0)
    assert sink.ids() == [1, 2]
    check_clean(sink.table())


def test_dry_run_deletes_nothing(sink: Sink) -> None:
    """A user could not look first."""
    path = leave_behind(sink)

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), older_than="now", dry_run=True)

    assert [local(orphan.path) for orphan in result.orphan_files] == [path]
    assert result.deleted_files_count == 0
    assert path.exists()
    assert str(result).startswith("Nothing refers to 1 file with ")


def test_run_that_deletes_reports_how_many(sink: Sink) -> None:
    """A user's metrics would not tell that somebody cleans up."""
    leave_behind(sink)
    named = {**options_of(sink), "metrics-reporter": "support.reporters:keep"}
    reporters.kept.clear()

    iceberg_ds.remove_orphan_files(NAME, options=named, dry_run=True)
    iceberg_ds.remove_orphan_files(NAME, options=named)
    iceberg_ds.remove_orphan_files(NAME, options=named)

    assert [(one.operation, one.outcome, one.counts) for one in reporters.kept] == [
        ("remove_orphan_files", "maintained", {"orphan-files": 1, "deleted-files": 1})
    ]


def test_young_file_may_be_of_a_running_write(sink: Sink) -> None:
    """Its commit would name a file that is gone."""
    path = leave_behind(sink, days=2)
    since = datetime.now(tz=timezone.utc)

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink))
    with pytest.raises(OptionError, match="that are younger than 24h: a write that still runs may have them"):
        iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), older_than=since)

    assert (result.orphan_files, result.too_young) == ((), 1)
    assert path.exists()
    assert iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), older_than=since, force=True).orphan_files
    check_sound(sink.table())


@pytest.mark.parametrize("force", ["false", "no", 1])
def test_only_a_true_force_deletes_young_files(sink: Sink, force: Any) -> None:
    """The word `false` of a settings file would delete the files of a running write."""
    path = leave_behind(sink, days=0)

    with pytest.raises(OptionError, match=f"force is {force!r}, expected True or False"):
        iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), older_than="now", force=force)

    assert path.exists()


def test_folder_that_no_file_was_written_to_yet_stops_nothing(sink: Sink, tmp_path: Path) -> None:
    """A table that was told of another folder could not be cleaned up before its next write."""
    path = leave_behind(sink)
    with plain_catalog(sink).load_table(NAME).transaction() as change:
        change.set_properties(
            {"write.data.path": f"file://{tmp_path}/new", "write.object-storage.path": "/none/at/all"}
        )

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink))

    assert (result.orphan_files_count, path.exists()) == (1, False)


def test_clock_of_the_tables_own_folder_is_always_asked(sink: Sink, tmp_path: Path) -> None:
    """Files would be deleted by the clock of another store, which may be ahead."""
    leave_behind(sink)
    (tmp_path / "there").mkdir()
    with plain_catalog(sink).load_table(NAME).transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/there"})
    table = sink.table()
    local(table.metadata.location).rename(tmp_path / "moved")

    folders = listed_folders(table, EVERY_FILE)

    assert folders == [table.metadata.location, f"file://{tmp_path}/there"]
    with pytest.raises(NotTriedError, match="does not tell what time it is"):
        now_of_stores_ms(table.io.properties, folders, by_store_clock=True)


def test_nothing_is_deleted_where_other_tables_may_have_it(sink: Sink) -> None:
    """Rows of another table would be gone."""
    path = leave_behind(sink)
    with sink.table().transaction() as change:
        change.set_properties(**{"gc.enabled": "false"})

    with pytest.raises(UnsupportedTableError, match=r"Cannot remove orphan files of db\.t: refused: .*gc\.enabled"):
        iceberg_ds.remove_orphan_files(NAME, options=options_of(sink))

    assert path.exists()


def test_only_files_below_a_location_go(sink: Sink) -> None:
    """A user who names a folder would lose files elsewhere."""
    inside, outside = leave_behind(sink), leave_behind(sink)
    folder = inside.parent / "p=1 %20"
    folder.mkdir()
    inside = inside.rename(folder / inside.name)

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), location=f"file:{folder}")

    assert [local(orphan.path) for orphan in result.orphan_files if orphan.deleted] == [inside]
    assert outside.exists()
    check_sound(sink.table())


@pytest.mark.parametrize("place", ["{table}_old", "{table}/..", "{table}/data/../../other", "s3://bucket/t", "/"])
def test_location_outside_of_the_table_is_refused(sink: Sink, place: str) -> None:
    """The files of a table whose name begins with this one's, or of all tables around it, would go."""
    leave_behind(sink)
    location = place.format(table=sink.table().metadata.location)

    with pytest.raises(OptionError, match=r"Cannot remove orphan files: location .*(not within|no one folder)"):
        iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), location=location)


def test_files_of_a_table_below_a_location_stay_though_its_metadata_is_elsewhere(sink: Sink) -> None:
    """A narrow look would see no metadata of the table whose rows it finds, and delete them."""
    stray = leave_behind(sink)
    folder = local(sink.table().metadata.location)
    catalog = plain_catalog(sink)
    properties = {"write.data.path": f"file://{folder}/data/theirs"}
    other = catalog.create_table("db.o", sink.table().schema(), location=f"file://{folder}/o", properties=properties)
    other.append(sink.table().scan().to_arrow())
    (theirs,) = (folder / "data" / "theirs").rglob("*.parquet")
    os.utime(theirs, (0, 0))

    result = iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), location=f"file://{folder}/data")

    assert [local(orphan.path) for orphan in result.orphan_files if orphan.deleted] == [stray]
    assert theirs.exists()


def test_streamed_result_names_a_sample(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a table with millions of orphans would not fit into memory."""
    for _ in range(3):
        leave_behind(sink)
    monkeypatch.setattr("iceberg_ds.maintenance.remove_orphan_files.MOST_SAMPLES", 2)

    result = iceberg_ds.remove_orphan_files(
        NAME, options=options_of(sink), stream_results=True, max_concurrent_deletes=2
    )

    assert (len(result.orphan_files), result.orphan_files_count, result.deleted_files_count) == (2, 3, 3)
    assert result.orphan_files_bytes > 0
    check_clean(sink.table())


@pytest.mark.parametrize(
    ("argument", "value", "problem"),
    [
        ("prefix_mismatch_mode", "drop", "prefix_mismatch_mode is 'drop', expected error, ignore or delete"),
        ("max_concurrent_deletes", 0, "max_concurrent_deletes is 0, expected a whole number from 1"),
        ("equal_schemes", "s3a=s3", "equal_schemes is 's3a=s3', expected a mapping"),
        ("equal_schemes", {"s3a://": "s3"}, "equal_schemes has 's3a://': 's3', expected names without slashes"),
        ("equal_authorities", {"": "a"}, "equal_authorities has '': 'a', expected names without slashes"),
        ("file_list", ["a"], r"file_list is \['a'\], expected a DataFrame, or the name of a table or view"),
        ("location", 5, "location is 5, expected a text or None"),
        ("dry_run", "false", "dry_run is 'false', expected True or False"),
        ("stream_results", 0, "stream_results is 0, expected True or False"),
        ("file_list", "inventory", "file_list is 'inventory', and no session of Spark is given or active"),
    ],
)
def test_malformed_argument_is_refused(sink: Sink, argument: str, value: object, problem: str) -> None:
    """It would be taken for another wish."""
    path = leave_behind(sink)
    given: dict[str, Any] = {argument: value}

    with pytest.raises(OptionError, match=problem):
        iceberg_ds.remove_orphan_files(NAME, options=options_of(sink), **given)

    assert path.exists()


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("s3a://bucket/t/a b%20.parquet", "s3://bucket/t/a b%20.parquet"),
        ("s3n://old/t/x", "s3://bucket/t/x"),
        ("oss://old/t//x", "s3://bucket/t/x"),
        ("hdfs://nn1:8020/t/x", "hdfs://ns/t/x"),
        ("s3://older/t/x", "s3://older/t/x"),
    ],
)
def test_equal_names_make_one_key(path: str, key: str) -> None:
    """Files of a table would look like orphans, or two files like one."""
    rules = OrphanRules.of(
        None, {"s3a,s3n": "s3", "oss": "s3a"}, {"old": "bucket", "nn1:8020, nn2:8020": "ns"}, "error"
    )

    assert rules.key(path) == key
    assert "".join(split_key(key)) == key


def test_command_deletes_and_tells(sink: Sink) -> None:
    """A scheduler could not clean up."""
    leave_behind(sink)

    done = CliRunner().invoke(
        main, ["remove-orphan-files", NAME, "--option", f"warehouse={sink.options.warehouse}", "--json"]
    )

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["deleted_files_count"] == 1
    check_clean(sink.table())


def test_command_takes_the_arguments_of_the_procedure(sink: Sink) -> None:
    """A scheduler could not clean up a large table, or one whose store has two names."""
    path = leave_behind(sink)
    common = ["remove-orphan-files", NAME, "--option", f"warehouse={sink.options.warehouse}"]
    names = [
        "--equal-schemes",
        "hdfs,viewfs=file",
        "--equal-authorities",
        "old=new",
        "--prefix-mismatch-mode",
        "ignore",
    ]
    more = ["--location", str(path.parent), "--max-concurrent-deletes", "4", "--stream-results", "--json"]

    wrong = CliRunner().invoke(main, [*common, "--equal-schemes", "hdfs"])
    done = CliRunner().invoke(main, [*common, *names, *more])

    assert (wrong.exit_code, done.exit_code) == (2, 0), done.output
    assert "such as s3a,s3n=s3" in wrong.stderr
    assert json.loads(done.stdout)["orphan_files_count"] == 1
    check_clean(sink.table())
