"""Rows that name no table which may be written fail the write, go to the quarantine once, or are lost as asked."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType
from support.metrics.reports import reports_on
from support.tables.routed import RoutedSink, customer, order
from support.tables.sink import Row

from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError, TableNotFoundError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.multi_table.requeue import Passed, Target, pending_rows
from iceberg_ds.table.names import parse_identifier

PLACE = "db.bad"
KEPT = {"route_tables": "db.orders, db.customers", "on_bad_row": "quarantine", "quarantine_table": PLACE}
VERSION = {"txn_app_id": "feed", "txn_version": "7"}


class Died(BaseException):
    """The driver is gone."""


@pytest.fixture
def _heard() -> Iterator[None]:
    yield
    listen(None)


def sink_of(warehouse: Path, **options: str) -> RoutedSink:
    """Return a sink that keeps rows which name no table."""
    return RoutedSink.of(warehouse, **{"route_namespace": "db", **KEPT, **options})


def stray(number: int, kind: str | None = "others") -> Row:
    """Return a row that names no table."""
    return {"kind": kind, "id": number}


def kept(sink: RoutedSink, place: str = PLACE) -> list[dict[str, Any]]:
    """Return the rows of the quarantine table."""
    table = sink.catalog.reading_anew().find_table(parse_identifier(place))
    return [] if table is None else sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["row"])


def stray_ids(sink: RoutedSink) -> list[int]:
    """Return the ids of the rows in the quarantine table."""
    return [json.loads(row["row"])["id"] for row in kept(sink)]


def test_rows_that_name_no_table_are_kept_as_they_came(tmp_path: Path) -> None:
    """They would fail the stream for good, or be lost."""
    sink = sink_of(tmp_path)

    sink.append(order(1), stray(2), stray(3, None), stray(4, "a..b"), customer(5), epoch_id=0)

    assert (sink.ids("db.orders"), sink.ids("db.customers")) == ([1], [5])
    reason = "route: column 'kind': names no table that may be written"
    found = [(row["row"], row["table"], row["columns"], row["reason"], row["epoch"]) for row in kept(sink)]
    assert found == [
        ('{"kind":"a..b","id":4}', "a..b", ["kind"], reason, 0),
        ('{"kind":"others","id":2}', "others", ["kind"], reason, 0),
        ('{"kind":null,"id":3}', None, ["kind"], reason, 0),
    ]


@pytest.mark.parametrize("way", [{}, VERSION], ids=["epoch", "version"])
def test_repeated_write_keeps_them_once(tmp_path: Path, way: dict[str, str]) -> None:
    """They would come twice with every epoch that Spark repeats."""
    sink, epoch = sink_of(tmp_path, **way), None if way else 7

    for _ in range(3):
        sink.append(order(1), stray(2), stray(3), epoch_id=epoch)

    assert (sink.ids("db.orders"), sorted(stray_ids(sink))) == ([1], [2, 3])


@pytest.mark.parametrize("way", [{}, VERSION], ids=["epoch", "version"])
def test_epoch_of_such_rows_alone_is_kept_once(tmp_path: Path, way: dict[str, str]) -> None:
    """No table tells that the epoch was here."""
    sink, epoch = sink_of(tmp_path, **way), None if way else 7

    for _ in range(2):
        sink.append(stray(2), epoch_id=epoch)

    assert stray_ids(sink) == [2]


@pytest.mark.usefixtures("_heard", "waits", "one_by_one")
@pytest.mark.parametrize("step", [FaultPoint.QUARANTINED, FaultPoint.COMMITTED, FaultPoint.MANIFESTS_WRITTEN])
@pytest.mark.parametrize("time", [1, 2, 3])
def test_driver_that_dies_finishes_forward(tmp_path: Path, step: FaultPoint, time: int) -> None:
    """Rows would be lost, or be twice in the quarantine."""
    sink, left = sink_of(tmp_path), time

    def die(point: FaultPoint) -> None:
        nonlocal left
        left -= point is step
        if left == 0 and point is step:
            raise Died

    listen(die)
    with suppress(Died):
        sink.append(order(1), stray(2), customer(3), epoch_id=0)
    listen(None)
    sink.append(order(1), stray(2), customer(3), epoch_id=0)

    assert (sink.ids("db.orders"), sink.ids("db.customers"), stray_ids(sink)) == ([1], [3], [2])


@pytest.mark.usefixtures("_heard", "one_by_one")
@pytest.mark.parametrize("way", [{}, VERSION], ids=["epoch", "version"])
@pytest.mark.parametrize("others", [[order(1)], []], ids=["beside others", "alone"])
def test_report_that_a_killed_driver_could_not_make_comes_with_the_replay(
    tmp_path: Path, way: dict[str, str], others: list[Row]
) -> None:
    """Sums would never have the rows in the quarantine."""
    sink, epoch = sink_of(tmp_path, **way), None if way else 7

    def die(point: FaultPoint) -> None:
        if point is FaultPoint.QUARANTINED:
            raise Died

    listen(die)
    with suppress(Died):
        sink.append(*others, stray(2), epoch_id=epoch)
    listen(None)
    taken = reports_on(sink)
    sink.append(*others, stray(2), epoch_id=epoch)

    told = [report for report in taken if report.table == PLACE]
    assert [(report.outcome, report.number, report.counts["added-records"]) for report in told] == [("replayed", 7, 1)]
    assert told[0].stream == ("feed > route-by" if way else None)


def test_they_share_a_quarantine_with_rows_of_tables(tmp_path: Path) -> None:
    """Two writes of one epoch into one table would be refused, or one of them be skipped as done."""
    sink = sink_of(tmp_path)
    sink.append(order(0))
    table = sink.catalog.load_table(("db", "orders"))
    bad = {"kind": "orders", "id": None, "total": 1.0}
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("id", required=True)

    for _ in range(2):
        sink.append(order(1), bad, stray(2), epoch_id=1)

    assert sink.ids("db.orders") == [0, 1]
    assert sorted((row["table"], row["reason"].split(":")[0]) for row in kept(sink)) == [
        ("db.orders", "required"),
        ("others", "route"),
    ]


def test_other_rows_than_an_earlier_try_are_refused(tmp_path: Path) -> None:
    """A row that the earlier try did not have would be lost: the quarantine has the epoch."""
    sink = sink_of(tmp_path)
    sink.append(stray(2), epoch_id=0)

    with pytest.raises(RefusedRowsError, match=r"epoch 0 to several tables.*put other rows there"):
        sink.append(stray(2), stray(3), epoch_id=0)

    assert stray_ids(sink) == [2]


@pytest.mark.usefixtures("_heard", "one_by_one")
@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("way", [{}, VERSION], ids=["epoch", "version"])
def test_row_whose_table_is_allowed_later_is_not_in_both(tmp_path: Path, way: dict[str, str], *, dies: bool) -> None:
    """The replay would write a row into its table that the earlier try has put into the quarantine."""
    sink, epoch = sink_of(tmp_path, **way), None if way else 7

    def die(point: FaultPoint) -> None:
        if point is FaultPoint.QUARANTINED and dies:
            raise Died

    listen(die)
    with suppress(Died):
        sink.append(order(1), stray(2), epoch_id=epoch)
    listen(None)

    with pytest.raises(RefusedRowsError, match="put other rows there"):
        sink_of(tmp_path, **way, route_tables="db.*").append(order(1), stray(2), epoch_id=epoch)

    assert (sink.ids("db.orders"), sink.ids("db.others"), stray_ids(sink)) == ([] if dies else [1], [], [2])


@pytest.mark.parametrize("options", [{"on_bad_row": "fail"}, {"on_bad_row": "null"}])
def test_without_a_quarantine_they_fail_the_write(tmp_path: Path, options: dict[str, str]) -> None:
    """They belong to no table that could have a quarantine, and have no value that could become null."""
    sink = RoutedSink.of(tmp_path, **options)

    with pytest.raises(RefusedRowsError, match=r"2 rows name no table.*'on-bad-row' as quarantine and 'quarantine-tab"):
        sink.append(order(1), stray(2, "a..b"), stray(3, None))

    assert sink.ids("db.orders") == []


def test_quarantine_without_the_name_of_its_table_fails_the_write(tmp_path: Path) -> None:
    """The default is named after the table that such a row does not have."""
    sink = RoutedSink.of(tmp_path, route_tables="db.orders", route_namespace="db", on_bad_row="quarantine")

    with pytest.raises(RefusedRowsError, match="1 rows name no table"):
        sink.append(order(1), stray(2))


def test_lost_rows_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody would know that rows are missing."""
    sink = RoutedSink.of(
        tmp_path, route_tables="db.orders", route_namespace="db", on_bad_row="drop", accept_lost_rows="true"
    )

    with caplog.at_level(logging.WARNING, "iceberg_ds"):
        sink.append(order(1), stray(2), stray(3))

    assert sink.ids("db.orders") == [1]
    assert "2 of 3 rows cannot be written (route: column 'kind': names no table that may be written)" in caplog.text


