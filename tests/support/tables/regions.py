"""A table of rows by region, partitioned by it: the smallest that tells the ways of overwriting apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.tables.sink import Row, Sink

from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.messages import TaskCommit
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.table.specs import parse_partition_by

REGIONS = StructType([StructField("id", LongType()), StructField("region", StringType())])


def partitioned(sink: Sink, by: str = "region", **options: Any) -> Sink:
    """Return the sink with the partitioning of the table that it creates, and other options."""
    return replace(sink, options=replace(sink.options, partition_by=parse_partition_by(by), **options))


def in_region(region: str | None, *ids: int) -> list[Row]:
    """Return rows of a region with these ids."""
    return [{"id": number, "region": region} for number in ids]


def write(sink: Sink, kind: str, rows: Sequence[Row], **options: Any) -> list[TaskCommit]:
    """Plan a write and run its one task, without committing.

    Args:
        sink: The table.
        kind: `append`, `static`, `dynamic`, or `where` and a predicate.
        rows: Rows of `REGIONS`.
        options: Other options of the write.
    """
    if kind == "append":
        return sink.write(rows, schema=REGIONS, plan=sink.plan(REGIONS, **options))
    if kind.startswith("where "):
        options["replace_where"] = kind.removeprefix("where ")
    else:
        options["overwrite_mode"] = kind
    return sink.write(rows, schema=REGIONS, plan=sink.plan(REGIONS, WriteMode.OVERWRITE, **options))


def run(sink: Sink, kind: str, rows: Sequence[Row], **options: Any) -> CommitResult:
    """Write as `write` does, and commit."""
    return sink.commit(write(sink, kind, rows, **options))


def ids_by_region(sink: Sink, branch: str = "main") -> dict[str | None, list[int]]:
    """Return the ids of all rows of a branch, in order, by their regions."""
    found: dict[str | None, list[int]] = {}
    for row in sink.rows_of(branch):
        found.setdefault(row["region"], []).append(row["id"])
    return found
