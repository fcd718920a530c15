"""Batches that an application numbers: each version once, whatever fails, whoever repeats it, on each branch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, forbidden, refusal, state_unknown
from support.checks.invariants import check_clean, check_sound
from support.tables.changes_by_others import drop_branch, plain_table
from support.tables.regions import ids_by_region, in_region, partitioned, run, write
from support.tables.sink import Sink, epoch, paths_of, rows

from iceberg_ds import publish
from iceberg_ds.commit import retry
from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.errors import CommitConflictError, CommitStateUnknownError, OptionError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.snapshots.refs import branch_property
from iceberg_ds.snapshots.txn import TXNS

pytestmark = pytest.mark.usefixtures("waits", "few_retries")

RETRIES = 3


@pytest.fixture
def few_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits be tried `RETRIES` times again."""
    monkeypatch.setattr(retry.RetryPolicy, "of", lambda _: retry.RetryPolicy(num_retries=RETRIES))


def written(sink: Sink, version: int, *ids: int, app_id: str = "load", **options: Any) -> list[TaskCommit]:
    """Run the task of a numbered batch."""
    return sink.write(rows(*ids), plan=sink.plan(txn_app_id=app_id, txn_version=version, **options))


def append(sink: Sink, version: int, *ids: int, app_id: str = "load", **options: Any) -> CommitResult:
    """Append a numbered batch."""
    return sink.commit(written(sink, version, *ids, app_id=app_id, **options))


def expire_all_but_heads(sink: Sink) -> None:
    """Expire every snapshot that the table can do without."""
    table = sink.table()
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in heads]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def ids_of(sink: Sink, branch: str) -> list[int]:
    """Return the ids of a branch."""
    return [row["id"] for row in sink.rows_of(branch)]


