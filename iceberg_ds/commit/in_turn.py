"""Commits the tables of an epoch by a request for each, where the catalog takes none for several.

All tables are loaded and looked at, and all files written, before the first request is sent; then one follows the
other. So if a table cannot take its rows, no table gets any, and readers see some tables with the rows of the epoch and
some without for no longer than these requests take. As long as no table shows its rows, the next request waits until
the one before has brought its table in; if that fails, no further request is sent. After that the epoch is finished
forward: a table whose request failed is tried again, by itself, once all other tables have their rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from iceberg_ds.commit.epoch_part import EpochPart, heed_sources, is_hopeless, shows_rows
from iceberg_ds.fault_points import FaultPoint, fault_point


def bring_in_turn(parts: Sequence[EpochPart]) -> None:
    """Bring in the parts of an epoch that are due; each then knows what became of it.

    Args:
        parts: All parts; those that are to land first come first.
    """
    due = [part for part in parts if part.is_due]
    try:
        _make_ready(due)
        heed_sources(parts)
        fault_point(FaultPoint.TABLES_PREPARED)
        _send(parts, due)
    except BaseException:
        for part in due:
            if part.is_ready:
                part.abandon()
        raise
    for part in due:
        part.make_ready()
        if part.is_due:
            part.abandon()


def _make_ready(due: Sequence[EpochPart]) -> None:
    """Make parts ready, but for a second write to a table: it builds on the first."""
    seen: set[str] = set()
    for part in due:
        if part.table_uuid not in seen:
            part.make_ready()
        seen.add(part.table_uuid)


def _send(parts: Sequence[EpochPart], due: Sequence[EpochPart]) -> None:
    """Send a request for each part that is due; leave those due that may not get their rows."""
    for part in due:
        if is_hopeless(parts):
            return
        part.make_ready()
        if part.is_due:
            part.send_ready()
        if part.is_first or not shows_rows(parts):
            part.finish()
    for part in due:
        part.finish()
