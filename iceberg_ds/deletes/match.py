"""Finds the positions of rows that have certain keys, in several data files at once.

The keys to look for are in memory, each with the highest sequence number below which it hides rows. Rows are looked up
by digests with a random seed, and match a key if their columns equal it, as everywhere (`cdc.keys`). A null is a key
value like any other. Keys that do not fit into memory are read in several sets, one after the other. Rows of many small
files are looked up together, because preparing the keys for the lookup costs most.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import IcebergType

from iceberg_ds.cdc.dedup import key_names
from iceberg_ds.cdc.keys import digest_keys, numbers_from, same_rows
from iceberg_ds.deletes.key_reader import Incoming, KeyedRowReader, KeyedRows, SequenceRule, ascending
from iceberg_ds.deletes.work import PORTION_ROWS, FileWork, KeyFile

# Largest size of one set of keys: in Arrow bytes as in the files, and in keys.
SET_BYTES = 96 * 1024 * 1024
SET_ROWS = 4_000_000
_SEED_BYTES = 8
_NUMBER, _ROW = "number", "row"
POSITION, ID = "position", "row_id"
# Arrow bytes of rows (keys, sequences and digests) that are looked up at once.
LOOKUP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Rows that have one of the keys.

    Attributes:
        places: Indexes of these rows among the rows that were looked up, ascending.
        incoming: For each row, the number of the incoming row that it is compared with, the last one of its key.
    """

    places: pa.Array
    incoming: pa.Array


