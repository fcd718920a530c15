"""Default values of columns: in files from before a column, and in rows that a write has no value for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StructType
from support.tables.defaults import BYTES, DEFAULTS, TIME, columns, nested

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.arrow_schema import conform, file_shape
from iceberg_ds.table.projection import project

ALL = {**DEFAULTS, **BYTES, TIME[0]: TIME[1]}
ID = NestedField(1, "id", LongType())
S = nested()


def with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
    """Return a column of a file."""
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def read(rows: list[dict[str, Any]], file: pa.Schema, schema: Schema, parts: dict[int, object] | None = None) -> Any:
    """Return rows of a file in the columns of a table."""
    return project(pa.RecordBatch.from_pylist(rows, schema=file), schema, parts or {}).to_pylist()


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_file_from_before_a_column_has_its_initial_default(kind: IcebergType) -> None:
    """A reader would see null, or a rewrite make it null for ever."""
    initial, _ = ALL[kind]
    (field,) = columns({kind: ALL[kind]})
    expected = getattr(initial, "bytes", initial)

    found = read([{"id": 1}, {"id": 2}], pa.schema([with_id("id", pa.int64(), 1)]), Schema(ID, field))

    assert found == [{"id": 1, "c0": expected}, {"id": 2, "c0": expected}]


@pytest.mark.parametrize("kind", ALL, ids=str)
@pytest.mark.parametrize("required", [False, True])
def test_row_without_a_value_gets_the_write_default(kind: IcebergType, required: bool) -> None:  # noqa: FBT001
    """A row would have null where the table says what it has."""
    _, written = ALL[kind]
    (field,) = columns({kind: ALL[kind]}, required=required)
    shape = file_shape(Schema(ID, field))

    rows = conform(pa.RecordBatch.from_pylist([{"id": 1}, {"id": 2}]), shape)

    assert rows.schema == shape.schema
    assert [row["c0"] for row in rows.to_pylist()] == [written, written]


def test_explicit_null_stays_null() -> None:
    """What a user writes would be changed."""
    (field,) = columns({LongType(): (5, 6)})
    given = pa.RecordBatch.from_pydict({"id": [1, 2], "c0": pa.array([None, 7], pa.int64())})

    assert [row["c0"] for row in conform(given, file_shape(Schema(ID, field))).to_pylist()] == [None, 7]

    (field,) = columns({LongType(): (5, 6)}, required=True)
    with pytest.raises(SchemaMismatchError, match="null into column 'c0'"):
        conform(given, file_shape(Schema(ID, field)))


def test_null_in_a_file_stays_null() -> None:
    """A null that was written after the column came would become its default."""
    (field,) = columns({LongType(): (5, 6)})
    file = pa.schema([with_id("id", pa.int64(), 1), with_id("c0", pa.int64(), field.field_id)])

    assert read([{"id": 1, "c0": None}], file, Schema(ID, field)) == [{"id": 1, "c0": None}]


def test_value_of_the_partition_goes_before_the_default() -> None:
    """All rows of a file of that partition would have another value."""
    (field,) = columns({LongType(): (5, 6)})
    file, schema = pa.schema([with_id("id", pa.int64(), 1)]), Schema(ID, field)

    assert read([{"id": 1}], file, schema, {field.field_id: 9}) == [{"id": 1, "c0": 9}]
    assert read([{"id": 1}], file, schema, {field.field_id: None}) == [{"id": 1, "c0": None}]


def test_fields_of_structs_have_defaults() -> None:
    """A field that came later would be null in old rows, and a null struct become one of defaults."""
    kind = pa.struct([with_id("first", pa.int64(), 52)])
    file = pa.schema([with_id("id", pa.int64(), 1), with_id("s", kind, 50)])
    rows = [{"id": 1, "s": {"first": 3}}, {"id": 2, "s": None}]

    assert read(rows, file, Schema(ID, S)) == [{"id": 1, "s": {"first": 3, "inside": 5}}, {"id": 2, "s": None}]

    for required in (False, True):
        assert isinstance(S.field_type, StructType)
        first, inside = S.field_type.fields
        of = StructType(first, inside.model_copy(update={"required": required}))
        shape = file_shape(Schema(ID, S.model_copy(update={"field_type": of})))
        found = conform(pa.RecordBatch.from_pylist(rows, schema=file.remove_metadata()), shape).to_pylist()
        assert found == [{"id": 1, "s": {"first": 3, "inside": 6}}, {"id": 2, "s": None}]
