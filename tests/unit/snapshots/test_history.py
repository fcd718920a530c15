"""Times of a table whose writers' clocks are apart."""

from __future__ import annotations

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry
from support.tables.metadata import metadata_of

from iceberg_ds.snapshots.history import CLOCKS_APART_MS, in_order, latest_ms


def table(*, updated: int, snapshots: list[int], files: list[int]) -> TableMetadata:
    """Return a table with these times, in minutes."""
    log = [
        SnapshotLogEntry(snapshot_id=number, timestamp_ms=CLOCKS_APART_MS * at) for number, at in enumerate(snapshots)
    ]
    older = [MetadataLogEntry(metadata_file=f"v{n}", timestamp_ms=CLOCKS_APART_MS * at) for n, at in enumerate(files)]
    times = {"last_updated_ms": CLOCKS_APART_MS * updated, "snapshot_log": log, "metadata_log": older}
    made: TableMetadata = metadata_of().model_copy(update=times)
    return made


def minutes(metadata: TableMetadata) -> tuple[int, list[int], list[int]]:
    """Return the same times of a table."""
    logs = (metadata.snapshot_log, metadata.metadata_log)
    snapshots, files = ([entry.timestamp_ms // CLOCKS_APART_MS for entry in log] for log in logs)
    return metadata.last_updated_ms // CLOCKS_APART_MS, snapshots, files


@pytest.mark.parametrize(
    ("found", "latest"),
    [
        (table(updated=5, snapshots=[], files=[]), 5),
        (table(updated=5, snapshots=[1, 9], files=[2]), 9),
        (table(updated=5, snapshots=[1], files=[2, 7]), 7),
    ],
)
def test_latest_time_is_that_of_a_log_or_of_the_update(found: TableMetadata, latest: int) -> None:
    """A commit would go behind one of them, and Java refuse the table."""
    assert latest_ms(found) == CLOCKS_APART_MS * latest


@pytest.mark.parametrize(
    ("found", "ordered"),
    [
        (table(updated=9, snapshots=[1, 2], files=[1, 3]), (9, [1, 2], [1, 3])),
        (table(updated=2, snapshots=[1, 9], files=[1]), (9, [1, 9], [1])),
        (table(updated=2, snapshots=[1, 9, 2], files=[1, 9]), (9, [1, 9, 9], [1, 9])),
        (table(updated=3, snapshots=[1], files=[1, 9, 2, 3]), (9, [1], [1, 9, 9, 9])),
        (table(updated=9, snapshots=[2, 1, 9], files=[]), (9, [2, 1, 9], [])),  # readers allow a minute
    ],
)
def test_times_that_go_back_too_far_are_put_in_order(
    found: TableMetadata, ordered: tuple[int, list[int], list[int]]
) -> None:
    """No Java program could read the table any more because the clock of a single machine was wrong for a while."""
    assert minutes(in_order(found)) == ordered


def test_table_in_order_is_left_as_it_is() -> None:
    """Every commit would change what others have recorded."""
    found = table(updated=9, snapshots=[1, 2], files=[1, 3])

    assert in_order(found) == found
