"""Predicates mean what Spark says: Spark and the sink evaluate each over the same rows, with null and NaN."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from support.predicates.as_in_spark import PREDICATES, ZONE

from iceberg_ds.expressions.binding import typed_predicate
from iceberg_ds.expressions.parser import parse_predicate
from iceberg_ds.table.spark_types import iceberg_schema

ROWS = """
SELECT * FROM VALUES
  (0, 0L, 0F, 0D, 0.00BD, '', DATE'1970-01-01', '1970-01-01 00:00:00', FALSE, X'', named_struct('b', 1, 'c d', 'x')),
  (1, 1L, 0.1F, 0.1D, 0.10BD, 'a', DATE'2026-01-02', '2026-01-02 00:00:00', TRUE, X'1F',
    named_struct('b', 2, 'c d', '')),
  (2, 2L, -0F, -0D, 19.99BD, 'ab', DATE'2026-03-08', '2026-03-08 03:30:00', TRUE, X'1F00', NULL),
  (3, 3L, float('NaN'), double('NaN'), -1.50BD, 'a%', DATE'2026-11-01', '2026-11-01 01:30:00', FALSE, X'FF', NULL),
  (-7, -7L, 16777216F, double('Infinity'), 9999999.99BD, 'a_b', DATE'1969-12-31', '1969-12-31 23:59:59.999999', NULL,
    X'61', named_struct('b', CAST(NULL AS INT), 'c d', CAST(NULL AS STRING))),
  (2147483647, 9223372036854775807L, 1.5F, 1.5D, 1.50BD, 'İSTANBUL Σ', DATE'2024-02-29', '2024-12-31 23:59:59.5', TRUE,
    X'00', named_struct('b', 3, 'c d', 'it''s')),
  (8, 8L, 8F, 8D, 8.00BD, 'b', DATE'2026-03-08', '2026-03-08 02:30:00', TRUE, X'42', NULL),
  (-2147483648, -9223372036854775808L, -1.5F, 9007199254740993D, 2.50BD, 'a\\nb', DATE'0001-01-01',
    '1900-01-01 00:00:00', FALSE, X'6162', named_struct('b', -1, 'c d', 'X')),
  (7, 9007199254740993L, 7F, 7D, 7.00BD, 'ünï 😀', DATE'9999-12-31', '2026-03-09 00:00:00', TRUE, X'41',
    named_struct('b', 7, 'c d', 'z')),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
  AS t(i, l, f, x, price, s, d, text, flag, raw, a)
"""


# Around 2:00, when they change.
CLOCKS = ("00:15:00", "01:30:00", "02:00:00", "02:30:00", "03:00:00", "03:30:00", "04:00:00", "06:00:00")


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    """Return rows of every type, in a session whose clocks change."""
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    texts = spark.sql(ROWS)
    return texts.select(
        *texts.columns, F.col("text").cast("timestamp").alias("ts"), F.col("text").cast("timestamp_ntz").alias("ntz")
    )


def outcomes(predicate: str, rows: pa.RecordBatch, frame: DataFrame) -> list[bool | None]:
    """Return what the sink takes a predicate for, row by row."""
    schema = iceberg_schema(frame.schema, case_sensitive=False)
    typed = typed_predicate(parse_predicate(predicate), schema, case_sensitive=False, time_zone=ZONE)
    found = typed.rows(rows)
    return [found.as_py()] * rows.num_rows if isinstance(found, pa.Scalar) else found.to_pylist()


def test_predicates_mean_what_spark_says(rows: DataFrame) -> None:
    """Other rows would be replaced or deleted than those that the same words select in Spark."""
    kept = rows.localCheckpoint()
    (batch,) = kept.toArrow().combine_chunks().to_batches()
    expected = kept.select(*(F.expr(text).alias(str(at)) for at, text in enumerate(PREDICATES))).collect()

    different = {
        text: (said, found)
        for at, text in enumerate(PREDICATES)
        if (said := [row[at] for row in expected]) != (found := outcomes(text, batch, kept))
    }
    assert different == {}


def test_times_near_a_change_of_clocks_mean_what_spark_says_or_are_refused(spark: SparkSession) -> None:
    """Spark takes `cast(ntz AS timestamp) = constant` for another comparison when it optimizes: other rows would go."""
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    frame = (
        spark.sql(
            "SELECT explode(sequence(TIMESTAMP'2026-03-07 20:00:00', TIMESTAMP'2026-03-08 12:00:00', "
            "INTERVAL 15 MINUTES) || sequence(TIMESTAMP'2026-10-31 20:00:00', TIMESTAMP'2026-11-01 12:00:00', "
            "INTERVAL 15 MINUTES)) AS ts"
        )
        .selectExpr("ts", "ts::timestamp_ntz AS ntz")
        .unionAll(
            spark.sql(
                "SELECT NULL, explode(sequence(TIMESTAMP_NTZ'2026-03-08 01:45:00', "
                "TIMESTAMP_NTZ'2026-03-08 04:00:00', INTERVAL 15 MINUTES))"
            )
        )
        .localCheckpoint()
    )
    (batch,) = frame.toArrow().combine_chunks().to_batches()
    times = [f"{day} {clock}" for day in ("2026-03-08", "2026-11-01") for clock in CLOCKS]
    predicates = [
        f"{column} {sign} {kind} '{time}{zone}'"
        for time in times
        for kind, zone in (("", ""), ("TIMESTAMP_NTZ", ""), ("TIMESTAMP", ""), ("TIMESTAMP", "-05:00"))
        for column in ("ntz", "ts", "cast(ntz AS timestamp)", "cast(ts AS timestamp_ntz)", "date_trunc('HOUR', ntz)")
        for sign in ("=", "<=>", ">", "<=")
        if kind or not zone
    ]
    predicates += [f"ntz IN (TIMESTAMP '{time}', TIMESTAMP_NTZ '{time}')" for time in times]
    expected = frame.select(*(F.expr(text).alias(str(at)) for at, text in enumerate(predicates))).collect()

    refused, different = set(), {}
    for at, text in enumerate(predicates):
        said = [row[at] for row in expected]
        try:
            found = outcomes(text, batch, frame)
        except ValueError as problem:
            assert "clocks" in str(problem)  # noqa: PT017  # most are not refused
            refused.add(text)
            continue
        if said != found:
            different[text] = (said, found)

    assert different == {}
    assert len(refused) < len(predicates) / 2
    assert "ntz = TIMESTAMP '2026-03-08 02:30:00'" in refused
    assert not refused & {f"ntz = TIMESTAMP_NTZ '{time}'" for time in times}
    assert not refused & {f"ts = TIMESTAMP '{time}'" for time in times}
    assert "ntz > TIMESTAMP '2026-03-08 00:15:00'" not in refused
