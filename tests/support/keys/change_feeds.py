"""Runs a change feed through the package's decisions, as tasks and the commit do, on tables that are dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType

from iceberg_ds.cdc.cross_task import CrossTaskDuplicates, ReadKeys, file_positions, find_duplicates
from iceberg_ds.cdc.keys import plain
from iceberg_ds.cdc.task_changes import TaskChanges
from iceberg_ds.plan import AddedColumns, ChangeFeed, DeleteMark, TaskKeys
from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.writers.spill import ExternalSort, Spool

Row = dict[str, Any]
Key = tuple[Any, ...]

SEED = b"8 bytes."
KEYS = ("id", "region")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=True),
    NestedField(3, "amount", IntegerType(), required=True),
    NestedField(4, "digest", StringType()),  # as a column of key reports is called, too
    identifier_field_ids=[1, 2],
)
SENT = pa.schema(
    [
        pa.field("op", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("region", pa.string()),
        pa.field("amount", pa.int32()),
        pa.field("digest", pa.string()),
        pa.field("lsn", pa.int64()),
        pa.field("part", pa.float64()),
    ]
)
SEQUENCE = (NestedField(6, "lsn", LongType()),)
# The same with columns that tasks fill in: deletes leave rows that the first one marks.
MARKED = Schema(
    *SCHEMA.fields,
    NestedField(5, "gone", BooleanType(), required=True),
    NestedField(6, "_operation", StringType()),
    identifier_field_ids=[1, 2],
)
ADDED = AddedColumns(names=("_operation",), instant_us=1_700_000_000_000_000, mark=DeleteMark(column="gone"))


def feed(**changed: Any) -> ChangeFeed:
    """Return a feed with operations and a sequence."""
    return ChangeFeed(**{"key_ids": (1, 2), "sequence": SEQUENCE, "operation_column": "op", **changed})


def sent(rows: Sequence[Row], schema: pa.Schema = SENT) -> pa.RecordBatch:
    """Return rows as Spark would send them."""
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutput:
    """What a task would have written."""

    files: list[list[Row]]
    deleted: set[Key]
    report: TaskKeys

    @property
    def rows(self) -> list[Row]:
        """All rows of its files."""
        return [row for file in self.files for row in file]


def key_reader(outputs: Sequence[TaskOutput], schema: Schema = SCHEMA) -> ReadKeys:
    """Return what reads the keys of written rows, as the commit does from files."""
    types = file_shape(schema).schema

    def read(task: int, rows: Sequence[int]) -> list[pa.Array]:
        written = outputs[task].rows
        return [plain(pa.array([written[row][name] for row in rows], types.field(name).type)) for name in KEYS]

    return read


def run_task(  # noqa: PLR0913  # most are given by name
    change_feed: ChangeFeed,
    batches: Sequence[pa.RecordBatch],
    *,
    partition_id: int = 0,
    schema: Schema = SCHEMA,
    file_rows: int = 3,
    is_delete: Callable[[pa.RecordBatch], pa.Array] | None = None,
    added: AddedColumns | None = None,
) -> TaskOutput:
    """Return what a task makes of its batches, in files of `file_rows` rows."""
    changes = TaskChanges(
        change_feed,
        schema,
        case_sensitive=None,
        partition_id=partition_id,
        seed=SEED,
        sorter=ExternalSort,
        spool=Spool,
        is_delete=is_delete,
        added=added,
    )
    for batch in batches:
        changes.add(batch)
    deleted = {tuple(key.values()) for keys in changes.keys_to_delete() for key in keys.to_pylist()}
    written = list(changes.rows())
    width = len(schema.fields)
    names = [field.name for field in schema.fields]
    rows = [
        dict(zip(names, values, strict=True))
        for batch in written
        for values in zip(*(column.to_pylist() for column in batch.columns[:width]), strict=True)
    ]
    hidden = [pa.RecordBatch.from_arrays(batch.columns[width:], names=batch.schema.names[width:]) for batch in written]
    report = changes.report(hidden)
    changes.close()
    files = [rows[start : start + file_rows] for start in range(0, len(rows), file_rows)]
    return TaskOutput(files=files, deleted=deleted, report=report)


def commit(
    table: Mapping[Key, Row], change_feed: ChangeFeed, outputs: Sequence[TaskOutput]
) -> tuple[list[Row], CrossTaskDuplicates]:
    """Return the rows of the table after a commit of the outputs, and what their reports came to."""
    duplicates = find_duplicates(
        [output.report for output in outputs],
        change_feed.sequence,
        read_keys=key_reader(outputs),
        is_enforced=change_feed.is_enforced,
        keeps_deleted=change_feed.keeps_deleted,
    )
    deleted = set().union(*(output.deleted for output in outputs))
    rows = [row for key, row in table.items() if key not in deleted]
    for number, output in enumerate(outputs):
        hidden = file_positions(duplicates.losers.get(number, ()), [len(file) for file in output.files])
        for file_number, file in enumerate(output.files):
            lost = hidden.get(file_number, [])
            rows += [row for position, row in enumerate(file) if position not in lost]
    return rows, duplicates
