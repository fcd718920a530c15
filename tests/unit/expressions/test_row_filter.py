"""Which rows satisfy a predicate: in three-valued logic, on every type, with every column kept as it was."""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from iceberg_ds.expressions.binding import typed_predicate
from iceberg_ds.expressions.parser import parse_predicate
from iceberg_ds.expressions.row_filter import RowFilter
from iceberg_ds.table.arrow_schema import file_shape

UTC = dt.timezone.utc
SCHEMA = Schema(
    NestedField(1, "id", ice.LongType(), required=True),
    NestedField(2, "x", ice.DoubleType()),
    NestedField(3, "text", ice.StringType()),
    NestedField(4, "uuid", ice.UUIDType()),
    NestedField(5, "list", ice.ListType(50, ice.IntegerType())),
)
ARROW = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("uuid", pa.uuid()),
        pa.field("list", pa.list_(pa.int32())),
    ]
)
ROWS = [
    {"id": 0, "x": 1.0, "text": "a", "uuid": UUID(int=1).bytes, "list": [1]},
    {"id": 1, "x": math.nan, "text": "ab", "uuid": UUID(int=2).bytes, "list": []},
    {"id": 2, "x": None, "text": None, "uuid": None, "list": None},
    {"id": 3, "x": -0.0, "text": "", "uuid": UUID(int=1 << 127).bytes, "list": [None]},
    {"id": 4, "x": math.inf, "text": "b", "uuid": UUID(int=1).bytes, "list": [1, 2]},
]


def split(text: str, schema: Schema = SCHEMA, batch: pa.RecordBatch | None = None) -> tuple[list[int], list[int]]:
    """Return the ids of the rows that satisfy a predicate, and those of the others."""
    batch = batch if batch is not None else pa.RecordBatch.from_pylist(ROWS, schema=ARROW)
    row_filter = RowFilter(text, schema, case_sensitive=False)
    satisfying, failing = batch.filter(row_filter.mask(batch)), row_filter.failing(batch)
    assert failing.schema.equals(batch.schema, check_metadata=True)
    return satisfying.column(0).to_pylist(), failing.column(0).to_pylist()


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("true", [0, 1, 2, 3, 4]),
        ("false", []),
        ("x = 1", [0]),
        ("x <> 1", [1, 3, 4]),
        ("not x = 1", [1, 3, 4]),
        ("x < 1", [3]),
        ("x >= 0", [0, 1, 3, 4]),
        ("not x < 1", [0, 1, 4]),
        ("x between 0 and 1", [0, 3]),
        ("x not between 0 and 1", [1, 4]),
        ("x > 1e300", [1, 4]),
        ("x = 'NaN'", [1]),
        ("x in (0, 'NaN')", [1, 3]),
        ("x in (0, 1)", [0, 3]),
        ("x not in (0, NULL)", []),
        ("x <=> null", [2]),
        ("(x > 0) is not true", [2, 3]),
        ("text like '%b'", [1, 4]),
        ("id % 2 = 1", [1, 3]),
        ("id + 1 = 3", [2]),
        ("coalesce(x, 0) = 0", [2, 3]),
        ("x not in (0, 1)", [1, 4]),
        ("x is nan", [1]),
        ("x is not nan", [0, 3, 4]),
        ("not x is nan", [0, 3, 4]),
        ("x is null", [2]),
        ("not x is null", [0, 1, 3, 4]),
        ("x = 1 or x is null", [0, 2]),
        ("not (x = 1 or x is null)", [1, 3, 4]),
        ("text like 'a%'", [0, 1]),
        ("text not like 'a%'", [3, 4]),
        ("text like '%'", [0, 1, 3, 4]),
        ("text not like '%'", []),
        ("text = ''", [3]),
        ("text > 'a'", [1, 4]),
        ("uuid = '00000000-0000-0000-0000-000000000001'", [0, 4]),
        ("uuid <> '00000000-0000-0000-0000-000000000001'", [1, 3]),
        ("uuid > '00000000-0000-0000-0000-000000000002'", [3]),
        ("uuid in ('00000000-0000-0000-0000-000000000001', '00000000-0000-0000-0000-000000000002')", [0, 1, 4]),
        ("list is null", [2]),
        ("id is null", []),
        ("id is not null", [0, 1, 2, 3, 4]),
        ("ID = 3", [3]),
    ],
)
def test_rows_are_split_by_what_is_true_of_them(text: str, ids: list[int]) -> None:
    """Rows that the predicate does not mention, such as those with null and NaN, would be replaced, or stay."""
    satisfying, failing = split(text)

    assert satisfying == ids
    assert failing == [row["id"] for row in ROWS if row["id"] not in ids]


