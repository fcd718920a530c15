"""Where a chaos run writes: a catalog, a store, the proxies before them, and the way to the table's metadata.

`sqlite` is a SQLite catalog of local files. `rest` is Iceberg's reference server, `postgres` a SQL catalog in
PostgreSQL, both of tables in an S3 server; proxies stand before catalog and store.
"""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
from chaos.proxy import Away, Proxy, serve_proxy
from chaos.reader import TableFiles
from support.services.catalogs import serve_postgres, serve_rest_catalog
from support.services.servers import ObjectStore, serve_objects

CATALOGS = ("sqlite", "rest", "postgres")
_LOCK_WAIT_S = 2
_QUERY = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = '{}' AND table_name = '{}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A catalog and a store that can be away.

    Attributes:
        catalog: Name of the kind of catalog.
        properties: PyIceberg's properties of both, by way of the proxies.
        peer_settings: Settings of Iceberg's own Spark runtime, past the proxies.
        location: Returns where a table's metadata is now, None for no table; goes past the proxies.
        local: Returns where a location of the table is on this machine.
        leave_catalog: Lets the catalog be away until what it returns is called.
        leave_store: The same of the store, None where files are local.
    """

    catalog: str
    properties: Mapping[str, str] = field(repr=False)
    peer_settings: Mapping[str, str] = field(repr=False)
    location: Callable[[str], str | None]
    local: Callable[[str], Path]
    leave_catalog: Callable[[Away], Callable[[], None]]
    leave_store: Callable[[Away], Callable[[], None]] | None = None

    @property
    def options(self) -> dict[str, str]:
        """The sink's options that lead to it."""
        return {"catalog": self.catalog, **{f"catalog.{key}": value for key, value in self.properties.items()}}

    def table(self, name: str = "db.t") -> TableFiles | None:
        """Read a table's metadata, None if there is no such table."""
        location = self.location(name)
        return None if location is None else TableFiles.at(location, self.local)


@contextmanager
def serve_world(catalog: str, folder: Path) -> Iterator[World]:
    """Run what a catalog of this kind needs."""
    if catalog == "sqlite":
        yield _sqlite_world(folder / "warehouse")
        return
    with ExitStack() as running:
        store = running.enter_context(serve_objects(folder / "store"))
        way = running.enter_context(serve_proxy(_port(store.endpoint)))
        serve = serve_rest_catalog if catalog == "rest" else serve_postgres
        (folder / "catalog").mkdir(parents=True)
        service = running.enter_context(serve(folder / "catalog", store))
        address = service.properties["uri"]
        door = running.enter_context(serve_proxy(_port(address)))
        properties = {
            **service.properties,
            "uri": address.replace(f":{_port(address)}", f":{door.port}"),
            "s3.endpoint": f"http://{way.address}",
        }
        yield World(
            catalog=service.name,
            properties=properties,
            peer_settings=service.peer_settings,
            location=partial(_rest_location if catalog == "rest" else _postgres_location, address),
            local=lambda path: _in_bucket(store, path),
            leave_catalog=lambda away: _leave(door, away),
            leave_store=lambda away: _leave(way, away),
        )


def _sqlite_world(warehouse: Path) -> World:
    warehouse.mkdir(parents=True)
    database = warehouse / "catalog.db"
    return World(
        catalog="sqlite",
        properties={
            "type": "sql",
            "uri": f"sqlite:///{database}?timeout={_LOCK_WAIT_S}",
            "warehouse": f"file://{warehouse}",
        },
        peer_settings={
            "spark.sql.catalog.sqlite": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.sqlite.type": "jdbc",
            "spark.sql.catalog.sqlite.uri": f"jdbc:sqlite:{database}",
            "spark.sql.catalog.sqlite.jdbc.schema-version": "V1",
            "spark.sql.catalog.sqlite.warehouse": f"file://{warehouse}",
            "spark.sql.catalog.sqlite.cache-enabled": "false",
            "spark.sql.defaultCatalog": "sqlite",
        },
        location=partial(_sqlite_location, database),
        local=lambda path: Path(urlsplit(path).path),
        leave_catalog=lambda _: _lock(database),
    )


def _lock(database: Path) -> Callable[[], None]:
    """Lock a SQLite file as a writer that hangs does."""
    connection = sqlite3.connect(database, timeout=60, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN EXCLUSIVE")
    return connection.close


def _leave(proxy: Proxy, away: Away) -> Callable[[], None]:
    proxy.go_away(away)
    return proxy.come_back


def _sqlite_location(database: Path, name: str) -> str | None:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        found = connection.execute(_QUERY.format(*name.split("."))).fetchone()
    return None if found is None else str(found[0])


def _postgres_location(address: str, name: str) -> str | None:
    with closing(psycopg2.connect(address.replace("+psycopg2", ""))) as connection, connection.cursor() as cursor:
        cursor.execute(_QUERY.format(*name.split(".")))
        found = cursor.fetchone()
    return None if found is None else str(found[0])


def _rest_location(address: str, name: str) -> str | None:
    namespace, table = name.split(".")
    with urllib.request.urlopen(f"{address}/v1/namespaces/{namespace}/tables/{table}", timeout=30) as answer:  # noqa: S310  # ours
        return str(json.load(answer)["metadata-location"])


def _in_bucket(store: ObjectStore, path: str) -> Path:
    parts = urlsplit(path)
    return store.folder / parts.netloc / parts.path.lstrip("/")


def _port(address: str) -> int:
    port = urlsplit(address).port
    if port is None:
        raise ValueError(f"{address} names no port.")
    return port
