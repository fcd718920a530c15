"""What is refused, in the words that reach the user through Spark's own exception, and with nothing changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from support.exhaustive import EXHAUSTIVE, few
from support.spark.jobs import SCHEMA, numbered, write_source
from support.spark.tables import FORMAT, Warehouse

TIMEOUT_S = 300


def refusal(write: Callable[[], object]) -> str:
    """Return the text of the exception that Spark shows for a write."""
    with pytest.raises(PySparkException) as caught:
        write()
    return str(caught.value)


def writer_of(rows: DataFrame, house: Warehouse, **options: str) -> Callable[[], None]:
    """Return an append to `db.t`."""
    return lambda: house.append(rows, **options)


def create(house: Warehouse, *fields: NestedField) -> None:
    """Create table `db.t`."""
    catalog = house.catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.t", Schema(*fields))


def finish(query: StreamingQuery) -> None:
    """Wait until a query ends, and raise what it ended with."""
    try:
        assert query.awaitTermination(TIMEOUT_S), query.status
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("option", "value"),
    few(1, [("overwrite-mode", "dynamic"), ("replace-where", "id = 1"), ("isolation-level", "snapshot")]),
)
def test_option_of_overwrites_is_refused_in_an_append(
    spark: SparkSession, house: Warehouse, option: str, value: str
) -> None:
    """A user would take rows for replaced that are still there."""
    house.append(numbered(spark, 0, 3))

    text = refusal(writer_of(numbered(spark, 3, 6), house, **{option: value}))

    assert f'only mode("overwrite") takes {option}' in text
    assert house.ids() == [0, 1, 2]


@pytest.mark.exhaustive
def test_staging_branch_is_refused_in_a_stream(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Every micro-batch would be published, and the branch be of no use."""
    write_source(tmp_path / "source", [range(10)])
    writer = spark.readStream.schema(SCHEMA).json(str(tmp_path / "source")).writeStream.format(FORMAT)
    writer = writer.options(**house.options).option("staging-branch", "staging")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)

    text = refusal(lambda: finish(writer.start("db.t")))

    assert "option 'staging-branch' is for batches" in text
    assert not house.has_table()


def test_all_bad_options_are_named_at_once(spark: SparkSession, house: Warehouse) -> None:
    """A user would learn of one mistake in each run."""
    options = {
        "target-file-sze-bytes": "1",
        "target-file-size-bytes": "big",
        "compression-codec": "zip",
        "compression-level": "high",
        "create-table": "maybe",
        "write-format": "orc",
    }
    writer = numbered(spark, 0, 1).write.format(FORMAT).mode("append").options(**house.options, **options)

    text = refusal(lambda: writer.save("db.t"))

    assert "unknown option 'target-file-sze-bytes': did you mean 'target-file-size-bytes'?" in text
    for name in list(options)[1:]:
        assert re.search(rf"option '{name}'.*{options[name]}.*expected", text), name
    assert not house.has_table()


@EXHAUSTIVE
def test_format_other_than_parquet_is_refused(spark: SparkSession, house: Warehouse) -> None:
    """Files would be of another format than the user asked for."""
    text = refusal(writer_of(numbered(spark, 0, 1), house, write_format="orc"))

    assert "write-format" in text
    assert "expected one of parquet" in text


@pytest.mark.exhaustive
def test_missing_table_is_refused_when_creation_is_off(spark: SparkSession, house: Warehouse) -> None:
    """A typing error in a table's name would make a new table."""
    text = refusal(writer_of(numbered(spark, 0, 1), house, create_table="false"))

    assert "Table db.t does not exist" in text
    assert "option 'create-table' is false" in text
    assert not house.has_table()


@pytest.mark.exhaustive
def test_table_named_twice_in_different_ways_is_refused(spark: SparkSession, house: Warehouse) -> None:
    """Rows would go to one of two tables, and the user could not know which."""
    text = refusal(writer_of(numbered(spark, 0, 1), house, table="db.other"))

    assert "option 'table' and the table in save(), start() or load() differ" in text


@EXHAUSTIVE
def test_no_table_is_refused(spark: SparkSession, house: Warehouse) -> None:
    """A forgotten name would show as an error from inside."""
    writer = numbered(spark, 0, 1).write.format(FORMAT).mode("append").options(**house.options)

    text = refusal(writer.save)

    assert 'no table is named: use save("db.t"), start("db.t"), load("db.t") or option("table", "db.t")' in text


