"""Columns that tasks fill in, and deletes that leave rows, written by Spark and read by others."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.spark.tables import Warehouse, read_with_chdb

COLUMNS = "id BIGINT, name STRING, op STRING, lsn BIGINT"
FEED = {
    "keys": "id",
    "operation-column": "op",
    "sequence-by": "lsn",
    "soft-delete-column": "gone",
    "metadata-columns": "_epoch_id, _operation",
}


def stream(spark: SparkSession, house: Warehouse, folder: Path, events: list[dict[str, object]]) -> None:
    """Stream one epoch of events, with the checkpoint of the epochs before it."""
    incoming = folder / "incoming"
    incoming.mkdir(exist_ok=True)
    number = len(list(incoming.iterdir()))
    (incoming / f"{number}.json").write_text("\n".join(map(json.dumps, events)))
    query = (
        spark.readStream.schema(COLUMNS)
        .json(str(incoming))
        .writeStream.format("icebergsink")
        .options(**house.options, **FEED)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start("db.t")
    )
    query.awaitTermination()


@EXHAUSTIVE
def test_stream_marks_deleted_rows_and_tells_its_epochs(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Rows would have the number of another epoch, or deleted ones would be gone for ever."""
    first = [{"id": number, "name": f"row {number}", "op": "c", "lsn": 1} for number in (1, 2, 3)]
    second = [{"id": 1, "op": "d", "lsn": 2}, {"id": 2, "name": "two", "op": "+U", "lsn": 2}]
    stream(spark, house, tmp_path, first)
    stream(spark, house, tmp_path, [*second, {"id": 4, "name": "four", "op": "r", "lsn": 1}])

    found = read_with_chdb(house.folder / "db" / "t", "id, name, gone, _epoch_id, _operation")
    assert [tuple(row.values()) for row in found] == [
        (1, None, True, 1, "delete"),
        (2, "two", False, 1, "update"),
        (3, "row 3", False, 0, "insert"),
        (4, "four", False, 1, "read"),
    ]


def test_batch_tells_when_it_was_written(spark: SparkSession, house: Warehouse) -> None:
    """All tasks of a batch would have times of their own, or its number would be lost."""
    rows = spark.range(100, numPartitions=4)
    told = {"metadata-columns": "_extracted_at, _epoch_id, _operation", "txn-app-id": "a", "txn-version": "7"}
    house.append(rows, **told)
    house.append(rows, **{**told, "small-task-size-bytes": "0", "txn-version": "8"})

    found = house.rows()
    assert found.num_rows == 200
    moments = found.group_by("_epoch_id").aggregate([("_extracted_at", "count_distinct")]).sort_by("_epoch_id")
    assert moments.to_pydict() == {"_epoch_id": [7, 8], "_extracted_at_count_distinct": [1, 1]}
    assert set(found["_operation"].to_pylist()) == {"insert"}
