"""Pure: a DataFrame's schema against a table's.

Names every difference between the two. Columns are matched by name: the exact one, else the only one that
differs in case. A value is only ever widened, never narrowed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)
from pyspark.sql import types as spark

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.names import repeated_names
from iceberg_ds.spark_types import UnsupportedTypeError, bullets, convert_type, is_lossless, is_writable


def check_fits(dataframe: spark.StructType, table: Schema, *, table_name: str) -> None:
    """Check that every column of `dataframe` fits its column of `table`, and that none is missing or extra.

    A nullable column may feed a required one; the rows are checked as they are written.

    Raises:
        SchemaMismatchError: Names every column that does not fit, with both types and what to do.
    """
    problems = repeated_names(column.name for column in dataframe)
    matched: set[int] = set()
    for column in dataframe:
        field = find_field(column.name, table.fields)
        if field is None:
            problems.append(
                f"column '{column.name}' {column.dataType.simpleString()} is not in the table: "
                "drop it from the DataFrame or add it to the table"
            )
            continue
        matched.add(field.field_id)
        problems += _differences(column.dataType, field.field_type, column.name)
    problems += [_missing(field) for field in table.fields if field.field_id not in matched]
    if problems:
        raise SchemaMismatchError(f"Cannot write to {table_name}:\n" + bullets(problems))


def _missing(field: NestedField) -> str:
    if field.required:
        return f"column '{field.name}' {field.field_type} is required in the table and missing in the DataFrame: add it"
    return (
        f"column '{field.name}' {field.field_type} is missing in the DataFrame: add it, "
        f"for example as lit(None) cast to the type"
    )


def _differences(data_type: spark.DataType, target: IcebergType, path: str) -> list[str]:
    """Return one sentence for every place at or below `path` where a value of `data_type` does not fit `target`."""
    match data_type, target:
        case spark.StructType(), StructType():
            return _struct_differences(data_type, target, path)
        case spark.ArrayType(), ListType():
            return _differences(data_type.elementType, target.element_type, f"{path}.element")
        case spark.MapType(), MapType():
            return _differences(data_type.keyType, target.key_type, f"{path}.key") + _differences(
                data_type.valueType, target.value_type, f"{path}.value"
            )
    if is_writable(data_type, target):
        return []
    try:
        convert_type(data_type, itertools.count(1))
    except UnsupportedTypeError as unsupported:
        return [f"column '{path}' holds {unsupported}"]
    return [
        f"column '{path}' is {data_type.simpleString()} in the DataFrame and {target} in the table: cast it to that"
    ]


def _struct_differences(data_type: spark.StructType, target: StructType, path: str) -> list[str]:
    problems: list[str] = []
    matched: set[int] = set()
    for child in data_type:
        field = find_field(child.name, target.fields)
        if field is None:
            problems.append(f"field '{path}.{child.name}' {child.dataType.simpleString()} is not in the table: drop it")
            continue
        matched.add(field.field_id)
        problems += _differences(child.dataType, field.field_type, f"{path}.{child.name}")
    return problems + [
        f"field '{path}.{field.name}' {field.field_type} is missing in the DataFrame: add it"
        for field in target.fields
        if field.field_id not in matched
    ]


def can_still_read(written: Schema, current: Schema) -> list[str]:
    """Return why files written with schema `written` would not be readable in a table of schema `current`.

    Fields are matched by id (spec, "Column Projection"). An empty list means that they are readable.
    """
    return _unreadable(written.as_struct(), current.as_struct(), "")


def _unreadable(written: IcebergType, current: IcebergType, path: str) -> list[str]:
    if written.is_primitive or current.is_primitive:
        is_readable = written.is_primitive and current.is_primitive and is_lossless(written, current)
        return [] if is_readable else [f"column '{path}' was {written} and is {current}"]
    before = {field.field_id: field for field in _children(written)}
    problems = []
    for field in _children(current):
        name = f"{path}.{field.name}" if path else field.name
        old = before.get(field.field_id)
        if field.required and (old is None or old.optional):
            problems.append(f"column '{name}' has become required")
        if old is not None:
            problems += _unreadable(old.field_type, field.field_type, name)
    return problems


def _children(parent: IcebergType) -> tuple[NestedField, ...]:
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
