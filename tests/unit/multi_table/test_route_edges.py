"""Rows that name their tables where ways meet: one table named twice, new columns in overwrites, names that escape."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import CommitTableResponse, Table
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType
from support.tables.bad_rows import SENT, TABLE
from support.tables.routed import FEED, RoutedSink, customer, order
from support.tables.sink import arrow_batch

from iceberg_ds.errors import CommitConflictError, OptionError, RefusedRowsError, RowCountError
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.writers import routed
from iceberg_ds.writers.routed import report_routed_task
from iceberg_ds.writers.task_writer import TaskAttempt

WIDE = StructType(
    [
        *FEED,
        StructField("deleted", BooleanType()),
        StructField("ts", TimestampType()),
        StructField("op", StringType()),
        StructField("seq", LongType()),
    ]
)
BAD = StructType([StructField("kind", StringType()), *SENT, StructField("row", StringType())])


def bad(kind: str, **more: Any) -> dict[str, Any]:
    """Return a row of `BAD` with nulls in all other columns."""
    return {"kind": kind, "id": None, "amount": None, "token": None, "row": None, **more}


@pytest.mark.parametrize("is_alone", [True, False])
def test_overwrite_whose_rows_add_a_column_replaces_the_rows(tmp_path: Path, *, is_alone: bool) -> None:
    """The old rows would stay, because only the driver had rows of the table."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    sink.append(order(1), customer(7))
    others = [] if is_alone else [[order(3)]]

    sink.commit(sink.write([{**order(2), "name": "Bob"}], *others, plan=sink.plan(mode=WriteMode.OVERWRITE)))

    assert sink.ids("db.orders") == ([2] if is_alone else [2, 3])


