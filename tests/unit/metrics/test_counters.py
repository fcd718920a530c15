"""What reports add to the metrics: each snapshot once, whatever is repeated, lost or late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.metrics.reports import UUID, failed, replay_of, report

from iceberg_ds.metrics import counters as module
from iceberg_ds.metrics.counters import OTHER, Counters
from iceberg_ds.metrics.instruments import INSTRUMENTS, Instrument
from iceberg_ds.metrics.report import NO_TASKS, OUTCOMES, CommitReport
from iceberg_ds.planning.quarantine import _writer

BY_NAME: dict[str, Instrument] = {instrument.name: instrument for instrument in INSTRUMENTS}
RECORDS = "iceberg.commit.records.added"
TOTAL = "iceberg.commit.records.total"
WRITER = ("db.t", "main", "orders")


def counted(*reports: CommitReport) -> Counters:
    """Return the sums of the reports."""
    counters = Counters()
    for one in reports:
        counters.take(one)
    return counters


def total(counters: Counters, name: str) -> float:
    """Return the sum over all series of a metric."""
    return sum(counters.values(BY_NAME[name]).values())


def commits(counters: Counters) -> dict[str, int]:
    """Return the number of commits by outcome, those of 0 left out."""
    found: Counter[str] = Counter()
    for (*_, outcome), value in counters.values(BY_NAME["iceberg.sink.commits"]).items():
        found[outcome] += int(value)
    return {outcome: number for outcome, number in found.items() if number}


def test_names_of_metrics_differ() -> None:
    """Two metrics of one name would be one wrong metric, or break every scrape."""
    assert len({one.name for one in INSTRUMENTS}) == len({one.prometheus for one in INSTRUMENTS}) == len(INSTRUMENTS)


def test_commit_counts_its_rows_its_time_and_itself() -> None:
    """A user would see a stream that writes as one that does not."""
    counters = counted(report(1), report(2))

    assert commits(counters) == {"committed": 2}
    assert counters.values(BY_NAME[RECORDS]) == {(*WRITER, "append"): 20}
    [duration] = counters.distributions(BY_NAME["iceberg.commit.duration"]).values()
    assert (duration.count, duration.total) == (2, pytest.approx(0.8))
    assert duration.counts[duration.bounds.index(0.5)] == 2


def test_value_on_a_bound_counts_for_its_bucket() -> None:
    """A histogram would tell longer times than there were: Prometheus' bounds include their value."""
    [duration] = counted(report(duration_ms=500.0)).distributions(BY_NAME["iceberg.commit.duration"]).values()

    assert duration.counts[duration.bounds.index(0.5)] == 1


def test_commit_of_a_killed_process_is_counted_by_its_replay() -> None:
    """Rows of a driver that was killed before it could report would be missing in the metrics for ever."""
    counters = counted(report(1), replay_of(report(2)))

    assert commits(counters) == {"committed": 2, "replayed": 1}
    assert total(counters, RECORDS) == 20
    assert total(counters, TOTAL) == 20
    [duration] = counters.distributions(BY_NAME["iceberg.commit.duration"]).values()
    assert duration.count == 1  # the time of the replay is not that of the commit
    [batches] = counters.distributions(BY_NAME["iceberg.sink.records_per_batch"]).values()
    assert batches.count == 1


def test_replay_of_a_counted_commit_adds_no_rows() -> None:
    """Each restart of a stream would count the rows of its last batch again."""
    counters = counted(report(1), replay_of(report(1)), replay_of(report(1)))

    assert commits(counters) == {"committed": 1, "replayed": 2}
    assert total(counters, RECORDS) == 10


def test_second_replay_of_a_killed_process_adds_no_rows() -> None:
    """A stream that is restarted twice after a crash would count the recovered rows twice."""
    counters = counted(replay_of(report(1)), replay_of(report(1)))

    assert commits(counters) == {"committed": 1, "replayed": 2}
    assert total(counters, RECORDS) == 10


