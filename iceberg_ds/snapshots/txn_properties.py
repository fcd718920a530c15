"""Pure: what a commit writes into the table's properties: the marker of its write, and those that come with a branch.

Markers belong to rows. So they go where the rows go: a branch that begins anew from another branch takes over the
other's markers, and has none of an earlier branch of its name; publishing a branch takes its markers along; and the
next commit removes the markers of a branch that is gone. Stray markers go nowhere (`txn`). Because history expires, a
commit records what history tells: that a marker is stray, and the markers that only the branch's history holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from iceberg_ds.plan import EpochId, NumberedWrite, WriteIdentity
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    PUBLISHED_PREFIX,
    BranchHistory,
    Place,
    base_branch,
    behind,
    branch_property,
)
from iceberg_ds.snapshots.txn import (
    EPOCHS,
    STREAM_PREFIX,
    TXNS,
    TxnKind,
    TxnMarker,
    TxnMarkers,
    behind_both,
    find_all_markers,
    find_stream,
    is_number,
    is_stray,
    kind_of,
    marker_in,
    marker_property,
    markers_of_main,
    named_properties,
    next_record,
    recorded_markers,
    run_before,
    split_name,
    stream_property,
    writer_in,
)

_KINDS = (EPOCHS, TXNS)
# Prefixes of all properties that belong to a branch.
_PREFIXES = (*(kind.property_prefix for kind in _KINDS), STREAM_PREFIX, PUBLISHED_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyChange:
    """What changes in a table's properties.

    Attributes:
        values: Properties to set.
        removals: Names of properties to remove.
        heads: The snapshot at which each other branch must stand whose properties are among them, None for no branch.
    """

    values: dict[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()
    heads: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The change as updates for the catalog."""
        removed = (RemovePropertiesUpdate(removals=list(self.removals)),) if self.removals else ()
        return (*removed, *((SetPropertiesUpdate(updates=self.values),) if self.values else ()))

    @property
    def requirements(self) -> tuple[TableRequirement, ...]:
        """What must hold when the change is made."""
        return tuple(AssertRefSnapshotId(ref=branch, snapshot_id=head) for branch, head in self.heads.items())


def record_write(
    metadata: TableMetadata,
    write: WriteIdentity,
    snapshot: Snapshot,
    last: TxnMarker | None,
    record_count: int | None = None,
) -> PropertyChange:
    """Return the properties that record `write`, to be set in the same request as its rows.

    Args:
        metadata: The table, freshly loaded.
        write: The write.
        snapshot: The snapshot that it adds.
        last: The marker that its writer left before it, or None.
        record_count: How many rows it has; None to record no count.
    """
    base = base_branch(metadata, write.route)
    history = BranchHistory(metadata, base)
    values, removals = _disproved(history)
    heads: dict[str, int | None] = {}
    if base == write.branch:
        values |= met_in_history(history)
    else:
        if values or removals:  # of the base: once history has expired, nothing else tells the new branch
            heads[base] = None if (head := metadata.snapshot_by_name(base)) is None else head.snapshot_id
        taken_over, stale = _taken_over(history, write.branch)
        values, removals = {**values, **taken_over}, removals | stale
    if write.numbered is not None:
        values |= _own(metadata, write, write.numbered, _marker(write.numbered, snapshot, last, record_count), base)
    gone = _of_gone_branches(metadata, kept=write.branch)
    heads |= dict.fromkeys(sorted(set(gone.values())))
    return PropertyChange(
        values=values,
        removals=tuple(sorted((removals | gone.keys()) - values.keys())),
        heads=heads,
    )


def published_markers(metadata: TableMetadata, branch: str, to: str) -> PropertyChange:
    """Return the properties that branch `to` gets when it is fast-forwarded to `branch`: each writer's newer marker."""
    history, target = BranchHistory(metadata, branch), BranchHistory(metadata, to)
    disproved, removals = _disproved(target)
    values = {**disproved, **_streams_of(metadata, branch, to)}
    for kind in _KINDS:
        present = find_all_markers(target, kind)
        for writer, markers in find_all_markers(history, kind).items():
            known = present.get(writer, TxnMarkers())
            recorded = known.last if known.is_recorded else None
            if markers.last is not None and (recorded is None or recorded.number < markers.last.number):
                values |= marker_property(kind, to, writer, markers.last)
    return PropertyChange(values=values, removals=tuple(sorted(removals)))


