"""Values, names and shapes at the edges of what Spark can hold: written without Spark, read by independent readers."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE
from support.spark.tables import read_with_chdb
from support.tables.sink import IDENTIFIER, Row, Sink, arrow_batch, local

from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.table.spark_types import iceberg_schema
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

UTC = dt.timezone.utc


def write(sink: Sink, batch: pa.RecordBatch, schema: spark.StructType) -> None:
    """Write and commit a batch as Spark would hand it to a task."""
    plan = sink.plan(schema)
    files = write_task(plan, [batch], TaskAttempt(partition_id=0, task_attempt_id=0))
    counts = RowCounts(received=batch.num_rows)
    sink.commit([TaskCommit(write=plan.write, partition_id=0, data_files=files, counts=counts)])


def create(sink: Sink, schema: Schema, *partition_columns: str) -> None:
    """Create the table, with an identity partition for each of these columns."""
    catalog = sink.catalog._catalog
    catalog.create_namespace_if_not_exists("db")
    fields = [
        PartitionField(schema.find_field(name).field_id, 1000 + number, IdentityTransform(), f"{name} part")
        for number, name in enumerate(partition_columns)
    ]
    catalog.create_table(IDENTIFIER, schema, partition_spec=PartitionSpec(*fields))


def columns(**types: spark.DataType) -> spark.StructType:
    """Return a DataFrame's schema: a number for each row, and these columns."""
    fields = [spark.StructField(name, data_type) for name, data_type in types.items()]
    return spark.StructType([spark.StructField("id", spark.LongType()), *fields])


def write_column(sink: Sink, data_type: spark.DataType, values: pa.Array | Sequence[Any]) -> None:
    """Write a column `c` of these values, and the number of each."""
    schema = columns(c=data_type)
    if isinstance(values, pa.Array):
        batch = pa.RecordBatch.from_arrays([pa.array(range(len(values)), pa.int64()), values], names=["id", "c"])
    else:
        batch = arrow_batch([{"id": number, "c": value} for number, value in enumerate(values)], schema)
    write(sink, batch, schema)


def column_of_pyiceberg(sink: Sink) -> pa.Array:
    """Return the column `c` as PyIceberg reads it, in the order of the numbers."""
    return sink.table().scan().to_arrow().sort_by("id")["c"].combine_chunks()


def rows_of_chdb(sink: Sink) -> list[Row]:
    """Return the rows as ClickHouse reads them, in the order of the numbers."""
    return read_with_chdb(local(sink.table().metadata.location))


def column_of_chdb(sink: Sink) -> list[Any]:
    """Return the column `c` as ClickHouse reads it."""
    return [row["c"] for row in rows_of_chdb(sink)]


def exact(values: Sequence[Any]) -> list[Any]:
    """Return the values so that NaN is itself and zeros keep their sign."""
    return [repr(value) if isinstance(value, float) else value for value in values]


SECOND = 1_000_000
YEAR_0001, YEAR_10000 = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND
BEFORE_1900 = -2_208_988_800 * SECOND - 1
LEAP_SECOND = 1_483_228_800 * SECOND  # 2017-01-01, after 2016-12-31T23:59:60
MOMENTS = [
    *(-(2**63), YEAR_0001 - 1, YEAR_0001, BEFORE_1900, -1, 0),
    *(LEAP_SECOND - 1, LEAP_SECOND, YEAR_10000 - 1, YEAR_10000, 2**63 - 1),
]
DAYS = [-(2**31), -719_163, -719_162, -1, 0, 2_932_896, 2_932_897, 2**31 - 1]


