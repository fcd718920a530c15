"""What `iceberg_ds.spark.workers` does for Spark's Python workers, asked of real ones.

It knows them by the name of their main module, and their rows' connection by its address: both are Spark's own
affair, and may be others in another version of it.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.hooks.hooked_sink import HookedSink
from support.hooks.worker_reports import WorkerReport, read_worker_reports
from support.spark.jobs import numbered
from support.spark.tables import Warehouse

WRITES = 4
# Fewer than there are in any process that has loaded what a call needs.
MANY = 10_000


@EXHAUSTIVE
def test_real_workers_are_eased(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """After an update of Spark, each task, plan and commit would search its modules for garbage again."""
    reports = tmp_path / "reports"
    spark.dataSource.register(HookedSink)
    options = {**house.catalog_options, "reports": str(reports)}

    for number in range(WRITES):
        rows = numbered(spark, 10 * number, 10 * number + 10)
        rows.write.format("hookedsink").mode("append").options(**options).save("db.t")

    found = read_worker_reports(reports)
    assert {report.role for report in found} == {"plan", "task", "commit"}
    calls: dict[int, list[WorkerReport]] = {}
    for report in found:
        calls.setdefault(report.process, []).append(report)
    for role in ("plan", "task", "commit"):
        # The first call of a process loads its modules; they are set aside from its second call on.
        later = [report for one in calls.values() for report in one[1:] if report.role == role]
        assert later, found
        assert all(report.set_aside > MANY for report in later), found
    # The connection over which Spark sends a task's rows is among those that are asked to confirm at once.
    assert all(report.connections for report in found if report.role == "task"), found
    assert house.ids() == list(range(10 * WRITES))
