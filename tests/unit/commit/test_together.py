"""Epochs of several tables in one request: all tables or none, whatever the catalog answers, and each exactly once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import pytest
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import LongType
from sqlalchemy import event
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    When,
    connection_lost,
    false_refusal,
    forbidden,
    refusal,
    server_error,
    state_unknown,
    throttled,
    timed_out,
)
from support.checks.invariants import check_clean, check_sound, unreferenced_files
from support.metrics.reports import reports_on
from support.tables.changes_by_others import plain_catalog
from support.tables.epochs import DAMAGES, Tables, check_all_clean, let_retry
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import Sink, paths_of, rows

from iceberg_ds.catalog.answers import TogetherRefusedError
from iceberg_ds.commit import together
from iceberg_ds.commit.retry import RetryPolicy
from iceberg_ds.commit.table_write import TableWrite
from iceberg_ds.commit.together import commit_tables
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    RefusedRowsError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.planning.plan_write import WriteMode

pytestmark = pytest.mark.usefixtures("waits")

Damage: TypeAlias = Callable[[Tables, str, pytest.MonkeyPatch], None]

BOTH = {"a": [0, 1], "b": [0, 1]}
NEITHER = {"a": [0], "b": [0]}


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    """Let each catalog's way be said again."""
    together._told.clear()


@pytest.fixture
def tables(sink: Sink) -> Tables:
    """Return two tables that have one row each."""
    found = Tables(of_one=sink)
    found.create()
    return found


@pytest.fixture
def faulty(tables: Tables, faulty_sink: Sink) -> Tables:
    """Return the same tables through a catalog that fails on demand."""
    return Tables(of_one=faulty_sink, names=tables.names)


def test_one_request_changes_all_tables(faulty: Tables, faulty_catalog: FaultyCatalog) -> None:
    """A reader would see half an epoch."""
    results = faulty.commit(faulty.to_all(0, 1))

    assert [result.record_count for result in results] == [1, 1]
    assert faulty_catalog.together == faulty_catalog.commits == 1
    assert faulty.ids() == BOTH
    check_all_clean(faulty)


def test_replayed_epoch_adds_nothing(faulty: Tables, faulty_catalog: FaultyCatalog) -> None:
    """Rows of a repeated epoch would be there twice."""
    faulty.commit(faulty.to_all(0, 1))

    results = faulty.commit(faulty.to_all(0, 1))

    assert all(result.was_replayed for result in results)
    assert faulty_catalog.commits == 1
    assert faulty.ids() == BOTH
    check_all_clean(faulty)


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize(
    "error",
    [refusal, throttled, state_unknown, server_error, connection_lost, timed_out],
    ids=lambda error: error.__name__,
)
def test_answer_that_says_otherwise_is_found_out(
    faulty: Tables, faulty_catalog: FaultyCatalog, error: Callable[[], Exception], when: When
) -> None:
    """Rows would be lost or doubled, or files of a landed write deleted."""
    faulty_catalog.fail_next(1, error, when=when)

    faulty.commit(faulty.to_all(0, 1))

    assert faulty.ids() == BOTH
    assert faulty_catalog.together == (1 if when is When.AFTER else 2)
    for name in faulty.names:
        check_sound(faulty.sink(name).table())


def test_answers_that_stay_away_leave_files_and_the_next_run_lands_them(
    faulty: Tables, faulty_catalog: FaultyCatalog
) -> None:
    """A request that arrives late would refer to files that are gone."""
    let_retry(faulty, 1)
    writes = faulty.to_all(0, 1)
    faulty_catalog.fail_next(9, connection_lost)

    with pytest.raises(
        CommitStateUnknownError, match="2 tables are committed together, and what became of them is unknown"
    ):
        faulty.commit(writes)
    assert all(path.exists() for write in writes for path in paths_of(write.commits))
    faulty_catalog.forget()

    faulty.commit(faulty.to_all(0, 1))

    assert faulty.ids() == BOTH


