"""Every supported type, written by Spark and read by two readers that know nothing of it."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import uuid
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    FixedType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UUIDType,
)
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from support.exhaustive import EXHAUSTIVE, few
from support.spark.tables import Warehouse, read_with_chdb

UTC = dt.timezone.utc
ZONES = ["UTC", "America/New_York", "+05:30"]


def moments(*texts: str) -> list[dt.datetime]:
    """Return points in time, given in UTC."""
    return [dt.datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]


def local_times(*texts: str) -> list[dt.datetime]:
    """Return times without a zone."""
    return [dt.datetime.fromisoformat(text) for text in texts]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One type.

    Attributes:
        spark: Its name in Spark.
        iceberg: What a created table has in its place.
        values: Values that other readers know, too.
        extremes: Values that ClickHouse has no room for.
    """

    spark: str
    iceberg: str
    values: list[Any]
    extremes: list[Any]


def case(spark: str, iceberg: str, values: list[Any], extremes: list[Any] | None = None) -> Case:
    """Return a case, by position."""
    return Case(spark=spark, iceberg=iceberg, values=values, extremes=extremes or [])


CASES = {
    "boolean": case("BOOLEAN", "boolean", [True, False]),
    "byte": case("TINYINT", "int", [-(2**7), 0, 2**7 - 1]),
    "short": case("SMALLINT", "int", [-(2**15), 0, 2**15 - 1]),
    "int": case("INT", "int", [-(2**31), 0, 2**31 - 1]),
    "long": case("BIGINT", "long", [-(2**63), 0, 2**63 - 1]),
    "float": case("FLOAT", "float", [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 2.0**-149]),
    "double": case("DOUBLE", "double", [0.0, -0.0, 0.1, math.nan, math.inf, -math.inf, 5e-324]),
    "decimal_9": case("DECIMAL(9, 2)", "decimal(9, 2)", [decimal.Decimal("-9999999.99"), decimal.Decimal("0.01")]),
    "decimal_18": case("DECIMAL(18, 0)", "decimal(18, 0)", [decimal.Decimal(10**18 - 1), decimal.Decimal(-1)]),
    "decimal_38": case(
        "DECIMAL(38, 10)",
        "decimal(38, 10)",
        [decimal.Decimal(f"{'9' * 28}.{'9' * 10}"), decimal.Decimal(f"-{'9' * 28}.{'9' * 10}"), decimal.Decimal(0)],
    ),
    "decimal_38_38": case(
        "DECIMAL(38, 38)",
        "decimal(38, 38)",
        [decimal.Decimal(f"0.{'9' * 38}"), decimal.Decimal(f"-0.{'9' * 38}"), decimal.Decimal("1E-38")],
    ),
    "string": case("STRING", "string", ["", "a", "Ünïcödé", "日本語", "👍🏽", "a'b\"c\\d\n", "x" * 100_000]),
    "binary": case("BINARY", "binary", [b"", b"\x00\xff", b"plain"]),
    "date": case(
        "DATE",
        "date",
        [dt.date(1970, 1, 1), dt.date(1900, 1, 1), dt.date(2024, 2, 29)],
        [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), dt.date(9999, 12, 31)],
    ),
    "timestamp": case(
        "TIMESTAMP",
        "timestamptz",
        moments("1970-01-01", "1969-12-31T23:59:59.999999", "2024-03-10T07:30:00", "2024-11-03T05:30:00.000001"),
        moments("1883-11-18T12:00:00", "1582-10-10T00:00:00", "0001-01-02T00:00:00", "9999-12-30T23:59:59.999999"),
    ),
    "timestamp_ntz": case(
        "TIMESTAMP_NTZ",
        "timestamp",
        local_times("1970-01-01", "1969-12-31T23:59:59.999999", "2024-03-10T02:30:00", "2024-11-03T01:30:00"),
        local_times("0001-01-01T00:00:00", "1582-10-10T00:00:00", "9999-12-31T23:59:59.999999"),
    ),
    "list": case("ARRAY<INT>", "list<int>", [[], [1, None, 3], [None]]),
    "map": case("MAP<STRING, BIGINT>", "map<string, long>", [{}, {"a": 2**40}, {"": None}]),
    "struct": case(
        "STRUCT<x: INT, y: STRING>",
        "struct<x: optional int, y: optional string>",
        [{"x": 1, "y": ""}, {"x": None, "y": None}],
    ),
    "three_levels": case(
        "ARRAY<MAP<STRING, STRUCT<at: TIMESTAMP, tags: ARRAY<STRING>>>>",
        "list<map<string, struct<at: optional timestamptz, tags: optional list<string>>>>",
        [
            [],
            [{}, {"k": {"at": moments("2024-01-01T05:00:00")[0], "tags": ["a", "", None]}}],
            [{"k": {"at": None, "tags": []}}],
        ],
    ),
}


