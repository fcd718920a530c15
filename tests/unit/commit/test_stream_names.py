"""The lasting identity of a stream: a new checkpoint is refused under its name, accepted once, or noticed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, refusal, state_unknown
from support.checks.invariants import check_clean
from support.tables.sink import QUERY, Sink, epoch, paths_of, rows

from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.errors import CommitConflictError
from iceberg_ds.messages import TaskCommit

pytestmark = pytest.mark.usefixtures("waits")

NEW_QUERY = "11111111-1111-4222-8333-444455556666"
THIRD_QUERY = "22222222-1111-4222-8333-444455556666"


def written(sink: Sink, number: int, query_id: str = QUERY, *, epoch_id: int = 0, **options: Any) -> list[TaskCommit]:
    """Run the task of an epoch with one row, under the name `orders` if no other is given."""
    plan = sink.plan(is_stream=True, **{"stream_name": "orders", **options})
    return sink.write(rows(number), plan=plan, of_epoch=epoch(epoch_id, query_id))


def append(sink: Sink, number: int, query_id: str = QUERY, *, epoch_id: int = 0, **options: Any) -> CommitResult:
    """Commit such an epoch."""
    return sink.commit(written(sink, number, query_id, epoch_id=epoch_id, **options))


def expire_all_but_newest(sink: Sink) -> None:
    """Expire every snapshot that the table can do without."""
    table = sink.table()
    old = [found.snapshot_id for found in table.metadata.snapshots][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of the sink."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("expire", [False, True], ids=["", "expired"])
def test_wiped_checkpoint_is_refused_with_what_is_needed_to_go_on(sink: Sink, *, expire: bool) -> None:
    """A stream whose checkpoint was lost would write all rows of its source again."""
    append(sink, 1)
    append(sink, 2, epoch_id=1)
    sink.append(3)
    if expire:
        expire_all_but_newest(sink)
    messages = written(sink, 1, NEW_QUERY)

    with pytest.raises(CommitConflictError) as raised:
        sink.commit(messages)

    text = str(raised.value)
    assert "nothing was committed" in text
    assert f"stream 'orders' is written by another query, {QUERY}, whose last epoch 1 was committed at 20" in text
    assert "+00:00" in text
    assert f"Restore the checkpoint of query {QUERY}" in text
    assert "accept-new-checkpoint=true" in text
    assert "used up" not in text
    assert sink.ids() == [1, 2, 3]
    assert not any(path.exists() for path in paths_of(messages))


def test_new_checkpoint_is_accepted_once(sink: Sink) -> None:
    """A stream that was reset on purpose could not go on, or an option that was left on would let in the next one."""
    append(sink, 1)

    append(sink, 2, NEW_QUERY, accept_new_checkpoint=True)
    append(sink, 3, NEW_QUERY, epoch_id=1, accept_new_checkpoint=True)
    with pytest.raises(CommitConflictError, match=f"{NEW_QUERY}, whose last epoch 1 .*has been used up"):
        append(sink, 4, THIRD_QUERY, accept_new_checkpoint=True)
    with pytest.raises(CommitConflictError, match=NEW_QUERY):
        append(sink, 5, QUERY, epoch_id=1)
    append(sink, 6, NEW_QUERY, epoch_id=2)
    append(sink, 7, THIRD_QUERY, accept_new_checkpoint=True)

    assert sink.ids() == [1, 2, 3, 6, 7]
    check_clean(sink.table())


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", [refusal, connection_lost, state_unknown])
def test_acceptance_is_not_used_up_by_a_lost_answer(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, when: When, error: Callable[[], Exception]
) -> None:
    """A new checkpoint would be refused, although it was accepted, because the catalog hiccuped."""
    append(sink, 1)
    faulty_catalog.fail_next(1, error, when=when)

    append(faulty_sink, 2, NEW_QUERY, accept_new_checkpoint=True)
    append(sink, 3, NEW_QUERY, epoch_id=1, accept_new_checkpoint=True)

    assert sink.ids() == [1, 2, 3]
    check_clean(sink.table())


def test_of_two_new_checkpoints_at_once_one_is_accepted(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Two drivers would both begin anew, and double all rows."""
    append(sink, 1)
    slow = written(faulty_sink, 2, NEW_QUERY, accept_new_checkpoint=True)
    faulty_catalog.before_commit(1, lambda: append(sink, 3, THIRD_QUERY, accept_new_checkpoint=True) and None)

    with pytest.raises(CommitConflictError, match=THIRD_QUERY):
        faulty_sink.commit(slow)

    assert sink.ids() == [1, 3]
    check_clean(sink.table())


