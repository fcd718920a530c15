"""Batches as Spark sends them, brought into the shape of the table's files."""

from __future__ import annotations

import datetime as dt
import mmap
import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from support.tables.sink import Row

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.arrow_schema import FileShape, conform, file_shape, with_short_offsets

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


def test_null_in_a_required_field_is_refused_with_its_path() -> None:
    """Nulls would stand in a field that promises to have none."""
    struct = ice.StructType(NestedField(10, "x", ice.LongType(), required=True))
    target = shape(NestedField(1, "c", ice.ListType(20, struct, element_required=False)))
    given = pa.schema({"c": pa.list_(pa.struct({"x": pa.int64()}))})
    batch = pa.RecordBatch.from_pylist([{"c": [{"x": 1}, None, {"x": None}]}], schema=given)

    with pytest.raises(SchemaMismatchError, match=r"null into column 'c\.element\.x'.*1 of 3"):
        conform(batch, target)


def test_columns_and_fields_that_the_batch_does_not_have_are_null() -> None:
    """A table that has more columns than the DataFrame could not be written."""
    struct = ice.StructType(NestedField(10, "x", ice.LongType()), NestedField(11, "new", ice.UUIDType()))
    target = shape(
        NestedField(1, "id", ice.LongType()),
        NestedField(2, "new", struct),
        NestedField(3, "s", struct),
        NestedField(4, "l", ice.ListType(20, struct, element_required=False)),
        NestedField(5, "m", ice.MapType(21, ice.StringType(), 22, struct, value_required=False)),
    )
    small = pa.struct({"x": pa.int8()})
    given = pa.schema({"s": small, "l": pa.list_(small), "m": pa.map_(pa.string(), small), "id": pa.int64()})

    result = conformed(
        [{"id": 1, "s": {"x": 1}, "l": [{"x": 2}, None], "m": [("k", {"x": 3})]}, {"s": None, "l": None, "m": None}],
        given,
        target,
    )

    one, two, three = ({"x": number, "new": None} for number in (1, 2, 3))
    assert result == [
        {"id": 1, "new": None, "s": one, "l": [two, None], "m": [("k", three)]},
        {"id": None, "new": None, "s": None, "l": None, "m": None},
    ]


def test_required_column_that_the_batch_does_not_have_is_refused() -> None:
    """Nulls would stand in a column that promises to have none."""
    target = shape(NestedField(1, "id", ice.LongType()), NestedField(2, "must", ice.LongType(), required=True))
    batch = pa.RecordBatch.from_pylist([{"id": 1}])

    with pytest.raises(SchemaMismatchError, match="null into column 'must', which is required"):
        conform(batch, target)


def both_cases(case_sensitive: bool | None) -> FileShape:  # noqa: FBT001  # parametrized
    """Return the shape of a table with two columns, and two fields, whose names differ in case alone."""
    fields = ice.StructType(NestedField(10, "x", ice.LongType()), NestedField(11, "X", ice.LongType()))
    schema = Schema(
        NestedField(1, "id", ice.LongType()), NestedField(2, "ID", ice.LongType()), NestedField(3, "s", fields)
    )
    return file_shape(schema, case_sensitive=case_sensitive)


@pytest.mark.parametrize("case_sensitive", [True, None])
def test_column_is_not_also_taken_for_one_of_another_case(case_sensitive: bool | None) -> None:  # noqa: FBT001  # parametrized
    """A column that the DataFrame does not have would be filled with another's values."""
    given = pa.schema({"ID": pa.int64(), "s": pa.struct({"X": pa.int64()})})

    result = conformed([{"ID": 1, "s": {"X": 2}}], given, both_cases(case_sensitive))

    assert result == [{"id": None, "ID": 1, "s": {"x": None, "X": 2}}]


def test_column_in_another_case_is_not_taken_where_case_counts() -> None:
    """A session that tells `id` from `ID` would find the values of one in the other."""
    target = file_shape(Schema(NestedField(1, "id", ice.LongType())), case_sensitive=True)

    assert conformed([{"ID": 1}], pa.schema({"ID": pa.int64()}), target) == [{"id": None}]


def test_column_that_could_be_any_of_two_is_refused() -> None:
    """Values would go into one of two columns, by luck."""
    batch = pa.RecordBatch.from_pylist([{"id": 1, "s": None}])

    with pytest.raises(LookupError, match="'id' could be any of 'id', 'ID'"):
        conform(batch, both_cases(case_sensitive=False))


@pytest.mark.parametrize(
    "target",
    [
        ice.LongType(),
        ice.UUIDType(),
        ice.FixedType(3),
        ice.TimeType(),
        ice.StringType(),
        STRUCT,
        ice.ListType(20, STRUCT, element_required=True),
        ice.MapType(20, ice.UUIDType(), 21, STRUCT, value_required=True),
    ],
    ids=str,
)
def test_void_becomes_nulls_of_any_type(target: ice.IcebergType) -> None:
    """`lit(None)` could not be written into any column."""
    result = conformed([{"c": None}, {"c": None}], pa.schema({"c": pa.null()}), shape(NestedField(1, "c", target)))

    assert result == [{"c": None}, {"c": None}]


