"""Writes by keys under a failing catalog, and beside other writers: every row and every delete once, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    When,
    connection_lost,
    false_refusal,
    forbidden,
    refusal,
    server_error,
    state_unknown,
    throttled,
    timed_out,
)
from support.checks.invariants import check_clean, check_sound, stored_files, unreferenced_files
from support.checks.reader import listed, rows_of
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.tables.sink import Sink, epoch, paths_of

from iceberg_ds.commit.commit import abort_write
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, IcebergSinkError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import EpochId
from iceberg_ds.snapshots.refs import branch_history

pytestmark = pytest.mark.usefixtures("waits")

COLLIDING: tuple[list[Event], list[Event]] = (
    [("U", 1, "EU", 10, 5), ("U", 2, "EU", 20, 5), ("U", 3, "US", 30, 5)],
    [("U", 2, "US", 21, 6), ("D", 3, "US", None, 7), ("U", 4, "EU", 40, 1)],
)
COLLIDED = [(1, "EU", 10), (2, "US", 21), (4, "EU", 40)]
OLD: list[Event] = [("I", 1, "EU", 1, 1), ("I", 3, "EU", 3, 1), ("I", 9, "EU", 9, 1)]
EVERY_ERROR = [refusal, throttled, state_unknown, server_error, connection_lost, timed_out, forbidden, false_refusal]


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of a table with key `id` and some rows."""
    sink.create(KEYED_SCHEMA)
    put(sink, OLD)
    return sink


def tasks(sink: Sink, *parts: Sequence[Event], of_epoch: EpochId | None = None) -> list[TaskCommit]:
    """Run a task for each of `parts`."""
    return keyed_tasks(plan_by_keys(sink), *parts, of_epoch=of_epoch)


def put(sink: Sink, *parts: Sequence[Event], of_epoch: EpochId | None = None) -> None:
    """Write and commit events by key."""
    sink.commit(tasks(sink, *parts, of_epoch=of_epoch))


def values(sink: Sink) -> list[tuple[Any, ...]]:
    """Return the rows of the table without their names."""
    return [tuple(row.values()) for row in rows_of(sink.table())]


@pytest.mark.parametrize("of_epoch", [None, epoch(3)], ids=["batch", "epoch"])
@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", EVERY_ERROR)
def test_failing_commit_lands_once_or_not_at_all(  # noqa: PLR0913, PLR0917  # one case of a table
    keyed: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    error: Callable[[], Exception],
    when: When,
    of_epoch: EpochId | None,
) -> None:
    """Rows would be there twice or deleted ones come back, or files be left behind, whenever a catalog stumbles."""
    messages = tasks(keyed, *COLLIDING, of_epoch=of_epoch)
    faulty_catalog.fail_next(1, error, when=when)

    try:
        faulty_sink.commit(messages)
    except IcebergSinkError:
        assert error is forbidden
        assert values(keyed) == [(1, "EU", 1), (3, "EU", 3), (9, "EU", 9)]
    else:
        assert values(keyed) == [*COLLIDED, (9, "EU", 9)]
        assert len(list(branch_history(keyed.table().metadata, "main"))) == 2
    check_clean(keyed.table())


@pytest.mark.parametrize("error", [connection_lost, refusal])
def test_catalog_that_never_answers_leaves_files_exactly_if_they_may_be_needed(
    keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception]
) -> None:
    """A table would lose deletes that it refers to; or those of refused writes pile up."""
    messages = tasks(keyed, *COLLIDING)
    before = stored_files(keyed.table().location())
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitStateUnknownError if error is connection_lost else CommitConflictError):
        faulty_sink.commit(messages)

    left = stored_files(keyed.table().location()) - before
    position_deletes = [path for path in left if path.name.endswith("-deletes.parquet")]
    assert len(position_deletes) == (1 if error is connection_lost else 0)
    assert all(path.exists() == (error is connection_lost) for path in paths_of(messages))
    assert values(keyed) == [(1, "EU", 1), (3, "EU", 3), (9, "EU", 9)]
    check_sound(keyed.table())


def test_rows_that_land_before_are_deleted_and_those_after_stay(
    keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Deletes that keep the number of a failed attempt would miss rows of writers that were faster."""
    messages = tasks(keyed, *COLLIDING)

    def be_faster() -> None:
        put(keyed, [("U", 2, "XX", 5, 1), ("U", 8, "XX", 8, 1)])

    faulty_catalog.before_commit(1, be_faster)
    faulty_catalog.before_commit(2, be_faster)
    faulty_sink.commit(messages)

    assert faulty_catalog.commits == 3
    assert values(keyed) == [*COLLIDED, (8, "XX", 8), (9, "EU", 9)]
    deletes = listed(keyed.table())[DataFileContent.POSITION_DELETES]
    assert [found.number for found in deletes] == [4]
    put(keyed, [("U", 2, "EU", 22, 0)])
    assert values(keyed)[1] == (2, "EU", 22)
    check_clean(keyed.table())


def test_two_writers_of_one_key_leave_one_row(keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """Two streams that upsert one table would leave two rows of a key."""
    messages = tasks(keyed, [("U", 1, "EU", 100, 1)])
    other = tasks(keyed, [("U", 1, "US", 200, 1)])
    faulty_catalog.before_commit(1, lambda: keyed.commit(other))

    faulty_sink.commit(messages)

    assert values(keyed)[0] == (1, "EU", 100)
    assert len(values(keyed)) == 3


def test_epoch_that_was_given_up_leaves_nothing(keyed: Sink) -> None:
    """Files of rows and of deletes would pile up with each failed epoch."""
    first, second = tasks(keyed, *COLLIDING, of_epoch=epoch(0))
    second_files = paths_of([second])

    abort_write(keyed.catalog, [first, None])

    assert not any(path.exists() for path in paths_of([first]))
    assert all(path.exists() for path in second_files)


def test_epoch_that_was_replayed_after_a_lost_answer_is_there_once(
    keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A stream that fails right after its commit would delete or add its rows again."""
    faulty_catalog.fail_next(999, connection_lost, when=When.AFTER)
    messages = tasks(keyed, *COLLIDING, of_epoch=epoch(0))

    faulty_sink.commit(messages)
    put(keyed, *COLLIDING[::-1], of_epoch=epoch(0))

    assert values(keyed) == [*COLLIDED, (9, "EU", 9)]
    assert len(keyed.table().metadata.snapshots) == 2
    assert unreferenced_files(keyed.table()) == set()
