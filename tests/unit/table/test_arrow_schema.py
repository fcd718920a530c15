"""The Arrow schema of a table's files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from iceberg_ds.table.arrow_schema import arrow_type, file_shape

_PRIMITIVES = [
    kind()
    for kind in ice.PrimitiveType.__subclasses__()
    if kind.__module__ == ice.__name__
    and kind not in (ice.DecimalType, ice.FixedType, ice.GeometryType, ice.GeographyType)
]


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


@pytest.mark.parametrize("kind", [*_PRIMITIVES, ice.DecimalType(38, 9), ice.FixedType(5)], ids=str)
def test_types_are_those_of_pyiceberg_but_for_large_offsets(kind: ice.IcebergType) -> None:
    """Files would have columns of other types than other Python writers give them."""
    can_be_required = not isinstance(kind, ice.UnknownType)
    struct = ice.StructType(
        NestedField(4, "x", kind, required=can_be_required), NestedField(5, "y", kind, doc="in euros")
    )
    entries = ice.MapType(6, ice.StringType(), 7, struct, value_required=True)
    schema = Schema(
        NestedField(1, "plain", kind, doc="in euros"),
        NestedField(2, "required", kind, required=can_be_required),
        NestedField(3, "nested", ice.ListType(8, entries, element_required=False), required=True),
    )

    ours, theirs = file_shape(schema).named, schema_to_pyarrow(schema)

    assert described(ours) == described(theirs)


def described(fields: Iterable[pa.Field]) -> list[object]:
    """Return all that fields say, those below them included, without the size of offsets."""
    return [
        (
            field.name,
            field.nullable,
            field.metadata,
            described(below(field.type)) or str(field.type).removeprefix("large_"),
        )
        for field in fields
    ]


def below(data_type: pa.DataType) -> list[pa.Field]:
    """Return the fields of a nested type, none of another one."""
    return [data_type.field(number) for number in range(data_type.num_fields)]


@pytest.mark.parametrize("kind", [ice.GeometryType(), ice.GeographyType()])
def test_a_type_without_an_arrow_type_is_named(kind: ice.IcebergType) -> None:
    """A user would be told of a key that is missing somewhere."""
    with pytest.raises(TypeError, match=str(kind)):
        arrow_type(kind)


def test_tasks_and_commits_load_neither_pandas_nor_arrows_datasets() -> None:
    """The first write of every session would take a second longer."""
    roles = "iceberg_ds.writers.reporting, iceberg_ds.writers.keyed, iceberg_ds.commit.commit"
    code = f"import sys, {roles}; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()

    assert {"pandas", "pyarrow.dataset", "pyiceberg.io.pyarrow"}.isdisjoint(loaded)
