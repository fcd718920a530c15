"""SIGKILL at every named step of a rewrite: the rows stay, another rewrite ends it, and writers go on."""

from __future__ import annotations

from typing import get_args

import pytest
from support.checks.invariants import check_sound, unreferenced_files
from support.checks.reader import rows_of
from support.checks.version_3 import check_version_3, row_ids
from support.exhaustive import few, one_of_each
from support.keys.messages import KEYED_SCHEMA
from support.keys.upserts import apart, upsert
from support.programs.rewriter import Rewrite, die_in_rewrite
from support.tables.delete_files import delete_positions, entries
from support.tables.regions import in_region, partitioned, run
from support.tables.rewrites import entries_of, hidden_rows, options_of, rewrite_manifests, rewrite_position_deletes
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.snapshots.version_3 import VERSION_3

STEPS = [
    FaultPoint.PLANNED,
    FaultPoint.FILE_CLOSED,
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
]
LANDED_BY_THEN = {FaultPoint.REQUEST_ANSWERED, FaultPoint.COMMITTED}
CELLS = [(step, what) for step in STEPS for what in get_args(Rewrite) if what != "data"]
DATA_STEPS = [step for step in STEPS if step is not FaultPoint.PLANNED]


@pytest.mark.parametrize("cell", one_of_each(CELLS, lambda cell: cell[0]), ids=lambda cell: f"{cell[0].name}-{cell[1]}")
def test_rewrite_that_is_killed_changes_no_row(sink: Sink, cell: tuple[FaultPoint, Rewrite]) -> None:
    """Deleted rows would come back, or rows be lost, and nobody could tell what was left behind."""
    (step, what), writer = cell, partitioned(sink)
    for first in (0, 10, 20):
        run(writer, "append", [*in_region("EU", first, first + 1), *in_region("US", first + 5, first + 6)])
    for entry in entries(sink)[:3]:
        delete_positions(sink, entry.data_file.file_path, [0])
        delete_positions(sink, entry.data_file.file_path, [1])
    rows, hidden = rows_of(sink.table()), hidden_rows(sink.table())
    data = [entry for entry in entries_of(sink.table()) if "deletes" not in entry[1].rpartition("/")[2]]

    die_in_rewrite(NAME, options_of(sink), what, step)

    assert rows_of(sink.table()) == rows
    check_sound(sink.table())
    if what == "manifests":
        again = rewrite_manifests(sink).snapshot_id
    else:
        again = rewrite_position_deletes(sink, min_input_files=2).snapshot_id
    assert (again is None) == (step in LANDED_BY_THEN)
    assert hidden_rows(sink.table()) == hidden
    assert [entry for entry in entries_of(sink.table()) if entry[1] in {of[1] for of in data}] == data
    run(writer, "append", in_region("EU", 99))
    assert len(rows_of(sink.table())) == len(rows) + 1
    result = iceberg_ds.verify(NAME, options=options_of(sink), older_than="0s", delete_orphans=True, force=True)
    assert result.ok, str(result)
    assert unreferenced_files(sink.table()) == set()


@pytest.mark.parametrize(
    ("version", "what", "step"),
    [
        *few(0, [("2", "data", step) for step in DATA_STEPS]),
        *few(1, [("3", "data", step) for step in DATA_STEPS[3:] + DATA_STEPS[:3]]),
        *few(0, [("3", "manifests", step) for step in STEPS]),
    ],
)
def test_rewrite_beside_deletes_that_is_killed_changes_no_row(
    sink: Sink, version: str, what: Rewrite, step: FaultPoint
) -> None:
    """Deleted rows would come back, rows get other ids, or deletes stay whose data files are gone."""
    sink.create(KEYED_SCHEMA, format_version=version)
    upsert(sink, "position", *apart([("I", number, "EU", number, 1) for number in range(9)]))
    for number in (1, 5):
        upsert(sink, "position", [("U", number, "EU", 100, 2), ("D", number + 1, "EU", None, 2)])
    rows, ids = rows_of(sink.table()), ids_of(sink)

    die_in_rewrite(NAME, options_of(sink), what, step)

    assert (rows_of(sink.table()), ids_of(sink)) == (rows, ids)
    check_sound(sink.table())
    if what == "manifests":
        again = rewrite_manifests(sink).snapshot_id is not None
    else:
        again = iceberg_ds.rewrite_data_files(NAME, options=options_of(sink)).rewritten_data_files_count > 0
    assert again == (step not in LANDED_BY_THEN)
    assert (rows_of(sink.table()), ids_of(sink)) == (rows, ids)
    result = iceberg_ds.verify(NAME, options=options_of(sink), older_than="0s", delete_orphans=True, force=True)
    assert result.ok, str(result)
    assert unreferenced_files(sink.table()) == set()


def ids_of(sink: Sink) -> dict[int, int]:
    """Return the key of each row by its row id, and check the table; nothing for a table of version 2."""
    table = sink.table()
    if table.metadata.format_version < VERSION_3:
        return {}
    check_version_3(table)
    return {number: row["id"] for number, row in row_ids(table).items()}
