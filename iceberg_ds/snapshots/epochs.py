"""Pure: what the marks of streaming queries tell: which epoch landed last, by which run, and who else streams here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.branches import branch_history, branch_property
from iceberg_ds.snapshots.marks import (
    EPOCHS,
    RUN_ID_KEY,
    Mark,
    find_last_mark,
    mark_in,
    recorded_marks,
    writer_in,
)

__all__ = [
    "EPOCH_ID_KEY",
    "QUERY_ID_KEY",
    "RUN_ID_KEY",
    "QueryMark",
    "find_last_epoch",
    "has_committed",
    "last_of_others",
    "property_key",
    "run_before",
]

QUERY_ID_KEY = EPOCHS.writer_key
EPOCH_ID_KEY = EPOCHS.number_key


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMark:
    """A query and the last mark that it left on a branch.

    Attributes:
        query_id: Spark's query id.
        mark: Its last epoch.
    """

    query_id: str
    mark: Mark


def property_key(branch: str, query_id: str) -> str:
    """Return the table property that holds the last epoch of `query_id` on `branch`."""
    return branch_property(EPOCHS.property_prefix, branch, query_id)


def find_last_epoch(metadata: TableMetadata, branch: str, query_id: str) -> Mark | None:
    """Return the newest epoch that `query_id` committed to `branch`, None if it never did."""
    return find_last_mark(metadata, branch, EPOCHS, query_id)


def last_of_others(metadata: TableMetadata, branch: str, known: frozenset[str]) -> QueryMark | None:
    """Return the query that committed last to `branch`, those whose ids are `known` left out; None if there is none."""
    others = (found for found in _queries(metadata, branch) if found.query_id not in known)
    return max(others, key=lambda found: (found.mark.timestamp_ms, found.mark.number), default=None)


def _queries(metadata: TableMetadata, branch: str) -> Iterator[QueryMark]:
    for query_id, mark in recorded_marks(metadata, branch, EPOCHS):
        yield QueryMark(query_id=query_id, mark=mark)
    for snapshot in branch_history(metadata, branch):  # the JVM sink leaves no property
        if (writer := writer_in(snapshot, EPOCHS)) is not None:
            yield QueryMark(query_id=writer, mark=mark_in(snapshot, EPOCHS))


def run_before(last: Mark | None, run_id: str | None) -> str | None:
    """Return which other run committed last, for the mark that `run_id` leaves after `last`."""
    if last is None:
        return None
    return last.previous_run_id if last.run_id == run_id else last.run_id


def has_committed(metadata: TableMetadata, branch: str, run_id: str) -> bool:
    """Return whether run `run_id` of a query has landed an epoch on `branch` that has not expired."""
    return any(summary_entries(snapshot).get(RUN_ID_KEY) == run_id for snapshot in branch_history(metadata, branch))