@pytest.mark.parametrize("limit", ["1", "50%"])
def test_more_of_them_than_allowed_fail_the_write(tmp_path: Path, limit: str) -> None:
    """A feed that names its tables in another way would be kept away from them as a whole."""
    sink = sink_of(tmp_path, max_bad_rows=limit)

    with pytest.raises(RefusedRowsError, match=f"2 of 3 rows cannot be written.*'max-bad-rows' is {limit}"):
        sink.append(order(1), stray(2), stray(3))

    assert (sink.ids("db.orders"), stray_ids(sink)) == ([], [])


def test_name_of_one_level_is_in_the_namespace_of_the_route(tmp_path: Path) -> None:
    """The quarantine of a route is found where its tables are."""
    sink = sink_of(tmp_path, quarantine_table="bad")

    sink.append(stray(2))

    assert stray_ids(sink) == [2]


def require_id(sink: RoutedSink, table: str) -> None:
    """Let the table refuse rows without an id."""
    change = sink.catalog.load_table(parse_identifier(table)).update_schema(allow_incompatible_changes=True)
    with change as changed:
        changed.update_column("id", required=True)


def requeued(sink: RoutedSink, table: str, passed: Passed) -> list[str]:
    """Return the rows of the quarantine table that a requeue would write into a table."""
    found = sink.catalog.reading_anew()
    options = replace(sink.options.of_all, table=parse_identifier(table))
    target = Target.of(found.load_table(options.table).metadata, options)
    batches = pending_rows(found.load_table(parse_identifier(PLACE)), target, after=None, passed=passed)
    return [row for _, rows in batches for row in rows.column("row").to_pylist()]


