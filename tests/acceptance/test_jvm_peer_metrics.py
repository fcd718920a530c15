"""The metrics of a file that the sink writes are those that Iceberg's own Spark runtime writes for the same rows."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import each_value
from support.peer.jvm_peer import Row
from support.tables.event_rows import struct

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

INNER = struct(x=spark.DoubleType(), y=spark.StringType())
NESTED = struct(
    id=spark.LongType(),
    s=struct(inner=INNER, n=spark.IntegerType()),
    l=spark.ArrayType(spark.DoubleType()),
    many=spark.ArrayType(INNER),
    m=spark.MapType(spark.StringType(), INNER),
    deep=struct(l=spark.ArrayType(spark.ArrayType(spark.LongType()))),
)
COLUMNS = (
    "id BIGINT, s STRUCT<inner: STRUCT<x: DOUBLE, y: STRING>, n: INT>, l ARRAY<DOUBLE>, "
    "many ARRAY<STRUCT<x: DOUBLE, y: STRING>>, m MAP<STRING, STRUCT<x: DOUBLE, y: STRING>>, "
    "deep STRUCT<l: ARRAY<ARRAY<BIGINT>>>"
)
FULL: Row = {
    "id": 1,
    "s": {"inner": {"x": 1.5, "y": "a long text of more than sixteen characters"}, "n": 1},
    "l": [1.0, None, math.nan],
    "many": [{"x": math.nan, "y": "z"}, None],
    "m": [("k", {"x": None, "y": "v"}), ("n", None)],
    "deep": {"l": [[1, None], [], None]},
}
EMPTY: Row = {"id": 2, "s": {"inner": None, "n": None}, "l": [], "many": [], "m": [], "deep": {"l": []}}
MISSING: Row = {**dict.fromkeys(NESTED.names), "id": 3}
NAN: Row = {**MISSING, "id": 4, "s": {"inner": {"x": math.nan, "y": ""}, "n": None}}
METRICS = "record_count, value_counts, null_value_counts, nan_value_counts, lower_bounds, upper_bounds"
ROWS = {
    "all": [FULL, EMPTY, MISSING, NAN],
    "empty": [EMPTY],
    "missing": [MISSING],
    "nan": [NAN],
}


@pytest.mark.parametrize(("rows", "mode"), each_value([*ROWS.values()], ["truncate(16)", "counts", "none"]))
def test_metrics_of_nested_columns_are_those_of_the_jvm(shared: SharedCatalog, rows: list[Row], mode: str) -> None:
    """Engines would count empty lists as nulls, or skip files by bounds and counts that nobody else writes."""
    made = f"({COLUMNS}) USING iceberg TBLPROPERTIES ('write.metadata.metrics.default' = '{mode}')"
    shared.jvm.run("CREATE NAMESPACE IF NOT EXISTS db")
    for table in ("db.t", "db.theirs"):
        shared.jvm.run(f"CREATE TABLE {table} {made}")
    sink = shared.sink()

    sink.commit(sink.write(rows, schema=NESTED))
    shared.jvm.append("db.theirs", rows, NESTED)

    ours, theirs = (shared.jvm.sql(f"SELECT {METRICS} FROM {table}.files") for table in ("db.t", "db.theirs"))  # noqa: S608
    assert ours == theirs
    sizes = "SELECT map_keys(column_sizes) FROM {}.files"
    assert [set(*shared.jvm.values(sizes.format(table))) for table in ("db.t",)] == [
        set(*shared.jvm.values(sizes.format("db.theirs")))
    ]
