"""`upsert` and `upsert_into` through Spark: what every reader reads, exactly once, and nothing left of what failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from support.checks.invariants import stored_files
from support.checks.reader import listed
from support.exhaustive import few
from support.keys.streams import BY_KEY, COLUMNS, FEED, KeyedStream, check_tidy, rows_after, rows_in
from support.spark.jobs import numbered, remove_last_commit
from support.spark.tables import Warehouse

import iceberg_ds
from iceberg_ds.errors import DataFileError, OptionError, RefusedRowsError, SchemaMismatchError

ENCODINGS = ("position", "copy-on-write")
FORMS: dict[str, dict[str, str]] = {
    "plain": {},
    "by a column that moves": {"partition-by": "region"},
    "by the key": {"partition-by": "bucket(3, id)"},
}


def check_readable(house: Warehouse) -> None:
    """Assert that PyIceberg, which reads no deletes by keys, reads what the project's own reader finds."""
    assert listed(house.table())[DataFileContent.EQUALITY_DELETES] == []
    assert sorted(tuple(row.values()) for row in house.rows().to_pylist()) == rows_in(house)
    check_tidy(house)


def run(spark: SparkSession, stream: KeyedStream, options: Mapping[str, str]) -> None:
    """Run a stream through `foreachBatch` until it has taken all that there is."""
    replace(stream, options={**stream.options, **options}).upsert_job().run(spark)


@pytest.mark.parametrize(("form", "encoding"), few(1, product(FORMS, ENCODINGS)))
def test_stream_of_changes_leaves_the_last_row_of_each_key(
    spark: SparkSession, tmp_path: Path, encoding: str, form: str
) -> None:
    """Old rows would stay, or a reader would meet deletes that it does not know."""
    stream = KeyedStream(folder=tmp_path).feed(*FEED)

    run(spark, stream, {"delete-encoding": encoding, **FORMS[form]})

    assert stream.rows() == rows_after(FEED)
    assert stream.snapshots() == len(FEED)
    check_readable(stream.house)
    if encoding == "copy-on-write":
        assert listed(stream.house.table())[DataFileContent.POSITION_DELETES] == []


@pytest.mark.parametrize("encoding", few(1, ENCODINGS))
def test_repeated_micro_batch_changes_nothing(spark: SparkSession, tmp_path: Path, encoding: str) -> None:
    """A restart would undo what others have written since."""
    stream = KeyedStream(folder=tmp_path).feed(*FEED)
    options = {"delete-encoding": encoding}
    run(spark, stream, options)
    later = spark.createDataFrame([("u", 4, "XX", 0, 99)], COLUMNS)
    iceberg_ds.upsert(later, "db.t", options={**stream.house.options, **BY_KEY, **options})
    before = stream.rows()
    assert remove_last_commit(stream.checkpoint) == len(FEED) - 1

    run(spark, stream, options)

    assert stream.rows() == before
    assert (4, "XX", 0, 99) in before
    check_readable(stream.house)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_batch_replaces_the_rows_of_its_keys(spark: SparkSession, house: Warehouse, encoding: str) -> None:
    """An upsert would append, or lose the rows that it does not name."""
    options = {**house.options, "delete-encoding": encoding}
    created = iceberg_ds.upsert(numbered(spark, 0, 100), "db.t", keys=["id"], options=options)

    changed = numbered(spark, 90, 110).selectExpr("id", "concat('new ', id) AS name")
    result = iceberg_ds.upsert(changed, "db.t", keys="id", options=options)

    assert rows_in(house) == [(i, f"{'row' if i < 90 else 'new'} {i}") for i in range(110)]
    assert (created.rows, created.replaced_rows) == (100, 0)
    assert (result.rows, result.replaced_rows) == (20, 10)
    assert result.snapshot_id == house.table().metadata.current_snapshot_id
    check_readable(house)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", few(1, FORMS))
