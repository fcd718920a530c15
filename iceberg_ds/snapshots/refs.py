"""Pure: the branches of a table: where each one is, what lies behind it, and where a new branch begins."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from functools import cached_property
from urllib.parse import quote

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from iceberg_ds.plan import Route
from iceberg_ds.pyiceberg_inner import summary_entries

MAIN_BRANCH = "main"
# In the summary of a snapshot that waits to be converted: the branch that it is published to. Only after publication
# is its writer told that the write is done; otherwise the writer repeats it.
STAGED_FOR_KEY = "icebergsink.staged-for"
# In the summary of a snapshot after which the branch has the same rows, for any operation.
KEEPS_ROWS_KEY = "icebergsink.keeps-rows"
# In the summary of a snapshot of an overwrite, for any operation: it is an append if there were no rows to replace.
REPLACES_ROWS_KEY = "icebergsink.replaces-rows"
# In the summary of a snapshot on another branch than the one that readers use: the snapshot that the readers' branch
# had, an ancestor of this one. The entry still tells so when the snapshots between the two have expired.
BUILDS_ON_KEY = "icebergsink.builds-on"
# Prefix of the table properties that hold, for a branch and another that was published to it, the published snapshot.
# The property still tells so when the history of the former ends before that snapshot.
PUBLISHED_PREFIX = "icebergsink.published"


class Place(Enum):
    """The place of a snapshot relative to a branch."""

    WITHIN = auto()  # the branch points to the snapshot, or has it in its history
    OUTSIDE = auto()  # the branch does not have it
    UNKNOWN = auto()  # the history that would tell has expired


def branch_property(prefix: str, branch: str, name: str) -> str:
    """Return the table property with this prefix that belongs to a branch and a name.

    No dot is left in the name: else a branch with a dot and a name could be read as another branch and name.
    """
    return f"{prefix}.{branch}.{quote(name, safe='').replace('.', '%2E')}"


def branch_head(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """Return the snapshot that `branch` points to, or None if it has no snapshot."""
    ref = metadata.refs.get(branch)
    return find_snapshot(metadata, ref.snapshot_id) if ref else None


def last_sequence_number(metadata: TableMetadata) -> int:
    """Return the table's last sequence number, 0 in format version 1, which has none."""
    return 0 if metadata.format_version == 1 else metadata.last_sequence_number


def find_snapshot(metadata: TableMetadata, snapshot_id: int) -> Snapshot | None:
    """Return the snapshot with this id, or None if it does not exist or has expired."""
    # Newest first: new snapshots are asked for most, and PyIceberg looks through all older ones before.
    return next((snapshot for snapshot in reversed(metadata.snapshots) if snapshot.snapshot_id == snapshot_id), None)


def branch_snapshot_id(metadata: TableMetadata, branch: str) -> int | None:
    """Return the id of the snapshot that `branch` points to, or None if it has no snapshot."""
    ref = metadata.refs.get(branch)
    return ref.snapshot_id if ref else None


