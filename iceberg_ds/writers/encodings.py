"""Pure: chooses the encoding of each column of a Parquet file by trying encodings on rows of its first row group.

Parquet writers use a dictionary by default, which costs time and space where most values are distinct. A sample is
written in every encoding that the column's type allows, compressed as the file will be, and the smallest wins.
A dictionary grows with the distinct values and not with the rows, so in doubt the distinct values of the whole row
group are counted. Source: Parquet spec, "Encodings".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg_ds.plan import FileSettings
from iceberg_ds.table.metrics_config import Leaf
from iceberg_ds.writers.metrics import leaf_values

# Least rows worth a choice, in one row group or several small ones: trying takes about as long as writing so many.
LEAST_ROWS = 1_000
# Least rows of a row group that say enough about other row groups.
LEAST_GROUP_ROWS = 100
# Row groups are encoded alike if their row counts lie in the same range; a range spans this many powers of two.
_MAGNITUDE_BITS = 3
# Largest sample; a fraction of a row group, which holds 64 MB and more.
_SAMPLE_ROWS = 8_192
_SAMPLE_BYTES = 4 * 1024 * 1024
# Largest share of a smaller row group, as a divisor: it is written three times.
_SAMPLE_SHARE = 4
# An encoding that replaces plain must take less than this share of its bytes, because not all readers know it,
_WORTH_IT = 0.95
# and one that replaces a dictionary less than this share, because readers filter by dictionaries.
_WELL_WORTH_IT = 0.85
# If a larger share of the sample's values is distinct, a dictionary of the row group would be too large.
_MOSTLY_DIFFERENT = 0.95
# Arrow's own limit for a dictionary.
_DICTIONARY_BYTES = 1024 * 1024

# Rows of a row group by which it is told how a column's values are.
_LOOK_ROWS = 512
# By which part of them differ, columns are told apart.
_SHARES = 4
_ASCENDING = 2 + _SHARES + 1

_DICTIONARY, _PLAIN = "RLE_DICTIONARY", "PLAIN"
_INTEGERS, _TEXTS, _FLOATS = "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "BYTE_STREAM_SPLIT"
_OF_PHYSICAL_TYPE = {
    "INT32": _INTEGERS,
    "INT64": _INTEGERS,
    "BYTE_ARRAY": _TEXTS,
    "FLOAT": _FLOATS,
    "DOUBLE": _FLOATS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """How the columns of a file are encoded, by their names in Parquet, such as `tags.list.element`.

    Attributes:
        dictionary: Columns with a dictionary; None for all columns that can have one.
        others: Encodings by column, for columns that are neither in `dictionary` nor plain.
    """

    dictionary: tuple[str, ...] | None = None
    others: Mapping[str, str] = field(default_factory=dict)

    def options(self) -> dict[str, object]:
        """Return the arguments of Arrow's `ParquetWriter` for these encodings."""
        if self.dictionary is None:
            return {}
        return {"use_dictionary": list(self.dictionary), "column_encoding": dict(self.others) or None}

    def of(self, name: str) -> str:
        """Return the encoding of a column, by its name in Parquet."""
        is_in_dictionary = self.dictionary is None or name in self.dictionary
        return _DICTIONARY if is_in_dictionary else self.others.get(name, _PLAIN)


DEFAULT_ENCODINGS = Encodings()


