"""The creation of a table by a batch that has no rows, as `CREATE TABLE AS` would create it.

With rows, a table is created by the commit of its first snapshot (`commit_loop`).
"""

from __future__ import annotations

from typing import NoReturn

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from iceberg_ds.catalogs.answers import CommitAnswerLostError, CommitRefusedError
from iceberg_ds.catalogs.client import CatalogClient
from iceberg_ds.commits.pace import Pace
from iceberg_ds.diagnosis.diagnosing import advice
from iceberg_ds.errors import CatalogError, CommitStateUnknownError
from iceberg_ds.messages import WriteIdentity
from iceberg_ds.snapshots.snapshots import creation_request

_TO_CHECK = "Check that you may create tables there."


def create_without_rows(catalog: CatalogClient, write: WriteIdentity) -> None:
    """Create the table that `write` was planned for, unless somebody has created it meanwhile.

    Raises:
        CatalogError: The catalog cannot be reached, or refuses; the table was not created.
        CommitStateUnknownError: The last answers were lost, and the table may still come into being.
    """
    assert write.new_table is not None  # noqa: S101  # it is asked for such writes alone
    metadata = TableMetadataUtil.parse_raw(write.new_table)
    identifier = tuple(write.table.split("."))
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
                _give_up(write, unreachable, is_lost=is_lost)
        else:
            if is_exhausted or (isinstance(problem, CommitRefusedError) and problem.is_lasting):
                _give_up(write, problem, is_lost=is_lost)
        pace.wait_after(problem)


def _send(catalog: CatalogClient, identifier: tuple[str, ...], metadata: TableMetadata) -> Exception | None:
    """Send one request. Return its failure, None if there was none."""
    request = creation_request(metadata)
    try:
        catalog.send(catalog.staged_table(identifier, metadata), request.requirements, request.updates)
    except (CommitRefusedError, CommitAnswerLostError) as failure:
        return failure
    return None


def _give_up(write: WriteIdentity, problem: Exception, *, is_lost: bool) -> NoReturn:
    if is_lost:
        raise CommitStateUnknownError(
            f"Whether table {write.table} was created is unknown: the catalog's answer was lost, and it may still "
            f"carry the request out ({problem}). No rows were written. Run the write again: it finds out."
        ) from problem
    step = advice(problem, otherwise=_TO_CHECK)
    raise CatalogError(f"Cannot create {write.table}, nothing was committed: {problem}. {step}") from problem
