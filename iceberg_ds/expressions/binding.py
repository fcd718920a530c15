"""Pure: binds a predicate to a schema: names become columns and fields, operands get types that compare.

Types follow Spark's ANSI mode. A value is taken exactly or refused: never rounded, cut, or read in a time zone that was
not named, because a bound that is a little off would replace the wrong rows. Source: Spark's SQL reference, "ANSI
Compliance".
"""

from __future__ import annotations

import struct
from functools import reduce
from typing import cast as typing_cast

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from iceberg_ds.expressions.functions import arithmetic, call, cast, is_nan, negative, type_named
from iceberg_ds.expressions.literals import Zone, parsed
from iceberg_ds.expressions.nodes import (
    And,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    IsNull,
    IsTruth,
    Like,
    Not,
    OneOf,
    Or,
    SameOrBothNull,
    folded,
)
from iceberg_ds.expressions.parser import Call, CastTo, Name, Tree, Value
from iceberg_ds.expressions.types import (
    DATE,
    INSTANT,
    LOCAL,
    OPAQUE,
    TIME,
    IncomparableTypesError,
    arrow_type,
    as_decimal,
    common_type,
    is_decimal,
    is_integer,
    type_name,
)
from iceberg_ds.table.names import AmbiguousNameError, find_position

_TYPES = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": DATE,
    "timestamp": INSTANT,
    "timestamp_ltz": INSTANT,
    "timestamp_ntz": LOCAL,
    "time": TIME,
}
_TIMES = {"date", "timestamp", "timestamp_ltz", "timestamp_ntz", "time"}
_COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}
_OF_TRUTHS = {"and", "or", "not", "is unknown", "is true", "is false"}
_ARITHMETIC = {"+", "-", "*", "/", "%", "div"}


def typed_predicate(predicate: Tree, schema: Schema, *, case_sensitive: bool, time_zone: str | None) -> Expression:
    """Return `predicate` as an expression over the columns of `schema`: true, false or unknown for each row.

    Args:
        predicate: As `parser.parse_predicate` returns it.
        schema: The table's schema.
        case_sensitive: Whether names must match exactly; if not, an exact match wins over one that differs in case.
        time_zone: Time zone of times without a zone, or None if unknown.

    Raises:
        ValueError: A column is missing or ambiguous, or a value does not compare or cannot be computed exactly.
    """
    zone = None if time_zone is None else Zone(time_zone)
    typing = _Typing(schema, zone, case_sensitive=case_sensitive)
    try:
        return typing.truth(predicate, "the predicate")
    except (pa.ArrowException, ArithmeticError) as problem:
        raise ValueError(f"it has no value: {problem}") from problem