@pytest.mark.parametrize("text", ["x = 'NaN'", "x in (7, 'NaN')", "-x in (7, 'NaN')", "x * 0 in (7, 'NaN')"])
@pytest.mark.parametrize("bits", [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0xFFF0DEADBEEF0000])
def test_nan_is_one_value_whatever_its_bits(text: str, bits: int) -> None:
    """A computed NaN, whose sign is often set, would stay beside the rows that replace it, or be refused."""
    numbers = pa.array([bits - (bits >> 63 << 64), 0], pa.int64()).view(pa.float64())
    columns = [pa.array([0, 1]), numbers, *(pa.nulls(2, field.type) for field in list(ARROW)[2:])]

    assert split(text, batch=pa.RecordBatch.from_arrays(columns, schema=ARROW)) == ([0], [1])


@pytest.mark.parametrize(
    ("text", "found"), [("x = 1", [True, False, False, False, False]), ("true", [True] * 5), ("false", [False] * 5)]
)
def test_rows_are_marked_where_the_predicate_is_true(text: str, found: list[bool]) -> None:
    """A row of which it is unknown would be dropped, or fail the task."""
    row_filter = RowFilter(text, SCHEMA, case_sensitive=False)

    assert row_filter.mask(pa.RecordBatch.from_pylist(ROWS, schema=ARROW)).to_pylist() == found


VALUES: dict[str, tuple[ice.IcebergType, pa.DataType, list[Any], str]] = {
    "boolean": (ice.BooleanType(), pa.bool_(), [True, False], "TRUE"),
    "int": (ice.IntegerType(), pa.int32(), [7, 8], "7"),
    "float": (ice.FloatType(), pa.float32(), [0.1, 0.2], "0.1F"),
    "decimal": (ice.DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("19.99"), Decimal("20.00")], "19.99"),
    "decimal38": (ice.DecimalType(38, 0), pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(1)], "9" * 38),
    "date": (ice.DateType(), pa.date32(), [dt.date(1960, 2, 29), dt.date(2026, 1, 1)], "'1960-02-29'"),
    "time": (ice.TimeType(), pa.time64("us"), [dt.time(1, 2, 3, 4), dt.time(0)], "'01:02:03.000004'"),
    "timestamp": (
        ice.TimestampType(),
        pa.timestamp("us"),
        [dt.datetime(1960, 1, 1), dt.datetime(2026, 1, 1)],  # noqa: DTZ001  # without zone
        "'1960-01-01'",
    ),
    "timestamptz": (
        ice.TimestamptzType(),
        pa.timestamp("us", "UTC"),
        [dt.datetime(2026, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 2, tzinfo=UTC)],
        "'2026-01-01 02:00:00+02:00'",
    ),
    "string": (ice.StringType(), pa.string(), ["ünï 'q'", "b"], "'ünï ''q'''"),
    "large string": (ice.StringType(), pa.large_string(), ["a", "b"], "'a'"),
    "binary": (ice.BinaryType(), pa.binary(), [b"\x00\xff", b"b"], "X'00ff'"),
    "large binary": (ice.BinaryType(), pa.large_binary(), [b"\x00\xff", b"b"], "X'00ff'"),
    "fixed": (ice.FixedType(3), pa.binary(3), [b"\x00\xffa", b"abc"], "X'00ff61'"),
    "uuid": (ice.UUIDType(), pa.uuid(), [UUID(int=5).bytes, UUID(int=6).bytes], f"'{UUID(int=5)}'"),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("column", ["x", "with space", "a.b", "ünï"])
