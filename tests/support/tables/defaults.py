"""Columns with default values, one of each type that can have one, and what their rows hold."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from support.tables.changes_by_others import set_columns
from support.tables.sink import Sink

FIRST_ID = 10
# By type: the initial default, and the write default.
DEFAULTS: dict[IcebergType, tuple[Any, Any]] = {
    BooleanType(): (False, True),
    IntegerType(): (-7, 0),
    LongType(): (2**40, -(2**63)),
    FloatType(): (1.5, -0.25),
    DoubleType(): (0.1, 1e300),
    DecimalType(9, 2): (Decimal("14.20"), Decimal("-0.05")),
    DateType(): (dt.date(2026, 11, 27), dt.date(1969, 12, 31)),
    TimestampType(): (dt.datetime(2026, 11, 27, 1, 2, 3, 4), dt.datetime(1969, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    TimestamptzType(): (
        dt.datetime(2026, 11, 27, 1, 2, 3, 4, dt.timezone.utc),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.timezone.utc),
    ),
    StringType(): ('it\'s \\n "a" ünïcode $text', ""),
}
# Those that Spark's Parquet reader does not fill in.
BYTES: dict[IcebergType, tuple[Any, Any]] = {
    UUIDType(): (
        uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        uuid.UUID("00000000-0000-0000-0000-000000000001"),
    ),
    BinaryType(): (b"\x00\xff", b"\x01"),
    FixedType(2): (b"\x00\xff", b"\x01\x02"),
}
TIME = TimeType(), (dt.time(10, 0, 0, 500000), dt.time(0))


def columns(types: dict[IcebergType, tuple[Any, Any]] = DEFAULTS, *, required: bool = False) -> list[NestedField]:
    """Return a column of each type, named by its number from 0."""
    return [
        NestedField(
            FIRST_ID + number,
            f"c{number}",
            kind,
            required=required,
            initial_default=initial,
            write_default=written,
        )
        for number, (kind, (initial, written)) in enumerate(types.items())
    ]


def add_columns(sink: Sink, *fields: NestedField) -> None:
    """Add columns to the table."""
    set_columns(sink, *sink.table().schema().fields, *fields)


def row_of(number: int, which: int, types: dict[IcebergType, tuple[Any, Any]] = DEFAULTS) -> dict[str, Any]:
    """Return the row of an id whose columns have their initial (0) or write (1) defaults."""
    values = [pair[which] for pair in types.values()]
    return {"id": number, **{f"c{place}": value for place, value in enumerate(values)}}


def nested(field_id: int = 50) -> NestedField:
    """Return a struct with a field of a default each."""
    inside = NestedField(field_id + 1, "inside", LongType(), initial_default=5, write_default=6)
    return NestedField(field_id, "s", StructType(NestedField(field_id + 2, "first", LongType()), inside))
