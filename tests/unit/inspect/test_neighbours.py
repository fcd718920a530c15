"""Tables that share a folder, or an entry in two catalogs: `--delete-orphans` takes nothing of the other's."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update import SetLocationUpdate, SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField, StringType
from support.catalogs.rest_fake import serve_rest_fake
from support.catalogs.rest_sinks import sink_of
from support.checks.invariants import check_sound, unreferenced_files
from support.tables.changes_by_others import (
    expire,
    plain_catalog,
    plain_table,
    register_edited,
    register_elsewhere,
    rename,
)
from support.tables.sink import Sink, local, paths_of, rows

import iceberg_ds
from iceberg_ds.errors import CommitConflictError, OptionError
from iceberg_ds.inspect import neighbours
from iceberg_ds.inspect.verify import VerifyResult
from iceberg_ds.io.listing import store_clock_ms, stored_files
from iceberg_ds.io.local_io import LocalFile
from iceberg_ds.planning import prepare
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.variant import VariantType

DAY_S = 86_400
REFUSED = ["deletion of orphans"]


def cleaned(sink: Sink, **choices: Any) -> VerifyResult:
    """Verify the table through its catalog, and delete its orphans."""
    options = {"warehouse": str(sink.options.warehouse)}
    return iceberg_ds.verify(identifier_text(sink.options.table), options=options, delete_orphans=True, **choices)


def refusal(result: VerifyResult) -> str:
    """Return why nothing was deleted; all else is well."""
    assert [check.name for check in result.failures] == REFUSED
    assert not any(orphan.deleted for orphan in result.orphans)
    return f"{result.failures[0].detail} {result.failures[0].next_step}"


def age_all(folder: Path, days: float = 9) -> None:
    """Let all files below a folder be so old."""
    then = time.time() - days * DAY_S
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("catalog.db"):
            os.utime(path, (then, then))


def left_behind(sink: Sink, days: float = 9) -> Path:
    """Write a data file as a task does whose driver is killed, and return it."""
    (message,) = sink.write(rows(99))
    path = local(message.data_files[0].file_path)
    then = time.time() - days * DAY_S
    os.utime(path, (then, then))
    return path


def made_at(sink: Sink, location: str, name: str = "t") -> Sink:
    """Return another table, made by others at a location."""
    other = replace(sink, options=replace(sink.options, table=("db", name)))
    plain_catalog(sink).create_table(("db", name), sink.table().schema(), location=location)
    return other


def folder_of(sink: Sink) -> Path:
    """Return where the table is."""
    return local(sink.table().metadata.location)


def with_properties(sink: Sink, **properties: str) -> None:
    """Set properties of the table."""
    named = {key.replace("_", "-").replace("--", "."): text for key, text in properties.items()}
    sink.catalog.send(sink.table(), (), (SetPropertiesUpdate(updates=named),))


def test_table_with_variants_is_known_whole_and_cleaned_up(sink: Sink) -> None:
    """Its snapshots would never expire, nor would what nothing refers to ever be deleted."""
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "name", StringType()), NestedField(3, "v", VariantType())
    )
    sink.create(schema, format_version="3")
    sink.append(1)
    sink.append(2)
    orphan = left_behind(sink)

    assert neighbours.why_partial(sink.table()) is None
    assert cleaned(sink).ok
    assert not orphan.exists()


def test_renamed_table_takes_nothing_of_one_made_at_its_place(sink: Sink) -> None:
    """`db.t` would be unreadable once `t_old` is cleaned up: the two were made at one location."""
    sink.append(1)
    location = sink.table().metadata.location
    old = rename(sink, "db.t_old")
    new = made_at(sink=old, location=location)
    keeps_few = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    new.catalog.send(new.table(), (), (SetPropertiesUpdate(updates=keeps_few),))
    for number in range(2):
        new.append(number)
    age_all(folder_of(old))
    for number in range(2, 4):
        new.append(number)  # none of its metadata files is old now

    why = refusal(cleaned(old))

    assert "is the metadata of another table" in why
    assert f"uuid {new.table().metadata.table_uuid}" in why
    assert location in why
    assert new.ids() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["{}.gz.metadata.json", "{}.metadata.json.gz", "sub/metadata/{}.gz.metadata.json"])
def test_packed_metadata_of_another_table_is_read_wherever_it_lies(sink: Sink, name: str) -> None:
    """A table that packs its metadata would not be seen at all."""
    sink.append(1)
    path = left_behind(sink)
    other = json.loads(local(sink.table().metadata_location).read_text())
    other["table-uuid"] = "6c1b0f3c-0000-4000-8000-000000000001"
    packed = folder_of(sink) / "metadata" / name.format("00007-a")
    packed.parent.mkdir(parents=True, exist_ok=True)
    packed.write_bytes(gzip.compress(json.dumps(other).encode()))

    why = refusal(cleaned(sink))

    assert other["table-uuid"] in why
    assert path.exists()


def test_table_with_its_metadata_in_a_folder_that_both_name_is_seen(sink: Sink, tmp_path: Path) -> None:
    """Tables that keep their metadata elsewhere would lose their rows all the same."""
    with_properties(sink=new_table(sink), write__metadata__path=f"file://{tmp_path}/metadata")
    sink.append(1)
    old = rename(sink, "db.t_old")
    new = made_at(sink=old, location=old.table().metadata.location)
    with_properties(new, write__metadata__path=f"file://{tmp_path}/metadata")
    new.append(2)
    for path in (folder_of(old) / "metadata").glob("*.metadata.json"):
        if str(new.table().metadata.table_uuid) in path.read_text():
            path.unlink()  # what is left of that table lies in the shared folder
    left_behind(old)

    assert "is the metadata of another table" in refusal(cleaned(old))


def new_table(sink: Sink) -> Sink:
    """Return the sink's table, which is there and has no rows."""
    sink.commit(sink.write([]))
    return sink


