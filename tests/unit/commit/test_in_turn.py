"""Epochs of several tables in catalogs that take no request for several: all is ready before the first table shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
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
from support.tables.epochs import Tables
from support.tables.sink import Sink, paths_of, rows

from iceberg_ds.commit.together import TableWrite
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    IcebergSinkError,
    RefusedRowsError,
)
from iceberg_ds.fault_points import FaultPoint, listen

pytestmark = pytest.mark.usefixtures("waits", "one_by_one")

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


def check_all_clean(tables: Tables) -> None:
    """Assert that every table is whole, and that neither data files nor metadata files lie around."""
    for name in tables.names:
        check_clean(tables.sink(name).table())
        assert tables.metadata_files(name) == set()


def few_retries(tables: Tables) -> None:
    """Let commits be tried twice only."""
    for name in tables.names:
        with tables.sink(name).table().transaction() as change:
            change.set_properties({"commit.retry.num-retries": "1"})


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

    with pytest.raises(CommitConflictError, match="None of 3 tables was committed, because they are committed"):
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
    faulty_catalog.before_commit(3, lambda: seen.append(tables.ids()))

    tables.commit(tables.to_all(0, 1))

    assert seen == [NONE]
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
    few_retries(tables)
    writes = tables.to_all(0, 1)
    faulty_catalog.fail_next(9, connection_lost)

    with pytest.raises(
        CommitStateUnknownError, match=r"^It is unknown of 1 of 3 tables if they have their rows; no other has them:"
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


@pytest.mark.parametrize("step", [FaultPoint.TABLES_SEEN, FaultPoint.TABLES_PREPARED])
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


@pytest.mark.parametrize("step", FaultPoint)
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
