"""Files that nothing refers to: which are found, and which are deleted."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate, SetPropertiesUpdate
from support.tables.changes_by_others import expire, plain_catalog
from support.tables.damage import Json, Listing, cut_off, edit_metadata
from support.tables.sink import NAME, Sink, epoch, local, paths_of, rows

import iceberg_ds
from iceberg_ds import OptionError
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.inspect.verify import VerifyResult
from iceberg_ds.io.listing import LISTED_PLACES

DAY_S = 86_400


def verified(sink: Sink, **arguments: Any) -> VerifyResult:
    """Verify the table through its catalog, as a user does."""
    return iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}, **arguments)


def outcome(result: VerifyResult, name: str) -> tuple[str, str]:
    """Return outcome and detail of a check."""
    return next((check.outcome, check.detail) for check in result.checks if check.name == name)


def found(sink: Sink, **arguments: Any) -> set[Path]:
    """Return the orphans that are found."""
    return {local(orphan.path) for orphan in verified(sink, **arguments).orphans}


def age(path: Path, days: float) -> Path:
    """Let a file be so old."""
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))
    return path


def age_all(sink: Sink, days: float) -> None:
    """Let all files of the table be so old."""
    for path in local(sink.table().metadata.location).rglob("*"):
        if path.is_file():
            age(path, days)


def left_behind(sink: Sink, days: float = 4) -> Path:
    """Write a data file as a task does whose driver is killed, and return it."""
    (path,) = paths_of(sink.write(rows(99)))
    return age(path, days)


def test_files_of_a_killed_write_are_listed_with_size_and_age(sink: Sink) -> None:
    """What a kill leaves behind would cost space for ever."""
    sink.append(1)
    path = left_behind(sink)

    result = verified(sink)

    (orphan,) = result.orphans
    assert (local(orphan.path), orphan.size_bytes, orphan.deleted) == (path, path.stat().st_size, False)
    assert time.time() * 1000 - orphan.modified_ms == pytest.approx(4 * DAY_S * 1000, rel=0.1)
    assert result.ok
    assert outcome(result, "orphans")[0] == "warning"


def test_young_files_are_no_orphans(sink: Sink) -> None:
    """Files of a write that runs would be deleted under its hands."""
    sink.append(1)
    left_behind(sink, days=2)

    assert found(sink) == set()
    assert "1 file too young to tell" in outcome(verified(sink), "orphans")[1]
    assert len(found(sink, older_than="1d")) == 1


def test_referenced_files_of_any_snapshot_are_no_orphans(sink: Sink) -> None:
    """Time travel and branches would lose their files."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))
    sink.commit(sink.write(rows(7), plan=sink.plan(branch="audit", create_branch=True)))
    sink.overwrite(rows(5))
    age_all(sink, 9)

    assert found(sink) == set()


def test_deleted_orphans_are_gone_and_all_else_stays(sink: Sink) -> None:
    """A clean-up would break the table, or leave what it should remove."""
    sink.append(1)
    paths = [left_behind(sink), left_behind(sink)]
    young = left_behind(sink, days=0)
    age_all_but = set(local(sink.table().metadata.location).rglob("*")) - {*paths}

    result = verified(sink, delete_orphans=True)

    assert [orphan.deleted for orphan in result.orphans] == [True, True]
    assert result.ok
    assert not any(path.exists() for path in paths)
    assert young.exists()
    assert all(path.exists() for path in age_all_but)
    assert verified(sink).orphans == ()
    assert sink.ids() == [1]


