"""Every call of a stream's write x every kind of fault x each attempt, and then the replay of the epoch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import pytest
from support.exhaustive import one_of_each
from support.faults.catalog_cells import Cell, Ground, cells, check_cell
from support.faults.operations import Mode

# The loop is that of a batch, which meets every fault; an epoch is told from others at each call, and by each write.
_KINDS_OF_CELLS: tuple[Callable[[Cell], Hashable], ...] = (
    lambda cell: (cell.call, cell.at, cell.kind.effect),
    lambda cell: (cell.operation, cell.call),
)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Return what all cells begin with."""
    return Ground.make(tmp_path_factory.mktemp("stream"), Mode.STREAM)


@pytest.fixture
def tidy_ground(ground: Ground) -> Iterator[Ground]:
    """Return it, and remove what the cell leaves."""
    yield ground
    ground.tidy()


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("cell", one_of_each(cells(Mode.STREAM), *_KINDS_OF_CELLS), ids=str)
def test_epoch_lands_once_whatever_the_catalog_does(tidy_ground: Ground, cell: Cell) -> None:
    """Rows would be lost or twice, the table broken, an error false, or files of a failure left for ever."""
    check_cell(tidy_ground, cell)


@pytest.fixture(scope="module")
def ground_3(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Return what all cells of version 3 begin with."""
    return Ground.make(tmp_path_factory.mktemp("stream-3"), Mode.STREAM, "3")


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("cell", one_of_each(cells(Mode.STREAM), lambda cell: cell.kind.effect), ids=str)
def test_epoch_lands_once_in_version_3(ground_3: Ground, cell: Cell) -> None:
    """Two rows would have one id, a row another one, or a data file two vectors or one of a file that is gone."""
    try:
        check_cell(ground_3, cell)
    finally:
        ground_3.tidy()