def test_table_whose_outcome_is_unknown_is_not_said_to_be_without_its_rows(
    faulty: Tables, faulty_catalog: FaultyCatalog
) -> None:
    """The user would write the rows again, which a table that was renamed has."""

    def rename_one() -> None:
        faulty_catalog.inner.rename_table("db.b", "db.b_old")

    faulty_catalog.after_commit(faulty_catalog.commits + 1, rename_one)

    with pytest.raises(
        CommitStateUnknownError,
        match=r"^It is unknown of 1 of 2 tables whether they have their rows; the other tables have their rows, and",
    ) as unknown:
        faulty.commit(faulty.to_all(0, 1))

    assert "not committed" not in str(unknown.value)
    assert faulty.sink("a").ids() == [0, 1]


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ("cc", "None of 2 tables was committed"),
        ("uu", "It is unknown of 2 of 2 tables whether they have their rows"),
        ("cu", "1 of 2 tables were not committed, and it is unknown of 1 of 2 tables whether they have their rows"),
        ("c", "1 of 2 tables were not committed; the other tables have their rows, and are skipped"),
    ],
)
def test_summary_counts_tables_without_rows_and_those_in_doubt(kinds: str, said: str) -> None:
    """The user would take a table in doubt for one without its rows."""
    told = together._some_failed(2, kinds.count("c"), kinds.count("u"), is_numbered=True)

    assert told.startswith(said)


@pytest.mark.parametrize("is_next", [True, False], ids=["before the next request", "when all is over"])
def test_request_that_arrives_late_lands_once(faulty: Tables, faulty_catalog: FaultyCatalog, *, is_next: bool) -> None:
    """The rows of a held-up request would be there twice."""
    faulty_catalog.hold_next()
    if is_next:
        faulty_catalog.before_commit(2, lambda: faulty_catalog.deliver() and None)

    faulty.commit(faulty.to_all(0, 1))
    faulty_catalog.deliver()

    assert faulty.ids() == BOTH


@pytest.mark.parametrize("lost", ["a", "b"])
@pytest.mark.parametrize("error", [None, connection_lost], ids=["204", "no answer"])
def test_change_that_the_server_loses_is_committed_singly_and_told(
    faulty: Tables,
    faulty_catalog: FaultyCatalog,
    caplog: pytest.LogCaptureFixture,
    lost: str,
    error: Callable[[], Exception] | None,
) -> None:
    """The reference server answers 204 and loses a table's change: its rows would be lost."""
    for number in (0, 1):
        faulty_catalog.lose_changes(lost)
        if error is not None:
            faulty_catalog.fail_next(1, error, when=When.AFTER)
        faulty.commit(faulty.to_all(number, number + 1))

    assert faulty.ids() == {"a": [0, 1, 2], "b": [0, 1, 2]}
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "is not atomic over tables" in told[0]
    check_all_clean(faulty)


def test_server_that_loses_everything_is_found_out(faulty: Tables, faulty_catalog: FaultyCatalog) -> None:
    """An answer would be believed that no table confirms."""
    faulty_catalog.lose_changes("a", "b")

    faulty.commit(faulty.to_all(0, 1))

    assert faulty.ids() == BOTH
    assert (faulty_catalog.together, faulty_catalog.commits) == (1, 3)


def test_epoch_that_an_earlier_run_left_half_is_finished(faulty: Tables, faulty_catalog: FaultyCatalog) -> None:
    """A table would stay behind for ever, or the other one would get its rows twice."""
    three = replace(faulty, names=("a", "b", "c"))
    three.sink("c").append(0)
    faulty_catalog.commits = 0
    faulty.sink("b").commit(faulty.write(0, {"b": [1]})[0].commits)

    results = three.commit(three.to_all(0, 1))

    assert [result.was_replayed for result in results] == [False, True, False]
    assert faulty_catalog.together == 1
    assert three.ids() == BOTH | {"c": [0, 1]}
    check_all_clean(three)


