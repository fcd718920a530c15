"""SIGKILL at every named step of a conversion: the rows stay, another conversion ends it, and a stream goes on."""

from __future__ import annotations

from typing import Any

import pytest
from support.checks.invariants import check_sound, unreferenced_files
from support.checks.reader import rows_of
from support.checks.version_3 import check_version_3
from support.exhaustive import few
from support.keys.conversions import ENCODINGS, convert, keyed_deletes
from support.keys.messages import KEYED_SCHEMA, keyed_tasks, plan_by_keys
from support.programs.converter import die_in_conversion
from support.tables.sink import NAME, Sink, epoch

import iceberg_ds
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.snapshots.version_3 import VERSION_3

STEPS = [
    FaultPoint.PLANNED,
    FaultPoint.FILE_CLOSED,
    FaultPoint.TASK_WRITTEN,
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
]
LANDED_BY_THEN = {FaultPoint.REQUEST_ANSWERED, FaultPoint.COMMITTED}
AFTER = [(0, "EU", 0), (1, "US", 10), (3, "EU", 3), (5, "DE", 50)]


@pytest.fixture
def keyed(sink: Sink, request: pytest.FixtureRequest) -> Sink:
    """Return the sink of a table of a format version with two epochs by key."""
    sink.create(KEYED_SCHEMA, format_version=request.param)
    put(sink, 0, *[("I", key, "EU", key, 0) for key in range(4)])
    put(sink, 1, ("U", 1, "US", 10, 1), ("D", 2, "EU", None, 1), ("I", 5, "DE", 50, 1))
    return sink


def put(sink: Sink, number: int, *events: Any) -> None:
    """Write and commit an epoch by key."""
    sink.commit(keyed_tasks(plan_by_keys(sink), list(events), of_epoch=epoch(number)))


def values(sink: Sink) -> list[tuple[Any, ...]]:
    """Return the rows, read as the spec says."""
    if sink.table().metadata.format_version == VERSION_3:
        check_version_3(sink.table())
    return sorted(tuple(row.values()) for row in rows_of(sink.table()))


@pytest.mark.parametrize(
    ("keyed", "encoding", "step"),
    [
        *(cell for encoding in ENCODINGS for cell in few(4, [("2", encoding, step) for step in STEPS])),
        *few(2, [("3", encoding, step) for encoding in ENCODINGS for step in STEPS]),
    ],
    indirect=["keyed"],
)
def test_conversion_that_is_killed_changes_no_row(keyed: Sink, encoding: RowEncoding, step: FaultPoint) -> None:
    """Rows would be there twice, or deleted ones come back, and nobody could tell what was left behind."""
    options = {"warehouse": str(keyed.options.warehouse)}

    die_in_conversion(NAME, options, encoding, step)

    has_landed = step in LANDED_BY_THEN
    assert values(keyed) == AFTER
    assert bool(keyed_deletes(keyed.table())) != has_landed
    check_sound(keyed.table())
    assert (convert(keyed, encoding).snapshot_id is None) == has_landed
    put(keyed, 2, ("U", 0, "EU", 7, 1))
    assert values(keyed) == [(0, "EU", 7), *AFTER[1:]]
    result = iceberg_ds.verify(NAME, options=options, older_than="0s", delete_orphans=True, force=True)
    assert result.ok, str(result)
    assert unreferenced_files(keyed.table()) == set()