def test_requeue_takes_no_row_whose_value_looks_like_the_name_of_a_table(tmp_path: Path) -> None:
    """The row would land in a table that it does not name."""
    sink = sink_of(tmp_path, route_tables="db.raw_*", route_table_template="raw_{value}")
    sink.append(order(0))
    require_id(sink, "db.raw_orders")
    sink.append({"kind": "orders", "total": 1.0}, stray(6, "db.raw_orders"), epoch_id=0)

    assert [row["table"] for row in kept(sink)] == ["db.raw_orders"] * 2
    assert requeued(sink, "db.raw_orders", Passed()) == ['{"id":null,"total":1.0}']


def test_requeue_goes_on_past_rows_whose_value_is_the_name_of_its_table(tmp_path: Path) -> None:
    """One row of a feed that may not write a table would stop the requeue of that table for good."""
    other, passed = sink_of(tmp_path, route_tables="db.others"), Passed()
    other.append({"kind": "others", "id": 0, "total": 1.0})
    require_id(other, "db.others")
    sink_of(tmp_path).append(stray(6, "db.others"), stray(7, "db.more"), epoch_id=0)
    other.append({"kind": "others", "total": 2.0})

    assert requeued(other, "db.others", passed) == ['{"id":null,"total":2.0}']
    assert passed.other_tables == set()