def test_repeated_version_is_skipped_and_leaves_no_file(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A task that a scheduler runs again would double its rows, or leave files behind, and nobody could tell which."""
    first = append(sink, 7, 1, 2)

    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):  # Spark's Python workers show no more
        again = append(sink, 7, 1, 2)

    assert again == CommitResult(snapshot_id=None, was_replayed=True)
    assert sink.ids() == [1, 2]
    check_clean(sink.table())
    (line,) = [record.getMessage() for record in caplog.records if "Skipped" in record.getMessage()]
    assert "txn-app-id load, txn-version 7" in line
    assert f"snapshot {first.snapshot_id}" in line
    assert "+00:00" in line
    assert "Its files were deleted" in line


def test_version_below_the_last_is_skipped_and_says_which_one_was_the_last(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """A late retry would bring old rows again; or rows that are late for another reason be left out unnoticed."""
    append(sink, 9, 1)

    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        late = append(sink, 8, 2)

    assert late.was_replayed
    assert sink.ids() == [1]
    assert "version 9, which is above it, was committed" in caplog.text


def test_applications_and_queries_do_not_disturb_each_other(sink: Sink) -> None:
    """Two jobs into one table would skip each other's rows."""
    append(sink, 5, 1, app_id="a")
    append(sink, 3, 2, app_id="b")
    append(sink, 5, 3, app_id="a.b")
    sink.append(4, of_epoch=epoch(0, query_id="a"))
    sink.append(5)

    assert append(sink, 5, 6, app_id="b").snapshot_id is not None
    assert append(sink, 5, 7, app_id="a").was_replayed
    assert sink.ids() == [1, 2, 3, 4, 5, 6]


def test_version_survives_the_expiry_of_its_snapshot(sink: Sink) -> None:
    """A retry after maintenance would double the rows."""
    append(sink, 1, 1)
    append(sink, 1, 2, app_id="other")
    expire_all_but_heads(sink)

    assert len(sink.table().metadata.snapshots) == 1
    assert append(sink, 1, 1).was_replayed
    assert sink.ids() == [1, 2]


def test_version_survives_the_removal_of_its_property(sink: Sink) -> None:
    """A retry would double the rows after somebody has tidied up the table's properties."""
    append(sink, 1, 1)
    sink.append(2)
    with sink.table().transaction() as change:
        change.remove_properties(branch_property(TXNS.property_prefix, "main", "load"))

    assert append(sink, 1, 1).was_replayed
    assert sink.ids() == [1, 2]


def test_highest_version_fits(sink: Sink) -> None:
    """A version of 64 bits, such as a time in nanoseconds, would be cut."""
    append(sink, 2**63 - 2, 1)

    assert append(sink, 2**63 - 2, 1).was_replayed
    assert append(sink, 2**63 - 1, 2).snapshot_id is not None
    assert sink.ids() == [1, 2]


def test_version_without_rows_is_recorded(sink: Sink) -> None:
    """A retry of a run that had nothing to write would write what has come since, and the next run write it again."""
    append(sink, 1, 1)

    empty = append(sink, 2)

    assert empty.snapshot_id is not None
    assert append(sink, 2, 9).was_replayed
    assert append(sink, 3, 3).snapshot_id is not None
    assert sink.ids() == [1, 3]
    check_clean(sink.table())


def test_version_without_rows_creates_the_table_and_is_recorded(sink: Sink) -> None:
    """A first run without rows would be forgotten."""
    append(sink, 1)

    assert sink.rows() == []
    assert append(sink, 1, 9).was_replayed
    append(sink, 2, 2)
    assert sink.ids() == [2]
    check_clean(sink.table())


def test_version_that_creates_the_table_is_recorded_with_it(sink: Sink) -> None:
    """A retry of the first run would double its rows."""
    first = written(sink, 1, 1)
    again = written(sink, 1, 1)  # planned before the table existed

    sink.commit(first)

    assert sink.commit(again).was_replayed
    assert sink.ids() == [1]
    check_clean(sink.table())


@pytest.fixture(params=[[0], []], ids=["into a table", "that creates"])
def present(request: pytest.FixtureRequest, sink: Sink) -> list[int]:
    """Return what the table holds; with none it does not exist."""
    if request.param:
        sink.append(*request.param)
    return list(request.param)


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", [refusal, connection_lost, state_unknown])
def test_version_lands_once_whatever_became_of_the_answer(
    faulty_sink: Sink,
    faulty_catalog: FaultyCatalog,
    present: list[int],
    when: When,
    error: Callable[[], Exception],
) -> None:
    """Rows would be lost or doubled because the catalog hiccuped."""
    messages = written(faulty_sink, 1, 1)
    faulty_catalog.fail_next(1, error, when=when)

    result = faulty_sink.commit(messages)

    assert result.snapshot_id == messages[0].write.snapshot_id
    assert append(faulty_sink, 1, 1).was_replayed
    assert faulty_sink.ids() == [*present, 1]
    check_clean(faulty_sink.table())


def test_run_that_does_not_know_whether_it_landed_can_be_repeated(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A retry after an unknown outcome would double the rows, or lose them."""
    sink.append(0)
    messages = written(faulty_sink, 1, 1)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_catalog.fail_next_loads(999, connection_lost, after=1)

    with pytest.raises(CommitStateUnknownError, match="with the same txn-version finds that out"):
        faulty_sink.commit(messages)

    assert append(sink, 1, 1).was_replayed
    assert sink.ids() == [0, 1]


def test_refused_version_can_be_repeated(sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A version that never landed would be taken for one that did: its rows would be lost."""
    append(sink, 1, 1)
    messages = written(faulty_sink, 2, 2)
    faulty_catalog.fail_next(999, refusal)
    with pytest.raises(CommitConflictError, match="Nothing was committed"):
        faulty_sink.commit(messages)

    assert append(sink, 2, 2).snapshot_id is not None
    assert sink.ids() == [1, 2]
    check_clean(sink.table())


@pytest.mark.parametrize("error", [None, connection_lost, refusal])
@pytest.mark.parametrize("faster", [5, 6], ids=["the same version", "a later version"])
def test_of_two_runs_at_once_one_lands_and_the_other_is_skipped(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception] | None, faster: int
) -> None:
    """A task that a scheduler took for dead, and its retry, would both land."""
    append(sink, 4, 0)
    slow = written(faulty_sink, 5, 1)
    if error is not None:
        faulty_catalog.fail_next(1, error)
    faulty_catalog.before_commit(1, lambda: append(sink, faster, 2) and None)

    result = faulty_sink.commit(slow)

    assert result.was_replayed
    assert sink.ids() == [0, 2]
    # If the answer was lost and a later version landed, ours may be in the table: only the same version is proof.
    if error is not connection_lost or faster == 5:
        check_clean(sink.table())
    check_sound(sink.table())


def test_files_that_the_table_has_stay_when_a_later_version_hides_that_they_landed(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """Files of the table would be deleted: a broken table."""
    sink.append(0)

    def go_on() -> None:
        append(sink, 6, 6)
        expire_all_but_heads(sink)

    messages = written(faulty_sink, 5, 5)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_catalog.after_commit(1, go_on)

    with caplog.at_level(logging.INFO, logger="iceberg_ds"):
        result = faulty_sink.commit(messages)

    assert result.was_replayed
    assert sink.ids() == [0, 5, 6]
    assert "Its files were left where they are" in caplog.text
    check_sound(sink.table())


OVERWRITES = ["static", "dynamic", "where region = 'EU'", "where id in (2, 9)"]


@pytest.mark.parametrize("kind", OVERWRITES)
@pytest.mark.parametrize("when", When)
def test_repeated_overwrite_does_not_replace_what_came_after_it(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str, when: When
) -> None:
    """A retry would throw away the rows that others have written since."""
    made = partitioned(sink)
    run(made, "append", [*in_region("EU", 1, 2), *in_region("US", 4)])
    faulty_catalog.fail_next(1, connection_lost, when=when)
    numbered: dict[str, Any] = {"txn_app_id": "load", "txn_version": 1}
    run(partitioned(faulty_sink), kind, in_region("EU", 9), **numbered)
    run(made, "append", in_region("EU", 2))
    before = ids_by_region(made)

    again = run(made, kind, in_region("EU", 9), **numbered)

    assert again.was_replayed
    assert ids_by_region(made) == before
    check_clean(made.table())


@pytest.mark.parametrize("kind", OVERWRITES)
def test_of_two_overwrites_with_one_version_at_once_one_is_skipped(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str
) -> None:
    """One of two runs of a task would fail with a conflict, although its work is done."""
    made = partitioned(sink)
    run(made, "append", [*in_region("EU", 1, 2), *in_region("US", 4)])
    numbered: dict[str, Any] = {"txn_app_id": "load", "txn_version": 1}
    slow = write(partitioned(faulty_sink), kind, in_region("EU", 9), **numbered)
    faulty_catalog.before_commit(1, lambda: run(made, kind, in_region("EU", 9), **numbered) and None)

    assert faulty_sink.commit(slow).was_replayed
    check_clean(made.table())


@pytest.mark.parametrize("kind", ["dynamic", "where region = 'JP'"])
def test_overwrite_that_changes_nothing_is_recorded(sink: Sink, kind: str) -> None:
    """A retry would replace what has come since."""
    made = partitioned(sink)
    run(made, "append", in_region("EU", 1))
    numbered: dict[str, Any] = {"txn_app_id": "load", "txn_version": 1}

    first = run(made, kind, [], **numbered)

    assert first.snapshot_id is not None
    assert run(made, kind, in_region("JP", 9), **numbered).was_replayed
    assert ids_by_region(made) == {"EU": [1]}
    check_clean(made.table())


def test_version_that_changes_the_schema_is_skipped_when_it_is_repeated(sink: Sink) -> None:
    """A retry would change the table's columns back, or fail because they have changed."""
    sink.append(1)
    text = spark.StructType(
        [spark.StructField("id", spark.StringType()), spark.StructField("name", spark.StringType())]
    )

    def replace_all() -> list[TaskCommit]:
        plan = sink.plan(text, WriteMode.OVERWRITE, schema_evolution="full", txn_app_id="load", txn_version=1)
        return sink.write([{"id": "a", "name": "b"}], schema=text, plan=plan)

    first, again = replace_all(), replace_all()
    sink.commit(first)

    assert sink.commit(again).was_replayed
    assert sink.commit(replace_all()).was_replayed
    assert sink.rows() == [{"id": "a", "name": "b"}]
    check_clean(sink.table())


def test_each_branch_has_versions_of_its_own(sink: Sink) -> None:
    """A version that is on one branch would be missing on the other."""
    append(sink, 1, 1)
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="audit", create_branch=True)))

    assert append(sink, 2, 3).snapshot_id is not None
    assert append(sink, 2, 3, branch="audit").snapshot_id is not None
    assert append(sink, 2, 3, branch="audit").was_replayed
    assert sink.ids() == [1, 3]
    assert ids_of(sink, "audit") == [1, 2, 3]


