"""`distribute`: each table partition goes to one task, in order, and few files come out."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from support.checks.plain_metrics import physical
from support.exhaustive import few
from support.spark.tables import FORMAT, Warehouse

from iceberg_ds.errors import OptionError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.spark.distribution import distribute
from iceberg_ds.spark.transforms import transformed
from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.partitioning import PartitionSplitter
from iceberg_ds.table.specs import new_sort_order, new_spec, parse_partition_by, parse_sort_by

UTC = dt.timezone.utc
SCHEMA = Schema(
    NestedField(1, "row", ice.LongType()),
    NestedField(2, "i", ice.IntegerType()),
    NestedField(3, "l", ice.LongType()),
    NestedField(4, "s", ice.StringType()),
    NestedField(5, "b", ice.BinaryType()),
    NestedField(6, "price", ice.DecimalType(9, 2)),
    NestedField(7, "wide", ice.DecimalType(38, 10)),
    NestedField(8, "day", ice.DateType()),
    NestedField(9, "at", ice.TimestamptzType()),
    NestedField(10, "local", ice.TimestampType()),
    NestedField(11, "f", ice.DoubleType()),
    NestedField(12, "flag", ice.BooleanType()),
)
MOMENTS = [
    dt.datetime(1, 1, 1, tzinfo=UTC),
    dt.datetime(1582, 10, 10, 12, tzinfo=UTC),
    dt.datetime(1899, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1968, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 22, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1970, 1, 1, tzinfo=UTC),
    dt.datetime(1970, 1, 1, 0, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(2021, 3, 14, 2, 30, 0, 500, tzinfo=UTC),  # does not exist in New York
    dt.datetime(2021, 11, 7, 1, 30, tzinfo=UTC),  # exists there twice
    dt.datetime(2026, 11, 21, 23, 30, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
]
VALUES: dict[str, list[Any]] = {
    "i": [-(2**31) + 8, -11, -10, -1, 0, 1, 34, 2**31 - 1],
    "l": [-(2**63) + 100, -11, -10, -1, 0, 1, 34, 2**63 - 1],
    "s": ["", "a", "iceberg", "\U0001f600\U0001f601\U0001f602\U0001f603", "e\u0301xyz", "a/b=c d", "é" * 9],
    "b": [b"", b"\x00\x01\x02\x03", b"\xff" * 9, b"a"],
    "price": [
        decimal.Decimal(text) for text in ("-99999.99", "-10.65", "-1.29", "-0.01", "0.00", "14.20", "9999999.99")
    ],
    "wide": [decimal.Decimal(text) for text in ("9" * 28 + "." + "9" * 10, "-0.0000000001", "-12.5", "0")],
    "day": [moment.date() for moment in MOMENTS],
    "at": MOMENTS,
    "local": [moment.replace(tzinfo=None) for moment in MOMENTS],
    "f": [-1.5, 0.1, -0.0, 0.0, math.nan, math.inf],
    "flag": [True, False],
}
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(16),
    TruncateTransform(10),
    TruncateTransform(3),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
]
CASES = [
    (field, transform)
    for field in SCHEMA.fields[1:]
    for transform in TRANSFORMS
    if transform.can_transform(field.field_type)
]


def edge_rows(count: int = 60) -> pa.Table:
    """Return rows whose columns go through their edge values at different paces, and are null now and then."""
    rows = [
        {
            "row": number,
            **{name: None if number % 13 == 12 else values[number % len(values)] for name, values in VALUES.items()},
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=file_shape(SCHEMA).named)


def as_dataframe(spark: SparkSession, rows: pa.Table, tasks: int = 4) -> DataFrame:
    """Return the rows, dealt to so many tasks."""
    df = spark.createDataFrame(rows).repartition(tasks)
    return df.withColumn("local", F.col("local").cast("timestamp_ntz"))  # which Spark has read as UTC's


def comparable(value: Any) -> Any:
    """Return the value as manifests hold it, NaN as text."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else physical(value)


