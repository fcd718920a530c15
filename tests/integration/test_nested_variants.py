"""Structs, arrays and maps that tasks write as variants, byte by byte as `to_variant_object` makes them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's own convention
from pyspark.sql import types as spark_types
from support.checks.invariants import check_sound
from support.exhaustive import EXHAUSTIVE, few
from support.spark.tables import FORMAT, Warehouse
from support.tables.variants import collected, variants

import iceberg_ds
from iceberg_ds.errors import OptionError
from iceberg_ds.reading.read import Reader

READERS: tuple[Reader, ...] = ("spark", "python")
AS_VARIANT = {"nested_as_variant": "true", "format_version": "3"}
# Every type that variants have, numbers around the limits of each, and nulls of both kinds.
_VALUES = (
    "true, false, CAST(NULL AS boolean) | 1Y, -128Y, 127Y | 128S, -129S, 32767S | 32768, -32769, 2147483647 | "
    "2147483648L, -2147483649L, -9223372036854775808L | 1.5f, float('NaN'), float('-Infinity') | -0.0d, 1e300d, "
    "double('NaN') | 1.50BD, -99.99BD | 999999999.999999999BD, -1e-9BD | 0.000000000000000001BD, 1e19BD | '', 'é', "
    "repeat('é', 31), repeat('x', 63), repeat('é', 32), repeat('x', 70000) | X'', X'00ff', CAST(NULL AS binary) | "
    "DATE'0001-01-01', DATE'9999-12-31' | TIMESTAMP'1969-12-31 23:59:59.999999', TIMESTAMP'2024-02-29 12:00:00' | "
    "TIMESTAMP_NTZ'1500-01-01 00:00:00', TIMESTAMP_NTZ'2024-02-29 12:00:00.000001' | parse_json('{\"z\": [1, {\"a\": "
    "null}], \"a\": \"b\"}'), CAST(NULL AS variant), parse_json('null'), CAST(DATE'2024-01-01' AS variant)"
)
TYPED = [f"array({values.strip()}) AS c{number}" for number, values in enumerate(_VALUES.split("|"))]
# Names that are met in another order than they are sorted in, again in other places, and where Java sorts by UTF-16.
SHAPED = (
    "named_struct('b', id, 'a', named_struct('b', id, 'z', 'x')) AS c0",
    "IF(id % 2 = 0, named_struct('o', IF(id % 3 = 0, named_struct('in', id), NULL), 'last', id), NULL) AS c1",
    "named_struct('\\U0001D4B3', 1, '\\uFFFD', 2, 'é', 3, '', 4) AS c2",
    "transform(sequence(0, id % 3), x -> named_struct('y', x, concat('x'), IF(x = 1, NULL, array(x)))) AS c3",
    "map_from_arrays(transform(sequence(0, id), x -> concat('k', x % 7 * 1000 + x)), sequence(0, id)) AS c4",
    "map('m', map('inner', id, 'a', NULL), 'n', NULL) AS c5",
    "IF(id = 3, NULL, slice(array(id), 1, 0)) AS c6",
    "sequence(0, id * 20) AS c7",
    "named_struct('l', repeat('x', CAST(id * 700 AS int)), 'r', id) AS c8",
    "array(array(named_struct('q', id)), NULL, array()) AS c9",
)


def read(spark: SparkSession, house: Warehouse, reader: Reader = "spark", name: str = "db.t") -> DataFrame:
    """Return the table."""
    return iceberg_ds.read(spark, name, options=house.options, reader=reader)


def by_spark(rows: DataFrame) -> DataFrame:
    """Return rows with nested columns as the variants that Spark makes of them."""
    nested = spark_types.StructType | spark_types.ArrayType | spark_types.MapType
    return rows.select(
        *(F.to_variant_object(one.name).alias(one.name) if isinstance(one.dataType, nested) else one.name
          for one in rows.schema)
    )  # fmt: skip


@pytest.mark.parametrize("columns", few(1, [(TYPED,), (SHAPED,)]), ids=["types", "shapes"])
def test_nested_columns_are_the_variants_that_spark_makes(
    spark: SparkSession, house: Warehouse, columns: list[str]
) -> None:
    """A type, an order or a number of a name would be another one: engines would read other values, or none."""
    rows = spark.range(30).coalesce(1).selectExpr("id", *columns).localCheckpoint()
    house.append(rows, **AS_VARIANT)
    house.append(by_spark(rows).localCheckpoint(), name="db.plain", format_version="3")

    expected = collected(by_spark(rows))
    assert collected(read(spark, house, name="db.plain")) == expected
    for reader in READERS:
        assert collected(read(spark, house, reader)) == expected, reader
    found = iceberg_ds.read(spark, "db.t", options=house.options).schema
    assert {one.dataType.simpleString() for one in found} == {"bigint", "variant"}


@EXHAUSTIVE
@pytest.mark.parametrize("seed", range(3))
def test_values_of_any_shape_are_the_variants_that_spark_makes(
    spark: SparkSession, house: Warehouse, seed: int
) -> None:
    """Some shape would be encoded as Spark does not encode it."""
    draw = random.Random(seed)  # noqa: S311  # only has to be repeatable
    columns = [f"{_drawn(draw, 3)} AS c{number}" for number in range(8)]
    rows = spark.range(200).coalesce(1).selectExpr("id", *columns).localCheckpoint()
    rows = rows.select("id", *(F.array(name).alias(name) for name in rows.columns[1:])).localCheckpoint()
    house.append(rows, **AS_VARIANT)

    assert collected(read(spark, house)) == collected(by_spark(rows))


def _drawn(draw: random.Random, depth: int) -> str:
    """Return an expression of a random type, of other values and nulls in each row."""
    kind = draw.choice(["flat", "struct", "list", "map"]) if depth else "flat"
    if kind == "flat":
        flat = ["id", "id * 1000000007", "CAST(id AS string)", "id / 7", "CAST(id AS decimal(20, 3))", "id % 2 = 0"]
        value = draw.choice([*flat, "parse_json(concat('{\"v\":', id, ',\"a\":[', id, ']}'))"])
    elif kind == "struct":
        names = draw.sample(["a", "b", "c", "Z", "é"], draw.randint(1, 4))
        value = f"named_struct({', '.join(f'{name!r}, {_drawn(draw, depth - 1)}' for name in names)})"
    elif kind == "list":
        value = f"array_repeat({_drawn(draw, depth - 1)}, CAST(id % {draw.choice([1, 3, 300])} AS int))"
    else:
        value = f"map(concat('k', id % 3), {_drawn(draw, depth - 1)})"
    return f"IF(id % {draw.randint(2, 7)} = 0, NULL, {value})"


def test_only_columns_that_are_new_or_variants_become_variants(spark: SparkSession, house: Warehouse) -> None:
    """A struct of the table could no longer be written, or a variant be none."""
    rows = spark.range(2).selectExpr("id", "named_struct('x', id) AS s", "named_struct('y', id) AS v", "'t' AS t")
    house.append(rows.withColumn("v", F.to_variant_object("v")), format_version="3")
    more = rows.selectExpr("id + 2 AS id", "s", "v", "t", "array(id) AS new")
    with pytest.raises(PySparkException, match="column 'new' variant is not in the table"):
        house.append(more, nested_as_variant="true")
    house.append(more, nested_as_variant="true", schema_evolution="add-columns")

    found = read(spark, house)
    assert [one.dataType.simpleString() for one in found.schema] == [
        "bigint", "struct<x:bigint>", "variant", "string", "variant",
    ]  # fmt: skip
    values = found.selectExpr("id", "s.x", "variant_get(v, '$.y', 'int') AS y", "to_json(new) AS new").orderBy("id")
    assert [tuple(row) for row in values.collect()] == [
        (0, 0, 0, None), (1, 1, 1, None), (2, 0, 0, "[0]"), (3, 1, 1, "[1]"),
    ]  # fmt: skip


def test_streams_overwrites_and_upserts_write_variants(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Some way to write would refuse what others write."""
    rows = spark.range(6).selectExpr("id", "named_struct('x', id) AS v")
    rows.write.parquet(f"{tmp_path}/source")
    stream = spark.readStream.schema(rows.schema).parquet(f"{tmp_path}/source").writeStream.format(FORMAT)
    stream = stream.options(**house.options, **{"nested-as-variant": "true", "format-version": "3"})
    stream = stream.option("checkpointLocation", f"{tmp_path}/checkpoint").trigger(availableNow=True)
    stream.start("db.t").awaitTermination()
    assert texts(spark, house) == {number: f'{{"x":{number}}}' for number in range(6)}

    options = {**house.options, "nested-as-variant": "true"}
    overwrite = rows.where("id < 2").selectExpr("id", "map('m', id) AS v").write.format(FORMAT).mode("overwrite")
    overwrite.options(**options, **{"replace-where": "id < 2"}).save("db.t")
    house.append(rows.where("id = 2").selectExpr("id", "array(id) AS v"), nested_as_variant="true", keys="id")
    iceberg_ds.upsert(rows.selectExpr("id + 3 AS id", "array('u') AS v"), "db.t", keys=["id"], options=options)

    with pytest.raises(OptionError, match=r"Write the cast: to_variant_object\(array\(id\)\)"):
        iceberg_ds.update("db.t", {"v": "array(id)"}, "id = 5", spark, options=house.options)

    expected = {0: '{"m":0}', 1: '{"m":1}', 2: "[2]"} | dict.fromkeys(range(3, 9), '["u"]')
    assert texts(spark, house) == expected
    iceberg_ds.rewrite_data_files("db.t", spark, options={**house.options, "rewrite-all": "true"})
    assert texts(spark, house) == expected
    check_sound(house.table())


