"""Marks after others have dropped, replaced, rolled back, picked, forked and expired: no row is skipped or doubled."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from support.checks.invariants import check_clean, check_sound
from support.tables.changes_by_others import cherry_pick, drop_branch, expire, head_of, plain_table, set_branch
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import IDENTIFIER, NAME, QUERY, Sink, epoch, rows

import iceberg_ds
from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.errors import CommitConflictError, OptionError, UnsupportedTableError
from iceberg_ds.expressions.parser import Call, Value, parse_predicate
from iceberg_ds.snapshots.refs import branch_property
from iceberg_ds.snapshots.txn import EPOCHS, TXNS

pytestmark = pytest.mark.usefixtures("waits")

KEY = branch_property(TXNS.property_prefix, "audit", "load")


def append(sink: Sink, version: int, *ids: int, **options: Any) -> CommitResult:
    """Append a numbered batch."""
    return sink.commit(sink.write(rows(*ids), plan=sink.plan(txn_app_id="load", txn_version=version, **options)))


def ids_of(sink: Sink, branch: str) -> list[int]:
    """Return the ids of a branch."""
    return [row["id"] for row in sink.rows_of(branch)]


@pytest.fixture
def audited(sink: Sink) -> Sink:
    """Return a table with row 1 on main, and row 2 as version 1 on branch `audit`, forked from main."""
    sink.append(1)
    append(sink, 1, 2, branch="audit", create_branch=True)
    return sink


def test_version_of_a_dropped_branch_is_not_skipped_on_its_successor(audited: Sink) -> None:
    """Rows of a batch would be lost: they are on no branch, and the batch says that it is done."""
    drop_branch(audited, "audit")
    set_branch(audited, "audit", head_of(audited))

    with pytest.raises(CommitConflictError, match=r"branch 'audit' does not have that snapshot.*UNSET TBLPROPERTIES"):
        append(audited, 1, 2, branch="audit")

    assert ids_of(audited, "audit") == [1]
    with plain_table(audited).transaction() as change:  # as the error says
        change.remove_properties(KEY)
    append(audited, 1, 2, branch="audit")
    assert ids_of(audited, "audit") == [1, 2]
    check_clean(audited.table())


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_version_of_a_dropped_branch_is_not_skipped_after_expiry(audited: Sink, *, cuts_parents: bool) -> None:
    """The same loss, once nobody can see that the snapshot was another branch's."""
    drop_branch(audited, "audit")
    plain_table(audited).append(audited.table().scan().to_arrow())  # no commit of the sink, which would see the drop
    set_branch(audited, "audit", head_of(audited))
    expire(audited, cuts_parents=cuts_parents)

    with pytest.raises(CommitConflictError, match=r"history has expired.*UNSET TBLPROPERTIES"):
        append(audited, 1, 2, branch="audit")


@pytest.mark.parametrize("is_noted", [False, True], ids=["at once", "after another commit"])
@pytest.mark.parametrize("cuts_parents", [False, True])
def test_version_of_a_branch_that_followed_main_is_not_called_gone(
    audited: Sink, *, cuts_parents: bool, is_noted: bool
) -> None:
    """The error said that the rows were not there, and to write them again doubled them."""
    set_branch(audited, "main", head_of(audited, "audit"))  # CALL fast_forward of SQL
    for _ in range(2):  # no commits of the sink, which would write down what history tells
        plain_table(audited).append(audited.table().scan().to_arrow().slice(0, 1))
    set_branch(audited, "audit", head_of(audited))
    expire(audited, cuts_parents=cuts_parents)
    if is_noted:
        audited.commit(audited.write(rows(5), plan=audited.plan(branch="audit")))

    with pytest.raises(CommitConflictError, match=r"history has expired.*has no marker of it") as refusal:
        append(audited, 1, 2, branch="audit")

    advised = re.search(r"SET TBLPROPERTIES \('(.*?)' = '(.*?)'\)", str(refusal.value))
    assert advised is not None
    with plain_table(audited).transaction() as change:  # since the rows are there
        change.set_properties({advised[1]: advised[2]})
    assert append(audited, 1, 2, branch="audit").was_replayed
    assert append(audited, 1, 2).was_replayed
    assert 2 in audited.ids()


