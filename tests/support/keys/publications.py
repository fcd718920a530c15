"""Writes with `publish-converted`, and what must be true of the branch that readers use after each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from support.keys.messages import Event, keyed_tasks, plan_by_keys
from support.tables.sink import NAME, Sink, epoch

import iceberg_ds
from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import EpochId

STAGING = "main__unconverted"

Values = list[tuple[Any, ...]]


def tasks(sink: Sink, of_epoch: EpochId | int | None, *parts: Sequence[Event], **options: Any) -> list[TaskCommit]:
    """Run the tasks of an epoch of the query that most tests use, of another one, or of a batch (None)."""
    asked = epoch(of_epoch) if isinstance(of_epoch, int) else of_epoch
    return keyed_tasks(plan_by_keys(sink, publish_converted=True, **options), *parts, of_epoch=asked)


def put(sink: Sink, of_epoch: EpochId | int | None, *parts: Sequence[Event], **options: Any) -> CommitResult:
    """Write, convert and publish an epoch, or a batch."""
    return sink.commit(tasks(sink, of_epoch, *parts, **options))


def applied(before: Values, *epochs: Sequence[Event]) -> Values:
    """Return the rows after epochs of which each has a key once."""
    rows: Mapping[int, tuple[Any, ...]] = {row[0]: row for row in before}
    for events in epochs:
        rows = {key: row for key, row in rows.items() if key not in {event[1] for event in events}}
        rows |= {event[1]: (event[1], event[2], event[3]) for event in events if event[0] != "D"}
    return [rows[key] for key in sorted(rows)]


def values(sink: Sink) -> Values:
    """Return the rows of `main` as PyIceberg reads them, which refuses equality deletes."""
    return [tuple(row.values()) for row in sink.rows()]


def check_main(sink: Sink, expected: Values, *, is_published: bool = True) -> None:
    """Assert that `main` has these rows, never had an equality delete, and that the table is whole."""
    table = sink.table()
    assert values(sink) == expected
    for entry in table.metadata.snapshot_log:
        assert keyed_deletes_of(table, entry.snapshot_id) == []
    assert (set(table.metadata.refs) == {"main"}) == is_published
    assert not is_published or not [key for key in table.metadata.properties if STAGING in key]
    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)})
    assert result.ok, str(result)


def keyed_deletes_of(table: Table, snapshot_id: int) -> list[str]:
    """Return the live files of deletes by key of a snapshot."""
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    return [
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES
    ]