class KeySet:
    """Some keys of the same columns.

    Args:
        columns: Canonical values of the keys, column by column.
        numbers: For each key, the sequence number below which it hides rows.
        incoming: The rows that the keys are of, if sequences are compared; None if all rows with a key are replaced.

    Attributes:
        columns: Canonical values of the keys, column by column; each key once.
    """

    def __init__(self, columns: Sequence[pa.Array], numbers: pa.Array, incoming: Incoming | None = None) -> None:
        self.incoming = incoming
        self._has_null = [bool(column.null_count) for column in columns]
        self._seed = os.urandom(_SEED_BYTES)
        self.columns, self._numbers, self._last_rows = columns, numbers, numbers_from(0, len(numbers))
        digests = self.digests(columns)
        if len(pc.unique(digests)) < len(digests):  # else no key is there twice
            self.columns, self._numbers, self._last_rows = _each_once(columns, numbers)
            digests = self.digests(self.columns)
        self._by_digest = _split_by_digest(digests)

    def __len__(self) -> int:
        return len(self._numbers)

    def digests(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the digest of each row of these canonical columns, or null where the row cannot have any key."""
        wanted, missing = [], None
        for column, has_null in zip(columns, self._has_null, strict=True):
            if column.null_count or has_null:
                is_null = column.is_null()
                column = pc.fill_null(column, anything(column.type))  # noqa: PLW2901  # the same without nulls
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
            digests: The digests of the rows.
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
        """Return the indexes of rows with one of these keys, ascending, and the number of the key that each row has."""
        found = pc.index_in(digests, value_set=some.digests, skip_nulls=True)
        places = pc.indices_nonzero(found.is_valid()).cast(pa.int64())
        keys = some.keys.take(found.take(places))
        is_meant = pc.greater(self._numbers.take(keys), numbers.take(places))
        places, keys = places.filter(is_meant), keys.filter(is_meant)
        values = [_taken(column, places) for column in columns]
        is_same = same_rows(values, [column.take(keys) for column in self.columns])
        return places.filter(is_same), keys.filter(is_same)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Digested:
    """Some keys of a set, by number in the set; no two of them have the same digest."""

    digests: pa.Array
    keys: pa.Array


def _each_once(columns: Sequence[pa.Array], numbers: pa.Array) -> tuple[Sequence[pa.Array], pa.Array, pa.Array]:
    """Return each key once, its highest sequence number, and the index of its last row among the given rows."""
    names = [str(place) for place in range(len(columns))]
    rows = pa.Table.from_arrays([*columns, numbers, numbers_from(0, len(numbers))], names=[*names, _NUMBER, _ROW])
    keys = rows.group_by(names).aggregate([(_NUMBER, "max"), (_ROW, "max")])
    *values, highest, last = (keys.column(name).combine_chunks() for name in [*names, f"{_NUMBER}_max", f"{_ROW}_max"])
    return values, highest, last


def _split_by_digest(digests: pa.Array) -> list[_Digested]:
    """Return all keys by digest: in one part, unless two digests collide, which hardly ever happens."""
    parts, left = [], numbers_from(0, len(digests))
    while True:
        first = pc.index_in(digests, value_set=digests)  # the first key that has the digest
        is_first = pc.equal(first.cast(pa.int64()), numbers_from(0, len(digests)))
        parts.append(_Digested(digests=digests.filter(is_first), keys=left.filter(is_first)))
        if is_first.true_count == len(digests):
            return parts
        is_left = pc.invert(is_first)
        digests, left = digests.filter(is_left), left.filter(is_left)


def _taken(column: pa.Array | pa.ChunkedArray, places: pa.Array) -> pa.Array:
    taken = column.take(places)
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def read_key_sets(reader: KeyedRowReader, keys: Sequence[KeyFile]) -> Iterator[KeySet]:
    """Yield all keys of files that delete by the columns of `reader`, as many at once as memory may hold.

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


def anything(data_type: pa.DataType) -> pa.Scalar:
    """Return a canonical value to put in place of nulls, which are told from it in another way."""
    if pa.types.is_boolean(data_type):
        return pa.scalar(value=False)
    return pa.scalar(b"" if pa.types.is_binary(data_type) else 0, data_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerRows:
    """Rows of a data file that win over the incoming rows of their keys.

    Attributes:
        positions: Positions of these rows in the file.
        keys: Keys of these rows, with the digests that tasks report for them.
    """

    positions: pa.Array
    keys: pa.Table

    def but(self, positions: pa.Array) -> NewerRows | None:
        """Return the rows at all other positions, or None if no row is left."""
        is_left = pc.invert(pc.is_in(self.positions, value_set=positions))
        if not is_left.true_count:
            return None
        return NewerRows(positions=self.positions.filter(is_left), keys=self.keys.filter(is_left))


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Rows of a data file that have one of the keys to look for in it.

    Attributes:
        positions: Positions of the rows to replace, ascending.
        newer: The rows that win over the incoming rows, or None if no row wins.
        rows: Of all these rows, and others that match: position, row id (null where a row inherits it) and canonical
            keys, as `matched_rows`; None if that was not asked for.
    """

    positions: pa.Array
    newer: NewerRows | None = None
    rows: pa.Table | None = None


def matched_rows(positions: pa.Array, row_ids: pa.Array, keys: Sequence[pa.Array]) -> pa.Table:
    """Return the columns `POSITION`, `ID` and the keys of rows that match."""
    columns = [positions, row_ids, *keys]
    return pa.Table.from_arrays(columns, names=[POSITION, ID, *key_names(keys)])


class Matcher:
    """Finds the rows with certain keys in data files of one partition.

    Args:
        io: Opens the table's storage.
        types: The types of all key columns, by field id.
        rule: How rows are compared with the incoming rows of the keys; None to replace all rows with a key.
        with_ids: Whether it is told of each row which key and which id it has.

    Attributes:
        read_bytes: Compressed bytes of the columns that were read so far.
        portion_rows: The largest number of rows of data files that are searched together.
    """

    portion_rows = PORTION_ROWS

    def __init__(
        self,
        io: FileIO,
        types: Mapping[int, IcebergType],
        rule: SequenceRule | None = None,
        *,
        with_ids: bool = False,
        mapping: NameMapping | None = None,
    ) -> None:
        self.read_bytes = 0
        self._mapping = mapping
        self._io = io
        self._types = types
        self._rule = rule
        self._with_ids = with_ids

    def find(self, work: Sequence[FileWork]) -> dict[str, Matches]:
        """Return the rows with one of their file's keys, by path of the file; files without such rows are left out.

        Args:
            work: Data files of one partition: a key that applies to one applies to all files of the same age or older.
        """
        found: dict[str, list[Matches]] = defaultdict(list)
        for field_ids, keys in by_columns(work).items():
            types = {number: self._types[number] for number in field_ids}
            files = [item for item in work if any(key.field_ids == field_ids for key in item.keys)]
            reader = KeyedRowReader(self._io, types, self._rule, with_ids=self._with_ids, mapping=self._mapping)
            for key_set in read_key_sets(reader, keys):
                _look_up(key_set, files, reader, found)
            self.read_bytes += reader.read_bytes
        return {path: together(parts) for path, parts in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """Rows of a file that wait to be looked up, and their digests."""

    work: FileWork
    rows: KeyedRows
    digests: pa.Array

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + int(self.digests.nbytes)


def by_columns(work: Sequence[FileWork]) -> dict[tuple[int, ...], list[KeyFile]]:
    """Return each file of keys once, by the field ids of the columns that it deletes by."""
    found: dict[tuple[int, ...], dict[str, KeyFile]] = defaultdict(dict)
    for keys in {id(item.keys): item.keys for item in work}.values():  # many items share one tuple
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
                matches = _older_and_newer(positions, is_newer.slice(begin, count), keys.incoming.keys, incoming)
            if one.rows.row_ids is not None:
                places = pc.subtract(hits.places.slice(begin, count), pa.scalar(start, pa.int64()))
                own = [column.take(places) for column in one.rows.keys]
                matches = replace(matches, rows=matched_rows(positions, one.rows.row_ids.take(places), own))
            found[one.work.path].append(matches)
        start, begin = end, until


def _are_newer(incoming: Incoming, hits: Hits, waiting: Sequence[_Waiting]) -> pa.Array:
    """Return for each hit whether it wins over the incoming row of its key."""
    stored = [pa.concat_arrays(parts) for parts in zip(*(one.rows.sequence for one in waiting), strict=True)]
    return incoming.lose(hits.incoming, [column.take(hits.places) for column in stored])


def _older_and_newer(positions: pa.Array, is_newer: pa.Array, keys: pa.Table, incoming: pa.Array) -> Matches:
    """Return the rows to replace and the newer rows; each newer row gets the key of its incoming row."""
    newer = NewerRows(positions=positions.filter(is_newer), keys=keys.take(incoming.filter(is_newer)))
    return Matches(positions=positions.filter(pc.invert(is_newer)), newer=newer)


def together(parts: Sequence[Matches]) -> Matches:
    """Combine the matches of several sets of keys; a row that loses to any incoming row of its key is replaced."""
    positions = pc.unique(pa.concat_arrays([part.positions for part in parts])).sort()
    newer = [part.newer for part in parts if part.newer is not None]
    told = [part.rows for part in parts if part.rows is not None]
    rows = pa.concat_tables(told) if told else None
    if not newer:
        return Matches(positions=positions, rows=rows)
    keys = pa.concat_tables([part.keys for part in newer])
    both = NewerRows(positions=pa.concat_arrays([part.positions for part in newer]), keys=keys)
    return Matches(positions=positions, newer=both.but(positions), rows=rows)
