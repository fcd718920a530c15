"""Rows that name their tables, where a table or a column of it is new: what the driver plans and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema as IceSchema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from pyspark.sql import types as spark
from support.checks.reader import rows_of
from support.tables.changes_by_others import plain_catalog, plain_table, set_columns
from support.tables.routed import RoutedSink, customer, order
from support.tables.sink import Sink, embedded_options

from iceberg_ds.errors import CommitConflictError, OptionError, RefusedRowsError, SchemaMismatchError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.planning.plan_write import WriteMode

KIND, SEQ = spark.StructField("kind", spark.StringType()), spark.StructField("seq", spark.LongType())
GONE = spark.StructField("gone", spark.BooleanType())
NAMED = spark.StructType([KIND, spark.StructField("id", spark.LongType()), SEQ, GONE])
ELSEWHERE = spark.StructType([KIND, SEQ, GONE])
ID = NestedField(1, "id", LongType())


@pytest.fixture(autouse=True)
def _without_listener() -> Iterator[None]:
    yield
    listen(None)


def orders_of(sink: RoutedSink, warehouse: Path) -> Sink:
    """Return the sink of table `db.orders` alone."""
    options = dataclasses.replace(embedded_options(warehouse), table=("db", "orders"))
    return Sink(catalog=sink.catalog, options=options)


def before_the_commit(change: Callable[[], object]) -> None:
    """Let `change` run once the driver has added columns and written its rows, before anything is committed."""
    left = [change]

    def reached(step: FaultPoint) -> None:
        if step is FaultPoint.COMMIT_BEGUN and left:
            left.pop()()

    listen(reached)


def readd(table: Sink, *fields: NestedField) -> None:
    """Drop all columns but `id` from a table, then add these."""
    set_columns(table, ID)
    set_columns(table, ID, *fields)


@pytest.mark.parametrize("data_type", [DoubleType(), StringType()], ids=["same-type", "other-type"])
@pytest.mark.parametrize("is_alone", [True, False])
def test_column_that_rows_add_and_others_make_anew_is_a_conflict(
    tmp_path: Path, *, is_alone: bool, data_type: DoubleType | StringType
) -> None:
    """The values that the driver wrote would read null: the check would not know of their column."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    sink.append({"kind": "orders", "id": 1})
    others = [] if is_alone else [[{"kind": "orders", "id": 3}]]
    messages = sink.write([order(2, 2.5)], *others)
    table = orders_of(sink, tmp_path)
    before_the_commit(lambda: readd(table, NestedField(3, "total", data_type)))

    with pytest.raises(CommitConflictError, match=r"db\.orders.*column 'total' is another one"):
        sink.commit(messages)

    assert sink.ids("db.orders") == [1]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(
    ("given", "mode", "stays"),
    [
        ({"schema-evolution": "full", "drop-missing-columns": "true"}, WriteMode.APPEND, [(1, "old")]),
        ({"overwriteschema": "true"}, WriteMode.OVERWRITE, []),
    ],
)
def test_rows_that_add_a_column_drop_none_that_the_dataframe_has(
    tmp_path: Path, given: dict[str, str], mode: WriteMode, stays: list[tuple[int, str]], parts: int
) -> None:
    """Values of a column would be gone because the rows that add another one happen to have none in it."""
    RoutedSink.of(tmp_path).append({"kind": "orders", "id": 1, "name": "old"})
    sink = RoutedSink.of(tmp_path, {f"route-options.orders.{option}": value for option, value in given.items()})
    rows = [{"kind": "orders", "id": 2, "name": "new"}, order(3, 2.5)]

    sink.commit(sink.write(*([rows] if parts == 1 else [[row] for row in rows]), plan=sink.plan(mode=mode)))

    assert [(row["id"], row["name"]) for row in sink.rows("db.orders")] == [*stays, (2, "new"), (3, None)]


