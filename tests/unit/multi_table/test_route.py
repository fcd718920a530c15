"""Rows that name their tables: each goes to its table exactly once, with the columns that are its own."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType
from support.tables.routed import FEED, RoutedSink, customer, order
from support.tables.sink import arrow_batch

from iceberg_ds.errors import (
    CommitConflictError,
    CommitMessageError,
    DataFileError,
    IcebergSinkError,
    OptionError,
    RefusedRowsError,
    RowCountError,
    SchemaMismatchError,
    UnsupportedTableError,
)
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.metrics.delivery import Reporting
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.options.parse import parse_options
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.writers import routed
from iceberg_ds.writers.task_writer import TaskAttempt


def data_files(warehouse: Path) -> set[Path]:
    """Return all data files."""
    return set(warehouse.rglob("*.parquet"))


def test_new_tables_get_the_columns_in_which_their_rows_have_values(tmp_path: Path) -> None:
    """Else every table would have the columns of all."""
    sink = RoutedSink.of(tmp_path)

    sink.append(order(1, 2.5), customer(7))

    assert sink.rows("db.orders") == [{"id": 1, "total": 2.5}]
    assert sink.rows("db.customers") == [{"id": 7, "name": "Ann"}]


def test_tables_that_are_there_are_written_by_tasks(tmp_path: Path) -> None:
    """Else all rows would pass through the driver."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1), customer(7))

    messages = sink.write([order(2), customer(8), order(3)], [customer(9)], [])
    sink.commit(messages)

    assert [len(message.commits) for message in messages] == [2, 1, 0]
    assert not any(message.loose for message in messages)
    assert sink.ids("db.orders") == [1, 2, 3]
    assert sink.ids("db.customers") == [7, 8, 9]


def test_report_counts_the_tasks_that_had_rows_of_its_table(tmp_path: Path) -> None:
    """Tasks of other tables would count, with a duration of zero seconds."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1), customer(7))
    taken: list[CommitReport] = []
    sink.catalog.reporting = Reporting([("the list", taken.append)])

    sink.commit(sink.write([order(2), customer(8)], [customer(9)], []))

    assert {report.table: report.tasks.tasks for report in taken} == {"db.orders": 1, "db.customers": 2}
    assert all(report.tasks.seconds_min > 0 for report in taken)


def test_write_with_rows_that_name_no_table_is_told_as_failed(tmp_path: Path) -> None:
    """No alert would tell of a stream that stops for such a row."""
    sink = RoutedSink.of(tmp_path, route_tables="db.orders")
    sink.append({**order(1), "kind": "db.orders"})
    taken: list[CommitReport] = []
    sink.catalog.reporting = Reporting([("the list", taken.append)])

    with pytest.raises(RefusedRowsError):
        sink.append({**order(2), "kind": "db.orders"}, {**customer(1), "kind": "db.customers"})

    assert [(report.table, report.outcome) for report in taken] == [("db.orders", "failed")]


def test_one_snapshot_a_table_and_none_for_a_table_without_rows(tmp_path: Path) -> None:
    """Else an epoch would show in several steps, or make snapshots of nothing."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1), customer(7))

    sink.commit(sink.write([order(2)], [order(3)], epoch_id=0), 0)

    assert len(sink.catalog.load_table(("db", "orders")).metadata.snapshots) == 2
    assert len(sink.catalog.load_table(("db", "customers")).metadata.snapshots) == 1


def test_rows_of_many_tables_wait_on_disk_and_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a task would need memory for all rows of all tables but the first."""
    monkeypatch.setattr(routed, "WAITING_BYTES", 100)
    sink = RoutedSink.of(tmp_path)
    kinds = [f"t{number}" for number in range(20)]
    sink.append(*({"kind": kind, "id": -1, "name": "x"} for kind in kinds))
    rows = [{"kind": kinds[number % 20], "id": number, "name": "y"} for number in range(400)]

    sink.commit(sink.write(rows[:200], rows[200:]))

    assert {kind: sink.ids(f"db.{kind}") for kind in kinds} == {
        kind: [-1, *range(first, 400, 20)] for first, kind in enumerate(kinds)
    }


@pytest.mark.parametrize("value", [None, "", "  ", "other.t", "db.x.y", "a`b", "../x", "file:/tmp/t"])
def test_rows_that_name_no_allowed_table_are_refused_and_nothing_is_written(tmp_path: Path, value: str | None) -> None:
    """Else data could choose any table of the catalog, or vanish."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1))
    before = data_files(tmp_path)

    with pytest.raises(RefusedRowsError, match=r"1 rows name no table that may be written.*db\.\*"):
        sink.append(order(2), {"kind": value, "id": 3})

    assert sink.ids("db.orders") == [1]
    assert data_files(tmp_path) == before


