"""Branches: where a write to one begins, what it leaves alone, and which names are refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, refusal
from support.checks.invariants import check_clean, check_sound
from support.tables.metadata import Past, line, metadata_of
from support.tables.regions import ids_by_region, in_region, partitioned, run, write
from support.tables.sink import Sink, epoch, paths_of, rows

from iceberg_ds.errors import CommitConflictError, OptionError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import Route
from iceberg_ds.snapshots.refs import (
    BranchHistory,
    branch_head,
    branch_history,
    branch_snapshot_id,
    contains,
    snapshots_since,
    waits,
    why_not_writable,
    write_base,
)

FORKED = [*line(1, 2, 3), Past(snapshot_id=4, parent=2), Past(snapshot_id=5, parent=4)]


@pytest.fixture
def forked() -> TableMetadata:
    """Return a table whose branch `audit` left `main` at snapshot 2, with a tag on snapshot 1."""
    made = metadata_of(FORKED, branches={"main": 3, "audit": 5})
    made.refs["release"] = SnapshotRef(snapshot_id=1, snapshot_ref_type=SnapshotRefType.TAG)
    return made


def ids(snapshots: object) -> list[int]:
    """Return the ids of snapshots."""
    return [snapshot.snapshot_id for snapshot in snapshots]  # type: ignore[attr-defined]


def test_history_of_a_branch_is_its_own_line(forked: TableMetadata) -> None:
    """Epochs that another branch has would be taken for this one's, and skipped."""
    assert ids(branch_history(forked, "main")) == [3, 2, 1]
    assert ids(branch_history(forked, "audit")) == [5, 4, 2, 1]
    assert ids(branch_history(forked, "missing")) == []
    assert (branch_snapshot_id(forked, "audit"), branch_snapshot_id(forked, "missing")) == (5, None)
    assert branch_head(forked, "missing") is None


@pytest.mark.parametrize("branch", ["main", "audit", "missing"])
def test_history_is_the_same_however_often_it_is_asked_for(forked: TableMetadata, branch: str) -> None:
    """A look at a history would hide snapshots, and with them marks, from the next one."""
    shown = ids(branch_history(forked, branch))

    history = BranchHistory(forked, branch)
    within = [(one.snapshot_id, ids(history)) for one in history]
    begun = iter(BranchHistory(forked, branch))

    assert within == [(snapshot_id, shown) for snapshot_id in shown]
    assert ids(history) == shown
    assert [snapshot.snapshot_id for snapshot in (next(begun, None),) if snapshot is not None] == shown[:1]
    assert (history.oldest.snapshot_id if history.oldest is not None else None) == (shown or [None])[-1]
    assert ids(history.main) == [3, 2, 1]
    assert (history.main is history) == (branch == "main")


def test_oldest_snapshot_is_found_in_the_middle_of_a_look(forked: TableMetadata) -> None:
    """The rest of a history would be passed over after that question, and its marks with it."""
    history = BranchHistory(forked, "audit")
    looked = iter(history)
    first = next(looked)

    assert history.oldest is not None
    assert (first.snapshot_id, history.oldest.snapshot_id, ids(looked)) == (5, 1, [4, 2, 1])


def test_history_ends_where_snapshots_have_expired() -> None:
    """A stream on a table with expired snapshots would fail."""
    assert ids(branch_history(metadata_of([Past(snapshot_id=8, parent=7), Past(snapshot_id=9, parent=8)]), "main")) == [
        9,
        8,
    ]


@pytest.mark.parametrize("parent", [8, 9])
def test_history_with_parents_in_a_circle_ends(parent: int) -> None:
    """Every write to a table with damaged metadata would hang for ever."""
    metadata = metadata_of([Past(snapshot_id=8, parent=parent), Past(snapshot_id=9, parent=8)])

    assert ids(branch_history(metadata, "main")) == [9, 8]


@pytest.mark.parametrize(
    ("branch", "fork_from", "publish_to", "base"),
    [
        ("main", None, None, 3),
        ("audit", None, None, 5),
        ("audit", "main", None, 5),
        ("new", "main", None, 3),
        ("new", "audit", None, 5),
        ("new", "missing", None, None),
        ("missing", None, None, None),
        ("staging", "main", "main", 3),
        ("audit", "main", "main", 3),
    ],
)
def test_write_builds_on_its_branch_or_on_the_one_that_it_is_forked_from(
    forked: TableMetadata, branch: str, fork_from: str | None, publish_to: str | None, base: int | None
) -> None:
    """Rows of the branch would be missing in its next snapshot, or those of another be there."""
    found = write_base(forked, Route(branch=branch, fork_from=fork_from, publish_to=publish_to))

    assert (found.snapshot_id if found else None) == base


