"""Pure: what changes in a table's schema so that it takes a DataFrame.

A policy says which differences become changes, which are written as they are, and which are refused. Whatever
it says, old rows stay readable, and what the table is partitioned, sorted or keyed by stays where it is.
Source: Iceberg spec, "Schema Evolution", "Partition Evolution" and "Identifier Field IDs".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Literal, TypeAlias

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField
from pyspark.sql import types as spark

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.schemas.changes import SchemaChanges, changed_schema, schema_request
from iceberg_ds.schemas.differences import Difference, Kind, find_differences
from iceberg_ds.schemas.fit import children, mismatch
from iceberg_ds.schemas.reserved import why_reserved
from iceberg_ds.schemas.spark_types import nullable_field
from iceberg_ds.table_requests import CommitRequest

SchemaEvolution: TypeAlias = Literal["strict", "add-columns", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolutionPolicy:
    """What may change in a table's schema to take a DataFrame.

    Attributes:
        mode: `strict`: nothing. `add-columns`: new columns. `full`: all that keeps the table's rows readable.
            Whatever it is, optional columns and fields may be missing, and get nulls.
        drop_missing_columns: With `full`: drop columns and fields that the DataFrame lacks, instead of nulls in them.
        replace_types: With `full`, for a write that replaces all rows: a column whose type does not fit is dropped
            and added again under the same name and a new id.
        case_sensitive: How names are matched, see `names.find_position`.
        check_ordering: Refuse columns that come in another order than the table's.
        is_nullability_known: Whether a nullable column of the DataFrame tells that it may hold nulls. In a stream it
            tells nothing, since Spark marks all columns of a stream nullable; then only the rows themselves count.
        use_nullable_query_schema: All that is nested in a new column is optional, whatever the DataFrame says of it.
            The column itself is in any case, since old rows lack it.
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
    ACCEPT = auto()  # the write deals with it: nulls for what is missing, a look at each row for what is required
    CHANGE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bonds:
    """What in a table depends on its fields; a bond of a field is one of what is around it, too.

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
    """Return the request that lets the table take `dataframe`, None if it does as it is.

    Made for `alter_table`: asked again about a table that another writer has changed, it asks for what is left.

    Raises:
        SchemaMismatchError: As `propose_schema`.
        UnsupportedTableError: As `schema_request`.
    """
    schema = propose_schema(dataframe, metadata, policy, table_name=table_name)
    return None if schema is None else schema_request(metadata, schema, table_name=table_name)


def propose_schema(
    dataframe: spark.StructType, metadata: TableMetadata, policy: EvolutionPolicy, *, table_name: str
) -> Schema | None:
    """Return the schema that the table needs to take `dataframe`, None if the present one does.

    Proposed again for a table that has the proposal, nothing is left to change.

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
        dataframe, metadata.schema(), case_sensitive=policy.case_sensitive, check_ordering=policy.check_ordering
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
    """Return what is done about a difference, and the difference with the reason if the table stands against it."""
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
    """Return why the table does not allow the change that the policy wants, None if it does."""
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
    """Add to `changes` what is to be done about a difference."""
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
        # Which of the specs still have files, only the manifests tell.
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
    for field in fields:
        ids = (*above, field.field_id)
        yield field.field_id, ids
        yield from _with_those_above(children(field.field_type), ids)
