"""Fixtures of the suites of other writers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.peer.tables import PeerTable


@pytest.fixture
def table(warehouse: Path) -> PeerTable:
    """Return table `db.t` of a new embedded catalog; it does not exist yet."""
    return PeerTable(warehouse=warehouse)


_EACH_OF_THEM = 3


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `make test` run a third of the cells of a ported case, its first one among them."""
    cells: Counter[str] = Counter()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            case = item.nodeid.partition("[")[0]
            if cells[case] % _EACH_OF_THEM:
                item.add_marker(pytest.mark.exhaustive)
            cells[case] += 1