def plain(value: Any) -> Any:
    """Return a value so that NaN is itself and zeros keep their sign; maps are lists of pairs."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case float():
            return repr(value)
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
    return value


def as_read(value: Any, field_type: IcebergType) -> Any:
    """Return a value as readers give it: maps as lists of pairs, floats and the like as `plain` has them."""
    if value is None:
        return None
    match field_type:
        case StructType():
            return {field.name: as_read(value[field.name], field.field_type) for field in field_type.fields}
        case ListType():
            return [as_read(item, field_type.element_type) for item in value]
        case MapType():
            return [
                [as_read(key, field_type.key_type), as_read(item, field_type.value_type)] for key, item in value.items()
            ]
    return plain(value)


def write_all_types(spark: SparkSession, house: Warehouse, zone: str, *, extremes: bool) -> list[dict[str, Any]]:
    """Write one table that has a column of every type, shorter columns filled up with nulls; return its rows."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    columns = {name: [*known.values, *(known.extremes if extremes else []), None] for name, known in CASES.items()}
    length = max(len(values) for values in columns.values())
    rows = [
        {"id": row, **{name: values[row] if row < len(values) else None for name, values in columns.items()}}
        for row in range(length)
    ]
    schema = ", ".join(["id INT", *(f"{name} {known.spark}" for name, known in CASES.items())])
    house.append(spark.createDataFrame([tuple(row.values()) for row in rows], schema).coalesce(1))
    return rows


def as_clickhouse(value: Any, field_type: IcebergType) -> Any:
    """Return a value as ClickHouse gives it: it has no null lists, maps and structs, but empty ones."""
    match field_type:
        case StructType():
            return {
                field.name: as_clickhouse(None if value is None else value[field.name], field.field_type)
                for field in field_type.fields
            }
        case ListType():
            return [as_clickhouse(item, field_type.element_type) for item in value or []]
        case MapType():
            return [[plain(key), as_clickhouse(item, field_type.value_type)] for key, item in (value or {}).items()]
        case BinaryType():
            return None if value is None else value.hex().upper()
        case TimestampType():  # ClickHouse has no times without a zone: these are in the server's
            return None if value is None else value.replace(tzinfo=UTC)
    return plain(value)


@pytest.mark.parametrize("zone", few(1, ZONES))
def test_every_value_comes_back_through_pyiceberg(spark: SparkSession, house: Warehouse, zone: str) -> None:
    """Values would be changed on their way into the table, in some time zones only."""
    rows = write_all_types(spark, house, zone, extremes=True)

    found = house.rows().to_pylist()

    for field in house.table().schema().fields:
        expected = [as_read(row[field.name], field.field_type) for row in rows]
        assert [plain(row[field.name]) for row in found] == expected, field.name


@pytest.mark.parametrize("zone", few(1, ZONES))
def test_every_value_comes_back_through_clickhouse(spark: SparkSession, house: Warehouse, zone: str) -> None:
    """Another engine would read other values than PyIceberg."""
    rows = write_all_types(spark, house, zone, extremes=False)
    schema = house.table().schema()

    columns = ", ".join(
        "hex(binary) AS binary" if field.name == "binary" else f"`{field.name}`" for field in schema.fields
    )
    found = read_with_chdb(house.folder / "db" / "t", columns)

    assert len(found) == len(rows)
    for read, row in zip(found, rows, strict=True):
        for field in schema.fields:
            assert plain(read[field.name]) == as_clickhouse(row[field.name], field.field_type), (field.name, row["id"])


