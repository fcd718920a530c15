"""Pure: what a freshly loaded table says about a write: did it land, may it be tried, is it too late?

The exactly-once promise is decided here and nowhere else. Everything is read from the table itself,
never from the answer of the catalog, which may be lost, late or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.plan import EpochId, NumberedWrite, TxnId, WriteIdentity
from iceberg_ds.snapshots.quarantined import QUARANTINED_ROWS_KEY
from iceberg_ds.snapshots.refs import (
    BranchHistory,
    base_branch,
    begins_a_table,
    branch_head,
    branch_history,
    branch_snapshot_id,
    last_sequence_number,
    snapshots_since,
    write_base,
)
from iceberg_ds.snapshots.txn import (
    QueryMarker,
    StrayMarker,
    TxnMarker,
    TxnMarkers,
    find_last_epoch,
    find_markers,
    find_own,
    find_picked,
    find_stream,
    has_committed,
    kind_of,
    last_of_others,
    named_queries,
    next_record,
)
from iceberg_ds.snapshots.version_3 import VERSION_3


class Reply(Enum):
    """What a catalog said of a request that did not return success."""

    REFUSED = auto()  # it gave a reason of its own, such as a missing right: believed
    GONE = auto()  # it has no table of that name, so the answer is not about the table, which may be renamed
    OVERTAKEN = auto()  # another commit was faster; a gateway that sends twice says so even of a request that landed
    LOST = auto()  # nothing that can be relied on


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One commit request that did not return success, and the table that it was made for.

    Attributes:
        parent_id: The branch's snapshot that the request asserted; None if it asserted that the branch has none.
        has_parent: Whether the snapshot has a parent; the first one of a branch may have a parent in another branch.
        sequence_number: The table's last sequence number; 0 in tables of format version 1.
        is_first: Whether the table had no snapshot at all.
        table_uuid: The table's UUID.
        reply: What the catalog said.
        format_version: The table's format version.
        creates: Whether the request was to create the table.
    """

    parent_id: int | None
    has_parent: bool
    sequence_number: int
    is_first: bool
    table_uuid: UUID
    reply: Reply
    format_version: int
    creates: bool = False

    @classmethod
    def on(cls, metadata: TableMetadata, write: WriteIdentity, reply: Reply, *, creates: bool = False) -> Attempt:
        """Return the attempt to commit `write` to the table, which it creates if `creates`."""
        return cls(
            parent_id=branch_snapshot_id(metadata, write.branch),
            has_parent=write_base(metadata, write.route) is not None,
            sequence_number=last_sequence_number(metadata),
            is_first=not metadata.snapshots,
            table_uuid=metadata.table_uuid,
            reply=reply,
            format_version=metadata.format_version,
            creates=creates,
        )

    @property
    def was_refused(self) -> bool:
        """Whether the catalog's own reason is believed, as long as the table has its name."""
        return self.reply in {Reply.REFUSED, Reply.GONE}


