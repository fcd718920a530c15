"""Pure: a predicate held against a schema: whole columns under their exact names, values of just their types.

A value is taken for what it says or refused, never rounded, cut or read in a time zone that it does not name: a bound
that is a little off would replace other rows than those that were asked for. The one exception are floats, whose
nearest value is taken, as everywhere. Source: Iceberg spec, "Primitive Types".
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    LiteralPredicate,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnaryPredicate,
)
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FixedLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimeLiteral,
    TimestampLiteral,
    UUIDLiteral,
)
from pyiceberg.schema import Schema
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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from iceberg_ds.schemas.names import AmbiguousNameError, find_position

# Holds all digits of any decimal column, and refuses to round.
_EXACT = Context(prec=76, traps=[Inexact, InvalidOperation])


def typed_predicate(predicate: BooleanExpression, schema: Schema, *, case_sensitive: bool) -> BooleanExpression:
    """Return `predicate` with the exact names of `schema`, and with values of the types of its columns.

    Args:
        predicate: As `predicates.parse_predicate` gives it.
        schema: The table's schema.
        case_sensitive: Whether names must be equal; else one that is equal comes before one that differs in case.

    Raises:
        ValueError: A column is missing, ambiguous or within a struct, or does not compare with its value.
    """
    return _Typing(schema, case_sensitive=case_sensitive).of(predicate)


class _Typing:
    def __init__(self, schema: Schema, *, case_sensitive: bool) -> None:
        self._schema = schema
        self._case_sensitive = True if case_sensitive else None

    def of(self, expression: BooleanExpression) -> BooleanExpression:
        """Return the expression in terms of the schema."""
        if isinstance(expression, And | Or):
            return type(expression)(self.of(expression.left), self.of(expression.right))
        if not isinstance(expression, UnaryPredicate | LiteralPredicate | SetPredicate):
            return expression
        field = self._field(str(getattr(expression.term, "name", "")))
        column, kind = Reference(field.name), type(expression)
        if isinstance(expression, UnaryPredicate):
            return kind(term=column)
        if isinstance(expression, SetPredicate):
            return kind(term=column, literals={_literal(value, field) for value in expression.literals})
        if isinstance(expression, StartsWith | NotStartsWith):
            _check_string(field)
        return kind(term=column, value=_literal(expression.literal, field))

    def _field(self, name: str) -> NestedField:
        columns = [field.name for field in self._schema.fields]
        try:
            position = find_position(name, columns, case_sensitive=self._case_sensitive)
        except AmbiguousNameError as problem:
            raise ValueError(f"{problem}: write it as the table does") from problem
        if position is not None:
            return self._schema.fields[position]
        nested = {other.lower() for other in self._schema.column_names if other not in columns}
        if name.lower() in nested:
            raise ValueError(f"'{name}' lies within a struct, and only whole columns can be compared")
        raise ValueError(f"there is no column '{name}' (columns: {', '.join(columns)})")


def _check_string(field: NestedField) -> None:
    is_string = isinstance(field.field_type, StringType)
    if not is_string:
        raise ValueError(f"column '{field.name}' is {field.field_type}, and only strings can be like a pattern")


def _literal(given: Literal[Any], field: NestedField) -> Literal[Any]:
    """Return the value as one of the field's type."""
    field_type, value = field.field_type, given.value
    if type(field_type) not in _CONVERSIONS:
        raise ValueError(f"column '{field.name}' is {field_type}, which compares with no value, only with IS NULL")
    convert, expected = _CONVERSIONS[type(field_type)]
    try:
        return convert(value, field_type)
    except (ValueError, TypeError, ArithmeticError) as problem:
        raise ValueError(
            f"column '{field.name}' is {field_type} and does not compare with {_sql(value)}: expected {expected}"
        ) from problem


def _sql(value: object) -> str:
    """Return the value as it is written in a predicate."""
    match value:
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
    return str(value).upper()


def _boolean(value: object, _: IcebergType) -> Literal[Any]:
    if not isinstance(value, bool):
        raise TypeError
    return BooleanLiteral(value)


def _integer(value: object, _: IcebergType) -> Literal[Any]:
    return LongLiteral(_whole(value, IntegerType.min, IntegerType.max))


def _long(value: object, _: IcebergType) -> Literal[Any]:
    return LongLiteral(_whole(value, LongType.min, LongType.max))


