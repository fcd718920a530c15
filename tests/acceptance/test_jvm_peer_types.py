"""Every column type and every partition transform that both have: the same values, bounds and partitions."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog, exact
from support.peer.jvm_peer import Row
from support.tables.event_rows import struct

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

UTC = dt.timezone.utc


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a test.

    Attributes:
        data_type: Its type.
        values: Its values; shorter columns are filled up with nulls.
        transform: The partition transform of it in SQL, `{}` for its name; none if empty.
    """

    data_type: spark.DataType
    values: list[Any]
    transform: str = ""


def column(data_type: spark.DataType, *values: Any, transform: str = "") -> Column:
    """Return a column, by position."""
    return Column(data_type=data_type, values=list(values), transform=transform)


def instants(*texts: str) -> list[dt.datetime]:
    """Return points in time, given in UTC."""
    return [dt.datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]


def naive(*texts: str) -> list[dt.datetime]:
    """Return times without a zone."""
    return [dt.datetime.fromisoformat(text) for text in texts]


FLAGS = [True, False]
INTS = [-(2**31), -11, -1, 0, 7, 2**31 - 1]
LONGS = [-(2**63), -11, -1, 0, 7, 2**63 - 1]
FLOATS = [-1.5, -0.0, 0.0, math.nan, math.inf, -math.inf, 2.0**-149]
DOUBLES = [0.1, -0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324]
SMALL_DECIMALS = [decimal.Decimal(text) for text in ("-9999999.99", "-0.01", "0.00", "12.34", "9999999.99")]
WHOLE_DECIMALS = [decimal.Decimal(10**18 - 1), decimal.Decimal(-(10**18) + 1), decimal.Decimal(0)]
WIDE_DECIMALS = [
    decimal.Decimal(f"{sign}{digits}") for digits in (f"{'9' * 28}.{'9' * 10}", "1.0000000005") for sign in ("", "-")
]
STRINGS = [
    "",
    "a",
    "abcdefgh",
    "Ünïcödé",
    "日本語の文字列",
    "👍🏽👍👍",
    "a'b\"c\\d\n/ =%",
    "\x7f" * 20,
    "\U0010ffff" * 20,
]
BINARIES = [b"", b"\x00", b"plain", b"\xff" * 20, bytes(range(30))]
DATES = [dt.date.fromisoformat(text) for text in ("1970-01-01", "1969-12-31", "1582-10-04", "0001-01-01", "9999-12-31")]
INSTANTS = instants(
    "1970-01-01T00:00:00",
    "1969-12-31T23:59:59.999999",
    "1969-12-31T00:00:00",
    "1582-10-04T12:00:00.000001",
    "0001-01-02T00:00:00",
    "2024-02-29T23:00:00",
    "9999-12-30T23:59:59.999999",
)
NAIVE = naive(*(moment.replace(tzinfo=None).isoformat() for moment in INSTANTS))

TYPES = {
    "flag": column(spark.BooleanType(), *FLAGS),
    "number": column(spark.IntegerType(), *INTS),
    "big": column(spark.LongType(), *LONGS),
    "single": column(spark.FloatType(), *FLOATS),
    "double": column(spark.DoubleType(), *DOUBLES),
    "zeros": column(spark.DoubleType(), -0.0, 0.0),
    "no_numbers": column(spark.DoubleType(), math.nan, math.nan),
    "decimal_9": column(spark.DecimalType(9, 2), *SMALL_DECIMALS),
    "decimal_18": column(spark.DecimalType(18, 0), *WHOLE_DECIMALS),
    "decimal_38": column(spark.DecimalType(38, 10), *WIDE_DECIMALS),
    "text": column(spark.StringType(), *STRINGS, "x" * 100_000),
    "bytes": column(spark.BinaryType(), *BINARIES),
    "day": column(spark.DateType(), *DATES),
    "at": column(spark.TimestampType(), *INSTANTS),
    "local": column(spark.TimestampNTZType(), *NAIVE),
    "nothing": column(spark.StringType()),
    "many": column(spark.ArrayType(spark.IntegerType()), [], [1, None, 3], [None]),
    "pairs": column(spark.MapType(spark.StringType(), spark.LongType()), [], [("a", 2**40), ("", None)]),
    "parts": column(
        struct(x=spark.IntegerType(), y=struct(z=spark.StringType())),
        {"x": 1, "y": {"z": "deep"}},
        {"x": None, "y": {"z": None}},
        {"x": 2, "y": None},
    ),
    "deep": column(
        spark.ArrayType(
            spark.MapType(
                spark.StringType(), struct(at=spark.TimestampType(), tags=spark.ArrayType(spark.StringType()))
            )
        ),
        [],
        [[], [("k", {"at": INSTANTS[5], "tags": ["a", "", None]}), ("l", None)]],
        [[("k", {"at": None, "tags": []})], None],
    ),
}

