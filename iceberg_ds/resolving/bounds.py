"""Pure: whether a data file may have a row with one of the keys of a file of keys, by the metrics of both.

What metrics do not say may be. Source: Iceberg spec, "Scan Planning", and appendix D, "Binary single-value
serialization".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
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
        low=_bound((data_file.lower_bounds or {}).get(field_id), field_type),
        high=_bound((data_file.upper_bounds or {}).get(field_id), field_type),
        may_be_null=nulls != 0,
        is_all_null=nulls is not None and nulls == values and values > 0,
        may_be_nan=is_float and (data_file.nan_value_counts or {}).get(field_id) != 0,
    )


def may_share_rows(one: Sequence[ColumnFacts], other: Sequence[ColumnFacts]) -> bool:
    """Return whether a row of one file may be equal to one of another in all these columns."""
    return all(map(_may_share_value, one, other))


def _may_share_value(one: ColumnFacts, other: ColumnFacts) -> bool:
    if (one.may_be_null and other.may_be_null) or (one.may_be_nan and other.may_be_nan):
        return True
    if one.is_all_null or other.is_all_null:
        return False
    return not (_is_below(one, other) or _is_below(other, one))


def _is_below(one: ColumnFacts, other: ColumnFacts) -> bool:
    return one.high is not None and other.low is not None and bool(one.high < other.low)


def _bound(raw: bytes | None, field_type: IcebergType) -> Any:  # noqa: ANN401, PLR0911  # one return a type
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


class FactsOf:
    """The facts of files, worked out once for each file and set of columns.

    Args:
        types: The types of the columns, by field id.
    """

    def __init__(self, types: Mapping[int, IcebergType]) -> None:
        self._types = types
        self._known: dict[tuple[str, tuple[int, ...]], tuple[ColumnFacts, ...]] = {}

    def __call__(self, data_file: DataFile, field_ids: tuple[int, ...]) -> tuple[ColumnFacts, ...]:
        """Return the facts of these columns, in their order."""
        key = data_file.file_path, field_ids
        if key not in self._known:
            self._known[key] = tuple(facts_of(data_file, number, self._types[number]) for number in field_ids)
        return self._known[key]
