"""Metadata tables, such as `db.events.snapshots`: what a table's metadata lists, as DataFrames.

The driver reads them, whole. Those of files and partitions are in `file_tables`, the others are PyIceberg's. Source:
Iceberg docs, "Spark Queries", "Inspecting tables".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.inspect import InspectTable
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.errors import DataFileError, IcebergSinkError, OptionError
from iceberg_ds.reading.file_tables import entries_table, files_table, partitions_table, position_deletes_table
from iceberg_ds.reading.scan import SnapshotChoice, plan_scan
from iceberg_ds.secrets import mask_text
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.spark.arrow_frame import arrow_frame
from iceberg_ds.table.names import identifier_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Tables of the files of one snapshot, and of all snapshots, by content; None for both contents.
_FILES: Mapping[str, ManifestContent | None] = {
    "files": None,
    "data_files": ManifestContent.DATA,
    "delete_files": ManifestContent.DELETES,
}
_ALL_FILES = {f"all_{name}": content for name, content in _FILES.items()}
_BY_PYICEBERG: Mapping[str, Callable[[InspectTable], pa.Table]] = {
    "snapshots": InspectTable.snapshots,
    "history": InspectTable.history,
    "refs": InspectTable.refs,
    "manifests": InspectTable.manifests,
    "metadata_log_entries": InspectTable.metadata_log_entries,
    "all_manifests": InspectTable.all_manifests,
}
_ENTRIES, _PARTITIONS, _POSITION_DELETES = "entries", "partitions", "position_deletes"
_OF_TABLE = frozenset({*_BY_PYICEBERG, *_ALL_FILES})
METADATA_TABLES = frozenset({*_OF_TABLE, *_FILES, _ENTRIES, _PARTITIONS, _POSITION_DELETES})


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
        snapshot = None if name in _OF_TABLE else choice.of(table.metadata)
    except ValueError as problem:
        raise OptionError(f"Cannot read {of}.{name}: {problem}.") from problem
    try:
        return arrow_frame(spark, _rows(of, table, name, choice, snapshot))
    except IcebergSinkError:
        raise
    except Exception as error:  # of any storage library
        reason = mask_text(f"{type(error).__name__}: {error}", table.io.properties)
        raise DataFileError(f"Cannot read {of}.{name}: {reason}.") from None


def _rows(of: str, table: Table, name: str, choice: SnapshotChoice, snapshot: Snapshot | None) -> pa.Table:
    metadata, io = table.metadata, table.io
    if name in _BY_PYICEBERG:
        return _in_utc(_BY_PYICEBERG[name](table.inspect))
    if name in _ALL_FILES:
        return files_table(metadata, io, metadata.snapshots, _ALL_FILES[name])
    if name in _FILES:
        return files_table(metadata, io, () if snapshot is None else (snapshot,), _FILES[name])
    if name == _ENTRIES:
        return entries_table(metadata, io, snapshot)
    if name == _PARTITIONS:
        return partitions_table(metadata, io, snapshot)
    plan = plan_scan(of, metadata, io, choice, where=None, case_sensitive=True, time_zone=None)
    return position_deletes_table(metadata, io, plan)


def _in_utc(rows: pa.Table) -> pa.Table:
    """Return the rows with the zone of their times, which PyIceberg leaves out."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type) and field.type.tz is None:
            rows = rows.set_column(number, field.name, pc.assume_timezone(rows.column(number), "UTC"))
    return rows
