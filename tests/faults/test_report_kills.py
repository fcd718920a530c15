"""SIGKILL around a commit, and then a replay: what the reports count is what the tables have, each row once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.programs.quarantiner import die_in_run, run
from support.spark.tables import Warehouse
from support.tables.bad_rows import TABLE
from support.tables.sink import Sink

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.fault_points import FaultPoint

TABLES = {"upsert": ("a", "bad"), "transaction": ("a", "b", "bad")}
TOGETHER = [(FaultPoint.POINTERS_READY, 1), (FaultPoint.TABLES_ANSWERED, 1), (FaultPoint.COMMITTED, 2)]
SINGLY = [(FaultPoint.QUARANTINED, 1), *((FaultPoint.REQUEST_ANSWERED, number) for number in (1, 2))]
SINGLY += [(FaultPoint.COMMITTED, number) for number in (1, 2)]
STEPS = [(True, *step) for step in TOGETHER] + [(False, *step) for step in SINGLY]


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(("is_together", "step", "number"), STEPS)
def test_rows_that_a_killed_process_did_not_report_are_counted_once(  # noqa: PLR0913, PLR0917  # pytest's
    sink: Sink,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    step: FaultPoint,
    number: int,
    *,
    is_together: bool,
) -> None:
    """Rows would be missing in sums for ever, those in a quarantine among them, or be there twice."""
    for name in ("a", "b"):
        replace(sink, options=replace(sink.options, table=("db", name))).create(TABLE)
    reports = warehouse / "reports.jsonl"
    options = {**Warehouse(folder=warehouse).options, "metrics-file": str(reports)}

    die_in_run(options, kind, step, number, is_together=is_together)
    if not is_together:
        monkeypatch.setattr(CatalogClient, "takes_many_tables", False)
    for _ in range(2):
        run(options, kind)

    tables = [sink.catalog.load_table(("db", name)) for name in TABLES[kind]]
    totals = iceberg_ds.Metrics(str(reports)).totals
    assert [table.scan().to_arrow().num_rows for table in tables] == [1] * len(tables[:-1]) + [len(tables) - 1]
    assert totals.records_written == 2 * (len(tables) - 1)
    assert totals.commits_success == sum(len(table.metadata.snapshots) for table in tables)
