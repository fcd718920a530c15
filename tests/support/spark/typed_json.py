"""Spark's values as JSON that keeps their types, and back; needs PySpark's types alone.

Null, booleans, numbers and strings are themselves (JSON of Python knows NaN and infinities, and writes floats
so that they come back bit by bit). Arrays are arrays. All else is an object whose only key says what it is.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import types as spark

Pairs = list[tuple[Any, Any]]


def encode(value: Any, data_type: spark.DataType) -> Any:
    """Return a value of `data_type` as JSON. Maps may be dictionaries or pairs; times without a zone are in UTC."""
    if value is None:
        return None
    match data_type:
        case spark.ArrayType():
            return [encode(item, data_type.elementType) for item in value]
        case spark.MapType():
            pairs = value.items() if isinstance(value, Mapping) else value
            return {"map": [[encode(key, data_type.keyType), encode(item, data_type.valueType)] for key, item in pairs]}
        case spark.StructType():
            return {"struct": {field.name: encode(value[field.name], field.dataType) for field in data_type}}
    coder = _CODERS.get(type(data_type))
    return value if coder is None else coder(value)


def decode(coded: Any, make_map: Callable[[Pairs], Any] = list) -> Any:
    """Return the value: structs as dictionaries, maps as `make_map` makes them of pairs, as Arrow has them."""
    if isinstance(coded, list):
        return [decode(item, make_map) for item in coded]
    if not isinstance(coded, dict):
        return coded
    ((kind, content),) = coded.items()
    match kind:
        case "map":
            return make_map([(decode(key, make_map), decode(item, make_map)) for key, item in content])
        case "struct":
            return {name: decode(item, make_map) for name, item in content.items()}
    return _DECODERS[kind](content)


def encode_rows(rows: Iterable[Any], schema: spark.StructType) -> list[list[Any]]:
    """Return rows, each a list of its columns."""
    return [[encode(row[field.name], field.dataType) for field in schema] for row in rows]


def _in_utc(moment: dt.datetime) -> dt.datetime:
    return moment.astimezone(dt.timezone.utc) if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)


_CODERS: dict[type[spark.DataType], Callable[[Any], Any]] = {
    spark.TimestampType: lambda moment: {"timestamp": _in_utc(moment).isoformat()},
    spark.TimestampNTZType: lambda moment: {"timestamp_ntz": moment.isoformat()},
    spark.DateType: lambda day: {"date": day.isoformat()},
    spark.DecimalType: lambda number: {"decimal": str(number)},
    spark.BinaryType: lambda content: {"binary": bytes(content).hex()},
}
_DECODERS: dict[str, Callable[[str], Any]] = {
    "timestamp": dt.datetime.fromisoformat,
    "timestamp_ntz": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "decimal": decimal.Decimal,
    "binary": bytes.fromhex,
}
