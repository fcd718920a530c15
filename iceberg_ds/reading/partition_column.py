"""Pure: the column `_partition` of a read: the partition of a row's file, alike for all partition specs of a table.

It is a struct with a field for each partition field that the table has ever had, by id; null where a file's spec does
not have it. Source: Iceberg spec, "Partition Evolution" and "Reserved Field IDs".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, StructType, UnknownType

from iceberg_ds.reading.spark_arrow import spark_values
from iceberg_ds.snapshots.manifest_file import layout_of
from iceberg_ds.table.arrow_schema import arrow_type
from iceberg_ds.table.partitioning import PartitionKey


def partition_type(metadata: TableMetadata) -> StructType:
    """Return the partition fields of all specs of a table, in the order of their ids; empty without any.

    A field has the name and the type of the newest spec in which it is not void. Of two fields with one name the older
    one has its id behind it.
    """
    found: dict[int, NestedField] = {}
    void: dict[int, NestedField] = {}
    for number in sorted(metadata.specs(), reverse=True):
        layout = layout_of(metadata, number)
        types = layout.spec.partition_type(Schema(*layout.sources)).fields
        for used, typed in zip(layout.spec.fields, types, strict=True):
            if not isinstance(typed.field_type, UnknownType):  # as of a column that no schema knows any more
                (void if isinstance(used.transform, VoidTransform) else found).setdefault(typed.field_id, typed)
    names: set[str] = set()
    fields = []
    for number, field in (found | {key: one for key, one in void.items() if key not in found}).items():
        name = field.name if field.name.lower() not in names else f"{field.name}_{number}"
        names.add(name.lower())
        fields.append(NestedField(number, name, field.field_type, required=False))
    return StructType(*sorted(fields, key=lambda one: one.field_id))


def partition_values(file: DataFile, specs: Mapping[int, PartitionSpec]) -> dict[int, object]:
    """Return the physical values of the partition of a file, by partition field id.

    Args:
        file: The file.
        specs: The table's partition specs, by spec id.
    """
    numbers = (field.field_id for field in specs[file.spec_id].fields)
    return dict(zip(numbers, PartitionKey.of(file.partition).values, strict=True))


def partitions_of(files: Sequence[DataFile], kind: StructType, specs: Mapping[int, PartitionSpec]) -> pa.Array:
    """Return the partition of each file, as Spark takes it.

    Args:
        files: The data files.
        kind: The type of the column.
        specs: The table's partition specs, by spec id.
    """
    found = [partition_values(file, specs) for file in files]
    columns = [pa.array([each.get(one.field_id) for each in found], _stored(one)) for one in kind.fields]
    structs = pa.StructArray.from_arrays(columns, names=[one.name for one in kind.fields])
    return spark_values(structs, kind)


def _stored(field: NestedField) -> pa.DataType:
    kind = arrow_type(field.field_type)
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
