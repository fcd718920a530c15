"""Snapshots that expire, and the files that go with them: none that is needed, whatever happens in between."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    SetLocationUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetStatisticsUpdate,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, false_refusal, forbidden, refusal
from support.checks.invariants import check_clean, check_sound, referenced_files, stored_files, unreferenced_files
from support.keys.conversions import compact, convert, meanwhile
from support.keys.messages import KEYED_SCHEMA, keyed_tasks, plan_by_keys
from support.tables.changes_by_others import (
    drop_branch,
    head_of,
    plain_catalog,
    plain_table,
    register_elsewhere,
    set_branch,
    set_columns,
    set_tag,
)
from support.tables.damage import cut_off
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_equal, with_ids
from support.tables.expiry import expired, expired_by, soon_ms
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import NAME, Sink, epoch, local, rows

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.cli import main
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    OptionError,
    UnsupportedTableError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.maintenance.resting import KeptSnapshot

pytestmark = pytest.mark.usefixtures("waits")


def ids(sink: Sink) -> list[int]:
    """Return the ids of the snapshots, in order."""
    return [snapshot.snapshot_id for snapshot in sink.table().metadata.snapshots]


def change(sink: Sink, *updates: TableUpdate) -> None:
    """Let others change the table."""
    table = plain_table(sink)
    plain_catalog(sink).commit_table(table, (), updates)


@pytest.fixture
def replaced(sink: Sink) -> Sink:
    """Return a table with three snapshots, whose last one has replaced the rows of the others."""
    sink.append(1)
    sink.append(2)
    sink.overwrite(rows(9))
    return sink


def test_files_that_only_removed_snapshots_have_are_deleted(replaced: Sink) -> None:
    """They would cost space for ever; or files of the rows that stay would go, too."""
    old = ids(replaced)[:2]

    result = expired(replaced)

    assert result.snapshot_ids == tuple(sorted(old))
    assert (result.deleted_data_files_count, result.deleted_manifest_files_count) == (2, 2)
    assert (result.deleted_manifest_lists_count, result.deleted_statistics_files_count) == (2, 0)
    assert (result.left_files, result.why_left, result.kept, result.dry_run) == (0, None, (), False)
    assert replaced.ids() == [9]
    check_clean(replaced.table())


def test_appended_files_stay_with_the_snapshots_that_go(sink: Sink) -> None:
    """Each snapshot has the files of those before it."""
    for number in range(4):
        sink.append(number)

    result = expired(sink)

    assert (len(result.snapshot_ids), result.deleted_manifest_lists_count) == (3, 3)
    assert (result.deleted_data_files_count, result.deleted_manifest_files_count) == (0, 0)
    assert sink.ids() == [0, 1, 2, 3]
    check_clean(sink.table())


def test_file_that_a_merged_manifest_has_taken_over_stays(sink: Sink) -> None:
    """The manifest that had it before goes, and the rows would go with it."""
    sink.append(0)
    change(sink, SetPropertiesUpdate(updates={"commit.manifest.min-count-to-merge": "2"}))
    for number in range(1, 5):
        sink.append(number)

    result = expired(sink)

    assert result.deleted_manifest_files_count > 0
    assert result.deleted_data_files_count == 0
    assert sink.ids() == [0, 1, 2, 3, 4]
    check_sound(sink.table())


def test_manifests_that_every_snapshot_lists_are_not_read(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expiry of an append-only table would read all of it."""
    for number in range(3):
        sink.append(number)
    read: list[str] = []
    monkeypatch.setattr("iceberg_ds.maintenance.expired_files.live_paths", lambda _, path, __: read.append(path))

    expired(sink)

    assert read == []


def test_files_that_a_manifest_only_keeps_are_deleted(sink: Sink) -> None:
    """Files would cost space for ever once their manifest was written again."""
    for number in range(3):
        sink.append(number)
    iceberg_ds.rewrite_manifests(NAME, options={"warehouse": str(sink.options.warehouse)})
    expired(sink)
    sink.overwrite(rows(9))

    assert expired(sink).deleted_data_files_count == 3
    check_clean(sink.table())