def test_racing_writer_of_one_table_keeps_neither_from_landing(
    tables: Tables, faulty: Tables, faulty_catalog: FaultyCatalog
) -> None:
    """The request would be lost to the other writer's commit, or overwrite it."""
    faulty_catalog.before_commit(1, lambda: tables.sink("b").append(7) and None)

    faulty.commit(faulty.to_all(0, 1))

    assert faulty.ids() == {"a": [0, 1], "b": [0, 1, 7]}
    assert faulty_catalog.together == 2
    check_all_clean(faulty)


def test_writer_that_comes_between_the_metadata_files_and_the_transaction_is_not_overwritten(
    tables: Tables,
    faulty: Tables,
    faulty_catalog: FaultyCatalog,
    at_point: Callable[[FaultPoint, Callable[[], None]], None],
) -> None:
    """A pointer would move over the other writer's commit, or move without the pointer of the other table."""
    at_point(FaultPoint.POINTERS_READY, lambda: tables.sink("b").append(7) and None)

    faulty.commit(faulty.to_all(0, 1))

    assert faulty.ids() == {"a": [0, 1], "b": [0, 1, 7]}
    assert faulty_catalog.together == 2
    check_all_clean(faulty)


@pytest.fixture
def at_point() -> Iterator[Callable[[FaultPoint, Callable[[], None]], None]]:
    """Return what lets something happen once, when the process comes to a step."""
    planned: dict[FaultPoint, Callable[[], None]] = {}

    def act(step: FaultPoint) -> None:
        planned.pop(step, lambda: None)()

    listen(act)
    yield planned.__setitem__
    listen(None)


@pytest.mark.parametrize("step", [FaultPoint.TABLES_SEEN, FaultPoint.TABLES_PREPARED, FaultPoint.POINTERS_READY])
def test_second_driver_of_the_same_epoch_is_fenced_in_every_table(
    tables: Tables, at_point: Callable[[FaultPoint, Callable[[], None]], None], step: FaultPoint
) -> None:
    """Two drivers would put the rows in twice, or one table's from one and the other's from the other."""
    mine, other = tables.to_all(0, 1), tables.to_all(0, 8)
    at_point(step, lambda: tables.commit(other) and None)

    with pytest.raises(CommitConflictError, match="another live driver"):
        tables.commit(mine)

    assert tables.ids() == {"a": [0, 8], "b": [0, 8]}
    check_all_clean(tables)


def gone(tables: Tables) -> None:
    """Drop a table."""
    tables.catalog.raw.drop_table(("db", "b"))


def replaced(tables: Tables) -> None:
    """Put another table of the same name in the place of one."""
    gone(tables)
    tables.sink("b").create(ID_AND_NAME)


def retyped(tables: Tables) -> None:
    """Let a written column be another one of the same name."""
    with tables.sink("b").table().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("name")
    with tables.sink("b").table().update_schema() as change:
        change.add_column("name", LongType())


def later(tables: Tables) -> None:
    """Land a later epoch of the same query."""
    tables.sink("b").commit(tables.write(5, {"b": [5]})[0].commits)


STEPS = (None, FaultPoint.TABLES_SEEN, FaultPoint.TABLES_PREPARED, FaultPoint.POINTERS_READY)


@pytest.mark.parametrize(
    ("happens", "step"),
    # No request requires the schema that the look before it saw.
    [(retyped, None), (retyped, FaultPoint.POINTERS_READY)]
    + [(happens, step) for happens in (gone, replaced, later) for step in STEPS],
)
def test_table_that_can_never_land_keeps_the_other_from_landing(
    tables: Tables,
    at_point: Callable[[FaultPoint, Callable[[], None]], None],
    happens: Callable[[Tables], None],
    step: FaultPoint | None,
) -> None:
    """A reader would see half an epoch for as long as nobody repairs the table, and files of the other would stay."""
    writes = tables.to_all(0, 1)
    if step is None:
        happens(tables)
    else:
        at_point(step, lambda: happens(tables))

    with pytest.raises(IcebergSinkError, match="None of 2 tables was committed: if one fails"):
        tables.commit(writes)

    assert tables.sink("a").ids() == [0]
    check_clean(tables.sink("a").table())
    assert tables.metadata_files("a") == set()


