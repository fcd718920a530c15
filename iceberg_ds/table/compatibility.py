"""Pure: every difference between a DataFrame's schema and a table's, found in one walk over both, and its error.

What may be done about a difference is decided elsewhere. Columns are matched by name, as the tasks match them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType
from pyspark.sql import types as spark

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.plan import ERRORS
from iceberg_ds.table.names import AmbiguousNameError, find_position, find_positions
from iceberg_ds.table.nested_fields import children
from iceberg_ds.table.spark_types import (
    UnsupportedTypeError,
    bullets,
    convert_type,
    converter,
    is_lossless,
    is_writable,
    next_step,
    spark_name,
)

# Parent id of a column of the table itself; the parent of a struct's field is the field that holds the struct.
ROOT_ID = -1


class Kind(Enum):
    """How a DataFrame differs from a table."""

    ADD = auto()  # the DataFrame has a field that the table lacks
    WIDEN = auto()  # the DataFrame's type is wider than the table's
    RELAX = auto()  # nullable in the DataFrame, required in the table
    MISSING = auto()  # the table has a field that the DataFrame lacks, and rows without it can be written
    MISSING_REQUIRED = auto()  # the same, and the field is required and has no write default
    INCOMPATIBLE = auto()  # no value of the DataFrame's type fits the table's
    UNFIT = auto()  # a name or a type that no table could take
    ORDER = auto()  # the columns come in another order


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between a DataFrame and a table.

    Attributes:
        kind: How the two differ.
        path: Names that lead to it, joined by dots.
        text: A sentence for the user, with both types and what to do.
        parent_id: Id of the field that holds the struct in which it stands, `ROOT_ID` for the table itself.
        field_id: Id of the table's field: for INCOMPATIBLE the nearest named one; unset for ADD, UNFIT and ORDER.
        column: The DataFrame's column: the one to add, or the nearest named one around an incompatible type.
        widened: The DataFrame's type, for WIDEN.
    """

    kind: Kind
    path: str
    text: str
    parent_id: int = ROOT_ID
    field_id: int = ROOT_ID
    column: spark.StructField | None = None
    widened: IcebergType | None = None

    @property
    def is_nested(self) -> bool:
        """Whether it lies inside a column."""
        return self.parent_id != ROOT_ID


def find_differences(
    dataframe: spark.StructType,
    table: Schema,
    *,
    case_sensitive: bool | None = None,
    check_ordering: bool = False,
    format_version: int = 2,
) -> tuple[Difference, ...]:
    """Return every difference between `dataframe` and `table`, at any depth, in the DataFrame's order.

    Args:
        dataframe: The DataFrame's schema.
        table: The table's schema.
        case_sensitive: How names are matched, see `names.find_position`.
        check_ordering: Whether another order of columns is a difference.
        format_version: That of the table: from 3 on a column without a type is of type `unknown`.
    """
    walk = _Walk(case_sensitive=case_sensitive, check_ordering=check_ordering, format_version=format_version)
    return tuple(walk.struct(dataframe, table.fields, "", ROOT_ID))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    """The nearest field with a name around a type: `path` leads to it, `parent_id` to its struct."""

    path: str
    parent_id: int
    field: NestedField
    column: spark.StructField


