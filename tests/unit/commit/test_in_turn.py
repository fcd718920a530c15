"""Epochs of several tables in catalogs that take no request for several: all is ready before the first table shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TypeAlias

import pytest
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    Strike,
    When,
    connection_lost,
    forbidden,
    refusal,
    server_error,
    state_unknown,
    throttled,
    timed_out,
)
from support.checks.invariants import check_clean, check_sound, unreferenced_files
from support.exhaustive import few
from support.faults.kinds import Kind, Way
from support.metrics.reports import reports_on
from support.tables.epochs import DAMAGES, Tables, check_all_clean, let_retry
from support.tables.sink import Sink, paths_of, rows

from iceberg_ds.catalog import staged_metadata
from iceberg_ds.commit.producer import SnapshotProducer
from iceberg_ds.commit.table_write import TableWrite
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    IcebergSinkError,
    RefusedRowsError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.io.cleanup import Proof

pytestmark = pytest.mark.usefixtures("waits", "one_by_one")

Damage: TypeAlias = Callable[[Tables, str, pytest.MonkeyPatch], None]

NAMES = ("a", "b", "c")
ALL = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
NONE = {"a": [0], "b": [0], "c": [0]}

ERRORS = pytest.mark.parametrize(
    "error", [refusal, throttled, state_unknown, server_error, connection_lost, timed_out], ids=lambda e: e.__name__
)
NUMBERS = pytest.mark.parametrize("number", [0, 1, 2], ids=["first", "second", "last"])


@pytest.fixture
def tables(faulty_sink: Sink) -> Tables:
    """Return three tables that have one row each, in a catalog that fails on demand."""
    found = Tables(of_one=faulty_sink, names=NAMES)
    found.create()
    return found


@pytest.fixture(autouse=True)
def _counted_from_now(tables: Tables, faulty_catalog: FaultyCatalog) -> None:
    """Count the commits of a test alone."""
    assert faulty_catalog.commits == len(tables.names)
    faulty_catalog.commits = 0


@pytest.fixture
def heard() -> Iterator[list[FaultPoint]]:
    """Return the steps that the process comes to."""
    steps: list[FaultPoint] = []
    listen(steps.append)
    yield steps
    listen(None)


def test_nothing_but_requests_comes_between_the_first_table_and_the_last(
    tables: Tables, heard: list[FaultPoint]
) -> None:
    """Readers would see half an epoch for as long as manifests of many tables are read and written."""
    writes = tables.to_all(0, 1)
    heard.clear()

    tables.commit(writes)

    assert tables.ids() == ALL
    answered = [number for number, step in enumerate(heard) if step is FaultPoint.REQUEST_ANSWERED]
    between = set(heard[answered[0] : answered[-1]])
    assert len(answered) == len(NAMES)
    assert between.isdisjoint({FaultPoint.TABLE_LOADED, FaultPoint.COMMIT_BEGUN, FaultPoint.MANIFESTS_WRITTEN})
    assert heard[: answered[0]].count(FaultPoint.MANIFESTS_WRITTEN) == len(NAMES)
    check_all_clean(tables)


def drop(tables: Tables) -> None:
    """Drop the last table."""
    tables.catalog.raw.drop_table(("db", "c"))


def land_later(tables: Tables) -> None:
    """Land a later epoch of the same query in the last table."""
    tables.sink("c").commit(tables.write(5, {"c": [5]})[0].commits)


@pytest.mark.parametrize("happens", [drop, land_later])
def test_table_that_can_never_land_keeps_the_others_from_landing(
    tables: Tables, happens: Callable[[Tables], None]
) -> None:
    """Readers would see half an epoch for as long as nobody repairs the table, and files of the others would stay."""
    writes = tables.to_all(0, 1)
    happens(tables)

    with pytest.raises(CommitConflictError, match="None of 3 tables was committed: if one fails"):
        tables.commit(writes)

    of_others = replace(tables, names=("a", "b"))
    assert of_others.ids() == {"a": [0], "b": [0]}
    check_all_clean(of_others)


def test_refused_rows_of_one_table_keep_the_others_from_landing(tables: Tables) -> None:
    """Half of a batch would be there, and its files would stay."""
    good = [TableWrite(commits=tables.sink(name).write(rows(1))) for name in ("a", "b")]
    bad = TableWrite(commits=tables.sink("c").write_over(rows(9), replace_where="id < 5"))

    with pytest.raises(RefusedRowsError, match="do not satisfy replace-where"):
        tables.commit([*good, bad])

    assert tables.ids() == NONE
    check_all_clean(tables)


def test_lost_file_of_one_table_keeps_the_others_from_landing(tables: Tables) -> None:
    """Half of an epoch would be there."""
    writes = tables.to_all(0, 1)
    paths_of(writes[2].commits)[0].unlink()

    with pytest.raises(DataFileError, match="None of 3 tables"):
        tables.commit(writes)

    assert tables.ids() == NONE
    assert unreferenced_files(tables.sink("a").table()) == set()


def test_new_table_is_not_created_if_another_one_can_never_land(tables: Tables) -> None:
    """Tables that no epoch fills would appear."""
    with_new = replace(tables, names=("c", "new"))
    writes = with_new.to_all(0, 1)
    land_later(tables)

    with pytest.raises(CommitConflictError):
        with_new.commit(writes)

    assert not with_new.has("new")


def test_new_table_is_created_by_the_request_for_its_rows(tables: Tables, faulty_catalog: FaultyCatalog) -> None:
    """It would be empty for readers, and stay so if the driver died."""
    with_new = replace(tables, names=("a", "new", "newer"))

    with_new.commit(with_new.to_all(0, 1))

    assert with_new.ids() == {"a": [0, 1], "new": [1], "newer": [1]}
    assert faulty_catalog.commits == 3
    check_all_clean(with_new)


@pytest.mark.parametrize("when", When)
@ERRORS
@NUMBERS
def test_answer_that_says_otherwise_is_found_out(
    tables: Tables, faulty_catalog: FaultyCatalog, number: int, error: Callable[[], Exception], when: When
) -> None:
    """Rows would be lost or doubled, or files of a landed write deleted."""
    faulty_catalog.pass_next(number)
    faulty_catalog.fail_next(1, error, when=when)

    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == ALL
    assert faulty_catalog.together == 0
    for name in tables.names:
        check_sound(tables.sink(name).table())


@ERRORS
def test_nothing_is_sent_after_a_failure_before_the_first_table_shows(
    tables: Tables, faulty_catalog: FaultyCatalog, error: Callable[[], Exception]
) -> None:
    """Readers would see some tables without the first one for as long as that has to wait."""
    seen: list[dict[str, list[int]]] = []
    faulty_catalog.fail_next(2, error)
    for number in (2, 3, 4):
        faulty_catalog.before_commit(number, lambda: seen.append(tables.ids()))

    tables.commit(tables.to_all(0, 1))

    assert seen == [NONE, NONE, NONE | {"a": [0, 1]}]
    assert tables.ids() == ALL
    assert faulty_catalog.commits == 5


@NUMBERS
def test_refusal_that_lasts_is_told_of_its_table_alone(
    tables: Tables, faulty_catalog: FaultyCatalog, number: int
) -> None:
    """The user would look for a missing right in tables that have none missing, or files would stay."""
    writes = tables.to_all(0, 1)
    faulty_catalog.pass_next(number)
    faulty_catalog.fail_next(1, forbidden)
    faulty_catalog.pass_next(2 - number)
    faulty_catalog.fail_next(9, forbidden)

    with pytest.raises(CatalogError, match="no right to write") as refused:
        tables.commit(writes)

    text, refused_table = str(refused.value), NAMES[number]
    assert text.count("Cannot commit") == text.count(f"Cannot commit db.{refused_table} ") == 1
    assert text.startswith("1 of 3 tables were not committed" if number else "None of 3 tables was committed")
    assert tables.ids() == (ALL | {refused_table: [0]} if number else NONE)
    check_all_clean(tables)


def test_outcome_that_stays_unknown_keeps_the_others_from_landing(
    tables: Tables, faulty_catalog: FaultyCatalog
) -> None:
    """Readers would see half an epoch; or files would be deleted of a table that may have its rows."""
    let_retry(tables, 1)
    writes = tables.to_all(0, 1)
    faulty_catalog.fail_next(9, connection_lost)

    with pytest.raises(
        CommitStateUnknownError,
        match=r"^It is unknown of 1 of 3 tables whether they have their rows; no other",
    ) as unknown:
        tables.commit(writes)

    assert "db.b" not in str(unknown.value)
    assert tables.ids() == NONE
    assert [all(path.exists() for path in paths_of(write.commits)) for write in writes] == [True, False, False]
    faulty_catalog.forget()
    tables.commit(tables.to_all(0, 1))
    assert tables.ids() == ALL


@NUMBERS
def test_racing_writer_keeps_no_table_from_landing(
    tables: Tables, faulty_catalog: FaultyCatalog, sink: Sink, number: int
) -> None:
    """A request would be lost to the other writer's commit, or overwrite it."""
    other = Tables(of_one=sink, names=NAMES)
    name = NAMES[number]
    faulty_catalog.before_commit(number + 1, lambda: other.sink(name).append(7) and None)

    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == ALL | {name: [0, 1, 7]}
    check_all_clean(tables)