def test_table_that_can_never_land_does_not_keep_back_an_epoch_that_has_begun(tables: Tables) -> None:
    """Tables of an epoch that is half there would stay behind one that nobody repairs."""
    three = replace(tables, names=("a", "b", "c"))
    three.sink("c").append(0)
    tables.sink("a").commit(tables.write(0, {"a": [1]})[0].commits)
    later(tables)

    with pytest.raises(CommitConflictError, match="1 of 3 tables were not committed; the other tables have their rows"):
        three.commit(three.to_all(0, 1))

    assert three.ids() == {"a": [0, 1], "b": [0, 5], "c": [0, 1]}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("broken", ["b", "d"])
def test_epoch_that_has_begun_is_finished_where_another_table_cannot_be(
    faulty: Tables, monkeypatch: pytest.MonkeyPatch, damage: Damage, broken: str
) -> None:
    """Sound tables would stay behind for ever, because of one that nobody mends."""
    four = replace(faulty, names=("a", "b", "c", "d"))
    four.sink("c").append(0)
    four.sink("d").append(0)
    writes = four.to_all(0, 1)
    four.sink("a").commit(four.write(0, {"a": [1]})[0].commits)

    with monkeypatch.context() as patch:
        damage(four, broken, patch)
        with pytest.raises(IcebergSinkError, match="1 of 4 tables were not committed; the other tables have") as told:
            four.commit(writes)

    assert str(told.value).count("db.") == str(told.value).count(f"db.{broken}")
    assert four.ids() == {name: [0, 1] for name in four.names} | {broken: [0]}


@pytest.mark.parametrize("damage", DAMAGES)
def test_error_and_reports_name_the_broken_table_alone(
    faulty: Tables, monkeypatch: pytest.MonkeyPatch, damage: Damage
) -> None:
    """The user would look for a missing right in tables that have none missing."""
    three = replace(faulty, names=("a", "b", "c"))
    three.sink("c").append(0)
    writes, taken = three.to_all(0, 1), reports_on(three.of_one)

    with monkeypatch.context() as patch:
        damage(three, "b", patch)
        with pytest.raises(IcebergSinkError, match="None of 3 tables was committed") as told:
            three.commit(writes)

    assert str(told.value).count("db.") == str(told.value).count("db.b")
    assert [(report.table, report.files_left) for report in taken] == [("db.a", 0), ("db.b", 0), ("db.c", 0)]
    assert three.ids() == {"a": [0], "b": [0], "c": [0]}
    for name in ("a", "c"):
        check_clean(three.sink(name).table())


def test_refused_rows_of_one_table_keep_the_other_from_landing(tables: Tables) -> None:
    """Half of a batch would be there, and its files would stay."""
    good = TableWrite(commits=tables.sink("a").write(rows(1)))
    bad = TableWrite(commits=tables.sink("b").write_over(rows(9), replace_where="id < 5"))

    with pytest.raises(RefusedRowsError, match="do not satisfy replace-where"):
        tables.commit([good, bad])

    assert tables.ids() == NEITHER
    check_all_clean(tables)


def test_lost_file_of_one_table_keeps_the_other_from_landing(tables: Tables) -> None:
    """Half of an epoch would be there."""
    writes = tables.to_all(0, 1)
    paths_of(writes[1].commits)[0].unlink()

    with pytest.raises(DataFileError, match="None of 2 tables"):
        tables.commit(writes)

    assert tables.ids() == NEITHER
    assert unreferenced_files(tables.sink("a").table()) == set()


def test_refusal_that_lasts_leaves_nothing(faulty: Tables, faulty_catalog: FaultyCatalog) -> None:
    """Files that no table refers to would stay."""
    faulty_catalog.fail_next(9, forbidden)

    with pytest.raises(CatalogError, match="no right to write"):
        faulty.commit(faulty.to_all(0, 1))

    assert faulty_catalog.together == 1
    assert faulty.ids() == NEITHER
    check_all_clean(faulty)