class _Typing:
    def __init__(self, schema: Schema, zone: Zone | None, *, case_sensitive: bool) -> None:
        self._schema = schema
        self._zone = zone
        self._case_sensitive = True if case_sensitive else None

    def truth(self, tree: Tree, what: str) -> Expression:
        """Return `tree` as an expression that is true, false or unknown for a row."""
        found = self._of(tree)
        if pa.types.is_null(found.type):
            return Constant(pa.scalar(None, pa.bool_()))
        if found.type != pa.bool_():
            name = f"column '{found.name}'" if isinstance(found, Column) else what
            raise ValueError(f"{name} is {type_name(found.type)}, which is neither true nor false: compare it")
        return found

    def _of(self, tree: Tree) -> Expression:
        match tree:
            case Name(parts=parts):
                return self._column(parts)
            case Value():
                return self._constant(tree)
            case CastTo(operand=operand, type_name=name):
                return cast(self._of(operand), type_named(name), self._zone)
        return self._of_call(tree)

    def _of_call(self, tree: Call) -> Expression:  # noqa: PLR0911  # one return a kind
        if tree.name in _OF_TRUTHS:
            return self._of_truths(tree.name, tree.operands)
        found = [self._of(operand) for operand in tree.operands]
        if tree.name in _COMPARISONS:
            return folded(Comparison(self._alike(found), tree.name))
        if tree.name in _ARITHMETIC:
            return arithmetic(tree.name, found[0], found[1])
        match tree.name:
            case "<=>":
                return folded(SameOrBothNull(self._alike(found)))
            case "is null":
                return folded(IsNull((found[0],)))
            case "is nan":
                return is_nan(found[0])
            case "in":
                return self._one_of(found)
            case "like":
                return self._like(*found)
            case "- of":
                return negative(found[0])
        return call(tree.name, found, self._zone)

    def _of_truths(self, name: str, operands: tuple[Tree, ...]) -> Expression:
        found = [self.truth(operand, f"what {name.upper()} is of") for operand in operands]
        match name:
            case "and" | "or":
                return _logical(And if name == "and" else Or, found)
            case "not":
                return folded(Not((found[0],)))
            case "is unknown":
                return folded(IsNull((found[0],)))
        return folded(IsTruth((found[0],), expected=name == "is true"))

    def _alike(self, found: list[Expression]) -> tuple[Expression, ...]:
        """Return the operands in the one type in which they are compared."""
        for one in found:
            if one.type == OPAQUE:
                name = one.name if isinstance(one, Column) else "it"
                raise ValueError(f"'{name}' is a struct, a list or a map, or of a type that compares with no value")
        has_decimals = any(is_decimal(one.type) for one in found)
        try:
            to = reduce(common_type, [_narrow(one) if has_decimals else one.type for one in found])
            return self._away_from_changes([cast(one, to, self._zone) for one in found])
        except ValueError as problem:
            raise ValueError(f"{_comparing(found)}: {problem}") from problem

    def _away_from_changes(self, alike: list[Expression]) -> tuple[Expression, ...]:
        """Return the operands; refuse a constant beside which Spark compares instants or clocks, as it optimizes."""
        if self._zone is None or not any(map(_reads_clocks, alike)):
            return tuple(alike)
        known = [one for one in alike if isinstance(one, Constant) and one.value.is_valid]
        for one in known:
            moment = typing_cast("Constant", cast(one, INSTANT, self._zone)).value.as_py()
            if self._zone.changes_near(moment):
                raise ValueError(
                    f"clocks in {self._zone.name} are changed near {one.value.as_py()}, where Spark takes times with "
                    "and without a zone for each other in more than one way: compare a column with a TIMESTAMP_NTZ if "
                    "it has no zone, and with a TIMESTAMP if it has one"
                )
        return tuple(alike)

    def _one_of(self, found: list[Expression]) -> Expression:
        left, *members = self._alike(found)
        if not all(isinstance(member, Constant) for member in members):
            return _logical(Or, [folded(Comparison((left, member), "=")) for member in members])
        values = [typing_cast("Constant", member).value for member in members]
        known = [pa.repeat(value, 1) for value in values if value.is_valid]
        array = pa.concat_arrays([pa.array([], left.type), *known])
        return folded(OneOf((left,), array, has_null=len(known) < len(values)))

    def _like(self, text: Expression, pattern: Expression, escape: Expression) -> Expression:
        if not (isinstance(pattern, Constant) and isinstance(escape, Constant)):
            raise IncomparableTypesError("LIKE is computed only with a pattern in quotes")
        if not pattern.value.is_valid or pa.types.is_null(text.type):
            return Constant(pa.scalar(None, pa.bool_()))
        if not (pa.types.is_string(text.type) and pa.types.is_string(pattern.type)):
            name = f"column '{text.name}'" if isinstance(text, Column) else "it"
            raise IncomparableTypesError(f"{name} is {type_name(text.type)}, and only texts can be like a pattern")
        return folded(_pattern(text, pattern.value.as_py(), escape.value.as_py()))

    def _constant(self, given: Value) -> Constant:
        value = given.value
        if given.kind in _TIMES:
            return Constant(parsed(str(value), _TYPES[given.kind], self._zone))
        if isinstance(value, float) and given.kind == "float":
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        if given.kind != "decimal":
            return Constant(pa.scalar(value, _TYPES[given.kind]))
        _, digits, exponent = value.as_tuple()  # type: ignore[union-attr]  # the kind says it
        scale = max(-int(exponent), 0)
        return Constant(pa.scalar(value, pa.decimal128(max(len(digits) + max(int(exponent), 0), scale), scale)))

    def _column(self, parts: tuple[str, ...]) -> Column:
        fields, path, names = self._schema.fields, [], []
        for depth, part in enumerate(parts):
            field = self._field(part, fields, parts, depth)
            path.append(fields.index(field))
            names.append(field.name)
            fields = field.field_type.fields if isinstance(field.field_type, StructType) else ()
        return Column(arrow_type(field.field_type), field.field_id, ".".join(names), tuple(path))

    def _field(self, name: str, fields: tuple[NestedField, ...], parts: tuple[str, ...], depth: int) -> NestedField:
        columns = [field.name for field in fields]
        try:
            position = find_position(name, columns, case_sensitive=self._case_sensitive)
        except AmbiguousNameError as problem:
            raise ValueError(f"{problem}: write it as the table does") from problem
        if position is not None:
            return fields[position]
        if depth and not fields:
            raise ValueError(f"'{'.'.join(parts[:depth])}' is no struct, and has no field '{name}'")
        if depth:
            raise ValueError(f"struct '{'.'.join(parts[:depth])}' has no field '{name}' (fields: {', '.join(columns)})")
        whole = ".".join(parts)
        hint = f"; write the column '{whole}' as `{whole}`" if len(parts) > 1 and whole in columns else ""
        raise ValueError(f"there is no column '{name}' (columns: {', '.join(columns)}){hint}")


def _narrow(one: Expression) -> pa.DataType:
    """Return the type; for a constant integer the decimal type with its number of digits, as decimals need it."""
    if is_integer(one.type) and isinstance(one, Constant) and one.value.is_valid:
        return as_decimal(one.type, len(str(abs(one.value.as_py()))))
    return one.type


def _reads_clocks(one: Expression) -> bool:
    """Return whether an operand is cast from a time without a zone to one with a zone, or back."""
    return isinstance(one, Function) and {one.type, one.operands[0].type} == {LOCAL, INSTANT}


def _comparing(found: list[Expression]) -> str:
    named = next((one for one in found if isinstance(one, Column)), None)
    return "it does not compare" if named is None else f"column '{named.name}' is {type_name(named.type)}"


def _logical(kind: type[And | Or], operands: list[Expression]) -> Expression:
    """Return AND or OR without the operands that decide nothing, or the one operand that decides it."""
    decisive = kind is Or
    kept = []
    for operand in operands:
        if isinstance(operand, Constant) and operand.value.is_valid:
            if operand.value.as_py() is decisive:
                return operand
            continue
        kept.append(operand)
    if not kept:
        return Constant(pa.scalar(not decisive))
    return folded(kind(tuple(kept))) if len(kept) > 1 else kept[0]


def _pattern(text: Expression, pattern: str, escape: str) -> Like:
    if len(escape) != 1:
        raise ValueError(f"{escape!r} is no single sign that LIKE could take for ESCAPE")
    pieces, wildcards = [""], ""
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            following = next(signs, "")
            if following not in ("%", "_", escape):
                raise ValueError(
                    f"pattern {pattern!r} has {escape} before something else than %, _ or {escape}: write it twice"
                )
            pieces[-1] += following
        elif sign in "%_":
            wildcards += sign
            pieces.append("")
        else:
            pieces[-1] += sign
    return Like((text,), tuple(pieces), wildcards)
