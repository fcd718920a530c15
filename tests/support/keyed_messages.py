"""What tasks of a write by keys report, without any such task: messages that name files of deletes, too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.tables import Sink, arrow_batch, local

from iceberg_ds.changes.task_changes import TaskChanges
from iceberg_ds.changes.values import ChangeFeed, TaskKeys
from iceberg_ds.layouts.partitioning import PartitionSplitter
from iceberg_ds.messages import TaskCommit, WriteIdentity
from iceberg_ds.plan import EpochId, WritePlan
from iceberg_ds.schemas.leaves import leaf_columns
from iceberg_ds.writing.external_sort import ExternalSort
from iceberg_ds.writing.parquet import ParquetFile

FEED = ChangeFeed(key_ids=(1,))
NO_KEYS = TaskKeys(count=0, modulus=0)
_IO = PyArrowFileIO()
_numbers = count()


def by_keys(plan: WritePlan) -> WritePlan:
    """Return the plan of the same rows by key `id`, the table's first column."""
    return replace(plan, changes=FEED, delete_spec=plan.spec)


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


# What follows are messages of whole writes by keys: rows, keys to delete and evidence are what tasks make of a feed.

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
    return replace(plan, changes=feed or events_feed(), delete_spec=delete_spec or plan.spec)


def keyed_tasks(
    plan: WritePlan, *parts: Sequence[Event], of_epoch: EpochId | None = None, file_rows: int = 1000
) -> list[TaskCommit]:
    """Run one task for each of `parts`, which writes files of `file_rows` rows, and return what the tasks report.

    An event is the operation, `id`, `region`, `amount` and `lsn`.
    """
    identity = WriteIdentity.of(plan, of_epoch)
    return [_keyed_task(plan, identity, number, part, file_rows) for number, part in enumerate(parts)]


def _keyed_task(
    plan: WritePlan, identity: WriteIdentity, number: int, part: Sequence[Event], file_rows: int
) -> TaskCommit:
    assert plan.changes is not None
    changes = TaskChanges(
        plan.changes,
        plan.schema,
        case_sensitive=None,
        partition_id=number,
        seed=uuid.UUID(plan.operation_id).bytes,
        sorter=ExternalSort,
    )
    names = ("op", "id", "region", "amount", "lsn")
    changes.add(arrow_batch([dict(zip(names, event, strict=True)) for event in part], SENT))
    keys = list(changes.keys_to_delete())
    rows = list(changes.rows())
    data_files, hidden = _write_rows(plan, number, rows, file_rows)
    report = changes.report(hidden)
    changes.close()
    delete_files = _write_keys(plan, number, keys, changes.key_schema)
    return TaskCommit(identity, number, tuple(data_files), delete_files=tuple(delete_files), keys=report)


def _write_rows(
    plan: WritePlan, number: int, rows: Sequence[pa.RecordBatch], file_rows: int
) -> tuple[list[DataFile], list[pa.RecordBatch]]:
    """Write the table's columns, and return the files with the other columns in the order of their rows."""
    width, files, hidden = len(plan.schema.fields), [], []
    for partition, part in _split(plan.spec, plan.schema, rows):
        for start in range(0, part.num_rows, file_rows):
            portion = part.slice(start, file_rows)
            columns = range(width), range(width, portion.num_columns)
            written, rest = (portion.select(list(chosen)) for chosen in columns)
            files.append(_write(plan, f"{number:05d}-{next(_numbers)}", plan.schema, written, (partition, plan.spec)))
            hidden.append(rest)
    return files, hidden


def _write_keys(plan: WritePlan, number: int, keys: Sequence[pa.RecordBatch], schema: pa.Schema) -> Iterator[DataFile]:
    assert plan.changes is not None
    assert plan.delete_spec is not None
    key_schema = Schema(*(plan.schema.find_field(key_id) for key_id in plan.changes.key_ids))
    for partition, part in _split(plan.delete_spec, key_schema, keys):
        name = f"{number:05d}-{next(_numbers)}-deletes"
        rows = pa.RecordBatch.from_arrays(part.columns, schema=schema)
        written = _write(plan, name, key_schema, rows, (partition, plan.delete_spec))
        yield equality_deletes(written, plan.changes.key_ids)


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


def _split(
    spec: PartitionSpec, schema: Schema, batches: Sequence[pa.RecordBatch]
) -> Iterator[tuple[Record, pa.RecordBatch]]:
    if not batches:
        return
    (rows,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if spec.is_unpartitioned():
        yield Record(), rows
    else:
        for key, part in PartitionSplitter(spec, schema).split(rows):
            yield key.record(), part


def _write(
    plan: WritePlan, name: str, schema: Schema, rows: pa.RecordBatch, place: tuple[Record, PartitionSpec]
) -> DataFile:
    path = f"{plan.location}/data/{name}-{plan.operation_id}.parquet"
    partition, spec = place
    file = ParquetFile(_IO, path, rows.schema, leaf_columns(schema, {}), plan.files)
    file.write_row_group([rows])
    return file.close(partition, spec.spec_id)
