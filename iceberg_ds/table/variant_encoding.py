"""Pure: Arrow's structs, lists and maps as variants, whole columns at a time, with the bytes of `to_variant_object`.

A variant has the names of its fields once, numbered as they are met (`metadata`), and its values have their numbers. So
a column is walked twice: for the names of each row, which most rows share, and then for the values. Fields
lie in an object in the order of the DataFrame, and are listed in the order of their names. Only variants inside are
taken apart one by one. Sources: Parquet spec, "Variant Binary Encoding"; Spark's `VariantBuilder`, for all that the
spec leaves open.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.nested_arrow import split_lists, split_maps
from iceberg_ds.table.variant import (
    ARRAY,
    NULL,
    OBJECT,
    VARIANT,
    as_variants,
    is_sent_variant,
    names_in,
    parts_at,
    size_at,
)

_TRUE, _FALSE = b"\x04", b"\x08"
_INTEGERS = ((b"\x0c", pa.int8()), (b"\x10", pa.int16()), (b"\x14", pa.int32()), (b"\x18", pa.int64()))
_DOUBLE, _FLOAT = b"\x1c", b"\x38"
_DECIMALS = ((b"\x20", 9, 4), (b"\x24", 18, 8), (b"\x28", 38, 16))  # the most digits, and the bytes of each
_DATE, _TIMESTAMP, _TIMESTAMP_NTZ = b"\x2c", b"\x30", b"\x34"
_BINARY, _TEXT = b"\x3c", b"\x40"
_LONGEST_SHORT_TEXT = 63  # bytes
_VERSION = 1
_MOST_IN_BYTE = 0xFF
_BYTES_OF_CODE = 4
# Of a value, and of its metadata: the limit of Spark's own reader; that of Spark 4.0 is lower.
_MOST_BYTES = 128 * 1024 * 1024
# A half of a pair of UTF-16, encoded as if it were a character.
_SURROGATE, _REPLACED = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]"), "\ufffd".encode()


def to_variants(values: pa.Array, path: str) -> pa.Array:
    """Return structs, lists or maps as variants, as files have them; null for a null.

    Args:
        values: As Spark sends them. Keys of maps are text.
        path: Name of the column, for errors.

    Raises:
        SchemaMismatchError: A map has a key twice, or a variant is too large, or one inside is nested too deep.
    """
    names = _Names(path)
    column = _column(values, names)
    found = pa.repeat(pa.scalar(b""), len(values)) if column.names is None else column.names
    metadata, numbers = names.numbered(found)
    counts = _count(found)
    starts = pc.subtract(pc.cumulative_sum(counts), counts)
    mask = values.is_null() if values.null_count else None
    parts = [metadata, column.encoded(numbers, starts)]
    if any((pc.max(pc.binary_length(part)).as_py() or 0) > _MOST_BYTES for part in parts):
        raise SchemaMismatchError(
            f"Cannot write into column '{path}': a variant would have more than {_MOST_BYTES >> 20} MiB, which Spark "
            "does not read: filter such rows, or make several rows of each."
        )
    return pa.StructArray.from_arrays(parts, fields=list(VARIANT), mask=mask)


class _Names:
    """The names in all rows of a column, each with a code.

    Args:
        path: Name of the column, for errors.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> bytes:
        """Return the code of a name."""
        return array("i", [self._codes.setdefault(name, len(self._codes))]).tobytes()

    def numbered(self, sequences: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the metadata of each row, and the numbers of its names there, one row after the other.

        Args:
            sequences: The codes of the names in each row, in the order in which they are met.
        """
        encoded = sequences.dictionary_encode()
        texts = [name.encode() for name in self._codes]
        metadata, numbers = [], []
        for sequence in encoded.dictionary.to_pylist():
            own: dict[int, int] = {}
            numbers.append(array("i", [own.setdefault(code, len(own)) for code in array("i", sequence)]).tobytes())
            metadata.append(_metadata([texts[code] for code in own]))
        flat = pa.array(numbers, pa.binary()).take(encoded.indices)
        count = pc.sum(_count(flat)).as_py() or 0
        return (
            pa.array(metadata, pa.binary()).take(encoded.indices),
            pa.Array.from_buffers(pa.int32(), count, [None, flat.buffers()[2]]) if count else pa.array([], pa.int32()),
        )


def _metadata(names: list[bytes]) -> bytes:
    ends = [0, *itertools.accumulate(map(len, names))]
    width = _width(max(ends[-1], len(names)))
    numbers = b"".join(number.to_bytes(width, "little") for number in (len(names), *ends))
    return bytes([_VERSION | (width - 1) << 6]) + numbers + b"".join(names)


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _by_name(name: str) -> bytes:
    """Return what names are sorted by: Spark and Iceberg look for them in the order of Java's strings, in UTF-16."""
    return name.encode("utf-16-be")


class _Column(Protocol):
    """Values of one type, at any depth.

    Attributes:
        names: The codes of the names in each value, in the order in which they are met; None for values without names.
    """

    names: pa.Array | None

    def encoded(self, numbers: pa.Array, starts: pa.Array) -> pa.Array:
        """Return the bytes of each value, of a variant's null for a null.

        Args:
            numbers: The numbers of all names of all rows.
            starts: Where among them those of each value begin.
        """


def _column(values: pa.Array, names: _Names) -> _Column:
    data_type = values.type
    if pa.types.is_struct(data_type):
        return _Variants(values, names) if is_sent_variant(data_type) else _Structs(values, names)
    if pa.types.is_map(data_type):
        return _Maps(values, names)
    return _Lists(values, names) if pa.types.is_list(data_type) else _Flat(values)


class _Flat:
    """Values with nothing inside."""

    names = None

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def encoded(self, numbers: pa.Array, starts: pa.Array) -> pa.Array:  # noqa: ARG002  # without names
        """Return the bytes of each value."""
        return pc.fill_null(_flat(self._values), NULL)


class _Structs:
    """Structs, which become objects."""

    def __init__(self, values: pa.Array, names: _Names) -> None:
        self._is_valid = values.is_valid() if values.null_count else None
        self._fields = [_column(pc.struct_field(values, place), names) for place in range(values.type.num_fields)]
        texts = [field.name for field in values.type]
        self._order = sorted(range(len(texts)), key=lambda place: _by_name(texts[place]))
        codes: list[pa.Array | bytes] = [pa.repeat(pa.scalar(b""), len(values))]
        for text, column in zip(texts, self._fields, strict=True):
            codes += [names.code(text), *([] if column.names is None else [column.names])]
        self.names: pa.Array | None = self._where_valid(_joined(*codes), b"")

    def encoded(self, numbers: pa.Array, starts: pa.Array) -> pa.Array:
        """Return the bytes of each value."""
        start, ids, parts = self._where_valid(starts, None), [], []
        for column in self._fields:
            ids.append(numbers.take(start))
            start = pc.add(start, 1)
            parts.append(column.encoded(numbers, start))
            if column.names is not None:
                start = pc.add(start, _count(column.names))
        ends = [pa.repeat(0, len(starts))]
        for part in parts:
            ends.append(pc.add(ends[-1], pc.binary_length(part)))
        sizes, widths = _widths(ends[-1]), _widths(pc.max_element_wise(*ids) if ids else pa.repeat(0, len(starts)))
        listed = [
            *(_little_endian(ids[place], widths) for place in self._order),
            *(_little_endian(ends[place], sizes) for place in self._order),
            _little_endian(ends[-1], sizes),
        ]
        count = pa.repeat(len(ids), len(starts))
        return self._where_valid(_joined(_object_header(count, widths, sizes), _size(count), *listed, *parts), NULL)

    def _where_valid(self, values: pa.Array, other: bytes | None) -> pa.Array:
        return values if self._is_valid is None else pc.if_else(self._is_valid, values, pa.scalar(other, values.type))


class _Lists:
    """Lists, which become arrays."""

    def __init__(self, values: pa.Array, names: _Names) -> None:
        offsets, elements = split_lists(values)
        self._entries = _Entries(offsets, values)
        self._elements = _column(elements, names)
        inside = self._elements.names
        self.names = None if inside is None else self._entries.joined(inside)

    def encoded(self, numbers: pa.Array, starts: pa.Array) -> pa.Array:
        """Return the bytes of each value."""
        entries, inside = self._entries, self._elements.names
        if inside is not None:
            starts = pc.add(entries.of_parents(starts), entries.begins(_count(inside)))
        parts = self._elements.encoded(numbers, starts)
        lengths = pc.binary_length(parts)
        total = entries.sums(lengths)
        sizes = _widths(total)
        listed = entries.joined(_little_endian(entries.begins(lengths), entries.of_parents(sizes)))
        header = _array_header(entries.counts, sizes)
        size, end = _size(entries.counts), _little_endian(total, sizes)
        return entries.where_valid(_joined(header, size, listed, end, entries.joined(parts)))


class _Maps:
    """Maps, which become objects."""

    def __init__(self, values: pa.Array, names: _Names) -> None:
        offsets, keys, items = split_maps(values)
        self._entries = _Entries(offsets, values)
        self._items = _column(items, names)
        encoded = _valid_text(keys).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        codes = pa.array([names.code(text) for text in texts], pa.binary()).take(encoded.indices)
        self._inside = codes if self._items.names is None else _joined(codes, self._items.names)
        self.names: pa.Array | None = self._entries.joined(self._inside)
        ranks = {text: rank for rank, text in enumerate(sorted(texts, key=_by_name))}
        of_entries = pa.array([ranks[text] for text in texts], pa.int32()).take(encoded.indices)
        self._order = self._entries.ordered(of_entries)
        _check_unique(self._entries, of_entries.take(self._order), names.path)

    def encoded(self, numbers: pa.Array, starts: pa.Array) -> pa.Array:
        """Return the bytes of each value."""
        entries = self._entries
        starts = pc.add(entries.of_parents(starts), entries.begins(_count(self._inside)))
        ids = numbers.take(starts)
        parts = self._items.encoded(numbers, pc.add(starts, 1))
        lengths = pc.binary_length(parts)
        total = entries.sums(lengths)
        sizes, widths = _widths(total), _widths(entries.greatest(ids))
        listed = [
            entries.joined(_little_endian(ids.take(self._order), entries.of_parents(widths))),
            entries.joined(_little_endian(entries.begins(lengths).take(self._order), entries.of_parents(sizes))),
            _little_endian(total, sizes),
        ]
        header = _object_header(entries.counts, widths, sizes)
        return entries.where_valid(_joined(header, _size(entries.counts), *listed, entries.joined(parts)))


def _check_unique(entries: _Entries, ranks: pa.Array, path: str) -> None:
    """Refuse keys that follow one another twice in one map, in the order of their ranks."""
    same = pc.and_(pc.equal(ranks[1:], ranks[:-1]), pc.equal(entries.parents[1:], entries.parents[:-1]))
    if pc.any(same).as_py():
        raise SchemaMismatchError(
            f"Cannot write into column '{path}': a map has a key twice, and fields of a variant have different names: "
            "filter such rows, or make the keys unique."
        )


class _Entries:
    """What lies in lists or maps, one value after the other.

    Args:
        offsets: Where the entries of each value begin, from 0; a null has none.
        values: The lists or maps.

    Attributes:
        counts: How many entries each value has.
        parents: The number of the value of each entry.
    """

    def __init__(self, offsets: pa.Array, values: pa.Array) -> None:
        self._offsets = offsets
        self._is_valid = values.is_valid() if values.null_count else None
        self.counts = pc.subtract(offsets[1:], offsets[:-1])
        numbers = pa.repeat(0, offsets[-1].as_py())
        self.parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, numbers))

    def joined(self, parts: pa.Array) -> pa.Array:
        """Return for each value the bytes of its entries, one after the other."""
        return pc.binary_join(pa.ListArray.from_arrays(self._offsets, parts), b"")

    def of_parents(self, numbers: pa.Array) -> pa.Array:
        """Return for each entry the number of its value."""
        return numbers.take(self.parents)

    def begins(self, lengths: pa.Array) -> pa.Array:
        """Return how long the entries of its value before each entry are together."""
        ends = self._ends(lengths)
        return pc.subtract(ends[:-1], ends.take(self._offsets[:-1]).take(self.parents))

    def sums(self, lengths: pa.Array) -> pa.Array:
        """Return for each value how long its entries are together."""
        ends = self._ends(lengths).take(self._offsets)
        return pc.subtract(ends[1:], ends[:-1])

    def greatest(self, numbers: pa.Array) -> pa.Array:
        """Return for each value the greatest number of its entries, 0 without entries."""
        found = pa.table({"parent": self.parents, "number": numbers}).group_by("parent").aggregate([("number", "max")])
        places = pc.index_in(pa.array(range(len(self.counts)), pa.int64()), value_set=found["parent"].combine_chunks())
        return pc.fill_null(found["number_max"].combine_chunks().take(places), 0)

    def ordered(self, ranks: pa.Array) -> pa.Array:
        """Return the entries by value, and by rank within it, as their numbers."""
        keys = pa.table({"parent": self.parents, "rank": ranks})
        return pc.sort_indices(keys, sort_keys=[("parent", "ascending"), ("rank", "ascending")])

    def where_valid(self, encoded: pa.Array) -> pa.Array:
        """Return the bytes of values, of a variant's null for a null."""
        return encoded if self._is_valid is None else pc.if_else(self._is_valid, encoded, NULL)

    @staticmethod
    def _ends(lengths: pa.Array) -> pa.Array:
        return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])


