"""Tasks of writes by keys without planning: their plans, and what stands in the files that they write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from support.keys.change_feeds import SCHEMA, Key, Row, TaskOutput, feed
from support.tables.sink import local

from iceberg_ds.plan import ChangeFeed, FileSettings, Route, WriteIdentity, WritePlan
from iceberg_ds.writers.keyed import KeyedFiles, write_keyed_task
from iceberg_ds.writers.task_writer import TaskAttempt

GLOBAL = PartitionSpec(spec_id=0)
BY_KEY = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "id_bucket"), spec_id=1)
BY_AMOUNT = PartitionSpec(PartitionField(3, 1001, TruncateTransform(5), "amount_trunc"), spec_id=2)
LARGEST_FIRST = SortOrder(SortField(3, IdentityTransform(), SortDirection.DESC))
# Every way in which rows come into files.
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned by key": {"spec": BY_KEY, "delete_spec": BY_KEY},
    "partitioned by another column": {"spec": BY_AMOUNT, "delete_spec": GLOBAL},
    "sorted": {"sort_order": LARGEST_FIRST},
    "partitioned and sorted": {"spec": BY_KEY, "delete_spec": BY_KEY, "sort_order": LARGEST_FIRST},
    "one file open": {"spec": BY_AMOUNT, "delete_spec": GLOBAL, "max_open_files": 1},
    "a file for each row": {"target_file_size_bytes": 1},
}

_attempts = count()


def keyed_plan(folder: Path, change_feed: ChangeFeed | None = None, **changed: Any) -> WritePlan:
    """Return the plan of a write by keys below `folder`; `changed` are fields of the plan or of its file settings."""
    settings = {key: changed.pop(key) for key in list(changed) if key in FileSettings.__slots__}
    files = {
        "target_file_size_bytes": 2**29,
        "compression_codec": "zstd",
        "compression_level": None,
        "metrics_properties": {},
        **settings,
    }
    plan = WritePlan(
        write=WriteIdentity(
            table="db.t",
            table_uuid="",
            route=Route(branch="main"),
            operation_id="op",
            snapshot_id=1,
            schema_id=0,
            files=FileSettings(**files),
            changes=change_feed or feed(),
            delete_spec_id=GLOBAL.spec_id,
        ),
        schema=SCHEMA,
        spec=GLOBAL,
        location=f"file://{folder}",
        properties={},
        io_properties={},
        delete_spec=GLOBAL,
    )
    identity = {key: changed.pop(key) for key in list(changed) if key in WriteIdentity.__slots__}
    return replace(plan, write=replace(plan.write, **identity), **changed)


def write(plan: WritePlan, batches: Sequence[pa.RecordBatch], partition_id: int = 0) -> KeyedFiles:
    """Run one task attempt."""
    return write_keyed_task(plan, batches, TaskAttempt(partition_id=partition_id, task_attempt_id=next(_attempts)))


def rows_in(files: Sequence[DataFile], schema: Schema = SCHEMA) -> list[list[Row]]:
    """Return the rows of each file, in their order, by the names of the table's columns."""
    names = [field.name for field in schema.fields]
    tables = [pq.read_table(local(file.file_path), partitioning=None) for file in files]
    return [table.rename_columns(names).to_pylist() for table in tables]


def keys_in(files: Sequence[DataFile]) -> list[Key]:
    """Return the keys that files delete, in their order."""
    tables = [pq.read_table(local(file.file_path), partitioning=None) for file in files]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def output_of(written: KeyedFiles, schema: Schema = SCHEMA) -> TaskOutput:
    """Return what a task wrote, read from its files."""
    deleted = keys_in(written.delete_files)
    assert len(set(deleted)) == len(deleted)
    return TaskOutput(files=rows_in(written.data_files, schema), deleted=set(deleted), report=written.keys)


def stored(folder: Path) -> list[str]:
    """Return the names of all Parquet files below `folder`."""
    return sorted(path.name for path in folder.rglob("*.parquet"))