def test_values_of_every_type_are_compared(name: str, column: str) -> None:
    """Ranges over columns of some types would fail the task, or match nothing."""
    kind, arrow, values, literal = VALUES[name]
    schema = Schema(NestedField(1, "id", ice.LongType()), NestedField(2, column, kind))
    columns = [pa.array(range(3), pa.int64()), pa.array([*values, None], arrow)]
    batch = pa.RecordBatch.from_arrays(columns, ["id", column])

    assert split(f"`{column}` = {literal}", schema, batch) == ([0], [1, 2])
    assert split(f"`{column}` <> {literal}", schema, batch) == ([1], [0, 2])
    assert split(f"`{column}` in ({literal}, {literal})", schema, batch) == ([0], [1, 2])
    assert split(f"`{column}` not in ({literal})", schema, batch) == ([1], [0, 2])
    assert split(f"`{column}` is null", schema, batch) == ([2], [0, 1])


def test_columns_are_taken_by_position() -> None:
    """Rows of a batch whose columns have other names, such as safe ones, would fail or be compared wrongly."""
    batch = pa.RecordBatch.from_pylist(ROWS, schema=ARROW).rename_columns(["_1", "x_", "text", "uuid", "id"])

    assert split("id >= 3 and x >= 0", batch=batch) == ([3, 4], [0, 1, 2])


@pytest.mark.parametrize("text", ["x = 1", "true", "false", "id is null"])
def test_empty_batch_stays_empty(text: str) -> None:
    """An empty batch would end the task."""
    assert split(text, batch=pa.RecordBatch.from_pylist([], schema=ARROW)) == ([], [])


def test_slice_of_a_batch_is_split_by_its_own_rows() -> None:
    """Rows before the slice would decide over those in it."""
    assert split("x = 1", batch=pa.RecordBatch.from_pylist(ROWS, schema=ARROW).slice(1)) == ([], [1, 2, 3, 4])


def test_metadata_of_columns_is_kept() -> None:
    """Field ids would be lost, and the file written without them."""
    field = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"})
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=pa.schema([field]))
    schema = Schema(NestedField(1, "id", ice.LongType(), required=True))

    assert split("id = 1", schema, batch) == ([1], [2])


# Where each stands in Spark's order: zeros are equal, NaN is above all, and null is nowhere.
NUMBERS = {None: None, -math.inf: 0, -1.5: 1, -0.0: 2, 1.5: 3, math.inf: 4, math.nan: 5}
SIGNS: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.parametrize("kind", [ice.FloatType(), ice.DoubleType()], ids=str)
@pytest.mark.parametrize("sign", SIGNS)
def test_each_two_of_numbers_null_and_nan_compare_as_in_spark(sign: str, kind: ice.PrimitiveType) -> None:
    """Rows of which it is unknown would be replaced, or those of which it is true stay."""
    schema = Schema(NestedField(1, "x", kind), NestedField(2, "y", kind))
    given = list(NUMBERS)
    for other, rank in NUMBERS.items():
        batch = pa.RecordBatch.from_pydict(
            {"x": given, "y": [other] * len(given)}, file_shape(schema, case_sensitive=True).named
        )
        expected = [None if None in (one, rank) else SIGNS[sign](one, rank) for one in NUMBERS.values()]

        for right in ("y", "NULL" if other is None else f"'{other}'"):
            predicate = parse_predicate(f"x {sign} {right}")
            found = typed_predicate(predicate, schema, case_sensitive=True, time_zone=None).rows(batch)
            outcomes = found.to_pylist() if isinstance(found, pa.Array) else [found.as_py()] * len(given)
            assert outcomes == expected, (right, other)
