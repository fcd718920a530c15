"""Keys to look for, in memory: for each one its digest and the highest sequence number below which it hides rows.

Keys are told apart by digests of 128 bits, as everywhere (`changes.digests`), with a seed of the moment. A null is a
key like any other. Keys that are too many for the memory come in several sets, one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.types import IcebergType

from iceberg_ds.changes.digests import digest_keys
from iceberg_ds.resolving.columns import ColumnReader
from iceberg_ds.resolving.sequences import Incoming, SequenceRule, ascending
from iceberg_ds.resolving.values import KeyFile

# Arrow bytes of keys, as they are in files, of one set; and how many they are at most.
SET_BYTES = 96 * 1024 * 1024
SET_ROWS = 4_000_000
_SEED_BYTES = 16
_HIGH, _LOW, _NUMBER, _ROW = "high", "low", "number", "row"


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
        while len(pc.unique(keys[_HIGH])) < keys.num_rows:  # by chance; another seed tells them apart
            keys = self._told_apart(columns, numbers)
        self._high, self._low = (keys[name].combine_chunks() for name in (_HIGH, _LOW))
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
        rows = pa.table({_HIGH: lanes.high, _LOW: lanes.low, _NUMBER: numbers})
        if self.incoming is None:
            return rows.group_by([_HIGH, _LOW]).aggregate([(_NUMBER, "max")])
        order = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(numbers)), start=-1)
        return rows.append_column(_ROW, order).group_by([_HIGH, _LOW]).aggregate([(_NUMBER, "max"), (_ROW, "max")])


class KeyReader:
    """The keys of files that delete by the same columns.

    Args:
        io: Opens the table's storage.
        keys: The files.
        types: The types of the key columns, by field id, in the order in which rows are to be looked at.
        rule: How rows are held against those of the keys, None if all give way.

    Attributes:
        read_bytes: Compressed bytes of the columns that were read so far.
    """

    def __init__(
        self, io: FileIO, keys: Sequence[KeyFile], types: Mapping[int, IcebergType], rule: SequenceRule | None = None
    ) -> None:
        self.read_bytes = 0
        self._io = io
        self._keys = keys
        self._types = types
        self._rule = rule

    def sets(self) -> Iterator[KeySet]:
        """Yield all keys, as many at once as the memory may hold.

        Raises:
            UnsupportedTableError: A file cannot be read.
        """
        wanted = self._types if self._rule is None else {**self._types, **self._rule.types}
        waiting: list[list[pa.Array]] = []
        numbers: list[pa.Array] = []
        size = rows = 0
        for key_file in self._keys:
            reader = ColumnReader(self._io, key_file.path, wanted)
            for batch in reader.batches():
                count = len(batch.columns[0])
                waiting.append(batch.columns)
                numbers.append(pa.repeat(pa.scalar(key_file.applies_below, pa.int64()), count))
                size, rows = size + sum(column.nbytes for column in batch.columns), rows + count
                if size >= SET_BYTES or rows >= SET_ROWS:
                    yield self._joined(waiting, numbers)
                    waiting, numbers, size, rows = [], [], 0, 0
            self.read_bytes += reader.read_bytes
        if rows:
            yield self._joined(waiting, numbers)

    def _joined(self, waiting: list[list[pa.Array]], numbers: list[pa.Array]) -> KeySet:
        columns = [pa.concat_arrays(parts) for parts in zip(*waiting, strict=True)]
        if self._rule is None:
            return KeySet(columns, pa.concat_arrays(numbers))
        sequence = self._rule.comparable(columns[-len(self._rule.types) :])
        order = ascending(sequence)
        keys = dict(zip(self._types, (column.take(order) for column in columns), strict=False))
        incoming = Incoming(sequence=[column.take(order) for column in sequence], digests=self._rule.digests(keys))
        return KeySet(list(keys.values()), pa.concat_arrays(numbers).take(order), incoming)


def _anything(data_type: pa.DataType) -> pa.Scalar:
    """Return a value to put in place of nulls, which are told from it otherwise."""
    if pa.types.is_boolean(data_type):
        return pa.scalar(value=False)
    return pa.scalar(b"" if pa.types.is_binary(data_type) else 0, data_type)