def test_column_that_others_add_meanwhile_is_not_dropped(tmp_path: Path) -> None:
    """It was not looked at when the write was planned, and its values would be gone."""
    given = {"route-options.orders.schema-evolution": "full", "route-options.orders.drop-missing-columns": "true"}
    sink = RoutedSink.of(tmp_path, given)
    sink.append({"kind": "orders", "id": 1})
    messages = sink.write([{"kind": "orders", "id": 2}], [order(3, 2.5)])
    set_columns(orders_of(sink, tmp_path), ID, NestedField(2, "later", StringType()))

    sink.commit(messages)

    assert [(row["id"], row["later"], row["total"]) for row in sink.rows("db.orders")] == [
        (1, None, None),
        (2, None, None),
        (3, None, 2.5),
    ]


@pytest.mark.parametrize("total", [None, 2.5], ids=["by a task", "by the driver"])
def test_null_lands_as_null_whoever_writes_it(tmp_path: Path, total: float | None) -> None:
    """What is in a row would depend on the rows that come beside it: the column's write default, or the null."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns", format_version="3")
    sink.append({"kind": "orders", "id": 1})
    set_columns(
        orders_of(sink, tmp_path),
        ID,
        NestedField(2, "name", StringType(), required=False, initial_default="given", write_default="given"),
    )

    sink.append({"kind": "orders", "id": 2, "total": total})

    assert sink.rows("db.orders")[1]["name"] is None


def test_null_in_a_required_column_is_a_bad_row_whoever_writes_it(tmp_path: Path) -> None:
    """The stream would stop with a column missing that the DataFrame has."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns", on_bad_row="quarantine", quarantine_table="db.bad")
    sink.append({"kind": "orders", "id": 1, "name": "one"})
    with sink.catalog.load_table(("db", "orders")).update_schema(allow_incompatible_changes=True) as change:
        change.update_column("name", required=True)

    sink.append(order(2, 2.5), epoch_id=0)

    assert sink.ids("db.orders") == [1]
    assert [
        row["reason"].split(":")[0] for row in sink.catalog.load_table(("db", "bad")).scan().to_arrow().to_pylist()
    ] == ["required"]


def test_tables_whose_names_differ_in_case_get_their_own_columns(tmp_path: Path) -> None:
    """A value would be lost because a table of nearly that name lacks its column."""
    sink = RoutedSink.of(tmp_path, {"sequence-by": "seq", "keys": "id"}, schema_evolution="add-columns")
    catalog = plain_catalog(orders_of(sink, tmp_path))
    catalog.create_namespace("db")
    catalog.create_table("db.Orders", IceSchema(ID, NestedField(2, "kind", StringType())))
    catalog.create_table("db.orders", IceSchema(ID))
    rows = [{"kind": "Orders", "id": 1, "seq": 1}, {"kind": "orders", "id": 2, "seq": 1}]

    sink.commit(sink.write(rows, schema=NAMED))

    assert sink.rows("db.`Orders`") == [{"id": 1, "kind": "Orders", "seq": 1}]
    assert sink.rows("db.orders") == [{"id": 2, "seq": 1}]


def test_added_column_that_others_make_narrower_is_refused(tmp_path: Path) -> None:
    """Readers would fail at the values that the driver wrote."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    sink.append({"kind": "orders", "id": 1})
    table = orders_of(sink, tmp_path)
    before_the_commit(lambda: set_columns(table, ID, NestedField(2, "total", LongType())))

    with pytest.raises(SchemaMismatchError, match="column 'total' was double and is long"):
        sink.append(order(2, 2.5))

    assert sink.ids("db.orders") == [1]


def test_column_of_the_other_tasks_that_is_made_anew_before_the_driver_writes_is_a_conflict(tmp_path: Path) -> None:
    """The check would know the columns of the driver's rows alone, and the values that tasks wrote would read null."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    sink.append({"kind": "orders", "id": 1})
    messages = sink.write([{"kind": "orders", "id": 3}], [order(2, 2.5)])
    set_columns(orders_of(sink, tmp_path), NestedField(2, "id", LongType()))

    with pytest.raises(CommitConflictError, match="column 'id' is another one"):
        sink.commit(messages)


