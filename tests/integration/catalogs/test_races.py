"""Writers that race for one table of a real catalog: all land, none starves, and no file of a lost race stays.

The same race is longer in `benchmarks/bench_races.py`. A REST server keeps its metadata files itself: the reference
server leaves some of those of lost races.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.metadata import TableMetadata
from support.exhaustive import EXHAUSTIVE
from support.programs.races import Leftovers, all_ids, leftovers, race, wins
from support.services.servers import CatalogService, ObjectStore
from support.tables.sink import Sink

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options

WRITERS = 6
COMMITS = 6
TIMEOUT_S = 900


@pytest.fixture(params=["postgres", pytest.param("rest_catalog", marks=pytest.mark.exhaustive)])
def contended(request: pytest.FixtureRequest) -> CatalogService:
    """Return each catalog that races are run in; the embedded one has its own in `test_concurrency.py`."""
    found: CatalogService = request.getfixturevalue(request.param)
    return found


def writer_to(service: CatalogService, name: str) -> Sink:
    """Return what writes to that table over a connection of its own."""
    options = parse_options({**service.options, "table": name})
    return Sink(catalog=connect(catalog_settings(options)).another(), options=options)


def unique_table() -> str:
    """Return the name of a table that no other test uses."""
    return f"races.t{secrets.token_hex(4)}"


def left_behind(sink: Sink, store: ObjectStore) -> Leftovers:
    """Return the files of the table that it has no use for."""
    table = sink.table()
    return leftovers(table, store.folder / table.metadata.location.removeprefix("s3://"))


@EXHAUSTIVE
def test_all_commits_of_a_race_land(contended: CatalogService, object_store: ObjectStore, tmp_path: Path) -> None:
    """Of jobs that write to one table at once, some would fail, starve, lose rows, or leave files behind."""
    name = unique_table()
    options = {**contended.options, "table": name}

    commits = race(options, tmp_path / "race", writers=WRITERS, commits=COMMITS, timeout_s=TIMEOUT_S)

    sink = writer_to(contended, name)
    assert [commit.error for commit in commits if commit.error] == []
    assert wins(commits) == dict.fromkeys(range(WRITERS), COMMITS)
    assert sink.ids() == all_ids(WRITERS, COMMITS)
    assert len(sink.table().metadata.snapshots) == WRITERS * COMMITS
    left = left_behind(sink, object_store)
    assert not left.manifests
    assert not left.data
    assert contended.name == "rest" or not left.metadata


@pytest.mark.parametrize("catalog", ["postgres", "sqlite"])
def test_lost_race_leaves_no_metadata_file_in_the_store(
    request: pytest.FixtureRequest, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, catalog: str
) -> None:
    """The table's folder would fill with a file for each race that a writer loses."""
    service: CatalogService = request.getfixturevalue(catalog)
    name = unique_table()
    sink, other = writer_to(service, name), writer_to(service, name)
    sink.append(1)
    assert isinstance(sink.catalog.raw, SqlCatalog)
    after_first_write(monkeypatch, sink.catalog.raw, lambda: other.append(2))

    sink.append(3)

    assert sink.ids() == [1, 2, 3]
    assert not left_behind(sink, object_store)


def test_race_that_glue_refuses_leaves_no_metadata_file(
    glue: CatalogService, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's folder would fill with a file for each race that a writer loses."""
    name = unique_table()
    sink, other = writer_to(glue, name), writer_to(glue, name)
    sink.append(1)
    assert isinstance(sink.catalog.raw, GlueCatalog)
    client = sink.catalog.raw.glue
    update = client.update_table
    calls: list[Any] = []

    def refuse_first(**asked: Any) -> Any:
        calls.append(asked)
        if len(calls) > 1:
            return update(**asked)
        other.append(2)  # moto does not look at the version that Glue compares
        error = {"Error": {"Code": "ConcurrentModificationException", "Message": "m"}}
        raise client.exceptions.ConcurrentModificationException(error, "UpdateTable")

    monkeypatch.setattr(client, "update_table", refuse_first)

    sink.append(3)

    assert len(calls) == 2
    assert sink.ids() == [1, 2, 3]
    assert not left_behind(sink, object_store)


def after_first_write(monkeypatch: pytest.MonkeyPatch, catalog: MetastoreCatalog, action: Callable[[], Any]) -> None:
    """Do something once, when `catalog` has written a metadata file and not yet moved the pointer to it."""
    left = [action]

    def write(metadata: TableMetadata, io: Any, metadata_path: str) -> None:
        MetastoreCatalog._write_metadata(metadata, io, metadata_path)
        if left:
            left.pop()()

    monkeypatch.setattr(catalog, "_write_metadata", write)