def test_void_inside_nested_values_becomes_nulls_and_empty_lists() -> None:
    """`array()` and a struct with `lit(None)` could not be written into any column."""
    target = shape(
        NestedField(1, "l", ice.ListType(10, ice.UUIDType(), element_required=True)),
        NestedField(2, "s", STRUCT),
        NestedField(3, "m", ice.MapType(20, ice.StringType(), 21, ice.LongType(), value_required=False)),
    )
    empty = pa.MapArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.nulls(0), pa.nulls(0))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([[], None], pa.list_(pa.null())),
            pa.array(
                [{"x": None, "y": None, "z": "a"}, None], pa.struct({"x": pa.null(), "y": pa.null(), "z": pa.string()})
            ),
            empty,
        ],
        names=["l", "s", "m"],
    )

    result = conform(batch, target)

    result.validate(full=True)
    assert result.to_pylist() == [
        {"l": [], "s": {"x": None, "Y": None, "z": "a"}, "m": []},
        {"l": None, "s": None, "m": []},
    ]


HIDE_SECOND = pa.array([False, True, False])
ID = uuid.UUID("0b9f2c1e-1111-4222-8333-444455556666")
SPELLED = ice.StructType(
    NestedField(10, "u", ice.UUIDType()),
    NestedField(11, "t", ice.TimeType(), required=True),
    NestedField(12, "f", ice.FixedType(2)),
)
SPARK_SPELLED = pa.struct({"u": pa.string(), "t": pa.string(), "f": pa.binary()})


def test_text_and_bytes_are_read_inside_nested_values() -> None:
    """Nested uuid, time and fixed fields could not be written from Spark, which has no such types."""
    before, after = {"u": str(ID), "t": "12:30", "f": b"ab"}, {"u": ID, "t": dt.time(12, 30), "f": b"ab"}
    target = shape(
        NestedField(1, "s", SPELLED),
        NestedField(2, "l", ice.ListType(20, SPELLED, element_required=False)),
        NestedField(3, "m", ice.MapType(21, ice.UUIDType(), 22, SPELLED, value_required=False)),
    )
    given = pa.schema({"s": SPARK_SPELLED, "l": pa.list_(SPARK_SPELLED), "m": pa.map_(pa.string(), SPARK_SPELLED)})

    result = conformed(
        [{"s": before, "l": [before, None], "m": [(ID.hex, before)]}, {"s": None, "l": None, "m": None}], given, target
    )

    assert result == [{"s": after, "l": [after, None], "m": [(ID, after)]}, {"s": None, "l": None, "m": None}]


@pytest.mark.parametrize("start", [0, 1])
def test_null_structs_with_required_fields_are_taken_at_every_depth(start: int) -> None:
    """Structs behind a condition or an outer join, whose fields Spark calls required, could not be written."""
    struct = pa.struct([pa.field("x", pa.int8(), nullable=False)])
    values = pa.StructArray.from_arrays([pa.array([1, None, 3], pa.int8())], fields=list(struct), mask=HIDE_SECOND)
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    columns = [
        values,
        pa.ListArray.from_arrays(offsets, values),
        pa.MapArray.from_arrays(offsets, pa.array(["a", "b", "c"]), values),
        pa.MapArray.from_arrays(offsets, pa.array(["a", "b", "c"]), values, mask=HIDE_SECOND),
    ]
    wide = ice.StructType(NestedField(10, "x", ice.LongType(), required=True))
    entries = ice.MapType(30, ice.StringType(), 31, wide, value_required=False)
    target = shape(
        NestedField(1, "s", wide),
        NestedField(2, "l", ice.ListType(20, wide, element_required=False)),
        NestedField(3, "m", entries),
        NestedField(4, "n", entries),
    )

    result = conform(pa.RecordBatch.from_arrays(columns, names=["s", "l", "m", "n"]).slice(start), target)

    one, three = {"x": 1}, {"x": 3}
    assert (
        result.to_pylist()
        == [
            {"s": one, "l": [one], "m": [("a", one)], "n": [("a", one)]},
            {"s": None, "l": [None], "m": [("b", None)], "n": None},
            {"s": three, "l": [three], "m": [("c", three)], "n": [("c", three)]},
        ][start:]
    )


def test_value_that_cannot_be_read_is_refused_with_its_path() -> None:
    """A user would not know which of many fields it is."""
    target = shape(NestedField(1, "l", ice.ListType(20, SPELLED, element_required=False)))
    row = {"l": [{"u": str(ID), "t": "25:00", "f": b"ab"}]}
    batch = pa.RecordBatch.from_pylist([row], schema=pa.schema({"l": pa.list_(SPARK_SPELLED)}))

    with pytest.raises(SchemaMismatchError, match=r"'l\.element\.t': 1 of 1 values are no time.*'25:00'"):
        conform(batch, target)