class CommitStatus(Enum):
    """What the table says of a write."""

    SUCCESS = auto()  # our snapshot is, or was, in the table
    ABSENT = auto()  # our snapshot is not in the table
    REPLAYED = auto()  # the write was done before: by an earlier run of the query, or by the application
    FENCED = auto()  # another driver, alive beside this one, landed this very epoch
    STALE_EPOCH = auto()  # a later epoch of the same query has landed
    OTHER_QUERY = auto()  # another query writes under the name of this stream
    STRAY = auto()  # a marker says that this write, or a later one, landed in a snapshot that the branch does not have
    UNKNOWN = auto()  # the history that would tell has expired
    ELSEWHERE = auto()  # another table has the name; the table of a request may have the write under another name


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The query that a stream's name belongs to.

    Attributes:
        query_id: Spark's query id.
        marker: Its last epoch; None if that record was removed.
        was_accepted: It got the name by `accept-new-checkpoint`, which accepts no other query while it is left on.
    """

    query_id: str
    marker: TxnMarker | None
    was_accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCheck:
    """The commit status of a write, and how certain it is.

    Attributes:
        status: What the table says.
        is_final: Whether no request that was sent can change the status any more.
        marker: The newest marker of the same writer that counts on the branch; None without one, or if the write has no
            number.
        own: The marker of this very write if it was done before, and the branch still tells; else None.
        stray: A newer marker of the same writer that does not count, or None.
        is_recorded: Whether a table property holds `marker`; else only the branch's history does, which expires.
        holder: The query that writes under the name of this stream, if it is another query; else None.
    """

    status: CommitStatus
    is_final: bool
    marker: TxnMarker | None = None
    own: TxnMarker | None = None
    stray: StrayMarker | None = None
    is_recorded: bool = True
    holder: Holder | None = None

    @property
    def own_id(self) -> int | None:
        """The snapshot that got the rows of a write that was done before; None if the branch does not tell."""
        return None if self.own is None else self.own.snapshot_id


def check_commit_status(
    metadata: TableMetadata,
    write: WriteIdentity,
    attempts: Sequence[Attempt],
    shares_manifest: Callable[[], bool],
    is_taken: Callable[[int], bool] = lambda _: False,
) -> StatusCheck:
    """Return what the table says of `write`.

    Args:
        metadata: The table, loaded after the last attempt.
        write: The write; its snapshot id was fixed before the first attempt.
        attempts: The requests sent so far.
        shares_manifest: Returns whether the branch's newest snapshot lists a manifest of this write; called only
            if nothing else tells, because it reads a file.
        is_taken: Returns whether that snapshot has a file which another one added under this sequence number; called
            only after that.
    """
    if metadata.snapshot_by_id(write.snapshot_id) is not None:
        return StatusCheck(status=CommitStatus.SUCCESS, is_final=True)
    if any(_may_be_elsewhere(metadata, attempt) for attempt in attempts):
        return StatusCheck(status=CommitStatus.ELSEWHERE, is_final=False)
    is_final = _nothing_under_way(metadata, write.branch, attempts)
    numbered = write.numbered
    if numbered is None:
        return StatusCheck(status=_trace(metadata, write, attempts, shares_manifest, is_taken), is_final=is_final)
    history = BranchHistory(metadata, _base(metadata, write))
    markers = find_markers(history, kind_of(numbered), numbered.writer)
    marker, stray = markers.last, markers.stray
    known = [found for found in (marker, None if stray is None else stray.marker) if found is not None]
    if any(found.snapshot_id == write.snapshot_id for found in known):  # landed, and expired since
        return StatusCheck(status=CommitStatus.SUCCESS, is_final=True, marker=marker)
    if any(found.number > numbered.number for found in known):
        # Our write may have landed before the later one, and expired since, unless history shows that it did not land.
        is_final = is_final and all(
            attempt.was_refused or _was_passed_over(metadata, write.branch, attempt) for attempt in attempts
        )
    holder = _other_holder(metadata, write)
    status = (
        CommitStatus.OTHER_QUERY if holder is not None else _by_markers(metadata, write, numbered, attempts, markers)
    )
    is_recorded = markers.is_recorded
    if (
        status in {CommitStatus.ABSENT, CommitStatus.STRAY}
        and (picked := find_picked(history, numbered, marker)) is not None
    ):
        status, marker, stray, is_recorded = CommitStatus.REPLAYED, picked, None, False
    return StatusCheck(
        status=status,
        is_final=is_final,
        marker=marker,
        own=find_own(history, numbered, marker) if status is CommitStatus.REPLAYED else None,
        stray=stray,
        is_recorded=is_recorded,
        holder=holder,
    )


def _by_markers(
    metadata: TableMetadata,
    write: WriteIdentity,
    numbered: NumberedWrite,
    attempts: Sequence[Attempt],
    markers: TxnMarkers,
) -> CommitStatus:
    """Return the status that the writer's markers tell; this write's own marker is not among them."""
    marker, stray = markers.last, markers.stray
    if marker is None or marker.number < numbered.number:
        return (
            CommitStatus.STRAY if stray is not None and stray.marker.number >= numbered.number else CommitStatus.ABSENT
        )
    if isinstance(numbered, TxnId):  # even of writes that race or were mixed up, the application says that they are one
        return CommitStatus.REPLAYED
    if marker.number > numbered.number:
        return CommitStatus.STALE_EPOCH
    is_fenced = bool(attempts) or _is_second_driver(metadata, _base(metadata, write), numbered, marker)
    return CommitStatus.FENCED if is_fenced else CommitStatus.REPLAYED


def unknown_neighbour(metadata: TableMetadata, write: WriteIdentity) -> QueryMarker | None:
    """Return the query that this one may have unknowingly taken over from, for the first epoch that it lands.

    A wiped checkpoint makes a new query, which writes all rows of its source again. The table cannot tell it
    from a second stream into the same table, so the user should be told.

    Args:
        metadata: The table before that epoch landed, without a marker of this query.
        write: The epoch.

    Returns:
        The query that committed last to the branch; for a stream with a new name, the last among queries without a
        name. None without such a query, or if this query was accepted in place of another one. None for a quarantine
        table, which many queries share: the tables whose rows it has tell.
    """
    if write.epoch is None or QUARANTINED_ROWS_KEY in write.snapshot_properties:
        return None
    base, query_id = _base(metadata, write), write.epoch.query_id
    if write.stream is None:
        return last_of_others(metadata, base, frozenset({query_id}))
    if find_stream(metadata, base, write.stream.name) is not None:
        return None
    return last_of_others(metadata, base, named_queries(metadata, base) | {query_id})


def _base(metadata: TableMetadata, write: WriteIdentity) -> str:
    """Return the branch that has the rows and the markers of earlier writes."""
    return base_branch(metadata, write.route)


def _other_holder(metadata: TableMetadata, write: WriteIdentity) -> Holder | None:
    """Return the query that keeps this one from writing under its stream's name, or None."""
    if write.epoch is None or write.stream is None:
        return None
    base = _base(metadata, write)
    record = find_stream(metadata, base, write.stream.name)
    if record is None or next_record(record, write.stream, write.epoch.query_id) is not None:
        return None
    last = find_last_epoch(metadata, base, record.query_id)
    return Holder(query_id=record.query_id, marker=last, was_accepted=record.was_accepted)