def test_added_column_that_others_rename_keeps_its_values(tmp_path: Path) -> None:
    """A change that loses nothing would stop the feed."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    sink.append({"kind": "orders", "id": 1})
    messages = sink.write([{"kind": "orders", "id": 2}], [order(3, 2.5)])
    table = orders_of(sink, tmp_path)
    before_the_commit(lambda: set_columns(table, ID, NestedField(2, "sum", DoubleType())))

    sink.commit(messages)

    assert [(row["id"], row["sum"]) for row in sink.rows("db.orders")] == [(1, None), (2, None), (3, 2.5)]


def test_rows_of_tasks_and_of_the_driver_land_in_two_specs(tmp_path: Path) -> None:
    """A table that others partition while rows add a column would stop the feed."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    sink.append({"kind": "orders", "id": 1})
    messages = sink.write([{"kind": "orders", "id": 2}], [order(3, 2.5)])
    table = orders_of(sink, tmp_path)
    with plain_table(table).update_spec() as update:
        update.add_field("id", "bucket[4]", "old")

    sink.commit(messages)

    assert sink.ids("db.orders") == [1, 2, 3]


def test_table_that_is_made_anew_while_rows_add_a_column_is_refused(tmp_path: Path) -> None:
    """Rows of tasks, written for the old table, would land in the new one."""
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    sink.append({"kind": "orders", "id": 1}, customer(7))
    messages = sink.write([{"kind": "orders", "id": 2}], [order(3, 2.5)])
    plain_catalog(orders_of(sink, tmp_path)).drop_table("db.orders")

    with pytest.raises(CommitConflictError, match="was dropped"):
        sink.commit(messages)

    assert sink.ids("db.orders") == []


def test_new_table_gets_no_rows_outside_the_range_that_an_overwrite_replaces(tmp_path: Path) -> None:
    """Such rows would stay beside those of the next overwrite of that range, which would refuse them."""
    sink = RoutedSink.of(tmp_path, {"replace-where": "id < 3"})

    with pytest.raises(RefusedRowsError, match=r"db\.orders.*1 rows do not satisfy replace-where"):
        sink.commit(sink.write([order(1), order(9)], plan=sink.plan(mode=WriteMode.OVERWRITE)))

    assert sink.catalog.find_table(("db", "orders")) is None
    sink.commit(sink.write([order(1)], plan=sink.plan(mode=WriteMode.OVERWRITE)))
    assert sink.ids("db.orders") == [1]


@pytest.mark.parametrize("policy", ["quarantine", "drop"])
def test_rows_of_a_new_table_outside_the_range_go_where_bad_rows_go(tmp_path: Path, policy: str) -> None:
    """They would be rows of the table in its first write, and bad rows in the next."""
    accept = {"accept-lost-rows": "true"} if policy == "drop" else {}
    sink = RoutedSink.of(tmp_path, {"replace-where": "id < 3", "on-bad-row": policy, **accept})

    for _ in range(2):
        sink.commit(sink.write([order(1), order(9)], plan=sink.plan(mode=WriteMode.OVERWRITE)))

    assert sink.ids("db.orders") == [1]
    kept = sink.catalog.find_table(("db", "orders__quarantine"))
    assert (0 if kept is None else len(rows_of(kept))) == (2 if policy == "quarantine" else 0)


def test_new_table_gets_the_column_of_the_range(tmp_path: Path) -> None:
    """Rows without a value there would fail the write by a missing column, which the DataFrame has."""
    sink = RoutedSink.of(tmp_path, {"replace-where": "total is null"})

    sink.commit(sink.write([order(1) | {"total": None}], plan=sink.plan(mode=WriteMode.OVERWRITE)))

    assert sink.rows("db.orders") == [{"id": 1, "total": None}]


