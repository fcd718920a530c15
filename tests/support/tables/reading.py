"""Reads by Python tasks, in this process and without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from support.checks.reader import rows_of
from support.tables.sink import NAME, Row, Sink

from iceberg_ds.reading.python_scan import PythonScan, task_groups
from iceberg_ds.reading.request import LoadedTable, PlannedRead, ReadRequest
from iceberg_ds.snapshots.refs import ancestors_of, branch_head


def planned(sink: Sink, **options: Any) -> PlannedRead:
    """Return the plan of a read; `_` in the name of an option stands for `-`."""
    request = ReadRequest.of({"table": NAME, **{key.replace("_", "-"): str(text) for key, text in options.items()}})
    return request.plan(LoadedTable(catalog=sink.catalog, table=sink.table()))


def read_by_tasks(sink: Sink, **options: Any) -> list[Row]:
    """Return the rows of the table as tasks read them, in the order of all their values."""
    plan = planned(sink, **options)
    scan = PythonScan.of(plan)
    found = [row for group in task_groups(plan.plan.tasks) for batch in scan.rows(group) for row in batch.to_pylist()]
    return in_order(found)


def in_order(rows: list[Row]) -> list[Row]:
    """Return rows in the order of all their values."""
    return sorted(rows, key=lambda row: str(list(row.values())))


def changes_by_tasks(sink: Sink, **options: Any) -> list[Row]:
    """Return the changes of rows as tasks read them, those that are none after all among them."""
    found = read_by_tasks(sink, schema_id=sink.table().schema().schema_id, **options)
    assert {row["_change_type"] for row in found} <= {"INSERT", "DELETE"}
    return found


def net_of(changes: list[Row]) -> dict[int, Counter[str]]:
    """Return for each snapshot how many copies more, or fewer, of each row there are after it; without zeros."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for row in changes:
        values = {name: value for name, value in row.items() if not name.startswith(("_change", "_commit"))}
        found[row["_commit_snapshot_id"]][as_text(values)] += 1 if row["_change_type"] == "INSERT" else -1
    return {number: left for number, counted in found.items() if (left := without_zeros(counted))}


def differences_of(sink: Sink, branch: str = "main") -> dict[int, Counter[str]]:
    """Return what `net_of` has to be for all snapshots of a branch, by the rows that the spec says before and after."""
    table = sink.table()
    found: dict[int, Counter[str]] = {}
    for snapshot in ancestors_of(table.metadata, branch_head(table.metadata, branch)):
        after, before = (
            Counter(map(as_text, rows_of(table, snapshot_id=number))) if number is not None else Counter[str]()
            for number in (snapshot.snapshot_id, snapshot.parent_snapshot_id)
        )
        after.subtract(before)
        found[snapshot.snapshot_id] = without_zeros(after)
    return {number: counted for number, counted in found.items() if counted}


def as_text(row: Row) -> str:
    """Return a row as a text, the same for maps of Spark and of Arrow."""
    is_map = {
        name: isinstance(value, list) and bool(value) and isinstance(value[0], tuple) for name, value in row.items()
    }
    return str({name: dict(value) if is_map[name] else value for name, value in row.items()})


def without_zeros(counted: Counter[str]) -> Counter[str]:
    """Return the counts that are not zero."""
    return Counter({row: count for row, count in counted.items() if count})
