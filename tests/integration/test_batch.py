"""Batches: what they add to a table, and how the table looks that the first one creates."""

from __future__ import annotations

from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from support.checks.invariants import referenced_files, stored_files
from support.exhaustive import EXHAUSTIVE
from support.spark.jobs import numbered
from support.spark.tables import Warehouse

NESTED = "id BIGINT, place STRUCT<city: STRING, at: STRUCT<x: INT, y: INT>>"


def test_first_append_creates_the_table_and_a_second_one_adds_to_it(spark: SparkSession, house: Warehouse) -> None:
    """The simplest use would lose or double rows."""
    house.append(numbered(spark, 0, 100))

    house.append(numbered(spark, 100, 150))

    found = house.rows()
    assert found["id"].to_pylist() == list(range(150))
    assert found["name"].to_pylist() == [f"row {number}" for number in range(150)]
    assert len(house.snapshots()) == 2


def test_only_files_that_the_table_lists_are_left(spark: SparkSession, house: Warehouse) -> None:
    """Storage would fill with files that nobody reads."""
    house.append(numbered(spark, 0, 100, partitions=4), small_task_size_bytes="0")

    assert house.data_files() == house.referenced()
    assert len(house.data_files()) == 4
    assert stored_files(house.table().metadata.location) == referenced_files(house.table())


def test_tasks_with_few_rows_leave_one_file(spark: SparkSession, house: Warehouse) -> None:
    """Tables would fill with as many small files as writes have tasks."""
    house.append(numbered(spark, 0, 100, partitions=8))
    house.append(numbered(spark, 100, 200, partitions=8))

    assert house.ids() == list(range(200))
    assert [snapshot["added-data-files"] for snapshot in house.snapshots()] == ["1", "1"]
    assert stored_files(house.table().metadata.location) == referenced_files(house.table())


def test_snapshot_summary_counts_what_was_added_and_what_is_there(spark: SparkSession, house: Warehouse) -> None:
    """Readers that plan by the summary's numbers would be wrong."""
    house.append(numbered(spark, 0, 100, partitions=2), small_task_size_bytes="0")

    house.append(numbered(spark, 100, 130, partitions=3), small_task_size_bytes="0")

    first, second = house.snapshots()
    sizes = sum(path.stat().st_size for path in house.data_files())
    assert (first["added-records"], first["added-data-files"]) == ("100", "2")
    assert (second["added-records"], second["added-data-files"]) == ("30", "3")
    assert (second["total-records"], second["total-data-files"]) == ("130", "5")
    assert second["total-files-size"] == str(sizes)
    assert int(first["added-files-size"] or 0) + int(second["added-files-size"] or 0) == sizes
    assert second["engine-name"] == "icebergsink"


def test_zero_rows_create_the_table_without_a_snapshot(spark: SparkSession, house: Warehouse) -> None:
    """A job whose first run finds nothing would fail its readers."""
    empty = numbered(spark, 0, 0)

    house.append(empty)
    house.append(empty)

    table = house.table()
    assert [field.name for field in table.schema().fields] == ["id", "name"]
    assert table.metadata.snapshots == []
    assert house.rows().num_rows == 0
    assert house.data_files() == set()


def test_zero_rows_add_nothing_to_a_table_with_rows(spark: SparkSession, house: Warehouse) -> None:
    """Idle runs would grow the table's history for ever."""
    house.append(numbered(spark, 0, 5))

    house.append(numbered(spark, 0, 0))

    assert house.ids() == [0, 1, 2, 3, 4]
    assert len(house.snapshots()) == 1


def test_partitions_without_rows_make_no_files(spark: SparkSession, house: Warehouse) -> None:
    """Every run would leave files without rows."""
    house.append(numbered(spark, 0, 100, partitions=4).where("id < 10"))

    assert house.ids() == list(range(10))
    assert len(house.data_files()) == 1


def test_columns_are_matched_by_name_not_by_position(spark: SparkSession, house: Warehouse) -> None:
    """Values would land in the wrong columns."""
    house.append(spark.createDataFrame([("a", "b", 1)], "left STRING, right STRING, id BIGINT"))

    house.append(spark.createDataFrame([(2, "d", "c")], "id BIGINT, right STRING, left STRING"))

    assert house.rows().select(["id", "left", "right"]).sort_by("id").to_pylist() == [
        {"id": 1, "left": "a", "right": "b"},
        {"id": 2, "left": "c", "right": "d"},
    ]


def test_column_names_that_differ_in_case_alone_are_the_same_column(spark: SparkSession, house: Warehouse) -> None:
    """Spark's own rule of names would not hold."""
    house.append(spark.createDataFrame([(1, "a")], "id BIGINT, Name STRING"))

    house.append(spark.createDataFrame([("b", 2)], "NAME STRING, ID BIGINT"))

    assert house.rows().to_pylist() == [{"id": 1, "Name": "a"}, {"id": 2, "Name": "b"}]


def test_nested_fields_are_matched_by_name_at_every_depth(spark: SparkSession, house: Warehouse) -> None:
    """Values would land in the wrong fields of a struct, where nobody looks."""
    house.append(spark.createDataFrame([(1, ("Bonn", (1, 2)))], NESTED))
    turned = "place STRUCT<AT: STRUCT<y: INT, X: INT>, city: STRING>, id BIGINT"

    house.append(spark.createDataFrame([(((4, 3), "Köln"), 2), (None, 3), ((None, "Ulm"), 4)], turned))

    assert house.rows().to_pylist() == [
        {"id": 1, "place": {"city": "Bonn", "at": {"x": 1, "y": 2}}},
        {"id": 2, "place": {"city": "Köln", "at": {"x": 3, "y": 4}}},
        {"id": 3, "place": None},
        {"id": 4, "place": {"city": "Ulm", "at": None}},
    ]


