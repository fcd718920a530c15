"""Every supported type, written by Spark and read by two readers that know nothing of it."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    TimestampType,
)
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from support.spark_tables import Warehouse, read_with_chdb

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


@pytest.mark.parametrize("zone", ZONES)
def test_every_value_comes_back_through_pyiceberg(spark: SparkSession, house: Warehouse, zone: str) -> None:
    """Values would be changed on their way into the table, in some time zones only."""
    rows = write_all_types(spark, house, zone, extremes=True)

    found = house.rows().to_pylist()

    for field in house.table().schema().fields:
        expected = [as_read(row[field.name], field.field_type) for row in rows]
        assert [plain(row[field.name]) for row in found] == expected, field.name


@pytest.mark.parametrize("zone", ZONES)
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
    """The README's table of types would be wrong."""
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


@pytest.mark.parametrize("zone", ZONES)
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

    house.append(rows.coalesce(1))

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
    """Columns that Spark knows to hold no nulls would be created as optional, or their rows be refused."""
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

    house.append(spark.createDataFrame([(1, ["a"], {"k": 0.5}), (2, [], {})], schema))

    assert all(field.required for field in house.table().schema().fields)
    assert house.rows().to_pylist() == [
        {"id": 1, "list": ["a"], "map": [("k", 0.5)]},
        {"id": 2, "list": [], "map": []},
    ]
