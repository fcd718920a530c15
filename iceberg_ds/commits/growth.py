"""Tells of tables whose history makes commits slow: measures it, and says so in the log, once in a process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.snapshots.branches import branch_head
from iceberg_ds.snapshots.growth import NEXT_STEP, Growth

logger = logging.getLogger(__name__)

_told: set[str] = set()

_Loaded = TypeVar("_Loaded")


def timed(load: Callable[[], _Loaded]) -> tuple[_Loaded, float]:
    """Load a table, and return what `load` returns and how long it took, in milliseconds."""
    started = time.monotonic()
    loaded = load()
    return loaded, (time.monotonic() - started) * 1000


def growth_of(table: Table, branch: str, load_ms: float) -> Growth:
    """Return how much history a commit to a branch of a table has to carry, which took `load_ms` to load."""
    size = manifests = None
    with suppress(Exception):  # a catalog may keep it where only its server may read
        size = len(table.io.new_input(table.metadata_location))
    with suppress(Exception):  # that it cannot be read is told of elsewhere
        head = branch_head(table.metadata, branch)
        manifests = 0 if head is None else len(head.manifests(table.io))
    snapshots = len(table.metadata.snapshots)
    return Growth(snapshots=snapshots, manifests=manifests, load_ms=load_ms, metadata_bytes=size)


def warn_of_growth(table_name: str, metadata: TableMetadata, manifests: int, load_ms: float) -> None:
    """Log a warning if the history makes commits slow, once for each table in this process.

    Args:
        table_name: The table.
        metadata: It as it was committed to.
        manifests: Manifests that the newest snapshot of the branch lists, 0 if that is not known.
        load_ms: How long it took to load the table, in milliseconds.
    """
    growth = Growth(snapshots=len(metadata.snapshots), manifests=manifests, load_ms=load_ms)
    uuid = str(metadata.table_uuid)
    if growth.is_much and uuid not in _told:
        _told.add(uuid)
        logger.warning("Commits to %s are slowed down by its history: %s. %s", table_name, growth, NEXT_STEP)
