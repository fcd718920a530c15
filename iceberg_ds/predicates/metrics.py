"""Pure: what the metrics of a data file say of its columns.

What they do not say is not known. Source: Iceberg spec, appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile
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
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """What the metrics of a file say of one column.

    Attributes:
        low: No value is lower, None if that is not known.
        high: No value is higher, None if that is not known.
        may_be_null: Whether there may be a null.
        is_all_null: Whether there is nothing else.
        may_be_nan: Whether there may be a NaN, which lies within no bounds.
    """

    low: Any = None
    high: Any = None
    may_be_null: bool = True
    is_all_null: bool = False
    may_be_nan: bool = False


def facts_of(data_file: DataFile, field_id: int, field_type: IcebergType) -> ColumnFacts:
    """Return what the metrics of a file say of the column with this id, whose type in the table is `field_type`."""
    nulls = (data_file.null_value_counts or {}).get(field_id)
    values = (data_file.value_counts or {}).get(field_id)
    is_float = isinstance(field_type, FloatType | DoubleType)
    return ColumnFacts(
        low=bound_value((data_file.lower_bounds or {}).get(field_id), field_type),
        high=bound_value((data_file.upper_bounds or {}).get(field_id), field_type),
        may_be_null=nulls != 0,
        is_all_null=nulls is not None and nulls == values and values > 0,
        may_be_nan=is_float and (data_file.nan_value_counts or {}).get(field_id) != 0,
    )


def bound_value(raw: bytes | None, field_type: IcebergType) -> Any:  # noqa: ANN401, PLR0911  # one return a type
    """Return a bound as what compares with others of the column, None if there is none.

    A column may have been widened since the file was written, so the width of numbers is that of the bytes.
    """
    if not raw:
        return None if not isinstance(field_type, StringType | BinaryType) else raw
    match field_type:
        case IntegerType() | LongType() | DateType() | TimeType() | TimestampType() | TimestamptzType():
            return int.from_bytes(raw, "little", signed=True)
        case BooleanType():
            return raw != b"\x00"
        case DecimalType():
            return int.from_bytes(raw, "big", signed=True)
        case FloatType() | DoubleType():
            (number,) = struct.unpack("<f" if len(raw) == _FLOAT_BYTES else "<d", raw)
            return None if number != number else number  # noqa: PLR0124  # NaN bounds nothing
        case StringType() | BinaryType() | FixedType():
            return raw
    return None  # of UUIDs writers do not agree on the order
