"""Pure: rows of a file, written with any schema that the table has had, in the table's current columns.

Fields are matched by id at any depth. A column that the file lacks has the value of its identity partition field, else
its initial default, else null. Values keep the types of the file. Source: Iceberg spec, "Column Projection".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UnknownType

from iceberg_ds.table.arrow_schema import repeated
from iceberg_ds.table.defaults import physical
from iceberg_ds.table.nested_arrow import split_lists, split_maps
from iceberg_ds.table.nested_fields import FIELD_ID_KEY
from iceberg_ds.table.variant import VariantType, as_variants

NO_VALUES: Mapping[int, object] = {}


def field_id(field: pa.Field) -> int | None:
    """Return the field id of a file's column, or None."""
    text = (field.metadata or {}).get(FIELD_ID_KEY)
    return None if text is None else int(text)


def absent(number: int, kind: IcebergType, partition_values: Mapping[int, object], count: int) -> pa.Array:
    """Return the values of a column that a file does not have.

    Args:
        number: The column's field id.
        kind: Its type in the table.
        partition_values: The physical values of the file's identity partition fields, by the ids of their columns.
        count: How many rows there are.
    """
    return repeated(partition_values.get(number), kind, count)


def project(
    batch: pa.RecordBatch, schema: Schema, partition_values: Mapping[int, object] = NO_VALUES
) -> pa.RecordBatch:
    """Return the rows of a file with the names and the order of the columns of `schema`.

    Args:
        batch: Rows as the file has them, with field ids.
        schema: The table's schema.
        partition_values: The physical values of the file's identity partition fields, by the ids of their columns.
    """
    columns = _Projection(partition_values).fields(list(batch.schema), batch.columns, schema.fields, batch.num_rows)
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in schema.fields])


class _Projection:
    def __init__(self, partition_values: Mapping[int, object]) -> None:
        self._partition_values = partition_values

    def fields(
        self, own: Sequence[pa.Field], values: Sequence[pa.Array], wanted: Sequence[NestedField], length: int
    ) -> list[pa.Array]:
        by_id = {field_id(field): array for field, array in zip(own, values, strict=True)}
        return [
            self._values(by_id[field.field_id], field.field_type)
            if field.field_id in by_id
            else self._absent(field, length)
            for field in wanted
        ]

    def _absent(self, field: NestedField, length: int) -> pa.Array:
        if field.field_id in self._partition_values:
            return absent(field.field_id, field.field_type, self._partition_values, length)
        return repeated(physical(field.initial_default), field.field_type, length)

    def _values(self, values: pa.Array, wanted: IcebergType) -> pa.Array:
        mask = values.is_null()
        match wanted:
            case VariantType():
                return as_variants(values)
            case UnknownType():
                return pa.nulls(len(values))  # other writers store such columns
            case StructType():
                own = list(values.type)
                inside = [pc.struct_field(values, position) for position in range(len(own))]
                children = self.fields(own, inside, wanted.fields, len(values))
                return pa.StructArray.from_arrays(children, names=[field.name for field in wanted.fields], mask=mask)
            case ListType():
                offsets, elements = split_lists(values)
                return pa.ListArray.from_arrays(offsets, self._values(elements, wanted.element_type), mask=mask)
            case MapType():
                offsets, keys, items = split_maps(values)
                return pa.MapArray.from_arrays(
                    offsets,
                    self._values(keys, wanted.key_type),
                    self._values(items, wanted.value_type),
                    mask=mask,
                )
        return values
