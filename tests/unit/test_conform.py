"""Batches as Spark sends them, brought into the shape of the table's files."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from support.tables import Row

from iceberg_ds.conform import conform
from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.shape import FileShape, file_shape

UTC = dt.timezone.utc


def shape(*fields: NestedField) -> FileShape:
    """Return the shape of the files of a table with these fields."""
    return file_shape(Schema(*fields))


def conformed(data: list[Row], arrow_schema: pa.Schema, target: FileShape) -> list[Row]:
    """Return the rows after the trip into `target`, whose types they must have."""
    batch = conform(pa.RecordBatch.from_pylist(data, schema=arrow_schema), target)

    batch.validate(full=True)
    assert batch.schema.equals(target.schema, check_metadata=True)
    return batch.to_pylist()


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kathmandu", "UTC", "Etc/UTC", "+05:30"])
def test_time_zone_is_relabelled_and_the_instant_kept(zone: str) -> None:
    """Every timestamp would be off by the session's time zone."""
    instant = dt.datetime(1969, 7, 20, 20, 17, 40, 123456, tzinfo=UTC)
    target = shape(NestedField(1, "ts", ice.TimestamptzType()))

    result = conformed([{"ts": instant}, {"ts": None}], pa.schema({"ts": pa.timestamp("us", tz=zone)}), target)

    assert result == [{"ts": instant}, {"ts": None}]


@pytest.mark.parametrize("narrow", [pa.int8(), pa.int16()])
@pytest.mark.parametrize("wide", [ice.IntegerType(), ice.LongType()])
def test_small_integers_are_widened(narrow: pa.DataType, wide: ice.IcebergType) -> None:
    """A byte or short column could not be written."""
    target = shape(NestedField(1, "n", wide))

    result = conformed([{"n": -128}, {"n": 127}, {"n": None}], pa.schema({"n": narrow}), target)

    assert result == [{"n": -128}, {"n": 127}, {"n": None}]


@pytest.mark.parametrize(
    ("given", "target", "value"),
    [
        (pa.int32(), ice.LongType(), -(2**31)),
        (pa.float32(), ice.DoubleType(), 0.5),
        (pa.decimal128(5, 2), ice.DecimalType(9, 2), -1),
    ],
)
def test_values_are_widened_into_promoted_columns(given: pa.DataType, target: ice.IcebergType, value: float) -> None:
    """A table whose column was widened could not be written by the old DataFrame."""
    result = conformed([{"c": value}], pa.schema({"c": given}), shape(NestedField(1, "c", target)))

    assert result == [{"c": value}]


def test_columns_are_put_into_the_order_of_the_table_whatever_their_case() -> None:
    """Values would go into another column."""
    target = shape(NestedField(1, "id", ice.LongType()), NestedField(2, "Name", ice.StringType()))

    result = conformed([{"NAME": "x", "ID": 1}], pa.schema({"NAME": pa.string(), "ID": pa.int64()}), target)

    assert result == [{"id": 1, "Name": "x"}]


def test_unsafe_names_are_found_by_the_tables_name() -> None:
    """A column whose name is made safe in the file could not be written."""
    target = shape(
        NestedField(1, "a.b", ice.LongType()),
        NestedField(2, "2nd", ice.StructType(NestedField(3, "x-y", ice.LongType()))),
    )

    result = conformed(
        [{"a.b": 1, "2nd": {"x-y": 2}}],
        pa.schema({"a.b": pa.int64(), "2nd": pa.struct({"x-y": pa.int64()})}),
        target,
    )

    assert result == [{"a_x2Eb": 1, "_2nd": {"x_x2Dy": 2}}]


STRUCT = ice.StructType(
    NestedField(10, "x", ice.LongType()),
    NestedField(11, "Y", ice.TimestamptzType()),
    NestedField(12, "z", ice.StringType()),
)
SPARK_STRUCT = pa.struct({"z": pa.string(), "y": pa.timestamp("us", tz="Asia/Tokyo"), "X": pa.int16()})
INSTANT = dt.datetime(2026, 11, 21, 7, 0, tzinfo=UTC)