def splitter_values(rows: pa.Table, transform: Transform[Any, Any], source_id: int) -> dict[int, Any]:
    """Return the partition value that a writing task computes for each row."""
    spec = PartitionSpec(PartitionField(source_id, 1000, transform, "p"))
    (batch,) = rows.cast(file_shape(SCHEMA).schema).combine_chunks().to_batches()
    parts = PartitionSplitter(spec, SCHEMA).split(batch)
    return {row: comparable(key.values[0]) for key, part in parts for row in part["row"].to_pylist()}


@pytest.fixture(params=["arrow function", "plain function"])
def kind_of_function(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark be one with functions over Arrow, or one before 4.1, which has none."""
    if request.param == "plain function":
        monkeypatch.delattr(F, "arrow_udf", raising=False)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.usefixtures("kind_of_function")
@pytest.mark.parametrize("zone", few(1, ["America/New_York", "Asia/Kolkata"]))
def test_spark_computes_the_partition_values_of_the_writing_tasks(spark: SparkSession, zone: str) -> None:
    """Rows of one table partition would go to several tasks, each of which writes a file for it."""
    rows = edge_rows()
    df = as_dataframe(spark, rows)
    spark.conf.set("spark.sql.session.timeZone", zone)
    columns = [
        transformed(F.col(field.name), df.schema[field.name].dataType, field.field_type, transform).column.alias(
            f"{transform} of {field.name}"
        )
        for field, transform in CASES
    ]

    found = df.select("row", *columns).toArrow()

    for field, transform in CASES:
        values = found[f"{transform} of {field.name}"]
        if pa.types.is_timestamp(values.type) and values.type.tz:
            values = values.cast(pa.timestamp("us", "UTC"))  # Python's time ends with the year 9999 in any zone
        computed = dict(zip(found["row"].to_pylist(), map(comparable, values.to_pylist()), strict=True))
        assert computed == splitter_values(rows, transform, field.field_id), f"{transform} of {field.name}"


OTHER_TYPES: list[tuple[str, ice.PrimitiveType, Transform[Any, Any], Any]] = [
    (
        "VALUES ('F79C3E09-677C-4bbd-a479-3f349cb785e7'), ('f79c3e09677c4bbda4793f349cb785e7')",
        ice.UUIDType(),
        BucketTransform(2**31 - 1),
        1488055340,
    ),
    ("VALUES (X'00010203')", ice.FixedType(4), BucketTransform(2**31 - 1), -188683207 & 0x7FFF_FFFF),
    ("VALUES ('22:31:08'), ('22:31:08.000')", ice.TimeType(), BucketTransform(2**31 - 1), -662762989 & 0x7FFF_FFFF),
    ("VALUES ('22:31'), ('22:31:00.0')", ice.TimeType(), IdentityTransform(), 81_060_000_000),
]


@pytest.mark.parametrize(("query", "field_type", "transform", "expected"), OTHER_TYPES, ids=str)
def test_texts_of_one_stored_value_are_one_partition(
    spark: SparkSession, query: str, field_type: ice.PrimitiveType, transform: Transform[Any, Any], expected: Any
) -> None:
    """Rows of one table partition would go to several tasks."""
    df = spark.sql(query).toDF("c")

    column = transformed(F.col("c"), df.schema["c"].dataType, field_type, transform).column

    assert df.select(column.alias("c")).distinct().toArrow()["c"].to_pylist() == [expected]


def test_value_that_the_sink_refuses_passes_to_it(spark: SparkSession) -> None:
    """Spark would fail with an error about arithmetic, in place of ours that names column and partition field."""
    df = spark.sql("SELECT -9223372036854775808L AS l, CAST(-99.99 AS DECIMAL(4, 2)) AS d, -2147483648 AS i")
    cases = [("l", ice.LongType()), ("d", ice.DecimalType(4, 2)), ("i", ice.IntegerType())]
    columns = [
        transformed(F.col(name), df.schema[name].dataType, field_type, TruncateTransform(10)).column
        for name, field_type in cases
    ]

    assert len(df.select(*columns).collect()) == 1


def create(house: Warehouse, partition_by: str = "", sort_by: str = "", **properties: str) -> Table:
    """Create table `db.t`; `_` in the name of a property stands for `-`, `__` for a dot."""
    catalog = house.catalog()
    catalog.create_namespace_if_not_exists("db")
    return catalog.create_table(
        "db.t",
        SCHEMA,
        partition_spec=new_spec(parse_partition_by(partition_by), SCHEMA) if partition_by else PartitionSpec(),
        **({"sort_order": new_sort_order(parse_sort_by(sort_by), SCHEMA, 1)} if sort_by else {}),
        properties={key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()},
    )


def tasks_of(df: DataFrame) -> dict[int, pa.Table]:
    """Return the rows of each task that has any, in their order."""
    found = df.select("*", F.spark_partition_id().alias("task")).toArrow()
    rows = found.drop_columns("task")
    return {task: rows.filter(pa.compute.equal(found["task"], task)) for task in sorted(set(found["task"].to_pylist()))}


def tasks_of_partitions(df: DataFrame, spec: PartitionSpec, schema: Schema = SCHEMA) -> Mapping[Any, set[int]]:
    """Return the tasks that have rows of each table partition."""
    tasks = defaultdict(set)
    for task, rows in tasks_of(df).items():
        (batch,) = rows.cast(file_shape(schema).named).combine_chunks().to_batches()
        for key, _ in PartitionSplitter(spec, schema).split(batch):
            tasks[tuple(map(comparable, key.values))].add(task)
    return tasks


@pytest.mark.parametrize(
    "partition_by",
    [
        "day(at)",
        "bucket(16, l), month(local)",
        "truncate(10, price), truncate(3, s)",
        "bucket(4, wide), flag, f",
        "hour(local), truncate(10, i), year(day)",
    ],
)
@pytest.mark.parametrize("zone", few(1, ["America/New_York", "UTC"]))
def test_hash_mode_brings_each_table_partition_to_one_task(
    spark: SparkSession, house: Warehouse, partition_by: str, zone: str
) -> None:
    """Each of several tasks would write a file for a partition."""
    table = create(house, partition_by)
    df = as_dataframe(spark, edge_rows(200))
    spark.conf.set("spark.sql.session.timeZone", zone)

    moved = distribute(df, "db.t", num_partitions=5, options=house.options)

    tasks = tasks_of_partitions(moved, table.spec())
    assert moved.schema == df.schema
    assert len(tasks) > 5
    assert {len(found) for found in tasks.values()} == {1}
    assert len(set.union(*tasks.values())) > 1
    assert sorted(row["row"] for row in moved.select("row").collect()) == list(range(200))


MONTHS = (
    "SELECT id, timestamp_seconds(1767225600 + (id * 1000003) % 31536000) AS at, id % 7 AS n FROM RANGE(0, 2000, 1, 4)"
)


@pytest.mark.parametrize("num_partitions", few(1, [None, 3]))
def test_write_leaves_one_file_for_each_partition(
    spark: SparkSession, house: Warehouse, num_partitions: int | None
) -> None:
    """Tables would get as many files for a partition as the write has tasks: the small files problem."""
    df = spark.sql(MONTHS)
    house.append(df, "db.plain", partition_by="month(at)")

    options = {**house.options, "partition-by": "month(at)"}
    moved = distribute(df, "db.moved", num_partitions=num_partitions, options=options)
    house.append(moved, "db.moved", partition_by="month(at)")

    assert len(house.referenced("db.plain")) == 4 * 12
    assert len(house.referenced("db.moved")) == 12
    assert house.ids("db.moved") == list(range(2000))


def test_rows_of_a_task_come_by_partition_and_then_in_the_tables_order(spark: SparkSession, house: Warehouse) -> None:
    """Files would not be sorted, or a task would have a file open for every partition at once."""
    create(house, "truncate(3, s)", "at desc nulls last, i, s")

    moved = distribute(as_dataframe(spark, edge_rows(200)), "db.t", num_partitions=2, options=house.options)

    for rows in tasks_of(moved).values():
        found = rows.select(["s", "at", "i"]).to_pylist()
        assert found == sorted(found, key=order_of)


def order_of(row: Mapping[str, Any]) -> list[tuple[bool, Any]]:
    """Return what puts a row behind others: the prefix, then the newest time, then the number, then the text."""
    text, at, number = row["s"], row["at"], row["i"]
    return [
        (text is not None, (text or "")[:3].encode()),
        (at is None, 0 if at is None else -physical(at)),
        (number is not None, number or 0),
        (text is not None, (text or "").encode()),
    ]


def test_range_mode_cuts_the_order_into_tasks(spark: SparkSession, house: Warehouse) -> None:
    """A table without partitions would get files that all cover the whole range of its sort order."""
    create(house, sort_by="l desc, s")
    df = as_dataframe(spark, edge_rows(200))

    tasks = tasks_of(distribute(df, "db.t", num_partitions=3, options=house.options))

    values = [[-(2**64) if value is None else value for value in rows["l"].to_pylist()] for rows in tasks.values()]
    assert len(values) == 3
    assert all(found == sorted(found, reverse=True) for found in values)
    assert all(min(left) >= max(right) for left, right in pairwise(values))


def test_range_mode_may_split_a_large_partition(spark: SparkSession, house: Warehouse) -> None:
    """One task would write nearly everything where one partition has nearly all rows."""
    table = create(house, "flag", "l")
    df = as_dataframe(spark, edge_rows(200)).where("flag")

    tasks = tasks_of_partitions(
        distribute(df, "db.t", mode="range", num_partitions=3, options=house.options), table.spec()
    )

    assert tasks == {(True,): {0, 1, 2}}


@pytest.mark.parametrize(
    ("partition_by", "sort_by", "property_mode", "mode", "is_moved", "is_sorted"),
    [
        ("flag", "", None, None, True, True),
        ("flag", "", "none", None, False, True),
        ("flag", "", "HASH", None, True, True),
        ("flag", "", "range", "none", False, True),
        ("", "", None, None, False, False),
        ("", "", "hash", None, False, False),
        ("", "l", None, None, True, True),
        ("", "l", None, "hash", False, True),
        ("", "l", None, "none", False, True),
        ("", "", None, "range", False, False),
    ],
)
def test_mode_is_the_argument_then_the_property_then_what_the_layout_suggests(  # noqa: PLR0913, PLR0917  # a table of cases
    spark: SparkSession,
    house: Warehouse,
    partition_by: str,
    sort_by: str,
    property_mode: str | None,
    mode: Any,
    is_moved: bool,  # noqa: FBT001
    is_sorted: bool,  # noqa: FBT001
) -> None:
    """Rows would be moved, which is what costs most, where nobody asked for it, or stay where they were asked to go."""
    create(house, partition_by, sort_by, **({"write__distribution_mode": property_mode} if property_mode else {}))
    df = as_dataframe(spark, edge_rows())

    plan = plan_of(distribute(df, "db.t", mode=mode, options=house.options))

    assert ("RepartitionByExpression" in plan) is is_moved
    assert ("Sort" in plan) is is_sorted


def plan_of(df: DataFrame) -> str:
    """Return Spark's logical plan."""
    return str(df._jdf.queryExecution().analyzed().toString())


def test_table_that_is_yet_to_be_created_is_distributed_by_the_options(spark: SparkSession, house: Warehouse) -> None:
    """The first write of a table, often the largest, would leave small files."""
    df = as_dataframe(spark, edge_rows(200))
    options = {**house.options, "Partition-By": "truncate(3, s)", "sort-by": "l desc"}

    moved = distribute(df, "db.new", num_partitions=3, options=options)

    spec = new_spec(parse_partition_by("truncate(3, s)"), SCHEMA)
    assert {len(found) for found in tasks_of_partitions(moved, spec).values()} == {1}
    assert not house.has_table("db.new")


def test_sort_by_takes_the_place_of_the_tables_order(spark: SparkSession, house: Warehouse) -> None:
    """Rows would come in another order than the write records for its files."""
    create(house, sort_by="l")
    options = {**house.options, "sort-by": "row desc"}

    moved = distribute(as_dataframe(spark, edge_rows()), "db.t", num_partitions=1, options=options)

    assert moved.toArrow()["row"].to_pylist() == list(range(59, -1, -1))


def test_partitioning_to_come_is_the_one_that_counts(spark: SparkSession, house: Warehouse) -> None:
    """Rows would be distributed by the spec that the write replaces."""
    create(house, "flag")
    df = as_dataframe(spark, edge_rows(200))
    options = {**house.options, "partition-by": "truncate(3, s)"}

    with pytest.raises(OptionError, match=r"is truncate\(3, s\), and the table is partitioned by flag"):
        distribute(df, "db.t", options=options)
    moved = distribute(df, "db.t", num_partitions=3, options={**options, "evolve-partitioning": "true"})

    spec = new_spec(parse_partition_by("truncate(3, s)"), SCHEMA)
    assert {len(found) for found in tasks_of_partitions(moved, spec).values()} == {1}


ODD_NAMES = Schema(
    NestedField(1, "a.b", ice.LongType()),
    NestedField(2, "two words", ice.StructType(NestedField(3, "x`y", ice.TimestampType()))),
    NestedField(4, "Größe", ice.StringType()),
)


def test_columns_with_odd_names_and_fields_of_structs_can_be_distributed_by(
    spark: SparkSession, house: Warehouse
) -> None:
    """Tables with such columns would have to be distributed by hand."""
    catalog = house.catalog()
    catalog.create_namespace("db")
    spec = new_spec(parse_partition_by("bucket(3, `a.b`), day(`two words`.`x``y`), `größe`"), ODD_NAMES)
    catalog.create_table("db.t", ODD_NAMES, partition_spec=spec)
    moments = ["1969-12-31 23:59:59", "1970-01-01 00:00:00", "2026-11-21 07:30:00"]
    df = spark.createDataFrame(
        [(number % 11, (dt.datetime.fromisoformat(moments[number % 3]),), "ab"[number % 2]) for number in range(100)],
        "`a.b` BIGINT, `TWO words` STRUCT<`x``y`: TIMESTAMP_NTZ>, `Größe` STRING",
    ).repartition(4)

    moved = distribute(df, "db.t", num_partitions=3, options=house.options)

    assert moved.columns == df.columns
    tasks = tasks_of_partitions(moved.withColumnRenamed("TWO words", "two words"), spec, ODD_NAMES)
    assert {len(found) for found in tasks.values()} == {1}


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Path:
    """Return a folder of Parquet files."""
    spark.sql(MONTHS).write.parquet(str(tmp_path / "source"))
    return tmp_path / "source"


@pytest.mark.parametrize("sort_by", few(1, ["", "id"]))
def test_stream_leaves_one_file_for_each_partition(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path, sort_by: str
) -> None:
    """Every micro-batch would leave small files, or the stream would be refused because Spark sorts none."""
    options = {**house.options, "partition-by": "bucket(4, n), year(at)", **({"sort-by": sort_by} if sort_by else {})}
    stream = spark.readStream.schema("id BIGINT, at TIMESTAMP, n BIGINT").parquet(str(source))

    writer = distribute(stream, "db.t", options=options).writeStream.format(FORMAT).options(**options)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start("db.t")
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()

    assert house.ids() == list(range(2000))
    assert len(house.referenced()) == 4


@pytest.fixture
def settings(spark: SparkSession) -> Iterator[dict[str, str]]:
    """Return settings that a test may change by setting them, as they were before."""
    keys = ["spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions"]
    before = {key: str(spark.conf.get(key)) for key in keys}
    yield before
    for key, value in before.items():
        spark.conf.set(key, value)


@pytest.mark.usefixtures("settings")
def test_number_of_tasks_without_adaptive_execution_is_the_number_of_cores(
    spark: SparkSession, house: Warehouse
) -> None:
    """A write would get 200 tasks, each with a Python process to wait for, for however few rows."""
    create(house, "bucket(64, row)")
    df = as_dataframe(spark, edge_rows(200))
    spark.conf.set("spark.sql.shuffle.partitions", "200")

    adaptive = plan_of(distribute(df, "db.t", options=house.options))
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    plain = plan_of(distribute(df, "db.t", options=house.options))
    given = plan_of(distribute(df, "db.t", num_partitions=7, options=house.options))

    assert "], 2" not in adaptive
    assert f"], {spark.sparkContext.defaultParallelism}\n" in plain
    assert "], 7\n" in given


def test_number_of_tasks_with_adaptive_execution_fits_the_rows(spark: SparkSession, house: Warehouse) -> None:
    """Few rows would be written by many tasks."""
    create(house, "bucket(64, row)")

    moved = distribute(as_dataframe(spark, edge_rows(200)), "db.t", options=house.options)

    assert len(tasks_of(moved)) == 1


def test_wrong_arguments_are_refused(spark: SparkSession, house: Warehouse) -> None:
    """A mistyped mode would silently be another one."""
    df = as_dataframe(spark, edge_rows())

    with pytest.raises(OptionError, match="mode is 'sorted', expected one of none, hash, range"):
        distribute(df, "db.t", mode="sorted", options=house.options)  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(OptionError, match="num_partitions is 0, expected a number above 0"):
        distribute(df, "db.t", num_partitions=0, options=house.options)
    with pytest.raises(OptionError, match="unknown option 'partition_by'"):
        distribute(df, "db.t", options={**house.options, "partition_by": "s"})
    with pytest.raises(OptionError, match=r"Cannot distribute for db\.t: gone: there is no column gone among row"):
        distribute(df, "db.t", options={**house.options, "partition-by": "gone"})


def test_dataframe_that_lacks_what_to_distribute_by_is_refused_with_all_that_lacks(
    spark: SparkSession, house: Warehouse
) -> None:
    """Spark would say that a column cannot be resolved, and not why it is needed."""
    table = create(house, "day(at), s", "l")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("at", required=True).update_column("l", required=True)
    df = as_dataframe(spark, edge_rows()).drop("at", "l").withColumn("s", F.array("s"))

    with pytest.raises(SchemaMismatchError) as refused:
        distribute(df, "db.t", options=house.options)

    assert str(refused.value) == (
        "Cannot distribute for db.t: the DataFrame has no column at; "
        "column s is array<string> in the DataFrame and Iceberg's string in the table; the DataFrame has no column l."
    )


@pytest.mark.parametrize("mode", ["hash", "range"])
def test_optional_columns_that_a_dataframe_lacks_count_as_null(
    spark: SparkSession, house: Warehouse, mode: Literal["hash", "range"]
) -> None:
    """A write that puts nulls there would be possible, and not the distribution for it."""
    create(house, "day(at), bucket(4, s), truncate(2, price), i", "l, wide")
    df = as_dataframe(spark, edge_rows()).drop("at", "s", "price", "l", "wide")

    moved = distribute(df, "db.t", mode=mode, num_partitions=3, options=house.options)

    tasks = tasks_of(moved)
    assert moved.schema == df.schema
    assert sum(rows.num_rows for rows in tasks.values()) == 60
    values = [set(rows["i"].to_pylist()) for rows in tasks.values()]
    assert len(set.union(*values)) == sum(len(found) for found in values)


def test_unknown_mode_in_the_table_is_refused_unless_one_is_given(spark: SparkSession, house: Warehouse) -> None:
    """A table for which another engine has modes of its own could not be distributed for at all."""
    create(house, "flag", write__distribution_mode="zorder")
    df = as_dataframe(spark, edge_rows())

    with pytest.raises(UnsupportedTableError, match=r"property write\.distribution-mode is 'zorder', expected one of"):
        distribute(df, "db.t", options=house.options)

    assert "RepartitionByExpression" in plan_of(distribute(df, "db.t", mode="hash", options=house.options))
