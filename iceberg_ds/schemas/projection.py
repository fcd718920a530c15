"""Pure: rows of a file, written by any schema that the table has had, in the columns that it has now.

Fields are matched by id at any depth; what the file does not have is null. Values keep the types of the file.
Source: Iceberg spec, "Column Projection".
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from iceberg_ds.schemas.nesting import split_lists, split_maps

_FIELD_ID = b"PARQUET:field_id"


def has_field_ids(file_schema: pa.Schema) -> bool:
    """Return whether every field of a file, at any depth, says which field of a table it is."""
    return all(_has_ids(field) for field in file_schema)


def _has_ids(field: pa.Field) -> bool:
    data_type = field.type
    if field_id(field) is None:
        return False
    if pa.types.is_map(data_type):
        return _has_ids(data_type.key_field) and _has_ids(data_type.item_field)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return _has_ids(data_type.value_field)
    return not pa.types.is_struct(data_type) or all(_has_ids(child) for child in data_type)


def field_id(field: pa.Field) -> int | None:
    """Return which field of a table a column of a file is, None if it does not say so."""
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def project(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return the rows of a file with the names and the order of the columns of `schema`.

    Args:
        batch: Rows as the file has them, with field ids.
        schema: The table's schema.
    """
    columns = _project_fields(list(batch.schema), batch.columns, schema.fields, batch.num_rows)
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in schema.fields])


def _project_fields(
    own: Sequence[pa.Field], values: Sequence[pa.Array], wanted: Sequence[NestedField], length: int
) -> list[pa.Array]:
    by_id = {field_id(field): array for field, array in zip(own, values, strict=True)}
    return [
        _project_values(by_id[field.field_id], field.field_type) if field.field_id in by_id else pa.nulls(length)
        for field in wanted
    ]


def _project_values(values: pa.Array, wanted: IcebergType) -> pa.Array:
    mask = values.is_null()
    match wanted:
        case StructType():
            own = list(values.type)
            inside = [pc.struct_field(values, position) for position in range(len(own))]
            children = _project_fields(own, inside, wanted.fields, len(values))
            return pa.StructArray.from_arrays(children, names=[field.name for field in wanted.fields], mask=mask)
        case ListType():
            offsets, elements = split_lists(values)
            return pa.ListArray.from_arrays(offsets, _project_values(elements, wanted.element_type), mask=mask)
        case MapType():
            offsets, keys, items = split_maps(values)
            return pa.MapArray.from_arrays(
                offsets,
                _project_values(keys, wanted.key_type),
                _project_values(items, wanted.value_type),
                mask=mask,
            )
    return values
