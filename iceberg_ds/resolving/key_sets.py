"""Keys to look for, in memory: for each one the highest sequence number below which it hides rows.

Rows are looked up by digests, with a seed of the moment, and have a key if their columns are equal to it, as everywhere
(`changes.digests`). A null is a key like any other. Keys that are too many for the memory come in several sets, one
after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.changes.digests import digest_keys
from iceberg_ds.changes.equality import same_rows
from iceberg_ds.resolving.keyed_rows import KeyedRowReader, KeyedRows
from iceberg_ds.resolving.sequences import Incoming, ascending
from iceberg_ds.resolving.values import KeyFile

# Arrow bytes of keys, as they are in files, of one set; and how many they are at most.
SET_BYTES = 96 * 1024 * 1024
SET_ROWS = 4_000_000
_SEED_BYTES = 8
_NUMBER, _ROW = "number", "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Rows that have one of the keys.

    Attributes:
        places: Where they are among the rows that were looked up, ascending.
        incoming: The number of the incoming row that each is held against, the last one of its key.
    """

    places: pa.Array
    incoming: pa.Array


class KeySet:
    """Some keys of the same columns.

    Args:
        columns: Their canonical values, column by column.
        numbers: Of each key, the sequence number below which it hides rows.
        incoming: The rows that they are of, if rows are held against them; None if all rows with a key give way.
    """

    def __init__(self, columns: Sequence[pa.Array], numbers: pa.Array, incoming: Incoming | None = None) -> None:
        self.incoming = incoming
        self._has_null = [bool(column.null_count) for column in columns]
        self._seed = os.urandom(_SEED_BYTES)
        self._columns, self._numbers, self._last_rows = columns, numbers, _ascending(len(numbers))
        digests = self.digests(columns)
        if len(pc.unique(digests)) < len(digests):  # else no key comes twice
            self._columns, self._numbers, self._last_rows = _each_once(columns, numbers)
            digests = self.digests(self._columns)
        self._by_digest = _told_apart(digests)

    def __len__(self) -> int:
        return len(self._numbers)

    def digests(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the digests of rows of these canonical columns, null where the row cannot have any of the keys."""
        wanted, missing = [], None
        for column, has_null in zip(columns, self._has_null, strict=True):
            if column.null_count or has_null:
                is_null = column.is_null()
                column = pc.fill_null(column, _anything(column.type))  # noqa: PLW2901  # the same without nulls
                if has_null:
                    wanted.append(is_null)
                else:
                    missing = is_null if missing is None else pc.or_(missing, is_null)
            wanted.append(column)
        digests = digest_keys(wanted, self._seed)
        return digests if missing is None else pc.if_else(missing, pa.scalar(None, pa.uint64()), digests)

    def find(self, digests: pa.Array, columns: Sequence[pa.Array | pa.ChunkedArray], numbers: pa.Array) -> Hits:
        """Return which rows have one of the keys.

        Args:
            digests: Those of the rows.
            columns: The canonical columns of the rows.
            numbers: The sequence numbers of these rows' files.
        """
        hits = [self._among(some, digests, columns, numbers) for some in self._by_digest]
        places, keys = (pa.concat_arrays([hit[part] for hit in hits]) for part in (0, 1))
        if len(hits) > 1:
            order = pc.array_sort_indices(places)
            places, keys = places.take(order), keys.take(order)
        return Hits(places=places, incoming=self._last_rows.take(keys))

    def _among(
        self,
        some: _Digested,
        digests: pa.Array,
        columns: Sequence[pa.Array | pa.ChunkedArray],
        numbers: pa.Array,
    ) -> tuple[pa.Array, pa.Array]:
        """Return which rows have one of some keys, ascending, and which key each has."""
        found = pc.index_in(digests, value_set=some.digests, skip_nulls=True)
        places = pc.indices_nonzero(found.is_valid()).cast(pa.int64())
        keys = some.keys.take(found.take(places))
        is_meant = pc.greater(self._numbers.take(keys), numbers.take(places))
        places, keys = places.filter(is_meant), keys.filter(is_meant)
        values = [_taken(column, places) for column in columns]
        is_same = same_rows(values, [column.take(keys) for column in self._columns])
        return places.filter(is_same), keys.filter(is_same)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Digested:
    """Some keys of a set, of which no two have the same digest, by their numbers in the set."""

    digests: pa.Array
    keys: pa.Array


def _each_once(columns: Sequence[pa.Array], numbers: pa.Array) -> tuple[Sequence[pa.Array], pa.Array, pa.Array]:
    """Return each key once, the highest number of each, and the last row that each has among the given ones."""
    names = [str(place) for place in range(len(columns))]
    rows = pa.Table.from_arrays([*columns, numbers, _ascending(len(numbers))], names=[*names, _NUMBER, _ROW])
    keys = rows.group_by(names).aggregate([(_NUMBER, "max"), (_ROW, "max")])
    *values, highest, last = (keys.column(name).combine_chunks() for name in [*names, f"{_NUMBER}_max", f"{_ROW}_max"])
    return values, highest, last


def _told_apart(digests: pa.Array) -> list[_Digested]:
    """Return all keys by their digests: in one part, unless digests meet, which hardly ever happens."""
    parts, left = [], _ascending(len(digests))
    while True:
        first = pc.index_in(digests, value_set=digests)  # the first key that has the digest
        is_first = pc.equal(first.cast(pa.int64()), _ascending(len(digests)))
        parts.append(_Digested(digests=digests.filter(is_first), keys=left.filter(is_first)))
        if is_first.true_count == len(digests):
            return parts
        is_left = pc.invert(is_first)
        digests, left = digests.filter(is_left), left.filter(is_left)


def _ascending(count: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count), start=-1)


def _taken(column: pa.Array | pa.ChunkedArray, places: pa.Array) -> pa.Array:
    taken = column.take(places)
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def read_key_sets(reader: KeyedRowReader, keys: Sequence[KeyFile]) -> Iterator[KeySet]:
    """Yield all keys of files that delete by the columns of `reader`, as many at once as the memory may hold.

    Raises:
        UnsupportedTableError: A file cannot be read.
    """
    waiting: list[KeyedRows] = []
    numbers: list[pa.Array] = []
    size = count = 0
    for key_file in keys:
        for rows in reader.read(key_file.path):
            waiting.append(rows)
            numbers.append(pa.repeat(pa.scalar(key_file.applies_below, pa.int64()), len(rows)))
            size, count = size + rows.nbytes, count + len(rows)
            if size >= SET_BYTES or count >= SET_ROWS:
                yield _key_set(reader, waiting, pa.concat_arrays(numbers))
                waiting, numbers, size, count = [], [], 0, 0
    if count:
        yield _key_set(reader, waiting, pa.concat_arrays(numbers))


def _key_set(reader: KeyedRowReader, waiting: Sequence[KeyedRows], numbers: pa.Array) -> KeySet:
    columns = _joined(rows.keys for rows in waiting)
    if reader.rule is None:
        return KeySet(columns, numbers)
    sequence = _joined(rows.sequence for rows in waiting)
    order = ascending(sequence)
    keys = dict(zip(reader.types, (column.take(order) for column in columns), strict=True))
    incoming = Incoming(sequence=[column.take(order) for column in sequence], keys=reader.rule.told_keys(keys))
    return KeySet(list(keys.values()), numbers.take(order), incoming)


def _joined(parts: Iterable[Sequence[pa.Array]]) -> list[pa.Array]:
    return [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]


def _anything(data_type: pa.DataType) -> pa.Scalar:
    """Return a value to put in place of nulls, which are told from it otherwise."""
    if pa.types.is_boolean(data_type):
        return pa.scalar(value=False)
    return pa.scalar(b"" if pa.types.is_binary(data_type) else 0, data_type)
