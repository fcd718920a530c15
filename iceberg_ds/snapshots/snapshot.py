"""Pure: the snapshot that a write adds, its summary, and the catalog request that adds it.

Decides ids, numbers, summary and markers from the current table; writes nothing. The keys of summaries are
PyIceberg's, which are the spec's ("Optional Snapshot Summary Fields").
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import (
    ADDED_DATA_FILES,
    ADDED_FILE_SIZE,
    ADDED_RECORDS,
    CHANGED_PARTITION_COUNT_PROP,
    CHANGED_PARTITION_PREFIX,
    PARTITION_SUMMARY_PROP,
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertCreate,
    AssertRefSnapshotId,
    AssertTableUUID,
    AssignUUIDUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.typedef import Record

from iceberg_ds._version import __version__
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.messages import TaskManifest, Totals
from iceberg_ds.parsing import whole_number
from iceberg_ds.plan import WriteIdentity
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.history import latest_ms
from iceberg_ds.snapshots.refs import (
    BUILDS_ON_KEY,
    KEEPS_ROWS_KEY,
    MAIN_BRANCH,
    REPLACES_ROWS_KEY,
    STAGED_FOR_KEY,
    base_branch,
    branch_snapshot_id,
    contains,
    write_base,
)
from iceberg_ds.snapshots.txn import TxnMarker, marker_summary
from iceberg_ds.snapshots.txn_properties import record_write
from iceberg_ds.snapshots.version_3 import (
    VERSION_3,
    deletion_vector,
    next_row_id,
    unnumbered_rows,
    why_not_numbered,
    with_own_size,
)
from iceberg_ds.table.partitioning import partition_path, place_of
from iceberg_ds.table.requests import LAST_ADDED, AddSchema, CommitRequest, UpgradeFormatVersion

_PARTITION_LIMIT_PROPERTY = "write.summary.partition-limit"


def totals_of(data_files: Iterable[DataFile], specs: Mapping[int, PartitionSpec], schema: Schema) -> Totals:
    """Return the totals of the data files.

    Args:
        data_files: The files; no delete files.
        specs: Their partition specs, by id.
        schema: The schema with the source columns of the specs.
    """
    paths: dict[tuple[int, str], str] = {}
    partitions: dict[str, tuple[int, int, int]] = {}
    files = rows = size_bytes = 0
    for data_file in data_files:
        count, size = data_file.record_count, data_file.file_size_in_bytes
        files, rows, size_bytes = files + 1, rows + count, size_bytes + size
        if not len(data_file.partition):
            continue
        key = place_of(data_file)
        path = paths.get(key)
        if path is None:
            path = paths[key] = partition_path(data_file.partition, specs[data_file.spec_id], schema)
        partitions[path] = _sum(partitions.get(path, (0, 0, 0)), (1, count, size))
    return Totals(files=files, rows=rows, size_bytes=size_bytes, partitions=partitions)


def added_summary(totals: Sequence[Totals], partition_limit: int) -> dict[str, str]:
    """Return the summary entries that count what a snapshot adds.

    Args:
        totals: Totals of what it adds, in any number of parts.
        partition_limit: Maximum number of partitions that the summary counts one by one.
    """
    summary = _counts(
        sum(part.files for part in totals), sum(part.rows for part in totals), sum(part.size_bytes for part in totals)
    )
    changed = len(set().union(*(part.partitions for part in totals)))
    if changed:
        summary[CHANGED_PARTITION_COUNT_PROP] = str(changed)
    if 0 < changed <= partition_limit:
        partitions: dict[str, tuple[int, int, int]] = {}
        for part in totals:
            for path, figures in part.partitions.items():
                partitions[path] = _sum(partitions.get(path, (0, 0, 0)), figures)
        summary[PARTITION_SUMMARY_PROP] = "true"
        for path, figures in partitions.items():
            counts = _counts(*figures)
            summary[CHANGED_PARTITION_PREFIX + path] = ",".join(f"{name}={count}" for name, count in counts.items())
    return summary


def _sum(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _counts(files: int, rows: int, size_bytes: int) -> dict[str, str]:
    counts = {ADDED_FILE_SIZE: size_bytes, ADDED_DATA_FILES: files, ADDED_RECORDS: rows}
    return {name: str(count) for name, count in counts.items() if count > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a snapshot does to the files of its branch.

    Attributes:
        added: Data files or delete files that it adds.
        removed: Data and delete files that it drops.
        manifests: Manifests of further data files that it adds; none if it drops any, or adds delete files.
        keeps_rows: Whether the table has the same rows after it, in other files.
    """

    added: Sequence[DataFile]
    removed: Sequence[DataFile] = ()
    manifests: Sequence[TaskManifest] = ()
    keeps_rows: bool = False

    @property
    def operation(self) -> Operation:
        """The spec's operation (table metadata, "Snapshots"), chosen as Iceberg's Java library does."""
        adds_rows = bool(self.manifests) or any(found.content == DataFileContent.DATA for found in self.added)
        adds_deletes = any(found.content != DataFileContent.DATA for found in self.added)
        if self.keeps_rows:
            # Iceberg's Java library does not look for concurrent deletes in snapshots that replace files: a
            # compaction that began before would land, and leave these deletes without the files that they name.
            # Position deletes in place of others name no row that was not named before.
            kinds = {found.content for found in self.removed}
            hides_anew = adds_deletes and kinds != {DataFileContent.POSITION_DELETES}
            return Operation.OVERWRITE if hides_anew else Operation.REPLACE
        if not (self.removed or adds_deletes):
            return Operation.APPEND
        return Operation.OVERWRITE if adds_rows else Operation.DELETE

    @property
    def is_empty(self) -> bool:
        """Whether the snapshot changes nothing."""
        return not (self.added or self.removed or self.manifests)


