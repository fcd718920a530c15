"""Skipping files and partitions never loses a row: any filter on a table finds what it finds in the rows."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import chdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec
from pyspark.sql import types as spark
from support.tables.sink import Row, Sink, embedded_options, local
from support.tables.strategies import ROW, Filter, Ranges, both, either, filters, specs, texts, values

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.table.spark_types import iceberg_schema

UTC = dt.timezone.utc
_numbers = itertools.count()

NEAR = Ranges(first_day=dt.date(1968, 1, 2), last_day=dt.date(1972, 1, 2), names=("a",))
SCHEMA = spark.StructType(
    [
        spark.StructField(ROW, spark.LongType(), nullable=False),
        spark.StructField("number", spark.IntegerType()),
        spark.StructField("text", spark.StringType()),
        spark.StructField("bytes", spark.BinaryType()),
        spark.StructField("exact", spark.DecimalType(20, 3)),
        spark.StructField("day", spark.DateType()),
        spark.StructField("flag", spark.BooleanType()),
        spark.StructField("double", spark.DoubleType()),
        spark.StructField("float", spark.FloatType()),
    ]
)
# PyIceberg 0.12 finds nothing by a double that is an identity partition, not even what it has written itself.
PARTITION_SOURCES = iceberg_schema(SCHEMA[:-2])
# Few different values, so that filters hit some files and miss others.
DRAWN: dict[str, st.SearchStrategy[object]] = {
    "number": st.integers(-20, 20),
    "double": st.sampled_from([math.nan, -math.inf, math.inf, -0.0, 0.0, -1.5, 1e300, 5.0, 0.1]),
    "float": st.sampled_from([math.nan, -math.inf, math.inf, -0.0, 0.0, -1.5, 5.0, 0.25]),
    "text": texts(),
    "bytes": st.binary(max_size=3) | st.sampled_from([b"\xff" * 17, b"\xff" * 16 + b"\x00", b"a" * 20]),
    "exact": values(spark.DecimalType(20, 3), NEAR, nullable=False),
    "day": values(spark.DateType(), NEAR, nullable=False),
    "flag": st.booleans(),
}


@dataclass(frozen=True)
class Search:
    """A table of a few small files, and filters on it."""

    parts: list[list[Row]]
    spec: PartitionSpec
    filters: list[Filter]


@st.composite
def searches(draw: st.DrawFn) -> Search:
    """Return any table with filters on it."""
    spec = draw(specs(PARTITION_SOURCES))
    # PyIceberg 0.12 cannot compare with a partition value that is null.
    filled = {PARTITION_SOURCES.find_column_name(field.source_id) for field in spec.fields}
    row = st.fixed_dictionaries(
        {name: drawn if name in filled else st.none() | drawn | drawn for name, drawn in DRAWN.items()}
    )
    drawn = draw(st.lists(st.lists(row, max_size=3), min_size=1, max_size=5))
    numbers = itertools.count()
    parts = [[{ROW: next(numbers), **values_of} for values_of in part] for part in drawn]
    one = st.sampled_from(sorted(DRAWN)).flatmap(lambda name: filters(name, _value(parts, name)))
    combined = st.one_of(one, st.builds(both, one, one), st.builds(either, one, one))
    return Search(
        parts=parts,
        spec=spec,
        filters=draw(st.lists(combined, min_size=4, max_size=8)),
    )


def _value(parts: list[list[Row]], column: str) -> st.SearchStrategy[object]:
    """Return a value of the column, often one that a row has."""
    known = [row[column] for part in parts for row in part if row[column] is not None]
    usable = [value for value in known if not (isinstance(value, float) and math.isnan(value))]
    return st.sampled_from(usable) | DRAWN[column] if usable else DRAWN[column]


@pytest.fixture(scope="module")
def any_sink(tmp_path_factory: pytest.TempPathFactory) -> Sink:
    """Return a sink into one catalog for all examples; each makes its own table."""
    options = embedded_options(tmp_path_factory.mktemp("properties") / "warehouse")
    return Sink(catalog=connect(catalog_settings(options)), options=options)


@pytest.mark.usefixtures("waits")
@given(search=searches())
def test_filter_on_the_table_finds_what_it_finds_in_the_rows(any_sink: Sink, search: Search) -> None:
    """A query would miss rows because a file or a partition was skipped."""
    identifier = ("db", f"t{next(_numbers)}")
    any_sink.catalog._catalog.create_namespace_if_not_exists("db")
    any_sink.catalog._catalog.create_table(identifier, iceberg_schema(SCHEMA), partition_spec=search.spec)
    own = Sink(catalog=any_sink.catalog, options=replace(any_sink.options, table=identifier))
    own.commit(own.write(*search.parts, schema=SCHEMA))
    everything = [row for part in search.parts for row in part]
    table = own.table()

    for wanted in search.filters:
        scan = table.scan(row_filter=wanted.expression, selected_fields=(ROW,))
        if "NaN" in repr(wanted.expression):
            # PyArrow 26 skips a row group whose values are all alike but for NaN; the files to read are right.
            read = [pq.read_table(local(task.file.file_path)) for task in scan.plan_files()]
            found = [number for rows in read for number in rows[ROW].to_pylist() if wanted.keeps(everything[number])]
        else:
            found = scan.to_arrow()[ROW].to_pylist()
        assert sorted(found) == [row[ROW] for row in everything if wanted.keeps(row)], wanted


def test_deleting_below_a_value_keeps_the_nan_rows(sink: Sink) -> None:
    """`DELETE WHERE d < 5` would drop whole files that hold a NaN, because the bounds do not show it."""
    schema = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("d", spark.DoubleType())])
    sink.commit(sink.write([{"id": 1, "d": 1.0}, {"id": 2, "d": math.nan}], [{"id": 3, "d": 2.0}], schema=schema))

    sink.table().delete("d < 5")

    assert sink.ids() == [2]


CLICKHOUSE_FILTERS: dict[str, Callable[[Row], bool]] = {
    "number > 95": lambda row: row["number"] > 95,
    "number = 42": lambda row: row["number"] == 42,
    "text = 'row 42 with a tail that is cut'": lambda row: row["number"] == 42,
    "text > 'row 97'": lambda row: row["text"] > "row 97",
    "exact < -40.5": lambda row: row["exact"] < decimal.Decimal("-40.5"),
    "day >= '2026-01-30'": lambda row: row["day"] >= dt.date(2026, 1, 30),
    "isNaN(double)": lambda row: math.isnan(row["double"]),
}


@pytest.mark.parametrize("where", CLICKHOUSE_FILTERS)
def test_another_engine_skips_files_by_our_metrics_and_misses_no_row(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A query by another engine would miss rows, because it reads our bounds in another way."""
    monkeypatch.chdir("/")
    data = [
        {
            ROW: number,
            "number": number,
            "double": math.nan if number % 7 == 0 else number / 3,
            "float": float(number),
            "text": f"row {number} with a tail that is cut",
            "bytes": bytes([number]),
            "exact": decimal.Decimal(number - 50) + decimal.Decimal("0.125"),
            "day": dt.date(2026, 1, 1) + dt.timedelta(days=number // 3),
            "flag": number % 2 == 0,
        }
        for number in range(100)
    ]
    sink.commit(sink.write(*(data[start : start + 10] for start in range(0, 100, 10)), schema=SCHEMA))
    location = local(sink.table().metadata.location)

    result = chdb.query(
        f"SELECT {ROW} FROM icebergLocal('{location}') WHERE {where} ORDER BY {ROW} "  # noqa: S608  # our own text
        "SETTINGS use_iceberg_partition_pruning = 1",
        "CSV",
    )

    found = [int(line) for line in str(result).split()]
    assert found == [row[ROW] for row in data if CLICKHOUSE_FILTERS[where](row)]
    assert 0 < len(found) < 100
