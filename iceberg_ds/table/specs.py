"""Pure: the partition specs and sort orders that the options `partition-by` and `sort-by` mean for a schema.

Partition fields are named as Iceberg's Java library names them, so that every engine finds the same names.
Source: Iceberg spec, "Partitioning", "Partition Evolution" and "Sorting".
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
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
from pyiceberg.types import NestedField, StructType, UnknownType

from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.spec_parser import PartitionTerm, SortTerm, find_source, parse_partition_by, parse_sort_by

__all__ = [
    "PartitionTerm",
    "SortTerm",
    "describes",
    "describes_order",
    "evolved_spec",
    "new_sort_order",
    "new_spec",
    "parse_partition_by",
    "parse_sort_by",
    "spec_text",
]

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A partition field that a term asks for; `name` is None if it may have any name."""

    source_id: int
    transform: Transform[Any, Any]
    name: str | None

    @property
    def key(self) -> _Key:
        return _key(self.source_id, self.transform)

    def is_met_by(self, field: PartitionField) -> bool:
        """Return whether the field is the one that is asked for."""
        return self.key == _key(field.source_id, field.transform) and self.name in (None, field.name)


def new_spec(terms: Sequence[PartitionTerm], schema: Schema) -> PartitionSpec:
    """Return the partition spec of a new table, its field ids from 1000.

    Raises:
        ValueError: Names every term that the schema does not allow, and why.
    """
    wanted = _wanted(terms, schema)
    _refuse_redundant(wanted, schema)
    fields: list[PartitionField] = []
    taken = {field.name.lower() for field in wanted if field.name is not None}  # engines find them in any case
    for field_id, (term, field) in enumerate(zip(terms, wanted, strict=True), start=PARTITION_FIELD_ID_START):
        column = schema.find_column_name(field.source_id) or ""
        name = field.name or _short_name(column, field.transform)
        if field.name is None and name.lower() in taken:
            name = _long_name(column, field.transform)
            if name.lower() in taken:
                raise ValueError(f"{term}: another partition field is called '{name}': name one ({term.key} as ...)")
        taken.add(name.lower())
        fields.append(PartitionField(field.source_id, field_id, field.transform, name))
        if _is_anothers_name(name, fields[-1], schema):
            raise ValueError(
                f"{term}: the partition field would be called '{name}', as a column is: rename the column, or give "
                f"the field a name of its own ({term.key} as ...)"
            )
    return PartitionSpec(*fields)


def new_sort_order(terms: Sequence[SortTerm], schema: Schema, order_id: int) -> SortOrder:
    """Return the sort order that `terms` mean.

    Raises:
        ValueError: Names every term that the schema does not allow, and why.
    """
    sources = _find_sources(terms, schema)
    return SortOrder(*_sort_fields(terms, sources), order_id=order_id)


def describes(terms: Sequence[PartitionTerm], spec: PartitionSpec, schema: Schema) -> bool:
    """Return whether `spec` partitions by `terms` in this order, its void fields ignored.

    Names of fields count where a term gives one. Terms that the schema does not allow describe no spec.
    """
    try:
        return _is_spec_of(_wanted(terms, schema), spec)
    except ValueError:
        return False


def describes_order(terms: Sequence[SortTerm], order: SortOrder, schema: Schema) -> bool:
    """Return whether `order` sorts by `terms`; terms that the schema does not allow describe no order."""
    try:
        sources = _find_sources(terms, schema)
    except ValueError:
        return False
    return _sort_fields(terms, sources) == list(order.fields)


def evolved_spec(terms: Sequence[PartitionTerm], metadata: TableMetadata) -> PartitionSpec:
    """Return the spec to which the table's partitioning evolves for `terms`.

    This is one of the table's own specs if one partitions by `terms`; else a new spec with the next spec id.
    In version 1 the fields of the current spec keep their places, and unwanted fields become void.
    Later versions reuse the id and the name that a field has had in any spec. A field of the current spec that
    gets another name keeps its id, as in Iceberg's Java library.

    Raises:
        ValueError: Names every term that the schema does not allow, and why.
    """
    wanted = _wanted(terms, metadata.schema())
    for spec in (metadata.spec(), *metadata.partition_specs):
        if _is_spec_of(wanted, spec):
            return spec
    fields = _evolved_in_place(wanted, metadata) if metadata.format_version == 1 else _evolved(wanted, metadata)
    return PartitionSpec(*fields, spec_id=1 + max(spec.spec_id for spec in metadata.partition_specs))