def test_range_to_replace_is_refused_where_rows_are_appended_to_a_new_table(tmp_path: Path) -> None:
    """The first write would do what the next one refuses."""
    sink = RoutedSink.of(tmp_path, {"replace-where": "id < 3"})

    with pytest.raises(OptionError, match="appends"):
        sink.append(order(1))


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({"keys": "id", "sequence-by": "seq"}, {"seq": 5}),
        ({"keys": "id", "sequence-by": "seq"}, {}),
        ({"keys": "id", "delete-when": "gone"}, {"gone": False}),
        ({"soft-delete-column": "gone", "keys": "id", "delete-when": "gone"}, {"gone": False}),
        ({"sort-by": "seq"}, {"seq": 5}),
    ],
    ids=["sequence-by", "sequence-by without values", "delete-when", "soft-delete-column", "sort-by"],
)
def test_table_gets_the_columns_that_options_name_with_its_first_rows(
    tmp_path: Path, options: dict[str, str], row: dict[str, Any]
) -> None:
    """The write would be refused, because a column that the DataFrame has 'is not in the DataFrame'."""
    RoutedSink.of(tmp_path).append({"kind": "orders", "id": 1}, {"kind": "others", "id": 1})
    sink = RoutedSink.of(tmp_path, {"schema-evolution": "add-columns", **options})

    for number in (0, 1):
        sink.commit(sink.write([{"kind": "orders", "id": 1, **row}], schema=NAMED, epoch_id=number), number)

    found = sink.rows("db.orders")
    assert len(found) == (1 if "keys" in options else 3)
    assert any(({"id": 1, **row}).items() <= stored.items() for stored in found)
    assert ("seq" in found[0]) == ("sequence-by" in options or "sort-by" in options)
    # A table that no row names stays as it is.
    assert sink.catalog.reading_anew().load_table(("db", "others")).schema().column_names == ["id"]


def test_column_that_options_name_and_no_row_may_add_is_refused_by_its_name(tmp_path: Path) -> None:
    """The reason would be untrue: the DataFrame has the column."""
    RoutedSink.of(tmp_path).append({"kind": "orders", "id": 1})
    sink = RoutedSink.of(tmp_path, {"keys": "id", "sequence-by": "seq"})

    with pytest.raises(RefusedRowsError, match="column 'seq' bigint is not in the table"):
        sink.write([{"kind": "orders", "id": 1, "seq": 5}], schema=NAMED)


@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE])
def test_table_without_any_column_of_the_dataframe_gets_those_of_its_rows(tmp_path: Path, mode: WriteMode) -> None:
    """The write would be refused as one without columns, for good; or an overwrite would leave the old rows."""
    RoutedSink.of(tmp_path).append({"kind": "orders", "id": 7}, {"kind": "others", "id": 7})
    sink = RoutedSink.of(tmp_path, schema_evolution="add-columns")
    rows = [{"kind": "orders", "seq": 5}, {"kind": "orders"}]

    sink.commit(sink.write(rows, schema=ELSEWHERE, plan=sink.plan(ELSEWHERE, mode)))

    old = [(7, None)] if mode is WriteMode.APPEND else []
    found = rows_of(sink.catalog.reading_anew().load_table(("db", "orders")))
    assert sorted(((row["id"], row["seq"]) for row in found), key=str) == sorted(
        [*old, (None, 5), (None, None)], key=str
    )
    assert "gone" not in found[0]
    assert sink.catalog.reading_anew().load_table(("db", "others")).schema().column_names == ["id"]


def test_table_without_any_column_of_the_dataframe_is_refused_by_their_names(tmp_path: Path) -> None:
    """The reason would be untrue: the DataFrame has columns."""
    RoutedSink.of(tmp_path).append({"kind": "orders", "id": 7}, {"kind": "others", "id": 7})
    sink = RoutedSink.of(tmp_path)

    with pytest.raises(RefusedRowsError, match="column 'seq' bigint is not in the table"):
        sink.write([{"kind": "orders"}], schema=ELSEWHERE)


def test_row_without_values_gives_a_new_table_all_columns(tmp_path: Path) -> None:
    """One such row would fail the write of all tables, and so stop a stream for good."""
    sink = RoutedSink.of(tmp_path)

    sink.append({"kind": "orders"}, customer(7), epoch_id=0)

    orders = sink.catalog.load_table(("db", "orders"))
    assert rows_of(orders) == [{"id": None, "name": None, "total": None}]
    assert sink.rows("db.customers") == [{"id": 7, "name": "Ann"}]
