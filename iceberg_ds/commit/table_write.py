"""The write of one of several tables that are committed together, and what becomes of its files if it is given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.commit.commit import Publish, give_up_write
from iceberg_ds.commit.overwrite import RewriteFiles, RewriteValidationError
from iceberg_ds.io.cleanup import Proof
from iceberg_ds.messages import TaskCommit
from iceberg_ds.metrics.commit_meter import CommitMeter, hand_out
from iceberg_ds.metrics.delivery import waiting_once
from iceberg_ds.metrics.report import figures_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """The write of one of several tables, ready to be committed.

    Attributes:
        commits: What its tasks report; a message for each partition.
        rewrite: Further files to add, and the files that they replace; None for no replacement.
        late_keys: As `begin_commit` takes it.
        publish: As `end_commit` takes it.
        renew: Makes the write anew, with a new operation, once its rewrite has become stale and no request for it can
            land any more. None if a stale rewrite is a failure.
        sources: Identifiers of the tables that these rows could not be written into, if it is the write of a quarantine
            table. None of them had the epoch or version when it was made.
    """

    commits: Sequence[TaskCommit]
    rewrite: RewriteFiles | None = None
    late_keys: pa.Table | None = None
    publish: Publish | None = None
    renew: Callable[[RewriteValidationError], TableWrite] | None = None
    sources: Sequence[str] = ()

    @property
    def table(self) -> str:
        """Identifier of the table."""
        return self.commits[0].write.table

    def renewed(self, catalog: CatalogClient, meter: CommitMeter, stale: RewriteValidationError) -> TableWrite:
        """Return the write made anew.

        Raises:
            RewriteValidationError: It cannot be made anew.
            IcebergSinkError: It can no longer be made; its files were deleted.
        """
        if self.renew is None:
            raise stale
        logger.info("Preparing the write of %s again: %s", self.table, stale)
        try:
            write = self.renew(stale)
        except BaseException:
            meter.gave_up(give_up_write(catalog, self.table, self.commits, self.rewrite, Proof.REFUSED))
            raise
        meter.begin(write.commits[0].write)
        return write


@contextmanager
def giving_up(
    catalog: CatalogClient, writes: Iterable[TableWrite] | Callable[[], Iterable[TableWrite]]
) -> Iterator[None]:
    """Give writes up if the block raises, which comes before their commits: delete their files, and report each.

    Args:
        catalog: The catalog of their tables.
        writes: The writes; or what returns them, where they may have other files by then.
    """
    try:
        yield
    except BaseException as failure:
        with waiting_once():
            for write in writes() if callable(writes) else writes:
                meter = CommitMeter(write.commits[0].write, figures_of(write.commits))
                meter.gave_up(give_up_write(catalog, write.table, write.commits, write.rewrite))
                hand_out(catalog.reporting, meter, None, of_others=failure)
        raise
