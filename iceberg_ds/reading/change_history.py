"""Pure: between which snapshots changes are read, and which snapshots have changed rows there.

A snapshot is compared with its parent. What cannot be told, because history has expired, is an error: no change is
passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.errors import OptionError, StreamHistoryError
from iceberg_ds.reading.scan import SnapshotChoice
from iceberg_ds.reading.stream import change_of, known_snapshots
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    Place,
    ancestors_of,
    begins_a_table,
    behind,
    branch_history,
    find_snapshot,
    keeps_rows,
)

_KEEP = "Keep snapshots for longer than your job rests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of what is read: a snapshot, or the last one that was committed at a time; without either, none is named.

    Attributes:
        snapshot_id: Id of the snapshot.
        time_ms: The time, in milliseconds since the Unix epoch.
    """

    snapshot_id: int | None = None
    time_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where changes begin.

    Attributes:
        snapshot_id: The snapshot after which they begin.
        is_whole: Whether all rows of this snapshot come first, as inserted by it.
    """

    snapshot_id: int
    is_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRange:
    """What is read.

    Attributes:
        beginning: Where it begins.
        end_id: Id of the last snapshot.
    """

    beginning: Beginning
    end_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStep:
    """A snapshot that may have changed rows.

    Attributes:
        snapshot: The snapshot.
        parent: The one before; None if all rows of the snapshot count as inserted.
        ordinal: Its number among those that are read, from 0.
    """

    snapshot: Snapshot
    parent: Snapshot | None
    ordinal: int


def find_range(
    name: str, metadata: TableMetadata, branch: str | None, *, start: Bound, end: Bound
) -> ChangeRange | None:
    """Return between which snapshots changes are read; None if there is no snapshot yet.

    Args:
        name: Identifier of the table, for messages.
        metadata: The table.
        branch: The branch in whose history the snapshots are; None for `main`, or for any if the end is a snapshot.
        start: Changes begin after it; none is named for the oldest snapshot that is there, with all its rows.
        end: The last snapshot; none is named for the head of the branch.

    Raises:
        OptionError: There is no such branch or snapshot, or nothing to end with that descends from the start.
        StreamHistoryError: History of that time has expired, or the table was replaced since.
    """
    history = _history(name, metadata, branch, end)
    if start.snapshot_id is not None:
        beginning = Beginning(snapshot_id=start.snapshot_id)
        if not history:
            raise _untold(name, metadata, beginning, history)
        return ChangeRange(beginning=beginning, end_id=history[0].snapshot_id)
    before: list[Snapshot] = []
    if start.time_ms is not None:
        before = _at(name, history, start.time_ms)
        _require_never_set_back(name, metadata, history, start.time_ms)
        if not before:
            _require_never_replaced(name, metadata, history, start.time_ms)
    if not history:
        return None
    beginning = Beginning(snapshot_id=(before or history[-1:])[0].snapshot_id, is_whole=not before)
    return ChangeRange(beginning=beginning, end_id=history[0].snapshot_id)


def _require_never_replaced(name: str, metadata: TableMetadata, history: Sequence[Snapshot], time_ms: int) -> None:
    """Refuse a time at which there were snapshots, but none of a history, nor of a branch that begins with the same.

    Raises:
        StreamHistoryError: There were.
    """
    root = history[-1:]
    branches = (one for one in metadata.refs.values() if one.snapshot_ref_type is SnapshotRefType.BRANCH)
    others = (list(ancestors_of(metadata, find_snapshot(metadata, one.snapshot_id))) for one in branches)
    known = {snapshot.snapshot_id for other in others if other[-1:] == root for snapshot in other}
    if any(one.timestamp_ms <= time_ms and one.snapshot_id not in known for one in metadata.snapshots):
        raise StreamHistoryError(
            f"Cannot read changes of {name}: at {time_ms} (milliseconds since the Unix epoch) there were snapshots, "
            "from which those that are read do not descend: the table was replaced, and which rows went then is not "
            "told. Make a copy anew, with start left out."
        )


def _require_never_set_back(name: str, metadata: TableMetadata, history: Sequence[Snapshot], time_ms: int) -> None:
    """Refuse a time at which `main` stood at a snapshot that its history does not show, if this is a part of it.

    Raises:
        StreamHistoryError: It did.
    """
    whole = [snapshot.snapshot_id for snapshot in branch_history(metadata, MAIN_BRANCH)]
    if not history or history[0].snapshot_id not in whole:
        return
    stood_at = [entry.snapshot_id for entry in metadata.snapshot_log if entry.timestamp_ms <= time_ms][-1:]
    if stood_at and stood_at[0] not in whole:
        raise StreamHistoryError(
            f"Cannot read changes of {name}: at {time_ms} (milliseconds since the Unix epoch) branch 'main' stood at "
            f"snapshot {stood_at[0]}, from which those that are read do not descend: it was set back since, and which "
            "rows went then is not told. Name the snapshot that it was set back to, or make a copy anew."
        )


def _history(name: str, metadata: TableMetadata, branch: str | None, end: Bound) -> list[Snapshot]:
    """Return the last snapshot and those that it descends from, newest first."""
    is_any = branch is None and end.snapshot_id is not None
    choice = SnapshotChoice(snapshot_id=end.snapshot_id) if is_any else SnapshotChoice(branch=branch)
    try:
        head = choice.of(metadata)
    except ValueError as problem:
        raise OptionError(f"Cannot read changes of {name}: {problem}.") from problem
    history = list(ancestors_of(metadata, head))
    if end.time_ms is not None:
        _require_never_set_back(name, metadata, history, end.time_ms)
        return _at(name, history, end.time_ms)
    if end.snapshot_id is None:
        return history
    found = list(dropwhile(lambda snapshot: snapshot.snapshot_id != end.snapshot_id, history))
    if not found:
        raise OptionError(
            f"Cannot read changes of {name}: snapshot {end.snapshot_id} is not in the history of branch "
            f"'{branch or MAIN_BRANCH}', which shows {known_snapshots(history)}. Name another snapshot, or the branch "
            "that has this one."
        )
    return found


def _at(name: str, history: Sequence[Snapshot], time_ms: int) -> list[Snapshot]:
    """Return the part of a history that was there at a time."""
    found = list(dropwhile(lambda snapshot: snapshot.timestamp_ms > time_ms, history))
    if history and not found and not begins_a_table(history[-1]):
        oldest = history[-1]
        raise StreamHistoryError(
            f"Cannot read changes of {name}: history of {time_ms} has expired; it begins with snapshot "
            f"{oldest.snapshot_id} of {oldest.timestamp_ms} (milliseconds since the Unix epoch). Give a later time, or "
            f"leave start out to begin with all rows of that snapshot. {_KEEP}."
        )
    return found


def changed_snapshots(
    name: str, metadata: TableMetadata, beginning: Beginning, end: Snapshot | None
) -> list[ChangeStep]:
    """Return the snapshots that may have changed rows, oldest first.

    Args:
        name: Identifier of the table, for messages.
        metadata: The table.
        beginning: Where they begin.
        end: The last of them.

    Raises:
        OptionError: The end does not descend from the beginning.
        StreamHistoryError: Some of them have expired.
    """
    history = list(ancestors_of(metadata, end))
    ids = [snapshot.snapshot_id for snapshot in history]
    if beginning.snapshot_id not in ids:
        raise _untold(name, metadata, beginning, history)
    place = ids.index(beginning.snapshot_id)
    found: list[tuple[Snapshot, Snapshot | None]] = [(history[place], None)] if beginning.is_whole else []
    found += [(history[number], history[number + 1]) for number in reversed(range(place))]
    changing = [pair for pair in found if pair[1] is None or not _is_rewrite(pair[0])]
    return [
        ChangeStep(snapshot=snapshot, parent=parent, ordinal=ordinal)
        for ordinal, (snapshot, parent) in enumerate(changing)
    ]


def _is_rewrite(snapshot: Snapshot) -> bool:
    return keeps_rows(snapshot) and change_of(snapshot) is None


def _untold(
    name: str, metadata: TableMetadata, beginning: Beginning, history: Sequence[Snapshot]
) -> OptionError | StreamHistoryError:
    start = beginning.snapshot_id
    known = (
        f"the history of snapshot {history[0].snapshot_id} shows {known_snapshots(history)}"
        if history
        else "there is no snapshot to end with"
    )
    if not history or behind(metadata, history[-1], start) is Place.OUTSIDE:
        is_there = find_snapshot(metadata, start) is not None
        reason = f"snapshot {start} is no ancestor of the end" if is_there else f"it has no snapshot {start}"
        return OptionError(f"Cannot read changes of {name}: {reason}; {known}.")
    return StreamHistoryError(
        f"Cannot read changes of {name}: snapshot {start} has expired, or snapshots since have, so that what changed "
        f"is not known: {known}. Begin with one of these, or leave start out to begin with all rows of the oldest. "
        f"{_KEEP}."
    )