@pytest.mark.parametrize(
    ("branch", "fork_from", "publish_to", "reason"),
    [
        ("main", None, None, None),
        ("audit", None, None, None),
        ("audit", "main", None, None),
        ("new", "main", None, None),
        ("new", None, None, "it has no branch 'new'"),
        ("release", None, None, "'release' is a tag, which always stays where it is"),
        ("release", "main", None, "'release' is a tag"),
        ("release", "main", "main", "'release' is a tag"),
        ("staging", "main", "main", None),
        ("audit", "main", "main", "staging branch 'audit' holds snapshot 5, which 'main' has not"),
    ],
)
def test_branch_is_writable_or_the_reason_says_why_not(
    forked: TableMetadata, branch: str, fork_from: str | None, publish_to: str | None, reason: str | None
) -> None:
    """Rows would land where nobody looks for them, a tag would move, or rows be published that nobody meant to."""
    found = why_not_writable(forked, Route(branch=branch, fork_from=fork_from, publish_to=publish_to))

    assert (found is None) if reason is None else (found is not None and reason in found)


def test_main_is_writable_before_it_exists() -> None:
    """The first write into a new table would be refused."""
    assert why_not_writable(metadata_of(), Route(branch="main")) is None


def test_staging_branch_behind_its_target_is_writable() -> None:
    """Every second staged write would be refused."""
    behind = metadata_of(line(1, 2, 3), branches={"main": 3, "staging": 2})
    level = metadata_of(line(1, 2, 3), branches={"main": 3, "staging": 3})

    route = Route(branch="staging", fork_from="main", publish_to="main")

    assert why_not_writable(behind, route) is None
    assert why_not_writable(level, route) is None


# Branch `waiting` left `main` at snapshot 2; what it has itself is said for each of its snapshots.
STAGED = {"icebergsink.staged-for": "main"}
NO_ROWS = {"operation": "replace"}
SAME_ROWS = {"operation": "overwrite", "icebergsink.keeps-rows": "true"}
WAITING = Route(branch="waiting", fork_from="main", publish_to="main", converts=True)


def waiting_metadata(*summaries: Mapping[str, str], main: int = 2) -> TableMetadata:
    """Return a table whose staging branch has such snapshots beyond snapshot 2, and whose `main` stands at another."""
    numbers = range(10, 10 + len(summaries))
    own = [
        Past(snapshot_id=number, parent=number - 1 if number > 10 else 2, summary=summary)
        for number, summary in zip(numbers, summaries, strict=True)
    ]
    return metadata_of([*line(1, 2, 3), *own], branches={"main": main, "waiting": own[-1].snapshot_id if own else 2})


@pytest.mark.parametrize(
    ("metadata", "base", "reason"),
    [
        (waiting_metadata(), 2, None),
        (waiting_metadata(main=3), 3, None),
        (waiting_metadata(STAGED), 10, None),
        (waiting_metadata(STAGED, NO_ROWS, STAGED), 12, None),
        (waiting_metadata({}), 10, None),
        (waiting_metadata(STAGED, main=3), 3, None),
        (waiting_metadata(STAGED, NO_ROWS, STAGED, main=3), 3, None),
        (waiting_metadata(STAGED, SAME_ROWS, STAGED, main=3), 3, None),
        (waiting_metadata({}, main=3), 10, "'main' has moved on to snapshot 3, and staging branch 'waiting'"),
        (waiting_metadata(STAGED, {}, STAGED, main=3), 12, "holds rows of a write without a number"),
        (waiting_metadata({"icebergsink.staged-for": "audit"}, main=3), 10, "holds rows of a write without a number"),
    ],
    ids=[
        "level",
        "behind",
        "ahead",
        "far ahead",
        "ahead without a number",
        "beside",
        "beside with other files",
        "beside with a conversion",
        "beside without a number",
        "beside without a number among others",
        "beside for another branch",
    ],
)
def test_staging_branch_that_is_converted_keeps_what_waits(
    metadata: TableMetadata, base: int, reason: str | None
) -> None:
    """What a killed writer has staged would be lost, or written once more, or nothing could ever be published again."""
    found = write_base(metadata, WAITING)
    refused = why_not_writable(metadata, WAITING)

    assert found is not None
    assert found.snapshot_id == base
    assert waits(metadata, "waiting", "main") == (base >= 10)
    assert (refused is None) if reason is None else (refused is not None and reason in refused)


