"""Pure: filters that Spark pushes down to a Python data source, as a predicate by which files are passed over.

Spark looks at all rows again, so what is not understood here is left out of the predicate. Source:
`pyspark.sql.datasource.Filter`, of Spark 4.1 and newer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.types import TimeType, UUIDType

from iceberg_ds.expressions.parser import Call, Name, Tree, Value

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_COMPARISONS: Mapping[str, str] = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
}
# In this order: a bool is an int, and a time a date.
_KINDS: Mapping[type, str] = {
    bool: "boolean",
    int: "int",
    Decimal: "decimal",
    str: "string",
    datetime: "timestamp",
    date: "date",
}
_INT_MAX = 2**31 - 1
_ESCAPE = "\\"


def predicate_of(filters: Iterable[Filter], schema: Schema) -> Tree | None:
    """Return what all of some filters ask for, as far as it can be told; None if nothing can.

    Args:
        filters: The filters.
        schema: The columns that they name.
    """
    found = tuple(tree for one in filters if (tree := _tree(one, schema)) is not None)
    return Call("and", found) if len(found) > 1 else next(iter(found), None)


def _tree(one: Any, schema: Schema) -> Tree | None:  # noqa: ANN401  # Spark 4.0 has no such classes
    kind = type(one).__name__
    if kind in {"Not", "IsNotNull"}:
        child = _tree(one.child, schema) if kind == "Not" else _is_null(one, schema)
        return None if child is None else Call("not", (child,))
    if kind == "IsNull":
        return _is_null(one, schema)
    if kind not in _COMPARISONS and kind != "StringStartsWith":
        return None
    name, values = _name(one.attribute, schema), _values(one.value if kind == "In" else [one.value])
    if name is None or not values:
        return None
    if kind == "StringStartsWith":
        beginning = "".join(_ESCAPE + sign if sign in {"%", "_", _ESCAPE} else sign for sign in one.value)
        return Call("like", (name, Value("string", f"{beginning}%"), Value("string", _ESCAPE)))
    return Call(_COMPARISONS[kind], (name, *values))


def _is_null(one: Any, schema: Schema) -> Tree | None:  # noqa: ANN401  # as above
    name = _name(one.attribute, schema)
    return None if name is None else Call("is null", (name,))


def _name(parts: tuple[str, ...], schema: Schema) -> Name | None:
    """Return the name of a column, or of a field of a struct; None for one that Spark has as a text and we have not."""
    try:
        field = schema.find_field(".".join(parts))
    except ValueError:
        return None
    return None if isinstance(field.field_type, TimeType | UUIDType) else Name(parts)


def _values(values: Iterable[object]) -> tuple[Value, ...]:
    """Return literals; none if one is not compared here, such as null, a float or bytes."""
    found = [_value(value) for value in values]
    return tuple(each for each in found if each is not None) if None not in found else ()


def _value(value: Any) -> Value | None:  # noqa: ANN401  # as above
    kind = next((kind for types, kind in _KINDS.items() if isinstance(value, types)), None)
    match kind:
        case None:
            return None
        case "int" if abs(value) > _INT_MAX:
            return Value("bigint", value)
        case "timestamp":
            return Value("timestamp_ntz" if value.tzinfo is None else kind, value.isoformat(" "))
        case "date":
            return Value(kind, value.isoformat())
    return Value(kind, value)
