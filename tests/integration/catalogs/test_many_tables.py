"""Several tables in one request to real servers, beside a second writer of the same tables."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata
from support.exhaustive import few
from support.services.servers import CatalogService
from support.tables.epochs import Tables
from support.tables.sink import Sink
from typing_extensions import Self

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options
from iceberg_ds.pyiceberg_inner import summary_entries

EPOCHS = 4
QUERIES = tuple(f"0b9f2c1e-1111-4222-8333-44445555666{number}" for number in range(2))
SERVERS = ("postgres", "rest_catalog", "nessie", "sqlite", "hive_metastore", "glue")


def tables_of(service: CatalogService, namespace: str) -> Tables:
    """Return two tables with one row each."""
    options = parse_options({**service.options, "table": f"{namespace}.a"})
    found = Tables(of_one=Sink(catalog=connect(catalog_settings(options)), options=options), namespace=namespace)
    found.create()
    return found


@pytest.mark.parametrize("server", few(1, SERVERS))
def test_two_writers_of_two_tables_have_each_row_once(request: pytest.FixtureRequest, server: str) -> None:
    """Rows would be lost or doubled beside another writer, as the reference server loses them."""
    tables = tables_of(request.getfixturevalue(server), "two_writers")

    def write(number: int) -> None:
        own = Tables(
            of_one=replace(tables.of_one, catalog=tables.catalog.another()),
            names=tables.names[:: -1 if number else 1],  # the other way round
            namespace=tables.namespace,
        )
        for epoch in range(EPOCHS):
            own.commit(own.to_all(epoch, 1 + number * EPOCHS + epoch, query_id=QUERIES[number]))

    with ThreadPoolExecutor(2) as writers, PointerWatch(tables) as seen:
        list(writers.map(write, range(2)))

    expected = list(range(1 + 2 * EPOCHS))
    assert tables.ids() == {"a": expected, "b": expected}
    assert all(epochs_of(a) == epochs_of(b) for a, b in seen.states())


class PointerWatch:
    """Notes the pointers of both tables of a SQL catalog, in one look at the database, while the block runs."""

    def __init__(self, tables: Tables) -> None:
        self._catalog = tables.catalog.raw
        self._io = tables.sink("a").table().io
        self._namespace = tables.namespace
        self._pairs: set[tuple[str, ...]] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def states(self) -> list[tuple[TableMetadata, ...]]:
        """Return both tables, in each state that was seen."""
        logging.getLogger(__name__).info("%d states were seen", len(self._pairs))
        return [
            tuple(StaticTable.from_metadata(path, dict(self._io.properties)).metadata for path in pair)
            for pair in self._pairs
        ]

    def _poll(self) -> None:
        while isinstance(self._catalog, SqlCatalog) and not self._is_over.wait(0.01):
            with self._catalog.engine.connect() as connection:
                found = connection.exec_driver_sql(
                    "SELECT metadata_location FROM iceberg_tables "  # noqa: S608  # no outside input
                    f"WHERE catalog_name = '{self._catalog.name}' AND table_namespace = '{self._namespace}' "
                    "ORDER BY table_name"
                ).all()
            self._pairs.add(tuple(row[0] for row in found))


def epochs_of(metadata: TableMetadata) -> set[tuple[str | None, str | None]]:
    """Return the epochs that a table shows."""
    told = [summary_entries(snapshot) for snapshot in metadata.snapshots]
    return {(found.get("spark.sql.streaming.queryId"), found.get("spark.sql.streaming.epochId")) for found in told}
