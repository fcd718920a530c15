"""Pure: what a commit writes into the table's properties: the mark of its write, and those that come with a branch.

Marks belong to rows. So they go where the rows go: a branch that begins anew from another one takes over
that one's marks, and has none of an earlier branch of its name; and publishing a branch takes its marks along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from iceberg_ds.messages import WriteIdentity
from iceberg_ds.plan import EpochId, NumberedWrite
from iceberg_ds.snapshots.branches import base_branch
from iceberg_ds.snapshots.epochs import run_before
from iceberg_ds.snapshots.marks import (
    EPOCHS,
    TXNS,
    Mark,
    kind_of,
    named_properties,
    property_mark,
    property_name,
    read_mark,
)
from iceberg_ds.snapshots.streams import STREAM_PREFIX, find_stream, next_record, stream_property

_MARKS = {kind.property_prefix: kind for kind in (EPOCHS, TXNS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyChange:
    """What changes in a table's properties.

    Attributes:
        values: Properties to set.
        removals: Names of those to remove.
    """

    values: dict[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()

    @property
    def updates(self) -> tuple[TableUpdate, ...]:
        """The same for the catalog."""
        removed = (RemovePropertiesUpdate(removals=list(self.removals)),) if self.removals else ()
        return (*removed, *((SetPropertiesUpdate(updates=self.values),) if self.values else ()))


def record_write(
    metadata: TableMetadata,
    write: WriteIdentity,
    snapshot: Snapshot,
    last: Mark | None,
    record_count: int | None = None,
) -> PropertyChange:
    """Return the properties that record `write`, to be set in the same request as its rows.

    Args:
        metadata: The table, freshly loaded.
        write: The write.
        snapshot: The snapshot that it adds.
        last: The mark that its writer left before it, None if there is none.
        record_count: How many rows it has, None if that is not to be recorded.
    """
    base = base_branch(metadata, write.route)
    if base != write.branch:
        values, removals = _taken_over(metadata, base, write.branch)
    else:
        values, removals = {}, set()
    if write.numbered is not None:
        values |= _own(metadata, write, write.numbered, _mark(write.numbered, snapshot, last, record_count), base)
    return PropertyChange(values=values, removals=tuple(sorted(removals - values.keys())))


def published_marks(metadata: TableMetadata, branch: str, to: str) -> PropertyChange:
    """Return the properties that branch `to` gets when it is fast-forwarded to `branch`: each writer's newer mark."""
    values = {}
    for prefix, name, text in _recorded(metadata, branch):
        key = property_name(prefix, to, name)
        present, kind = metadata.properties.get(key), _MARKS.get(prefix)
        if present == text:
            continue
        if present is None or kind is None or read_mark(kind, present).number < read_mark(kind, text).number:
            values[key] = text
    return PropertyChange(values=values)


def dropped_marks(metadata: TableMetadata, branch: str) -> PropertyChange:
    """Return what is to be removed with `branch`: all that records a write to it."""
    return PropertyChange(
        removals=tuple(property_name(prefix, branch, name) for prefix, name, _ in _recorded(metadata, branch))
    )


def _mark(numbered: NumberedWrite, snapshot: Snapshot, last: Mark | None, record_count: int | None) -> Mark:
    run_id = numbered.run_id if isinstance(numbered, EpochId) else None
    return Mark(
        number=numbered.number,
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        run_id=run_id,
        previous_run_id=run_before(last, run_id),
        record_count=record_count,
    )


def _own(
    metadata: TableMetadata, write: WriteIdentity, numbered: NumberedWrite, mark: Mark, base: str
) -> dict[str, str]:
    values = property_mark(kind_of(numbered), write.branch, numbered.writer, mark)
    if write.stream is not None:
        before = find_stream(metadata, base, write.stream.name)
        record = next_record(before, write.stream, numbered.writer)
        if record is not None and (record != before or base != write.branch):
            values |= stream_property(write.branch, write.stream.name, record)
    return values


def _taken_over(metadata: TableMetadata, base: str, branch: str) -> tuple[dict[str, str], set[str]]:
    """Return what a branch that begins anew from `base` has to record, and what an earlier one of its name left."""
    values = {property_name(prefix, branch, name): text for prefix, name, text in _recorded(metadata, base)}
    stale = {property_name(prefix, branch, name) for prefix, name, _ in _recorded(metadata, branch)} - values.keys()
    return {key: text for key, text in values.items() if metadata.properties.get(key) != text}, stale


def _recorded(metadata: TableMetadata, branch: str) -> Iterator[tuple[str, str, str]]:
    """Yield prefix, name and text of every property that records a write to `branch`."""
    for prefix in (*_MARKS, STREAM_PREFIX):
        for name, text in named_properties(metadata, prefix, branch):
            yield prefix, name, text
