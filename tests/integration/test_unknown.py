"""Columns without a type yet: void in Spark, `unknown` in tables of format version 3, and stored in no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support.checks.invariants import check_clean, check_sound
from support.exhaustive import few
from support.spark.tables import FORMAT, Warehouse

import iceberg_ds
from iceberg_ds import Insert, Update
from iceberg_ds.errors import OptionError
from iceberg_ds.reading.read import Reader

READERS: tuple[Reader, ...] = ("spark", "python")
VERSION_3 = {"format_version": "3"}


def rows(spark: SparkSession, first: int, count: int = 2, state: str = "'new'") -> DataFrame:
    """Return rows of `id`, a void column between two others, and one with a comment."""
    found = spark.range(first, first + count).coalesce(1)
    return found.selectExpr("id", "NULL AS nothing", f"{state} AS state").withMetadata("nothing", {"comment": "later"})


def both(spark: SparkSession, house: Warehouse, **arguments: Any) -> list[tuple[Any, ...]]:
    """Read with both readers, and return the rows in order, which have to be the same and of the same types."""
    found = [iceberg_ds.read(spark, "db.t", options=house.options, reader=one, **arguments) for one in READERS]
    by_spark, by_python = (sorted(tuple(row) for row in one.collect()) for one in found)

    assert by_python == by_spark
    assert found[0].schema == found[1].schema
    return by_spark


def kinds(house: Warehouse) -> dict[str, str]:
    """Return the types of the table's columns."""
    return {field.name: str(field.field_type) for field in house.table().schema().fields}


def test_void_columns_are_unknown_and_stored_in_no_file(spark: SparkSession, house: Warehouse) -> None:
    """Other engines would find a column in files that the spec keeps out of them, or the rows be gone."""
    house.append(rows(spark, 0), **VERSION_3)
    house.append(rows(spark, 2).select("id", "state"))
    house.append(rows(spark, 4), on_bad_row="quarantine")

    assert kinds(house) == {"id": "long", "nothing": "unknown", "state": "string"}
    assert both(spark, house) == [(number, None, "new") for number in range(6)]
    assert iceberg_ds.read(spark, "db.t", options=house.options).schema["nothing"].dataType.simpleString() == "void"
    for path in house.data_files():
        assert pq.read_schema(path).names == ["id", "state"]
    (number,) = (field.field_id for field in house.table().schema().fields if field.name == "nothing")
    for task in house.table().scan().plan_files():
        assert number not in {*task.file.value_counts, *task.file.null_value_counts, *task.file.lower_bounds}
    check_clean(house.table())


@pytest.mark.exhaustive
def test_older_tables_take_void_as_nulls_of_their_columns_alone(spark: SparkSession, house: Warehouse) -> None:
    """A table would be made that its readers cannot load, or a batch without a value be refused."""
    with pytest.raises(PySparkException, match=r"column 'nothing' holds void.*lit\(None\).cast"):
        house.append(rows(spark, 0))
    house.append(spark.range(1).selectExpr("id", "1 AS nothing"))
    house.append(rows(spark, 1, 1).select("id", "nothing"))
    with pytest.raises(PySparkException, match="column 'new' is not in the table and holds void"):
        house.append(spark.sql("SELECT 2L AS id, 2 AS nothing, NULL AS new"), schema_evolution="add-columns")

    assert kinds(house) == {"id": "long", "nothing": "int"}
    assert house.rows()["nothing"].to_pylist() == [1, None]


