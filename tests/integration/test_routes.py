"""Rows that name their tables, in real Spark: batches and streams, killed between two tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.checks.invariants import unreferenced_files
from support.exhaustive import few
from support.hooks.faults import Action, Fault, Point
from support.hooks.hooked_sink import HookedSink
from support.spark.tables import FORMAT, Warehouse

TIMEOUT_S = 300
KINDS = ("orders", "customers", "events")
FEED = "kind STRING, id BIGINT, name STRING, total DOUBLE"


def routed(house: Warehouse) -> dict[str, str]:
    """Return the options of writes by column `kind` into tables of `db`."""
    return {**house.options, "route-by": "kind", "route-namespace": "db"}


def row(number: int) -> dict[str, object]:
    """Return a row of the table whose turn it is."""
    kind = KINDS[number % 3]
    return {"kind": kind, "id": number, "total" if kind == "orders" else "name": number if kind == "orders" else "x"}


def ids(house: Warehouse) -> dict[str, list[int]]:
    """Return the ids of each table, in order."""
    return {kind: sorted(house.rows(f"db.{kind}").column("id").to_pylist()) for kind in KINDS}


def expected(count: int) -> dict[str, list[int]]:
    """Return the ids that each table has of the first rows."""
    return {kind: list(range(first, count, 3)) for first, kind in enumerate(KINDS)}


def batch(spark: SparkSession, first: int, end: int) -> DataFrame:
    """Return rows as a DataFrame of three partitions."""
    rows = [
        (found.get("kind"), found["id"], found.get("name"), found.get("total")) for found in map(row, range(first, end))
    ]
    typed = [(kind, number, name, None if total is None else float(total)) for kind, number, name, total in rows]  # type: ignore[arg-type]
    return spark.createDataFrame(typed, FEED).repartition(3)


def test_batches_fill_the_tables_that_their_rows_name(spark: SparkSession, house: Warehouse) -> None:
    """The simplest use would fail: new tables, then tables that are there, and one snapshot for each."""
    for first in (0, 60):
        batch(spark, first, first + 60).write.format(FORMAT).mode("append").options(**routed(house)).save()

    assert ids(house) == expected(120)
    assert house.rows("db.orders").column_names == ["id", "total"]
    assert house.rows("db.events").column_names == ["id", "name"]
    assert len(house.table("db.orders").metadata.snapshots) == 2


def test_row_that_names_no_table_fails_the_batch_and_shows_why(spark: SparkSession, house: Warehouse) -> None:
    """Such rows would be lost, or Spark would hide the reason."""
    rows = batch(spark, 0, 9).selectExpr("IF(id = 5, 'other.place', kind) AS kind", "id", "name", "total")

    with pytest.raises(PySparkException, match=r"1 rows name no table that may be written, for example 'other\.place'"):
        rows.write.format(FORMAT).mode("append").options(**routed(house)).save()

    assert not house.has_table("db.orders")


@pytest.mark.parametrize(
    ("point", "action"), few(1, [(Point.AFTER_COMMIT, Action.KILL_WORKER), (Point.IN_TASK, Action.RAISE)])
)
def test_stream_that_is_killed_between_tables_has_each_row_once(
    spark: SparkSession, house: Warehouse, tmp_path: Path, point: object, action: Action
) -> None:
    """An epoch that died between two tables would be twice in the first, or be missing in the others."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        lines = (json.dumps(row(found)) for found in range(number * 30, number * 30 + 30))
        (source / f"{number}.json").write_text("\n".join(lines))
    spark.dataSource.register(HookedSink)
    feed = spark.readStream.schema(FEED).option("maxFilesPerTrigger", 1).json(str(source))
    fault = Fault(point=point, action=action, fuse=tmp_path / "fuse")  # type: ignore[arg-type]
    options = {**routed(house), "small-task-size-bytes": "0", **fault.arm()}

    def run() -> None:
        stream = feed.writeStream.format(HookedSink.name()).options(**options)
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(TIMEOUT_S), query.status
        finally:
            query.stop()

    with pytest.raises(StreamingQueryException):
        run()
    run()

    assert fault.has_struck
    assert ids(house) == expected(90)
    for kind in KINDS:
        assert unreferenced_files(house.table(f"db.{kind}")) == set()
