"""Every request of a write to a REST catalog x every kind of fault, before and after the server carried it out."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import pytest
from support.exhaustive import one_of_each
from support.faults.operations import Mode, Operation, Phase
from support.faults.proxy import serve_faults
from support.faults.wire_cells import ASKED_BY, KINDS_OF_CELLS, Cell, Ground, cells
from support.faults.writes import ids_of_clickhouse
from support.services.catalogs import serve_rest_reference

pytestmark = pytest.mark.usefixtures("waits")

# A server that hangs costs this much; one that is busy should not seem to hang.
_PATIENCE = {"rest.client.socket-timeout-ms": "700", "rest.client.max-retries": "1"}
# ClickHouse takes as long for one read as a cell does for all else.
_CELLS_FOR_A_SECOND_READER = 16


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Return Iceberg's REST reference server, and the proxy before it."""
    folder = tmp_path_factory.mktemp("wire")
    warehouse = folder / "warehouse"
    with serve_rest_reference(folder, f"file://{warehouse}", {}) as uri, serve_faults(uri) as proxy:
        yield Ground.make(proxy, warehouse, **_PATIENCE)


@pytest.mark.parametrize("cell", one_of_each(cells(), *KINDS_OF_CELLS), ids=str)
def test_write_lands_once_or_fails_with_a_true_error_whatever_the_wire_does(ground: Ground, cell: Cell) -> None:
    """Rows would be lost or twice, the table broken, an error false, or files of a failure left for ever."""
    trial, _ = ground.trial(cell.operation, cell.mode, cell.asked, cell.fault)
    if zlib.crc32(str(cell).encode()) % _CELLS_FOR_A_SECOND_READER == 0:
        trial.second_reader = ids_of_clickhouse

    trial.run()


@pytest.mark.parametrize("operation", ASKED_BY)
def test_matrix_has_every_request_that_a_write_makes(ground: Ground, operation: Operation) -> None:
    """A request that was added to the write would never be seen to fail."""
    trial, attack = ground.trial(operation, Mode.STREAM)

    trial.write()

    made = {(phase, str(request)) for phase, requests in attack.requests.items() for request, _ in requests}
    named = ASKED_BY[operation]
    assert {pair for pair in made if not any(_is(asked.phase, asked.pattern, pair) for asked in named)} == set()
    assert [asked for asked in named if not any(_is(asked.phase, asked.pattern, pair) for pair in made)] == []


def _is(phase: Phase, pattern: str, made: tuple[Phase, str]) -> bool:
    return made[0] is phase and re.fullmatch(pattern, made[1]) is not None
