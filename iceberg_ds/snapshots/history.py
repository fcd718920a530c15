"""How a table's history goes on in time, how much of it each commit has to carry, and when that is too much.

Iceberg's Java library refuses to read a table whose snapshot log, metadata log or last update goes back by more than a
minute (`TableMetadata`), as happens after a commit by a machine whose clock was set back, or had been ahead. So a
table's versions follow each other in time here, however far apart the clocks of its writers are. A table whose history
makes commits slow is reported in the log, once per process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry

from iceberg_ds.snapshots.refs import branch_head

logger = logging.getLogger(__name__)

CLOCKS_APART_MS = 60_000  # what Java allows

_Entry = TypeVar("_Entry", SnapshotLogEntry, MetadataLogEntry)
# Measured on a local disk: with this many of either, a commit takes several times as long as to a new table.
MANY_SNAPSHOTS = 1000
MANY_MANIFESTS = 1000

NEXT_STEP = (
    "Expire old snapshots and rewrite the manifests from time to time, for example with iceberg-ds maintain, or with "
    "iceberg-ds expire-snapshots and rewrite-manifests."
)
_told: set[str] = set()

_Loaded = TypeVar("_Loaded")


def latest_ms(metadata: TableMetadata) -> int:
    """Return the latest time (milliseconds since 1970) that the table knows of: no commit may be earlier."""
    last = [entry.timestamp_ms for log in (metadata.snapshot_log, metadata.metadata_log) for entry in log[-1:]]
    return max([metadata.last_updated_ms, *last])


def in_order(metadata: TableMetadata) -> TableMetadata:
    """Return the table without times that go back further than readers allow, whichever writer recorded them."""
    ordered = metadata.model_copy(
        update={
            "snapshot_log": list(_ascending(metadata.snapshot_log)),
            "metadata_log": list(_ascending(metadata.metadata_log)),
        }
    )
    return ordered.model_copy(update={"last_updated_ms": latest_ms(ordered)})


def _ascending(log: Sequence[_Entry]) -> Iterator[_Entry]:
    latest = 0
    for entry in log:
        if entry.timestamp_ms < latest - CLOCKS_APART_MS:
            yield entry.model_copy(update={"timestamp_ms": latest})
        else:
            yield entry
            if entry.timestamp_ms > latest:  # noqa: PLR1730  # `max` takes longer than all else here, and logs are long
                latest = entry.timestamp_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a commit reads and writes because of what was committed before.

    Attributes:
        snapshots: Snapshots in the table's metadata.
        manifests: Manifests that the branch's newest snapshot lists; None if unknown.
        load_ms: How long it took to load the table, in milliseconds.
        metadata_bytes: Size of the metadata file; None if unknown.
    """

    snapshots: int
    manifests: int | None
    load_ms: float
    metadata_bytes: int | None = None

    @property
    def is_much(self) -> bool:
        """Whether the history makes commits slow."""
        return self.snapshots >= MANY_SNAPSHOTS or (self.manifests or 0) >= MANY_MANIFESTS

    def __str__(self) -> str:
        size = "" if self.metadata_bytes is None else f" in a metadata file of {self.metadata_bytes / 1e6:.1f} MB"
        manifests = "" if self.manifests is None else f", {self.manifests:,} manifests in the branch"
        return f"{self.snapshots:,} snapshots{size}{manifests}; the table was loaded in {self.load_ms:.0f} ms"


def timed(load: Callable[[], _Loaded]) -> tuple[_Loaded, float]:
    """Load a table, and return what `load` returns and how long it took, in milliseconds."""
    started = time.monotonic()
    loaded = load()
    return loaded, (time.monotonic() - started) * 1000


def growth_of(table: Table, branch: str, load_ms: float) -> Growth:
    """Return how much history a commit to a branch of a table has to carry; the table took `load_ms` to load."""
    size = manifests = None
    with suppress(Exception):  # a catalog may keep the file where only its server may read it
        size = len(table.io.new_input(table.metadata_location))
    with suppress(Exception):  # a list that cannot be read is reported elsewhere
        head = branch_head(table.metadata, branch)
        manifests = 0 if head is None else len(head.manifests(table.io))
    snapshots = len(table.metadata.snapshots)
    return Growth(snapshots=snapshots, manifests=manifests, load_ms=load_ms, metadata_bytes=size)


def warn_of_growth(table_name: str, metadata: TableMetadata, manifests: int, load_ms: float) -> None:
    """Log a warning if the history makes commits slow, once for each table in this process.

    Args:
        table_name: Name of the table.
        metadata: The table as it was committed to.
        manifests: Manifests that the newest snapshot of the branch lists; 0 if unknown.
        load_ms: How long it took to load the table, in milliseconds.
    """
    growth = Growth(snapshots=len(metadata.snapshots), manifests=manifests, load_ms=load_ms)
    uuid = str(metadata.table_uuid)
    if growth.is_much and uuid not in _told:
        _told.add(uuid)
        logger.warning("Commits to %s are slowed down by its history: %s. %s", table_name, growth, NEXT_STEP)
