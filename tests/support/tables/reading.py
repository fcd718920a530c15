"""Reads by Python tasks, in this process and without Spark."""

from __future__ import annotations

from typing import Any

from support.tables.sink import NAME, Row, Sink

from iceberg_ds.reading.python_scan import PythonScan, task_groups
from iceberg_ds.reading.request import LoadedTable, PlannedRead, ReadRequest


def planned(sink: Sink, **options: Any) -> PlannedRead:
    """Return the plan of a read; `_` in the name of an option stands for `-`."""
    request = ReadRequest.of({"table": NAME, **{key.replace("_", "-"): str(text) for key, text in options.items()}})
    return request.plan(LoadedTable(catalog=sink.catalog, table=sink.table()))


def read_by_tasks(sink: Sink, **options: Any) -> list[Row]:
    """Return the rows of the table as tasks read them, in the order of all their values."""
    plan = planned(sink, **options)
    scan = PythonScan.of(plan)
    found = [row for group in task_groups(plan.plan) for batch in scan.rows(group) for row in batch.to_pylist()]
    return in_order(found)


def in_order(rows: list[Row]) -> list[Row]:
    """Return rows in the order of all their values."""
    return sorted(rows, key=lambda row: str(list(row.values())))
