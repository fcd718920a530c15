"""The trigger with which Spark never hands a Python sink any row."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.hooks.hooked_sink import HookedSink
from support.spark.process import wait_until
from support.spark.tables import Warehouse


@EXHAUSTIVE
def test_continuous_trigger_never_records_an_epoch(house: Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    """Rows that never reached the sink would count as written, epoch after epoch."""
    checkpoint, note = tmp_path / "checkpoint", tmp_path / "note.txt"
    spark.dataSource.register(HookedSink)
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).option("numPartitions", 2).load()
    writer = rows.writeStream.format(HookedSink.name()).options(**house.options).option("note", str(note))

    query = writer.trigger(continuous="1 second").option("checkpointLocation", str(checkpoint)).start("db.t")
    try:
        wait_until(note.exists, "the sink was asked to commit")
    finally:
        query.stop()

    assert note.read_text().startswith("CommitMessageError: ")
    assert not [*(checkpoint / "commits").glob("[0-9]*")]
    assert not house.has_table() or not house.snapshots()
