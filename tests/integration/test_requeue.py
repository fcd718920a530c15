"""Rows of a quarantine table come back into their table, mended, once."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession

import iceberg_ds


def test_mended_rows_come_back_once(spark: SparkSession, tmp_path: Path) -> None:
    """Mended rows would be lost, or be in the table twice."""
    iceberg_ds.register(spark)
    options = {"warehouse": str(tmp_path), "on-bad-row": "quarantine"}
    good = spark.createDataFrame([(1, "2026-11-24")], "id BIGINT, day STRING").selectExpr("id", "DATE(day) AS day")
    good.write.format("icebergsink").options(**options).mode("append").save("db.t")
    sent = spark.createDataFrame(
        [("2", "24.11.2026"), ("x", "2026-11-25"), ("4", "2026-11-26")], "id STRING, day STRING"
    )
    sent.write.format("icebergsink").options(**options).mode("append").save("db.t")

    def mended(bad: DataFrame) -> DataFrame:
        rows = bad.selectExpr("from_json(row, 'id STRING, day STRING') AS row").select("row.*")
        return rows.selectExpr("id", "coalesce(regexp_replace(day, '24.11.2026', '2026-11-24'), day) AS day")

    first = iceberg_ds.requeue(
        spark, "db.t__quarantine", "db.t", transform=mended, options={"warehouse": str(tmp_path)}
    )
    again = iceberg_ds.requeue(spark, "t__quarantine", "db.t", options={"warehouse": str(tmp_path)})
    last = iceberg_ds.requeue(spark, "db.t__quarantine", "db.t", transform=_four, options={"warehouse": str(tmp_path)})

    catalog = load_catalog(
        "default", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}"
    )
    rows = catalog.load_table("db.t").scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], str(row["day"])) for row in rows] == [
        (1, "2026-11-24"),
        (2, "2026-11-24"),
        (3, "2026-11-25"),
        (4, "2026-11-26"),
    ]
    assert (first.rows, first.batches) == (2, 1)
    assert (again.rows, last.rows) == (1, 1)  # what was still bad came again
    assert catalog.load_table("db.t__quarantine").scan().to_arrow().num_rows == 4


def _four(bad: DataFrame) -> DataFrame:
    return bad.selectExpr("'3' AS id", "from_json(row, 'day STRING').day AS day")