class _Variants:
    """Variants inside others: their names are numbered anew."""

    def __init__(self, values: pa.Array, names: _Names) -> None:
        parts = as_variants(values)
        found = zip(parts.field("metadata").to_pylist(), parts.field("value").to_pylist(), strict=True)
        try:
            self._trees = [
                _tree(value, [name.decode() for name in names_in(metadata)]) if value else NULL
                for metadata, value in found
            ]
        except RecursionError:
            raise SchemaMismatchError(
                f"Cannot write into column '{names.path}': a variant inside has hundreds of levels: filter such rows, "
                "or write variants as columns of their own, which may be of any depth."
            ) from None
        except (IndexError, UnicodeDecodeError) as error:
            raise SchemaMismatchError(
                f"Cannot write into column '{names.path}': a variant inside is damaged ({error!r}): filter such rows, "
                "or write variants as columns of their own, which keep their bytes."
            ) from error
        codes = [b"".join(map(names.code, _names_in(tree))) for tree in self._trees]
        self.names: pa.Array | None = pa.array(codes, pa.binary())

    def encoded(self, numbers: pa.Array, starts: pa.Array) -> pa.Array:
        """Return the bytes of each value."""
        number_at, rows = numbers.to_pylist().__getitem__, zip(self._trees, starts.to_pylist(), strict=True)
        # What lies in a null has neither names nor a start.
        return pa.array(
            [_built(tree, map(number_at, itertools.count(start or 0))) for tree, start in rows], pa.binary()
        )


