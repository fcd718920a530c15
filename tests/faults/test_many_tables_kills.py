"""A driver that is killed on its way through the tables of an epoch: all or none, and each once after a replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checks.invariants import check_sound
from support.programs.epoch_committer import die_in_epoch
from support.tables.epochs import Tables
from support.tables.sink import Sink

from iceberg_ds.fault_points import FaultPoint

NEITHER, ONE, BOTH = {"a": [0], "b": [0]}, {"a": [0, 1], "b": [0]}, {"a": [0, 1], "b": [0, 1]}


@pytest.mark.parametrize(
    ("step", "number", "left"),
    [
        (FaultPoint.COMMIT_BEGUN, 2, NEITHER),
        (FaultPoint.TABLE_LOADED, 2, NEITHER),
        (FaultPoint.TABLES_SEEN, 1, NEITHER),
        (FaultPoint.MANIFESTS_WRITTEN, 1, NEITHER),
        (FaultPoint.TABLES_PREPARED, 1, NEITHER),
        (FaultPoint.POINTERS_READY, 1, NEITHER),
        (FaultPoint.TABLES_ANSWERED, 1, BOTH),
        (FaultPoint.COMMITTED, 1, BOTH),
        (FaultPoint.COMMITTED, 2, BOTH),
    ],
)
def test_killed_driver_leaves_all_tables_or_none_and_the_replay_all(  # noqa: PLR0913, PLR0917  # pytest's
    sink: Sink, warehouse: Path, tmp_path: Path, step: FaultPoint, number: int, left: dict[str, list[int]]
) -> None:
    """A reader would see half an epoch until the driver is back, or rows would be lost or doubled."""
    check_death(sink, warehouse, tmp_path, step, number, left, is_together=True)


@pytest.mark.parametrize("step", [FaultPoint.TABLES_SEEN, FaultPoint.TABLES_CREATED, FaultPoint.TABLES_ANSWERED])
def test_killed_driver_of_an_epoch_with_a_new_table_is_made_up_for(
    sink: Sink, warehouse: Path, tmp_path: Path, step: FaultPoint
) -> None:
    """The table that was created without rows would stay empty."""
    tables = Tables(of_one=sink, names=("a", "new"))
    tables.sink("a").append(0)

    die_in_epoch({"table": "db.a", "warehouse": str(warehouse)}, tables.to_all(0, 1), step, tmp_path)
    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0, 1], "new": [1]}


@pytest.mark.parametrize(
    ("step", "number", "left"),
    [
        (FaultPoint.TABLE_LOADED, 2, NEITHER),
        (FaultPoint.MANIFESTS_WRITTEN, 2, NEITHER),
        (FaultPoint.TABLES_PREPARED, 1, NEITHER),
        (FaultPoint.REQUEST_ANSWERED, 1, ONE),
        (FaultPoint.COMMITTED, 1, ONE),
        (FaultPoint.REQUEST_ANSWERED, 2, BOTH),
        (FaultPoint.COMMITTED, 2, BOTH),
    ],
)
def test_where_each_table_gets_a_request_the_replay_finishes_the_epoch(  # noqa: PLR0913, PLR0917  # pytest's
    sink: Sink, warehouse: Path, tmp_path: Path, step: FaultPoint, number: int, left: dict[str, list[int]]
) -> None:
    """The tables after the one at which the driver died would never get their rows."""
    check_death(sink, warehouse, tmp_path, step, number, left, is_together=False)


def check_death(  # noqa: PLR0913, PLR0917  # what the tests get
    sink: Sink,
    warehouse: Path,
    folder: Path,
    step: FaultPoint,
    number: int,
    left: dict[str, list[int]],
    *,
    is_together: bool,
) -> None:
    """Assert what a driver leaves that dies at a step, and that the repeated epoch brings all rows in once."""
    tables = Tables(of_one=sink)
    tables.create()
    options = {"table": "db.a", "warehouse": str(warehouse)}

    die_in_epoch(options, tables.to_all(0, 1), step, folder, number, is_together=is_together)
    found = tables.ids()
    tables.commit(tables.to_all(0, 1))

    assert found == left
    assert tables.ids() == BOTH
    for name in tables.names:
        check_sound(tables.sink(name).table())
