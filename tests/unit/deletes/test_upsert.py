"""Upserts that look for the old rows: one snapshot, no delete by keys, no file left behind, whoever writes beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as spark
from support.checks.invariants import check_clean, stored_files, unreferenced_files
from support.checks.reader import listed, rows_of
from support.keys.conversions import meanwhile as at_step
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.upserts import ENCODINGS, apart, commit_upsert, upsert, upsert_plan
from support.programs.upserter import Upsert
from support.tables.changes_by_others import set_columns
from support.tables.delete_files import delete_ids, delete_positions
from support.tables.sink import Sink, arrow_batch, local, paths_of

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit import together as committing
from iceberg_ds.commit.commit import commit_to_branch
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.deletes import search
from iceberg_ds.deletes.search import RewriteByKeys
from iceberg_ds.deletes.upsert import ROUNDS
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    OptionError,
    RefusedRowsError,
    UnsupportedTableError,
)
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.metrics.delivery import Reporting
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.spark import write_job
from iceberg_ds.writers.keyed import report_keyed_task
from iceberg_ds.writers.task_writer import TaskAttempt

pytestmark = pytest.mark.usefixtures("waits")

BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
BY_ID = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
FIRST: list[Event] = [("I", number, "EU", number, 1) for number in range(6)]
SECOND: list[Event] = [("U", 1, "US", 10, 2), ("D", 2, "EU", None, 2), ("U", 9, "US", 90, 2), ("D", 77, "EU", None, 2)]
AFTER = [(0, "EU", 0), (1, "US", 10), (3, "EU", 3), (4, "EU", 4), (5, "EU", 5), (9, "US", 90)]


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of an unpartitioned table with key `id`, with the rows of `FIRST`."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart(FIRST))
    return sink


def values(sink: Sink) -> list[tuple[Any, ...]]:
    """Return the rows that PyIceberg, which reads no deletes by keys, finds in the table."""
    return [tuple(row.values()) for row in sink.rows()]


def check_readable(sink: Sink, encoding: RowEncoding) -> None:
    """Assert that no file of deletes that readers may not know is in the table, and none lies beside it."""
    kinds = {kind for kind, files in listed(sink.table()).items() if files}
    allowed = {DataFileContent.DATA}
    assert kinds <= (allowed if encoding == "copy-on-write" else allowed | {DataFileContent.POSITION_DELETES})
    check_clean(sink.table())


def test_file_that_is_listed_twice_is_not_written_again(keyed: Sink) -> None:
    """Its other rows, which readers see twice, would be there once."""
    plan = keyed.plan(COLUMNS)
    files = [found.entry.data_file for found in listed(keyed.table())[DataFileContent.DATA]]
    counts = RowCounts(received=sum(file.record_count for file in files))
    keyed.commit([TaskCommit(plan.write, 0, tuple(files), counts=counts)])
    before = values(keyed)

    with pytest.raises(UnsupportedTableError, match="parquet 2 times"):
        upsert(keyed, "copy-on-write", *apart(SECOND))

    assert values(keyed) == before
    assert not unreferenced_files(keyed.table())
    assert upsert(keyed, "position", *apart(SECOND)).replaced_rows == 2


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("spec", [PartitionSpec(), BY_REGION, BY_ID], ids=["plain", "by another column", "by key"])
def test_rows_take_the_place_of_those_of_their_keys(sink: Sink, encoding: RowEncoding, spec: PartitionSpec) -> None:
    """Old rows would stay, other rows would go, or readers would meet deletes that they do not know."""
    sink.create(KEYED_SCHEMA, spec)
    upsert(sink, encoding, *apart(FIRST))

    result = upsert(sink, encoding, *apart(SECOND))

    assert values(sink) == AFTER
    assert (result.rows, result.replaced_rows) == (2, 2)
    assert len(sink.table().metadata.snapshots) == 2
    assert len(sink.table().metadata.partition_specs) == 1
    check_readable(sink, encoding)


def test_summary_counts_what_the_files_hold(keyed: Sink) -> None:
    """Tools that show a table's growth would be wrong from then on."""
    upsert(keyed, "position", *apart(SECOND))

    snapshot = keyed.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "overwrite"
    told = snapshot.summary.additional_properties
    assert (told["added-records"], told["added-position-deletes"], told["total-position-deletes"]) == ("2", "2", "2")
    assert told["total-records"] == "8"
    assert "added-equality-deletes" not in told


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_table_is_created(sink: Sink, encoding: RowEncoding) -> None:
    """A first upsert would need a table that somebody else has made."""
    plan = sink.plan(COLUMNS, WriteMode.UPSERT, keys=("id",))
    rows = [{"id": number, "region": "EU", "amount": number} for number in range(3)]
    written = [_task(plan, number, [row]) for number, row in enumerate(rows)]

    commit_upsert(sink, plan, encoding, written)

    assert values(sink) == [(0, "EU", 0), (1, "EU", 1), (2, "EU", 2)]
    assert sink.table().schema().identifier_field_ids == [1]
    check_readable(sink, encoding)


