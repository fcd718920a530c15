"""What tasks of a write by keys report, without any such task: messages that name files of deletes, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.tables.sink import Sink, arrow_batch, local

from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import ChangeFeed, EpochId, TaskKeys, WriteIdentity, WritePlan
from iceberg_ds.writers.keyed import report_keyed_task
from iceberg_ds.writers.task_writer import TaskAttempt

FEED = ChangeFeed(key_ids=(1,))
NO_KEYS = TaskKeys(count=0, modulus=0)
_numbers = count()


def reading_changes(plan: WritePlan, feed: ChangeFeed, spec: PartitionSpec) -> WritePlan:
    """Return the plan of a write by keys, whose deletes are of a partition spec."""
    return replace(plan, write=replace(plan.write, changes=feed, delete_spec_id=spec.spec_id), delete_spec=spec)


def by_keys(plan: WritePlan) -> WritePlan:
    """Return the plan of the same rows by key `id`, the table's first column."""
    return reading_changes(plan, FEED, plan.spec)


def with_deletes(message: TaskCommit) -> TaskCommit:
    """Return the message of a task that wrote a file of deletes as well; the file is there."""
    path = f"{message.data_files[0].file_path}-deletes.parquet"
    local(path).write_bytes(b"deletes")
    delete_file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=message.data_files[0].partition,
        record_count=4,
        file_size_in_bytes=7,
        equality_ids=list(FEED.key_ids),
    )
    delete_file.spec_id = message.data_files[0].spec_id
    write = keyed_identity(message.write)
    return replace(message, write=write, delete_files=(delete_file,), keys=NO_KEYS)


def keyed_identity(write: WriteIdentity) -> WriteIdentity:
    """Return the same write, by keys."""
    return replace(write, changes=FEED, delete_spec_id=0)


# What follows are messages of whole writes by keys: rows, keys to delete and key reports are what tasks make of a feed.

KEYED_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=True),
    NestedField(3, "amount", LongType()),
    identifier_field_ids=[1],
)
# The columns that are written, and those that tell how.
COLUMNS = StructType(
    [
        StructField("id", spark.LongType(), nullable=False),
        StructField("region", spark.StringType(), nullable=False),
        StructField("amount", spark.LongType()),
    ]
)
SENT = StructType([*COLUMNS, StructField("op", spark.StringType()), StructField("lsn", spark.LongType())])
SEQUENCE = (NestedField(5, "lsn", LongType()),)

Event = tuple[str, int, str, int | None, int]


def events_feed(**changed: Any) -> ChangeFeed:
    """Return a feed of `SENT` by key `id`, with operations and a sequence."""
    return ChangeFeed(**{"key_ids": (1,), "sequence": SEQUENCE, "operation_column": "op", **changed})


def plan_by_keys(
    sink: Sink, feed: ChangeFeed | None = None, *, delete_spec: PartitionSpec | None = None, **options: Any
) -> WritePlan:
    """Plan a write by keys into a table of `KEYED_SCHEMA`; deletes have the spec of rows if not told otherwise."""
    plan = sink.plan(COLUMNS, **options)
    return reading_changes(plan, feed or events_feed(), delete_spec or plan.spec)


def keyed_tasks(plan: WritePlan, *parts: Sequence[Event], of_epoch: EpochId | None = None) -> list[TaskCommit]:
    """Run one task for each of `parts`, and return what the tasks report.

    An event is the operation, `id`, `region`, `amount` and `lsn`.
    """
    return [keyed_task(plan, number, _batch(part), of_epoch) for number, part in enumerate(parts)]


def _batch(part: Sequence[Event]) -> pa.RecordBatch:
    names = ("op", "id", "region", "amount", "lsn")
    return arrow_batch([dict(zip(names, event, strict=True)) for event in part], SENT)


def keyed_task(plan: WritePlan, number: int, batch: pa.RecordBatch, of_epoch: EpochId | None) -> TaskCommit:
    """Run a task with these rows, and return what it reports."""
    attempt = TaskAttempt(partition_id=number, task_attempt_id=next(_numbers))
    return report_keyed_task(plan.in_epoch(of_epoch), [batch], attempt)


def equality_deletes(written: DataFile, key_ids: Sequence[int]) -> DataFile:
    """Return the entry of a file of keys as one of equality deletes."""
    found = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=written.file_path,
        file_format=FileFormat.PARQUET,
        partition=written.partition,
        record_count=written.record_count,
        file_size_in_bytes=written.file_size_in_bytes,
        lower_bounds=written.lower_bounds,
        upper_bounds=written.upper_bounds,
        equality_ids=list(key_ids),
    )
    found.spec_id = written.spec_id
    return found