# A variant taken apart: the bytes of a flat value, or what is in an array or an object, in the order of its list.
_Tree = bytes | list["_Tree"] | dict[str, "_Tree"]


def _tree(value: bytes, names: list[str], at: int = 0) -> _Tree:
    """Take a variant apart, from the byte at which it begins.

    Raises:
        IndexError: Its bytes end before it does, or name a field that has no name.
        RecursionError: It has hundreds of levels.
    """
    kind = value[at] & 3
    if kind not in (OBJECT, ARRAY):
        end = at + size_at(value, at)
        if end > len(value):
            raise IndexError(end)
        return value[at:end]
    ids, places = parts_at(value, at)
    parts = [_tree(value, names, place) for place in places]
    return parts if kind == ARRAY else dict(zip((names[one] for one in ids), parts, strict=True))


def _names_in(tree: _Tree) -> Iterator[str]:
    if isinstance(tree, dict):
        for name, part in tree.items():
            yield name
            yield from _names_in(part)
    elif isinstance(tree, list):
        for part in tree:
            yield from _names_in(part)


def _built(tree: _Tree, ids: Iterator[int]) -> bytes:
    """Return the bytes of a variant; `ids` has the numbers of its names, in the order of `_names_in`."""
    if isinstance(tree, bytes):
        return tree
    named, parts = [], []
    for part in tree.values() if isinstance(tree, dict) else tree:
        named += [next(ids)] if isinstance(tree, dict) else []
        parts.append(_built(part, ids))
    ends = [0, *itertools.accumulate(map(len, parts))]
    width, id_width, is_large = _width(ends[-1]), _width(max(named, default=0)), len(parts) > _MOST_IN_BYTE
    kind = is_large << 6 | (id_width - 1) << 4 | OBJECT if isinstance(tree, dict) else is_large << 4 | ARRAY
    return b"".join([
        bytes([kind | (width - 1) << 2]),
        len(parts).to_bytes(4 if is_large else 1, "little"),
        *(number.to_bytes(id_width, "little") for number in named),
        *(end.to_bytes(width, "little") for end in ends),
        *parts,
    ])  # fmt: skip


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    return pc.binary_join_element_wise(*parts, b"")