def spark_struct(number: int | None) -> Row:
    """Return a struct as Spark sends it, with null fields for None."""
    return {"z": None if number is None else str(number), "y": INSTANT if number else None, "X": number}


def table_struct(number: int | None) -> Row:
    """Return the same struct as the table has it."""
    return {"x": number, "Y": INSTANT if number else None, "z": None if number is None else str(number)}


STRUCT_ROWS: list[tuple[Any, Any]] = [
    (None, None),
    (spark_struct(1), table_struct(1)),
    (spark_struct(None), table_struct(None)),
    (spark_struct(3), table_struct(3)),
]

NESTED: list[tuple[str, pa.DataType, ice.IcebergType, list[tuple[Any, Any]]]] = [
    ("struct", SPARK_STRUCT, STRUCT, STRUCT_ROWS),
    (
        "list",
        pa.list_(SPARK_STRUCT),
        ice.ListType(20, STRUCT, element_required=False),
        [
            ([spark_struct(1), None], [table_struct(1), None]),
            (None, None),
            ([], []),
            ([spark_struct(2), spark_struct(3)], [table_struct(2), table_struct(3)]),
            ([None], [None]),
        ],
    ),
    (
        "map",
        pa.map_(pa.string(), SPARK_STRUCT),
        ice.MapType(20, ice.StringType(), 21, STRUCT, value_required=False),
        [
            ([("a", spark_struct(1)), ("b", None)], [("a", table_struct(1)), ("b", None)]),
            (None, None),
            ([], []),
            ([("c", spark_struct(2))], [("c", table_struct(2))]),
        ],
    ),
    (
        "list of lists",
        pa.list_(pa.list_(pa.int8())),
        ice.ListType(20, ice.ListType(21, ice.IntegerType(), element_required=False), element_required=False),
        [([[1, 2], None, []], [[1, 2], None, []]), (None, None), ([], []), ([[3]], [[3]])],
    ),
    (
        "list of maps",
        pa.list_(pa.map_(pa.int16(), pa.int8())),
        ice.ListType(
            20, ice.MapType(21, ice.IntegerType(), 22, ice.LongType(), value_required=False), element_required=False
        ),
        [([[(1, 2)], None, []], [[(1, 2)], None, []]), (None, None), ([[(3, None), (4, 5)]], [[(3, None), (4, 5)]])],
    ),
    (
        "struct of list",
        pa.struct({"l": pa.list_(pa.int8()), "s": SPARK_STRUCT}),
        ice.StructType(
            NestedField(20, "s", STRUCT), NestedField(21, "l", ice.ListType(22, ice.LongType(), element_required=False))
        ),
        [
            ({"l": [1], "s": spark_struct(1)}, {"s": table_struct(1), "l": [1]}),
            (None, None),
            ({"l": None, "s": None}, {"s": None, "l": None}),
            ({"l": [2, None], "s": spark_struct(2)}, {"s": table_struct(2), "l": [2, None]}),
        ],
    ),
]


@pytest.mark.parametrize(("given", "target", "cases"), [case[1:] for case in NESTED], ids=[case[0] for case in NESTED])
def test_nested_values_are_retyped_with_fields_in_another_order_and_case(
    given: pa.DataType, target: ice.IcebergType, cases: list[tuple[Any, Any]]
) -> None:
    """Nested values would be lost, or go into another field."""
    result = conformed(
        [{"c": before} for before, _ in cases], pa.schema({"c": given}), shape(NestedField(1, "c", target))
    )

    assert result == [{"c": after} for _, after in cases]


