"""What reports tell of commits that failed, were interrupted, were given up because of others, or are repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support.catalogs.faulty_catalog import FaultyCatalog, connection_lost, throttled
from support.checks.invariants import unreferenced_files
from support.keys.messages import KEYED_SCHEMA, keyed_tasks
from support.keys.upserts import apart, commit_upsert, upsert, upsert_plan
from support.metrics.reports import reports_on
from support.tables.bad_rows import SENT, UUID, commit, quarantining, sent, tasks
from support.tables.epochs import Tables
from support.tables.routed import RoutedSink, customer, order
from support.tables.sink import Sink, epoch, local, rows

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit import commit as protocol
from iceberg_ds.commit import epoch_part
from iceberg_ds.commit.commit import has_landed
from iceberg_ds.deletes import upsert as upserting
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    IcebergSinkError,
    OptionError,
    RefusedRowsError,
)
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.multi_table import commit as routing
from iceberg_ds.planning.quarantine import was_written_before

pytestmark = pytest.mark.usefixtures("waits")

TABLES = ("a", "b", "c")


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Let the next commit be interrupted before its first request."""

    def act(reached: FaultPoint) -> None:
        if reached in {FaultPoint.TABLE_LOADED, FaultPoint.TABLES_PREPARED}:
            raise KeyboardInterrupt

    listen(act)
    yield
    listen(None)


