"""The Arrow schema of a table's files."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from iceberg_ds.table.arrow_schema import file_shape


def table(*fields: tuple[str, ice.IcebergType]) -> Schema:
    """Return a table's schema."""
    return Schema(*(NestedField(number, name, field_type) for number, (name, field_type) in enumerate(fields, start=1)))


def test_files_have_field_ids_at_every_depth() -> None:
    """Readers would find no column by its id."""
    struct = ice.StructType(NestedField(13, "x", ice.LongType()))
    entries = ice.MapType(11, ice.StringType(), 12, struct, value_required=False)
    schema = table(("l", ice.ListType(10, entries, element_required=False)))

    shape = file_shape(schema)

    entry = shape.schema.field("l").type.value_field
    assert shape.schema.field("l").metadata[b"PARQUET:field_id"] == b"1"
    assert entry.metadata[b"PARQUET:field_id"] == str(schema.find_field("l.element").field_id).encode()
    leaf = entry.type.item_field.type.field("x")
    assert leaf.metadata[b"PARQUET:field_id"] == str(schema.find_field("l.element.value.x").field_id).encode()


def test_file_names_are_made_safe_and_table_names_are_kept() -> None:
    """Readers that need Avro-safe names could not read the files."""
    shape = file_shape(table(("a.b", ice.LongType()), ("1st", ice.LongType()), ("ok", ice.LongType())))

    assert shape.named.names == ["a.b", "1st", "ok"]
    assert shape.schema.names == ["a_x2Eb", "_1st", "ok"]


def test_files_use_small_offsets_as_spark_sends_them() -> None:
    """Every string column would be copied for nothing."""
    shape = file_shape(table(("s", ice.StringType()), ("b", ice.BinaryType())))

    assert shape.schema.field("s").type == pa.string()
    assert shape.schema.field("b").type == pa.binary()


def test_names_that_are_made_safe_alike_stay_apart() -> None:
    """Two columns of one name would stand in the file, which many readers refuse."""
    inner = ice.StructType(NestedField(10, "x y", ice.LongType()), NestedField(11, "x_x20y", ice.LongType()))
    schema = table(("a.b", ice.LongType()), ("a_x2Eb", ice.LongType()), ("a_x2Eb_", ice.LongType()), ("s", inner))

    shape = file_shape(schema)

    assert shape.named.names == ["a.b", "a_x2Eb", "a_x2Eb_", "s"]
    assert shape.schema.names == ["a_x2Eb__", "a_x2Eb", "a_x2Eb_", "s"]
    assert [field.name for field in shape.schema.field("s").type] == ["x_x20y_", "x_x20y"]
    assert shape.schema.field("a_x2Eb").metadata[b"PARQUET:field_id"] == b"2"


def test_names_inside_lists_and_maps_are_made_safe() -> None:
    """Readers that need Avro-safe names could not read the files."""
    struct = ice.StructType(NestedField(12, "x-y", ice.LongType()))
    entries = ice.MapType(10, struct, 11, ice.ListType(13, struct, element_required=False), value_required=False)

    data_type = file_shape(table(("m", entries))).schema.field("m").type

    assert data_type.key_type.field(0).name == "x_x2Dy"
    assert data_type.item_type.value_type.field(0).name == "x_x2Dy"