def _count(codes: pa.Array) -> pa.Array:
    """Return how many codes there are in each sequence of codes."""
    return pc.divide(pc.binary_length(codes), _BYTES_OF_CODE).cast(pa.int64())


def _widths(greatest: pa.Array) -> pa.Array:
    """Return how many bytes the greatest of some numbers needs, in each row."""
    found = pa.repeat(1, len(greatest))
    most = pc.max(greatest).as_py() or 0
    for width in range(1, _width(most)):
        found = pc.add(found, pc.greater_equal(greatest, 1 << 8 * width).cast(pa.int64()))
    return found


def _little_endian(numbers: pa.Array, widths: pa.Array) -> pa.Array:
    """Return numbers that are not negative as so many bytes each."""
    whole, found = _bytes_of(numbers), pa.nulls(len(numbers), pa.binary())
    for place, width in enumerate(widths.unique().drop_null().to_pylist()):
        some = pc.binary_slice(whole, 0, width)
        found = pc.if_else(pc.equal(widths, width), some, found) if place else some
    return found


def _bytes_of(values: pa.Array) -> pa.Array:
    """Return values of a fixed number of bytes as their bytes, the lowest one first."""
    kind = pa.binary(values.type.bit_width // 8)
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], offset=values.offset).cast(pa.binary())