def test_other_tables_in_a_shared_metadata_folder_are_no_reason_to_refuse(sink: Sink, tmp_path: Path) -> None:
    """Tables of different places that keep their metadata in one folder could never be cleaned up."""
    shared = f"file://{tmp_path}/metadata"
    with_properties(new_table(sink), write__metadata__path=shared)
    path = left_behind(sink)
    other = made_at(sink, f"file://{tmp_path}/elsewhere", "other")
    with_properties(other, write__metadata__path=shared)

    result = cleaned(sink)

    assert result.ok, str(result)
    assert not path.exists()


def test_table_below_keeps_all_its_files_wherever_it_says_they_are(sink: Sink) -> None:
    """A table in a sub-folder that puts its data beside it would be deleted with this one's orphans."""
    sink.append(1)
    location = sink.table().metadata.location
    below = made_at(sink, f"{location}/sub", "below")
    below.append(1)
    with_properties(below, write__data__path=f"{location}/rows_of_sub")
    below.append(2)
    of_a_running_write = local(f"{location}/rows_of_sub/running.parquet")
    of_a_running_write.write_bytes(b"rows that nothing refers to yet")
    age_all(folder_of(sink))
    path = left_behind(sink)

    result = cleaned(sink)

    assert result.ok, str(result)
    assert not path.exists()
    assert below.ids() == [1, 2]
    assert of_a_running_write.exists()


@pytest.mark.parametrize("folder", ["data", "data/id_bucket=3", "metadata/below"])
def test_table_among_the_files_of_another_one_deletes_none_of_them(sink: Sink, folder: str) -> None:
    """Rows of the table around it would be gone."""
    sink.append(1, 2)
    inner = made_at(sink, f"{sink.table().metadata.location}/{folder}", "inner")
    inner.append(3)
    left_behind(inner)
    age_all(folder_of(sink))

    assert "is the metadata of a table around this one" in refusal(cleaned(inner))
    assert sink.ids() == [1, 2]
    assert not any(orphan.deleted for orphan in cleaned(inner).orphans)


def test_table_below_a_folder_called_data_is_cleaned_up(sink: Sink) -> None:
    """Lakes in a folder of that name would keep what killed writers leave for ever."""
    sink.append(1)
    own = made_at(sink, f"{sink.options.warehouse}/data/lake/own", "own")
    own.append(3)
    lost = left_behind(own)

    assert cleaned(own).ok
    assert not lost.exists()
    assert own.ids() == [3]


@pytest.mark.parametrize("place", ["metadata/own", "data/own", "data/metadata/own", "metadata"])
def test_table_below_a_folder_called_metadata_is_cleaned_up(sink: Sink, place: str) -> None:
    """Lakes with namespaces of that name could clean up nothing, and were told to delete the table's own metadata."""
    sink.append(1)
    own = made_at(sink, f"{sink.options.warehouse}/{place}", "own")
    own.append(3)
    other = made_at(sink, f"{sink.options.warehouse}/metadata/other", "other")
    other.append(4)
    lost = left_behind(own)

    assert cleaned(own).ok
    assert not lost.exists()
    assert own.ids() == [3]
    assert other.ids() == [4]


