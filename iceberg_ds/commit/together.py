"""Commits the writes of one epoch to several tables: each table exactly once, by the marker of its own write.

Tables are committed one after the other. If the driver dies in between, or a table fails, a repeated epoch skips the
tables that have their rows, and goes on with the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.commit import commit_write
from iceberg_ds.commit.overwrite import RewriteFiles, StaleWorkError
from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.messages import TaskCommit

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """The write of one of several tables, ready to be committed.

    Attributes:
        commits: What its tasks report; a message for each partition.
        rewrite: Further files to add, and the files that they replace; None for no replacement.
        late_keys: As `commit_write` takes it.
        renew: Makes the write anew, with a new operation, once its rewrite has become stale and no request for it can
            land any more. If it raises, it has deleted the files of this write. None if a stale rewrite is a failure.
    """

    commits: Sequence[TaskCommit]
    rewrite: RewriteFiles | None = None
    late_keys: pa.Table | None = None
    renew: Callable[[StaleWorkError], TableWrite] | None = None

    @property
    def table(self) -> str:
        """Identifier of the table."""
        return self.commits[0].write.table


def commit_tables(
    catalog: CatalogClient, writes: Sequence[TableWrite], *, epoch_id: int | None = None
) -> list[CommitResult]:
    """Commit the writes of one epoch or batch, no two of them to one table, and return their results in their order.

    A table that fails does not keep the others from their rows.

    Args:
        catalog: The catalog of all tables.
        writes: The writes.
        epoch_id: The micro-batch that Spark commits; None for a batch.

    Raises:
        IcebergSinkError: Names every table that failed, and is of the type of the first failure, as `commit_write`
            raises it.
    """
    results: list[CommitResult] = []
    failures: list[IcebergSinkError] = []
    for write in writes:
        try:
            results.append(_commit_one(catalog, write, epoch_id))
        except IcebergSinkError as failure:
            failures.append(failure)
    if not failures:
        return results
    if len(writes) == 1:
        raise failures[0]
    listed = "\n".join(f"  - {failure}" for failure in failures)
    raise type(failures[0])(
        f"{len(failures)} of {len(writes)} tables were not committed; the others have their rows, and are skipped when "
        f"this runs again under the same epoch or version:\n{listed}"
    ) from failures[0]


def _commit_one(catalog: CatalogClient, write: TableWrite, epoch_id: int | None) -> CommitResult:
    """Commit the write of one table, made anew as often as others make its rewrite stale."""
    while True:
        try:
            return commit_write(
                catalog, write.commits, epoch_id=epoch_id, rewrite=write.rewrite, late_keys=write.late_keys
            )
        except StaleWorkError as stale:
            if write.renew is None:
                raise
            logger.info("Preparing the write of %s again: %s", write.table, stale)
            write = write.renew(stale)