def test_epoch_that_an_earlier_run_left_half_is_finished(tables: Tables, faulty_catalog: FaultyCatalog) -> None:
    """A table would stay behind for ever, or another one would get its rows twice."""
    tables.sink("b").commit(tables.write(0, {"b": [1]})[0].commits)
    faulty_catalog.fail_next(1, refusal)

    results = tables.commit(tables.to_all(0, 1))

    assert [result.was_replayed for result in results] == [False, True, False]
    assert tables.ids() == ALL
    check_all_clean(tables)


def test_table_that_can_never_land_does_not_keep_back_an_epoch_that_has_begun(tables: Tables) -> None:
    """Tables of an epoch that is half there would stay behind one that nobody repairs."""
    tables.sink("a").commit(tables.write(0, {"a": [1]})[0].commits)
    land_later(tables)

    with pytest.raises(CommitConflictError, match="1 of 3 tables were not committed; the other tables have their rows"):
        tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0, 1], "b": [0, 1], "c": [0, 5]}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("broken", "sound"), [("b", "c"), ("c", "b")])
def test_epoch_that_has_begun_is_finished_where_another_table_cannot_be(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, damage: Damage, broken: str, sound: str
) -> None:
    """A sound table would stay behind for ever, because of one that nobody mends."""
    writes = tables.to_all(0, 1)
    tables.sink("a").commit(tables.write(0, {"a": [1]})[0].commits)

    with monkeypatch.context() as patch:
        damage(tables, broken, patch)
        with pytest.raises(IcebergSinkError, match="1 of 3 tables were not committed; the other tables have") as told:
            tables.commit(writes)

    assert f"db.{sound}" not in str(told.value)
    assert tables.ids() == {"a": [0, 1], sound: [0, 1], broken: [0]}


