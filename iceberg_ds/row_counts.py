"""Pure: proves by counts that no row is lost or doubled on its way into the table.

Whoever moves rows says how many it got, and where they are now, as somebody else has counted them: the footers of
files, the messages of tasks, manifests. The sums are equal, or nothing is committed. Counting costs nothing beside the
rows, so it is done in every write. Imports nothing of the package but its errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.manifest import DataFile

from iceberg_ds.errors import RowCountError


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """How many rows a task got, and what became of them.

    Attributes:
        received: Rows that Spark sent to it.
        left_out: Those of them that are to be in no file: refused rows, deletes without a row, rows that lose to others
            of their keys.
    """

    received: int
    left_out: int = 0

    @property
    def to_add(self) -> int:
        """Rows that the task wrote into files or handed over."""
        return self.received - self.left_out


class CountedBatches:
    """Batches as they come, counted on the way.

    Attributes:
        rows: How many rows have come so far.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.rows = 0
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch


def rows_in(data_files: Iterable[DataFile]) -> int:
    """Return how many rows, or deletes, files have by their footers."""
    return sum(data_file.record_count for data_file in data_files)


def check_rows(action: str, source: str, count: int, found: Mapping[str, int]) -> None:
    """Do nothing if all rows are where they belong.

    Args:
        action: What is being done, such as `write to db.t`; nothing was sent to the catalog yet.
        source: Where the rows come from, such as `task 3 got`.
        count: How many there are.
        found: How many rows are in which place; each of the rows belongs into one of these.

    Raises:
        RowCountError: The sums differ.
    """
    total = sum(found.values())
    if total == count:
        return
    places = ", ".join(f"{rows:,} {place}" for place, rows in found.items())
    difference = f"{count - total:,} would be lost" if total < count else f"{total - count:,} are too many"
    raise RowCountError(
        f"Cannot {action}, nothing was committed: {source} {count:,} rows, and {total:,} are accounted for ({places}), "
        f"so that {difference}. Your rows are not at fault: this is a defect of iceberg_ds or of a library below it. "
        "Please report it with these numbers, and write with another version until it is mended."
    )