@pytest.mark.exhaustive
def test_what_spark_answers_is_what_troubleshooting_says(spark: SparkSession, house: Warehouse) -> None:
    """A user who looks for Spark's words in the docs would find another answer, or none."""
    frame = numbered(spark, 0, 1)
    writer = frame.write.format(FORMAT).mode("append").options(**house.options)
    for write, answer in (
        (lambda: frame.write.format(FORMAT).save("db.t"), 'cannot be written in the "ErrorIfExists" mode'),
        (lambda: writer.saveAsTable("db_t"), "keep the name for Spark's own catalog"),
        (lambda: frame.writeTo("db_t").using(FORMAT).create(), "keep the name for Spark's own catalog"),
        (lambda: writer.saveAsTable("db.t"), "SCHEMA_NOT_FOUND"),
        (lambda: frame.writeTo("db.t").using(FORMAT).create(), "SCHEMA_NOT_FOUND"),
        (lambda: spark.sql(f"CREATE TABLE db.t USING {FORMAT} AS SELECT 1 AS id"), "SCHEMA_NOT_FOUND"),
        (lambda: writer.insertInto("db.t"), "TABLE_OR_VIEW_NOT_FOUND"),
        (lambda: frame.writeTo("db.t").append(), "TABLE_OR_VIEW_NOT_FOUND"),
        (lambda: writer.partitionBy("id").save("db.t"), "do not match the existing table's"),
        (lambda: spark.read.format(FORMAT).load("db.t"), "it only writes"),
    ):
        assert answer in refusal(write)
    assert not house.has_table()


@EXHAUSTIVE
def test_table_without_a_namespace_is_refused(spark: SparkSession, house: Warehouse) -> None:
    """A path would be taken for the name of a table."""
    writer = numbered(spark, 0, 1).write.format(FORMAT).mode("append").options(**house.options)

    text = refusal(lambda: writer.save("events"))

    assert "the table in save(), start() or load() is 'events': expected namespace and table" in text


@EXHAUSTIVE
def test_unknown_catalog_is_refused(spark: SparkSession) -> None:
    """Rows would go to another catalog than the one that was named."""
    writer = numbered(spark, 0, 1).write.format(FORMAT).mode("append").option("catalog", "prod")

    text = refusal(lambda: writer.save("db.t"))

    assert "Catalog 'prod' is not configured" in text


def test_reading_is_refused(spark: SparkSession) -> None:
    """A user would meet an error of Spark that does not say that the sink only writes."""
    text = refusal(lambda: spark.read.format(FORMAT).load("db.t"))

    assert 'Cannot read with format("icebergsink"): it only writes' in text


def test_columns_that_do_not_fit_are_all_named_in_one_error(spark: SparkSession, house: Warehouse) -> None:
    """A user would learn of one column in each run."""
    create(
        house,
        NestedField(1, "id", IntegerType()),
        NestedField(2, "name", StringType(), required=True),
        NestedField(3, "note", StringType()),
        NestedField(4, "place", StructType(NestedField(5, "x", IntegerType()))),
    )
    rows = spark.createDataFrame([(1, 2, 3, ("a",))], "id BIGINT, extra INT, note INT, place STRUCT<x: STRING>")

    text = refusal(writer_of(rows, house))

    assert "Cannot write to db.t" in text
    assert "column 'id' is bigint in the DataFrame and int in the table" in text
    assert "column 'extra' int is not in the table" in text
    assert "column 'note' is int in the DataFrame and string in the table" in text
    assert "column 'place.x' is string in the DataFrame and int in the table" in text
    assert "column 'name' string is required in the table and missing in the DataFrame" in text
    assert house.snapshots() == []
    assert house.data_files() == set()


@pytest.mark.exhaustive
def test_unsupported_types_are_all_named_in_one_error(spark: SparkSession, house: Warehouse) -> None:
    """A column would be cast silently, or the error would come from inside of a task."""
    rows = spark.sql(
        "SELECT 1 AS id, INTERVAL '1' DAY AS day, INTERVAL '1' YEAR AS year, NULL AS nothing, "
        "array(named_struct('v', INTERVAL '1' DAY)) AS deep, 'a' COLLATE UTF8_LCASE AS folded"
    )

    text = refusal(writer_of(rows, house))

    for column in ("day", "year", "nothing", "deep", "folded"):
        assert f"column '{column}' holds" in text
    assert "column 'id'" not in text
    assert not house.has_table()


