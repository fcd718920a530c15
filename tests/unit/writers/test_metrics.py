"""A file's metrics against a plain computation from its rows."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import math
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from support.checks.plain_metrics import plain_columns
from support.tables.sink import Row

from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.metrics_config import leaf_columns
from iceberg_ds.writers.metrics import FileMetrics, count_nans, file_metrics

NAN = math.nan
UTC = dt.timezone.utc


def metrics_of(
    schema: Schema, *groups: list[Row] | pa.RecordBatch, properties: dict[str, str] | None = None
) -> FileMetrics:
    """Return the metrics of a file with these row groups."""
    arrow = file_shape(schema).schema
    leaves = leaf_columns(schema, properties or {})
    nans: dict[int, int] = {}
    stream = io.BytesIO()
    collected: list[pq.FileMetaData] = []
    with pq.ParquetWriter(stream, arrow, store_decimal_as_integer=True, metadata_collector=collected) as writer:
        for group in groups:
            batch = group if isinstance(group, pa.RecordBatch) else pa.RecordBatch.from_pylist(group, schema=arrow)
            for field_id, number in count_nans(batch, leaves).items():
                nans[field_id] = nans.get(field_id, 0) + number
            writer.write_batch(batch)
    return file_metrics(collected[0], leaves, nans)


def column(field_type: ice.IcebergType, *groups: list[Any], mode: str = "full") -> FileMetrics:
    """Return the metrics of a file with one column of these values, by field id 1."""
    schema = Schema(NestedField(1, "c", field_type))
    data = [[{"c": value} for value in group] for group in groups]
    return metrics_of(schema, *data, properties={"write.metadata.metrics.default": mode})


def bounds(field_type: ice.IcebergType, *groups: list[Any], mode: str = "full") -> tuple[Any, Any]:
    """Return the two bounds of such a column as values, None for those that are missing."""
    metrics = column(field_type, *groups, mode=mode)
    low, high = metrics.lower_bounds.get(1), metrics.upper_bounds.get(1)
    assert isinstance(field_type, ice.PrimitiveType)
    return (
        None if low is None else from_bytes(field_type, low),
        None if high is None else from_bytes(field_type, high),
    )


ORDERED: list[tuple[ice.PrimitiveType, list[Any]]] = [
    (ice.BooleanType(), [False, True]),
    (ice.IntegerType(), [-(2**31), -1, 0, 2**31 - 1]),
    (ice.LongType(), [-(2**63), -1, 0, 2**63 - 1]),
    (ice.FloatType(), [-math.inf, -1.5, 0.25, math.inf]),
    (ice.DoubleType(), [-math.inf, -1e300, 1e-300, math.inf]),
    (ice.DateType(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    (
        ice.TimestampType(),
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
    ),
    (ice.TimestamptzType(), [dt.datetime(1, 1, 2, tzinfo=UTC), dt.datetime(2026, 11, 21, tzinfo=UTC)]),
    (ice.StringType(), ["", "Z", "a", "aa", "é", "\ue000", "\U0001f600"]),
    (ice.BinaryType(), [b"", b"\x00", b"\x7f", b"\x80", b"\xff\xff"]),
    (ice.DecimalType(4, 2), [decimal.Decimal(text) for text in ("-99.99", "-0.01", "0.00", "99.99")]),
    (ice.DecimalType(18, 0), [decimal.Decimal(number) for number in (-(10**17), -129, -128, 127, 128, 10**17)]),
    (
        ice.DecimalType(38, 10),
        [decimal.Decimal(text) for text in ("-9999999999999999999999999999.9999999999", "1E-10")],
    ),
]


@pytest.mark.parametrize(("field_type", "values"), ORDERED, ids=[str(case[0]) for case in ORDERED])
def test_bounds_are_the_least_and_greatest_value_over_all_row_groups(
    field_type: ice.PrimitiveType, values: list[Any]
) -> None:
    """A query would skip a file that holds its rows."""
    inside, outside = [*values[1:-1], None], [values[-1], None, values[0]]
    expected = plain_columns(Schema(NestedField(1, "c", field_type)), [{"c": value} for value in values])[1].comparable

    metrics = column(field_type, inside, outside)

    assert metrics.lower_bounds[1] == to_bytes(field_type, expected[0])
    assert metrics.upper_bounds[1] == to_bytes(field_type, expected[-1])
    assert metrics.value_counts[1] == len(inside) + len(outside)
    assert metrics.null_value_counts[1] == 2
    assert metrics.record_count == len(inside) + len(outside)


@pytest.mark.parametrize("field_type", [case[0] for case in ORDERED], ids=str)
def test_column_of_nulls_has_counts_and_no_bounds(field_type: ice.PrimitiveType) -> None:
    """A query for values would read files that have none, or IS NULL would skip them."""
    metrics = column(field_type, [None, None], [None])

    assert (metrics.value_counts[1], metrics.null_value_counts[1]) == (3, 3)
    assert metrics.lower_bounds == metrics.upper_bounds == {}


@pytest.mark.parametrize("field_type", [case[0] for case in ORDERED], ids=str)
def test_row_group_of_nulls_does_not_take_the_bounds_away(field_type: ice.PrimitiveType) -> None:
    """Queries would read every file with a stretch of nulls."""
    value = next(values[0] for known, values in ORDERED if known == field_type)

    metrics = column(field_type, [None, None], [value])

    assert metrics.lower_bounds[1] == metrics.upper_bounds[1]


@pytest.mark.parametrize("field_type", [ice.FloatType(), ice.DoubleType()], ids=str)
def test_nans_are_counted_and_do_not_move_the_bounds(field_type: ice.PrimitiveType) -> None:
    """`DELETE WHERE x < 5` would drop a file with a NaN row, or a query would skip a file."""
    metrics = column(field_type, [1.0, NAN, None], [NAN, 2.0, NAN])

    assert metrics.nan_value_counts == {1: 3}
    assert metrics.null_value_counts == {1: 1}
    assert metrics.value_counts == {1: 6}
    assert from_bytes(field_type, metrics.lower_bounds[1]) == 1.0
    assert from_bytes(field_type, metrics.upper_bounds[1]) == 2.0


@pytest.mark.parametrize("field_type", [ice.FloatType(), ice.DoubleType()], ids=str)
def test_column_of_nans_has_counts_and_no_bounds(field_type: ice.PrimitiveType) -> None:
    """Readers would take a NaN bound for a value and skip files."""
    metrics = column(field_type, [NAN, NAN], [NAN, None])

    assert metrics.nan_value_counts == {1: 3}
    assert metrics.lower_bounds == metrics.upper_bounds == {}


@pytest.mark.parametrize("field_type", [ice.FloatType(), ice.DoubleType()], ids=str)
def test_row_group_of_nans_does_not_take_the_bounds_away(field_type: ice.PrimitiveType) -> None:
    """Queries would read every file with a stretch of NaN."""
    assert bounds(field_type, [NAN, NAN], [1.0, 2.0]) == (1.0, 2.0)


@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
@pytest.mark.parametrize("field_type", [ice.FloatType(), ice.DoubleType()], ids=str)
def test_bounds_hold_both_zeros(field_type: ice.PrimitiveType, values: list[float]) -> None:
    """Readers that tell -0.0 from 0.0 would skip a file that holds one of them."""
    low, high = bounds(field_type, values)

    assert math.copysign(1, low) == -1
    assert math.copysign(1, high) == 1


def test_float_without_nan_has_a_count_of_zero() -> None:
    """Readers could not use the bounds, for fear of a NaN."""
    assert column(ice.DoubleType(), [1.0], [None]).nan_value_counts == {1: 0}


@pytest.mark.parametrize(
    ("field_type", "arrow", "value"),
    [
        (ice.DateType(), pa.date32(), 2**31 - 1),
        (ice.DateType(), pa.date32(), -(2**31)),
        (ice.TimestampType(), pa.timestamp("us"), 2**63 - 1),
        (ice.TimestamptzType(), pa.timestamp("us", tz="UTC"), -(2**63)),
    ],
    ids=str,
)
def test_dates_beyond_year_9999_have_bounds(field_type: ice.PrimitiveType, arrow: pa.DataType, value: int) -> None:
    """A write of such a date would fail."""
    storage = pa.int32() if arrow == pa.date32() else pa.int64()
    schema = Schema(NestedField(1, "c", field_type))
    batch = pa.RecordBatch.from_arrays([pa.array([value], storage).view(arrow)], schema=file_shape(schema).schema)

    metrics = metrics_of(schema, batch)

    packed = struct.pack("<i" if arrow == pa.date32() else "<q", value)
    assert (metrics.lower_bounds[1], metrics.upper_bounds[1]) == (packed, packed)


TRUNCATED_TEXT = [
    ("abcdef", "abc", "abd"),
    ("abc", "abc", "abc"),
    ("ab", "ab", "ab"),
    ("ab\U0010ffffx", "ab\U0010ffff", "ac"),
    ("\U0010ffff\U0010ffff\U0010ffffx", "\U0010ffff\U0010ffff\U0010ffff", None),
    ("a\U0010ffff\U0010ffffx", "a\U0010ffff\U0010ffff", "b"),
    ("ab\ud7ffx", "ab\ud7ff", "ab\ue000"),
    ("ab\U0001f600x", "ab\U0001f600", "ab\U0001f601"),
    ("ab\uffffx", "ab\uffff", "ab\U00010000"),
    ("ab\x7fx", "ab\x7f", "ab\x80"),
    ("éèêë", "éèê", "éèë"),
]


@pytest.mark.parametrize(("value", "low", "high"), TRUNCATED_TEXT)
def test_text_bounds_are_cut_at_code_points(value: str, low: str, high: str | None) -> None:
    """A query would skip a file that holds its rows, or the write would fail."""
    assert bounds(ice.StringType(), [value], mode="truncate(3)") == (low, high)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (b"abcdef", b"abc", b"abd"),
        (b"abc", b"abc", b"abc"),
        (b"", b"", b""),
        (b"ab\xffx", b"ab\xff", b"ac"),
        (b"\xff\xff\xffx", b"\xff\xff\xff", None),
        (b"a\xff\xffx", b"a\xff\xff", b"b"),
    ],
)
def test_binary_bounds_are_cut_at_bytes(value: bytes, low: bytes, high: bytes | None) -> None:
    """A query would skip a file that holds its rows."""
    assert bounds(ice.BinaryType(), [value], mode="truncate(3)") == (low, high)


def text_batch(*values: bytes) -> tuple[Schema, pa.RecordBatch]:
    """Return a string column of any bytes: Spark does not check what a string holds."""
    schema = Schema(NestedField(1, "c", ice.StringType()))
    unchecked = pa.array(values, pa.binary()).view(pa.string())
    return schema, pa.RecordBatch.from_arrays([unchecked], schema=file_shape(schema).schema)


@pytest.mark.parametrize("values", [(b"\xff\xfe",), (b"a", b"\xed\xa0\x80"), (b"\x80", b"z")])
def test_bytes_that_are_no_text_have_no_wrong_bound(values: tuple[bytes, ...]) -> None:
    """The write would fail, or readers would fail on the bound."""
    metrics = metrics_of(*text_batch(*values))

    low, high = metrics.lower_bounds.get(1), metrics.upper_bounds.get(1)
    assert low is None or low.decode().encode() <= min(values)
    assert high is None or high.decode().encode() >= max(values)
    assert metrics.value_counts == {1: len(values)}


@pytest.mark.parametrize("field_type", [ice.StringType(), ice.BinaryType()], ids=str)
def test_values_without_parquet_statistics_leave_no_bound(field_type: ice.PrimitiveType) -> None:
    """A query would skip a file because the bounds of its other row groups stand for all."""
    long: Any = "z" * 5000 if isinstance(field_type, ice.StringType) else b"z" * 5000
    short: Any = "m" if isinstance(field_type, ice.StringType) else b"m"

    metrics = column(field_type, [short], [long], [short], mode="truncate(16)")

    assert metrics.lower_bounds.get(1, b"") <= b"m"
    assert 1 not in metrics.upper_bounds or metrics.upper_bounds[1] > b"z" * 16
    assert metrics.value_counts == {1: 3}
    assert metrics.null_value_counts == {1: 0}


NESTED = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(
        2,
        "s",
        ice.StructType(
            NestedField(3, "d", ice.DoubleType()),
            NestedField(
                4, "inner", ice.StructType(NestedField(5, "f", ice.FloatType()), NestedField(6, "t", ice.StringType()))
            ),
        ),
    ),
    NestedField(7, "l", ice.ListType(8, ice.DoubleType(), element_required=False)),
    NestedField(9, "m", ice.MapType(10, ice.StringType(), 11, ice.DoubleType(), value_required=False)),
    NestedField(
        12,
        "deep",
        ice.ListType(
            13,
            ice.StructType(
                NestedField(14, "v", ice.FloatType()),
                NestedField(15, "m", ice.MapType(16, ice.IntegerType(), 17, ice.FloatType(), value_required=False)),
            ),
            element_required=False,
        ),
    ),
)
NESTED_ROWS: list[Row] = [
    {
        "id": 1,
        "s": {"d": 1.0, "inner": {"f": NAN, "t": "x"}},
        "l": [1.0, NAN, None],
        "m": [("a", NAN), ("b", None)],
        "deep": [{"v": NAN, "m": [(1, NAN), (2, 0.5)]}, None, {"v": None, "m": []}],
    },
    {"id": 2, "s": None, "l": None, "m": None, "deep": None},
    {"id": None, "s": {"d": NAN, "inner": None}, "l": [], "m": [], "deep": []},
    {
        "id": 4,
        "s": {"d": None, "inner": {"f": -2.5, "t": None}},
        "l": [None],
        "m": [("c", 2.0)],
        "deep": [{"v": 0.5, "m": None}],
    },
]


def check_counts(metrics: FileMetrics, schema: Schema, data: list[Row]) -> None:
    """Assert that all counts are those of the rows."""
    every = plain_columns(schema, data)
    plain = {field_id: known for field_id, known in every.items() if not known.is_repeated}
    floats = (ice.FloatType, ice.DoubleType)
    assert metrics.value_counts == {field_id: known.value_count for field_id, known in plain.items()}
    assert metrics.null_value_counts == {field_id: known.null_count for field_id, known in plain.items()}
    assert metrics.nan_value_counts == {
        field_id: known.nan_count for field_id, known in plain.items() if isinstance(known.field_type, floats)
    }
    assert metrics.column_sizes.keys() == every.keys()


def test_counts_of_nested_columns_are_those_of_the_rows() -> None:
    """Queries on nested fields would skip files, NaN rows among them."""
    check_counts(metrics_of(NESTED, NESTED_ROWS[:2], NESTED_ROWS[2:]), NESTED, NESTED_ROWS)


def test_counts_of_a_sliced_batch_are_those_of_its_rows() -> None:
    """Rows of other files would be counted, because a batch is split between files."""
    batch = pa.RecordBatch.from_pylist(NESTED_ROWS, schema=file_shape(NESTED).schema)

    for start in range(len(NESTED_ROWS)):
        for end in range(start + 1, len(NESTED_ROWS) + 1):
            check_counts(metrics_of(NESTED, batch.slice(start, end - start)), NESTED, NESTED_ROWS[start:end])


def test_nan_under_a_null_struct_is_not_counted() -> None:
    """A value that is not there would count, because its buffer still holds it."""
    schema = Schema(NestedField(1, "s", ice.StructType(NestedField(2, "d", ice.DoubleType()))))
    arrow = file_shape(schema).schema
    hidden = pa.StructArray.from_arrays(
        [pa.array([NAN, NAN, 1.0])], fields=list(arrow.field("s").type), mask=pa.array([True, False, False])
    )

    metrics = metrics_of(schema, pa.RecordBatch.from_arrays([hidden], schema=arrow))

    assert metrics.nan_value_counts == {2: 1}
    assert metrics.null_value_counts == {2: 1}


def test_only_fields_outside_lists_and_maps_have_counts_and_bounds() -> None:
    """Readers would take the bound of an element for one of the column, or an empty list for a null in it."""
    metrics = metrics_of(NESTED, NESTED_ROWS)

    assert metrics.value_counts.keys() == metrics.null_value_counts.keys() == {1, 3, 5, 6}
    assert metrics.nan_value_counts.keys() == {3, 5}
    assert metrics.lower_bounds.keys() == metrics.upper_bounds.keys() == {1, 3, 5, 6}
    assert from_bytes(ice.FloatType(), metrics.lower_bounds[5]) == -2.5


@pytest.mark.parametrize(
    ("mode", "kept"),
    [("none", (False, None)), ("counts", (True, None)), ("truncate(2)", (True, "ab")), ("full", (True, "abcd"))],
)
def test_mode_decides_what_is_kept(mode: str, kept: tuple[bool, str | None]) -> None:
    """A user could not keep manifests small, or bounds exact."""
    metrics = column(ice.StringType(), ["abcd"], mode=mode)

    assert (1 in metrics.value_counts) == (1 in metrics.null_value_counts) == (1 in metrics.column_sizes) == kept[0]
    assert metrics.lower_bounds.get(1) == (kept[1].encode() if kept[1] else None)
    assert metrics.record_count == 1


def test_modes_may_differ_between_columns() -> None:
    """A user could not keep one column's metrics and drop another's."""
    schema = Schema(*(NestedField(number, name, ice.DoubleType()) for number, name in enumerate("abc", start=1)))
    properties = {
        "write.metadata.metrics.column.a": "none",
        "write.metadata.metrics.column.b": "counts",
        "write.metadata.metrics.column.c": "full",
    }

    metrics = metrics_of(schema, [{"a": NAN, "b": NAN, "c": 1.0}], properties=properties)

    assert metrics.value_counts == {2: 1, 3: 1}
    assert metrics.nan_value_counts == {2: 1, 3: 0}
    assert metrics.lower_bounds.keys() == {3}


def test_columns_beyond_the_first_hundred_have_no_metrics() -> None:
    """Manifests of wide tables would grow without limit."""
    schema = Schema(*(NestedField(number, f"c{number}", ice.DoubleType()) for number in range(1, 121)))

    metrics = metrics_of(schema, [{f"c{number}": NAN for number in range(1, 121)}])

    assert metrics.value_counts.keys() == metrics.nan_value_counts.keys() == set(range(1, 101))


def test_split_offsets_are_where_the_row_groups_begin() -> None:
    """Readers could not divide a large file among tasks."""
    metrics = column(ice.LongType(), [1, 1, 1], [2], [None])

    assert metrics.split_offsets == sorted(set(metrics.split_offsets))
    assert len(metrics.split_offsets) == 3
    assert metrics.split_offsets[0] == 4
