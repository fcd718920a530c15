"""Pure: Arrow's lists and maps taken apart, so that only the entries of their own rows are seen.

A slice shares its entries with other rows, and a null may hide some. Knows Arrow alone.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def split_lists(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the offsets and the elements of lists; a null list has none."""
    elements = lists.flatten()
    offsets = lists.offsets
    if len(elements) == offsets[-1].as_py() - offsets[0].as_py():
        return pc.subtract(offsets, offsets[0]), elements
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)]), elements


def split_maps(maps: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the offsets, keys and values of maps; a null map has none."""
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    offsets = pc.subtract(maps.offsets, maps.offsets[0])
    # Unlike flatten(), both are of the whole, unsliced map.
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
