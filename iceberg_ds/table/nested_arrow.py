"""Pure: takes Arrow's structs, lists and maps apart, or turns them into JSON text, whole columns at a time.

A slice shares its entries with other rows, and a null may hide entries: only entries of a column's own rows are seen.
JSON is printed as Spark's `to_json` prints it, except for nulls, which are kept, and keys of maps, which are printed
like values; `flat_json` and `variant_json` say what of them is printed otherwise.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.table.flat_json import flat_json, quoted_json
from iceberg_ds.table.variant import as_variants, is_sent_variant
from iceberg_ds.table.variant_json import variant_json

_NULL = "null"
# As Arrow's own schema in a file tells them: Polars, for one, writes large lists.
_LISTS = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_fixed_size_list, pa.list_),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of any of Arrow's kinds."""
    return any(is_one(kind) for is_one, _ in _LISTS)


def list_of(kind: pa.DataType, element: pa.Field) -> pa.DataType:
    """Return a list of the same kind with another element."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return next(made for is_one, made in _LISTS if is_one(kind))(element)


def split_lists(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the offsets and the elements of lists of any of Arrow's kinds; a null list has none."""
    elements = lists.flatten()
    if isinstance(lists, (pa.ListArray, pa.LargeListArray)):
        offsets = lists.offsets
        if len(elements) == offsets[-1].as_py() - offsets[0].as_py():
            return pc.subtract(offsets, offsets[0]), elements
    lengths = pc.fill_null(pc.list_value_length(lists).cast(pa.int32()), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)]), elements


def split_maps(maps: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the offsets, keys and values of maps; a null map has none."""
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    offsets = pc.subtract(maps.offsets, maps.offsets[0])
    # Unlike flatten(), both cover the whole, unsliced map.
    keys, items = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    if not _hides_entries(maps, offsets):
        return offsets, keys, items
    numbers = pa.array(range(last - first), pa.int32())
    offsets, seen = split_lists(pa.ListArray.from_arrays(offsets, numbers, mask=maps.is_null()))
    return offsets, keys.take(seen), items.take(seen)


def _hides_entries(maps: pa.Array, offsets: pa.Array) -> bool:
    if not maps.null_count:
        return False
    lengths = pc.subtract(offsets[1:], offsets[:-1])
    return pc.any(pc.and_(maps.is_null(), pc.greater(lengths, 0))).as_py() is True


def to_json(values: pa.Array) -> pa.Array:
    """Return the JSON text of every value, null for a null."""
    if not len(values):  # an empty array may come without any offsets
        return pa.array([], pa.string())
    if not pa.types.is_nested(values.type):
        return flat_json(values)
    if pa.types.is_struct(values.type):
        text = _variants(values) if is_sent_variant(values.type) else _structs(values)
    elif pa.types.is_map(values.type):
        text = _maps(values)
    else:
        text = _lists(values)
    return pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _inside(values: pa.Array) -> pa.Array:
    return pc.fill_null(to_json(values), _NULL)


def _structs(values: pa.Array) -> pa.Array | pa.Scalar:
    if not values.type.num_fields:
        return pa.scalar("{}")
    parts: list[pa.Array | str] = []
    for position, field in enumerate(values.type):
        parts += ["," if parts else "{", json.dumps(field.name, ensure_ascii=False), ":"]
        parts.append(_inside(pc.struct_field(values, position)))
    return _joined(*parts, "}")


def _lists(values: pa.Array) -> pa.Array:
    offsets, elements = split_lists(values)
    return _joined("[", _with_commas(offsets, _inside(elements)), "]")


def _maps(values: pa.Array) -> pa.Array:
    offsets, keys, items = split_maps(values)
    return _joined("{", _with_commas(offsets, _joined(_as_text(to_json(keys)), ":", _inside(items))), "}")


def _with_commas(offsets: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")


def _as_text(json_texts: pa.Array) -> pa.Array:
    """Return keys as JSON strings, which numbers, for example, are not yet."""
    return pc.if_else(pc.starts_with(json_texts, '"'), json_texts, quoted_json(json_texts))


def _variants(values: pa.Array) -> pa.Array:
    """Return variants that Spark sends as text; of a null, any text."""
    parts = as_variants(values)
    found = zip(parts.field("value").to_pylist(), parts.field("metadata").to_pylist(), strict=True)
    # Not cast, which would refuse texts that are no UTF-8: Spark sends such in columns of strings, too.
    return pa.array([variant_json(value, metadata) if value else b"" for value, metadata in found]).view(pa.string())