def test_values_that_no_row_has_are_not_read() -> None:
    """Rows would be refused for bytes that lie below a null, or in another slice."""
    texts = pa.array(["x", str(ID), "y", str(ID), "z"])
    hidden = pa.array([True, False, True, False, True])
    offsets = pa.array(range(6), pa.int32())
    columns = [
        pa.StructArray.from_arrays([texts], names=["u"], mask=hidden),
        pa.ListArray.from_arrays(offsets, texts, mask=hidden),
        pa.MapArray.from_arrays(offsets, texts, texts, mask=hidden),
        texts,
    ]
    target = shape(
        NestedField(1, "s", ice.StructType(NestedField(10, "u", ice.UUIDType(), required=True))),
        NestedField(2, "l", ice.ListType(20, ice.UUIDType(), element_required=True)),
        NestedField(3, "m", ice.MapType(30, ice.UUIDType(), 31, ice.UUIDType(), value_required=True)),
        NestedField(4, "u", ice.UUIDType()),
    )
    batch = pa.RecordBatch.from_arrays(columns, names=["s", "l", "m", "u"])

    assert conform(batch.slice(3, 1), target).to_pylist() == [{"s": {"u": ID}, "l": [ID], "m": [(ID, ID)], "u": ID}]
    without_flat = conform(batch.select(["s", "l", "m"]), target)
    assert without_flat.column("s").to_pylist() == [None, {"u": ID}, None, {"u": ID}, None]
    assert without_flat.column("l").to_pylist() == [None, [ID], None, [ID], None]
    assert without_flat.column("m").to_pylist() == [None, [(ID, ID)], None, [(ID, ID)], None]


@pytest.mark.parametrize(
    ("given", "value", "text"),
    [
        (pa.struct({"x": pa.int64()}), {"x": 1}, '{"x":1}'),
        (pa.list_(pa.string()), ["a", None], '["a",null]'),
        (pa.map_(pa.int32(), pa.float64()), [(1, 2.0)], '{"1":2.0}'),
    ],
    ids=["struct", "list", "map"],
)
def test_nested_value_goes_into_a_column_of_text_as_json(given: pa.DataType, value: Any, text: str) -> None:
    """The option nested-as-json would do nothing, or fail."""
    target = shape(NestedField(1, "c", ice.StringType()))

    assert conformed([{"c": value}, {"c": None}], pa.schema({"c": given}), target) == [{"c": text}, {"c": None}]


LARGE_AND_SHORT = [
    (pa.large_string(), pa.string(), "x"),
    (pa.large_binary(), pa.binary(), b"x"),
    (pa.list_(pa.large_string()), pa.list_(pa.string()), ["x", None]),
    (pa.struct({"a": pa.large_string()}), pa.struct({"a": pa.string()}), {"a": "x"}),
    (pa.map_(pa.large_string(), pa.large_binary()), pa.map_(pa.string(), pa.binary()), [("x", b"y")]),
]


@pytest.mark.parametrize(("large", "short", "value"), LARGE_AND_SHORT, ids=lambda case: str(case)[:20])
def test_large_offsets_become_short_ones(large: pa.DataType, short: pa.DataType, value: Any) -> None:
    """Text would be cast without a check if Spark's `useLargeVarTypes` is true."""
    schema = pa.schema([pa.field("c", large, nullable=False), pa.field("n", pa.int32())])
    sent = pa.RecordBatch.from_pylist([{"c": value, "n": 1}, {"c": None, "n": None}], schema=schema)

    first, second = with_short_offsets([sent, sent.slice(1)])

    assert first.schema == pa.schema([pa.field("c", short, nullable=False), pa.field("n", pa.int32())])
    assert (first.to_pylist(), second.to_pylist()) == (sent.to_pylist(), sent.to_pylist()[1:])


def test_offsets_cost_no_copy_of_values() -> None:
    """Every task would pay for a setting that few sessions have."""
    text = pa.array(["x" * 1000, None], pa.large_string())
    short = pa.RecordBatch.from_pydict({"c": pa.array(["x"])})

    (made,) = with_short_offsets([pa.RecordBatch.from_arrays([text], names=["c"])])

    assert made.column("c").buffers()[2].address == text.buffers()[2].address
    assert [one is short for one in with_short_offsets([short, short])] == [True, True]
    assert list(with_short_offsets([])) == []


def test_batch_with_more_text_than_short_offsets_reach_is_divided() -> None:
    """A batch that Spark sends only with large offsets would fail the write."""
    far = 2**31
    memory = mmap.mmap(-1, far + 4)  # of which only the end takes room
    memory[far:] = b"abcd"
    offsets = pa.array([far - 1, far, far + 1, far + 4], pa.int64()).buffers()[1]
    texts = pa.Array.from_buffers(pa.large_binary(), 3, [None, offsets, pa.py_buffer(memory)])

    parts = list(with_short_offsets([pa.RecordBatch.from_arrays([texts], names=["c"])]))

    assert [value for part in parts for value in part.column("c").to_pylist()] == [b"\0", b"a", b"bcd"]
    assert {part.schema.field("c").type for part in parts} == {pa.binary()}
