"""Every call and file of an upsert that its own code handles x every kind of fault, and then the same number again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.exhaustive import EXHAUSTIVE, one_of_each
from support.faults.catalog_cells import KINDS_IN_VERSION_3, Cell, Ground, check_cell
from support.faults.io_cells import trial_of
from support.faults.operations import Mode, Phase
from support.faults.upsert_cells import FileCell, catalog_cells, differs_in_upserts, file_cells

pytestmark = pytest.mark.usefixtures("waits")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Return what all cells begin with."""
    return Ground.make(tmp_path_factory.mktemp("upserts"), Mode.STREAM)


@pytest.fixture
def tidy_ground(ground: Ground) -> Iterator[Ground]:
    """Return it, and remove what the cell leaves."""
    yield ground
    ground.tidy()


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, marks=() if differs_in_upserts(cell) else EXHAUSTIVE) for cell in catalog_cells()],
    ids=str,
)
def test_upsert_lands_once_whatever_the_catalog_does(tidy_ground: Ground, cell: Cell) -> None:
    """Rows would be lost or twice, an error false, or files of a failure left for ever."""
    check_cell(tidy_ground, cell)


@pytest.mark.parametrize("cell", file_cells(), ids=str)
def test_upsert_lands_once_whatever_the_disk_does(tmp_path: Path, cell: FileCell) -> None:
    """Rows would be lost or twice, marks or rows be broken, or files of a failure left for ever."""
    trial, _ = trial_of(cell.operation, Mode.STREAM, cell.fault, tmp_path, Phase.COMMIT)

    trial.run()


@pytest.fixture(scope="module")
def ground_3(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Return what all cells of version 3 begin with."""
    return Ground.make(tmp_path_factory.mktemp("upserts-3"), Mode.STREAM, "3")


@pytest.mark.parametrize("cell", one_of_each(catalog_cells(), *KINDS_IN_VERSION_3), ids=str)
def test_upsert_lands_once_in_version_3_whatever_the_catalog_does(ground_3: Ground, cell: Cell) -> None:
    """Two rows would have one id, or a data file two vectors or one of a file that is gone."""
    try:
        check_cell(ground_3, cell)
    finally:
        ground_3.tidy()


@pytest.mark.parametrize("cell", one_of_each(file_cells(), lambda cell: cell.fault.doing), ids=str)
def test_upsert_lands_once_in_version_3_whatever_the_disk_does(tmp_path: Path, cell: FileCell) -> None:
    """Two rows would have one id, vectors be broken, or files of a failure left for ever."""
    trial, _ = trial_of(cell.operation, Mode.STREAM, cell.fault, tmp_path, Phase.COMMIT, version="3")

    trial.run()