def _is_second_driver(metadata: TableMetadata, branch: str, epoch: EpochId, marker: TxnMarker) -> bool:
    """Return whether the run that landed our epoch cannot be one that died before ours began.

    Spark repeats an epoch only as the first one of a run. If our run has committed before, and another run
    landed this epoch, then both are alive, and they may have divided the source's rows differently.
    """
    if epoch.run_id is None or marker.run_id == epoch.run_id:
        return False
    # The marker tells this even if the snapshots have expired, or if the catalog shows only the newest one.
    return marker.previous_run_id == epoch.run_id or has_committed(metadata, branch, epoch.run_id)


def _may_be_elsewhere(metadata: TableMetadata, attempt: Attempt) -> bool:
    """Return whether this is another table, and the table of the request may have the write under another name.

    A table that the request was to create does not exist if the catalog answered that another creation was faster.
    """
    if metadata.table_uuid == attempt.table_uuid or attempt.reply is Reply.REFUSED:
        return False
    return attempt.reply is Reply.LOST or not attempt.creates


def _nothing_under_way(metadata: TableMetadata, branch: str, attempts: Sequence[Attempt]) -> bool:
    """Return whether none of the requests has been, or can still be, carried out unseen.

    `metadata` may be older than the tables that the requests were made for, if a catalog answers from a cache; so only
    what can never be undone counts.
    """
    return all(attempt.was_refused or _must_fail(metadata, branch, attempt) for attempt in attempts)


