"""Finds the positions of rows that have certain keys in several data files at once.

Rows of many small files are looked for together, because what costs most is to make the keys ready to be looked up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.types import IcebergType

from iceberg_ds.resolving.columns import ColumnReader
from iceberg_ds.resolving.key_sets import KeyReader, KeySet, Lanes
from iceberg_ds.resolving.values import FileWork, KeyFile

# Arrow bytes of digests that are looked up at once.
LOOKUP_BYTES = 64 * 1024 * 1024


class Matcher:
    """The rows with certain keys in data files of one partition.

    Args:
        io: Opens the table's storage.
        types: The types of all key columns, by field id.

    Attributes:
        read_bytes: Compressed bytes of the columns that were read so far.
    """

    def __init__(self, io: FileIO, types: Mapping[int, IcebergType]) -> None:
        self.read_bytes = 0
        self._io = io
        self._types = types

    def find(self, work: Sequence[FileWork]) -> dict[str, pa.Array]:
        """Return the positions, ascending, of rows that have one of their file's keys; files without any are left out.

        Args:
            work: Data files of one partition, so that what is meant for one is meant for all that are as old.
        """
        found: dict[str, list[pa.Array]] = defaultdict(list)
        for field_ids, keys in _by_columns(work).items():
            types = {number: self._types[number] for number in field_ids}
            files = [item for item in work if any(key.field_ids == field_ids for key in item.keys)]
            reader = KeyReader(self._io, keys, types)
            for key_set in reader.sets():
                self._look_up(key_set, files, types, found)
            self.read_bytes += reader.read_bytes
        return {path: pc.unique(pa.concat_arrays(parts)).sort() for path, parts in found.items()}

    def _look_up(
        self,
        keys: KeySet,
        files: Sequence[FileWork],
        types: Mapping[int, IcebergType],
        found: dict[str, list[pa.Array]],
    ) -> None:
        waiting: list[_Waiting] = []
        size = 0
        for item in files:
            reader = ColumnReader(self._io, item.path, types)
            for batch in reader.batches():
                waiting.append(_Waiting(work=item, first=batch.first, lanes=keys.lanes(batch.columns)))
                size += waiting[-1].lanes.nbytes
                if size >= LOOKUP_BYTES:
                    _take(keys, waiting, found)
                    waiting, size = [], 0
            self.read_bytes += reader.read_bytes
        if waiting:
            _take(keys, waiting, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """Rows of a file that are to be looked up: the position of the first one, and their digests."""

    work: FileWork
    first: int
    lanes: Lanes


def _by_columns(work: Sequence[FileWork]) -> dict[tuple[int, ...], list[KeyFile]]:
    """Return all files of keys once, by the columns that they delete by."""
    found: dict[tuple[int, ...], dict[str, KeyFile]] = defaultdict(dict)
    for keys in {id(item.keys): item.keys for item in work}.values():  # many share theirs
        for key in keys:
            found[key.field_ids][key.path] = key
    return {field_ids: list(by_path.values()) for field_ids, by_path in found.items()}


def _take(keys: KeySet, waiting: Sequence[_Waiting], found: dict[str, list[pa.Array]]) -> None:
    lanes = Lanes(
        high=pa.concat_arrays([rows.lanes.high for rows in waiting]),
        low=pa.concat_arrays([rows.lanes.low for rows in waiting]),
    )
    numbers = [pa.repeat(pa.scalar(rows.work.sequence_number, pa.int64()), len(rows.lanes.high)) for rows in waiting]
    places = keys.find(lanes, pa.concat_arrays(numbers))
    start = begin = 0
    for rows in waiting:
        end = start + len(rows.lanes.high)
        until = bisect_left(range(len(places)), end, lo=begin, key=lambda place: places[place].as_py())
        if until > begin:
            here = places.slice(begin, until - begin)
            found[rows.work.path].append(pc.add(here, pa.scalar(rows.first - start, pa.int64())))
        start, begin = end, until
