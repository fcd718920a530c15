"""Pure: the error for a DataFrame that does not fit a table, and what an older schema has to do with a new one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.schemas.differences import Difference, Kind, join_path
from iceberg_ds.schemas.spark_types import bullets, is_lossless


def mismatch(refused: Sequence[Difference], absent: Sequence[Difference], table_name: str) -> SchemaMismatchError:
    """Return the error that names every refused difference.

    Args:
        refused: The differences that are refused.
        absent: Optional columns that the DataFrame lacks, which alone would be no reason to refuse it.
        table_name: The table's name.
    """
    lines = [difference.text for difference in refused]
    hint = _rename_hint(refused, absent, table_name)
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
    if written.is_primitive or current.is_primitive:
        is_readable = written.is_primitive and current.is_primitive and is_lossless(written, current)
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
    """Return the fields of `before`, at any depth, whose names are those of other fields in `after`.

    So it is where a column was dropped and added again, or two have swapped their names: what was written or meant by
    the name is not what is read by it. Names count as the same in whatever case where the old field is gone.
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


def children(parent: IcebergType) -> tuple[NestedField, ...]:
    """Return the fields right below a type: of a struct, the element of a list, key and value of a map."""
    match parent:
        case StructType():
            return parent.fields
        case ListType():
            return (parent.element_field,)
        case MapType():
            return (parent.key_field, parent.value_field)
    return ()


def find_field(name: str, fields: Iterable[NestedField]) -> NestedField | None:
    """Return the field called `name`, else the only one whose name differs in case alone, else None."""
    candidates = [field for field in fields if field.name.lower() == name.lower()]
    exact = [field for field in candidates if field.name == name]
    if exact:
        return exact[0]
    return candidates[0] if len(candidates) == 1 else None
