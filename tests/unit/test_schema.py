"""Spark's schema against Iceberg's: conversion, differences, readability."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import types as spark

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.schema import can_still_read, check_fits, file_shape, iceberg_schema, is_lossless

EXACT: list[tuple[spark.DataType, ice.IcebergType]] = [
    (spark.BooleanType(), ice.BooleanType()),
    (spark.ByteType(), ice.IntegerType()),
    (spark.ShortType(), ice.IntegerType()),
    (spark.IntegerType(), ice.IntegerType()),
    (spark.LongType(), ice.LongType()),
    (spark.FloatType(), ice.FloatType()),
    (spark.DoubleType(), ice.DoubleType()),
    (spark.StringType(), ice.StringType()),
    (spark.CharType(3), ice.StringType()),
    (spark.VarcharType(3), ice.StringType()),
    (spark.BinaryType(), ice.BinaryType()),
    (spark.DateType(), ice.DateType()),
    (spark.TimestampType(), ice.TimestamptzType()),
    (spark.TimestampNTZType(), ice.TimestampType()),
    (spark.DecimalType(1, 0), ice.DecimalType(1, 0)),
    (spark.DecimalType(38, 18), ice.DecimalType(38, 18)),
]

REFUSED: list[tuple[spark.DataType, str]] = [
    (spark.NullType(), "void"),
    (spark.DayTimeIntervalType(), "interval day to second"),
    (spark.YearMonthIntervalType(), "interval year to month"),
    (spark.CalendarIntervalType(), "interval"),
    (spark.VariantType(), "variant"),
    (spark.TimeType(6), "time(6)"),
    (spark.StringType("UTF8_LCASE"), "string collate UTF8_LCASE"),
]


def frame(**columns: spark.DataType) -> spark.StructType:
    """Return a DataFrame's schema with these nullable columns."""
    return spark.StructType([spark.StructField(name, data_type) for name, data_type in columns.items()])


def table(*fields: tuple[str, ice.IcebergType] | tuple[str, ice.IcebergType, bool]) -> Schema:
    """Return a table's schema; a third value tells whether the column is required."""
    return Schema(
        *(
            NestedField(field_id=number, name=field[0], field_type=field[1], required=len(field) > 2 and field[2])  # type: ignore[misc]  # the union of tuples
            for number, field in enumerate(fields, start=1)
        )
    )


def refusal(dataframe: spark.StructType, schema: Schema) -> str:
    """Return the text of the error that this DataFrame raises for that table."""
    with pytest.raises(SchemaMismatchError) as raised:
        check_fits(dataframe, schema, table_name="db.t")
    return str(raised.value)


@pytest.mark.parametrize(("given", "expected"), EXACT, ids=str)
def test_spark_type_becomes_its_iceberg_type(given: spark.DataType, expected: ice.IcebergType) -> None:
    """A column of a new table would have another type than its values."""
    schema = iceberg_schema(frame(c=given))

    assert schema.find_type("c") == expected


@pytest.mark.parametrize(("given", "expected"), EXACT, ids=str)
def test_column_fits_the_type_that_it_would_create(given: spark.DataType, expected: ice.IcebergType) -> None:
    """The second write into a table that the first one created would be refused."""
    check_fits(frame(c=given), table(("c", expected)), table_name="db.t")


def test_nested_types_get_ids_names_and_nullability() -> None:
    """Nested columns of a new table would lose what the DataFrame says of them."""
    inner = spark.StructType([spark.StructField("x", spark.LongType(), nullable=False)])
    dataframe = spark.StructType(
        [
            spark.StructField("s", inner, nullable=False),
            spark.StructField("l", spark.ArrayType(inner, containsNull=False)),
            spark.StructField("m", spark.MapType(spark.StringType(), spark.DoubleType(), valueContainsNull=True)),
        ]
    )

    schema = iceberg_schema(dataframe)

    assert schema.find_field("s").required
    assert schema.find_field("s.x").required
    assert not schema.find_field("l").required
    assert schema.find_field("l.element").required
    assert schema.find_field("m.key").required
    assert not schema.find_field("m.value").required
    assert len(set(schema.field_ids)) == len(schema.field_ids) == 8


def test_comments_become_docs() -> None:
    """Column comments would be lost when the table is created."""
    inner = spark.StructType([spark.StructField("x", spark.LongType(), metadata={"comment": "inside"})])
    dataframe = spark.StructType([spark.StructField("c", inner, metadata={"comment": "of the column"})])

    schema = iceberg_schema(dataframe)

    assert schema.find_field("c").doc == "of the column"
    assert schema.find_field("c.x").doc == "inside"