def test_staging_branch_whose_origin_has_expired_is_not_given_up() -> None:
    """Rows of writes that nobody repeats might be among those that cannot be seen any more."""
    cut = metadata_of(
        [*line(1, 2, 3), Past(snapshot_id=11, parent=10, summary=STAGED)], branches={"main": 3, "waiting": 11}
    )

    assert waits(cut, "waiting", "main")
    assert "history has expired" in (why_not_writable(cut, WAITING) or "")


def test_missing_staging_branch_begins_with_the_branch_to_publish_to() -> None:
    """The first epoch would be written into an empty table."""
    found = write_base(metadata_of(line(1, 2)), WAITING)

    assert found is not None
    assert found.snapshot_id == 2


def test_snapshots_since_a_base_are_those_that_came_after_it(forked: TableMetadata) -> None:
    """Changes of others would not be seen, or those of another branch be taken for conflicts."""
    audit, main = branch_head(forked, "audit"), branch_head(forked, "main")

    assert ids(snapshots_since(forked, audit, 2) or []) == [5, 4]
    assert ids(snapshots_since(forked, audit, None) or []) == [5, 4, 2, 1]
    assert snapshots_since(forked, audit, 5) == []
    assert snapshots_since(forked, main, 4) is None
    assert snapshots_since(forked, None, None) == []
    assert snapshots_since(forked, None, 1) is None


def test_branch_contains_what_lies_behind_it(forked: TableMetadata) -> None:
    """A branch that was published would be published again, or one that was not be taken for it."""
    assert contains(forked, "main", 1)
    assert contains(forked, "main", 3)
    assert not contains(forked, "main", 4)
    assert not contains(forked, "missing", 1)


def ids_of(sink: Sink, branch: str) -> list[int]:
    """Return the ids of a branch's rows."""
    return [row["id"] for row in sink.rows_of(branch)]


def append(sink: Sink, *numbers: int, **options: object) -> None:
    """Append rows with these options."""
    sink.commit(written(sink, *numbers, **options))


def written(sink: Sink, *numbers: int, **options: object) -> list[TaskCommit]:
    """Run the task of an append with these options."""
    return sink.write(rows(*numbers), plan=sink.plan(**options))


def test_branch_is_forked_from_main_in_the_commit_of_its_first_rows(sink: Sink) -> None:
    """Rows of main would be missing on the branch, or the branch be there before its rows."""
    sink.append(1)

    append(sink, 2, branch="audit", create_branch=True)

    assert ids_of(sink, "audit") == [1, 2]
    assert sink.ids() == [1]
    assert len(sink.table().metadata.snapshots) == 2
    check_clean(sink.table())


def test_branch_is_forked_from_where_main_stands_at_the_commit(sink: Sink) -> None:
    """Rows that came to main while the write ran would be missing on the branch."""
    sink.append(1)
    messages = written(sink, 2, branch="audit", create_branch=True)
    sink.append(3)

    sink.commit(messages)

    assert ids_of(sink, "audit") == [1, 2, 3]
    assert sink.ids() == [1, 3]


def test_create_branch_writes_to_a_branch_that_is_there(sink: Sink) -> None:
    """A restarted job would fork again, and lose the branch's rows."""
    sink.append(1)
    append(sink, 2, branch="audit", create_branch=True)
    sink.append(3)

    append(sink, 4, branch="audit", create_branch=True)

    assert ids_of(sink, "audit") == [1, 2, 4]


def test_first_write_of_a_table_may_go_to_a_branch(sink: Sink) -> None:
    """A pipeline that publishes after checks could not create its table."""
    append(sink, 1, branch="audit", create_branch=True)

    assert ids_of(sink, "audit") == [1]
    assert sink.rows() == []
    check_clean(sink.table())


def test_branch_of_a_table_without_a_snapshot_is_refused(sink: Sink) -> None:
    """The write would be tried for minutes, because catalogs refuse such a branch."""
    sink.commit(sink.write([]))

    with pytest.raises(OptionError, match=r"branch 'audit' cannot be forked.*no snapshot yet\. Write to main first"):
        sink.plan(branch="audit", create_branch=True)
    with pytest.raises(OptionError, match="no branch 'audit'"):
        sink.plan(branch="audit")


def test_two_writers_that_create_one_branch_both_land_on_it(sink: Sink) -> None:
    """Rows of one of them would be lost, because both forked."""
    sink.append(1)
    first, second = (written(sink, number, branch="audit", create_branch=True) for number in (2, 3))

    sink.commit(first)
    sink.commit(second)

    assert ids_of(sink, "audit") == [1, 2, 3]
    check_clean(sink.table())


