"""Any rows in any partitions: Iceberg's own Spark runtime reads what was written, and skips no file too many."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog, differences
from support.exhaustive import EXHAUSTIVE, examples
from support.spark.tables import Warehouse
from support.tables.sink import NAME, Row
from support.tables.strategies import Ranges, specs, texts, values

from iceberg_ds.table.spark_types import iceberg_schema

NEAR = Ranges(first_day=dt.date(1966, 1, 2), last_day=dt.date(1974, 1, 2), names=("a",))
DECIMAL = spark.DecimalType(20, 3)
MOMENT = spark.TimestampType()
SCHEMA = spark.StructType(
    [
        spark.StructField("id", spark.LongType(), nullable=False),
        spark.StructField("number", spark.IntegerType()),
        spark.StructField("text", spark.StringType()),
        spark.StructField("bytes", spark.BinaryType()),
        spark.StructField("exact", DECIMAL),
        spark.StructField("day", spark.DateType()),
        spark.StructField("moment", MOMENT),
        spark.StructField("flag", spark.BooleanType()),
        spark.StructField("double", spark.DoubleType()),
        spark.StructField("list", spark.ArrayType(spark.StructType([spark.StructField("x", spark.IntegerType())]))),
    ]
)
# Neither agrees with itself on partitions of signed zeros and NaN, see `shared_catalog`.
PARTITION_SOURCES = iceberg_schema(SCHEMA[:-2])
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "number": st.integers(-(2**31) + 64, 2**31 - 1) | st.integers(-20, 20),
    "text": texts(),
    "bytes": st.binary(max_size=3) | st.sampled_from([b"\xff" * 17, b"a" * 20]),
    "exact": values(DECIMAL, NEAR, nullable=False),
    "day": values(spark.DateType(), NEAR, nullable=False),
    "moment": values(MOMENT, NEAR, nullable=False),
    "flag": st.booleans(),
    "double": st.sampled_from([math.nan, -math.inf, math.inf, -0.0, 0.0, -1.5, 1e300]),
    "list": st.none() | st.lists(st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)}), max_size=2),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[PartitionSpec, list[Row]]:
    """Return a partition spec, and rows of which the first has a value in every column."""
    spec = draw(specs(PARTITION_SOURCES))
    first = draw(st.fixed_dictionaries(DRAWN))
    others = draw(
        st.lists(st.fixed_dictionaries({name: st.none() | drawn for name, drawn in DRAWN.items()}), max_size=8)
    )
    return spec, [{"id": number, **row} for number, row in zip(itertools.count(), [first, *others], strict=False)]


@EXHAUSTIVE
@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_any_table_is_read_and_filtered_rightly(shared: SharedCatalog, table: tuple[PartitionSpec, list[Row]]) -> None:
    """A query would miss rows of some type in some kind of partition, because a file was skipped."""
    spec, rows = table
    catalog = Warehouse(folder=shared.folder).catalog()
    with contextlib.suppress(NoSuchTableError):
        catalog.drop_table(NAME)
    shared.create(iceberg_schema(SCHEMA), spec)

    shared.append(rows, SCHEMA)

    # PyIceberg 0.12 reads a null list of structs as an empty one.
    assert differences(shared.rows_of_jvm(), rows) == []
    shared.check_filters(rows, SCHEMA)