def test_catalog_that_cannot_be_reached_is_asked_again(faulty: Tables, faulty_catalog: FaultyCatalog) -> None:
    """A short outage would fail the epoch."""
    writes = faulty.to_all(0, 1)
    faulty_catalog.fail_next_loads(3, connection_lost, after=1)

    faulty.commit(writes)

    assert faulty.ids() == BOTH


def test_catalog_that_is_back_when_it_is_asked_no_more_is_given_up(
    faulty: Tables, faulty_catalog: FaultyCatalog
) -> None:
    """The epoch would go round for ever, without a request."""
    writes = faulty.to_all(0, 1)
    faulty_catalog.fail_next_loads(RetryPolicy().num_other_retries + 2, connection_lost)

    with pytest.raises(IcebergSinkError, match="None of 2 tables was committed"):
        faulty.commit(writes)

    assert faulty.ids() == NEITHER
    check_all_clean(faulty)


def test_catalog_that_stays_away_after_the_request_leaves_the_outcome_open(
    faulty: Tables, faulty_catalog: FaultyCatalog
) -> None:
    """Files of an epoch that landed would be deleted."""
    let_retry(faulty, 1)
    writes = faulty.to_all(0, 1)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.fail_next_loads(99, connection_lost))

    with pytest.raises(CommitStateUnknownError):
        faulty.commit(writes)
    faulty_catalog._load_faults.clear()

    assert faulty.ids() == BOTH
    assert all(result.was_replayed for result in faulty.commit(faulty.to_all(0, 1)))


def test_refusal_of_a_server_is_no_proof_for_a_table_that_has_not_moved(
    tables: Tables, faulty: Tables, faulty_catalog: FaultyCatalog
) -> None:
    """A request that a gateway sent twice, and that is still under way, would refer to files that are gone."""
    writes = faulty.to_all(0, 1)
    faulty_catalog.fail_next(1, false_refusal)
    faulty_catalog.after_commit(1, lambda: later(tables))

    with pytest.raises(CommitStateUnknownError, match="an earlier request may still be carried out"):
        faulty.commit(writes)

    assert faulty.ids() == {"a": [0], "b": [0, 5]}
    assert all(path.exists() for path in paths_of(writes[0].commits))


def test_reader_of_both_pointers_never_sees_half_an_epoch(faulty: Tables, faulty_catalog: FaultyCatalog) -> None:
    """Foreign keys between the tables would not resolve."""
    errors = [None, refusal, connection_lost, None, state_unknown, throttled]
    engine, seen, is_over = faulty_catalog.inner.engine, set[tuple[int | None, ...]](), threading.Event()

    def look() -> None:
        with engine.connect() as connection:  # one statement sees one state of the database
            found = connection.exec_driver_sql("SELECT metadata_location FROM iceberg_tables ORDER BY table_name")
            seen.add(tuple(epoch_of(StaticTable.from_metadata(row[0])) for row in found.all()))

    def poll() -> None:
        while not is_over.wait(0.005):
            look()

    def look_after_each_move(*arguments: object) -> None:
        if "UPDATE iceberg_tables" in str(arguments[2]):
            look()

    event.listen(engine, "after_cursor_execute", look_after_each_move)
    reader = threading.Thread(target=poll)
    reader.start()
    for number, error in enumerate(errors):
        if error is not None:
            faulty_catalog.fail_next(1, error, when=When.AFTER if number % 2 else When.BEFORE)
        faulty.commit(faulty.to_all(number, number + 1))
    is_over.set()
    reader.join()

    assert faulty.ids() == {name: list(range(len(errors) + 1)) for name in faulty.names}
    assert len(seen) > 1
    assert all(len({*epochs}) == 1 for epochs in seen)


