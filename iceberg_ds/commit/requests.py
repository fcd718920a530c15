"""What the commit of a write asks of the catalog: its snapshot, and a new schema if one lands with it.

A column whose type is replaced by a write of all rows is dropped and added again under a new id. The schema is that of
the whole table, so every row that stays, on any branch, would read null there. Which rows stay is checked when the
write is planned, so that no task runs in vain, and in each attempt of the commit, whose request requires that all
branches and tags still are where the check saw them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError
from iceberg_ds.errors import CommitConflictError, SchemaMismatchError
from iceberg_ds.plan import Route, SchemaChange, WriteIdentity
from iceberg_ds.snapshots.commit_status import Reply, StatusCheck
from iceberg_ds.snapshots.manifests import live_manifests
from iceberg_ds.snapshots.refs import BranchHistory, base_branch, branch_snapshot_id
from iceberg_ds.snapshots.snapshot import commit_request
from iceberg_ds.snapshots.txn import kind_of, marker_property
from iceberg_ds.snapshots.txn_properties import met_in_history
from iceberg_ds.table.compatibility import taken_names
from iceberg_ds.table.requests import CommitRequest
from iceberg_ds.table.schema_evolution import metadata_with, schema_request

if TYPE_CHECKING:
    from iceberg_ds.commit.overwrite import FilteredManifests


_ADVICE = (
    "Schemas are of the whole table: cast the column to the table's type, write it under another name or into another "
    "table, or drop those branches and tags first."
)


def check_replaceable(
    metadata: TableMetadata, io: FileIO, change: SchemaChange, route: Route, *, table_name: str
) -> None:
    """Refuse to plan a write that replaces types under rows that it does not replace.

    Raises:
        SchemaMismatchError: Another branch, or a tag, has rows.
    """
    if (reason := _reason(metadata, io, change, route.branch)) is not None:
        raise SchemaMismatchError(f"Cannot write to {table_name}: {reason}. {_ADVICE}")


def check_no_row_stays(table: Table, write: WriteIdentity, filtered: FilteredManifests) -> None:
    """Refuse to commit a write that replaces types if any row stays.

    Args:
        table: The table, freshly loaded.
        write: The write.
        filtered: What the write replaces in its branch.

    Raises:
        CommitConflictError: A row that came meanwhile stays on the branch, or another branch or a tag has rows.
    """
    change = write.schema_change
    if change is None or not (names := replaced_columns(table.metadata, change)):
        return
    reason = _reason(table.metadata, table.io, change, write.branch)
    if _keeps_rows(filtered):
        reason = _would_stay(names, write.branch)
    if reason is not None:
        raise CommitConflictError(
            f"Cannot commit {write}, nothing was committed: {reason}. They came after this write began. Run the write "
            "again."
        )


def standing_refs(metadata: TableMetadata, write: WriteIdentity) -> tuple[AssertRefSnapshotId, ...]:
    """Return the requirements that all other known branches and tags still are where they were checked."""
    if write.schema_change is None or not replaced_columns(metadata, write.schema_change):
        return ()
    return tuple(
        AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id)
        for name, ref in sorted(metadata.refs.items())
        if name != write.branch
    )


def replaced_columns(metadata: TableMetadata, change: SchemaChange) -> list[str]:
    """Return the columns, and fields of structs, whose types are replaced."""
    base = metadata.schema_by_id(change.base_schema_id)
    return [] if base is None else taken_names(base, change.schema)


def _reason(metadata: TableMetadata, io: FileIO, change: SchemaChange, branch: str) -> str | None:
    names = replaced_columns(metadata, change)
    other = next(_others_with_rows(metadata, io, branch), None) if names else None
    return None if other is None else _would_stay(names, other)


def _would_stay(names: list[str], ref: str) -> str:
    return (
        f"the type of column '{names[0]}' is replaced, under a new id, and '{ref}' has rows that would stay and read "
        "nulls there"
    )


def _others_with_rows(metadata: TableMetadata, io: FileIO, branch: str) -> Iterator[str]:
    for name, ref in sorted(metadata.refs.items()):
        manifests = live_manifests(io, metadata.snapshot_by_id(ref.snapshot_id))
        if name != branch and any(manifest.content == ManifestContent.DATA for manifest in manifests):
            yield name


def _keeps_rows(filtered: FilteredManifests) -> bool:
    if any(manifest.content == ManifestContent.DATA for manifest in filtered.untouched):
        return True
    return any(change.kept for change in filtered.replaced if change.manifest.content == ManifestContent.DATA)


def with_new_schema(table: Table, write: WriteIdentity) -> Table:
    """Return the table as it will be with the schema that lands together with the rows, if the write has one."""
    change = write.schema_change
    if change is None:
        return table
    metadata = metadata_with(table.metadata, change.schema, table_name=write.table)
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def marker_request(metadata: TableMetadata, write: WriteIdentity, finding: StatusCheck) -> CommitRequest | None:
    """Return the request that records what only history tells of a branch that has a write, or None if nothing does."""
    base = base_branch(metadata, write.route)
    values = met_in_history(BranchHistory(metadata, base))
    if write.numbered is not None and finding.marker is not None and not finding.is_recorded:
        values |= marker_property(kind_of(write.numbered), base, write.numbered.writer, finding.marker)
    if not values:
        return None
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=base, snapshot_id=branch_snapshot_id(metadata, base)),
        ),
        updates=(SetPropertiesUpdate(updates=values),),
    )


def write_request(  # noqa: PLR0913  # one for each thing that the loop knows
    table: Table,
    write: WriteIdentity,
    snapshot: Snapshot,
    finding: StatusCheck,
    *,
    is_new: bool,
    record_count: int | None,
) -> CommitRequest:
    """Return the request that lands the write.

    Args:
        table: The table, freshly loaded.
        write: The write.
        snapshot: The snapshot that it adds.
        finding: The write's commit status, as the table shows it.
        is_new: Whether it creates the table.
        record_count: Number of its rows; None if unknown.
    """
    request = commit_request(
        table.metadata, write, snapshot, is_new=is_new, last=finding.marker, record_count=record_count
    )
    change = write.schema_change
    if change is None:
        return request
    before = schema_request(table.metadata, change.schema, table_name=write.table)
    return CommitRequest(
        requirements=(*request.requirements, *before.requirements, *standing_refs(table.metadata, write)),
        updates=(*before.updates, *request.updates),
    )


def reply_of(failure: CommitRefusedError | CommitAnswerLostError) -> Reply:
    """Return what the catalog said of a request that failed with `failure`."""
    if isinstance(failure, CommitAnswerLostError):
        return Reply.LOST
    if failure.is_lost_race and not failure.is_certain:
        return Reply.OVERTAKEN
    return Reply.GONE if failure.is_gone else Reply.REFUSED
