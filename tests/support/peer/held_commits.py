"""Statements of Iceberg's own Spark runtime that have planned, read and written, and wait before they commit.

The runtime's catalog is a REST catalog (`rest_fake`) that keeps its answer to a commit back until it is told to go on.
What others commit meanwhile they commit to the same tables, past that server. Then the runtime is told that it was
overtaken: it loads the table anew, validates, and lands or refuses, as it does beside any other writer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.catalogs.rest_fake import Recorded, serve_rest_fake
from support.peer.jvm_peer import CATALOG, JvmPeer, PeerCatalog, PeerError
from support.spark.tables import Warehouse
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings

_TIMEOUT_S = 300
_NAMESPACE = "db"


@dataclass(slots=True, kw_only=True)
class Held:
    """A statement that has come to its commit.

    Attributes:
        finish: Waits for its end; raises what it failed with.
    """

    finish: Callable[[], None] = lambda: None
    _came: threading.Event = field(default_factory=threading.Event)
    _may_go: threading.Event = field(default_factory=threading.Event)

    def come(self) -> None:
        """Say that it has come, and wait until it may go on."""
        self._came.set()
        assert self._may_go.wait(_TIMEOUT_S), "nobody lets the commit go on"

    def wait(self) -> None:
        """Wait until it has come."""
        assert self._came.wait(_TIMEOUT_S), "the statement does not come to its commit"

    def let_go(self) -> str | None:
        """Let it commit, and return why it is refused, None if it lands."""
        self._may_go.set()
        try:
            self.finish()
        except PeerError as refusal:
            return str(refusal)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldCatalog:
    """A catalog in the hands of the sink and of the runtime, whose commits can be held.

    Attributes:
        folder: Where it is.
        jvm: The catalog as the runtime sees it.
    """

    folder: Path
    jvm: PeerCatalog
    _waiting: dict[str, Held]

    def sink(self, table: str) -> Sink:
        """Return what writes to a table; it is created by the caller."""
        options = embedded_options(self.folder, table=f"{_NAMESPACE}.{table}")
        return Sink(catalog=connect(catalog_settings(options)), options=options)

    def begin(self, table: str, statement: str) -> Held:
        """Let the runtime run a statement that commits to a table once, until it commits."""
        held = self._waiting[f"/tables/{table}"] = Held()
        held.finish = self.jvm.begin(statement)
        return held

    def hold(self, request: Recorded) -> None:
        """Keep back what commits to a table for the first time since a statement was begun."""
        path = request.path[request.path.rindex("/tables/") :] if "/tables/" in request.path else ""
        if request.method == "POST" and (held := self._waiting.pop(path, None)) is not None:
            held.come()


@contextmanager
def serve_held_catalog(peer: JvmPeer, folder: Path) -> Iterator[HeldCatalog]:
    """Serve an empty catalog whose files lie in `folder`: the embedded one, that the runtime meets behind a server."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    with serve_rest_fake(folder) as fake:
        jvm = peer.open_session(
            {
                prefix: "org.apache.iceberg.spark.SparkCatalog",
                f"{prefix}.type": "rest",
                f"{prefix}.uri": fake.uri,
                f"{prefix}.cache-enabled": "false",
                f"{prefix}.rest-metrics-reporting-enabled": "false",
                "spark.sql.defaultCatalog": CATALOG,
            }
        )
        catalog = HeldCatalog(folder=folder, jvm=jvm, _waiting={})
        fake.tables, fake.before = Warehouse(folder=folder).catalog(), catalog.hold
        fake.land = catalog.sink("any").catalog.send_as_it_is  # version 3, too
        yield catalog
        jvm.close()