def test_value_that_is_no_utf_8_names_no_table(tmp_path: Path) -> None:
    """The write would fail by an error of Python, which names neither the value nor what to do."""
    sink = RoutedSink.of(tmp_path)
    kinds = pa.array([b"orders", b"\xffx", b"\xffx"]).view(pa.string())
    schema = arrow_batch([order(1)], FEED).schema
    columns = [kinds, pa.array([1, 2, 3]), pa.nulls(3, pa.string()), pa.nulls(3, pa.float64())]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    attempt = TaskAttempt(partition_id=0, task_attempt_id=0)

    message = routed.report_routed_task(sink.plan(), [batch], attempt)

    with pytest.raises(RefusedRowsError, match=r"2 rows name no table.*b'\\xffx' in column 'kind'"):
        sink.commit([message])


@pytest.mark.parametrize("size", ["0", "262144"])
def test_name_that_the_store_does_not_take_is_refused_with_that_reason(tmp_path: Path, size: str) -> None:
    """The write would be tried again for a minute, and its error would tell of other writers."""
    sink = RoutedSink.of(tmp_path, small_task_size_bytes=size)

    with pytest.raises(OptionError, match=r"a name of 300 bytes.*too long.*Choose a shorter name"):
        sink.append({**order(1), "kind": "x" * 300}, order(2))

    assert sink.ids("db.orders") == []


def test_route_tables_says_which_tables_may_be_written(tmp_path: Path) -> None:
    """Else a value could create any table."""
    sink = RoutedSink.of(tmp_path, route_tables="shop.orders, raw.ev*", route_namespace="shop")

    sink.append(order(1), {"kind": "raw.events", "id": 2, "name": "x"})

    assert sink.ids("shop.orders") == [1]
    assert sink.ids("raw.events") == [2]
    with pytest.raises(RefusedRowsError, match=r"'raw\.other'"):
        sink.append({"kind": "raw.other", "id": 2})
    with pytest.raises(RefusedRowsError, match="'customers'"):
        sink.append(customer(3))


def test_template_makes_the_name(tmp_path: Path) -> None:
    """Else raw values could not have a prefix of their own."""
    sink = RoutedSink.of(tmp_path, route_table_template="raw_{value}_v1")

    sink.append(order(1))

    assert sink.ids("db.raw_orders_v1") == [1]


