"""Pure: what a freshly loaded table says about a write: did it land, may it be tried, is it too late?

The exactly-once promise is decided here and nowhere else. Everything is read from the table itself,
never from the answer of the catalog, which may be lost, late or wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.messages import WriteIdentity
from iceberg_ds.plan import EpochId
from iceberg_ds.snapshots.branches import branch_head, branch_history
from iceberg_ds.snapshots.epochs import EpochMark, find_last_epoch, has_committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One commit request that did not return success.

    Attributes:
        parent_id: The branch's snapshot that the request asserted, None for "has none yet".
        was_refused: The catalog said that it did not commit; False if its answer was lost.
    """

    parent_id: int | None
    was_refused: bool


class Landing(Enum):
    """What the table says of a write."""

    LANDED = auto()  # our snapshot is, or was, in the table
    ABSENT = auto()  # it is not in the table
    REPLAYED = auto()  # an earlier run landed this very epoch, before we sent anything
    FENCED = auto()  # another driver, alive beside this one, landed this very epoch
    SURPASSED = auto()  # a later epoch of the same query has landed
    UNDECIDED = auto()  # history that would tell has expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The landing of a write, and how certain it is.

    Attributes:
        landing: What the table says.
        is_final: No request that was sent can change it any more.
        mark: The newest epoch of the same query on the branch, None if there is none or in a batch.
    """

    landing: Landing
    is_final: bool
    mark: EpochMark | None = None


def find_landing(
    metadata: TableMetadata,
    write: WriteIdentity,
    attempts: Sequence[Attempt],
    shares_manifest: Callable[[], bool],
) -> Finding:
    """Return what the table says of `write`.

    Args:
        metadata: The table, loaded after the last attempt.
        write: The write; its snapshot id was fixed before the first attempt.
        attempts: The requests sent so far.
        shares_manifest: Whether the branch's newest snapshot lists a manifest of this write; asked only
            if nothing else tells, because it reads a file.
    """
    if metadata.snapshot_by_id(write.snapshot_id) is not None:
        return Finding(landing=Landing.LANDED, is_final=True)
    is_final = _nothing_under_way(metadata, write.branch, attempts)
    if write.epoch is None:
        return Finding(landing=_trace(metadata, write.branch, attempts, shares_manifest), is_final=is_final)
    mark = find_last_epoch(metadata, _marked_branch(metadata, write), write.epoch.query_id)
    if mark is None or mark.epoch_id < write.epoch.epoch_id:
        return Finding(landing=Landing.ABSENT, is_final=is_final, mark=mark)
    if mark.snapshot_id == write.snapshot_id:  # landed, and expired since
        return Finding(landing=Landing.LANDED, is_final=True, mark=mark)
    if mark.epoch_id == write.epoch.epoch_id:
        is_fenced = bool(attempts) or _is_second_driver(metadata, write.branch, write.epoch, mark)
        landing = Landing.FENCED if is_fenced else Landing.REPLAYED
        return Finding(landing=landing, is_final=is_final, mark=mark)
    # Ours may have landed before the later epoch did, and have expired since, unless it was refused each time.
    return Finding(landing=Landing.SURPASSED, is_final=all(attempt.was_refused for attempt in attempts), mark=mark)


def _marked_branch(metadata: TableMetadata, write: WriteIdentity) -> str:
    """Return the branch that has the rows of earlier epochs: the one to fork from while ours is not there yet."""
    return write.fork_from if write.fork_from is not None and write.branch not in metadata.refs else write.branch


def _is_second_driver(metadata: TableMetadata, branch: str, epoch: EpochId, mark: EpochMark) -> bool:
    """Return whether the run that landed our epoch cannot be one that died before ours began.

    Spark repeats an epoch only as the first one of a run. If ours has committed before, and another run
    landed this epoch, then both are alive, and they may have divided the source's rows differently.
    """
    if epoch.run_id is None or mark.run_id == epoch.run_id:
        return False
    # The mark tells it where the snapshots have expired, or the catalog shows the newest one only.
    return mark.previous_run_id == epoch.run_id or has_committed(metadata, branch, epoch.run_id)


def _nothing_under_way(metadata: TableMetadata, branch: str, attempts: Sequence[Attempt]) -> bool:
    """Return whether no request without an answer can still be carried out.

    Each asserted the branch's snapshot at its time; once the branch has moved on, it must fail.
    """
    head = branch_head(metadata, branch)
    head_id = head.snapshot_id if head else None
    return all(attempt.was_refused or attempt.parent_id != head_id for attempt in attempts)


def _trace(
    metadata: TableMetadata, branch: str, attempts: Sequence[Attempt], shares_manifest: Callable[[], bool]
) -> Landing:
    """Follow the branch back to where each attempt would have landed: a batch leaves no other mark."""
    if not attempts:
        return Landing.ABSENT
    history = {snapshot.snapshot_id for snapshot in branch_history(metadata, branch)}
    if not history and all(attempt.parent_id is None for attempt in attempts):
        return Landing.ABSENT
    if all(attempt.parent_id in history for attempt in attempts):
        return Landing.ABSENT
    # What followed a parent may have expired, ours among it; the manifests of what is live are still listed.
    if shares_manifest():
        return Landing.LANDED
    return Landing.ABSENT if all(attempt.was_refused for attempt in attempts) else Landing.UNDECIDED
