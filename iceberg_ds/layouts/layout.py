"""Pure: the partition specs and sort orders that the options `partition-by` and `sort-by` mean for a schema.

Partition fields are named as Iceberg's Java library names them, so that every engine finds the same names.
Source: Iceberg spec, "Partitioning", "Partition Evolution" and "Sorting".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import NestedField, StructType

from iceberg_ds.layouts.terms import PartitionTerm, SortTerm, find_source, parse_partition_by, parse_sort_by, quoted

__all__ = [
    "PartitionTerm",
    "SortTerm",
    "describes",
    "describes_order",
    "evolved_spec",
    "new_sort_order",
    "new_spec",
    "order_text",
    "parse_partition_by",
    "parse_sort_by",
    "spec_text",
]

_Key = tuple[int, str]
_Wanted = Sequence[tuple[int, Transform[Any, Any]]]


def new_spec(terms: Sequence[PartitionTerm], schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table, its field ids from 1000.

    Raises:
        ValueError: Names every term that the schema does not allow, and why.
    """
    sources = _find_sources(terms, schema)
    _refuse_redundant([(field.field_id, term.transform) for term, field in zip(terms, sources, strict=True)], schema)
    fields: list[PartitionField] = []
    for field_id, (term, source) in enumerate(zip(terms, sources, strict=True), start=PARTITION_FIELD_ID_START):
        column = schema.find_column_name(source.field_id) or source.name
        name = _short_name(column, term.transform)
        if name in {field.name for field in fields}:
            name = _long_name(column, term.transform)
        field = PartitionField(source.field_id, field_id, term.transform, name)
        if _is_anothers_name(name, field, schema):
            raise ValueError(f"{term}: the partition field would be called '{name}', as a column is: rename the column")
        fields.append(field)
    return PartitionSpec(*fields)


def new_sort_order(terms: Sequence[SortTerm], schema: Schema, order_id: int) -> SortOrder:
    """Return the sort order that `terms` mean.

    Raises:
        ValueError: Names every term that the schema does not allow, and why.
    """
    sources = _find_sources(terms, schema)
    return SortOrder(*_sort_fields(terms, sources), order_id=order_id)


def describes(terms: Sequence[PartitionTerm], spec: PartitionSpec, schema: Schema) -> bool:
    """Return whether `spec` partitions by `terms` in this order, whatever its void fields and its names.

    Terms that the schema does not allow describe no spec.
    """
    try:
        sources = _find_sources(terms, schema)
    except ValueError:
        return False
    return _is_spec_of([(field.field_id, term.transform) for term, field in zip(terms, sources, strict=True)], spec)


def describes_order(terms: Sequence[SortTerm], order: SortOrder, schema: Schema) -> bool:
    """Return whether `order` sorts by `terms`; terms that the schema does not allow describe no order."""
    try:
        sources = _find_sources(terms, schema)
    except ValueError:
        return False
    return _sort_fields(terms, sources) == list(order.fields)


def evolved_spec(terms: Sequence[PartitionTerm], metadata: TableMetadata) -> PartitionSpec:
    """Return the spec that an evolution of the table's partitioning to `terms` leads to.

    That is one of the table's own specs if one partitions by `terms`; else a new one with the next spec id.
    In version 1 the fields of the present spec keep their places, and what is not wanted becomes void.
    Later versions take up the id and the name that a field has had in any spec.

    Raises:
        ValueError: Names every term that the schema does not allow, and why.
    """
    schema = metadata.schema()
    sources = _find_sources(terms, schema)
    wanted = [(field.field_id, term.transform) for term, field in zip(terms, sources, strict=True)]
    for spec in (metadata.spec(), *metadata.partition_specs):
        if _is_spec_of(wanted, spec):
            return spec
    fields = _evolved_in_place(wanted, metadata) if metadata.format_version == 1 else _evolved(wanted, metadata)
    return PartitionSpec(*fields, spec_id=1 + max(spec.spec_id for spec in metadata.partition_specs))


def spec_text(spec: PartitionSpec, schema: Schema) -> str:
    """Return the text of `partition-by` that describes `spec`, empty if it is unpartitioned."""
    sources = _texts(schema, spec.fields)
    live = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    return ", ".join(str(PartitionTerm(field.transform, sources[field.source_id])) for field in live)


def order_text(order: SortOrder, schema: Schema) -> str:
    """Return the text of `sort-by` that describes `order`, empty if it is unsorted."""
    sources = _texts(schema, order.fields)
    return ", ".join(
        str(SortTerm(sources[field.source_id], field.transform, field.direction, field.null_order))
        for field in order.fields
    )


def _find_sources(terms: Sequence[PartitionTerm | SortTerm], schema: Schema) -> list[NestedField]:
    fields: dict[_Key, NestedField] = {}
    problems = []
    for term in terms:
        try:
            field = _source_of(term, schema)
        except ValueError as problem:
            problems.append(f"{term}: {problem}")
            continue
        if _key(field.field_id, term.transform) in fields:
            problems.append(f"{term}: is given more than once, expected each term once")
        fields[_key(field.field_id, term.transform)] = field
    if problems:
        raise ValueError("; ".join(problems))
    return list(fields.values())


def _source_of(term: PartitionTerm | SortTerm, schema: Schema) -> NestedField:
    field = find_source(term.source, schema)
    if not term.transform.can_transform(field.field_type):
        raise ValueError(f"column {term.source} is {field.field_type}, of which there is no {term.transform}")
    return field


