"""Files that take the place of others: what a commit asks, at each attempt, of whoever has made them.

Which files a swap drops depends on the branch as it is at the attempt, and so does whether what was made still fits.
The condition on the branch that guards all commits makes sure that it still is so when the request is carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyiceberg.table import Table

from iceberg_ds.commits.added import Added
from iceberg_ds.commits.replacing import Replacement
from iceberg_ds.errors import CommitConflictError


class StaleWorkError(CommitConflictError):
    """Other writers have changed files that the swap was made from; those that tasks wrote are left for another try."""


class Swap(Protocol):
    """What takes the place of what."""

    @property
    def keeps_rows(self) -> bool:
        """Whether the table has the same rows afterwards."""

    @property
    def added(self) -> Added:
        """The files that take the place of others; those of the write's own rows are not among them."""

    @property
    def sequence_numbers(self) -> Mapping[str, int]:
        """The data sequence numbers of added files, by path, whose rows are older than the snapshot."""

    def replacement(self, table: Table) -> Replacement:
        """Return what to drop from the table as it is now.

        Raises:
            StaleWorkError: What was made does not fit the table any more.
        """
