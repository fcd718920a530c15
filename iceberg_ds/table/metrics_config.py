"""Pure: the leaf columns of a table's Parquet files, and which metrics of each column are kept.

Reads the table's `write.metadata.metrics.*` properties as Iceberg's own writers do: a default mode, a mode
for each column, and by default only 100 columns of a wide table, those at the top first. Columns that rows are
sorted by keep bounds under any default mode, because readers skip files by these bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import IcebergType, ListType, MapType, PrimitiveType, StructType, UnknownType

from iceberg_ds.table.variant import VARIANT, VariantType

_T = TypeVar("_T")

METRICS_PREFIX = "write.metadata.metrics."
_DEFAULT_KEY = METRICS_PREFIX + "default"
_COLUMN_PREFIX = METRICS_PREFIX + "column."
_MAX_INFERRED_KEY = METRICS_PREFIX + "max-inferred-column-defaults"
_MAX_INFERRED_DEFAULT = 100
_TRUNCATE = re.compile(r"truncate\((\d+)\)", re.IGNORECASE | re.ASCII)
_HIGHEST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsMode:
    """Which metrics of one column are kept: `none`, `counts`, `truncate(n)` or `full`.

    Attributes:
        counts: Keep sizes and value, null and NaN counts.
        bounds: Keep lower and upper bound.
        length: Characters (strings) or bytes (binary) that a bound keeps, None for all.
    """

    counts: bool
    bounds: bool
    length: int | None = None


_NONE = MetricsMode(counts=False, bounds=False)
_COUNTS = MetricsMode(counts=True, bounds=False)
_FULL = MetricsMode(counts=True, bounds=True)
_DEFAULT_MODE = MetricsMode(counts=True, bounds=True, length=16)


def parse_mode(text: str) -> MetricsMode:
    """Return the mode that `text` names.

    Raises:
        ValueError: The text is none of `none`, `counts`, `truncate(n)` and `full`.
    """
    fixed = {"none": _NONE, "counts": _COUNTS, "full": _FULL}.get(text.strip().lower())
    if fixed is not None:
        return fixed
    truncate = _TRUNCATE.fullmatch(text.strip())
    if truncate is None or not 0 < int(truncate[1]) <= _HIGHEST:
        raise ValueError(f"metrics mode {text!r} is none of none, counts, truncate(n), full")
    return MetricsMode(counts=True, bounds=True, length=int(truncate[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One column of the Parquet file: a primitive field at any depth, or one part of a variant.

    Attributes:
        field_id: Its Iceberg field id; both parts of a variant have the variant's.
        field_type: Its Iceberg type.
        path: How to reach its values in a row batch: positions of struct fields, `LIST_STEP`, `KEY_STEP`, `VALUE_STEP`.
        is_repeated: Whether it lies inside a list or a map.
        mode: Which of its metrics are kept.
    """

    field_id: int
    field_type: PrimitiveType
    path: tuple[int | str, ...]
    is_repeated: bool
    mode: MetricsMode


LIST_STEP, KEY_STEP, VALUE_STEP = "element", "key", "value"


def leaf_columns(schema: Schema, properties: Mapping[str, str], order: SortOrder | None = None) -> tuple[Leaf, ...]:
    """Return the leaf columns of a file of `schema`, in Parquet's order, with their metrics modes.

    Args:
        schema: Schema that the file is written with.
        properties: The table's `write.metadata.metrics.*` properties.
        order: The sort order of the file's rows, None if they are unsorted.

    Raises:
        ValueError: A property names an unknown mode, or is no number where a number belongs. Names the property.
    """
    leaves = []
    inferred = _MAX_INFERRED_DEFAULT if _DEFAULT_KEY not in properties else None
    if inferred is not None and _MAX_INFERRED_KEY in properties:
        asked = _parsed(properties, _MAX_INFERRED_KEY, _number_of_columns)
        inferred = asked if asked >= 0 else _MAX_INFERRED_DEFAULT  # as Iceberg's `MetricsConfig`, which warns
    default = _parsed(properties, _DEFAULT_KEY, parse_mode) if _DEFAULT_KEY in properties else _DEFAULT_MODE
    sorted_by = {field.source_id for field in order.fields if field.transform.preserves_order} if order else set()
    with_default = set(islice(_nearest_first(schema.as_struct()), inferred))
    for field_id, field_type, path in _walk(schema.as_struct(), ()):
        name = schema.find_column_name(field_id)
        mode = default if field_id in with_default else _NONE
        if field_id in sorted_by and not mode.bounds:
            mode = _DEFAULT_MODE
        if (key := f"{_COLUMN_PREFIX}{name}") in properties:
            mode = _parsed(properties, key, parse_mode)
        if isinstance(field_type, VariantType):
            mode = replace(mode, bounds=False)
        is_repeated = any(isinstance(step, str) for step in path)
        leaves.append(Leaf(field_id=field_id, field_type=field_type, path=path, is_repeated=is_repeated, mode=mode))
    return tuple(leaves)


def _number_of_columns(text: str) -> int:
    if (number := int(text)) > _HIGHEST:
        raise ValueError(f"expected {_HIGHEST} at most")
    return number


def _parsed(properties: Mapping[str, str], key: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(properties[key])
    except ValueError as problem:
        raise ValueError(f"property {key} is {properties[key]!r}: {problem}") from None


def _nearest_first(parent: StructType | ListType | MapType) -> Iterator[int]:
    """Yield the ids of the leaves below `parent`: its direct children first, then deeper leaves."""
    match parent:
        case StructType():
            children = [(field.field_id, field.field_type) for field in parent.fields]
        case ListType():
            children = [(parent.element_id, parent.element_type)]
        case MapType():
            children = [(parent.key_id, parent.key_type), (parent.value_id, parent.value_type)]
    yield from (child_id for child_id, child in children if isinstance(child, PrimitiveType))
    for _, child in children:
        if isinstance(child, StructType | ListType | MapType):
            yield from _nearest_first(child)


def _walk(
    parent: StructType, path: tuple[int | str, ...]
) -> Iterator[tuple[int, PrimitiveType, tuple[int | str, ...]]]:
    for position, field in enumerate(parent.fields):
        yield from _walk_type(field.field_id, field.field_type, (*path, position))


def _walk_type(
    field_id: int, field_type: IcebergType, path: tuple[int | str, ...]
) -> Iterator[tuple[int, PrimitiveType, tuple[int | str, ...]]]:
    match field_type:
        case StructType():
            yield from _walk(field_type, path)
        case ListType():
            yield from _walk_type(field_type.element_id, field_type.element_type, (*path, LIST_STEP))
        case MapType():
            yield from _walk_type(field_type.key_id, field_type.key_type, (*path, KEY_STEP))
            yield from _walk_type(field_type.value_id, field_type.value_type, (*path, VALUE_STEP))
        case VariantType():
            yield from ((field_id, field_type, (*path, part)) for part in range(len(VARIANT)))
        case UnknownType():
            return  # which files do not have
        case PrimitiveType():
            yield field_id, field_type, path
