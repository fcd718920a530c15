"""Epochs that write into several tables of one catalog, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from support.checks.invariants import check_clean
from support.tables.sink import QUERY, Sink, epoch, local, rows

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.producer import SnapshotProducer
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.commit.table_write import TableWrite
from iceberg_ds.commit.together import commit_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Several tables of one catalog.

    Attributes:
        of_one: What writes to one table of the catalog; its other options count for all tables.
        names: The tables.
        namespace: Their namespace.
    """

    of_one: Sink
    names: Sequence[str] = ("a", "b")
    namespace: str = "db"

    @property
    def catalog(self) -> CatalogClient:
        """The catalog."""
        return self.of_one.catalog

    def sink(self, name: str) -> Sink:
        """Return what writes to one of the tables."""
        return replace(self.of_one, options=replace(self.of_one.options, table=(self.namespace, name)))

    def create(self) -> None:
        """Create all tables, each with the row 0."""
        for name in self.names:
            self.sink(name).append(0)

    def write(
        self, epoch_id: int, ids: Mapping[str, Sequence[int]], *, query_id: str = QUERY, **options: Any
    ) -> list[TableWrite]:
        """Run one task for each table, which writes rows with these ids, and return what there is to commit."""
        of_epoch = epoch(epoch_id, query_id)
        return [
            TableWrite(
                commits=self.sink(name).write(
                    rows(*found), plan=self.sink(name).plan(is_stream=True, **options), of_epoch=of_epoch
                )
            )
            for name, found in ids.items()
        ]

    def to_all(self, epoch_id: int, *ids: int, **options: Any) -> list[TableWrite]:
        """Return what there is to commit of an epoch that writes the same rows to every table."""
        return self.write(epoch_id, dict.fromkeys(self.names, ids), **options)

    def commit(self, writes: Sequence[TableWrite]) -> list[CommitResult]:
        """Commit an epoch."""
        number = writes[0].commits[0].write.epoch
        return commit_tables(self.catalog, writes, epoch_id=None if number is None else number.epoch_id)

    def ids(self) -> dict[str, list[int]]:
        """Return the ids that each table has, in order."""
        return {name: self.sink(name).ids() for name in self.names if self.has(name)}

    def has(self, name: str) -> bool:
        """Return whether the table exists."""
        try:
            self.catalog.raw.load_table((self.namespace, name))
        except NoSuchTableError:
            return False
        return True

    def metadata_files(self, name: str) -> set[str]:
        """Return the metadata files that lie around beside those that the table names."""
        table = self.sink(name).table()
        known = {
            local(path) for path in (table.metadata_location, *(e.metadata_file for e in table.metadata.metadata_log))
        }
        return {str(path) for path in local(table.metadata.location).rglob("*.metadata.json") if path not in known}


def let_retry(tables: Tables, times: int) -> None:
    """Let commits to each of the tables be tried again so often."""
    for name in tables.names:
        with tables.sink(name).table().transaction() as change:
            change.set_properties({"commit.retry.num-retries": str(times)})


def check_all_clean(tables: Tables) -> None:
    """Assert that every table is whole, and that neither data files nor metadata files lie around."""
    for name in tables.names:
        check_clean(tables.sink(name).table())
        assert tables.metadata_files(name) == set()


def forbid_manifests(_: Tables, name: str, patch: pytest.MonkeyPatch) -> None:
    """Take the right away to write the manifests of a table, as where its bucket is another one."""
    _fail_manifests(name, PermissionError(13, "AccessDenied: no right to write manifests", name), patch)


def slow_manifests_down(_: Tables, name: str, patch: pytest.MonkeyPatch) -> None:
    """Let the store refuse the manifests of a table for as long as anybody tries."""
    _fail_manifests(name, OSError("503 SlowDown"), patch)


def forbid_loads(tables: Tables, name: str, patch: pytest.MonkeyPatch) -> None:
    """Take the right away to load a table."""
    raw = tables.catalog.raw
    real = raw.load_table

    def load(identifier: tuple[str, ...]) -> Table:
        if identifier[-1] == name:
            raise ForbiddenError("no right to read this table")
        return real(identifier)

    patch.setattr(raw, "load_table", load, raising=False)


DAMAGES = (forbid_manifests, slow_manifests_down, forbid_loads)


def _fail_manifests(name: str, failure: Exception, patch: pytest.MonkeyPatch) -> None:
    real = SnapshotProducer.produce

    def produce(producer: SnapshotProducer, table: Table) -> Snapshot | None:
        if table.name()[-1] == name:
            raise failure
        return real(producer, table)

    patch.setattr(SnapshotProducer, "produce", produce)