@pytest.mark.parametrize("branch", ["it's \\new", "'", 'a "b". %', "x" * 160])
@pytest.mark.parametrize("is_expired", [False, True])
def test_advised_sql_names_the_property_of_any_branch(sink: Sink, branch: str, *, is_expired: bool) -> None:
    """The statement would not parse, or would name a property that is not there, and the write be refused for ever."""
    sink.append(1)
    append(sink, 1, 2, branch=branch, create_branch=True)
    if is_expired:
        plain_table(sink).append(sink.table().scan().to_arrow())
    set_branch(sink, branch, head_of(sink))
    if is_expired:
        expire(sink)

    with pytest.raises(CommitConflictError) as refusal:
        append(sink, 1, 2, branch=branch)

    literal = re.search(r"UNSET TBLPROPERTIES \((.*?)\)\)", str(refusal.value))
    assert literal is not None
    named = parse_predicate(f"x = {literal[1]}")
    assert isinstance(named, Call)
    assert repr(named.operands[1]) == repr(Value("string", branch_property(TXNS.property_prefix, branch, "load")))


def test_next_version_goes_on_after_a_branch_was_made_again(audited: Sink) -> None:
    """A pipeline would stop although nothing is in doubt."""
    drop_branch(audited, "audit")
    set_branch(audited, "audit", head_of(audited))

    append(audited, 2, 3, branch="audit")

    assert ids_of(audited, "audit") == [1, 3]
    assert append(audited, 2, 3, branch="audit").was_replayed


def test_stream_goes_on_after_an_epoch_that_came_back_unseen(sink: Sink) -> None:
    """A stream has no other number for its epoch: it would be refused at each start, though the rows are there."""
    sink.append(1)
    before = head_of(sink)
    sink.append(2, of_epoch=epoch(0))
    with_epoch = head_of(sink)
    set_branch(sink, "main", before)
    sink.append(3)  # sees that the epoch is gone
    set_branch(sink, "main", with_epoch)
    for _ in range(2):  # no commits of the sink, which would see that it is back
        plain_table(sink).append(sink.table().scan("id = 1").to_arrow())
    expire(sink)

    with pytest.raises(CommitConflictError, match=r"history has expired.*did not find it there") as refused:
        sink.append(2, of_epoch=epoch(0))

    advised = re.search(r"SET TBLPROPERTIES \('(.+?)' = '(.+?)'\)", str(refused.value))
    assert advised is not None, refused.value
    with plain_table(sink).transaction() as change:  # as the error says
        change.set_properties({advised[1]: advised[2]})
    assert sink.append(2, of_epoch=epoch(0)).was_replayed
    sink.append(4, of_epoch=epoch(1))
    assert sink.ids().count(2) == 1
    assert 4 in sink.ids()


def test_stray_mark_is_not_published(audited: Sink) -> None:
    """The version could never land on main."""
    drop_branch(audited, "audit")
    set_branch(audited, "audit", head_of(audited))
    audited.commit(audited.write(rows(4), plan=audited.plan(branch="audit")))

    publish_branch(audited.catalog, IDENTIFIER, "audit", "main")

    append(audited, 1, 2)
    assert audited.ids() == [1, 2, 4]


def test_stray_mark_does_not_go_to_a_fork(sink: Sink) -> None:
    """The version could never land on the fork."""
    sink.append(1)
    at = head_of(sink)
    append(sink, 1, 2)
    set_branch(sink, "main", at)

    sink.commit(sink.write(rows(3), plan=sink.plan(branch="audit", create_branch=True)))

    append(sink, 1, 2, branch="audit")
    assert ids_of(sink, "audit") == [1, 2, 3]


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_stray_mark_does_not_go_to_a_fork_after_expiry(sink: Sink, *, cuts_parents: bool) -> None:
    """The version would be skipped on the fork, and its rows be nowhere: only the fork's commit saw main replaced."""
    sink.append(1)
    append(sink, 1, 2)
    drop_branch(sink, "main")
    plain_table(sink).append(sink.table().schema().as_arrow().empty_table())
    sink.commit(sink.write(rows(3), plan=sink.plan(branch="audit", create_branch=True)))
    for branch in ("main", "audit"):
        plain_table(sink).append(sink.table().schema().as_arrow().empty_table(), branch=branch)
    expire(sink, cuts_parents=cuts_parents)

    append(sink, 1, 2, branch="audit")

    assert ids_of(sink, "audit") == [2, 3]
    with pytest.raises(CommitConflictError, match="UNSET TBLPROPERTIES"):
        append(sink, 1, 2)


def test_epoch_that_was_rolled_back_is_neither_skipped_nor_added_unasked(sink: Sink) -> None:
    """A replayed epoch would be lost, or rows that somebody took out would come back."""
    sink.append(1, of_epoch=epoch(0))
    at = head_of(sink)
    sink.append(2, of_epoch=epoch(1))
    set_branch(sink, "main", at)

    with pytest.raises(CommitConflictError, match=f"{branch_property(EPOCHS.property_prefix, 'main', QUERY)}.*rolled"):
        sink.append(2, of_epoch=epoch(1))

    sink.append(3, of_epoch=epoch(2))
    assert sink.ids() == [1, 3]
    assert sink.append(3, of_epoch=epoch(2)).was_replayed
    check_clean(sink.table())