def test_file_that_becomes_referenced_between_look_and_deletion_stays(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that lands late would lose its rows."""
    sink.append(1)
    late, other = sink.write(rows(2)), left_behind(sink)
    (path,) = paths_of(late)
    age(path, 4)
    loads: list[Table] = []
    load = CatalogClient.load_table

    def landing_before_the_last_load(client: CatalogClient, identifier: Any) -> Table:
        loads.append(load(client, identifier))
        if len(loads) == 4:  # the table, before and after the listing, and before the deletion
            sink.commit(late)
            return load(client, identifier)
        return loads[-1]

    monkeypatch.setattr(CatalogClient, "load_table", landing_before_the_last_load)

    result = verified(sink, delete_orphans=True)

    monkeypatch.undo()
    assert [(local(orphan.path), orphan.deleted) for orphan in result.orphans] == [(other, True)]
    assert "1 file kept, because the table refers to them by now" in outcome(result, "deletion of orphans")[1]
    assert path.exists()
    assert sink.ids() == [1, 2]


def test_file_that_is_committed_while_files_are_listed_is_no_orphan(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy table would seem to be full of orphans."""
    sink.append(1)
    messages = sink.write(rows(2))
    age_all(sink, 4)
    loads: list[int] = []
    load = CatalogClient.load_table

    def landing_after_the_listing(client: CatalogClient, identifier: Any) -> Table:
        loads.append(1)
        if len(loads) == 3:  # the table, before and after the listing
            sink.commit(messages)
        return load(client, identifier)

    monkeypatch.setattr(CatalogClient, "load_table", landing_after_the_listing)

    assert verified(sink).orphans == ()


def test_nothing_is_deleted_while_metadata_cannot_be_read(sink: Sink) -> None:
    """Of a table that is half broken, the sound half would be deleted."""
    sink.append(1)
    path = left_behind(sink)
    local(Listing.of(sink).manifests[0].manifest_path).unlink()

    result = verified(sink, delete_orphans=True)

    assert {check.name for check in result.failures} == {"manifests", "deletion of orphans"}
    assert outcome(result, "orphans")[0] == "skipped"
    assert path.exists()


@pytest.mark.parametrize("behind_header", [0, 1])
@pytest.mark.parametrize("which", ["manifest", "list"])
def test_nothing_is_deleted_while_less_is_listed_than_was_written(sink: Sink, which: str, behind_header: int) -> None:
    """A file that was cut off behind a block, or in the frame of one, would be taken for one that lists less."""
    sink.append(1)
    age_all(sink, 4)
    listing = Listing.of(sink)
    path = listing.manifests[0].manifest_path if which == "manifest" else listing.snapshot.manifest_list
    cut_off(path, behind_header=behind_header)

    result = verified(sink, delete_orphans=True)

    assert result.orphans == ()
    assert outcome(result, "manifests")[0] == "failed"
    assert outcome(result, "orphans")[0] == "skipped"
    assert "was cut off" in outcome(result, "orphans")[1]
    assert len(list(local(sink.table().metadata.location).rglob("*.parquet"))) == 1


def test_age_of_running_writes_is_refused_unless_forced(sink: Sink) -> None:
    """A user in a hurry would delete what a running write has just written."""
    sink.append(1)
    path = left_behind(sink, days=0.5)

    with pytest.raises(OptionError, match="Cannot delete orphans older than 1h"):
        verified(sink, delete_orphans=True, older_than="1h")
    with pytest.raises(OptionError, match="force is 'false', expected True or False"):
        verified(sink, delete_orphans=True, older_than="1h", force="false")
    assert path.exists()
    verified(sink, delete_orphans=True, older_than="1h", force=True)
    assert not path.exists()


@pytest.mark.parametrize("argument", ["deep", "unique_keys", "all_snapshots", "orphans", "delete_orphans"])
def test_word_is_not_taken_for_true(sink: Sink, argument: str) -> None:
    """The word `false` of a settings file would delete files, or read all rows."""
    sink.append(1)
    path = left_behind(sink)

    with pytest.raises(OptionError, match=f"{argument} is 'false', expected True or False"):
        verified(sink, **{argument: "false"})

    assert path.exists()


def test_files_of_a_table_below_are_never_orphans(sink: Sink) -> None:
    """Another table would be deleted with this one's rubbish."""
    sink.append(1)
    location = local(sink.table().metadata.location)
    shutil.copytree(location, location / "nested")
    age_all(sink, 9)

    assert found(sink) == set()


def test_metadata_of_another_table_in_the_same_folder_stops_the_deletion(sink: Sink) -> None:
    """Two tables in one folder would delete each other's rows."""
    sink.append(1)
    path = left_behind(sink)
    table = sink.table()
    other = local(table.metadata.location) / "metadata" / "00000-other.metadata.json"
    other.write_text(
        local(table.metadata_location)
        .read_text()
        .replace(str(table.metadata.table_uuid), f"{'0' * 8}-0000-0000-0000-{'0' * 12}")
    )
    age(other, 5)

    result = verified(sink, delete_orphans=True)

    assert [check.name for check in result.failures] == ["deletion of orphans"]
    assert "is the metadata of another table" in outcome(result, "deletion of orphans")[1]
    assert path.exists()
    assert other.exists()


def test_store_that_is_spelled_differently_stops_the_deletion(sink: Sink) -> None:
    """All files of a table would be deleted whose store has a second name."""
    sink.append(1)
    stray = left_behind(sink)
    statistics = f"hdfs://bucket{stray}"

    def add(document: Json) -> None:
        document["statistics"] = [
            {
                "snapshot-id": document["current-snapshot-id"],
                "statistics-path": statistics,
                "file-size-in-bytes": 1,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": [],
            }
        ]

    edit_metadata(sink, add)

    result = verified(sink, delete_orphans=True)

    assert "may be the same file" in outcome(result, "deletion of orphans")[1]
    assert stray.exists()


@pytest.mark.parametrize("name", ["data_old", "data/p=e\u0301"])
def test_files_that_were_moved_stop_the_deletion(sink: Sink, name: str) -> None:
    """Rows would be deleted for good that are only at the wrong place, or whose folder a file system spells anew."""
    sink.append(1)
    folder = local(sink.table().metadata.location)
    (path,) = (folder / "data").glob("*.parquet")
    (folder / name).mkdir()
    moved = age(path.rename(folder / name / path.name), 9)

    result = verified(sink, delete_orphans=True)

    assert "may be the same file" in outcome(result, "deletion of orphans")[1]
    assert moved.exists()


def test_folder_with_two_names_stops_the_deletion(sink: Sink, tmp_path: Path) -> None:
    """All files of a table would be deleted that lies on a disk which is mounted at two places."""
    sink.append(1)
    folder = local(sink.table().metadata.location)
    # As if mounted there, too: the same files, and no link tells.
    shutil.copytree(folder, tmp_path / "mounted", copy_function=os.link)
    sink.catalog.send(sink.table(), (), (SetLocationUpdate(location=f"file://{tmp_path}/mounted"),))
    for path in folder.rglob("*.parquet"):
        age(path, 9)

    result = verified(sink, delete_orphans=True)

    assert "may be the same file" in outcome(result, "deletion of orphans")[1]
    assert len(list((tmp_path / "mounted").rglob("*.parquet"))) == 1


def test_folder_that_becomes_a_link_is_known_as_one(sink: Sink, tmp_path: Path) -> None:
    """A process that lives long would delete a table that was moved to another disk and linked from its old place."""
    sink.append(1)
    verified(sink)
    folder = local(sink.table().metadata.location)
    folder.rename(tmp_path / "disk")
    folder.symlink_to(tmp_path / "disk")
    sink.catalog.send(sink.table(), (), (SetLocationUpdate(location=f"file://{tmp_path}/disk"),))
    for path in (tmp_path / "disk").rglob("*"):
        age(path, 9)

    result = verified(sink, delete_orphans=True)

    assert result.ok, str(result)
    assert result.orphans == ()
    assert sink.ids() == [1]


@pytest.mark.parametrize("value", ["false", "FALSE", "yes"])
def test_table_whose_files_others_may_have_is_not_cleaned_up(sink: Sink, value: str) -> None:
    """Who forbids it, as Spark's `snapshot` procedure does, would lose files of other tables."""
    sink.append(1)
    path = left_behind(sink)

    def forbid(document: Json) -> None:
        document["properties"]["gc.enabled"] = value

    edit_metadata(sink, forbid)

    result = verified(sink, delete_orphans=True)

    assert "the table's property gc.enabled forbids it" in outcome(result, "deletion of orphans")[1]
    assert path.exists()


@pytest.mark.parametrize("folder", ["_delta_log", ".hoodie"])
def test_table_of_another_format_in_the_folder_stops_the_deletion(sink: Sink, folder: str) -> None:
    """Rows of a Delta table that is shown as an Iceberg table, too, would be deleted."""
    sink.append(1)
    path = left_behind(sink)
    log = local(sink.table().metadata.location) / folder / "00000000000000000000.json"
    log.parent.mkdir()
    log.write_text("{}")

    result = verified(sink, delete_orphans=True)

    assert "belongs to a table of another format" in outcome(result, "deletion of orphans")[1]
    assert path.exists()


@pytest.mark.parametrize("added", ["#old", "?v=1", ";1"])
def test_name_that_is_cut_off_by_a_storage_library_deletes_no_other_file(sink: Sink, added: str) -> None:
    """The deletion of a copy with such a name would delete the table's own file."""
    sink.append(1)
    (path,) = local(sink.table().metadata.location).glob("data/*.parquet")
    age(Path(shutil.copy(path, f"{path}{added}")), 9)
    warehouse = sink.options.warehouse
    options = {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{warehouse}/catalog.db",
        "catalog.warehouse": f"file://{warehouse}",
        "catalog.py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
    }

    result = iceberg_ds.verify(NAME, options=options, delete_orphans=True)

    assert [orphan.deleted for orphan in result.orphans] == [False]
    assert path.exists()


@pytest.mark.parametrize("load_number", [3, 4])
def test_table_that_takes_the_name_meanwhile_is_not_taken_for_the_listed_one(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load_number: int
) -> None:
    """All files of the table that was renamed would be called orphans."""
    sink.append(1)
    left_behind(sink)
    load, loads = CatalogClient.load_table, 0

    def after_the_listing(client: CatalogClient, identifier: Any) -> Table:
        nonlocal loads
        loads += 1
        if loads == load_number:
            catalog = plain_catalog(sink)
            schema = catalog.rename_table(NAME, "db.renamed").schema()
            catalog.create_table(NAME, schema, location=f"file://{tmp_path}/new")
        return load(client, identifier)

    age_all(sink, 9)
    files = list(local(sink.table().metadata.location).rglob("*"))
    monkeypatch.setattr(CatalogClient, "load_table", after_the_listing)

    result = verified(sink, delete_orphans=True)

    # It was verified again, as the table that has the name now.
    assert result.ok, str(result)
    assert result.orphans == ()
    assert all(path.exists() for path in files)


def test_files_that_an_earlier_look_deleted_are_reported(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is read again because snapshots expired would seem to have lost no file."""
    sink.append(1)
    (old,) = local(sink.table().metadata.location).glob("data/*.parquet")
    sink.overwrite(rows(2))
    old.unlink()
    path = left_behind(sink)
    find, expired = CatalogClient.find_table, []

    def expired_after_the_first_look(client: CatalogClient, identifier: Any) -> Table | None:
        if not path.exists() and not expired:
            expired.append(expire(sink))
        return find(client, identifier)

    monkeypatch.setattr(CatalogClient, "find_table", expired_after_the_first_look)

    result = verified(sink, delete_orphans=True, all_snapshots=True)

    assert result.ok, str(result)
    assert [(local(orphan.path), orphan.deleted) for orphan in result.orphans] == [(path, True)]


def test_files_outside_of_the_tables_own_folder_are_listed_and_stay(
    sink: Sink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that several tables share would lose the files of all but one."""
    sink.append(1)
    table = sink.table()
    shared = tmp_path / "shared"
    shared.mkdir()
    sink.catalog.send(table, (), (SetPropertiesUpdate(updates={"write.data.path": f"file://{shared}"}),))
    (shared / "f.parquet").write_bytes(b"x")
    age(shared / "f.parquet", 9)

    result = verified(sink, delete_orphans=True)

    assert [(local(orphan.path), orphan.deleted) for orphan in result.orphans] == [(shared / "f.parquet", False)]
    assert (shared / "f.parquet").exists()
    assert "1 orphans of db.t lie outside of its location" in caplog.text


def test_catalog_with_branches_of_its_own_is_not_cleaned_up(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that another branch of a Nessie catalog has would be deleted."""
    sink.append(1)
    path = left_behind(sink)
    monkeypatch.setattr(CatalogClient, "holds_branches", False)

    result = verified(sink, delete_orphans=True)

    assert "other branches of this catalog may refer to files" in outcome(result, "deletion of orphans")[1]
    assert path.exists()


def test_store_that_cannot_be_listed_is_said_to_be_so(sink: Sink) -> None:
    """No orphans would be found, and the user take it for none."""
    sink.append(1)
    folder = {"write.data.path": "hdfs://bucket/data"}
    sink.catalog.send(sink.table(), (), (SetPropertiesUpdate(updates=folder),))

    result = verified(sink, delete_orphans=True)

    assert outcome(result, "orphans") == (
        "skipped",
        f"not looked for, because hdfs://bucket/data cannot be listed: only {LISTED_PLACES} can be",
    )
    assert [check.name for check in result.failures] == ["deletion of orphans"]


def test_snapshots_that_the_catalog_does_not_show_keep_their_files(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole history would be deleted, where a catalog is asked to show the newest snapshots only."""
    sink.append(1)
    sink.overwrite(rows(2))
    age_all(sink, 9)
    load = CatalogClient.load_table

    def newest_only(client: CatalogClient, identifier: Any) -> Table:
        table = load(client, identifier)
        table.metadata = table.metadata.model_copy(update={"snapshots": table.metadata.snapshots[-1:]})
        return table

    monkeypatch.setattr(CatalogClient, "load_table", newest_only)

    result = verified(sink, delete_orphans=True)

    assert result.orphans == ()
    assert "the catalog does not show 1 snapshot of metadata file" in outcome(result, "orphans")[1]
    assert [check.name for check in result.failures] == ["deletion of orphans"]


def test_checkpoint_in_the_folder_is_left_alone(sink: Sink) -> None:
    """A stream would forget where it was, and which query it is."""
    sink.append(1)
    stray = left_behind(sink)
    checkpoint = local(sink.table().metadata.location) / "checkpoint"
    for name in ("metadata", "offsets/0", "commits/0", "sources/0/0", "state/0/0/1.delta"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text("{}")
        age(checkpoint / name, 9)

    result = verified(sink, delete_orphans=True)

    assert [local(orphan.path) for orphan in result.orphans] == [stray]
    assert (checkpoint / "metadata").exists()
    assert not stray.exists()


def test_hidden_files_are_left_alone(sink: Sink) -> None:
    """What other tools keep in the folder would be deleted."""
    sink.append(1)
    folder = local(sink.table().metadata.location)
    for name in ("data/.f.crc", "_temporary/f", "metadata/version-hint.text"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        age(path, 9)
    kept = folder / "data" / "_p=1" / "f"
    kept.parent.mkdir()
    kept.write_bytes(b"x")
    age(kept, 9)

    assert found(sink) == {kept}