@pytest.mark.parametrize("damage", DAMAGES)
def test_error_and_reports_name_the_broken_table_alone(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, damage: Damage
) -> None:
    """The user would look for a missing right in tables that have none missing."""
    writes, taken = tables.to_all(0, 1), reports_on(tables.of_one)

    with monkeypatch.context() as patch:
        damage(tables, "b", patch)
        with pytest.raises(IcebergSinkError, match="None of 3 tables was committed") as told:
            tables.commit(writes)

    assert str(told.value).count("db.") == str(told.value).count("db.b")
    assert [(report.table, report.files_left) for report in taken] == [("db.a", 0), ("db.b", 0), ("db.c", 0)]
    assert tables.ids() == {"a": [0], "b": [0], "c": [0]}
    for name in ("a", "c"):
        check_clean(tables.sink(name).table())


def test_wait_that_the_catalog_asks_for_is_kept(
    tables: Tables, faulty_catalog: FaultyCatalog, waits: list[float]
) -> None:
    """A catalog that is overrun would be asked again at once."""
    writes = tables.to_all(0, 1)
    asked = Kind(way=Way.STATUS, status=429, headers=(("Retry-After", "1"),))
    faulty_catalog.begin(Strike(method="commit_table", number=2, kind=asked))
    waits.clear()

    tables.commit(writes)

    assert sum(waits) >= 1


@pytest.mark.parametrize("retries", [0, 2])
def test_table_is_tried_as_often_as_its_properties_say(
    tables: Tables, faulty_catalog: FaultyCatalog, retries: int
) -> None:
    """`commit.retry.num-retries` would count for less than it says."""
    let_retry(tables, retries)
    writes, taken = tables.to_all(0, 1), reports_on(tables.of_one)
    faulty_catalog.pass_next(1)
    faulty_catalog.fail_next(1, refusal)
    faulty_catalog.pass_next(1)
    faulty_catalog.fail_next(9, refusal)

    with pytest.raises(CommitConflictError, match=r"1 of 3 tables were not committed(.|\n)*db\.b"):
        tables.commit(writes)

    assert {report.table: report.attempts for report in taken} == {"db.a": 1, "db.b": 1 + retries, "db.c": 1}