def _object_header(counts: pa.Array, id_widths: pa.Array, widths: pa.Array) -> pa.Array:
    bits = pc.add(pc.multiply(pc.subtract(id_widths, 1), 1 << 4), pc.multiply(_is_large(counts), 1 << 6))
    return _header(pc.add(bits, OBJECT), widths)


def _array_header(counts: pa.Array, widths: pa.Array) -> pa.Array:
    return _header(pc.add(pc.multiply(_is_large(counts), 1 << 4), ARRAY), widths)


def _header(bits: pa.Array, widths: pa.Array) -> pa.Array:
    return _bytes_of(pc.add(bits, pc.multiply(pc.subtract(widths, 1), 1 << 2)).cast(pa.uint8()))


def _size(counts: pa.Array) -> pa.Array:
    return _little_endian(counts, pc.add(pc.multiply(_is_large(counts), 3), 1))


def _is_large(counts: pa.Array) -> pa.Array:
    return pc.greater(counts, _MOST_IN_BYTE).cast(pa.int64())


def _flat(values: pa.Array) -> pa.Array:  # noqa: PLR0911  # one a kind
    """Return the bytes of flat values, null for a null."""
    data_type = values.type
    if pa.types.is_null(data_type):
        return values.cast(pa.binary())
    if pa.types.is_boolean(data_type):
        return pc.if_else(values, _TRUE, _FALSE)
    if pa.types.is_integer(data_type):
        return _integers(values)
    if pa.types.is_floating(data_type):
        return _joined(_FLOAT if data_type == pa.float32() else _DOUBLE, _bytes_of(_one_nan(values)))
    if pa.types.is_decimal(data_type):
        return _decimals(values)
    if pa.types.is_date32(data_type):
        return _joined(_DATE, _bytes_of(values))
    if pa.types.is_timestamp(data_type):
        moments = values.cast(pa.timestamp("us", data_type.tz))
        return _joined(_TIMESTAMP if data_type.tz else _TIMESTAMP_NTZ, _bytes_of(moments))
    return _texts(_valid_text(values)) if pa.types.is_string(data_type) else _with_length(_BINARY, values)


