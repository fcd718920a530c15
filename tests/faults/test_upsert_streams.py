"""A stream by `foreachBatch` and `upsert_into` whose driver dies between a commit and Spark's note of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import DataFileContent
from pyspark.sql import SparkSession
from support.checks.reader import listed
from support.hooks.faults import Action, Fault
from support.keys.streams import FEED, KeyedStream, rows_after
from support.spark.jobs import dump
from support.spark.process import SparkProcess

from iceberg_ds.fault_points import FaultPoint


@pytest.mark.exhaustive
def test_micro_batch_of_a_dead_driver_lands_once(spark: SparkSession, tmp_path: Path) -> None:
    """The repeated micro-batch would add its rows twice, bring deleted ones back, or not be there at all."""
    stream = KeyedStream(folder=tmp_path / "stream").feed(FEED[0])
    stream.upsert_job().run(spark)
    stream.feed(*FEED[1:])
    fault = Fault(point=FaultPoint.REQUEST_ANSWERED, action=Action.KILL_WORKER, fuse=tmp_path / "fuse")

    with SparkProcess(tmp_path / "driver") as driver, pytest.raises(RuntimeError, match="has died"):
        driver.run(dump(stream.upsert_job(fault)))

    assert fault.has_struck
    assert stream.rows() == rows_after(FEED[:2])
    stream.upsert_job().run(spark)
    assert stream.rows() == rows_after(FEED)
    assert stream.snapshots() == len(FEED)
    assert listed(stream.house.table())[DataFileContent.EQUALITY_DELETES] == []