def texts(spark: SparkSession, house: Warehouse) -> dict[int, Any]:
    """Return the variants as JSON, by id."""
    return {row.id: row.v for row in read(spark, house).selectExpr("id", "to_json(v) AS v").collect()}


def test_rows_that_cannot_be_written_are_kept_as_they_came(spark: SparkSession, house: Warehouse) -> None:
    """What is kept of them would be bytes, or good rows be refused."""
    rows = spark.range(3).selectExpr("id", "named_struct('value', id, 'metadata', id) AS v", "1 AS n")
    house.append(rows, **AS_VARIANT)
    bad = rows.selectExpr("id + 3 AS id", "IF(id = 2, NULL, v) AS v", "IF(id = 1, 'no number', '7') AS n")
    house.append(bad, nested_as_variant="true", on_bad_row="quarantine")

    (kept,) = house.rows("db.t__quarantine").to_pylist()
    assert '"v":{"value":1,"metadata":1}' in kept["row"]
    written = {number: f'{{"metadata":{number},"value":{number}}}' for number in range(3)}
    assert texts(spark, house) == {**written, 3: written[0], 5: None}


def test_predicates_see_what_is_inside(spark: SparkSession, house: Warehouse) -> None:
    """Deletes of a feed would not be told from its rows."""
    house.append(variants(spark, {1: "1", 2: "2"}), format_version="3")
    feed = spark.range(1, 4).selectExpr("id", "named_struct('gone', id = 2) AS v")
    house.append(feed, nested_as_variant="true", keys="id", delete_when="v.gone")

    assert texts(spark, house) == {1: '{"gone":false}', 3: '{"gone":false}'}