def test_time_of_other_tables_counts_not_against_a_table(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many tables, the last would be given up without a single attempt, each time that the epoch is repeated."""
    clock, slow = time.monotonic, 0.0
    produce = SnapshotProducer.produce

    def produce_slowly(producer: SnapshotProducer, table: Table) -> Snapshot | None:
        nonlocal slow
        slow += 16 * 60  # of the 30 minutes in which a table is tried
        return produce(producer, table)

    monkeypatch.setattr(time, "monotonic", lambda: clock() + slow)
    monkeypatch.setattr(SnapshotProducer, "produce", produce_slowly)
    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == ALL


def test_two_appends_to_one_table_do_not_race_each_other(tables: Tables) -> None:
    """One would be refused because of the other, and fail where nothing is tried again."""
    with tables.sink("a").table().transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    writes = [TableWrite(commits=tables.sink("a").write(rows(number))) for number in (1, 2)]
    taken = reports_on(tables.of_one)

    tables.commit(writes)

    assert tables.sink("a").ids() == [0, 1, 2]
    assert [(report.attempts, report.conflicts) for report in taken] == [(1, 0), (1, 0)]


def test_second_append_to_a_table_leaves_nothing_if_another_table_fails(tables: Tables) -> None:
    """Its files would stay, because it was not looked at before."""
    good = [TableWrite(commits=tables.sink("a").write(rows(number))) for number in (1, 2)]
    bad = TableWrite(commits=tables.sink("c").write_over(rows(9), replace_where="id < 5"))

    with pytest.raises(RefusedRowsError, match="do not satisfy replace-where"):
        tables.commit([*good, bad])

    assert tables.ids() == NONE
    check_all_clean(tables)


def test_busy_table_does_not_keep_the_epoch_from_landing(faulty_sink: Sink, sink: Sink) -> None:
    """Each try would take as long as all tables together, and another writer would be faster for ever."""
    names = tuple("abcdefghij")
    tables, other = Tables(of_one=faulty_sink, names=names), Tables(of_one=sink, names=names)
    for name in names:
        tables.sink(name).append(0)
        with tables.sink(name).table().transaction() as change:
            change.set_properties({"commit.retry.num-retries": "30"})
    writes, steps = tables.to_all(0, 1), 5

    def act(step: FaultPoint) -> None:
        nonlocal steps
        if step in {FaultPoint.TABLE_LOADED, FaultPoint.MANIFESTS_WRITTEN}:
            steps += 1
            if steps % 12 == 0:
                listen(None)
                other.sink("a").append(steps)
                listen(act)

    listen(act)
    try:
        tables.commit(writes)
    finally:
        listen(None)

    assert all(1 in ids for ids in tables.ids().values())


def test_staged_metadata_is_deleted_in_the_store_of_its_own_table(
    tables: Tables, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would stay in a store of its own, and the files that it names would be deleted before it."""
    other, racing = Tables(of_one=sink, names=NAMES), {"b", "c"}
    staged, deleted = {}, []
    note, delete = staged_metadata._Staged.note, staged_metadata.delete_files

    def note_and_race(of_commit: staged_metadata._Staged, file: staged_metadata.StagedMetadata) -> None:
        staged[file.path] = file
        note(of_commit, file)
        if file.name[-1] in racing:
            racing.discard(file.name[-1])
            other.sink(file.name[-1]).append(7)

    def delete_and_tell(io: FileIO, paths: Collection[str], proof: Proof) -> int:
        deleted.extend((io, path) for path in paths)
        return delete(io, paths, proof)

    monkeypatch.setattr(staged_metadata._Staged, "note", note_and_race)
    monkeypatch.setattr(staged_metadata, "delete_files", delete_and_tell)
    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0, 1], "b": [0, 1, 7], "c": [0, 1, 7]}
    assert {staged[path].name[-1] for _, path in deleted} == {"b", "c"}
    assert [path for io, path in deleted if io is not staged[path].io] == []


@pytest.mark.parametrize("step", [FaultPoint.TABLE_LOADED, FaultPoint.TABLES_PREPARED])
def test_second_driver_of_the_same_epoch_is_fenced_in_every_table(tables: Tables, step: FaultPoint) -> None:
    """Two drivers would put the rows in twice, or one table's from one and the other's from the other."""
    mine, other = tables.to_all(0, 1), tables.to_all(0, 8)

    def act(reached: FaultPoint) -> None:
        if reached is step:
            listen(None)
            tables.commit(other)

    listen(act)
    with pytest.raises(CommitConflictError, match="another live driver"):
        tables.commit(mine)

    assert tables.ids() == {"a": [0, 8], "b": [0, 8], "c": [0, 8]}
    check_all_clean(tables)


@pytest.mark.parametrize("step", few(8, FaultPoint))
@NUMBERS
def test_interrupted_epoch_is_finished_by_the_next_run(tables: Tables, step: FaultPoint, number: int) -> None:
    """Rows of the tables that were not reached would be lost, or those of the others doubled."""
    reached: list[FaultPoint] = []

    def act(point: FaultPoint) -> None:
        reached.append(point)
        if point is step and reached.count(step) == number + 1:
            listen(None)
            raise KeyboardInterrupt

    writes = tables.to_all(0, 1)
    listen(act)
    try:
        tables.commit(writes)
    except (KeyboardInterrupt, IcebergSinkError):
        pass
    finally:
        listen(None)
    was_there = {name: tables.ids()[name] for name in NAMES}
    assert all(found in ([0], [0, 1]) for found in was_there.values())

    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == ALL
    for name in NAMES:
        check_sound(tables.sink(name).table())
