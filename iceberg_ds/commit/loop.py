"""The one loop that brings a change into a table: load the table, look, send one request, look again.

No answer of the catalog is believed on its own: what the table shows at the next look is the outcome (the protocol is
the docstring of `commit`). The change itself decides what to look for and what to send.
"""

from __future__ import annotations

from typing import NoReturn, Protocol, TypeVar

from pyiceberg.table import Table

from iceberg_ds.catalog.answers import stays_refused
from iceberg_ds.commit.retry import Pace, RetryPolicy, would_fail_again
from iceberg_ds.errors import CatalogError

Outcome_co = TypeVar("Outcome_co", covariant=True)


class TableChange(Protocol[Outcome_co]):
    """A change on its way into a table."""

    def load(self) -> Table:
        """Return the table as the catalog has it now.

        Raises:
            CatalogError: The catalog cannot be reached; the loop waits and asks again.
        """

    def look(self, table: Table, base: Table | None) -> Outcome_co | None:
        """Return the outcome if the table shows one, or None if a request is due; raise if the change can never land.

        Args:
            table: The table, freshly loaded.
            base: The table that the last request was made for; None before the first request.
        """

    def send(self, table: Table) -> Outcome_co | Exception | None:
        """Send one request for the table.

        Returns:
            The outcome; or the failure, which the next look confirms or refutes; or None if the catalog confirmed the
            request and the next look shows what is left to do.
        """

    def give_up(self, table: Table, problem: Exception | None) -> NoReturn:
        """Raise, because no further request is sent; the last one failed with `problem`."""

    def give_up_unseen(self, unreachable: CatalogError) -> NoReturn:
        """Raise, because no further request is sent, and the table cannot be loaded to find out about the last one."""

    def waits_for_catalog(self) -> bool:
        """Return whether a catalog that cannot be reached is asked again."""


def bring_in(change: TableChange[Outcome_co]) -> Outcome_co:
    """Load, look and send repeatedly until the table shows what became of `change`; raises what `change` raises."""
    pace = Pace()
    base: Table | None = None
    problem: Exception | None = None
    while True:
        is_exhausted = pace.begin_attempt()
        try:
            table = change.load()
        except CatalogError as unreachable:
            problem = unreachable
            if is_exhausted or not change.waits_for_catalog():
                change.give_up_unseen(unreachable)
        else:
            pace.policy = RetryPolicy.of(table.metadata.properties)
            outcome = change.look(table, base)
            if outcome is not None:
                return outcome
            if is_exhausted or would_fail_again(problem) or stays_refused(problem, base, table):
                change.give_up(table, problem)
            base = table
            sent = change.send(table)
            if sent is not None and not isinstance(sent, Exception):
                return sent
            problem = sent
        pace.wait_after(problem)