def _float(value: object, _: IcebergType) -> Literal[Any]:
    (nearest,) = struct.unpack("<f", struct.pack("<f", float(_number(value))))
    return FloatLiteral(nearest + 0.0)  # no zero has a sign


def _double(value: object, _: IcebergType) -> Literal[Any]:
    number = float(_number(value))
    if math.isinf(number):
        raise OverflowError
    return DoubleLiteral(number + 0.0)


def _decimal(value: object, field_type: IcebergType) -> Literal[Any]:
    number = _number(value)
    if not isinstance(field_type, DecimalType) or number.adjusted() >= field_type.precision - field_type.scale:
        raise OverflowError
    exact = number.quantize(Decimal((0, (1,), -field_type.scale)), context=_EXACT)
    return DecimalLiteral(exact)


def _whole(value: object, lowest: int, highest: int) -> int:
    number = _number(value)
    if number != number.to_integral_value() or not lowest <= number <= highest:
        raise ValueError
    return int(number)


def _number(value: object) -> Decimal:
    """Return the number; one in quotes counts, as in Spark."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise TypeError
    number = Decimal(value)
    if not number.is_finite():
        raise InvalidOperation
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _string(value: object, _: IcebergType) -> Literal[Any]:
    return StringLiteral(_text(value))


def _date(value: object, _: IcebergType) -> Literal[Any]:
    return DateLiteral(date_to_days(date.fromisoformat(_text(value))))


def _moment(value: object) -> str:
    """Return the text of a time, which has no more digits than the six that are read."""
    if re.search(r"[.,]\d{7}", _text(value)):
        raise ValueError
    return re.sub("[zZ]$", "+00:00", _text(value))  # Python 3.10 does not know Z


def _time(value: object, _: IcebergType) -> Literal[Any]:
    found = time.fromisoformat(_moment(value))
    if found.tzinfo is not None:
        raise ValueError
    return TimeLiteral(time_to_micros(found))


def _timestamp(value: object, _: IcebergType) -> Literal[Any]:
    found = datetime.fromisoformat(_moment(value))
    if found.tzinfo is not None:
        raise ValueError
    return TimestampLiteral(datetime_to_micros(found))


def _timestamptz(value: object, _: IcebergType) -> Literal[Any]:
    found = datetime.fromisoformat(_moment(value))
    if found.tzinfo is None:
        raise ValueError
    return TimestampLiteral(datetime_to_micros(found))


def _uuid(value: object, _: IcebergType) -> Literal[Any]:
    return UUIDLiteral(UUID(_text(value)).bytes)


def _binary(value: object, _: IcebergType) -> Literal[Any]:
    if not isinstance(value, bytes):
        raise TypeError
    return BinaryLiteral(value)


def _fixed(value: object, field_type: IcebergType) -> Literal[Any]:
    if not isinstance(value, bytes) or not isinstance(field_type, FixedType) or len(value) != len(field_type):
        raise ValueError
    return FixedLiteral(value)


_ANY_NUMBER = "a number in the column's range"
# How to make a value of each type, and what to say where it cannot be made.
_CONVERSIONS: dict[type[IcebergType], tuple[Callable[[object, IcebergType], Literal[Any]], str]] = {
    BooleanType: (_boolean, "TRUE or FALSE"),
    IntegerType: (_integer, "a whole number in the column's range"),
    LongType: (_long, "a whole number in the column's range"),
    FloatType: (_float, _ANY_NUMBER),
    DoubleType: (_double, _ANY_NUMBER),
    DecimalType: (_decimal, "a number that the column can hold without rounding"),
    StringType: (_string, "a text in quotes"),
    DateType: (_date, "a date such as '2026-11-01'"),
    TimeType: (_time, "a time such as '12:30:00'"),
    TimestampType: (_timestamp, "a timestamp without zone such as '2026-11-01 12:30:00'"),
    TimestamptzType: (_timestamptz, "a timestamp with its zone such as '2026-11-01 12:30:00+00:00'"),
    UUIDType: (_uuid, "a UUID such as '0b9f2c1e-1111-4222-8333-444455556666'"),
    BinaryType: (_binary, "bytes such as X'0aff'"),
    FixedType: (_fixed, "as many bytes as the column has, such as X'0aff'"),
}