@pytest.mark.exhaustive
def test_void_columns_are_added_and_get_a_type_later(spark: SparkSession, house: Warehouse) -> None:
    """The first batch with a value would have no place, or old rows have another value than null."""
    house.append(spark.range(2).coalesce(1), **VERSION_3)
    house.append(spark.sql("SELECT 2L AS id, NULL AS later"), schema_evolution="add-columns")
    assert kinds(house) == {"id": "long", "later": "unknown"}
    (before,) = (field.field_id for field in house.table().schema().fields if field.name == "later")
    valued = spark.sql("SELECT 3L AS id, 'x' AS later")
    for options in ({}, {"schema_evolution": "add-columns"}):
        with pytest.raises(
            PySparkException, match=r"'later' is string in the DataFrame and void in the table: .*schema-evolution=full"
        ):
            house.append(valued, **options)
    house.append(valued, schema_evolution="full")
    house.append(spark.sql("SELECT 4L AS id, NULL AS later"))

    assert kinds(house) == {"id": "long", "later": "string"}
    assert [field.field_id for field in house.table().schema().fields if field.name == "later"] == [before]
    assert both(spark, house) == [(0, None), (1, None), (2, None), (3, "x"), (4, None)]
    assert both(spark, house, where="later = 'x'") == [(3, "x")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("value", few(1, ["array(1)", "named_struct('x', 1)", "map('k', 1)"]))
def test_nested_values_take_the_place_of_a_column_without_a_type(
    spark: SparkSession, house: Warehouse, value: str
) -> None:
    """A column that never had a value would keep nested ones out, with no way to go on."""
    house.append(rows(spark, 0).select("id", "nothing"), **VERSION_3)
    nested = spark.range(3, 4).selectExpr("id", f"{value} AS nothing")
    with pytest.raises(PySparkException, match="drop the table's, and let a write add it again"):
        house.append(nested, schema_evolution="full")
    house.append(nested.select("id"), schema_evolution="full", drop_missing_columns="true")
    house.append(nested, schema_evolution="add-columns")

    assert [row[0] for row in both(spark, house, columns=["id"])] == [0, 1, 3, 3]
    assert kinds(house)["nothing"].startswith(("list", "struct", "map"))


@pytest.mark.exhaustive
def test_rows_beside_unknown_columns_change_and_move(spark: SparkSession, house: Warehouse) -> None:
    """A table with such a column could only grow."""
    options = house.options
    house.append(rows(spark, 0, 6), **VERSION_3)
    expected = dict.fromkeys(range(6), "new")

    with pytest.raises(OptionError, match=r"'nothing' is void, and '1' is int.*schema-evolution=full gives it theirs"):
        iceberg_ds.update("db.t", {"nothing": "1"}, "id = 1", spark, options=options)
    iceberg_ds.delete_from("db.t", "id = 0", spark, options=options)
    iceberg_ds.update("db.t", {"state": "'updated'", "nothing": "NULL"}, "id = 1", spark, options=options)
    iceberg_ds.update("db.t", {"state": "'copied'"}, "id = 2", spark, mode="copy-on-write", options=options)
    source = rows(spark, 3, 1, "'merged'").union(rows(spark, 9, 1, "'merged'"))
    iceberg_ds.merge(
        spark, source, "db.t", on="target.id = source.id", when_matched=[Update()], when_not_matched=[Insert()],
        options=options,
    )  # fmt: skip
    iceberg_ds.upsert(rows(spark, 4, 1, "'upserted'"), "db.t", keys=["id"], options=options)
    house.append(rows(spark, 5, 1, "'by key'"), keys="id", delete_encoding="equality")
    iceberg_ds.convert_deletes("db.t", options=options)
    overwrite = rows(spark, 7, 1, "'replaced'").write.format(FORMAT).mode("overwrite")
    overwrite.options(**options, **{"replace-where": "id >= 6 AND id < 9 AND nothing IS NULL"}).save("db.t")
    del expected[0]
    expected |= {1: "updated", 2: "copied", 3: "merged", 9: "merged", 4: "upserted", 5: "by key", 7: "replaced"}
    shown = [(number, None, state) for number, state in sorted(expected.items())]
    assert both(spark, house) == shown
    assert both(spark, house, where="nothing IS NULL AND id < 3", columns=["nothing", "id"]) == [(None, 1), (None, 2)]

    iceberg_ds.rewrite_data_files("db.t", spark, options={**options, "rewrite-all": "true"})
    iceberg_ds.rewrite_data_files(
        "db.t", spark, strategy="sort", sort_order="id DESC", options={**options, "rewrite-all": "true"}
    )
    assert both(spark, house) == shown
    assert iceberg_ds.verify("db.t", options=options, deep=True).ok
    check_sound(house.table())


@pytest.mark.exhaustive
def test_whole_tables_and_partitions_are_replaced(spark: SparkSession, house: Warehouse) -> None:
    """An overwrite would fail where an append does not."""
    house.append(rows(spark, 0), **VERSION_3, partition_by="state", sort_by="id")
    for more in ({"overwrite-mode": "dynamic"}, {}):
        write = rows(spark, 10, 3, "IF(id = 10, 'old', 'new')").write.format(FORMAT).mode("overwrite")
        write.options(**house.options, **more).save("db.t")

        assert both(spark, house) == [(10, None, "old"), (11, None, "new"), (12, None, "new")]
    replaced = rows(spark, 20, 1).selectExpr("id", "array(1) AS nothing", "state").write.format(FORMAT)
    replaced.mode("overwrite").options(**house.options, overwriteSchema="true").save("db.t")
    assert kinds(house)["nothing"] == "list<int>"


@pytest.mark.exhaustive
def test_streams_write_read_and_follow_unknown_columns(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """A stream would end at the first batch without a value."""
    house.append(rows(spark, 0), **VERSION_3)
    spark.range(2, 4).write.parquet(f"{tmp_path}/source")
    stream = spark.readStream.schema("id long").parquet(f"{tmp_path}/source")
    writer = stream.selectExpr("id", "NULL AS nothing", "'new' AS state").writeStream.format(FORMAT)
    writer = writer.options(**house.options).option("checkpointLocation", f"{tmp_path}/in")
    writer.trigger(availableNow=True).start("db.t").awaitTermination()
    copied = spark.readStream.format("icebergsource").options(**house.options).load("db.t").writeStream.format(FORMAT)
    copied = copied.options(**house.options, **{"format-version": "3", "checkpointLocation": f"{tmp_path}/out"})
    copied.trigger(availableNow=True).start("db.copy").awaitTermination()

    expected = [(number, None, "new") for number in range(4)]
    assert both(spark, house) == expected
    copy = iceberg_ds.read(spark, "db.copy", options=house.options)
    assert sorted(tuple(row) for row in copy.collect()) == expected
    assert copy.schema["nothing"].dataType.simpleString() == "void"


@pytest.mark.exhaustive
def test_changes_beside_unknown_columns_are_read(spark: SparkSession, house: Warehouse) -> None:
    """A copy of the table could not follow it."""
    house.append(rows(spark, 0), **VERSION_3)
    start = house.table().current_snapshot()
    iceberg_ds.update("db.t", {"state": "'updated'"}, "id = 1", spark, mode="copy-on-write", options=house.options)
    assert start is not None

    for reader in READERS:
        found = iceberg_ds.read_changes(
            spark, "db.t", start=start.snapshot_id, keys=["id"], options=house.options, reader=reader
        )
        told = {row._change_type: (row.id, row.nothing, row.state) for row in found.collect()}
        assert told == {"UPDATE_BEFORE": (1, None, "new"), "UPDATE_AFTER": (1, None, "updated")}, reader


def test_files_of_a_table_with_unknown_columns_are_listed(spark: SparkSession, house: Warehouse) -> None:
    """PyIceberg, which lists them, would look for metrics that no file has."""
    house.append(rows(spark, 0), **VERSION_3)

    for name in ("files", "data_files", "entries", "partitions", "snapshots"):
        assert len(iceberg_ds.read(spark, f"db.t.{name}", options=house.options).collect()) == 1, name


@pytest.mark.parametrize(
    ("options", "reason"),
    few(
        2,
        [
            ({"keys": "nothing"}, "column 'nothing' is unknown and cannot be a key"),
            (
                {"keys": "id", "sequence_by": "nothing"},
                "sequence column 'nothing' is unknown, whose values have no order",
            ),
            ({"partition_by": "nothing"}, "column nothing is unknown, to which identity"),
            ({"partition_by": "bucket(4, nothing)"}, "column nothing is unknown, to which bucket"),
            ({"sort_by": "nothing"}, "column nothing is unknown, to which identity"),
        ],
    ),
)
def test_columns_without_a_type_lay_out_nothing(
    spark: SparkSession, house: Warehouse, options: dict[str, str], reason: str
) -> None:
    """Rows would be told apart by nulls."""
    with pytest.raises(PySparkException, match=reason):
        house.append(rows(spark, 0), **VERSION_3, **options)
    assert not house.has_table()


@pytest.mark.parametrize("column", few(1, ["array(NULL)", "named_struct('x', NULL)", "map('k', NULL)"]))
def test_void_inside_others_is_refused(spark: SparkSession, house: Warehouse, column: str) -> None:
    """Files would have nulls where the spec has no column, in each engine's own way."""
    with pytest.raises(PySparkException, match="column 'c' holds void, which has no exact Iceberg type here"):
        house.append(spark.range(1).selectExpr("id", f"{column} AS c"), **VERSION_3)


def test_table_of_nothing_else_is_refused(spark: SparkSession, house: Warehouse) -> None:
    """Its files would have no column, and no rows."""
    with pytest.raises(PySparkException, match=r"all its columns are of type unknown.*give it another column"):
        house.append(spark.sql("SELECT NULL AS nothing"), **VERSION_3)
    assert not house.has_table()
