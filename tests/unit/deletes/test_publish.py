"""Epochs that are staged, converted and published: main has no delete by key, and each row once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, forbidden, refusal
from support.checks.invariants import check_clean, unreferenced_files
from support.checks.reader import rows_of
from support.keys.conversions import compact, convert, keyed_deletes, meanwhile
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.publications import STAGING, applied, check_main, put, tasks, values
from support.metrics.reports import reports_on
from support.tables.sink import NAME, Sink, epoch

import iceberg_ds
from iceberg_ds.commit.fast_forward import StagedMeanwhileError
from iceberg_ds.deletes import job
from iceberg_ds.deletes import publish as publication
from iceberg_ds.deletes.convert import Conversion
from iceberg_ds.errors import CatalogError, CommitConflictError, CommitStateUnknownError, DataFileError, OptionError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.metrics.commit_meter import CommitMeter
from iceberg_ds.plan import TxnId
from iceberg_ds.snapshots.refs import branch_history

pytestmark = pytest.mark.usefixtures("waits")

FIRST: list[Event] = [("I", key, "EU", key, 0) for key in range(5)]
SECOND: list[Event] = [("U", 1, "US", 10, 1), ("D", 2, "EU", None, 1), ("I", 7, "DE", 70, 1)]
THIRD: list[Event] = [("U", 7, "US", 71, 2), ("D", 1, "EU", None, 2), ("I", 2, "DE", 22, 2)]
ROWS = [applied([], *(FIRST, SECOND, THIRD)[:count]) for count in range(4)]
OTHER = epoch(0, "another-query")


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of a table with one epoch by key, which is published."""
    sink.create(KEYED_SCHEMA)
    put(sink, 0, FIRST)
    return sink


def heads(sink: Sink) -> dict[str, int]:
    """Return where the branches stand."""
    return {name: ref.snapshot_id for name, ref in sink.table().metadata.refs.items()}


def plainly(sink: Sink, number: int | None, *events: Event, **options: Any) -> None:
    """Write to `main` without publishing anything."""
    of_epoch = None if number is None else epoch(number, "plain-query")
    sink.commit(keyed_tasks(plan_by_keys(sink, **options), list(events), of_epoch=of_epoch))


def fail_conversions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every conversion fail, as if a store could not be reached."""

    def fail(*_: object) -> None:
        raise DataFileError("Cannot convert deletes of db.t, nothing was committed: a task failed: no route to host.")

    monkeypatch.setattr(Conversion, "run", fail)


def staged_only(sink: Sink, of_epoch: Any, *parts: Any, **options: Any) -> str:
    """Stage a write whose conversion fails; return what its user is told."""
    with pytest.MonkeyPatch.context() as patch:
        fail_conversions(patch)
        with pytest.raises(DataFileError) as failure:
            put(sink, of_epoch, *parts, **options)
    return str(failure.value)


def test_epochs_reach_main_converted(sink: Sink) -> None:
    """Readers that refuse deletes by key, or pass them over, could not read the table, or would see old rows."""
    sink.create(KEYED_SCHEMA)
    for number, events in enumerate((FIRST, SECOND, THIRD)):
        result = put(sink, number, events[:2], events[2:])

        check_main(sink, ROWS[number + 1])
        assert result.snapshot_id is not None
    operations = [snapshot.summary.operation for snapshot in sink.table().metadata.snapshots if snapshot.summary]
    # The first epoch has nothing to mark.
    assert operations == [Operation.APPEND, Operation.OVERWRITE, Operation.REPLACE, *[Operation.OVERWRITE] * 4]
    check_clean(sink.table())


def test_readers_of_main_see_an_epoch_whole_or_not_at_all(keyed: Sink) -> None:
    """Rows of an epoch would be read beside those that they replace."""
    seen: list[Any] = []

    with meanwhile(
        FaultPoint.COMMITTED, lambda: seen.append((values(keyed), len(keyed_deletes(keyed.table(), STAGING)))), 2
    ):
        put(keyed, 1, SECOND)

    assert seen == [(ROWS[1], 1), (ROWS[1], 0)]
    check_main(keyed, ROWS[2])


def test_replay_of_a_published_epoch_changes_nothing(
    keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows would be there twice, or each replay add a snapshot."""
    put(keyed, 1, SECOND)
    before = keyed.table().metadata
    messages = tasks(keyed, 1, SECOND)
    faulty_catalog.begin()

    result = faulty_sink.commit(messages)

    assert result.was_replayed
    assert keyed.table().metadata == before
    assert (faulty_catalog.calls["load_table"], faulty_catalog.calls["commit_table"]) == (2, 0)
    check_main(keyed, ROWS[2])