@pytest.mark.parametrize("kind", ["static", "dynamic", "where region = 'EU'", "where id = 1 or id = 9"])
def test_overwrite_of_a_branch_leaves_main_alone(sink: Sink, kind: str) -> None:
    """Readers of main would see the rows of a branch, or lose theirs."""
    table = partitioned(sink)
    run(table, "append", in_region("EU", 1, 2))
    run(table, "append", in_region("US", 3), branch="audit", create_branch=True)

    run(table, kind, in_region("EU", 9), branch="audit")

    expected = {"static": {"EU": [9]}, "where id = 1 or id = 9": {"EU": [2, 9], "US": [3]}}
    assert ids_by_region(table, "audit") == expected.get(kind, {"EU": [9], "US": [3]})
    assert ids_by_region(table) == {"EU": [1, 2]}
    check_clean(table.table())


def test_overwrite_may_create_its_branch(sink: Sink) -> None:
    """A backfill on a branch would need a step of its own before it."""
    table = partitioned(sink)
    run(table, "append", [*in_region("EU", 1), *in_region("US", 2)])

    run(table, "dynamic", in_region("EU", 9), branch="audit", create_branch=True)

    assert ids_by_region(table, "audit") == {"EU": [9], "US": [2]}
    assert ids_by_region(table) == {"EU": [1], "US": [2]}


def test_writes_to_other_branches_are_no_conflict(sink: Sink) -> None:
    """Work on branches would stop the loads of main."""
    table = partitioned(sink)
    run(table, "append", in_region("EU", 1))
    messages = write(table, "static", in_region("EU", 9), branch="audit", create_branch=True)
    other = write(table, "static", in_region("EU", 8))
    run(table, "append", in_region("EU", 2), branch="third", create_branch=True)

    table.commit(messages)
    table.commit(other)

    assert ids_by_region(table, "audit") == {"EU": [9]}
    assert ids_by_region(table, "third") == {"EU": [1, 2]}
    assert ids_by_region(table) == {"EU": [8]}
    check_clean(table.table())


def test_rows_that_come_to_main_are_a_conflict_for_an_overwrite_that_forks_from_it(sink: Sink) -> None:
    """Rows would be dropped on the branch that the write never saw."""
    table = partitioned(sink)
    run(table, "append", in_region("EU", 1))
    messages = write(table, "static", in_region("EU", 9), branch="audit", create_branch=True)
    run(table, "append", in_region("EU", 2))

    with pytest.raises(CommitConflictError, match=r"snapshot \d+ brought"):
        table.commit(messages)

    assert set(table.table().metadata.refs) == {"main"}
    check_clean(table.table())


def test_branch_that_is_dropped_while_rows_are_written_is_a_conflict(sink: Sink) -> None:
    """The branch would come back with the rows of one write alone, or the rows land elsewhere."""
    sink.append(1)
    append(sink, 2, branch="audit", create_branch=True)
    messages = written(sink, 3, branch="audit")
    with sink.table().manage_snapshots() as change:
        change.remove_branch("audit")

    with pytest.raises(CommitConflictError, match="it has no branch 'audit'"):
        sink.commit(messages)

    assert not any(path.exists() for path in paths_of(messages))
    assert set(sink.table().metadata.refs) == {"main"}


def test_branch_that_became_a_tag_is_a_conflict(sink: Sink) -> None:
    """A tag, which others rely on, would move."""
    sink.append(1)
    append(sink, 2, branch="audit", create_branch=True)
    messages = written(sink, 3, branch="audit")
    with sink.table().manage_snapshots() as change:
        change.remove_branch("audit").create_tag(sink.table().metadata.snapshots[0].snapshot_id, "audit")

    with pytest.raises(CommitConflictError, match="'audit' is a tag"):
        sink.commit(messages)

    assert ids_of(sink, "audit") == [1]


@pytest.mark.parametrize("options", [{"branch": "audit"}, {"branch": "audit", "staging_branch": "staging"}])
def test_missing_branch_is_refused_before_any_task(sink: Sink, options: dict[str, str]) -> None:
    """Rows would land on a branch that nobody reads because of a typing error."""
    sink.append(1)

    with pytest.raises(OptionError, match=r"no branch 'audit' \(known: main\)"):
        sink.plan(**options)


