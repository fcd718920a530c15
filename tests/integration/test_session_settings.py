"""Settings of a session that no kind of write passes over in silence: where it is audited first, and its time zone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE, few
from support.spark.jobs import numbered
from support.spark.stream_runs import Stream
from support.spark.tables import Warehouse

import iceberg_ds
from iceberg_ds.errors import OptionError

BRANCH, AUDIT_ID = "spark.wap.branch", "spark.wap.id"


@pytest.fixture
def audited(spark: SparkSession, house: Warehouse) -> Iterator[Warehouse]:
    """Return a table whose writes are audited, with two rows; the settings are gone in the end."""
    house.append(numbered(spark, 0, 2), **{"table-property.write.wap.enabled": "true"})
    yield house
    for key in (BRANCH, AUDIT_ID):
        spark.conf.unset(key)


@pytest.mark.parametrize(
    ("key", "next_step"),
    few(1, [(BRANCH, r"Give option branch=audit, with create-branch=true"), (AUDIT_ID, "write with option 'branch'")]),
)
def test_batch_that_would_pass_the_setting_over_is_refused(
    spark: SparkSession, audited: Warehouse, key: str, next_step: str
) -> None:
    """Rows that were to be audited first would be shown to every reader."""
    spark.conf.set(key, "audit")

    with pytest.raises(PySparkException, match=rf"the session has {key}=audit.*{next_step}"):
        audited.append(numbered(spark, 2, 3))
    with pytest.raises(OptionError, match=rf"the session has {key}=audit"):
        iceberg_ds.upsert(numbered(spark, 2, 3), "db.t", keys="id", options=audited.options)

    assert audited.ids() == [0, 1]
    assert list(audited.table().metadata.refs) == ["main"]


@EXHAUSTIVE
def test_write_to_the_branch_that_the_setting_names_goes_there(spark: SparkSession, audited: Warehouse) -> None:
    """A job could not be written for both sinks."""
    spark.conf.set(BRANCH, "audit")

    audited.append(numbered(spark, 2, 3), branch="audit", create_branch="true")
    with pytest.raises(PySparkException, match="but the write goes to branch 'other'"):
        audited.append(numbered(spark, 3, 4), branch="other", create_branch="true")

    assert audited.ids() == [0, 1]
    assert sorted(audited.table().metadata.refs) == ["audit", "main"]


@pytest.mark.exhaustive
def test_stream_that_would_pass_the_setting_over_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that were to be audited first would be shown to every reader."""
    stream = Stream(folder=tmp_path)
    stream.warehouse.append(numbered(spark, 10, 12), **{"table-property.write.wap.enabled": "true"})
    spark.conf.set(BRANCH, "audit")

    try:
        with pytest.raises(PySparkException, match=r"the session has spark\.wap\.branch=audit"):
            stream.grow(1).job().run(spark)
    finally:
        spark.conf.unset(BRANCH)

    assert stream.warehouse.ids() == [10, 11]


@EXHAUSTIVE
def test_setting_does_not_count_for_tables_that_are_not_audited(spark: SparkSession, house: Warehouse) -> None:
    """A session with the setting could not write other tables, as it can with Iceberg's runtime."""
    spark.conf.set(BRANCH, "audit")

    try:
        house.append(numbered(spark, 0, 2))
    finally:
        spark.conf.unset(BRANCH)

    assert house.ids() == [0, 1]


@pytest.mark.exhaustive
def test_time_zone_that_is_not_the_sessions_is_refused(spark: SparkSession, house: Warehouse) -> None:
    """Rows of another range than the one that was asked for would be replaced, because planners do not see the zone."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    rows = spark.sql("SELECT id, array(timestamp_micros(id)) AS times, timestamp_micros(id) AS at FROM range(2)")
    house.append(rows, time_zone="Europe/Paris")
    wrong, message = "Asia/Tokyo", "'time-zone' is Asia/Tokyo, and the session's time zone is Europe/Paris"

    for columns in (["id"], ["id", "times"]):
        with pytest.raises(PySparkException, match=message):
            house.append(rows.select(columns), time_zone=wrong)
    with pytest.raises(OptionError, match=message):
        iceberg_ds.upsert(rows.select("id"), "db.t", keys="id", options={**house.options, "time-zone": wrong})
    spark.conf.unset("spark.sql.session.timeZone")  # only the rows tell it now
    unset = spark.conf.get("spark.sql.session.timeZone")
    with pytest.raises(PySparkException, match=f"the session's time zone is {unset}"):
        house.append(rows.select("id", "at"), time_zone="Pacific/Kiritimati")

    assert house.ids() == [0, 1]
