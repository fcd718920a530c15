"""Whether a table's history makes commits slow: the check that `check` and `verify` both make of it."""

from __future__ import annotations

from pyiceberg.table import Table

from iceberg_ds.checks.checklist import Checklist, CheckWarnedError
from iceberg_ds.commits.growth import growth_of
from iceberg_ds.snapshots.growth import NEXT_STEP

GROWTH = "length of history"


def check_growth(checklist: Checklist, table: Table, branch: str, load_ms: float) -> None:
    """Make the check; it warns at most.

    Args:
        checklist: Takes what is found.
        table: The table.
        branch: The branch that is committed to.
        load_ms: How long it took to load the table, in milliseconds.
    """

    def length() -> tuple[str, None]:
        growth = growth_of(table, branch, load_ms)
        if growth.is_much:
            raise CheckWarnedError(f"{growth}: commits are slowed down by it", NEXT_STEP)
        return str(growth), None

    checklist.attempt(GROWTH, length)