@pytest.mark.parametrize("expire", [False, True], ids=["", "expired"])
def test_branch_has_the_versions_of_the_one_that_it_was_forked_from(sink: Sink, *, expire: bool) -> None:
    """A version whose rows came along with the fork would be there twice."""
    append(sink, 1, 1)
    append(sink, 1, 2, app_id="other")
    append(sink, 2, 3, app_id="other", branch="audit", create_branch=True)
    append(sink, 3, 4, app_id="other", branch="audit")
    sink.append(5)
    if expire:
        expire_all_but_heads(sink)

    assert append(sink, 1, 1, branch="audit").was_replayed
    assert append(sink, 2, 6, branch="audit").snapshot_id is not None
    assert ids_of(sink, "audit") == [1, 2, 3, 4, 6]


def test_version_of_a_dropped_branch_is_written_again_to_a_new_one_of_its_name(sink: Sink) -> None:
    """A version would be skipped on a branch that does not have its rows."""
    append(sink, 1, 1)
    append(sink, 2, 2, branch="audit", create_branch=True)
    with sink.table().manage_snapshots() as change:
        change.remove_branch("audit")

    again = append(sink, 2, 2, branch="audit", create_branch=True)

    assert again.snapshot_id is not None
    assert append(sink, 2, 2, branch="audit").was_replayed
    assert ids_of(sink, "audit") == [1, 2]


