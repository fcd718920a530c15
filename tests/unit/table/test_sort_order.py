"""The order of rows: against plain Python, for every type, direction, null order and transform."""

from __future__ import annotations

import datetime as dt
import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import NestedField
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros
from support.tables.ordered_values import VALUES, comparable, plain

from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.sort_order import RowOrder

TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(3),
    TruncateTransform(2),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]


def internal(value: Any) -> Any:
    """Return a date or timestamp as Iceberg's transforms take it."""
    if isinstance(value, dt.datetime):
        return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, dt.date) else value


def compare(field: SortField, field_type: ice.PrimitiveType, left: Any, right: Any) -> int:
    """Compare two values of one sort field, as the spec says."""
    if not isinstance(field.transform, IdentityTransform):
        transform = field.transform.transform(field_type)
        left, right = transform(internal(left)), transform(internal(right))
    if left is None or right is None:
        nulls_first = field.null_order is NullOrder.NULLS_FIRST
        return 0 if left is right else -1 if (left is None) == nulls_first else 1
    low, high = comparable(left), comparable(right)
    ascending = int(low > high) - int(low < high)
    return ascending if field.direction is SortDirection.ASC else -ascending


def oracle(rows: Sequence[dict[str, Any]], order: SortOrder, schema: Schema) -> list[int]:
    """Return the positions of the rows in order; Python's sort keeps equal ones as they are."""
    fields = [(field, schema.find_field(field.source_id)) for field in order.fields]

    def compare_rows(left: int, right: int) -> int:
        for field, source in fields:
            result = compare(field, source.field_type, rows[left][source.name], rows[right][source.name])  # type: ignore[arg-type]
            if result:
                return result
        return 0

    return sorted(range(len(rows)), key=functools.cmp_to_key(compare_rows))


def positions(rows: Sequence[dict[str, Any]], order: SortOrder, schema: Schema) -> list[int]:
    """Return the positions of the rows as the code under test orders them."""
    row_order = RowOrder(order, schema)
    batch = pa.RecordBatch.from_pylist([plain(row) for row in rows], schema=file_shape(schema).schema)
    return list(row_order.positions(row_order.keys(batch)).to_pylist())


def row_of(*names: str) -> tuple[Schema, st.SearchStrategy[dict[str, Any]]]:
    """Return a schema with columns of these types, and rows of it."""
    fields = [NestedField(number, f"c{number}", VALUES[name][0]) for number, name in enumerate(names, start=1)]
    values = {f"c{number}": st.none() | VALUES[name][1] for number, name in enumerate(names, start=1)}
    return Schema(*fields), st.fixed_dictionaries(values)


DIRECTIONS = st.sampled_from(SortDirection)
NULL_ORDERS = st.sampled_from(NullOrder)


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_rows_are_in_the_order_that_the_spec_says_for_each_type(name: str, data: st.DataObject) -> None:
    """Files would claim an order that their rows are not in, and readers would trust it."""
    schema, row = row_of(name)
    transforms = [transform for transform in TRANSFORMS if transform.can_transform(VALUES[name][0])]
    transform = data.draw(st.sampled_from(transforms))
    order = SortOrder(SortField(1, transform, data.draw(DIRECTIONS), data.draw(NULL_ORDERS)))
    rows = data.draw(st.lists(row, max_size=20))

    assert positions(rows, order, schema) == oracle(rows, order, schema)


@given(data=st.data())
def test_later_fields_decide_between_rows_that_are_equal_in_the_earlier(data: st.DataObject) -> None:
    """Rows would be sorted by the first column alone."""
    schema, row = row_of("int", "double", "string", "timestamptz")
    columns = data.draw(st.permutations([1, 2, 3, 4]))
    fields = [
        SortField(column, IdentityTransform(), data.draw(DIRECTIONS), data.draw(NULL_ORDERS)) for column in columns
    ]
    few = st.fixed_dictionaries(
        {"c1": st.none() | st.integers(0, 1), "c2": st.sampled_from([None, math.nan, 0.0]), "c3": st.sampled_from("ab")}
    )
    rows = [
        {**drawn, **repeated}
        for drawn, repeated in data.draw(st.lists(st.tuples(row, few | st.just({})), min_size=2, max_size=30))
    ]

    assert positions(rows, SortOrder(*fields), schema) == oracle(rows, SortOrder(*fields), schema)


def one_column(
    field_type: ice.PrimitiveType, values: list[Any], direction: SortDirection = SortDirection.ASC
) -> list[Any]:
    """Return the values in order."""
    schema = Schema(NestedField(1, "c1", field_type))
    order = SortOrder(SortField(1, IdentityTransform(), direction))
    return [values[position] for position in positions([{"c1": value} for value in values], order, schema)]


def test_nan_is_above_infinity_and_minus_zero_below_zero() -> None:
    """Readers that skip by order would skip a NaN."""
    given_values = [math.nan, math.inf, 0.0, -0.0, None, -math.inf, 1.0]

    ascending = one_column(ice.DoubleType(), given_values)
    descending = one_column(ice.DoubleType(), given_values, SortDirection.DESC)

    assert repr(ascending) == "[None, -inf, -0.0, 0.0, 1.0, inf, nan]"
    assert repr(descending) == "[nan, inf, 1.0, 0.0, -0.0, -inf, None]"


