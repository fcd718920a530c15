"""Pure: checks that every numbered write is in each branch once and in order, as far back as history goes.

A streaming query numbers its epochs one by one; an application numbers the versions of its batches in any ascending
way. A branch is read back from its newest snapshot to where history has expired, so that writes shared with another
branch do not count twice in a fork. The transaction markers in the table's properties must agree with what is found.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.snapshots.refs import BranchHistory, Place, branch_history, branch_property, find_snapshot, place_in
from iceberg_ds.snapshots.txn import (
    EPOCHS,
    STREAM_PREFIX,
    TXNS,
    TxnKind,
    TxnMarker,
    find_all_markers,
    find_stream,
    is_picked,
    named_properties,
    read_marker,
)

_OWN_ENGINE = "icebergsink"
_KINDS = (EPOCHS, TXNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A writer of numbered writes: a streaming query, or an application that writes batches."""

    kind: TxnKind
    name: str

    def describe(self, number: int) -> str:
        """Return a text that names one of its writes."""
        return f"{self._words[0]} {number} of {self._words[1]} {self.name}"

    def describe_run(self, first: int, last: int) -> str:
        """Return a text that names its writes from `first` to `last`."""
        return f"{self._words[0]}s {first} to {last} of {self._words[1]} {self.name}"

    @property
    def _words(self) -> tuple[str, str]:
        return ("epoch", "query") if self.kind is EPOCHS else ("version", "application")

    @property
    def leaves_no_gap(self) -> bool:
        """Whether its numbers are consecutive."""
        return self.kind is EPOCHS


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedWrite:
    """A numbered write that a snapshot says it holds.

    Attributes:
        writer: Writer of the write.
        number: Number of the write.
        snapshot_id: Id of the snapshot.
        is_own: Whether this sink committed it, which also leaves a transaction marker in the table's properties.
    """

    writer: Writer
    number: int
    snapshot_id: int
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchWrites:
    """The numbered writes of one branch.

    Attributes:
        branch: Name of the branch.
        writes: Numbered writes in the branch, oldest first.
        snapshot_ids: Ids of all its snapshots that have not expired.
        is_complete: Whether its history goes back to the table's first snapshot.
        unreadable: Problems with malformed numbers in its summaries, one sentence each.
    """

    branch: str
    writes: Sequence[LandedWrite]
    snapshot_ids: frozenset[int]
    is_complete: bool
    unreadable: Sequence[str] = ()

    def of_writer(self, writer: Writer) -> list[LandedWrite]:
        """Return the writes of one writer, oldest first."""
        return [landed for landed in self.writes if landed.writer == writer]

    @property
    def writers(self) -> list[Writer]:
        """The writers of the branch."""
        return list(dict.fromkeys(landed.writer for landed in self.writes))


def branch_writes(metadata: TableMetadata) -> list[BranchWrites]:
    """Return the numbered writes of each branch of the table."""
    return [
        _of_branch(metadata, name)
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type is SnapshotRefType.BRANCH
    ]


def _of_branch(metadata: TableMetadata, branch: str) -> BranchWrites:
    history = list(branch_history(metadata, branch))[::-1]
    landed, unreadable = [], []
    for snapshot, kind in itertools.product(history, _KINDS):
        name, text = _summary(snapshot, kind.writer_key), _summary(snapshot, kind.number_key)
        if name is None:
            continue
        if text is None or not text.isdigit():
            unreadable.append(f"snapshot {snapshot.snapshot_id} is by writer {name}, and its number is {text!r}")
            continue
        landed.append(
            LandedWrite(
                writer=Writer(kind=kind, name=name),
                number=int(text),
                snapshot_id=snapshot.snapshot_id,
                is_own=_summary(snapshot, "engine-name") == _OWN_ENGINE,
            )
        )
    return BranchWrites(
        branch=branch,
        writes=landed,
        snapshot_ids=frozenset(snapshot.snapshot_id for snapshot in history),
        is_complete=bool(history) and _is_first(history[0]),
        unreadable=unreadable,
    )


def _is_first(snapshot: Snapshot) -> bool:
    """Return whether no snapshot came before this one; in a table of format version 1, that cannot be known.

    A missing parent is no proof: a replaced table begins anew, and some writers cut off expired parents.
    """
    return snapshot.parent_snapshot_id is None and snapshot.sequence_number == 1


def _summary(snapshot: Snapshot, key: str) -> str | None:
    return snapshot.summary[key] if snapshot.summary is not None else None


def order_problems(branches: Sequence[BranchWrites]) -> list[str]:
    """Return which writes are duplicated or out of order."""
    return [
        problem
        for branch in branches
        for problem in (*branch.unreadable, *(p for writer in branch.writers for p in _in_order(branch, writer)))
    ]


def _in_order(branch: BranchWrites, writer: Writer) -> Iterator[str]:
    where = f"on branch '{branch.branch}'"
    seen: dict[int, int] = {}
    for landed in branch.of_writer(writer):
        number, name = landed.number, f"{writer.describe(landed.number)} {where}"
        if number in seen:
            yield f"{name} is there twice: snapshots {seen[number]} and {landed.snapshot_id}"
        elif seen and number < max(seen):
            yield f"{name} (snapshot {landed.snapshot_id}) came after {max(seen)}"
        seen.setdefault(number, landed.snapshot_id)


def missing_epochs(branches: Sequence[BranchWrites]) -> list[str]:
    """Return which epochs have no snapshot: they are lost, or had no rows, because an empty epoch commits nothing."""
    missing = []
    for branch in branches:
        for writer in (found for found in branch.writers if found.leaves_no_gap):
            seen = {landed.number for landed in branch.of_writer(writer)}
            first = 0 if branch.is_complete else min(seen)
            for start, end in _gaps(sorted({first - 1, *seen})):
                named = f"{writer.describe(start)} has" if start == end else f"{writer.describe_run(start, end)} have"
                missing.append(f"{named} no snapshot on branch '{branch.branch}'")
    return missing


