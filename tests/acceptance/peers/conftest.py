"""Fixtures of the suites of other writers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.peer.tables import PeerTable


@pytest.fixture
def table(warehouse: Path) -> PeerTable:
    """Return table `db.t` of a new embedded catalog; it does not exist yet."""
    return PeerTable(warehouse=warehouse)
