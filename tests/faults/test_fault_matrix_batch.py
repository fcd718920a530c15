"""Every call of a batch write x every kind of fault x each attempt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.exhaustive import drawn, one_of_each
from support.faults.catalog_cells import (
    CALLS_OF,
    KINDS_IN_VERSION_3,
    KINDS_OF_CELLS,
    Cell,
    Ground,
    cells,
    check_cell,
)
from support.faults.kinds import COMMIT_KINDS, KINDS, READ_KINDS, SERVER_ERRORS, Effect, Way
from support.faults.operations import Mode, Operation, Phase


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Return what all cells begin with."""
    return Ground.make(tmp_path_factory.mktemp("batch"), Mode.BATCH)


@pytest.fixture
def tidy_ground(ground: Ground) -> Iterator[Ground]:
    """Return it, and remove what the cell leaves."""
    yield ground
    ground.tidy()


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("cell", one_of_each(cells(Mode.BATCH), *KINDS_OF_CELLS), ids=str)
def test_batch_lands_once_or_fails_with_a_true_error(tidy_ground: Ground, cell: Cell) -> None:
    """Rows would be lost or twice, the table broken, an error false, or files of a failure left for ever."""
    check_cell(tidy_ground, cell)


@pytest.fixture(scope="module")
def ground_3(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Return what all cells of version 3 begin with."""
    return Ground.make(tmp_path_factory.mktemp("batch-3"), Mode.BATCH, "3")


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("cell", one_of_each(cells(Mode.BATCH), *KINDS_IN_VERSION_3), ids=str)
def test_batch_lands_once_or_fails_in_version_3(ground_3: Ground, cell: Cell) -> None:
    """Two rows would have one id, a row another one, or a data file two vectors or one of a file that is gone."""
    try:
        check_cell(ground_3, cell)
    finally:
        ground_3.tidy()


@pytest.mark.parametrize("operation", Operation)
def test_matrix_has_every_call_that_a_write_makes(tidy_ground: Ground, operation: Operation) -> None:
    """A call that was added to the write would never be seen to fail."""
    made = tidy_ground.calls_of(operation)

    assert made.named == {(call.phase, call.method) for call in CALLS_OF[operation]}
    assert made.unnamed == set()
    assert (Phase.COMMIT, "commit_table") in made.named


def test_drawn_cells_leave_out_nothing_that_the_sink_can_tell() -> None:
    """A fault that no other one stands for would be seen by nobody."""
    for mode in Mode:
        whole = cells(mode)

        some = drawn(whole, *KINDS_OF_CELLS)

        for look in (
            lambda cell: (cell.call, cell.at, cell.seen),
            lambda cell: (cell.operation, cell.call, cell.at),
            lambda cell: (cell.operation, cell.call, cell.kind.effect),
            lambda cell: (cell.call.method, cell.kind),
        ):
            assert {look(cell) for cell in some} == {look(cell) for cell in whole}


def test_matrix_has_every_kind_of_fault() -> None:
    """A kind of fault that was taken out would be missed by nobody."""
    assert {*COMMIT_KINDS, *READ_KINDS} == {*KINDS}
    assert {kind.way for kind in KINDS} == {*Way}
    assert {kind.effect for kind in COMMIT_KINDS} == {*Effect}
    assert {kind.status for kind in KINDS} == {None, 401, 409, 429, *SERVER_ERRORS}
