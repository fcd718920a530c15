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

from iceberg_ds.resolving.key_sets import Hits, KeySet, read_key_sets
from iceberg_ds.resolving.keyed_rows import KeyedRowReader, KeyedRows
from iceberg_ds.resolving.sequences import Incoming, SequenceRule
from iceberg_ds.resolving.values import FileWork, KeyFile

# Arrow bytes of keys, and of what else is known of their rows, that are looked up at once.
LOOKUP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerRows:
    """Rows of a data file that win over the incoming rows of their keys.

    Attributes:
        positions: Where they are.
        keys: Their keys, with the digests that tasks report of them.
    """

    positions: pa.Array
    keys: pa.Table

    def but(self, positions: pa.Array) -> NewerRows | None:
        """Return those at other positions, None if there are none."""
        is_left = pc.invert(pc.is_in(self.positions, value_set=positions))
        if not is_left.true_count:
            return None
        return NewerRows(positions=self.positions.filter(is_left), keys=self.keys.filter(is_left))


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
    """Rows of a file that are to be looked up, and their digests."""

    work: FileWork
    rows: KeyedRows
    digests: pa.Array

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + int(self.digests.nbytes)


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
            waiting.append(_Waiting(work=item, rows=rows, digests=keys.digests(rows.keys)))
            size += waiting[-1].nbytes
            if size >= LOOKUP_BYTES:
                _take(keys, waiting, found)
                waiting, size = [], 0
    if waiting:
        _take(keys, waiting, found)


def _take(keys: KeySet, waiting: Sequence[_Waiting], found: dict[str, list[Matches]]) -> None:
    columns = [pa.chunked_array(parts) for parts in zip(*(one.rows.keys for one in waiting), strict=True)]
    numbers = [pa.repeat(pa.scalar(one.work.sequence_number, pa.int64()), len(one.rows)) for one in waiting]
    hits = keys.find(pa.concat_arrays([one.digests for one in waiting]), columns, pa.concat_arrays(numbers))
    is_newer = None if keys.incoming is None else _are_newer(keys.incoming, hits, waiting)
    start = begin = 0
    for one in waiting:
        end = start + len(one.rows)
        until = bisect_left(range(len(hits.places)), end, lo=begin, key=lambda place: hits.places[place].as_py())
        if until > begin:
            count = until - begin
            positions = pc.add(hits.places.slice(begin, count), pa.scalar(one.rows.first - start, pa.int64()))
            matches = Matches(positions=positions)
            if keys.incoming is not None and is_newer is not None:
                incoming = hits.incoming.slice(begin, count)
                matches = _told_apart(positions, is_newer.slice(begin, count), keys.incoming.keys, incoming)
            found[one.work.path].append(matches)
        start, begin = end, until


def _are_newer(incoming: Incoming, hits: Hits, waiting: Sequence[_Waiting]) -> pa.Array:
    """Return of each hit whether it wins over the incoming row of its key."""
    stored = [pa.concat_arrays(parts) for parts in zip(*(one.rows.sequence for one in waiting), strict=True)]
    return incoming.lose(hits.incoming, [column.take(hits.places) for column in stored])


def _told_apart(positions: pa.Array, is_newer: pa.Array, keys: pa.Table, incoming: pa.Array) -> Matches:
    """Return the rows that give way apart from the newer ones, each of which is of the key of an incoming row."""
    newer = NewerRows(positions=positions.filter(is_newer), keys=keys.take(incoming.filter(is_newer)))
    return Matches(positions=positions.filter(pc.invert(is_newer)), newer=newer)


def _together(parts: Sequence[Matches]) -> Matches:
    """Return what several sets of keys come to; rows that give way to any incoming row of their key give way."""
    positions = pc.unique(pa.concat_arrays([part.positions for part in parts])).sort()
    newer = [part.newer for part in parts if part.newer is not None]
    if not newer:
        return Matches(positions=positions)
    keys = pa.concat_tables([part.keys for part in newer])
    both = NewerRows(positions=pa.concat_arrays([part.positions for part in newer]), keys=keys)
    return Matches(positions=positions, newer=both.but(positions))