def _one_nan(values: pa.Array) -> pa.Array:
    """Return floats with the one NaN that Java writes."""
    is_nan = pc.is_nan(values)
    return pc.if_else(is_nan, pa.scalar(float("nan"), values.type), values) if is_nan.true_count else values


def _integers(values: pa.Array, kinds: Sequence[tuple[bytes, pa.DataType]] = _INTEGERS) -> pa.Array:
    """Return integers as the smallest type that has them."""
    (header, kind), *wider = kinds
    narrow = values.cast(kind, safe=False)
    encoded, fits = _joined(header, _bytes_of(narrow)), pc.equal(narrow.cast(values.type), values)
    return encoded if pc.all(fits).as_py() is not False else pc.if_else(fits, encoded, _integers(values, wider))


def _decimals(values: pa.Array) -> pa.Array:
    """Return decimals as the smallest type that has them, at the scale of the column."""
    scale = bytes([values.type.scale])
    found = None
    sizes = pc.abs(values)
    for header, digits, width in reversed(_DECIMALS):
        if values.type.scale > digits:
            break
        encoded = _joined(header, scale, pc.binary_slice(_bytes_of(values), 0, width))
        if found is None or values.type.precision <= digits:
            found = encoded
        else:
            limit = pa.scalar(Decimal((0, (1,), digits - values.type.scale)), values.type)
            found = pc.if_else(pc.less(sizes, limit), encoded, found)
    return found


def _texts(values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values)
    is_short = pc.less_equal(lengths, _LONGEST_SHORT_TEXT)
    header = _bytes_of(pc.add(pc.multiply(pc.min_element_wise(lengths, _LONGEST_SHORT_TEXT), 4), 1).cast(pa.uint8()))
    raw = values.cast(pa.binary())
    short = _joined(header, raw)
    return short if pc.all(is_short).as_py() is not False else pc.if_else(is_short, short, _with_length(_TEXT, raw))


def _with_length(header: bytes, values: pa.Array) -> pa.Array:
    return _joined(header, _bytes_of(pc.binary_length(values)), values)


def _as_by_java(raw: bytes) -> str:
    """Return a text of bytes that may be no UTF-8: for a surrogate Java puts one replacement character, Python 3."""
    return _SURROGATE.sub(_REPLACED, raw).decode(errors="replace")


def _valid_text(values: pa.Array) -> pa.Array:
    """Return texts with a replacement character, as Java puts one, for what is no UTF-8: variants have no such text."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        raw: Iterable[bytes | None] = values.cast(pa.binary()).to_pylist()
        return pa.array([None if one is None else _as_by_java(one) for one in raw], pa.string())
    return values