@EXHAUSTIVE
def test_null_in_a_required_column_fails_and_leaves_nothing(spark: SparkSession, house: Warehouse) -> None:
    """Readers that rely on a required column would fail, or the failed write would leave files behind."""
    create(house, NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
    house.append(numbered(spark, 0, 3))
    before = house.data_files()

    text = refusal(writer_of(numbered(spark, 0, 100, partitions=1).selectExpr("nullif(id, 70) AS id", "name"), house))

    assert "Cannot write a null into column 'id', which is required in the table" in text
    assert house.ids() == [0, 1, 2]
    assert house.data_files() == before


@dataclass(frozen=True, kw_only=True)
class Nested:
    """A type with a required field, and two values for it.

    Attributes:
        iceberg: The type.
        spark: Its name in Spark, where the field is not required.
        name: The required field.
        good: A value that fits.
        bad: A value with a null in the field.
    """

    iceberg: IcebergType
    spark: str
    name: str
    good: Any
    bad: Any


@pytest.mark.parametrize(
    "nested",
    few(
        1,
        [
            Nested(
                iceberg=StructType(NestedField(3, "x", IntegerType(), required=True)),
                spark="STRUCT<x: INT>",
                name="x",
                good=(1,),
                bad=(None,),
            ),
            Nested(
                iceberg=ListType(3, IntegerType(), element_required=True),
                spark="ARRAY<INT>",
                name="element",
                good=[1],
                bad=[None],
            ),
            Nested(
                iceberg=MapType(3, StringType(), 4, IntegerType(), value_required=True),
                spark="MAP<STRING, INT>",
                name="value",
                good={"a": 1},
                bad={"a": None},
            ),
        ],
    ),
    ids=lambda nested: nested.name,
)
def test_null_in_a_required_nested_field_fails_and_leaves_nothing(
    spark: SparkSession, house: Warehouse, nested: Nested
) -> None:
    """Files would hold nulls where their schema says there are none, which readers take for garbage or zeros."""
    create(house, NestedField(1, "id", LongType()), NestedField(2, "it", nested.iceberg))
    schema = f"id BIGINT, it {nested.spark}"
    house.append(spark.createDataFrame([(1, nested.good), (2, nested.good)], schema))
    rows = spark.createDataFrame([(3, nested.good), (4, nested.bad)], schema).coalesce(1)

    text = refusal(writer_of(rows, house))

    assert "null" in text
    assert f"{nested.name}'" in text
    assert house.ids() == [1, 2]
    assert house.data_files() == house.referenced()


@pytest.mark.parametrize(
    ("key", "value", "fragment"),
    few(
        2,
        [
            ("encryption.key-id", "key", "it is encrypted"),
            ("write.format.default", "orc", "asks for orc, and only parquet can be written"),
            ("write.location-provider.impl", "com.example.Mine", "names the Java class com.example.Mine"),
            ("write.parquet.compression-codec", "zip", "is 'zip', expected one of"),
            ("write.target-file-size-bytes", "huge", "is 'huge', expected a number above 0"),
        ],
    ),
)
@EXHAUSTIVE
def test_tables_whose_properties_cannot_be_honoured_are_refused(
    spark: SparkSession, house: Warehouse, key: str, value: str, fragment: str
) -> None:
    """Files would be written otherwise than the table's owner demands."""
    catalog = house.catalog()
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    catalog.create_table("db.t", schema, properties={key: value})

    text = refusal(writer_of(numbered(spark, 0, 1), house))

    assert "Cannot write to db.t" in text
    assert fragment in text


def test_failing_query_commits_nothing(spark: SparkSession, house: Warehouse) -> None:
    """Rows before the error would be in the table, and come again with the retry."""
    house.append(numbered(spark, 0, 3))
    before = house.referenced()
    rows = numbered(spark, 0, 50_000).selectExpr("id", "if(id = 49000, raise_error('boom'), name) AS name")

    text = refusal(writer_of(rows, house))

    assert "boom" in text
    assert house.ids() == [0, 1, 2]
    assert house.referenced() == before


def test_partition_by_on_a_batch_is_refused(spark: SparkSession, house: Warehouse) -> None:
    """A table would be created without the partitions that the user asked for."""
    writer = numbered(spark, 0, 1).write.format(FORMAT).mode("append").options(**house.options).partitionBy("name")

    with pytest.raises(Exception, match="partitioning"):
        writer.save("db.t")

    assert not house.has_table()
