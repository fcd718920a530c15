"""Pure: where rows of rewritten data files are in the new files: by their order where it stayed, else by their values.

Rows with equal values in all columns, their ids among these, are the same to every reader, so it does not matter which
of several is found. Two rows count as equal if two digests of 64 bits are, by seeds that cannot be known before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile

from iceberg_ds.cdc.row_digest import digest_rows, random_seeds
from iceberg_ds.deletes.work import FileWork
from iceberg_ds.table.arrow_schema import one_batch

# The most rows that are looked for by their values: each takes some 300 bytes.
MOST_BY_VALUE = 2_000_000
_FEWEST_ROWS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows:
    """Rows of a rewritten file that were deleted since.

    Attributes:
        item: The file, as it was rewritten.
        first: How many rows of the files before it were kept.
        left_out: The positions of the rows that were left out, ascending.
        positions: The positions of the rows that were deleted since, ascending.
    """

    item: FileWork
    first: int
    left_out: pa.Array
    positions: pa.Array


def places_in_order(files: Sequence[DataFile], late: Iterable[LateRows]) -> dict[int, list[int]]:
    """Return the positions of rows in new files, by the number of the file, where rows stayed in their order.

    Args:
        files: The new files.
        late: The rows.
    """
    ends = list(accumulate(file.record_count for file in files))
    found: dict[int, list[int]] = {}
    for rows in late:
        for position in rows.positions.to_pylist():
            gone = bisect_left(rows.left_out, position, key=lambda value: value.as_py())
            row = rows.first + position - gone
            place = bisect_right(ends, row)
            found.setdefault(place, []).append(row - (ends[place - 1] if place else 0))
    return found


def places_by_value(
    deleted: Iterable[pa.RecordBatch], files: Iterable[Iterable[pa.RecordBatch]]
) -> dict[int, list[int]]:
    """Return the positions of rows in new files, by the number of the file, wherever they went.

    Args:
        deleted: The rows, with all their columns.
        files: The rows of each new file, with the same columns.

    Raises:
        LookupError: A row is in none of the files.
    """
    seeds = random_seeds()
    wanted = Counter(digest for batch in deleted for digest in _digests(batch, seeds))
    left, firsts = wanted.total(), pa.array({first for first, _ in wanted}, pa.uint64())
    found: dict[int, list[int]] = {}
    for number, begin, rows in _portions(files, max(len(firsts), _FEWEST_ROWS)):
        if not left:
            break
        # Few rows are wanted, so that one digest passes over nearly all others.
        maybe = pc.indices_nonzero(pc.is_in(digest_rows(rows, seeds[0]), firsts))
        for place, digest in zip(maybe.to_pylist(), _digests(rows.take(maybe), seeds), strict=True):
            if wanted[digest] > 0:
                wanted[digest] -= 1
                left -= 1
                found.setdefault(number, []).append(begin + place)
    if left:
        raise LookupError(f"{left} rows that were deleted meanwhile are not in the new files")
    return found


def _portions(files: Iterable[Iterable[pa.RecordBatch]], rows: int) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield the rows of each file in batches of so many or more, with the numbers of the file and of the first row.

    For each batch all wanted digests are hashed anew.
    """
    for number, batches in enumerate(files):
        begin, waiting = 0, list[pa.RecordBatch]()
        for batch in batches:
            waiting.append(batch)
            if (count := sum(one.num_rows for one in waiting)) >= rows:
                yield number, begin, _together(waiting)
                begin, waiting = begin + count, []
        if waiting:
            yield number, begin, _together(waiting)


def _digests(rows: pa.RecordBatch, seeds: tuple[int, int]) -> list[tuple[int, int]]:
    first, second = (digest_rows(rows, seed).to_pylist() for seed in seeds)
    return list(zip(first, second, strict=True))


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else one_batch(batches)
