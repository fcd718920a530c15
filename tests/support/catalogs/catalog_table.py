"""A table of a real catalog in the hands of three: the sink in Spark, PyIceberg, and Iceberg's own Spark runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from support.peer.jvm_peer import PeerCatalog
from support.services.servers import CatalogService
from support.tables.sink import Sink

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogTable:
    """A table, which need not exist yet.

    Attributes:
        service: Its catalog.
        peer: The catalog as Iceberg's own Spark runtime sees it.
        name: Its identifier, such as `db.t`.
    """

    service: CatalogService
    peer: PeerCatalog = field(repr=False)
    name: str

    @property
    def options(self) -> dict[str, str]:
        """The sink's options that lead to its catalog."""
        return self.service.options

    def catalog(self) -> Catalog:
        """Return a new connection of PyIceberg to its catalog."""
        return load_catalog(self.service.name, **self.service.properties)

    def table(self) -> Table:
        """Load it afresh."""
        return self.catalog().load_table(self.name)

    def write(self, rows: DataFrame, mode: str = "append", **options: str) -> None:
        """Write a DataFrame through the sink; `_` in the name of an option stands for `-`."""
        more = {key.replace("_", "-"): value for key, value in options.items()}
        rows.write.format("icebergsink").mode(mode).options(**self.options, **more).save(self.name)

    def sink(self, writer: int) -> Sink:
        """Return what writes to it without Spark; each writer has a connection of its own."""
        options = parse_options({**self.options, "catalog.tests.writer": str(writer), "table": self.name})
        return Sink(catalog=connect(catalog_settings(options)), options=options)

    def rows(self) -> list[Row]:
        """Return all rows as PyIceberg reads them, ordered by id."""
        found: list[Row] = self.table().scan().to_arrow().sort_by("id").to_pylist()
        return found

    def rows_of_peer(self) -> list[Row]:
        """Return all rows as the Spark runtime reads them, ordered by id."""
        return self.peer.sql(f"SELECT * FROM {self.name} ORDER BY id")  # noqa: S608  # no outside input

    def check_rows(self, expected: list[Row]) -> None:
        """Assert that both readers find exactly these rows, given in the order of their ids."""
        assert self.rows() == expected
        assert self.rows_of_peer() == expected

    def check_ids(self, *expected: int) -> None:
        """Assert that both readers find exactly rows with these ids, given in order."""
        assert [row["id"] for row in self.rows()] == list(expected)
        assert [row["id"] for row in self.rows_of_peer()] == list(expected)

    def commits(self) -> list[Mapping[str, str | None]]:
        """Return the summaries of the snapshots that the catalog shows, oldest first."""
        snapshots = self.table().metadata.snapshots
        return [dict(snapshot.summary.additional_properties) if snapshot.summary else {} for snapshot in snapshots]
