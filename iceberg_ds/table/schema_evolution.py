"""Pure: what changes in a table's schema so that it takes a DataFrame, and the catalog request that changes it.

A policy says which differences become changes, which are written as they are, and which are refused. Under any policy
old rows stay readable, and columns that the table is partitioned, sorted or keyed by stay. Field ids, docs, defaults
and the order of existing fields stay; new fields are optional and get ids that the table has never used. Source:
Iceberg spec, "Schema Evolution", "Column Projection", "Partition Evolution" and "Identifier Field IDs".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Literal, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import update_mapping
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import types as spark

from iceberg_ds.errors import CommitConflictError, SchemaMismatchError, UnsupportedTableError
from iceberg_ds.table.compatibility import ROOT_ID, Difference, Kind, find_differences, mismatch
from iceberg_ds.table.metrics_config import METRICS_PREFIX
from iceberg_ds.table.names import why_reserved
from iceberg_ds.table.nested_fields import children
from iceberg_ds.table.requests import LAST_ADDED, AddSchema, CommitRequest
from iceberg_ds.table.spark_types import column_type, comment_of, nullable_field

_COLUMN_METRICS_PREFIX = f"{METRICS_PREFIX}column."
SchemaEvolution: TypeAlias = Literal["strict", "add-columns", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChanges:
    """Changes to the fields of a schema.

    Attributes:
        added: Columns to add, by the id of the field that holds the struct, `ROOT_ID` for the table itself.
        widened: New types, by id.
        replaced: Columns that replace fields, by the id of the field.
        relaxed: Ids of fields to make optional.
        dropped: Ids of fields to drop.
    """

    added: dict[int, list[spark.StructField]] = field(default_factory=dict)
    widened: dict[int, IcebergType] = field(default_factory=dict)
    replaced: dict[int, spark.StructField] = field(default_factory=dict)
    relaxed: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)


def changed_schema(metadata: TableMetadata, changes: SchemaChanges, *, case_sensitive: bool | None) -> Schema:
    """Return the table's schema with `changes`, under the next free schema id.

    Raises:
        ValueError: The names of new columns and of others contradict each other.
    """
    current = metadata.schema()
    builder = _Builder(changes, _free_ids(metadata), case_sensitive=case_sensitive)
    return Schema(
        *builder.fields(current.fields, ROOT_ID),
        schema_id=_next_schema_id(metadata),
        identifier_field_ids=current.identifier_field_ids,
    )


def _free_ids(metadata: TableMetadata) -> Iterator[int]:
    """Count from the first id that no schema of the table has ever used."""
    highest = max(schema.highest_field_id for schema in metadata.schemas)
    return itertools.count(1 + max(metadata.last_column_id, highest))


class _Builder:
    """Builds the changed schema, field by field."""

    def __init__(self, changes: SchemaChanges, ids: Iterator[int], *, case_sensitive: bool | None) -> None:
        self._changes = changes
        self._ids = ids
        self._case_sensitive = case_sensitive

    def fields(self, fields: Sequence[NestedField], parent_id: int) -> list[NestedField]:
        """Return the fields of a struct; `parent_id` is the field that holds it."""
        kept = [self._field(old) for old in fields if old.field_id not in self._changes.dropped]
        return kept + [self._new(column, column.name, None) for column in self._changes.added.get(parent_id, ())]

    def _field(self, old: NestedField) -> NestedField:
        replacement = self._changes.replaced.get(old.field_id)
        if replacement is not None:
            return self._new(replacement, old.name, old.doc)
        return NestedField(
            field_id=old.field_id,
            name=old.name,
            field_type=self._type(old),
            required=self._is_required(old),
            doc=old.doc,
            initial_default=old.initial_default,
            write_default=old.write_default,
        )

    def _new(self, column: spark.StructField, name: str, doc: str | None) -> NestedField:
        """Return a field that no row has yet, so it must be optional."""
        return NestedField(
            field_id=next(self._ids),
            name=name,
            field_type=column_type(column.dataType, self._ids, case_sensitive=self._case_sensitive),
            required=False,
            doc=doc if (comment := comment_of(column)) is None else comment,
        )

    def _type(self, old: NestedField) -> IcebergType:
        match old.field_type:
            case StructType(fields=fields):
                return StructType(*self.fields(fields, old.field_id))
            case ListType(element_id=element_id, element_field=element):
                return ListType(
                    element_id=element_id,
                    element_type=self._type(element),
                    element_required=self._is_required(element),
                )
            case MapType(key_field=key, value_field=value):
                return MapType(
                    key_id=key.field_id,
                    key_type=key.field_type,
                    value_id=value.field_id,
                    value_type=self._type(value),
                    value_required=self._is_required(value),
                )
        return self._changes.widened.get(old.field_id, old.field_type)

    def _is_required(self, old: NestedField) -> bool:
        return old.required and old.field_id not in self._changes.relaxed


def schema_request(metadata: TableMetadata, schema: Schema, *, table_name: str) -> CommitRequest:
    """Return the request that makes `schema` the current one; refused if the current one is no longer `metadata`'s.

    Reuses the id of an equal schema that the table has had (spec, "Table Metadata Fields": `schemas`), keeps
    the name mapping complete, if the table has one, and drops the metrics modes of dropped columns.

    Args:
        metadata: The table as it is.
        schema: Made from the table's present schema, by `changed_schema`.
        table_name: The table's name, for errors.

    Raises:
        CommitConflictError: Another writer has taken the ids of the new fields since `schema` was made.
        UnsupportedTableError: The table's name mapping does not parse.
    """
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),
        ),
        updates=(
            *_schema_updates(metadata, schema, table_name),
            *_mapping_updates(metadata, schema, table_name),
            *_metrics_updates(metadata, schema),
        ),
    )


def metadata_with(metadata: TableMetadata, schema: Schema, *, table_name: str) -> TableMetadata:
    """Return the table as `schema_request` leaves it.

    Raises:
        CommitConflictError, UnsupportedTableError: As `schema_request`.
    """
    return update_table_metadata(metadata, schema_request(metadata, schema, table_name=table_name).updates)


def _schema_updates(metadata: TableMetadata, schema: Schema, table_name: str) -> tuple[TableUpdate, ...]:
    for past in metadata.schemas:
        if past.as_struct() == schema.as_struct() and _identifiers(past) == _identifiers(schema):
            return (SetCurrentSchemaUpdate(schema_id=past.schema_id),)
    new_ids = schema.field_ids - metadata.schema().field_ids
    if any(field_id <= metadata.last_column_id for field_id in new_ids):
        raise CommitConflictError(
            f"Cannot change the schema of {table_name}: another writer has added columns meanwhile. "
            "Nothing was committed. Run the write again."
        )
    numbered = Schema(
        *schema.fields, schema_id=_next_schema_id(metadata), identifier_field_ids=schema.identifier_field_ids
    )
    last_column_id = max(metadata.last_column_id, schema.highest_field_id)
    return (
        AddSchema(schema_=numbered, last_column_id=last_column_id),
        SetCurrentSchemaUpdate(schema_id=LAST_ADDED),
    )


def _next_schema_id(metadata: TableMetadata) -> int:
    return 1 + max(schema.schema_id for schema in metadata.schemas)


def _identifiers(schema: Schema) -> frozenset[int]:
    return frozenset(schema.identifier_field_ids)


def _mapping_updates(metadata: TableMetadata, schema: Schema, table_name: str) -> tuple[TableUpdate, ...]:
    """Return the update of the name mapping, for columns of files without field ids; such files lack new columns."""
    from iceberg_ds.table.name_mapping import parsed_mapping  # noqa: PLC0415  # most writes change no schema

    try:
        mapping = parsed_mapping(metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING))
    except UnsupportedTableError as problem:
        raise UnsupportedTableError(f"Cannot change the schema of {table_name}. {problem}") from problem
    if mapping is None:
        return ()
    added = dict(_added_fields(metadata.schema().field_ids, schema.fields, ROOT_ID))
    updated = update_mapping(mapping, {}, added)
    return (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: updated.model_dump_json()}),)


def _added_fields(
    known: set[int], fields: Sequence[NestedField], parent_id: int
) -> Iterator[tuple[int, list[NestedField]]]:
    """Yield new fields by the id of the field that holds them, except fields whose holder is new itself."""
    if added := [child for child in fields if child.field_id not in known]:
        yield parent_id, added
    for child in fields:
        if child.field_id in known:
            yield from _added_fields(known, children(child.field_type), child.field_id)


def _metrics_updates(metadata: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    """Return the update that removes properties of dropped columns: Java refuses properties that name such columns."""
    dropped = {*metadata.schema().column_names} - {*schema.column_names}
    idle = sorted(f"{_COLUMN_METRICS_PREFIX}{name}" for name in dropped)
    removals = [key for key in idle if key in metadata.properties]
    return (RemovePropertiesUpdate(removals=removals),) if removals else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionPolicy:
    """What may change in a table's schema to take a DataFrame.

    Attributes:
        mode: `strict`: nothing. `add-columns`: new columns. `full`: every change that keeps the table's rows readable.
            In every mode, optional columns and fields may be missing, and get nulls.
        drop_missing_columns: With `full`: drop columns and fields that the DataFrame lacks, instead of writing nulls.
        replace_types: With `full`, for a write that replaces all rows: a column whose type does not fit is dropped
            and added again under the same name and a new id.
        case_sensitive: How names are matched, see `names.find_position`.
        check_ordering: Refuse columns that come in another order than the table's.
        is_nullability_known: Whether a nullable column of the DataFrame means that it may hold nulls. In a stream it
            means nothing, since Spark marks all columns of a stream nullable; then only the rows themselves count.
        use_nullable_query_schema: Everything nested in a new column is optional, even if required in the DataFrame.
            The column itself is optional in any case, since old rows lack it.
    """

    mode: SchemaEvolution = "strict"
    drop_missing_columns: bool = False
    replace_types: bool = False
    case_sensitive: bool | None = None
    check_ordering: bool = False
    is_nullability_known: bool = True
    use_nullable_query_schema: bool = True


class _Verdict(Enum):
    """What is done about a difference."""

    REFUSE = auto()
    ACCEPT = auto()  # the write deals with it: nulls for missing fields, a check of each row for required fields
    CHANGE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bonds:
    """What in a table depends on its fields; a bond of a field is also a bond of the fields around it.

    Attributes:
        identifiers: Ids of fields that must stay required.
        kept: Why a field cannot be dropped, by its id.
        partition_names: Names of partition fields, which no new column may take.
    """

    identifiers: frozenset[int]
    kept: Mapping[int, str]
    partition_names: frozenset[str]


def propose_request(
    dataframe: spark.StructType, metadata: TableMetadata, policy: EvolutionPolicy, *, table_name: str
) -> CommitRequest | None:
    """Return the request that lets the table take `dataframe`, or None if the table already does.

    Made for `alter_table`: called again for a table that another writer has changed, it requests the remaining changes.

    Raises:
        SchemaMismatchError: As `propose_schema`.
        UnsupportedTableError: As `schema_request`.
    """
    schema = propose_schema(dataframe, metadata, policy, table_name=table_name)
    return None if schema is None else schema_request(metadata, schema, table_name=table_name)


def propose_schema(
    dataframe: spark.StructType, metadata: TableMetadata, policy: EvolutionPolicy, *, table_name: str
) -> Schema | None:
    """Return the schema that the table needs to take `dataframe`, or None if the current one does.

    For a table that already has the proposed schema, nothing is left to change.

    Args:
        dataframe: The DataFrame's schema.
        metadata: The table as it is.
        policy: What may change.
        table_name: The table's name, for errors.

    Raises:
        SchemaMismatchError: Names every difference that the policy does not allow, with what to do.
    """
    bonds = _bonds(metadata)
    changes, refused, absent = SchemaChanges(), [], []
    for difference in find_differences(
        dataframe,
        metadata.schema(),
        case_sensitive=policy.case_sensitive,
        check_ordering=policy.check_ordering,
        format_version=metadata.format_version,
    ):
        verdict, explained = _judge(difference, policy, bonds)
        if verdict is _Verdict.REFUSE:
            refused.append(explained)
        elif difference.kind is Kind.MISSING and verdict is _Verdict.ACCEPT:
            absent.append(difference)
        elif verdict is _Verdict.CHANGE:
            _note(difference, policy, changes)
    if refused:
        raise mismatch(refused, absent, table_name)
    if changes == SchemaChanges():
        return None
    try:
        return changed_schema(metadata, changes, case_sensitive=policy.case_sensitive)
    except ValueError as problem:  # such as a column 'a.b' beside a struct 'a' with a field 'b'
        raise SchemaMismatchError(f"Cannot write to {table_name}: {problem}: rename one.") from problem


def _judge(difference: Difference, policy: EvolutionPolicy, bonds: _Bonds) -> tuple[_Verdict, Difference]:
    """Return the verdict on a difference, and the difference, with the reason as its text if the table objects."""
    verdict = _verdict(difference, policy)
    if verdict is not _Verdict.CHANGE or (objection := _objection(difference, policy, bonds)) is None:
        return verdict, difference
    if difference.kind is Kind.RELAX:
        return _Verdict.ACCEPT, difference
    return _Verdict.REFUSE, replace(difference, text=objection)


def _verdict(difference: Difference, policy: EvolutionPolicy) -> _Verdict:
    """Return what the policy wants done about a difference."""
    is_full = policy.mode == "full"
    match difference.kind:
        case Kind.ADD:
            is_wanted = is_full or (policy.mode == "add-columns" and not difference.is_nested)
        case Kind.WIDEN | Kind.MISSING_REQUIRED:
            is_wanted = is_full
        case Kind.INCOMPATIBLE:
            is_wanted = is_full and policy.replace_types
        case Kind.MISSING:
            return _Verdict.CHANGE if is_full and policy.drop_missing_columns else _Verdict.ACCEPT
        case Kind.RELAX:
            is_told = policy.is_nullability_known or difference.is_nested
            return _Verdict.CHANGE if is_full and is_told else _Verdict.ACCEPT
        case Kind.UNFIT | Kind.ORDER:
            is_wanted = False
    return _Verdict.CHANGE if is_wanted else _Verdict.REFUSE


def _objection(difference: Difference, policy: EvolutionPolicy, bonds: _Bonds) -> str | None:
    """Return why the table does not allow the change that the policy wants, or None if it does."""
    path, field_id = difference.path, difference.field_id
    is_relaxed = difference.kind is Kind.RELAX or (
        difference.kind is Kind.MISSING_REQUIRED and not policy.drop_missing_columns
    )
    match difference.kind:
        case Kind.ADD if not difference.is_nested and path in bonds.partition_names:
            return f"column '{path}' is new and has the name of a partition field of the table: rename it"
        case Kind.ADD if not difference.is_nested:
            return why_reserved(path)
        case _ if is_relaxed and field_id in bonds.identifiers:
            return f"column '{path}' is missing in the DataFrame, and identifier fields must have values: add it"
        case Kind.MISSING | Kind.MISSING_REQUIRED if not is_relaxed and field_id in bonds.kept:
            return (
                f"column '{path}' is missing in the DataFrame and cannot be dropped, because {bonds.kept[field_id]}: "
                "add it, or drop the option drop-missing-columns"
            )
        case Kind.INCOMPATIBLE if field_id in bonds.kept:
            return f"{difference.text}; it cannot be replaced, because {bonds.kept[field_id]}"
    return None


def _note(difference: Difference, policy: EvolutionPolicy, changes: SchemaChanges) -> None:
    """Add to `changes` the change that a difference needs."""
    match difference:
        case Difference(kind=Kind.ADD, column=spark.StructField() as column):
            changes.added.setdefault(difference.parent_id, []).append(_new_column(column, policy))
        case Difference(kind=Kind.INCOMPATIBLE, column=spark.StructField() as column):
            changes.replaced[difference.field_id] = _new_column(column, policy)
        case Difference(kind=Kind.WIDEN, widened=widened) if widened is not None:
            changes.widened[difference.field_id] = widened
        case Difference(kind=Kind.MISSING | Kind.MISSING_REQUIRED) if policy.drop_missing_columns:
            changes.dropped.add(difference.field_id)
        case _:
            changes.relaxed.add(difference.field_id)


def _new_column(column: spark.StructField, policy: EvolutionPolicy) -> spark.StructField:
    return nullable_field(column) if policy.use_nullable_query_schema else column


def _bonds(metadata: TableMetadata) -> _Bonds:
    schema = metadata.schema()
    partition_fields = [field for spec in metadata.partition_specs for field in spec.fields]
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    bound = {
        # Only the manifests tell which of the specs still have files.
        "the table is, or was, partitioned by": {
            field.source_id for field in partition_fields if not isinstance(field.transform, VoidTransform)
        },
        "the table is sorted by": {field.source_id for field in order.fields} if order is not None else set(),
        "an identifier field of the table is": set(schema.identifier_field_ids),
    }
    above = dict(_with_those_above(schema.fields, ()))
    return _Bonds(
        identifiers=frozenset(held for field_id in schema.identifier_field_ids for held in above[field_id]),
        kept={
            held: f"{reason} '{schema.find_column_name(field_id)}'"
            for reason, ids in bound.items()
            for field_id in ids & above.keys()
            for held in above[field_id]
        },
        partition_names=frozenset(field.name for field in partition_fields),
    )


def _with_those_above(fields: Sequence[NestedField], above: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the id of every field at any depth, with the ids from the outermost field down to itself."""
    for one in fields:
        ids = (*above, one.field_id)
        yield one.field_id, ids
        yield from _with_those_above(children(one.field_type), ids)