@pytest.mark.parametrize("expires", [None, False, True])
def test_version_before_a_replacement_of_the_table_is_not_skipped(sink: Sink, expires: bool | None) -> None:  # noqa: FBT001
    """CREATE OR REPLACE TABLE keeps uuid and properties: the batch would be lost without a word."""
    append(sink, 1, 1)
    drop_branch(sink, "main")
    sink.append(7)
    if expires is not None:
        expire(sink, cuts_parents=expires)

    with pytest.raises(CommitConflictError, match="replaced the table"):
        append(sink, 1, 1)

    append(sink, 2, 2)
    assert sink.ids() == [2, 7]


def test_replaced_table_without_rows_does_not_skip(sink: Sink) -> None:
    """The same, before anybody has written to the new table."""
    append(sink, 1, 1)
    drop_branch(sink, "main")

    with pytest.raises(CommitConflictError, match="does not have that snapshot"):
        append(sink, 1, 1)


def test_version_that_somebody_cherry_picked_is_not_added_twice(audited: Sink) -> None:
    """Rows would be there twice: the picked snapshot has another id, and no mark."""
    cherry_pick(audited, head_of(audited, "audit"))

    assert append(audited, 1, 2).was_replayed
    assert audited.ids() == [1, 2]
    drop_branch(audited, "audit")
    audited.append(5)
    expire(audited)
    assert append(audited, 1, 2).was_replayed
    append(audited, 2, 3)
    assert audited.ids() == [1, 2, 3, 5]


def test_version_that_somebody_cherry_picked_twice_is_not_added_again(audited: Sink) -> None:
    """Rows would be there twice: what was picked last is a pick itself, and has no mark either."""
    base = head_of(audited)
    audited.append(8)
    cherry_pick(audited, head_of(audited, "audit"))
    picked = head_of(audited)
    set_branch(audited, "main", base)
    audited.append(9)
    cherry_pick(audited, picked)

    assert append(audited, 1, 2).was_replayed
    assert audited.ids() == [1, 2, 9]


def test_version_that_was_picked_is_not_added_after_a_lower_one(audited: Sink) -> None:
    """Rows would be there twice: the picked snapshot lies behind the mark of the lower version."""
    append(audited, 2, 3, branch="audit")
    cherry_pick(audited, head_of(audited, "audit"))

    append(audited, 1, 2)
    result = append(audited, 2, 3)

    assert result.was_replayed
    assert audited.ids() == [1, 2, 3]


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_versions_survive_expiry(sink: Sink, *, cuts_parents: bool) -> None:
    """A repeated batch would be doubled, or refused for no reason."""
    append(sink, 1, 1)
    sink.append(2)
    sink.append(3)
    expire(sink, cuts_parents=cuts_parents)

    assert append(sink, 1, 1).was_replayed
    assert sink.ids() == [1, 2, 3]


@pytest.mark.parametrize("cuts_parents", [False, True])
@pytest.mark.parametrize("goes_on", [False, True])
def test_version_of_main_is_skipped_on_a_branch_forked_after_expiry(
    sink: Sink, *, cuts_parents: bool, goes_on: bool
) -> None:
    """A branch that SQL made has main's rows, and would get them again: main's property alone tells of them."""
    append(sink, 1, 1)
    sink.append(9)
    expire(sink, cuts_parents=cuts_parents)
    set_branch(sink, "audit", head_of(sink))
    if goes_on:
        append(sink, 2, 2)

    result = append(sink, 1, 1, branch="audit")

    # With version 2 main's property says nothing of version 1 any more: docs/exactly-once.md.
    assert result.was_replayed is not goes_on
    assert sorted(ids_of(sink, "audit")) == ([1, 1, 9] if goes_on else [1, 9])
    check_sound(sink.table())


@pytest.mark.parametrize("cuts_parents", [False, True])
@pytest.mark.parametrize("is_moved", [False, True])
def test_version_of_main_stays_known_on_a_branch_forked_after_expiry(
    sink: Sink, *, cuts_parents: bool, is_moved: bool
) -> None:
    """A branch that SQL made or moved would get main's rows again, once main's property tells of a newer version."""
    append(sink, 1, 1)
    if is_moved:
        append(sink, 2, 2, branch="audit", create_branch=True)
    append(sink, 3, 3)
    sink.append(9)
    if is_moved:
        set_branch(sink, "audit", head_of(sink))
    expire(sink, cuts_parents=cuts_parents)
    set_branch(sink, "audit", head_of(sink))
    sink.commit(sink.write(rows(5), plan=sink.plan(txn_app_id="other", txn_version=1, branch="audit")))
    append(sink, 4, 4)

    assert append(sink, 3, 3, branch="audit").was_replayed
    assert ids_of(sink, "audit") == [1, 3, 5, 9]


