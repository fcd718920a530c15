"""Scratch tables to try a catalog with: created, committed to, and removed with all their files.

Runs on the driver only.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, AssertTableUUID
from pyiceberg.types import LongType, NestedField
from typing_extensions import Self

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError, commit_failure
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.staged_metadata import noting_metadata
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.listing import list_files
from iceberg_ds.io.local_paths import is_local, local_path
from iceberg_ds.plan import NewTable
from iceberg_ds.snapshots.manifests import metadata_path, write_list
from iceberg_ds.snapshots.refs import MAIN_BRANCH, branch_snapshot_id
from iceberg_ds.snapshots.snapshot import creation_request, move_branch
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest

_SCHEMA = Schema(NestedField(1, "id", LongType()))
_TOTAL = "total-records"
_PREFIX = "iceberg_ds_check_"


def _send_as_it_is(catalog: CatalogClient, table: Table, request: CommitRequest) -> None:
    try:
        catalog.send_as_it_is(table, request)
    except Exception as failure:  # each library below raises its own errors
        raise commit_failure(failure, catalog.describe(failure)) from None  # the cause may show credentials


def total_records(table: Table) -> int:
    """Return the number of rows that the current snapshot claims: one for itself and for each of its ancestors."""
    return _records(table.metadata.current_snapshot())


def _records(snapshot: Snapshot | None) -> int:
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary[_TOTAL] or 0)


class ScratchTables:
    """Context manager that creates scratch tables in a namespace, and removes all of them at its exit.

    Args:
        catalog: The catalog.
        namespace: Namespace of the tables. If it is missing, it is created and removed again.
        another: Returns a further connection to the catalog.

    Attributes:
        left_behind: What could not be removed, and why.
    """

    def __init__(self, catalog: CatalogClient, namespace: Sequence[str], another: Callable[[], CatalogClient]) -> None:
        self.catalog = catalog
        self.left_behind: list[str] = []
        self._namespace = tuple(namespace)
        self._another = another
        self._connections: list[CatalogClient] = []
        self._tables: dict[tuple[str, ...], Table] = {}
        self._files: set[str] = set()
        self._made_namespaces: list[tuple[str, ...]] = []

    def __enter__(self) -> Self:
        levels = [self._namespace[:depth] for depth in range(len(self._namespace), 0, -1)]
        self._made_namespaces = [level for level in levels if not self.catalog.raw.namespace_exists(level)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for name in list(self._tables):
            self._attempt(partial(self.drop, name), f"table {identifier_text(name)}")
        for level in self._made_namespaces:
            with suppress(Exception):  # missing if no table was created, or in use by others now
                self.catalog.raw.drop_namespace(level)

    def connections(self, count: int) -> list[CatalogClient]:
        """Return so many connections to the catalog; two threads cannot share some of PyIceberg's catalogs."""
        while len(self._connections) < count:
            self._connections.append(self._another())
        return self._connections[:count]

    def stage(self) -> Table:
        """Return a new table that is not in the catalog yet, unless the catalog cannot stage tables."""
        identifier = (*self._namespace, f"{_PREFIX}{secrets.token_hex(6)}")
        new_table = NewTable(schema=_SCHEMA, format_version="2")
        metadata = self.catalog.stage_table(identifier, new_table)
        table = self.load(identifier) if metadata is None else self.catalog.staged_table(identifier, metadata)
        self._tables[identifier] = table
        return table

    def table(self, *, snapshots: int = 0) -> Table:
        """Return a new table with so many snapshots."""
        staged = self.stage()
        if not self.catalog.raw.table_exists(staged.name()):
            self.commit(staged, creation_request(staged.metadata))
        self.commit_snapshots(staged.name(), snapshots)
        return self.load(staged.name())

    def commit_snapshots(self, name: tuple[str, ...], count: int) -> None:
        """Add so many snapshots, one after the other."""
        for _ in range(count):
            table = self.load(name)
            self.commit(table, self.with_snapshot(table))

    def with_snapshot(self, table: Table, *, branch: str = MAIN_BRANCH, schema_id: int | None = None) -> CommitRequest:
        """Return the request that adds a snapshot, which claims one more row, to the current state of the table."""
        metadata = table.metadata
        parent = metadata.snapshot_by_name(branch)
        snapshot_id = secrets.randbits(62) + 1
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=metadata.next_sequence_number(),
            timestamp_ms=max(int(time.time() * 1000), metadata.last_updated_ms),
            manifest_list=metadata_path(metadata, f"snap-{snapshot_id}.avro"),
            summary=Summary(operation=Operation.APPEND, **{_TOTAL: str(_records(parent) + 1)}),
            schema_id=metadata.current_schema_id if schema_id is None else schema_id,
        )
        self._files.add(snapshot.manifest_list)
        write_list(table.io, metadata, snapshot, [])
        return CommitRequest(
            requirements=(
                AssertTableUUID(uuid=metadata.table_uuid),
                AssertRefSnapshotId(ref=branch, snapshot_id=branch_snapshot_id(metadata, branch)),
            ),
            updates=(AddSnapshotUpdate(snapshot=snapshot), move_branch(metadata, branch, snapshot_id)),
        )

    def load(self, name: tuple[str, ...]) -> Table:
        """Load a table anew."""
        table = self.catalog.raw.load_table(name)
        self._note(name, table)
        return table

    def commit(
        self, table: Table, request: CommitRequest, *, catalog: CatalogClient | None = None, is_plain: bool = True
    ) -> None:
        """Send a request, as it is or as the sink sends it.

        Raises:
            CommitRefusedError, CommitAnswerLostError: The catalog refused the request, or its answer was lost.
        """
        used = catalog or self.catalog
        with noting_metadata() as written:  # written for refused requests, too, and no answer tells where
            try:
                if is_plain:
                    _send_as_it_is(used, table, request)
                else:
                    used.send(table, request.requirements, request.updates)
            finally:
                self._files |= written

    def commit_together(
        self, changes: Sequence[tuple[Table, CommitRequest]], *, catalog: CatalogClient | None = None
    ) -> bool:
        """Send one request for several tables, and return whether the catalog accepts it.

        Raises:
            CommitAnswerLostError: The answer was lost.
        """
        used = catalog or self.catalog
        with noting_metadata() as written:
            try:
                used.send_together(changes)
            except CommitRefusedError:
                return False
            finally:
                self._files |= written
        return True

    def is_refused(self, table: Table, request: CommitRequest) -> bool:
        """Send a request as it is, and return whether the catalog refuses it, or fails without an answer."""
        try:
            self.commit(table, request)
        except (CommitRefusedError, CommitAnswerLostError):
            return True
        return False

    def drop(self, name: tuple[str, ...]) -> None:
        """Drop a table and delete its files."""
        with suppress(NoSuchTableError):  # the table was never committed, or is already dropped
            self._note(name, self.catalog.raw.load_table(name))
            self.catalog.raw.drop_table(name)
        table = self._tables.pop(name, None)
        if table is not None:
            self._delete_files(table)

    def _note(self, name: tuple[str, ...], table: Table) -> None:
        """Remember how to open the table's files, and their paths."""
        self._tables[name] = table
        self._files.add(table.metadata_location)
        self._files |= {entry.metadata_file for entry in table.metadata.metadata_log}
        self._files |= {snapshot.manifest_list for snapshot in table.metadata.snapshots}

    def _delete_files(self, table: Table) -> None:
        location = table.location()
        known = {path for path in self._files if path.startswith(f"{location}/")}
        with suppress(Exception):  # the known files are deleted anyway
            # A server may leave what it wrote for refused requests.
            known |= {*list_files(table.io.properties, location)}
        if left := delete_files(table.io, known, Proof.DROPPED):
            self.left_behind.append(f"{left} files below {location}")
        if is_local(location):
            for folder in (local_path(location) / "metadata", local_path(location)):
                with suppress(OSError):  # the folder is missing, or others have put files into it
                    folder.rmdir()

    def _attempt(self, remove: Callable[[], None], what: str) -> None:
        try:
            remove()
        except FileNotFoundError:
            return
        except Exception as error:  # each library below raises its own errors
            self.left_behind.append(f"{what} ({self.catalog.describe(error)})")