def test_staged_version_is_recorded_where_it_is_published(sink: Sink) -> None:
    """A retry would double the rows, with a staging branch or without."""
    append(sink, 1, 1)
    append(sink, 2, 2, staging_branch="staging")
    sink.append(3)
    expire_all_but_heads(sink)

    assert append(sink, 2, 2).was_replayed
    assert append(sink, 2, 2, staging_branch="staging").was_replayed
    assert append(sink, 3, 4, staging_branch="staging").snapshot_id is not None
    assert sink.ids() == [1, 2, 3, 4]
    check_sound(sink.table())


@pytest.mark.parametrize("expire", [False, True], ids=["", "expired"])
def test_version_on_a_branch_that_is_published_is_recorded_on_main(sink: Sink, *, expire: bool) -> None:
    """A version would be there twice on main: by its branch, and by a retry."""
    sink.append(1)
    append(sink, 2, 2, branch="audit", create_branch=True)

    publish("db.t", "audit", options={"warehouse": str(sink.options.warehouse)})
    table = plain_table(sink)  # no commit of the sink, which would write down what history tells
    table.append(pa.Table.from_pylist(rows(3), schema=table.schema().as_arrow()))
    if expire:
        drop_branch(sink, "audit")  # else its snapshot stays
        expire_all_but_heads(sink)

    assert append(sink, 2, 2).was_replayed
    assert sink.ids() == [1, 2, 3]


def test_staged_version_that_was_not_published_is_refused_and_after_publishing_skipped(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A run that died between commit and publishing would be skipped by its retry: its rows would never be seen."""
    append(sink, 1, 1)
    faulty_catalog.pass_next(1)
    faulty_catalog.fail_next(999, forbidden)
    with pytest.raises(Exception, match=r"were committed to branch 'staging' .* not on 'main': .* no right to write"):
        append(faulty_sink, 2, 2, staging_branch="staging")
    assert sink.ids() == [1]

    with pytest.raises(OptionError, match=r"Publish it with iceberg_ds\.publish"):
        append(sink, 2, 2, staging_branch="staging")
    publish("db.t", "staging", options={"warehouse": str(sink.options.warehouse)})

    assert append(sink, 2, 2, staging_branch="staging").was_replayed
    assert sink.ids() == [1, 2]


def test_skipped_write_deletes_nothing_but_its_own_files(sink: Sink) -> None:
    """A skipped write would take files of the table with it."""
    first = written(sink, 1, 1)
    sink.commit(first)
    again = written(sink, 1, 1)

    sink.commit(again)

    assert all(path.exists() for path in paths_of(first))
    assert not any(path.exists() for path in paths_of(again))