def _must_fail(metadata: TableMetadata, branch: str, attempt: Attempt) -> bool:
    """Return whether a request that arrives now or later must fail, even if others change the branch.

    That the branch has moved on is no proof: a user may roll it back to where the request expects it, or replace the
    table. But a table's last sequence number only grows, and no catalog takes a snapshot whose number is not above it,
    unless the snapshot has no parent (table spec, "Sequence Numbers"; Iceberg's `TableMetadata.Builder.addSnapshot`).
    Without such a number only an answer tells: an answered request is assumed not to arrive again that late. Nor does a
    catalog take a snapshot without a first row id once the table has version 3, which cannot be taken back either.
    """
    if metadata.table_uuid != attempt.table_uuid:
        return True
    if metadata.format_version >= VERSION_3 > attempt.format_version:
        return True
    if attempt.has_parent and metadata.format_version > 1:
        return last_sequence_number(metadata) > attempt.sequence_number
    return attempt.reply is not Reply.LOST and _has_moved_past(metadata, branch, attempt)


def _has_moved_past(metadata: TableMetadata, branch: str, attempt: Attempt) -> bool:
    """Return whether the branch has moved past the snapshot that the request asserted, so the request fails now.

    That it has another snapshot is no proof: a cache may show a state from before the request.
    """
    head = branch_head(metadata, branch)
    if head is None or head.snapshot_id == attempt.parent_id:
        return False
    if metadata.format_version > 1:
        return (head.sequence_number or 0) > attempt.sequence_number
    return _was_passed_over(metadata, branch, attempt)


def _was_passed_over(metadata: TableMetadata, branch: str, attempt: Attempt) -> bool:
    """Return whether the branch went on from the asserted snapshot through snapshots that have not expired."""
    since = snapshots_since(metadata, branch_head(metadata, branch), attempt.parent_id)
    if not since:
        return False
    return attempt.parent_id is not None or (attempt.is_first and since[-1].parent_snapshot_id is None)


def _trace(
    metadata: TableMetadata,
    write: WriteIdentity,
    attempts: Sequence[Attempt],
    shares_manifest: Callable[[], bool],
    is_taken: Callable[[int], bool],
) -> CommitStatus:
    """Follow the branch back to where each attempt would have landed: a batch without a number leaves no marker."""
    history = list(branch_history(metadata, write.branch))
    if any(snapshot.parent_snapshot_id == write.snapshot_id for snapshot in history):
        return CommitStatus.SUCCESS
    in_doubt = [a for a in attempts if not (a.was_refused or _has_missed(metadata, history, a))]
    if not in_doubt:
        return CommitStatus.ABSENT
    # Snapshots after a parent may have expired, ours among them; manifests with live files are still listed.
    if shares_manifest():
        return CommitStatus.SUCCESS
    if metadata.format_version > 1 and all(is_taken(attempt.sequence_number + 1) for attempt in in_doubt):
        return CommitStatus.ABSENT
    return CommitStatus.UNKNOWN


def _has_missed(metadata: TableMetadata, history: Sequence[Snapshot], attempt: Attempt) -> bool:
    """Return whether the branch shows no sign of a request, and would show one if it had been carried out.

    Args:
        metadata: The table.
        history: The snapshots that the branch shows, newest first; ours is not among them.
        attempt: The request.
    """
    if metadata.table_uuid != attempt.table_uuid:
        return True
    if attempt.parent_id is None and not history:
        return True
    if any(snapshot.snapshot_id == attempt.parent_id for snapshot in history):  # what came after it is shown
        return True
    if metadata.format_version == 1:
        return attempt.is_first and bool(history) and _may_begin_a_table(history[-1])
    if any(snapshot.sequence_number == attempt.sequence_number + 1 for snapshot in history):
        return True  # another snapshot has the number that ours would have
    # A cache shows the table from before an answered request: the next request is refused, and the next look tells.
    return attempt.reply is Reply.OVERTAKEN and metadata.last_sequence_number <= attempt.sequence_number


def _may_begin_a_table(snapshot: Snapshot) -> bool:
    """Return whether a snapshot without a parent is the first one; one whose parent was cut off counts other files."""
    has_totals = snapshot.summary is not None and snapshot.summary["total-data-files"] is not None
    return begins_a_table(snapshot) or (snapshot.parent_snapshot_id is None and not has_totals)
