"""The commit loop under a failing catalog: rows exactly once or not at all, and no file too many or too few."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyiceberg.types import LongType
from pyspark.sql import types as spark
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
from support.checks.invariants import check_sound, unreferenced_files
from support.tables.changes_by_others import drop_branch
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import IDENTIFIER, QUERY, Sink, epoch, local, paths_of, rows

from iceberg_ds.commit import producer, retry
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitMessageError,
    CommitStateUnknownError,
    IcebergSinkError,
    SchemaMismatchError,
)
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import EpochId

pytestmark = pytest.mark.usefixtures("waits")

REFUSALS = [refusal, throttled]
LOST = [state_unknown, server_error, connection_lost, timed_out]
LASTING = [forbidden]
ALL = [*REFUSALS, *LOST, *LASTING]

RETRIES = 3


@dataclass(frozen=True, kw_only=True)
class Before:
    """What is there before a commit, and what kind of commit it is.

    Attributes:
        ids: What the table holds; with none it does not exist, and the commit makes it.
        epoch: The micro-batch, None for a batch.
    """

    ids: list[int]
    epoch: EpochId | None


BEFORE = {
    "batch into a table": Before(ids=[1], epoch=None),
    "batch that creates": Before(ids=[], epoch=None),
    "epoch into a table": Before(ids=[1], epoch=epoch(5)),
    "epoch that creates": Before(ids=[], epoch=epoch(5)),
}


@pytest.fixture(params=["batch into a table", "epoch that creates"])
def before(request: pytest.FixtureRequest, sink: Sink) -> Before:
    """Return what is there before a commit, and have it there."""
    found = BEFORE[request.param]
    if found.ids:
        sink.append(*found.ids)
    return found


@pytest.fixture(params=["batch", "stream"])
def of_epoch(request: pytest.FixtureRequest) -> EpochId | None:
    """Return the micro-batch that is committed, None for a batch."""
    return None if request.param == "batch" else epoch(5)


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong with the commits.

    Attributes:
        error: Makes what the catalog raises.
        when: Whether the commit took effect.
        times: How often.
    """

    error: Callable[[], Exception]
    when: When
    times: int

    def __str__(self) -> str:
        return f"{self.error.__name__} {self.when.value} x {self.times}"


PASSING = [
    Trouble(error=error, when=when, times=times)
    for error in ALL
    for when in When
    for times in ([1, RETRIES] if when is When.BEFORE else [1])
    if error not in LASTING or when is When.AFTER
]


