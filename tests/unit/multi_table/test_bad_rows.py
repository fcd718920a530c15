"""Rows that cannot be written, in upserts, transactions and writes whose rows name their tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql.types import StringType, StructField, StructType
from support.spark.local_frame import LocalFrame, without_moving_rows
from support.spark.tables import Warehouse
from support.tables.bad_rows import SENT, TABLE, quarantined
from support.tables.routed import RoutedSink
from support.tables.sink import Sink

import iceberg_ds
from iceberg_ds.errors import RefusedRowsError
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
@pytest.mark.parametrize("step", [FaultPoint.QUARANTINED, FaultPoint.LANDED])
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
        if reached is step and seen == (3 if step is FaultPoint.LANDED else 1):
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
