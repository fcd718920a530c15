"""Values of each primitive type, and how Python orders them as the spec does."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

from hypothesis import strategies as st
from pyiceberg import types as ice

UTC = dt.timezone.utc
MOMENTS = st.datetimes(min_value=dt.datetime(1900, 1, 1), max_value=dt.datetime(2100, 1, 1))  # noqa: DTZ001
CENTS = decimal.Decimal("0.01")

# Few values of each type, so that many rows are equal, and any others.
VALUES: dict[str, tuple[ice.PrimitiveType, st.SearchStrategy[Any]]] = {
    "boolean": (ice.BooleanType(), st.booleans()),
    "int": (ice.IntegerType(), st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)),
    "long": (ice.LongType(), st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)),
    "float": (ice.FloatType(), st.sampled_from([0.0, -0.0, math.nan, -math.nan]) | st.floats(width=32)),
    "double": (ice.DoubleType(), st.sampled_from([0.0, -0.0, math.nan, -math.nan]) | st.floats()),
    "decimal": (ice.DecimalType(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda cents: cents * CENTS)),
    "date": (ice.DateType(), MOMENTS.map(lambda moment: moment.date())),
    "time": (ice.TimeType(), st.times()),
    "timestamp": (ice.TimestampType(), MOMENTS),
    "timestamptz": (ice.TimestamptzType(), MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
    "string": (ice.StringType(), st.text(alphabet="ab\uffff\U0001f600é", max_size=4)),
    "binary": (ice.BinaryType(), st.binary(max_size=4)),
    "fixed": (ice.FixedType(4), st.binary(min_size=4, max_size=4)),
    "uuid": (ice.UUIDType(), st.uuids()),
}


def comparable(value: Any) -> Any:
    """Return what Python orders as the spec orders `value`."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value) * (value == 0))
    if isinstance(value, str):
        return value.encode()
    return value


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with UUIDs as Arrow takes them."""
    return {name: value.bytes if hasattr(value, "bytes") else value for name, value in row.items()}
