"""Fixtures of the tests with other engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.catalogs.shared_catalog import SharedCatalog
from support.peer.jvm_peer import JvmPeer, shared_peer, stop_shared_peer


@pytest.fixture(scope="package")
def peer() -> Iterator[JvmPeer]:
    """Return a running Spark with Iceberg's own runtime; its environment is made first if it is missing."""
    yield shared_peer()
    stop_shared_peer()


@pytest.fixture
def shared(peer: JvmPeer, warehouse: Path) -> Iterator[SharedCatalog]:
    """Return a new embedded catalog that the sink and the peer share."""
    jvm = peer.open_catalog(warehouse)
    yield SharedCatalog(folder=warehouse, jvm=jvm)
    jvm.close()
