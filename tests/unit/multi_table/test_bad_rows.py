"""Rows that cannot be written, in upserts, transactions and writes whose rows name their tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql.types import StringType, StructField, StructType
from support.catalogs.faulty_catalog import FaultyCatalog
from support.checks.invariants import unreferenced_files
from support.checks.reader import rows_of
from support.spark.local_frame import LocalFrame, without_moving_rows
from support.spark.tables import Warehouse
from support.tables.bad_rows import SENT, TABLE, commit, quarantined, sent, tasks, write
from support.tables.changes_by_others import head_of, plain_table, set_branch
from support.tables.routed import RoutedSink
from support.tables.sink import Sink

import iceberg_ds
from iceberg_ds.errors import IcebergSinkError, RefusedRowsError
from iceberg_ds.fault_points import FaultPoint, listen

WAYS = pytest.mark.parametrize("way", ["together", "one_by_one"])
IN_ONE = {"on-bad-row": "quarantine", "quarantine-table": "db.bad"}


@pytest.fixture(autouse=True)
def _rows_stay(waits: list[float]) -> Iterator[None]:
    """Let the rows of the frames stay in their tasks, and let nothing sleep."""
    with without_moving_rows():
        yield
    listen(None)
    assert waits is not None


def rows(*ids: str | None) -> Any:
    """Return rows of `SENT` with these ids as a DataFrame whose one task runs in this process."""
    return LocalFrame(parts=[[{"id": number, "amount": "1", "token": None} for number in ids]], schema=SENT)


def ids(sink: Sink, name: str) -> list[int]:
    """Return the ids in a table, in order; none if there is no such table."""
    try:
        found = sink.catalog.raw.load_table(("db", name)).scan().to_arrow()
    except NoSuchTableError:
        return []
    return sorted(found.column("id").to_pylist())


def bad(sink: Sink, name: str = "bad") -> list[tuple[str, str]]:
    """Return the tables and rows in the quarantine."""
    return sorted((row["table"], row["row"]) for row in quarantined(sink, name))


def create(sink: Sink, *names: str) -> None:
    """Create tables of `TABLE`."""
    sink.catalog.raw.create_namespace_if_not_exists("db")
    for name in names:
        sink.catalog.raw.create_table(("db", name), TABLE)


@WAYS
def test_upsert_keeps_its_bad_rows_once(sink: Sink, warehouse: Path, request: pytest.FixtureRequest, way: str) -> None:
    """An upsert would lose them, or have them twice when it is run again."""
    if way == "one_by_one":
        request.getfixturevalue(way)
    create(sink, "t")
    options = {**Warehouse(folder=warehouse).options, "on-bad-row": "quarantine", "keys": "id", "evolve-keys": "true"}
    numbered = {**options, "txn-app-id": "app", "txn-version": "1"}

    iceberg_ds.upsert(rows("1", "2"), "db.t", options=options)
    for _ in range(2):
        result = iceberg_ds.upsert(rows("2", "x", None, "3"), "db.t", options=numbered)

    assert result.was_replayed
    assert ids(sink, "t") == [1, 2, 3]
    assert [row["reason"].partition(":")[0] for row in quarantined(sink)] == ["cast", "key"]


@WAYS
@pytest.mark.parametrize("step", [FaultPoint.QUARANTINED, FaultPoint.COMMITTED])
def test_transaction_that_dies_keeps_the_bad_rows_of_all_tables_once(
    sink: Sink, warehouse: Path, request: pytest.FixtureRequest, way: str, step: FaultPoint
) -> None:
    """Rows of the second table would be in the quarantine twice, because the first one is skipped."""
    if way == "one_by_one":
        request.getfixturevalue(way)
    create(sink, "a", "b")

    def run() -> None:
        options = {**Warehouse(folder=warehouse).options, **IN_ONE}
        with iceberg_ds.transaction(options=options, app_id="app", version=1) as epoch:
            epoch.append(rows("1", "x"), "db.a")
            epoch.upsert(rows("2", "y"), "db.b", keys="id", options={"evolve-keys": "true"})

    seen = 0

    def die(reached: FaultPoint) -> None:
        nonlocal seen
        seen += reached is step
        # The tables follow their two quarantine writes, so that one of them has landed at the third time.
        if reached is step and seen == (3 if step is FaultPoint.COMMITTED else 1):
            raise KeyboardInterrupt

    listen(die)
    try:
        run()
    except KeyboardInterrupt:
        listen(None)
        run()

    assert (ids(sink, "a"), ids(sink, "b")) == ([1], [2])
    assert [table for table, _ in bad(sink)] == ["db.a", "db.b"]


def test_transaction_with_too_many_bad_rows_commits_nothing(sink: Sink, warehouse: Path) -> None:
    """Half an epoch would be there, and its bad rows beside it."""
    create(sink, "a", "b")
    options = {**Warehouse(folder=warehouse).options, **IN_ONE, "max-bad-rows": "0"}

    def run() -> None:
        with iceberg_ds.transaction(options=options) as epoch:
            epoch.append(rows("1"), "db.a")
            epoch.append(rows("2", "y"), "db.b")

    with pytest.raises(RefusedRowsError, match="'max-bad-rows' is 0"):
        run()

    assert (ids(sink, "a"), ids(sink, "b"), bad(sink)) == ([], [], [])


@WAYS
def test_tables_of_a_route_share_a_quarantine(
    sink: Sink, warehouse: Path, request: pytest.FixtureRequest, way: str
) -> None:
    """The bad rows of one table would be taken for a replay of another one's."""
    if way == "one_by_one":
        request.getfixturevalue(way)
    create(sink, "a", "b")
    feed = StructType([StructField("kind", StringType()), *SENT])
    routed = RoutedSink.of(warehouse, IN_ONE)
    sent = [
        {"kind": kind, "id": number, "amount": "1", "token": None}
        for kind, number in (("a", "1"), ("b", "2"), ("a", "x"), ("b", None), ("b", "y"))
    ]

    for _ in range(2):
        routed.commit(routed.write(sent, sent[:1], schema=feed, epoch_id=0), 0)

    assert (ids(sink, "a"), ids(sink, "b")) == ([1, 1], [2])
    assert [table for table, _ in bad(sink)] == ["db.a", "db.b", "db.b"]