def test_late_report_of_a_recovered_commit_adds_its_time_but_no_rows() -> None:
    """A slow first driver and a replay by the second would count the rows twice, or lose the duration."""
    counters = counted(replay_of(report(1)), report(1), report(1))

    assert commits(counters) == {"committed": 1, "replayed": 1}
    assert total(counters, RECORDS) == 10
    [duration] = counters.distributions(BY_NAME["iceberg.commit.duration"]).values()
    assert duration.count == 1


def test_report_that_is_read_twice_counts_once() -> None:
    """A file that is given under two names would double all rows."""
    assert counted(report(1), report(1)).values(BY_NAME["iceberg.sink.records.received"]) == {WRITER: 10}


def test_replay_of_an_expired_snapshot_is_only_a_replay() -> None:
    """A commit would be counted of which nothing is known, and perhaps was counted."""
    for changes in ({"counts": {}}, {"snapshot_id": None}):
        assert commits(counted(replay_of(report(1), **changes))) == {"replayed": 1}


def test_same_snapshot_id_in_another_table_is_another_commit() -> None:
    """Two tables in one file could hide each other's commits."""
    assert commits(counted(report(1), report(1, table="db.u", table_uuid="another"))) == {"committed": 2}


@pytest.mark.parametrize("outcome", ["conflict", "unknown", "failed"])
def test_failed_commit_counts_its_work_and_no_success(outcome: str) -> None:
    """An alert on a stream that stands still would not fire while its commits fail."""
    counters = counted(failed(outcome, conflicts=3))

    assert commits(counters) == {outcome: 1}
    assert total(counters, "iceberg.sink.conflicts") == 3
    assert counters.values(BY_NAME["iceberg.sink.last_success.time"]) == {}
    assert counters.values(BY_NAME[RECORDS]) == {}


@pytest.mark.parametrize("outcome", ["committed", "replayed", "empty"])
def test_last_success_is_set_by_all_that_is_well(outcome: str) -> None:
    """A stream without new rows, or after a restart, would look dead."""
    found = counted(report(1, outcome=outcome)).values(BY_NAME["iceberg.sink.last_success.time"])

    assert found == {WRITER: 1_700_000_001}


def test_every_outcome_of_a_stream_starts_at_0() -> None:
    """Prometheus would not see the first failure: a series that begins at 1 does not rise."""
    found = counted(report(1)).values(BY_NAME["iceberg.sink.commits"])

    assert {outcome for *_, outcome in found} == set(OUTCOMES)


@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 4, 1, 3)])
def test_total_of_a_table_is_that_of_its_newest_snapshot_in_any_order(order: Sequence[int]) -> None:
    """Two streams' reports that overtake each other would show an older size of the table."""
    counters = counted(*(report(number, stream=f"s{number % 3}") for number in order))

    assert counters.values(BY_NAME[TOTAL]) == {("db.t", "main"): 40}


def test_total_follows_a_table_that_was_made_anew() -> None:
    """The size of the dropped table, whose sequence numbers were higher, would stay for ever."""
    counters = counted(report(50), report(1, table_uuid="new", at_ms=report(51).at_ms))

    assert counters.values(BY_NAME[TOTAL]) == {("db.t", "main"): 10}


def test_stream_that_is_a_uuid_has_no_label() -> None:
    """Each start of a query without a name would add series until Prometheus is full."""
    counters = counted(*(report(n, stream=f"0b9f1f60-7f3e-4d0e-9d6e-{n:012x}") for n in range(1, 30)))

    assert counters.values(BY_NAME[RECORDS]) == {("db.t", "main", "", "append"): 290}


