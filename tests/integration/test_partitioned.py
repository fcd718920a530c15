"""Tables that are partitioned already: every file holds one partition, and no filter misses a row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThanOrEqual, In, IsNull, LessThan, StartsWith
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
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DateType, LongType, NestedField, StringType, StructType, TimestampType, TimestamptzType
from pyspark.sql import DataFrame, SparkSession
from support.exhaustive import EXHAUSTIVE, few
from support.spark.tables import FORMAT, Warehouse
from support.tables.sink import local

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "country", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "at", TimestamptzType()),
    NestedField(5, "local", TimestampType()),
    NestedField(6, "place", StructType(NestedField(7, "city", StringType()))),
)
COLUMNS = "id BIGINT, country STRING, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, place STRUCT<city: STRING>"
COUNTRIES = ["DE", "Dänemark", "FR", "a/b=c %", "", None]
FIRST = dt.datetime(1968, 11, 30, 21, 30, tzinfo=dt.timezone.utc)
SPECS: dict[str, list[tuple[int, Transform[Any, Any]]]] = {
    "identity": [(2, IdentityTransform())],
    "bucket": [(1, BucketTransform(4))],
    "truncate": [(2, TruncateTransform(1))],
    "truncate-number": [(1, TruncateTransform(100))],
    "day": [(4, DayTransform())],
    "hour": [(5, HourTransform())],
    "month": [(3, MonthTransform())],
    "year": [(4, YearTransform())],
    "void": [(2, VoidTransform())],
    "nested": [(7, IdentityTransform())],
    "several": [(2, IdentityTransform()), (4, YearTransform()), (1, BucketTransform(2)), (3, VoidTransform())],
}

Row = Mapping[str, Any]


def make_rows() -> list[dict[str, Any]]:
    """Return rows from before and after 1970, with nulls in every column but the first."""
    rows = []
    for number in range(60):
        at = FIRST + dt.timedelta(days=17 * number, hours=number)
        row = {
            "id": number * 7 - 100,
            "country": COUNTRIES[number % len(COUNTRIES)],
            "day": at.date(),
            "at": at,
            "local": at.replace(tzinfo=None),
            "place": {"city": ["Bonn", None, "Ulm"][number % 3]},
        }
        rows.append(row if number % 11 else {**dict.fromkeys(row), "id": row["id"]})
    return rows


ROWS = make_rows()
MIDDLE = ROWS[30]["at"]


def is_at_least(column: str, least: Any) -> Callable[[Row], bool]:
    """Return the test that a filter `column >= least` makes."""
    return lambda row: row[column] is not None and row[column] >= least


FILTERS: list[tuple[BooleanExpression, Callable[[Row], bool]]] = [
    (EqualTo("country", "DE"), lambda row: row["country"] == "DE"),
    (EqualTo("country", ""), lambda row: row["country"] == ""),
    (In("country", {"FR", "a/b=c %"}), lambda row: row["country"] in ("FR", "a/b=c %")),
    (StartsWith("country", "D"), lambda row: (row["country"] or "").startswith("D")),
    (IsNull("country"), lambda row: row["country"] is None),
    (EqualTo("id", -93), lambda row: row["id"] == -93),
    (LessThan("id", 0), lambda row: row["id"] < 0),
    (GreaterThanOrEqual("id", 101), lambda row: row["id"] >= 101),
    (GreaterThanOrEqual("day", MIDDLE.date().isoformat()), is_at_least("day", MIDDLE.date())),
    (GreaterThanOrEqual("at", MIDDLE.isoformat()), is_at_least("at", MIDDLE)),
    (
        GreaterThanOrEqual("local", MIDDLE.replace(tzinfo=None).isoformat()),
        is_at_least("local", MIDDLE.replace(tzinfo=None)),
    ),
    (LessThan("at", "1970-01-01T00:00:00+00:00"), lambda row: row["at"] is not None and row["at"].year < 1970),
    (IsNull("at"), lambda row: row["at"] is None),
    (EqualTo("place.city", "Ulm"), lambda row: row["place"] is not None and row["place"]["city"] == "Ulm"),
]


def create(house: Warehouse, fields: list[tuple[int, Transform[Any, Any]]]) -> None:
    """Create table `db.t` with that partition spec."""
    catalog = house.catalog()
    catalog.create_namespace_if_not_exists("db")
    spec = PartitionSpec(
        *(
            PartitionField(source_id=source, field_id=1000 + number, transform=transform, name=f"part_{number}")
            for number, (source, transform) in enumerate(fields)
        )
    )
    catalog.create_table("db.t", SCHEMA, partition_spec=spec)


def frame(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """Return rows as a DataFrame, in two partitions."""
    return spark.createDataFrame([tuple(row.values()) for row in rows], COLUMNS).repartition(2)


def check_files(table: Table) -> None:
    """Assert that every row of each file belongs to the file's partition, by PyIceberg's own transforms."""
    spec, schema = table.spec(), table.schema()
    for task in table.scan().plan_files():
        file = task.file
        for row in pq.read_table(local(file.file_path), partitioning=None).to_pylist():
            for position, field in enumerate(spec.fields):
                source: Any = row
                for name in (schema.find_column_name(field.source_id) or "").split("."):
                    source = None if source is None else source[name]
                expected = apply(field.transform, schema, field.source_id, source)
                assert file.partition[position] == expected, (file.file_path, row)


def apply(transform: Transform[Any, Any], schema: Schema, source_id: int, value: Any) -> Any:
    """Return the partition value of a Python value."""
    if isinstance(value, dt.datetime):
        epoch = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        value = (value - epoch) // dt.timedelta(microseconds=1)
    elif isinstance(value, dt.date):
        value = (value - dt.date(1970, 1, 1)).days
    return transform.transform(schema.find_type(source_id))(value)


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in the order of their ids."""
    return sorted(rows, key=lambda row: int(row["id"]))


