"""Pure: the partition values of rows, and the split of a batch by them.

A batch is never filtered once per partition: its rows get one integer code per partition, are ordered
by it and taken range by range, so the cost does not grow with the number of partitions times the
number of rows. Source: Iceberg spec, "Partitioning" and "Partition Transforms".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import StructType


@dataclass(frozen=True)
class PartitionKey:
    """The partition tuple of a file, in the physical values that manifests hold; empty if unpartitioned."""

    values: tuple[object, ...]

    def record(self) -> Record:
        """Return the tuple as PyIceberg's manifest writer takes it."""
        return Record(*self.values)


@dataclass(frozen=True)
class PartitionPath:
    """The folder of a partition, in the form that PyIceberg's location providers ask for it."""

    key: PartitionKey
    spec: PartitionSpec
    schema: Schema

    def to_path(self) -> str:
        """Return the folder, such as `day=2026-11-21/region=EU`."""
        return self.spec.partition_to_path(self.key.record(), self.schema)


class PartitionSplitter:
    """Splits batches of one schema by one partition spec.

    Args:
        spec: The partition spec.
        schema: The table's schema, whose columns the batches have in this order.

    Raises:
        ValueError: A transform is unknown, so its values cannot be computed.
    """

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        unknown = [field.name for field in spec.fields if isinstance(field.transform, UnknownTransform)]
        if unknown:
            raise ValueError(f"partition fields {unknown} have unknown transforms")
        self._schema = schema
        self._columns = [(field, _position_path(schema, field)) for field in spec.fields]

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionKey, pa.RecordBatch]]:
        """Yield each partition in `batch` with its rows, copied, in their order in the batch."""
        columns = [self._partition_values(batch, field, path) for field, path in self._columns]
        encoded = [column.dictionary_encode(null_encoding="encode") for column in columns]
        codes = _combine([part.indices for part in encoded])
        order = pc.sort_indices(codes)
        runs = pc.run_end_encode(codes.take(order))
        start = 0
        for end in runs.run_ends.to_pylist():
            first = order[start].as_py()
            values = tuple(_physical(part.dictionary[part.indices[first].as_py()].as_py()) for part in encoded)
            yield PartitionKey(values), batch.take(order.slice(start, end - start))
            start = end

    def _partition_values(self, batch: pa.RecordBatch, field: PartitionField, path: tuple[int, ...]) -> pa.Array:
        if isinstance(field.transform, VoidTransform):
            return pa.nulls(batch.num_rows, pa.int32())
        source = batch.column(path[0])
        for position in path[1:]:
            source = pc.struct_field(source, position)
        source_type = self._schema.find_type(field.source_id)
        values = field.transform.pyarrow_transform(source_type)(source)
        return _as_physical(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)


def _position_path(schema: Schema, partition_field: PartitionField) -> tuple[int, ...]:
    """Return the positions that lead from a batch to the field's (possibly nested) source."""
    if isinstance(partition_field.transform, VoidTransform):
        return ()  # whose source may have been dropped

    def search(parent: StructType) -> tuple[int, ...] | None:
        for position, field in enumerate(parent.fields):
            if field.field_id == partition_field.source_id:
                return (position,)
            if isinstance(field.field_type, StructType) and (rest := search(field.field_type)) is not None:
                return (position, *rest)
        return None

    path = search(schema.as_struct())
    if path is None:
        raise ValueError(f"partition field '{partition_field.name}' has a source that is dropped, or in a list or map")
    return path


def _combine(codes: list[pa.Array]) -> pa.Array:
    """Return one integer per row that tells apart what any of `codes` tells apart."""
    combined = codes[0].cast(pa.int64())
    for column in codes[1:]:
        width = pc.max(column).as_py() + 1
        mixed = pc.add(pc.multiply(combined, pa.scalar(width, pa.int64())), column.cast(pa.int64()))
        combined = mixed.dictionary_encode().indices.cast(pa.int64())  # small again, so the next never overflows
    return combined


def _as_physical(values: pa.Array) -> pa.Array:
    """Return dates as days and times as microseconds: the integers that manifests hold."""
    if pa.types.is_date32(values.type):
        return values.view(pa.int32())
    if pa.types.is_floating(values.type):  # all NaN are one value, whatever their bits
        return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, values.type), values)
    if pa.types.is_timestamp(values.type) or pa.types.is_time64(values.type):
        return values.cast(_microseconds(values.type)).view(pa.int64())
    return values


def _physical(value: object) -> object:
    """Return the value, NaN as the one object that is equal to itself as a key."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def _microseconds(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_time64(data_type):
        return pa.time64("us")
    return pa.timestamp("us", data_type.tz)