def _task(plan: Any, number: int, rows: Sequence[dict[str, Any]]) -> TaskCommit:
    attempt = TaskAttempt(partition_id=number, task_attempt_id=number)
    return report_keyed_task(plan, [arrow_batch(rows, COLUMNS)], attempt)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_deletes_alone_are_a_snapshot(keyed: Sink, encoding: RowEncoding) -> None:
    """Deleted rows would stay if nothing comes with them."""
    upsert(keyed, encoding, *apart([("D", number, "EU", None, 2) for number in range(6)]))

    assert values(keyed) == []
    check_readable(keyed, "position" if encoding == "position" else "copy-on-write")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_deletes_of_keys_that_are_not_there_change_nothing(keyed: Sink, encoding: RowEncoding) -> None:
    """Each of them would add a snapshot that every reader loads for nothing."""
    result = upsert(keyed, encoding, [("D", 99, "EU", None, 2)])

    assert result.snapshot_id is None
    assert len(keyed.table().metadata.snapshots) == 1
    check_readable(keyed, encoding)


def test_rows_that_lose_to_other_tasks_are_hidden(keyed: Sink) -> None:
    """A key that comes in two tasks would have two rows."""
    upsert(keyed, "position", [("U", 1, "US", 10, 2)], [("U", 1, "DE", 11, 3)])

    assert [row for row in values(keyed) if row[0] == 1] == [(1, "DE", 11)]
    check_readable(keyed, "position")


def test_rows_that_lose_to_other_tasks_are_refused_where_nothing_may_hide_them(keyed: Sink) -> None:
    """A key would have two rows, or a reader would meet deletes that the user wanted none of."""
    before = stored_files(keyed.table().location())

    with pytest.raises(RefusedRowsError, match="rows of one key came to several tasks"):
        upsert(keyed, "copy-on-write", [("U", 1, "US", 10, 2)], [("U", 1, "DE", 11, 3)])

    assert stored_files(keyed.table().location()) == before


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_old_deletes_by_keys_stay_right(keyed: Sink, encoding: RowEncoding) -> None:
    """Rows that a stream had deleted would come back with the files that are written again."""
    keyed.commit(keyed_tasks(plan_by_keys(keyed), [("D", 4, "EU", None, 2), ("U", 5, "DE", 50, 2)]))

    upsert(keyed, encoding, *apart(SECOND))

    found = [tuple(row.values()) for row in rows_of(keyed.table())]
    assert found == [(0, "EU", 0), (1, "US", 10), (3, "EU", 3), (5, "DE", 50), (9, "US", 90)]
    check_clean(keyed.table())


# Beside an upsert.