def branch_history(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """Yield the snapshots of `branch`, newest first, as far as they have not expired."""
    return ancestors_of(metadata, branch_head(metadata, branch))


class BranchHistory:
    """The snapshots of a branch, newest first, as far as they have not expired; each is looked up once.

    Attributes:
        metadata: The table.
        branch: The branch.
    """

    def __init__(self, metadata: TableMetadata, branch: str) -> None:
        self.metadata = metadata
        self.branch = branch
        self._read: list[Snapshot] = []
        self._rest = branch_history(metadata, branch)

    def __iter__(self) -> Iterator[Snapshot]:
        read, position = self._read, 0
        while True:
            if position == len(read):
                if (snapshot := next(self._rest, None)) is None:
                    return
                read.append(snapshot)
            yield read[position]
            position += 1

    @property
    def oldest(self) -> Snapshot | None:
        """The oldest snapshot that the branch shows; None if it has no snapshot."""
        self._read.extend(self._rest)
        return self._read[-1] if self._read else None

    def shows(self, snapshot_id: int) -> bool:
        """Return whether the branch has this snapshot, and it has not expired."""
        return snapshot_id in self._ids

    @cached_property
    def _ids(self) -> frozenset[int]:
        return frozenset(snapshot.snapshot_id for snapshot in self)

    @cached_property
    def main(self) -> BranchHistory:
        """The history of `main` in the same table."""
        return self if self.branch == MAIN_BRANCH else BranchHistory(self.metadata, MAIN_BRANCH)

    @cached_property
    def ends_within_main(self) -> bool:
        """Whether a branch other than `main` ends at a snapshot of `main`: what lies behind it is the same for both."""
        oldest = self.oldest
        return oldest is not None and self.branch != MAIN_BRANCH and self.main.shows(oldest.snapshot_id)


def ancestors_of(metadata: TableMetadata, head: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot and those that it descends from, newest first, as far as they have not expired."""
    if head is None:
        return
    yield head
    if head.parent_snapshot_id is None:
        return
    # One dictionary, because a look-up by id in the metadata is a search through all snapshots; and no dictionary for
    # a caller that needs only the newest snapshot, as in most commits.
    by_id = {known.snapshot_id: known for known in metadata.snapshots if known is not head}
    snapshot = by_id.pop(head.parent_snapshot_id, None)  # each once: damaged metadata may have parents in a circle
    while snapshot is not None:
        yield snapshot
        parent_id = snapshot.parent_snapshot_id
        snapshot = by_id.pop(parent_id, None) if parent_id is not None else None


def write_base(metadata: TableMetadata, route: Route) -> Snapshot | None:
    """Return the snapshot that a write builds on, or None for an empty table."""
    return branch_head(metadata, base_branch(metadata, route))


def base_branch(metadata: TableMetadata, route: Route) -> str:
    """Return the branch whose rows and markers a write builds on.

    A missing branch begins with the snapshot of the branch that it is forked from; a staging branch begins anew each
    time with the snapshot of the branch that it is published to, unless it has writes that wait to be converted.
    """
    if route.publish_to is not None:
        keeps = route.converts and waits(metadata, route.branch, route.publish_to)
        return route.branch if keeps else route.publish_to
    return route.fork_from if route.branch not in metadata.refs and route.fork_from is not None else route.branch


def waits(metadata: TableMetadata, branch: str, publish_to: str) -> bool:
    """Return whether a staging branch has writes that are still to be converted and published.

    Writes that can no longer be published, because `publish_to` has moved on, do not wait if their writers will
    repeat all of them.
    """
    if branch_head(metadata, branch) is None or published(metadata, branch, publish_to) is Place.WITHIN:
        return False
    return not (has_diverged(metadata, branch, publish_to) and _comes_again(metadata, branch, publish_to))


def published(metadata: TableMetadata, branch: str, to: str) -> Place:
    """Return the place of the snapshot of `branch` relative to branch `to`: `WITHIN` once it was published."""
    head_id = branch_snapshot_id(metadata, branch)
    if head_id is None:
        return Place.OUTSIDE
    place = place_in(metadata, to, head_id)
    is_recorded = metadata.properties.get(branch_property(PUBLISHED_PREFIX, to, branch)) == str(head_id)
    return Place.WITHIN if place is Place.UNKNOWN and is_recorded else place


def has_diverged(metadata: TableMetadata, branch: str, publish_to: str) -> bool:
    """Return whether `publish_to` cannot be fast-forwarded to a staging branch that has snapshots of its own.

    `publish_to` has moved on, or was rolled back, so that rows that were taken out would come back.
    """
    behind_id = branch_snapshot_id(metadata, publish_to)
    if behind_id is None:
        return False
    return (
        place_in(metadata, branch, behind_id) is Place.OUTSIDE or taken_back(metadata, branch, publish_to) is not None
    )


def taken_back(metadata: TableMetadata, branch: str, to: str) -> int | None:
    """Return the id of the snapshot that `branch` builds on and that `to` was rolled back behind, or None."""
    head_id = branch_snapshot_id(metadata, to)
    for snapshot in branch_history(metadata, branch):
        if snapshot.snapshot_id == head_id:
            return None
        stood_at = _stood_at(metadata, snapshot, to)
        if stood_at is not None and place_in(metadata, to, stood_at) is Place.OUTSIDE:
            return stood_at
    return None


def how_moved(metadata: TableMetadata, branch: str, to: str) -> str:
    """Return in words how `to` has moved, so that `branch` cannot be published to it."""
    is_back = taken_back(metadata, branch, to) is not None
    return f"{'was set back' if is_back else 'has moved on'} to snapshot {branch_snapshot_id(metadata, to)}"


def _stood_at(metadata: TableMetadata, snapshot: Snapshot, to: str) -> int | None:
    """Return the snapshot id that `to` had when `snapshot` was committed on top of it, or None if nothing tells."""
    builds_on = _builds_on(snapshot)
    if builds_on is None or not builds_on.isdecimal():
        return None
    # The entry does not say which branch it means, and only `main` has a log.
    is_meant = _summary_entry(snapshot, STAGED_FOR_KEY) == to or (
        to == MAIN_BRANCH and any(str(entry.snapshot_id) == builds_on for entry in metadata.snapshot_log)
    )
    return int(builds_on) if is_meant else None


def why_untold(metadata: TableMetadata, branch: str, to: str) -> str | None:
    """Return why history does not tell how `branch` and `to` are related, and how to go on; or None if it does."""
    head_id, behind_id = branch_snapshot_id(metadata, branch), branch_snapshot_id(metadata, to)
    if head_id is None or behind_id is None:
        return None
    place = published(metadata, branch, to)
    if place is Place.UNKNOWN:
        return (
            f"history has expired: branch '{to}' no longer shows whether it was ever fast-forwarded to snapshot "
            f"{head_id}, at which branch '{branch}' stands. Compare their rows: if those of '{branch}' are in '{to}', "
            f"drop '{branch}'; if not, add them to '{to}' before you drop it"
        )
    if place is Place.OUTSIDE and place_in(metadata, branch, behind_id) is Place.UNKNOWN:
        return (
            f"history has expired: branch '{branch}' (snapshot {head_id}) no longer shows whether it builds on "
            f"snapshot {behind_id}, at which '{to}' stands. Compare their rows: if those of '{to}' are in '{branch}', "
            f"set '{to}' to snapshot {head_id} (CALL system.set_current_snapshot in Iceberg's Spark runtime); if not, "
            f"add the rows of '{branch}' to '{to}' before you drop '{branch}'"
        )
    return None


def _comes_again(metadata: TableMetadata, branch: str, publish_to: str) -> bool:
    """Return whether each row that only the staging branch has is of a write that is repeated until published."""
    # The snapshots that `publish_to` has or once had: what was taken back must not come again.
    published = {snapshot.snapshot_id for snapshot in branch_history(metadata, publish_to)}
    for snapshot in branch_history(metadata, branch):
        if snapshot.snapshot_id in published:
            return True
        if not keeps_rows(snapshot) and _summary_entry(snapshot, STAGED_FOR_KEY) != publish_to:
            return False
        if (stood_at := _stood_at(metadata, snapshot, publish_to)) is not None:
            published.add(stood_at)
    return False  # their common ancestor has expired


def staged_for(metadata: TableMetadata, branch: str) -> str | None:
    """Return the branch that the newest write of a staging branch is published to; None for another branch."""
    writes = (snapshot for snapshot in branch_history(metadata, branch) if not keeps_rows(snapshot))
    newest = next(writes, None)
    to = None if newest is None else _summary_entry(newest, STAGED_FOR_KEY)
    return None if to == branch else to


def keeps_rows(snapshot: Snapshot) -> bool:
    """Return whether the branch has the same rows after the snapshot as before it."""
    is_replacement = snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE
    return is_replacement or _summary_entry(snapshot, KEEPS_ROWS_KEY) == "true"


def _summary_entry(snapshot: Snapshot, key: str) -> str | None:
    return summary_entries(snapshot).get(key)


def why_not_writable(metadata: TableMetadata, route: Route) -> str | None:
    """Return why rows cannot be added to the branch of this route, or None if they can."""
    branch, publish_to = route.branch, route.publish_to
    ref = metadata.refs.get(branch)
    if ref is None:
        return None if branch == MAIN_BRANCH or route.fork_from is not None else f"it has no branch '{branch}'"
    if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        return f"'{branch}' is a tag, which always stays where it is"
    if publish_to is None:
        return None
    if route.converts:
        return _why_not_publishable(metadata, branch, publish_to)
    place = published(metadata, branch, publish_to)
    if place is Place.OUTSIDE:
        # If written again, the rows of a write that failed between commit and publishing would be there twice.
        return (
            f"staging branch '{branch}' holds snapshot {ref.snapshot_id}, which '{publish_to}' has not: another write "
            "is about to publish it, or failed to. Publish it with iceberg_ds.publish, or drop the branch"
        )
    return why_untold(metadata, branch, publish_to)


def _why_not_publishable(metadata: TableMetadata, branch: str, publish_to: str) -> str | None:
    if not waits(metadata, branch, publish_to):
        return None
    if (reason := why_untold(metadata, branch, publish_to)) is not None:
        return reason
    if not has_diverged(metadata, branch, publish_to):
        return None
    staged = branch_snapshot_id(metadata, branch)
    return (
        f"branch '{publish_to}' {how_moved(metadata, branch, publish_to)}, and staging branch '{branch}' (snapshot "
        f"{staged}), which does not build on it, holds rows of a write without a number, which nothing repeats. Drop "
        "it, and write these rows again"
    )


def contains(metadata: TableMetadata, branch: str, snapshot_id: int) -> bool:
    """Return whether `branch` is known to point to this snapshot, or to have it in its history."""
    return place_in(metadata, branch, snapshot_id) is Place.WITHIN


def place_in(metadata: TableMetadata, branch: str, snapshot_id: int, *, sequence_number: int | None = None) -> Place:
    """Return the place of a snapshot relative to `branch`.

    Args:
        metadata: The table.
        branch: The branch, or a tag.
        snapshot_id: The snapshot, which may have expired.
        sequence_number: Its sequence number, if the caller knows it; None if not, or in tables of format version 1.
    """
    oldest: Snapshot | None = None
    for oldest in branch_history(metadata, branch):
        if oldest.snapshot_id == snapshot_id or _builds_on(oldest) == str(snapshot_id):
            return Place.WITHIN
    return behind(metadata, oldest, snapshot_id, sequence_number)


def behind(
    metadata: TableMetadata, oldest: Snapshot | None, snapshot_id: int, sequence_number: int | None = None
) -> Place:
    """Return the place, relative to a branch, of a snapshot that the branch does not show.

    A branch's sequence numbers ascend, so a snapshot with one above that of the oldest snapshot would be shown. And a
    snapshot that descends from the end of the branch's history does not lie behind that end.

    Args:
        metadata: The table.
        oldest: The oldest snapshot that the branch shows; None if it has no snapshot at all.
        snapshot_id: The snapshot in question; a tag or another branch may have kept it from expiring.
        sequence_number: Its sequence number, if the caller knows it; None if not, or in tables of format version 1.

    Returns:
        `UNKNOWN` if it may lie behind the end of what the branch shows, and nothing tells.
    """
    if oldest is None or begins_a_table(oldest):
        return Place.OUTSIDE
    end_id = oldest.parent_snapshot_id
    if end_id == snapshot_id:
        return Place.WITHIN
    present = find_snapshot(metadata, snapshot_id)
    if present is not None:
        sequence_number = present.sequence_number
        if any(_follows(known, oldest) for known in ancestors_of(metadata, present)):
            return Place.OUTSIDE
    if not oldest.sequence_number or not sequence_number:
        return Place.UNKNOWN
    return Place.OUTSIDE if sequence_number >= oldest.sequence_number else Place.UNKNOWN


def _follows(known: Snapshot, oldest: Snapshot) -> bool:
    """Return whether a snapshot is the oldest one of a branch, or has the same parent, which has expired."""
    parent_id = oldest.parent_snapshot_id  # None if an engine has cut it off
    return known.snapshot_id == oldest.snapshot_id or (parent_id is not None and known.parent_snapshot_id == parent_id)


def begins_a_table(snapshot: Snapshot) -> bool:
    """Return whether no snapshot came before: the table's first one, or the first one after a replacement.

    Some engines cut off expired parents, so a missing parent is no proof. Then the totals tell: what was there before
    is counted in them, or was removed. Without totals the first sequence number tells, although a table that was
    upgraded from format version 1 gives it to a later snapshot.
    """
    if snapshot.parent_snapshot_id is not None:
        return False
    summary = snapshot.summary
    if summary is None or summary["total-data-files"] is None:
        return snapshot.sequence_number == 1
    removed = (summary[key] or "0" for key in ("deleted-data-files", "removed-delete-files"))
    return all(count == "0" for count in removed) and all(
        (summary[f"total-{kind}"] or "0") == (summary[f"added-{kind}"] or "0")
        for kind in ("data-files", "delete-files")
    )


def _builds_on(snapshot: Snapshot) -> str | None:
    return summary_entries(snapshot).get(BUILDS_ON_KEY)


def snapshots_since(metadata: TableMetadata, head: Snapshot | None, base_id: int | None) -> list[Snapshot] | None:
    """Return the snapshots that came after `base_id`, up to and with `head`, newest first.

    Returns:
        None if `base_id` does not lie behind `head`, as far as snapshots have not expired.
    """
    since: list[Snapshot] = []
    for snapshot in ancestors_of(metadata, head):
        if snapshot.snapshot_id == base_id:
            return since
        since.append(snapshot)
    return since if base_id is None else None