def test_version_that_main_got_after_the_fork_lands_on_the_branch(sink: Sink) -> None:
    """Rows of a branch would be lost, because main has them."""
    sink.append(1)
    plain_table(sink).overwrite(sink.table().scan().to_arrow())
    expire(sink)
    set_branch(sink, "audit", head_of(sink))
    append(sink, 1, 2)

    append(sink, 1, 2, branch="audit")

    assert ids_of(sink, "audit") == [1, 2]


def test_version_of_main_lands_on_an_older_branch_after_expiry(sink: Sink) -> None:
    """The same loss, where nothing shows any more when main got the rows."""
    sink.append(1)
    plain_table(sink).overwrite(sink.table().scan().to_arrow())
    set_branch(sink, "audit", head_of(sink))
    append(sink, 1, 2)
    plain_table(sink).overwrite(sink.table().scan().to_arrow())
    expire(sink)

    append(sink, 1, 2, branch="audit")

    assert ids_of(sink, "audit") == [1, 2]


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_version_that_a_tag_keeps_is_skipped_after_expiry(sink: Sink, *, cuts_parents: bool) -> None:
    """A repeated batch, or a stream's epoch, would be refused for good, with advice that doubles it."""
    sink.append(1)
    append(sink, 1, 2)
    with plain_table(sink).manage_snapshots() as change:
        change.create_tag(head_of(sink), "nightly")
    sink.append(3)
    sink.append(4)
    expire(sink, cuts_parents=cuts_parents)

    assert append(sink, 1, 2).was_replayed
    sink.append(5)
    assert append(sink, 1, 2).was_replayed
    assert sink.ids() == [1, 2, 3, 4, 5]
    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)})
    assert result.ok, result


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_published_version_is_skipped_after_expiry(sink: Sink, *, cuts_parents: bool) -> None:
    """The staging branch keeps the snapshot, and main has it behind what has expired: the same refusal."""
    sink.append(1)
    append(sink, 1, 2, staging_branch="stage")
    sink.append(3)
    sink.append(4)
    expire(sink, cuts_parents=cuts_parents)

    assert append(sink, 1, 2, staging_branch="stage").was_replayed
    assert sink.ids() == [1, 2, 3, 4]


def test_version_of_before_an_upgrade_is_skipped_after_expiry(sink: Sink) -> None:
    """The first sequence number of an upgraded table was taken for the table's beginning, and the batch refused."""
    sink.create(ID_AND_NAME, format_version="1")
    sink.append(1)
    append(sink, 1, 2)
    with plain_table(sink).transaction() as change:
        change.upgrade_table_version(2)
    sink.append(3)
    expire(sink, cuts_parents=True)

    assert append(sink, 1, 2).was_replayed
    assert sink.ids() == [1, 2, 3]


@pytest.mark.parametrize("cuts_parents", [False, True])
@pytest.mark.parametrize("next_write", ["plain", "numbered", "published"])
def test_version_that_was_rolled_back_is_not_skipped_after_expiry(
    sink: Sink, next_write: str, *, cuts_parents: bool
) -> None:
    """Expired history does not tell that the rows were taken out: the batch would be lost without a word."""
    sink.append(1)
    at = head_of(sink)
    append(sink, 1, 2)
    set_branch(sink, "main", at)
    options: dict[str, Any] = {
        "plain": {},
        "numbered": {"txn_app_id": "other", "txn_version": 1},
        "published": {"staging_branch": "stage"},
    }[next_write]
    sink.commit(sink.write(rows(3), plan=sink.plan(**options)))
    sink.append(4)
    sink.append(5)
    expire(sink, cuts_parents=cuts_parents)

    with pytest.raises(CommitConflictError, match=r"history has expired.*an earlier commit did not find it"):
        append(sink, 1, 2)

    append(sink, 2, 6)
    assert sink.ids() == [1, 3, 4, 5, 6]
    assert append(sink, 2, 6).was_replayed