@pytest.mark.parametrize(
    "options",
    [{"branch": "release"}, {"branch": "release", "create_branch": True}, {"staging_branch": "release"}],
)
def test_tag_is_refused_before_any_task(sink: Sink, options: dict[str, object]) -> None:
    """A tag, which others rely on, would move."""
    sink.append(1)
    with sink.table().manage_snapshots() as change:
        change.create_tag(sink.table().metadata.snapshots[0].snapshot_id, "release")

    with pytest.raises(OptionError, match="'release' is a tag"):
        sink.plan(**options)


def test_retention_of_a_branch_is_kept(sink: Sink) -> None:
    """Snapshots of the branch would expire sooner than its owner asked for, or never."""
    sink.append(1)
    snapshot_id = sink.table().metadata.snapshots[0].snapshot_id
    with sink.table().manage_snapshots() as change:
        change.create_branch(snapshot_id, "audit", max_ref_age_ms=7, max_snapshot_age_ms=8, min_snapshots_to_keep=9)

    append(sink, 2, branch="audit")

    ref = sink.table().metadata.refs["audit"]
    assert (ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (7, 8, 9)


def test_commit_to_a_branch_beside_one_to_main_is_tried_again(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, waits: list[float]
) -> None:
    """A table's numbers are shared by its branches, so a write to main in between would fail one to a branch."""
    sink.append(1)
    append(sink, 2, branch="audit", create_branch=True)
    messages = written(faulty_sink, 3, branch="audit")
    faulty_catalog.before_commit(1, lambda: sink.append(4) and None)

    faulty_sink.commit(messages)

    assert ids_of(sink, "audit") == [1, 2, 3]
    assert sink.ids() == [1, 4]
    assert len(waits) == 1
    check_clean(sink.table())


def epoch_on_branch(sink: Sink, epoch_id: int, number: int) -> list[TaskCommit]:
    """Run the task of a micro-batch that goes to a branch."""
    plan = sink.plan(branch="audit", create_branch=True)
    return sink.write(rows(number), plan=plan, of_epoch=epoch(epoch_id))


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("when", When)
def test_epoch_on_a_branch_is_recognised_when_it_comes_again(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, when: When
) -> None:
    """A restarted stream would double its rows on the branch, or leave some out."""
    sink.append(1)
    faulty_catalog.fail_next(1, connection_lost, when=when)
    faulty_sink.commit(epoch_on_branch(faulty_sink, 5, 10))
    sink.append(2)

    again = sink.commit(epoch_on_branch(sink, 5, 10))
    after = sink.commit(epoch_on_branch(sink, 6, 11))

    assert again.was_replayed
    assert after.snapshot_id is not None
    assert ids_of(sink, "audit") == [1, 10, 11]
    assert sink.ids() == [1, 2]
    assert f"icebergsink.last-epoch.audit.{epoch(0).query_id}" in sink.table().properties
    assert f"icebergsink.last-epoch.main.{epoch(0).query_id}" not in sink.table().properties
    check_clean(sink.table())


def test_epochs_of_one_query_on_two_branches_are_told_apart(sink: Sink) -> None:
    """A stream whose branch was changed would skip the epochs that it wrote to the other one."""
    sink.append(1)
    append(sink, 2, branch="audit", create_branch=True)
    for branch in ("main", "audit"):
        sink.commit(sink.write(rows(10), plan=sink.plan(branch=branch), of_epoch=epoch(5)))

    assert ids_of(sink, "audit") == [1, 2, 10]
    assert sink.ids() == [1, 10]


@pytest.mark.usefixtures("waits")
def test_refusals_of_a_write_to_a_new_branch_leave_nothing_behind(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A failed write would leave a branch or files."""
    sink.append(1)
    with sink.table().transaction() as change:
        change.set_properties({"commit.retry.num-retries": "3"})
    messages = written(faulty_sink, 2, branch="audit", create_branch=True)
    faulty_catalog.fail_next(999, refusal)

    with pytest.raises(CommitConflictError, match="Nothing was committed"):
        faulty_sink.commit(messages)

    assert set(sink.table().metadata.refs) == {"main"}
    check_clean(sink.table())
    check_sound(sink.table())


def test_epoch_that_main_has_is_not_written_again_to_a_branch_that_is_forked_from_it(sink: Sink) -> None:
    """A stream that is moved to a branch after a crash would have its last epoch there twice."""
    sink.append(1, of_epoch=epoch(0))
    plan = sink.plan(branch="audit", create_branch=True)

    result = sink.commit(sink.write(rows(1), plan=plan, of_epoch=epoch(0)))
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="audit", create_branch=True), of_epoch=epoch(1)))

    found = sink.table().scan().use_ref("audit").to_arrow()["id"].to_pylist()
    assert result.was_replayed
    assert sorted(found) == [1, 2]
