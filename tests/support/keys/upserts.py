"""Upserts without Spark: the messages of their tasks, and their commit in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from support.keys.messages import COLUMNS, KEYED_SCHEMA, SENT, Event, events_feed, keyed_tasks
from support.tables.sink import Sink, epoch, local

from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.deletes.epoch import commit_epoch
from iceberg_ds.deletes.upsert import UpsertCommit, UpsertResult
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import EpochId, WritePlan
from iceberg_ds.planning.plan_write import WriteMode

ENCODINGS: tuple[RowEncoding, ...] = ("position", "copy-on-write")


def upsert_plan(sink: Sink, **options: Any) -> WritePlan:
    """Plan an upsert of events into a table of `KEYED_SCHEMA`."""
    plan = sink.plan(COLUMNS, WriteMode.UPSERT, keys=("id",), **options)
    return replace(plan, write=replace(plan.write, changes=events_feed()))


def apart(events: Sequence[Event], count: int = 3) -> list[list[Event]]:
    """Return the events by task, those of one key in one, as `distribute` brings them there."""
    return [[event for event in events if event[1] % count == number] for number in range(count)]


def upsert(sink: Sink, encoding: RowEncoding, *parts: Sequence[Event], **options: Any) -> UpsertResult:
    """Write events by key, a task for each of `parts`, and commit them as an upsert does."""
    plan = upsert_plan(sink, **options)
    return commit_upsert(sink, plan, encoding, keyed_tasks(plan, *parts))


def commit_upsert(sink: Sink, plan: WritePlan, encoding: RowEncoding, messages: Sequence[TaskCommit]) -> UpsertResult:
    """Search and commit, in this process."""
    return UpsertCommit(sink.catalog, plan, encoding, None).run(messages)


# Writes with `sequence-scope=table`, whose table has the sequence.

SEQUENCED_SCHEMA = Schema(*KEYED_SCHEMA.fields, NestedField(4, "lsn", LongType()), identifier_field_ids=[1])


def sequenced_plan(sink: Sink, **options: Any) -> WritePlan:
    """Plan an upsert of events into a table of `SEQUENCED_SCHEMA`, in which late ones lose."""
    by_sequence = {"keys": ("id",), "sequence_by": ("lsn",), "sequence_scope": "table", "operation_column": "op"}
    return sink.plan(SENT, WriteMode.UPSERT, **{**by_sequence, **options})


def upsert_by_sequence(sink: Sink, *parts: Sequence[Event], **options: Any) -> UpsertResult:
    """Write events by key, a task for each of `parts`, so that late ones lose."""
    plan = sequenced_plan(sink, **options)
    return commit_upsert(sink, plan, "position", keyed_tasks(plan, *parts))


# Epochs of streams that leave no deletes by keys.


def upsert_epoch(
    sink: Sink,
    number: int | EpochId,
    *parts: Sequence[Event],
    keys_in: Path | None = None,
    **options: Any,
) -> CommitResult:
    """Write events by key, a task for each of `parts`, and commit them as a micro-batch of a stream does.

    Args:
        sink: The table.
        number: The epoch, of `QUERY` if it does not name another query.
        parts: The events of each task.
        keys_in: The folder of the index of keys; None for one beside the tables.
        options: Options of the write.
    """
    plan = upsert_plan(sink, **options)
    messages = keyed_tasks(plan, *parts, of_epoch=epoch(number) if isinstance(number, int) else number)
    return commit_upsert_epoch(sink, messages, keys_in)


def commit_upsert_epoch(sink: Sink, messages: Sequence[TaskCommit], keys_in: Path | None = None) -> CommitResult:
    """Look keys up, and commit, as a micro-batch of a stream does."""
    folder = keys_in or local(sink.table().location()).parent / "keys"
    options = replace(sink.options, key_index_folder=str(folder), keys=("id",))
    of_epoch = messages[0].write.epoch
    return commit_epoch(sink.catalog, options, messages, epoch_id=None if of_epoch is None else of_epoch.epoch_id)