@pytest.mark.parametrize(("given", "name"), REFUSED, ids=str)
def test_type_without_counterpart_is_refused_by_name(given: spark.DataType, name: str) -> None:
    """Values would be changed silently, or the task would fail with a riddle."""
    with pytest.raises(SchemaMismatchError, match=re.escape(f"column 'c' holds {name}")):
        iceberg_schema(frame(c=given))


@pytest.mark.parametrize(("given", "name"), REFUSED, ids=str)
def test_type_without_counterpart_is_refused_inside_nested_types(given: spark.DataType, name: str) -> None:
    """The same, one level deeper."""
    with pytest.raises(SchemaMismatchError, match=re.escape(name)):
        iceberg_schema(frame(c=spark.ArrayType(frame(x=spark.MapType(spark.StringType(), given)))))


@pytest.mark.parametrize(("given", "name"), REFUSED, ids=str)
def test_type_without_counterpart_is_refused_for_an_existing_column(given: spark.DataType, name: str) -> None:
    """Values would be changed silently, or the task would fail with a riddle."""
    assert f"column 'c' holds {name}" in refusal(frame(c=given), table(("c", ice.StringType())))


def test_all_columns_without_counterpart_are_named_at_once() -> None:
    """A user would fix one column per run."""
    with pytest.raises(SchemaMismatchError) as raised:
        iceberg_schema(frame(a=spark.NullType(), ok=spark.LongType(), b=spark.VariantType()))

    assert "column 'a'" in str(raised.value)
    assert "column 'b'" in str(raised.value)
    assert "'ok'" not in str(raised.value)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A")])
def test_repeated_names_are_refused(names: tuple[str, str]) -> None:
    """One of two columns would overwrite the other."""
    dataframe = spark.StructType([spark.StructField(name, spark.LongType()) for name in names])

    with pytest.raises(SchemaMismatchError, match=f"columns '{names[0]}' and '{names[1]}' have the same name"):
        iceberg_schema(dataframe)


def test_repeated_names_inside_a_struct_are_refused() -> None:
    """One of two fields would overwrite the other, or the catalog would answer with a riddle."""
    inner = spark.StructType([spark.StructField("a", spark.LongType()), spark.StructField("a", spark.LongType())])

    with pytest.raises(SchemaMismatchError, match=r"same name|multiple fields"):
        iceberg_schema(frame(s=inner))


def test_missing_extra_and_incompatible_columns_are_named_at_once_with_both_types() -> None:
    """A user would fix one column per run."""
    schema = table(
        ("id", ice.LongType(), True),
        ("gone", ice.StringType()),
        ("must", ice.DateType(), True),
        ("ts", ice.TimestamptzType()),
        ("s", ice.StructType(NestedField(10, "x", ice.IntegerType()), NestedField(11, "y", ice.StringType()))),
    )
    dataframe = frame(
        id=spark.StringType(),
        new=spark.DoubleType(),
        ts=spark.TimestampNTZType(),
        s=spark.StructType([spark.StructField("x", spark.LongType()), spark.StructField("extra", spark.BooleanType())]),
    )

    text = refusal(dataframe, schema)

    assert text.startswith("Cannot write to db.t:\n")
    assert "column 'id' is string in the DataFrame and long in the table" in text
    assert "column 'new' double is not in the table" in text
    assert "column 'gone' string is missing in the DataFrame" in text
    assert "column 'must' date is required in the table and missing in the DataFrame" in text
    assert "column 'ts' is timestamp_ntz in the DataFrame and timestamptz in the table" in text
    assert "column 's.x' is bigint in the DataFrame and int in the table" in text
    assert "field 's.extra' boolean is not in the table" in text
    assert "field 's.y' string is missing in the DataFrame" in text


def test_differences_are_found_inside_lists_and_maps() -> None:
    """A task would fail with a riddle in the middle of the write."""
    schema = table(
        ("l", ice.ListType(10, ice.IntegerType(), element_required=False)),
        ("m", ice.MapType(20, ice.StringType(), 21, ice.FloatType(), value_required=False)),
    )
    dataframe = frame(l=spark.ArrayType(spark.LongType()), m=spark.MapType(spark.IntegerType(), spark.DoubleType()))

    text = refusal(dataframe, schema)

    assert "column 'l.element' is bigint" in text
    assert "column 'm.key' is int" in text
    assert "column 'm.value' is double" in text


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (spark.StructType([spark.StructField("x", spark.LongType())]), ice.LongType()),
        (spark.LongType(), ice.StructType(NestedField(10, "x", ice.LongType()))),
        (spark.ArrayType(spark.LongType()), ice.MapType(10, ice.LongType(), 11, ice.LongType())),
        (spark.ArrayType(spark.LongType()), ice.StringType()),
    ],
    ids=str,
)
def test_different_kinds_of_types_do_not_fit(given: spark.DataType, target: ice.IcebergType) -> None:
    """A task would fail with a riddle in the middle of the write."""
    assert "column 'c' is " in refusal(frame(c=given), table(("c", target)))