class ChosenEncodings:
    """The encodings of one task attempt's files, in all of its tables.

    A column's encoding is chosen once for all row groups with about the same number of rows in which it is alike: it
    has the same name and type, and some rows say that about as many of its values repeat. So another table, whose
    rows are mostly alike, costs no trial, and one whose rows are not has one of its own. A column without values, or
    with too few, has a dictionary, which Arrow gives up by itself: values may follow in the same file.
    """

    def __init__(self) -> None:
        self._chosen: dict[_Kind, str] = {}
        self._rows: Counter[_Kind] = Counter()  # rows of small row groups before the choice
        self._names: dict[pa.Schema, list[str]] = {}

    def of(
        self, rows: pa.Table, leaves: Sequence[Leaf], settings: FileSettings, options: Mapping[str, object]
    ) -> Encodings:
        """Return the encodings for this row group: the default while there are too few rows to be worth a choice.

        Args:
            rows: The row group.
            leaves: As for `choose_encodings`.
            settings: As for `choose_encodings`.
            options: As for `choose_encodings`.
        """
        if rows.num_rows < LEAST_GROUP_ROWS:
            return DEFAULT_ENCODINGS
        names = self._names_of(rows.schema, options)
        kinds = dict(zip(names, _kinds(rows, names, leaves, settings, options), strict=True))
        self._try(rows, leaves, settings, options, kinds)
        found = {name: self._chosen[kind] for name, kind in kinds.items() if kind in self._chosen}
        if not found:
            return DEFAULT_ENCODINGS
        return Encodings(
            dictionary=tuple(name for name in names if found.get(name, _DICTIONARY) == _DICTIONARY),
            others={name: encoding for name, encoding in found.items() if encoding not in {_DICTIONARY, _PLAIN}},
        )

    def _try(
        self,
        rows: pa.Table,
        leaves: Sequence[Leaf],
        settings: FileSettings,
        options: Mapping[str, object],
        kinds: Mapping[str, _Kind],
    ) -> None:
        """Choose for the columns that are worth it by now, and have not been tried."""
        new = {name: kind for name, kind in kinds.items() if kind.likeness and kind not in self._chosen}
        for kind in new.values():
            self._rows[kind] += rows.num_rows
        columns = [int(leaf.path[0]) for leaf in leaves]
        due = [column for column, kind in zip(columns, kinds.values(), strict=True) if self._rows[kind] >= LEAST_ROWS]
        if not due:
            return
        places = sorted(set(due))
        chosen = choose_encodings(rows.select(places), _leaves_of(places, leaves), settings, options)
        for column, (name, kind) in zip(columns, kinds.items(), strict=True):
            if column in due and name in new:
                self._chosen[kind] = chosen.of(name)
                del self._rows[kind]

    def _names_of(self, schema: pa.Schema, options: Mapping[str, object]) -> list[str]:
        """Return the names of the leaves in Parquet."""
        if schema not in self._names:
            footers: list[pq.FileMetaData] = []
            with pq.ParquetWriter(pa.BufferOutputStream(), schema, **{**options, "metadata_collector": footers}):
                pass
            self._names[schema] = [column.path for column in _columns(footers[0])]
        return self._names[schema]


