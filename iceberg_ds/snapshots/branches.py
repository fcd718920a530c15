"""Pure: the branches of a table: where each stands, what lies behind it, and where a new one begins."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

MAIN_BRANCH = "main"


def branch_head(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """Return the snapshot that `branch` points to, None when it has none."""
    ref = metadata.refs.get(branch)
    return find_snapshot(metadata, ref.snapshot_id) if ref else None


def find_snapshot(metadata: TableMetadata, snapshot_id: int) -> Snapshot | None:
    """Return the snapshot with this id, None if there is none, or if it has expired."""
    # Newest first: they are asked for most, and PyIceberg looks through all the others before.
    return next((snapshot for snapshot in reversed(metadata.snapshots) if snapshot.snapshot_id == snapshot_id), None)


def branch_snapshot_id(metadata: TableMetadata, branch: str) -> int | None:
    """Return the id of the snapshot that `branch` points to, None when it has none."""
    ref = metadata.refs.get(branch)
    return ref.snapshot_id if ref else None


def branch_history(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """Yield the snapshots of `branch`, newest first, as far as they have not expired."""
    return _lineage(metadata, branch_head(metadata, branch))


def _lineage(metadata: TableMetadata, head: Snapshot | None) -> Iterator[Snapshot]:
    if head is None:
        return
    yield head
    if head.parent_snapshot_id is None:
        return
    # One dictionary, because a look-up by id in the metadata is a search through all snapshots; and none for a caller
    # whom the newest one has told enough, as it does in most commits.
    by_id = {known.snapshot_id: known for known in metadata.snapshots}
    snapshot = by_id.get(head.parent_snapshot_id)
    while snapshot is not None:
        yield snapshot
        parent_id = snapshot.parent_snapshot_id
        snapshot = by_id.get(parent_id) if parent_id is not None else None


def write_base(
    metadata: TableMetadata, branch: str, fork_from: str | None, publish_to: str | None = None
) -> Snapshot | None:
    """Return the snapshot that a write to `branch` builds on, None for an empty table.

    Args:
        metadata: The table.
        branch: Branch that is written.
        fork_from: Branch whose snapshot a missing `branch` begins with.
        publish_to: Branch that a staging branch is published to: each write begins anew with its snapshot.
    """
    return branch_head(metadata, base_branch(metadata, branch, fork_from, publish_to))


def base_branch(metadata: TableMetadata, branch: str, fork_from: str | None, publish_to: str | None) -> str:
    """Return the branch whose rows, and marks, a write to `branch` builds on; arguments as in `write_base`."""
    if publish_to is not None:
        return publish_to
    return fork_from if branch not in metadata.refs and fork_from is not None else branch


def why_not_writable(
    metadata: TableMetadata, branch: str, fork_from: str | None, publish_to: str | None = None
) -> str | None:
    """Return why rows cannot be added to `branch`, None if they can; arguments as in `write_base`."""
    ref = metadata.refs.get(branch)
    if ref is None:
        return None if branch == MAIN_BRANCH or fork_from is not None else f"it has no branch '{branch}'"
    if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        return f"'{branch}' is a tag, which always stays where it is"
    if publish_to is not None and not contains(metadata, publish_to, ref.snapshot_id):
        # Written again, the rows of a write that failed between commit and publishing would be there twice.
        return (
            f"staging branch '{branch}' holds snapshot {ref.snapshot_id}, which '{publish_to}' has not: another write "
            "is about to publish it, or failed to. Publish it with iceberg_ds.publish, or drop the branch"
        )
    return None


def contains(metadata: TableMetadata, branch: str, snapshot_id: int) -> bool:
    """Return whether `branch` stands at this snapshot or has it behind it, as far as snapshots have not expired."""
    return any(snapshot.snapshot_id == snapshot_id for snapshot in branch_history(metadata, branch))


def snapshots_since(metadata: TableMetadata, head: Snapshot | None, base_id: int | None) -> list[Snapshot] | None:
    """Return the snapshots that came after `base_id`, up to and with `head`, newest first.

    Returns:
        None if `base_id` does not lie behind `head`, as far as snapshots have not expired.
    """
    since: list[Snapshot] = []
    for snapshot in _lineage(metadata, head):
        if snapshot.snapshot_id == base_id:
            return since
        since.append(snapshot)
    return since if base_id is None else None
