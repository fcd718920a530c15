"""Pure: the marks of numbered writes, by which a later one knows that its rows are there already.

A named writer numbers its writes: a streaming query its epochs, an application the versions of its batches.
The mark of a write is made in the same commit as its rows, twice:

* in the snapshot's summary; for an epoch under the keys of Iceberg's Spark runtime, so that a stream can
  move between the two sinks;
* as a table property, which outlives the expiry of snapshots. There is one property for each writer
  and branch, so their number does not grow with the number of writes.

The newer of the two counts. Knows table metadata and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.plan import EpochId, NumberedWrite
from iceberg_ds.snapshots.branches import branch_history

RUN_ID_KEY = "icebergsink.run-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkKind:
    """Where the marks of one kind of writer stand.

    Attributes:
        property_prefix: What the names of their table properties begin with.
        number_entry: The entry of such a property that holds the number.
        writer_key: Summary key of the writer's name.
        number_key: Summary key of the number.
    """

    property_prefix: str
    number_entry: str
    writer_key: str
    number_key: str


EPOCHS = MarkKind(
    property_prefix="icebergsink.last-epoch",
    number_entry="epoch-id",
    writer_key="spark.sql.streaming.queryId",
    number_key="spark.sql.streaming.epochId",
)
TXNS = MarkKind(
    property_prefix="icebergsink.last-txn",
    number_entry="version",
    writer_key="icebergsink.txn-app-id",
    number_key="icebergsink.txn-version",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The record of one landed write.

    Attributes:
        number: Number of the micro-batch, from 0, or version of the batch.
        snapshot_id: The snapshot that holds its rows; it may have expired since.
        timestamp_ms: When it was committed, milliseconds since the Unix epoch.
        run_id: The run of the query that committed it, None if it is not known, or for a batch.
        previous_run_id: The other run that committed last before this one, None if there is none or it is not known.
        record_count: How many rows the write had, None if that is not known.
    """

    number: int
    snapshot_id: int
    timestamp_ms: int
    run_id: str | None = None
    previous_run_id: str | None = None
    record_count: int | None = None


def kind_of(write: NumberedWrite) -> MarkKind:
    """Return the kind of writer that `write` comes from."""
    return EPOCHS if isinstance(write, EpochId) else TXNS


def property_name(prefix: str, branch: str, name: str) -> str:
    """Return the table property with this prefix that belongs to a branch and a name.

    No dot is left in the name: else a branch with a dot and a name could be read as another branch and name.
    """
    return f"{prefix}.{branch}.{quote(name, safe='').replace('.', '%2E')}"


def named_properties(metadata: TableMetadata, prefix: str, branch: str) -> Iterator[tuple[str, str]]:
    """Yield the names for which a branch has a property with this prefix, and the property's text."""
    start = f"{prefix}.{branch}."
    for key, text in metadata.properties.items():
        if key.startswith(start) and "." not in (name := key.removeprefix(start)):
            yield unquote(name), text


def property_mark(kind: MarkKind, branch: str, writer: str, mark: Mark) -> dict[str, str]:
    """Return the table property that records `mark`."""
    value: dict[str, object] = {
        kind.number_entry: mark.number,
        "snapshot-id": mark.snapshot_id,
        "timestamp-ms": mark.timestamp_ms,
    }
    if kind is EPOCHS:
        value["run-id"] = mark.run_id
    if mark.previous_run_id is not None:
        value["previous-run-id"] = mark.previous_run_id
    if mark.record_count is not None:
        value["record-count"] = mark.record_count
    return {property_name(kind.property_prefix, branch, writer): json.dumps(value)}


def summary_mark(write: NumberedWrite) -> dict[str, str]:
    """Return the snapshot summary entries that record `write`."""
    kind = kind_of(write)
    run = {RUN_ID_KEY: write.run_id} if isinstance(write, EpochId) and write.run_id is not None else {}
    return {kind.writer_key: write.writer, kind.number_key: str(write.number), **run}


def find_last_mark(metadata: TableMetadata, branch: str, kind: MarkKind, writer: str) -> Mark | None:
    """Return the newest mark that `writer` left on `branch`, None if it never committed there."""
    recorded = _from_property(metadata, branch, kind, writer)
    newest = _from_history(metadata, branch, kind, writer, stop_at=recorded.snapshot_id if recorded else None)
    marks = [mark for mark in (recorded, newest) if mark is not None]
    return max(marks, key=lambda mark: mark.number, default=None)


def read_mark(kind: MarkKind, text: str) -> Mark:
    """Return the mark that a table property records."""
    value: dict[str, Any] = json.loads(text)
    return Mark(
        number=int(value[kind.number_entry]),
        snapshot_id=int(value["snapshot-id"]),
        timestamp_ms=int(value["timestamp-ms"]),
        run_id=value.get("run-id"),
        previous_run_id=value.get("previous-run-id"),
        record_count=value.get("record-count"),
    )


def writer_in(snapshot: Snapshot, kind: MarkKind) -> str | None:
    """Return which writer of this kind left its mark in a snapshot's summary, None if none did."""
    return snapshot.summary[kind.writer_key] if snapshot.summary is not None else None


def mark_in(snapshot: Snapshot, kind: MarkKind) -> Mark:
    """Return the mark in the summary of a snapshot that has one of this kind."""
    summary = snapshot.summary
    return Mark(
        number=int((summary[kind.number_key] if summary is not None else None) or 0),
        snapshot_id=snapshot.snapshot_id,
        timestamp_ms=snapshot.timestamp_ms,
        run_id=summary[RUN_ID_KEY] if summary is not None else None,
    )


def _from_property(metadata: TableMetadata, branch: str, kind: MarkKind, writer: str) -> Mark | None:
    text = metadata.properties.get(property_name(kind.property_prefix, branch, writer))
    return None if text is None else read_mark(kind, text)


def _from_history(
    metadata: TableMetadata, branch: str, kind: MarkKind, writer: str, stop_at: int | None
) -> Mark | None:
    """Return the writer's newest mark in the branch's summaries, not looking behind snapshot `stop_at`."""
    for snapshot in branch_history(metadata, branch):
        if snapshot.snapshot_id == stop_at:
            return None
        if writer_in(snapshot, kind) == writer:
            return mark_in(snapshot, kind)
    return None
