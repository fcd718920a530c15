"""Pure: how a table's history goes on in time, whatever the clocks of its writers say.

Iceberg's Java library refuses to read a table whose snapshot log, metadata log or last update goes back by more than a
minute (`TableMetadata`), as happens after a commit by a machine whose clock was set back, or had been ahead. So a
table's versions follow each other in time here, however far apart the clocks of its writers are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry

CLOCKS_APART_MS = 60_000  # what Java allows

_Entry = TypeVar("_Entry", SnapshotLogEntry, MetadataLogEntry)


def latest_ms(metadata: TableMetadata) -> int:
    """Return the latest time (milliseconds since 1970) that the table knows of: no commit may be earlier."""
    last = [entry.timestamp_ms for log in (metadata.snapshot_log, metadata.metadata_log) for entry in log[-1:]]
    return max([metadata.last_updated_ms, *last])


def in_order(metadata: TableMetadata) -> TableMetadata:
    """Return the table without times that go back further than readers allow, whichever writer recorded them."""
    ordered = metadata.model_copy(
        update={
            "snapshot_log": list(_ascending(metadata.snapshot_log)),
            "metadata_log": list(_ascending(metadata.metadata_log)),
        }
    )
    return ordered.model_copy(update={"last_updated_ms": latest_ms(ordered)})


def _ascending(log: Sequence[_Entry]) -> Iterator[_Entry]:
    latest = 0
    for entry in log:
        if entry.timestamp_ms < latest - CLOCKS_APART_MS:
            yield entry.model_copy(update={"timestamp_ms": latest})
        else:
            yield entry
            if entry.timestamp_ms > latest:  # noqa: PLR1730  # `max` takes longer than all else here, and logs are long
                latest = entry.timestamp_ms
