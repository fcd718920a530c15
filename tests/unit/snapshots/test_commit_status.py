"""What a freshly loaded table says of a write: a table of situations."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from support.tables.metadata import OUR_SNAPSHOT, START_MS, TABLE_UUID, Past, after_expiry, identity, line, metadata_of
from support.tables.sink import QUERY

from iceberg_ds.plan import EpochId, Route, StreamName, TxnId, WriteIdentity
from iceberg_ds.snapshots.commit_status import Attempt, CommitStatus, Reply, check_commit_status, unknown_neighbour
from iceberg_ds.snapshots.txn import (
    EPOCHS,
    TXNS,
    StreamRecord,
    TxnMarker,
    marker_property,
    marker_summary,
    stream_property,
)

OURS = OUR_SNAPSHOT
HEAD = 2
UPDATED_MS = START_MS + 10
APP = "nightly.load"
STREAM_NAME = "orders"


def refused(parent_id: int | None) -> Attempt:
    """Return an attempt that the catalog says it may not carry out."""
    return _attempt(parent_id, Reply.REFUSED)


def overtaken(parent_id: int | None) -> Attempt:
    """Return an attempt that the catalog says was slower than another commit."""
    return _attempt(parent_id, Reply.OVERTAKEN)


def lost(parent_id: int | None) -> Attempt:
    """Return an attempt whose answer was lost."""
    return _attempt(parent_id, Reply.LOST)


def replacing() -> Attempt:
    """Return such an attempt on a table that had snapshots, and was replaced: its branch had none any more."""
    return replace(overtaken(None), sequence_number=HEAD, is_first=False)


def creating(reply: Reply) -> Attempt:
    """Return an attempt that was to create the table."""
    return replace(_attempt(None, reply), creates=True)


def _attempt(parent_id: int | None, reply: Reply) -> Attempt:
    """Return an attempt on a table whose newest snapshot was `parent_id`; here its sequence number is the same."""
    return Attempt(
        parent_id=parent_id,
        has_parent=parent_id is not None,
        sequence_number=parent_id or 0,
        is_first=parent_id is None,
        table_uuid=TABLE_UUID,
        reply=reply,
        format_version=2,
    )


def epoch_summary(number: int, run_id: str | None = None) -> dict[str, str]:
    """Return the summary of a snapshot of our query."""
    return marker_summary(EpochId(query_id=QUERY, epoch_id=number, run_id=run_id))


def recorded(number: int, snapshot_id: int, run_id: str | None = None) -> dict[str, str]:
    """Return the property that records an epoch of our query."""
    mark = TxnMarker(number=number, snapshot_id=snapshot_id, timestamp_ms=START_MS, run_id=run_id)
    return marker_property(EPOCHS, "main", QUERY, mark)


def txn_summary(version: int, app_id: str = APP) -> dict[str, str]:
    """Return the summary of a snapshot of an application."""
    return marker_summary(TxnId(app_id=app_id, version=version))


def txn_recorded(version: int, snapshot_id: int, app_id: str = APP) -> dict[str, str]:
    """Return the property that records a version of an application."""
    return marker_property(
        TXNS, "main", app_id, TxnMarker(number=version, snapshot_id=snapshot_id, timestamp_ms=START_MS)
    )


def named(query_id: str, *, was_accepted: bool = False) -> dict[str, str]:
    """Return the property that gives the name of our stream to a query."""
    return stream_property("main", STREAM_NAME, StreamRecord(query_id=query_id, was_accepted=was_accepted))


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What the table shows, what was tried before, and what has to follow.

    Attributes:
        history: Snapshots of the table.
        branch_at: The one that `main` stands at, None for the last one.
        properties: Its properties.
        attempts: What was sent before.
        was_altered: Something else was committed since the attempts, such as a property.
        table_uuid: The table's UUID.
        lists_our_manifest: The branch's newest snapshot lists a manifest of ours.
        status: What has to be found.
        is_final: Whether nothing can change it any more.
    """

    history: list[Past]
    branch_at: int | None = None
    properties: dict[str, str] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    was_altered: bool = False
    table_uuid: UUID = TABLE_UUID
    lists_our_manifest: bool = False
    status: CommitStatus
    is_final: bool

    def metadata(self) -> TableMetadata:
        """Return the table."""
        branches = None if self.branch_at is None else {"main": self.branch_at}
        found: TableMetadata = metadata_of(self.history, properties=self.properties, branches=branches)
        updated_ms = UPDATED_MS + self.was_altered
        return found.model_copy(update={"last_updated_ms": updated_ms, "table_uuid": self.table_uuid})