@pytest.mark.parametrize(
    ("data_type", "arrow"),
    [
        (spark.TimestampType(), pa.timestamp("us", tz="America/New_York")),
        (spark.TimestampType(), pa.timestamp("us", tz="+05:30")),
        (spark.TimestampNTZType(), pa.timestamp("us")),
        (spark.DateType(), pa.date32()),
    ],
    ids=str,
)
def test_moments_come_back_whatever_their_year(sink: Sink, data_type: spark.DataType, arrow: pa.DataType) -> None:
    """Moments that Python's own types cannot hold would be lost, or end the write."""
    numbers, physical = (DAYS, pa.int32()) if arrow == pa.date32() else (MOMENTS, pa.int64())

    write_column(sink, data_type, pa.array([*numbers, None], physical).view(arrow))

    assert column_of_pyiceberg(sink).view(physical).to_pylist() == [*numbers, None]


def test_leap_second_and_midnight_before_1970_come_back_through_clickhouse(sink: Sink) -> None:
    """Another engine would read other moments than PyIceberg."""
    moments = [
        dt.datetime(2016, 12, 31, 23, 59, 59, 999_999, UTC),
        dt.datetime(2017, 1, 1, tzinfo=UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        dt.datetime(1900, 1, 1, 0, 0, 0, 1, UTC),
        None,
    ]

    write_column(sink, spark.TimestampType(), moments)

    assert column_of_chdb(sink) == moments


def decimals(*texts: str) -> list[Any]:
    """Return exact numbers, and a null."""
    return [*map(decimal.Decimal, texts), None]


NINES = "9" * 38
FLAT: list[tuple[spark.DataType, list[Any]]] = [
    (spark.DecimalType(38, 0), decimals(NINES, f"-{NINES}", "0", "-1")),
    (spark.DecimalType(38, 38), decimals(f"0.{NINES}", f"-0.{NINES}", "1E-38", "-1E-38")),
    (spark.DecimalType(1, 1), decimals("0.9", "-0.9", "0.0")),
    (spark.DoubleType(), [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, None]),
    (spark.FloatType(), [math.nan, math.inf, -math.inf, -0.0, 0.0, 2.0**-149, None]),
    (spark.StringType(), ["", "\x00", "\ud7ff\ue000", "\U0010ffff" * 20, "👍🏽", " ", None]),
    (spark.BinaryType(), [b"", b"\x00", b"\xff" * 20, None]),
    (spark.BooleanType(), [None, None]),
]


@pytest.mark.parametrize(("data_type", "values"), FLAT, ids=lambda value: str(value)[:20])
def test_extreme_values_come_back_through_two_readers(sink: Sink, data_type: spark.DataType, values: list[Any]) -> None:
    """Values would be changed, or end the write."""
    write_column(sink, data_type, values)

    assert exact(column_of_pyiceberg(sink).to_pylist()) == exact(values)
    if not isinstance(data_type, spark.BinaryType):  # which this reader gives as text
        assert exact(column_of_chdb(sink)) == exact(values)


def test_strings_of_ten_megabytes_come_back(sink: Sink) -> None:
    """Large texts would end the write, or be cut."""
    texts = ["x" * 10_000_000, "", "é" * 5_000_000, None]

    write_column(sink, spark.StringType(), texts)

    assert column_of_pyiceberg(sink).to_pylist() == texts


ITEM = spark.StructType([spark.StructField("x", spark.IntegerType()), spark.StructField("y", spark.StringType())])
NESTED: list[tuple[spark.DataType, list[Any]]] = [
    (spark.ArrayType(spark.StringType()), [[], [None], [""], None]),
    (spark.MapType(spark.StringType(), spark.LongType()), [[], [("a", None), ("", 1)], None]),
    (spark.MapType(spark.StringType(), spark.ArrayType(spark.LongType())), [[("a", []), ("b", None)], [], None]),
    (ITEM, [{"x": None, "y": None}, {"x": 1, "y": ""}, None]),
    (
        spark.ArrayType(spark.MapType(spark.StringType(), ITEM)),
        [[], [[]], [[("k", {"x": None, "y": None}), ("l", {"x": 1, "y": "z"})], []], [None], [[("m", None)]], None],
    ),
]


@pytest.mark.parametrize(("data_type", "values"), NESTED, ids=["list", "map", "map of lists", "struct", "deep"])
def test_empty_and_null_nested_values_stand_in_the_file(
    sink: Sink, data_type: spark.DataType, values: list[Any]
) -> None:
    """Nulls and emptiness would be confused: the file itself tells, as readers do not all tell them apart."""
    write_column(sink, data_type, values)

    (task,) = sink.table().scan().plan_files()
    assert pq.read_table(local(task.file.file_path))["c"].to_pylist() == values
    assert len(column_of_chdb(sink)) == len(column_of_pyiceberg(sink)) == len(values)


def five_levels(name: str) -> tuple[spark.DataType, Any]:
    """Return a type of five structs in maps in lists, and a value; `{}` in the name is the level."""
    data_type: spark.DataType = spark.TimestampType()
    value: Any = dt.datetime(2000, 1, 1, tzinfo=UTC)
    for level in range(5):
        key = name.format(level)
        inner = spark.StructType([spark.StructField(key, data_type), spark.StructField("n", spark.LongType())])
        data_type = spark.ArrayType(spark.MapType(spark.StringType(), inner))
        value = [[("k", {key: value, "n": None})]]
    return data_type, value


def test_five_levels_of_nesting_come_back_through_two_readers(sink: Sink) -> None:
    """Deep values would end the write, or lose their place."""
    data_type, value = five_levels("level_{}")

    write_column(sink, data_type, [value])

    assert column_of_pyiceberg(sink).to_pylist() == column_of_chdb(sink) == [value]


def test_five_levels_of_unusual_names_come_back(sink: Sink) -> None:
    """Deep values would end the write, or lose their place."""
    data_type, value = five_levels("level {}")

    write_column(sink, data_type, [value])

    # PyIceberg 0.12 finds no field of such a name in a struct in a map in a list, not even in files of its own.
    assert column_of_chdb(sink) == [value]


def test_three_hundred_columns_come_back_through_two_readers(sink: Sink) -> None:
    """Wide tables could not be written, or columns would be swapped."""
    names = [f"column {number}" for number in range(300)]
    schema = columns(**dict.fromkeys(names, spark.LongType()))
    rows = [{"id": row, **{name: 1000 * row + number for number, name in enumerate(names)}} for row in range(3)]

    write(sink, arrow_batch(rows, schema), schema)

    assert sink.rows() == rows
    assert rows_of_chdb(sink) == rows


# Names that Avro does not know, and two pairs that are the same once they are made safe for it.
NAMES = [
    *("a.b", "a_x2Eb", "1st", "_1st", "with space", "x-y", "sla/sh", "back\\slash", "quo'te", 'quo"te', "back`tick"),
    *("percent%", "equal=", "comma,", "semi;", "{curly}", "#", "new\nline", "tab\t", "select", "ünï", "日本", "👍"),
]


def named_rows() -> list[Row]:
    """Return two rows with a column of every name."""
    return [{"id": row, **{name: 100 * row + number for number, name in enumerate(NAMES)}} for row in range(2)]


def test_columns_of_any_name_come_back_through_two_readers(sink: Sink) -> None:
    """Columns with unusual names could not be written, or be confused with others."""
    schema = columns(**dict.fromkeys(NAMES, spark.LongType()))

    write(sink, arrow_batch(named_rows(), schema), schema)

    assert sink.rows() == named_rows()
    assert rows_of_chdb(sink) == named_rows()


def test_fields_of_any_name_come_back_through_two_readers(sink: Sink) -> None:
    """Fields with unusual names could not be written, or be confused with others."""
    schema = columns(s=columns(**dict.fromkeys(NAMES, spark.LongType())))
    rows = [{"id": row["id"], "s": row} for row in named_rows()]

    write(sink, arrow_batch(rows, schema), schema)

    assert sink.rows() == rows
    assert rows_of_chdb(sink) == rows


@pytest.mark.parametrize("name", NAMES)
def test_partition_columns_may_have_any_name(sink: Sink, name: str) -> None:
    """Manifests would be unreadable, or files lie in folders that no store accepts."""
    schema = columns(**{name: spark.StringType()})
    rows: list[Row] = [{"id": 0, name: "a/b=c%"}, {"id": 1, name: ""}, {"id": 2, name: None}, {"id": 3, name: name}]
    create(sink, iceberg_schema(schema), name)

    write(sink, arrow_batch(rows, schema), schema)

    assert sink.rows() == rows
    assert rows_of_chdb(sink) == rows


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_columns_and_partitions_of_any_name_come_back_through_icebergs_own_runtime(shared: SharedCatalog) -> None:
    """The engines that most tables are read with could not read the files or the manifests."""
    schema = columns(**dict.fromkeys(NAMES, spark.LongType()))
    sink = shared.sink()
    create(sink, iceberg_schema(schema), *(name for name in NAMES if name not in {"a_x2Eb", "_1st"}))

    write(sink, arrow_batch(named_rows(), schema), schema)

    assert shared.rows_of_jvm() == named_rows()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Values that are read as what the table holds.

    Attributes:
        table: The table's type.
        spark: Spark's.
        given: The values in Spark.
        expected: The values in the table.
    """

    table: ice.PrimitiveType
    spark: spark.DataType
    given: list[Any]
    expected: list[Any]


LEAST, GREATEST = uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)
IDS, SHORT = [LEAST, GREATEST, None], [b"\x00" * 3, b"\xff" * 3, None]
TIMES = [dt.time(), dt.time(23, 59, 59, 999_999), None]
READINGS = [
    Reading(
        table=ice.UUIDType(), spark=spark.StringType(), given=[str(LEAST), GREATEST.hex.upper(), None], expected=IDS
    ),
    Reading(table=ice.UUIDType(), spark=spark.BinaryType(), given=[LEAST.bytes, GREATEST.bytes, None], expected=IDS),
    Reading(table=ice.FixedType(3), spark=spark.BinaryType(), given=SHORT, expected=SHORT),
    Reading(table=ice.TimeType(), spark=spark.StringType(), given=["00:00", "23:59:59.999999", None], expected=TIMES),
]
if hasattr(spark, "TimeType"):
    READINGS.append(Reading(table=ice.TimeType(), spark=spark.TimeType(6), given=TIMES, expected=TIMES))


@pytest.mark.parametrize(
    ("reading", "partition"),
    [
        pytest.param(reading, partition, id=f"{reading.spark.typeName()}-{reading.table}-{name}")
        for reading in READINGS
        for name, partition in {"whole": (), "partitioned": ("c",)}.items()
        if not (partition and isinstance(reading.table, ice.FixedType))  # whose partitions are refused
    ],
)
def test_text_and_bytes_come_back_as_what_the_table_holds(
    sink: Sink, reading: Reading, partition: tuple[str, ...]
) -> None:
    """Tables with uuid, fixed or time columns could not be written from Spark."""
    create(sink, Schema(NestedField(1, "id", ice.LongType()), NestedField(2, "c", reading.table)), *partition)

    write_column(sink, reading.spark, reading.given)

    assert column_of_pyiceberg(sink).to_pylist() == reading.expected
    if not partition and not isinstance(reading.table, ice.TimeType):  # of which ClickHouse keeps seconds alone
        assert column_of_chdb(sink) == reading.expected


@pytest.mark.timeout(900)
@EXHAUSTIVE
def test_text_and_bytes_come_back_through_icebergs_own_runtime(shared: SharedCatalog) -> None:
    """The engines that most tables are read with would read other values."""
    fields = [NestedField(1, "id", ice.LongType()), NestedField(2, "u", ice.UUIDType())]
    sink = shared.sink()
    create(sink, Schema(*fields, NestedField(3, "f", ice.FixedType(2))), "u")
    schema = columns(u=spark.StringType(), f=spark.BinaryType())
    rows = [{"id": 0, "u": str(GREATEST), "f": b"ab"}, {"id": 1, "u": str(LEAST), "f": None}]

    write(sink, arrow_batch(rows, schema), schema)

    assert shared.rows_of_jvm() == rows
