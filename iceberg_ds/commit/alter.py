"""The small commit that changes a table before the rows of a write: its schema, its spec, its sort orders.

The caller proposes the change from the current table; this module sends the request and finds out what became of
it. Like every commit it deletes metadata files that the table lets go of, if the table's properties want that. It
writes no files, and runs on the driver only.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.catalog.staged_metadata import tidying_metadata
from iceberg_ds.commit.retry import bring_in
from iceberg_ds.error_hints import advice
from iceberg_ds.errors import CatalogError, CommitConflictError, CommitStateUnknownError, TableNotFoundError
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.snapshots.snapshot import dropped_metadata_files
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.requests import CommitRequest

logger = logging.getLogger(__name__)

_TO_CHECK = "Check that you may change the table."

Propose: TypeAlias = Callable[[TableMetadata], CommitRequest | None]
# Called after each request with the table that it was made for, and its failure, or None if the catalog confirmed it.
Hear: TypeAlias = Callable[[TableMetadata, "CommitRefusedError | CommitAnswerLostError | None"], None]


@tidying_metadata()
def alter_table(
    catalog: CatalogClient,
    identifier: Sequence[str],
    propose: Propose,
    *,
    loaded: Table | None = None,
    hear: Hear | None = None,
) -> Table:
    """Change the table until `propose` has nothing more to change, and return the table as it is then.

    `propose` is called again after every attempt, successful or not, so it must see in the table what another
    writer or a lost attempt has done. Its requests must require what they build on: a request that does not may
    undo what another writer does at the same moment.

    Args:
        catalog: The catalog of the table.
        identifier: Levels of the table's identifier.
        propose: Returns the request that changes the current table, or None for no change. Its errors propagate.
        loaded: The table if the caller has just loaded it, which saves a load.
        hear: Called with the catalog's answer to each request, for a caller whose requests name files.

    Raises:
        TableNotFoundError: There is no such table, and none was changed.
        CatalogError: The catalog cannot be reached or does not allow the change; nothing was changed.
        CommitConflictError: Other writers were faster each time; nothing was changed.
        CommitStateUnknownError: The last answers were lost, and the change may still be made; or the table may have it,
            and has lost its name.
    """
    return bring_in(_Alteration(catalog, identifier, propose, loaded=loaded, hear=hear))


class _Alteration:
    """One change on its way into the table."""

    def __init__(
        self,
        catalog: CatalogClient,
        identifier: Sequence[str],
        propose: Propose,
        *,
        loaded: Table | None,
        hear: Hear | None,
    ) -> None:
        self._catalog = catalog
        self._identifier = tuple(identifier)
        self._name = identifier_text(identifier)
        self._propose = propose
        self._hear = hear
        self._loaded = loaded
        self._request: CommitRequest | None = None  # what the last look proposed
        self._lost: list[CommitRequest] = []
        self._confirmed: CommitTableResponse | None = None  # the table after the last change that the catalog confirmed
        self._may_have_landed = False  # even if the table of that name shows nothing of it
        self._attempts = 0
        self._started = time.monotonic()

    def load(self) -> Table:
        """Return the table: at the first call the one that the caller has loaded, if any."""
        loaded, self._loaded = self._loaded, None
        try:
            return loaded or self._catalog.load_table(self._identifier)
        except TableNotFoundError as gone:
            if not self._may_have_landed:
                raise
            raise CommitStateUnknownError(
                f"Whether table {self._name} was changed is unknown: the catalog has no such table by now; it may be "
                "renamed, and have the change. No rows were written and no files were deleted. Look there."
            ) from gone

    def waits_for_catalog(self) -> bool:
        """Return whether a request was sent, so that the table must be seen."""
        return self._attempts > 0

    def look(self, table: Table, base: Table | None) -> Table | None:
        """Return the table if nothing is left to change, or None."""
        self._request = self._propose(table.metadata)
        if self._request is not None:
            return None
        if self._attempts:
            elapsed_ms = (time.monotonic() - self._started) * 1000
            logger.info("Changed table %s, attempt %d, %.0f ms", self._name, self._attempts, elapsed_ms)
        if base is not None and self._confirmed is not None:
            delete_files(table.io, dropped_metadata_files(base.metadata, table.metadata), Proof.SUPERSEDED)
        return table

    def send(self, table: Table) -> Exception | None:
        """Send the proposed request. Return its failure, which the next look confirms or refutes, or None."""
        request = self._request
        assert request is not None  # noqa: S101  # the look before has proposed it
        self._attempts += 1
        failure: CommitRefusedError | CommitAnswerLostError | None = None
        try:
            self._confirmed = self._catalog.send(table, request.requirements, request.updates)
        except CommitRefusedError as refusal:
            failure = refusal
        except CommitAnswerLostError as lost:
            self._lost.append(request)
            failure = lost
        # "Another one was faster" is also the answer to a request that landed, and that a gateway sent twice.
        self._may_have_landed |= not isinstance(failure, CommitRefusedError) or failure.is_lost_race
        if self._hear is not None:
            self._hear(table.metadata, failure)
        if failure is None:
            return None
        logger.debug("Attempt %d to change table %s failed: %s", self._attempts, self._name, failure)
        return failure

    def give_up(self, table: Table, problem: Exception | None) -> NoReturn:
        """Raise the error that fits what is known of the change; the last attempt failed with `problem`."""
        if any(_may_still_land(request, table.metadata) for request in self._lost):
            self._raise_unknown(f"the last request may still be carried out ({problem})")
        if self._confirmed is not None and not _follows(table, self._confirmed):
            self._raise_unknown("the catalog confirmed the change, and answers from an older state of the table")
        reason = problem or "another writer has undone each change"
        summary = f"Cannot change table {self._name} after {self._attempts} attempts: {reason}. It stays as it is."
        if isinstance(problem, CommitRefusedError) and problem.is_lasting:
            raise CatalogError(f"{summary} {advice(problem, otherwise=_TO_CHECK)}") from problem
        raise CommitConflictError(
            f"{summary} Run the write again; many writers at once need more commit.retry.num-retries."
        ) from problem

    def give_up_unseen(self, unreachable: CatalogError) -> NoReturn:
        """Raise the error that fits what is known of the change; the table cannot be loaded."""
        if self._attempts:
            self._raise_unknown(str(unreachable))
        raise unreachable

    def _raise_unknown(self, reason: str) -> NoReturn:
        raise CommitStateUnknownError(
            f"Whether table {self._name} was changed is unknown: {reason}. No rows were written and no files were "
            "deleted. Run the write again: it finds out, and changes nothing twice."
        )


def _follows(table: Table, confirmed: CommitTableResponse) -> bool:
    """Return whether the table was changed after the confirmed change, as far as its metadata log goes back.

    Times do not tell: the clock of an earlier writer may have been ahead.
    """
    return any(entry.metadata_file == confirmed.metadata_location for entry in table.metadata.metadata_log)


def _may_still_land(request: CommitRequest, metadata: TableMetadata) -> bool:
    """Return whether the catalog would carry out `request` if it arrived now."""
    try:
        for requirement in request.requirements:
            requirement.validate(metadata)
    except CommitFailedException:
        return False
    return True
