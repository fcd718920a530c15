"""PyIceberg's SQL catalog with one transaction of its database for a request that changes several tables.

The pointers of all tables stand in one database table. So each table's new metadata file is written first, and then
one transaction moves every pointer that still stands where it was seen, or none. `own_storage` makes a catalog one of
these; contract tests hold the private names. Databases that were not tried are left out. Runs on the driver only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy import CursorResult, update
from sqlalchemy.orm import Session

from iceberg_ds.catalog.answers import RolledBackError
from iceberg_ds.catalog.staged_metadata import note_rolled_back, noting_rolled_back
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest

# Their drivers count the rows that an update changed.
_TRIED = ("sqlite", "postgresql")


class ManyTablesSql(SqlCatalog):
    """A SQL catalog that changes several tables at once.

    Attributes:
        commits_in_one_transaction: That no server in between may carry out a part of it alone.
    """

    commits_in_one_transaction = True

    @property
    def can_commit_tables(self) -> bool:
        """Whether one transaction can move several pointers: the database was tried, and commits are PyIceberg's."""
        return self.engine.dialect.name in _TRIED and self._commits_as_pyiceberg

    @property
    def _commits_as_pyiceberg(self) -> bool:
        return super(ManyTablesSql, type(self)).commit_table is SqlCatalog.commit_table

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Change or create a table as PyIceberg does; what it refuses its one transaction has rolled back."""
        refusals = (CommitFailedException, TableAlreadyExistsError) if self._commits_as_pyiceberg else ()
        with noting_rolled_back(*refusals):
            return super().commit_table(table, requirements, updates)

    def commit_tables(self, changes: Sequence[tuple[Table, CommitRequest]]) -> None:
        """Change several existing tables, all or none.

        Raises:
            RolledBackError: A table is not there, or not as a requirement says, or another commit was faster; no table
                was changed.
        """
        try:
            found = [(self.load_table(table.name()), request) for table, request in changes]
            for current, request in found:
                for requirement in request.requirements:
                    requirement.validate(current.metadata)
        except (NoSuchTableError, CommitFailedException) as refusal:
            raise RolledBackError(str(refusal)) from refusal
        staged = [
            (current, self._update_and_stage_table(current, current.name(), request.requirements, request.updates))
            for current, request in found
        ]
        for _, after in staged:
            self._write_metadata(metadata=after.metadata, io=after.io, metadata_path=after.metadata_location)
        fault_point(FaultPoint.POINTERS_READY)
        try:
            with Session(self.engine) as session:  # without the commit at its end, all is rolled back
                # Always in one order: of two transactions, neither waits for a row that the other one holds.
                for current, after in sorted(staged, key=lambda pair: pair[0].name()):
                    self._move(session, current, after)
                session.commit()
        except RolledBackError:
            note_rolled_back({after.metadata_location for _, after in staged})
            raise

    def _move(self, session: Session, current: Table, after: StagedTable) -> None:
        name = current.name()
        result = session.execute(
            update(IcebergTables)
            .where(
                IcebergTables.catalog_name == self.name,
                IcebergTables.table_namespace == Catalog.namespace_to_string(Catalog.namespace_from(name)),
                IcebergTables.table_name == Catalog.table_name_from(name),
                IcebergTables.metadata_location == current.metadata_location,
            )
            .values(
                metadata_location=after.metadata_location,
                previous_metadata_location=current.metadata_location,
            )
        )
        if cast("CursorResult[Any]", result).rowcount != 1:  # as that of every update
            raise RolledBackError(f"{identifier_text(name)} has been updated by another process")