def spec_text(spec: PartitionSpec, schema: Schema) -> str:
    """Return the text of `partition-by` that describes `spec`, empty if it is unpartitioned."""
    sources = _texts(schema, spec.fields)
    return ", ".join(
        str(PartitionTerm(field.transform, sources[field.source_id], _own_name(field, schema))) for field in _live(spec)
    )


def _own_name(field: PartitionField, schema: Schema) -> str | None:
    """Return the name of a field, or None if Iceberg gives it that name by default."""
    column = schema.find_column_name(field.source_id) or ""
    given = (_short_name(column, field.transform), _long_name(column, field.transform))
    return None if field.name in given else field.name


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
    if isinstance(field.field_type, UnknownType) or not term.transform.can_transform(field.field_type):
        raise ValueError(f"column {term.source} is {field.field_type}, to which {term.transform} does not apply")
    return field


def _texts(schema: Schema, used: Sequence[PartitionField]) -> Mapping[int, str]:
    """Return how the options name the sources of `used`, by id; dropped columns are named by their number."""

    def walk(fields: Sequence[NestedField], above: tuple[str, ...]) -> Iterator[tuple[int, str]]:
        for field in fields:
            yield field.field_id, identifier_text((*above, field.name))
            if isinstance(field.field_type, StructType):
                yield from walk(field.field_type.fields, (*above, field.name))

    unknown = {field.source_id: identifier_text((f"column {field.source_id}",)) for field in used}
    return unknown | dict(walk(schema.fields, ()))


def _key(source_id: int, transform: Transform[Any, Any]) -> _Key:
    """Return a key that is equal for partition fields of the same meaning."""
    return source_id, str(transform)


def _wanted(terms: Sequence[PartitionTerm], schema: Schema) -> list[_Wanted]:
    sources = _find_sources(terms, schema)
    return [_Wanted(source.field_id, term.transform, term.name) for term, source in zip(terms, sources, strict=True)]


def _live(spec: PartitionSpec) -> list[PartitionField]:
    return [field for field in spec.fields if not _is_void(field)]


def _is_spec_of(wanted: Sequence[_Wanted], spec: PartitionSpec) -> bool:
    live = _live(spec)
    return len(wanted) == len(live) and all(map(_Wanted.is_met_by, wanted, live))


def _sort_fields(terms: Sequence[SortTerm], sources: Sequence[NestedField]) -> list[SortField]:
    return [
        SortField(source.field_id, term.transform, term.direction, term.null_order)
        for term, source in zip(terms, sources, strict=True)
    ]


def _refuse_redundant(wanted: Sequence[_Wanted], schema: Schema) -> None:
    """Refuse two of year, month, day and hour of one column, as Iceberg's Java library does."""
    times = [field.source_id for field in wanted if isinstance(field.transform, TimeTransform)]
    if repeated := sorted(
        {schema.find_column_name(source_id) or "" for source_id in times if times.count(source_id) > 1}
    ):
        raise ValueError(
            f"{', '.join(repeated)} has several of year, month, day and hour, and Iceberg allows one: "
            "keep the finest, which prunes queries by coarser ones, too"
        )


def _evolved_in_place(wanted: Sequence[_Wanted], metadata: TableMetadata) -> list[PartitionField]:
    """Return the fields of a version 1 spec: those of the current spec in their places, then those to add."""
    rest = list(wanted)
    fields, named = [], set()
    for field in metadata.spec().fields:
        is_wanted = bool(rest) and _key(field.source_id, field.transform) == rest[0].key
        name = rest.pop(0).name if is_wanted else None
        if name is not None:
            named.add(field.field_id)
        transform = field.transform if is_wanted else VoidTransform()
        fields.append(PartitionField(field.source_id, field.field_id, transform, name or field.name))
    added = _new_fields(rest, metadata)
    named |= {field.field_id for field, asked in zip(added, rest, strict=True) if asked.name is not None}
    # The spec's rule for version 1: readers that know no field ids go by positions.
    return _with_unique_names([*fields, *added], named, {}, metadata.schema())