def test_structs_in_arrays_and_maps_are_matched_by_name(spark: SparkSession, house: Warehouse) -> None:
    """Values would land in the wrong fields inside of lists."""
    house.append(
        spark.createDataFrame(
            [(1, [(1, "a")], {"k": (2, "b")})],
            "id BIGINT, list ARRAY<STRUCT<n: INT, t: STRING>>, map MAP<STRING, STRUCT<n: INT, t: STRING>>",
        )
    )

    house.append(
        spark.createDataFrame(
            [({"l": ("d", 4)}, [("c", 3), None], 2)],
            "map MAP<STRING, STRUCT<t: STRING, n: INT>>, list ARRAY<STRUCT<t: STRING, n: INT>>, id BIGINT",
        )
    )

    assert house.rows().to_pylist()[1] == {
        "id": 2,
        "list": [{"n": 3, "t": "c"}, None],
        "map": [("l", {"n": 4, "t": "d"})],
    }


def test_narrower_columns_widen_into_an_existing_table(spark: SparkSession, house: Warehouse) -> None:
    """A column of int could not be appended to one of long, though nothing is lost by it."""
    house.append(
        spark.createDataFrame([(1, 1.5, Decimal("1.25"))], "id BIGINT, ratio DOUBLE, price DECIMAL(20, 2)"),
    )

    house.append(spark.createDataFrame([(2, 0.5, Decimal("9.75"))], "id SMALLINT, ratio FLOAT, price DECIMAL(5, 2)"))

    assert house.rows().to_pylist() == [
        {"id": 1, "ratio": 1.5, "price": Decimal("1.25")},
        {"id": 2, "ratio": 0.5, "price": Decimal("9.75")},
    ]


@EXHAUSTIVE
def test_small_target_file_size_rolls_within_a_task(spark: SparkSession, house: Warehouse) -> None:
    """Files would grow without bound."""
    rows = spark.range(0, 200_000, 1, 1).selectExpr("id", "sha2(string(id), 512) AS noise")
    target = 2_000_000

    house.append(rows, target_file_size_bytes=str(target))

    sizes = [path.stat().st_size for path in house.data_files()]
    assert house.ids() == list(range(200_000))
    assert len(sizes) > 3
    assert max(sizes) < 1.5 * target


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        ("zstd", "19"),
        ("gzip", "9"),
        ("brotli", "5"),
        ("snappy", None),
        ("lz4", None),
        ("uncompressed", None),
    ],
)
def test_files_are_compressed_with_the_codec_of_the_option(
    spark: SparkSession, house: Warehouse, codec: str, level: str | None
) -> None:
    """Files would be compressed otherwise than the user asked, or not be readable."""
    options = {"compression_codec": codec} | ({"compression_level": level} if level else {})

    house.append(numbered(spark, 0, 500, partitions=1), **options)

    (path,) = house.data_files()
    used = pq.read_metadata(path).row_group(0).column(0).compression
    assert used == {"uncompressed": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert house.ids() == list(range(500))


def test_created_table_keeps_comments_and_nullability(spark: SparkSession, house: Warehouse) -> None:
    """A table's readers would not know what a column means, and could not rely on its values."""
    schema = spark_types.StructType(
        [
            spark_types.StructField("id", spark_types.LongType(), nullable=False, metadata={"comment": "the key"}),
            spark_types.StructField(
                "place",
                spark_types.StructType(
                    [
                        spark_types.StructField(
                            "city", spark_types.StringType(), nullable=False, metadata={"comment": "its name"}
                        ),
                        spark_types.StructField("zip", spark_types.IntegerType()),
                    ]
                ),
            ),
        ]
    )

    house.append(spark.createDataFrame([(1, ("Bonn", None))], schema), use_nullable_query_schema="false")

    assert house.table().schema().as_struct() == StructType(
        NestedField(1, "id", LongType(), required=True, doc="the key"),
        NestedField(
            2,
            "place",
            StructType(
                NestedField(3, "city", StringType(), required=True, doc="its name"),
                NestedField(4, "zip", IntegerType(), required=False),
            ),
            required=False,
        ),
    )
    assert house.rows().to_pylist() == [{"id": 1, "place": {"city": "Bonn", "zip": None}}]


def test_table_properties_decide_what_options_do_not(spark: SparkSession, house: Warehouse) -> None:
    """A table's owner could not decide how its files are written."""
    catalog = house.catalog()
    catalog.create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    catalog.create_table("db.t", schema, properties={"write.parquet.compression-codec": "gzip"})

    house.append(numbered(spark, 0, 10, partitions=1))

    (path,) = house.data_files()
    assert pq.read_metadata(path).row_group(0).column(0).compression == "GZIP"


def test_namespaces_of_several_levels_are_created(spark: SparkSession, house: Warehouse) -> None:
    """Tables could not be put below nested namespaces."""
    house.append(numbered(spark, 0, 3), "raw.web.clicks")

    assert house.ids("raw.web.clicks") == [0, 1, 2]