# The lowest numbers are left out where they would be truncated: the sink refuses what has no truncated value.
PARTITIONED = {
    "flag": column(spark.BooleanType(), *FLAGS, transform="{}"),
    "int_identity": column(spark.IntegerType(), *INTS, transform="{}"),
    "int_bucket": column(spark.IntegerType(), *INTS, transform="bucket(16, {})"),
    "int_truncate": column(spark.IntegerType(), *INTS[1:], transform="truncate(10, {})"),
    "long_identity": column(spark.LongType(), *LONGS, transform="{}"),
    "long_bucket": column(spark.LongType(), *LONGS, transform="bucket(16, {})"),
    "long_truncate": column(spark.LongType(), *LONGS[1:], transform="truncate(10, {})"),
    "float_identity": column(spark.FloatType(), *FLOATS, transform="{}"),
    "double_identity": column(spark.DoubleType(), *DOUBLES, transform="{}"),
    "decimal_identity": column(spark.DecimalType(9, 2), *SMALL_DECIMALS, transform="{}"),
    "decimal_bucket": column(spark.DecimalType(38, 10), *WIDE_DECIMALS, transform="bucket(16, {})"),
    "decimal_9_bucket": column(spark.DecimalType(9, 2), *SMALL_DECIMALS, transform="bucket(16, {})"),
    "decimal_truncate": column(spark.DecimalType(10, 2), *SMALL_DECIMALS[1:], transform="truncate(50, {})"),
    "text_identity": column(spark.StringType(), *STRINGS[:-2], transform="{}"),
    "text_bucket": column(spark.StringType(), *STRINGS, transform="bucket(16, {})"),
    "text_truncate": column(spark.StringType(), *STRINGS, transform="truncate(3, {})"),
    "bytes_identity": column(spark.BinaryType(), *BINARIES, transform="{}"),
    "bytes_bucket": column(spark.BinaryType(), *BINARIES, transform="bucket(16, {})"),
    "bytes_truncate": column(spark.BinaryType(), *BINARIES, transform="truncate(3, {})"),
    "date_identity": column(spark.DateType(), *DATES, transform="{}"),
    "date_bucket": column(spark.DateType(), *DATES, transform="bucket(16, {})"),
    "date_years": column(spark.DateType(), *DATES, transform="years({})"),
    "date_months": column(spark.DateType(), *DATES, transform="months({})"),
    "date_days": column(spark.DateType(), *DATES, transform="days({})"),
    "at_identity": column(spark.TimestampType(), *INSTANTS, transform="{}"),
    "at_bucket": column(spark.TimestampType(), *INSTANTS, transform="bucket(16, {})"),
    "at_years": column(spark.TimestampType(), *INSTANTS, transform="years({})"),
    "at_months": column(spark.TimestampType(), *INSTANTS, transform="months({})"),
    "at_days": column(spark.TimestampType(), *INSTANTS, transform="days({})"),
    "at_hours": column(spark.TimestampType(), *INSTANTS, transform="hours({})"),
    "local_identity": column(spark.TimestampNTZType(), *NAIVE, transform="{}"),
    "local_bucket": column(spark.TimestampNTZType(), *NAIVE, transform="bucket(16, {})"),
    "local_years": column(spark.TimestampNTZType(), *NAIVE, transform="years({})"),
    "local_months": column(spark.TimestampNTZType(), *NAIVE, transform="months({})"),
    "local_days": column(spark.TimestampNTZType(), *NAIVE, transform="days({})"),
    "local_hours": column(spark.TimestampNTZType(), *NAIVE, transform="hours({})"),
}


def schema_of(columns: dict[str, Column]) -> spark.StructType:
    """Return the schema of a table with these columns and an id."""
    return struct(id=spark.LongType(), **{name: column.data_type for name, column in columns.items()})


def rows_of(columns: dict[str, Column], first: int) -> list[Row]:
    """Return one row for each value of the longest column, with ids from `first` on."""
    length = max(len(column.values) for column in columns.values()) + 1
    return [
        {
            "id": first + number,
            **{
                name: column.values[number] if number < len(column.values) else None for name, column in columns.items()
            },
        }
        for number in range(length)
    ]


def ddl(columns: dict[str, Column]) -> str:
    """Return the columns as CREATE TABLE takes them."""
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema_of(columns))


@pytest.mark.parametrize("maker", ["sink", "jvm"])
def test_values_of_every_type(shared: SharedCatalog, maker: str) -> None:
    """Values would change on their way from one engine to the other."""
    schema, ours, theirs = schema_of(TYPES), rows_of(TYPES, 0), rows_of(TYPES, 100)
    if maker == "jvm":
        shared.create_by_jvm(ddl(TYPES))

    shared.append(ours, schema)
    shared.append_by_jvm(theirs, schema)

    shared.check_rows([*ours, *theirs])


def test_metrics_of_every_type(shared: SharedCatalog) -> None:
    """Other engines would skip files that hold rows of the answer, or read all of them."""
    schema = schema_of(TYPES)
    shared.create_by_jvm(ddl(TYPES))
    sink = shared.sink()

    sink.commit(sink.write(rows_of(TYPES, 0), schema=schema))
    shared.append_by_jvm(rows_of(TYPES, 0), schema)

    ours, theirs = (row["readable_metrics"] for row in shared.metadata("entries", order="sequence_number"))
    assert ours.keys() == theirs.keys()
    for name, metrics in theirs.items():
        told = {key for key, value in metrics.items() if value is not None} - {"column_size"}
        assert {key: exact(ours[name][key]) for key in told} == {key: exact(metrics[key]) for key in told}, name


def test_partition_values_of_every_transform(shared: SharedCatalog) -> None:
    """Two engines would put the same row into different partitions, where the other does not look for it."""
    schema, ours, theirs = schema_of(PARTITIONED), rows_of(PARTITIONED, 0), rows_of(PARTITIONED, 100)
    transforms = ", ".join(column.transform.format(f"`{name}`") for name, column in PARTITIONED.items())
    shared.create_by_jvm(ddl(PARTITIONED), f"PARTITIONED BY ({transforms})")

    shared.append(ours, schema)
    shared.append_by_jvm(theirs, schema)

    shared.check_rows([*ours, *theirs])
    partitions = shared.partitions_by_id()
    assert len(partitions) == len(ours) + len(theirs)
    for row in ours:
        assert exact(partitions[row["id"]]) == exact(partitions[row["id"] + 100]), row
