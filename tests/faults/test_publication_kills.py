"""SIGKILL at every step of an epoch that is staged, converted and published; then it is replayed, divided otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checks.invariants import check_sound, unreferenced_files
from support.exhaustive import few
from support.keys.conversions import compact
from support.keys.messages import KEYED_SCHEMA, Event
from support.keys.publications import STAGING, applied, check_main, put, tasks
from support.metrics.reports import reports_on
from support.programs.committer import die_in_commit
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint

OLD: list[Event] = [("I", key, "EU", key, 0) for key in range(4)]
NEW: list[Event] = [("U", 1, "EU", 10, 5), ("D", 2, "EU", None, 5), ("I", 9, "US", 90, 5)]
NEXT: list[Event] = [("U", 9, "US", 91, 6), ("I", 2, "US", 20, 6)]
BEFORE, AFTER = applied([], OLD), applied([], OLD, NEW)
# What a commit comes to, and how often: first when the epoch is staged, then when it is converted.
STAGING_STEPS = [
    (step, 1)
    for step in (
        FaultPoint.TABLE_LOADED,
        FaultPoint.MANIFESTS_WRITTEN,
        FaultPoint.REQUEST_ANSWERED,
        FaultPoint.COMMITTED,
    )
]
CONVERTING_STEPS = [(FaultPoint.PLANNED, 1), (FaultPoint.TASK_WRITTEN, 1), (FaultPoint.COMMIT_BEGUN, 2)]
CONVERTING_STEPS += [(step, 2) for step, _ in STAGING_STEPS]
STEPS = [*STAGING_STEPS, *CONVERTING_STEPS, (FaultPoint.PUBLISHED, 1)]
NOT_STAGED = STAGING_STEPS[:2]


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of a table with one epoch, which is published."""
    sink.create(KEYED_SCHEMA)
    put(sink, 0, OLD)
    return sink


def kill(sink: Sink, folder: Path, step: FaultPoint, number: int, *parts: Any) -> None:
    """Commit epoch 1 in a process that dies."""
    options = {"table": NAME, "warehouse": str(sink.options.warehouse), "keys": "id", "publish-converted": "true"}
    die_in_commit(options, tasks(sink, 1, *(parts or [NEW])), step, folder, number)


def name_of(step: tuple[FaultPoint, int]) -> str:
    """Return the name of a cell."""
    return f"{step[0].name}-{step[1]}"


@pytest.mark.parametrize("step", few(5, ((step,) for step in STEPS)), ids=name_of)
def test_killed_epoch_is_published_once_by_its_replay(
    keyed: Sink, tmp_path: Path, step: tuple[FaultPoint, int]
) -> None:
    """Rows would be lost, be there twice, or reach readers with deletes that they cannot read."""
    is_published, is_staged = step[0] is FaultPoint.PUBLISHED, step not in NOT_STAGED

    kill(keyed, tmp_path, *step)

    check_main(keyed, AFTER if is_published else BEFORE, is_published=is_published or not is_staged)
    assert put(keyed, 1, NEW[:1], NEW[1:]).was_replayed == is_staged
    check_main(keyed, AFTER)
    put(keyed, 2, NEXT)
    check_main(keyed, applied(AFTER, NEXT))
    check_sound(keyed.table())
    options = {"warehouse": str(keyed.options.warehouse)}
    assert iceberg_ds.verify(NAME, options=options, older_than="0s", delete_orphans=True, force=True).ok
    assert unreferenced_files(keyed.table()) == set()
    check_main(keyed, applied(AFTER, NEXT))


def test_conversion_of_a_killed_process_is_told_by_its_replay(keyed: Sink, tmp_path: Path) -> None:
    """Sums would never have what the conversion added and took away."""
    kill(keyed, tmp_path, FaultPoint.COMMITTED, 2)
    taken = reports_on(keyed)

    put(keyed, 1, NEW)

    assert [report.outcome for report in taken] == ["replayed", "replayed"]
    conversion, _ = taken
    assert conversion.snapshot_id == keyed.table().metadata.current_snapshot_id
    assert (conversion.branch, conversion.counts["removed-equality-deletes"]) == ("main", 3)


@pytest.mark.parametrize("step", [(FaultPoint.COMMITTED, 1), (FaultPoint.COMMITTED, 2)], ids=name_of)
def test_killed_epoch_is_written_anew_if_main_has_moved_on(
    keyed: Sink, tmp_path: Path, step: tuple[FaultPoint, int]
) -> None:
    """A compaction that runs between the kill and the restart would stop the stream for good."""
    kill(keyed, tmp_path, *step)
    compact(keyed)

    kill(keyed, tmp_path, *step)
    assert put(keyed, 1, NEW).was_replayed

    check_main(keyed, AFTER)


@pytest.mark.parametrize("step", [(FaultPoint.TASK_WRITTEN, 1), (FaultPoint.COMMITTED, 2)], ids=name_of)
def test_replay_that_is_killed_as_well_is_ended_by_the_next(
    keyed: Sink, tmp_path: Path, step: tuple[FaultPoint, int]
) -> None:
    """A second failure would find a state that nobody thought of."""
    kill(keyed, tmp_path, *step)
    kill(keyed, tmp_path, FaultPoint.SKIPPED, 1)
    check_main(keyed, BEFORE, is_published=False)
    assert STAGING in keyed.table().metadata.refs

    kill(keyed, tmp_path, FaultPoint.PUBLISHED, 1)

    check_main(keyed, AFTER)
    assert put(keyed, 1, NEW).was_replayed
    check_main(keyed, AFTER)