def meanwhile(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
    """Let others act one after the other, each between a search and the commit that rests on it."""
    left = list(acts)
    original = committing.commit_to_branch

    def commit(*arguments: Any, **named: Any) -> Any:
        if left:
            left.pop(0)()
        return original(*arguments, **named)

    monkeypatch.setattr(committing, "commit_to_branch", commit)


def append(sink: Sink, *rows: tuple[int, str, int]) -> None:
    """Append rows as a writer does that knows no keys."""
    named = [dict(zip(COLUMNS.names, row, strict=True)) for row in rows]
    sink.commit(sink.write(named, schema=COLUMNS))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_that_came_meanwhile_give_way(keyed: Sink, encoding: RowEncoding, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key would have two rows: that of the upsert, and that of somebody who committed a moment before."""
    meanwhile(monkeypatch, lambda: append(keyed, (9, "DE", -9), (1, "DE", -1), (50, "DE", 50)))

    upsert(keyed, encoding, *apart(SECOND))

    assert values(keyed) == [*AFTER, (50, "DE", 50)]
    check_readable(keyed, encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_upsert_that_is_made_anew_makes_one_report(
    keyed: Sink, encoding: RowEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search that others made stale would count as a failed commit, and raise an alert."""
    taken: list[CommitReport] = []
    meanwhile(monkeypatch, lambda: append(keyed, (9, "DE", -9)), lambda: append(keyed, (1, "DE", -1)))
    keyed.catalog.reporting = Reporting([("the list", taken.append)])

    upsert(keyed, encoding, *apart(SECOND))

    own = [report for report in taken if report.tasks.rows == len(SECOND)]
    assert [report.outcome for report in own] == ["committed"]
    assert own[0].conflicts + own[0].attempts >= 1
    assert len(taken) == 3


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("other", ENCODINGS)
def test_two_upserts_at_once_leave_one_row_of_each_key(
    keyed: Sink, encoding: RowEncoding, other: RowEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks would be of files that are gone, or rows would stand twice."""
    plan = upsert_plan(keyed)
    first = keyed_tasks(plan, *apart(SECOND))
    rival = apart([("U", 1, "DE", -1, 5), ("U", 9, "DE", -9, 5), ("D", 3, "EU", None, 5)])
    meanwhile(monkeypatch, lambda: upsert(keyed, other, *rival))

    commit_upsert(keyed, plan, encoding, first)

    assert values(keyed) == [row for row in AFTER if row[0] != 3]
    check_clean(keyed.table())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_row_whose_position_delete_is_taken_back_meanwhile_is_not_doubled(keyed: Sink, encoding: RowEncoding) -> None:
    """A key would have two rows after a rollback that was faster."""
    before = keyed.table().current_snapshot()
    assert before is not None
    first = next(found for found in listed(keyed.table())[DataFileContent.DATA] if found.rows()[0]["id"] == 1)
    delete_positions(keyed, first.path, [0])

    def set_back() -> None:
        with keyed.table().manage_snapshots() as refs:
            refs.set_current_snapshot(snapshot_id=before.snapshot_id)

    with at_step(FaultPoint.COMMIT_BEGUN, set_back):
        upsert(keyed, encoding, *apart(SECOND))

    assert values(keyed) == AFTER
    check_readable(keyed, "position" if encoding == "position" else "copy-on-write")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_upsert_gives_up_where_others_never_rest(
    keyed: Sink, encoding: RowEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would search for ever, or leave its files behind."""
    numbers = iter(range(100, 1000))

    def disturb() -> None:
        append(keyed, (1, "DE", next(numbers)))

    meanwhile(monkeypatch, *[disturb] * ROUNDS)

    with pytest.raises(CommitConflictError, match="in 10 tries, nothing was committed"):
        upsert(keyed, encoding, *apart(SECOND))

    assert unreferenced_files(keyed.table()) == set()
    assert sum(row[0] == 1 for row in values(keyed)) == 1 + ROUNDS


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_failed_search_leaves_nothing(keyed: Sink, encoding: RowEncoding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failure would leave files that nobody deletes."""

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "resolve", fail)
    before = stored_files(keyed.table().location())

    with pytest.raises(KeyboardInterrupt):
        upsert(keyed, encoding, *apart(SECOND))

    assert stored_files(keyed.table().location()) == before


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_files_that_the_driver_does_not_see_leave_nothing(keyed: Sink, encoding: RowEncoding) -> None:
    """On a cluster without a shared disk, each try would leave marks or rewritten files."""
    plan = upsert_plan(keyed)
    messages = keyed_tasks(plan, *apart(SECOND))
    before = stored_files(keyed.table().location()) - set(paths_of(messages))
    with next(iter(paths_of(messages))).open("ab") as file:
        file.write(b"x")

    with pytest.raises(DataFileError, match="the driver sees"):
        commit_upsert(keyed, plan, encoding, messages)

    assert stored_files(keyed.table().location()) == before


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_marks_and_rewritten_files_that_the_driver_does_not_see_are_not_committed(
    keyed: Sink, encoding: RowEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster without a shared disk, old rows would come back, or all rows of a file be gone."""
    plan = upsert_plan(keyed)
    messages = keyed_tasks(plan, *apart(SECOND))
    before = stored_files(keyed.table().location()) - set(paths_of(messages))

    def commit(catalog: Any, commits: Any, meter: Any, rewrite: RewriteByKeys, *others: Any) -> CommitResult:
        with local(rewrite.added.files[0].file_path).open("ab") as file:
            file.write(b"x")
        return commit_to_branch(catalog, commits, meter, rewrite, *others)

    monkeypatch.setattr(committing, "commit_to_branch", commit)

    with pytest.raises(DataFileError, match="the driver sees"):
        commit_upsert(keyed, plan, encoding, messages)

    assert stored_files(keyed.table().location()) == before
    assert values(keyed) == [(number, "EU", number) for number in range(6)]


def test_unknown_outcome_keeps_the_files(keyed: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a commit that landed after all would be gone."""

    def lost(*_: object, **__: object) -> None:
        raise CommitStateUnknownError("the answer was lost")

    monkeypatch.setattr(committing, "commit_to_branch", lost)
    plan = upsert_plan(keyed)
    messages = keyed_tasks(plan, *apart(SECOND))

    with pytest.raises(CommitStateUnknownError):
        commit_upsert(keyed, plan, "position", messages)

    left = {path.name for path in unreferenced_files(keyed.table())}
    data = {file.file_path.rpartition("/")[2] for message in messages for file in message.data_files}
    assert data < left  # and the marks of the old rows
    assert not {file.file_path.rpartition("/")[2] for m in messages for file in m.delete_files} & left


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_version_that_the_table_has_is_skipped(keyed: Sink, encoding: RowEncoding) -> None:
    """A micro-batch that Spark repeats would undo what came after it."""
    numbered = {"txn_app_id": "query", "txn_version": 7}
    upsert(keyed, encoding, *apart(SECOND), **numbered)
    upsert(keyed, encoding, *apart([("U", 1, "FR", 0, 9)]))

    result = upsert(keyed, encoding, *apart(SECOND), **numbered)

    assert result.was_replayed
    assert (1, "FR", 0) in values(keyed)
    check_readable(keyed, encoding)


def test_failure_of_a_task_is_told_where_the_catalog_fails_then(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A user would look for what is wrong with the catalog, and the disk is full."""
    messages = keyed_tasks(upsert_plan(sink), FIRST)

    def fail(*_: object) -> None:
        raise CatalogError("connection reset")

    monkeypatch.setattr(CatalogClient, "file_io", fail)
    monkeypatch.setattr(CatalogClient, "storage_of", fail)
    monkeypatch.setattr(write_job, "run_job", lambda *_: [*messages, DataFileError("no space left")])

    with pytest.raises(DataFileError, match="no space left"):
        Upsert(options={"warehouse": str(sink.options.warehouse)}, epoch_id=0, epoch=[]).run()

    assert "Left behind what was written for db.t, such as " in caplog.text
    assert ": CatalogError: connection reset" in caplog.text


def test_files_are_deleted_while_the_catalog_is_away(keyed: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each outage of a catalog would leave the files of an upsert behind."""
    plan = upsert_plan(keyed)
    messages, before = keyed_tasks(plan, *apart(SECOND)), stored_files(keyed.table().location())

    def fail(*_: object) -> None:
        raise CatalogError("connection reset")

    with monkeypatch.context() as patch:
        patch.setattr(CatalogClient, "find_table", fail)
        with pytest.raises(CatalogError):
            commit_upsert(keyed, plan, "position", messages)

    assert stored_files(keyed.table().location()) < before
    assert unreferenced_files(keyed.table()) == set()


def test_sink_alone_refuses_what_it_cannot_do(keyed: Sink) -> None:
    """A stream would write deletes that its readers do not know."""
    with pytest.raises(OptionError, match=r"Write with iceberg_ds\.upsert"):
        keyed.plan(COLUMNS, keys=("id",), delete_encoding="position")
    with pytest.raises(OptionError, match="Expected auto, position, deletion-vector or copy-on-write"):
        keyed.plan(COLUMNS, WriteMode.UPSERT, keys=("id",), delete_encoding="equality")
    with pytest.raises(OptionError, match="name the key columns"):
        keyed.plan(COLUMNS, WriteMode.UPSERT)


def test_upsert_leaves_rows_deleted_that_others_deleted_by_a_dropped_column(sink: Sink) -> None:
    """A file that is written again lacks the column, so the rows would come back."""
    kinds = {"id": spark.LongType(), "name": spark.StringType(), "value": spark.LongType()}
    every = spark.StructType([spark.StructField(name, kind) for name, kind in kinds.items()])
    sent = spark.StructType(every.fields[1:])
    sink.commit(sink.write([{"id": number, "name": f"row {number}", "value": 1} for number in range(3)], schema=every))
    delete_ids(sink, 0)
    set_columns(sink, NestedField(2, "name", StringType()), NestedField(3, "value", LongType()))
    plan = sink.plan(sent, WriteMode.UPSERT, keys=("name",))

    def upsert(encoding: RowEncoding) -> None:
        messages = sink.write([{"name": "row 1", "value": 2}], schema=sent, plan=plan)
        commit_upsert(sink, plan, encoding, messages)

    with pytest.raises(UnsupportedTableError, match="deletes rows by a column that the table has dropped"):
        upsert("copy-on-write")
    upsert("position")

    assert [tuple(row.values()) for row in rows_of(sink.table())] == [("row 1", 2), ("row 2", 1)]
