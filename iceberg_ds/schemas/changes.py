"""Pure: changes of a table's schema, once decided, as the new schema and as the catalog request that sets it.

Field ids, docs, defaults and the order of what exists stay; what is new is optional and gets ids that the
table has never used. Source: Iceberg spec, "Schema Evolution" and "Column Projection".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import parse_mapping_from_json, update_mapping
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
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import types as spark

from iceberg_ds.errors import CommitConflictError, UnsupportedTableError
from iceberg_ds.schemas.differences import ROOT_ID
from iceberg_ds.schemas.fit import children
from iceberg_ds.schemas.leaves import METRICS_PREFIX
from iceberg_ds.schemas.spark_types import convert_type
from iceberg_ds.table_requests import LAST_ADDED, AddSchema, CommitRequest

_COLUMN_METRICS_PREFIX = f"{METRICS_PREFIX}column."


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChanges:
    """What is to be done with the fields of a schema.

    Attributes:
        added: Columns to add, by the id of the field that holds the struct, `ROOT_ID` for the table itself.
        widened: New types, by id.
        replaced: Columns to put in the place of fields, by id.
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
            field_type=convert_type(column.dataType, self._ids, case_sensitive=self._case_sensitive),
            required=False,
            doc=(column.metadata or {}).get("comment", doc),
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
    """Return the request that makes `schema` the table's; it is refused if the schema is no longer `metadata`'s.

    Takes up the id of an equal schema that the table has had (spec, "Table Metadata Fields": `schemas`), keeps
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
    """Return the update by which columns are found in files without field ids; such files have no new columns."""
    text = metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING)
    if not text:
        return ()
    try:
        mapping = parse_mapping_from_json(text)
    except ValueError as malformed:
        raise UnsupportedTableError(
            f"Cannot change the schema of {table_name}: its property {TableProperties.DEFAULT_NAME_MAPPING} is no "
            "name mapping, and columns of old files would be mixed up: correct or remove it."
        ) from malformed
    added = dict(_added_fields(metadata.schema().field_ids, schema.fields, ROOT_ID))
    updated = update_mapping(mapping, {}, added)
    return (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: updated.model_dump_json()}),)


def _added_fields(
    known: set[int], fields: Sequence[NestedField], parent_id: int
) -> Iterator[tuple[int, list[NestedField]]]:
    """Yield new fields by the id of what holds them, without those that are new with what holds them."""
    if added := [child for child in fields if child.field_id not in known]:
        yield parent_id, added
    for child in fields:
        if child.field_id in known:
            yield from _added_fields(known, children(child.field_type), child.field_id)


def _metrics_updates(metadata: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    """Return the update without which Java refuses the properties of a table: they name columns it lacks."""
    dropped = {*metadata.schema().column_names} - {*schema.column_names}
    idle = sorted(f"{_COLUMN_METRICS_PREFIX}{name}" for name in dropped)
    removals = [key for key in idle if key in metadata.properties]
    return (RemovePropertiesUpdate(removals=removals),) if removals else ()
