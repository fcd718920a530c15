"""New values of columns from expressions in Spark's SQL: what each must be named, and how it becomes the column's type.

Values are converted as Spark's `UPDATE` does by its default (ANSI store assignment), with any setting of the session: a
value that does not fit its column fails the operation, and never becomes null or another number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.types import NestedField, StructType
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from pyspark.sql import types as spark

from iceberg_ds.errors import OptionError
from iceberg_ds.spark.sql_text import expression, refusing_sql
from iceberg_ds.table.names import find_position, levels_of
from iceberg_ds.table.spark_types import is_nested, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Numbers and times, each with the types that hold its values: fractions as near as they can, times in the session's
# time zone.
_WIDER: Mapping[type[spark.DataType], tuple[type[spark.DataType], ...]] = {
    spark.ByteType: (spark.ShortType, spark.IntegerType, spark.LongType, spark.FloatType, spark.DoubleType),
    spark.ShortType: (spark.IntegerType, spark.LongType, spark.FloatType, spark.DoubleType),
    spark.IntegerType: (spark.LongType, spark.FloatType, spark.DoubleType),
    spark.LongType: (spark.FloatType, spark.DoubleType),
    spark.FloatType: (spark.DoubleType,),
    spark.DateType: (spark.TimestampType, spark.TimestampNTZType),
    spark.TimestampNTZType: (spark.TimestampType,),
    spark.TimestampType: (spark.TimestampNTZType,),
}
_DIGITS: Mapping[type[spark.DataType], int] = {
    spark.ByteType: 3,
    spark.ShortType: 5,
    spark.IntegerType: 10,
    spark.LongType: 20,
}


class Assignments:
    """New values of some columns of a table.

    Args:
        action: What is being done, such as `update db.t`, for errors.
        fields: The columns of the table.
        given: Expressions by the name of the column, or of the field of a struct as `a.b`.
        case_sensitive: How names are matched, as in `find_position`.

    Raises:
        OptionError: A name is none of a column, or two name one.
    """

    def __init__(
        self, action: str, fields: Sequence[NestedField], given: Mapping[str, str], *, case_sensitive: bool | None
    ) -> None:
        self._action = action
        self._fields = fields
        self._given: dict[tuple[int, ...], str] = {}
        for name, text in given.items():
            path = self._path(name, case_sensitive=case_sensitive)
            if clash := [other for other in self._given if other[: len(path)] == path or path[: len(other)] == other]:
                raise OptionError(f"Cannot {action}: '{name}' is set twice, also by {self._given[clash[0]]!r}.")
            if not isinstance(text, str):
                raise OptionError(
                    f"Cannot {action}: '{name}' is set to {text!r}, expected an expression in Spark's SQL, such as "
                    "'NULL'."
                )
            self._given[path] = text

    @property
    def expressions(self) -> list[str]:
        """The expressions."""
        return list(self._given.values())

    def values(self, rows: DataFrame, old: Mapping[int, Column]) -> list[Column]:
        """Return the value of each column of the table, in order.

        Args:
            rows: What expressions may name.
            old: The old value of each column, by field id; null where it has none.

        Raises:
            OptionError: An expression is wrong, or its type does not fit its column.
        """
        kinds = types_of(self._action, rows, self.expressions)
        return [self._value((field.field_id,), field, old[field.field_id], kinds) for field in self._fields]

    def _path(self, name: str, *, case_sensitive: bool | None) -> tuple[int, ...]:
        """Return the field ids on the way to a column, or to a field of one."""
        fields, path = self._fields, list[int]()
        try:
            for level in [name] if name in {field.name for field in fields} else levels_of(name):
                field = _named(level, fields, case_sensitive=case_sensitive)
                path.append(field.field_id)
                fields = field.field_type.fields if isinstance(field.field_type, StructType) else ()
        except ValueError as problem:
            raise OptionError(f"Cannot {self._action}: '{name}' is no column that can be set: {problem}.") from problem
        return tuple(path)

    def _value(
        self, path: tuple[int, ...], field: NestedField, old: Column, kinds: Mapping[str, spark.DataType]
    ) -> Column:
        text = self._given.get(path)
        if text is not None:
            return converted(self._action, field, text, kinds[text])
        if not any(other[: len(path)] == path for other in self._given):
            return old
        assert isinstance(field.field_type, StructType)  # noqa: S101  # as `_path` walks
        parts = [
            self._value((*path, inner.field_id), inner, old.getField(inner.name), kinds).alias(inner.name)
            for inner in field.field_type.fields
        ]
        return F.struct(*parts)


def _named(name: str, fields: Sequence[NestedField], *, case_sensitive: bool | None) -> NestedField:
    names = [field.name for field in fields]
    place = find_position(name, names, case_sensitive=case_sensitive)
    if place is None:
        raise ValueError(f"there is no '{name}' (there are: {', '.join(names) or 'none'})")
    return fields[place]


def types_of(action: str, rows: DataFrame, expressions: Sequence[str]) -> dict[str, spark.DataType]:
    """Return the type of each expression.

    Args:
        action: What is being done, for errors.
        rows: What expressions may name.
        expressions: Their texts.

    Raises:
        OptionError: One of them is wrong.
    """
    found: dict[str, spark.DataType] = {}
    for text in dict.fromkeys(expressions):
        with refusing_sql(text, f"Cannot {action}: expression {text!r} has no value here"):
            # Within an array Spark refuses what makes several rows of one, such as `explode`.
            inside = rows.select(F.array(expression(text)).alias("values")).schema["values"].dataType
            assert isinstance(inside, spark.ArrayType)  # noqa: S101  # as asked for
            found[text] = inside.elementType
    return found


def converted(action: str, field: NestedField, text: str, found: spark.DataType) -> Column:
    """Return the value of an expression in the type of its column.

    Args:
        action: What is being done, for errors.
        field: The column, or the field of a struct.
        text: The expression.
        found: Its type.

    Raises:
        OptionError: Values of this type are not stored in such a column.
    """
    wanted, value = spark_type(field.field_type), expression(text)
    if found.simpleString() == wanted.simpleString():  # which leaves out whether values may be null
        return value
    if _holds(wanted, found):
        return value.cast(wanted)
    if isinstance(found, spark.NumericType) and isinstance(wanted, spark.NumericType):
        failing = F.raise_error(F.lit(f"Cannot {action}: a value of {text!r} does not fit column '{field.name}'"))

        def fitting(one: Column) -> Column:
            narrow = one.try_cast(wanted)
            return F.when(one.isNull() | narrow.isNotNull(), narrow).otherwise(failing.cast(wanted))

        # Within an array each value is computed once, also one that differs each time.
        return F.get(F.transform(F.array(value), fitting), 0)
    raise OptionError(
        f"Cannot {action}: column '{field.name}' is {wanted.simpleString()}, and {text!r} is {found.simpleString()}, "
        f"which is not stored in it without being asked. {_next_step(wanted, text, found)}."
    )


def _next_step(wanted: spark.DataType, text: str, found: spark.DataType) -> str:
    if isinstance(wanted, spark.NullType):
        return "It has no type yet: a write of such values with schema-evolution=full gives it theirs"
    if isinstance(wanted, spark.VariantType):
        return f"Write the cast: {'to_variant_object' if is_nested(found) else 'parse_json'}({text})"
    return f"Write the cast: cast({text} as {wanted.simpleString()})"


def _holds(wanted: spark.DataType, found: spark.DataType) -> bool:
    """Return whether a type holds all values of another one, so that a cast loses and refuses none."""
    if isinstance(found, spark.NullType):
        return True
    if isinstance(wanted, spark.StringType):
        return isinstance(found, spark.AtomicType) and not isinstance(found, spark.BinaryType)
    if isinstance(wanted, spark.DecimalType):
        digits, scale = _digits(found)
        return wanted.precision - wanted.scale >= digits and wanted.scale >= scale
    inner, given = _parts(wanted), _parts(found)
    if inner and type(wanted) is type(found):  # a cast of structs goes by position
        return list(inner) == list(given) and all(_is_alike(inner[name], given[name]) for name in inner)
    return isinstance(wanted, _WIDER.get(type(found), ()))


def _digits(kind: spark.DataType) -> tuple[float, int]:
    """Return the digits of a number before and after its point; infinitely many for what is no exact number."""
    if isinstance(kind, spark.DecimalType):
        return kind.precision - kind.scale, kind.scale
    return _DIGITS.get(type(kind), math.inf), 0


def _parts(kind: spark.DataType) -> dict[str, spark.DataType]:
    """Return the types within a type, in order, by their names in lower case; none within a simple one."""
    match kind:
        case spark.StructType():
            return {field.name.lower(): field.dataType for field in kind}
        case spark.ArrayType():
            return {"element": kind.elementType}
        case spark.MapType():
            return {"key": kind.keyType, "value": kind.valueType}
    return {}


def _is_alike(wanted: spark.DataType, found: spark.DataType) -> bool:
    return found.simpleString() == wanted.simpleString() or _holds(wanted, found)