def _gaps(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    for before, after in itertools.pairwise(numbers):
        if after > before + 1:
            yield before + 1, after - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyMarker:
    """The transaction marker in a table property: the last write of a writer to a branch."""

    branch: str
    writer: Writer
    marker: TxnMarker


def property_markers(
    metadata: TableMetadata, branches: Sequence[BranchWrites]
) -> tuple[list[PropertyMarker], list[str]]:
    """Return the transaction markers of these branches, and a problem for each malformed one; skip other branches."""
    markers, problems = [], []
    for branch, kind in itertools.product((found.branch for found in branches), _KINDS):
        for name, text in named_properties(metadata, kind.property_prefix, branch):
            try:
                marker = read_marker(kind, text)
            except (ValueError, KeyError, TypeError):
                problems.append(
                    f"property {branch_property(kind.property_prefix, branch, name)} is no marker of a write"
                )
                continue
            markers.append(PropertyMarker(branch=branch, writer=Writer(kind=kind, name=name), marker=marker))
    return markers, problems


def marker_problems(metadata: TableMetadata, branches: Sequence[BranchWrites]) -> list[str]:
    """Return where the transaction markers in the table's properties and the summaries disagree."""
    markers, problems = property_markers(metadata, branches)
    by_name = {branch.branch: branch for branch in branches}
    highest: dict[Writer, int] = {}
    for marker in markers:
        problems += _disagreements(metadata, marker, by_name[marker.branch])
        highest[marker.writer] = max(marker.marker.number, highest.get(marker.writer, -1))
    for branch in branches:
        problems += _unmarked(branch, highest)
        problems += _nameless(
            metadata, branch.branch, {found.writer for found in markers if found.branch == branch.branch}
        )
    return problems


def unrecorded_markers(metadata: TableMetadata, branches: Sequence[BranchWrites]) -> list[str]:
    """Return the last writes by this sink that only the history of a branch records, as after a fork by SQL.

    Once that history expires, nothing tells that these writes landed.
    """
    return [
        f"branch '{branch.branch}' has {Writer(kind=kind, name=writer).describe(markers.last.number)} (snapshot "
        f"{markers.last.snapshot_id})"
        for branch, kind in itertools.product(branches, _KINDS)
        for writer, markers in find_all_markers(BranchHistory(metadata, branch.branch), kind).items()
        if markers.last is not None and not markers.is_recorded and _is_own(branch, markers.last)
    ]


def _is_own(branch: BranchWrites, marker: TxnMarker) -> bool:
    return any(landed.is_own and landed.snapshot_id == marker.snapshot_id for landed in branch.writes)


def _disagreements(metadata: TableMetadata, recorded: PropertyMarker, branch: BranchWrites) -> Iterator[str]:
    marker = recorded.marker
    name = f"the marker of {recorded.writer.describe(marker.number)} on branch '{branch.branch}'"
    writes = branch.of_writer(recorded.writer)
    held = [landed for landed in writes if landed.snapshot_id == marker.snapshot_id]
    if held and held[0].number != marker.number:
        yield f"{name} names snapshot {marker.snapshot_id}, which holds {held[0].number}"
    elif not held and marker.snapshot_id in branch.snapshot_ids:
        snapshot = find_snapshot(metadata, marker.snapshot_id)
        if snapshot is None or not is_picked(snapshot):
            yield f"{name} names snapshot {marker.snapshot_id}, which holds nothing of it"
    elif not held and (marker.is_disproved or _is_elsewhere(metadata, branch.branch, marker.snapshot_id)):
        yield f"{name} names snapshot {marker.snapshot_id}, which is not in the branch: it was rolled back"
    elif not held and writes and writes[-1].number < marker.number:
        yield f"{name} is of a snapshot that is gone, and the branch ends with {writes[-1].number}"


def _is_elsewhere(metadata: TableMetadata, branch: str, snapshot_id: int) -> bool:
    """Return whether the table has this snapshot and the branch does not, as far as history tells."""
    is_present = find_snapshot(metadata, snapshot_id) is not None
    return is_present and place_in(metadata, branch, snapshot_id) is Place.OUTSIDE


def _unmarked(branch: BranchWrites, highest: Mapping[Writer, int]) -> Iterator[str]:
    """Yield the newest writes by this sink without a transaction marker; other sinks leave no marker."""
    for writer in branch.writers:
        own = [landed for landed in branch.of_writer(writer) if landed.is_own]
        if own and own[-1].number > highest.get(writer, -1):
            yield (
                f"snapshot {own[-1].snapshot_id} on branch '{branch.branch}' holds {writer.describe(own[-1].number)}, "
                "and no marker in the table's properties knows of it"
            )


def _nameless(metadata: TableMetadata, branch: str, marked: set[Writer]) -> Iterator[str]:
    """Yield streams whose query left no transaction marker, although the commit that takes the name leaves one."""
    for name, _ in named_properties(metadata, STREAM_PREFIX, branch):
        try:
            stream = find_stream(metadata, branch, name)
        except (ValueError, KeyError, TypeError):
            yield f"property {branch_property(STREAM_PREFIX, branch, name)} is no record of a stream"
            continue
        if stream is not None and Writer(kind=EPOCHS, name=stream.query_id) not in marked:
            yield f"stream '{name}' on branch '{branch}' is of query {stream.query_id}, which has left no marker there"
