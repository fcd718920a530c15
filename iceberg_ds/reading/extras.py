"""Pure: columns of a read beside those of the table: where a row is, its lineage, and what became of it in a change."""

from __future__ import annotations

from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType, TimestamptzType

from iceberg_ds.reading.scan_task import ScanTask
from iceberg_ds.table.lineage import LINEAGE

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