FEED = StructType([StructField("kind", StringType()), *SENT])


def routed_rows(*pairs: tuple[str, str | None]) -> list[dict[str, Any]]:
    """Return rows of `FEED` for these tables, with these ids."""
    return [{"kind": kind, "id": number, "amount": "1", "token": None} for kind, number in pairs]


def bad_ids(sink: Sink) -> list[tuple[str, str]]:
    """Return the tables and ids of the rows in the quarantine."""
    return sorted((table, json.loads(row)["id"]) for table, row in bad(sink))


@WAYS
@pytest.mark.parametrize(
    "tries",
    [
        ([("a", "1"), ("a", "x")], [("a", "1"), ("a", "x"), ("b", "2"), ("b", "y")]),
        ([("a", "1"), ("b", "2"), ("b", "y")], [("a", "1"), ("a", "x"), ("b", "2"), ("b", "y")]),
    ],
    ids=["one more table", "one more bad row"],
)
def test_repeated_version_keeps_the_bad_rows_of_each_table_apart(
    sink: Sink, warehouse: Path, request: pytest.FixtureRequest, way: str, tries: Any
) -> None:
    """The writer in the quarantine would be named for the first table with bad rows: rows would be lost or doubled."""
    if way == "one_by_one":
        request.getfixturevalue(way)
    create(sink, "a", "b")
    routed = RoutedSink.of(warehouse, {**IN_ONE, "txn-app-id": "app", "txn-version": "1"})
    routed.commit(routed.write(routed_rows(*tries[0]), schema=FEED))
    before = bad_ids(sink)

    routed.commit(routed.write(routed_rows(*tries[1]), schema=FEED))

    assert (ids(sink, "a"), ids(sink, "b")) == ([1], [2])
    # What table `a` has already stays as it was: its row is bad only now.
    assert bad_ids(sink) == ([*before, ("db.b", "y")] if before == [("db.a", "x")] else before)


