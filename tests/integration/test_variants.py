"""Columns of type variant, written by Spark, changed, rewritten, and read by both readers, byte by byte."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support.checks.invariants import check_clean, check_sound
from support.exhaustive import EXHAUSTIVE, few
from support.spark.tables import FORMAT, Warehouse
from support.tables.variants import TEXTS, collected, nested, variants

import iceberg_ds
from iceberg_ds import Insert, Update
from iceberg_ds.errors import OptionError
from iceberg_ds.reading.read import Reader

READERS: tuple[Reader, ...] = ("spark", "python")


def read(spark: SparkSession, house: Warehouse, **arguments: Any) -> DataFrame:
    """Return the table."""
    return iceberg_ds.read(spark, "db.t", options=house.options, **arguments)


def both(spark: SparkSession, house: Warehouse, **arguments: Any) -> list[Any]:
    """Read with both readers, and return the rows, which have to be the same."""
    by_spark, by_python = (collected(read(spark, house, reader=reader, **arguments)) for reader in READERS)

    assert by_python == by_spark
    return by_spark


def test_variants_come_back_from_any_depth(spark: SparkSession, house: Warehouse) -> None:
    """A byte, a null or a type would be another one."""
    rows = nested(variants(spark, typed=True)).localCheckpoint()
    house.append(rows, format_version="3")
    house.append(rows.selectExpr("id + 100 AS id", "v", "s", "l", "m", "o"))

    expected = collected(rows)
    assert both(spark, house) == [*expected, *([row[0] + 100, *row[1:]] for row in expected)]
    check_clean(house.table())


def test_files_say_that_they_are_variants(spark: SparkSession, house: Warehouse) -> None:
    """Readers that go by Parquet alone would find structs of bytes."""
    rows = nested(variants(spark)).localCheckpoint()
    house.append(rows, format_version="3")

    (path,) = house.data_files()
    schema = pq.ParquetFile(path).schema
    assert str(schema).count("Variant(1)") == 5
    found = spark.read.parquet(str(path))
    if "variant" in found.schema["v"].dataType.simpleString():  # Spark 4.0 does not look at it
        assert collected(found) == collected(rows)
    (task,) = house.table().scan().plan_files()
    (number,) = (field.field_id for field in house.table().schema().fields if field.name == "v")
    assert task.file.value_counts[number] == len(TEXTS)
    assert task.file.null_value_counts[number] == 1
    assert number not in task.file.lower_bounds
    assert task.file.file_size_in_bytes == path.stat().st_size


@EXHAUSTIVE
def test_what_a_variant_holds_is_queried(spark: SparkSession, house: Warehouse) -> None:
    """Spark may push parts of variants into the scan of files that it knows only by field ids."""
    house.append(nested(variants(spark)), format_version="3")

    for reader in READERS:
        rows = read(spark, house, reader=reader)
        found = rows.selectExpr("id", "try_variant_get(v, '$.name', 'string') AS name").where("name = 'a'")
        assert sorted(row.id for row in found.collect()) == [1, 2], reader
        deep = rows.where("variant_get(s.v, '$.inside.list[2]', 'double') = 1.5").select("id")
        assert [row.id for row in deep.collect()] == [1], reader
        assert sorted(row.id for row in rows.where("v IS NULL").collect()) == [6], reader
        assert rows.count() == len(TEXTS), reader


@EXHAUSTIVE
def test_rows_with_variants_change_and_move(spark: SparkSession, house: Warehouse) -> None:
    """A rewrite, an upsert or a statement would leave another value, or another row."""
    rows = variants(spark, typed=True).localCheckpoint()
    house.append(rows, format_version="3")
    expected = {row[0]: row for row in collected(rows)}

    iceberg_ds.delete_from("db.t", "id = 3", spark, options=house.options)
    del expected[3]
    iceberg_ds.update("db.t", {"v": "parse_json('[1]')"}, "id = 4", spark, options=house.options)
    new = variants(spark, {4: "[1]", 5: '{"new": 5}', 30: "30"}).localCheckpoint()
    source = new.where("id > 4")
    iceberg_ds.merge(
        spark, source, "db.t", on="target.id = source.id", when_matched=[Update()], when_not_matched=[Insert()],
        options=house.options,
    )  # fmt: skip
    expected |= {row[0]: row for row in collected(new)}
    house.append(variants(spark, {7: '"by key"', 31: "[31]"}), keys="id")
    expected |= {row[0]: row for row in collected(variants(spark, {7: '"by key"', 31: "[31]"}))}
    assert both(spark, house) == [expected[number] for number in sorted(expected)]

    iceberg_ds.rewrite_data_files("db.t", spark, options={**house.options, "rewrite-all": "true"})
    iceberg_ds.rewrite_data_files(
        "db.t", spark, strategy="sort", sort_order="id DESC", options={**house.options, "rewrite-all": "true"}
    )

    assert both(spark, house) == [expected[number] for number in sorted(expected)]
    check_sound(house.table())


def test_changes_of_variants_are_read(spark: SparkSession, house: Warehouse) -> None:
    """Values that print alike would be no change, or rows that only moved would be one."""
    house.append(variants(spark, {1: "17", 2: '{"a": 1}', 3: "null"}), format_version="3")
    start = house.table().current_snapshot()
    iceberg_ds.update(
        "db.t", {"v": "parse_json('\"17\"')"}, "id = 1", spark, mode="copy-on-write", options=house.options
    )
    assert start is not None

    for reader in READERS:
        found = iceberg_ds.read_changes(
            spark, "db.t", start=start.snapshot_id, keys=["id"], options=house.options, reader=reader
        )
        told = {row._change_type: (row.id, row.v.toJson()) for row in found.collect()}
        assert told == {"UPDATE_BEFORE": (1, "17"), "UPDATE_AFTER": (1, '"17"')}, reader


def test_changes_of_nested_variants_are_refused_where_rows_are_compared(spark: SparkSession, house: Warehouse) -> None:
    """Spark would fail in the middle of the query, also where such columns are not asked for."""
    house.append(nested(variants(spark)), format_version="3")
    inserted = iceberg_ds.read_changes(spark, "db.t", options=house.options)
    assert inserted.count() == len(TEXTS)

    iceberg_ds.update("db.t", {"v": "v"}, "id = 1", spark, mode="copy-on-write", options=house.options)

    for columns in (None, ["id"]):
        with pytest.raises(OptionError, match=r"is a list or map of variants.*compare them yourself"):
            iceberg_ds.read_changes(spark, "db.t", columns=columns, options=house.options)


@EXHAUSTIVE
def test_older_tables_refuse_variants(spark: SparkSession, house: Warehouse) -> None:
    """Their readers could not even load the table."""
    rows = variants(spark, {1: "1"}).localCheckpoint()
    with pytest.raises(PySparkException, match=r"'v' is of type variant, which tables have from format version 3"):
        house.append(rows)
    assert not house.has_table()

    house.append(rows.selectExpr("0L AS id"))
    with pytest.raises(PySparkException, match="with upgrade-format=true for a table that is there"):
        house.append(rows, schema_evolution="add-columns")
    with pytest.raises(PySparkException, match="column 'v' is of type variant"):
        rows.write.format(FORMAT).mode("overwrite").options(**house.options, overwriteSchema="true").save("db.t")
    assert house.ids() == [0]

    house.append(rows, schema_evolution="add-columns", format_version="3", upgrade_format="true")
    assert [row[1] for row in both(spark, house)] == [None, collected(rows)[0][1]]


@EXHAUSTIVE
def test_values_and_variants_are_not_taken_for_each_other(spark: SparkSession, house: Warehouse) -> None:
    """Bytes of a variant would land in a struct, or fields of a struct in a variant."""
    rows = variants(spark, {1: "1"}).localCheckpoint()
    house.append(rows.selectExpr("id", "v", "'text' AS text", "struct(id) AS s"), format_version="3")
    bytes_of = "named_struct('value', CAST('1' AS binary), 'metadata', CAST('1' AS binary)) AS v"
    for wrong, reason in (
        ("'{}' AS v", "parse_json of a text"),
        (bytes_of, "make a variant of it"),
        ("struct(id) AS v", "to_variant_object of a struct"),
        ("v AS text", "variant_get"),
        ("v AS s", "variant_get"),
    ):
        with pytest.raises(PySparkException, match=reason):
            house.append(rows.selectExpr("id", wrong))

    house.append(rows.selectExpr("id + 1 AS id", "NULL AS v"))
    assert [row[1] for row in both(spark, house, columns=["id", "v"])] == [collected(rows)[0][1], None]


def test_struct_with_the_names_of_a_variant_is_a_struct(spark: SparkSession, house: Warehouse) -> None:
    """Its fields have ids, and may be null, renamed or dropped."""
    rows = spark.range(3).selectExpr(
        "id", "named_struct('metadata', CAST('m' AS binary), 'value', CAST('v' AS binary)) AS s"
    )
    house.append(rows, format_version="3", use_nullable_query_schema="false")
    house.append(rows.selectExpr("id + 3 AS id", "s"))

    assert [row[1] for row in both(spark, house)] == [[b"m", b"v"]] * 6
    assert "Variant" not in str(pq.ParquetFile(next(iter(house.data_files()))).schema)


@pytest.mark.parametrize(
    ("options", "reason"),
    few(
        1,
        [
            ({"keys": "v"}, "column 'v' is variant and cannot be a key"),
            ({"partition_by": "v"}, "column v is variant, to which identity"),
            ({"partition_by": "bucket(4, v)"}, "column v is variant, to which bucket"),
            ({"sort_by": "v"}, "column v is variant"),
            ({"keys": "id", "sequence_by": "v"}, "sequence column 'v' is variant, whose values have no order"),
        ],
    ),
)
def test_variants_have_no_order(spark: SparkSession, house: Warehouse, options: dict[str, str], reason: str) -> None:
    """Rows would be told apart, or sorted, by bytes that mean nothing."""
    with pytest.raises(PySparkException, match=reason.replace("(", r"\(")):
        house.append(variants(spark, {1: "1"}), format_version="3", **options)
    assert not house.has_table()


@EXHAUSTIVE
def test_predicates_on_variants_are_refused(spark: SparkSession, house: Warehouse) -> None:
    """They would compare bytes."""
    house.append(variants(spark, {1: "1"}), format_version="3")

    with pytest.raises(OptionError, match='ordering on type "VARIANT"'):
        read(spark, house, where="v = '1'")
    with pytest.raises(OptionError, match=r"'v' is .* of a type that compares with no value"):
        iceberg_ds.rewrite_data_files("db.t", spark, where="v > 1", options=house.options)


@EXHAUSTIVE
def test_rows_that_cannot_be_written_keep_their_variants(spark: SparkSession, house: Warehouse) -> None:
    """What is kept of them would be bytes that nobody can read."""
    house.append(variants(spark, {1: "1"}).selectExpr("id", "v", "1 AS n"), format_version="3")
    bad = variants(spark, {2: '{"a": "b"}'}).selectExpr("id", "v", "struct(v) AS n")
    house.append(bad.selectExpr("id", "v", "'no number' AS n"), on_bad_row="quarantine")

    (kept,) = house.rows("db.t__quarantine").to_pylist()
    assert '"v":{"a":"b"}' in kept["row"]


@EXHAUSTIVE
def test_structs_with_variants_become_json(spark: SparkSession, house: Warehouse) -> None:
    """Their bytes would be in the text."""
    rows = variants(spark, {1: '{"a": [1, "x"]}'}).selectExpr("id", "named_struct('v', v, 'n', 2) AS s")
    house.append(rows, nested_as_json="true")

    assert house.rows()["s"].to_pylist() == ['{"v":{"a":[1,"x"]},"n":2}']


def test_rows_with_variants_are_found_by_their_keys(spark: SparkSession, house: Warehouse) -> None:
    """Files with variants would count as files without field ids: no upsert, no conversion, no deep look."""
    house.append(variants(spark, {1: "1", 2: "2"}), format_version="3")
    house.append(variants(spark, {3: "3"}).selectExpr("id", "v", "id AS k"), schema_evolution="add-columns")
    iceberg_ds.upsert(
        variants(spark, {2: '"two"', 4: "4"}).selectExpr("id", "v", "id AS k"), "db.t", keys=["id"],
        options=house.options,
    )  # fmt: skip
    house.append(variants(spark, {3: "33"}).selectExpr("id", "v", "id AS k"), keys="k", delete_encoding="equality")

    expected = collected(variants(spark, {1: "1", 2: '"two"', 3: "33", 4: "4"}))
    assert both(spark, house, columns=["id", "v"]) == expected
    iceberg_ds.convert_deletes("db.t", options=house.options)
    assert both(spark, house, columns=["id", "v"]) == expected
    assert iceberg_ds.verify("db.t", options=house.options, deep=True).ok


def test_null_structs_around_variants_are_written(spark: SparkSession, house: Warehouse) -> None:
    """Rows without the struct could not be appended, compacted or changed any more."""
    house.append(spark.range(2).coalesce(1), format_version="3")
    deep = "named_struct('x', named_struct('v', v), 'n', id) AS s"
    rows = variants(spark, {2: '{"a": 1}', 3: None}).selectExpr("id", deep).localCheckpoint()
    house.append(rows, schema_evolution="add-columns")
    house.append(spark.sql("SELECT 4L AS id, null AS s"))
    house.append(spark.sql("SELECT 5L AS id, named_struct('n', 5L) AS s"))
    expected = [[0, None], [1, None], *collected(rows), [4, None], [5, [None, 5]]]
    assert both(spark, house) == expected

    iceberg_ds.rewrite_data_files("db.t", spark, options={**house.options, "rewrite-all": "true"})
    iceberg_ds.update("db.t", {"id": "id + 10"}, "id = 5", spark, mode="copy-on-write", options=house.options)
    assert both(spark, house) == [*expected[:-1], [15, [None, 5]]]


def test_required_parts_are_read_by_tasks(spark: SparkSession, house: Warehouse) -> None:
    """Spark would find another type than it was told of, in the middle of a query."""
    rows = variants(spark, {1: "1", 2: "[2]"}).selectExpr(
        "id", "array(v) AS l", "array(map('k', v)) AS m", "array(array(id)) AS n", "map(id, 'x') AS p"
    )
    rows = rows.localCheckpoint()
    house.append(rows, format_version="3", use_nullable_query_schema="false")

    assert both(spark, house) == collected(rows)


def test_files_of_a_table_with_variants_are_listed(spark: SparkSession, house: Warehouse) -> None:
    """PyIceberg, which lists them, does not know the type."""
    house.append(nested(variants(spark)), format_version="3")

    for name in ("files", "data_files", "all_files", "entries", "partitions", "snapshots"):
        found = iceberg_ds.read(spark, f"db.t.{name}", options=house.options).collect()
        assert len(found) == 1, name