def test_created_table_has_the_documented_types(spark: SparkSession, house: Warehouse) -> None:
    """The page of types would be wrong."""
    write_all_types(spark, house, "UTC", extremes=False)

    fields = house.table().schema().fields
    found = {field.name: re.sub(r"\d+: ", "", str(field.field_type)) for field in fields}
    assert found == {"id": "int", **{name: known.iceberg for name, known in CASES.items()}}


def test_char_and_varchar_become_strings(spark: SparkSession, house: Warehouse) -> None:
    """Columns of tables with SQL's own text types could not be written."""
    spark.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    rows = spark.sql("SELECT 1L AS id, CAST('x' AS CHAR(3)) AS padded, CAST('abc' AS VARCHAR(5)) AS short")
    assert rows.schema["padded"].dataType == spark_types.CharType(3)

    house.append(rows)

    assert house.rows().to_pylist() == [{"id": 1, "padded": "x  ", "short": "abc"}]


@pytest.mark.parametrize("zone", few(1, ZONES))
def test_instants_do_not_depend_on_the_session_time_zone(spark: SparkSession, house: Warehouse, zone: str) -> None:
    """The same instant, written by sessions in two places, would be two."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    rows = spark.sql(
        "SELECT 1L AS id, TIMESTAMP '2024-07-01 12:00:00Z' AS at, TIMESTAMP_NTZ '2024-07-01 12:00:00' AS local"
    )

    house.append(rows)

    (noon,) = moments("2024-07-01T12:00:00")
    assert house.rows().to_pylist() == [{"id": 1, "at": noon, "local": noon.replace(tzinfo=None)}]


def test_null_structs_whose_fields_are_required(spark: SparkSession, house: Warehouse) -> None:
    """Structs behind a condition or an outer join, whose fields Spark calls required, could not be written."""
    rows = spark.sql(
        "SELECT id, if(id % 2 = 0, named_struct('x', id, 'y', named_struct('z', id)), null) AS one, "
        "array(if(id % 2 = 0, named_struct('x', id), null)) AS many, "
        "map('k', if(id % 2 = 0, named_struct('x', id), null)) AS named FROM range(4)"
    )

    house.append(rows.coalesce(1), use_nullable_query_schema="false")

    def even(row: int, value: Any) -> Any:
        return None if row % 2 else value

    # PyIceberg cannot read null structs with required fields inside lists and maps: the file itself tells.
    (file,) = house.referenced()
    assert pq.read_table(file).to_pylist() == [
        {
            "id": row,
            "one": even(row, {"x": row, "y": {"z": row}}),
            "many": [even(row, {"x": row})],
            "named": [("k", even(row, {"x": row}))],
        }
        for row in range(4)
    ]


def test_required_columns_of_every_type(spark: SparkSession, house: Warehouse) -> None:
    """Columns that Spark knows to hold no nulls would be optional although the user wants otherwise, or refuse them."""
    schema = spark_types.StructType(
        [
            spark_types.StructField("id", spark_types.LongType(), nullable=False),
            spark_types.StructField(
                "list", spark_types.ArrayType(spark_types.StringType(), containsNull=False), nullable=False
            ),
            spark_types.StructField(
                "map",
                spark_types.MapType(spark_types.StringType(), spark_types.DoubleType(), valueContainsNull=False),
                nullable=False,
            ),
        ]
    )

    rows = spark.createDataFrame([(1, ["a"], {"k": 0.5}), (2, [], {})], schema)
    house.append(rows, use_nullable_query_schema="false")

    assert all(field.required for field in house.table().schema().fields)
    assert house.rows().to_pylist() == [
        {"id": 1, "list": ["a"], "map": [("k", 0.5)]},
        {"id": 2, "list": [], "map": []},
    ]


def test_times_come_back(spark: SparkSession, house: Warehouse) -> None:
    """Times of a day would be a thousand times what they are, or be refused."""
    if not hasattr(spark_types, "TimeType"):
        pytest.skip("this Spark has no times of a day")
    spark.conf.set("spark.sql.timeType.enabled", "true")

    try:
        rows = spark.sql(
            "SELECT * FROM VALUES (1L, TIME'00:00:00'), (2L, TIME'23:59:59.999999'), (3L, NULL) AS t (id, at)"
        )
        house.append(rows)
        house.append(rows.select((rows.id + 3).alias("id"), rows.at.cast("time(0)").alias("at")))
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")

    assert str(house.table().schema().find_type("at")) == "time"
    midnight, last = dt.time(), dt.time(23, 59, 59)
    expected = [midnight, last.replace(microsecond=999_999), None, midnight, last, None]
    assert house.rows()["at"].to_pylist() == expected


ID = uuid.UUID("0b9f2c1e-1111-4222-8333-444455556666")


def make_table(house: Warehouse, **types: IcebergType) -> None:
    """Create the table `db.t` with these optional columns."""
    fields = [NestedField(number, name, field_type) for number, (name, field_type) in enumerate(types.items(), start=1)]
    catalog = house.catalog()
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table("db.t", Schema(*fields))


def test_text_and_bytes_are_read_as_what_the_table_holds(spark: SparkSession, house: Warehouse) -> None:
    """Tables with uuid, fixed or time columns could not be written from Spark."""
    pairs = MapType(10, UUIDType(), 11, ListType(12, TimeType(), element_required=False), value_required=False)
    make_table(house, id=LongType(), u=UUIDType(), raw=UUIDType(), f=FixedType(2), t=TimeType(), m=pairs)

    house.append(
        spark.sql(
            f"SELECT 1L AS id, '{str(ID).upper()}' AS u, unhex('{ID.hex}') AS raw, X'6162' AS f, '12:30' AS t, "
            f"map('{ID}', array('23:59:59.999999', null)) AS m"
        )
    )

    last = dt.time(23, 59, 59, 999_999)
    assert house.rows().to_pylist() == [
        {"id": 1, "u": ID, "raw": ID, "f": b"ab", "t": dt.time(12, 30), "m": [(ID, [last, None])]}
    ]


def test_text_that_is_no_uuid_ends_the_write_with_an_example(spark: SparkSession, house: Warehouse) -> None:
    """A user would have to search millions of rows for the one that cannot be written."""
    make_table(house, id=LongType(), u=UUIDType())

    with pytest.raises(PySparkException, match="column 'u': 1 of 1 values are no UUID, for example 'nonsense'"):
        house.append(spark.sql("SELECT 1L AS id, 'nonsense' AS u"))

    assert house.data_files() == set()


def test_void_and_empty_literals_go_into_any_optional_column(spark: SparkSession, house: Warehouse) -> None:
    """`lit(None)`, `array()` and `map()` would have to be cast to the type of their column."""
    entry = StructType(NestedField(10, "x", IntegerType()))
    pairs = MapType(20, StringType(), 21, entry, value_required=False)
    many = ListType(22, entry, element_required=False)
    make_table(house, id=LongType(), n=UUIDType(), s=entry, l=many, m=pairs)

    house.append(spark.sql("SELECT 1L AS id, null AS n, named_struct('x', null) AS s, array() AS l, map() AS m"))
    house.append(spark.sql("SELECT 2L AS id, null AS n, null AS s, array(null) AS l, null AS m"))

    # PyIceberg 0.12 reads null maps of structs as empty ones: the files themselves tell.
    stored = [row for file in house.referenced() for row in pq.read_table(file).to_pylist()]
    assert sorted(stored, key=lambda row: int(row["id"])) == [
        {"id": 1, "n": None, "s": {"x": None}, "l": [], "m": []},
        {"id": 2, "n": None, "s": None, "l": [None], "m": None},
    ]


REFUSED = {
    "null": "void",
    "interval '1' day": "interval day",
    "interval '1' month": "interval month",
    "collate('x', 'UTF8_LCASE')": "string collate UTF8_LCASE",
    "named_struct()": "a struct without fields",
}


@pytest.mark.parametrize("expression", few(2, REFUSED))
def test_type_without_counterpart_is_refused_by_name(spark: SparkSession, house: Warehouse, expression: str) -> None:
    """Values would be changed silently, or the task would fail with a riddle."""
    with pytest.raises(PySparkException, match=f"column 'c' holds {REFUSED[expression]}, which has no exact"):
        house.append(spark.sql(f"SELECT 1L AS id, {expression} AS c"))

    assert not house.has_table()


# What Spark's own to_json prints alike; nulls and microseconds are kept here alone.
AS_TEXT = (
    "named_struct('i', 1Y, 'f', CAST(0.1 AS FLOAT), 'd', 1.5D, 'whole', 2.0D, 'nan', double('NaN'), 'inf', "
    "double('-inf'), 'dec', 1.50BD, 'tiny', CAST('1E-38' AS DECIMAL(38, 38)), 'b', X'00FF', "
    "'s', 'a\"b\\\\c\n\u0001é👍', 'day', DATE '0001-01-01', 'far', date_add(DATE '9999-12-31', 1), "
    "'at', TIMESTAMP '1969-12-31 23:59:59.123Z', "
    "'local', TIMESTAMP_NTZ '9999-12-31 23:59:59', 'l', array(array(1), array()), 'e', named_struct('x', true), "
    "'m', map('k', map(1, 'v')))"
)


def test_nested_columns_become_the_text_that_spark_prints(spark: SparkSession, house: Warehouse) -> None:
    """Readers would find other values than Spark had, or text that is no JSON."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = spark.sql(f"SELECT 1L AS id, {AS_TEXT} AS s, array({AS_TEXT}) AS l, map('k', {AS_TEXT}) AS m")
    (expected,) = rows.selectExpr("to_json(s) AS s", "to_json(l) AS l", "to_json(m) AS m").collect()

    house.append(rows, nested_as_json="true")

    (found,) = house.rows().to_pylist()
    assert {str(house.table().schema().find_type(name)) for name in "slm"} == {"string"}
    assert found == {"id": 1, **expected.asDict()}


