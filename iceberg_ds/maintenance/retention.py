"""Pure: which refs and snapshots of a table expire by its retention properties, by the rules of Iceberg's Java library.

A branch keeps its newest snapshots up to a number, and all that are young enough, in one row from its head; the first
one that is neither ends the row. A tag keeps its snapshot. A ref whose snapshot is too old goes, but for `main`. A
snapshot that no branch has behind it and no tag names goes when it is too old. What else rests on a snapshot is not
known here (`resting`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.parsing import deciding_number
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_history, find_snapshot

_FIVE_DAYS_MS = 5 * 86_400_000
_HIGHEST_LONG = 2**63 - 1
MAX_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
_MAX_REF_AGE = "history.expire.max-ref-age-ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a table keeps. All times are in milliseconds since the Unix epoch, all ages in milliseconds.

    Attributes:
        now_ms: The time by which ages are told.
        older_than_ms: A snapshot that was committed before this time is old; a branch may have its own age.
        min_snapshots_to_keep: How many snapshots each branch keeps, however old; a branch may have its own number.
        max_ref_age_ms: A branch or tag whose snapshot is older goes; it may have its own age.
        snapshot_ids: Snapshots that go, however young.
    """

    now_ms: int
    older_than_ms: int
    min_snapshots_to_keep: int
    max_ref_age_ms: int
    snapshot_ids: frozenset[int] = frozenset()

    @classmethod
    def of(
        cls,
        properties: Mapping[str, str],
        now_ms: int,
        *,
        older_than_ms: int | None = None,
        retain_last: int | None = None,
        snapshot_ids: Collection[int] = (),
    ) -> Retention:
        """Return what a table with these properties keeps; arguments that are None follow from the properties.

        Raises:
            UnsupportedTableError: A property is no whole number.
        """
        max_age_ms = deciding_number(properties, MAX_SNAPSHOT_AGE, _FIVE_DAYS_MS)
        min_snapshots = deciding_number(properties, MIN_SNAPSHOTS, 1)
        return cls(
            now_ms=now_ms,
            older_than_ms=now_ms - max_age_ms if older_than_ms is None else older_than_ms,
            min_snapshots_to_keep=min_snapshots if retain_last is None else retain_last,
            max_ref_age_ms=deciding_number(properties, _MAX_REF_AGE, _HIGHEST_LONG),
            snapshot_ids=frozenset(snapshot_ids),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """What goes.

    Attributes:
        refs: Names of branches and tags.
        snapshot_ids: Ids of snapshots that are in the table.
    """

    refs: frozenset[str]
    snapshot_ids: frozenset[int]


def find_expired(metadata: TableMetadata, retention: Retention, waiting: Collection[str] = ()) -> Expired:
    """Return what goes.

    Args:
        metadata: The table.
        retention: What it keeps.
        waiting: Branches that stay at any age.

    Raises:
        OptionError: A snapshot that is asked to go is that of a branch or tag that stays.
        UnsupportedTableError: A branch or tag names a snapshot that is not there.
    """
    kept = {name: ref for name, ref in metadata.refs.items() if name in waiting or _stays(metadata, retention, name)}
    heads: dict[int, list[str]] = {}
    for name, ref in kept.items():
        heads.setdefault(ref.snapshot_id, []).append(name)
    for snapshot_id in sorted(retention.snapshot_ids & heads.keys()):
        names = ", ".join(f"'{name}'" for name in sorted(heads[snapshot_id]))
        raise OptionError(f"snapshot {snapshot_id} is still that of {names}: drop or move that branch or tag first")
    stays, referenced = set(heads), set(heads)
    for name, ref in kept.items():
        if ref.snapshot_ref_type is SnapshotRefType.BRANCH:
            row, history = _row_of(metadata, retention, name, ref)
            stays |= row
            referenced |= history
    return Expired(
        refs=frozenset(metadata.refs.keys() - kept.keys()),
        snapshot_ids=frozenset(
            snapshot.snapshot_id
            for snapshot in metadata.snapshots
            if snapshot.snapshot_id in retention.snapshot_ids
            or (
                snapshot.snapshot_id not in stays
                and (snapshot.snapshot_id in referenced or snapshot.timestamp_ms < retention.older_than_ms)
            )
        ),
    )


def _stays(metadata: TableMetadata, retention: Retention, name: str) -> bool:
    ref = metadata.refs[name]
    snapshot = find_snapshot(metadata, ref.snapshot_id)
    if snapshot is None:
        raise UnsupportedTableError(
            f"'{name}' names snapshot {ref.snapshot_id}, which the table does not have: drop it"
        )
    if name == MAIN_BRANCH:
        return True
    most = retention.max_ref_age_ms if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return retention.now_ms - snapshot.timestamp_ms <= most


def _row_of(metadata: TableMetadata, retention: Retention, name: str, ref: SnapshotRef) -> tuple[set[int], set[int]]:
    """Return the ids of the snapshots that a branch keeps, and of all that it shows."""
    since_ms = retention.older_than_ms
    if ref.max_snapshot_age_ms is not None:
        since_ms = retention.now_ms - ref.max_snapshot_age_ms
    number = retention.min_snapshots_to_keep if ref.min_snapshots_to_keep is None else ref.min_snapshots_to_keep
    row: set[int] = set()
    history: set[int] = set()
    has_ended = False
    for snapshot in branch_history(metadata, name):
        history.add(snapshot.snapshot_id)
        has_ended |= len(row) >= number and snapshot.timestamp_ms < since_ms
        if not has_ended:
            row.add(snapshot.snapshot_id)
    return row, history