def test_version_that_came_back_is_skipped_again(sink: Sink) -> None:
    """A rollback that somebody takes back would leave a mark that is refused for good."""
    sink.append(1)
    at = head_of(sink)
    append(sink, 1, 2)
    landed = head_of(sink)
    set_branch(sink, "main", at)
    sink.append(3)
    set_branch(sink, "main", landed)
    sink.append(4)
    sink.append(5)
    expire(sink)

    assert append(sink, 1, 2).was_replayed
    assert sink.ids() == [1, 2, 4, 5]


@pytest.mark.parametrize("commits", [1, 2])
def test_what_was_published_and_rolled_back_is_not_called_published_after_expiry(sink: Sink, commits: int) -> None:
    """`publish` would say that readers have the rows, and the next staged write would drop them."""
    sink.append(1)
    at = head_of(sink)
    append(sink, 1, 2, staging_branch="stage")
    set_branch(sink, "main", at)
    for number in range(commits):
        sink.append(3 + number)
    expire(sink)

    with pytest.raises(CommitConflictError, match=r"history has expired|has moved on"):
        publish_branch(sink.catalog, IDENTIFIER, "stage", "main")
    with pytest.raises(OptionError, match="stage"):
        sink.plan(staging_branch="stage")


def test_what_was_published_to_an_earlier_branch_of_that_name_is_not_called_published(sink: Sink) -> None:
    """`publish` would say that a branch has rows that only its predecessor had."""
    sink.append(0)
    set_branch(sink, "audit", head_of(sink))
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="stage", create_branch=True)))
    publish_branch(sink.catalog, IDENTIFIER, "stage", "audit")
    for branch in ("audit", "main", "main"):
        sink.commit(sink.write(rows(3), plan=sink.plan(branch=branch)))
    expire(sink)
    drop_branch(sink, "audit")
    sink.commit(sink.write(rows(6), plan=sink.plan(branch="audit", create_branch=True)))

    with pytest.raises(CommitConflictError, match="history has expired"):
        publish_branch(sink.catalog, IDENTIFIER, "stage", "audit")


def test_verify_believes_a_mark_that_somebody_cherry_picked(audited: Sink) -> None:
    """A whole table would be called broken."""
    cherry_pick(audited, head_of(audited, "audit"))
    assert append(audited, 1, 2).was_replayed

    assert iceberg_ds.verify(NAME, options={"warehouse": str(audited.options.warehouse)}).ok


def test_mark_that_only_history_holds_is_written_down(sink: Sink) -> None:
    """After a fork by SQL and an expiry, rows of the forked branch would be doubled."""
    append(sink, 1, 1)
    set_branch(sink, "audit", head_of(sink))
    sink.commit(sink.write(rows(9), plan=sink.plan(txn_app_id="other", txn_version=1, branch="audit")))
    sink.append(5)
    expire(sink)

    assert append(sink, 1, 1, branch="audit").was_replayed
    assert ids_of(sink, "audit") == [1, 9]


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_plain_batch_writes_down_the_marks_that_only_history_holds(sink: Sink, *, cuts_parents: bool) -> None:
    """After a fork by SQL, a batch without a number and an expiry, rows of the forked branch would be doubled."""
    sink.append(0)
    append(sink, 1, 1)
    set_branch(sink, "audit", head_of(sink))
    sink.commit(sink.write(rows(9), plan=sink.plan(branch="audit")))
    sink.append(5)
    expire(sink, cuts_parents=cuts_parents)

    assert append(sink, 1, 1, branch="audit").was_replayed
    assert ids_of(sink, "audit") == [0, 1, 9]


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_plain_batch_writes_down_the_marks_of_a_fast_forward(audited: Sink, *, cuts_parents: bool) -> None:
    """After a fast-forward by SQL, a batch without a number and an expiry, rows of `main` would be doubled."""
    set_branch(audited, "main", head_of(audited, "audit"))
    drop_branch(audited, "audit")
    audited.append(8)
    audited.append(9)
    expire(audited, cuts_parents=cuts_parents)

    assert append(audited, 1, 2).was_replayed
    assert audited.ids() == [1, 2, 8, 9]


def test_plain_batch_writes_down_the_marks_of_a_branch_that_is_gone(audited: Sink) -> None:
    """Another commit had removed the marks of the gone branch, and rows of `main` would be doubled after an expiry."""
    set_branch(audited, "dev", head_of(audited))
    set_branch(audited, "main", head_of(audited, "audit"))
    drop_branch(audited, "audit")
    audited.commit(audited.write(rows(7), plan=audited.plan(branch="dev")))
    assert KEY not in audited.table().metadata.properties
    audited.append(8)
    audited.append(9)
    expire(audited)

    assert append(audited, 1, 2).was_replayed
    assert audited.ids() == [1, 2, 8, 9]