def test_deletes_are_counted_by_their_kind(sink: Sink) -> None:
    """The counts would not be those of Spark's procedure."""
    sink.create(KEYED_SCHEMA)
    sink.commit(keyed_tasks(plan_by_keys(sink), [("I", 1, "EU", 1, 0), ("I", 2, "EU", 2, 0)], of_epoch=epoch(0)))
    sink.commit(keyed_tasks(plan_by_keys(sink), [("U", 1, "EU", 10, 1)], of_epoch=epoch(1)))
    convert(sink)
    compact(sink)
    before = sink.rows()

    result = expired(sink)

    assert result.deleted_equality_delete_files_count > 0
    assert result.deleted_position_delete_files_count == 0  # a compaction keeps those that may still apply
    assert result.deleted_data_files_count == 2
    assert sink.rows() == before
    check_clean(sink.table())


def statistics_of(sink: Sink, snapshot_id: int) -> list[Path]:
    """Let a snapshot have statistics of both kinds; return their files."""
    folder = local(sink.table().metadata.location) / "metadata"
    made = [folder / f"{snapshot_id}.stats", folder / f"partition-stats-{snapshot_id}.parquet"]
    for path in made:
        path.write_bytes(b"x")
    of_table = StatisticsFile(
        snapshot_id=snapshot_id,
        statistics_path=made[0].as_uri(),
        file_size_in_bytes=1,
        file_footer_size_in_bytes=1,
        blob_metadata=[],
    )
    of_partitions = PartitionStatisticsFile(
        snapshot_id=snapshot_id, statistics_path=made[1].as_uri(), file_size_in_bytes=1
    )
    change(
        sink,
        SetStatisticsUpdate(statistics=of_table),
        SetPartitionStatisticsUpdate(partition_statistics=of_partitions),
    )
    return made


def test_statistics_go_with_their_snapshots(replaced: Sink) -> None:
    """Their files, and what the table says of them, would stay for ever."""
    first, _, last = ids(replaced)
    gone, kept = statistics_of(replaced, first), statistics_of(replaced, last)

    result = expired(replaced)

    metadata = replaced.table().metadata
    assert result.deleted_statistics_files_count == 2
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept)
    assert {one.snapshot_id for one in (*metadata.statistics, *metadata.partition_statistics)} == {last}


def test_dry_run_tells_and_changes_nothing(replaced: Sink) -> None:
    """A user who looks first would find the table expired."""
    before, files = replaced.table().metadata, referenced_files(replaced.table())

    told = expired(replaced, dry_run=True)

    assert replaced.table().metadata == before
    assert all(path.exists() for path in files)
    done = expired(replaced)
    assert told.dry_run
    assert json.loads(told.to_json()) == {**json.loads(done.to_json()), "dry_run": True, "seconds": told.seconds}
    assert str(told).startswith("Would remove 2 snapshots of db.t. Would delete 2 data files,")


def test_second_call_finds_nothing(replaced: Sink) -> None:
    """A job that runs each hour would commit each time."""
    expired(replaced)
    before = replaced.table().metadata_location

    result = expired(replaced)

    assert str(result) == "Nothing to expire in db.t."
    assert replaced.table().metadata_location == before


def test_table_without_snapshots_has_nothing_to_expire(sink: Sink) -> None:
    """A job over all tables would fail for a new one."""
    sink.create(KEYED_SCHEMA)

    assert expired(sink).snapshot_ids == ()


def test_branches_and_tags_keep_their_files(replaced: Sink) -> None:
    """Readers of a tag would find no files."""
    first, second, _ = ids(replaced)
    set_tag(replaced, "audited", first)
    set_branch(replaced, "old", second)

    expired(replaced, retain_last=1)

    table = replaced.table()
    assert table.scan(snapshot_id=first).to_arrow()["id"].to_pylist() == [1]
    assert sorted(table.scan(snapshot_id=second).to_arrow()["id"].to_pylist()) == [1, 2]
    check_clean(table)


