"""Metadata files of commits that did not land: gone if that is proven, and never the one that the table stands at."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import MetastoreCatalog, load_catalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, SetPropertiesUpdate
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, refusal
from support.tables.sink import Sink, local, rows

from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.catalog.staged_metadata import Fate, StagedMetadata, fate, note_staged, tidying_metadata
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.commit.commit import commit_write
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.snapshots.refs import branch_snapshot_id
from iceberg_ds.table.requests import CommitRequest

pytestmark = pytest.mark.usefixtures("waits")


def metadata_files(table: Table) -> set[str]:
    """Return the metadata files in the table's folder."""
    return {f"file://{path}" for path in local(table.metadata.location).rglob("*.metadata.json")}


def known_files(table: Table) -> set[str]:
    """Return the metadata files that the table stands at, or stood at."""
    return {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}


def after_staging(monkeypatch: pytest.MonkeyPatch, catalog: FaultyCatalog, *actions: Callable[[], None] | None) -> None:
    """Do one of the actions, None for nothing, whenever `catalog` has written a metadata file and not yet committed."""
    left = list(actions)

    def write(metadata: TableMetadata, io: Any, metadata_path: str) -> None:
        MetastoreCatalog._write_metadata(metadata, io, metadata_path)
        action = left.pop(0) if left else None
        if action is not None:
            action()

    monkeypatch.setattr(catalog._inner, "_write_metadata", write)


def lose_connection() -> None:
    """Fail as a connection does."""
    raise connection_lost()


