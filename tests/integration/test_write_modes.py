"""Overwrites and branches, asked for as a user of Spark asks for them, in batches and in streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from support.spark.jobs import SCHEMA, StreamJob, numbered, write_source
from support.spark.tables import FORMAT, Warehouse

import iceberg_ds
from iceberg_ds.snapshots.txn import EPOCHS

REGIONS = "id BIGINT, region STRING"


def regions(spark: SparkSession, **ids: range) -> DataFrame:
    """Return rows of these regions."""
    return spark.createDataFrame([(number, region) for region, wanted in ids.items() for number in wanted], REGIONS)


def overwrite(rows: DataFrame, house: Warehouse, **options: str) -> None:
    """Write with `mode("overwrite")`; `_` in the name of an option stands for `-`."""
    more = {key.replace("_", "-"): value for key, value in options.items()}
    rows.write.format(FORMAT).mode("overwrite").options(**house.options, **more).save("db.t")


def ids_of(house: Warehouse, branch: str) -> list[int]:
    """Return the ids of a branch in order."""
    found: list[int] = house.table().scan().use_ref(branch).to_arrow()["id"].to_pylist()
    return sorted(found)


def test_overwrite_replaces_the_table_in_one_snapshot(spark: SparkSession, house: Warehouse) -> None:
    """Readers would see a table without rows, or the old rows beside the new ones."""
    house.append(numbered(spark, 0, 10))

    overwrite(numbered(spark, 20, 23), house)

    assert house.ids() == [20, 21, 22]
    assert [summary["operation"] for summary in operations(house)] == ["append", "overwrite"]


def operations(house: Warehouse) -> list[dict[str, Any]]:
    """Return operation and branch-wide order of the snapshots."""
    return [{"operation": snapshot.summary.operation.value} for snapshot in house.table().snapshots()]  # type: ignore[union-attr]


def test_overwrite_of_a_range_and_of_partitions(spark: SparkSession, house: Warehouse) -> None:
    """A job that repairs one day would replace the whole table."""
    house.append(regions(spark, eu=range(3), us=range(3, 6)), partition_by="region")

    overwrite(regions(spark, eu=range(10, 12)), house, replace_where="region = 'eu'")
    assert house.ids() == [3, 4, 5, 10, 11]

    overwrite(regions(spark, us=range(20, 21)), house, overwrite_mode="dynamic")
    assert house.ids() == [10, 11, 20]


def test_rows_outside_the_range_are_refused_by_their_count_over_all_tasks(
    spark: SparkSession, house: Warehouse
) -> None:
    """Rows would stay beside those that the next repair of that range replaces."""
    house.append(regions(spark, eu=range(3)))
    rows = regions(spark, eu=range(10, 12), us=range(20, 25)).repartition(3)

    with pytest.raises(Exception, match=r"5 rows do not satisfy replace-where, for example \{'id': 2\d"):
        overwrite(rows, house, replace_where="region = 'eu'")

    assert house.ids() == [0, 1, 2]
    assert house.data_files() == house.referenced()


def test_complete_mode_is_one_overwrite_an_epoch_across_a_restart(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """Results of an earlier epoch would stay beside those that replace them."""
    source = tmp_path / "source"

    def run() -> None:
        rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
        counts = rows.groupBy((F.col("id") % 3).alias("id")).count()
        writer = counts.writeStream.format(FORMAT).outputMode("complete").options(**house.options)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start("db.t")
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    write_source(source, [range(9), range(9, 12)])
    run()
    write_source(source, [range(12, 15)], first_file=2)
    run()

    assert house.rows().to_pylist() == [{"id": number, "count": 5} for number in range(3)]
    assert [summary[EPOCHS.number_key] for summary in house.snapshots()] == ["0", "1", "2"]


def test_stream_to_a_branch_leaves_main_alone_and_is_recognised_there(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """Unaudited rows would land where all readers see them, or twice after a restart."""
    house.append(numbered(spark, 100, 103))
    write_source(tmp_path / "source", [range(3), range(3, 6)])
    job = StreamJob(
        source=str(tmp_path / "source"),
        checkpoint=str(tmp_path / "checkpoint"),
        options={**house.options, "branch": "audit", "create-branch": "true"},
    )

    job.run(spark)
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # as if the driver had died before Spark's own record of its last epoch
    (newest.parent / f".{newest.name}.crc").unlink()
    job.run(spark)

    assert ids_of(house, "audit") == [0, 1, 2, 3, 4, 5, 100, 101, 102]
    assert house.ids() == [100, 101, 102]


def test_branch_is_written_audited_and_published(spark: SparkSession, house: Warehouse) -> None:
    """Readers would see rows before they are audited, or half of them."""
    house.append(numbered(spark, 0, 3))
    house.append(numbered(spark, 3, 6), branch="audit", create_branch="true")
    house.append(numbered(spark, 6, 9), branch="audit")
    assert house.ids() == [0, 1, 2]

    published = iceberg_ds.publish("db.t", "audit", options=house.options)

    assert house.ids() == list(range(9))
    assert house.table().metadata.refs["main"].snapshot_id == published


def test_staging_branch_is_published_with_the_write(spark: SparkSession, house: Warehouse) -> None:
    """A refresh would leave its rows where nobody reads them."""
    house.append(numbered(spark, 0, 3))

    overwrite(numbered(spark, 5, 8), house, staging_branch="staging")

    assert house.ids() == [5, 6, 7]
    assert ids_of(house, "staging") == [5, 6, 7]
