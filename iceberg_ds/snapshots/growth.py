"""How far a table has grown since it was last maintained: the history that each commit carries, and small data files.

A table whose history makes commits slow is reported in the log, once per process.

Sizes of single files stand in manifests, which cost requests; summaries are in the metadata that every write loads. Of
`n` files with `b` bytes together at most `b / s` are of `s` bytes or more, and all others are smaller. That holds for
the files that a snapshot has, and for those that it adds; those that it removes may all have been small ones. So the
number of small files is never too high; it is too low where a commit adds large files and small ones at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.parsing import whole_number
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.refs import branch_head, branch_history

logger = logging.getLogger(__name__)

# Measured on a local disk: with this many of either, a commit takes several times as long as to a new table.
MANY_SNAPSHOTS = 1000
MANY_MANIFESTS = 1000

NEXT_STEP = (
    "Expire old snapshots and rewrite the manifests from time to time, for example with iceberg-ds maintain, or with "
    "iceberg-ds expire-snapshots and rewrite-manifests."
)
# A data file is small below this part of the size that the table's writers aim at.
_SMALL_PART = 4
_told: set[str] = set()

_Loaded = TypeVar("_Loaded")


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


def small_below_bytes(metadata: TableMetadata) -> int:
    """Return the size in bytes below which a data file of the table is small."""
    default = int(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)
    return whole_number(metadata.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, default) // _SMALL_PART


def least_small_files(metadata: TableMetadata, branch: str) -> int:
    """Return how many small data files a branch has at least; 0 if its summaries do not tell."""
    below = small_below_bytes(metadata)
    found = 0
    for snapshot in reversed(list(branch_history(metadata, branch))):
        told = summary_entries(snapshot)
        gone = whole_number(told, "deleted-data-files", 0)
        found = max(0, found + _small(told, "added-data-files", "added-files-size", below) - gone)
        found = max(found, _small(told, "total-data-files", "total-files-size", below))
    return found


def _small(told: Mapping[str, str], files: str, size: str, below: int) -> int:
    """Return how many of these files are small at least; their bytes count those of delete files, too."""
    count = whole_number(told, files, 0)
    if not count or not below or size not in told:
        return 0
    return max(0, count - whole_number(told, size, count * below) // below)
