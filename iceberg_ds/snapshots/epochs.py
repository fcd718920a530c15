"""Pure: which epoch of which streaming query landed last on a branch, and the marks that record it.

A mark is written in the same commit as the rows, twice:

* in the snapshot's summary, under the keys of Iceberg's Spark runtime, so that a stream can move
  between the two sinks;
* as a table property, which outlives the expiry of snapshots. There is one property for each query
  and branch, so their number does not grow with the number of epochs.

The newer of the two counts. Knows table metadata and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.plan import EpochId
from iceberg_ds.snapshots.branches import branch_history

QUERY_ID_KEY = "spark.sql.streaming.queryId"
EPOCH_ID_KEY = "spark.sql.streaming.epochId"
RUN_ID_KEY = "icebergsink.run-id"
_PROPERTY_PREFIX = "icebergsink.last-epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochMark:
    """The record of one landed epoch.

    Attributes:
        epoch_id: Number of the micro-batch, from 0.
        snapshot_id: The snapshot that holds its rows; it may have expired since.
        timestamp_ms: When it was committed, milliseconds since the Unix epoch.
        run_id: The run of the query that committed it, None if it is not known.
        previous_run_id: The other run that committed last before this one, None if there is none or it is not known.
    """

    epoch_id: int
    snapshot_id: int
    timestamp_ms: int
    run_id: str | None = None
    previous_run_id: str | None = None


def property_key(branch: str, query_id: str) -> str:
    """Return the table property that holds the last epoch of `query_id` on `branch`."""
    return f"{_PROPERTY_PREFIX}.{branch}.{query_id}"


def property_mark(branch: str, query_id: str, mark: EpochMark) -> dict[str, str]:
    """Return the table property that records `mark`."""
    value = {
        "epoch-id": mark.epoch_id,
        "snapshot-id": mark.snapshot_id,
        "timestamp-ms": mark.timestamp_ms,
        "run-id": mark.run_id,
        **({"previous-run-id": mark.previous_run_id} if mark.previous_run_id is not None else {}),
    }
    return {property_key(branch, query_id): json.dumps(value)}


def summary_mark(epoch: EpochId) -> dict[str, str]:
    """Return the snapshot summary entries that record `epoch`."""
    run = {RUN_ID_KEY: epoch.run_id} if epoch.run_id is not None else {}
    return {QUERY_ID_KEY: epoch.query_id, EPOCH_ID_KEY: str(epoch.epoch_id), **run}


def find_last_epoch(metadata: TableMetadata, branch: str, query_id: str) -> EpochMark | None:
    """Return the newest epoch that `query_id` committed to `branch`.

    Returns:
        The mark, or None if the query never committed there.
    """
    recorded = _from_property(metadata, branch, query_id)
    newest = _from_history(metadata, branch, query_id, stop_at=recorded.snapshot_id if recorded else None)
    marks = [mark for mark in (recorded, newest) if mark is not None]
    return max(marks, key=lambda mark: mark.epoch_id, default=None)


def _from_property(metadata: TableMetadata, branch: str, query_id: str) -> EpochMark | None:
    text = metadata.properties.get(property_key(branch, query_id))
    if text is None:
        return None
    value = json.loads(text)
    return EpochMark(
        epoch_id=int(value["epoch-id"]),
        snapshot_id=int(value["snapshot-id"]),
        timestamp_ms=int(value["timestamp-ms"]),
        run_id=value["run-id"],
        previous_run_id=value.get("previous-run-id"),
    )


def _from_history(metadata: TableMetadata, branch: str, query_id: str, stop_at: int | None) -> EpochMark | None:
    """Return the query's newest mark in the branch's summaries, not looking behind snapshot `stop_at`."""
    for snapshot in branch_history(metadata, branch):
        if snapshot.snapshot_id == stop_at:
            return None
        if snapshot.summary is not None and snapshot.summary[QUERY_ID_KEY] == query_id:
            return EpochMark(
                epoch_id=int(snapshot.summary[EPOCH_ID_KEY] or 0),
                snapshot_id=snapshot.snapshot_id,
                timestamp_ms=snapshot.timestamp_ms,
                run_id=snapshot.summary[RUN_ID_KEY],
            )
    return None


def run_before(last: EpochMark | None, run_id: str | None) -> str | None:
    """Return which other run committed last, for the mark that `run_id` leaves after `last`."""
    if last is None:
        return None
    return last.previous_run_id if last.run_id == run_id else last.run_id


def has_committed(metadata: TableMetadata, branch: str, run_id: str) -> bool:
    """Return whether run `run_id` of a query has landed an epoch on `branch` that has not expired."""
    return any(
        snapshot.summary is not None and snapshot.summary[RUN_ID_KEY] == run_id
        for snapshot in branch_history(metadata, branch)
    )