def test_repeated_epoch_changes_nothing(tmp_path: Path) -> None:
    """Else rows would be there twice."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1), customer(7), epoch_id=0)

    again = sink.append(order(1), customer(7), epoch_id=0)

    assert [result.was_replayed for result in again] == [True, True]
    assert sink.ids("db.orders") == [1]
    assert sink.ids("db.customers") == [7]


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("are_there", [True, False])
def test_epoch_that_died_between_two_tables_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, are_there: bool
) -> None:
    """Else the tables after the first would lack its rows, or the first would have them twice."""
    sink = RoutedSink.of(tmp_path)
    if are_there:
        sink.append(order(0), customer(0), epoch_id=0)
    messages = sink.write([order(1), customer(7)], epoch_id=1)
    landed = []

    def die(point: FaultPoint) -> None:
        if point is FaultPoint.COMMITTED:
            landed.append(point)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("iceberg_ds.commit.snapshot_update.fault_point", die)
        with pytest.raises(KeyboardInterrupt):
            sink.commit(messages, 1)
    first = [0] if are_there else []
    assert (sink.ids("db.customers"), sink.ids("db.orders")) == ([*first, 7], first)

    sink.append(order(1), customer(7), epoch_id=1)

    assert landed
    assert sink.ids("db.customers") == [*first, 7]
    assert sink.ids("db.orders") == [*first, 1]


def test_numbered_batch_is_recognised_in_each_table(tmp_path: Path) -> None:
    """Else foreachBatch would double rows."""
    sink = RoutedSink.of(tmp_path, txn_app_id="feed", txn_version="4")
    sink.append(order(1), customer(7))

    sink.append(order(1), customer(7))

    assert sink.ids("db.orders") == [1]
    assert sink.ids("db.customers") == [7]


@pytest.mark.parametrize("way", ["one request", "one_by_one"])
def test_table_that_fails_keeps_the_others_from_their_rows(
    tmp_path: Path, request: pytest.FixtureRequest, way: str
) -> None:
    """A reader would see an order without its customer, for as long as nobody repairs the table."""
    if way == "one_by_one":
        request.getfixturevalue(way)
    sink = RoutedSink.of(tmp_path)
    sink.append(order(0), customer(0), epoch_id=0)
    messages = sink.write([order(1), customer(7)], epoch_id=1)
    sink.catalog.raw.drop_table(("db", "customers"))

    with pytest.raises(CommitConflictError, match=r"None of 2 tables was committed(.|\n)*customers.*dropped"):
        sink.commit(messages, 1)

    assert sink.ids("db.orders") == [0]
    sink.append(order(1), customer(7), epoch_id=1)  # the table is made anew
    assert sink.ids("db.orders") == [0, 1]
    assert sink.ids("db.customers") == [7]


def test_values_in_a_column_that_the_table_lacks_are_refused(tmp_path: Path) -> None:
    """Else these values would be lost without a word."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1), customer(7))
    before = data_files(tmp_path)

    with pytest.raises(SchemaMismatchError, match=r"db\.orders.*'name', which the table lacks.*route-options"):
        sink.write([customer(8), {**order(2), "name": "Bob"}])

    assert data_files(tmp_path) == before


@pytest.mark.parametrize("are_small", [True, False])
def test_columns_are_added_to_the_table_whose_rows_fill_them(tmp_path: Path, *, are_small: bool) -> None:
    """Else a feed whose tables grow would stop, or every table would get the columns of all."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns", small_task_size_bytes="262144" if are_small else "0")
    sink.append(order(1), customer(7), epoch_id=0)

    sink.commit(
        sink.write([order(2)], [{**order(3), "name": "Bob"}], [{**order(4), "name": "Eve"}, order(5)], epoch_id=1), 1
    )

    assert [(row["id"], row["name"]) for row in sink.rows("db.orders")] == [
        (1, None), (2, None), (3, "Bob"), (4, "Eve"), (5, None),
    ]  # fmt: skip
    assert sink.catalog.load_table(("db", "customers")).schema().column_names == ["id", "name"]
    sink.commit(sink.write([order(2)], [{**order(3), "name": "Bob"}], epoch_id=1), 1)
    assert sink.ids("db.orders") == [1, 2, 3, 4, 5]


def test_columns_of_a_table_by_option(tmp_path: Path) -> None:
    """Else columns that are not meant for a table would be added to it, or be refused."""
    sink = RoutedSink.of(tmp_path, {"route-columns.orders": "id, name, total"})
    sink.append(order(1), customer(7))
    assert sink.rows("db.orders") == [{"id": 1, "name": None, "total": 1.0}]

    narrow = RoutedSink.of(tmp_path, {"route-columns.db.customers": "id"})
    narrow.append({**customer(8), "total": 4.0})

    assert sink.rows("db.customers")[1] == {"id": 8, "name": None}


def test_options_of_one_table_and_of_all(tmp_path: Path) -> None:
    """Else all tables would need the same keys and partitions."""
    sink = RoutedSink.of(
        tmp_path,
        {
            "route-options.db.customers.keys": "id",
            "route-options.orders.partition-by": "id",
            "route-options.db.orders.table-property.owner": "shop",
            "table-property.team": "data",
        },
    )
    sink.append(order(1), customer(7, "Ann"), epoch_id=0)
    sink.commit(sink.write([customer(7, "Anna"), order(2)], [order(3), customer(9)], [], epoch_id=1), 1)

    assert [(row["id"], row["name"]) for row in sink.rows("db.customers")] == [(7, "Anna"), (9, "Ann")]
    orders, customers = (sink.catalog.load_table(("db", name)) for name in ("orders", "customers"))
    assert not orders.spec().is_unpartitioned()
    assert customers.spec().is_unpartitioned()
    assert customers.schema().identifier_field_names() == {"id"}
    assert orders.properties["owner"] == "shop"
    assert {orders.properties["team"], customers.properties["team"]} == {"data"}


def test_options_of_a_feed_may_be_of_all_tables_and_keys_of_each(tmp_path: Path) -> None:
    """A table without keys would take deletes as rows, or every table would need the options of the feed once more."""
    RoutedSink.of(tmp_path).append(order(0))
    options = {"operation-column": "name", "route-options.db.customers.keys": "id"}
    sink = RoutedSink.of(tmp_path, options)
    sink.append(customer(7, "insert"), customer(8, "insert"))
    sink.append(customer(7, "delete"))

    assert sink.ids("db.customers") == [8]
    for kind in ("orders", "new"):  # one that is there, and one that is not
        with pytest.raises(IcebergSinkError, match=rf"(?s)db\.{kind}: .*only a write with option 'keys'"):
            sink.append({"kind": kind, "id": 1, "name": "insert"})
    assert sink.ids("db.orders") == [0]


def test_route_column_is_written_if_the_table_has_it(tmp_path: Path) -> None:
    """Else a table that wants the value could not have it."""
    sink = RoutedSink.of(tmp_path, {"route-columns.orders": "kind, id"})

    sink.append(order(1))
    sink.append(order(2))

    assert sink.rows("db.orders") == [{"kind": "orders", "id": 1}, {"kind": "orders", "id": 2}]


def test_overwrite_replaces_the_rows_of_tables_that_have_new_ones(tmp_path: Path) -> None:
    """Else an overwrite would append, or empty tables that the rows do not name."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1), customer(7))

    sink.commit(sink.write([order(2)], plan=sink.plan(mode=WriteMode.OVERWRITE)))

    assert sink.ids("db.orders") == [2]
    assert sink.ids("db.customers") == [7]


