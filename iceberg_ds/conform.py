"""Pure: brings Arrow batches as Spark sends them into the exact schema of the table's files.

Spark labels timestamps with the session's time zone, keeps 8- and 16-bit integers, carries its own
nullability and may order columns differently. Values stay where they are in memory unless a type is
widened. Knows Arrow alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from iceberg_ds.errors import SchemaMismatchError


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """What a file's rows look like: the same fields twice, in the same order.

    Attributes:
        schema: Schema of the Parquet file, field ids in its metadata, names made safe.
        named: The table's own names, by which the columns of a batch are found.
    """

    schema: pa.Schema
    named: pa.Schema


def conform(batch: pa.RecordBatch, shape: FileShape) -> pa.RecordBatch:
    """Return `batch` with the columns, order and types of the file.

    Raises:
        SchemaMismatchError: A required column holds a null.
    """
    names = batch.schema.names
    columns = []
    for field, named in zip(shape.schema, shape.named, strict=True):
        column = batch.column(find_position(named.name, names))
        if not field.nullable and column.null_count:
            raise SchemaMismatchError(
                f"Cannot write a null into column '{named.name}', which is required in the table "
                f"({column.null_count} of {batch.num_rows} rows here): filter or fill the nulls."
            )
        columns.append(_conform_array(column, field.type, named.type))
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


def _conform_array(array: pa.Array, target: pa.DataType, named: pa.DataType) -> pa.Array:
    """Return `array` as type `target`; nested fields are found by their names in `named`, whatever their order."""
    if array.type == target:
        return array
    if array.offset:
        array = array.take(
            pa.array(range(len(array)), pa.int64())
        )  # the children below are read from their first value on
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(target):
        source_names = [field.name for field in array.type]
        children = [
            _conform_array(array.field(find_position(own.name, source_names)), field.type, own.type)
            for field, own in zip(target, named, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pa.types.is_list(target):
        values = _conform_array(array.values, target.value_type, named.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=mask)
    if pa.types.is_map(target):
        keys = _conform_array(array.keys, target.key_type, named.key_type)
        items = _conform_array(array.items, target.item_type, named.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    return array.cast(target)


def find_position(name: str, names: list[str]) -> int:
    """Return where `name` stands in `names`: exactly, else as the only one that differs in case alone.

    Raises:
        LookupError: None does, or several do.
    """
    if name in names:
        return names.index(name)
    folded = [position for position, other in enumerate(names) if other.lower() == name.lower()]
    if len(folded) != 1:
        raise LookupError(f"column '{name}' stands {len(folded)} times among {names}")
    return folded[0]