def test_plain_batch_writes_down_the_marks_of_a_branch_that_came_back(audited: Sink) -> None:
    """A branch that is dropped and made again of a snapshot of its own would get rows twice after an expiry."""
    at = head_of(audited, "audit")
    drop_branch(audited, "audit")
    audited.append(8)
    set_branch(audited, "audit", at)
    for number in (9, 10):
        audited.commit(audited.write(rows(number), plan=audited.plan(branch="audit")))
    expire(audited)

    assert append(audited, 1, 2, branch="audit").was_replayed
    assert ids_of(audited, "audit") == [1, 2, 9, 10]


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_mark_of_an_earlier_branch_is_not_proven_by_a_later_write_to_main(sink: Sink, *, cuts_parents: bool) -> None:
    """Rows would be missing on a branch that was moved to `main`: `main` got its own only after that."""
    sink.append(0)
    append(sink, 1, 2, branch="audit", create_branch=True)
    sink.commit(sink.write(rows(3), plan=sink.plan(branch="audit")))
    sink.append(4)
    sink.append(5)
    expire(sink, cuts_parents=cuts_parents)
    set_branch(sink, "audit", head_of(sink))
    append(sink, 1, 2)

    with pytest.raises(CommitConflictError, match=r"history has expired.*has only later ones.*UNSET TBLPROPERTIES"):
        append(sink, 1, 2, branch="audit")

    with plain_table(sink).transaction() as change:  # as the error says
        change.remove_properties(KEY)
    append(sink, 1, 2, branch="audit")
    assert ids_of(sink, "audit") == [0, 2, 4, 5]


@pytest.mark.parametrize("branch", ["main", "audit"])
def test_stray_mark_hides_no_other_write_with_its_number(audited: Sink, branch: str) -> None:
    """After an expiry a batch would be refused, with advice that doubles rows which the branch has from elsewhere."""
    append(audited, 1, 2)
    set_branch(audited, branch, head_of(audited, "main" if branch == "audit" else "audit"))
    for number in (3, 4):
        audited.commit(audited.write(rows(number), plan=audited.plan(branch=branch)))
    drop_branch(audited, "main" if branch == "audit" else "audit")
    expire(audited)

    assert append(audited, 1, 2, branch=branch).was_replayed
    assert ids_of(audited, branch) == [1, 2, 3, 4]


def test_version_below_a_stray_one_is_not_called_gone(sink: Sink) -> None:
    """Its rows are there, and to remove the property as the error says would double them."""
    append(sink, 1, 1)
    at = head_of(sink)
    append(sink, 2, 2)
    set_branch(sink, "main", at)
    sink.append(3)
    sink.append(4)
    expire(sink)

    with pytest.raises(CommitConflictError, match="says nothing of version 1: look first whether the branch has its"):
        append(sink, 1, 1)


def test_skip_that_only_history_proves_is_written_down(sink: Sink) -> None:
    """The next repetition, after an expiry, would double the rows."""
    append(sink, 1, 1)
    set_branch(sink, "audit", head_of(sink))
    assert append(sink, 1, 1, branch="audit").was_replayed
    sink.commit(sink.write(rows(9), plan=sink.plan(branch="audit")))
    sink.append(5)
    expire(sink)

    assert append(sink, 1, 1, branch="audit").was_replayed
    assert ids_of(sink, "audit") == [1, 9]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_skip_writes_down_the_marks_of_every_writer(sink: Sink, *, is_recorded: bool) -> None:
    """The mark of the skipped writer would hide those behind it, and after an expiry others' rows would be doubled."""
    other = {"txn_app_id": "other", "txn_version": 1}
    sink.append(1)
    if is_recorded:
        append(sink, 1, 2, branch="audit", create_branch=True)
        publish_branch(sink.catalog, IDENTIFIER, "audit", "main")
        sink.commit(sink.write(rows(3), plan=sink.plan(**other)))
    else:
        sink.commit(sink.write(rows(3), plan=sink.plan(**other)))
        append(sink, 1, 2)
    set_branch(sink, "audit", head_of(sink))
    assert append(sink, 1, 2, branch="audit").was_replayed
    sink.commit(sink.write(rows(9), plan=sink.plan(branch="audit")))
    sink.append(5)
    expire(sink)

    assert sink.commit(sink.write(rows(3), plan=sink.plan(branch="audit", **other))).was_replayed
    assert ids_of(sink, "audit") == [1, 2, 3, 9]


