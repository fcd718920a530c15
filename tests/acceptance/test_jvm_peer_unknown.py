"""Columns without a type yet: the sink and the runtime write one table in turn, and read the same rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE
from support.spark.session import shared_session
from support.spark.tables import Warehouse
from support.tables.sink import NAME

import iceberg_ds
from iceberg_ds.reading.read import Reader

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

READERS: tuple[Reader, ...] = ("spark", "python")


@pytest.fixture
def spark() -> SparkSession:
    """Return this process's Spark."""
    return shared_session("local[2]")


def check(spark: SparkSession, shared: SharedCatalog, expected: dict[int, tuple[Any, ...]]) -> None:
    """Assert that the runtime and both readers of ours find these values of `nothing` and `state`, by id."""
    by_jvm = shared.jvm.sql(f"SELECT id, nothing, state FROM {NAME}")  # noqa: S608  # no outside input
    assert {row["id"]: (row["nothing"], row["state"]) for row in by_jvm} == expected
    for reader in READERS:
        rows = iceberg_ds.read(spark, NAME, options={"warehouse": str(shared.folder)}, reader=reader)
        assert {row.id: (row.nothing, row.state) for row in rows.collect()} == expected, reader


@EXHAUSTIVE
@pytest.mark.parametrize("maker", ["sink", "runtime"])
def test_both_write_one_table_in_turn(shared: SharedCatalog, spark: SparkSession, maker: str) -> None:
    """One of them would refuse the table, or find values where there are none."""
    house, options = Warehouse(folder=shared.folder), {"warehouse": str(shared.folder)}
    if maker == "runtime":
        shared.create_by_jvm("id bigint, nothing void, state string", "TBLPROPERTIES ('format-version' = '3')")
        assert str(shared.table().schema().find_type("nothing")) == "unknown"
    house.append(spark.range(6).selectExpr("id", "NULL AS nothing", "'ours' AS state"), NAME, format_version="3")
    expected: dict[int, tuple[Any, ...]] = dict.fromkeys(range(6), (None, "ours"))
    check(spark, shared, expected)

    shared.jvm.run(f"INSERT INTO {NAME} SELECT id + 10, NULL, 'theirs' FROM range(4)")  # noqa: S608
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id = 2")  # noqa: S608
    shared.jvm.run(f"UPDATE {NAME} SET state = 'updated' WHERE id = 3")  # noqa: S608
    iceberg_ds.delete_from(NAME, "id = 11", spark, options=options)
    iceberg_ds.update(NAME, {"state": "'changed'"}, "id = 12", spark, mode="copy-on-write", options=options)
    expected |= {10: (None, "theirs"), 12: (None, "changed"), 13: (None, "theirs"), 3: (None, "updated")}
    del expected[2]
    check(spark, shared, expected)

    iceberg_ds.rewrite_data_files(NAME, spark, options={**options, "rewrite-all": "true"})
    check(spark, shared, expected)
    shared.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
    check(spark, shared, expected)

    house.append(spark.sql("SELECT 20L AS id, 7 AS nothing, 'typed' AS state"), NAME, schema_evolution="full")
    shared.jvm.run(f"REFRESH TABLE {NAME}")
    check(spark, shared, {**expected, 20: (7, "typed")})
