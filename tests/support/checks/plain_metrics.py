"""The metrics of a file, computed plainly from its rows: slow, short, and nothing shared with the package."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType

_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainColumn:
    """What the rows say of one leaf column.

    Attributes:
        values: All of its slots, None for a null there or above it, one for an empty list or map.
        field_type: Its Iceberg type.
        is_repeated: It lies inside a list or map.
    """

    values: tuple[Any, ...]
    field_type: PrimitiveType
    is_repeated: bool

    @property
    def value_count(self) -> int:
        """Return the number of slots."""
        return len(self.values)

    @property
    def null_count(self) -> int:
        """Return the number of nulls."""
        return sum(value is None for value in self.values)

    @property
    def nan_count(self) -> int:
        """Return the number of NaN."""
        return sum(is_nan(value) for value in self.values)

    @property
    def comparable(self) -> list[Any]:
        """Return the values that bounds have to hold, as manifests hold them."""
        return [physical(value) for value in self.values if value is not None and not is_nan(value)]


def is_nan(value: Any) -> bool:
    """Return whether the value is a NaN."""
    return isinstance(value, float) and math.isnan(value)


def physical(value: Any) -> Any:
    """Return dates as days and timestamps as microseconds since 1970."""
    match value:
        case dt.datetime():
            return (value.replace(tzinfo=value.tzinfo or dt.timezone.utc) - _EPOCH) // dt.timedelta(microseconds=1)
        case dt.date():
            return (value - _EPOCH_DAY).days
    return value


def plain_columns(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> dict[int, PlainColumn]:
    """Return what the rows say of every leaf column, by field id."""
    found: dict[int, PlainColumn] = {}
    for field in schema.fields:
        slots = [row[field.name] for row in rows]
        found.update(_leaves(field.field_id, field.field_type, slots, is_repeated=False))
    return found


def _leaves(
    field_id: int, field_type: IcebergType, slots: list[Any], *, is_repeated: bool
) -> Iterator[tuple[int, PlainColumn]]:
    match field_type:
        case StructType():
            for child in field_type.fields:
                inner = [None if slot is None else slot[child.name] for slot in slots]
                yield from _leaves(child.field_id, child.field_type, inner, is_repeated=is_repeated)
        case ListType():
            inner = [element for slot in slots for element in (slot or [None])]
            yield from _leaves(field_type.element_id, field_type.element_type, inner, is_repeated=True)
        case MapType():
            entries = [entry for slot in slots for entry in (_entries(slot) or [(None, None)])]
            keys, values = [key for key, _ in entries], [value for _, value in entries]
            yield from _leaves(field_type.key_id, field_type.key_type, keys, is_repeated=True)
            yield from _leaves(field_type.value_id, field_type.value_type, values, is_repeated=True)
        case PrimitiveType():
            column = PlainColumn(values=tuple(slots), field_type=field_type, is_repeated=is_repeated)
            yield field_id, column


def _entries(slot: Any) -> list[tuple[Any, Any]]:
    return list(slot.items() if isinstance(slot, dict) else slot or [])
