"""Where the properties of a catalog go, and where they must not.

Each probe searches the whole memory of its process. The committer's finds the secret, which shows that
the search works; a task's must not.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.exhaustive import EXHAUSTIVE
from support.hooks.hooked_sink import HookedSink
from support.hooks.memory_probe import read_probes, secret
from support.spark.jobs import SCHEMA, BatchJob, StreamJob, numbered, write_source
from support.spark.tables import Warehouse

import iceberg_ds
from iceberg_ds.maintenance import places_on_spark
from iceberg_ds.maintenance.place_tasks import PlacePlan
from iceberg_ds.spark.arrow_job import Task


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Return the folder that the probes write to."""
    return tmp_path / "reports"


@pytest.fixture
def options(spark: SparkSession, house: Warehouse, reports: Path) -> dict[str, str]:
    """Return options with a secret of the catalog; the probing sink is registered."""
    spark.dataSource.register(HookedSink)
    return {**house.catalog_options, "catalog.token": secret(), "probe": str(reports)}


def files_with_secret(folder: Path) -> list[Path]:
    """Return the files below `folder` that hold the secret."""
    return [path for path in folder.rglob("*") if path.is_file() and secret().encode() in path.read_bytes()]


def test_tasks_of_a_batch_never_see_the_catalogs_secrets(
    spark: SparkSession, house: Warehouse, options: dict[str, str], reports: Path
) -> None:
    """Whoever can run code in a task, a UDF say, could read the catalog's credentials."""
    numbered(spark, 0, 10).write.format("hookedsink").mode("append").options(**options).save("db.t")

    assert read_probes(reports) == {"task": {"secret False"}, "commit": {"secret True"}}
    assert house.ids() == list(range(10))


def test_tasks_of_a_stream_never_see_the_catalogs_secrets(
    spark: SparkSession, house: Warehouse, options: dict[str, str], reports: Path, tmp_path: Path
) -> None:
    """Whoever can run code in a task, a UDF say, could read the catalog's credentials."""
    write_source(tmp_path / "source", [range(5)])
    rows = spark.readStream.schema(SCHEMA).json(str(tmp_path / "source"))
    writer = rows.writeStream.format("hookedsink").options(**options).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start("db.t")
    query.awaitTermination(120)

    assert read_probes(reports) == {"task": {"secret False"}, "commit": {"secret True"}}
    assert house.ids() == [0, 1, 2, 3, 4]


def test_secrets_are_in_no_file_that_a_write_leaves(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Every reader of the table could read the catalog's credentials in its metadata."""
    options = {**house.catalog_options, "catalog.token": secret()}
    write_source(tmp_path / "source", [range(5)])
    BatchJob(first=5, rows=5, options=options).run(spark)
    StreamJob(source=str(tmp_path / "source"), checkpoint=str(tmp_path / "checkpoint"), options=options).run(spark)

    assert house.ids() == list(range(10))
    assert files_with_secret(tmp_path) == []


def test_error_of_a_write_does_not_show_secrets(spark: SparkSession, options: dict[str, str]) -> None:
    """Credentials would stand in the log of every failed job."""
    rows = numbered(spark, 0, 1)
    with pytest.raises(Exception, match="does not exist in catalog") as refused:
        rows.write.format("hookedsink").mode("append").options(**options, **{"create-table": "false"}).save("db.none")

    assert "TableNotFoundError" in str(refused.value)
    assert "'token': '***'" in str(refused.value)
    assert secret() not in str(refused.value)


@EXHAUSTIVE
def test_batch_that_fails_is_cleaned_up_with_the_catalogs_secrets(
    spark: SparkSession, options: dict[str, str], reports: Path
) -> None:
    """`abort` would have no catalog to ask, and leave the files of every failed job."""
    failing = numbered(spark, 0, 10).selectExpr("id", "IF(id = 9, raise_error('planned'), name) AS name")
    with pytest.raises(Exception, match="planned"):
        failing.write.format("hookedsink").mode("append").options(**options).save("db.t")

    assert read_probes(reports)["abort"] == {"secret True"}


@EXHAUSTIVE
def test_tasks_of_maintenance_never_get_the_catalogs_secrets(
    spark: SparkSession, house: Warehouse, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can run code on an executor could read the catalog's credentials."""
    for first in (0, 10):
        numbered(spark, first, first + 10).write.format("icebergsink").mode("overwrite").options(**house.options).save(
            "db.t"
        )
    told: list[bytes] = []
    in_tasks = places_on_spark.in_tasks

    def watched(frame: DataFrame, task: Task[PlacePlan], plan: PlacePlan, columns: str, action: str) -> DataFrame:
        told.append(pickle.dumps(plan))
        return in_tasks(frame, task, plan, columns, action)

    monkeypatch.setattr(places_on_spark, "in_tasks", watched)
    wanted = {key: value for key, value in options.items() if key != "probe"}

    iceberg_ds.expire_snapshots("db.t", "now", options=wanted, spark=spark)
    iceberg_ds.remove_orphan_files("db.t", spark, options=wanted)

    assert len(told) >= 6
    assert not any(secret().encode() in packed for packed in told)
    assert house.ids() == list(range(10, 20))
