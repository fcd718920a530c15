"""Pure: the lasting identity of a stream: which query writes under its name, and when another may take its place.

The record is a table property for each name and branch, written in the same commit as the first epoch of
a query under that name, so that of two queries that claim a name at once one gets it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.plan import StreamName
from iceberg_ds.snapshots.branches import branch_property
from iceberg_ds.snapshots.marks import named_properties

STREAM_PREFIX = "icebergsink.stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """Which query writes under a name.

    Attributes:
        query_id: Spark's query id.
        was_accepted: It took another one's place by `accept-new-checkpoint`, which has been on ever since:
            while it is, it accepts nobody else.
    """

    query_id: str
    was_accepted: bool = False


def find_stream(metadata: TableMetadata, branch: str, name: str) -> StreamRecord | None:
    """Return which query writes to `branch` under `name`, None if none has so far.

    Raises:
        UnsupportedTableError: The table property that says so is no such record.
    """
    key = branch_property(STREAM_PREFIX, branch, name)
    if (text := metadata.properties.get(key)) is None:
        return None
    try:
        return _parse(text)
    except (ValueError, KeyError, TypeError) as malformed:
        raise UnsupportedTableError(
            f"Cannot tell which query writes stream '{name}' to branch '{branch}': table property '{key}' is no record "
            f"of one ({text!r}). Set it back to what it was, or remove it: the next query under that name takes it."
        ) from malformed


def named_queries(metadata: TableMetadata, branch: str) -> frozenset[str]:
    """Return the ids of the queries that write to `branch` under a name; what is no record says nothing."""
    found: set[str] = set()
    for _, text in named_properties(metadata, STREAM_PREFIX, branch):
        with suppress(ValueError, KeyError, TypeError):
            found.add(_parse(text).query_id)
    return frozenset(found)


def next_record(last: StreamRecord | None, stream: StreamName, query_id: str) -> StreamRecord | None:
    """Return the record after an epoch of `query_id` under this name, None if the query may not use the name."""
    if last is None:
        return StreamRecord(query_id=query_id)
    if last.query_id == query_id:
        return StreamRecord(query_id=query_id, was_accepted=last.was_accepted and stream.accepts_new_checkpoint)
    if stream.accepts_new_checkpoint and not last.was_accepted:
        return StreamRecord(query_id=query_id, was_accepted=True)
    return None


def stream_property(branch: str, name: str, record: StreamRecord) -> dict[str, str]:
    """Return the table property that holds `record`."""
    value = {"query-id": record.query_id, "accepted-new-checkpoint": record.was_accepted}
    return {branch_property(STREAM_PREFIX, branch, name): json.dumps(value)}


def _parse(text: str) -> StreamRecord:
    value = json.loads(text)
    return StreamRecord(query_id=str(value["query-id"]), was_accepted=bool(value["accepted-new-checkpoint"]))
