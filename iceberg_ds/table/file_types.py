"""Pure: whether columns of a file can be read as columns of the table without a loss: of one kind, or widened.

A cast of Arrow's would make a truth of each number, and a day of each time. Source: Iceberg spec, "Schema Evolution"
and "Parquet"; Arrow has more than one type for some of Parquet's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import pyarrow as pa
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
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_ds.table.nested_arrow import is_list
from iceberg_ds.table.projection import field_id


class Unlike(NamedTuple):
    """A column of the table that a file does not have as the table has it.

    Attributes:
        name: Its name, with those of the structs around it.
        wanted: Its type.
        found: The type in the file; None if the file lacks the column, which is required.
    """

    name: str
    wanted: IcebergType
    found: pa.DataType | None


def first_unlike(
    own: Iterable[pa.Field], wanted: Iterable[NestedField], filled: Collection[int] = (), above: str = ""
) -> Unlike | None:
    """Return a column, also in structs, that a file lacks or has as another type, or None if it has all as they are.

    Args:
        own: The columns of the file, with field ids.
        wanted: The columns of the table.
        filled: Ids of columns that have values though a file lacks them.
        above: What is put before names.
    """
    by_id = {field_id(field): field for field in own}
    for field in wanted:
        name, found = above + field.name, by_id.get(field.field_id)
        if found is None:
            if field.required and field.initial_default is None and field.field_id not in filled:
                return Unlike(name, field.field_type, None)
        elif unlike := _unlike_inside(found.type, field.field_type, name):
            return unlike
    return None


def _unlike_inside(found: pa.DataType, wanted: IcebergType, name: str) -> Unlike | None:
    if not is_readable(found, wanted):
        return Unlike(name, wanted, found)
    match wanted:
        case StructType():
            return first_unlike(list(found), wanted.fields, above=f"{name}.")
        case ListType():
            return _unlike_inside(found.value_type, wanted.element_type, f"{name}.element")
        case MapType():
            key = _unlike_inside(found.key_type, wanted.key_type, f"{name}.key")
            return key or _unlike_inside(found.item_type, wanted.value_type, f"{name}.value")
    return None


def is_readable(found: pa.DataType, wanted: IcebergType) -> bool:
    """Return whether values of a type of Arrow's are of a type of the table, or can be widened to it.

    What is inside structs, lists and maps is not looked at. Numbers of more bits and decimals of another scale are
    readable, too: their casts fail where a value does not fit.
    """
    if isinstance(found, pa.BaseExtensionType):
        found = found.storage_type
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return isinstance(wanted, PrimitiveType)
    kinds = _KINDS.get(type(wanted))
    return kinds is None or any(is_one(found) for is_one in kinds)


def _is_single(found: pa.DataType) -> bool:
    return bool(pa.types.is_floating(found) and found.bit_width <= 32)  # noqa: PLR2004  # bits of a float


_Kind = Callable[[pa.DataType], bool]
_INTEGERS: tuple[_Kind, ...] = (pa.types.is_integer, pa.types.is_duration)
_TIMES: tuple[_Kind, ...] = (pa.types.is_timestamp,)
_BYTES: tuple[_Kind, ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
# Of types that are not named here nothing is said.
_KINDS: dict[type[IcebergType], tuple[_Kind, ...]] = {
    BooleanType: (pa.types.is_boolean,),
    IntegerType: _INTEGERS,
    LongType: _INTEGERS,
    FloatType: (_is_single,),
    DoubleType: (pa.types.is_floating,),
    DecimalType: (pa.types.is_decimal,),
    DateType: (pa.types.is_date,),
    TimeType: (pa.types.is_time,),
    TimestampType: (*_TIMES, pa.types.is_date),
    TimestampNanoType: (*_TIMES, pa.types.is_date),
    TimestamptzType: _TIMES,
    TimestamptzNanoType: _TIMES,
    StringType: _BYTES,
    BinaryType: _BYTES,
    FixedType: _BYTES,
    UUIDType: _BYTES,
    StructType: (pa.types.is_struct,),
    ListType: (is_list,),
    MapType: (pa.types.is_map,),
}