BATCH = {
    "nothing sent yet": Situation(history=line(1, HEAD), status=CommitStatus.ABSENT, is_final=True),
    "nothing sent yet, empty table": Situation(history=[], status=CommitStatus.ABSENT, is_final=True),
    "our snapshot is the head": Situation(
        history=line(1, HEAD, OURS), attempts=(lost(HEAD),), status=CommitStatus.SUCCESS, is_final=True
    ),
    "our snapshot is further back": Situation(
        history=line(1, HEAD, OURS, 4, 5), attempts=(lost(HEAD),), status=CommitStatus.SUCCESS, is_final=True
    ),
    "refusal was a lie": Situation(
        history=line(1, HEAD, OURS), attempts=(overtaken(HEAD),), status=CommitStatus.SUCCESS, is_final=True
    ),
    "our snapshot was rolled back and is still there": Situation(
        history=[*line(1, HEAD, OURS), Past(snapshot_id=9, parent=HEAD)],
        attempts=(lost(HEAD),),
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "overtaken, branch moved": Situation(
        history=line(1, HEAD, 3), attempts=(overtaken(HEAD),), status=CommitStatus.ABSENT, is_final=True
    ),
    "refused, branch did not move": Situation(
        history=line(1, HEAD), attempts=(refused(HEAD),), status=CommitStatus.ABSENT, is_final=True
    ),
    "overtaken, branch did not move: a gateway may have sent it twice, and a cache have shown the table": Situation(
        history=line(1, HEAD), attempts=(overtaken(HEAD),), status=CommitStatus.ABSENT, is_final=False
    ),
    "overtaken, and the table was altered: a gateway may have sent it twice, after that": Situation(
        history=line(1, HEAD), attempts=(overtaken(HEAD),), was_altered=True, status=CommitStatus.ABSENT, is_final=False
    ),
    "lost, and the branch was rolled back to its parent, after another commit": Situation(
        history=line(1, HEAD, 3), branch_at=HEAD, attempts=(lost(HEAD),), status=CommitStatus.ABSENT, is_final=True
    ),
    "overtaken by a table of that name": Situation(
        history=[],
        attempts=(creating(Reply.OVERTAKEN),),
        table_uuid=UUID(int=2),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
    "lost, and another table has the name of one that may have been created, and renamed": Situation(
        history=[],
        attempts=(creating(Reply.LOST),),
        table_uuid=UUID(int=2),
        status=CommitStatus.ELSEWHERE,
        is_final=False,
    ),
    "lost, and another table has the name of one that may have been renamed": Situation(
        history=[], attempts=(lost(None),), table_uuid=UUID(int=2), status=CommitStatus.ELSEWHERE, is_final=False
    ),
    "overtaken, and another table has the name of one that may have been renamed": Situation(
        history=line(1, HEAD, 3),
        attempts=(overtaken(HEAD),),
        table_uuid=UUID(int=2),
        status=CommitStatus.ELSEWHERE,
        is_final=False,
    ),
    "refused for good, and another table has the name": Situation(
        history=[], attempts=(refused(HEAD),), table_uuid=UUID(int=2), status=CommitStatus.ABSENT, is_final=True
    ),
    "overtaken in an empty table that is still empty": Situation(
        history=[], attempts=(overtaken(None),), status=CommitStatus.ABSENT, is_final=False
    ),
    "overtaken, and what is shown is older than what the request was made for": Situation(
        history=line(1), attempts=(overtaken(HEAD),), status=CommitStatus.ABSENT, is_final=False
    ),
    "overtaken after a replacement, and what is shown is older than that": Situation(
        history=line(1, HEAD), attempts=(replacing(),), status=CommitStatus.ABSENT, is_final=False
    ),
    "overtaken after a replacement, by another first snapshot": Situation(
        history=[*line(1, HEAD), Past(snapshot_id=3)],
        attempts=(replacing(),),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
    "lost, and what is shown is older than what the request was made for": Situation(
        history=line(1), attempts=(lost(HEAD),), status=CommitStatus.UNKNOWN, is_final=False
    ),
    "lost, and the table was altered: the branch has still to move": Situation(
        history=line(1, HEAD), attempts=(lost(HEAD),), was_altered=True, status=CommitStatus.ABSENT, is_final=False
    ),
    "overtaken each time, and the newest commit is not shown": Situation(
        history=line(1, HEAD, 3), attempts=(overtaken(HEAD), overtaken(3)), status=CommitStatus.ABSENT, is_final=False
    ),
    "lost, branch did not move: it may still arrive": Situation(
        history=line(1, HEAD), attempts=(lost(HEAD),), status=CommitStatus.ABSENT, is_final=False
    ),
    "lost, branch moved: it can no longer arrive": Situation(
        history=line(1, HEAD, 3), attempts=(lost(HEAD),), status=CommitStatus.ABSENT, is_final=True
    ),
    "lost twice, one of them may still arrive": Situation(
        history=line(1, HEAD, 3), attempts=(lost(HEAD), lost(3)), status=CommitStatus.ABSENT, is_final=False
    ),
    "lost into an empty table that is still empty": Situation(
        history=[], attempts=(lost(None),), status=CommitStatus.ABSENT, is_final=False
    ),
    "refused by an empty table that is still empty": Situation(
        history=[], attempts=(refused(None),), status=CommitStatus.ABSENT, is_final=True
    ),
    "lost, then the parent expired: it may have landed and expired": Situation(
        history=after_expiry(8),
        attempts=(lost(HEAD),),
        status=CommitStatus.UNKNOWN,
        is_final=True,
    ),
    "lost, then the parent expired, and our manifest is listed": Situation(
        history=after_expiry(8),
        attempts=(lost(HEAD),),
        lists_our_manifest=True,
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "overtaken, then the parent expired": Situation(
        history=after_expiry(8),
        attempts=(overtaken(HEAD),),
        status=CommitStatus.UNKNOWN,
        is_final=True,
    ),
    "overtaken although it landed, then the parent expired, and our manifest is listed": Situation(
        history=after_expiry(8),
        attempts=(overtaken(HEAD),),
        lists_our_manifest=True,
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "lost and overtaken, then the parents expired": Situation(
        history=after_expiry(8),
        attempts=(lost(HEAD), overtaken(3)),
        status=CommitStatus.UNKNOWN,
        is_final=True,
    ),
    "lost into an empty table that others fill": Situation(
        history=after_expiry(8),
        attempts=(lost(None),),
        status=CommitStatus.UNKNOWN,
        is_final=False,
    ),
}

STREAM = {
    "first epoch of the query": Situation(history=line(1, HEAD), status=CommitStatus.ABSENT, is_final=True),
    "the epoch before is the last": Situation(
        history=line(1, HEAD, s2=epoch_summary(4)),
        properties=recorded(4, HEAD),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
    "an epoch far before is the last": Situation(
        history=line(1, HEAD), properties=recorded(0, 99), status=CommitStatus.ABSENT, is_final=True
    ),
    "an earlier run landed this epoch": Situation(
        history=line(1, HEAD, s2=epoch_summary(5)),
        properties=recorded(5, HEAD),
        status=CommitStatus.REPLAYED,
        is_final=True,
    ),
    "an earlier run landed this epoch, and it expired": Situation(
        history=after_expiry(8, 9), properties=recorded(5, HEAD), status=CommitStatus.REPLAYED, is_final=True
    ),
    "the JVM sink landed this epoch": Situation(
        history=line(1, HEAD, 3, s2=epoch_summary(5)),
        properties=recorded(4, 1),
        status=CommitStatus.REPLAYED,
        is_final=True,
    ),
    "an earlier run landed this epoch, and a later start of it committed nothing yet": Situation(
        history=line(1, HEAD, s2=epoch_summary(5, "run A")),
        properties=recorded(5, HEAD, "run A"),
        status=CommitStatus.REPLAYED,
        is_final=True,
    ),
    "another run landed this epoch while ours is alive": Situation(
        history=line(1, HEAD, s1=epoch_summary(4, "our run"), s2=epoch_summary(5, "run A")),
        properties=recorded(5, HEAD, "run A"),
        status=CommitStatus.FENCED,
        is_final=True,
    ),
    "another driver landed this epoch while we tried": Situation(
        history=line(1, HEAD, 3, s3=epoch_summary(5)),
        properties=recorded(5, 3),
        attempts=(overtaken(HEAD),),
        status=CommitStatus.FENCED,
        is_final=True,
    ),
    "another driver landed this epoch after our answer was lost": Situation(
        history=line(1, HEAD, 3, s3=epoch_summary(5)),
        properties=recorded(5, 3),
        attempts=(lost(HEAD),),
        status=CommitStatus.FENCED,
        is_final=True,
    ),
    "we landed it": Situation(
        history=line(1, HEAD, OURS, s777=epoch_summary(5)),
        properties=recorded(5, OURS),
        attempts=(lost(HEAD),),
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "we landed it, and it expired": Situation(
        history=after_expiry(8, 9),
        properties=recorded(5, OURS),
        attempts=(lost(HEAD),),
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "a later epoch landed before we tried": Situation(
        history=line(1, HEAD, s2=epoch_summary(6)),
        properties=recorded(6, HEAD),
        status=CommitStatus.STALE_EPOCH,
        is_final=True,
    ),
    "a later epoch landed while we were overtaken": Situation(
        history=line(1, HEAD, 3, s3=epoch_summary(6)),
        properties=recorded(6, 3),
        attempts=(overtaken(HEAD),),
        status=CommitStatus.STALE_EPOCH,
        is_final=True,
    ),
    "a later epoch landed after our answer was lost: ours may have landed first and expired": Situation(
        history=after_expiry(8, 9),
        properties=recorded(6, 9),
        attempts=(lost(HEAD),),
        status=CommitStatus.STALE_EPOCH,
        is_final=False,
    ),
    "a later epoch landed after we were overtaken: ours may have landed first and expired": Situation(
        history=after_expiry(8, 9),
        properties=recorded(6, 9),
        attempts=(overtaken(HEAD),),
        status=CommitStatus.STALE_EPOCH,
        is_final=False,
    ),
    "a later epoch landed after our answer was lost, and nothing has expired": Situation(
        history=line(1, HEAD, 3, s3=epoch_summary(6)),
        properties=recorded(6, 3),
        attempts=(lost(HEAD),),
        status=CommitStatus.STALE_EPOCH,
        is_final=True,
    ),
    "a later epoch is there again, after we were sent to where the branch was rolled back meanwhile": Situation(
        history=line(1, HEAD, 3, s3=epoch_summary(6)),
        properties=recorded(6, 3),
        attempts=(replace(lost(HEAD), sequence_number=3),),
        status=CommitStatus.STALE_EPOCH,
        is_final=False,
    ),
    "overtaken after a replacement, and what is shown is older than that": Situation(
        history=line(1, HEAD), attempts=(replacing(),), status=CommitStatus.ABSENT, is_final=False
    ),
    "overtaken after a replacement, by another first snapshot": Situation(
        history=[*line(1, HEAD), Past(snapshot_id=3)],
        attempts=(replacing(),),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
    "lost, and what is shown is older than what the request was made for": Situation(
        history=line(1), properties=recorded(4, 1), attempts=(lost(HEAD),), status=CommitStatus.ABSENT, is_final=False
    ),
    "lost, and it may still arrive": Situation(
        history=line(1, HEAD),
        properties=recorded(4, 1),
        attempts=(lost(HEAD),),
        status=CommitStatus.ABSENT,
        is_final=False,
    ),
    "lost, and the record shows that it never landed, though history expired": Situation(
        history=after_expiry(8, 9),
        properties=recorded(4, 1),
        attempts=(lost(HEAD),),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
}


# Version 5 of an application, as the summary and the property show it.
TXN = {
    "first version of the application": Situation(history=line(1, HEAD), status=CommitStatus.ABSENT, is_final=True),
    "the version before is the last": Situation(
        history=line(1, HEAD, s2=txn_summary(4)),
        properties=txn_recorded(4, HEAD),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
    "versions may leave numbers out": Situation(
        history=after_expiry(8, 9), properties=txn_recorded(0, 1), status=CommitStatus.ABSENT, is_final=True
    ),
    "done before": Situation(
        history=line(1, HEAD, s2=txn_summary(5)),
        properties=txn_recorded(5, HEAD),
        status=CommitStatus.REPLAYED,
        is_final=True,
    ),
    "done before, and expired": Situation(
        history=after_expiry(8, 9), properties=txn_recorded(5, HEAD), status=CommitStatus.REPLAYED, is_final=True
    ),
    "done before, and the property is gone": Situation(
        history=line(1, HEAD, 3, s2=txn_summary(5)), status=CommitStatus.REPLAYED, is_final=True
    ),
    "a later version was done before": Situation(
        history=line(1, HEAD, s2=txn_summary(6)),
        properties=txn_recorded(6, HEAD),
        status=CommitStatus.REPLAYED,
        is_final=True,
    ),
    "another writer was faster with this version": Situation(
        history=line(1, HEAD, 3, s3=txn_summary(5)),
        properties=txn_recorded(5, 3),
        attempts=(overtaken(HEAD),),
        status=CommitStatus.REPLAYED,
        is_final=True,
    ),
    "another writer was faster, and our answer was lost": Situation(
        history=line(1, HEAD, 3, s3=txn_summary(5)),
        properties=txn_recorded(5, 3),
        attempts=(lost(HEAD),),
        status=CommitStatus.REPLAYED,
        is_final=True,
    ),
    "lost, and it may still arrive": Situation(
        history=line(1, HEAD),
        properties=txn_recorded(4, 1),
        attempts=(lost(HEAD),),
        status=CommitStatus.ABSENT,
        is_final=False,
    ),
    "lost, and the record shows that it never landed": Situation(
        history=after_expiry(8, 9),
        properties=txn_recorded(4, 1),
        attempts=(lost(HEAD),),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
    "we landed it": Situation(
        history=line(1, HEAD, OURS, s777=txn_summary(5)),
        properties=txn_recorded(5, OURS),
        attempts=(lost(HEAD),),
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "we landed it, and it expired": Situation(
        history=after_expiry(8, 9),
        properties=txn_recorded(5, OURS),
        attempts=(lost(HEAD),),
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "a later version landed while we were overtaken": Situation(
        history=line(1, HEAD, 3, s3=txn_summary(6)),
        properties=txn_recorded(6, 3),
        attempts=(overtaken(HEAD),),
        status=CommitStatus.REPLAYED,
        is_final=True,
    ),
    "a later version landed after our answer was lost: ours may have landed first and expired": Situation(
        history=after_expiry(8, 9),
        properties=txn_recorded(6, 9),
        attempts=(lost(HEAD),),
        status=CommitStatus.REPLAYED,
        is_final=False,
    ),
    "another application has this version": Situation(
        history=line(1, HEAD, s2=txn_summary(5, "other")),
        properties=txn_recorded(5, HEAD, "other"),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
    "a query has this number as its epoch": Situation(
        history=line(1, HEAD, s2=marker_summary(EpochId(query_id=APP, epoch_id=5))),
        properties=marker_property(EPOCHS, "main", APP, TxnMarker(number=5, snapshot_id=HEAD, timestamp_ms=START_MS)),
        status=CommitStatus.ABSENT,
        is_final=True,
    ),
}

# Epoch 5 of our query under a stream's name, which another query may hold.
NAMED = {
    "nobody has the name": Situation(history=line(1, HEAD), status=CommitStatus.ABSENT, is_final=True),
    "ours has the name": Situation(
        history=line(1, HEAD), properties=named(QUERY) | recorded(4, 1), status=CommitStatus.ABSENT, is_final=True
    ),
    "another query has the name": Situation(
        history=line(1, HEAD), properties=named("other"), status=CommitStatus.OTHER_QUERY, is_final=True
    ),
    "another query took the name while we were overtaken": Situation(
        history=line(1, HEAD, 3),
        properties=named("other"),
        attempts=(overtaken(HEAD),),
        status=CommitStatus.OTHER_QUERY,
        is_final=True,
    ),
    "another query took the name while our answer was lost": Situation(
        history=line(1, HEAD, 3),
        properties=named("other"),
        attempts=(lost(HEAD),),
        status=CommitStatus.OTHER_QUERY,
        is_final=True,
    ),
    "we landed it, and then another query took the name": Situation(
        history=line(1, HEAD, OURS, 4),
        properties=named("other") | recorded(5, OURS),
        attempts=(lost(HEAD),),
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "we landed it, it expired, and then another query took the name": Situation(
        history=after_expiry(8, 9),
        properties=named("other") | recorded(5, OURS),
        attempts=(lost(HEAD),),
        status=CommitStatus.SUCCESS,
        is_final=True,
    ),
    "ours may have landed and expired before a later epoch of us, and then another query took the name": Situation(
        history=after_expiry(8, 9),
        properties=named("other") | recorded(6, 7),
        attempts=(lost(HEAD),),
        status=CommitStatus.OTHER_QUERY,
        is_final=False,
    ),
}


@pytest.mark.parametrize("situation", BATCH.values(), ids=BATCH.keys())
def test_landing_of_a_batch(situation: Situation) -> None:
    """A batch would be committed twice, be lost, or lose its files although it landed."""
    metadata = situation.metadata()

    finding = check_commit_status(metadata, identity(), situation.attempts, lambda: situation.lists_our_manifest)

    assert (finding.status, finding.is_final) == (situation.status, situation.is_final)
    assert finding.marker is None


@pytest.mark.parametrize(
    ("history", "attempt", "status", "is_final"),
    [
        pytest.param(line(1, HEAD), overtaken(HEAD), CommitStatus.ABSENT, False, id="branch did not move"),
        pytest.param(line(1, HEAD, 3), overtaken(HEAD), CommitStatus.ABSENT, True, id="branch moved"),
        pytest.param(line(1), overtaken(HEAD), CommitStatus.UNKNOWN, False, id="older than the request, or expired"),
        pytest.param(line(1), overtaken(None), CommitStatus.ABSENT, True, id="first snapshot is another one"),
        pytest.param(line(1, HEAD), replacing(), CommitStatus.UNKNOWN, False, id="older than the replacement"),
        pytest.param(line(1, HEAD, 3), lost(HEAD), CommitStatus.ABSENT, False, id="answer was lost"),
    ],
)
def test_landing_in_format_version_1(
    history: list[Past], attempt: Attempt, status: CommitStatus, *, is_final: bool
) -> None:
    """A write that landed would lose its files where no sequence number tells which state is the later one."""
    shown = json.loads(metadata_of(history).model_dump_json())
    shown = shown | {"format-version": 1, "schema": shown["schemas"][0], "partition-spec": []}
    for snapshot in shown["snapshots"]:
        del snapshot["sequence-number"]

    finding = check_commit_status(TableMetadataUtil.parse_obj(shown), identity(), (attempt,), lambda: False)

    assert (finding.status, finding.is_final) == (status, is_final)


@pytest.mark.parametrize(("version", "is_final"), [(2, True), (3, False)])
def test_request_for_version_2_cannot_arrive_in_version_3(version: int, *, is_final: bool) -> None:
    """A write would end as one whose outcome nobody knows; or lose its files, although its request may still arrive."""
    shown = json.loads(metadata_of(line(1, HEAD)).model_dump_json()) | {"format-version": 3, "next-row-id": 0}
    attempt = replace(lost(HEAD), format_version=version)

    finding = check_commit_status(TableMetadataUtil.parse_obj(shown), identity(), (attempt,), lambda: False)

    assert (finding.status, finding.is_final) == (CommitStatus.ABSENT, is_final)


@pytest.mark.parametrize("situation", STREAM.values(), ids=STREAM.keys())
def test_landing_of_an_epoch(situation: Situation) -> None:
    """An epoch would be committed twice, be lost, or lose its files although it landed."""
    metadata = situation.metadata()
    write = identity(epoch=EpochId(query_id=QUERY, epoch_id=5, run_id="our run"))

    finding = check_commit_status(
        metadata, write, situation.attempts, lambda: pytest.fail("an epoch needs no file to be read")
    )

    assert (finding.status, finding.is_final) == (situation.status, situation.is_final)


def test_no_file_is_read_while_the_metadata_tells() -> None:
    """Every commit would read a manifest list for nothing."""
    metadata = metadata_of(line(1, HEAD, 3))

    finding = check_commit_status(metadata, identity(), (lost(HEAD),), lambda: pytest.fail("read a file"))

    assert finding.status is CommitStatus.ABSENT


def test_marks_of_other_queries_do_not_count() -> None:
    """Two streams into one table would skip each other's epochs."""
    summary = marker_summary(EpochId(query_id="another", epoch_id=9))
    write = identity(epoch=EpochId(query_id=QUERY, epoch_id=5))

    finding = check_commit_status(metadata_of(line(1, HEAD, s2=summary)), write, (), lambda: False)

    assert finding.status is CommitStatus.ABSENT


def test_branch_of_the_write_is_the_one_that_is_looked_at() -> None:
    """An epoch would be skipped on a branch that does not have it."""
    history = [*line(1, HEAD), Past(snapshot_id=3, parent=1, summary=epoch_summary(5))]
    metadata = metadata_of(history, branches={"main": HEAD, "audit": 3})
    write = identity(epoch=EpochId(query_id=QUERY, epoch_id=5))

    assert check_commit_status(metadata, write, (), lambda: False).status is CommitStatus.ABSENT
    assert (
        check_commit_status(metadata, replace(write, route=Route(branch="audit")), (), lambda: False).status
        is CommitStatus.REPLAYED
    )


@pytest.mark.parametrize("situation", TXN.values(), ids=TXN.keys())
def test_landing_of_a_version(situation: Situation) -> None:
    """A retried batch would be there twice, be skipped although it is not there, or lose its files."""
    metadata = situation.metadata()
    write = replace(identity(), txn=TxnId(app_id=APP, version=5))

    finding = check_commit_status(
        metadata, write, situation.attempts, lambda: pytest.fail("a version needs no file to be read")
    )

    assert (finding.status, finding.is_final) == (situation.status, situation.is_final)


@pytest.mark.parametrize("situation", NAMED.values(), ids=NAMED.keys())
def test_landing_of_an_epoch_under_a_name(situation: Situation) -> None:
    """A query with a wiped checkpoint would write its source again, or one that landed would lose its files."""
    metadata = situation.metadata()
    write = named_epoch()

    finding = check_commit_status(metadata, write, situation.attempts, lambda: pytest.fail("no file needs to be read"))

    assert (finding.status, finding.is_final) == (situation.status, situation.is_final)
    assert (finding.holder is not None) == (situation.status is CommitStatus.OTHER_QUERY)


def named_epoch(*, accepts: bool = False) -> WriteIdentity:
    """Return epoch 5 of our query under its stream's name."""
    stream = StreamName(name=STREAM_NAME, accepts_new_checkpoint=accepts)
    return replace(identity(epoch=EpochId(query_id=QUERY, epoch_id=5, run_id="our run")), stream=stream)


def test_holder_of_a_name_is_told_with_its_last_epoch() -> None:
    """A user could not tell from the error which checkpoint to restore."""
    mark = TxnMarker(number=41, snapshot_id=2, timestamp_ms=START_MS)
    properties = named("other") | marker_property(EPOCHS, "main", "other", mark)

    holder = check_commit_status(
        metadata_of(line(1, HEAD), properties=properties), named_epoch(), (), lambda: False
    ).holder

    assert holder is not None
    assert (holder.query_id, holder.marker, holder.was_accepted) == ("other", mark, False)


@pytest.mark.parametrize(("was_accepted", "status"), [(False, CommitStatus.ABSENT), (True, CommitStatus.OTHER_QUERY)])
def test_new_checkpoint_is_accepted_unless_the_option_is_used_up(*, was_accepted: bool, status: CommitStatus) -> None:
    """An option that was left on would accept every wiped checkpoint, or accept none."""
    metadata = metadata_of(line(1, HEAD), properties=named("other", was_accepted=was_accepted))

    assert check_commit_status(metadata, named_epoch(accepts=True), (), lambda: False).status is status


def test_version_is_looked_for_where_its_rows_would_come_from() -> None:
    """A version that main has would be written again to a branch that begins with main's rows, or to be published."""
    history = [*line(1, HEAD), Past(snapshot_id=3, parent=1)]
    metadata = metadata_of(history, branches={"main": HEAD, "audit": 3}, properties=txn_recorded(5, HEAD))
    write = replace(identity(), txn=TxnId(app_id=APP, version=5))

    def status(branch: str, fork_from: str | None = None, publish_to: str | None = None) -> CommitStatus:
        changed = replace(write, route=Route(branch=branch, fork_from=fork_from, publish_to=publish_to))
        return check_commit_status(metadata, changed, (), lambda: False).status

    assert status("main") is CommitStatus.REPLAYED
    assert status("audit", "main") is CommitStatus.ABSENT  # it has a branch of its own already, without these rows
    assert status("new", "main") is CommitStatus.REPLAYED
    assert status("new", "audit") is CommitStatus.ABSENT
    assert status("audit", "main", "main") is CommitStatus.REPLAYED


OTHERS = marker_property(EPOCHS, "main", "second", TxnMarker(number=7, snapshot_id=9, timestamp_ms=START_MS + 50))


@pytest.mark.parametrize(
    ("history", "properties", "stream_name", "expected"),
    [
        pytest.param([], {}, None, None, id="an empty table"),
        pytest.param(line(1, HEAD), {}, None, None, id="a table of batches"),
        pytest.param(
            line(1, s1=marker_summary(EpochId(query_id="jvm", epoch_id=3))), {}, None, ("jvm", 3), id="a summary"
        ),
        pytest.param(line(1), OTHERS, None, ("second", 7), id="a property"),
        pytest.param(
            line(1, s1=marker_summary(EpochId(query_id="jvm", epoch_id=3))),
            OTHERS,
            None,
            ("second", 7),
            id="the newest",
        ),
        pytest.param(line(1), OTHERS, STREAM_NAME, ("second", 7), id="a name now, none before"),
        pytest.param(
            line(1),
            OTHERS | stream_property("main", "clicks", StreamRecord(query_id="second")),
            STREAM_NAME,
            None,
            id="each stream has a name",
        ),
        pytest.param(line(1), OTHERS | named("second"), STREAM_NAME, None, id="accepted in its place"),
    ],
)
def test_new_query_beside_another_is_noticed(
    history: list[Past], properties: dict[str, str], stream_name: str | None, expected: tuple[str, int] | None
) -> None:
    """Nobody would notice that a wiped checkpoint doubles all rows; or streams that are well would raise alarms."""
    write = named_epoch() if stream_name is not None else replace(named_epoch(), stream=None)

    found = unknown_neighbour(metadata_of(history, properties=properties), write)

    assert (None if found is None else (found.query_id, found.marker.number)) == expected