def test_table_that_was_moved_below_its_data_is_cleaned_up(sink: Sink) -> None:
    """Its own earlier metadata was called that of another table."""
    few = {"write.metadata.delete-after-commit.enabled": "false", "write.metadata.previous-versions-max": "1"}
    sink.append(1)
    moved = f"{sink.table().metadata.location}/data/moved"
    sink.catalog.send(sink.table(), (), (SetPropertiesUpdate(updates=few), SetLocationUpdate(location=moved)))
    for number in range(2, 5):
        sink.append(number)
    lost = left_behind(sink)

    assert str(lost).startswith(moved.removeprefix("file://"))
    assert cleaned(sink).ok
    assert not lost.exists()
    assert sink.ids() == [1, 2, 3, 4]


def test_table_among_the_files_of_one_with_metadata_in_a_folder_of_its_own_deletes_none(sink: Sink) -> None:
    """Rows of the table around it would be gone where its metadata lies one folder deeper."""
    sink.append(1)
    location = sink.table().metadata.location
    folder = {"write.metadata.path": f"{location}/metadata/deeper"}
    sink.catalog.send(sink.table(), (), (SetPropertiesUpdate(updates=folder),))
    sink.append(2)
    for first in (folder_of(sink) / "metadata").glob("*.metadata.json"):
        first.unlink()
    inner = made_at(sink, f"{location}/data/inner", "inner")
    inner.append(3)
    left_behind(inner)
    age_all(folder_of(sink))

    assert "is the metadata of a table around this one" in refusal(cleaned(inner))
    assert sink.ids() == [1, 2]


def test_table_among_the_files_of_another_one_is_known_through_links(sink: Sink, tmp_path: Path) -> None:
    """Rows of the table around it would be gone where a folder has two names."""
    sink.append(1, 2)
    inner = f"{folder_of(sink)}/data"
    (tmp_path / "link").symlink_to(inner)
    linked = made_at(sink, f"{tmp_path}/link", "linked")
    linked.append(3)
    left_behind(linked)
    age_all(folder_of(sink))

    assert "is the metadata of a table around this one" in refusal(cleaned(linked))
    assert sink.ids() == [1, 2]


