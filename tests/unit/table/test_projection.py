"""Rows of a file, written by an older schema, in the columns that the table has now."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType, UnknownType

from iceberg_ds.table.name_mapping import has_field_ids
from iceberg_ds.table.projection import project


def with_id(field: pa.Field, field_id: int) -> pa.Field:
    """Return the field with its id, as a Parquet file has it."""
    return field.with_metadata({"PARQUET:field_id": str(field_id)})


def struct_of(x_id: int, y_id: int) -> pa.DataType:
    """Return a struct of two integers with these ids."""
    return pa.struct([with_id(pa.field("x", pa.int32()), x_id), with_id(pa.field("y", pa.int32()), y_id)])


OLD = pa.schema(
    [
        with_id(pa.field("a", pa.int32()), 1),
        with_id(pa.field("s", struct_of(3, 4)), 2),
        with_id(pa.field("l", pa.list_(with_id(pa.field("element", struct_of(7, 8)), 6))), 5),
        with_id(
            pa.field(
                "m",
                pa.map_(
                    with_id(pa.field("key", pa.string(), nullable=False), 10),
                    with_id(pa.field("value", struct_of(12, 13)), 11),
                ),
            ),
            9,
        ),
    ]
)
# Renamed, in another order, a field dropped and one added at every level.
NOW = Schema(
    NestedField(
        9,
        "map",
        MapType(10, StringType(), 11, StructType(NestedField(13, "why", IntegerType())), value_required=False),
    ),
    NestedField(
        5,
        "list",
        ListType(6, StructType(NestedField(8, "why", IntegerType()), NestedField(21, "z", LongType()))),
    ),
    NestedField(2, "struct", StructType(NestedField(20, "z", LongType()), NestedField(4, "why", IntegerType()))),
    NestedField(22, "new", StringType()),
    NestedField(1, "first", IntegerType()),
)
XY = {"x": 1, "y": 2}


def test_fields_are_matched_by_id_at_any_depth() -> None:
    """Values would land in other columns, or be lost, when a file is written again."""
    batch = pa.RecordBatch.from_pylist([{"a": 1, "s": XY, "l": [XY, None], "m": [("k", XY), ("n", None)]}], schema=OLD)

    (row,) = project(batch, NOW).to_pylist()

    assert row == {
        "map": [("k", {"why": 2}), ("n", None)],
        "list": [{"why": 2, "z": None}, None],
        "struct": {"z": None, "why": 2},
        "new": None,
        "first": 1,
    }


@pytest.mark.parametrize("first", [0, 1])
def test_nulls_stay_nulls_and_empty_ones_stay_empty(first: int) -> None:
    """A null list would become an empty one in rows that nobody meant to change."""
    data = [
        {"a": None, "s": None, "l": None, "m": None},
        {"a": 0, "s": {"x": None, "y": None}, "l": [], "m": []},
        {"a": None, "s": None, "l": None, "m": None},
    ]
    batch = pa.RecordBatch.from_pylist(data, schema=OLD).slice(first)

    rows = project(batch, NOW).to_pylist()

    nothing = {"map": None, "list": None, "struct": None, "new": None, "first": None}
    empty = {"map": [], "list": [], "struct": {"z": None, "why": None}, "new": None, "first": 0}
    assert rows == [nothing, empty, nothing][first:]


def test_column_without_a_type_is_null_whatever_a_file_has() -> None:
    """Values would come to light that no other engine shows."""
    stored = pa.record_batch([pa.array([1, 2], pa.int32())], schema=pa.schema([OLD.field("a")]))
    found = project(stored, Schema(NestedField(1, "nothing", UnknownType()), NestedField(2, "absent", UnknownType())))

    assert [column.type for column in found.columns] == [pa.null()] * 2
    assert found.num_rows == 2


def test_field_without_an_id_is_found_at_any_depth() -> None:
    """Columns of a file that was written without Iceberg would be taken for missing, and its values be lost."""
    nameless = pa.field("l", pa.list_(pa.field("element", pa.int32())))

    assert has_field_ids(OLD, Schema())
    assert not has_field_ids(pa.schema([*OLD, with_id(nameless, 30)]), Schema())
    assert not has_field_ids(pa.schema([pa.field("plain", pa.int32())]), Schema())