def epoch_of(table: Table) -> int | None:
    """Return the epoch of the table's newest snapshot of a stream."""
    told = [snapshot.summary for snapshot in table.metadata.snapshots if snapshot.summary is not None]
    return max((int(found["spark.sql.streaming.epochId"] or -1) for found in told), default=None)


def test_new_tables_are_created_first_and_take_part(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A new table would keep the epoch from being atomic, or its rows would be lost."""
    tables = Tables(of_one=faulty_sink, names=("a", "new", "newer"))
    tables.sink("a").append(0)
    faulty_catalog.commits = 0

    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0, 1], "new": [1], "newer": [1]}
    assert (faulty_catalog.together, faulty_catalog.commits) == (1, 3)
    check_all_clean(tables)


@pytest.mark.parametrize("when", When)
def test_creation_whose_answer_is_lost_costs_no_table(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, when: When
) -> None:
    """A look at one table would be taken for proof about the new table's file, and the table would be lost."""
    tables = Tables(of_one=faulty_sink, names=("a", "new"))
    tables.sink("a").append(0)
    writes = tables.to_all(0, 1)
    faulty_catalog.fail_next(1, connection_lost, when=when)

    tables.commit(writes)

    assert tables.ids() == {"a": [0, 1], "new": [1]}


@pytest.mark.parametrize("others", ["rename", "drop"])
def test_new_table_that_others_take_away_at_once_is_not_created_twice(sink: Sink, others: str) -> None:
    """Two tables would have one UUID and one folder, and maintenance of the one would delete files of the other."""
    tables = Tables(of_one=sink, names=("a", "new"))
    tables.sink("a").append(0)
    plain = plain_catalog(sink)

    def hear(reached: FaultPoint) -> None:
        if reached is FaultPoint.TABLES_CREATED:
            listen(None)
            if others == "rename":
                plain.rename_table("db.new", "db.old")
            else:
                plain.drop_table("db.new")

    listen(hear)
    with pytest.raises(
        CommitConflictError, match=r"db\.new .*dropped or renamed before its rows were committed.*again"
    ):
        tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0]}
    tables.commit(tables.to_all(0, 1))
    assert tables.ids() == {"a": [0, 1], "new": [1]}
    if others == "rename":
        assert plain.load_table("db.old").metadata.table_uuid != plain.load_table("db.new").metadata.table_uuid


def test_new_table_is_not_created_if_another_one_can_never_land(sink: Sink) -> None:
    """Tables that no epoch fills would appear."""
    tables = Tables(of_one=sink, names=("b", "new"))
    tables.sink("b").append(0)
    writes = tables.to_all(0, 1)
    later(tables)

    with pytest.raises(CommitConflictError):
        tables.commit(writes)

    assert not tables.has("new")


def test_table_without_rows_takes_no_part(tables: Tables) -> None:
    """Empty snapshots would appear in every table that an epoch could have written."""
    results = tables.commit(tables.write(0, {"a": [1], "b": []}))

    assert [result.snapshot_id is None for result in results] == [False, True]
    assert tables.ids() == {"a": [0, 1], "b": [0]}


def test_staged_rows_are_published_after_all_have_landed(tables: Tables) -> None:
    """Rows of a write-audit-publish epoch would stay on their branches."""
    plans = [tables.sink(name).plan(staging_branch="stage") for name in tables.names]

    tables.commit([TableWrite(commits=tables.of_one.write(rows(1), plan=plan)) for plan in plans])

    assert tables.ids() == BOTH