@pytest.mark.parametrize(
    ("column", "reason"),
    few(
        1,
        [
            ("map(1, 'x') AS c", r"'c' holds map<int,string>, whose keys are no text.*transform_keys"),
            ("array(named_struct('i', INTERVAL 1 DAY)) AS c", r"'c' holds interval day, .*cast it to decimal\(20, 6\)"),
            ("struct(id AS a, id AS a) AS c", "'c' holds a struct whose .*'a'.*rename"),
            ("named_struct('metadata', X'01', 'value', X'01') AS c", "cannot tell from a variant: rename a field"),
        ],
    ),
)
def test_what_no_variant_holds_is_refused(spark: SparkSession, house: Warehouse, column: str, reason: str) -> None:
    """Tasks would fail one by one, or make something else of it."""
    with pytest.raises(PySparkException, match=f"(?s)Cannot write to db.t as variants:.*{reason}"):
        house.append(spark.range(1).selectExpr("id", column), **AS_VARIANT)
    assert not house.has_table()


@EXHAUSTIVE
def test_older_tables_are_refused(spark: SparkSession, house: Warehouse) -> None:
    """Their readers could not even load the table."""
    rows = spark.range(1).selectExpr("id", "array(id) AS v")
    with pytest.raises(PySparkException, match="'v' is of type variant, which tables have from format version 3"):
        house.append(rows, nested_as_variant="true")
    house.append(rows.select("id"))
    with pytest.raises(PySparkException, match="with upgrade-format=true for a table that is there"):
        house.append(rows, nested_as_variant="true", schema_evolution="add-columns")
    with pytest.raises(PySparkException, match="'nested-as-json' and 'nested-as-variant' contradict each other"):
        house.append(rows, nested_as_variant="true", nested_as_json="true")
    assert house.ids() == [0]


@EXHAUSTIVE
def test_struct_that_no_table_has_is_written_by_key_and_distributed(spark: SparkSession, house: Warehouse) -> None:
    """Of all ways to write the option would only hold in plain appends."""
    columns = [
        "array(NULL) AS void",
        "named_struct('a', 1, 'A', 2) AS twice",
        "named_struct('x.y', 1, 'x', named_struct('y', 2)) AS dotted",
    ]
    rows = spark.range(3).selectExpr("id", *columns)
    options = {**house.options, "nested-as-variant": "true", "format-version": "3", "partition-by": "bucket(2, id)"}

    distributed = iceberg_ds.distribute(rows, "db.t", options=options)
    distributed.write.format(FORMAT).mode("append").options(**options, keys="id").save("db.t")
    iceberg_ds.upsert(rows.where("id = 1"), "db.t", options=options, keys="id")

    found = iceberg_ds.read(spark, "db.t", options=house.options).selectExpr(
        "id", "to_json(void) AS void", "to_json(twice) AS twice", "to_json(dotted) AS dotted"
    )
    texts = {"void": "[null]", "twice": '{"A":2,"a":1}', "dotted": '{"x":{"y":2},"x.y":1}'}
    assert sorted((row.asDict() for row in found.collect()), key=lambda row: row["id"]) == [
        {"id": number, **texts} for number in range(3)
    ]