def test_epochs_in_any_order_leave_the_newest_rows(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """A topic that is read out of order, or twice, would undo newer rows, or bring deleted ones back."""
    stream = KeyedStream(folder=tmp_path).feed(*reversed(FEED), *FEED)
    options = {"sequence-scope": "table", "soft-delete-column": "gone", **FORMS[form]}

    run(spark, stream, options)
    before = stream.rows()
    remove_last_commit(stream.checkpoint)
    run(spark, stream, options)

    assert [row[:-1] for row in before if not row[-1]] == rows_after(FEED)
    assert stream.rows() == before
    check_readable(stream.house)


def test_late_rows_of_a_batch_are_counted(spark: SparkSession, house: Warehouse) -> None:
    """A user would not learn that a batch changed nothing."""
    options = {**house.options, "keys": "day, id", "sequence-by": "at, price", "sequence-scope": "table"}

    def rows(first: int, last: int, second: int, price: str) -> DataFrame:
        at = f"timestamp '2024-01-01 00:00:{second:02}'"
        made = spark.range(first, last).selectExpr("id", "date '2024-01-01' AS day", f"{at} AS at")
        return made.withColumn("price", F.expr(f"CAST({price} AS DECIMAL(9, 2))"))

    iceberg_ds.upsert(rows(0, 100, 30, "10"), "db.t", options=options)
    result = iceberg_ds.upsert(rows(50, 110, 29, "99"), "db.t", options=options)
    again = iceberg_ds.upsert(rows(0, 10, 30, "IF(id < 5, 9.99, 10.01)"), "db.t", options=options)

    assert (result.rows, result.late_rows, result.replaced_rows) == (10, 50, 0)
    assert (again.rows, again.late_rows, again.replaced_rows) == (5, 5, 5)
    prices = {row[0]: str(row[-1]) for row in rows_in(house)}
    assert prices == {i: "99.00" if i >= 100 else "10.01" if 5 <= i < 10 else "10.00" for i in range(110)}
    check_readable(house)


def test_late_rows_are_refused_where_the_table_is_not_looked_at(spark: SparkSession, house: Warehouse) -> None:
    """Late rows would win although the user has asked that they lose."""
    iceberg_ds.register(spark)
    options = {**house.options, "keys": "id", "sequence-by": "name", "sequence-scope": "table"}
    write = numbered(spark, 0, 4).write.format("icebergsink").mode("append").options(**options)

    with pytest.raises(PySparkException, match=r"iceberg_ds\.upsert\(df"):
        write.save("db.t")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_empty_dataframe_makes_the_table_and_nothing_else(spark: SparkSession, house: Warehouse, encoding: str) -> None:
    """The first micro-batch of a quiet stream would fail, or the second one would add a snapshot of nothing."""
    options = {**house.options, "delete-encoding": encoding}
    without_tasks = numbered(spark, 0, 9).where("false")
    for rows in (without_tasks, numbered(spark, 0, 0), without_tasks):
        result = iceberg_ds.upsert(rows, "db.t", keys="id", options=options)
        assert result.snapshot_id is None

    assert house.table().metadata.snapshots == []
    check_tidy(house)


def test_refused_rows_leave_nothing(spark: SparkSession, house: Warehouse) -> None:
    """A bad batch would leave files in the table's folder, again and again as it is tried."""
    iceberg_ds.upsert(numbered(spark, 0, 10), "db.t", keys="id", options=house.options)
    before = stored_files(str(house.folder))
    twice = numbered(spark, 5, 9).union(numbered(spark, 5, 6))
    without = numbered(spark, 0, 4).selectExpr("nullif(id, 2) AS id", "name")
    unfit = numbered(spark, 0, 4).selectExpr("id", "id AS name")

    with pytest.raises(RefusedRowsError, match=r"1 keys have several rows.*'id': 5"):
        iceberg_ds.upsert(twice, "db.t", keys="id", options=house.options)
    with pytest.raises(RefusedRowsError, match="1 rows have a null in a key column"):
        iceberg_ds.upsert(without, "db.t", keys="id", options=house.options)
    with pytest.raises(SchemaMismatchError, match="name"):
        iceberg_ds.upsert(unfit, "db.t", keys="id", options=house.options)

    assert stored_files(str(house.folder)) == before
    assert len(rows_in(house)) == 10


def test_failed_tasks_leave_nothing(spark: SparkSession, house: Warehouse) -> None:
    """The files of a batch that never lands would stay for ever."""
    iceberg_ds.upsert(numbered(spark, 0, 10), "db.t", keys="id", options=house.options)
    blocked = house.folder / "blocked"
    blocked.write_text("a file, no folder")
    with house.table().transaction() as change:
        change.set_properties({"write.data.path": f"file://{blocked}"})
    before = stored_files(str(house.folder))

    with pytest.raises(DataFileError, match="blocked"):
        iceberg_ds.upsert(numbered(spark, 5, 15), "db.t", keys="id", options=house.options)

    assert stored_files(str(house.folder)) == before


def test_failing_query_is_an_error_that_names_it(spark: SparkSession, house: Warehouse) -> None:
    """A user would not learn that the own query is wrong."""
    wrong = numbered(spark, 0, 4).withColumn("name", F.expr("IF(id = 3, raise_error('my mistake'), name)"))

    with pytest.raises((DataFileError, PySparkException), match="my mistake"):
        iceberg_ds.upsert(wrong, "db.t", keys="id", options=house.options)

    assert not house.has_table()


def test_streams_and_wrong_options_are_refused(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """A user would wait for a stream that never starts, or for the first micro-batch to learn of a typo."""
    (tmp_path / "in").mkdir()
    stream: DataFrame = spark.readStream.schema("id BIGINT").json(str(tmp_path / "in"))

    refusals: list[tuple[Any, str]] = [
        (lambda: iceberg_ds.upsert(stream, "db.t", keys="id", options=house.options), r"iceberg_ds\.upsert_into"),
        (lambda: iceberg_ds.upsert(numbered(spark, 0, 1), "db.t", options=house.options), "name the key columns"),
        (lambda: iceberg_ds.upsert_into("db.t", keys="id", options={"delete-encodign": "x"}), "delete-encoding"),
        (lambda: iceberg_ds.upsert_into("db.t", keys="id", options={"txn-version": "1"}), "number themselves"),
    ]

    for call, words in refusals:
        with pytest.raises(OptionError, match=words):
            call()


def test_error_of_a_micro_batch_stops_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    """A stream would go on without the rows that could not be written."""
    stream = KeyedStream(folder=tmp_path).feed(*FEED[:1]).feed(([("u", None, "EU", 1, 9)], []))

    with pytest.raises(StreamingQueryException, match="null in a key column"):
        run(spark, stream, {})

    assert stream.rows() == rows_after(FEED[:1])
    check_tidy(stream.house)