class _Walk:
    """A walk over both schemas at once."""

    def __init__(self, *, case_sensitive: bool | None, check_ordering: bool, format_version: int) -> None:
        self._case_sensitive = case_sensitive
        self._check_ordering = check_ordering
        self._convert_column = converter(format_version)

    def struct(
        self, given: spark.StructType, fields: Sequence[NestedField], path: str, parent_id: int
    ) -> Iterator[Difference]:
        """Yield the differences between two structs; `parent_id` is the field that holds the table's."""
        matched: list[tuple[spark.StructField, NestedField]] = []
        for column, position in zip(given, self._positions(given, fields, path), strict=True):
            at = join_path(path, column.name)
            if isinstance(position, str):
                yield Difference(kind=Kind.UNFIT, path=at, text=position, parent_id=parent_id)
            elif position is None:
                yield self._added(column, at, parent_id)
            else:
                field = fields[position]
                matched.append((column, field))
                yield from self._field(_Holder(path=at, parent_id=parent_id, field=field, column=column))
        found = {field.field_id for _, field in matched}
        for field in fields:
            if field.field_id not in found:
                yield _missing(field, join_path(path, field.name), parent_id)
        if self._check_ordering:
            yield from _out_of_order(matched, fields, path, parent_id)

    def _positions(self, given: spark.StructType, fields: Sequence[NestedField], path: str) -> list[int | str | None]:
        """Return for each column the position of its field, None if it has no field, or what is wrong with its name."""
        names = [field.name for field in fields]
        within = f" in '{path}'" if path else ""
        try:
            positions: list[int | str | None] = [
                *find_positions(given.names, names, case_sensitive=self._case_sensitive)
            ]
        except AmbiguousNameError:
            positions = [self._position(name, names) for name in given.names]
        seen: dict[str, str] = {}
        for number, name in enumerate(given.names):
            folded = name if self._case_sensitive else name.lower()
            if not name:
                positions[number] = f"a column{within} has no name: name it"
            elif folded in seen:
                same = f"'{join_path(path, seen[folded])}' and '{join_path(path, name)}'"
                positions[number] = f"columns {same} have the same name: rename one"
            seen.setdefault(folded, name)
        return positions

    def _position(self, name: str, names: Sequence[str]) -> int | str | None:
        try:
            return find_position(name, names, case_sensitive=self._case_sensitive)
        except AmbiguousNameError as ambiguous:
            return f"column {ambiguous} of the table: give it that one's name"

    def _added(self, column: spark.StructField, path: str, parent_id: int) -> Difference:
        convert = self._convert_column if parent_id == ROOT_ID else convert_type
        try:
            convert(column.dataType, itertools.count(1), case_sensitive=self._case_sensitive)
        except UnsupportedTypeError as unsupported:
            text = f"column '{path}' is not in the table and holds {unsupported}"
            return Difference(kind=Kind.UNFIT, path=path, text=text, parent_id=parent_id)
        what, mode = ("column", "add-columns") if parent_id == ROOT_ID else ("field", "full")
        return Difference(
            kind=Kind.ADD,
            path=path,
            text=f"{what} '{path}' {column.dataType.simpleString()} is not in the table: drop it from the DataFrame, "
            f"or add it to the table, for example with schema-evolution={mode}",
            parent_id=parent_id,
            column=column,
        )

    def _field(self, holder: _Holder) -> Iterator[Difference]:
        if holder.column.nullable and holder.field.required:
            yield _relaxed(holder.field.field_id, holder.path, holder.parent_id)
        yield from self._type(holder.column.dataType, holder.field, holder.path, holder)

    def _type(self, given: spark.DataType, target: NestedField, path: str, holder: _Holder) -> Iterator[Difference]:
        """Yield the differences between `given` and the type of `target`, which lies at `path` in `holder`."""
        match given, target.field_type:
            case spark.StructType(), StructType(fields=fields):
                yield from self.struct(given, fields, path, target.field_id)
            case spark.ArrayType(), ListType(element_field=element):
                if given.containsNull and element.required:
                    yield _relaxed(element.field_id, f"{path}.element", target.field_id)
                yield from self._type(given.elementType, element, f"{path}.element", holder)
            case spark.MapType(), MapType(key_field=key, value_field=value):
                for difference in self._type(given.keyType, key, f"{path}.key", holder):
                    yield from _in_key(difference, holder)
                if given.valueContainsNull and value.required:
                    yield _relaxed(value.field_id, f"{path}.value", target.field_id)
                yield from self._type(given.valueType, value, f"{path}.value", holder)
            case _ if not is_writable(given, target.field_type):
                yield self._unwritable(given, target, path, holder)

    def _unwritable(self, given: spark.DataType, target: NestedField, path: str, holder: _Holder) -> Difference:
        try:
            source = convert_type(given, itertools.count(1), case_sensitive=self._case_sensitive)
        except UnsupportedTypeError as unsupported:
            text = f"column '{path}' holds {unsupported}"
            return Difference(kind=Kind.UNFIT, path=path, text=text, parent_id=holder.parent_id)
        text = (
            f"column '{path}' is {given.simpleString()} in the DataFrame and {spark_name(target.field_type)} in the "
            f"table: {next_step(source, target.field_type)}"
        )
        if is_lossless(target.field_type, source):
            return Difference(
                kind=Kind.WIDEN,
                path=path,
                text=f"{text}, or widen the table's, for example with schema-evolution=full",
                parent_id=holder.parent_id,
                field_id=target.field_id,
                widened=source,
            )
        return _incompatible(text, path, holder)