def test_number_of_series_is_bounded_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names made per batch would fill the memory of Prometheus; or their rows would be missing."""
    monkeypatch.setattr(module, "LARGEST_WRITERS", 5)
    counters = counted(*(report(n, table=f"db.t{n}", table_uuid=str(n)) for n in range(1, 21)))

    records = counters.values(BY_NAME[RECORDS])
    assert len(records) == 6
    assert records[OTHER, OTHER, OTHER, "append"] == 150
    assert len(counters.values(BY_NAME[TOTAL])) == 5  # the last of several tables would mean nothing


def test_labels_hold_no_ids_and_no_errors() -> None:
    """Series would grow with each commit, and errors' texts would reach whoever reads metrics."""
    made = counted(report(77, query_id="the-query", error="SomeError"))
    shown = {
        text
        for instrument in INSTRUMENTS
        for labels in (*made.values(instrument), *made.distributions(instrument))
        for text in labels
    }

    assert shown <= {"db.t", "main", "orders", "append", *OUTCOMES}


@pytest.mark.parametrize(("operation", "label"), [(None, ""), ("append", "append"), ("of a newer version", OTHER)])
def test_operation_is_one_of_icebergs(operation: str | None, label: str) -> None:
    """A foreign file could make series without end."""
    assert list(counted(report(1, operation=operation)).values(BY_NAME[RECORDS])) == [(*WRITER, label)]


def test_forgotten_snapshot_is_not_counted_by_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory would grow without end, or an old write that is repeated would count twice."""
    monkeypatch.setattr(module, "SNAPSHOTS_OF_TABLE", 3)
    counters = counted(*(report(n) for n in range(1, 11)), replay_of(report(1)), replay_of(report(9)))

    assert commits(counters) == {"committed": 10, "replayed": 2}
    assert commits(counted(*(report(n) for n in range(1, 11)), replay_of(report(11)))) == {
        "committed": 11,
        "replayed": 1,
    }


def test_memory_of_many_tables_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter of many tables would be killed for its memory."""
    monkeypatch.setattr(module, "SNAPSHOTS", 20)
    snapshots = module.Snapshots()
    for number in range(1, 200):
        snapshots.count(report(number, table_uuid=f"{UUID}{number % 5}"))

    assert sum(len(known) for known in snapshots._tables.values()) == 20


def test_epoch_moves_on_with_batches_that_had_nothing_to_add() -> None:
    """A stream without new rows would look stuck at an old micro-batch."""
    counters = counted(report(1), report(None, number=2, at_ms=report(2).at_ms, outcome="empty", counts={}))

    assert counters.values(BY_NAME["iceberg.sink.epoch"]) == {WRITER: 2}


def test_commit_without_tasks_is_no_batch_and_has_no_task_times() -> None:
    """A conversion of deletes would pull the size of batches and the time of tasks to 0."""
    counters = counted(report(1, tasks=NO_TASKS))

    assert counters.distributions(BY_NAME["iceberg.sink.records_per_batch"]) == {}
    assert counters.values(BY_NAME["iceberg.sink.task.duration.max"]) == {}


EVENTS = st.lists(
    st.tuples(st.sampled_from(["commit", "killed", "replay", "conflict"]), st.integers(1, 6)), min_size=1, max_size=40
)


@given(EVENTS)
def test_commits_are_the_snapshots_that_were_told_of(events: list[tuple[str, int]]) -> None:
    """The metrics and the table would disagree after some order of crashes and restarts."""
    told: set[int] = set()
    counters = Counters()
    for kind, number in events:
        if kind == "conflict":
            counters.take(failed())
        elif kind != "killed":
            counters.take(report(number) if kind == "commit" else replay_of(report(number)))
            told.add(number)

    assert commits(counters).get("committed", 0) == len(told)
    assert total(counters, RECORDS) == 10 * len(told)
    assert commits(counters).get("replayed", 0) == sum(kind == "replay" for kind, _ in events)


def test_attempts_of_commits_that_failed_count() -> None:
    """The alert on conflicts could not fire while every request is lost."""
    assert total(counted(failed(attempts=3, conflicts=3)), "iceberg.commit.attempts") == 3