def test_marks_that_only_history_holds_are_published(audited: Sink) -> None:
    """A version that SQL's fork brought along would be doubled on main after publishing and expiry."""
    set_branch(audited, "second", head_of(audited, "audit"))
    publish_branch(audited.catalog, IDENTIFIER, "second", "main")
    audited.append(8)
    for branch in ("audit", "second"):
        drop_branch(audited, branch)
    expire(audited)

    assert append(audited, 1, 2).was_replayed
    assert audited.ids() == [1, 2, 8]


def test_marks_of_gone_branches_go_with_the_next_commit(audited: Sink) -> None:
    """Metadata would grow with every branch that SQL drops."""
    drop_branch(audited, "audit")

    audited.append(3)

    assert KEY not in audited.table().metadata.properties


def test_marks_of_another_table_stop_no_first_write(audited: Sink) -> None:
    """Every write to a table made with another one's properties would fail, its outcome unknown, for ever."""
    properties = audited.table().properties
    copy = replace(audited, options=replace(audited.options, table=("db", "copy")))
    copy.create(ID_AND_NAME)
    with plain_table(copy).transaction() as change:
        change.set_properties(properties)

    copy.append(1)
    copy.append(2)

    assert copy.ids() == [1, 2]
    assert KEY not in copy.table().properties


