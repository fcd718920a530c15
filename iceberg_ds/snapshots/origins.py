"""Pure: which writes the rows of a quarantine table are of, and whether their tables may have those rows by now.

The snapshot of the quarantine table says, for each name that its rows have, which table was meant, and where that table
stood before the write. So the rows are found even if the table is renamed later. And its history tells whether it went
on from there: if its branch began anew or was set back, or a later write replaced rows, the source may have sent the
same rows again, mended or not. History that has expired does not tell, but for one number: `expire_snapshots` records
which was the last such snapshot among those that it removes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from iceberg_ds.parsing import whole_number
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.refs import (
    MAIN_BRANCH,
    REPLACES_ROWS_KEY,
    BranchHistory,
    base_branch,
    begins_a_table,
    branch_head,
    branch_snapshot_id,
    find_snapshot,
    last_sequence_number,
)
from iceberg_ds.snapshots.txn import EPOCHS, TXNS, is_number, marker_in, picked_source, writer_in

# Summary key of the origins of the rows that a snapshot of a quarantine table has added.
QUARANTINED_FROM_KEY = "icebergsink.quarantined-from"
# Summary key, in the table, of the state in which it lacked requeued rows; they land only if it went on from there.
REQUEUED_SINCE_KEY = "requeue-since"
# Table property: the number of the newest expired snapshot that replaced rows, began a branch anew or was taken back.
REPLACED_KEY = "icebergsink.rows-replaced-at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The write of one table that rows in a quarantine table are of.

    Snapshots are told by their sequence numbers; in tables of format version 1, which has none, by the times of their
    commits in milliseconds.

    Attributes:
        table_uuid: UUID of the table; if the write was to create it, the one that it would have got.
        number: Number of the table's last snapshot before the write; 0 without one.
        head: Number of the last snapshot of the branch that the write builds on; 0 without one.
        branch: The branch that readers use after the write.
        is_new: Whether the write was to create the table.
        replaces: Whether the write replaces rows.
        snapshot_id: Id of the snapshot that the write adds; None if it has a number, because it may be repeated.
        app_id: The application that numbered the write; None for an epoch and for a write without a number.
    """

    table_uuid: str
    number: int = 0
    head: int = 0
    branch: str = MAIN_BRANCH
    is_new: bool = False
    replaces: bool = False
    snapshot_id: int | None = None
    app_id: str | None = None

    @classmethod
    def of(cls, write: WriteIdentity, found: TableMetadata | None) -> Origin:
        """Return the origin of the rows of a write; `found` is the table that has its name now, or None."""
        is_adopted = found is not None and write.new_table is not None
        is_found = found is not None and (is_adopted or str(found.table_uuid) == write.table_uuid)
        head = branch_head(found, base_branch(found, write.route)) if found is not None and is_found else None
        return cls(
            table_uuid=str(found.table_uuid) if found is not None and is_adopted else write.table_uuid,
            number=_last_number(found) if found is not None and is_found else 0,
            head=0 if head is None or found is None else _number(found, head),
            branch=write.route.publish_to or write.branch,
            is_new=write.new_table is not None,
            replaces=write.overwrite is not None,
            snapshot_id=write.snapshot_id if write.numbered is None else None,
            app_id=None if write.txn is None else write.txn.app_id,
        )


def origins_entry(origins: Mapping[str, Origin]) -> dict[str, str]:
    """Return the summary entry with the origins of rows, by the names that the rows have for their tables."""
    told = {name: _told(origin) for name, origin in sorted(origins.items())}
    return {QUARANTINED_FROM_KEY: json.dumps(told, separators=(",", ":"))}


def _told(origin: Origin) -> list[object]:
    """Return an origin without what most origins have, because an epoch may have rows of a thousand tables."""
    usual = asdict(Origin(table_uuid=origin.table_uuid, number=origin.number, head=origin.number))
    rest = {key: value for key, value in asdict(origin).items() if value != usual[key]}
    return [origin.table_uuid, origin.number, *([rest] if rest else [])]


def origins_in(snapshot: Snapshot) -> dict[str, Origin] | None:
    """Return the origins of the rows that a snapshot has added, by name, or None if it does not tell them."""
    try:
        told = json.loads(summary_entries(snapshot)[QUARANTINED_FROM_KEY])
        return {
            name: Origin(**{"table_uuid": table_uuid, "number": number, "head": number, **(rest[0] if rest else {})})
            for name, (table_uuid, number, *rest) in told.items()
        }
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def find_origin(history: BranchHistory, origin: Origin, told: Snapshot) -> Snapshot | None:
    """Return the snapshot of a table's branch that has the other rows of a write, or None if the branch shows none.

    Args:
        history: The branch.
        origin: The write.
        told: The snapshot of the quarantine table that has the write's rows.
    """
    kind, writer = (EPOCHS, writer_in(told, EPOCHS)) if origin.app_id is None else (TXNS, origin.app_id)
    for snapshot in history:
        source = picked_source(history.metadata, snapshot) or snapshot
        is_of_writer = writer is not None and writer_in(source, kind) == writer
        if source.snapshot_id == origin.snapshot_id or (
            is_of_writer and marker_in(source, kind).number == marker_in(told, kind).number
        ):
            return snapshot
    return None


