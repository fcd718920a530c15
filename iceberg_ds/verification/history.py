"""Pure: whether a table's snapshots, refs and logs fit together."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.snapshots.branches import MAIN_BRANCH
from iceberg_ds.snapshots.timeline import CLOCKS_APART_MS, latest_ms


def history_problems(metadata: TableMetadata) -> list[str]:
    """Return what is wrong with snapshots, refs, the snapshot log and the ids that they name."""
    return [
        *_ref_problems(metadata),
        *_snapshot_problems(metadata),
        *_log_problems(metadata),
        *_id_problems(metadata),
    ]


def expired_parents(metadata: TableMetadata) -> int:
    """Return how many snapshots have a parent that has expired."""
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    parents = {snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    return len(parents - present - {None})


def goes_in_circles(metadata: TableMetadata) -> bool:
    """Return whether a snapshot is among its own ancestors: no history can be followed then."""
    parent = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    whole: set[int] = set()
    for start in parent:
        path: set[int] = set()
        at: int | None = start
        while at in parent and at not in whole:
            if at in path:
                return True
            path.add(at)
            at = parent[at]
        whole |= path
    return False


def _ref_problems(metadata: TableMetadata) -> Iterator[str]:
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for name, ref in metadata.refs.items():
        if ref.snapshot_id not in present:
            yield f"{ref.snapshot_ref_type.value} '{name}' points at snapshot {ref.snapshot_id}, which is not there"
    current = metadata.current_snapshot_id
    main = metadata.refs.get(MAIN_BRANCH)
    if current is not None and current not in present:
        yield f"the current snapshot {current} is not there"
    elif main is not None and main.snapshot_id != current:
        yield f"branch '{MAIN_BRANCH}' points at snapshot {main.snapshot_id}, but the current snapshot is {current}"


def _snapshot_problems(metadata: TableMetadata) -> Iterator[str]:
    if goes_in_circles(metadata):
        yield "a snapshot is among its own ancestors"
        return
    counts = Counter(snapshot.snapshot_id for snapshot in metadata.snapshots)
    yield from (f"snapshot {number} is there {count} times" for number, count in counts.items() if count > 1)
    if metadata.format_version == 1:
        return
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    for snapshot in metadata.snapshots:
        number, last = snapshot.sequence_number or 0, metadata.last_sequence_number
        if number > last:
            yield f"snapshot {snapshot.snapshot_id} has sequence number {number}, above the table's last, {last}"
        parent = by_id.get(snapshot.parent_snapshot_id or 0)
        if parent is not None and number and (parent.sequence_number or 0) >= number:
            yield _not_above(snapshot, parent)


def _not_above(snapshot: Snapshot, parent: Snapshot) -> str:
    return (
        f"snapshot {snapshot.snapshot_id} has sequence number {snapshot.sequence_number}, its parent "
        f"{parent.snapshot_id} has {parent.sequence_number}"
    )


def _log_problems(metadata: TableMetadata) -> Iterator[str]:
    log = metadata.snapshot_log
    if log and metadata.current_snapshot_id is not None and log[-1].snapshot_id != metadata.current_snapshot_id:
        yield (
            f"the snapshot log ends with snapshot {log[-1].snapshot_id}, but the current snapshot is "
            f"{metadata.current_snapshot_id}"
        )
    snapshots = [(f"snapshot {entry.snapshot_id}", entry.timestamp_ms) for entry in log]
    files = [(entry.metadata_file, entry.timestamp_ms) for entry in metadata.metadata_log]
    yield from (f"the snapshot log goes back in time at {name}" for name in _back_in_time(snapshots))
    yield from (f"the metadata log goes back in time at {name}" for name in _back_in_time(files))
    if metadata.last_updated_ms < latest_ms(metadata) - CLOCKS_APART_MS:
        yield "the last update is said to be before the last entry of a log"


def _back_in_time(entries: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Return the names of entries whose time in milliseconds is before that of the entry before them."""
    for (_, earlier), (name, moment) in itertools.pairwise(entries):
        if moment < earlier - CLOCKS_APART_MS:
            yield name


def _id_problems(metadata: TableMetadata) -> Iterator[str]:
    schemas = {schema.schema_id for schema in metadata.schemas}
    for snapshot in metadata.snapshots:
        if snapshot.schema_id is not None and snapshot.schema_id not in schemas:
            yield f"snapshot {snapshot.snapshot_id} has schema {snapshot.schema_id}, which is not there"
    columns = {number for schema in metadata.schemas for number in schema.field_ids}
    for spec in metadata.partition_specs:
        for used in spec.fields:
            if used.source_id not in columns:
                yield f"partition spec {spec.spec_id} is made of column {used.source_id}, which no schema has"
    if metadata.default_spec_id not in metadata.specs():
        yield f"the default partition spec {metadata.default_spec_id} is not there"
    if metadata.current_schema_id not in schemas:
        yield f"the current schema {metadata.current_schema_id} is not there"
    orders = {order.order_id for order in metadata.sort_orders} | {0}
    if metadata.default_sort_order_id not in orders:
        yield f"the default sort order {metadata.default_sort_order_id} is not there"