def test_nan_of_either_sign_is_the_same() -> None:
    """A NaN that a processor made from 0/0, which is negative, would stand at the other end."""
    (negative,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0000))
    schema = Schema(NestedField(1, "c1", ice.DoubleType()), NestedField(2, "c2", ice.IntegerType()))
    order = SortOrder(SortField(1), SortField(2))
    rows = [{"c1": negative, "c2": 2}, {"c1": math.nan, "c2": 1}, {"c1": negative, "c2": 0}, {"c1": 5.0, "c2": 3}]

    assert positions(rows, order, schema) == [3, 2, 1, 0]


def test_text_is_ordered_by_its_utf8_bytes() -> None:
    """Java's order by UTF-16 would put emoji before other rare characters."""
    assert one_column(ice.StringType(), ["\U0001f600", "\uffff", "z", "é", ""]) == [
        "",
        "z",
        "é",
        "\uffff",
        "\U0001f600",
    ]


def test_bytes_are_unsigned() -> None:
    """Bytes above 127 would come first."""
    assert one_column(ice.BinaryType(), [b"\xff", b"\x7f", b"\x80", b""]) == [b"", b"\x7f", b"\x80", b"\xff"]


def test_source_may_be_a_field_of_a_struct() -> None:
    """Tables that are sorted by a nested field could not be written."""
    inner = ice.StructType(NestedField(2, "x", ice.LongType()), NestedField(3, "y", ice.LongType()))
    schema = Schema(NestedField(1, "s", inner))
    rows: list[dict[str, Any]] = [
        {"s": {"x": 0, "y": 2}},
        {"s": None},
        {"s": {"x": 1, "y": None}},
        {"s": {"x": 2, "y": 1}},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=file_shape(schema).schema)
    order = RowOrder(SortOrder(SortField(3, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST)), schema)

    assert order.positions(order.keys(batch)).to_pylist() == [3, 0, 1, 2]


def test_partitions_lie_together_before_the_order_counts() -> None:
    """A task would need an open file for each partition."""
    schema, _ = row_of("int", "int")
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "b"), PartitionField(9, 1001, VoidTransform(), "gone")
    )
    rows = [{"c1": number % 5, "c2": -number} for number in range(50)]
    batch = pa.RecordBatch.from_pylist(rows, schema=file_shape(schema).schema)
    order = RowOrder(SortOrder(SortField(2)), schema, spec)

    ordered = batch.take(order.positions(order.keys(batch))).to_pylist()

    bucket: Callable[[Any], Any] = BucketTransform(4).transform(ice.IntegerType())
    keys = [(bucket(row["c1"]), row["c2"]) for row in ordered]
    assert keys == sorted(keys)


def test_keys_of_different_batches_can_be_put_together() -> None:
    """Rows of a run with nulls could not be merged with those of a run without."""
    schema, _ = row_of("double", "uuid", "string")
    order = RowOrder(SortOrder(SortField(1), SortField(2), SortField(3)), schema)
    arrow = file_shape(schema).schema
    without = pa.RecordBatch.from_pylist([{"c1": 1.0, "c2": b"0" * 16, "c3": "x"}], schema=arrow)
    nulls = pa.RecordBatch.from_pylist([{}], schema=arrow)

    keys = pa.Table.from_batches([order.keys(without), order.keys(nulls), order.keys(nulls.slice(0, 0))])

    assert order.positions(keys.combine_chunks().to_batches()[0]).to_pylist() == [1, 0]


def test_tie_breakers_decide_between_equal_rows() -> None:
    """Equal rows of two runs would change places."""
    schema, _ = row_of("int")
    order = RowOrder(SortOrder(SortField(1)), schema)
    batch = pa.RecordBatch.from_pylist([{"c1": 1}, {"c1": 1}, {"c1": 0}], schema=file_shape(schema).schema)

    assert order.positions(order.keys(batch), pa.array([2, 1, 9], pa.int32())).to_pylist() == [2, 1, 0]


@pytest.mark.parametrize("fields", [[VoidTransform()], [VoidTransform(), VoidTransform()]])
def test_order_by_nothing_but_void_fields_changes_nothing(fields: list[Transform[Any, Any]]) -> None:
    """A table whose sort columns were all dropped could not be written."""
    schema, _ = row_of("int")

    assert positions(
        [{"c1": 2}, {"c1": 1}, {"c1": None}], SortOrder(*[SortField(7, transform) for transform in fields]), schema
    ) == [0, 1, 2]


IN_LIST = ice.ListType(element_id=2, element_type=ice.LongType())


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (SortField(9, IdentityTransform()), "dropped, or in a list or map"),
        (SortField(2, IdentityTransform()), "dropped, or in a list or map"),
        (SortField(1, IdentityTransform()), "dropped, or in a list or map"),
        (SortField(3, UnknownTransform("zorder")), "unknown transform"),
    ],
)
def test_field_that_cannot_be_sorted_by_is_refused(field: SortField, reason: str) -> None:
    """Rows would be written in no order under the name of one."""
    schema = Schema(NestedField(1, "l", IN_LIST), NestedField(3, "x", ice.LongType()))

    with pytest.raises(ValueError, match=reason):
        RowOrder(SortOrder(field), schema)