def join_path(path: str, name: str) -> str:
    """Return the path of the field `name` in the struct at `path`, which is empty for the table itself."""
    return f"{path}.{name}" if path else name


def _missing(field: NestedField, path: str, parent_id: int) -> Difference:
    what = f"{'column' if parent_id == ROOT_ID else 'field'} '{path}' {spark_name(field.field_type)}"
    is_needed = field.required and field.write_default is None
    if is_needed:
        text = (
            f"{what} is required in the table and missing in the DataFrame: add it, "
            "or make it optional in the table, for example with schema-evolution=full"
        )
    else:
        text = f"{what} is missing in the DataFrame: add it"
    kind = Kind.MISSING_REQUIRED if is_needed else Kind.MISSING
    return Difference(kind=kind, path=path, text=text, parent_id=parent_id, field_id=field.field_id)


def _relaxed(field_id: int, path: str, parent_id: int) -> Difference:
    text = f"column '{path}' is nullable in the DataFrame and required in the table"
    return Difference(kind=Kind.RELAX, path=path, text=text, parent_id=parent_id, field_id=field_id)


def _incompatible(text: str, path: str, holder: _Holder) -> Difference:
    return Difference(
        kind=Kind.INCOMPATIBLE,
        path=path,
        text=text,
        parent_id=holder.parent_id,
        field_id=holder.field.field_id,
        column=holder.column,
    )


def _in_key(difference: Difference, holder: _Holder) -> Iterator[Difference]:
    """Yield what a difference in a map's key amounts to: the spec lets no part of a key change."""
    if difference.kind is Kind.UNFIT or difference.kind is Kind.ORDER:
        yield difference
    elif difference.kind is not Kind.RELAX:
        text = difference.text.partition(": ")[0]
        yield _incompatible(f"{text}: it is part of a map's key, which cannot change", difference.path, holder)


def _out_of_order(
    matched: Sequence[tuple[spark.StructField, NestedField]], fields: Sequence[NestedField], path: str, parent_id: int
) -> Iterator[Difference]:
    """Yield the first two columns that come in another order than in the table."""
    order = {field.field_id: position for position, field in enumerate(fields)}
    for (before, first), (after, second) in itertools.pairwise(matched):
        if order[first.field_id] > order[second.field_id]:
            text = (
                f"columns '{join_path(path, before.name)}' and '{join_path(path, after.name)}' come in the other order "
                "in the table: reorder them, or drop check-ordering, since columns are matched by name"
            )
            yield Difference(kind=Kind.ORDER, path=join_path(path, after.name), text=text, parent_id=parent_id)
            return


