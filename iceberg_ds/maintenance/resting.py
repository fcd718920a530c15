"""Pure: what rests on the snapshots that retention lets go: what is recorded in their place, and which of them stay.

Exactly-once writes, publications and `requeue` read a table's history. What history tells is mostly said by a few table
properties as well, which are set in the request that removes the snapshots: the last marker of each writer on each
branch, which markers are stray, which branches were published, and where rows were replaced. Snapshots stay only where
no property can say it: where a cherry-picked write has its marker in the picked snapshot alone, where a staging branch
that waits and its target have to be compared, where a named stream has not read them yet, and in a quarantine table,
whose history is the queue of `requeue`. In the end the table as it will be is asked what the table as it is was asked,
and history that still is needed stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from iceberg_ds.errors import OptionError
from iceberg_ds.maintenance.retention import Expired, Retention, find_expired
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.reading.consumers import awaited_branches, awaited_snapshots
from iceberg_ds.snapshots.origins import replaced_property
from iceberg_ds.snapshots.quarantined import QUARANTINED_ROWS_KEY
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    BranchHistory,
    Place,
    branch_history,
    branch_snapshot_id,
    has_diverged,
    published,
    staged_for,
    waits,
    why_untold,
)
from iceberg_ds.snapshots.txn import EPOCHS, TXNS, find_all_markers, marker_in, picked_sources, writer_in
from iceberg_ds.snapshots.txn_properties import PropertyChange, dropped_markers, published_record, told_by_history

_KINDS = (EPOCHS, TXNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSnapshot:
    """A snapshot that stays, although the retention of the table lets it go.

    Attributes:
        snapshot_id: Its id.
        reason: What rests on it.
    """

    snapshot_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryPlan:
    """What an expiry does to a table.

    Attributes:
        expired: The refs and snapshots that go.
        kept: The snapshots that stay because something rests on them.
        records: The properties that change, because they say what expired history told.
        after: The table without the expired refs and snapshots.
    """

    expired: Expired
    kept: tuple[KeptSnapshot, ...]
    records: PropertyChange
    after: TableMetadata


def plan_expiry(
    metadata: TableMetadata, retention: Retention, added_live: Callable[[Snapshot], Collection[int]]
) -> ExpiryPlan:
    """Return what goes, what stays and what is recorded.

    Args:
        metadata: The table, freshly loaded.
        retention: What it keeps.
        added_live: Returns the ids of the snapshots that added the files which a snapshot has; called for a quarantine
            table only, because it reads manifests.

    Raises:
        OptionError: A snapshot that is asked to go is that of a branch or tag, or something rests on it.
        UnsupportedTableError: A branch or tag names a snapshot that is not there.
    """
    aged = find_expired(metadata, retention).refs
    staged = {branch: staged_for(metadata, branch) for branch in _branches(metadata) if branch in aged}
    waiting = {branch: to for branch, to in staged.items() if to is not None and waits(metadata, branch, to)}
    followed = aged & awaited_branches(metadata, retention.now_ms)
    expired = find_expired(metadata, retention, {*waiting, *followed})
    held: dict[int, str] = {}
    for branch, to in waiting.items():
        ids = [snapshot.snapshot_id for snapshot in branch_history(metadata, branch)][:1]
        held |= dict.fromkeys(ids, f"staging branch '{branch}' waits to be published to '{to}'")
    held |= _quarantined(metadata, added_live)
    held |= awaited_snapshots(metadata, retention.now_ms)
    for branch in _branches(metadata, without=expired.refs):
        held |= _picked(BranchHistory(metadata, branch))
    while True:
        gone = Expired(refs=expired.refs, snapshot_ids=expired.snapshot_ids - frozenset(held))
        records = _records(metadata, gone)
        after = _without(metadata, gone, records)
        needed = {**_markers_needed(metadata, after), **_staging_needed(metadata, after)}
        more = {number: reason for number, reason in needed.items() if number in gone.snapshot_ids}
        if not more:
            break
        held |= more
    for snapshot_id in sorted(retention.snapshot_ids & held.keys() - gone.snapshot_ids):
        raise OptionError(f"snapshot {snapshot_id} stays: {held[snapshot_id]}")
    of_waiting = {metadata.refs[branch].snapshot_id for branch in (*waiting, *followed)}
    kept = [number for number in held if number in expired.snapshot_ids or number in of_waiting]
    return ExpiryPlan(
        expired=gone,
        kept=tuple(KeptSnapshot(snapshot_id=number, reason=held[number]) for number in kept),
        records=records if gone.refs or gone.snapshot_ids else PropertyChange(),
        after=after,
    )


def _branches(metadata: TableMetadata, without: Collection[str] = ()) -> list[str]:
    return sorted(
        name
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type is SnapshotRefType.BRANCH and name not in without
    )


def _quarantined(metadata: TableMetadata, added_live: Callable[[Snapshot], Collection[int]]) -> dict[int, str]:
    """Return the snapshots that `requeue`, or a repeated write with bad rows, may ask for, if it is a quarantine table.

    They go back to the oldest one whose rows are still there. After a compaction, the new files may have any of them.
    """
    history = list(branch_history(metadata, MAIN_BRANCH))
    if not any(QUARANTINED_ROWS_KEY in summary_entries(snapshot) for snapshot in history):
        return {}
    live = set(added_live(history[0]))
    needed, is_compacted = 0, False
    for number, snapshot in enumerate(history, 1):
        has_rows = is_compacted or snapshot.snapshot_id in live
        if has_rows and QUARANTINED_ROWS_KEY in summary_entries(snapshot):
            needed = number
        operation = None if snapshot.summary is None else snapshot.summary.operation
        is_compacted |= operation is Operation.REPLACE and snapshot.snapshot_id in live
    reason = "rows of this quarantine table since then may be requeued: delete them there once they are written"
    return {snapshot.snapshot_id: reason for snapshot in history[:needed]}


def _picked(history: BranchHistory) -> dict[int, str]:
    """Return the snapshots that tell of cherry-picked writes, where no later marker of the writer does."""
    found: dict[int, str] = {}
    last = {kind: find_all_markers(history, kind) for kind in _KINDS}
    passed: list[int] = []
    for snapshot in history:
        passed.append(snapshot.snapshot_id)
        sources = picked_sources(history.metadata, snapshot)
        for kind in _KINDS if sources else ():
            if (writer := writer_in(sources[-1], kind)) is None:
                continue
            marker = last[kind][writer].last if writer in last[kind] else None
            if marker is None or marker.number < marker_in(sources[-1], kind).number:
                ids = [*passed, *(source.snapshot_id for source in sources)]
                reason = f"only the snapshot that was cherry-picked to branch '{history.branch}' has the marker of its"
                found |= dict.fromkeys(ids, f"{reason} writer, until that writes again")
    return found


def _records(metadata: TableMetadata, gone: Expired) -> PropertyChange:
    """Return the properties that say what expired history told, without those of expired branches."""
    values: dict[str, str] = replaced_property(metadata, gone.snapshot_ids)
    removals: set[str] = set()
    bare = _without(metadata, gone, PropertyChange())
    branches = _branches(metadata, without=gone.refs)
    for branch in branches:
        told = told_by_history(metadata, branch)
        values |= told.values
        removals |= set(told.removals)
        for to in {MAIN_BRANCH, staged_for(metadata, branch) or MAIN_BRANCH} & set(branches) - {branch}:
            was = published(metadata, branch, to)
            if was is Place.WITHIN and published(bare, branch, to) is not was:
                head_id = branch_snapshot_id(metadata, branch)
                values |= published_record(branch, to, head_id) if head_id is not None else {}
    for branch in gone.refs:
        removals |= set(dropped_markers(metadata, branch).removals)
    changed = {
        key: text for key, text in values.items() if metadata.properties.get(key) != text and key not in removals
    }
    return PropertyChange(values=changed, removals=tuple(sorted(removals)))


def _without(metadata: TableMetadata, gone: Expired, records: PropertyChange) -> TableMetadata:
    """Return the table as it will be."""
    last = max((at for at, one in enumerate(metadata.snapshot_log) if one.snapshot_id in gone.snapshot_ids), default=-1)
    properties = {key: text for key, text in metadata.properties.items() if key not in records.removals}
    return metadata.model_copy(
        update={
            "snapshots": [one for one in metadata.snapshots if one.snapshot_id not in gone.snapshot_ids],
            "snapshot_log": metadata.snapshot_log[last + 1 :],
            "statistics": [one for one in metadata.statistics if one.snapshot_id not in gone.snapshot_ids],
            "partition_statistics": [
                one for one in metadata.partition_statistics if one.snapshot_id not in gone.snapshot_ids
            ],
            "refs": {name: ref for name, ref in metadata.refs.items() if name not in gone.refs},
            "properties": {**properties, **records.values},
        }
    )


def _markers_needed(metadata: TableMetadata, after: TableMetadata) -> dict[int, str]:
    """Return the history of the branches that would no longer tell the same markers."""
    found: dict[int, str] = {}
    for branch in _branches(after):
        history = BranchHistory(metadata, branch)
        if _markers(history) != _markers(BranchHistory(after, branch)):
            reason = f"only the history of branch '{branch}' has a marker of a writer"
            found |= {snapshot.snapshot_id: reason for snapshot in history}
    return found


def _markers(history: BranchHistory) -> dict[tuple[str, str], tuple[int | None, int | None, int | None]]:
    return {
        (kind.writer_key, writer): (
            None if found.last is None else found.last.number,
            None if found.last is None else found.last.snapshot_id,
            None if found.stray is None else found.stray.marker.number,
        )
        for kind in _KINDS
        for writer, found in find_all_markers(history, kind).items()
    }


def _staging_needed(metadata: TableMetadata, after: TableMetadata) -> dict[int, str]:
    """Return what tells how staging branches and their targets are related, where the rest would tell it otherwise."""
    found: dict[int, str] = {}
    for branch in _branches(after):
        to = staged_for(metadata, branch)
        if to in after.refs and _relation(metadata, branch, to) != _relation(after, branch, to):
            reason = f"staging branch '{branch}' and '{to}' are compared by it: publish or drop that branch"
            found |= dict.fromkeys(_since_fork(metadata, branch, to), reason)
    return found


def _relation(metadata: TableMetadata, branch: str, to: str) -> tuple[bool, ...]:
    return (
        published(metadata, branch, to) is Place.WITHIN,
        waits(metadata, branch, to),
        has_diverged(metadata, branch, to),
        why_untold(metadata, branch, to) is None,
    )


def _since_fork(metadata: TableMetadata, *branches: str) -> Iterator[int]:
    """Yield the snapshots of both branches down to the newest one that both have; all, if there is none."""
    histories: Mapping[str, Iterable[int]] = {
        branch: [snapshot.snapshot_id for snapshot in branch_history(metadata, branch)] for branch in branches
    }
    shared = set.intersection(*map(set, histories.values()))
    for ids in histories.values():
        for snapshot_id in ids:
            yield snapshot_id
            if snapshot_id in shared:
                break