def why_untold(history: BranchHistory, branch: str, origin: Origin, told: Snapshot) -> str | None:
    """Return why the rows of a write may be in a table by now, or None if no snapshot says so.

    Args:
        history: The branch of the table that the rows are to be written into.
        branch: Its name for readers.
        origin: The write.
        told: The snapshot of the quarantine table that has the write's rows.
    """
    own = find_origin(history, origin, told)
    if own is None and origin.branch != branch:
        return f"are of a write to branch '{origin.branch}', which branch '{branch}' does not show"
    if own is None and origin.replaces:  # if it was killed and comes again, it replaces what is requeued now
        again = "if its driver died, run it again first"
        return f"are of a write that replaces rows, and that branch '{branch}' does not show ({again})"
    if own is None and _went_another_way(history, origin):
        return f"are of a write before branch '{branch}' of the table began anew or was set back, or its rows replaced"
    for snapshot in history:
        if snapshot is own or (own is None and _number(history.metadata, snapshot) <= origin.number):
            return None
        if _replaces_rows(snapshot):
            return f"are of a write before snapshot {snapshot.snapshot_id} of the table, which replaced rows"
    return None


def replaced_property(metadata: TableMetadata, expired: Collection[int]) -> dict[str, str]:
    """Return the table property that records what expiring snapshots tell of rows that were replaced; empty for none.

    Args:
        metadata: The table that still has the snapshots.
        expired: The ids of the snapshots that expire.
    """
    known = whole_number(metadata.properties, REPLACED_KEY, 0)
    newest = max((_number(metadata, snapshot) for snapshot in _replacing(metadata, expired)), default=0)
    return {REPLACED_KEY: str(newest)} if newest > known else {}


def _replacing(metadata: TableMetadata, expired: Collection[int]) -> Iterator[Snapshot]:
    """Yield the expiring snapshots before which a table's rows may have been other ones, that came again later."""
    for branch, ref in metadata.refs.items():
        if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
            continue
        history = BranchHistory(metadata, branch)
        yield from (found for found in history if found.snapshot_id in expired and _replaces_rows(found))
        oldest = history.oldest
        # A table's first snapshot begins nothing anew. In format version 1 nothing tells it from another one.
        if oldest is not None and oldest.snapshot_id in expired and begins_a_table(oldest):
            yield from [oldest] if (oldest.sequence_number or 0) > 1 else []
        if branch == MAIN_BRANCH:
            logged = {entry.snapshot_id for entry in metadata.snapshot_log} & set(expired)
            yield from (
                found
                for found in metadata.snapshots
                if found.snapshot_id in logged and not history.shows(found.snapshot_id)
            )


def state_of(history: BranchHistory) -> str:
    """Return the state of a table's branch as text: the table's UUID and the branch's snapshot, 0 without one."""
    metadata = history.metadata
    return f"{metadata.table_uuid} {branch_snapshot_id(metadata, history.branch) or 0}"


def why_not_since(history: BranchHistory, state: str) -> str | None:
    """Return why a table may have got requeued rows in another way since it was in a state, or None if it has not.

    Args:
        history: The branch that the rows are to be written into.
        state: The state in which the table lacked them, as `state_of` tells it.
    """
    table_uuid, _, head = state.partition(" ")
    if str(history.metadata.table_uuid) != table_uuid:
        return "another table has its name by now"
    for later in history:
        if str(later.snapshot_id) == head:
            return None
        if _replaces_rows(later):
            return f"snapshot {later.snapshot_id} of the table has replaced rows"
    return None if head == "0" else f"branch '{history.branch}' of the table does not show snapshot {head} any more"


def _went_another_way(history: BranchHistory, origin: Origin) -> bool:
    """Return whether a branch does not go on from where it stood before a write, as far as it shows."""
    metadata, oldest = history.metadata, history.oldest
    if origin.number < whole_number(metadata.properties, REPLACED_KEY, 0):
        return True
    if oldest is None:
        return origin.head > 0 or _last_number(metadata) > origin.number
    first = _number(metadata, oldest)
    if _last_number(metadata) < origin.number or _was_set_back(history, origin.number):
        return True
    if origin.head == 0:
        return begins_a_table(oldest) and first > origin.number + 1
    if all(_number(metadata, snapshot) != origin.head for snapshot in history):
        return first < origin.head or begins_a_table(oldest)
    return False


def _was_set_back(history: BranchHistory, number: int) -> bool:
    """Return whether `main` once had a snapshot after a number that it has no more; other branches have no log."""
    if history.branch != MAIN_BRANCH:
        return False
    logged = (find_snapshot(history.metadata, entry.snapshot_id) for entry in history.metadata.snapshot_log)
    return any(
        snapshot is not None
        and _number(history.metadata, snapshot) > number
        and not history.shows(snapshot.snapshot_id)
        for snapshot in logged
    )


def _replaces_rows(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is of an overwrite: others' are told if they replace partitions, or all rows."""
    entries = summary_entries(snapshot)
    if REPLACES_ROWS_KEY in entries:
        return True
    operation = None if snapshot.summary is None else snapshot.summary.operation
    if entries.get("engine-name") == "icebergsink" or operation not in {Operation.OVERWRITE, Operation.DELETE}:
        return False
    is_of_all = entries.get("total-data-files") == entries.get("added-data-files", "0")
    return entries.get("replace-partitions") == "true" or (
        is_of_all and is_number(removed := entries.get("deleted-data-files")) and int(removed or 0) > 0
    )


def _number(metadata: TableMetadata, snapshot: Snapshot) -> int:
    return snapshot.timestamp_ms if metadata.format_version == 1 else snapshot.sequence_number or 0


def _last_number(metadata: TableMetadata) -> int:
    if metadata.format_version > 1:
        return last_sequence_number(metadata)
    return max((snapshot.timestamp_ms for snapshot in metadata.snapshots), default=0)