def set_properties(sink: Sink, properties: dict[str, str]) -> None:
    """Change properties of the table."""
    with sink.table().transaction() as change:
        change.set_properties(properties)


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tables without a policy of their own be tried as often as those with `RETRIES`."""
    monkeypatch.setattr(retry.RetryPolicy, "of", lambda _: retry.RetryPolicy(num_retries=RETRIES))


def ids_in(sink: Sink) -> list[int]:
    """Return the ids that the table holds, none if there is no table."""
    return [] if sink.catalog.find_table(IDENTIFIER) is None else sink.ids()


def check_clean(sink: Sink) -> None:
    """Assert that the table is whole, and that nothing lies around."""
    table = sink.table()
    check_sound(table)
    assert unreferenced_files(table) == set()


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("trouble", PASSING, ids=str)
def test_failures_below_the_limit_end_with_the_rows_in_the_table_once(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, before: Before, trouble: Trouble
) -> None:
    """Rows would be lost or doubled, or files left behind, because the catalog hiccuped."""
    messages = faulty_sink.write(rows(2, 3), of_epoch=before.epoch)
    faulty_catalog.fail_next(trouble.times, trouble.error, when=trouble.when)

    result = faulty_sink.commit(messages)

    assert result.snapshot_id == messages[0].write.snapshot_id
    assert sink.ids() == [*before.ids, 2, 3]
    check_clean(sink)
    # Once landed, nothing more is sent.
    assert faulty_catalog.commits == (1 if trouble.when is When.AFTER else trouble.times + 1)


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("error", REFUSALS)
def test_refusals_up_to_the_limit_leave_nothing_behind(
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    of_epoch: EpochId | None,
    error: Callable[[], Exception],
) -> None:
    """A failed write would leave files behind, or destroy the table."""
    sink.append(1)
    messages = faulty_sink.write(rows(2), of_epoch=of_epoch)
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitConflictError, match=f"after {RETRIES + 1} attempts.*Nothing was committed"):
        faulty_sink.commit(messages)

    assert faulty_catalog.commits == RETRIES + 1
    assert sink.ids() == [1]
    check_clean(sink)


@pytest.mark.usefixtures("few_retries")
def test_refusals_of_a_new_table_leave_nothing_behind(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A failed first write would leave files behind."""
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(999, throttled)

    with pytest.raises(CommitConflictError, match="Nothing was committed"):
        faulty_sink.commit(messages)

    assert faulty_sink.catalog.find_table(IDENTIFIER) is None
    assert [path for path in paths_of(messages)[0].parents[1].rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("few_retries")
def test_race_for_a_new_table_that_nobody_is_seen_to_have_won_deletes_nothing(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A table that was created, and that a cache does not show, would lose its files."""
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(999, false_refusal)

    with pytest.raises(CommitStateUnknownError, match=r"another one was faster \(.*\), and the table shows none"):
        faulty_sink.commit(messages)

    assert all(path.exists() for path in paths_of(messages))


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("error", LOST)
def test_lost_answers_up_to_the_limit_delete_nothing(
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    before: Before,
    error: Callable[[], Exception],
) -> None:
    """A request that arrives late would commit files that have been deleted: a broken table."""
    messages = faulty_sink.write(rows(2), of_epoch=before.epoch)
    faulty_catalog.fail_next(999, error)

    with pytest.raises(CommitStateUnknownError, match="No files were deleted") as raised:
        faulty_sink.commit(messages)

    assert str(messages[0].write.snapshot_id) in str(raised.value)
    assert ids_in(sink) == before.ids
    assert all(path.exists() for path in paths_of(messages))


@pytest.mark.usefixtures("few_retries")
def test_request_that_arrives_after_giving_up_finds_its_files(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A request that arrives late would commit files that have been deleted: a broken table."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    sent: list[Any] = []
    real = faulty_catalog._inner.commit_table

    def keep(*request: Any) -> None:
        sent.append(request)
        raise TimeoutError("no answer")

    faulty_catalog._inner.commit_table = keep  # type: ignore[method-assign,assignment]  # the network, for once
    with pytest.raises(CommitStateUnknownError):
        faulty_sink.commit(messages)

    real(*sent[-1])

    assert sink.ids() == [1, 2]
    check_sound(sink.table())


@pytest.mark.usefixtures("few_retries")
def test_first_request_that_arrives_during_the_second_commits_once(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, of_epoch: EpochId | None
) -> None:
    """Rows would be there twice because the network was slow."""
    sink.append(1)
    messages = faulty_sink.write(rows(2), of_epoch=of_epoch)
    sent: list[Any] = []
    real = faulty_catalog._inner.commit_table

    def slow(*request: Any) -> Any:
        sent.append(request)
        if len(sent) == 1:
            raise TimeoutError("no answer")
        real(*sent[0])
        return real(*request)

    faulty_catalog._inner.commit_table = slow  # type: ignore[method-assign]  # the network, for once

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2]
    check_clean(sink)


@pytest.mark.parametrize("error", LASTING)
def test_lasting_refusal_is_not_tried_again(
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    of_epoch: EpochId | None,
    error: Callable[[], Exception],
) -> None:
    """A write without the right to it would take minutes to fail, and blame other writers."""
    sink.append(1)
    messages = faulty_sink.write(rows(2), of_epoch=of_epoch)
    faulty_catalog.fail_next(999, error)

    with pytest.raises(IcebergSinkError, match="no right to write"):
        faulty_sink.commit(messages)

    assert faulty_catalog.commits == 1
    assert sink.ids() == [1]
    check_clean(sink)


def test_lasting_refusal_is_a_catalog_error(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A user without the right to write would be told that other writers are to blame."""
    faulty_sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(999, forbidden)

    with pytest.raises(CatalogError, match="no right to write"):
        faulty_sink.commit(messages)


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("error", ALL)
def test_failure_of_the_last_attempt_that_landed_is_a_success(
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    of_epoch: EpochId | None,
    error: Callable[[], Exception],
) -> None:
    """The table would be destroyed: its newest manifests would be deleted."""
    sink.append(1)
    messages = faulty_sink.write(rows(2), of_epoch=of_epoch)
    faulty_catalog.fail_next(RETRIES, refusal)
    faulty_catalog.fail_next(1, error, when=When.AFTER)

    result = faulty_sink.commit(messages)

    assert result.snapshot_id == messages[0].write.snapshot_id
    assert sink.ids() == [1, 2]
    check_clean(sink)


def test_no_retries_is_one_attempt(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A user who forbids retries would not get what they asked for."""
    sink.append(1)
    set_properties(sink, {"commit.retry.num-retries": "0"})
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, refusal)

    with pytest.raises(CommitConflictError, match="after 1 attempts"):
        faulty_sink.commit(messages)

    assert faulty_catalog.commits == 1


def test_time_limit_ends_the_retries(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A commit would hang on for as long as the catalog is away."""
    sink.append(1)
    set_properties(sink, {"commit.retry.total-timeout-ms": "0"})
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(9, refusal)

    with pytest.raises(CommitConflictError, match="Nothing was committed"):
        faulty_sink.commit(messages)

    assert faulty_catalog.commits <= 2


def test_waits_grow_as_the_table_asks(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many writers would hammer the catalog."""
    monkeypatch.setattr("random.random", lambda: 1.0)
    sink.append(1)
    set_properties(sink, {"commit.retry.min-wait-ms": "200", "commit.retry.max-wait-ms": "1000"})
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(4, throttled)

    faulty_sink.commit(messages)

    assert waits == [0.2, 0.4, 0.8, 1.0]


def test_stale_table_after_a_lost_answer_does_not_commit_twice(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, of_epoch: EpochId | None
) -> None:
    """Rows would be there twice because a cache stands in front of the catalog."""
    sink.append(1)
    messages = faulty_sink.write(rows(2), of_epoch=of_epoch)
    before = sink.table()
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.serve_stale(before, 2))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2]
    check_clean(sink)


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize(
    ("error", "age"), [(false_refusal, 0), (false_refusal, 1), (connection_lost, 0), (connection_lost, 1)]
)
def test_stale_table_to_the_end_does_not_make_a_write_that_landed_lose_its_files(  # noqa: PLR0913, PLR0917  # one case
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    error: Callable[[], Exception],
    age: int,
    version: str,
) -> None:
    """The table would be broken by whoever asks a catalog through a cache, and a gateway that sends requests twice."""
    sink.create(ID_AND_NAME, format_version=version)
    sink.append(1)
    set_properties(sink, {"commit.retry.num-retries": "0"})
    tables = [sink.table()]
    sink.append(2)
    tables.append(sink.table())
    messages = faulty_sink.write(rows(3), of_epoch=epoch(7))  # the mark tells nothing if the table is of yesterday
    faulty_catalog.fail_next(1, error, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.serve_stale(tables[-1 - age], times=999))

    with pytest.raises(CommitStateUnknownError, match="No files were deleted"):
        faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    check_sound(sink.table())


@pytest.mark.parametrize("version", ["1", "2"])
def test_table_of_before_a_replacement_does_not_make_a_write_that_landed_lose_its_files(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, version: str
) -> None:
    """The table would be broken: what the cache shows has a snapshot, as if another first one had been faster."""
    sink.create(ID_AND_NAME, format_version=version)
    sink.append(1)
    set_properties(sink, {"commit.retry.num-retries": "0"})
    before = sink.table()
    drop_branch(sink, "main")
    messages = faulty_sink.write(rows(3))
    faulty_catalog.fail_next(1, false_refusal, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.serve_stale(before, times=999))

    with pytest.raises(CommitStateUnknownError, match="No files were deleted"):
        faulty_sink.commit(messages)

    assert sink.ids() == [3]
    check_sound(sink.table())


def test_stale_table_before_the_first_attempt_only_costs_an_attempt(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, of_epoch: EpochId | None
) -> None:
    """Rows of others would be overwritten because a cache stands in front of the catalog."""
    sink.append(1)
    messages = faulty_sink.write(rows(3), of_epoch=of_epoch)
    before = sink.table()
    sink.append(2)
    faulty_catalog.serve_stale(before)

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    assert faulty_catalog.commits == 2
    check_clean(sink)


@pytest.mark.parametrize("error", [connection_lost, server_error, forbidden])
def test_catalog_that_comes_back_before_the_first_attempt_gets_the_rows(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception]
) -> None:
    """A write would be thrown away because the catalog was restarted."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next_loads(2, error)

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2]


def test_catalog_that_stays_away_before_the_first_attempt_is_an_error_that_says_so(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A user would not learn whether the rows are in the table."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next_loads(999, connection_lost)

    with pytest.raises(CatalogError, match="nothing was committed"):
        faulty_sink.commit(messages)

    assert sink.ids() == [1]
    assert faulty_catalog.commits == 0


def test_catalog_that_stays_away_before_the_first_attempt_leaves_no_file(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A failed write would leave files behind that nobody names."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next_loads(999, connection_lost)

    with pytest.raises(CatalogError):
        faulty_sink.commit(messages)

    check_clean(sink)


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", [connection_lost, state_unknown, refusal])
def test_catalog_that_goes_away_after_an_attempt_deletes_nothing(
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    when: When,
    error: Callable[[], Exception],
) -> None:
    """Files that are, or come, into the table would be deleted: a broken table."""
    sink.append(1)
    set_properties(sink, {"commit.retry.num-retries": "2"})
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, error, when=when)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.fail_next_loads(999, connection_lost))

    with pytest.raises(CommitStateUnknownError, match="No files were deleted"):
        faulty_sink.commit(messages)

    assert all(path.exists() for path in paths_of(messages))
    assert sink.ids() == ([1, 2] if when is When.AFTER else [1])
    check_sound(sink.table())


def test_catalog_that_comes_back_after_an_attempt_tells_what_became_of_it(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows would be there twice because the catalog was restarted."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: faulty_catalog.fail_next_loads(3, connection_lost))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2]
    assert faulty_catalog.commits == 1
    check_clean(sink)


# Races: two handles, one fixed order.


def test_writer_that_loses_the_race_commits_after_the_winner(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, of_epoch: EpochId | None
) -> None:
    """One of two concurrent writers would lose its rows."""
    sink.append(1)
    messages = faulty_sink.write(rows(3), of_epoch=of_epoch)
    faulty_catalog.before_commit(1, lambda: sink.append(2))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2, 3]
    assert faulty_catalog.commits == 2
    assert [snapshot.sequence_number for snapshot in sink.table().metadata.snapshots] == [1, 2, 3]
    check_clean(sink)


def test_writer_that_loses_many_races_gets_the_right_sequence_number(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Deletes of other engines would apply to the wrong rows, because manifests are reused."""
    sink.append(0)
    messages = faulty_sink.write(rows(9))
    for number in (1, 2, 3):
        faulty_catalog.before_commit(number, lambda number=number: sink.append(number))  # type: ignore[misc]  # binds it

    faulty_sink.commit(messages)

    assert sink.ids() == [0, 1, 2, 3, 9]
    own = [
        entry
        for entry in sink.table().inspect.entries().to_pylist()
        if entry["snapshot_id"] == messages[0].write.snapshot_id
    ]
    assert [(entry["sequence_number"], entry["file_sequence_number"]) for entry in own] == [(5, 5)]
    check_clean(sink)


def test_two_first_writers_both_succeed(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """One of two jobs that start at once would fail, or its rows would be lost."""
    messages = faulty_sink.write(rows(2))
    faulty_catalog.before_commit(1, lambda: sink.append(1))

    faulty_sink.commit(messages)

    assert sink.ids() == [1, 2]
    check_clean(sink)


def test_two_first_writers_of_one_query_in_turn_both_succeed(sink: Sink) -> None:
    """One of two jobs that planned before the table existed would fail."""
    first, second = sink.write(rows(1)), sink.write(rows(2), of_epoch=epoch(0))

    sink.commit(first)
    sink.commit(second)

    assert sink.ids() == [1, 2]
    check_clean(sink)


def test_two_first_writers_with_different_columns_conflict(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Values would appear in other columns, or nowhere."""
    other = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("amount", spark.LongType())])
    messages = faulty_sink.write([{"id": 2, "amount": 3}], schema=other)
    faulty_catalog.before_commit(1, lambda: sink.append(1))

    with pytest.raises(CommitConflictError, match="another writer created it"):
        faulty_sink.commit(messages)

    assert sink.ids() == [1]
    check_clean(sink)


# Epochs.


def test_replayed_epoch_is_skipped_and_its_files_deleted(sink: Sink) -> None:
    """A restarted stream would have rows twice, or leave files behind at every restart."""
    sink.append(1, of_epoch=epoch(0))
    again = sink.write(rows(1), of_epoch=epoch(0))

    result = sink.commit(again)

    assert (result.snapshot_id, result.was_replayed) == (None, True)
    assert sink.ids() == [1]
    check_clean(sink)


def test_epoch_is_skipped_after_its_snapshot_expired(sink: Sink) -> None:
    """A stream that restarts after snapshot expiry would have rows twice."""
    first = sink.append(1, of_epoch=epoch(0))
    sink.append(2)
    assert first.snapshot_id is not None
    sink.table().maintenance.expire_snapshots().by_id(first.snapshot_id).commit()

    result = sink.commit(sink.write(rows(1), of_epoch=epoch(0)))

    assert result.was_replayed
    assert sink.ids() == [1, 2]


def test_epoch_is_skipped_after_commits_of_others(sink: Sink) -> None:
    """A restarted stream would have rows twice if anybody else writes."""
    sink.append(1, of_epoch=epoch(0))
    for number in range(2, 5):
        sink.append(number)
        sink.append(number + 10, of_epoch=epoch(number, "another query"))

    assert sink.commit(sink.write(rows(1), of_epoch=epoch(0))).was_replayed
    assert sink.ids() == [1, 2, 3, 4, 12, 13, 14]


def test_epoch_is_skipped_when_its_property_was_lost(sink: Sink) -> None:
    """A restarted stream would have rows twice if somebody tidied the table's properties."""
    sink.append(1, of_epoch=epoch(0))
    with sink.table().transaction() as change:
        change.remove_properties(f"icebergsink.last-epoch.main.{QUERY}")

    assert sink.commit(sink.write(rows(1), of_epoch=epoch(0))).was_replayed
    assert sink.ids() == [1]


def test_epochs_of_many_queries_do_not_mix(sink: Sink) -> None:
    """Two streams into one table would skip each other's epochs."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number, "one"))
        sink.append(number + 10, of_epoch=epoch(number, "two"))

    assert sink.ids() == [0, 1, 2, 10, 11, 12]


def test_lower_epoch_is_an_error_that_names_the_last_one(sink: Sink) -> None:
    """A rolled-back checkpoint would bring rows in twice."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))
    messages = sink.write(rows(1), of_epoch=epoch(1))

    with pytest.raises(CommitConflictError, match=r"already holds epoch 2 of this query.*rolled back"):
        sink.commit(messages)

    assert sink.ids() == [0, 1, 2]
    check_clean(sink)


def test_epoch_after_a_gap_is_committed(sink: Sink) -> None:
    """A stream with idle micro-batches, which add nothing, would stop."""
    sink.append(0, of_epoch=epoch(0))
    sink.append(7, of_epoch=epoch(7))

    assert sink.ids() == [0, 7]


def test_second_driver_that_lands_the_epoch_first_fences_ours(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Two drivers on one checkpoint would bring rows in twice."""
    sink.append(1, of_epoch=epoch(0))
    ours, theirs = faulty_sink.write(rows(2), of_epoch=epoch(1)), sink.write(rows(2), of_epoch=epoch(1))
    faulty_catalog.before_commit(1, lambda: sink.commit(theirs))

    with pytest.raises(CommitConflictError, match="another live driver of this query"):
        faulty_sink.commit(ours)

    assert sink.ids() == [1, 2]
    check_clean(sink)


def test_second_driver_that_is_ahead_is_told_from_a_restart(sink: Sink) -> None:
    """Two drivers that divide the source differently would lose rows without a word."""
    ours = replace(epoch(0), run_id="ours")
    theirs = replace(epoch(1), run_id="theirs")
    sink.append(1, of_epoch=ours)
    sink.append(2, of_epoch=theirs)
    messages = sink.write(rows(3), of_epoch=replace(ours, epoch_id=1))

    with pytest.raises(CommitConflictError, match="another live driver of this query"):
        sink.commit(messages)

    assert sink.ids() == [1, 2]
    check_clean(sink)


def test_restarted_run_skips_the_epoch_of_the_run_before(sink: Sink) -> None:
    """A restarted stream would fail for good at the epoch that it died in."""
    sink.append(1, of_epoch=replace(epoch(0), run_id="before"))
    sink.append(2, of_epoch=replace(epoch(1), run_id="before"))

    assert sink.commit(sink.write(rows(2), of_epoch=replace(epoch(1), run_id="after"))).was_replayed

    sink.append(3, of_epoch=replace(epoch(2), run_id="after"))
    assert sink.ids() == [1, 2, 3]


def test_first_epoch_that_two_starts_create_the_table_for_lands_once(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """The first epoch would be there twice because the table did not exist."""
    ours, theirs = faulty_sink.write(rows(1), of_epoch=epoch(0)), sink.write(rows(1), of_epoch=epoch(0))
    faulty_catalog.before_commit(1, lambda: sink.commit(theirs))

    with pytest.raises(CommitConflictError, match="another live driver"):
        faulty_sink.commit(ours)

    assert sink.ids() == [1]
    check_clean(sink)


# A batch whose answer was lost, and what others do in the meantime.


@dataclass(frozen=True, kw_only=True)
class Meanwhile:
    """What others did after our first request.

    Attributes:
        commits: They committed this many times.
        expires_ours: They expired all snapshots but the newest.
    """

    commits: int
    expires_ours: bool


MEANWHILE = [
    Meanwhile(commits=0, expires_ours=False),
    Meanwhile(commits=3, expires_ours=False),
    Meanwhile(commits=1, expires_ours=True),
    Meanwhile(commits=3, expires_ours=True),
]


def expire_all_but_the_newest(sink: Sink) -> None:
    """Expire every snapshot that is not the head of `main`."""
    for snapshot in sink.table().metadata.snapshots[:-1]:
        sink.table().maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()


@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=str)
@pytest.mark.parametrize("error", [connection_lost, refusal])
@pytest.mark.parametrize("ids", [[], [1]], ids=["new table", "existing table"])
def test_batch_that_landed_unanswered_is_found_whatever_others_do(
    request: pytest.FixtureRequest, sink: Sink, meanwhile: Meanwhile, error: Callable[[], Exception], ids: list[int]
) -> None:
    """A batch would be there twice because its answer was lost."""
    faulty_catalog: FaultyCatalog = request.getfixturevalue("faulty_catalog")
    faulty_sink: Sink = request.getfixturevalue("faulty_sink")
    if ids:
        sink.append(*ids)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, error, when=When.AFTER)

    def others() -> None:
        for number in range(meanwhile.commits):
            sink.append(10 + number)
        if meanwhile.expires_ours:
            expire_all_but_the_newest(sink)

    faulty_catalog.after_commit(1, others)

    result = faulty_sink.commit(messages)

    assert result.snapshot_id == messages[0].write.snapshot_id
    assert sink.ids() == [*ids, 2, *range(10, 10 + meanwhile.commits)]
    assert faulty_catalog.commits == 1
    check_sound(sink.table())


def test_batch_that_was_lost_before_landing_is_unknown_once_history_expired(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A batch would be there twice, or its files be deleted, on a mere guess."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    faulty_catalog.fail_next(1, connection_lost)

    def others() -> None:
        sink.append(10)
        sink.overwrite(rows(1, 10, 11))  # no file tells any more who was faster
        expire_all_but_the_newest(sink)

    faulty_catalog.after_commit(1, others)

    with pytest.raises(CommitStateUnknownError, match="have expired"):
        faulty_sink.commit(messages)

    assert all(path.exists() for path in paths_of(messages))
    assert sink.ids() == [1, 10, 11]


# The table changes between plan and commit.


def test_dropped_table_is_a_conflict(sink: Sink) -> None:
    """A user would get another library's error."""
    sink.append(1)
    messages = sink.write(rows(2))
    sink.catalog._catalog.drop_table(IDENTIFIER)

    with pytest.raises(CommitConflictError, match="was dropped or renamed before its rows were committed"):
        sink.commit(messages)


def test_commits_to_another_branch_are_lost_races(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A batch would fail after thirty tries, ever longer apart, beside a stream into another branch."""
    sink.append(1)
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="audit", create_branch=True)))
    messages = faulty_sink.write(rows(3))
    for number in range(1, 41):
        faulty_catalog.before_commit(number, lambda: sink.commit(sink.write(rows(4), plan=sink.plan(branch="audit"))))

    faulty_sink.commit(messages)

    assert faulty_catalog.commits == 41
    assert sink.ids() == [1, 3]


@pytest.mark.parametrize("options", [{"staging_branch": "staging"}, {"branch": "audit", "create_branch": True}])
def test_first_rows_of_a_branch_are_refused_at_once_in_a_table_that_came_without_rows(
    sink: Sink, options: dict[str, Any]
) -> None:
    """A job would try two hundred times, and end without knowing whether its rows are in the table."""
    messages = sink.write(rows(1), plan=sink.plan(**options))
    sink.commit(sink.write([]))

    with pytest.raises(CommitConflictError, match=r"has no snapshot, .* on main.*Run the write again"):
        sink.commit(messages)

    assert not any(path.exists() for path in paths_of(messages))


def test_recreated_table_is_refused(sink: Sink) -> None:
    """Rows would go into a table that they were not written for."""
    sink.append(1)
    messages = sink.write(rows(2))
    sink.catalog._catalog.drop_table(IDENTIFIER)
    sink.append(3)

    with pytest.raises(CommitMessageError, match="dropped and made again"):
        sink.commit(messages)

    assert sink.ids() == [3]
    assert not any(path.exists() for path in paths_of(messages))


def add_required(sink: Sink) -> None:
    """Let a required column be added."""
    with sink.table().update_schema(allow_incompatible_changes=True) as update:
        update.add_column("must", LongType(), required=True)


@pytest.mark.parametrize("is_attempted", [False, True], ids=["before the commit", "between two attempts"])
def test_required_column_that_was_added_meanwhile_is_refused(
    sink: Sink,
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    is_attempted: bool,  # noqa: FBT001  # one of two cases
) -> None:
    """The table could not be read any more after the commit."""
    sink.append(1)
    messages: list[TaskCommit] = faulty_sink.write(rows(2))
    if is_attempted:
        faulty_catalog.fail_next(1, refusal)
        faulty_catalog.after_commit(1, lambda: add_required(sink))
    else:
        add_required(sink)

    with pytest.raises(SchemaMismatchError, match="'must' has become required"):
        faulty_sink.commit(messages)

    assert unreferenced_files(sink.table()) == set()


def test_widened_column_takes_the_files(sink: Sink) -> None:
    """A long write would be thrown away because of a harmless change."""
    narrow = spark.StructType([spark.StructField("id", spark.IntegerType())])
    sink.commit(sink.write([{"id": 1}], schema=narrow))
    messages = sink.write([{"id": 2}], schema=narrow)
    with sink.table().update_schema() as update:
        update.update_column("id", LongType())

    sink.commit(messages)

    assert sink.ids() == [1, 2]


# Storage fails on the driver.


def test_storage_that_fails_once_is_tried_again(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write would be thrown away because one request to the store failed."""
    sink.append(1)
    messages = sink.write(rows(2))
    original = producer.write_list
    failures = iter([OSError("connection reset")])

    def flaky(*given: Any) -> None:
        original(*given)
        if (error := next(failures, None)) is not None:
            raise error

    monkeypatch.setattr(producer, "write_list", flaky)

    sink.commit(messages)

    assert sink.ids() == [1, 2]
    check_clean(sink)


@pytest.mark.usefixtures("few_retries")
@pytest.mark.parametrize("name", ["write_manifests", "write_list"])
def test_storage_that_keeps_failing_is_our_error_and_leaves_nothing_behind(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A user would get another library's error, and files would be left behind."""
    sink.append(1)
    messages = faulty_sink.write(rows(2))
    original: Any = getattr(producer, name)

    def broken(*given: Any) -> None:
        original(*given)
        raise OSError("disk full")

    monkeypatch.setattr(producer, name, broken)

    with pytest.raises(IcebergSinkError, match="disk full"):
        faulty_sink.commit(messages)

    assert faulty_catalog.commits == 0
    assert sink.ids() == [1]
    check_clean(sink)


def test_file_that_cannot_be_deleted_does_not_change_the_outcome(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A commit that landed would be reported as failed because of left-over files."""
    sink.append(1, of_epoch=epoch(0))
    messages = sink.write(rows(1), of_epoch=epoch(0))

    def refuse(*_: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(LocalFileIO, "delete", refuse)

    with caplog.at_level(logging.WARNING):
        result = sink.commit(messages)

    assert result.was_replayed
    assert str(paths_of(messages)[0]) in caplog.text


# Tidying up after success.


def test_old_metadata_is_deleted_if_the_table_asks_for_it(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Metadata files would pile up, one for each commit, for ever."""
    sink.append(0)
    set_properties(
        sink,
        {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"},
    )
    for number in range(1, 6):
        faulty_sink.append(number)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_sink.append(6)

    metadata_files = list(local(f"{sink.table().metadata.location}/metadata").glob("*.metadata.json"))
    assert sink.ids() == list(range(7))
    assert len(metadata_files) == 3


def test_old_metadata_of_other_peoples_tables_stays(sink: Sink) -> None:
    """A user could not go back to an older state of a table, without having asked for that."""
    sink.create(sink.plan().schema)
    set_properties(sink, {"write.metadata.previous-versions-max": "1"})
    for number in range(4):
        sink.append(number)

    assert "write.metadata.delete-after-commit.enabled" not in sink.table().properties
    assert len(list(local(f"{sink.table().metadata.location}/metadata").glob("*.metadata.json"))) == 6


def test_commit_is_logged_once_with_its_figures(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A user could not tell from the log what was written when."""
    with caplog.at_level(logging.INFO, logger="iceberg_ds"):
        sink.append(1, 2, of_epoch=epoch(3))

    lines = [record.getMessage() for record in caplog.records if "Committed" in record.getMessage()]
    assert len(lines) == 1
    assert "db.t (branch main" in lines[0]
    assert "epoch 3" in lines[0]
    assert "1 files, 2 rows" in lines[0]
