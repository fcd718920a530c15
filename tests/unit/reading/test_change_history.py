"""Between which snapshots changes are read: each that changed rows once, and an error where history is gone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import SnapshotLogEntry
from support.tables.metadata import START_MS, after_expiry, line, metadata_of

from iceberg_ds.errors import OptionError, StreamHistoryError
from iceberg_ds.reading.change_history import (
    Beginning,
    Bound,
    ChangeRange,
    ChangeStep,
    changed_snapshots,
    find_range,
)
from iceberg_ds.snapshots.refs import find_snapshot

NONE = Bound()
REPLACE = {"operation": "replace"}


def ranged(
    metadata: TableMetadata, start: Bound = NONE, end: Bound = NONE, branch: str | None = None
) -> ChangeRange | None:
    """Return the range of these bounds."""
    return find_range("db.t", metadata, branch, start=start, end=end)


def steps(
    metadata: TableMetadata, start: int, end: int, *, is_whole: bool = False
) -> list[tuple[int, int | None, int]]:
    """Return the snapshots between two, each with its parent and its ordinal."""
    found: list[ChangeStep] = changed_snapshots(
        "db.t", metadata, Beginning(snapshot_id=start, is_whole=is_whole), find_snapshot(metadata, end)
    )
    return [
        (step.snapshot.snapshot_id, None if step.parent is None else step.parent.snapshot_id, step.ordinal)
        for step in found
    ]


def test_snapshots_after_the_start_up_to_the_end_are_read() -> None:
    """Changes at either end would come twice in two reads that follow each other, or not at all."""
    metadata = metadata_of(line(1, 2, 3, 4))

    assert steps(metadata, 1, 3) == [(2, 1, 0), (3, 2, 1)]
    assert steps(metadata, 3, 4) == [(4, 3, 0)]
    assert steps(metadata, 4, 4) == []
    assert steps(metadata, 1, 2, is_whole=True) == [(1, None, 0), (2, 1, 1)]


def test_compactions_are_no_changes() -> None:
    """All rows of a compacted table would be read as changes."""
    metadata = metadata_of(
        line(1, 2, 3, 4, s2=REPLACE, s3={"operation": "overwrite", "icebergsink.keeps-rows": "true"})
    )

    assert steps(metadata, 1, 4) == [(4, 3, 0)]


def test_replacement_that_adds_rows_is_a_change() -> None:
    """Rows would be lost that an engine added by an operation that is meant for compactions."""
    metadata = metadata_of(line(1, 2, s2={**REPLACE, "added-records": "3", "deleted-records": "2"}))

    assert steps(metadata, 1, 2) == [(2, 1, 0)]


def test_compaction_that_is_read_whole_has_rows() -> None:
    """The rows of a table whose oldest snapshot is a compaction would be missing."""
    metadata = metadata_of(after_expiry(5, 6))
    oldest = metadata.snapshots[0]
    assert oldest.summary is not None
    compacted = metadata.model_copy(
        update={
            "snapshots": [
                oldest.model_copy(update={"summary": oldest.summary.model_copy(update={"operation": "replace"})}),
                metadata.snapshots[1],
            ]
        }
    )

    assert steps(compacted, 5, 6, is_whole=True) == [(5, None, 0), (6, 5, 1)]


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (NONE, NONE, (1, True, 4)),
        (Bound(snapshot_id=2), NONE, (2, False, 4)),
        (Bound(snapshot_id=2), Bound(snapshot_id=3), (2, False, 3)),
        (Bound(time_ms=START_MS + 2), NONE, (2, False, 4)),
        (Bound(time_ms=START_MS - 5), NONE, (1, True, 4)),
        (NONE, Bound(time_ms=START_MS + 3), (1, True, 3)),
        (Bound(time_ms=START_MS + 3), Bound(time_ms=START_MS + 900), (3, False, 4)),
        (Bound(time_ms=START_MS + 900), NONE, (4, False, 4)),
    ],
)
def test_bounds_are_snapshots_or_times(start: Bound, end: Bound, wanted: tuple[int, bool, int]) -> None:
    """A job that reads the changes of each day would read those of a commit twice, or never."""
    found = ranged(metadata_of(line(1, 2, 3, 4)), start, end)

    assert found is not None
    assert (found.beginning.snapshot_id, found.beginning.is_whole, found.end_id) == wanted


def test_nothing_is_read_where_nothing_was_yet() -> None:
    """A job could only be started after the first write."""
    assert ranged(metadata_of()) is None
    assert ranged(metadata_of(line(1, 2)), end=Bound(time_ms=START_MS - 1)) is None


def test_changes_are_those_of_a_branch() -> None:
    """The changes of one branch would be read as those of another one."""
    metadata = metadata_of([*line(1, 2, 3), *line(1, 4)[1:]], branches={"main": 3, "side": 4})

    found = ranged(metadata, branch="side", start=Bound(snapshot_id=1))
    assert found is not None
    assert found.end_id == 4
    assert steps(metadata, 1, 4) == [(4, 1, 0)]
    assert ranged(metadata, end=Bound(snapshot_id=4)) is not None
    with pytest.raises(
        OptionError, match=r"snapshot 3 is not in the history of branch 'side', which shows snapshots 1"
    ):
        ranged(metadata, branch="side", end=Bound(snapshot_id=3))
    with pytest.raises(OptionError, match="it has no branch 'nope'"):
        ranged(metadata, branch="nope")
    with pytest.raises(OptionError, match=r"snapshot 3 is no ancestor of the end; the history of snapshot 4 shows"):
        steps(metadata, 3, 4)
    with pytest.raises(OptionError, match="snapshot 3 is no ancestor of the end"):
        steps(metadata, 3, 2)


def test_unknown_snapshots_are_refused() -> None:
    """A misspelt snapshot would be taken for the beginning of the table."""
    metadata = metadata_of(line(1, 2))

    with pytest.raises(OptionError, match="it has no snapshot 77; the history of snapshot 2 shows snapshots 1 to 2"):
        steps(metadata, 77, 2)
    with pytest.raises(OptionError, match="it has no snapshot 78, or no longer"):
        ranged(metadata, end=Bound(snapshot_id=78))


def test_history_that_is_gone_is_an_error() -> None:
    """Changes that were committed before the oldest snapshot that is left would be missing."""
    metadata = metadata_of(after_expiry(5, 6, 7))

    with pytest.raises(StreamHistoryError, match=r"snapshot 3 has expired, .* shows snapshots 5 to 7"):
        steps(metadata, 3, 7)
    with pytest.raises(StreamHistoryError, match="snapshot 4 has expired"):  # what 5 deleted is in files that 4 listed
        steps(metadata, 4, 7)
    for start, end in ((Bound(time_ms=START_MS + 4), NONE), (NONE, Bound(time_ms=START_MS + 4))):
        with pytest.raises(StreamHistoryError, match=r"has expired; it begins with snapshot 5 of 17000000000"):
            ranged(metadata, start, end)
    found = ranged(metadata)
    assert found is not None
    assert found.beginning == Beginning(snapshot_id=5, is_whole=True)


@pytest.mark.parametrize(
    ("start", "reason"), [(2, "snapshot 2 is no ancestor of the end"), (9, "it has no snapshot 9")]
)
def test_start_is_refused_where_nothing_is_left_to_end_with(start: int, reason: str) -> None:
    """A copy of a table that was replaced by an empty one would keep all rows, and hear nothing of it."""
    metadata = metadata_of(line(1, 2), branches={})

    with pytest.raises(OptionError, match=f"{reason}; there is no snapshot to end with"):
        ranged(metadata, Bound(snapshot_id=start))
    with pytest.raises(OptionError, match="there is no snapshot to end with"):
        ranged(metadata_of(line(1, 2)), Bound(snapshot_id=start), Bound(time_ms=START_MS - 1))
    assert ranged(metadata) is None


@pytest.mark.parametrize("branches", [{}, {"main": 5}, {"main": 5, "kept": 2}])
def test_time_before_a_replacement_is_refused(branches: dict[str, int]) -> None:
    """The rows of before would never be deleted in a copy."""
    began_anew = {"added-data-files": "1", "total-data-files": "1"}
    metadata = metadata_of([*line(1, 2), *line(5, s5=began_anew)], branches=branches)

    with pytest.raises(StreamHistoryError, match="the table was replaced"):
        ranged(metadata, Bound(time_ms=START_MS + 2))
    assert ranged(metadata, Bound(time_ms=START_MS - 1)) == (
        ChangeRange(beginning=Beginning(snapshot_id=5, is_whole=True), end_id=5) if branches else None
    )


def test_time_before_a_fork_is_no_replacement() -> None:
    """A branch that was made before the first snapshot of main would keep its changes from being read."""
    metadata = metadata_of(line(1, 2, 3, 4), branches={"main": 4, "audit": 2})

    assert ranged(metadata, Bound(time_ms=START_MS)) == ChangeRange(
        beginning=Beginning(snapshot_id=1, is_whole=True), end_id=4
    )


@pytest.mark.parametrize("branches", [{"main": 3}, {"main": 3, "audit": 2}])
def test_time_before_main_was_set_back_is_refused(branches: dict[str, int]) -> None:
    """A copy of that time would keep rows that the table no longer has."""
    first, second = line(1, 2)
    metadata = metadata_of([first, second, replace(first, snapshot_id=3, parent=1)], branches=branches)
    stood_at = (1, 2, 1, 3)
    log = [
        SnapshotLogEntry(snapshot_id=number, timestamp_ms=START_MS + at) for at, number in enumerate(stood_at, start=1)
    ]
    metadata = metadata.model_copy(update={"snapshot_log": log})
    was_there = Bound(time_ms=START_MS + 2)

    for bounds in ((was_there, NONE), (NONE, was_there)):
        with pytest.raises(StreamHistoryError, match=r"branch 'main' stood at snapshot 2, .* it was set back since"):
            ranged(metadata, *bounds)
    for moment in (1, 3):
        found = ranged(metadata, Bound(time_ms=START_MS + moment))
        assert found is not None
        assert (found.beginning.snapshot_id, found.end_id) == (3 if moment == 3 else 1, 3)
