"""A table that a stream copies, source `icebergsource`, sink `icebergsink`: killed wherever, it has each row once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.spark.jobs import FollowJob, dump
from support.spark.process import SparkProcess, wait_until
from support.spark.tables import Warehouse
from support.tables.data_rewrites import rewrite
from support.tables.sink import Sink, embedded_options, rows

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings

LIMIT = "streaming-max-files-per-micro-batch"


def sink_of(folder: Path) -> Sink:
    """Return table `db.t` of an embedded catalog, without Spark."""
    options = embedded_options(folder)
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def count(folder: Path) -> int:
    """Return how many entries one of Spark's logs has."""
    return sum(path.name.isdigit() for path in folder.glob("*"))


@pytest.mark.exhaustive
def test_copy_of_a_table_is_equal_after_kills_and_compactions(house: Warehouse, tmp_path: Path) -> None:
    """Rows would be lost or doubled on the way from one table to another."""
    source = sink_of(tmp_path / "source")
    checkpoint, target = tmp_path / "checkpoint", house
    ids = iter(range(10_000))

    def append(files: int) -> None:
        parts = [rows(next(ids), next(ids)) for _ in range(files)]
        source.commit(source.write(*parts))

    def job(**trigger: object) -> str:
        return dump(
            FollowJob(
                source="db.t",
                reading={"warehouse": str(tmp_path / "source"), LIMIT: "1"},
                checkpoint=str(checkpoint),
                options=target.options,
                trigger=trigger,
            )
        )

    def landed(more: int) -> Callable[[], bool]:
        before = len(target.snapshots()) if target.has_table() else 0
        return lambda: target.has_table() and len(target.snapshots()) >= before + more

    def planned(more: int) -> Callable[[], bool]:
        before = count(checkpoint / "offsets")
        return lambda: count(checkpoint / "offsets") >= before + more

    for number, moment in enumerate((planned, landed, planned, landed)):
        append(6)
        with SparkProcess(tmp_path / f"driver-{number}") as driver:
            condition = moment(2)
            driver.send(job(processingTime="0 seconds"))
            wait_until(condition, "the stream has come so far")
            driver.kill()
        rewrite(source, rewrite_all="true")
    append(3)
    with SparkProcess(tmp_path / "last-driver") as driver:
        while len(source.ids()) > (len(target.ids()) if target.has_table() else 0):
            before = count(checkpoint / "commits")
            assert driver.run(job(availableNow=True)) is None
            assert count(checkpoint / "commits") > before

    assert target.rows().to_pylist() == source.rows()
