"""Fixtures of the tests with real catalogs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from support.catalogs.catalog_table import CatalogTable
from support.peer.jvm_peer import JvmPeer, PeerCatalog, shared_peer, stop_shared_peer
from support.services.fixtures import (
    CATALOGS,
    glue,
    hive_metastore,
    nessie,
    object_store,
    postgres,
    rest_catalog,
    sqlite,
    sts,
)
from support.services.servers import CatalogService

__all__ = ["glue", "hive_metastore", "nessie", "object_store", "postgres", "rest_catalog", "sqlite", "sts"]


@pytest.fixture(scope="package", params=CATALOGS)
def service(request: pytest.FixtureRequest) -> CatalogService:
    """Return each catalog in turn."""
    found: CatalogService = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="package")
def runtime() -> Iterator[JvmPeer]:
    """Return a running Spark with Iceberg's own runtime."""
    yield shared_peer()
    stop_shared_peer()


@pytest.fixture(scope="package")
def peer(service: CatalogService, runtime: JvmPeer) -> Iterator[PeerCatalog]:
    """Return the catalog as Iceberg's own Spark runtime sees it."""
    catalog = runtime.open_session(service.peer_settings)
    yield catalog
    catalog.close()


@pytest.fixture
def table(request: pytest.FixtureRequest, service: CatalogService, peer: PeerCatalog) -> CatalogTable:
    """Return a table that does not exist yet, in a namespace that no other test uses."""
    namespace = re.sub(r"\W+", "_", request.node.originalname.removeprefix("test_"))[:50]
    return CatalogTable(service=service, peer=peer, name=f"{namespace}.t")
