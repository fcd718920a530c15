"""Pure: brings Arrow batches as Spark sends them into the exact schema of the table's files.

Spark labels timestamps with the session's time zone, keeps 8- and 16-bit integers, carries its own
nullability and may order columns differently. Values stay where they are in memory unless a type is
widened. Knows Arrow alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.errors import SchemaMismatchError


@dataclass(frozen=True, slots=True, kw_only=True)
class FileShape:
    """What a file's rows look like: the same fields twice, in the same order.

    Attributes:
        schema: Schema of the Parquet file, field ids in its metadata, names made safe. Fields below an
            optional struct are optional, because Arrow's writer takes a null struct for nulls in its fields.
        named: The table's own names and required fields, by which the columns of a batch are found and checked.
    """

    schema: pa.Schema
    named: pa.Schema


def conform(batch: pa.RecordBatch, shape: FileShape) -> pa.RecordBatch:
    """Return `batch` with the columns, order and types of the file.

    Raises:
        SchemaMismatchError: A required column, or a required field inside one, holds a null.
    """
    names = batch.schema.names
    columns = []
    for field, named in zip(shape.schema, shape.named, strict=True):
        column = batch.column(find_position(named.name, names))
        _check_required(column, 0, named, named.name)
        _check_nested(column, named.type, named.name)
        columns.append(_conform_array(column, field.type, named.type))
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


def _check_required(values: pa.Array, null_parents: int, field: pa.Field, path: str) -> None:
    nulls = values.null_count - null_parents
    if nulls and not field.nullable:
        raise SchemaMismatchError(
            f"Cannot write a null into column '{path}', which is required in the table "
            f"({nulls} of {len(values)} rows here): filter or fill the nulls."
        )


def _check_nested(array: pa.Array, named: pa.DataType, path: str) -> None:
    """Check the required fields below `array`; one whose struct is null is not a null of its own."""
    if pa.types.is_struct(named):
        names = [field.name for field in array.type]
        for field in named:
            child = pc.struct_field(array, find_position(field.name, names))  # null where the struct is null
            _check_required(child, array.null_count, field, f"{path}.{field.name}")
            _check_nested(child, field.type, f"{path}.{field.name}")
    elif pa.types.is_list(named):
        elements = array.flatten()
        _check_required(elements, 0, named.value_field, f"{path}.element")
        _check_nested(elements, named.value_type, f"{path}.element")
    elif pa.types.is_map(named):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        items = array.items.slice(first, last - first)
        _check_required(items, 0, named.item_field, f"{path}.value")
        _check_nested(array.keys.slice(first, last - first), named.key_type, f"{path}.key")
        _check_nested(items, named.item_type, f"{path}.value")


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