def ids_after(sink: RoutedSink, *rows: Row) -> tuple[list[int], list[int]]:
    """Write rows beside an order in two epochs; return the ids of the orders and those in the quarantine table."""
    for number in range(2):
        sink.append(order(number), *rows, epoch_id=number)
    return sink.ids("db.orders"), stray_ids(sink)


@pytest.mark.parametrize("kind", ["bad", "BAD", "cuts", "a#b", "a?b", "`..`", "a\nb", "x" * 256, "é" * 128])
def test_values_that_name_no_table_which_may_be_made_are_kept(tmp_path: Path, kind: str) -> None:
    """One row would stop the stream for good, or make a table of what the sink keeps for itself."""
    sink = sink_of(tmp_path, route_tables="db.*", consistent_cut="db.cuts")

    assert ids_after(sink, stray(6, kind)) == ([0, 1], [6, 6])
    assert sorted(table for _, table in sink.catalog.tables_in(("db",))) == ["bad", "cuts", "orders"]


def test_names_that_disks_just_take_are_names(tmp_path: Path) -> None:
    """Rows of a table that may be made would go to the quarantine."""
    sink = sink_of(tmp_path, route_tables="db.*")

    assert ids_after(sink, stray(6, "é" * 127)) == ([0, 1], [])


@pytest.mark.parametrize("kind", ["orders__bad", "Orders__BAD", "customers__quarantine", "bad"])
def test_quarantine_table_of_one_table_is_none_that_rows_may_name(tmp_path: Path, kind: str) -> None:
    """One row would stop the stream for good, or make a table that no bad row fits into."""
    given = {"route-options.orders.quarantine-table": "db.orders__bad"}
    given |= {"route-options.customers.quarantine-table": "customers__quarantine"}
    sink = RoutedSink.of(tmp_path, given, **{**KEPT, "route_namespace": "db", "route_tables": "db.*"})

    assert ids_after(sink, stray(6, kind)) == ([0, 1], [6, 6])
    assert sorted(table for _, table in sink.catalog.tables_in(("db",))) == ["bad", "orders"]


@pytest.mark.parametrize("named", [{}, {"quarantine_table": "orders__quarantine"}], ids=["default", "named"])
def test_quarantine_table_of_each_namespace_is_none_that_rows_may_name(tmp_path: Path, named: dict[str, str]) -> None:
    """One row would make a table that no bad row fits into, and each later bad row would fail its epoch."""
    sink = RoutedSink.of(tmp_path, on_bad_row="quarantine", route_tables="db.*, more.*", **named)

    with pytest.raises(RefusedRowsError, match=r"orders__quarantine'.* which the write keeps for itself"):
        sink.append({**order(1), "kind": "more.orders"}, stray(6, "more.orders__quarantine"), epoch_id=0)

    assert sink.catalog.tables_in(("more",)) == []


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({"on-bad-row": "FAIL"}, None),
        ({"on-bad-row": "null"}, ([0, 1], [])),
        ({"on-bad-row": "drop", "accept-lost-rows": "true"}, ([0], [])),
        ({"on-bad-row": "drop", "accept-lost-rows": "true", "max-bad-rows": "0"}, None),
        ({}, ([0], [1])),
    ],
)
def test_table_may_treat_bad_rows_in_its_own_way(
    tmp_path: Path, own: dict[str, str], found: tuple[list[int], list[int]] | None
) -> None:
    """Options of the write that go with its own way would refuse any other one, for every table."""
    RoutedSink.of(tmp_path).append(order(0))
    given = {f"route-options.orders.{name}": value for name, value in own.items()}
    sink = RoutedSink.of(
        tmp_path, given, **{**KEPT, "max_bad_rows": "5", "route_namespace": "db"}, schema_evolution="add-columns"
    )
    schema = StructType([StructField(name, StringType()) for name in ("kind", "id", "total")])
    rows = [{"kind": "orders", "id": "1", "total": "much"}, {"kind": "others", "id": "6", "total": None}]

    if found is None:
        with pytest.raises((RefusedRowsError, SchemaMismatchError)):
            sink.commit(sink.write(rows, schema=schema))
    else:
        sink.commit(sink.write(rows, schema=schema))

    ids, bad_ids = found or ([0], [])
    assert sink.ids("db.orders") == ids
    assert sorted(int(json.loads(row["row"])["id"]) for row in kept(sink)) == [*bad_ids, *([6] if found else [])]


