"""A catalog in memory that keeps Iceberg's commit protocol, except where a test tells it not to.

It carries out requests as a REST server does: whole or not at all, one after the other. `NESSIE` is what was
measured of Nessie 0.99, `HEEDLESS` a server that looks at no requirement but for the creation of tables.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertCreate,
    AssertRefSnapshotId,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.table.requests import CommitRequest


class Trap(Enum):
    """One way not to keep the protocol."""

    ANY_REQUIREMENT_HOLDS = auto()
    NULL_REQUIREMENT_HOLDS = auto()
    CREATES_AGAIN = auto()
    PROPERTIES_APART = auto()  # set in a request that is refused, too
    PROPERTIES_DROPPED = auto()
    ONE_SNAPSHOT = auto()  # only the newest is shown
    ONE_BRANCH = auto()  # whatever branch a request names, it is the main one
    SCHEMA_OF_SNAPSHOT = auto()  # the schema that a snapshot names becomes the table's
    LAST_COLUMN_ID_WANTED = auto()
    PROPERTIES_SET_ONCE = auto()  # a request that sets some twice is refused
    MANY_TABLES = auto()  # no gap: it takes requests for several tables
    TABLE_BY_TABLE = auto()  # it carries out what it can of them, and says nothing


NESSIE = frozenset(
    {
        Trap.NULL_REQUIREMENT_HOLDS,
        Trap.ONE_SNAPSHOT,
        Trap.ONE_BRANCH,
        Trap.SCHEMA_OF_SNAPSHOT,
        Trap.LAST_COLUMN_ID_WANTED,
        Trap.PROPERTIES_SET_ONCE,
    }
)
HEEDLESS = frozenset({Trap.ANY_REQUIREMENT_HOLDS})


class LaxCatalog(NoopCatalog):
    """A catalog in memory; its tables' files lie in `folder`.

    Args:
        folder: Where the files of its tables go.
        traps: Where it does not keep the protocol.
        properties: What it answers as its own properties.
        namespaces: Those that there are; None for every one.
    """

    def __init__(
        self,
        folder: Path,
        traps: frozenset[Trap] = frozenset(),
        properties: Mapping[str, str] | None = None,
        namespaces: set[tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__("lax", **(properties or {}))
        self._namespaces = namespaces
        self._folder = folder
        self._traps = traps
        self._tables: dict[tuple[str, ...], TableMetadata] = {}
        self._lock = threading.Lock()

    def view_exists(self, identifier: Any) -> bool:  # noqa: ARG002  # the interface's
        """Return that there are no views."""
        return False

    def copy(self) -> LaxCatalog:
        """Return a catalog with the same tables, over the same files, whose changes are its own."""
        namespaces = None if self._namespaces is None else set(self._namespaces)
        twin = LaxCatalog(self._folder, self._traps, self.properties, namespaces)
        twin._tables = dict(self._tables)
        return twin

    def namespace_exists(self, namespace: Any) -> bool:
        """Return whether there is the namespace."""
        return self._namespaces is None or self.identifier_to_tuple(namespace) in self._namespaces

    def create_namespace_if_not_exists(self, namespace: Any, properties: Any = None) -> None:  # noqa: ARG002
        """Make the namespace."""
        if self._namespaces is not None:
            self._namespaces.add(self.identifier_to_tuple(namespace))

    def table_exists(self, identifier: Any) -> bool:
        """Return whether there is the table."""
        with self._lock:
            return self.identifier_to_tuple(identifier) in self._tables

    def load_table(self, identifier: Any) -> Table:
        """Return the table as the catalog shows it."""
        with self._lock:
            return self._table(self.identifier_to_tuple(identifier))

    def drop_table(self, identifier: Any) -> None:
        """Forget the table."""
        with self._lock:
            if self._tables.pop(self.identifier_to_tuple(identifier), None) is None:
                raise NoSuchTableError(identifier)

    def create_table(self, identifier: Any, schema: Any, *_: Any, **__: Any) -> Table:
        """Create a table without any snapshot."""
        with self._lock:
            self._tables[self.identifier_to_tuple(identifier)] = self._new_metadata(identifier, schema)
            return self._table(self.identifier_to_tuple(identifier))

    def create_table_transaction(  # noqa: PLR0913, PLR0917  # the interface's
        self,
        identifier: Any,
        schema: Any,
        location: str | None = None,
        partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,
        sort_order: Any = UNSORTED_SORT_ORDER,
        properties: Any = None,
    ) -> CreateTableTransaction:
        """Stage a table, as a REST catalog does: not if there is one."""
        with self._lock:
            if self.identifier_to_tuple(identifier) in self._tables:
                raise TableAlreadyExistsError(identifier)
        where = location or self._location(identifier)
        metadata = new_table_metadata(schema, partition_spec, sort_order, where, dict(properties or {}))
        io = load_file_io({}, where)
        return CreateTableTransaction(
            StagedTable(
                identifier=self.identifier_to_tuple(identifier),
                metadata=metadata,
                metadata_location="",
                io=io,
                catalog=self,
            )
        )

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Carry out a request, whole or not at all."""
        with self._lock:
            before = self._tables.get(table.name())
            if Trap.CREATES_AGAIN in self._traps and any(isinstance(need, AssertCreate) for need in requirements):
                before = None
            try:
                self._check(before, requirements, updates)
            except CommitFailedException:
                if before is not None and Trap.PROPERTIES_APART in self._traps:
                    properties = tuple(update for update in updates if isinstance(update, SetPropertiesUpdate))
                    self._tables[table.name()] = update_table_metadata(before, properties)
                raise
            self._tables[table.name()] = self._applied(before, updates)
            return CommitTableResponse(
                metadata=self._shown(self._tables[table.name()]), **{"metadata-location": "file:///nowhere"}
            )

    @property
    def can_commit_tables(self) -> bool:
        """Whether it takes requests for several tables."""
        return bool({Trap.MANY_TABLES, Trap.TABLE_BY_TABLE} & self._traps)

    def commit_tables(self, changes: Sequence[tuple[Table, CommitRequest]]) -> None:
        """Carry out a request for several tables."""
        with self._lock:
            before = dict(self._tables)
            for table, request in changes:
                try:
                    self._check(self._tables.get(table.name()), request.requirements, request.updates)
                except CommitFailedException:
                    if Trap.TABLE_BY_TABLE in self._traps:
                        continue
                    self._tables = before
                    raise
                self._tables[table.name()] = self._applied(self._tables[table.name()], request.updates)

    def _check(
        self,
        before: TableMetadata | None,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> None:
        if before is None and not any(isinstance(requirement, AssertCreate) for requirement in requirements):
            raise NoSuchTableError("no such table")
        for requirement in requirements:
            if not self._is_ignored(requirement):
                requirement.validate(before)
        settings = [update for update in updates if isinstance(update, SetPropertiesUpdate)]
        if Trap.PROPERTIES_SET_ONCE in self._traps and len(settings) > 1:
            raise BadRequestError("Found multiple updates of type SetProperties")
        if Trap.LAST_COLUMN_ID_WANTED in self._traps:
            for update in updates:
                if isinstance(update, AddSchemaUpdate) and not hasattr(update, "last_column_id"):
                    raise CommitStateUnknownException("last-column-id is missing")

    def _is_ignored(self, requirement: TableRequirement) -> bool:
        if Trap.ANY_REQUIREMENT_HOLDS in self._traps:
            return not isinstance(requirement, AssertCreate)
        if not isinstance(requirement, AssertRefSnapshotId):
            return False
        return Trap.NULL_REQUIREMENT_HOLDS in self._traps and requirement.snapshot_id is None

    def _applied(self, before: TableMetadata | None, updates: tuple[TableUpdate, ...]) -> TableMetadata:
        base = before if before is not None else MetastoreCatalog._empty_table_metadata()
        taken = tuple(self._taken(update, before) for update in updates)
        changed = update_table_metadata(base, taken, enforce_validation=before is None)
        highest = max([changed.last_column_id, *(getattr(update, "last_column_id", 0) for update in updates)])
        for update in updates:
            if isinstance(update, AddSnapshotUpdate) and Trap.SCHEMA_OF_SNAPSHOT in self._traps:
                changed = changed.model_copy(update={"current_schema_id": update.snapshot.schema_id})
        return changed.model_copy(update={"last_column_id": highest})

    def _taken(self, update: TableUpdate, before: TableMetadata | None) -> TableUpdate:
        """Return what the catalog makes of an update."""
        if isinstance(update, AddSnapshotUpdate) and before is not None:
            number = max(update.snapshot.sequence_number or 0, before.last_sequence_number + 1)
            return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"sequence_number": number}))
        if isinstance(update, SetSnapshotRefUpdate) and Trap.ONE_BRANCH in self._traps:
            return update.model_copy(update={"ref_name": MAIN_BRANCH})
        if isinstance(update, SetPropertiesUpdate) and Trap.PROPERTIES_DROPPED in self._traps:
            return SetPropertiesUpdate(updates={})
        return update

    def _table(self, identifier: tuple[str, ...]) -> Table:
        metadata = self._tables.get(identifier)
        if metadata is None:
            raise NoSuchTableError(identifier)
        return Table(identifier, self._shown(metadata), "", load_file_io({}, metadata.location), self)

    def _shown(self, metadata: TableMetadata) -> TableMetadata:
        current = metadata.current_snapshot()
        if current is None or Trap.ONE_SNAPSHOT not in self._traps:
            return metadata
        return metadata.model_copy(update={"snapshots": [current], "snapshot_log": []})

    def _new_metadata(self, identifier: Any, schema: Any) -> TableMetadata:
        return new_table_metadata(
            schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, self._location(identifier), {}
        )

    def _location(self, identifier: Any) -> str:
        return f"file://{self._folder}/{'/'.join(self.identifier_to_tuple(identifier))}"
