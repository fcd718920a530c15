"""Pure: values of a table's columns, as files have them, as the Arrow values that Spark takes from a Python source."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, StructType, TimeType, UUIDType

from iceberg_ds.table.arrow_schema import arrow_type
from iceberg_ds.table.nested_arrow import split_lists, split_maps
from iceberg_ds.table.variant import SPARK_VARIANT, VariantType, as_variants


def spark_values(values: pa.Array, kind: IcebergType) -> pa.Array:  # noqa: PLR0911  # one a kind
    """Return values in the Arrow type of `spark_types.spark_type`: uuid and time as text, fixed as binary.

    Args:
        values: Values as a file has them, projected to the table's fields; of the type, or of one it was widened from.
        kind: The type in the table.

    Raises:
        pyarrow.ArrowInvalid: They are of another type.
    """
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    mask = values.is_null() if values.null_count and pa.types.is_nested(values.type) else None
    match kind:
        case StructType(fields=fields) if pa.types.is_struct(values.type):
            inside = [
                spark_values(pc.struct_field(values, number), field.field_type) for number, field in enumerate(fields)
            ]
            return pa.StructArray.from_arrays(inside, names=[field.name for field in fields], mask=mask)
        case ListType(element_type=element) if len(values) and not pa.types.is_null(values.type):
            offsets, elements = split_lists(values)
            return pa.ListArray.from_arrays(
                offsets, spark_values(elements, element), type=spark_arrow_type(kind), mask=mask
            )
        case MapType(key_type=key, value_type=value) if len(values) and not pa.types.is_null(values.type):
            offsets, keys, items = split_maps(values)
            return pa.MapArray.from_arrays(
                offsets, spark_values(keys, key), spark_values(items, value), type=spark_arrow_type(kind), mask=mask
            )
        case VariantType():
            return as_variants(values, SPARK_VARIANT)
        case UUIDType():
            return pa.array(
                [None if raw is None else str(uuid.UUID(bytes=raw)) for raw in values.to_pylist()], pa.string()
            )
        case TimeType():
            return values.cast(pa.time64("us")).cast(pa.string())
    return values.cast(spark_arrow_type(kind))


def spark_arrow_type(kind: IcebergType) -> pa.DataType:  # noqa: PLR0911  # one a kind
    """Return the Arrow type of the values that `spark_values` returns."""
    match kind:
        case StructType(fields=fields):
            return pa.struct([pa.field(field.name, spark_arrow_type(field.field_type)) for field in fields])
        case ListType(element_type=element, element_required=is_required):
            return pa.list_(pa.field("element", spark_arrow_type(element), nullable=not is_required))
        case MapType(key_type=key, value_type=value, value_required=is_required):
            return pa.map_(spark_arrow_type(key), pa.field("value", spark_arrow_type(value), nullable=not is_required))
        case UUIDType() | TimeType():
            return pa.string()
        case FixedType():
            return pa.binary()
        case VariantType():
            return SPARK_VARIANT
    return arrow_type(kind)
