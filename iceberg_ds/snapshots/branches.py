"""Pure: the branches of a table: where each stands, what lies behind it, and where a new one begins."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from iceberg_ds.plan import Route

MAIN_BRANCH = "main"
# In the summary of a snapshot that waits to be converted: the branch that it is published to. Whoever wrote it is told
# only then that it is done, and writes it again otherwise.
STAGED_FOR_KEY = "icebergsink.staged-for"
# In the summary of a snapshot after which the branch has the same rows, whatever its operation is.
KEEPS_ROWS_KEY = "icebergsink.keeps-rows"


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


def write_base(metadata: TableMetadata, route: Route) -> Snapshot | None:
    """Return the snapshot that a write builds on, None for an empty table."""
    return branch_head(metadata, base_branch(metadata, route))


def base_branch(metadata: TableMetadata, route: Route) -> str:
    """Return the branch whose rows, and marks, a write builds on.

    A missing branch begins with the snapshot of the one that it is forked from; a staging branch begins each time anew
    with that of the branch that it is published to, but for what waits on it to be converted.
    """
    if route.publish_to is not None:
        keeps = route.converts and waits(metadata, route.branch, route.publish_to)
        return route.branch if keeps else route.publish_to
    return route.fork_from if route.branch not in metadata.refs and route.fork_from is not None else route.branch


def waits(metadata: TableMetadata, branch: str, publish_to: str) -> bool:
    """Return whether a staging branch has what is still to be converted and published.

    What cannot be published any more, because `publish_to` has moved on, does not wait if all that wrote it will
    write it again.
    """
    head = branch_head(metadata, branch)
    if head is None or contains(metadata, publish_to, head.snapshot_id):
        return False
    return not (has_diverged(metadata, branch, publish_to) and _comes_again(metadata, branch, publish_to))


def has_diverged(metadata: TableMetadata, branch: str, publish_to: str) -> bool:
    """Return whether `publish_to` cannot be fast-forwarded to a staging branch that has snapshots of its own."""
    behind = branch_snapshot_id(metadata, publish_to)
    return behind is not None and not contains(metadata, branch, behind)


def _comes_again(metadata: TableMetadata, branch: str, publish_to: str) -> bool:
    """Return whether every row that the staging branch alone has is of a write that is repeated until published."""
    published = {snapshot.snapshot_id for snapshot in branch_history(metadata, publish_to)}
    for snapshot in branch_history(metadata, branch):
        if snapshot.snapshot_id in published:
            return True
        if not _keeps_rows(snapshot) and _summary_entry(snapshot, STAGED_FOR_KEY) != publish_to:
            return False
    return False  # where both came from has expired


def _keeps_rows(snapshot: Snapshot) -> bool:
    """Return whether the branch has the same rows after the snapshot as before it."""
    is_replacement = snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE
    return is_replacement or _summary_entry(snapshot, KEEPS_ROWS_KEY) == "true"


def _summary_entry(snapshot: Snapshot, key: str) -> str | None:
    return None if snapshot.summary is None else snapshot.summary[key]


def why_not_writable(metadata: TableMetadata, route: Route) -> str | None:
    """Return why rows cannot be added to the branch of this route, None if they can."""
    branch, publish_to = route.branch, route.publish_to
    ref = metadata.refs.get(branch)
    if ref is None:
        return None if branch == MAIN_BRANCH or route.fork_from is not None else f"it has no branch '{branch}'"
    if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        return f"'{branch}' is a tag, which always stays where it is"
    if publish_to is not None and route.converts:
        return _why_not_publishable(metadata, branch, publish_to)
    if publish_to is not None and not contains(metadata, publish_to, ref.snapshot_id):
        # Written again, the rows of a write that failed between commit and publishing would be there twice.
        return (
            f"staging branch '{branch}' holds snapshot {ref.snapshot_id}, which '{publish_to}' has not: another write "
            "is about to publish it, or failed to. Publish it with iceberg_ds.publish, or drop the branch"
        )
    return None


def _why_not_publishable(metadata: TableMetadata, branch: str, publish_to: str) -> str | None:
    if not (waits(metadata, branch, publish_to) and has_diverged(metadata, branch, publish_to)):
        return None
    target, staged = branch_snapshot_id(metadata, publish_to), branch_snapshot_id(metadata, branch)
    return (
        f"branch '{publish_to}' has moved on to snapshot {target}, and staging branch '{branch}' (snapshot {staged}), "
        "which does not build on it, holds rows of a write without a number, which nothing repeats. Drop it, and write "
        "these rows again"
    )


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
