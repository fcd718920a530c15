"""Commits the tables of an epoch by a request for each, where the catalog takes none for several.

All tables are loaded and looked at, and all files written, before the first request is sent; then one follows the
other. So a table that is found unable to take its rows keeps all others from theirs, and readers see some tables
without the others no longer than these requests take. As long as no table shows its rows, the next request waits until
the one before has brought its table in; if that fails, no other one is sent. After that the epoch is finished forward:
a table whose request failed is tried again, by itself, once the others have theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from iceberg_ds.commit.epoch_part import EpochPart, is_hopeless, shows_rows
from iceberg_ds.fault_points import FaultPoint, fault_point


def bring_in_turn(parts: Sequence[EpochPart]) -> None:
    """Bring in the parts of an epoch that are due; each then knows what became of it.

    Args:
        parts: All parts; those that are to land first come first.
    """
    due = [part for part in parts if part.is_due]
    try:
        for part in due:
            part.make_ready()
        fault_point(FaultPoint.TABLES_PREPARED)
        for part in due:
            if part.is_due and not is_hopeless(parts):
                part.send_ready()
                if part.is_first or not shows_rows(parts):
                    part.finish()
        for part in due:
            if not part.is_ready:
                part.finish()
    finally:
        for part in due:
            if part.is_ready:
                part.abandon()
