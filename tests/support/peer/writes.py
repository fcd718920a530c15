"""Writes into a `PeerTable` by key and in steps, rows as tuples, and what is in the table then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFileContent
from pyspark.sql.types import StructType
from support.checks.reader import listed, rows_of
from support.peer.tables import PeerTable
from support.tables.sink import Sink, epoch

import iceberg_ds
from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.deletes.upsert import UpsertCommit, UpsertResult
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import WritePlan
from iceberg_ds.planning.plan_write import WriteMode

# Values in the order of columns.
Values = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A write whose tasks have ended, and that is not committed."""

    sink: Sink
    plan: WritePlan
    messages: list[TaskCommit]

    def commit(self) -> CommitResult:
        """Commit it."""
        return self.sink.commit(self.messages)


def tasks(
    table: PeerTable,
    schema: StructType,
    *parts: Sequence[Values],
    mode: WriteMode = WriteMode.APPEND,
    of_epoch: int | None = None,
    query: str | None = None,
    **options: str,
) -> Written:
    """Plan a write with these options, and run a task for each of `parts`; `_` in a name is `-`.

    Tasks write their own files, however few rows they have: some cases are about files.
    """
    own_files = {} if "keys" in options else {"small_task_size_bytes": "0"}
    sink = sink_of(table, **own_files, **options)
    plan = sink.plan(schema, mode, is_stream=of_epoch is not None)
    of = None if of_epoch is None else epoch(of_epoch, query) if query else epoch(of_epoch)
    sent = [[dict(zip(schema.names, row, strict=True)) for row in part] for part in parts]
    return Written(sink=sink, plan=plan, messages=sink.hand_over(*sent, schema=schema, plan=plan, of_epoch=of))


def put(table: PeerTable, schema: StructType, *parts: Sequence[Values], **choices: Any) -> CommitResult:
    """Append, by key if option `keys` says so."""
    return tasks(table, schema, *parts, **choices).commit()


def replace(table: PeerTable, schema: StructType, *parts: Sequence[Values], **choices: Any) -> CommitResult:
    """Overwrite."""
    return tasks(table, schema, *parts, mode=WriteMode.OVERWRITE, **choices).commit()


def upsert(table: PeerTable, schema: StructType, *parts: Sequence[Values], **options: str) -> UpsertResult:
    """Upsert as `iceberg_ds.upsert` does: old rows are looked for, and marked by their positions."""
    written = tasks(table, schema, *parts, mode=WriteMode.UPSERT, **options)
    return UpsertCommit(written.sink.catalog, written.plan, "position", None).run(written.messages)


def sink_of(table: PeerTable, **options: str) -> Sink:
    """Return what writes into the table with these options."""
    return table.with_options(**options).sink()


def found(table: PeerTable, branch: str = "main") -> list[tuple[Any, ...]]:
    """Return the rows of a branch; PyIceberg reads them, unless there are deletes by key, which it refuses."""
    loaded = table.load()
    head = loaded.snapshot_by_name(branch)
    if head is None:
        return []
    if listed(loaded, branch)[DataFileContent.EQUALITY_DELETES]:
        return [tuple(row.values()) for row in rows_of(loaded, branch)]
    return [tuple(row.values()) for row in loaded.scan(snapshot_id=head.snapshot_id).to_arrow().to_pylist()]


def check(table: PeerTable, *expected: Values, branch: str = "main") -> None:
    """Assert that a branch has these rows, in any order, and that the table is whole."""
    rows = found(table, branch)
    missing = _without([tuple(row) for row in expected], rows)
    assert (missing, _without(rows, expected)) == ([], [])
    result = iceberg_ds.verify(table.name, options={"warehouse": str(table.warehouse)})
    assert result.ok, str(result)


def count(table: PeerTable, content: DataFileContent, branch: str = "main") -> int:
    """Return how many live files of a kind a branch has."""
    return len(listed(table.load(), branch)[content])


def operations(table: PeerTable) -> list[str]:
    """Return what each snapshot did, oldest first."""
    return [snapshot.summary.operation.value for snapshot in table.snapshots() if snapshot.summary]


def _without(rows: Sequence[tuple[Any, ...]], others: Sequence[Values]) -> list[tuple[Any, ...]]:
    """Return the rows that remain if each of the others takes an equal one away."""
    left = list(rows)
    for other in others:
        if tuple(other) in left:
            left.remove(tuple(other))
    return left