def test_epoch_costs_three_commits(keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A stream would be slower than it has to be."""
    messages = tasks(keyed, 1, SECOND)
    faulty_catalog.begin()

    faulty_sink.commit(messages)

    assert (faulty_catalog.calls["commit_table"], faulty_catalog.calls["load_table"]) == (3, 5)


def test_epoch_without_deletes_is_published_as_it_is(keyed: Sink) -> None:
    """A feed of new rows alone would get a snapshot more for each epoch."""
    feed = plan_by_keys(keyed).write.changes
    assert feed is not None
    plan = plan_by_keys(keyed, replace(feed, trusts_inserts=True), publish_converted=True)
    before = len(keyed.table().metadata.snapshots)

    keyed.commit(keyed_tasks(plan, [("I", 90, "EU", 90, 0)], of_epoch=epoch(1)))

    assert len(keyed.table().metadata.snapshots) == before + 1
    check_main(keyed, applied(ROWS[1], [("I", 90, "EU", 90, 0)]))


def test_deletes_that_main_has_already_are_converted_too(sink: Sink) -> None:
    """A table that was written without the option would stay unreadable."""
    sink.create(KEYED_SCHEMA)
    plainly(sink, 0, *FIRST)
    plainly(sink, 1, *SECOND)

    put(sink, 0, THIRD)

    assert values(sink) == ROWS[3]
    assert keyed_deletes(sink.table()) == []


def test_failed_conversion_says_that_the_epoch_is_staged_and_the_replay_publishes_it(keyed: Sink) -> None:
    """Rows would be lost, be there twice, or nobody know where they are."""
    told = staged_only(keyed, 1, SECOND)

    staged = heads(keyed)[STAGING]
    assert f"staged as snapshot {staged}, and not on branch 'main' yet: Cannot convert deletes" in told
    assert "no route to host. Run the query again: they are found there, converted and published." in told
    check_main(keyed, ROWS[1], is_published=False)
    assert [tuple(row.values()) for row in rows_of(keyed.table(), STAGING)] == ROWS[2]

    result = put(keyed, 1, SECOND)

    assert result.was_replayed
    check_main(keyed, ROWS[2])
    assert unreferenced_files(keyed.table()) == set()


def test_what_waits_is_told_again_as_long_as_it_fails(keyed: Sink) -> None:
    """A replay that cannot convert would be taken for one that is done."""
    staged_only(keyed, 1, SECOND)

    told = staged_only(keyed, 1, SECOND)

    assert "(branch main__unconverted, query" in told
    assert "are staged, and not on branch 'main' yet" in told
    check_main(keyed, ROWS[1], is_published=False)


def test_next_epoch_of_another_query_publishes_what_waits(keyed: Sink) -> None:
    """An epoch of a query that is down would keep those of all others from readers, or be lost."""
    staged_only(keyed, 1, SECOND)

    put(keyed, OTHER, THIRD)

    check_main(keyed, ROWS[3])
    assert put(keyed, 1, SECOND).was_replayed
    check_main(keyed, ROWS[3])


def test_epoch_without_rows_publishes_what_waits(keyed: Sink) -> None:
    """A replay whose rows are gone would leave the epoch unpublished."""
    staged_only(keyed, 1, SECOND)
    nothing = tasks(keyed, 1, [])

    assert keyed.commit(nothing).snapshot_id is None

    check_main(keyed, ROWS[2])


def test_batch_without_a_number_is_published_by_the_next_write(keyed: Sink) -> None:
    """Rows that somebody believes lost would appear, and nobody had said so."""
    told = staged_only(keyed, None, SECOND)

    assert (
        "The next write with publish-converted converts and publishes them; so do iceberg_ds.convert_deletes('db.t', "
        "branch='main__unconverted') and then iceberg_ds.publish('db.t', 'main__unconverted', to='main')."
    ) in told
    put(keyed, None, THIRD)
    check_main(keyed, ROWS[3])


def test_batch_without_a_number_is_published_by_hand(keyed: Sink) -> None:
    """What the error says would not work, or the next epoch would meet a branch that it cannot use."""
    options = {"warehouse": str(keyed.options.warehouse)}
    staged_only(keyed, None, SECOND)

    iceberg_ds.convert_deletes(NAME, branch=STAGING, options=options)
    iceberg_ds.publish(NAME, STAGING, options=options)

    check_main(keyed, ROWS[2], is_published=False)
    put(keyed, 1, THIRD)
    check_main(keyed, ROWS[3])


def test_numbered_batch_is_published_when_it_is_run_again(keyed: Sink) -> None:
    """The promise of `txn-version` would not hold."""
    number = {"txn_app_id": "load", "txn_version": 5}
    told = staged_only(keyed, None, SECOND, **number)

    assert "Run the write again with the same txn-version: they are found there, converted and published." in told
    assert put(keyed, None, SECOND, **number).was_replayed
    check_main(keyed, ROWS[2])
    assert put(keyed, None, SECOND, **number).was_replayed
    assert put(keyed, None, THIRD, **{**number, "txn_version": 6}).snapshot_id is not None
    check_main(keyed, ROWS[3])


# Others write to main.


def test_main_that_others_wrote_to_between_epochs_is_built_on(keyed: Sink) -> None:
    """Rows of others would be lost, or every epoch after theirs be refused."""
    plainly(keyed, None, ("U", 0, "XX", 100, 0))
    compact(keyed)

    put(keyed, 1, SECOND)

    assert values(keyed) == applied(ROWS[1], [("U", 0, "XX", 100, 0)], SECOND)
    assert keyed_deletes(keyed.table()) == []


@pytest.mark.parametrize("step", [FaultPoint.TABLE_LOADED, FaultPoint.MANIFESTS_WRITTEN], ids=lambda step: step.name)
def test_main_that_moves_on_before_the_epoch_is_staged_is_built_on(keyed: Sink, step: FaultPoint) -> None:
    """The epoch could not be published."""
    with meanwhile(step, lambda: compact(keyed)) as done:
        put(keyed, 1, SECOND)

    assert done
    check_main(keyed, ROWS[2])


def test_main_that_is_rolled_back_before_the_epoch_is_staged_stays_rolled_back(keyed: Sink) -> None:
    """Rows that somebody has just taken back would be published again."""
    before = heads(keyed)["main"]
    put(keyed, 1, SECOND)

    def roll_back() -> None:
        with keyed.table().manage_snapshots() as refs:
            refs.set_current_snapshot(snapshot_id=before)

    more: list[Event] = [("U", 3, "US", 33, 3)]
    with meanwhile(FaultPoint.MANIFESTS_WRITTEN, roll_back) as done:
        put(keyed, 2, more)

    assert done
    assert values(keyed) == applied(ROWS[1], more)


@pytest.mark.parametrize("of_plain_write", [True, False])
def test_main_that_is_rolled_back_while_an_epoch_waits_stays_rolled_back(keyed: Sink, *, of_plain_write: bool) -> None:
    """Rows that somebody has taken back would be published again with the epoch that came after them."""
    before = heads(keyed)["main"]
    bad: Event = ("I", 50, "EU", 5, 1)
    plainly(keyed, None, bad) if of_plain_write else put(keyed, 1, [bad])
    more: list[Event] = [("U", 3, "US", 33, 3)]
    staged_only(keyed, 2, more)
    with keyed.table().manage_snapshots() as refs:
        refs.set_current_snapshot(snapshot_id=before)

    result = put(keyed, 2, more)

    assert not result.was_replayed
    assert values(keyed) == applied(ROWS[1], more)
    assert set(heads(keyed)) == {"main"}


@pytest.mark.parametrize("number", [1, 2])
def test_main_that_moves_on_while_an_epoch_waits_fails_it_and_the_replay_writes_it_anew(
    keyed: Sink, number: int
) -> None:
    """Rows of the other writer would be lost, or those of the epoch; or both need somebody who repairs the branches."""
    came = iter(range(number))

    def compact_at_last() -> None:
        if next(came) == number - 1:
            compact(keyed)

    with (
        meanwhile(FaultPoint.COMMITTED, compact_at_last, number),
        pytest.raises(
            CommitConflictError,
            match=r"staged as snapshot \d+, and not on branch 'main' yet: 'main' has moved on to snapshot \d+ "
            r"meanwhile\. Run the query again: they are written anew, on top of that\.",
        ),
    ):
        put(keyed, 1, SECOND)

    check_main(keyed, ROWS[1], is_published=False)
    result = put(keyed, 1, SECOND)
    assert not result.was_replayed
    check_main(keyed, ROWS[2])
    put(keyed, 2, THIRD)
    check_main(keyed, ROWS[3])


def test_batch_without_a_number_that_cannot_be_published_is_left_to_the_user(keyed: Sink) -> None:
    """Its rows would be dropped without a word."""
    with (
        meanwhile(FaultPoint.COMMITTED, lambda: compact(keyed)),
        pytest.raises(CommitConflictError, match=r"Drop branch 'main__unconverted', and run the write again\.$"),
    ):
        put(keyed, None, SECOND)

    refused = r"'main' has moved on to snapshot \d+, and staging branch 'main__unconverted' .* holds rows of a write"
    with pytest.raises(OptionError, match=refused):
        put(keyed, 1, THIRD)
    with keyed.table().manage_snapshots() as refs:
        refs.remove_branch(STAGING)
    put(keyed, None, SECOND)
    put(keyed, 1, THIRD)
    check_main(keyed, ROWS[3])


def test_epoch_whose_staging_branch_was_begun_anew_is_not_called_done(keyed: Sink) -> None:
    """A driver that slept would report rows that no reader ever sees."""

    def begin_anew() -> None:
        compact(keyed)
        put(keyed, OTHER, THIRD)

    with (
        meanwhile(FaultPoint.COMMITTED, begin_anew),
        pytest.raises(CommitConflictError, match=r"'main' has moved on before that.*written anew, on top of that"),
    ):
        put(keyed, 1, SECOND)

    check_main(keyed, applied(ROWS[1], THIRD))
    assert not put(keyed, 1, SECOND).was_replayed
    check_main(keyed, applied(ROWS[1], THIRD, SECOND))


# Others stage.


@pytest.mark.parametrize(
    "step", [FaultPoint.COMMITTED, FaultPoint.PLANNED, FaultPoint.MANIFESTS_WRITTEN], ids=lambda step: step.name
)
@pytest.mark.parametrize("is_whole", [True, False], ids=["published", "staged"])
def test_what_another_query_stages_meanwhile_is_never_published_unconverted(
    keyed: Sink, step: FaultPoint, *, is_whole: bool
) -> None:
    """Its deletes would be in main, or it would be lost."""
    action: Callable[[], object] = (
        (lambda: put(keyed, OTHER, THIRD)) if is_whole else (lambda: staged_only(keyed, OTHER, THIRD))
    )
    comes = 2 if step is FaultPoint.MANIFESTS_WRITTEN else 1  # the second time in the conversion
    came = iter(range(comes))

    with meanwhile(step, lambda: action() if next(came) == comes - 1 else None, comes):
        put(keyed, 1, SECOND)

    check_main(keyed, ROWS[3])
    assert put(keyed, OTHER, THIRD).was_replayed
    assert put(keyed, 1, SECOND).was_replayed


def test_what_is_staged_behind_the_converted_snapshot_is_not_published(
    keyed: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast-forward would take deletes to main that came between the conversion and it."""
    convert_all, others = Conversion.run, iter([True])

    def run(conversion: Conversion, meter: CommitMeter) -> Any:
        result = convert_all(conversion, meter)
        if next(others, False):
            staged_only(keyed, OTHER, THIRD)
        return result

    monkeypatch.setattr(Conversion, "run", run)

    put(keyed, 1, SECOND)

    check_main(keyed, ROWS[3])
    assert put(keyed, OTHER, THIRD).was_replayed


def test_others_that_stage_without_end_end_in_an_error(keyed: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream would hang."""
    monkeypatch.setattr(publication, "_ROUNDS", 2)
    numbers = iter(range(100))

    def stage() -> None:
        query = f"query-{next(numbers)}"
        staged_only(keyed, epoch(0, query), [("U", 0, "EU", 0, 0)])

    with (
        meanwhile(FaultPoint.PLANNED, stage, 100),
        pytest.raises(CommitConflictError, match="others stage rows faster than they are converted, 2 times"),
    ):
        put(keyed, 1, SECOND)

    assert put(keyed, 1, SECOND).was_replayed
    check_main(keyed, applied(ROWS[2], [("U", 0, "EU", 0, 0)]))


def test_second_driver_of_one_query_is_noticed(keyed: Sink) -> None:
    """Two drivers would each believe that its division of the source is in the table."""
    mine, theirs = (replace(epoch(1), run_id=run) for run in ("mine", "theirs"))

    with (
        meanwhile(FaultPoint.TABLE_LOADED, lambda: put(keyed, theirs, SECOND)),
        pytest.raises(CommitConflictError, match="another live driver of this query committed the same epoch"),
    ):
        put(keyed, mine, THIRD)
    put(keyed, replace(mine, epoch_id=2), THIRD)
    with pytest.raises(CommitConflictError, match="another live driver of this query committed the same epoch"):
        put(keyed, replace(theirs, epoch_id=2), FIRST)

    check_main(keyed, ROWS[3])


# The catalog's answers.


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    ("error", "when"),
    [(refusal, When.BEFORE), (connection_lost, When.BEFORE), (connection_lost, When.AFTER), (refusal, When.AFTER)],
)
def test_answer_that_fails_once_changes_nothing(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, number: int, error: Callable[[], Exception], when: When
) -> None:
    """An epoch would fail, or be there twice, for want of one answer."""
    faulty_sink.create(KEYED_SCHEMA)
    put(faulty_sink, 0, FIRST)
    messages = tasks(faulty_sink, 1, SECOND)
    faulty_catalog.pass_next(number - 1)
    faulty_catalog.fail_next(1, error, when=when)

    assert faulty_sink.commit(messages).snapshot_id is not None

    check_main(faulty_sink, ROWS[2])


def test_unknown_outcome_of_the_publishing_is_said_to_be_unknown(
    keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Somebody would believe that readers do not have the rows, or that they have them."""
    messages = tasks(keyed, 1, SECOND)
    faulty_catalog.pass_next(2)
    faulty_catalog.fail_next(100, connection_lost)

    with pytest.raises(
        CommitStateUnknownError, match=r"are staged as snapshot \d+, and perhaps not on branch 'main': "
    ):
        faulty_sink.commit(messages)

    assert put(keyed, 1, SECOND).was_replayed
    check_main(keyed, ROWS[2])


@pytest.mark.parametrize("number", [2, 3])
def test_refused_right_says_where_the_rows_are(
    keyed: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, number: int
) -> None:
    """Who may write to the staging branch and not to main would not know what happened."""
    messages = tasks(keyed, 1, SECOND)
    faulty_catalog.pass_next(number - 1)
    faulty_catalog.fail_next(1, forbidden)

    with pytest.raises(CatalogError, match=r"are staged as snapshot \d+, and not on branch 'main' yet.*Run the query"):
        faulty_sink.commit(messages)

    check_main(keyed, ROWS[1], is_published=False)
    assert put(keyed, 1, SECOND).was_replayed
    check_main(keyed, ROWS[2])


def test_conversion_is_reported_once_readers_see_it(keyed: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A board would show main with rows and files that no reader sees yet."""
    taken = reports_on(keyed)

    def fail(*_: object) -> None:
        raise CatalogError("cannot be reached")

    with monkeypatch.context() as patch:
        patch.setattr(publication, "fast_forward_whole", fail)
        with pytest.raises(CatalogError):
            put(keyed, 1, SECOND)
    assert [(report.outcome, report.branch, dict(report.counts)) for report in taken] == [("failed", "main", {})]

    put(keyed, 1, SECOND)
    put(keyed, 2, THIRD)
    assert [report.outcome for report in taken[1:]] == ["replayed", "replayed", "committed", "committed"]
    assert taken[1].counts["removed-equality-deletes"] == 3  # of the conversion that waited
    assert taken[3].snapshot_id == heads(keyed)["main"]
    # Of two reports on one epoch, that of the conversion alone has the totals of main.
    assert [report.counts.get("total-equality-deletes") for report in taken[2:]] == [None, 0, None]
    assert taken[-1].counts["added-equality-deletes"] == 3


def test_conversion_that_is_published_is_told_though_the_write_is_not(
    keyed: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums would never have what it added and took away: main has it, and no later write publishes it."""
    taken = reports_on(keyed)
    publish = publication._Publication._publish

    def publish_others(self: publication._Publication, conversions: ExitStack) -> TableMetadata:
        monkeypatch.undo()
        compact(keyed)  # so that the staged rows can no longer be published
        staged_only(keyed, OTHER, THIRD)  # and the staging branch begins anew
        return publish(self, conversions)

    monkeypatch.setattr(publication._Publication, "_publish", publish_others)
    with pytest.raises(CommitConflictError, match="has moved on"):
        put(keyed, 1, SECOND)

    told = [report for report in taken if report.outcome == "committed"]
    assert [report.snapshot_id for report in told] == [heads(keyed)["main"]]
    assert told[0].counts["removed-equality-deletes"] == 3
    put(keyed, OTHER, THIRD)
    put(keyed, 1, SECOND)
    mine = {report.snapshot_id for report in taken if report.outcome in {"committed", "replayed"}}
    since = [one.snapshot_id for one in branch_history(keyed.table().metadata, "main")]
    assert mine == set(since[: since.index(told[0].snapshot_id) + 2])


def test_conversion_that_others_have_dropped_is_not_told(keyed: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums would have rows that no reader ever sees."""
    taken = reports_on(keyed)

    def drop(*_: object) -> None:
        keyed.table().manage_snapshots().remove_branch(STAGING).commit()
        raise StagedMeanwhileError("others have dropped it")

    monkeypatch.setattr(publication, "fast_forward_whole", drop)
    with pytest.raises(CommitConflictError, match="was dropped"):
        put(keyed, 1, SECOND)

    assert [report.outcome for report in taken] == ["conflict"]


def test_interrupted_publication_of_a_replay_may_be_there(keyed: Sink) -> None:
    """The rows would be told as missing, although readers see them."""
    staged_only(keyed, 1, SECOND)
    taken = reports_on(keyed)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with meanwhile(FaultPoint.PUBLISHED, interrupt), pytest.raises(KeyboardInterrupt):
        put(keyed, 1, SECOND)

    assert [report.outcome for report in taken] == ["committed", "unknown"]
    assert values(keyed) == ROWS[2]


def test_task_that_fails_once_is_tried_again(keyed: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer once would fail the epoch."""
    answer_group, failures = job.answer_group, iter([True])

    def flaky(*arguments: Any) -> Any:
        answer = answer_group(*arguments)
        return (
            replace(answer, problem="reset by peer", files=(), written_deletes=()) if next(failures, False) else answer
        )

    monkeypatch.setattr(job, "answer_group", flaky)

    put(keyed, 1, SECOND)

    assert values(keyed) == ROWS[2]


# The table's beginning, and other branches.


def test_table_without_a_snapshot_begins_with_one_that_is_empty(sink: Sink) -> None:
    """Catalogs take no first snapshot but main's: the first epoch would fail, or reach main unconverted."""
    sink.create(KEYED_SCHEMA)

    messages = tasks(sink, 0, FIRST)

    assert values(sink) == []
    sink.commit(messages)
    check_main(sink, ROWS[1])


def test_write_creates_its_table(sink: Sink) -> None:
    """The first write would be refused."""
    plan = sink.plan(keys=("id",), publish_converted=True)

    assert plan.write.new_table is None
    assert (plan.write.route.branch, plan.write.route.publish_to) == (STAGING, "main")
    assert heads(sink).keys() == {"main"}
    assert sink.rows() == []


def test_two_first_writers_make_one_first_snapshot(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """One of them would fail, or leave a file behind."""
    sink.create(KEYED_SCHEMA)
    faulty_catalog.before_commit(1, lambda: tasks(sink, OTHER, []) and None)

    tasks(faulty_sink, 0, [])

    assert len(sink.table().metadata.snapshots) == 1
    assert unreferenced_files(sink.table()) == set()


def test_refused_first_snapshot_leaves_nothing(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """Files would be left that nobody knows of."""
    sink.create(KEYED_SCHEMA)
    faulty_catalog.fail_next(1, forbidden)

    with pytest.raises(CatalogError):
        tasks(faulty_sink, 0, [])

    assert unreferenced_files(sink.table()) == set()


def test_other_branch_is_published_by_the_name_that_is_given(keyed: Sink) -> None:
    """Main would get rows that are meant for another branch."""
    with keyed.table().manage_snapshots() as refs:
        refs.create_branch(heads(keyed)["main"], "audit")

    put(keyed, 1, SECOND, branch="audit", staging_branch="waiting")

    assert heads(keyed).keys() == {"main", "audit"}
    assert [tuple(row.values()) for row in keyed.rows_of("audit")] == ROWS[2]
    assert values(keyed) == ROWS[1]
    assert put(keyed, 1, SECOND, branch="audit").was_replayed


def test_missing_branch_is_refused_before_anything_is_made(sink: Sink) -> None:
    """A table would be left behind."""
    with pytest.raises(OptionError, match="it has no branch 'audit'"):
        sink.plan(keys=("id",), publish_converted=True, branch="audit")

    assert sink.catalog.find_table(("db", "t")) is None


def test_kept_history_knows_the_epochs_after_expiry(keyed: Sink) -> None:
    """A replay after `expire_snapshots` would write its rows again."""
    put(keyed, 1, SECOND)
    put(keyed, 2, THIRD)
    main = heads(keyed)["main"]
    table = keyed.table()
    table.maintenance.expire_snapshots().by_ids(
        [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != main]
    ).commit()

    assert put(keyed, 2, THIRD).was_replayed
    assert values(keyed) == ROWS[3]
    assert convert(keyed).snapshot_id is None


def test_numbers_of_an_application_are_those_of_main(keyed: Sink) -> None:
    """A job that turns the option off or on would write a batch twice."""
    number: dict[str, Any] = {"txn_app_id": "load", "txn_version": 5}
    put(keyed, None, SECOND, **number)

    plan = plan_by_keys(keyed, **number)

    assert plan.write.txn == TxnId(app_id="load", version=5)
    assert keyed.commit(keyed_tasks(plan, SECOND)).was_replayed


def test_what_waits_is_no_orphan(keyed: Sink) -> None:
    """Somebody who tidies up would delete the rows of an epoch that is still to be published."""
    options = {"warehouse": str(keyed.options.warehouse)}
    staged_only(keyed, 1, SECOND)

    waiting = iceberg_ds.verify(NAME, options=options, older_than="0s", delete_orphans=True, force=True)
    compact(keyed)
    void = iceberg_ds.verify(NAME, options=options, older_than="0s", delete_orphans=True, force=True)

    for found in (waiting, void):
        assert found.ok, str(found)
        assert found.orphans == ()
    put(keyed, 1, SECOND)
    check_main(keyed, ROWS[2])
