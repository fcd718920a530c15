"""Fixtures of the real servers, each started once for all tests of a folder; the `conftest.py` of folders import them.

A fixture that another one needs must be imported with it. A folder whose servers are to stop after its last test,
and leave their memory to the tests of the next folder, is a package.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.exhaustive import few
from support.services.catalogs import (
    Moto,
    glue_catalog,
    serve_hive_metastore,
    serve_moto,
    serve_nessie,
    serve_postgres,
    serve_rest_catalog,
    sqlite_catalog,
)
from support.services.servers import CatalogService, ObjectStore, serve_objects

# The fixtures of all catalogs.
CATALOGS = ("rest_catalog", "nessie", "hive_metastore", "postgres", "sqlite", "glue")
# Of a test that `make test` runs with one of them, or with one of each two.
WITH_ONE, WITH_HALF = (
    pytest.mark.parametrize("service", few(number, CATALOGS), indirect=True, scope="package") for number in (1, 3)
)


@pytest.fixture(scope="package")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Return an S3 server."""
    with serve_objects(tmp_path_factory.mktemp("object-store")) as store:
        yield store


@pytest.fixture(scope="package")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore) -> Iterator[CatalogService]:
    """Return Iceberg's REST reference server over the S3 server."""
    with serve_rest_catalog(tmp_path_factory.mktemp("rest-catalog"), object_store) as catalog:
        yield catalog


@pytest.fixture(scope="package")
def nessie(tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore) -> Iterator[CatalogService]:
    """Return Nessie over the S3 server."""
    with serve_nessie(tmp_path_factory.mktemp("nessie"), object_store) as catalog:
        yield catalog


@pytest.fixture(scope="package")
def hive_metastore(tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore) -> Iterator[CatalogService]:
    """Return a Hive Metastore over the S3 server."""
    with serve_hive_metastore(tmp_path_factory.mktemp("hive-metastore"), object_store) as catalog:
        yield catalog


@pytest.fixture(scope="package")
def postgres(tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore) -> Iterator[CatalogService]:
    """Return a SQL catalog on PostgreSQL over the S3 server."""
    with serve_postgres(tmp_path_factory.mktemp("postgres"), object_store) as catalog:
        yield catalog


@pytest.fixture(scope="package")
def sts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """Return moto, which plays Amazon's services."""
    with serve_moto(tmp_path_factory.mktemp("moto")) as moto:
        yield moto


@pytest.fixture(scope="package")
def glue(sts: Moto, object_store: ObjectStore) -> CatalogService:
    """Return moto's Glue as the catalog of tables in the S3 server."""
    return glue_catalog(sts, object_store)


@pytest.fixture(scope="package")
def sqlite(tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore) -> CatalogService:
    """Return a SQL catalog in a SQLite file over the S3 server."""
    return sqlite_catalog(tmp_path_factory.mktemp("sqlite"), object_store)