def test_clock_that_was_ahead_hides_no_later_commit() -> None:
    """One wrong clock or event time would silence the alerts for ever."""
    counters = Counters(lambda: report(5).at_ms / 1000)
    ahead = report(1, at_ms=report(1).at_ms + 10**11, tasks=replace(report(1).tasks, newest_event_ms=10**14))
    counters.take(ahead)
    at_first = counters.values(BY_NAME["iceberg.sink.last_success.time"])
    counters.take(report(5))

    assert at_first == {WRITER: report(5).at_ms / 1000}
    assert counters.values(BY_NAME["iceberg.sink.last_success.time"]) == {WRITER: report(5).at_ms / 1000}
    assert counters.values(BY_NAME["iceberg.sink.newest_event.time"]) == {}
    assert counters.values(BY_NAME["iceberg.sink.epoch"]) == {WRITER: 5}


def test_reporter_cannot_change_the_report_of_others() -> None:
    """One reporter would change what the file gets."""
    with pytest.raises(TypeError, match="cannot be changed"):
        report(1).counts["added-records"] = 0  # type: ignore[index]  # what the test is about
    assert CommitReport.from_json(report(1).to_json()) == report(1)


def test_readers_clock_that_was_ahead_hides_no_later_commit_or_event() -> None:
    """A machine whose clock was ahead by a day would silence the alert on a stream that stands still for a day."""
    now, two_days_ms = [report(1).at_ms / 1000 + 172_800], 172_800_000
    counters = Counters(lambda: now[0])
    ahead = report(1, at_ms=report(1).at_ms + two_days_ms, query_id="q", number=9, table_uuid="dropped")
    counters.take(replace(ahead, tasks=replace(ahead.tasks, newest_event_ms=ahead.at_ms)))
    now[0] = report(2).at_ms / 1000
    counters.take(report(2, query_id="q", tasks=replace(ahead.tasks, newest_event_ms=report(2).at_ms)))

    for name in ("last_success", "last_micro_batch", "newest_event"):
        assert counters.values(BY_NAME[f"iceberg.sink.{name}.time"]) == {WRITER: report(2).at_ms / 1000}
    assert counters.values(BY_NAME["iceberg.sink.epoch"]) == {WRITER: 2}
    assert counters.values(BY_NAME[TOTAL]) == {("db.t", "main"): 20}


def test_replay_in_a_table_without_sequence_numbers_brings_no_older_total_back() -> None:
    """The size of a table of format 1 would shrink whenever a stream beside it is started again."""
    lost, later = report(1, sequence_number=0), report(2, sequence_number=0)

    assert counted(later, replay_of(lost)).values(BY_NAME[TOTAL]) == {("db.t", "main"): 20}
    assert counted(replay_of(lost), later).values(BY_NAME[TOTAL]) == {("db.t", "main"): 20}


def test_last_micro_batch_is_that_of_streaming_queries_alone() -> None:
    """The alert on streams that stand still would fire between two nightly batches."""
    counters = counted(report(1), report(2, query_id="q", stream="clicks"))

    assert list(counters.values(BY_NAME["iceberg.sink.last_micro_batch.time"])) == [("db.t", "main", "clicks")]


