"""Manifest entries in the order of their partitions, in little memory: sorted runs on disk, and their merge.

Entries of many small manifests are collected until these have `RUN_BYTES`, sorted, and spilled in chunks; the merge
holds one chunk of each run. Entries of one partition keep the order in which they came, so that they are as old as
their neighbours. Knows only entries and their order, neither tables nor commits.
"""

from __future__ import annotations

import heapq
import math
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestEntry

from iceberg_ds.table.partitioning import PartitionKey
from iceberg_ds.writers.spill import Chunk, SpillFile

# Size of the manifests, as they are stored, whose entries are in memory at once.
RUN_BYTES = 8 * 1024 * 1024
# In how many chunks a run is spilled, so that a merge of so many runs holds about as many entries as one run.
_CHUNKS = 64

# The order of a partition tuple: its values, each behind a number that puts nulls first and NaN last.
PartitionOrder: TypeAlias = tuple[tuple[int, Any], ...]
_Item: TypeAlias = tuple[PartitionOrder, int, int, ManifestEntry]


def partition_order(data_file: DataFile, positions: Sequence[int]) -> PartitionOrder:
    """Return the place of a file's partition among the partitions of its spec.

    Args:
        data_file: The file.
        positions: Positions of the partition fields to order by, the most significant first.
    """
    values = PartitionKey.of(data_file.partition).values
    return tuple(_placed(values[position]) for position in positions)


def _placed(value: object) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedEntry:
    """An entry in its place.

    Attributes:
        source: Number of the manifest that lists it, as `EntrySort.add` got it.
        entry: The entry.
    """

    source: int
    entry: ManifestEntry


class EntrySort:
    """Takes the entries of manifests, and gives them back ordered by partition.

    Args:
        positions: As `partition_order` takes them.
    """

    def __init__(self, positions: Sequence[int]) -> None:
        self._positions = positions
        self._waiting: list[_Item] = []
        self._waiting_bytes = 0
        self._runs: list[list[Chunk]] = []
        self._spill: SpillFile | None = None
        self._count = 0

    @property
    def count(self) -> int:
        """Number of entries so far."""
        return self._count

    def add(
        self, source: int, entries: Iterable[ManifestEntry], size_bytes: int
    ) -> tuple[PartitionOrder, PartitionOrder] | None:
        """Take the entries of a manifest, and return the lowest and the highest place of them, or None if it has none.

        Args:
            source: Number of the manifest, unlike all others.
            entries: Its live entries.
            size_bytes: Size of the manifest as it is stored.

        Raises:
            OSError: The entries could not be kept on disk.
        """
        taken = [
            (partition_order(entry.data_file, self._positions), source, number, entry)
            for number, entry in enumerate(entries)
        ]
        if not taken:
            return None
        if self._waiting and self._waiting_bytes + size_bytes > RUN_BYTES:
            self._spill_run()
        self._waiting += taken
        self._waiting_bytes += size_bytes
        self._count += len(taken)
        orders = [item[0] for item in taken]
        return min(orders), max(orders)

    def sorted(self) -> Iterator[SortedEntry]:
        """Yield all entries in order.

        Raises:
            OSError: The entries could not be kept on disk, or not be read again.
        """
        if self._runs:
            self._spill_run()
            merged: Iterator[_Item] = heapq.merge(*map(self._read, self._runs), key=_place)
        else:
            merged = iter(sorted(self._waiting, key=_place))
        for _, source, _, entry in merged:
            yield SortedEntry(source=source, entry=entry)

    def close(self) -> None:
        """Forget all entries, in memory and on disk."""
        self._waiting, self._runs = [], []
        if self._spill is not None:
            self._spill.close()

    def _spill_run(self) -> None:
        self._spill = self._spill or SpillFile("being clustered by partition")
        items = sorted(self._waiting, key=_place)
        self._waiting, self._waiting_bytes = [], 0
        length = math.ceil(len(items) / _CHUNKS)
        self._runs.append(
            [self._spill.write(_packed(items[start : start + length])) for start in range(0, len(items), length)]
        )

    def _read(self, run: Sequence[Chunk]) -> Iterator[_Item]:
        if self._spill is not None:
            for chunk in run:
                yield from pickle.loads(self._spill.read(chunk).column(0)[0].as_py())  # noqa: S301  # what we wrote


def _place(item: _Item) -> tuple[PartitionOrder, int, int]:
    return item[:3]


def _packed(items: Sequence[_Item]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(items)], pa.large_binary())], ["entries"])
