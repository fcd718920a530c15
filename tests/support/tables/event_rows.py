"""Rows of a table of events, with all that makes partitions and bounds difficult: nulls, times before 1970, NaN."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark

FIRST = dt.datetime(1969, 11, 30, 21, 59, 59, 999999, tzinfo=dt.timezone.utc)
_TEXTS = ["", "a", "abcdefg", "abcdxyz", "Ünïcödé", "日本語の文字列", "👍🏽👍", "a/b=c %?&'\\", "z" * 40]
_REGIONS = ["EU", "US", "", "São Tomé", "a/b=c %"]
_AMOUNTS = [0.0, -0.0, 1.5, -math.inf, math.inf, math.nan, 5e-324, 0.1, -1e300]


def struct(**columns: spark.DataType) -> spark.StructType:
    """Return the Spark schema of rows with these columns."""
    return spark.StructType([spark.StructField(name, data_type) for name, data_type in columns.items()])


EVENT = struct(
    id=spark.LongType(),
    ts=spark.TimestampType(),
    naive=spark.TimestampNTZType(),
    day=spark.DateType(),
    s=spark.StringType(),
    region=spark.StringType(),
    amount=spark.DoubleType(),
)
EVENT_COLUMNS = "id BIGINT, ts TIMESTAMP, naive TIMESTAMP_NTZ, day DATE, s STRING, region STRING, amount DOUBLE"
EVENT_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ts", TimestamptzType()),
    NestedField(3, "naive", TimestampType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "s", StringType()),
    NestedField(6, "region", StringType()),
    NestedField(7, "amount", DoubleType()),
)


def make_events(first: int, count: int = 12) -> list[dict[str, Any]]:
    """Return `count` rows of `EVENT` with ids from `first` on; each seventh is null but for its id."""
    return [_event(number) for number in range(first, first + count)]


def _event(number: int) -> dict[str, Any]:
    at = FIRST + dt.timedelta(days=17 * number, hours=7 * number, microseconds=number)
    if number % 7 == 6:
        return {**dict.fromkeys(EVENT.names), "id": number}
    return {
        "id": number,
        "ts": at,
        "naive": at.replace(tzinfo=None),
        "day": at.date(),
        "s": _TEXTS[number % len(_TEXTS)],
        "region": _REGIONS[number % len(_REGIONS)],
        "amount": _AMOUNTS[number % len(_AMOUNTS)],
    }
