"""Keys to look for, in memory: for each one its digest and the highest sequence number below which it hides rows.

Keys are told apart by digests of 128 bits, as everywhere (`changes.digests`), with a seed of the moment. A null is a
key like any other. Keys that are too many for the memory come in several sets, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.changes.digests import HIGH, LOW, digest_keys
from iceberg_ds.resolving.keyed_rows import KeyedRowReader, KeyedRows
from iceberg_ds.resolving.sequences import Incoming, ascending
from iceberg_ds.resolving.values import KeyFile

# Arrow bytes of keys, as they are in files, of one set; and how many they are at most.
SET_BYTES = 96 * 1024 * 1024
SET_ROWS = 4_000_000
_SEED_BYTES = 16
_NUMBER, _ROW = "number", "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """The digests of rows, null where the row cannot have any of the keys."""

    high: pa.Array
    low: pa.Array

    @property
    def nbytes(self) -> int:
        """Arrow bytes of both."""
        return int(self.high.nbytes + self.low.nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Rows that have one of the keys.

    Attributes:
        places: Where they are among the rows that were looked up, ascending.
        incoming: The number of the incoming row that each is held against, the last one of its key; None if rows are
            not held against any.
    """

    places: pa.Array
    incoming: pa.Array | None = None


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
        self._seed = b""
        keys = self._told_apart(columns, numbers)
        while len(pc.unique(keys[HIGH])) < keys.num_rows:  # by chance; another seed tells them apart
            keys = self._told_apart(columns, numbers)
        self._high, self._low = (keys[name].combine_chunks() for name in (HIGH, LOW))
        self._numbers = keys[f"{_NUMBER}_max"].combine_chunks()
        self._last_rows = None if incoming is None else keys[f"{_ROW}_max"].combine_chunks()

    def __len__(self) -> int:
        return len(self._high)

    def lanes(self, columns: Sequence[pa.Array]) -> Lanes:
        """Return the digests of rows of these canonical columns."""
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
        high = digests.high if missing is None else pc.if_else(missing, pa.scalar(None, pa.uint64()), digests.high)
        return Lanes(high=high, low=digests.low)

    def find(self, lanes: Lanes, numbers: pa.Array) -> Hits:
        """Return which rows have one of the keys.

        Args:
            lanes: Digests of rows.
            numbers: The sequence numbers of these rows' files.
        """
        found = pc.index_in(lanes.high, value_set=self._high, skip_nulls=True)
        places = pc.indices_nonzero(found.is_valid())
        keys = found.take(places)
        is_same = pc.equal(lanes.low.take(places), self._low.take(keys))
        is_meant = pc.greater(self._numbers.take(keys), numbers.take(places))
        is_hit = pc.and_(is_same, is_meant)
        rows = None if self._last_rows is None else self._last_rows.take(keys.filter(is_hit))
        return Hits(places=places.filter(is_hit).cast(pa.int64()), incoming=rows)

    def _told_apart(self, columns: Sequence[pa.Array], numbers: pa.Array) -> pa.Table:
        self._seed = os.urandom(_SEED_BYTES)
        lanes = self.lanes(columns)
        rows = pa.table({HIGH: lanes.high, LOW: lanes.low, _NUMBER: numbers})
        if self.incoming is None:
            return rows.group_by([HIGH, LOW]).aggregate([(_NUMBER, "max")])
        order = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(numbers)), start=-1)
        return rows.append_column(_ROW, order).group_by([HIGH, LOW]).aggregate([(_NUMBER, "max"), (_ROW, "max")])


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
    incoming = Incoming(sequence=[column.take(order) for column in sequence], digests=reader.rule.digests(keys))
    return KeySet(list(keys.values()), numbers.take(order), incoming)


def _joined(parts: Iterable[Sequence[pa.Array]]) -> list[pa.Array]:
    return [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]


def _anything(data_type: pa.DataType) -> pa.Scalar:
    """Return a value to put in place of nulls, which are told from it otherwise."""
    if pa.types.is_boolean(data_type):
        return pa.scalar(value=False)
    return pa.scalar(b"" if pa.types.is_binary(data_type) else 0, data_type)