def _texts(schema: Schema, used: Sequence[PartitionField] | Sequence[SortField]) -> Mapping[int, str]:
    """Return how the options name the sources of `used`, by id; dropped columns by their number."""

    def walk(fields: Sequence[NestedField], above: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        for field in fields:
            yield field.field_id, quoted((*above, field.name))
            if isinstance(field.field_type, StructType):
                yield from walk(field.field_type.fields, (*above, field.name))

    unknown = {field.source_id: quoted((f"column {field.source_id}",)) for field in used}
    return unknown | dict(walk(schema.fields, ()))


def _key(source_id: int, transform: Transform[Any, Any]) -> _Key:
    """Return what two partition fields of one meaning have in common."""
    return source_id, str(transform)


def _is_spec_of(wanted: _Wanted, spec: PartitionSpec) -> bool:
    live = [field for field in spec.fields if not isinstance(field.transform, VoidTransform)]
    return [_key(*pair) for pair in wanted] == [_key(field.source_id, field.transform) for field in live]


def _sort_fields(terms: Sequence[SortTerm], sources: Sequence[NestedField]) -> list[SortField]:
    return [
        SortField(source.field_id, term.transform, term.direction, term.null_order)
        for term, source in zip(terms, sources, strict=True)
    ]


def _refuse_redundant(wanted: _Wanted, schema: Schema) -> None:
    """Refuse two of year, month, day and hour of one column, as Iceberg's Java library does."""
    times = [source_id for source_id, transform in wanted if isinstance(transform, TimeTransform)]
    if repeated := sorted(
        {schema.find_column_name(source_id) or "" for source_id in times if times.count(source_id) > 1}
    ):
        raise ValueError(
            f"{', '.join(repeated)} has several of year, month, day and hour, of which Iceberg allows one: "
            "keep the finest, by which queries for the others are pruned, too"
        )


def _evolved_in_place(wanted: _Wanted, metadata: TableMetadata) -> list[PartitionField]:
    """Return the fields of a version 1 spec: those of the present one in their places, then those to add."""
    rest = list(wanted)
    fields = []
    for field in metadata.spec().fields:
        is_wanted = bool(rest) and _key(field.source_id, field.transform) == _key(*rest[0])
        if is_wanted:
            rest.pop(0)
        transform = field.transform if is_wanted else VoidTransform()
        fields.append(PartitionField(field.source_id, field.field_id, transform, field.name))
    added = _new_fields(rest, metadata)
    # The spec's rule for version 1: readers that know no field ids go by positions.
    return _with_unique_names([*fields, *added], {}, metadata.schema())


def _evolved(wanted: _Wanted, metadata: TableMetadata) -> list[PartitionField]:
    """Return the fields of a spec from version 2 on: those that any spec has had, and those to add."""
    past = [field for spec in metadata.partition_specs for field in spec.fields] + [*metadata.spec().fields]
    known = {_key(field.source_id, field.transform): field for field in past}
    added = {
        _key(field.source_id, field.transform): field
        for field in _new_fields([pair for pair in wanted if _key(*pair) not in known], metadata)
    }
    fields = [{**known, **added}[_key(*pair)] for pair in wanted]
    return _with_unique_names(fields, {field.name: field.field_id for field in past}, metadata.schema())


def _new_fields(wanted: _Wanted, metadata: TableMetadata) -> list[PartitionField]:
    _refuse_redundant(wanted, metadata.schema())
    past = [field.field_id for spec in metadata.partition_specs for field in spec.fields]
    ids = itertools.count(1 + max([metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1, *past]))
    return [
        PartitionField(
            source_id, next(ids), transform, _long_name(metadata.schema().find_column_name(source_id) or "", transform)
        )
        for source_id, transform in wanted
    ]


def _with_unique_names(
    fields: Sequence[PartitionField], past: Mapping[str, int], schema: Schema
) -> list[PartitionField]:
    """Return the fields, those renamed whose names another field has or had, or a column; void ones give way."""
    names: dict[int, str] = {}
    for field in sorted(fields, key=lambda field: isinstance(field.transform, VoidTransform)):
        name = field.name
        while (
            name in names.values()
            or past.get(name, field.field_id) != field.field_id
            or _is_anothers_name(name, field, schema)
        ):
            name = f"{name}_{field.field_id}"
        names[field.field_id] = name
    return [PartitionField(field.source_id, field.field_id, field.transform, names[field.field_id]) for field in fields]


def _is_anothers_name(name: str, field: PartitionField, schema: Schema) -> bool:
    """Return whether a column has the name; identity and void fields may be called as their own source."""
    try:
        column = schema.find_field(name)
    except ValueError:
        return False
    return column.field_id != field.source_id or not isinstance(field.transform, IdentityTransform | VoidTransform)


def _short_name(column: str, transform: Transform[Any, Any]) -> str:
    """Return the name of a field of a new table's spec (Java: `PartitionSpec.Builder`)."""
    match transform:
        case IdentityTransform():
            return column
        case BucketTransform():
            return f"{column}_bucket"
        case TruncateTransform():
            return f"{column}_trunc"
    return f"{column}_{transform}"


def _long_name(column: str, transform: Transform[Any, Any]) -> str:
    """Return the name of a field that is added to a table's spec (Java: `UpdatePartitionSpec`)."""
    match transform:
        case BucketTransform(num_buckets=number) | TruncateTransform(width=number):
            return f"{_short_name(column, transform)}_{number}"
    return _short_name(column, transform)