def test_marks_of_a_branch_that_appears_meanwhile_stay(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marks of a branch would go while its first rows land: a repeated batch would be doubled."""
    sink.create(ID_AND_NAME, format_version="1")  # else the sequence number of the request is out of date, too
    sink.append(1)
    append(sink, 1, 2, branch="audit", create_branch=True)
    at = head_of(sink)
    drop_branch(sink, "audit")
    messages = sink.write(rows(3))
    send = type(sink.catalog).send
    made = []

    def after_another_writer(catalog: Any, table: Any, *request: Any) -> Any:
        if not made:
            made.append(True)
            set_branch(sink, "audit", at)
            append(sink, 5, 4, branch="audit")
        return send(catalog, table, *request)

    monkeypatch.setattr(type(sink.catalog), "send", after_another_writer)
    sink.commit(messages)
    row = sink.table().scan().to_arrow().slice(0, 1)
    for branch in ("main", "audit"):  # no commits of the sink, which would write down what history tells
        plain_table(sink).append(row, branch=branch)
    expire(sink)

    assert append(sink, 5, 4, branch="audit").was_replayed
    assert sorted({*sink.ids()}) == [1, 3]
    assert ids_of(sink, "audit").count(4) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 1e400, "snapshot-id": 2, "timestamp-ms": 5}',
        '{"version": 1, "snapshot-id": 2, "timestamp-ms": 5, "sequence-number": "3"}',
        "[1]",
    ],
)
def test_mark_of_odd_values_stops_its_writer_by_name(sink: Sink, text: str) -> None:
    """A write would end with an error of Python, which says nothing of the table."""
    sink.append(1)
    with plain_table(sink).transaction() as change:
        change.set_properties({branch_property(TXNS.property_prefix, "main", "load"): text})

    with pytest.raises(UnsupportedTableError, match="is no marker of a write"):
        append(sink, 1, 2)
    sink.append(3)


@pytest.mark.parametrize("text", ["x", "[" * 100_000])
def test_records_of_others_that_are_none_stop_no_stream(sink: Sink, text: str) -> None:
    """The first epoch of a stream would land, and end with an error of Python all the same."""
    sink.append(1)
    odd = {branch_property(EPOCHS.property_prefix, "main", "q"): text, "icebergsink.stream.main.orders": text}
    with plain_table(sink).transaction() as change:
        change.set_properties(odd)
    plan = sink.plan(is_stream=True, stream_name="clicks")

    sink.append(2, of_epoch=epoch(0))
    sink.commit(sink.write(rows(3), plan=plan, of_epoch=epoch(0, "other")))

    assert sink.ids() == [1, 2, 3]
    mine = sink.plan(is_stream=True, stream_name="orders")
    with pytest.raises(UnsupportedTableError, match=r"icebergsink.stream.main.orders' is no record"):
        sink.commit(sink.write(rows(4), plan=mine, of_epoch=epoch(0, "third")))


@pytest.mark.parametrize(
    "summary", [{"source-snapshot-id": "9" * 5000}, {EPOCHS.writer_key: QUERY, EPOCHS.number_key: "9" * 5000}]
)
def test_number_of_a_strangers_summary_stops_no_stream(sink: Sink, summary: dict[str, str]) -> None:
    """A stream would end with an error of Python for as long as that snapshot is in the branch."""
    sink.append(1)
    table = plain_table(sink)
    table.append(table.schema().as_arrow().empty_table(), snapshot_properties=summary)

    sink.append(2, of_epoch=epoch(0))

    assert sink.ids() == [1, 2]


def test_property_that_is_no_mark_stops_its_writer_by_name(sink: Sink) -> None:
    """A batch would fail without a word of what to do."""
    append(sink, 1, 1)
    with plain_table(sink).transaction() as change:
        change.set_properties({branch_property(TXNS.property_prefix, "main", "load"): "7"})

    with pytest.raises(UnsupportedTableError, match=r"last-txn\.main\.load' is no marker of a write"):
        append(sink, 2, 2)
    sink.append(3)
    assert sink.ids() == [1, 3]


def staged(sink: Sink, *ids: int) -> CommitResult:
    """Write through a staging branch, which is published at once."""
    return sink.commit(sink.write(rows(*ids), plan=sink.plan(staging_branch="stage")))


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_staging_goes_on_after_the_published_history_expired(sink: Sink, *, cuts_parents: bool) -> None:
    """Every later write would be refused, with advice that doubles rows."""
    sink.append(1)
    staged(sink, 2)
    publish_branch(sink.catalog, IDENTIFIER, "stage", "main")
    sink.append(3)
    sink.append(4)
    expire(sink, cuts_parents=cuts_parents)
    before = sink.table().metadata.refs["main"]

    publish_branch(sink.catalog, IDENTIFIER, "stage", "main")  # again

    assert sink.table().metadata.refs["main"] == before
    staged(sink, 5)
    publish_branch(sink.catalog, IDENTIFIER, "stage", "main")
    assert sink.ids() == [1, 2, 3, 4, 5]


def test_staging_goes_on_in_format_version_1_after_the_published_history_expired(sink: Sink) -> None:
    """Without sequence numbers, each staged write would stay on its branch, although it builds on what readers have."""
    sink.create(ID_AND_NAME, format_version="1")
    sink.append(1)
    staged(sink, 2)
    sink.append(3)
    sink.append(4)
    expire(sink, cuts_parents=True)

    staged(sink, 5)

    assert sink.ids() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("cuts_parents", [False, True])
def test_branch_whose_middle_has_expired_is_published(audited: Sink, *, cuts_parents: bool) -> None:
    """Epochs that a stream does not repeat would be dropped by the advice."""
    append(audited, 2, 3, branch="audit")
    append(audited, 3, 4, branch="audit")
    expire(audited, cuts_parents=cuts_parents)

    publish_branch(audited.catalog, IDENTIFIER, "audit", "main")

    assert audited.ids() == [1, 2, 3, 4]


def test_branch_that_others_wrote_is_not_called_diverged_when_history_expired(sink: Sink) -> None:
    """Following "drop it and write it again" would lose rows, or double them."""
    sink.append(1)
    set_branch(sink, "audit", head_of(sink))
    for _ in range(2):
        plain_table(sink).append(sink.table().scan().to_arrow().slice(0, 1), branch="audit")
    expire(sink)

    with pytest.raises(CommitConflictError, match=r"history has expired.*Compare their rows.*set_current_snapshot"):
        publish_branch(sink.catalog, IDENTIFIER, "audit", "main")


def test_staging_branch_that_sql_published_is_not_called_unpublished_when_history_expired(sink: Sink) -> None:
    """Publishing it again is impossible, and writing it again doubles its rows."""
    sink.append(1)
    sink.commit(sink.write(rows(2), plan=sink.plan(branch="stage", create_branch=True)))
    set_branch(sink, "main", head_of(sink, "stage"))
    sink.append(3)
    sink.append(4)
    expire(sink)

    with pytest.raises(CommitConflictError, match=r"history has expired.*drop 'stage'"):
        publish_branch(sink.catalog, IDENTIFIER, "stage", "main")
    with pytest.raises(OptionError, match=r"history has expired.*drop 'stage'"):
        sink.plan(staging_branch="stage")


def test_diverged_branch_is_still_called_so(audited: Sink) -> None:
    """Rows of main would be lost by moving it."""
    audited.append(3)

    with pytest.raises(CommitConflictError, match=r"has moved on to snapshot .* does not build on"):
        publish_branch(audited.catalog, IDENTIFIER, "audit", "main")


def test_verify_names_the_branches_that_rest_on_history_alone(sink: Sink) -> None:
    """Nobody would know that the next expiry lets a batch come twice."""
    append(sink, 1, 1)
    set_branch(sink, "audit", head_of(sink))

    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)})

    (check,) = [check for check in result.checks if check.name == "lasting markers"]
    assert check.outcome == "warning"
    assert "branch 'audit' has version 1 of application load" in check.detail
    assert result.ok