@pytest.mark.parametrize(("given", "target", "cases"), [case[1:] for case in NESTED], ids=[case[0] for case in NESTED])
def test_every_slice_of_a_batch_is_retyped_alike(
    given: pa.DataType, target: ice.IcebergType, cases: list[tuple[Any, Any]]
) -> None:
    """Rows of a sliced batch would get the nested values of other rows."""
    batch = pa.RecordBatch.from_pylist([{"c": before} for before, _ in cases], schema=pa.schema({"c": given}))
    file = shape(NestedField(1, "c", target))

    for start in range(len(cases)):
        for end in range(start + 1, len(cases) + 1):
            result = conform(batch.slice(start, end - start), file)
            result.validate(full=True)
            assert result.column(0).to_pylist() == [after for _, after in cases[start:end]]


@pytest.mark.parametrize(("given", "target", "cases"), [case[1:] for case in NESTED], ids=[case[0] for case in NESTED])
def test_empty_slice_of_a_nested_column_is_retyped(
    given: pa.DataType, target: ice.IcebergType, cases: list[tuple[Any, Any]]
) -> None:
    """A task would fail on a batch whose nested values all lie in other batches."""
    batch = pa.RecordBatch.from_pylist([{"c": before} for before, _ in cases], schema=pa.schema({"c": given}))

    result = conform(batch.slice(1, 0), shape(NestedField(1, "c", target)))

    assert result.num_rows == 0


def test_slices_of_flat_columns_keep_their_rows() -> None:
    """Rows of a sliced batch would be swapped with others."""
    given = pa.schema({"n": pa.int8(), "s": pa.string(), "ts": pa.timestamp("us", tz="Asia/Tokyo")})
    data = [{"n": number, "s": str(number), "ts": INSTANT} for number in range(5)]
    target = shape(
        NestedField(1, "n", ice.LongType()),
        NestedField(2, "s", ice.StringType()),
        NestedField(3, "ts", ice.TimestamptzType()),
    )

    batch = conform(pa.RecordBatch.from_pylist(data, schema=given).slice(2, 2), target)

    assert batch.to_pylist() == data[2:4]


def test_unchanged_columns_stay_where_they_are_in_memory() -> None:
    """Every write would copy all of its rows for nothing."""
    column = pa.array(["a", "b", None])
    batch = pa.RecordBatch.from_arrays([column], names=["s"])

    result = conform(batch, shape(NestedField(1, "s", ice.StringType())))

    assert [buffer and buffer.address for buffer in result.column(0).buffers()] == [
        buffer and buffer.address for buffer in column.buffers()
    ]


def test_null_in_a_required_column_is_refused_with_its_name_and_count() -> None:
    """Nulls would stand in a column that promises to have none."""
    target = shape(NestedField(1, "id", ice.LongType(), required=True))
    batch = pa.RecordBatch.from_pylist([{"id": 1}, {"id": None}, {"id": None}], schema=pa.schema({"id": pa.int64()}))

    with pytest.raises(SchemaMismatchError, match=r"null into column 'id'.*2 of 3 rows"):
        conform(batch, target)


def test_required_column_without_nulls_is_taken() -> None:
    """No table with a required column could be written."""
    target = shape(NestedField(1, "id", ice.LongType(), required=True))

    assert conformed([{"id": 1}], pa.schema({"id": pa.int64()}), target) == [{"id": 1}]


REQUIRED_INSIDE: list[tuple[pa.DataType, ice.IcebergType, Any]] = [
    (pa.struct({"x": pa.int64()}), ice.StructType(NestedField(10, "x", ice.LongType(), required=True)), {"x": 1}),
    (pa.list_(pa.int64()), ice.ListType(10, ice.LongType(), element_required=True), [1]),
    (
        pa.map_(pa.string(), pa.int64()),
        ice.MapType(10, ice.StringType(), 11, ice.LongType(), value_required=True),
        [("a", 1)],
    ),
]


@pytest.mark.parametrize(("given", "target", "value"), REQUIRED_INSIDE, ids=["struct", "list", "map"])
def test_null_above_a_required_nested_field_is_taken(given: pa.DataType, target: ice.IcebergType, value: Any) -> None:
    """A nullable struct with a required field could not be written."""
    result = conformed([{"c": None}, {"c": value}], pa.schema({"c": given}), shape(NestedField(1, "c", target)))

    assert result == [{"c": None}, {"c": value}]
