"""Metadata tables, such as `db.events.snapshots`: what a table's metadata lists, as DataFrames.

The driver reads them, whole. All but two are those of PyIceberg: it has no `position_deletes`, and its `entries` fail
on files without metrics, such as deletion vectors. Source: Iceberg docs, "Spark Queries", "Inspecting tables".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.errors import DataFileError, IcebergSinkError, OptionError
from iceberg_ds.reading.deleted_rows import listed_positions
from iceberg_ds.reading.scan import SnapshotChoice, plan_scan
from iceberg_ds.secrets import mask_text
from iceberg_ds.snapshots.manifests import all_entries
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.snapshots.version_3 import referenced_data_file
from iceberg_ds.spark.arrow_frame import arrow_frame
from iceberg_ds.table.names import identifier_text
from iceberg_ds.table.variant import holds_variant, variant_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of one snapshot, or of the whole table.
_OF_SNAPSHOT: Mapping[str, Callable[[InspectTable, int | None], pa.Table]] = {
    "files": InspectTable.files,
    "data_files": InspectTable.data_files,
    "delete_files": InspectTable.delete_files,
    "partitions": InspectTable.partitions,
}
_OF_TABLE: Mapping[str, Callable[[InspectTable], pa.Table]] = {
    "snapshots": InspectTable.snapshots,
    "history": InspectTable.history,
    "refs": InspectTable.refs,
    "manifests": InspectTable.manifests,
    "metadata_log_entries": InspectTable.metadata_log_entries,
    "all_data_files": InspectTable.all_data_files,
    "all_delete_files": InspectTable.all_delete_files,
    "all_files": InspectTable.all_files,
    "all_manifests": InspectTable.all_manifests,
}
_ENTRIES, _POSITION_DELETES = "entries", "position_deletes"
METADATA_TABLES = frozenset({*_OF_SNAPSHOT, *_OF_TABLE, _ENTRIES, _POSITION_DELETES})
_FILE = pa.struct(
    [
        ("content", pa.int32()),
        ("file_path", pa.string()),
        ("file_format", pa.string()),
        ("spec_id", pa.int32()),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("equality_ids", pa.list_(pa.int32())),
        ("sort_order_id", pa.int32()),
        ("referenced_data_file", pa.string()),
    ]
)
_ENTRY = pa.schema(
    [
        ("status", pa.int32()),
        ("snapshot_id", pa.int64()),
        ("sequence_number", pa.int64()),
        ("file_sequence_number", pa.int64()),
        ("data_file", _FILE),
    ]
)


def metadata_frame(spark: SparkSession, table: Table, name: str, choice: SnapshotChoice) -> DataFrame:
    """Return a metadata table.

    Args:
        spark: The session.
        table: The table.
        name: Name of the metadata table, one of `METADATA_TABLES`.
        choice: The snapshot that it is to tell of.

    Raises:
        OptionError: There is no such snapshot, or a snapshot is named for what tells of the whole table.
        UnsupportedTableError: The table has files that cannot be read.
        DataFileError: Manifests or delete files cannot be read.
    """
    of = identifier_text(table.name())
    if name in _OF_TABLE and choice not in {SnapshotChoice(), SnapshotChoice(branch=MAIN_BRANCH)}:
        raise OptionError(
            f"Cannot read {of}.{name} of one snapshot: it tells of the whole table. Leave out which snapshot to read."
        )
    try:
        return arrow_frame(spark, _in_utc(_rows(of, table, name, choice)))
    except IcebergSinkError:
        raise
    except ValueError as problem:
        raise OptionError(f"Cannot read {of}.{name}: {problem}.") from problem
    except Exception as error:  # of any storage library
        reason = mask_text(f"{type(error).__name__}: {error}", table.io.properties)
        raise DataFileError(f"Cannot read {of}.{name}: {reason}.") from None


def _rows(of: str, table: Table, name: str, choice: SnapshotChoice) -> pa.Table:
    if name in _OF_TABLE:
        return _OF_TABLE[name](_without_variants(table).inspect)
    if name in _OF_SNAPSHOT:
        snapshot = choice.of(table.metadata)
        return _OF_SNAPSHOT[name](_without_variants(table).inspect, None if snapshot is None else snapshot.snapshot_id)
    if name == _ENTRIES:
        return _entries(table, choice.of(table.metadata))
    plan = plan_scan(of, table.metadata, table.io, choice, where=None, case_sensitive=True, time_zone=None)
    return listed_positions(table.io, plan.tasks)


def _without_variants(table: Table) -> Table:
    """Return a table for PyIceberg's metadata tables, which do not know variants; columns with one have no metrics."""
    if not any(map(variant_ids, table.metadata.schemas)):
        return table
    schemas = [
        Schema(
            *(field for field in schema.fields if not holds_variant(field.field_type)),
            schema_id=schema.schema_id,
            identifier_field_ids=schema.identifier_field_ids,
        )
        for schema in table.metadata.schemas
    ]
    metadata = table.metadata.model_copy(update={"schemas": schemas})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def _in_utc(rows: pa.Table) -> pa.Table:
    """Return the rows with the zone of their times, which PyIceberg leaves out."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            rows = rows.set_column(number, field.name, pc.assume_timezone(rows.column(number), "UTC"))
    return rows


def _entries(table: Table, snapshot: Snapshot | None) -> pa.Table:
    """Return the entries of all manifests of a snapshot, those of files that it removed among them."""
    rows = []
    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        for entry in all_entries(table.io, manifest):
            file = entry.data_file
            described = {name: getattr(file, name, None) for name in (field.name for field in _FILE)}
            described["content"], described["file_format"] = int(file.content), file.file_format.value
            described["referenced_data_file"] = referenced_data_file(file)
            numbers = {name: getattr(entry, name) for name in _ENTRY.names[1:4]}
            rows.append({"status": int(entry.status), **numbers, "data_file": described})
    return pa.Table.from_pylist(rows, schema=_ENTRY)