def test_of_two_queries_that_claim_a_new_name_at_once_one_gets_it(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Two streams that were given one name by mistake would go on for ever without anybody noticing."""
    slow = written(faulty_sink, 2, NEW_QUERY)
    faulty_catalog.before_commit(1, lambda: append(sink, 1) and None)

    with pytest.raises(CommitConflictError, match=QUERY):
        faulty_sink.commit(slow)

    assert sink.ids() == [1]
    check_clean(sink.table())


def test_replayed_epoch_under_a_name_is_skipped(sink: Sink) -> None:
    """A stream with a name could not be restarted after a crash."""
    append(sink, 1)

    assert append(sink, 1).was_replayed
    assert sink.ids() == [1]


def test_streams_of_other_names_and_on_other_branches_go_their_way(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """Two streams into one table could not both have a name."""
    append(sink, 1)
    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        append(sink, 2, NEW_QUERY, stream_name="orders.eu")
        append(sink, 3, epoch_id=1)
        append(sink, 4, NEW_QUERY, stream_name="orders.eu", epoch_id=1)
    assert warnings(caplog) == []
    with sink.table().manage_snapshots() as change:
        change.create_branch(snapshot_id=sink.table().metadata.snapshots[0].snapshot_id, branch_name="audit")
    plan = sink.plan(is_stream=True, stream_name="orders", branch="audit")
    sink.commit(sink.write(rows(5), plan=plan, of_epoch=epoch(0, THIRD_QUERY)))

    assert sink.ids() == [1, 2, 3, 4]
    assert [row["id"] for row in sink.rows_of("audit")] == [1, 5]


def test_name_is_known_on_a_branch_that_is_forked(sink: Sink) -> None:
    """A wiped checkpoint would double on a branch what came along with the fork."""
    append(sink, 1)
    plan = sink.plan(is_stream=True, stream_name="orders", branch="audit", create_branch=True)

    with pytest.raises(CommitConflictError, match=QUERY):
        sink.commit(sink.write(rows(1), plan=plan, of_epoch=epoch(0, NEW_QUERY)))


def test_stream_that_gets_a_name_later_goes_on(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A running stream could not be given a name."""
    append(sink, 1, stream_name=None)

    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        append(sink, 2, epoch_id=1)

    assert warnings(caplog) == []
    with pytest.raises(CommitConflictError, match="whose last epoch 1"):
        append(sink, 3, NEW_QUERY)


def test_new_query_beside_another_is_warned_of_once(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A wiped checkpoint would double all rows and nobody notice; or a warning with each epoch hide all others."""
    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        append(sink, 1, stream_name=None)
        append(sink, 2, stream_name=None, epoch_id=1)
        assert warnings(caplog) == []

        for number in range(3):
            append(sink, 10 + number, NEW_QUERY, stream_name=None, epoch_id=number)
        append(sink, 3, stream_name=None, epoch_id=2)

    (line,) = warnings(caplog)
    assert f"query {NEW_QUERY}, epoch 0" in line
    assert f"{QUERY}, whose last epoch 1 was committed at 20" in line
    assert "stream-name" in line
    assert sink.ids() == [1, 2, 3, 10, 11, 12]


def test_warning_comes_though_the_first_answer_was_lost(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """A wiped checkpoint would go unnoticed if the catalog hiccups at that moment."""
    append(sink, 1, stream_name=None)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)

    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        append(faulty_sink, 2, NEW_QUERY, stream_name=None)

    assert [QUERY in line for line in warnings(caplog)] == [True]


def test_name_alone_does_not_hide_that_the_checkpoint_was_wiped_when_it_was_given(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream that gets a name and a new checkpoint at once would double all rows, and nobody notice."""
    append(sink, 1, stream_name=None)

    with caplog.at_level(logging.WARNING, logger="iceberg_ds"):
        append(sink, 2, NEW_QUERY)

    assert [QUERY in line for line in warnings(caplog)] == [True]
