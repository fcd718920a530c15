"""Streams: one snapshot for each micro-batch with rows, marked with the epoch that it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from support.exhaustive import EXHAUSTIVE
from support.spark.jobs import SCHEMA, StreamJob, write_source
from support.spark.process import wait_until
from support.spark.tables import FORMAT, Warehouse

import iceberg_ds
from iceberg_ds.snapshots.txn import EPOCHS, RUN_ID_KEY

TIMEOUT_S = 300


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder of three files with rows 0 to 29."""
    folder = tmp_path / "source"
    write_source(folder, [range(10), range(10, 20), range(20, 30)])
    return folder


def read(spark: SparkSession, source: Path) -> DataFrame:
    """Return the stream of a source, one file for each micro-batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))


def start(rows: DataFrame, house: Warehouse, checkpoint: Path, table: str = "db.t", **trigger: Any) -> StreamingQuery:
    """Start a query that writes into a table."""
    writer = rows.writeStream.format(FORMAT).options(**house.options).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start(table)


def finish(query: StreamingQuery) -> None:
    """Wait until a query has done all that there is, and fail with its error."""
    try:
        assert query.awaitTermination(TIMEOUT_S), query.status
    finally:
        query.stop()


def epochs(summaries: list[Mapping[str, str | None]]) -> list[str | None]:
    """Return the epochs that snapshots are marked with."""
    return [summary.get(EPOCHS.number_key) for summary in summaries]


def test_available_now_appends_one_snapshot_for_each_epoch(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """Rows of a stream would be lost or doubled in the simplest case."""
    query = start(read(spark, source), house, tmp_path / "checkpoint")
    finish(query)

    assert house.ids() == list(range(30))
    assert epochs(house.snapshots()) == ["0", "1", "2"]
    assert [summary["added-records"] for summary in house.snapshots()] == ["10", "10", "10"]
    assert {summary[EPOCHS.writer_key] for summary in house.snapshots()} == {query.id}
    assert {summary[RUN_ID_KEY] for summary in house.snapshots()} == {query.runId}
    assert house.data_files() == house.referenced()


def test_restarted_query_goes_on_where_it_stopped(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """Each restart of a stream would write rows again, or leave some out."""
    first = start(read(spark, source), house, tmp_path / "checkpoint")
    finish(first)
    write_source(source, [range(30, 35)], first_file=3)

    second = start(read(spark, source), house, tmp_path / "checkpoint")
    finish(second)

    assert house.ids() == list(range(35))
    assert epochs(house.snapshots()) == ["0", "1", "2", "3"]
    assert second.id == first.id
    assert house.snapshots()[-1][RUN_ID_KEY] == second.runId


def test_table_property_records_the_last_epoch(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """A replayed epoch would land twice after its snapshot has expired."""
    query = start(read(spark, source), house, tmp_path / "checkpoint")
    finish(query)

    table = house.table()
    mark = json.loads(table.properties[f"icebergsink.last-epoch.main.{query.id}"])
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert mark == {
        "epoch-id": 2,
        "snapshot-id": snapshot.snapshot_id,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": mark["timestamp-ms"],
        "run-id": query.runId,
        "record-count": int(snapshot.summary["added-records"] or 0),
    }


def test_processing_time_appends_rows_as_they_come(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """A stream that runs all the time would show nothing until it ends."""
    query = start(read(spark, source), house, tmp_path / "checkpoint", processingTime="100 milliseconds")
    try:
        wait_until(lambda: house.has_table() and len(house.snapshots()) == 3, "three epochs have landed", TIMEOUT_S)
        write_source(source, [range(30, 40)], first_file=3)
        wait_until(lambda: len(house.snapshots()) == 4, "the fourth epoch has landed", TIMEOUT_S)
    finally:
        query.stop()

    assert query.exception() is None
    assert house.ids() == list(range(40))


def test_micro_batch_whose_rows_are_all_filtered_out_adds_no_snapshot(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """A stream with few matching rows would grow the table's history with every trigger."""
    rows = read(spark, source).where("id < 10 OR id >= 20")

    query = start(rows, house, tmp_path / "checkpoint")
    finish(query)

    assert query.lastProgress is not None
    assert house.ids() == [*range(10), *range(20, 30)]
    assert epochs(house.snapshots()) == ["0", "2"]


