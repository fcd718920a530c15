"""Fixtures of all tests, and Hypothesis' profiles: `dev`, `ci` (bounded, the same every time), `all`, `nightly`."""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pyiceberg.catalog.sql
import pytest
import strictyaml
from hypothesis import HealthCheck, Phase, settings
from pyiceberg.utils.config import Config
from sqlalchemy import Engine, create_engine, event
from support.catalogs.faulty_catalog import FaultyCatalog
from support.exhaustive import spare
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.planning import prepare

_SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
_NO_SHRINKING = [Phase.explicit, Phase.generate]
settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=_SLOW)
settings.register_profile(
    "ci",
    max_examples=8,
    deadline=None,
    suppress_health_check=_SLOW,
    derandomize=True,
    database=None,
    phases=_NO_SHRINKING,
)
settings.register_profile("all", settings.get_profile("ci"), max_examples=90)
settings.register_profile("nightly", max_examples=1000, deadline=None, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is exhaustive, before pytest looks at the marks."""
    spare(items)


_OBJECTS_BETWEEN_COLLECTIONS = 100_000


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among modules and tests: else a sixth of the time goes there."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


@pytest.fixture(scope="session", autouse=True)
def _no_configured_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the catalogs that this machine's user has configured out of the tests."""
    home = tmp_path_factory.mktemp("pyiceberg")
    (home / ".pyiceberg.yaml").write_text("legacy-current-snapshot-id: false\n")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("PYICEBERG_")]:
            patch.delenv(name)
        patch.setenv("PYICEBERG_HOME", str(home))
        # Each write reads the file again; a test would take longer for parsing it than for all that it writes.
        patch.setattr(strictyaml, "load", cache(strictyaml.load))
        patch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
        yield


def _without_syncs(connection: sqlite3.Connection, _: object) -> None:
    """Let no commit wait for the disk: nobody pulls the plug of the machine in a test."""
    connection.execute("PRAGMA synchronous = OFF")


@pytest.fixture(scope="session")
def _opened_databases() -> Iterator[set[Engine]]:
    """Note which databases the SQL catalogs of this process open."""
    opened: set[Engine] = set()

    def open_and_note(*arguments: Any, **options: Any) -> Engine:
        engine = create_engine(*arguments, **options)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _without_syncs)
        opened.add(engine)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyiceberg.catalog.sql, "create_engine", open_and_note)
        yield opened


@pytest.fixture(autouse=True)
def _databases_closed(_opened_databases: set[Engine]) -> Iterator[None]:
    """Close the databases that a test has opened: thousands of tests would keep thousands of files open."""
    yield
    while _opened_databases:
        _opened_databases.pop().dispose()


@pytest.fixture(autouse=True)
def _no_wait_for_creations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no plan wait for a table that another writer may be creating: in a test all metadata files are young."""
    monkeypatch.setattr(prepare, "_WAITS_S", ())


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Return the folder of an embedded catalog."""
    return tmp_path / "warehouse"


@pytest.fixture
def catalog(warehouse: Path) -> CatalogClient:
    """Return a new embedded catalog."""
    return connect(catalog_settings(embedded_options(warehouse)))


@pytest.fixture
def sink(catalog: CatalogClient, warehouse: Path) -> Sink:
    """Return what writes to table `db.t` of the embedded catalog; it does not exist yet."""
    return Sink(catalog=catalog, options=embedded_options(warehouse))


@pytest.fixture
def faulty_catalog(sink: Sink) -> FaultyCatalog:
    """Return a catalog over the same SQLite file as `sink`, whose commits fail on demand."""
    return FaultyCatalog(connect(catalog_settings(sink.options)).raw)


@pytest.fixture
def faulty_sink(sink: Sink, faulty_catalog: FaultyCatalog) -> Sink:
    """Return what writes to the same table as `sink`, through `faulty_catalog`."""
    # The client only calls methods that the faulty catalog has, too.
    client = CatalogClient(faulty_catalog, catalog_settings(sink.options))  # type: ignore[arg-type]
    return Sink(catalog=client, options=sink.options)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every catalog be one that takes no request for several tables."""
    monkeypatch.setattr(CatalogClient, "takes_many_tables", False)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no retry sleep; return the seconds that each would have waited."""
    recorded: list[float] = []
    sleep = time.sleep

    def record(seconds: float) -> None:
        # Threads that a Spark session of another test has left behind would spin if they did not sleep.
        if threading.current_thread() is threading.main_thread():
            recorded.append(seconds)
        else:
            sleep(seconds)

    monkeypatch.setattr("time.sleep", record)
    return recorded
