"""What others do to the table while a requeue is under way: the call looks once, and its jobs of Spark take long."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.spark.requeued_frame import BIG, Session, mend, requeued
from support.tables.bad_rows import quarantining, sent, write
from support.tables.changes_by_others import (
    drop_branch,
    expire,
    head_of,
    plain_catalog,
    plain_table,
    rename,
    set_branch,
)
from support.tables.sink import Sink, epoch

from iceberg_ds.errors import CommitConflictError, UnsupportedTableError
from iceberg_ds.planning.plan_write import WriteMode

MENDED = sent(("1", "7", None), ("2", "8", None), ("9", "9", None))


def nightly(sink: Sink) -> None:
    """Let the source send all rows again, mended, in place of those that are there."""
    write(sink, MENDED, mode=WriteMode.OVERWRITE)


def replace_table(sink: Sink) -> None:
    """CREATE OR REPLACE TABLE, after which a new stream sends all rows again."""
    drop_branch(sink, "main")
    write(sink, MENDED, of_epoch=epoch(0, "anew"))


def set_back(sink: Sink) -> None:
    """Set the table back behind what it has, after which a new stream sends the rows again."""
    first = plain_table(sink).metadata.snapshots[0].snapshot_id
    set_branch(sink, "main", first)
    write(sink, MENDED, of_epoch=epoch(0, "anew"))


def lacking(sink: Sink) -> Sink:
    """Return a sink whose quarantine has a row of each of two epochs, which the table takes by now."""
    made = quarantining(sink)
    write(made, sent(("9", "9", None)), of_epoch=epoch(0))
    write(made, sent(("1", BIG, None), ("8", "8", None)), of_epoch=epoch(1))
    write(made, sent(("2", BIG, None)), of_epoch=epoch(2))
    mend(made)
    return made


def before_batch(number: int, act: Callable[[], object]) -> Session:
    """Return a session in which others act once, when this batch is about to be written."""
    calls: list[int] = []

    def before() -> None:
        calls.append(number)
        if len(calls) == number:
            act()

    return Session(before)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("change", [nightly, replace_table, set_back])
def test_rows_that_the_source_sends_again_meanwhile_are_not_there_twice(
    sink: Sink, change: Callable[[Sink], None], number: int
) -> None:
    """They would be: the call knew the table as it was at its beginning."""
    sink = lacking(sink)
    after: list[list[int]] = []

    def act() -> None:
        change(sink)
        after.append(sink.ids())

    with pytest.raises(CommitConflictError, match=r"nothing was committed: since .* Call requeue again"):
        requeued(sink, before_batch(number, act))

    assert [sink.ids()] == after
    with pytest.raises((UnsupportedTableError, CommitConflictError)):
        requeued(sink)
    assert [sink.ids()] == after


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_rows_do_not_go_to_another_table_that_gets_the_name_meanwhile(sink: Sink, *, is_made_anew: bool) -> None:
    """They would, and once more to their own table under its new name."""
    sink = lacking(sink)
    moved: list[Sink] = []

    def swap() -> None:
        schema = plain_table(sink).schema()
        moved.append(rename(sink, "db.old"))
        if is_made_anew:
            plain_catalog(sink).create_table(("db", "t"), schema)

    with pytest.raises(CommitConflictError, match="another table has its name by now"):
        requeued(sink, before_batch(1, swap))

    assert moved[0].ids() == [8, 9]
    assert plain_catalog(sink).table_exists("db.t") == is_made_anew
    assert not is_made_anew or sink.ids() == []


def test_appends_of_others_meanwhile_are_no_harm(sink: Sink) -> None:
    """A busy table could never be requeued into; and if its history expires meanwhile, a second call goes on."""
    sink = lacking(sink)

    def append() -> None:
        write(sink, sent(("5", "5", None)))

    assert requeued(sink, before_batch(2, append)).rows == 2
    assert sink.ids() == [1, 2, 5, 8, 9]


def test_second_call_goes_on_where_history_expired_meanwhile(sink: Sink) -> None:
    """What cannot be told is asked again."""
    sink = lacking(sink)
    head = head_of(sink)

    def act() -> None:
        write(sink, sent(("5", "5", None)))
        expire(sink)

    with pytest.raises(CommitConflictError, match=f"does not show snapshot {head} any more"):
        requeued(sink, before_batch(1, act))

    assert requeued(sink).rows == 2
    assert sink.ids() == [1, 2, 5, 8, 9]


def test_history_that_expires_meanwhile_is_no_harm(sink: Sink) -> None:
    """The batch before tells enough."""
    sink = lacking(sink)

    assert requeued(sink, before_batch(2, lambda: expire(sink))).rows == 2
    assert sink.ids() == [1, 2, 8, 9]


def test_branch_that_is_set_back_behind_a_batch_is_told(sink: Sink) -> None:
    """The call would say that it has written rows which are gone, and no later call would write them."""
    sink = lacking(sink)
    head = head_of(sink)

    with pytest.raises(CommitConflictError, match="does not show snapshot"):
        requeued(sink, before_batch(2, lambda: set_branch(sink, "main", head)))

    assert sink.ids() == [8, 9]
    with pytest.raises(CommitConflictError, match="Look whether the rows of version 1 are there"):
        requeued(sink)
