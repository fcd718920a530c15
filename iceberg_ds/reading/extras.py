"""Pure: columns of a read beside those of the table: where a row is, its lineage, and what became of it in a change.

`_partition` is the partition of a row's file, alike for all partition specs of a table: a struct with a field for each
partition field that the table has ever had, by id; null where a file's spec does not have it. Source: Iceberg spec,
"Partition Evolution" and "Reserved Field IDs".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType, UnknownType

from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.reading.spark_arrow import spark_values
from iceberg_ds.snapshots.manifest_file import layout_of
from iceberg_ds.table.arrow_schema import arrow_type
from iceberg_ds.table.lineage import LINEAGE
from iceberg_ds.table.partitioning import PartitionKey

POS, PARTITION = "_pos", "_partition"
CHANGE_TYPE, CHANGE_ORDINAL = "_change_type", "_change_ordinal"
COMMIT_SNAPSHOT_ID, COMMIT_TIMESTAMP = "_commit_snapshot_id", "_commit_timestamp"
# What became of a row, as words of `_change_type`.
INSERT, DELETE = "INSERT", "DELETE"
UPDATE_BEFORE, UPDATE_AFTER = "UPDATE_BEFORE", "UPDATE_AFTER"
# Of a read of changes alone. Iceberg's Spark runtime names them so in its view of changes, and Spark the last one.
CHANGE_COLUMNS = (CHANGE_TYPE, CHANGE_ORDINAL, COMMIT_SNAPSHOT_ID, COMMIT_TIMESTAMP)
# Spec, "Reserved Field IDs", which has none for the last one.
EXTRAS = {
    field.name: field
    for field in (
        NestedField(2147483646, "_file", StringType(), required=False),
        NestedField(2147483645, POS, LongType(), required=False),
        NestedField(2147483643, "_spec_id", IntegerType(), required=False),
        NestedField(2147483642, PARTITION, StructType(), required=False),  # the type is the table's
        NestedField(2147483543, CHANGE_TYPE, StringType(), required=False),
        NestedField(2147483542, CHANGE_ORDINAL, IntegerType(), required=False),
        NestedField(2147483541, COMMIT_SNAPSHOT_ID, LongType(), required=False),
        *LINEAGE.values(),
        NestedField(2147483448, COMMIT_TIMESTAMP, TimestamptzType(), required=False),
    )
}


def extra_field(name: str, partition: StructType) -> NestedField:
    """Return a column by its name.

    Args:
        name: Its name.
        partition: The type of `_partition` in the table.
    """
    field = EXTRAS[name]
    if name != PARTITION:
        return field
    return NestedField(field.field_id, name, partition, required=False)


def extra_value(name: str, task: ScanTask) -> str | int:
    """Return what all rows of a data file have in a column that is neither `_pos` nor `_partition` nor of the lineage.

    A time is in microseconds.

    Raises:
        KeyError: The column is none of this read.
    """
    values: dict[str, str | int] = {"_file": task.work.path, "_spec_id": task.data_file.spec_id}
    change = task.change
    if change is not None:
        values |= {
            CHANGE_TYPE: change.kind,
            CHANGE_ORDINAL: change.ordinal,
            COMMIT_SNAPSHOT_ID: change.snapshot_id,
            COMMIT_TIMESTAMP: change.timestamp_ms * 1000,
        }
    return values[name]


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