def published_record(branch: str, to: str, snapshot_id: int) -> dict[str, str]:
    """Return the table property that records that `to` was fast-forwarded to a snapshot of `branch`."""
    return {branch_property(PUBLISHED_PREFIX, to, branch): str(snapshot_id)}


def dropped_markers(metadata: TableMetadata, branch: str) -> PropertyChange:
    """Return the removal of all properties that belong to `branch`."""
    names = (key for key in metadata.properties if branch in _branches_of(key))
    return PropertyChange(removals=tuple(names))


def told_by_history(metadata: TableMetadata, branch: str) -> PropertyChange:
    """Return the properties that record what only the history of a branch tells, before that history expires."""
    history = BranchHistory(metadata, branch)
    values, removals = _disproved(history)
    for kind in _KINDS:
        recorded = dict(recorded_markers(metadata, branch, kind))
        for writer, markers in find_all_markers(history, kind).items():
            if markers.last is not None and _tells_more(markers.last, recorded.get(writer)):
                values |= marker_property(kind, branch, writer, markers.last)
    return PropertyChange(values=values, removals=tuple(sorted(removals)))


def _marker(numbered: NumberedWrite, snapshot: Snapshot, last: TxnMarker | None, record_count: int | None) -> TxnMarker:
    run_id = numbered.run_id if isinstance(numbered, EpochId) else None
    return TxnMarker(
        number=numbered.number,
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        run_id=run_id,
        previous_run_id=run_before(last, run_id),
        record_count=record_count,
        sequence_number=snapshot.sequence_number or None,
    )


def _own(
    metadata: TableMetadata, write: WriteIdentity, numbered: NumberedWrite, marker: TxnMarker, base: str
) -> dict[str, str]:
    values = marker_property(kind_of(numbered), write.branch, numbered.writer, marker)
    if write.stream is not None:
        before = find_stream(metadata, base, write.stream.name)
        record = next_record(before, write.stream, numbered.writer)
        if record is not None and (record != before or base != write.branch):
            values |= stream_property(write.branch, write.stream.name, record)
    return values


def _taken_over(history: BranchHistory, branch: str) -> tuple[dict[str, str], set[str]]:
    """Return what a branch that begins anew from this one must record, and what an earlier branch of its name left."""
    metadata = history.metadata
    values = _streams_of(metadata, history.branch, branch)
    for kind in _KINDS:
        for writer, markers in find_all_markers(history, kind).items():
            if markers.last is not None:
                values |= marker_property(kind, branch, writer, markers.last)
    stale = {
        branch_property(prefix, branch, name)
        for prefix in _PREFIXES
        for name, _ in named_properties(metadata, prefix, branch)
    }
    return {key: text for key, text in values.items() if metadata.properties.get(key) != text}, stale - values.keys()


def _disproved(history: BranchHistory) -> tuple[dict[str, str], set[str]]:
    """Return what to set and remove because a branch does not have, or has again, the snapshots that properties name.

    While history lasts, it tells whether the branch has them. In most commits the search ends at the newest snapshot.
    """
    metadata, branch = history.metadata, history.branch
    markers = list(_recorded(history))
    published = {
        key: int(text)
        for key, text in metadata.properties.items()
        if (parts := split_name(PUBLISHED_PREFIX, key)) is not None and parts[0] == branch and is_number(text)
    }
    unseen = {*(marker.snapshot_id for _, _, marker in markers), *published.values()}
    for snapshot in history if unseen else ():
        unseen.discard(snapshot.snapshot_id)
        if not unseen:
            break
    values: dict[str, str] = {}
    of_main = {kind: markers_of_main(history, kind) for kind in _KINDS} if unseen else {}
    for kind, writer, marker in markers:
        is_disproved = marker.snapshot_id in unseen and is_stray(
            history, kind, writer, marker, of_main[kind].get(writer)
        )
        if is_disproved != marker.is_disproved:
            values |= marker_property(kind, branch, writer, replace(marker, is_disproved=is_disproved))
    gone = {
        key
        for key, snapshot_id in published.items()
        if snapshot_id in unseen and behind(metadata, history.oldest, snapshot_id) is Place.OUTSIDE
    }
    return values, gone