def test_lost_races_leave_no_metadata_file(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's folder would fill with a file for each race that a writer loses."""
    sink.append(1)
    after_staging(monkeypatch, faulty_catalog, lambda: _append(sink, 2), lambda: _append(sink, 3))

    faulty_sink.append(4)

    assert faulty_catalog.commits == 3
    assert sink.ids() == [1, 2, 3, 4]
    assert metadata_files(sink.table()) == known_files(sink.table())


def test_lost_race_for_a_new_table_leaves_no_metadata_file(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of jobs that start together on a new table, one would leave a file behind."""
    after_staging(monkeypatch, faulty_catalog, lambda: _append(sink, 1))

    faulty_sink.append(2)

    assert sink.ids() == [1, 2]
    assert metadata_files(sink.table()) == known_files(sink.table())


def test_writer_that_gives_up_leaves_no_metadata_file(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed write would leave files behind."""
    sink.append(1)
    _retries(sink, 1)
    after_staging(monkeypatch, faulty_catalog, lambda: _append(sink, 2), lambda: _append(sink, 3))

    with pytest.raises(CommitConflictError, match="after 2 attempts"):
        faulty_sink.append(4)

    assert sink.ids() == [1, 2, 3]
    assert metadata_files(sink.table()) == known_files(sink.table())


def test_lost_race_of_a_change_without_rows_leaves_no_metadata_file(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schema changes and publications would leave what appends do not."""
    sink.append(1)
    after_staging(monkeypatch, faulty_catalog, lambda: _append(sink, 2))

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        if "changed" in metadata.properties:
            return None
        unmoved = AssertRefSnapshotId(ref="main", snapshot_id=branch_snapshot_id(metadata, "main"))
        return CommitRequest(requirements=(unmoved,), updates=(SetPropertiesUpdate(updates={"changed": "yes"}),))

    alter_table(faulty_sink.catalog, sink.options.table, propose)

    assert faulty_catalog.commits == 2
    assert metadata_files(sink.table()) == known_files(sink.table())


def test_connection_that_breaks_before_the_commit_leaves_no_metadata_file_once_the_next_has_landed(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hiccup of a database would leave a file behind."""
    sink.append(1)
    after_staging(monkeypatch, faulty_catalog, lose_connection)

    faulty_sink.append(2)

    assert sink.ids() == [1, 2]
    assert metadata_files(sink.table()) == known_files(sink.table())


def test_metadata_file_of_a_request_that_may_still_be_carried_out_stays(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that arrives late would set the table to a file that is gone: the whole table would be lost."""
    sink.append(1)
    _retries(sink, 0)
    before = metadata_files(sink.table())
    after_staging(monkeypatch, faulty_catalog, lose_connection)

    with pytest.raises(CommitStateUnknownError):
        faulty_sink.append(2)

    assert len(metadata_files(sink.table()) - before) == 1


@pytest.mark.parametrize("error", [refusal, connection_lost])
@pytest.mark.parametrize("stale_loads", [0, 1, 2])
def test_metadata_file_that_the_table_stands_at_is_never_deleted(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception], stale_loads: int
) -> None:
    """The whole table would be lost because an answer was wrong, or lost, and a cache stood before the catalog."""
    sink.append(1)
    older = sink.table()
    sink.append(2)
    messages = faulty_sink.write(rows(3))
    faulty_catalog.fail_next(1, error, when=When.AFTER)
    # The state before the one that the request built on: to it, everything later is unknown.
    faulty_catalog.after_commit(1, lambda: faulty_catalog.serve_stale(older, times=stale_loads))

    with suppress(CommitStateUnknownError):  # to the older state, what followed it has expired
        faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    assert metadata_files(sink.table()) == known_files(sink.table())


@pytest.mark.parametrize("error", [refusal, connection_lost])
def test_metadata_file_that_the_table_stands_at_outlives_a_writer_that_gives_up(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception]
) -> None:
    """The whole table would be lost if the last answer was wrong and the last look saw an old state."""
    sink.append(1)
    _retries(sink, 0)
    before = sink.table()
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, error, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.serve_stale(before))

    with pytest.raises((CommitConflictError, CommitStateUnknownError)):
        commit_write(faulty_sink.catalog, messages)

    assert local(sink.table().metadata_location).exists()


def staged(follows: str | None, table: Table, path: str = "file:///t/ours.metadata.json") -> StagedMetadata:
    """Return a metadata file of a commit to that table."""
    return StagedMetadata(
        path=path,
        name=table.name(),
        follows=follows,
        table_uuid=str(table.metadata.table_uuid),
        io=LocalFileIO(),
    )


@pytest.fixture
def states(sink: Sink) -> list[Table]:
    """Return a table after each of its first three commits."""
    found = []
    for number in range(3):
        sink.append(number)
        found.append(sink.table())
    return found


def _fate(file: StagedMetadata, seen: Table) -> Fate:
    return fate(file, seen.metadata, seen.metadata_location)


def test_file_whose_place_another_one_took_is_passed_over(states: list[Table]) -> None:
    """Files of lost races would stay for ever."""
    file = staged(states[0].metadata_location, states[0])

    assert _fate(file, states[1]) is Fate.PASSED_OVER
    assert _fate(file, states[2]) is Fate.PASSED_OVER


def test_file_that_the_table_stood_at_is_taken(states: list[Table]) -> None:
    """The table would lose its present state, or one that it can be rolled back to."""
    file = staged(states[0].metadata_location, states[0], path=states[1].metadata_location)

    assert _fate(file, states[1]) is Fate.TAKEN
    assert _fate(file, states[2]) is Fate.TAKEN


def test_state_that_does_not_know_the_one_before_proves_nothing(states: list[Table]) -> None:
    """An old state out of a cache would be taken for a later one, and the table lost."""
    file = staged(states[1].metadata_location, states[0])

    assert _fate(file, states[0]) is Fate.OPEN
    assert _fate(file, states[1]) is Fate.OPEN


def test_history_that_is_cut_off_proves_nothing(sink: Sink) -> None:
    """A file that has landed and fallen out of the table's log would be taken for one that never did."""
    sink.append(1)
    first = sink.table()
    with first.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    sink.append(2)
    sink.append(3)

    assert _fate(staged(first.metadata_location, first), sink.table()) is Fate.OPEN


def test_file_that_would_have_created_the_table_is_open_whatever_has_its_name(
    states: list[Table], warehouse: Path
) -> None:
    """A table that has just been created would be lost, also if it was renamed and another one took its name."""
    other = load_catalog("other", type="sql", uri=f"sqlite:///{warehouse}/other.db", warehouse=f"file://{warehouse}/o")
    other.create_namespace("db")
    stranger = other.create_table("db.t", states[0].schema())
    file = staged(None, states[0])

    assert _fate(file, states[2]) is Fate.OPEN
    assert _fate(file, stranger) is Fate.OPEN


def test_one_table_tells_nothing_of_the_file_of_another(sink: Sink) -> None:
    """A commit of a table and of its copy would delete the file that the table stands at: the table itself."""
    sink.append(1)
    copied = sink.table().metadata_location
    settings = catalog_settings(sink.options)
    load_catalog(settings.name, **dict(settings.properties)).register_table(("db", "copy"), copied)
    copy = replace(sink, options=replace(sink.options, table=("db", "copy")))
    copy.append(2)  # the log of the copy has the table's metadata file, as the table's own will have
    sink.append(3)
    new = sink.table()
    made = StagedTable(new.name(), new.metadata, new.metadata_location, new.io, new.catalog)

    with tidying_metadata():
        note_staged(made, follows=copied)
        copy.table()

    assert local(new.metadata_location).exists()


@pytest.mark.parametrize("kind", [SqlCatalog, HiveCatalog])
def test_catalogs_stage_through_the_method_that_is_noted(kind: type[MetastoreCatalog]) -> None:
    """With a new PyIceberg, files of lost races would stay, and nobody would notice."""
    assert "_update_and_stage_table" in kind.commit_table.__code__.co_names
    assert "_update_and_stage_table" not in vars(kind)


def _append(sink: Sink, *ids: int) -> None:
    """Append through a connection of its own."""
    Sink(catalog=sink.catalog.another(), options=sink.options).append(*ids)


def _retries(sink: Sink, number: int) -> None:
    """Set how often a commit to the table is tried again."""
    settings = catalog_settings(sink.options)
    catalog = load_catalog(settings.name, **dict(settings.properties))
    with catalog.load_table(sink.options.table).transaction() as change:
        change.set_properties({"commit.retry.num-retries": str(number)})


def _keep_one_old_file(sink: Sink) -> None:
    with sink.table().transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})


def test_metadata_file_that_stays_keeps_its_manifest_list(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever finds the file and gives it to another catalog would have a table that no reader can read."""
    sink.append(1)
    _keep_one_old_file(sink)
    before = metadata_files(sink.table())

    def lose_after_others() -> None:
        # So many that the table's log does not tell any more that another file followed.
        with ThreadPoolExecutor(1) as others:  # what they load is no sight of the table for this commit
            list(others.map(partial(_append, sink), (2, 3, 4)))
        lose_connection()

    after_staging(monkeypatch, faulty_catalog, lose_after_others)

    faulty_sink.append(5)

    assert sink.ids() == [1, 2, 3, 4, 5]
    (lost,) = metadata_files(sink.table()) - before - known_files(sink.table())
    other = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "other"))
    other.create_namespace("db")
    registered = other.register_table(("db", "t"), lost)
    assert registered.scan().to_arrow()["id"].to_pylist() == [5, 1]


def test_file_that_names_a_manifest_list_goes_before_the_list(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is killed in between, or may not delete the file, would leave one whose table is broken."""
    sink.append(1)
    after_staging(monkeypatch, faulty_catalog, lambda: _append(sink, 2))
    delete, kept = LocalFileIO.delete, []

    def delete_no_metadata(io: LocalFileIO, location: Any) -> None:
        if ".metadata.json" in str(location):
            kept.append(location)
            raise PermissionError("denied")
        delete(io, location)

    monkeypatch.setattr(LocalFileIO, "delete", delete_no_metadata)

    faulty_sink.append(3)

    assert len(kept) == 1
    (snapshot,) = (
        one
        for one in FromInputFile.table_metadata(sink.table().io.new_input(kept[0])).snapshots
        if sink.table().metadata.snapshot_by_id(one.snapshot_id) != one
    )
    assert local(snapshot.manifest_list).exists()


@pytest.mark.parametrize("is_told", [True, False])
def test_metadata_file_that_stays_keeps_what_was_given_up(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_told: bool
) -> None:
    """Whoever registers the file would have a table without its rows: it may not be deleted, or its fate is unknown."""
    sink = replace(faulty_sink, catalog=faulty_sink.catalog.another())
    sink.append(1)
    _retries(sink, 0)
    if not is_told:
        _keep_one_old_file(sink)
    before = metadata_files(sink.table())

    def lose_after_others() -> None:
        with ThreadPoolExecutor(1) as others:
            list(others.map(partial(_append, sink), (2, 3, 4)))
        if not is_told:
            lose_connection()

    after_staging(monkeypatch, faulty_catalog, lose_after_others)
    delete = LocalFileIO.delete

    def delete_no_metadata(io: LocalFileIO, location: Any) -> None:
        if ".metadata.json" in str(location):
            raise PermissionError("denied")
        delete(io, location)

    monkeypatch.setattr(LocalFileIO, "delete", delete_no_metadata if is_told else delete)

    with pytest.raises(CommitConflictError, match="after 1 attempts"):
        faulty_sink.append(5)

    (lost,) = metadata_files(sink.table()) - before - known_files(sink.table())
    other = SqlCatalog("other", uri=f"sqlite:///{tmp_path}/other.db", warehouse=str(tmp_path / "other"))
    other.create_namespace("db")
    assert other.register_table(("db", "t"), lost).scan().to_arrow()["id"].to_pylist() == [5, 1]