def test_old_refs_go_with_their_files_and_properties(sink: Sink) -> None:
    """A branch that was to live for a day would cost space for ever."""
    sink.append(1)
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="try", create_branch=True, txn_app_id="a", txn_version=1)))
    change(sink, SetPropertiesUpdate(updates={"history.expire.max-ref-age-ms": "0"}))
    sink.append(3)

    later = soon_ms()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: later * 1_000_000)
        result = expired(sink)

    metadata = sink.table().metadata
    assert result.refs == ("try",)
    assert set(metadata.refs) == {"main"}
    assert not [key for key in metadata.properties if ".try." in key]
    assert sink.ids() == [1, 3]
    check_clean(sink.table())


def test_named_snapshot_goes_though_it_is_young(sink: Sink) -> None:
    """Rows that must go now would stay for days."""
    for number in range(3):
        sink.append(number)
    _, middle, last = ids(sink)

    result = expired(sink, older_than=None, snapshot_ids=[middle])

    assert result.snapshot_ids == (middle,)
    check_clean(sink.table())
    with pytest.raises(OptionError, match=f"nothing was removed: snapshot {last} is still that of 'main'"):
        expired(sink, snapshot_ids=[last])


@pytest.mark.parametrize(
    ("older_than", "goes"),
    [
        ("now", True),
        ("0s", True),
        ("7d", False),
        (datetime.now(UTC) + timedelta(days=1), True),  # of when tests are collected
        (datetime.now(UTC) - timedelta(hours=1), False),
        (0, False),
        (None, False),
    ],
)
def test_older_than_is_a_time_or_an_age(replaced: Sink, older_than: Any, goes: bool) -> None:  # noqa: FBT001
    """Another time would count than the user gave."""
    a_second_later = time.time_ns() + 1_000_000_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: a_second_later)

        assert bool(expired(replaced, older_than=older_than).snapshot_ids) == goes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"older_than": "soon"}, "older_than is 'soon', expected an age"),
        ({"older_than": "3 months"}, "older_than is '3 months'"),
        ({"older_than": 1.5}, "older_than is 1.5"),
        ({"older_than": True}, "older_than is True"),
        ({"older_than": datetime(2024, 1, 1)}, "no time zone says which time"),  # noqa: DTZ001
        ({"retain_last": 0}, "retain_last is 0, expected a whole number from 1"),
        ({"retain_last": "2"}, "retain_last is '2'"),
        ({"snapshot_ids": ["5"]}, "snapshot_ids has '5'"),
        ({"snapshot_ids": "5"}, "snapshot_ids is '5'"),
        ({"snapshot_ids": 5}, "snapshot_ids is 5, expected a list of ids"),
        ({"dry_run": "no", "clean_expired_metadata": 1}, "metadata is 1, expected True or False; dry_run is 'no'"),
        ({"stream_results": "false"}, "stream_results is 'false', expected True or False"),
    ],
)
def test_malformed_arguments_are_refused(replaced: Sink, arguments: dict[str, Any], said: str) -> None:
    """Something else would expire than was meant."""
    with pytest.raises(OptionError, match=said):
        expired(replaced, **arguments)

    assert len(ids(replaced)) == 3


# Others may have the files.


def forbid(sink: Sink) -> None:
    """Let the table say that others have its files."""
    change(sink, SetPropertiesUpdate(updates={"gc.enabled": "false"}))


def clone(sink: Sink) -> None:
    """Let another catalog have the table, too, and go on with it."""
    other = register_elsewhere(sink, Path(str(sink.options.warehouse)).parent / "elsewhere")
    other.append(77)


def share_folder(sink: Sink) -> None:
    """Let another table lie in the same folder."""
    plain_catalog(sink).create_table("db.u", sink.table().schema(), location=sink.table().metadata.location)


def share_format(sink: Sink) -> None:
    """Let a Delta table have the same files."""
    folder = local(sink.table().metadata.location) / "_delta_log"
    folder.mkdir()
    (folder / "00000000000000000000.json").write_text("{}")


