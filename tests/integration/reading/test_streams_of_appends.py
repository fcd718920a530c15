"""Streams of what is appended to a table, by Spark: triggers, limits, restarts."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from support.exhaustive import EXHAUSTIVE
from support.spark.tables import Warehouse
from support.tables.changes_by_others import expire
from support.tables.sink import NAME, Sink, embedded_options, rows

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.reading.consumers import CONSUMER_PREFIX

LIMIT = "streaming-max-files-per-micro-batch"


@pytest.fixture
def table(house: Warehouse) -> Sink:
    """Return the table without Spark."""
    options = embedded_options(house.folder)
    return Sink(catalog=connect(catalog_settings(options)), options=options)


class Query:
    """A query that notes the ids of each micro-batch."""

    def __init__(self, spark: SparkSession, house: Warehouse, checkpoint: Path) -> None:
        iceberg_ds.register(spark)
        self.spark = spark
        self.house = house
        self.checkpoint = checkpoint
        self.batches: list[list[int]] = []

    def start(self, options: dict[str, str], **trigger: Any) -> StreamingQuery:
        """Start the query."""
        frame = self.spark.readStream.format("icebergsource").options(**self.house.options, **options).load(NAME)
        return self.started(frame, **trigger)

    def started(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        """Start a query of these rows."""
        writer = frame.writeStream.foreachBatch(self._note).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger).start()

    def run(self, **options: str) -> list[list[int]]:
        """Read what there is, and return the ids of each micro-batch."""
        given = {key.replace("_", "-"): text for key, text in options.items()}
        query = self.start(given, availableNow=True)
        query.awaitTermination()
        found, self.batches = self.batches, []
        return found

    def _note(self, rows: DataFrame, _: int) -> None:
        self.batches.append(sorted(row["id"] for row in rows.collect()))


def append_files(table: Sink, *ids: int) -> None:
    """Append a file for each id, in one snapshot."""
    table.commit(table.write(*(rows(number) for number in ids)))


def test_appended_rows_come_once_across_restarts(
    spark: SparkSession, house: Warehouse, table: Sink, tmp_path: Path
) -> None:
    """Rows would be lost or doubled where a query stops, waits or starts again."""
    append_files(table, 1, 2, 3)
    query = Query(spark, house, tmp_path / "checkpoint")

    assert query.run() == [[1, 2, 3]]
    assert query.run() == []
    table.append(4)
    running = query.start({"consumer-id": "notes"}, processingTime="0 seconds")
    running.processAllAvailable()
    append_files(table, 5, 6)
    running.processAllAvailable()
    running.stop()
    assert query.batches == [[4], [5, 6]]
    assert running.lastProgress is not None
    assert table.table().properties.keys() >= {f"{CONSUMER_PREFIX}notes"}
    query.batches = []
    table.append(7)
    assert query.run() == [[7]]


@EXHAUSTIVE
def test_micro_batches_are_limited(spark: SparkSession, house: Warehouse, table: Sink, tmp_path: Path) -> None:
    """The first micro-batch would read the whole table."""
    append_files(table, 1, 2, 3)
    append_files(table, 4, 5)
    query = Query(spark, house, tmp_path / "checkpoint")
    running = query.start({LIMIT: "2"}, processingTime="0 seconds")
    running.processAllAvailable()
    append_files(table, 6, 7, 8)
    running.processAllAvailable()
    running.stop()

    assert sorted(chain(*query.batches)) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [len(ids) for ids in query.batches] == [2, 2, 1, 2, 1]
    query.batches = []
    append_files(table, 9, 10, 11)
    found = query.run(streaming_max_files_per_micro_batch="2")
    if pyspark.__version__ >= "4.2":
        assert [len(ids) for ids in found] == [2, 1]
    else:  # Spark asks once, and takes what it is told for all there is
        assert [len(ids) for ids in found] == [2]
        found += query.run(streaming_max_files_per_micro_batch="2")
    assert sorted(chain(*found)) == [9, 10, 11]


@EXHAUSTIVE
def test_failures_tell_what_to_do(spark: SparkSession, house: Warehouse, table: Sink, tmp_path: Path) -> None:
    """A user would see a failed query, and not how to go on."""
    table.append(1)
    query = Query(spark, house, tmp_path / "checkpoint")
    assert query.run() == [[1]]
    table.overwrite(rows(2))
    with pytest.raises(StreamingQueryException, match=r"operation overwrite.*on-change=skip"):
        query.run()
    assert query.run(on_change="skip") == [[]]

    table.append(3)
    table.append(4)
    expire(table)

    with pytest.raises(StreamingQueryException, match="has expired"):
        query.run()
    with pytest.raises(Exception, match="option 'on-change' is none of a batch"):
        spark.read.format("icebergsource").options(**house.options).option("on-change", "skip").load(NAME).collect()


@EXHAUSTIVE
def test_columns_of_the_dataframe_stay(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """A query that is started again from the same DataFrame would fail, once the table has another column."""
    iceberg_ds.register(spark)
    house.append(spark.sql("SELECT 1L AS id, named_struct('x', 1, 'y', array('a')) AS s, uuid() AS u"))
    query = Query(spark, house, tmp_path / "checkpoint")
    options = {**house.options, "columns": "id, s, _file"}
    frame = spark.readStream.format("icebergsource").options(**options).load(NAME)
    query.started(frame, availableNow=True).awaitTermination()
    house.append(
        spark.sql("SELECT 2L AS id, named_struct('x', 1, 'y', array('a'), 'z', 2) AS s, 'u' AS u, 5 AS n"),
        schema_evolution="full",
    )
    query.started(frame, availableNow=True).awaitTermination()

    assert query.batches == [[1], [2]]
