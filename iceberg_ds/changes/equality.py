"""Pure: whether values are the same, as keys and sequences are compared. Knows Arrow alone."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_MAX_DIGITS = 38


def same_rows(one: Sequence[pa.Array], other: Sequence[pa.Array]) -> pa.Array:
    """Return for each row, never as null, whether it has the same values in all columns, one at least."""
    is_same = same_values(one[0], other[0])
    for mine, others in zip(one[1:], other[1:], strict=True):
        is_same = pc.and_(is_same, same_values(mine, others))
    return is_same


def same_values(one: pa.Array, other: pa.Array) -> pa.Array:
    """Return for each row whether two columns of one type have the same value: a null is a value, and so is NaN."""
    one, other = stored(one), stored(other)
    is_same = pc.equal(one, other)
    if one.null_count or other.null_count:
        is_same = pc.or_(pc.fill_null(is_same, False), pc.and_(one.is_null(), other.is_null()))  # noqa: FBT003  # Arrow's signature
    if pa.types.is_floating(one.type):
        both = pc.and_(pc.fill_null(pc.is_nan(one), False), pc.fill_null(pc.is_nan(other), False))  # noqa: FBT003  # as above
        is_same = pc.or_(is_same, both)
    return is_same


def numbered(columns: Sequence[pa.Array]) -> pa.Array:
    """Return a number for each row as uint64, the same for rows with the same values, and others for others."""
    names = [str(place) for place in range(len(columns))]
    rows = pa.Table.from_arrays([stored(column) for column in columns], names=names)
    places = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows), start=-1)
    groups = rows.append_column("place", places).group_by(names, use_threads=False).aggregate([("place", "list")])
    members = groups.column("place_list").combine_chunks()
    numbers = pc.list_parent_indices(members)
    return numbers.take(pc.array_sort_indices(members.flatten())).cast(pa.uint64())


def stored(column: pa.Array) -> pa.Array:
    """Return the values of a column of an extension type as plain ones, others as they are."""
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def plain(column: pa.Array) -> pa.Array:
    """Return the values of a key column in the one form in which equal ones are equal, whatever type a file gives them.

    That is what `resolving.canonical` makes of the same values.
    """
    values = stored(column)
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == pa.int32().bit_width else pa.int64())
    return values.cast(plain_type(column.type))


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of `plain` values."""
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if pa.types.is_boolean(data_type):
        return pa.bool_()
    if pa.types.is_decimal128(data_type):
        return pa.decimal128(_MAX_DIGITS, data_type.scale)
    if pa.types.is_integer(data_type) or pa.types.is_temporal(data_type):
        return pa.int64()
    return pa.binary()