@pytest.mark.parametrize(
    ("name", "table", "label"),
    [
        ("orders", "db.t", "orders"),
        ("orders", "0b9f1f60-7f3e-4d0e-9d6e-0a4a3c1c2f11", "orders"),
        ("orders", "route-by", "orders"),
        ("orders > archive", "db.t", "orders > archive"),
        ("0b9f1f60-7f3e-4d0e-9d6e-0a4a3c1c2f11", "db.t", ""),
        ("0b9f1f60-7f3e-4d0e-9d6e-0a4a3c1c2f11", f"db.{'t' * 100}", ""),
        ("orders", f"db.{'t' * 120}", ""),
        ("orders", UUID, "orders"),
        (UUID, UUID, ""),
    ],
)
@pytest.mark.parametrize("branch", ["main", "audit"])
def test_rows_of_a_quarantine_table_are_those_of_their_stream(name: str, table: str, label: str, branch: str) -> None:
    """Each run of a query, and each table, would make series of its own, or a stream with one bad row look dead."""
    counters = counted(report(1, table="db.bad", stream=_writer(name, table, branch)))

    assert list(counters.values(BY_NAME[RECORDS])) == [("db.bad", "main", label, "append")]
    assert list(counted(report(1, stream=name)).values(BY_NAME[RECORDS])) == [
        ("db.t", "main", label if len(table) < 120 else name, "append")
    ]


def test_number_that_was_passed_over_renews_no_gauge_of_a_success() -> None:
    """A job that repeats old batches for ever would look alive, and its number go back."""
    late = replay_of(report(3), number=2, snapshot_id=None, sequence_number=None, counts={})
    counters = counted(report(3), late)

    assert commits(counters) == {"committed": 1, "replayed": 1}
    for name in ("epoch", "last_success.time", "newest_event.time"):
        instrument = BY_NAME[f"iceberg.sink.{name}"]
        assert counters.values(instrument) == counted(report(3)).values(instrument)


def test_table_that_is_known_shows_its_size_whatever_number_of_streams_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A board would show for ever how large the table was when the last known stream committed."""
    monkeypatch.setattr(module, "LARGEST_WRITERS", 5)
    counters = counted(*(report(number, stream=f"job-{number}") for number in range(1, 21)))

    assert counters.values(BY_NAME[TOTAL]) == {("db.t", "main"): 200}
    assert counters.values(BY_NAME[RECORDS])["db.t", "main", OTHER, "append"] == 150
    assert len(counters.values(BY_NAME["iceberg.sink.epoch"])) == 5


def test_label_is_no_longer_than_a_name_can_be() -> None:
    """A file of five megabytes that another user may write to would make a scrape of hundreds."""
    hostile = report(1, table="db." + "x" * 100_000, branch="b" * 100_000, stream="s" * 100_000)
    other = replace(hostile, table=hostile.table + "y", snapshot_id=2)
    labels = [text for labels in counted(hostile, other).values(BY_NAME[RECORDS]) for text in labels]

    assert max(map(len, labels)) < 600
    assert len(set(labels)) == 5


def test_maintenance_is_no_commit() -> None:
    """A table that is looked after would look like one that is written, or a failed expiry like lost rows."""
    counts = {"rewritten-data-files": 5, "rewritten-bytes": 999, "added-data-files": 2, "expired-snapshots": 3}
    maintained = report(
        outcome="maintained", operation="expire_snapshots", snapshot_id=None, counts=counts, error="CatalogError"
    )
    counters = counted(report(1), maintained, replace(maintained, error=None))

    def of(name: str) -> float:
        return total(counters, f"iceberg.sink.maintenance.{name}")

    assert commits(counters) == {"committed": 1}
    assert (of("runs"), of("failures"), of("files.rewritten"), of("files.added")) == (2, 1, 10, 4)
    assert (of("snapshots.expired"), of("files.deleted")) == (6, 0)
    [labels] = counters.values(BY_NAME["iceberg.sink.maintenance.runs"])
    assert labels == ("db.t", "main", "expire_snapshots")
    assert total(counters, RECORDS) == 10
    assert total(counted(report(1)), "iceberg.sink.maintenance.runs") == 0


def test_first_commit_after_maintenance_still_begins_all_series() -> None:
    """An alert would not see the first failure of a writer."""
    maintained = report(outcome="maintained", stream=None, snapshot_id=None)

    series = counted(maintained, report(1, stream=None)).values(BY_NAME["iceberg.sink.commits"])

    assert {outcome for *_, outcome in series} == set(OUTCOMES)