def _streams_of(metadata: TableMetadata, branch: str, to: str) -> dict[str, str]:
    """Return the stream records of `branch` as properties of `to`, where they are new or differ."""
    names = named_properties(metadata, STREAM_PREFIX, branch)
    values = {branch_property(STREAM_PREFIX, to, name): text for name, text in names}
    return {key: text for key, text in values.items() if metadata.properties.get(key) != text}


def met_in_history(history: BranchHistory) -> dict[str, str]:
    """Return, as properties, the markers that a branch has no property for: of summaries, and what `main` tells of it.

    The search ends at a snapshot that a property names: the commit that wrote the property has looked behind it.
    """
    recorded = {(kind, writer): marker for kind, writer, marker in _recorded(history)}
    named = {marker.snapshot_id for marker in recorded.values()}
    newest: dict[tuple[TxnKind, str], TxnMarker] = {}
    for snapshot in history:
        if snapshot.snapshot_id in named:
            break
        for kind in _KINDS:
            if (writer := writer_in(snapshot, kind)) is not None:
                newest.setdefault((kind, writer), marker_in(snapshot, kind))
    for kind, writer, marker in _behind_a_fork(history, recorded):
        newest.setdefault((kind, writer), marker)
    values: dict[str, str] = {}
    for (kind, writer), marker in newest.items():
        if _tells_more(marker, recorded.get((kind, writer))):
            values |= marker_property(kind, history.branch, writer, marker)
    return values


def _tells_more(marker: TxnMarker, known: TxnMarker | None) -> bool:
    """Return whether a marker that a branch has proves more than what its property says, which may be stray."""
    if known is None or known.number < marker.number:
        return True
    return known.number == marker.number and known.snapshot_id != marker.snapshot_id


def _behind_a_fork(
    history: BranchHistory, recorded: Mapping[tuple[TxnKind, str], TxnMarker]
) -> Iterator[tuple[TxnKind, str, TxnMarker]]:
    """Yield the markers of `main` that lie behind the end of a branch, and that the branch has no property for.

    The property of `main` tells of them until the same writer commits to `main` again.
    """
    if history.branch == MAIN_BRANCH:
        return
    for kind in _KINDS:
        missing = {
            writer
            for writer, marker in recorded_markers(history.metadata, MAIN_BRANCH, kind)
            if _tells_more(marker, recorded.get((kind, writer)))
        }
        markers = markers_of_main(history, kind) if missing else {}  # without need, no history is read to its end
        for writer in sorted(missing & markers.keys()):
            if (marker := behind_both(history, markers[writer])) is not None:
                yield kind, writer, marker


def _recorded(history: BranchHistory) -> Iterator[tuple[TxnKind, str, TxnMarker]]:
    """Yield the markers that a branch has in table properties, of every kind and writer."""
    for kind in _KINDS:
        for writer, marker in recorded_markers(history.metadata, history.branch, kind):
            yield kind, writer, marker


def _of_gone_branches(metadata: TableMetadata, kept: str) -> dict[str, str]:
    """Return the properties of branches that do not exist, with one such branch each; `main` may come back.

    None in a table without snapshots, as one that got its properties from another: some catalogs take no requirement on
    a branch of it. A later commit removes them.
    """
    if not metadata.snapshots:
        return {}
    there = {*metadata.refs, MAIN_BRANCH, kept}
    found: dict[str, str] = {}
    for key in metadata.properties:
        for branch in _branches_of(key):
            if branch not in there:
                found[key] = branch
    return found


def _branches_of(key: str) -> tuple[str, ...]:
    """Return the branches that a table property belongs to; empty if the property is not ours."""
    for prefix in _PREFIXES:
        if (parts := split_name(prefix, key)) is not None:
            return parts if prefix == PUBLISHED_PREFIX else parts[:1]
    return ()
