"""Writes with rows that cannot be written, without Spark: tasks, the commit, and what the quarantine table has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from pyiceberg import types as ice
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.tables.sink import Row, Sink, arrow_batch

from iceberg_ds.commit.snapshot_update import CommitResult
from iceberg_ds.messages import TaskCommit
from iceberg_ds.plan import EpochId
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.planning.quarantine import commit_with_quarantine
from iceberg_ds.writers.reporting import report_task
from iceberg_ds.writers.task_writer import TaskAttempt

TABLE = Schema(
    NestedField(1, "id", ice.LongType(), required=True),
    NestedField(2, "amount", ice.IntegerType()),
    NestedField(3, "token", ice.UUIDType()),
)
# The same columns as text, and one that the table has as it is sent.
SENT = StructType([StructField(name, spark.StringType()) for name in ("id", "amount", "token")])

UUID = "0b9f2c1e-1111-4222-8333-444455556666"
_attempts = count(1_000_000)


def sent(*values: tuple[str | None, str | None, str | None]) -> list[Row]:
    """Return rows of `SENT`."""
    return [dict(zip(SENT.names, one, strict=True)) for one in values]


def quarantining(sink: Sink, mode: str = "quarantine", **options: Any) -> Sink:
    """Return a sink with a table of `TABLE`, whose writes treat bad rows by `mode`."""
    chosen = {"accept_lost_rows": mode == "drop", "on_bad_row": mode, **options}
    if mode == "null":
        chosen = {"schema_evolution": "add-columns", **chosen}
    made = replace(sink, options=replace(sink.options, **chosen))
    made.create(TABLE)
    return made


def tasks(
    sink: Sink,
    *parts: Sequence[Mapping[str, Any]],
    schema: StructType = SENT,
    of_epoch: EpochId | None = None,
    mode: WriteMode = WriteMode.APPEND,
    **options: Any,
) -> list[TaskCommit]:
    """Run one task for each of `parts`, as Spark does, and return what they report."""
    plan = sink.plan(schema, mode, is_stream=of_epoch is not None, **options).in_epoch(of_epoch)
    return [
        report_task(
            plan,
            [arrow_batch(part, schema)] if part else [],
            TaskAttempt(partition_id=number, task_attempt_id=next(_attempts)),
        )
        for number, part in enumerate(parts)
    ]


def commit(sink: Sink, messages: Sequence[TaskCommit], **options: Any) -> CommitResult:
    """Commit what tasks report, as the driver does."""
    numbered = messages[0].write.epoch
    return commit_with_quarantine(
        sink.catalog,
        replace(sink.options, **options),
        messages,
        epoch_id=None if numbered is None else numbered.epoch_id,
    )


def write(sink: Sink, *parts: Sequence[Mapping[str, Any]], **choices: Any) -> CommitResult:
    """Run the tasks and commit."""
    kept = {name: value for name, value in choices.items() if name not in ("schema", "of_epoch", "mode")}
    return commit(sink, tasks(sink, *parts, **choices), **kept)


def quarantined(sink: Sink, name: str = "t__quarantine") -> list[Row]:
    """Return the rows of the quarantine table in the order of their text; none if there is no such table."""
    try:
        table = sink.catalog.raw.load_table(("db", name))
    except NoSuchTableError:
        return []
    return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["row"])


def reasons(sink: Sink) -> list[tuple[list[str], str]]:
    """Return the columns and the kind of the reason of each row in the quarantine table, in the order of their text."""
    return [(row["columns"], row["reason"].partition(":")[0]) for row in quarantined(sink)]