@pytest.mark.parametrize("zone", few(1, ZONES))
def test_nulls_microseconds_and_instants_are_kept_in_text(spark: SparkSession, house: Warehouse, zone: str) -> None:
    """Fields would be missing, or moments be others than those that were written."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    at = "TIMESTAMP '2024-07-01 12:00:00.000001Z'"

    house.append(
        spark.range(1, 3).selectExpr("id", f"if(id = 1, named_struct('at', {at}, 'n', null), null) AS s"),
        nested_as_json="true",
    )

    assert house.rows()["s"].to_pylist() == ['{"at":"2024-07-01T12:00:00.000001Z","n":null}', None]


def test_moments_beyond_pythons_range_come_back(spark: SparkSession, house: Warehouse) -> None:
    """Moments that Spark holds and Python does not would end the write."""
    numbers = [-(2**63), -62_135_596_800_000_001, -2_717_668_799_999_999, 253_402_300_800_000_000, 2**63 - 1]
    schema = spark_types.StructType([spark_types.StructField("id", spark_types.LongType())])
    rows = spark.createDataFrame([(number,) for number in numbers], schema)
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    house.append(rows.selectExpr("id", "timestamp_micros(id) AS at", "CAST(timestamp_micros(id) AS DATE) AS day"))

    found = house.rows()
    assert found["at"].cast(pa.int64()).to_pylist() == numbers
    assert found["day"].cast(pa.int32()).to_pylist() == [number // 86_400_000_000 for number in numbers]


def test_unusual_names_and_many_columns_come_back(spark: SparkSession, house: Warehouse) -> None:
    """Columns with unusual names could not be written, or be confused with others."""
    names = ["a.b", "a_x2Eb", "with space", "sla/sh", "quo'te", 'quo"te', "back`tick", "1st", "ünï", "日本", "👍"]
    names += [f"column {number}" for number in range(290)]
    inner = spark_types.StructType([spark_types.StructField(name, spark_types.LongType()) for name in names[:11]])
    fields = [spark_types.StructField(name, spark_types.LongType()) for name in names]
    schema = spark_types.StructType(
        [spark_types.StructField("id", spark_types.LongType()), *fields, spark_types.StructField("s", inner)]
    )
    numbers = list(range(len(names)))

    house.append(spark.createDataFrame([(1, *numbers, tuple(numbers[:11]))], schema))

    named = dict(zip(names, numbers, strict=True))
    assert house.rows().to_pylist() == [{"id": 1, **named, "s": {name: named[name] for name in names[:11]}}]


@EXHAUSTIVE
def test_strings_of_ten_megabytes_come_back(spark: SparkSession, house: Warehouse) -> None:
    """Large texts would end the write, or be cut."""
    house.append(spark.sql("SELECT 1L AS id, repeat('é', 5000000) AS text, repeat('x', 10000000) AS more"))

    assert house.rows().to_pylist() == [{"id": 1, "text": "é" * 5_000_000, "more": "x" * 10_000_000}]