def change_summary(metadata: TableMetadata, change: Change) -> dict[str, str]:
    """Return the summary entries that count what `change` adds and drops, and say if the rows stay the same."""
    limit = whole_number(metadata.properties, _PARTITION_LIMIT_PROPERTY, 0)
    if not change.removed and all(found.content == DataFileContent.DATA for found in change.added):
        named = totals_of(change.added, metadata.specs(), metadata.schema())
        return added_summary([named, *(manifest.totals for manifest in change.manifests)], limit)
    collector = SnapshotSummaryCollector(partition_summary_limit=limit)
    specs = {spec_id: _Paths(spec) for spec_id, spec in metadata.specs().items()}
    # The collector only ever asks a spec for the path of a partition.
    for data_file in change.added:
        collector.add_file(with_own_size(data_file), metadata.schema(), specs[data_file.spec_id])  # type: ignore[arg-type]
    for data_file in change.removed:
        collector.remove_file(with_own_size(data_file), metadata.schema(), specs[data_file.spec_id])  # type: ignore[arg-type]
    counts = {**collector.build(), **({KEEPS_ROWS_KEY: "true"} if change.keeps_rows else {})}
    for name, files in (("added", change.added), ("removed", change.removed)):
        if vectors := sum(deletion_vector(found) is not None for found in files):
            _count_apart(counts, name, vectors)
    return counts


def _count_apart(counts: dict[str, str], name: str, vectors: int) -> None:
    """Count deletion vectors as such, as Iceberg's Java library does; PyIceberg counts position delete files."""
    key = f"{name}-position-delete-files"
    others = int(counts.pop(key, "0")) - vectors
    counts |= {f"{name}-dvs": str(vectors), **({key: str(others)} if others > 0 else {})}


@dataclass(frozen=True)
class _Paths:
    """The paths of a spec's partitions, even of those that PyIceberg cannot convert to text."""

    spec: PartitionSpec

    def partition_to_path(self, partition: Record, schema: Schema) -> str:
        return partition_path(partition, self.spec, schema)


def new_snapshot(  # noqa: PLR0913, PLR0917  # the last one is seldom given
    metadata: TableMetadata,
    write: WriteIdentity,
    operation: Operation,
    counts: Mapping[str, str],
    manifest_list: str,
    manifests: Sequence[ManifestFile] = (),
) -> Snapshot:
    """Return the snapshot that adds `write` to the branch as it is in `metadata`.

    Args:
        metadata: The table, freshly loaded.
        write: The write.
        operation: The snapshot's operation.
        counts: Its summary entries, as `change_summary` gives them.
        manifest_list: The path where its manifest list will be.
        manifests: What the list will have.

    Raises:
        UnsupportedTableError: The table is of version 3, and has no ids for the rows.
    """
    rows = sum(map(unnumbered_rows, manifests))
    if (reason := why_not_numbered(metadata, rows)) is not None:
        raise UnsupportedTableError(
            f"Cannot commit to {write.table}, nothing was committed: {reason}. Find out who wrote its metadata so, "
            "and write to another table until that is mended; `iceberg-ds verify` says more."
        )
    parent = write_base(metadata, write.route)
    markers = marker_summary(write.numbered) if write.numbered else {}
    if write.numbered and write.route.converts:
        markers[STAGED_FOR_KEY] = str(write.route.publish_to)
    if write.overwrite is not None:
        markers[REPLACES_ROWS_KEY] = "true"
    markers |= _builds_on(metadata, write)
    summary = update_snapshot_summaries(
        Summary(
            # PyIceberg computes no totals for `replace`, which counts like `overwrite`.
            operation=Operation.OVERWRITE if operation is Operation.REPLACE else operation,
            **write.snapshot_properties,
            **{"engine-name": "icebergsink", "engine-version": __version__},
            **counts,
            **markers,
        ),
        previous_summary=None if parent is None else _known_totals(parent),
    )
    summary = Summary(operation=operation, **summary.additional_properties)
    has_row_ids = metadata.format_version >= VERSION_3
    return Snapshot(
        snapshot_id=write.snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent is not None else None,
        sequence_number=metadata.next_sequence_number(),
        timestamp_ms=max(int(time.time() * 1000), latest_ms(metadata)),
        manifest_list=manifest_list,
        summary=summary,
        schema_id=metadata.current_schema_id,
        first_row_id=next_row_id(metadata) if has_row_ids else None,
        added_rows=rows if has_row_ids else None,
    )


