"""Rows that `update`, `merge` and `upsert` change stay the same rows in tables of version 3: they keep their ids."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.checks.invariants import check_clean, check_sound
from support.spark.tables import Warehouse

import iceberg_ds
from iceberg_ds.deletes import kept_ids

MODES = ("merge-on-read", "copy-on-write")
COUNT = 20
Rows = dict[int, tuple[int, int, int]]


def make(spark: SparkSession, house: Warehouse, **options: Any) -> None:
    """Make the table, of version 3, with rows in two data files."""
    rows = spark.range(0, COUNT, 1, 2).selectExpr("id", "id * 10 AS amount")
    house.append(rows, **{"format-version": "3", **options})


def rows_of(spark: SparkSession, house: Warehouse) -> Rows:
    """Return amount, row id and last updated sequence number of each row, by its column `id`."""
    table = house.table()
    check_sound(table)
    check_clean(table)
    columns = ["id", "amount", "_row_id", "_last_updated_sequence_number"]
    found = iceberg_ds.read(spark, "db.t", columns=columns, options=house.options).collect()
    assert len({row["_row_id"] for row in found}) == len(found)
    return {row["id"]: (row["amount"], row["_row_id"], row["_last_updated_sequence_number"]) for row in found}


@pytest.mark.parametrize("mode", MODES)
def test_updated_rows_keep_their_ids(spark: SparkSession, house: Warehouse, mode: Any) -> None:
    """Who follows the table by row ids would take a changed row for a deleted and a new one."""
    make(spark, house)
    before = rows_of(spark, house)

    for number in range(2):  # of the second update some rows are in files that have ids in a column
        where = f"id % 3 = {number} OR id = 0"
        iceberg_ds.update("db.t", {"amount": "amount + 1"}, where, spark, options=house.options, mode=mode)

    after = rows_of(spark, house)
    times = {number: (number % 3 == 0) + (number % 3 == 1 or number == 0) for number in range(COUNT)}
    last = {number: 1 if not times[number] else 3 if number == 0 or number % 3 == 1 else 2 for number in range(COUNT)}
    assert after == {number: (number * 10 + times[number], before[number][1], last[number]) for number in range(COUNT)}


@pytest.mark.parametrize("mode", MODES)
def test_merged_rows_keep_their_ids_and_new_rows_get_new_ones(spark: SparkSession, house: Warehouse, mode: Any) -> None:
    """A new row would get the id of another, or a changed row lose its own."""
    make(spark, house)
    before = rows_of(spark, house)
    source = spark.range(0, 2 * COUNT, 2, 2).selectExpr("id", "id + 1000 AS amount")

    iceberg_ds.merge(
        spark,
        source,
        "db.t",
        options=house.options,
        on=["id"],
        when_matched=[iceberg_ds.Delete("target.id = 4"), iceberg_ds.Update()],
        when_not_matched=iceberg_ds.Insert(),
        when_not_matched_by_source=iceberg_ds.Update({"amount": "-1"}, "target.id = 7"),
        mode=mode,
    )

    after = rows_of(spark, house)
    changed = {number for number in range(0, COUNT, 2) if number != 4} | {7}
    assert after.keys() == (before.keys() | set(range(0, 2 * COUNT, 2))) - {4}
    assert {number: after[number][1] for number in after if number < COUNT} == {
        number: row_id for number, (_, row_id, _) in before.items() if number != 4
    }
    assert {number for number in after if after[number][2] == 2} == changed | set(range(COUNT, 2 * COUNT, 2))
    assert min(after[number][1] for number in range(COUNT, 2 * COUNT, 2)) >= COUNT
    assert after[7][0] == -1


@pytest.mark.exhaustive
def test_ids_are_kept_in_an_upgraded_table(spark: SparkSession, house: Warehouse) -> None:
    """The first change after an upgrade would be refused, or give rows ids that others have."""
    make(spark, house, **{"format-version": "2"})
    rows = spark.range(100, 102).selectExpr("id", "id AS amount")
    house.append(rows, **{"format-version": "3", "upgrade-format": "true"})
    before = rows_of(spark, house)

    iceberg_ds.update("db.t", {"amount": "0"}, "id < 5 OR id = 100", spark, options=house.options)

    after = rows_of(spark, house)
    assert {number: row_id for number, (_, row_id, _) in after.items()} == {
        number: row_id for number, (_, row_id, _) in before.items()
    }
    assert [after[number][0] for number in (0, 4, 5, 100, 101)] == [0, 0, 50, 0, 101]


@pytest.mark.exhaustive
@pytest.mark.parametrize("task_rows", [500_000, 1])  # by the driver, or a task of Spark for each file
def test_upserted_rows_keep_their_ids(
    spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch, task_rows: int
) -> None:
    """Rows would lose their ids where many are written, or take those of others."""
    monkeypatch.setattr(kept_ids, "_TASK_ROWS", task_rows)
    make(spark, house)
    before = rows_of(spark, house)
    changed = spark.range(5, COUNT + 5, 1, 3).selectExpr("id", "id + 1000 AS amount")

    for _ in range(2):  # the second time the files have ids in a column
        iceberg_ds.upsert(changed, "db.t", options=house.options, keys="id")

    after = rows_of(spark, house)
    assert {number: after[number][1] for number in before} == {number: before[number][1] for number in before}
    assert [after[number][0] for number in (4, 5, COUNT + 4)] == [40, 1005, COUNT + 1004]
    assert len({after[number][1] for number in range(COUNT, COUNT + 5)} - {before[n][1] for n in before}) == 5
