"""Under which names Spark reads columns: their own, unless a filter could then mean another column or type."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)

from iceberg_ds.reading.spark_columns import is_misread, read_columns, why_not_by_spark


def schema(*fields: tuple[int, str, object]) -> Schema:
    """Return a schema of optional columns."""
    return Schema(*(NestedField(number, name, kind, required=False) for number, name, kind in fields))  # type: ignore[arg-type]  # any type


def names(now: Schema, *before: Schema) -> list[str]:
    """Return the names under which the columns are read."""
    return [column.name for column in read_columns(now.fields, [*before, now])]


def test_columns_that_never_changed_are_read_by_their_names() -> None:
    """No filter would be pushed down to Parquet."""
    now = schema((1, "id", LongType()), (2, "name", StringType()))

    assert names(now, schema((1, "id", LongType()))) == ["id", "name"]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (schema((1, "a", LongType()), (2, "b", LongType())), schema((1, "b", LongType()), (2, "a", LongType()))),
        (schema((1, "A", LongType())), schema((2, "a", LongType()))),
        (schema((1, "a", IntegerType())), schema((1, "a", LongType()))),
        (schema((1, "a b", LongType())), schema((2, "a_x20b", LongType()))),
        (
            schema((1, "s", StructType(NestedField(2, "x", LongType())))),
            schema((1, "s", StructType(NestedField(3, "x", LongType())))),
        ),
        (schema(), schema((1, "_metadata", LongType()))),
    ],
)
def test_column_that_a_filter_could_mistake_is_read_by_another_name(before: Schema, now: Schema) -> None:
    """Spark would pass over rows that satisfy the filter, since the file has another column, or type, by that name."""
    assert all(name.startswith("__field_") for name in names(now, before))


def test_name_of_its_own_is_of_no_column() -> None:
    """A column of the user's by that name would be read instead."""
    now = schema((1, "a", LongType()), (2, "__field_1", LongType()))

    assert names(now, schema((1, "a", IntegerType()))) == ["__field_1_", "__field_2"]


def test_what_spark_cannot_read_is_named() -> None:
    """A query would fail in a task, or show bytes."""
    assert why_not_by_spark(schema((1, "u", UUIDType())).fields) is None
    assert why_not_by_spark(schema((1, "t", TimeType())).fields) == "column 't' has values of type time"
    inside = schema((1, "l", ListType(2, UUIDType())))
    assert why_not_by_spark(inside.fields) == "column 'l' has values of type uuid"


@pytest.mark.parametrize(
    "path", ["/a/_x.parquet", "/a/.x.parquet", "/a{b}/x.parquet", "/a*/x", "/[a]/x", "/a?/x", "/a\\b/x"]
)
def test_paths_that_spark_misreads_are_found(path: str) -> None:
    """Their rows would be missing, or be there several times."""
    assert is_misread(path)
    assert not is_misread("s3://b/_t/data/p=a%20b/00000-1.parquet")


def test_own_names_are_not_trusted_where_a_field_id_is_of_no_schema() -> None:
    """A filter would look into the column of a field that was dropped, whose name a new one has."""
    first = Schema(NestedField(1, "id", LongType()), schema_id=0)
    again = Schema(NestedField(1, "id", LongType()), NestedField(3, "b", StringType()), schema_id=1)

    assert [column.name for column in read_columns(again.fields, [first, again])] == ["__field_1", "__field_3"]


def test_object_behind_two_slashes_is_not_for_spark() -> None:
    """Hadoop would look for another object, and the query fail."""
    for path in ("s3://b/lake//t/data/1.parquet", "abfss://c@a.dfs.core.windows.net//t/1.parquet", "gs://b//1.parquet"):
        assert is_misread(path)
    for path in ("s3://b/lake/t/data/1.parquet", "file:///lake//t/1.parquet", "/lake//t/1.parquet"):
        assert not is_misread(path)


def test_local_file_with_a_colon_in_its_name_is_not_for_spark() -> None:
    """The query would fail where Hadoop looks for a checksum beside the file."""
    assert is_misread("file:///data/2024-01-01T10:00:00.parquet")
    assert not is_misread("s3://b/data/2024-01-01T10:00:00.parquet")
    assert not is_misread("file:///d:ata/1.parquet")


def test_column_is_never_null_if_it_was_required_in_every_schema() -> None:
    """Rows whose key is null would come back once the column is required."""
    optional, required = (
        Schema(NestedField(1, "id", LongType(), required=is_required), schema_id=number)
        for number, is_required in enumerate([False, True])
    )
    without = Schema(NestedField(2, "n", LongType()), schema_id=0)

    def is_never_null(*schemas: Schema) -> bool:
        (column,) = read_columns(required.fields, schemas)
        return column.is_never_null

    assert is_never_null(required.model_copy(update={"schema_id": 0}), required)
    assert not is_never_null(optional, required)
    assert not is_never_null(without, required)
    assert not is_never_null(required)  # what the first schema said has expired


def test_defaults_that_spark_does_not_fill_in_are_told() -> None:
    """A read would fail in the middle, or show null instead of the default."""
    inside = NestedField(3, "x", LongType(), initial_default=5)
    number, data = (
        NestedField(1, "a", LongType(), initial_default=5),
        NestedField(1, "a", BinaryType(), initial_default=b"5"),
    )

    assert why_not_by_spark([number]) is None
    assert why_not_by_spark([data]) == "column 'a' has bytes as its initial default"
    for value, is_told in (("1E18", False), ("9223372036854775807", False), ("-9223372036854775808", True)):
        one = NestedField(1, "a", DecimalType(38, 0), initial_default=Decimal(value))
        found = why_not_by_spark([one])
        assert found == ("column 'a' has a decimal of more than 64 bits as its initial default" if is_told else None)
    for kind in (StructType(inside), ListType(4, StructType(inside))):
        found = why_not_by_spark([NestedField(2, "s", kind)])
        assert found == "column 's' has a field inside that has an initial default"