def _known_totals(parent: Snapshot) -> dict[str, str]:
    """Return the totals that the next snapshot counts on from: those that a summary leaves out stay unknown."""
    numbers = {key: text for key, text in summary_entries(parent).items() if text.isdecimal()}
    return {"operation": "", **numbers}  # PyIceberg takes an empty summary for that of a table without rows


def _builds_on(metadata: TableMetadata, write: WriteIdentity) -> dict[str, str]:
    """Return the summary entry that names the snapshot of the readers' branch, if the write builds on that."""
    readers = write.route.publish_to or MAIN_BRANCH
    at = branch_snapshot_id(metadata, readers)
    if write.branch == readers or at is None or not contains(metadata, base_branch(metadata, write.route), at):
        return {}
    return {BUILDS_ON_KEY: str(at)}


def commit_request(  # noqa: PLR0913  # most are given by name
    metadata: TableMetadata,
    write: WriteIdentity,
    snapshot: Snapshot,
    *,
    is_new: bool,
    last: TxnMarker | None = None,
    record_count: int | None = None,
) -> CommitRequest:
    """Return the request that adds `snapshot`, records the write, and creates the table if `is_new`.

    It is refused if the branch is not where `metadata` shows it: check and commit are one step.

    Args:
        metadata: The table, freshly loaded.
        write: The write.
        snapshot: What `new_snapshot` made of it.
        is_new: Whether the table does not exist yet; then `metadata` is the table to create.
        last: The marker that the writer left before this write, or None.
        record_count: How many rows the write has; None to record no count.
    """
    record = record_write(metadata, write, snapshot, last, record_count)
    updates: tuple[TableUpdate, ...] = (
        AddSnapshotUpdate(snapshot=snapshot),
        move_branch(metadata, write.branch, snapshot.snapshot_id),
    )
    if is_new:
        return CommitRequest(requirements=(AssertCreate(),), updates=(*_creation(metadata, record.values), *updates))
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=write.branch, snapshot_id=branch_snapshot_id(metadata, write.branch)),
            *_of_target(metadata, write),
            *record.requirements,
        ),
        updates=(*record.updates, *updates),
    )


def _of_target(metadata: TableMetadata, write: WriteIdentity) -> tuple[TableRequirement, ...]:
    """Return the requirement that refuses a staged write if its target has moved on: it could not be published."""
    to = write.route.publish_to
    if not write.route.converts or to is None:
        return ()
    return (AssertRefSnapshotId(ref=to, snapshot_id=branch_snapshot_id(metadata, to)),)


def move_branch(metadata: TableMetadata, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the update that points `branch` to a snapshot and keeps the branch's retention as it is."""
    ref = metadata.refs.get(branch)
    return SetSnapshotRefUpdate(
        ref_name=branch,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms if ref else None,
        max_snapshot_age_ms=ref.max_snapshot_age_ms if ref else None,
        min_snapshots_to_keep=ref.min_snapshots_to_keep if ref else None,
    )


def creation_request(metadata: TableMetadata) -> CommitRequest:
    """Return the request that creates the table without any snapshot."""
    return CommitRequest(requirements=(AssertCreate(),), updates=_creation(metadata, {}))


def _creation(metadata: TableMetadata, properties: Mapping[str, str]) -> tuple[TableUpdate, ...]:
    """Return the updates that create the table, with these properties beside its own."""
    return (
        AssignUUIDUpdate(uuid=metadata.table_uuid),
        UpgradeFormatVersion(format_version=metadata.format_version),
        AddSchema(schema_=metadata.schema(), last_column_id=metadata.last_column_id),
        SetCurrentSchemaUpdate(schema_id=LAST_ADDED),
        AddPartitionSpecUpdate(spec=metadata.spec()),
        SetDefaultSpecUpdate(spec_id=LAST_ADDED),
        # The spec of deletes, if they have one of their own.
        *(AddPartitionSpecUpdate(spec=s) for s in metadata.partition_specs if s.spec_id != metadata.default_spec_id),
        AddSortOrderUpdate(sort_order=metadata.sort_order_by_id(metadata.default_sort_order_id)),
        SetDefaultSortOrderUpdate(sort_order_id=LAST_ADDED),
        SetLocationUpdate(location=metadata.location),
        # In one update: Nessie refuses to create a table with two of a kind.
        SetPropertiesUpdate(updates={**metadata.properties, **properties}),
    )


def dropped_metadata_files(base: TableMetadata, committed: TableMetadata) -> list[str]:
    """Return the metadata files that fell out of the table's log with this commit, if the table wants them deleted."""
    if committed.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true":
        return []
    kept = {entry.metadata_file for entry in committed.metadata_log}
    return [entry.metadata_file for entry in base.metadata_log if entry.metadata_file not in kept]