def test_aborted_write_leaves_no_file_of_any_table(tmp_path: Path) -> None:
    """Else every failed job would leave files behind in all tables."""
    sink = RoutedSink.of(tmp_path, small_task_size_bytes="0")
    sink.append(order(1), customer(7))
    before = data_files(tmp_path)
    messages = sink.write([order(2), customer(8)], [order(3)])

    sink.abort([*messages, None])

    assert data_files(tmp_path) == before


def test_task_that_fails_at_its_second_table_leaves_no_file_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else Spark's next attempt would leave the files of this one behind."""
    sink = RoutedSink.of(tmp_path, small_task_size_bytes="0")
    sink.append(order(1), customer(7))
    before = data_files(tmp_path)
    work = routed.report_task
    tables = []

    def fail_at_second(plan: object, batches: object, attempt: object) -> object:
        tables.append(plan)
        if len(tables) == 2:
            raise DataFileError("disk full")
        return work(plan, batches, attempt)  # type: ignore[arg-type]

    monkeypatch.setattr(routed, "report_task", fail_at_second)
    with pytest.raises(DataFileError, match="disk full"):
        sink.write([order(2), customer(8)])

    assert data_files(tmp_path) == before


def test_missing_message_commits_nothing(tmp_path: Path) -> None:
    """Else the rows of a failed task would be lost."""
    sink = RoutedSink.of(tmp_path)
    messages = sink.write([order(1)], [customer(7)])

    with pytest.raises(CommitMessageError, match="1 of 3 task messages are missing"):
        sink.commit([*messages, None])
    with pytest.raises(CommitMessageError, match=r"partitions \[0, 0\]"):
        sink.commit([messages[0], messages[0]])

    assert sink.ids("db.orders") == []


