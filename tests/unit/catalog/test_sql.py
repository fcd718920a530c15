"""One transaction for several tables of a SQL catalog, and what it rests on of PyIceberg's SQL catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyiceberg.catalog import MetastoreCatalog, load_catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from sqlalchemy import select
from sqlalchemy.orm import Session
from support.tables.epochs import Tables
from support.tables.sink import Sink

from iceberg_ds.catalog.answers import RolledBackError
from iceberg_ds.catalog.own_storage import with_own_storage
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.catalog.sql import ManyTablesSql
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.table.requests import CommitRequest


@pytest.fixture
def tables(sink: Sink) -> Tables:
    """Return two tables."""
    found = Tables(of_one=sink)
    found.create()
    return found


@pytest.fixture
def sql(tables: Tables) -> ManyTablesSql:
    """Return their catalog."""
    found = tables.catalog.raw
    assert isinstance(found, ManyTablesSql)
    return found


@pytest.fixture
def when_ready() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Return what lets something happen when metadata files are written, and no pointer has moved."""

    def plan(action: Callable[[], object]) -> None:
        listen(lambda step: action() and None if step is FaultPoint.POINTERS_READY else None)

    yield plan
    listen(None)


def setting(tables: Tables, *names: str) -> list[tuple[Table, CommitRequest]]:
    """Return what sets a property of these tables."""
    update = SetPropertiesUpdate(updates={"seen": "yes"})
    return [(tables.sink(name).table(), CommitRequest(requirements=(), updates=(update,))) for name in names]


def are_set(tables: Tables) -> list[bool]:
    """Return of which tables the property is set."""
    return ["seen" in tables.sink(name).table().metadata.properties for name in tables.names]


def test_all_pointers_move_as_pyiceberg_moves_one(tables: Tables, sql: ManyTablesSql) -> None:
    """Other clients of the database would not find the tables, or not the state before."""
    before = {name: tables.sink(name).table().metadata_location for name in tables.names}

    sql.commit_tables(setting(tables, "a", "b"))

    with Session(sql.engine) as session:
        found = session.execute(select(IcebergTables.table_name, IcebergTables.previous_metadata_location)).all()
    assert {row[0]: row[1] for row in found} == before
    assert are_set(tables) == [True, True]


@pytest.mark.parametrize("moved", ["a", "b"])
def test_pointer_that_has_moved_keeps_the_other_where_it_is(
    tables: Tables, sql: ManyTablesSql, when_ready: Callable[[Callable[[], object]], None], moved: str
) -> None:
    """Half a request would be carried out, or another writer's commit undone."""
    changes = setting(tables, "b", "a")
    when_ready(lambda: tables.sink(moved).append(5))

    with pytest.raises(RolledBackError, match=f"db.{moved} has been updated"):
        sql.commit_tables(changes)

    assert are_set(tables) == [False, False]


def test_missing_table_keeps_the_other_where_it_is(tables: Tables, sql: ManyTablesSql) -> None:
    """Half a request would be carried out."""
    changes = setting(tables, "a", "b")
    sql.drop_table("db.b")

    with pytest.raises(RolledBackError):
        sql.commit_tables(changes)

    assert "seen" not in tables.sink("a").table().metadata.properties


class OwnCommits(SqlCatalog):
    """A user's catalog that commits in a way of its own."""

    def commit_table(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        """Commit."""
        return super().commit_table(*args, **kwargs)  # type: ignore[arg-type]


def test_catalog_that_commits_in_its_own_way_is_not_bypassed(sink: Sink) -> None:
    """What a user's class does with each commit would be left out."""
    properties = dict(catalog_settings(sink.options).properties)
    own, plain = OwnCommits("own", **properties), load_catalog("plain", **properties)

    assert not with_own_storage(own).can_commit_tables  # type: ignore[attr-defined]
    assert with_own_storage(plain).can_commit_tables  # type: ignore[attr-defined]


def test_database_that_was_not_tried_is_not_trusted(sql: ManyTablesSql, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that counts changed rows otherwise would let a lost race pass for a commit."""
    monkeypatch.setattr(sql.engine.dialect, "name", "mysql")

    assert not sql.can_commit_tables


def test_pyiceberg_commits_a_table_by_the_same_steps() -> None:
    """With a new PyIceberg, one request for several tables would move other pointers than one for a single table."""
    used = {*SqlCatalog.commit_table.__code__.co_names}

    assert {"_update_and_stage_table", "_write_metadata", "IcebergTables", "metadata_location"} <= used
    assert {"namespace_from", "namespace_to_string", "table_name_from"} <= used
    assert callable(MetastoreCatalog._write_metadata)