@pytest.mark.usefixtures("one_by_one")
def test_table_is_not_in_doubt_because_its_quarantine_is(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """An alert would send its reader to look for rows that were never sent."""
    quarantine = quarantining(sink)
    commit(quarantine, tasks(quarantine, sent(("1", "x", UUID))))
    faulty = replace(faulty_sink, options=quarantine.options)
    taken = reports_on(faulty)
    messages = tasks(faulty, sent(("1", "x", UUID), ("2", "5", UUID)))
    faulty_catalog.fail_next(60, connection_lost)

    with pytest.raises(CommitStateUnknownError):
        commit(faulty, messages)

    assert [(report.table, report.outcome) for report in taken] == [
        ("db.t__quarantine", "unknown"),
        ("db.t", "failed"),
    ]


def test_table_that_is_given_up_for_another_is_not_in_doubt(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """An alert would tell of rows that may be there, although their files are deleted."""
    tables = Tables(of_one=sink, names=TABLES)
    tables.create()
    faulty = Tables(of_one=faulty_sink, names=TABLES)
    taken = reports_on(faulty_sink)
    writes = faulty.to_all(0, 1)
    faulty_catalog.fail_next(1, connection_lost)
    faulty_catalog.before_commit(1, lambda: (tables.sink("b").append(5), sink.catalog.raw.drop_table(("db", "c"))))

    with pytest.raises(IcebergSinkError):
        faulty.commit(writes)

    assert {report.table: report.outcome for report in taken} == {
        "db.a": "unknown",
        "db.b": "failed",
        "db.c": "unknown",
    }


@pytest.mark.usefixtures("interrupted")
def test_commit_that_is_interrupted_before_its_request_has_failed(sink: Sink) -> None:
    """Whoever stops a driver would have to look for rows that cannot be there."""
    taken = reports_on(sink)

    with pytest.raises(KeyboardInterrupt):
        sink.append(1)

    assert [(report.outcome, report.error) for report in taken] == [("failed", "KeyboardInterrupt")]
    assert [report.files_left for report in taken] == [1]


def interrupting(step: FaultPoint, number: int = 1) -> Callable[[FaultPoint], None]:
    """Return what interrupts this process when it comes to a step for the nth time."""
    left = iter(range(number - 1))

    def act(reached: FaultPoint) -> None:
        if reached is step and next(left, None) is None:
            raise KeyboardInterrupt

    return act


@pytest.mark.parametrize(("error", "outcome"), [(throttled, "failed"), (connection_lost, "unknown")])
def test_commit_that_is_interrupted_is_in_doubt_if_a_request_is(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception], outcome: str
) -> None:
    """Whoever stops a driver would have to look for rows that the catalog has refused."""
    sink.append(1)
    messages, taken = faulty_sink.write(rows(2)), reports_on(faulty_sink)
    faulty_catalog.fail_next(1, error)

    listen(interrupting(FaultPoint.TABLE_LOADED, 2))
    try:
        with pytest.raises(KeyboardInterrupt):
            faulty_sink.commit(messages)
    finally:
        listen(None)

    assert [(report.outcome, report.attempts, report.files_left) for report in taken] == [(outcome, 1, 1)]


@pytest.mark.usefixtures("one_by_one")
def test_tables_after_an_interruption_are_told_as_failed(sink: Sink) -> None:
    """Rows would be missing in tables that no report tells of, and their files would stay."""
    tables = Tables(of_one=sink, names=TABLES)
    tables.create()
    writes, taken = tables.to_all(0, 1), reports_on(sink)

    listen(interrupting(FaultPoint.REQUEST_ANSWERED, 2))
    try:
        with pytest.raises(KeyboardInterrupt):
            tables.commit(writes)
    finally:
        listen(None)

    assert [(report.table, report.outcome, report.files_left) for report in taken] == [
        ("db.a", "committed", 0),
        ("db.b", "unknown", 1),
        ("db.c", "failed", 0),
    ]
    assert unreferenced_files(tables.sink("c").table()) == set()


def test_table_that_was_found_to_have_its_rows_stays_replayed(sink: Sink) -> None:
    """A table that surely has its rows would be told as one that may have them."""
    tables = Tables(of_one=sink, names=TABLES)
    tables.create()
    tables.commit(tables.write(0, {"a": [1]}))
    writes = tables.to_all(0, 1)
    taken = reports_on(sink)

    def act(reached: FaultPoint) -> None:
        if reached is FaultPoint.TABLES_PREPARED:
            raise KeyboardInterrupt

    listen(act)
    try:
        with pytest.raises(KeyboardInterrupt):
            tables.commit(writes)
    finally:
        listen(None)

    assert [report.outcome for report in taken] == ["replayed", "failed", "failed"]


def test_upsert_that_is_made_anew_counts_all_its_requests(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Each request that was lost would seem to be more than half of all, and raise an alert."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart([("I", 1, "EU", 1, 1)]))
    taken = reports_on(faulty_sink)
    plan = upsert_plan(faulty_sink)
    messages = keyed_tasks(plan, *apart([("U", 1, "US", 10, 2)]))
    faulty_catalog.before_commit(1, lambda: upsert(sink, "position", [("U", 1, "DE", -1, 5)]) and None)

    commit_upsert(faulty_sink, plan, "position", messages)

    assert (taken[-1].attempts, taken[-1].conflicts) == (faulty_catalog.commits, 1) == (2, 1)


def test_each_request_to_create_a_table_counts(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A catalog that is overloaded would seem to be asked once."""
    taken = reports_on(faulty_sink)
    messages = faulty_sink.write(rows(1))
    faulty_catalog.fail_next(3, throttled)

    faulty_sink.commit(messages)

    assert taken[-1].attempts == faulty_catalog.commits == 4


def test_request_that_is_not_sent_does_not_count(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables would seem to be asked for again and again, because the store of one of them is slow."""
    tables = Tables(of_one=sink, names=TABLES)
    tables.create()
    writes, taken = tables.to_all(0, 1), reports_on(sink)
    prepare, fails = epoch_part.EpochPart.prepare, iter([True, True, True])

    def prepare_late(part: epoch_part.EpochPart) -> object:
        prepared = prepare(part)
        return OSError("503 Slow Down") if part.name == "db.c" and next(fails, False) else prepared

    monkeypatch.setattr(epoch_part.EpochPart, "prepare", prepare_late)
    tables.commit(writes)

    assert [report.attempts for report in taken] == [1, 1, 1]


@pytest.fixture
def undeletable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file of a write be deleted that is given up before a request."""
    monkeypatch.setattr(protocol, "delete_files", lambda _io, paths, _proof: len(paths))


@pytest.mark.usefixtures("undeletable")
def test_files_of_refused_rows_that_stay_are_counted(sink: Sink) -> None:
    """A store that refuses to delete would fill up without an alert."""
    refusing = quarantining(sink, "null", max_bad_rows=0)
    taken = reports_on(refusing)
    messages = tasks(refusing, sent(("1", "x", UUID), ("2", "5", UUID)), small_task_size_bytes=0)

    with pytest.raises(RefusedRowsError, match="max-bad-rows"):
        refusing.commit(messages)

    assert [report.files_left for report in taken] == [1]


@pytest.mark.usefixtures("undeletable")
def test_files_that_stay_are_counted_if_another_table_cannot_be_planned(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that refuses to delete would fill up without an alert."""
    routed = RoutedSink.of(warehouse, small_task_size_bytes="0")
    routed.append(order(1))
    taken = reports_on(routed)
    messages = routed.write([order(2), customer(3)])

    def fail(*_: object, **__: object) -> None:
        raise OptionError("no")

    monkeypatch.setattr(routing, "plan_write", fail)
    with pytest.raises(OptionError):
        routed.commit(messages)

    assert [(report.table, report.outcome, report.files_left) for report in taken] == [("db.orders", "failed", 1)]


@pytest.mark.usefixtures("undeletable")
def test_files_of_an_upsert_that_is_refused_are_counted(sink: Sink) -> None:
    """A store that refuses to delete would fill up without an alert."""
    sink.create(KEYED_SCHEMA)
    taken = reports_on(sink)

    with pytest.raises(RefusedRowsError, match="came to several tasks"):
        upsert(sink, "copy-on-write", [("I", 1, "EU", 1, 1)], [("U", 1, "US", 2, 2)])

    assert [(report.outcome, report.files_left) for report in taken] == [("failed", 4)]  # two of rows, two of keys


@pytest.mark.usefixtures("undeletable")
def test_files_of_an_upsert_that_cannot_be_made_anew_are_counted(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that refuses to delete would fill up without an alert."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart([("I", 1, "EU", 1, 1)]))
    taken = reports_on(faulty_sink)
    plan = upsert_plan(faulty_sink)
    messages = keyed_tasks(plan, [("U", 1, "US", 10, 2)])
    faulty_catalog.before_commit(1, lambda: upsert(sink, "position", [("U", 1, "DE", -1, 5)]) and None)
    monkeypatch.setattr(upserting, "ROUNDS", 1)

    with pytest.raises(CommitConflictError, match="in 1 tries"):
        commit_upsert(faulty_sink, plan, "position", messages)

    assert [(report.outcome, report.files_left) for report in taken] == [("conflict", 2)]  # the rows, and the old one


def test_files_of_a_table_that_was_dropped_are_counted(sink: Sink) -> None:
    """The files stay in a folder that nobody looks at any more."""
    sink.append(1)
    messages, taken = sink.write(rows(2)), reports_on(sink)
    sink.catalog.raw.drop_table(("db", "t"))

    with pytest.raises(CommitConflictError, match="left where they are"):
        sink.commit(messages)

    assert [report.files_left for report in taken] == [1]


def test_number_that_was_passed_over_is_not_told_as_the_later_one(sink: Sink) -> None:
    """A board would show rows that were never written, and a stream as alive that goes back."""
    taken = reports_on(sink)

    for version in (1, 3, 2, 3):
        sink.commit(sink.write(rows(version), plan=sink.plan(txn_app_id="nightly", txn_version=version)))

    assert [report.outcome for report in taken] == ["committed", "committed", "replayed", "replayed"]
    assert (taken[2].number, taken[2].snapshot_id, dict(taken[2].counts)) == (2, None, {})
    assert (taken[3].number, taken[3].snapshot_id) == (3, taken[1].snapshot_id)
    assert sink.ids() == [1, 3]


def test_version_that_landed_unreported_is_told_after_a_later_one(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """The rows of a process that was killed after it landed would be missing in sums, and be told as never written."""
    for version in (1, 2):
        sink.commit(sink.write(rows(version), plan=sink.plan(txn_app_id="nightly", txn_version=version)))
    first = sink.table().metadata.snapshots[0]
    taken, plan = reports_on(sink), sink.plan(txn_app_id="nightly", txn_version=1)

    assert sink.commit(sink.write(rows(1), plan=plan)).was_replayed
    assert has_landed(sink.catalog, plan.write)

    assert [(report.outcome, report.number, report.snapshot_id) for report in taken] == [
        ("replayed", 1, first.snapshot_id)
    ] * 2
    assert taken[0].counts["added-records"] == 1
    assert f"this version was committed as snapshot {first.snapshot_id}" in caplog.text


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize("is_there", [True, False], ids=["the table has its rows", "it was killed before"])
def test_repeated_epoch_tells_of_its_quarantine_table(sink: Sink, *, is_there: bool) -> None:
    """A report on the quarantine table that a killed process could not make would be missing for ever."""
    quarantine = quarantining(sink)

    def put() -> None:
        commit(quarantine, tasks(quarantine, sent(("1", "x", UUID), ("2", "5", UUID)), of_epoch=epoch(0)))

    def act(reached: FaultPoint) -> None:
        if reached is FaultPoint.QUARANTINED and not is_there:
            raise KeyboardInterrupt

    listen(act)
    with suppress(KeyboardInterrupt):
        put()
    listen(None)
    taken = reports_on(quarantine)
    put()

    assert [(report.table, report.outcome, report.counts["added-records"]) for report in taken] == [
        ("db.t__quarantine", "replayed", 1),
        ("db.t", "replayed" if is_there else "committed", 1),
    ]
    assert taken[0].table_uuid == str(sink.catalog.load_table(("db", "t__quarantine")).metadata.table_uuid)


def test_repeated_epoch_tells_of_the_table_of_cuts(warehouse: Path) -> None:
    """A report on the table of cuts that a killed process could not make would be missing for ever."""
    routed = RoutedSink.of(warehouse, consistent_cut="meta.cuts")
    taken = reports_on(routed)

    for _ in range(2):
        routed.append(order(1), customer(2), epoch_id=0)

    first, again = [report for report in taken if report.table == "meta.cuts"]
    assert (first.outcome, again.outcome) == ("committed", "replayed")
    assert (again.snapshot_id, again.number, again.counts["added-records"]) == (first.snapshot_id, 0, 2)
    assert again.table_uuid == first.table_uuid


@pytest.mark.parametrize("number", [1, 2, 3])
def test_files_of_tables_that_had_not_begun_are_counted(sink: Sink, number: int) -> None:
    """Whoever stops a driver early would leave files that no report tells of."""
    tables = Tables(of_one=sink, names=TABLES)
    tables.create()
    writes, taken = tables.to_all(0, 1), reports_on(sink)

    listen(interrupting(FaultPoint.COMMIT_BEGUN, number))
    try:
        with pytest.raises(KeyboardInterrupt):
            tables.commit(writes)
    finally:
        listen(None)

    assert [(report.outcome, report.files_left) for report in taken] == [("failed", 1)] * 3


def test_files_of_a_table_that_had_not_begun_are_counted(sink: Sink) -> None:
    """Whoever stops a driver early would leave files that no report tells of."""
    messages, taken = sink.write(rows(2)), reports_on(sink)

    listen(interrupting(FaultPoint.COMMIT_BEGUN))
    try:
        with pytest.raises(KeyboardInterrupt):
            sink.commit(messages)
    finally:
        listen(None)

    assert [(report.outcome, report.files_left) for report in taken] == [("failed", 1)]


@pytest.mark.usefixtures("one_by_one")
def test_table_that_is_interrupted_after_its_quarantine_is_told_as_failed(sink: Sink) -> None:
    """Rows would be missing in a table that no report tells of, and their files would stay."""
    quarantine = quarantining(sink)
    taken = reports_on(quarantine)
    messages = tasks(quarantine, sent(("1", "x", UUID), ("2", "5", UUID)), small_task_size_bytes=0)

    listen(interrupting(FaultPoint.QUARANTINED))
    try:
        with pytest.raises(KeyboardInterrupt):
            commit(quarantine, messages)
    finally:
        listen(None)

    assert [(report.table, report.outcome) for report in taken] == [
        ("db.t__quarantine", "committed"),
        ("db.t", "failed"),
    ]
    assert not any(local(file.file_path).exists() for message in messages for file in message.data_files)


@pytest.mark.parametrize("damage", ["the catalog cannot load it", "its record is malformed"])
def test_quarantine_that_cannot_be_looked_at_fails_no_replay(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, waits: list[float], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """A repeated upsert would fail, and wait before that, although its rows are in the table: for a report alone."""
    quarantine = quarantining(sink, txn_app_id="nightly", txn_version=1)
    commit(quarantine, tasks(quarantine, sent(("1", "x", UUID), ("2", "5", UUID))))
    plan, taken = quarantine.plan(SENT), reports_on(quarantine)
    place = ("db", "t__quarantine")
    find, seen = CatalogClient.find_table, []

    def fail(client: CatalogClient, identifier: tuple[str, ...], *rest: object) -> object:
        seen.append(identifier)
        if tuple(identifier) == place:
            raise CatalogError("no answer")
        return find(client, identifier, *rest)

    if damage == "the catalog cannot load it":
        monkeypatch.setattr(CatalogClient, "find_table", fail)
    else:
        table = quarantine.catalog.load_table(place)
        key = next(name for name in table.properties if "last-txn" in name)
        with table.transaction() as change:
            change.set_properties({key: "no marker"})

    assert was_written_before(quarantine.catalog, plan.write)

    assert [(report.table, report.outcome) for report in taken] == [("db.t", "replayed")]
    assert "is not reported which rows" in caplog.text
    assert (waits, seen.count(place)) == ([], int(bool(seen)))