def test_rows_that_are_not_accounted_for_commit_nothing(tmp_path: Path) -> None:
    """Else a defect of the split would lose rows in silence."""
    sink = RoutedSink.of(tmp_path, small_task_size_bytes="0")
    sink.append(order(1))
    before = data_files(tmp_path)
    (message,) = sink.write([order(2)])

    with pytest.raises(RowCountError, match="1 would be lost"):
        sink.commit([dataclasses.replace(message, received=2)])

    assert sink.ids("db.orders") == [1]
    assert data_files(tmp_path) == before


def test_too_many_rows_of_new_tables_fail_before_the_driver_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the driver could run out of memory."""
    monkeypatch.setattr(routed, "MOST_LOOSE_BYTES", 10)
    sink = RoutedSink.of(tmp_path)

    with pytest.raises(DataFileError, match=r"db\.orders.*Create the tables first"):
        sink.write([order(1), order(2)])


def test_dropped_table_is_created_again_by_the_next_epoch(tmp_path: Path) -> None:
    """Else a stream would need a restart."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1), epoch_id=0)
    sink.catalog.raw.drop_table(("db", "orders"))

    sink.append(order(2), epoch_id=1)

    assert sink.ids("db.orders") == [2]


def test_create_table_false_refuses_new_tables(tmp_path: Path) -> None:
    """Else a mistyped value would make a table."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1))
    strict = RoutedSink.of(tmp_path, create_table="false")

    with pytest.raises(LookupError, match=r"db\.customers does not exist"):
        strict.append(order(2), customer(7))

    assert sink.ids("db.orders") == [1]


def test_table_that_cannot_be_written_stops_only_rows_that_name_it(tmp_path: Path) -> None:
    """Else one foreign table of the namespace would stop the feed."""
    sink = RoutedSink.of(tmp_path)
    sink.append(order(1))
    foreign = RoutedSink.of(tmp_path, {"route-columns.other": "id"})
    foreign.append({"kind": "other", "id": 1})
    with sink.catalog.raw.load_table(("db", "other")).transaction() as change:
        change.set_properties({"encryption.key-id": "k"})

    sink.append(order(2))

    assert sink.ids("db.orders") == [1, 2]
    with pytest.raises(RefusedRowsError, match=r"db\.other.*encrypt"):
        sink.append({"kind": "other", "id": 2})
    with pytest.raises(UnsupportedTableError, match=r"db\.other.*encrypt"):
        RoutedSink.of(tmp_path, route_tables="db.other").plan()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"table": "db.t"}, "'route-by' names the table of each row"),
        ({"route_columns.t": "id", "route-by": ""}, "route-by"),
        ({"location": "file:/x"}, "one place cannot hold several tables"),
        ({"overwriteSchema": "true"}, "route-options.<table>.drop-missing-columns"),
        ({"route_tables": "orders"}, "expected namespace and table"),
        ({"route_table_template": "raw"}, "expected {value}"),
        ({"keys": "id", "publish_converted": "true"}, "'route-by' and 'publish-converted'"),
        ({"route-options.orders.nothing": "1"}, "expected a table and an option"),
        ({"route-options.orders.catalog.uri": "x"}, "expected a table and an option|one for all tables"),
        ({"route-options.orders.txn-app-id": "x"}, "one for all tables of a write"),
        ({"route-columns.orders": "a,,b"}, "route-columns.orders"),
        ({"route-options.orders.catalog.uri": "x"}, "put the name of a table called catalog in backticks"),
        (
            {"route-options.shop.orders.keys": "id"},
            r"no row may name table shop\.orders\. Tables that may be",
        ),
        ({"route-columns.shop.orders": "id"}, r"'route-columns.shop.orders': no row may name table shop\.orders"),
        ({"route_tables": "db.*", "route-options.orders.keys": "id"}, "no row may name table orders. Tables"),
        (
            {"route_tables": "db.*", "route-columns.orders": "id"},
            "no row may name table orders. Tables",
        ),
        ({"on_bad_row": "quarantine", "quarantine_table": "bad", "route-options.bad.keys": "id"}, "keeps for itself"),
        ({"route-columns.orders": "id", "route-columns.db.orders": "total"}, r"columns of db\.orders are given twice"),
        (
            {"route-options.orders.keys": "id", "route-options.db.`orders`.keys": "total"},
            "'keys' of this table is given",
        ),
        ({"route_namespace": "a*b"}, r"'route-namespace' is `a\*b`: '\*' stands for any characters"),
        ({"on_bad_row": "quarantine", "quarantine_table": "bad*"}, r"'quarantine-table' is `bad\*`: '\*' stands"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(tmp_path: Path, options: dict[str, str], problem: str) -> None:
    """Else an option would be ignored."""
    with pytest.raises(OptionError, match=problem):
        RoutedSink.of(tmp_path, options)


def test_column_that_the_sink_fills_in_is_refused_at_once(tmp_path: Path) -> None:
    """A stream would run while it has nulls alone, and stop for good at the second epoch."""
    errors = StructType([*FEED, StructField("_errors", StringType())])

    with pytest.raises(OptionError, match="column '_errors' is in the DataFrame, and option 'on-bad-row' fills it in"):
        RoutedSink.of(tmp_path, on_bad_row="null").plan(errors)


def test_options_find_tables_whose_names_differ_in_case(tmp_path: Path) -> None:
    """Spark passes names of options in lower case: those of `Orders` would be refused."""
    sink = RoutedSink.of(tmp_path, {"route-options.db.orders.sort-by": "id"}, route_tables="DB.`Orders`, db.other")

    assert sink.options.of("DB.Orders").sort_by is not None
    assert RoutedSink.of(tmp_path, {"route-options.db.`catalog`.keys": "id"}).options.of("db.catalog").keys == ("id",)


def test_route_options_need_route_by(tmp_path: Path) -> None:
    """Else options of a route would be ignored in a write into one table."""
    raw = {"table": "db.t", "warehouse": str(tmp_path)}
    for option in ("route-tables", "route-namespace", "route-columns.t", "route-options.t.keys"):
        with pytest.raises(OptionError, match=r"need.* 'route-by'"):
            parse_options({**raw, option: "db.t"})
    with pytest.raises(OptionError, match="needs 'route-tables' or 'route-namespace'"):
        parse_options({"route-by": "kind", "warehouse": str(tmp_path)})


def test_only_tables_with_the_column_of_event_times_tell_how_fresh_they_are(tmp_path: Path) -> None:
    """Else a table without it could not be written."""
    timed = StructType([*FEED, StructField("at", TimestampType())])
    sink = RoutedSink.of(tmp_path, event_time_column="at")
    rows = [{**order(1), "at": datetime(2026, 11, 24, tzinfo=timezone.utc)}, customer(7)]
    sink.commit(sink.write(rows, schema=timed))

    plan = sink.plan(timed)
    sink.commit(sink.write(rows, schema=timed, plan=plan))

    assert {name: table.plan.event_time for name, table in plan.tables.items()} == {
        "db.customers": None,
        "db.orders": "at",
    }
    assert (sink.ids("db.orders"), sink.ids("db.customers")) == ([1, 1], [7, 7])
    with pytest.raises(OptionError, match="'event-time-column' names 'when'"):
        RoutedSink.of(tmp_path, event_time_column="when").plan(timed)


def test_route_column_must_be_text_of_the_dataframe(tmp_path: Path) -> None:
    """Else a write would fail in its tasks."""
    with pytest.raises(OptionError, match="'kind': the DataFrame has no such column: it has id"):
        RoutedSink.of(tmp_path).plan(StructType([StructField("id", LongType())]))
    with pytest.raises(SchemaMismatchError, match="several columns are named id"):
        RoutedSink.of(tmp_path).plan(StructType([*FEED, StructField("id", LongType())]))
    with pytest.raises(OptionError, match="'kind': it is bigint, and text is needed"):
        RoutedSink.of(tmp_path).plan(StructType([StructField("kind", LongType()), StructField("x", StringType())]))


def test_tables_below_patterns_of_namespaces_are_found(tmp_path: Path) -> None:
    """Else their rows would go through the driver for ever."""
    sink = RoutedSink.of(tmp_path, route_tables="shop_*.orders")
    sink.append({"kind": "shop_a.orders", "id": 1}, {"kind": "shop_b.orders", "id": 2})

    (message,) = sink.write([{"kind": "shop_a.orders", "id": 3}], schema=FEED)

    assert [commit.write.table for commit in message.commits] == ["shop_a.orders"]
