"""Spark's `local-cluster`: executors as processes of their own, the sink found by itself where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.exhaustive import EXHAUSTIVE
from support.hooks.faults import Action, Fault, Point
from support.spark.cluster import SETTINGS, SPARK_HOME
from support.spark.cluster_tables import Lake
from support.spark.jobs import BatchJob, StreamJob, dump, write_source
from support.spark.process import SparkProcess

from iceberg_ds.snapshots.txn import EPOCHS

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """Return a driver with two executors."""
    folder = tmp_path_factory.mktemp("local-cluster")
    settings = {**SETTINGS, "spark.executor.memory": "1024m"}
    environment = {"SPARK_HOME": str(SPARK_HOME)}
    with SparkProcess(folder, master="local-cluster[2,1,1024]", environment=environment, conf=settings) as process:
        yield process


@EXHAUSTIVE  # as on a standalone cluster
def test_batches_and_a_stream_land_once(driver: SparkProcess, lake: Lake, tmp_path: Path) -> None:
    """What works in one process would fail in several."""
    table = lake.new_name()
    fault = Fault(point=Point.IN_TASK, action=Action.KILL_EXECUTOR, fuse=tmp_path / "fuse")
    batch = BatchJob(table=table, options=lake.options)
    write_source(tmp_path / "source", [range(100, 110), range(110, 120)])
    stream = StreamJob(
        source=str(tmp_path / "source"), checkpoint=str(tmp_path / "checkpoint"), table=table, options=lake.options
    )
    killed = replace(
        batch, first=10, sink="hookedsink", options={**lake.options, "small-task-size-bytes": "0", **fault.arm()}
    )

    errors = [driver.run(dump(job)) for job in (batch, killed, stream, stream)]

    assert errors == [None] * 4
    assert fault.has_struck
    assert lake.ids(table) == [*range(20), *range(100, 120)]
    assert [found.get(EPOCHS.number_key) for found in lake.summaries(table)] == [None, None, "0", "1"]
