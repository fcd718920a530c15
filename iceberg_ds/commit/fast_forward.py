"""`publish` and `fast_forward`: move one branch forward to the snapshot of another, in one step.

Readers see the old rows or the new ones. The request requires that both branches still have the snapshots that we saw,
so no commit in between is lost. The transaction markers of the branch's writes go with its rows. If an answer is lost,
the table tells what became of the request: a branch is published if its snapshot is in the history of the other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotRefUpdate

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.existing import connect_to_existing
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.options.parse import options_of_call, parse_call
from iceberg_ds.plan import Route
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    Place,
    branch_head,
    branch_snapshot_id,
    contains,
    has_diverged,
    how_moved,
    published,
    snapshots_since,
    taken_back,
    why_not_writable,
    why_untold,
)
from iceberg_ds.snapshots.snapshot import move_branch
from iceberg_ds.snapshots.txn_properties import PropertyChange, dropped_markers, published_markers, published_record
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)


def fast_forward(table: str, branch: str, to: str, *, options: Mapping[str, str] | None = None) -> int:
    """Move a branch forward to the snapshot of another one, in one step, as Iceberg's procedure `fast_forward` does.

    `fast_forward("db.events", "main", "audit")` does what `publish("db.events", "audit", to="main")` does. Readers of
    `branch` see its old rows until then and the rows of `to` from then on. Nothing changes if `branch` has the snapshot
    already. Unlike the procedure, this does not create `branch` if it is missing.

    Args:
        table: Identifier of the table, such as `db.events`.
        branch: The branch that moves, such as `main`.
        to: The branch that it moves to, such as `audit`; it stays as it is.
        options: Catalog options, as a write has them: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no
            options.

    Returns:
        The id of the snapshot that `to` points to, and that `branch` has now.

    Raises:
        OptionError: The options are malformed, or name another table.
        CommitConflictError: `branch` has moved on since `to` was forked, or one is missing; nothing was changed.
        CommitStateUnknownError: The catalog's answers were lost; calling it again finds out.
        TableNotFoundError: The table does not exist.
        CatalogError: The catalog could not be reached or refused; nothing was changed.
    """
    return publish(table, to, to=branch, options=options)


def publish(table: str, branch: str, *, options: Mapping[str, str] | None = None, to: str = MAIN_BRANCH) -> int:
    """Make the rows of a branch the rows of `to`, in one step: the last step of write-audit-publish.

    Readers of `to` see its old rows until then and all of the new ones from then on. Publishing a branch again changes
    nothing. This is `fast_forward` in the terms of write-audit-publish: the caller names the audited branch.

    Args:
        table: Identifier of the table, such as `db.events`.
        branch: The branch to publish, such as `audit`; it stays as it is.
        options: Catalog options, as a write has them: `catalog`, `catalog.*`, `warehouse`, `namespace`. None for no
            options.
        to: The branch that readers use, which moves forward.

    Returns:
        The id of the snapshot that `branch` points to, and that `to` has now.

    Raises:
        OptionError: The options are malformed, or name another table.
        CommitConflictError: `to` has moved on since `branch` was forked, or one is missing; nothing was changed.
        CommitStateUnknownError: The catalog's answers were lost; publishing again finds out.
        TableNotFoundError: The table does not exist.
        CatalogError: The catalog could not be reached or refused; nothing was changed.
    """
    parsed = parse_call("publish", options_of_call(table, options))
    return publish_branch(connect_to_existing(parsed), parsed.table, branch, to)


def publish_branch(
    catalog: CatalogClient, identifier: Sequence[str], branch: str, to: str, *, with_snapshot: int | None = None
) -> int:
    """Move branch `to` forward to the snapshot of `branch`, and return the snapshot's id; raises as `publish` does.

    Nothing changes if `to` has the snapshot already, with or without newer ones.

    Args:
        catalog: The catalog of the table.
        identifier: The table.
        branch: The branch to publish.
        to: The branch that readers use.
        with_snapshot: A snapshot that `to` must have then, else nothing is changed; None for no certain one.
    """
    name = identifier_text(identifier)

    def is_there(metadata: TableMetadata) -> bool:
        return with_snapshot is not None and contains(metadata, to, with_snapshot)

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        if is_there(metadata):
            return None
        target = _target(metadata, name, branch, to)
        if with_snapshot is not None and not contains(metadata, branch, with_snapshot):
            raise CommitConflictError(
                f"Cannot publish branch '{branch}' of {name}: others have set it back, or made it anew, and it has no "
                f"snapshot {with_snapshot} any more. Nothing was changed."
            )
        if published(metadata, branch, to) is Place.WITHIN:
            return None
        return _request(metadata, branch, to, target, published_record(branch, to, target))

    metadata = alter_table(catalog, identifier, propose).metadata
    target = with_snapshot if with_snapshot and is_there(metadata) else _target(metadata, name, branch, to)
    logger.info("Published %s: branch %s has snapshot %d of branch %s", name, to, target, branch)
    return target


class StagedMeanwhileError(CommitConflictError):
    """Another writer moved the staging branch; nothing was changed."""


class DivergedError(CommitConflictError):
    """Another writer moved the branch that would be moved forward; nothing was changed."""


def fast_forward_whole(
    catalog: CatalogClient, identifier: Sequence[str], branch: str, to: str, snapshot_id: int
) -> tuple[TableMetadata, list[Snapshot]]:
    """Move branch `to` forward to `snapshot_id`, the snapshot of `branch`, and drop `branch`, in one step.

    Nothing changes if `to` has the snapshot already.

    Returns:
        The metadata of the table after that, and the snapshots that `to` got by it, newest first.

    Raises:
        StagedMeanwhileError: `branch` has another snapshot.
        DivergedError: `to` has moved on, and moving it forward would lose rows.
        CommitConflictError, CommitStateUnknownError, TableNotFoundError, CatalogError: As `publish`.
    """
    name = identifier_text(identifier)
    gained: list[Snapshot] = []

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        if contains(metadata, to, snapshot_id):
            return None
        if branch_snapshot_id(metadata, branch) != snapshot_id:
            raise StagedMeanwhileError(
                f"Cannot publish snapshot {snapshot_id} of {name}: branch '{branch}' has moved on. Nothing was changed."
            )
        if has_diverged(metadata, branch, to):
            raise DivergedError(f"'{to}' {how_moved(metadata, branch, to)} meanwhile.")
        gained[:] = snapshots_since(metadata, branch_head(metadata, branch), branch_snapshot_id(metadata, to)) or []
        request = _request(metadata, branch, to, _target(metadata, name, branch, to), {})
        dropped = (*dropped_markers(metadata, branch).updates, RemoveSnapshotRefUpdate(ref_name=branch))
        return CommitRequest(requirements=request.requirements, updates=(*request.updates, *dropped))

    published = alter_table(catalog, identifier, propose).metadata
    logger.info("Published %s: branch %s has snapshot %d of branch %s", name, to, snapshot_id, branch)
    return published, gained


def _target(metadata: TableMetadata, name: str, branch: str, to: str) -> int:
    """Return the snapshot id of `branch`, if `to` can be moved there without losing a snapshot of its own."""
    for used in (branch, to):
        if (reason := why_not_writable(metadata, Route(branch=used))) is not None:
            if used not in metadata.refs:
                reason += ", perhaps because a write that was to create it had no rows"
            raise CommitConflictError(f"Cannot publish branch '{branch}' of {name}: {reason}. Nothing was changed.")
    ahead, behind = branch_head(metadata, branch), branch_head(metadata, to)
    if ahead is None:
        raise CommitConflictError(
            f"Cannot publish branch '{branch}' of {name}: it has no snapshot. Nothing was changed."
        )
    if published(metadata, branch, to) is Place.WITHIN:
        return ahead.snapshot_id
    if (reason := why_untold(metadata, branch, to)) is not None:
        raise CommitConflictError(f"Cannot publish branch '{branch}' of {name}, nothing was changed: {reason}.")
    if (gone := taken_back(metadata, branch, to)) is not None:
        raise CommitConflictError(
            f"Cannot publish branch '{branch}' of {name}, nothing was changed: branch '{to}' was set back behind "
            f"snapshot {gone}, on which '{branch}' (snapshot {ahead.snapshot_id}) builds, and its rows would come "
            f"back. Drop '{branch}' and write it again from '{to}'; or, if they are to come back, set '{to}' to "
            f"snapshot {gone} again first."
        )
    if behind is not None and has_diverged(metadata, branch, to):
        raise CommitConflictError(
            f"Cannot publish branch '{branch}' of {name}, nothing was changed: branch '{to}' has moved on to snapshot "
            f"{behind.snapshot_id}, which '{branch}' (snapshot {ahead.snapshot_id}) does not build on. Drop '{branch}' "
            f"and write it again from '{to}'."
        )
    return ahead.snapshot_id


def _request(metadata: TableMetadata, branch: str, to: str, target: int, record: Mapping[str, str]) -> CommitRequest:
    """Return the request that moves `to` to `target`, the snapshot of `branch`, and sets markers and `record`."""
    markers = published_markers(metadata, branch, to)
    values = {**markers.values, **record}
    change = PropertyChange(values=values, removals=tuple(key for key in markers.removals if key not in values))
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=branch, snapshot_id=target),
            AssertRefSnapshotId(ref=to, snapshot_id=branch_snapshot_id(metadata, to)),
        ),
        updates=(*change.updates, move_branch(metadata, to, target)),
    )
