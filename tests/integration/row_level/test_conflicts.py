"""What others commit between the read of a row-level operation and its commit: no row is lost, none comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE, each_value, few
from support.spark.tables import Warehouse
from support.tables.delete_files import delete_ids

import iceberg_ds
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.row_level.operation import ROUNDS

from .test_delete_and_update import MODES, Row, people, sink_of

COUNT = 8
LEVELS = ("serializable", "snapshot")
COLUMNS = "id bigint, part int, name string, amount bigint"


def once(act: Callable[[], object], times: int = 1) -> list[int]:
    """Let `act` run between read and commit of the next operations; return a list with an item for each run."""
    runs: list[int] = []

    def listener(step: FaultPoint) -> None:
        if step is FaultPoint.ROWS_CHANGED and len(runs) < times:
            runs.append(len(runs))
            act()

    listen(listener)
    return runs


@pytest.fixture(autouse=True)
def _nobody_listens() -> Any:
    yield
    listen(None)


def amounts(house: Warehouse) -> dict[int, int]:
    """Return the amount of each id, after a look at all of the table's metadata and files."""
    table = house.table()
    check_sound(table)
    check_clean(table)
    rows: list[Row] = rows_of(table)
    found = {row["id"]: row["amount"] for row in rows}
    assert len(found) == len(rows)
    return found


def add(spark: SparkSession, house: Warehouse, *ids: int) -> None:
    """Append rows as another writer."""
    house.append(
        spark.createDataFrame(
            [(number, 0, "new", 1) for number in ids], "id bigint, part int, name string, amount bigint"
        )
    )


@pytest.mark.parametrize("mode", few(1, MODES))
def test_rows_that_come_meanwhile_are_changed_too(spark: SparkSession, house: Warehouse, mode: Any) -> None:
    """Under `serializable`, the table would be as if the update had seen half of another write."""
    house.append(people(spark, COUNT))
    runs = once(lambda: add(spark, house, 100, 200))

    result = iceberg_ds.update(
        "db.t", {"amount": "amount + 1"}, where="id >= 6 AND id < 150", spark=spark, options=house.options, mode=mode
    )

    assert len(runs) == 1
    assert result.updated_rows == 3
    assert amounts(house) == {**{n: n * 10 for n in range(6)}, 6: 61, 7: 71, 100: 2, 200: 1}


@pytest.mark.parametrize("mode", few(1, MODES))
def test_rows_that_come_meanwhile_stay_under_snapshot(spark: SparkSession, house: Warehouse, mode: Any) -> None:
    """A stream of appends would keep an update from ever landing."""
    house.append(people(spark, COUNT))
    once(lambda: add(spark, house, 100), times=99)

    result = iceberg_ds.update(
        "db.t",
        {"amount": "0"},
        where="id > 6",
        spark=spark,
        options=house.options,
        mode=mode,
        isolation_level="snapshot",
    )

    assert result.updated_rows == 1
    assert amounts(house) == {**{n: n * 10 for n in range(7)}, 7: 0, 100: 1}


def test_rows_outside_the_predicate_are_no_conflict(spark: SparkSession, house: Warehouse) -> None:
    """Each append anywhere in the table would make a delete begin anew."""
    house.append(people(spark, COUNT))
    runs = once(lambda: add(spark, house, 100 + len(house.snapshots())), times=99)

    iceberg_ds.delete_from("db.t", "id < 4", spark, options=house.options)

    assert len(runs) == 1
    assert sorted(amounts(house)) == [4, 5, 6, 7, 101]


@pytest.mark.parametrize(("mode", "level", "by"), each_value(MODES, LEVELS, ("position", "key")))
def test_row_that_is_deleted_meanwhile_does_not_come_back(
    spark: SparkSession, house: Warehouse, mode: Any, level: Any, by: str
) -> None:
    """An update would bring it back with its new value."""
    house.append(people(spark, COUNT).coalesce(1))

    def delete() -> None:
        if by == "key":
            delete_ids(sink_of(house), 6)
        else:
            iceberg_ds.delete_from("db.t", "id = 6", spark, options=house.options)

    runs = once(delete)
    result = iceberg_ds.update(
        "db.t",
        {"amount": "amount + 1"},
        where="id >= 5",
        spark=spark,
        options=house.options,
        mode=mode,
        isolation_level=level,
    )

    assert len(runs) == 1
    assert result.updated_rows == 2
    assert amounts(house) == {**{n: n * 10 for n in range(5)}, 5: 51, 7: 71}


@pytest.mark.parametrize(("mode", "level"), each_value(MODES, LEVELS))
def test_delete_of_rows_that_are_rewritten_meanwhile(
    spark: SparkSession, house: Warehouse, mode: Any, level: Any
) -> None:
    """A delete would name rows of files that a compaction has replaced, and lose its rows."""
    house.append(people(spark, COUNT))
    runs = once(lambda: iceberg_ds.rewrite_data_files("db.t", spark, options={**house.options, "rewrite-all": "true"}))

    result = iceberg_ds.delete_from(
        "db.t", "id IN (1, 6)", spark, options=house.options, mode=mode, isolation_level=level
    )

    assert len(runs) == 1
    assert result.deleted_rows == 2
    assert sorted(amounts(house)) == [0, 2, 3, 4, 5, 7]


def test_inserts_of_two_merges_do_not_double(spark: SparkSession, house: Warehouse) -> None:
    """Both would find that the key is not there, and insert it."""
    house.append(people(spark, COUNT))
    source = spark.createDataFrame([(50, 0, "s", 5)], COLUMNS)

    def merge() -> None:
        iceberg_ds.merge(
            spark,
            source,
            "db.t",
            on=["id"],
            when_matched=iceberg_ds.Update({"amount": "target.amount + source.amount"}),
            when_not_matched=iceberg_ds.Insert(),
            options=house.options,
        )

    once(merge)
    merge()

    assert amounts(house)[50] == 10


def test_rows_that_a_compaction_has_taken_over_are_new_rows(spark: SparkSession, house: Warehouse) -> None:
    """A merge would insert a key that came meanwhile, because its row lies in a file of the compaction by then."""
    house.append(people(spark, COUNT))

    def act() -> None:
        add(spark, house, 50)
        iceberg_ds.rewrite_data_files("db.t", spark, options={**house.options, "rewrite-all": "true"})

    runs = once(act)
    iceberg_ds.merge(
        spark,
        spark.createDataFrame([(50, 0, "s", 5)], COLUMNS),
        "db.t",
        on=["id"],
        when_matched=iceberg_ds.Update({"amount": "target.amount + source.amount"}),
        when_not_matched=iceberg_ds.Insert(),
        options=house.options,
    )

    assert len(runs) == 1
    assert amounts(house) == {**{n: n * 10 for n in range(COUNT)}, 50: 6}


@EXHAUSTIVE
def test_operation_that_never_comes_to_its_commit_gives_up(spark: SparkSession, house: Warehouse) -> None:
    """It would go on for ever, or leave its files."""
    house.append(people(spark, 2))
    runs = once(lambda: add(spark, house, 100 + len(house.snapshots())), times=99)

    with pytest.raises(CommitConflictError, match=f"in {ROUNDS} tries, nothing was committed.*isolation_level"):
        iceberg_ds.update("db.t", {"amount": "0"}, spark=spark, options=house.options)

    assert len(runs) == ROUNDS
    assert set(amounts(house).values()) == {0, 10, 1}
