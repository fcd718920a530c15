"""Pure: what the commit of a write asks of the catalog, with a new schema if one lands with it, and what it answers."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate

from iceberg_ds.catalogs.answers import CommitAnswerLostError, CommitRefusedError
from iceberg_ds.commits.retyping import standing_refs
from iceberg_ds.messages import WriteIdentity
from iceberg_ds.schemas.changes import metadata_with, schema_request
from iceberg_ds.snapshots.branches import base_branch, branch_snapshot_id
from iceberg_ds.snapshots.landing import Finding, Reply
from iceberg_ds.snapshots.marks import kind_of, property_mark
from iceberg_ds.snapshots.snapshots import commit_request
from iceberg_ds.table_requests import CommitRequest


def with_new_schema(table: Table, write: WriteIdentity) -> Table:
    """Return the table as it will be with the schema that lands together with the rows, if there is one."""
    change = write.schema_change
    if change is None:
        return table
    metadata = metadata_with(table.metadata, change.schema, table_name=write.table)
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def mark_request(metadata: TableMetadata, write: WriteIdentity, finding: Finding) -> CommitRequest | None:
    """Return the request that records what the table shows of a write that was done before, None if that is nothing."""
    numbered, base = write.numbered, base_branch(metadata, write.route)
    if numbered is None or finding.mark is None:
        return None
    values = property_mark(kind_of(numbered), base, numbered.writer, finding.mark)
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=base, snapshot_id=branch_snapshot_id(metadata, base)),
        ),
        updates=(SetPropertiesUpdate(updates=values),),
    )


def write_request(  # noqa: PLR0913  # one for each thing that the loop knows
    table: Table, write: WriteIdentity, snapshot: Snapshot, finding: Finding, *, is_new: bool, record_count: int | None
) -> CommitRequest:
    """Return the request that lands the write.

    Args:
        table: The table, freshly loaded.
        write: The write.
        snapshot: What it adds.
        finding: What the table shows of it.
        is_new: Whether it creates the table.
        record_count: How many rows it has, None if that cannot be said.
    """
    request = commit_request(
        table.metadata, write, snapshot, is_new=is_new, last=finding.mark, record_count=record_count
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
    """Return what the catalog said of a request, by its failure."""
    if isinstance(failure, CommitAnswerLostError):
        return Reply.LOST
    return Reply.OVERTAKEN if failure.is_lost_race else Reply.REFUSED
