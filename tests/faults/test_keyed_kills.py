"""SIGKILL at every named step of a commit by keys: then the epoch is replayed, and its rows divided otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.checks.invariants import check_sound, unreferenced_files
from support.checks.reader import rows_of
from support.checks.version_3 import check_version_3
from support.exhaustive import few
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.programs.committer import die_in_commit
from support.spark.tables import read_with_chdb
from support.tables.reading import read_by_tasks
from support.tables.sink import NAME, Sink, epoch, local, paths_of

import iceberg_ds
from iceberg_ds.errors import RefusedRowsError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.messages import TaskCommit
from iceberg_ds.snapshots.version_3 import VERSION_3

OLD: list[Event] = [("I", 1, "EU", 1, 1), ("I", 3, "EU", 3, 1), ("I", 9, "EU", 9, 1)]
NEW: tuple[list[Event], list[Event]] = (
    [("U", 1, "EU", 10, 5), ("U", 2, "EU", 20, 5), ("U", 3, "US", 30, 5)],
    [("U", 2, "US", 21, 6), ("D", 3, "US", None, 7), ("U", 4, "EU", 40, 1)],
)
BEFORE = [(1, "EU", 1), (3, "EU", 3), (9, "EU", 9)]
AFTER = [(1, "EU", 10), (2, "US", 21), (4, "EU", 40), (9, "EU", 9)]
STEPS = [
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.TABLE_LOADED,
    FaultPoint.FILE_CLOSED,  # position deletes are written
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
]
LANDED_BY_THEN = {FaultPoint.REQUEST_ANSWERED, FaultPoint.COMMITTED}


@pytest.fixture
def keyed(sink: Sink, request: pytest.FixtureRequest) -> Sink:
    """Return the sink of a table with key `id` and some rows, of format version 2 unless a test says otherwise."""
    sink.create(KEYED_SCHEMA, format_version=getattr(request, "param", "2"))
    sink.commit(tasks(sink, 0, OLD))
    return sink


def tasks(sink: Sink, number: int, *parts: Sequence[Event]) -> list[TaskCommit]:
    """Run the tasks of an epoch."""
    return keyed_tasks(plan_by_keys(sink), *parts, of_epoch=epoch(number))


def options(sink: Sink) -> dict[str, str]:
    """Return the options by which another process finds the table."""
    return {"table": NAME, "warehouse": str(sink.options.warehouse)}


def values(sink: Sink) -> list[tuple[Any, ...]]:
    """Return the rows of the table, which two readers agree on."""
    found = [tuple(row.values()) for row in rows_of(sink.table())]
    if sink.table().metadata.format_version == VERSION_3:  # ClickHouse reads no deletion vectors
        check_version_3(sink.table())
        assert sorted(tuple(row.values()) for row in read_by_tasks(sink)) == found
        return found
    assert [tuple(row.values()) for row in read_with_chdb(local(sink.table().location()))] == found
    return found


@pytest.mark.parametrize(
    ("keyed", "step"),
    [*(("2", step) for step in STEPS), *few(1, [("3", step) for step in STEPS])],
    indirect=["keyed"],
)
def test_epoch_by_keys_lands_whole_or_not_at_all_after_a_kill(keyed: Sink, tmp_path: Path, step: FaultPoint) -> None:
    """Deleted rows would come back, keys have two rows, or an epoch be there twice."""
    messages = tasks(keyed, 1, *NEW)

    die_in_commit(options(keyed), messages, step, tmp_path)

    assert values(keyed) == (AFTER if step in LANDED_BY_THEN else BEFORE)
    result = keyed.commit(tasks(keyed, 1, [*NEW[0], *NEW[1]], []))
    assert result.was_replayed == (step in LANDED_BY_THEN)
    assert values(keyed) == AFTER
    assert len(keyed.table().metadata.snapshots) == 2
    check_sound(keyed.table())
    left = unreferenced_files(keyed.table())
    assert all(messages[0].write.operation_id in path.name for path in left)
    assert bool(left) == (step not in LANDED_BY_THEN)


def test_orphans_of_a_killed_commit_are_found(keyed: Sink, tmp_path: Path) -> None:
    """Deletes that nothing refers to would take space for good, and nobody could tell."""
    die_in_commit(options(keyed), tasks(keyed, 1, *NEW), FaultPoint.MANIFESTS_WRITTEN, tmp_path)

    result = iceberg_ds.verify(NAME, options=options(keyed), older_than="0s", delete_orphans=True, force=True)

    assert result.ok, str(result)
    kinds = sorted(local(orphan.path).suffix for orphan in result.orphans)
    assert kinds == [".avro"] * 3 + [".parquet"] * 5
    assert sum("-deletes" in orphan.path for orphan in result.orphans) == 3
    assert unreferenced_files(keyed.table()) == set()
    assert values(keyed) == BEFORE


def test_kill_while_a_replay_is_skipped_changes_nothing(keyed: Sink, tmp_path: Path) -> None:
    """The table would lose files of the epoch that landed."""
    keyed.commit(tasks(keyed, 1, *NEW))

    for step in (FaultPoint.CLEANING_UP, FaultPoint.SKIPPED):
        die_in_commit(options(keyed), tasks(keyed, 1, [*NEW[0], *NEW[1]]), step, tmp_path)

        assert values(keyed) == AFTER
        check_sound(keyed.table())


def test_kill_while_refused_rows_are_tidied_up_commits_nothing(keyed: Sink, tmp_path: Path) -> None:
    """Rows that were refused would be in the table after all."""
    tied: list[Event] = [("U", 1, "EU", 5, 5)]
    messages = tasks(keyed, 1, tied, tied)

    die_in_commit(options(keyed), messages, FaultPoint.CLEANING_UP, tmp_path)

    assert values(keyed) == BEFORE
    with pytest.raises(RefusedRowsError, match="'id': 1"):
        keyed.commit(tasks(keyed, 1, tied, tied))
    assert unreferenced_files(keyed.table()) == set(paths_of(messages))
    keyed.commit(tasks(keyed, 1, *NEW))
    assert values(keyed) == AFTER
