"""The creation of a table that does not wait for rows, and a first snapshot without rows.

Otherwise the commit of a table's first snapshot creates the table (`snapshot_update`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.commit.requests import reply_of
from iceberg_ds.commit.retry import bring_in
from iceberg_ds.error_hints import advice
from iceberg_ds.errors import CatalogError, CommitConflictError, CommitStateUnknownError
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.options.file_settings import new_write
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import Fingerprint, Route
from iceberg_ds.snapshots.commit_status import Attempt, CommitStatus, Reply, check_commit_status
from iceberg_ds.snapshots.manifests import metadata_path, write_list
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.snapshots.snapshot import Change, change_summary, commit_request, creation_request, new_snapshot
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest

_TO_CHECK = "Check that you may create tables there."


def create_without_rows(catalog: CatalogClient, identifier: Sequence[str], metadata: TableMetadata) -> None:
    """Create the table as it was staged, unless another writer has created it meanwhile.

    Raises:
        CatalogError: The catalog cannot be reached, or refuses; the table was not created.
        CommitStateUnknownError: The last answers were lost, and the table may still be created.
    """
    bring_in(_Creation(catalog, identifier, metadata))


class _Creation:
    """A table without rows on its way into the catalog."""

    def __init__(self, catalog: CatalogClient, identifier: Sequence[str], metadata: TableMetadata) -> None:
        self._catalog = catalog
        self._identifier = tuple(identifier)
        self._staged = catalog.staged_table(identifier, metadata)
        self._found: Table | None = None
        self._is_lost = False  # whether the answer to a request was lost
        self._attempts = 0

    def load(self) -> Table:
        """Return the table from the catalog, or the staged table if the catalog has none."""
        self._found = self._catalog.find_table(self._identifier) if self._attempts else None
        return self._found or self._staged

    def waits_for_catalog(self) -> bool:
        """Return True: a catalog that cannot be reached is asked again."""
        return True

    def look(self, table: Table, base: Table | None) -> Table | None:  # noqa: ARG002  # there is only one request
        """Return the table from the catalog, whichever writer created it, or None."""
        return self._found

    def send(self, table: Table) -> Table | Exception:
        """Send the request. Return the table, or the failure."""
        self._attempts += 1
        request = creation_request(table.metadata)
        try:
            self._catalog.send(table, request.requirements, request.updates)
        except (CommitRefusedError, CommitAnswerLostError) as failure:
            self._is_lost = self._is_lost or isinstance(failure, CommitAnswerLostError)
            return failure
        return table

    def give_up(self, table: Table, problem: Exception | None) -> NoReturn:  # noqa: ARG002  # it is not there
        """Raise the error that fits what is known of the table; the last attempt failed with `problem`."""
        name = identifier_text(self._identifier)
        if self._is_lost:
            raise CommitStateUnknownError(
                f"Whether table {name} was created is unknown: the catalog's answer was lost, and it may still "
                f"carry the request out ({problem}). No rows were written. Run the write again: it finds out."
            ) from problem
        step = _TO_CHECK if problem is None else advice(problem, otherwise=_TO_CHECK)
        raise CatalogError(f"Cannot create {name}, nothing was committed: {problem}. {step}") from problem

    def give_up_unseen(self, unreachable: CatalogError) -> NoReturn:
        """Raise the error that fits what is known of the table; the catalog cannot be reached."""
        self.give_up(self._staged, unreachable)


def with_first_snapshot(catalog: CatalogClient, options: SinkOptions, table: Table) -> Table:
    """Return the table with a snapshot on `main`: one without rows if it has none.

    Catalogs accept the first snapshot of a table on `main` only, and other branches are forked from it.

    Raises:
        CatalogError, CommitConflictError, CommitStateUnknownError: It could not be committed.
    """
    if table.metadata.snapshots:
        return table
    return _FirstSnapshot(catalog, options, table).commit()


class _FirstSnapshot:
    """A snapshot without rows on its way into a table that has none, under the rules of `commit`.

    Args:
        catalog: The catalog of the table.
        options: Options of the write that needs the snapshot.
        table: The table.
    """

    def __init__(self, catalog: CatalogClient, options: SinkOptions, table: Table) -> None:
        self._catalog = catalog
        self._identifier = options.table
        self._table = table
        self._seen = table.metadata  # as last loaded
        self._write = new_write(options, table.metadata, Route(branch=MAIN_BRANCH), Fingerprint.of(table.metadata))
        self._attempts: list[Attempt] = []
        path = metadata_path(table.metadata, f"snap-{self._write.snapshot_id}-0-{self._write.operation_id}.avro")
        nothing = change_summary(table.metadata, Change(added=()))
        self._snapshot = new_snapshot(table.metadata, self._write, Operation.APPEND, nothing, path)

    def commit(self) -> Table:
        """Return the table with the snapshot, or with one that another writer committed first."""
        write_list(self._table.io, self._table.metadata, self._snapshot, [])
        try:
            table = alter_table(
                self._catalog, self._identifier, self._propose, loaded=self._table, hear=self._note_answer
            )
        except (CatalogError, CommitConflictError):
            self._tidy_up()
            raise
        self._tidy_up()
        return table

    def _propose(self, metadata: TableMetadata) -> CommitRequest | None:
        self._seen = metadata
        if str(metadata.table_uuid) != self._write.table_uuid:
            raise CommitConflictError(
                f"Cannot write to {self._write.table}: another table has that name by now. No rows were written. Run "
                "the write again."
            )
        return None if metadata.snapshots else commit_request(metadata, self._write, self._snapshot, is_new=False)

    def _note_answer(self, metadata: TableMetadata, failure: CommitRefusedError | CommitAnswerLostError | None) -> None:
        # Only the snapshot tells a confirmed request from an overtaken one, and a cache may not show the snapshot:
        # no more is known of a confirmed request than of a lost one.
        reply = Reply.LOST if failure is None else reply_of(failure)
        self._attempts.append(Attempt.on(metadata, self._write, reply))

    def _tidy_up(self) -> None:
        """Delete the manifest list if no request that names it has landed or can land any more."""
        finding = check_commit_status(self._seen, self._write, self._attempts, lambda: False)
        if finding.is_final and finding.status is not CommitStatus.SUCCESS:
            delete_files(self._table.io, [self._snapshot.manifest_list], Proof.REFUSED)