def _evolved(wanted: Sequence[_Wanted], metadata: TableMetadata) -> list[PartitionField]:
    """Return the fields of a spec from version 2 on: those that any spec has had, and those to add."""
    past = [field for spec in metadata.partition_specs for field in spec.fields] + [*metadata.spec().fields]
    known = {
        asked.key: field for asked in wanted if (field := _known_field(asked, metadata.spec().fields, past)) is not None
    }
    missing = [asked for asked in wanted if asked.key not in known]
    added = dict(zip([asked.key for asked in missing], _new_fields(missing, metadata), strict=True))
    fields = [{**known, **added}[asked.key] for asked in wanted]
    named = {field.field_id for field, asked in zip(fields, wanted, strict=True) if asked.name is not None}
    return _with_unique_names(fields, named, {field.name: field.field_id for field in past}, metadata.schema())


def _known_field(
    asked: _Wanted, present: Sequence[PartitionField], past: Sequence[PartitionField]
) -> PartitionField | None:
    """Return the field that the table has or had for `asked`, under the name that is asked for, or None."""
    if found := [field for field in past if asked.is_met_by(field)]:
        return found[-1]
    for field in present:
        if asked.key == _key(field.source_id, field.transform) and asked.name is not None:
            return PartitionField(field.source_id, field.field_id, field.transform, asked.name)
    return None


def _new_fields(wanted: Sequence[_Wanted], metadata: TableMetadata) -> list[PartitionField]:
    _refuse_redundant(wanted, metadata.schema())
    past = [field.field_id for spec in metadata.partition_specs for field in spec.fields]
    ids = itertools.count(1 + max([metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1, *past]))
    return [
        PartitionField(
            asked.source_id,
            next(ids),
            asked.transform,
            asked.name or _long_name(metadata.schema().find_column_name(asked.source_id) or "", asked.transform),
        )
        for asked in wanted
    ]


def _with_unique_names(
    fields: Sequence[PartitionField], named: AbstractSet[int], past: Mapping[str, int], schema: Schema
) -> list[PartitionField]:
    """Return the fields, renamed where another field has or had the name, or a column has it; void fields give way.

    Args:
        fields: The fields of a spec.
        named: Ids of the fields whose names the option gives.
        past: Ids of the fields that had a name in any spec, by name.
        schema: The table's columns.

    Raises:
        ValueError: A name that the option gives is taken.
    """
    names: dict[int, str] = {}
    for field in sorted(fields, key=lambda field: (field.field_id not in named, _is_void(field))):
        name = field.name
        while reason := _why_taken(name, field, names.values(), past, schema):
            if field.field_id in named:
                raise ValueError(f"the partition field cannot be called '{name}', because {reason}: name it otherwise")
            name = f"{name}_{field.field_id}"
        names[field.field_id] = name
    return [PartitionField(field.source_id, field.field_id, field.transform, names[field.field_id]) for field in fields]


def _is_void(field: PartitionField) -> bool:
    return isinstance(field.transform, VoidTransform)


def _why_taken(
    name: str, field: PartitionField, others: Collection[str], past: Mapping[str, int], schema: Schema
) -> str:
    """Return why a field cannot have the name, empty if it can."""
    if name.lower() in {other.lower() for other in others}:  # as engines find them
        return "another partition field is"
    if past.get(name, field.field_id) != field.field_id:
        return "another partition field of the table was"  # a table of partitions would have two columns of that name
    return "a column is" if _is_anothers_name(name, field, schema) else ""


def _is_anothers_name(name: str, field: PartitionField, schema: Schema) -> bool:
    """Return whether a column has the name; identity and void fields may have the name of their own source."""
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
