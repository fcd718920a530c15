"""Every request of a write to an S3 store x every kind of fault: an epoch of a stream, and its replay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.exhaustive import one_of_each
from support.faults.proxy import serve_faults
from support.faults.store_cells import KINDS_OF_CELLS, READING, WRITING, Cell, Ground, cells
from support.services.servers import serve_objects
from support.tables.sink import FOLDERS_OF_STORES

pytestmark = pytest.mark.usefixtures("waits")


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Return an S3 server, and the proxy before it."""
    folder = tmp_path_factory.mktemp("store")
    with serve_objects(folder) as store, serve_faults(store.endpoint) as proxy:
        yield Ground.make(store, proxy, folder)
    FOLDERS_OF_STORES.clear()


@pytest.mark.parametrize("cell", one_of_each(cells(), *KINDS_OF_CELLS), ids=str)
def test_epoch_lands_once_or_fails_with_a_true_error_whatever_the_store_does(ground: Ground, cell: Cell) -> None:
    """Rows would be lost or twice, the table broken, an error false, or files of a failure left for ever."""
    trial, _ = ground.trial(cell)

    trial.run()


def test_matrix_has_every_request_that_a_write_makes(ground: Ground) -> None:
    """A request that was added to the write would never be seen to fail."""
    trial, attack = ground.trial(None)

    trial.write()

    assert attack.unnamed == []
    assert attack.asked == {*WRITING, *READING}
