"""Reports on commits, made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from support.tables.routed import RoutedSink
from support.tables.sink import Sink

from iceberg_ds.metrics.delivery import Reporting
from iceberg_ds.metrics.report import CommitReport, TaskFigures
from iceberg_ds.metrics.report_file import ReportWriter

UUID = "0b9f1f60-7f3e-4d0e-9d6e-0a4a3c1c2f11"


def reports_on(*sinks: Sink | RoutedSink) -> list[CommitReport]:
    """Return the list that takes the reports on the commits of the sinks from now on."""
    taken: list[CommitReport] = []
    for sink in sinks:
        sink.catalog.reporting = Reporting([("the list", taken.append)])
    return taken


def report(snapshot_id: int | None = 1, /, *, rows: int = 10, **changes: Any) -> CommitReport:
    """Return the report on a commit whose snapshot has the number `snapshot_id`, too; `changes` are attributes."""
    number = snapshot_id or 0
    values: dict[str, Any] = {
        "table": "db.t",
        "table_uuid": UUID,
        "branch": "main",
        "outcome": "committed",
        "at_ms": 1_700_000_000_000 + number * 1000,
        "duration_ms": 400.0,
        "stream": "orders",
        "number": number,
        "snapshot_id": snapshot_id,
        "sequence_number": number,
        "operation": "append",
        "counts": counts(rows, total=rows * number),
        "attempts": 1,
        "tasks": TaskFigures(tasks=2, rows=rows, bytes=rows * 8, seconds_min=0.1, seconds_median=0.2, seconds_max=0.3),
    }
    return CommitReport(**{**values, **changes})


def counts(rows: int, *, total: int) -> Mapping[str, int]:
    """Return what a snapshot counts that adds rows in one file."""
    return {
        "added-data-files": 1,
        "added-records": rows,
        "added-files-size-bytes": rows * 100,
        "total-records": total,
        "manifests-created": 1,
    }


def replay_of(commit: CommitReport, **changes: Any) -> CommitReport:
    """Return the report on a replay of a commit, with other work behind it."""
    values = {name: getattr(commit, name) for name in commit.__dataclass_fields__}
    later = {"outcome": "replayed", "at_ms": commit.at_ms + 60_000, "duration_ms": 5.0, "attempts": 0}
    return CommitReport(**{**values, **later, **changes})


def failed(outcome: str = "conflict", **changes: Any) -> CommitReport:
    """Return the report on a commit that failed."""
    error = {"conflict": "CommitConflictError", "unknown": "CommitStateUnknownError"}.get(outcome, "OptionError")
    nothing = {"sequence_number": None, "operation": None, "counts": {}, "error": error, "outcome": outcome}
    return report(None, **{**nothing, **changes})


def write(path: Path, reports: Iterable[CommitReport]) -> None:
    """Append reports to a file, as committers do."""
    writer = ReportWriter(path)
    for one in reports:
        writer(one)
