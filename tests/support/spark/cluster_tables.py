"""Tables that clusters write: a SQL catalog on the driver's disk, their files in an object store, read by PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from support.services.catalogs import sqlite_catalog
from support.services.servers import CatalogService, ObjectStore

_numbers: Iterator[int] = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A catalog and its store.

    Attributes:
        service: The catalog.
        store: The object store.
    """

    service: CatalogService
    store: ObjectStore

    @classmethod
    def make(cls, folder: Path, store: ObjectStore) -> Lake:
        """Return a new catalog in `folder`."""
        return cls(service=replace(sqlite_catalog(folder, store), name="lake"), store=store)

    @property
    def options(self) -> dict[str, str]:
        """The sink's options that lead to it."""
        return self.service.options

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that name it `lake` to PyIceberg, and so to the sink's option `catalog`."""
        return {
            f"PYICEBERG_CATALOG__LAKE__{key.replace('.', '__').replace('-', '_').upper()}": value
            for key, value in self.service.properties.items()
        }

    def new_name(self) -> str:
        """Return the name of a table that nobody has used."""
        return f"db.t{next(_numbers)}"

    def table(self, name: str) -> Table:
        """Load a table afresh."""
        return load_catalog(self.service.name, **dict(self.service.properties)).load_table(name)

    def ids(self, name: str) -> list[int]:
        """Return the ids of all rows in order."""
        found: list[int] = sorted(self.table(name).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
        return found

    def count(self, name: str) -> int:
        """Return how many rows there are."""
        return self.table(name).scan().to_arrow().num_rows

    def drop(self, *names: str) -> None:
        """Take tables out of the catalog."""
        for name in names:
            load_catalog(self.service.name, **dict(self.service.properties)).drop_table(name)

    def summaries(self, name: str) -> list[Mapping[str, Any]]:
        """Return the summaries of all snapshots, oldest first."""
        snapshots = self.table(name).metadata.snapshots
        return [dict(found.summary.additional_properties) if found.summary else {} for found in snapshots]

    def data_files(self, name: str) -> set[str]:
        """Return the names of the data files in the table's folder of the store, referenced or not."""
        bucket, _, path = self.table(name).location().removeprefix("s3://").partition("/")
        return {found.name for found in (self.store.folder / bucket / path).rglob("*.parquet")}

    def referenced(self, name: str) -> set[str]:
        """Return the names of the data files of the current snapshot."""
        return {task.file.file_path.rpartition("/")[2] for task in self.table(name).scan().plan_files()}
