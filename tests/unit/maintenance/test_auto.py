"""Maintenance by the committer: what is due after a commit, what it costs, and that it fails no write."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate
from support import reporters
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import rows_of
from support.tables.sink import Sink, epoch

from iceberg_ds.commit.snapshot_update import CommitResult, Seen
from iceberg_ds.errors import CatalogError, UnsupportedTableError
from iceberg_ds.maintenance import auto, expire_snapshots
from iceberg_ds.maintenance.auto import RESTS_KEY, due_work, maintain_after
from iceberg_ds.maintenance.lease import LEASE_KEY, leased
from iceberg_ds.maintenance.policy import MaintenancePolicy
from iceberg_ds.metrics.reporters import ReportSettings

EAGER = {"history.expire.min-snapshots-to-keep": "5", "history.expire.max-snapshot-age-ms": "0"}
MOST = 5 + 10  # kept, and the least portion that expires


@pytest.fixture
def eager(sink: Sink) -> Sink:
    """Return a table that keeps five snapshots, and is maintained by its commits."""
    options = replace(sink.options, table_properties={**sink.options.table_properties, **EAGER}, maintenance="auto")
    return replace(sink, options=options)


def append(sink: Sink, number: int) -> CommitResult:
    """Commit an epoch of one row, and do what is due after it, as the committer does."""
    result = sink.append(number, of_epoch=epoch(number))
    maintain_after(sink.catalog, lambda _: sink.options, [result])
    return result


def ids(sink: Sink) -> list[int]:
    """Return the ids of all rows, read without any library."""
    return sorted(row["id"] for row in rows_of(sink.table()))


def test_history_of_a_stream_stays_short(eager: Sink) -> None:
    """Each commit of a stream would be slower than the one before."""
    counts = []
    for number in range(60):
        append(eager, number)
        counts.append(len(eager.table().metadata.snapshots))

    assert max(counts) <= MOST
    assert ids(eager) == list(range(60))
    assert LEASE_KEY not in eager.table().properties
    check_clean(eager.table())


def test_commit_after_which_nothing_is_due_asks_for_nothing(eager: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch of a healthy table would wait for the catalog once more."""
    results = [eager.append(number, of_epoch=epoch(number)) for number in range(MOST - 1)]
    for method in ("load_table", "find_table", "send"):
        monkeypatch.setattr(type(eager.catalog), method, _unexpected)
    monkeypatch.setattr(threading.Thread, "start", _unexpected)

    maintain_after(eager.catalog, lambda _: eager.options, results)


def fail_to_start(thread: threading.Thread) -> None:
    """Start no thread for maintenance."""
    if thread.name == "iceberg-ds-maintenance":
        raise RuntimeError("can't start new thread")
    _start(thread)


_start = threading.Thread.start


def _unexpected(*_: object, **__: object) -> None:
    raise AssertionError


