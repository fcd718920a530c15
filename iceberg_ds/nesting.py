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
    entry = pa.struct([maps.type.key_field.with_name("key"), maps.type.item_field.with_name("value")])
    offsets, entries = split_lists(maps.cast(pa.list_(entry)))
    return offsets, pc.struct_field(entries, 0), pc.struct_field(entries, 1)