def test_tables_that_are_not_to_be_made_are_none_that_may_be_written(tmp_path: Path) -> None:
    """One row with an unknown name would stop the stream for good."""
    RoutedSink.of(tmp_path).append(order(9))
    sink = sink_of(tmp_path, route_tables="db.*", create_table="false")

    assert ids_after(sink, stray(6)) == ([0, 1, 9], [6, 6])
    with pytest.raises(TableNotFoundError, match=r"db\.others does not exist"):
        RoutedSink.of(tmp_path, create_table="false").append(order(2), stray(6))


def test_options_of_a_table_say_whether_it_is_made(tmp_path: Path) -> None:
    """Rows of a table that may be made would stay in the quarantine."""
    given = {
        "route-options.others.create-table": "true",
        "route-options.more.create-table": "false",
        "route-options.`a#b`.location": f"file://{tmp_path}/ab",
    }
    kept_too = {**KEPT, "route_namespace": "db", "route_tables": "db.*"}
    sink = RoutedSink.of(tmp_path, given, **kept_too, create_table="false")
    sink.append(stray(1), stray(2, "more"), stray(3, "a#b"), epoch_id=0)
    assert (sink.ids("db.others"), sorted(stray_ids(sink))) == ([1], [2, 3])

    sink = RoutedSink.of(tmp_path, given, **kept_too)
    sink.append(stray(4, "more"), stray(5, "a#b"), stray(6, "new"), epoch_id=1)
    assert (sink.ids("db.`a#b`"), sink.ids("db.new"), sorted(stray_ids(sink))) == ([5], [6], [2, 3, 4])


def test_options_that_do_not_fit_a_table_refuse_its_rows(tmp_path: Path) -> None:
    """Rows of a table that may be made would go to the quarantine, or rows of other tables not be written."""
    given = {"route-options.customers.overwrite-mode": "dynamic", "route-options.customers.replace-where": "id > 1"}
    sink = RoutedSink.of(tmp_path, given, **KEPT, route_namespace="db")
    sink.append(order(1))

    with pytest.raises(OptionError, match=r"Table db\.customers: "):
        sink.append(order(2), customer(3))

    assert sink.ids("db.orders") == [1]


def test_tables_that_wait_for_columns_are_there(tmp_path: Path) -> None:
    """Their rows would go to the quarantine: they have no plan either."""
    RoutedSink.of(tmp_path).append({"kind": "orders", "id": 9})
    sink = sink_of(tmp_path, keys="id", sequence_by="total", schema_evolution="add-columns", create_table="false")

    assert ids_after(sink) == ([0, 1, 9], [])


def test_rows_make_no_table_of_the_cut(tmp_path: Path) -> None:
    """The first epoch would make a table of other columns, and every later one fail."""
    sink = RoutedSink.of(tmp_path, consistent_cut="db.cuts")

    with pytest.raises(RefusedRowsError, match=r"without db\.cuts, which the write keeps for itself"):
        sink.append(order(2), stray(6, "cuts"), epoch_id=0)

    assert sink.catalog.find_table(("db", "cuts")) is None
