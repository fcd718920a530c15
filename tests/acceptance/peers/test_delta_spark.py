"""Cases of Delta's suites that are about Spark itself: modes, ways to write, and what a session decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.peer.cases import DELTA, DELTA_RS, DIFFERS
from support.spark.session import shared_session
from support.spark.tables import FORMAT, Warehouse

from iceberg_ds import IcebergSink

MODES = DIFFERS(
    "Spark refuses modes ignore and error of every Python data source: give append or overwrite",
    see="coming-from/delta.md",
)


@pytest.fixture
def spark() -> SparkSession:
    """Return this process's Spark."""
    session = shared_session("local[2]")
    session.dataSource.register(IcebergSink)
    return session


@pytest.fixture
def house(tmp_path: Path) -> Warehouse:
    """Return a new embedded catalog."""
    return Warehouse(folder=tmp_path / "warehouse")


def refusal(write: Callable[[], object]) -> str:
    """Return the text of the exception that Spark shows for a write."""
    with pytest.raises(PySparkException) as caught:
        write()
    return str(caught.value)


def ids(house: Warehouse) -> list[int]:
    """Return the ids of all rows in order."""
    found: list[int] = house.rows()["id"].to_pylist()
    return found


@EXHAUSTIVE
@DELTA.case("DeltaSuite.batch write: ignore", "DeltaSuite.batch write: error", verdict=MODES)
@DELTA_RS.case("test_writer.test_write_modes", verdict=MODES)
@pytest.mark.parametrize("mode", ["ignore", "error", "errorifexists", None])
def test_modes_that_spark_refuses_change_nothing(spark: SparkSession, house: Warehouse, mode: str | None) -> None:
    """Rows would be appended or replaced where a user asked for neither."""
    house.append(spark.range(3))
    writer = spark.range(7, 9).write.format(FORMAT).options(**house.options)

    text = refusal(lambda: (writer if mode is None else writer.mode(mode)).save("db.t"))

    assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in text
    assert "Append" in text
    assert ids(house) == [0, 1, 2]


@EXHAUSTIVE
@DELTA.case("DeltaSinkSuite.update mode: not supported")
def test_output_mode_update_is_refused(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Totals of each trigger would stay beside those of the last one."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n')
    rows = spark.readStream.schema("id BIGINT").json(str(tmp_path / "in"))
    writer = rows.writeStream.format(FORMAT).outputMode("update").options(**house.options)

    text = refusal(lambda: writer.option("checkpointLocation", str(tmp_path / "c")).start("db.t").awaitTermination(60))

    assert "update" in text.lower()
    assert not house.has_table()


@EXHAUSTIVE
@DELTA.case(
    "DeltaSuite.history includes user-defined metadata for DF.Write API and config setting",
    "DeltaSuite.batch write: append, dynamic partition overwrite set via conf",
    "DeltaSuite.idempotent write: idempotent SQL insert",
    verdict=DIFFERS(
        "settings of the session do not reach the sink: give the options",
        see="coming-from/iceberg-runtime.md#settings-of-the-session",
    ),
)
def test_settings_of_the_session_do_not_count(spark: SparkSession, house: Warehouse) -> None:
    """A user would trust settings that nobody reads."""
    settings = {
        "spark.databricks.delta.commitInfo.userMetadata": "note",
        "spark.databricks.delta.write.txnAppId": "app",
        "spark.databricks.delta.write.txnVersion": "1",
        "spark.databricks.delta.schema.autoMerge.enabled": "true",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        for _ in range(2):
            house.append(spark.range(2))
        unmerged = refusal(lambda: house.append(spark.range(2).selectExpr("id", "id AS part")))
    finally:
        for key in settings:
            spark.conf.unset(key)

    assert "column 'part' bigint is not in the table" in unmerged
    assert ids(house) == [0, 0, 1, 1]
    assert all("userMetadata" not in snapshot.summary.additional_properties for snapshot in house.table().snapshots())  # type: ignore[union-attr]


@EXHAUSTIVE
@DELTA.case(
    "DeltaInsertIntoTableSuite.insertInto: append",
    "DeltaInsertIntoTableSuite.insertInto: overwrite partitioned table in static mode",
    verdict=DIFFERS(
        "insertInto, saveAsTable and writeTo look for the table in Spark's own catalogs",
        see="coming-from/iceberg-runtime.md",
    ),
)
def test_insert_into_looks_in_sparks_catalogs(spark: SparkSession, house: Warehouse) -> None:
    """Rows would go into another table than the one that the user sees."""
    house.append(spark.range(2))

    text = refusal(lambda: spark.range(7).write.options(**house.options).insertInto("db.t"))

    assert "TABLE_OR_VIEW_NOT_FOUND" in text
    assert ids(house) == [0, 1]


@DELTA.case(
    "CheckConstraintsSuite.constraint induced by varchar",
    verdict=DIFFERS("char and varchar become strings: Iceberg has no lengths of texts", see="coming-from/delta.md"),
)
@EXHAUSTIVE
def test_text_with_a_length_becomes_a_string(spark: SparkSession, house: Warehouse) -> None:
    """A user would trust a length that no later write is held to."""
    house.append(spark.sql("SELECT 1L AS id, CAST('abc' AS VARCHAR(3)) AS name"))
    house.append(spark.sql("SELECT 2L AS id, 'longer' AS name"))

    assert str(house.table().schema().find_type("name")) == "string"
    assert house.rows()["name"].to_pylist() == ["abc", "longer"]
