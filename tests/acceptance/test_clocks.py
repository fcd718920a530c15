"""Writers whose clocks are apart, and what Java makes of their table."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE
from support.tables.sink import Row

from iceberg_ds.commit.fast_forward import publish_branch

SCHEMA = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("name", spark.StringType())])
WIDER = spark.StructType([*SCHEMA.fields, spark.StructField("more", spark.LongType())])
DAY_S = 24 * 60 * 60


def rows(*ids: int) -> list[Row]:
    """Return rows with these ids."""
    return [{"id": number, "name": "x"} for number in ids]


@EXHAUSTIVE
def test_java_reads_a_table_after_a_clock_was_a_day_ahead(
    shared: SharedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Java program could read the table any more: its logs go back in time."""
    clock = time.time
    shared.append(rows(1), SCHEMA)
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: clock() + DAY_S)
        shared.append(rows(2), SCHEMA)
    # PyIceberg by itself, say for an expiry: its time is that of the machine, so that Java cannot read the table.
    with shared.sink().table().transaction() as change:
        change.set_properties({"changed.by": "another writer"})

    shared.append(rows(3), SCHEMA)
    assert shared.jvm.values("SELECT id FROM db.t ORDER BY id") == [1, 2, 3]

    # A new column, and then a branch that is published: commits without a time of ours.
    shared.append([{**row, "more": 4} for row in rows(4)], WIDER, schema_evolution="add-columns")
    shared.append([{**row, "more": 5} for row in rows(5)], WIDER, branch="audit", create_branch="true")
    publish_branch(shared.sink().catalog, ("db", "t"), "audit", "main")

    assert shared.jvm.values("SELECT id FROM db.t ORDER BY id") == [1, 2, 3, 4, 5]
    assert [row["id"] for row in shared.rows_of_jvm()] == [1, 2, 3, 4, 5]
