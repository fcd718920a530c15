"""The messages of the tasks: all there, all of one write."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from pyiceberg.manifest import DataFileContent
from support.keys.messages import NO_KEYS, keyed_identity, with_deletes
from support.tables.metadata import identity
from support.tables.sink import Sink, epoch, rows

from iceberg_ds.errors import CommitMessageError
from iceberg_ds.messages import WIRE_VERSION, RowCounts, TaskCommit, complete_commits, reported_commits
from iceberg_ds.plan import TaskKeys, WriteIdentity
from iceberg_ds.writers import reporting


def messages(count: int, write: WriteIdentity | None = None) -> list[TaskCommit]:
    """Return the messages of that many tasks without rows."""
    return [
        TaskCommit(write=write or identity(), partition_id=number, data_files=(), counts=RowCounts(received=0))
        for number in range(count)
    ]


def refusal(given: list[object], epoch_id: int | None = None) -> str:
    """Return the text of the error that these messages raise."""
    with pytest.raises(CommitMessageError) as raised:
        complete_commits(given, epoch_id=epoch_id)
    text = str(raised.value)
    assert "nothing was committed" in text
    return text


@pytest.mark.parametrize("count", [1, 3])
def test_complete_messages_pass_in_any_order(count: int) -> None:
    """No write could be committed."""
    given = messages(count)

    assert complete_commits(given[::-1], epoch_id=None) == given[::-1]


def test_epoch_of_the_messages_is_the_one_that_is_committed() -> None:
    """No micro-batch could be committed."""
    given = messages(2, identity(epoch=epoch(5)))

    assert complete_commits(given, epoch_id=5) == given


def test_missing_message_is_refused() -> None:
    """Rows of a task would be lost, and the stream would go on."""
    assert "1 of 3 task messages are missing" in refusal([*messages(2), None])


def test_no_message_at_all_is_refused_and_explained() -> None:
    """A continuous query would lose every row without a word."""
    assert "trigger(continuous=...)" in refusal([])


def test_all_messages_missing_is_refused() -> None:
    """A continuous query would lose every row without a word."""
    assert "2 of 2 task messages are missing" in refusal([None, None])


def test_foreign_message_is_refused() -> None:
    """Rows of a task with another version of the package would be lost."""
    assert "install one version" in refusal([*messages(1), object()])


def test_message_of_another_version_is_refused() -> None:
    """A driver would misread what an executor with another version of the package says."""
    first, second = messages(2)

    assert f"versions [1, {WIRE_VERSION}]" in refusal([first, replace(second, wire_version=1)])
    assert "versions [1]" in refusal([replace(first, wire_version=1)])


@pytest.mark.parametrize("partitions", [(0, 0), (0, 2), (1, 2), (0, 1, 1)])
def test_doubled_or_missing_partition_is_refused(partitions: tuple[int, ...]) -> None:
    """Rows of a task would be committed twice, or lost."""
    given: list[object] = [
        TaskCommit(write=identity(), partition_id=partition_id, data_files=(), counts=RowCounts(received=0))
        for partition_id in partitions
    ]

    assert "must come once" in refusal(given)


def test_messages_of_different_writes_are_refused() -> None:
    """Files of one write would be committed by another one."""
    other = replace(identity(), operation_id="another")

    assert "different writes" in refusal([*messages(1), *messages(2, other)[1:]])


@pytest.mark.parametrize(("of_messages", "of_commit"), [(None, 1), (1, None), (1, 2)])
def test_messages_of_another_epoch_are_refused(of_messages: int | None, of_commit: int | None) -> None:
    """Rows would be recorded under an epoch that is not theirs, and be lost or doubled on restart."""
    write = identity(epoch=None if of_messages is None else epoch(of_messages))

    assert f"Spark commits epoch {of_commit}" in refusal([*messages(1, write)], of_commit)


def keyed_messages(count: int) -> list[TaskCommit]:
    """Return the messages of that many tasks without rows, of a write by keys."""
    return [replace(message, keys=NO_KEYS) for message in messages(count, keyed_identity(identity()))]


def test_messages_that_tell_of_their_keys_pass() -> None:
    """No write by keys could be committed, or none in which a task had no rows."""
    given = keyed_messages(3)

    assert complete_commits(given, epoch_id=None) == given


def test_message_without_its_keys_is_refused() -> None:
    """A key that two tasks met would come into the table twice."""
    first, second, third = keyed_messages(3)

    assert "partitions [1, 2] of a write by keys" in refusal(
        [first, replace(third, keys=None), replace(second, keys=None)]
    )


def test_message_by_keys_that_hands_rows_over_is_refused(sink: Sink) -> None:
    """Rows would be added beside those with the same key."""
    (handed_over,) = sink.hand_over(rows(1))
    (keyed,) = keyed_messages(1)

    assert "partitions [0] of a write by keys" in refusal([replace(keyed, rows=handed_over.rows)])


def test_message_by_keys_with_a_manifest_is_refused(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of files that the commit does not see would stay beside those with the same key."""
    monkeypatch.setattr(reporting, "MANY_FILES", 1)
    (by_manifest,) = sink.write(rows(1))
    (keyed,) = keyed_messages(1)

    assert by_manifest.manifests
    assert "partitions [0] of a write by keys" in refusal([replace(keyed, manifests=by_manifest.manifests)])


def test_messages_of_a_given_up_write_are_picked_out() -> None:
    """The files of tasks that succeeded would be left behind."""
    given = messages(2)

    assert reported_commits([None, given[0], object(), given[1]]) == given


def test_message_survives_the_trip_between_processes(sink: Sink) -> None:
    """The driver would commit other files than the task wrote."""
    (sent,) = sink.write(rows(1, 2), of_epoch=epoch(3))

    arrived = pickle.loads(pickle.dumps(sent))  # noqa: S301  # our own bytes

    assert arrived.write == sent.write
    assert arrived.data_files == sent.data_files
    assert arrived.data_files[0].spec_id == sent.data_files[0].spec_id == 0


def test_message_of_a_write_by_keys_survives_the_trip(sink: Sink) -> None:
    """Rows would stay in the table that the task deleted, or deletes be taken for rows."""
    (written,) = sink.write(rows(1, 2), of_epoch=epoch(3))
    keys = TaskKeys(count=2, modulus=7, key_report=b"report", tied_count=1, unknown_operations={"'t'": 1})
    sent = replace(with_deletes(written), keys=keys)

    arrived = pickle.loads(pickle.dumps(sent))  # noqa: S301  # our own bytes

    assert arrived.write == sent.write
    assert arrived.keys == sent.keys
    assert arrived.delete_files == sent.delete_files
    (delete_file,) = arrived.delete_files
    assert (delete_file.content, delete_file.equality_ids) == (DataFileContent.EQUALITY_DELETES, [1])
    assert delete_file.spec_id == 0
    assert "report" not in repr(arrived.keys)


def test_message_tells_the_epoch_in_which_its_task_wrote(sink: Sink) -> None:
    """The commit would take the rows of one micro-batch for those of another one."""
    plan = sink.plan()

    told = plan.in_epoch(epoch(5)).write

    assert told == replace(plan.write, epoch=epoch(5))
    assert plan.in_epoch(None).write.epoch is None


def test_identity_names_table_branch_and_epoch() -> None:
    """A user could not tell from an error or a log which write was meant."""
    assert str(identity(epoch=epoch(5))).startswith("db.t (branch main, query 0b9f2c1e")
    assert "epoch 5" in str(identity(epoch=epoch(5)))
    assert "batch" in str(identity())
