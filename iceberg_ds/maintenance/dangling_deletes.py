"""Pure: which delete files apply to no live data file, so that a commit that rewrites files can drop them.

A delete file dangles if no data file that it may apply to is old enough. Equality deletes apply to data files with
lower data sequence numbers in their partition, or in the whole table if their spec has no partitions; position deletes
apply to data files with data sequence numbers up to their own in their partition, or to the one data file that they
name. Iceberg's Java library drops the same files (`RemoveDanglingDeletesSparkAction`), but takes equality deletes of
the whole table for those of a partition, and does not look at the paths that position deletes name.

The answer holds for the branch as it was read, so a commit asks anew at each attempt, from the manifests that this
attempt replaces. The condition on the branch that guards all commits makes the look and the commit one. Whatever lands
later finds nothing missing: rows that are new have higher sequence numbers than all deletes that stand, and rows with
an explicit older number, of a compaction or a copy-on-write, come from data files that are live until that commit
lands, with numbers no higher than theirs; a delete that applies to the new file applies to the old one too, and does
not dangle. Only a rewrite into another partition spec could meet a delete of that spec which never applied to its rows,
and which must not hide them. Source: Iceberg spec, "Scan Planning".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionSpec

from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles, is_global, only_path, path_bounds


def dangling_deletes(
    live: LiveFiles,
    specs: Mapping[int, PartitionSpec],
    *,
    gone: AbstractSet[str] = frozenset(),
    added: Iterable[LiveFile] = (),
) -> list[LiveFile]:
    """Return the delete files of a snapshot that apply to no data file, once a commit has dropped and added files.

    Args:
        live: The files of the snapshot that the commit builds on.
        specs: The table's partition specs, by spec id.
        gone: Paths of the files that the commit drops; delete files among them are not returned.
        added: The data files that the commit adds, with the data sequence numbers that they get.

    Returns:
        The entries of these delete files, in the order of `live`. A file that is listed more than once is returned
        only if it dangles by each of its entries, so that it can be dropped by its path.
    """
    data = _DataFiles()
    for found in (*(found for found in live.data if found.path not in gone), *added):
        data.add(found)
    deletes = [found for found in (*live.positions, *live.equalities) if found.path not in gone]
    needed = {found.path for found in deletes if data.may_need(found, specs)}
    return [found for found in deletes if found.path not in needed]


def dangling_vectors(live: LiveFiles) -> set[str]:
    """Return the names of the deletion vectors whose data file is not in the snapshot."""
    paths = {found.path for found in live.data}
    return {vector.name for path, vector in live.vectors.items() if path not in paths}


@dataclass(slots=True)
class _DataFiles:
    """Data files, by what deletes apply to.

    Attributes:
        lowest: The lowest data sequence number of all; None if there are no data files.
        lowest_at: The lowest data sequence number in each partition.
        lowest_of: The lowest data sequence number of each path: a file may be listed more than once.
        paths_at: The paths in each partition, as bytes.
    """

    lowest: int | None = None
    lowest_at: dict[tuple[int, str], int] = field(default_factory=dict)
    lowest_of: dict[bytes, int] = field(default_factory=dict)
    paths_at: dict[tuple[int, str], list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def add(self, found: LiveFile) -> None:
        number, place, path = found.sequence_number, found.place, found.path.encode()
        self.lowest = number if self.lowest is None else min(self.lowest, number)
        self.lowest_at[place] = min(number, self.lowest_at.get(place, number))
        self.lowest_of[path] = min(number, self.lowest_of.get(path, number))
        self.paths_at[place].append(path)

    def may_need(self, deletes: LiveFile, specs: Mapping[int, PartitionSpec]) -> bool:
        """Return whether a reader may apply the delete file to one of the data files."""
        number = deletes.sequence_number
        if deletes.data_file.content == DataFileContent.EQUALITY_DELETES:
            everywhere = is_global(specs[deletes.data_file.spec_id])
            lowest = self.lowest if everywhere else self.lowest_at.get(deletes.place)
            return lowest is not None and lowest < number
        if (path := only_path(deletes.data_file)) is not None:  # applied to its data file in any partition
            return self._is_older(path.encode(), number)
        low, high = path_bounds(deletes.data_file)
        lowest = self.lowest_at.get(deletes.place)
        if lowest is None or lowest > number:
            return False
        return any(self._is_older(path, number) for path in self._paths_between(deletes.place, low, high))

    def _is_older(self, path: bytes, number: int) -> bool:
        lowest = self.lowest_of.get(path)
        return lowest is not None and lowest <= number

    def _paths_between(self, place: tuple[int, str], low: bytes | None, high: bytes | None) -> Iterable[bytes]:
        paths = self.paths_at[place]
        paths.sort()  # costs one pass once it is in order
        first = 0 if low is None else bisect_left(paths, low)
        last = len(paths) if high is None else bisect_right(paths, high)
        return (paths[number] for number in range(first, last))