def test_catalog_without_such_requests_commits_one_after_the_other(
    faulty: Tables, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Hive and Glue would not be written at all, or nobody would know what readers see."""
    monkeypatch.setattr(faulty_catalog, "can_commit_tables", False, raising=False)
    caplog.set_level(logging.INFO)

    for number in (0, 1):
        faulty.commit(faulty.to_all(number, number + 1))

    assert (faulty_catalog.together, faulty_catalog.commits) == (0, 4)
    assert faulty.ids() == {"a": [0, 1, 2], "b": [0, 1, 2]}
    assert sum("one after the other" in record.message for record in caplog.records) == 1


def test_server_that_refuses_such_requests_gets_one_for_each_table(
    faulty: Tables, faulty_catalog: FaultyCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that advertises what it does not have could not be written to."""
    faulty_catalog.fail_next(1, lambda: TogetherRefusedError("405"))

    faulty.commit(faulty.to_all(0, 1))

    assert (faulty_catalog.together, faulty_catalog.commits) == (1, 3)
    assert faulty.ids() == BOTH
    assert "refuses requests for several tables" in caplog.text


def test_unknown_outcome_after_such_a_refusal_is_told_of_its_table_alone(
    faulty: Tables, faulty_catalog: FaultyCatalog
) -> None:
    """The user would look for rows in tables that surely have none."""
    writes = faulty.to_all(0, 1)
    faulty_catalog.fail_next(1, lambda: TogetherRefusedError("404"))
    faulty_catalog.fail_next(99, connection_lost)

    with pytest.raises(CommitStateUnknownError, match=r"^It is unknown of 1 of 2 tables(.|\n)*db\.a"):
        faulty.commit(writes)

    assert [all(path.exists() for path in paths_of(write.commits)) for write in writes] == [True, False]


@pytest.mark.parametrize("retries", [0, 2])
def test_epoch_that_has_begun_is_tried_as_often_as_its_tables_say(
    faulty: Tables, faulty_catalog: FaultyCatalog, retries: int
) -> None:
    """A catalog that is overrun would be asked twice as often as the user has allowed."""
    three = replace(faulty, names=("a", "b", "c"))
    three.sink("c").append(0)
    let_retry(three, retries)
    three.sink("a").commit(three.write(0, {"a": [1]})[0].commits)
    writes, taken = three.to_all(0, 1), reports_on(three.of_one)
    faulty_catalog.fail_next(99, throttled)

    with pytest.raises(CommitConflictError, match=r"2 of 3 tables were not committed(.|\n)*TooManyRequests"):
        three.commit(writes)

    assert {report.table: report.attempts for report in taken} == {"db.a": 0, "db.b": 1 + retries, "db.c": 1 + retries}


def test_bad_rows_of_a_table_that_may_not_get_the_epoch_are_not_added(
    faulty: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be written back into a table that has newer rows, once the user mends them."""
    monkeypatch.setattr(type(faulty.catalog), "is_atomic_over_tables", True)
    three = replace(faulty, names=("a", "b", "q"))
    three.sink("q").append(0)
    three.sink("a").commit(three.write(0, {"a": [1]})[0].commits)
    writes = three.write(0, {"a": [1], "b": [1]})
    (bad,) = three.write(0, {"q": [9]})
    later(faulty)

    with pytest.raises(CommitConflictError, match=r"1 of 2 tables were not committed(.|\n)*db\.b"):
        commit_tables(faulty.catalog, writes, first=[replace(bad, sources=("db.b",))], epoch_id=0)

    assert three.ids() == {"a": [0, 1], "b": [0, 5], "q": [0]}


@pytest.mark.parametrize("is_atomic", [True, False])
@pytest.mark.parametrize("is_overwrite", [True, False])
def test_table_that_lands_first_takes_no_other_rows(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, *, is_atomic: bool, is_overwrite: bool
) -> None:
    """A line of a transaction would replace the rows that another one kept, and a repetition not bring them back."""
    monkeypatch.setattr(type(sink.catalog), "takes_many_tables", property(lambda _: is_atomic))
    sink.append(0)
    kept = TableWrite(commits=sink.write(rows(1)))
    mode = WriteMode.OVERWRITE if is_overwrite else WriteMode.APPEND
    other = TableWrite(commits=sink.write(rows(2), plan=sink.plan(mode=mode)))

    with pytest.raises(OptionError, match="A quarantine table takes no other rows"):
        commit_tables(sink.catalog, [other], first=[kept])
    assert sink.ids() == [0]