@pytest.mark.parametrize("fields", few(2, ((fields,) for fields in SPECS.values())), ids=SPECS.keys())
def test_batch_puts_every_row_into_its_partition(
    spark: SparkSession, house: Warehouse, fields: list[tuple[int, Transform[Any, Any]]]
) -> None:
    """A query for one partition would miss rows, or find those of another."""
    create(house, fields)

    house.append(frame(spark, ROWS))

    table = house.table()
    check_files(table)
    assert by_id(house.rows().to_pylist()) == by_id(ROWS)
    for expression, keeps in FILTERS:
        found = table.scan(row_filter=expression).to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in ROWS if keeps(row)), expression


def test_stream_puts_every_row_into_its_partition(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """A partitioned table could be filled by batches alone."""
    create(house, SPECS["several"])
    source = str(tmp_path / "source")
    for start in (0, 30):
        frame(spark, ROWS[start : start + 30]).coalesce(1).write.mode("append").parquet(source)
    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(source)
    writer = rows.writeStream.format(FORMAT).options(**house.options)

    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start("db.t")
    try:
        assert query.awaitTermination(60), query.status
    finally:
        query.stop()

    check_files(house.table())
    assert by_id(house.rows().to_pylist()) == by_id(ROWS)
    assert len(house.snapshots()) == 2


def test_session_time_zone_does_not_move_rows_between_partitions(spark: SparkSession, house: Warehouse) -> None:
    """A row of the evening would be put into the next day, where no query looks for it."""
    create(house, [(4, DayTransform()), (5, HourTransform()), (3, MonthTransform())])
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")

    house.append(frame(spark, ROWS))

    check_files(house.table())
    assert by_id(house.rows().to_pylist()) == by_id(ROWS)


def test_second_spec_of_a_table_is_the_one_that_is_written(spark: SparkSession, house: Warehouse) -> None:
    """After a table's partitioning has changed, new rows would go by the old one."""
    create(house, SPECS["identity"])
    house.append(frame(spark, ROWS[:20]))
    with house.table().update_spec() as update:
        update.remove_field("part_0")
        update.add_field("id", BucketTransform(3), "id_bucket")

    house.append(frame(spark, ROWS[20:]))

    specs = {task.file.spec_id for task in house.table().scan().plan_files()}
    assert len(specs) == 2
    assert by_id(house.rows().to_pylist()) == by_id(ROWS)
    for expression, keeps in FILTERS:
        found = house.table().scan(row_filter=expression).to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in ROWS if keeps(row)), expression


@EXHAUSTIVE
def test_many_partitions_in_one_task(spark: SparkSession, house: Warehouse) -> None:
    """A batch over more partitions than files may be open would fail, or lose rows."""
    create(house, [(1, IdentityTransform())])
    rows = spark.range(0, 250, 1, 1).selectExpr(
        "id",
        "'x' AS country",
        "DATE '2024-01-01' AS day",
        "TIMESTAMP '2024-01-01 00:00:00' AS at",
        "TIMESTAMP_NTZ '2024-01-01 00:00:00' AS local",
        "named_struct('city', 'Ulm') AS place",
    )

    house.append(rows)

    assert house.ids() == list(range(250))
    assert len(house.data_files()) == 250