def _leaves_of(columns: Sequence[int], leaves: Iterable[Leaf]) -> list[Leaf]:
    """Return the leaves of some columns, with their places among these."""
    places: dict[object, int] = {number: place for place, number in enumerate(columns)}
    return [replace(leaf, path=(places[leaf.path[0]], *leaf.path[1:])) for leaf in leaves if leaf.path[0] in places]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a leaf column has in common in row groups that are encoded alike.

    Attributes:
        name: Its name in Parquet.
        data_type: Type of the column that it is, or lies in.
        likeness: How its values are.
        settings: What decides about encodings, and how pages are written.
        magnitude: Of the number of rows.
    """

    name: str
    data_type: pa.DataType
    likeness: int
    settings: tuple[object, ...]
    magnitude: int


def _kinds(
    rows: pa.Table,
    names: Iterable[str],
    leaves: Iterable[Leaf],
    settings: FileSettings,
    options: Mapping[str, object],
) -> Iterator[_Kind]:
    decisive = (settings.parquet_encodings, *options.items())
    magnitude = rows.num_rows.bit_length() // _MAGNITUDE_BITS
    half = min(_LOOK_ROWS, rows.num_rows) // 2
    look = pa.concat_tables([rows.slice(0, half), rows.slice(rows.num_rows // 2, half)]).combine_chunks()
    for name, leaf in zip(names, leaves, strict=True):
        data_type = rows.schema.field(int(leaf.path[0])).type
        yield _Kind(name, data_type, _likeness(look, leaf), decisive, magnitude)


def _likeness(look: pa.Table, leaf: Leaf) -> int:
    """Return 0 for a column without values, 1 for one with one value, else more the more they differ, and ascend."""
    found = _values(look, leaf)
    valid = len(found) - found.null_count
    if not valid:
        return 0
    different = len(found.unique()) - (found.null_count > 0)
    if different == 1 < valid:
        return 1
    if different == valid and _ascends(found):
        return _ASCENDING
    return 2 + int(_SHARES * different // valid)


def _ascends(values: pa.ChunkedArray) -> bool:
    """Return whether numbers or times never go down, for which one encoding is made."""
    if not (pa.types.is_integer(values.type) or pa.types.is_temporal(values.type)):
        return False
    there = values.drop_null().combine_chunks()
    return pc.all(pc.less_equal(there[:-1], there[1:])).as_py() is True


def choose_encodings(
    rows: pa.Table, leaves: Sequence[Leaf], settings: FileSettings, options: Mapping[str, object]
) -> Encodings:
    """Return the encodings for row groups like `rows`.

    Args:
        rows: The first row group.
        leaves: Its leaf columns, in Parquet's order.
        settings: How the file is written: whether other encodings than plain and dictionary are wanted, and how
            large a dictionary may be.
        options: The other arguments of Arrow's `ParquetWriter`: codec, level, page sizes, decimals.
    """
    sample = _Sample.of(rows, options)
    limit = settings.dictionary_size_bytes or _DICTIONARY_BYTES
    classic = {}
    in_dictionary = set()
    for (name, sizes), leaf in zip(sample.sizes({"use_dictionary": True}).items(), leaves, strict=True):
        classic[name] = sample.plain[name].data * sample.growth
        estimate = _dictionary_bytes(sizes, classic[name], sample, leaf, limit / sample.plain[name].expansion)
        if estimate <= classic[name]:
            classic[name] = estimate
            in_dictionary.add(name)
    others = {} if settings.parquet_encodings == "classic" else _others(sample, classic, in_dictionary)
    return Encodings(dictionary=tuple(name for name in classic if name in in_dictionary - others.keys()), others=others)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """Compressed bytes of a column chunk's dictionary page, and of the rest; `expansion`: uncompressed / compressed."""

    dictionary: int
    data: int
    expansion: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """Sample rows of a row group, and their size without a dictionary.

    Attributes:
        rows: The row group.
        part: The sample: two runs of neighbouring rows, from the beginning and the middle; all rows if they are few.
        options: The arguments of Arrow's `ParquetWriter` other than the encodings.
        physical_types: Physical type of each column, by its name in Parquet.
        plain: Size of each column's sample in plain encoding, by its name in Parquet.
    """

    rows: pa.Table
    part: pa.Table
    options: Mapping[str, object]
    physical_types: Mapping[str, str]
    plain: Mapping[str, _Size]

    @classmethod
    def of(cls, rows: pa.Table, options: Mapping[str, object]) -> _Sample:
        """Take a sample of the rows."""
        fitting = min(_SAMPLE_BYTES * rows.num_rows // max(rows.nbytes, 1), rows.num_rows // _SAMPLE_SHARE)
        most = min(_SAMPLE_ROWS, max(LEAST_ROWS, fitting), rows.num_rows)
        half = most // 2
        part = pa.concat_tables([rows.slice(0, half), rows.slice(rows.num_rows // 2, most - half)])
        footer = _footer(part, {"use_dictionary": False}, options)
        types = {column.path: column.physical_type for column in _columns(footer)}
        return cls(rows=rows, part=part, options=options, physical_types=types, plain=_sizes(footer))

    @property
    def growth(self) -> float:
        """The row group's number of rows divided by the sample's."""
        return float(self.rows.num_rows / self.part.num_rows)

    def sizes(self, encoding: Mapping[str, object]) -> dict[str, _Size]:
        """Return the size of each column's sample in that encoding, by its name in Parquet."""
        return _sizes(_footer(self.part, encoding, self.options))

    def values_growth(self, leaf: Leaf) -> float:
        """Return a column's distinct values in the row group divided by those in the sample; infinity if very many."""
        few = _distinct(self.part, leaf)
        return math.inf if few > _MOSTLY_DIFFERENT * self.part.num_rows else _distinct(self.rows, leaf) / max(few, 1)


def _others(sample: _Sample, classic: Mapping[str, float], in_dictionary: AbstractSet[str]) -> dict[str, str]:
    """Return, by column, an encoding that takes fewer bytes than `classic`, the bytes with plain or dictionary."""
    # Strings in a dictionary stay there, even if Huffman codes would make them smaller: readers compare its indices.
    tried = {
        name: _OF_PHYSICAL_TYPE[kind]
        for name, kind in sample.physical_types.items()
        if kind in _OF_PHYSICAL_TYPE and not (kind == "BYTE_ARRAY" and name in in_dictionary)
    }
    sizes = sample.sizes({"use_dictionary": False, "column_encoding": tried}) if tried else {}
    most = {name: size * (_WELL_WORTH_IT if name in in_dictionary else _WORTH_IT) for name, size in classic.items()}
    return {name: encoding for name, encoding in tried.items() if sizes[name].data * sample.growth < most[name]}


def _dictionary_bytes(size: _Size, plain: float, sample: _Sample, leaf: Leaf, limit: float) -> float:
    """Return a column's bytes in the row group with a dictionary; infinity if it would be given up, or cannot exist.

    Args:
        size: Size of the column's sample with a dictionary.
        plain: The column's bytes in the row group without a dictionary.
        sample: The sample.
        leaf: The column.
        limit: Compressed bytes beyond which a dictionary is given up.
    """
    if not size.dictionary or size.dictionary > limit:
        return math.inf
    data = size.data * sample.growth
    most = _with_dictionary(size, sample, sample.growth)
    if data + size.dictionary > plain or most <= min(plain, limit):
        return most
    values_growth = sample.values_growth(leaf)
    return math.inf if size.dictionary * values_growth > limit else _with_dictionary(size, sample, values_growth)


def _with_dictionary(size: _Size, sample: _Sample, values_growth: float) -> float:
    """Return a column's bytes in the row group if its dictionary is `values_growth` times as large as the sample's."""
    wider = math.log2(max(values_growth, 1)) / 8  # bytes by which a row's dictionary index grows
    return float(size.dictionary * values_growth + size.data * sample.growth + sample.rows.num_rows * wider)


def _distinct(rows: pa.Table, leaf: Leaf) -> int:
    return len(_values(rows, leaf).unique())  # several times as fast as only counting them


def _values(rows: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    values = [leaf_values(batch, leaf.path) for batch in rows.to_batches()]
    return pa.chunked_array([array.storage if isinstance(array, pa.ExtensionArray) else array for array in values])


def _sizes(footer: pq.FileMetaData) -> dict[str, _Size]:
    group = footer.row_group(0)
    return {column.path: _size(group.column(index)) for index, column in enumerate(_columns(footer))}


def _size(chunk: pq.ColumnChunkMetaData) -> _Size:
    start = chunk.dictionary_page_offset
    dictionary = 0 if start is None else chunk.data_page_offset - start
    compressed = max(chunk.total_compressed_size, 1)
    return _Size(
        dictionary=dictionary,
        data=chunk.total_compressed_size - dictionary,
        expansion=chunk.total_uncompressed_size / compressed,
    )


def _columns(footer: pq.FileMetaData) -> Iterator[pq.ColumnSchema]:
    return (footer.schema.column(index) for index in range(footer.num_columns))


def _footer(rows: pa.Table, encoding: Mapping[str, object], options: Mapping[str, object]) -> pq.FileMetaData:
    footers: list[pq.FileMetaData] = []
    collected = {**options, **encoding, "metadata_collector": footers, "write_statistics": False}
    with pq.ParquetWriter(pa.BufferOutputStream(), rows.schema, **collected) as writer:
        writer.write_table(rows, row_group_size=rows.num_rows)
    return footers[0]
