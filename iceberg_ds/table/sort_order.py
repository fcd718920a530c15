"""Pure: the order of rows by the sort fields of a table, as columns that Arrow can sort by.

Arrow puts NaN at one end in either direction, has one place for the nulls of all columns, and cannot order
some types: every sort field becomes a key column that Arrow orders as the spec does, and for nulls that come
first another column goes in front of it. Types of keys depend only on the fields, so that keys of
different batches can be concatenated.
Source: Iceberg spec, "Sorting".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import UnknownTransform, VoidTransform

from iceberg_ds.table.metrics_config import Leaf, leaf_columns
from iceberg_ds.table.partitioning import apply_transform

_Direction: TypeAlias = Literal["ascending", "descending"]
_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Key:
    """One sort field: where its values come from and how they are ordered.

    Attributes:
        path: Positions that lead from a batch to the source column.
        transform: Computes the values to sort by.
        direction: Direction of the values.
        nulls_first: Whether nulls come before all values, else after them.
    """

    path: tuple[int, ...]
    transform: Callable[[pa.Array], pa.Array | pa.ChunkedArray]
    direction: _Direction
    nulls_first: bool


class RowOrder:
    """An order of the rows of one schema: first by table partition, then by the table's sort fields.

    Args:
        order: The sort order.
        schema: The table's schema, whose columns the batches have in this order.
        spec: Partition spec by whose partitions rows are clustered first, or None.

    Raises:
        ValueError: A source column is dropped or lies in a list or map, or a transform is unknown.
    """

    def __init__(self, order: SortOrder, schema: Schema, spec: PartitionSpec | None = None) -> None:
        fields = [*_clustering(spec), *order.fields]
        live = [field for field in fields if not isinstance(field.transform, VoidTransform)]
        sources = {leaf.field_id: leaf for leaf in leaf_columns(schema, {})} if live else {}
        self._keys = [_key(field, schema, sources) for field in live]

    def keys(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the key columns of the rows in `batch`."""
        columns = [*(_key_values(batch, key) for key in self._keys), *self._more_keys(batch)]
        # All rows are equal if every field is void.
        return _numbered(columns or [pa.repeat(pa.scalar(0, pa.int8()), batch.num_rows)])

    def _more_keys(self, batch: pa.RecordBatch) -> Iterable[pa.Array]:  # noqa: ARG002  # a subclass has some
        """Return further key columns of the rows in `batch`, which count after the order's own, ascending."""
        return ()

    def positions(self, keys: pa.RecordBatch, tie_breakers: pa.Array | None = None) -> pa.Array:
        """Return the positions of the rows with these keys, in sort order; equal rows stay in their order.

        Args:
            keys: As `keys` returns them, of one batch or of several put together.
            tie_breakers: Decide between rows with equal keys, the lowest first; None for the rows' own order.
        """
        columns: list[pa.Array] = []
        directions: list[_Direction] = []
        for key, values in zip_longest(self._keys, keys.columns):
            if key is not None and key.nulls_first and values.null_count:  # else Arrow puts them last
                columns.append(values.is_valid())
                directions.append("ascending")
            columns.append(values)
            directions.append("ascending" if key is None else key.direction)
        if tie_breakers is not None:
            columns.append(tie_breakers)
            directions.append("ascending")
        numbered = _numbered(columns)
        return pc.sort_indices(numbered, sort_keys=list(zip(numbered.schema.names, directions, strict=True)))


def _clustering(spec: PartitionSpec | None) -> Iterable[SortField]:
    for field in () if spec is None else spec.fields:
        yield SortField(field.source_id, field.transform, SortDirection.ASC, NullOrder.NULLS_FIRST)


def _key(field: SortField, schema: Schema, sources: dict[int, Leaf]) -> _Key:
    if isinstance(field.transform, UnknownTransform):
        raise ValueError(f"sort field '{field}' has an unknown transform")  # noqa: TRY004  # of a value, not of an argument
    path = _path(sources.get(field.source_id))
    if path is None:
        raise ValueError(f"sort field '{field}' has a source that is dropped, or in a list or map")
    return _Key(
        path=path,
        transform=partial(apply_transform, field.transform, schema.find_type(field.source_id)),
        direction="ascending" if field.direction is SortDirection.ASC else "descending",
        nulls_first=field.null_order is NullOrder.NULLS_FIRST,
    )


def _path(source: Leaf | None) -> tuple[int, ...] | None:
    """Return the positions that lead to a column; None if it is dropped, or in a list or map."""
    path = () if source is None else tuple(step for step in source.path if isinstance(step, int))
    return None if source is None or len(path) < len(source.path) else path


def source_path(field_id: int, schema: Schema) -> tuple[int, ...] | None:
    """Return the positions that lead from a batch to a primitive column; None if it is dropped, or in a list or map."""
    return _path(next((leaf for leaf in leaf_columns(schema, {}) if leaf.field_id == field_id), None))


def source_values(batch: pa.RecordBatch, path: tuple[int, ...]) -> pa.Array:
    """Return the values of the column that these positions lead to."""
    top, *steps = path
    source = batch.column(top)
    for step in steps:
        source = pc.struct_field(source, step)
    return source


def _key_values(batch: pa.RecordBatch, key: _Key) -> pa.Array:
    values = key.transform(source_values(batch, key.path))
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_floating(values.type):
        return ordered_bits(values)
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def ordered_bits(values: pa.Array) -> pa.Array:
    """Return integers in the order of floats: -0 before 0, every NaN, of either sign, after infinity."""
    integer = _BITS[values.type]
    bits = pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values).view(integer)
    all_but_sign = pa.scalar((1 << (integer.bit_width - 1)) - 1, integer)
    return pc.if_else(pc.less(bits, pa.scalar(0, integer)), pc.bit_wise_xor(bits, all_but_sign), bits)


def _numbered(columns: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, names=[str(position) for position in range(len(columns))])
