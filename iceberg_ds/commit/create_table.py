"""The creation of a table that does not wait for rows, and a first snapshot that has none.

Else a table is created by the commit of its first snapshot (`loop`).
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
from iceberg_ds.commit.retry import Pace
from iceberg_ds.error_hints import advice
from iceberg_ds.errors import CatalogError, CommitConflictError, CommitStateUnknownError
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.messages import WriteIdentity
from iceberg_ds.options.file_settings import file_settings
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import Route, new_operation
from iceberg_ds.snapshots.commit_status import Attempt, CommitStatus, Reply, check_commit_status
from iceberg_ds.snapshots.manifests import metadata_path, write_list
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.snapshots.snapshot import Change, change_summary, commit_request, creation_request, new_snapshot
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest

_TO_CHECK = "Check that you may create tables there."


def create_without_rows(catalog: CatalogClient, identifier: Sequence[str], metadata: TableMetadata) -> None:
    """Create the table as it was staged, unless somebody has created it meanwhile.

    Raises:
        CatalogError: The catalog cannot be reached, or refuses; the table was not created.
        CommitStateUnknownError: The last answers were lost, and the table may still come into being.
    """
    identifier = tuple(identifier)
    pace = Pace()
    is_lost = False  # a request without an answer
    while True:
        is_exhausted = pace.begin_attempt()
        problem = _send(catalog, identifier, metadata)
        if problem is None:
            return
        is_lost = is_lost or isinstance(problem, CommitAnswerLostError)
        try:
            if catalog.find_table(identifier) is not None:
                return
        except CatalogError as unreachable:
            if is_exhausted:
                _give_up(identifier, unreachable, is_lost=is_lost)
        else:
            if is_exhausted or (isinstance(problem, CommitRefusedError) and problem.is_lasting):
                _give_up(identifier, problem, is_lost=is_lost)
        pace.wait_after(problem)


def with_first_snapshot(catalog: CatalogClient, options: SinkOptions, table: Table) -> Table:
    """Return the table with a snapshot on `main`: one without rows if it has none.

    Catalogs take the first snapshot of a table on `main` alone, and other branches are forked from it.

    Raises:
        CatalogError, CommitConflictError, CommitStateUnknownError: It could not be committed.
    """
    if table.metadata.snapshots:
        return table
    return _FirstSnapshot(catalog, options, table).commit()


class _FirstSnapshot:
    """A snapshot without rows on its way into a table that has none, under the rules of `loop`.

    Args:
        catalog: The catalog of the table.
        options: Those of the write that needs it.
        table: The table.
    """

    def __init__(self, catalog: CatalogClient, options: SinkOptions, table: Table) -> None:
        self._catalog = catalog
        self._identifier = options.table
        self._table = table
        self._seen = table.metadata  # as it was loaded last
        self._write = _first_write(options, table.metadata)
        self._attempts: list[Attempt] = []
        path = metadata_path(table.metadata, f"snap-{self._write.snapshot_id}-0-{self._write.operation_id}.avro")
        nothing = change_summary(table.metadata, Change(added=()))
        self._snapshot = new_snapshot(table.metadata, self._write, Operation.APPEND, nothing, path)

    def commit(self) -> Table:
        """Return the table with it, or with what another writer made first."""
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
        # A confirmed request is told from one that was overtaken by the snapshot alone, which a cache may not show:
        # no more is known of it than of one that was lost.
        reply = Reply.LOST if failure is None else reply_of(failure)
        self._attempts.append(Attempt.on(metadata, self._write, reply))

    def _tidy_up(self) -> None:
        """Delete the manifest list if no request that names it has landed or can land any more."""
        finding = check_commit_status(self._seen, self._write, self._attempts, lambda: False)
        if finding.is_final and finding.status is not CommitStatus.SUCCESS:
            delete_files(self._table.io, [self._snapshot.manifest_list], Proof.REFUSED)


def _first_write(options: SinkOptions, metadata: TableMetadata) -> WriteIdentity:
    operation_id, snapshot_id = new_operation()
    return WriteIdentity(
        table=identifier_text(options.table),
        table_uuid=str(metadata.table_uuid),
        route=Route(branch=MAIN_BRANCH),
        operation_id=operation_id,
        snapshot_id=snapshot_id,
        schema_id=metadata.current_schema_id,
        files=file_settings(options, metadata, identifier_text(options.table)),
        snapshot_properties=options.snapshot_properties,
    )


def _send(catalog: CatalogClient, identifier: tuple[str, ...], metadata: TableMetadata) -> Exception | None:
    """Send one request. Return its failure, None if there was none."""
    request = creation_request(metadata)
    try:
        catalog.send(catalog.staged_table(identifier, metadata), request.requirements, request.updates)
    except (CommitRefusedError, CommitAnswerLostError) as failure:
        return failure
    return None


def _give_up(identifier: Sequence[str], problem: Exception, *, is_lost: bool) -> NoReturn:
    name = identifier_text(identifier)
    if is_lost:
        raise CommitStateUnknownError(
            f"Whether table {name} was created is unknown: the catalog's answer was lost, and it may still "
            f"carry the request out ({problem}). No rows were written. Run the write again: it finds out."
        ) from problem
    step = advice(problem, otherwise=_TO_CHECK)
    raise CatalogError(f"Cannot create {name}, nothing was committed: {problem}. {step}") from problem