def mismatch(refused: Sequence[Difference], absent: Sequence[Difference], table_name: str) -> SchemaMismatchError:
    """Return the error that names every refused difference.

    Args:
        refused: The differences that are refused.
        absent: Optional columns that the DataFrame lacks, which alone would be no reason to refuse it.
        table_name: The table's name.
    """
    lines = [difference.text for difference in refused]
    hint = _rename_hint(refused, absent, table_name)
    if any(difference.path.partition(".")[0] == ERRORS for difference in refused):
        hint.append(
            f"column '{ERRORS}' is what on-bad-row=null fills in, an array<struct<column:string,change:string,"
            "reason:string>>: let the write add it, with schema-evolution=add-columns, rename another column of that "
            "name in the table, or write with on-bad-row=quarantine"
        )
    return SchemaMismatchError(f"Cannot write to {table_name}:\n" + bullets(lines + hint))


def _rename_hint(refused: Sequence[Difference], absent: Sequence[Difference], table_name: str) -> list[str]:
    """Return how to rename a column, if one is missing and another one is new in the same struct."""
    lacking = [difference for difference in refused if difference.kind in (Kind.MISSING, Kind.MISSING_REQUIRED)]
    missing = [*absent, *lacking]
    added = [difference for difference in refused if difference.kind is Kind.ADD]
    for old, new in itertools.product(missing, added):
        if old.parent_id == new.parent_id and new.column is not None:
            name = new.column.name
            hint = (
                f"a renamed column looks like one that is missing and one that is new: if '{name}' is what "
                f"'{old.path}' was, rename it in the table, which keeps its values: ALTER TABLE {table_name} RENAME "
                f"COLUMN {old.path} TO {name}, or PyIceberg's "
                f"table.update_schema().rename_column({old.path!r}, {name!r}).commit()"
            )
            return [hint]
    return []


def can_still_read(written: Schema, current: Schema) -> list[str]:
    """Return why files written with schema `written` would not be readable in a table of schema `current`.

    Fields are matched by id (spec, "Column Projection"). An empty list means that they are readable.
    """
    return _unreadable(written.as_struct(), current.as_struct(), "")


def _unreadable(written: IcebergType, current: IcebergType, path: str) -> list[str]:
    if isinstance(written, PrimitiveType) or isinstance(current, PrimitiveType):
        is_readable = is_lossless(written, current)
        return [] if is_readable else [f"column '{path}' was {written} and is {current}"]
    before = {field.field_id: field for field in children(written)}
    problems = []
    for field in children(current):
        name = join_path(path, field.name)
        old = before.get(field.field_id)
        if field.required and (old is None or old.optional):
            problems.append(f"column '{name}' has become required")
        if old is not None:
            problems += _unreadable(old.field_type, field.field_type, name)
    return problems


def taken_names(before: Schema, after: Schema) -> list[str]:
    """Return the fields of `before`, at any depth, whose names belong to other fields in `after`.

    This happens where a column was dropped and added again, or two columns swapped their names: the values written or
    meant by the name are not the values read by it. Case is ignored where the old field is gone.
    """
    return _taken(before.as_struct(), after.as_struct(), "")


def _taken(before: IcebergType, after: IcebergType, path: str) -> list[str]:
    now = {field.field_id: field for field in children(after)}
    known = {field.field_id for field in children(before)}
    others = {field.name: field.field_id for field in now.values()}
    new = {field.name.lower() for field in now.values() if field.field_id not in known}
    found = []
    for field in children(before):
        name, same = join_path(path, field.name), now.get(field.field_id)
        if others.get(field.name, field.field_id) != field.field_id or (same is None and field.name.lower() in new):
            found.append(name)
        elif same is not None:
            found += _taken(field.field_type, same.field_type, name)
    return found


def find_field(name: str, fields: Iterable[NestedField]) -> NestedField | None:
    """Return the field called `name`, else the only one whose name differs only in case, else None."""
    candidates = [field for field in fields if field.name.lower() == name.lower()]
    exact = [field for field in candidates if field.name == name]
    if exact:
        return exact[0]
    return candidates[0] if len(candidates) == 1 else None
