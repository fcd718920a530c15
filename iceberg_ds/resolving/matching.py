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

from iceberg_ds.changes.digests import HIGH, LOW, Digests
from iceberg_ds.resolving.key_sets import Hits, KeySet, Lanes, read_key_sets
from iceberg_ds.resolving.keyed_rows import KeyedRowReader
from iceberg_ds.resolving.sequences import Incoming, SequenceRule
from iceberg_ds.resolving.values import FileWork, KeyFile

# Arrow bytes of digests that are looked up at once.
LOOKUP_BYTES = 64 * 1024 * 1024
_IS_NEWER = "is_newer"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerRows:
    """Rows of a data file that win over the incoming rows of their keys.

    Attributes:
        positions: Where they are.
        keys: The digests of their keys, as tasks report them.
    """

    positions: pa.Array
    keys: Digests

    def but(self, positions: pa.Array) -> NewerRows | None:
        """Return those at other positions, None if there are none."""
        is_left = pc.invert(pc.is_in(self.positions, value_set=positions))
        if not is_left.true_count:
            return None
        keys = Digests(self.keys.high.filter(is_left), self.keys.low.filter(is_left))
        return NewerRows(positions=self.positions.filter(is_left), keys=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Rows of a data file with one of its keys.

    Attributes:
        positions: Those that give way, ascending.
        newer: The others, None if there are none.
    """

    positions: pa.Array
    newer: NewerRows | None = None


class Matcher:
    """The rows with certain keys in data files of one partition.

    Args:
        io: Opens the table's storage.
        types: The types of all key columns, by field id.
        rule: How rows are held against those that the keys are of, None if all give way.

    Attributes:
        read_bytes: Compressed bytes of the columns that were read so far.
    """

    def __init__(self, io: FileIO, types: Mapping[int, IcebergType], rule: SequenceRule | None = None) -> None:
        self.read_bytes = 0
        self._io = io
        self._types = types
        self._rule = rule

    def find(self, work: Sequence[FileWork]) -> dict[str, Matches]:
        """Return the rows that have one of their file's keys; files without any are left out.

        Args:
            work: Data files of one partition, so that what is meant for one is meant for all that are as old.
        """
        found: dict[str, list[Matches]] = defaultdict(list)
        for field_ids, keys in _by_columns(work).items():
            types = {number: self._types[number] for number in field_ids}
            files = [item for item in work if any(key.field_ids == field_ids for key in item.keys)]
            reader = KeyedRowReader(self._io, types, self._rule)
            for key_set in read_key_sets(reader, keys):
                _look_up(key_set, files, reader, found)
            self.read_bytes += reader.read_bytes
        return {path: _together(parts) for path, parts in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """Rows of a file that are to be looked up: the position of the first one, their digests and their sequences."""

    work: FileWork
    first: int
    lanes: Lanes
    sequence: Sequence[pa.Array]

    @property
    def nbytes(self) -> int:
        return self.lanes.nbytes + sum(int(column.nbytes) for column in self.sequence)


def _by_columns(work: Sequence[FileWork]) -> dict[tuple[int, ...], list[KeyFile]]:
    """Return all files of keys once, by the columns that they delete by."""
    found: dict[tuple[int, ...], dict[str, KeyFile]] = defaultdict(dict)
    for keys in {id(item.keys): item.keys for item in work}.values():  # many share theirs
        for key in keys:
            found[key.field_ids][key.path] = key
    return {field_ids: list(by_path.values()) for field_ids, by_path in found.items()}


def _look_up(keys: KeySet, files: Sequence[FileWork], reader: KeyedRowReader, found: dict[str, list[Matches]]) -> None:
    waiting: list[_Waiting] = []
    size = 0
    for item in files:
        for rows in reader.read(item.path, item.partition_values):
            waiting.append(_Waiting(work=item, first=rows.first, lanes=keys.lanes(rows.keys), sequence=rows.sequence))
            size += waiting[-1].nbytes
            if size >= LOOKUP_BYTES:
                _take(keys, waiting, found)
                waiting, size = [], 0
    if waiting:
        _take(keys, waiting, found)


def _take(keys: KeySet, waiting: Sequence[_Waiting], found: dict[str, list[Matches]]) -> None:
    lanes = Lanes(
        high=pa.concat_arrays([rows.lanes.high for rows in waiting]),
        low=pa.concat_arrays([rows.lanes.low for rows in waiting]),
    )
    numbers = [pa.repeat(pa.scalar(rows.work.sequence_number, pa.int64()), len(rows.lanes.high)) for rows in waiting]
    hits = keys.find(lanes, pa.concat_arrays(numbers))
    newer = None if keys.incoming is None else _newer(keys.incoming, hits, waiting)
    start = begin = 0
    for rows in waiting:
        end = start + len(rows.lanes.high)
        until = bisect_left(range(len(hits.places)), end, lo=begin, key=lambda place: hits.places[place].as_py())
        if until > begin:
            here = hits.places.slice(begin, until - begin)
            positions = pc.add(here, pa.scalar(rows.first - start, pa.int64()))
            told = None if newer is None else newer.slice(begin, until - begin)
            found[rows.work.path].append(_told_apart(positions, told))
        start, begin = end, until


def _newer(incoming: Incoming, hits: Hits, waiting: Sequence[_Waiting]) -> pa.Table:
    """Return of each hit whether it wins over the incoming row of its key, and the key's digest."""
    stored = [pa.concat_arrays(parts) for parts in zip(*(rows.sequence for rows in waiting), strict=True)]
    is_newer = incoming.lose(hits.incoming, [column.take(hits.places) for column in stored])
    keys = incoming.digests
    return pa.table({_IS_NEWER: is_newer, HIGH: keys.high.take(hits.incoming), LOW: keys.low.take(hits.incoming)})


def _told_apart(positions: pa.Array, newer: pa.Table | None) -> Matches:
    if newer is None:
        return Matches(positions=positions)
    is_newer, high, low = (newer.column(name).combine_chunks() for name in (_IS_NEWER, HIGH, LOW))
    keys = Digests(high.filter(is_newer), low.filter(is_newer))
    return Matches(
        positions=positions.filter(pc.invert(is_newer)),
        newer=NewerRows(positions=positions.filter(is_newer), keys=keys),
    )


def _together(parts: Sequence[Matches]) -> Matches:
    """Return what several sets of keys come to; rows that give way to any incoming row of their key give way."""
    positions = pc.unique(pa.concat_arrays([part.positions for part in parts])).sort()
    newer = [part.newer for part in parts if part.newer is not None]
    if not newer:
        return Matches(positions=positions)
    keys = Digests(
        high=pa.concat_arrays([part.keys.high for part in newer]),
        low=pa.concat_arrays([part.keys.low for part in newer]),
    )
    both = NewerRows(positions=pa.concat_arrays([part.positions for part in newer]), keys=keys)
    return Matches(positions=positions, newer=both.but(positions))