def test_table_that_is_set_back_alone_gets_its_rows_again_and_the_quarantine_does_not(
    sink: Sink, warehouse: Path
) -> None:
    """Bad rows of a table would be there twice, because another table of the transaction has the version."""
    create(sink, "a", "b")
    of_b = replace(sink, options=replace(sink.options, table=("db", "b")))

    def run(version: int) -> None:
        options = {**Warehouse(folder=warehouse).options, **IN_ONE}
        with iceberg_ds.transaction(options=options, app_id="app", version=version) as block:
            block.append(rows("1", "x"), "db.a")
            block.append(rows("2", "y"), "db.b")

    run(0)
    before = head_of(of_b)
    run(1)
    set_branch(of_b, "main", before)
    with plain_table(of_b).transaction() as change:
        change.remove_properties("icebergsink.last-txn.main.app")

    run(1)

    assert (ids(sink, "a"), ids(sink, "b")) == ([1, 1], [2, 2])
    assert bad_ids(sink) == [("db.a", "x"), ("db.a", "x"), ("db.b", "y"), ("db.b", "y")]


@pytest.mark.parametrize("dies", [1, 2, 3, 4])
def test_tables_that_go_one_by_one_land_after_the_bad_rows_of_all(sink: Sink, warehouse: Path, dies: int) -> None:
    """A table would land alone where another one begins a branch, in a catalog that takes requests for several."""
    create(sink, "a", "b")
    for name in ("a", "b"):
        table = sink.catalog.raw.load_table(("db", name))
        table.append(table.schema().as_arrow().empty_table().from_pylist([{"id": 9}], table.schema().as_arrow()))
    options = {**Warehouse(folder=warehouse).options, **IN_ONE, "branch": "audit", "create-branch": "true"}

    def run() -> None:
        with iceberg_ds.transaction(options=options, app_id="app", version=1) as block:
            block.append(rows("1", "x"), "db.a")
            block.append(rows("2", "y"), "db.b")
            block.append(rows("3"), "db.new")

    def on_audit(name: str) -> list[Any]:
        table = sink.catalog.find_table(("db", name))
        if table is None or "audit" not in table.metadata.refs:
            return []
        return sorted(row["id"] for row in rows_of(table, "audit"))

    landed = 0

    def die(reached: FaultPoint) -> None:
        nonlocal landed
        landed += reached is FaultPoint.COMMITTED
        if reached is FaultPoint.COMMITTED and landed == dies:
            raise KeyboardInterrupt

    listen(die)
    with pytest.raises(KeyboardInterrupt):
        run()
    listen(None)
    if on_audit("a") or on_audit("b"):
        assert bad_ids(sink) == [("db.a", "x"), ("db.b", "y")]
    run()

    assert [on_audit(name) for name in ("a", "b", "new")] == [[1, 9], [2, 9], ["3"]]
    assert bad_ids(sink) == [("db.a", "x"), ("db.b", "y")]


