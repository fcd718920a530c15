"""Rows that name their tables, and add columns to them: others change the columns meanwhile, or the table has none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from support.tables.changes_by_others import plain_catalog, plain_table, set_columns
from support.tables.routed import RoutedSink, customer, order
from support.tables.sink import Sink, embedded_options

from iceberg_ds.errors import CommitConflictError, SchemaMismatchError
from iceberg_ds.fault_points import FaultPoint, listen

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
