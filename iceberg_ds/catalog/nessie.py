"""Pure: what Nessie leaves out of Iceberg's commit protocol, and the requests that make up for it.

Measured against Nessie 0.99: it ignores a requirement that a branch has no snapshot yet, so two first
commits are both accepted and the second replaces the first; it takes a snapshot of any branch for the table's
only one; and it makes the schema that a snapshot names the table's schema, even if that has changed meanwhile.
It does honour requirements on ids that the table has assigned, and on the snapshot that the table has. It
refuses to set properties twice in one request, and a schema without `last-column-id`, which each `AddSchema`
of the sink has.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCreate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import NestedField

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.snapshots.version_3 import VERSION_3
from iceberg_ds.table.requests import AddSchema, CommitRequest, UpgradeFormatVersion

# The property that Nessie sends its clients in the answer to their first request.
_TELLING_PROPERTY = "nessie.is-nessie-catalog"


def is_nessie(properties: Mapping[str, str]) -> bool:
    """Return whether a catalog with these properties, including those that its server sends, is Nessie."""
    return properties.get(_TELLING_PROPERTY, "").lower() == "true"


def check_branch(branch: str, *, table_name: str) -> None:
    """Refuse every branch but the main one.

    Raises:
        UnsupportedTableError: Nessie would replace the rows of the table with those of the branch.
    """
    if branch != MAIN_BRANCH:
        raise UnsupportedTableError(
            f"Cannot write to branch '{branch}' of {table_name}: Nessie holds no branches of single tables, and the "
            "rows would replace those of the table. Nessie branches the whole catalog instead: name its branch in "
            "catalog.uri (http://HOST/iceberg/BRANCH), and drop the options 'branch', 'staging-branch' and "
            "'publish-converted'."
        )


def guarded(request: CommitRequest, metadata: TableMetadata, *, table_name: str) -> CommitRequest:
    """Return `request`, changed so that Nessie refuses it where another catalog would.

    Args:
        request: The request that any catalog gets.
        metadata: The table that the request was made from.
        table_name: The table's name, for errors.

    Raises:
        UnsupportedTableError: The request moves another branch than the main one, or upgrades the table's format to
            version 3.
    """
    for update in request.updates:
        if isinstance(update, SetSnapshotRefUpdate):
            check_branch(update.ref_name, table_name=table_name)
        elif isinstance(update, UpgradeFormatVersion) and update.format_version >= VERSION_3:
            raise UnsupportedTableError(
                f"Cannot upgrade {table_name} to format version {update.format_version}: Nessie does not know it. Drop "
                "the options 'format-version' and 'upgrade-format'; the table stays as it is."
            )
    request = _properties_at_once(request)
    if any(isinstance(requirement, AssertCreate) for requirement in request.requirements):
        return request
    return _first_of_all(_of_same_schema(request, metadata), metadata)


def _properties_at_once(request: CommitRequest) -> CommitRequest:
    """Set all properties in one update: Nessie refuses several, such as a new table's and a transaction marker."""
    settings = [update for update in request.updates if isinstance(update, SetPropertiesUpdate)]
    if len(settings) <= 1:
        return request
    merged = SetPropertiesUpdate(updates={key: text for update in settings for key, text in update.updates.items()})
    others = (update for update in request.updates if not isinstance(update, SetPropertiesUpdate))
    return CommitRequest(requirements=request.requirements, updates=(*others, merged))


def _of_same_schema(request: CommitRequest, metadata: TableMetadata) -> CommitRequest:
    """Refuse a snapshot that would set the table back to the older schema that the snapshot was made with."""
    adds_snapshot = any(isinstance(update, AddSnapshotUpdate) for update in request.updates)
    is_required = any(isinstance(requirement, AssertCurrentSchemaId) for requirement in request.requirements)
    if not adds_snapshot or is_required:
        return request
    same = AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id)
    return CommitRequest(requirements=(*request.requirements, same), updates=request.updates)


def _first_of_all(request: CommitRequest, metadata: TableMetadata) -> CommitRequest:
    """Let a first commit use up a field id, so that another first commit, which requires the same id, is refused."""
    if not any(_says_empty(requirement) for requirement in request.requirements):
        return request
    unused = AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id)
    others = [other for other in request.requirements if not isinstance(other, AssertLastAssignedFieldId)]
    return CommitRequest(requirements=(*others, unused), updates=_using_up_an_id(request.updates, metadata))


def _says_empty(requirement: TableRequirement) -> bool:
    if not isinstance(requirement, AssertRefSnapshotId) or requirement.ref != MAIN_BRANCH:
        return False
    return requirement.snapshot_id is None


def _using_up_an_id(updates: tuple[TableUpdate, ...], metadata: TableMetadata) -> tuple[TableUpdate, ...]:
    if not any(isinstance(update, AddSchemaUpdate) for update in updates):
        return (_same_columns(metadata), *updates)
    return tuple(
        AddSchema(schema_=update.schema_, last_column_id=_highest(update.schema_, metadata) + 1)
        if isinstance(update, AddSchemaUpdate)
        else update
        for update in updates
    )


def _same_columns(metadata: TableMetadata) -> AddSchema:
    """Return an update that adds the present columns once more, as a schema that does not become the current one."""
    first, *others = metadata.schema().fields
    told_apart = NestedField(
        field_id=first.field_id,
        name=first.name,
        field_type=first.field_type,
        required=first.required,
        # Nessie drops a schema that it knows; another comment makes it another schema.
        doc="" if first.doc is None else f"{first.doc} ",
        initial_default=first.initial_default,
        write_default=first.write_default,
    )
    schema_id = 1 + max(schema.schema_id for schema in metadata.schemas)
    return AddSchema(
        schema_=Schema(
            told_apart, *others, schema_id=schema_id, identifier_field_ids=metadata.schema().identifier_field_ids
        ),
        last_column_id=metadata.last_column_id + 1,
    )


def _highest(schema: Schema, metadata: TableMetadata) -> int:
    return max(metadata.last_column_id, schema.highest_field_id)
