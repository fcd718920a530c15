"""Everything that a write does to each kind of file x every harm: local files, over a catalog in SQLite."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from support.exhaustive import one_of_each
from support.faults.io import Doing, FileKind
from support.faults.io_cells import DONE_BY, KINDS_OF_CELLS, Cell, cells, trial_of
from support.faults.operations import Mode, Operation, Phase
from support.faults.writes import ids_of_clickhouse

pytestmark = pytest.mark.usefixtures("waits")

# ClickHouse takes as long for one read as a cell does for all else.
_CELLS_FOR_A_SECOND_READER = 16


@pytest.mark.parametrize("cell", one_of_each(cells(), *KINDS_OF_CELLS), ids=str)
def test_write_lands_once_or_fails_with_a_true_error_whatever_the_disk_does(tmp_path: Path, cell: Cell) -> None:
    """Rows would be lost or twice, the table broken, an error false, or files of a failure left for ever."""
    trial, _ = trial_of(cell.operation, cell.mode, cell.fault, tmp_path)
    if zlib.crc32(str(cell).encode()) % _CELLS_FOR_A_SECOND_READER == 0:
        trial.second_reader = ids_of_clickhouse

    trial.run()


@pytest.mark.parametrize("cell", one_of_each(cells(), lambda cell: cell.mode), ids=str)
def test_write_lands_once_or_fails_in_version_3_whatever_the_disk_does(tmp_path: Path, cell: Cell) -> None:
    """Two rows would have one id, a row another one, or files of a failure be left for ever."""
    trial, _ = trial_of(cell.operation, cell.mode, cell.fault, tmp_path, version="3")

    trial.run()


@pytest.mark.parametrize(("operation", "mode"), DONE_BY)
def test_matrix_has_everything_that_a_write_does_to_files(tmp_path: Path, operation: Operation, mode: Mode) -> None:
    """Something that was added to the write would never be seen to fail."""
    trial, attack = trial_of(operation, mode, None, tmp_path)

    outcome = trial.write()

    assert (outcome.error, outcome.phase) == (None, Phase.COMMIT)
    assert attack.done == DONE_BY[operation, mode]
    assert {file for file, _ in attack.done} == {*FileKind}
    assert Doing.DELETE not in {doing for _, doing in attack.done}