def test_catalog_that_loses_a_part_of_a_request_gets_the_bad_rows_before_it(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The bad rows would be lost if the driver died then: the reference REST server confirms what it has lost."""
    create(sink, "t")
    given = {"on_bad_row": "quarantine", "txn_app_id": "app", "txn_version": 1}
    own = replace(faulty_sink, options=replace(faulty_sink.options, **given))
    assert own.catalog.takes_many_tables
    messages = tasks(own, sent(("1", "1", None), ("x", "1", None)))
    faulty_catalog.lose_changes("t__quarantine")

    def die(reached: FaultPoint) -> None:
        if reached in {FaultPoint.TABLES_ANSWERED, FaultPoint.QUARANTINED}:
            raise KeyboardInterrupt

    listen(die)
    with pytest.raises(KeyboardInterrupt):
        commit(own, messages)
    listen(None)
    assert (ids(sink, "t"), len(quarantined(sink))) == ([], 1)
    write(own, sent(("1", "1", None), ("x", "1", None)))

    assert faulty_catalog.together == 0
    assert (ids(sink, "t"), len(quarantined(sink))) == ([1], 1)


WIDE = StructType([*FEED, StructField("note", StringType())])
GAINS = {"kind": "a", "id": "1", "amount": "1", "note": "new"}
BAD = {"kind": "a", "id": "2", "amount": "bad"}
NEW = {"kind": "n", "id": "1", "amount": "1"}
NEW_AND_BAD = {"kind": "n", "id": None, "amount": "1"}


@pytest.mark.parametrize(
    "tries",
    [
        ([[GAINS], [BAD]], [[GAINS], [BAD]]),
        ([[GAINS, BAD]], [[GAINS], [BAD]]),
        ([[NEW, NEW_AND_BAD]], [[NEW, NEW_AND_BAD]]),
    ],
    ids=["table gains a column", "other batches", "table is new"],
)
def test_repeated_epoch_goes_on_although_its_first_try_changed_columns(
    sink: Sink, warehouse: Path, one_by_one: None, tries: Any
) -> None:
    """The stream would stop for good: the columns that a bad row is sent with depend on the table, and on batches."""
    create(sink, "a")
    more = {
        "schema-evolution": "add-columns",
        "route-options.db.n.keys": "id",
        "route-columns.db.n": "note, amount, id",
    }
    routed = RoutedSink.of(warehouse, {**IN_ONE, **more})
    first, second = ([[{**dict.fromkeys(WIDE.names), **row} for row in part] for part in one] for one in tries)

    def die(reached: FaultPoint) -> None:
        if reached is FaultPoint.QUARANTINED:
            raise KeyboardInterrupt

    listen(die)
    with pytest.raises(KeyboardInterrupt):
        routed.commit(routed.write(*first, schema=WIDE, epoch_id=0), 0)
    listen(None)
    routed.commit(routed.write(*second, schema=WIDE, epoch_id=0), 0)

    assert one_by_one is None
    if "n" in str(first[0][0]["kind"]):
        assert bad(sink) == [("db.n", '{"id":null,"amount":"1"}')]
        assert [row["id"] for row in rows_of(sink.catalog.raw.load_table("db.n"))] == ["1"]
    else:
        assert (ids(sink, "a"), bad(sink)) == ([1], [("db.a", '{"id":"2","amount":"bad"}')])


@pytest.mark.parametrize("dies", [None, FaultPoint.QUARANTINED], ids=["table by table", "after the quarantine"])
def test_epoch_of_which_one_table_has_its_rows_is_finished(
    sink: Sink, warehouse: Path, one_by_one: None, dies: FaultPoint | None
) -> None:
    """An epoch of a stream that is half there would be refused, or have bad rows twice."""
    create(sink, "a", "b")
    routed = RoutedSink.of(warehouse, IN_ONE)
    sent_rows = routed_rows(("a", "1"), ("b", "2"), ("a", "x"), ("b", "y"))
    seen = 0

    def die(reached: FaultPoint) -> None:
        nonlocal seen
        seen += reached is (dies or FaultPoint.COMMITTED)
        # The quarantine lands, then table `a`.
        if reached is (dies or FaultPoint.COMMITTED) and seen == (2 if dies is None else 1):
            raise KeyboardInterrupt

    listen(die)
    with pytest.raises(KeyboardInterrupt):
        routed.commit(routed.write(sent_rows, schema=FEED, epoch_id=0), 0)
    listen(None)
    assert ids(sink, "a") == ([1] if dies is None else [])
    routed.commit(routed.write(sent_rows[:1], sent_rows[1:], schema=FEED, epoch_id=0), 0)

    assert one_by_one is None
    assert (ids(sink, "a"), ids(sink, "b")) == ([1], [2])
    assert bad_ids(sink) == [("db.a", "x"), ("db.b", "y")]


def test_quarantine_of_two_tables_that_fails_deletes_the_files_of_all(sink: Sink, warehouse: Path) -> None:
    """Files would lie around that no table refers to, and one table would have the version without its bad rows."""
    create(sink, "a", "b")
    options = {**Warehouse(folder=warehouse).options, **IN_ONE}

    def run() -> None:
        with iceberg_ds.transaction(options=options, app_id="app", version=1) as block:
            block.append(rows("1", "x"), "db.a")
            block.upsert(rows("2", "y"), "db.b", keys="id", options={"evolve-keys": "true"})

    def drop(reached: FaultPoint) -> None:  # the quarantine table, once the first of its writes has landed
        if reached is FaultPoint.COMMITTED:
            listen(None)
            sink.catalog.raw.drop_table(("db", "bad"))
            sink.catalog.raw.create_table(("db", "bad"), TABLE)

    listen(drop)
    with pytest.raises(IcebergSinkError, match=r"Nothing was committed to db\.a, db\.b, because"):
        run()

    assert (ids(sink, "a"), ids(sink, "b")) == ([], [])
    for name in ("a", "b"):
        assert unreferenced_files(sink.catalog.raw.load_table(("db", name))) == set()