def test_overwrite_whose_rows_add_a_column_replaces_what_it_was_planned_upon(tmp_path: Path) -> None:
    """Rows that another job appended meanwhile would be replaced, and nobody would have seen them."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    sink.append(order(1))
    messages = sink.write([{**order(2), "name": "Bob"}], plan=sink.plan(mode=WriteMode.OVERWRITE))
    sink.append(order(3))

    with pytest.raises(CommitConflictError):
        sink.commit(messages)

    assert sink.ids("db.orders") == [1, 3]


@pytest.mark.parametrize(
    "option", [{"overwrite-mode": "dynamic"}, {"replace-where": "id > 0"}, {"isolation-level": "snapshot"}]
)
def test_overwrite_creates_tables_whatever_it_replaces(tmp_path: Path, option: dict[str, str]) -> None:
    """An overwrite would fail as soon as a row names a new table."""
    sink = RoutedSink.of(tmp_path, option)

    sink.commit(sink.write([order(2)], plan=sink.plan(mode=WriteMode.OVERWRITE)))

    assert sink.ids("db.orders") == [2]


def test_rows_that_add_a_column_keep_the_others_and_the_epoch(tmp_path: Path) -> None:
    """The route column, or the number of the epoch, would be null in the rows that the driver writes."""
    RoutedSink.of(tmp_path, {"route-columns.orders": "kind, id"}, metadata_columns="_epoch_id").append(order(1))
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns", metadata_columns="_epoch_id")

    sink.commit(sink.write([{"kind": "orders", "id": 2}], [order(3)], epoch_id=2), 2)

    found = sink.rows("db.orders")
    assert [row["kind"] for row in found] == ["orders"] * 3
    assert [row["_epoch_id"] for row in found] == [None, 2, 2]


def test_columns_of_a_new_table_are_named_as_elsewhere(tmp_path: Path) -> None:
    """A name in another case, or a mistyped one, would leave a column out."""
    RoutedSink.of(tmp_path, {"route-columns.orders": "ID, Total"}).append(order(1, 2.5))

    assert RoutedSink.of(tmp_path).rows("db.orders") == [{"id": 1, "total": 2.5}]
    with pytest.raises(OptionError, match="totl"):
        RoutedSink.of(tmp_path, {"route-columns.other": "id, totl"}).plan()


@pytest.mark.parametrize(
    "options",
    [
        {"keys": "id", "delete-when": "deleted = true"},
        {"keys": "id", "sequence-by": "seq"},
        {"sort-by": "ts"},
        {"partition-by": "day(ts)"},
    ],
    ids=["delete-when", "sequence-by", "sort-by", "partition-by"],
)
def test_new_table_gets_the_columns_that_its_options_name(tmp_path: Path, options: dict[str, str]) -> None:
    """The first epoch, whose rows have no values there, would fail."""
    sink = RoutedSink.of(tmp_path, {f"route-options.orders.{name}": text for name, text in options.items()})

    for number in (0, 1):
        sink.commit(sink.write([order(number)], schema=WIDE, epoch_id=number), number)

    assert sink.ids("db.orders") == [0, 1]


@pytest.mark.parametrize("way", ["together", "one_by_one"])
def test_rows_that_name_the_quarantine_table_of_another_are_not_lost(
    tmp_path: Path, request: pytest.FixtureRequest, way: str
) -> None:
    """They would land among its bad rows, or be taken for a repetition of these, and skipped."""
    if way == "one_by_one":
        request.getfixturevalue(way)
    sink = RoutedSink.of(tmp_path, {"on-bad-row": "quarantine"})
    sink.catalog.raw.create_namespace_if_not_exists("db")
    sink.catalog.raw.create_table(("db", "a"), TABLE)
    sink.commit(sink.write([bad("a", id="1", amount="x")], schema=BAD, epoch_id=0), 0)
    before = set(tmp_path.rglob("*.parquet"))
    rows = [bad("a", id="2", amount="y"), bad("a__quarantine", row="mine")]

    with pytest.raises(RefusedRowsError, match=r"nothing was committed.*'a__quarantine'.*which the write keeps"):
        sink.commit(sink.write(rows, schema=BAD, epoch_id=1), 1)

    assert len(sink.catalog.raw.load_table("db.a__quarantine").scan().to_arrow()) == 1
    assert set(tmp_path.rglob("*.parquet")) == before


def test_new_tables_whose_names_differ_in_case_alone_are_not_made_at_once(tmp_path: Path) -> None:
    """A catalog that ignores case would skip the rows of the second as a repetition of the first."""
    sink = RoutedSink.of(tmp_path)

    with pytest.raises(OptionError, match="in upper and lower case"):
        sink.append(order(1), {**order(2), "kind": "Orders"}, epoch_id=0)

    assert sink.ids("db.orders") == []
    for number, kind in enumerate(("orders", "Orders")):
        sink.append({**order(number), "kind": kind}, epoch_id=number)
    sink.append(order(2), {**order(3), "kind": "Orders"}, epoch_id=2)
    assert (sink.ids("db.orders"), sink.ids("db.`Orders`")) == ([0, 2], [1, 3])


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE])
def test_catalog_that_heeds_no_case_gets_no_half_batch(tmp_path: Path, mode: WriteMode, *, is_there: bool) -> None:
    """The second of two writes of one batch would replace the rows of the first, or fail after it has landed."""
    sink = RoutedSink.of(tmp_path)
    heed_no_case(sink)
    if is_there:
        sink.append(order(0))
    messages = sink.write([order(1), {**order(2), "kind": "Orders"}], plan=sink.plan(mode=mode))

    if is_there and mode is WriteMode.APPEND:  # both add rows, whichever comes first
        sink.commit(messages)
        assert sink.ids("db.orders") == [0, 1, 2]
        return
    with pytest.raises(OptionError, match=r"to be named in one way.*by lower\(\) of the names in the rows"):
        sink.commit(messages)
    assert sink.ids("db.orders") == ([0] if is_there else [])


def heed_no_case(sink: RoutedSink) -> None:
    """Let the catalog take names that differ in case for one, as Hive and Glue do."""
    catalog = sink.catalog.raw
    for name in ("load_table", "table_exists", "create_table"):
        call = getattr(catalog, name)
        setattr(catalog, name, lambda table, *rest, call=call, **more: call(_lower(table), *rest, **more))
    commit = catalog.commit_table

    def commit_table(table: Table, *rest: Any, **more: Any) -> CommitTableResponse:
        object.__setattr__(table, "_identifier", _lower(table.name()))
        return commit(table, *rest, **more)

    catalog.commit_table = commit_table  # type: ignore[method-assign]


def _lower(table: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(level.lower() for level in Catalog.identifier_to_tuple(table))


def test_rows_that_the_driver_did_not_get_commit_nothing(tmp_path: Path) -> None:
    """Rows of a new table that were lost on their way would be missed by nobody."""
    sink = RoutedSink.of(tmp_path)
    (message,) = sink.write([order(1)])
    (part,) = message.loose
    message = dataclasses.replace(message, received=2, loose=(dataclasses.replace(part, record_count=2),))

    with pytest.raises(RowCountError, match="1 would be lost"):
        sink.commit([message])


@pytest.mark.parametrize("pattern", ["shop*.events", "*.events"])
def test_star_of_a_namespace_stands_for_no_dot(tmp_path: Path, pattern: str) -> None:
    """A value in backticks would reach a table below a namespace that is not allowed."""
    RoutedSink.of(tmp_path, route_tables="shop.private.events").append({**order(1), "kind": "shop.private.events"})
    sink = RoutedSink.of(tmp_path, route_tables=pattern)

    with pytest.raises(RefusedRowsError):
        sink.append({**order(2), "kind": "`shop.private`.events"})

    assert sink.ids("shop.private.events") == [1]


def test_waiting_rows_hold_no_memory_but_their_own(tmp_path: Path) -> None:
    """A few rows of many tables would keep whole batches in memory, uncounted."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1), customer(7))
    schema = arrow_batch([order(1)], FEED).schema
    count = 20_000

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(40):
            kinds = pa.array(["orders"] * (count - 1) + ["customers"])
            names = pa.array([None] * (count - 1) + ["x" * 500])
            totals = pa.array([1.0] * (count - 1) + [None], pa.float64())
            columns = [kinds, pa.array(range(count), pa.int64()), names, totals]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    before = pa.total_allocated_bytes()
    rows = routed._RowsByTable(sink.plan(), batches())
    first = rows.next_table()
    assert first is not None
    for _ in rows.of(first):
        pass

    assert pa.total_allocated_bytes() - before < 4_000_000


def test_time_does_not_grow_with_the_square_of_the_batches(tmp_path: Path) -> None:
    """A session with small batches would wait for an hour where it waits for seconds with large ones."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(0), customer(0))
    pair = arrow_batch([order(1), customer(1)], FEED)
    plan, attempt = sink.plan(), TaskAttempt(partition_id=0, task_attempt_id=0)

    begun_s = time.process_time()
    message = report_routed_task(plan, [pair] * 4_000, attempt)

    assert [commit.counts.received for commit in message.commits] == [4_000, 4_000]
    assert time.process_time() - begun_s < 10  # 0.2 s, or 80 s if all batches are added up for each
