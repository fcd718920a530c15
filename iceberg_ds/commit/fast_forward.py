"""Fast-forwards one branch to another, in one step: readers see the old rows or the new ones.

The request moves the branch under the condition that both stand where they stood when we looked, so nothing
that came between is lost. The marks of the branch's writes go with its rows. What became of the request, the table
tells: a branch whose snapshot stands in the other's history has been published, by whomever.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotRefUpdate

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.options.sink_options import given_options, parse_options
from iceberg_ds.plan import Route
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    Place,
    branch_head,
    branch_snapshot_id,
    contains,
    has_diverged,
    published,
    why_not_writable,
    why_untold,
)
from iceberg_ds.snapshots.snapshot import move_branch
from iceberg_ds.snapshots.txn_properties import PropertyChange, dropped_marks, published_marks, published_record
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)


def publish(table: str, branch: str, *, to: str = MAIN_BRANCH, options: Mapping[str, str] | None = None) -> int:
    """Make the rows of a branch those of `to`, in one step, and return the id of the snapshot that both stand at then.

    Readers of `to` see its old rows until then and all of the new ones from then on. Publishing again what is
    published changes nothing.

    Args:
        table: Identifier of the table, such as `db.events`.
        branch: The branch to publish.
        to: The branch that readers use.
        options: Catalog options, as a write has them: `catalog`, `catalog.*`, `warehouse`, `namespace`.

    Raises:
        OptionError: The options are malformed.
        CommitConflictError: `to` has moved on since `branch` was forked, or one is missing; nothing was changed.
        CommitStateUnknownError: The catalog's answers were lost; publishing again finds out.
        TableNotFoundError: There is no such table.
        CatalogError: The catalog could not be reached or refuses; nothing was changed.
    """
    parsed = parse_options({**given_options(options), "table": table})
    return fast_forward(connect(catalog_settings(parsed)), parsed.table, branch, to)


def fast_forward(catalog: CatalogClient, identifier: Sequence[str], branch: str, to: str) -> int:
    """Move branch `to` forward to the snapshot of `branch`, and return its id; raises as `publish` does.

    Nothing happens if it stands there already, or has gone on from there.
    """
    name = identifier_text(identifier)

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        target = _target(metadata, name, branch, to)
        if published(metadata, branch, to) is Place.WITHIN:
            return None
        return _request(metadata, branch, to, target, published_record(branch, to, target))

    target = _target(alter_table(catalog, identifier, propose).metadata, name, branch, to)
    logger.info("Published %s: branch %s has snapshot %d of branch %s", name, to, target, branch)
    return target


class StagedMeanwhileError(CommitConflictError):
    """Another writer has moved the staging branch; nothing was changed."""


class DivergedError(CommitConflictError):
    """Another writer has moved the branch to publish to; nothing was changed."""


def fast_forward_whole(
    catalog: CatalogClient, identifier: Sequence[str], branch: str, to: str, snapshot_id: int
) -> TableMetadata:
    """Move branch `to` forward to `snapshot_id`, at which `branch` stands, and drop `branch`, in one step.

    Nothing happens if `to` has the snapshot.

    Returns:
        The table as it is then.

    Raises:
        StagedMeanwhileError: `branch` stands elsewhere.
        DivergedError: `to` has moved on, and cannot be moved without losing rows.
        CommitConflictError, CommitStateUnknownError, TableNotFoundError, CatalogError: As `publish`.
    """
    name = identifier_text(identifier)

    def propose(metadata: TableMetadata) -> CommitRequest | None:
        if contains(metadata, to, snapshot_id):
            return None
        if branch_snapshot_id(metadata, branch) != snapshot_id:
            raise StagedMeanwhileError(
                f"Cannot publish snapshot {snapshot_id} of {name}: branch '{branch}' has moved on. Nothing was changed."
            )
        if has_diverged(metadata, branch, to):
            raise DivergedError(f"'{to}' has moved on to snapshot {branch_snapshot_id(metadata, to)} meanwhile.")
        request = _request(metadata, branch, to, _target(metadata, name, branch, to), {})
        dropped = (*dropped_marks(metadata, branch).updates, RemoveSnapshotRefUpdate(ref_name=branch))
        return CommitRequest(requirements=request.requirements, updates=(*request.updates, *dropped))

    published = alter_table(catalog, identifier, propose).metadata
    logger.info("Published %s: branch %s has snapshot %d of branch %s", name, to, snapshot_id, branch)
    return published


def _target(metadata: TableMetadata, name: str, branch: str, to: str) -> int:
    """Return the snapshot that `branch` stands at, if `to` can be moved there without losing any of its own."""
    for used in (branch, to):
        if (reason := why_not_writable(metadata, Route(branch=used))) is not None:
            raise CommitConflictError(f"Cannot publish branch '{branch}' of {name}: {reason}. Nothing was changed.")
    ahead, behind = branch_head(metadata, branch), branch_head(metadata, to)
    if ahead is None:
        raise CommitConflictError(f"Cannot publish branch '{branch}' of {name}: it has no snapshot. Nothing changed.")
    if published(metadata, branch, to) is Place.WITHIN:
        return ahead.snapshot_id
    if (reason := why_untold(metadata, branch, to)) is not None:
        raise CommitConflictError(f"Cannot publish branch '{branch}' of {name}, nothing was changed: {reason}.")
    if behind is not None and has_diverged(metadata, branch, to):
        raise CommitConflictError(
            f"Cannot publish branch '{branch}' of {name}, nothing was changed: branch '{to}' has moved on to snapshot "
            f"{behind.snapshot_id}, which '{branch}' (snapshot {ahead.snapshot_id}) does not build on. Drop '{branch}' "
            f"and write it again from '{to}'."
        )
    return ahead.snapshot_id


def _request(metadata: TableMetadata, branch: str, to: str, target: int, record: Mapping[str, str]) -> CommitRequest:
    """Return what moves `to` to `target`, the snapshot of `branch`, and sets the properties `record` besides marks."""
    marks = published_marks(metadata, branch, to)
    values = {**marks.values, **record}
    change = PropertyChange(values=values, removals=tuple(key for key in marks.removals if key not in values))
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=branch, snapshot_id=target),
            AssertRefSnapshotId(ref=to, snapshot_id=branch_snapshot_id(metadata, to)),
        ),
        updates=(*change.updates, move_branch(metadata, to, target)),
    )