def test_columns_are_matched_by_name_in_any_order_and_case() -> None:
    """Values would go into another column, or a write that Spark allows would be refused."""
    schema = table(("id", ice.LongType()), ("Name", ice.StringType()))

    check_fits(frame(NAME=spark.StringType(), ID=spark.LongType()), schema, table_name="db.t")


def test_name_that_differs_in_case_from_two_columns_is_refused() -> None:
    """Values would go into one of two columns, by luck."""
    schema = table(("id", ice.LongType()), ("ID", ice.LongType()))

    assert "column 'Id' bigint is not in the table" in refusal(frame(Id=spark.LongType()), schema)


def test_nullable_column_may_feed_a_required_one() -> None:
    """Spark makes nearly every column nullable: no table with a required column could be written."""
    check_fits(frame(id=spark.LongType()), table(("id", ice.LongType(), True)), table_name="db.t")


LOSSLESS = [
    (ice.IntegerType(), ice.LongType()),
    (ice.FloatType(), ice.DoubleType()),
    (ice.DecimalType(5, 2), ice.DecimalType(9, 2)),
]


@pytest.mark.parametrize(("source", "target"), LOSSLESS, ids=str)
def test_widening_is_lossless_and_narrowing_is_not(source: ice.IcebergType, target: ice.IcebergType) -> None:
    """Values would be cut silently, or harmless writes refused."""
    assert is_lossless(source, source)
    assert is_lossless(source, target)
    assert not is_lossless(target, source)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (ice.LongType(), ice.DoubleType()),
        (ice.IntegerType(), ice.FloatType()),
        (ice.IntegerType(), ice.StringType()),
        (ice.DateType(), ice.TimestampType()),
        (ice.TimestampType(), ice.TimestamptzType()),
        (ice.DecimalType(9, 2), ice.DecimalType(9, 3)),
        (ice.StringType(), ice.BinaryType()),
    ],
    ids=str,
)
def test_other_conversions_are_refused(source: ice.IcebergType, target: ice.IcebergType) -> None:
    """Values would change on the way into the table."""
    assert not is_lossless(source, target)


def schema_of(*fields: NestedField) -> Schema:
    """Return a schema of these fields."""
    return Schema(*fields)


def test_files_stay_readable_after_harmless_changes() -> None:
    """A long write would be thrown away because a column was added meanwhile."""
    written = schema_of(
        NestedField(1, "id", ice.IntegerType(), required=True),
        NestedField(2, "gone", ice.StringType()),
        NestedField(3, "old_name", ice.FloatType()),
    )
    current = schema_of(
        NestedField(1, "id", ice.LongType()),
        NestedField(3, "new_name", ice.DoubleType()),
        NestedField(4, "added", ice.StringType()),
    )

    assert can_still_read(written, current) == []


def test_added_required_column_makes_files_unreadable() -> None:
    """The table could not be read any more after the commit."""
    written = schema_of(NestedField(1, "id", ice.LongType()))
    current = schema_of(NestedField(1, "id", ice.LongType()), NestedField(2, "must", ice.StringType(), required=True))

    assert can_still_read(written, current) == ["column 'must' has become required"]


def test_added_required_field_of_a_struct_makes_files_unreadable() -> None:
    """The table could not be read any more after the commit."""
    x, y = NestedField(2, "x", ice.LongType()), NestedField(3, "y", ice.LongType(), required=True)
    written = schema_of(NestedField(1, "s", ice.StructType(x)))
    current = schema_of(NestedField(1, "s", ice.StructType(x, y)))

    assert len(can_still_read(written, current)) == 1


def test_optional_column_that_became_required_makes_files_unreadable() -> None:
    """Nulls would stand in a column that promises to have none."""
    written = schema_of(NestedField(1, "id", ice.LongType()))
    current = schema_of(NestedField(1, "id", ice.LongType(), required=True))

    assert can_still_read(written, current) == ["column 'id' has become required"]


def test_changed_type_makes_files_unreadable() -> None:
    """The table could not be read any more after the commit."""
    written = schema_of(NestedField(1, "a", ice.LongType()), NestedField(2, "b", ice.StringType()))
    current = schema_of(
        NestedField(1, "a", ice.IntegerType()),
        NestedField(2, "b", ice.StructType(NestedField(3, "x", ice.StringType()))),
    )

    problems = can_still_read(written, current)

    assert "column 'a' was long and is int" in problems
    assert any(problem.startswith("column 'b' was string and is struct") for problem in problems)


def test_files_have_field_ids_at_every_depth() -> None:
    """Readers would find no column by its id."""
    schema = iceberg_schema(frame(l=spark.ArrayType(spark.MapType(spark.StringType(), frame(x=spark.LongType())))))

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