def misspell(sink: Sink) -> None:
    """Let the table have a malformed property."""
    change(sink, SetPropertiesUpdate(updates={"history.expire.min-snapshots-to-keep": "some"}))


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (forbid, "property gc.enabled forbids it"),
        (clone, "is a newer state of this table"),
        (share_folder, "is the metadata of another table"),
        (share_format, "belongs to a table of another format"),
        (misspell, "is 'some', which is no whole number"),
    ],
)
def test_table_whose_files_others_may_have_is_refused(replaced: Sink, done: Callable[[Sink], None], said: str) -> None:
    """Others would lose rows; or files would stay, and nothing would find them."""
    done(replaced)
    before, files = ids(replaced), referenced_files(replaced.table())

    with pytest.raises(UnsupportedTableError, match=f"(?s)nothing was removed: .*{said}"):
        expired(replaced)

    assert ids(replaced) == before
    assert all(path.exists() for path in files)


def test_files_of_a_state_that_another_catalog_may_have_stay(replaced: Sink) -> None:
    """A commit of another catalog looks like one that was killed: its rows would go."""
    other = register_elsewhere(replaced, Path(str(replaced.options.warehouse)).parent / "elsewhere")
    other.append(77)
    replaced.append(10)
    seen = referenced_files(other.table())

    result = expired(replaced)

    assert result.left_files > 0
    assert "other tables, or another catalog" in str(result)
    assert all(path.exists() for path in seen)
    assert other.ids() == [9, 77]