def test_stream_without_any_matching_row_makes_no_table(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """A half-made table would be left in the catalog."""
    query = start(read(spark, source).where("id < 0"), house, tmp_path / "checkpoint")
    finish(query)

    assert not house.has_table()
    assert house.data_files() == set()


def test_several_queries_into_one_table_lose_nothing(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """Two streams into one table would overwrite each other's rows, or mistake each other's epochs for their own."""
    other = tmp_path / "other"
    write_source(other, [range(100, 110), range(110, 120)])

    queries = [
        start(read(spark, source), house, tmp_path / "checkpoint-1"),
        start(read(spark, other), house, tmp_path / "checkpoint-2"),
    ]
    for query in queries:
        finish(query)

    assert house.ids() == [*range(30), *range(100, 120)]
    for query, expected in zip(queries, [["0", "1", "2"], ["0", "1"]], strict=True):
        assert epochs([found for found in house.snapshots() if found[EPOCHS.writer_key] == query.id]) == expected


def test_batch_and_stream_share_a_table(spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path) -> None:
    """A table filled by a batch could not go on as a stream."""
    house.append(spark.createDataFrame([(1000, "first")], SCHEMA))

    finish(start(read(spark, source), house, tmp_path / "checkpoint"))

    assert house.ids() == [*range(30), 1000]
    assert epochs(house.snapshots()) == [None, "0", "1", "2"]


def test_two_batch_writes_in_foreach_batch_both_land(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """The second write of a micro-batch would be taken for a replay of the first, and skipped."""

    def write_twice(rows: DataFrame, _: int) -> None:
        house.append(rows)
        house.append(rows.selectExpr("id + 1000 AS id", "name"))

    writer = read(spark, source).writeStream.foreachBatch(write_twice)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    finish(query)

    assert house.ids() == [*range(30), *range(1000, 1030)]
    assert len(house.snapshots()) == 6
    assert epochs(house.snapshots()) == [None] * 6


@EXHAUSTIVE
def test_aggregating_stream_in_append_mode(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """A windowed aggregation, whose Spark schema has required columns, could not be written."""
    source = tmp_path / "source"
    write_source(source, [range(1, 60), range(60, 120), range(100_000, 100_001), range(200_000, 200_001)])
    rows = (
        read(spark, source)
        .selectExpr("timestamp_seconds(id) AS at")
        .withWatermark("at", "1 second")
        .groupBy("at")
        .count()
        .selectExpr("unix_seconds(at) AS id", "count")
    )

    finish(start(rows, house, tmp_path / "checkpoint"))

    assert house.ids()[:119] == list(range(1, 120))
    assert set(house.rows()["count"].to_pylist()) == {1}


def test_stream_job_uses_option_table(spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path) -> None:
    """`start()` without a name and option `table` would not work on a stream."""
    rows = read(spark, source)
    writer = rows.writeStream.format(FORMAT).options(**house.options).option("table", "db.named")

    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    finish(query)

    assert house.ids("db.named") == list(range(30))


def test_refused_stream_says_why_and_commits_nothing(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """A stream that cannot go on would stop without a reason, or write part of an epoch."""
    house.append(spark.createDataFrame([("text",)], "id STRING"))
    job = StreamJob(source=str(source), checkpoint=str(tmp_path / "checkpoint"), options=house.options)

    with pytest.raises(Exception, match="column 'id' is bigint in the DataFrame and string in the table") as caught:
        job.run(spark)

    assert "column 'name' string is not in the table" in str(caught.value)
    assert len(house.snapshots()) == 1
    assert house.data_files() == house.referenced()


@pytest.mark.exhaustive
def test_stream_into_an_ill_table_stops_before_its_tasks_and_goes_on_once_it_is_well(
    spark: SparkSession, house: Warehouse, source: Path, tmp_path: Path
) -> None:
    """Rows of the refused epochs would be lost."""

    def run() -> None:
        writer = read(spark, source).writeStream.format(FORMAT).options(**house.options, **{"max-snapshots": "1"})
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        finish(writer.start("db.t"))

    with pytest.raises(
        Exception, match=r"it has 2 snapshots, and option 'max-snapshots' is 1\. Run `iceberg-ds maintain"
    ):
        run()
    assert house.ids() == list(range(20))
    assert house.data_files() == house.referenced()

    iceberg_ds.expire_snapshots("db.t", older_than="now", options=house.options)
    run()

    assert house.ids() == list(range(30))