def test_few_commits_do_any_work(eager: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch of an old table would take a lease, and expire one snapshot."""
    taken: list[object] = []
    run = auto._AutoMaintenance.run
    monkeypatch.setattr(auto._AutoMaintenance, "run", lambda self: (taken.append(self), run(self)))

    for number in range(40):
        append(eager, number)

    assert 2 <= len(taken) <= 4


def test_option_off_does_nothing(sink: Sink) -> None:
    """A user's table would lose snapshots that nobody asked to expire."""
    off = replace(sink, options=replace(sink.options, table_properties=EAGER))

    for number in range(20):
        append(off, number)

    assert len(off.table().metadata.snapshots) == 20


def test_property_is_read_as_by_an_expiry_that_is_asked_for(eager: Sink) -> None:
    """History that a table keeps for a year would be deleted after an hour, by spaces around a number."""
    for number in range(40):
        eager.append(number, of_epoch=epoch(number))
    with eager.table().transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": f" {365 * 86_400_000} "})
    seen = eager.append(40, of_epoch=epoch(40)).seen
    assert seen is not None

    assert due_work(seen, time.time_ns() // 1_000_000 + 2 * 3_600_000) is None


@pytest.mark.parametrize("text", ["5d", "+5", ""])
@pytest.mark.parametrize("key", EAGER)
def test_property_that_is_no_number_lets_nothing_expire(
    eager: Sink, key: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a table is to keep would be guessed, and history deleted that it was to keep."""
    for number in range(40):
        eager.append(number, of_epoch=epoch(number))
    with eager.table().transaction() as change:
        change.set_properties({key: text})

    append(eager, 40)

    assert len(eager.table().metadata.snapshots) == 41
    assert f"table property {key} is '{text}', which is no whole number" in caplog.text


@pytest.mark.parametrize("step", ["lease", "expiry", "thread"])
def test_failure_fails_no_write_and_is_told(
    eager: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """A stream would die of a broken clean-up, with all rows in its table."""

    def fail(*_: Any, **__: Any) -> None:
        raise CatalogError("no such luck")

    reporters.kept.clear()
    told = ReportSettings(reporters=("support.reporters:keep",))
    eager = replace(eager, catalog=eager.catalog.reporting_to(told))
    if step == "lease":
        monkeypatch.setattr("iceberg_ds.maintenance.lease._Lease.take", fail)
    elif step == "thread":
        monkeypatch.setattr(auto.threading.Thread, "start", fail_to_start)
    else:
        monkeypatch.setattr(expire_snapshots.Expiry, "run", fail)

    with caplog.at_level(logging.WARNING):
        for number in range(20):
            append(eager, number)

    assert ids(eager) == list(range(20))
    if step == "thread":
        assert "Maintenance of db.t waits for a later commit: can't start new thread" in caplog.text
        return
    failed = {(one.operation, one.error) for one in reporters.kept if one.outcome == "maintained"}
    assert failed == {("maintain" if step == "lease" else "expire_snapshots", "CatalogError")}
    assert "The rows of db.t are committed, and its maintenance failed: no such luck" in caplog.text
    assert LEASE_KEY not in eager.table().properties


def test_what_cannot_be_done_is_not_tried_with_every_commit(eager: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose history must stay would cost each epoch a lease and a look at its files."""
    tried = []

    def refuse(*_: Any, **__: Any) -> None:
        tried.append(1)
        raise UnsupportedTableError("others have its files")

    monkeypatch.setattr(expire_snapshots.Expiry, "run", refuse)
    for number in range(25):
        append(eager, number)

    assert len(tried) == 1
    assert int(eager.table().properties[RESTS_KEY]) > time.time() * 1000
    set_property(eager, RESTS_KEY, "1")
    append(eager, 25)
    assert len(tried) == 2


def test_other_maintainer_is_left_to_its_work(eager: Sink) -> None:
    """Two would do the same work, and the epoch wait for it."""
    for number in range(MOST - 1):
        append(eager, number)
    with leased(eager.catalog, eager.options.table, 60):
        append(eager, MOST)
        assert len(eager.table().metadata.snapshots) == MOST

    append(eager, MOST + 1)
    assert len(eager.table().metadata.snapshots) == 5


def test_manifests_are_rewritten_once_they_are_many(eager: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers and commits would open more files with each epoch."""
    monkeypatch.setattr(auto, "MOST_MANIFESTS", 5)
    set_later = {"commit.manifest-merge.enabled": "false"}
    table = replace(
        eager, options=replace(eager.options, table_properties={**eager.options.table_properties, **set_later})
    )

    for number in range(12):
        append(table, number)

    head = table.table().current_snapshot()
    assert head is not None
    assert len(head.manifests(table.table().io)) <= 6
    assert ids(table) == list(range(12))
    check_sound(table.table())


def test_commit_does_not_wait_for_a_store_that_hangs(
    eager: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One hanging request would hold up a stream for ever."""
    goes_on = threading.Event()
    monkeypatch.setattr(auto, "LONGEST_WAIT_S", 0.2)
    monkeypatch.setattr(expire_snapshots.Expiry, "run", lambda *_, **__: goes_on.wait(60) and _unexpected())
    began = time.monotonic()
    try:
        for number in range(MOST):
            append(eager, number)
        assert time.monotonic() - began < 30
        assert "Maintenance of db.t takes longer than 0 s: the write goes on" in caplog.text
    finally:
        goes_on.set()
        for thread in threading.enumerate():
            if thread.name == "iceberg-ds-maintenance":
                thread.join(20)


def test_old_metadata_files_go_with_the_commits_of_maintenance(eager: Sink) -> None:
    """Each portion of maintenance would leave files for ever that nothing refers to."""
    properties = {
        **eager.options.table_properties,
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "3",
    }
    table = replace(eager, options=replace(eager.options, table_properties=properties))

    for number in range(30):
        append(table, number)

    folder = table.table().location().removeprefix("file://")
    found = list(Path(folder).rglob("*.metadata.json"))
    assert len(found) == 4


def set_property(sink: Sink, name: str, value: str) -> None:
    """Set a property of the table."""
    table = sink.table()
    sink.catalog.send(
        table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (SetPropertiesUpdate(updates={name: value}),)
    )


def seen_of(sink: Sink, change: Callable[[Any], Any] = lambda metadata: metadata) -> Seen:
    """Return the table as a commit sees it."""
    return Seen(table="db.t", branch="main", metadata=change(sink.table().metadata), manifests=[])


def test_table_without_properties_keeps_what_the_policy_keeps(sink: Sink) -> None:
    """The option and the command would do different things for the same table."""
    sink.append(1)
    (first,) = sink.table().metadata.snapshots
    day_ms = 86_400_000

    def with_snapshots(count: int) -> Seen:
        snapshots = [first.model_copy(update={"timestamp_ms": day_ms + number}) for number in range(count)]
        return seen_of(sink, lambda metadata: metadata.model_copy(update={"snapshots": snapshots}))

    policy = MaintenancePolicy()
    assert policy.max_snapshots == 1000
    later_ms = int(day_ms + policy.min_snapshot_age_s * 1000)
    assert due_work(with_snapshots(999), later_ms * 2) is None
    due = due_work(with_snapshots(1000), later_ms * 2)
    assert due is not None
    assert due.older_than_ms == day_ms + 200
    assert due_work(with_snapshots(1000), later_ms) is None
    many = due_work(with_snapshots(5000), later_ms * 2)
    assert many is not None
    assert many.older_than_ms == day_ms + 500