@pytest.mark.parametrize("name", ["holds_branches", "is_s3_tables"])
def test_catalogs_that_expire_by_themselves_are_refused(
    replaced: Sink, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Branches of Nessie would lose rows."""
    monkeypatch.setattr(CatalogClient, name, name != "holds_branches")

    with pytest.raises(UnsupportedTableError, match="nothing was removed"):
        expired(replaced)

    assert len(ids(replaced)) == 3


def test_files_in_the_folder_of_another_table_stay(sink: Sink) -> None:
    """Files that `add_files` brought in are still those of the table that they came from."""
    other = Sink(catalog=sink.catalog, options=sink.options.beside(("db", "other"), None))
    other.append(5)
    sink.append(1)
    beside = local(sink.table().metadata.location).parent / "loose.parquet"
    theirs = next(path for path in referenced_files(other.table()) if path.suffix == ".parquet")
    beside.write_bytes(theirs.read_bytes())
    plain_table(sink).add_files([theirs.as_uri(), beside.as_uri()], check_duplicate_files=False)
    sink.overwrite(rows(9))

    result = expired(sink)

    assert theirs.exists()
    assert not beside.exists()
    assert (result.left_files, result.deleted_data_files_count) == (1, 2)
    assert other.ids() == [5]


def test_table_with_a_part_of_its_history_hidden_is_refused(replaced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that shows branches alone would make all other snapshots' files go."""
    load = CatalogClient.load_table

    def hiding(self: CatalogClient, identifier: Any) -> Table:
        table = load(self, identifier)
        shown = table.metadata.snapshots[-1:]
        table.metadata = table.metadata.model_copy(update={"snapshots": shown})
        return table

    monkeypatch.setattr(CatalogClient, "load_table", hiding)

    with pytest.raises(UnsupportedTableError, match="does not show 2 snapshots"):
        expired(replaced)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("which", ["manifest", "list"])
def test_damaged_table_is_refused_before_anything_is_removed(replaced: Sink, which: str, *, is_cut: bool) -> None:
    """What stays would not be known, and files of it would go."""
    table = replaced.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    path = snapshot.manifest_list if which == "list" else snapshot.manifests(table.io)[0].manifest_path
    if is_cut:
        cut_off(path, behind_header=1)
    else:
        local(path).write_bytes(b"no Avro")

    with pytest.raises(DataFileError, match="nothing was removed: what the table refers to is not known"):
        expired(replaced)

    assert len(ids(replaced)) == 3


def test_damaged_snapshot_can_expire(replaced: Sink) -> None:
    """The only way to get rid of it would be closed."""
    local(replaced.table().metadata.snapshots[0].manifest_list).unlink()

    assert len(expired(replaced).snapshot_ids) == 2
    check_sound(replaced.table())


# Others at work, lost answers, and deaths.


def test_branch_that_moves_meanwhile_keeps_its_snapshot(
    replaced: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A rollback between look and request would lose its rows."""
    first, _, last = ids(replaced)
    faulty_catalog.before_commit(1, lambda: set_branch(replaced, "main", first))

    result = expired_by(faulty_sink)

    assert faulty_catalog.commits == 2
    assert last in result.snapshot_ids
    assert replaced.ids() == [1]
    check_clean(replaced.table())


def test_tag_that_is_set_meanwhile_keeps_its_snapshot(replaced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be dropped with the snapshot, and nobody would notice."""
    first = ids(replaced)[0]
    send, times = CatalogClient.send, []

    def sending(self: CatalogClient, *arguments: Any) -> Any:
        times.append(1)
        if len(times) == 1:
            set_tag(replaced, "audited", first)
        return send(self, *arguments)

    monkeypatch.setattr(CatalogClient, "send", sending)

    result = expired(replaced)

    assert len(times) == 2
    assert first not in result.snapshot_ids
    assert replaced.table().scan(snapshot_id=first).to_arrow()["id"].to_pylist() == [1]
    check_clean(replaced.table())


def test_epoch_that_lands_meanwhile_keeps_its_rows(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """An expiry beside a stream would lose rows, or never come to an end."""
    sink.append(0, of_epoch=epoch(0))
    sink.append(1, of_epoch=epoch(1))
    faulty_catalog.before_commit(1, lambda: sink.append(2, of_epoch=epoch(2)))

    result = expired_by(faulty_sink)

    assert len(result.snapshot_ids) == 2
    assert sink.ids() == [0, 1, 2]
    check_clean(sink.table())


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", [connection_lost, refusal, false_refusal])
def test_lost_answer_is_settled_by_the_table(
    replaced: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Any, when: When
) -> None:
    """Files of snapshots that are still there would go, or those of removed ones stay."""
    faulty_catalog.fail_next(1, error, when=when)

    result = expired_by(faulty_sink)

    assert result.deleted_data_files_count == 2
    assert replaced.ids() == [9]
    check_clean(replaced.table())


def test_no_file_is_deleted_if_the_outcome_is_unknown(
    replaced: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The request may still be refused, and the snapshots stay without files."""
    files = referenced_files(replaced.table())
    change(replaced, SetPropertiesUpdate(updates={"commit.retry.num-retries": "0"}))
    faulty_catalog.fail_next(1, connection_lost)

    with pytest.raises(CommitStateUnknownError, match="no files were deleted"):
        expired_by(faulty_sink)

    assert all(path.exists() for path in files)


def test_refused_request_leaves_all_as_it_is(replaced: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A user without the right would destroy the table."""
    files = referenced_files(replaced.table())
    faulty_catalog.fail_next(9, forbidden)

    with pytest.raises(CatalogError):
        expired_by(faulty_sink)

    assert len(ids(replaced)) == 3
    assert all(path.exists() for path in files)


def test_old_answers_delete_no_file(replaced: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A cache that shows the snapshots once more would not show who refers to their files."""
    old = faulty_sink.catalog.load_table(faulty_sink.options.table)
    files = referenced_files(old)
    with meanwhile(FaultPoint.SNAPSHOTS_EXPIRED, lambda: faulty_catalog.serve_stale(old, times=3)):
        result = expired_by(faulty_sink)

    assert result.left_files == 6
    assert "older state" in str(result.why_left)
    assert all(path.exists() for path in files)
    check_sound(replaced.table())


def test_old_answer_after_the_request_is_seen_through(
    replaced: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The request would be repeated for ever, or the call fail though all is done."""
    old = faulty_sink.catalog.load_table(faulty_sink.options.table)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.serve_stale(old, times=2))

    result = expired_by(faulty_sink)

    assert result.deleted_data_files_count == 2
    check_clean(replaced.table())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_refused", [False, True])
def test_answer_from_before_a_snapshot_is_no_sign_that_it_was_removed(
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    version: int,
    is_refused: bool,  # noqa: FBT001
) -> None:
    """A snapshot that is not there yet looks removed: its files would go, and the table keep it."""
    sink.create(ID_AND_NAME, format_version=str(version))
    sink.append(1)
    old = faulty_sink.catalog.load_table(faulty_sink.options.table)
    sink.append(2)
    sink.overwrite(rows(3))
    sink.append(4)
    if is_refused:
        faulty_catalog.fail_next(99, connection_lost)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.serve_stale(old, times=2))

    if is_refused:
        with pytest.raises(CommitStateUnknownError, match="no files were deleted"):
            expired_by(faulty_sink)
    else:
        assert len(expired_by(faulty_sink).snapshot_ids) == 3

    check_sound(sink.table())
    assert len(ids(sink)) == (4 if is_refused else 1)


def test_file_that_a_later_snapshot_refers_to_stays(replaced: Sink) -> None:
    """Whoever adds a file again, or picks it, would lose its rows."""
    table = replaced.table()
    snapshot = table.metadata.snapshots[0]
    entry = snapshot.manifests(table.io)[0].fetch_manifest_entry(table.io)[0]

    def add() -> None:
        with plain_table(replaced).transaction() as done, done.update_snapshot().fast_append() as append:
            append.append_data_file(entry.data_file)

    with meanwhile(FaultPoint.SNAPSHOTS_EXPIRED, add):
        result = expired(replaced)

    assert result.deleted_data_files_count == 1
    assert replaced.ids() == [1, 9]
    check_sound(replaced.table())


def take_name(sink: Sink) -> None:
    """Rename the table, and let another one have its name."""
    catalog = plain_catalog(sink)
    catalog.rename_table("db.t", "db.renamed")
    schema = catalog.load_table("db.renamed").schema()
    catalog.create_table("db.t", schema, location=f"{sink.options.warehouse}/new")


def test_table_that_takes_the_name_meanwhile_costs_the_other_one_no_file(replaced: Sink) -> None:
    """All snapshots look removed then, and the table has its rows under another name."""
    files = referenced_files(replaced.table())
    catalog = plain_catalog(replaced)

    def take() -> None:
        catalog.rename_table("db.t", "db.renamed")
        catalog.create_table(
            "db.t", catalog.load_table("db.renamed").schema(), location=f"{replaced.options.warehouse}/n"
        )

    with meanwhile(FaultPoint.SNAPSHOTS_EXPIRED, take):
        result = expired(replaced)

    assert result.left_files == 6
    assert "another table" in str(result.why_left)
    assert all(path.exists() for path in files)


def test_table_that_takes_the_name_before_the_request_is_left_alone(
    replaced: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The other table would be expired by a plan that was not made for it."""
    catalog = plain_catalog(replaced)

    def take() -> None:
        catalog.rename_table("db.t", "db.renamed")
        catalog.create_table(
            "db.t", catalog.load_table("db.renamed").schema(), location=f"{replaced.options.warehouse}/n"
        )

    faulty_catalog.before_commit(1, take)

    with pytest.raises(CommitConflictError, match="another table"):
        expired_by(faulty_sink)

    assert len(plain_catalog(replaced).load_table("db.renamed").metadata.snapshots) == 3


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("step", [FaultPoint.SNAPSHOTS_EXPIRED, FaultPoint.CLEANING_UP])
def test_files_that_a_kill_leaves_are_found_as_orphans(replaced: Sink, step: FaultPoint, number: int) -> None:
    """They would cost space for ever."""
    left = number

    def die(reached: FaultPoint) -> None:
        nonlocal left
        left -= reached is step
        if not left:
            listen(None)
            raise KeyboardInterrupt

    listen(die)
    try:
        expired(replaced)
    except KeyboardInterrupt:
        pass
    finally:
        listen(None)
    check_sound(replaced.table())
    assert ids(replaced) == ids(replaced)[-1:]

    options = {"warehouse": str(replaced.options.warehouse)}
    result = iceberg_ds.verify(NAME, options=options, older_than="0s", delete_orphans=True, force=True)

    assert result.ok
    assert unreferenced_files(replaced.table()) == set()
    assert replaced.ids() == [9]


def test_files_that_cannot_be_deleted_are_told(replaced: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts would say that they are gone."""
    monkeypatch.setattr(
        "iceberg_ds.maintenance.expire_snapshots.delete_in_portions",
        lambda _, paths, *__: ((path, False) for path in paths),
    )

    result = expired(replaced)

    assert (result.left_files, result.deleted_data_files_count) == (6, 0)
    assert "6 files left: some could not be deleted, see the log." in str(result)


def test_catalog_that_goes_away_after_the_request_leaves_the_files(
    replaced: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The call would say that nothing was removed."""
    with meanwhile(FaultPoint.SNAPSHOTS_EXPIRED, lambda: faulty_catalog.fail_next_loads(1, connection_lost)):
        result = expired_by(faulty_sink)

    assert result.left_files == 6
    assert len(result.snapshot_ids) == 2
    assert len(ids(replaced)) == 1


def test_commit_that_is_under_way_delays_and_does_not_refuse(
    replaced: Sink, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """Beside a stream of many commits, an expiry would fail by chance."""
    metadata = replaced.table()
    staged = local(metadata.metadata_location).with_name("00099-staged.metadata.json")
    document = json.loads(local(metadata.metadata_location).read_text())
    document["last-sequence-number"] += 1
    staged.write_text(json.dumps(document))
    monkeypatch.setattr("time.sleep", lambda _: staged.unlink(missing_ok=True))

    assert expired(replaced).deleted_data_files_count == 2
    assert waits == []


# What the table keeps besides.


def test_parents_of_what_stays_are_known_as_java_keeps_them(sink: Sink) -> None:
    """The branch would look as if nothing had been there before, and markers as if they were of another one."""
    for number in range(4):
        sink.append(number)
    second, third = ids(sink)[1:3]

    expired(sink, retain_last=2)

    metadata = sink.table().metadata
    assert metadata.snapshots[0].snapshot_id == third
    assert metadata.snapshots[0].parent_snapshot_id == second
    assert [entry.snapshot_id for entry in metadata.snapshot_log] == [one.snapshot_id for one in metadata.snapshots]


def test_unused_schemas_and_specs_go_if_asked(sink: Sink) -> None:
    """A table whose columns change each day would carry all of them."""
    sink.append(1)
    set_columns(
        sink,
        NestedField(1, "id", LongType()),
        NestedField(2, "name", StringType()),
        NestedField(3, "more", StringType()),
    )
    with plain_table(sink).update_spec() as update:
        update.add_identity("name")
    sink.append(2)
    assert expired(sink, dry_run=True).schema_ids == ()

    kept = expired(sink, clean_expired_metadata=True)
    sink.overwrite(rows(3))
    sink.append(4)
    result = expired(sink, clean_expired_metadata=True)

    assert (kept.schema_ids, kept.spec_ids) == ((0,), ())  # a manifest of the first spec is still listed
    assert (result.schema_ids, result.spec_ids) == ((), (0,))
    metadata = sink.table().metadata
    assert [schema.schema_id for schema in metadata.schemas] == [1]
    assert [spec.spec_id for spec in metadata.partition_specs] == [1]
    assert sink.ids() == [3, 4]
    assert "1 partition spec of db.t" in str(result)


def test_schema_that_live_equality_deletes_need_stays(sink: Sink) -> None:
    """Nobody would know the type of a dropped column by which rows are deleted, and nobody could read the table."""
    sink.append(1, 2)
    delete_equal(sink, with_ids(pa.table({"name": ["row 2"]}), name=2), [2])
    set_columns(sink, NestedField(1, "id", LongType()))
    set_columns(sink, NestedField(1, "id", LongType()), NestedField(3, "more", LongType()))
    sink.commit(
        sink.write(
            [{"id": 3, "more": 3}], schema=StructType([StructField(name, spark.LongType()) for name in ("id", "more")])
        )
    )

    assert expired(sink, clean_expired_metadata=True).schema_ids == (1,)
    assert [schema.schema_id for schema in sink.table().metadata.schemas] == [0, 2]
    rewrite(sink, rewrite_all="true", remove_dangling_deletes="true")
    assert expired(sink, clean_expired_metadata=True).schema_ids == (0,)
    assert sink.ids() == [1, 3]


def test_number_of_the_newest_schema_is_given_to_no_other(sink: Sink) -> None:
    """A reader would take a new column for one of old files that was dropped, whose name it has."""
    sink.append(1)
    with plain_table(sink).update_schema() as update:
        update.add_column("more", StringType())
    sink.append(2)
    with plain_table(sink).update_schema() as update:
        update.delete_column("more")
    sink.append(3)
    assert sink.table().metadata.current_schema_id == 0

    expired(sink, clean_expired_metadata=True)

    assert [schema.schema_id for schema in sink.table().metadata.schemas] == [0, 1]


def test_moved_table_is_expired_in_its_old_place_too(replaced: Sink) -> None:
    """Files in the folder that the table had before would stay."""
    change(replaced, SetLocationUpdate(location=f"{replaced.options.warehouse}/moved"))
    replaced.append(10)

    result = expired(replaced)

    assert result.deleted_data_files_count == 2
    check_sound(replaced.table())


def test_command_takes_the_same_words(replaced: Sink) -> None:
    """A job without Python could not expire anything, or not see that files were left."""
    options = ["--option", f"warehouse={replaced.options.warehouse}"]
    last = ids(replaced)[-1]

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, ["expire-snapshots", NAME, *options, *arguments])

    assert run("--older-than", "7d").output == "Nothing to expire in db.t.\n"
    assert json.loads(run("--snapshot-id", str(ids(replaced)[0]), "--dry-run", "--json").output)["dry_run"]
    refused = run("--snapshot-id", str(last))
    assert (refused.exit_code, "is still that of 'main'" in refused.output) == (2, True)
    assert run("--retain-last", "0").exit_code == 2
    done = run("--older-than", "0s", "--retain-last", "1", "--json")
    assert (done.exit_code, json.loads(done.output)["deleted_data_files_count"]) == (0, 2)
    assert run("--older-than", "now").exit_code == 0


def test_result_groups_what_stays_by_its_reason() -> None:
    """A thousand snapshots of a quarantine table would be a thousand lines."""
    kept = tuple(KeptSnapshot(snapshot_id=number, reason="somebody reads them") for number in range(3))
    result = iceberg_ds.ExpireResult(table="db.t", kept=kept)

    assert str(result) == "Nothing to expire in db.t. 3 snapshots stay: somebody reads them."
    assert json.loads(result.to_json())["kept"][0] == {"snapshot_id": 0, "reason": "somebody reads them"}


def test_no_other_file_of_the_folder_is_touched(replaced: Sink) -> None:
    """What a running write has made, or a user has put there, would go."""
    (written,) = [path for message in replaced.write(rows(50)) for path in message.data_files]
    foreign = local(replaced.table().metadata.location) / "notes.txt"
    foreign.write_text("mine")
    before = stored_files(replaced.table().metadata.location)

    expired(replaced)

    assert local(written.file_path).exists()
    assert foreign.exists()
    assert before - stored_files(replaced.table().metadata.location) == before - referenced_files(replaced.table()) - {
        local(written.file_path)
    }


def test_dropped_and_forgotten_branches_leave_nothing(sink: Sink) -> None:
    """Rows of a branch that a user has dropped would stay for ever."""
    sink.append(1)
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="try", create_branch=True)))
    drop_branch(sink, "try")

    result = expired(sink)

    assert result.deleted_data_files_count == 1
    assert head_of(sink) == ids(sink)[0]
    check_clean(sink.table())