def test_folder_above_that_may_not_be_listed_is_passed_over(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials for one table alone could clean up nothing."""

    def refuse(_: object, location: str) -> None:
        raise PermissionError(location)

    sink.append(1)
    own = made_at(sink, f"{sink.options.warehouse}/data/own", "own")
    own.append(3)
    lost = left_behind(own)
    monkeypatch.setattr(neighbours, "_metadata_files_at", refuse)

    assert cleaned(own).ok
    assert not lost.exists()


def test_table_below_keeps_rows_in_a_folder_that_it_does_not_name_any_more(sink: Sink) -> None:
    """A table in a sub-folder whose data path was changed would lose all rows from before."""
    sink.append(1)
    location = sink.table().metadata.location
    below = made_at(sink, f"{location}/sub", "below")
    with_properties(below, write__data__path=f"{location}/rows_of_sub")
    below.append(1)
    with_properties(below, write__data__path=f"{location}/sub/data", write__metadata__previous_versions_max="1")
    below.append(2)
    below.append(3)
    named = below.table().metadata
    in_log = {local(entry.metadata_file) for entry in named.metadata_log} | {local(below.table().metadata_location)}
    for path in set((folder_of(below) / "metadata").glob("*.metadata.json")) - in_log:
        path.unlink()
    age_all(folder_of(sink))
    path = left_behind(sink)

    result = cleaned(sink)

    assert result.ok, str(result)
    assert not path.exists()
    assert below.ids() == [1, 2, 3]


def test_stale_entry_deletes_nothing_that_another_catalog_has_written(sink: Sink, tmp_path: Path) -> None:
    """What was written through another catalog since would be deleted as rubbish."""
    sink.append(1)
    elsewhere = register_elsewhere(sink, tmp_path / "elsewhere")
    elsewhere.append(2)
    age_all(folder_of(sink))

    why = refusal(cleaned(sink))

    assert f"{elsewhere.table().metadata_location} is a newer state of this table" in why
    assert elsewhere.ids() == [1, 2]


def test_stale_entry_is_seen_though_no_rows_were_written_elsewhere(sink: Sink, tmp_path: Path) -> None:
    """A table that was changed elsewhere would lose its statistics and metadata files."""
    sink.append(1)
    elsewhere = register_elsewhere(sink, tmp_path / "elsewhere")
    with_properties(elsewhere, a="b")
    left_behind(sink)

    assert "newer state of this table" in refusal(cleaned(sink))


def test_two_catalogs_that_have_both_gone_on_delete_nothing_of_each_other(sink: Sink, tmp_path: Path) -> None:
    """The one with more commits would delete the other's rows."""
    sink.append(1)
    elsewhere = register_elsewhere(sink, tmp_path / "elsewhere")
    elsewhere.append(2)
    elsewhere.append(3)
    for number in range(4, 8):
        sink.append(number)
    age_all(folder_of(sink))

    assert "states that this table has never been in" in refusal(cleaned(sink))
    assert "newer state of this table" in refusal(cleaned(elsewhere))
    assert elsewhere.ids() == [1, 2, 3]
    assert sink.ids() == [1, 4, 5, 6, 7]


def test_own_metadata_files_are_deleted_however_long_ago_they_left_the_log(sink: Sink) -> None:
    """A table that keeps no old metadata in its log could never be cleaned up, or only up to the log's length."""
    sink.append(0)
    updates = {
        "write.metadata.delete-after-commit.enabled": "false",
        "write.metadata.previous-versions-max": "2",
    }
    sink.catalog.send(sink.table(), (), (SetPropertiesUpdate(updates=updates),))
    for number in range(1, 8):
        sink.append(number)
    age_all(folder_of(sink))

    result = cleaned(sink)

    assert result.ok, str(result)
    assert len(list((folder_of(sink) / "metadata").glob("*.metadata.json"))) == 3
    assert sink.ids() == list(range(8))


def test_state_of_a_lost_attempt_does_not_stop_the_deletion(sink: Sink) -> None:
    """One conflict would keep all that others left behind for ever."""
    sink.append(1)
    table = plain_table(sink)
    register_edited(sink, lambda document: document)  # the file that it stood at is in no log
    sink.append(2)
    age_all(folder_of(sink))

    result = cleaned(sink)

    assert result.ok, str(result)
    assert not local(table.metadata_location).exists()
    assert sink.ids() == [1, 2]


def changed_once(sink: Sink) -> None:
    """Change a property."""
    with_properties(sink, a="b")


def emptied_once(sink: Sink) -> None:
    """Delete all rows, whose files stay for the snapshots before."""
    sink.overwrite([])


@pytest.mark.parametrize("write", [lambda sink: sink.append(2), changed_once, emptied_once])
def test_single_commit_of_another_catalog_keeps_all_that_it_refers_to(
    sink: Sink, tmp_path: Path, caplog: pytest.LogCaptureFixture, write: Callable[[Sink], object]
) -> None:
    """Rows, or the whole table, would be gone from a catalog in which it was changed once and never again."""
    sink.append(1)
    elsewhere = register_elsewhere(sink, tmp_path / "elsewhere")
    write(elsewhere)
    there = elsewhere.ids()
    sink.overwrite(rows(3))
    sink.append(4)
    expire(sink, cuts_parents=True)
    path = left_behind(sink)
    age_all(folder_of(sink))

    result = cleaned(sink)

    assert result.ok, str(result)
    assert not path.exists()
    check_sound(elsewhere.table())
    assert elsewhere.ids() == there
    assert cleaned(sink).ok
    assert caplog.text.count(f"Files that {elsewhere.table().metadata_location} refers to stay") == 1


def test_loose_metadata_file_is_read_once(sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that never let go of its metadata would take twice as long to clean up."""
    sink.append(1)
    elsewhere = register_elsewhere(sink, tmp_path / "elsewhere")
    followed = sink.table().metadata_location
    elsewhere.append(2)
    loose = elsewhere.table().metadata_location
    sink.append(3)
    left_behind(sink)
    opened = Counter[str]()
    opening = LocalFile.open

    def counted(file: LocalFile, seekable: bool = True) -> Any:  # noqa: FBT001, FBT002  # PyIceberg's signature
        opened[file.location] += 1
        return opening(file, seekable)

    monkeypatch.setattr(LocalFile, "open", counted)

    result = cleaned(sink)

    assert result.ok, str(result)
    assert (opened[loose], opened[followed]) == (1, 1)


@pytest.mark.parametrize("is_missing", [True, False])
def test_files_of_a_loose_state_are_known_or_gone(sink: Sink, tmp_path: Path, *, is_missing: bool) -> None:
    """Rows would be deleted that a state has whose manifests a store does not give out just now."""
    sink.append(1)
    elsewhere = register_elsewhere(sink, tmp_path / "elsewhere")
    elsewhere.append(2)
    sink.append(3)
    path = left_behind(sink)
    head = elsewhere.table().current_snapshot()
    assert head is not None
    if is_missing:
        local(head.manifest_list).unlink()
    else:
        local(head.manifest_list).write_bytes(b"half of it")

    result = cleaned(sink)

    assert result.ok == is_missing
    assert path.exists() != is_missing
    assert is_missing or "refers to is not known: manifest list" in refusal(result)


def test_state_that_is_deleted_by_hand_keeps_nothing(sink: Sink, tmp_path: Path) -> None:
    """What a killed commit left would take space for good."""
    sink.append(1)
    killed = register_elsewhere(sink, tmp_path / "killed")
    killed.append(2)
    sink.append(3)
    age_all(folder_of(sink))
    local(killed.table().metadata_location).unlink()

    result = cleaned(sink)

    assert result.ok, str(result)
    assert unreferenced_files(sink.table()) == set()
    assert any(orphan.deleted for orphan in result.orphans)


def test_state_of_a_lost_attempt_of_a_write_that_landed_keeps_nothing(sink: Sink) -> None:
    """Each conflict of engines that leave metadata behind would keep the files of all snapshots of that day."""
    sink.append(1)
    sink.append(2)
    landed = local(sink.table().metadata_location)
    lost = landed.with_name("00001-lost.metadata.json")
    lost.write_bytes(landed.read_bytes())
    sink.append(3)
    age_all(folder_of(sink))

    result = cleaned(sink)

    assert result.ok, str(result)
    assert not lost.exists()
    assert sink.ids() == [1, 2, 3]


@pytest.mark.parametrize("content", [b'{"format-version": 2', b"", b"[]", b'{"format-version": 1, "location": "/x"}'])
def test_metadata_that_cannot_be_understood_stops_the_deletion(sink: Sink, content: bytes) -> None:
    """It may be that of another table, whose rows would be deleted."""
    sink.append(1)
    path = left_behind(sink)
    half = folder_of(sink) / "metadata" / "00009-half.metadata.json"
    half.write_bytes(content)

    why = refusal(cleaned(sink))

    assert half.name in why
    assert path.exists()


def test_clock_ahead_of_the_store_deletes_no_young_files(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a write that runs would be deleted by a machine whose clock is wrong."""
    sink.append(1)
    young, old = left_behind(sink, days=1), left_behind(sink, days=4)
    _shift_clock(monkeypatch, days=30)

    result = cleaned(sink)

    assert young.exists()
    assert not old.exists()
    assert [local(orphan.path) for orphan in result.orphans] == [old]
    assert list(folder_of(sink).glob(".*")) == []


def test_clock_behind_the_store_deletes_what_is_old_enough(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing would ever be old enough."""
    sink.append(1)
    old = left_behind(sink, days=4)
    _shift_clock(monkeypatch, days=-30)

    assert cleaned(sink).ok
    assert not old.exists()


def _shift_clock(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + int(days * DAY_S * 10**9))


@pytest.mark.parametrize("spelling", ["file:{}", "file://{}", "{}", "file://localhost{}"])
def test_folder_is_listed_by_each_spelling_of_it(tmp_path: Path, spelling: str) -> None:
    """Nothing would be found below a location that Java has written, neither orphans nor another's metadata."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "f").write_bytes(b"x")

    (found,) = stored_files({}, spelling.format(tmp_path))

    assert found.path == spelling.format(tmp_path / "data" / "f")


def test_table_in_a_folder_that_java_spelled_is_cleaned_up(sink: Sink, tmp_path: Path) -> None:
    """Its orphans would stay for ever, and nobody be told."""
    sink = made_at(new_table(sink), f"file:{tmp_path}/java", "java")
    sink.append(1)
    path = left_behind(sink)

    assert cleaned(sink).ok
    assert not path.exists()
    assert sink.ids() == [1]


def test_recreated_table_gets_a_place_of_its_own(sink: Sink) -> None:
    """Two tables in one folder could not be cleaned up any more."""
    sink.append(1)
    place = sink.table().metadata.location
    olds = []
    for number in range(2):
        olds.append(rename(sink, f"db.t_old{number}"))
        sink.append(10 + number)
    places = [table.table().metadata.location for table in (*olds, sink)]

    assert places[0] == place
    assert len(set(places)) == 3
    assert all(found.startswith(f"{place}-") for found in places[1:])
    for table in (*olds, sink):
        age_all(folder_of(table))
        assert cleaned(table).ok
    assert [table.ids() for table in (*olds, sink)] == [[1], [10], [11]]


def test_writers_that_create_a_table_at_once_agree_on_its_place(sink: Sink) -> None:
    """The files of all but the first would lie outside of the table."""
    sink.append(1)
    rename(sink, "db.t_old")

    first, second = sink.plan(), sink.plan()

    assert first.location == second.location
    for plan in (first, second):
        sink.commit(sink.write(rows(2), plan=plan))
    assert sink.ids() == [2, 2]


def test_table_that_another_writer_is_creating_is_waited_for(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of jobs that write the first rows of a table at once, all but one would fail."""
    other = sink.write(rows(1))
    find, looks = sink.catalog.find_table, itertools.count()

    def find_later(identifier: Sequence[str]) -> Table | None:
        if next(looks) == 1:  # the first one after the planner has found no table
            plain_catalog(sink).create_table(sink.options.table, planned.schema())
            return None
        return find(identifier)

    planned = TableMetadataUtil.parse_raw(other[0].write.new_table or "")
    place = local(planned.location) / "metadata"
    place.mkdir(parents=True)
    (place / "00000-0.metadata.json").write_text("{}")
    monkeypatch.setattr(sink.catalog, "find_table", find_later)
    monkeypatch.setattr(prepare, "_WAITS_S", (0.0,))

    plan = sink.plan()

    assert plan.write.new_table is None
    sink.commit(sink.write(rows(2), plan=plan))
    assert sink.ids() == [2]


def test_table_that_others_create_elsewhere_meanwhile_gets_no_file_at_another_place(sink: Sink, tmp_path: Path) -> None:
    """The next table at the place of these files would delete them as rubbish."""
    messages = sink.write(rows(1))
    planned = TableMetadataUtil.parse_raw(messages[0].write.new_table or "")
    plain_catalog(sink).create_table(sink.options.table, planned.schema(), location=f"file://{tmp_path}/elsewhere")

    with pytest.raises(CommitConflictError, match=r"created it at the same moment at file://.*/elsewhere"):
        sink.commit(messages)
    sink.append(2)

    assert sink.ids() == [2]
    assert not any(path.exists() for path in paths_of(messages))


def test_files_of_a_killed_first_write_do_not_move_the_table(sink: Sink) -> None:
    """Each try would begin in another folder, and leave its rubbish where nobody looks for it."""
    first = sink.plan()
    sink.write(rows(1), plan=first)
    (local(first.location) / "metadata").mkdir(exist_ok=True)
    (local(first.location) / "metadata" / "0-m0.avro").write_bytes(b"x")

    assert sink.plan().location == first.location


def test_place_that_holds_another_table_is_refused_by_name(sink: Sink) -> None:
    """A table would be made in the folder of another one."""
    sink.append(1)
    location = sink.table().metadata.location

    with pytest.raises(OptionError, match=r"Cannot create db\.u: option 'location' .* holds the metadata of another"):
        sink.plan(table=("db", "u"), location=location)
    assert sink.plan(location=location).location == location
    assert sink.plan(table=("db", "u"), location=f"{location}/sub").location == f"{location}/sub"


def test_place_that_a_rest_catalog_chooses_is_not_that_of_another_table(tmp_path: Path) -> None:
    """A server that makes places of names would put a table into the folder of one that was renamed."""
    with serve_rest_fake(tmp_path) as server:
        sink = sink_of(server)
        place = sink.plan().location
        held = local(place) / "metadata" / "00000-a.metadata.json"
        held.parent.mkdir(parents=True)
        held.write_text("{}")

        sink.append(1)

        assert sink.table().metadata.location.startswith(f"{place}-")
        assert sink.ids() == [1]


def test_place_that_cannot_be_listed_is_taken(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without the right to list, which writing does not need, could create no table."""

    def forbidden(*_: object) -> None:
        raise PermissionError("AccessDenied")

    monkeypatch.setattr("iceberg_ds.planning.prepare.metadata_file_in", forbidden)

    sink.append(1)

    assert sink.ids() == [1]


def test_clock_of_a_local_folder_is_that_of_its_files(tmp_path: Path) -> None:
    """Ages would be told by two clocks."""
    before = (tmp_path / "f").write_bytes(b"") or (tmp_path / "f").stat().st_mtime_ns // 1_000_000

    assert before <= store_clock_ms({}, f"file:{tmp_path}") <= before + 60_000
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
