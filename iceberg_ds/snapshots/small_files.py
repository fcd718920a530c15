"""Pure: how many small data files a branch has at least, as the summaries of its snapshots tell it.

Sizes of single files stand in manifests, which cost requests; summaries are in the metadata that every write loads. Of
`n` files with `b` bytes together at most `b / s` are of `s` bytes or more, and all others are smaller. That holds for
the files that a snapshot has, and for those that it adds; those that it removes may all have been small ones. So the
number is never too high; it is too low where a commit adds large files and small ones at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.parsing import whole_number
from iceberg_ds.pyiceberg_inner import summary_entries
from iceberg_ds.snapshots.refs import branch_history

# A data file is small below this part of the size that the table's writers aim at.
SMALL_PART = 4


def small_below_bytes(metadata: TableMetadata) -> int:
    """Return the size in bytes below which a data file of the table is small."""
    default = int(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)
    return whole_number(metadata.properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, default) // SMALL_PART


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
