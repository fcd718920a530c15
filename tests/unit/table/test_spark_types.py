"""Spark's types as Iceberg's: exact, or refused by name; and which values go into which column."""

from __future__ import annotations

import datetime as dt
import itertools
import re

import pytest
from pyiceberg import types as ice
from pyspark.sql import types as spark

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.spark_types import (
    convert_type,
    iceberg_schema,
    is_lossless,
    is_writable,
    json_schema,
    spark_type,
    sql_constant,
)

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
    (spark.DecimalType(38, 38), ice.DecimalType(38, 38)),
]


class PointType(spark.UserDefinedType):
    """A user-defined type, as libraries bring them."""

    @classmethod
    def sqlType(cls) -> spark.DataType:  # noqa: N802  # Spark's name
        """Return what it consists of."""
        return spark.ArrayType(spark.DoubleType(), containsNull=False)


REFUSED: list[tuple[spark.DataType, str, str]] = [
    (spark.NullType(), "void", 'lit(None).cast("string")'),
    (spark.DayTimeIntervalType(), "interval day to second", "cast it to decimal(20, 6)"),
    (spark.YearMonthIntervalType(), "interval year to month", "cast it to interval month and that to int"),
    (spark.CalendarIntervalType(), "interval", "cast it to string"),
    (spark.StringType("UTF8_LCASE"), "string collate UTF8_LCASE", "collate(column, 'UTF8_BINARY')"),
    (PointType(), "user-defined type PointType", "select what it consists of"),
    (spark.DecimalType(5, -2), "decimal(5,-2)", "cast it to decimal(7, 0)"),
    (spark.DecimalType(38, -2), "decimal(38,-2)", "cast it to string"),
    (spark.StructType([]), "a struct without fields", "drop it"),
    (spark.StructType([spark.StructField("", spark.LongType())]), "a struct with a field without a name", "name it"),
]
if hasattr(spark, "TimeType"):
    EXACT += [(spark.TimeType(precision), ice.TimeType()) for precision in (0, 3, 6)]
    REFUSED.append((spark.TimeType(9), "time(9)", "cast it to time(6)"))
if hasattr(spark, "GeometryType"):
    REFUSED.append((spark.GeometryType(4326), "geometry(4326)", "st_asbinary(column)"))
    REFUSED.append((spark.GeographyType(4326), "geography(4326)", "st_asbinary(column)"))


def frame(**columns: spark.DataType) -> spark.StructType:
    """Return a DataFrame's schema with these nullable columns."""
    return spark.StructType([spark.StructField(name, data_type) for name, data_type in columns.items()])


@pytest.mark.parametrize(("given", "expected"), EXACT, ids=str)
def test_spark_type_becomes_its_iceberg_type(given: spark.DataType, expected: ice.IcebergType) -> None:
    """A column of a new table would have another type than its values."""
    schema = iceberg_schema(frame(c=given))

    assert schema.find_type("c") == expected


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


@pytest.mark.parametrize("comment", [5, ["a"], True], ids=str)
def test_comment_that_is_no_text_is_none(comment: object) -> None:
    """A column whose metadata means something else by that word could not be written, and nobody said why."""
    column = spark.StructField("c", spark.LongType(), metadata={"comment": comment})

    assert iceberg_schema(spark.StructType([column])).find_field("c").doc is None


@pytest.mark.parametrize(("given", "name", "hint"), REFUSED, ids=str)
def test_type_without_counterpart_is_refused_by_name(given: spark.DataType, name: str, hint: str) -> None:
    """Values would be changed silently, or the task would fail with a riddle."""
    with pytest.raises(SchemaMismatchError, match=re.escape(f"column 'c' holds {name}, which")) as raised:
        iceberg_schema(frame(c=given))

    assert hint in str(raised.value)


@pytest.mark.parametrize(("given", "name", "hint"), REFUSED, ids=str)
def test_type_without_counterpart_is_refused_inside_nested_types(given: spark.DataType, name: str, hint: str) -> None:
    """The same, one level deeper."""
    with pytest.raises(SchemaMismatchError, match=re.escape(name)) as raised:
        iceberg_schema(frame(c=spark.ArrayType(frame(x=spark.MapType(spark.StringType(), given)))))

    assert hint in str(raised.value)


def test_all_columns_without_counterpart_are_named_at_once() -> None:
    """A user would fix one column per run."""
    with pytest.raises(SchemaMismatchError) as raised:
        iceberg_schema(frame(a=spark.NullType(), ok=spark.LongType(), b=spark.CalendarIntervalType()))

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


def test_names_that_differ_in_case_are_two_where_case_counts() -> None:
    """A table could not have the columns that a case-sensitive session has."""
    inner = spark.StructType([spark.StructField("x", spark.LongType()), spark.StructField("X", spark.LongType())])
    dataframe = spark.StructType([spark.StructField("s", inner), spark.StructField("S", spark.LongType())])

    schema = iceberg_schema(dataframe, case_sensitive=True)

    assert set(schema.column_names) == {"s", "s.x", "s.X", "S"}


def test_column_without_a_name_is_refused() -> None:
    """The catalog would answer with a riddle."""
    with pytest.raises(SchemaMismatchError, match="a column of type bigint has no name"):
        iceberg_schema(spark.StructType([spark.StructField("", spark.LongType())]))


def test_dotted_name_beside_the_field_it_spells_is_refused() -> None:
    """Nobody could tell the two by their names; the catalog would answer with a riddle."""
    dataframe = spark.StructType(
        [spark.StructField("a.b", spark.LongType()), spark.StructField("a", frame(b=spark.LongType()))]
    )

    with pytest.raises(SchemaMismatchError, match=r"multiple fields for name a\.b.*rename one"):
        iceberg_schema(dataframe)


LOSSLESS = [
    (ice.IntegerType(), ice.LongType()),
    (ice.FloatType(), ice.DoubleType()),
    (ice.DecimalType(5, 2), ice.DecimalType(9, 2)),
    (ice.UnknownType(), ice.StringType()),
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
        (ice.UnknownType(), ice.ListType(1, ice.LongType(), element_required=False)),
    ],
    ids=str,
)
def test_other_conversions_are_refused(source: ice.IcebergType, target: ice.IcebergType) -> None:
    """Values would change on the way into the table."""
    assert not is_lossless(source, target)


def test_void_is_a_type_of_whole_columns_from_version_3_on() -> None:
    """Tables would get columns that their version does not have, or files ones that the spec keeps out of them."""
    dataframe = frame(id=spark.LongType(), nothing=spark.NullType())
    dataframe["nothing"].nullable = False
    schema = iceberg_schema(dataframe, format_version=3)
    assert [(field.name, field.field_type, field.required) for field in schema.fields] == [
        ("id", ice.LongType(), False),
        ("nothing", ice.UnknownType(), False),
    ]
    assert spark_type(ice.UnknownType()) == spark.NullType()
    for columns, version in ((dataframe, 1), (dataframe, 2), (frame(s=dataframe), 3)):
        with pytest.raises(SchemaMismatchError, match="holds void"):
            iceberg_schema(columns, format_version=version)


@pytest.mark.parametrize(("given", "expected"), EXACT, ids=str)
def test_values_go_into_the_type_that_they_would_create(given: spark.DataType, expected: ice.IcebergType) -> None:
    """The second write into a table that the first one created would be refused."""
    assert is_writable(given, expected)


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (spark.ByteType(), ice.LongType()),
        (spark.IntegerType(), ice.LongType()),
        (spark.FloatType(), ice.DoubleType()),
        (spark.DecimalType(5, 2), ice.DecimalType(9, 2)),
        (spark.StringType(), ice.UUIDType()),
        (spark.VarcharType(36), ice.UUIDType()),
        (spark.StringType(), ice.TimeType()),
        (spark.BinaryType(), ice.UUIDType()),
        (spark.BinaryType(), ice.FixedType(5)),
        (spark.NullType(), ice.LongType()),
        (spark.NullType(), ice.ListType(1, ice.LongType(), element_required=False)),
    ],
    ids=str,
)
def test_values_go_into_wider_types_and_into_those_that_they_spell(
    given: spark.DataType, target: ice.IcebergType
) -> None:
    """A uuid, time or fixed column could not be written by any DataFrame."""
    assert is_writable(given, target)


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (spark.LongType(), ice.IntegerType()),
        (spark.DoubleType(), ice.FloatType()),
        (spark.DecimalType(9, 2), ice.DecimalType(9, 3)),
        (spark.StringType(), ice.BinaryType()),
        (spark.StringType(), ice.FixedType(16)),
        (spark.StringType(), ice.DateType()),
        (spark.StringType("UTF8_LCASE"), ice.StringType()),
        (spark.StringType("UTF8_LCASE"), ice.UUIDType()),
        (spark.BinaryType(), ice.StringType()),
        (spark.BinaryType(), ice.TimeType()),
        (spark.TimestampType(), ice.TimestampType()),
        (spark.TimestampType(), ice.TimestamptzNanoType()),
        (spark.DateType(), ice.TimestampType()),
        (spark.VariantType(), ice.StringType()),
        (PointType(), ice.ListType(1, ice.DoubleType(), element_required=True)),
        (spark.LongType(), ice.ListType(1, ice.LongType(), element_required=False)),
    ],
    ids=str,
)
def test_values_that_would_change_are_not_writable(given: spark.DataType, target: ice.IcebergType) -> None:
    """Values would change on the way into the table."""
    assert not is_writable(given, target)


def test_nested_columns_become_text_and_keep_nullability_and_comment() -> None:
    """A table made with nested-as-json would have structs, or have lost what the DataFrame says of them."""
    inner = frame(x=spark.NullType(), y=spark.StringType("UTF8_LCASE"))
    dataframe = spark.StructType(
        [
            spark.StructField("id", spark.LongType(), nullable=False, metadata={"comment": "the key"}),
            spark.StructField("s", inner, nullable=False, metadata={"comment": "of it"}),
            spark.StructField("l", spark.ArrayType(inner)),
            spark.StructField("m", spark.MapType(spark.DateType(), spark.ArrayType(inner))),
        ]
    )

    flat = json_schema(dataframe)

    assert flat.names == dataframe.names
    assert [field.dataType for field in flat] == [spark.LongType(), *[spark.StringType()] * 3]
    assert [field.nullable for field in flat] == [False, False, True, True]
    assert [field.metadata.get("comment") for field in flat] == ["the key", "of it", None, None]


@pytest.mark.parametrize(
    "inner",
    [spark.DayTimeIntervalType(), spark.YearMonthIntervalType(), PointType()],
    ids=lambda inner: type(inner).__name__,
)
def test_nested_column_without_a_json_form_is_refused_by_name(inner: spark.DataType) -> None:
    """Its inner form would stand in the table, or the task would fail with a riddle."""
    flat = json_schema(frame(c=spark.ArrayType(frame(x=inner))))

    with pytest.raises(SchemaMismatchError, match="column 'c' holds "):
        iceberg_schema(flat)


def test_ids_of_nested_fields_come_from_outside_in() -> None:
    """Two fields would share an id."""
    ids = itertools.count(10)

    converted = convert_type(spark.MapType(spark.StringType(), frame(x=spark.LongType(), y=spark.DateType())), ids)

    assert isinstance(converted, ice.MapType)
    assert [converted.key_id, converted.value_id] == [10, 11]
    assert isinstance(converted.value_type, ice.StructType)
    assert [field.field_id for field in converted.value_type.fields] == [12, 13]


def test_constant_of_a_time_is_one_moment_in_every_session() -> None:
    """A session may take TIMESTAMP for times without a zone, and shift the moment by its own."""
    moment = dt.datetime(2026, 11, 27, 1, 2, 3, tzinfo=dt.timezone.utc)

    assert sql_constant(moment, spark.TimestampType()).endswith(" AS timestamp_ltz)")
    assert sql_constant(moment.replace(tzinfo=None), spark.TimestampNTZType()).endswith(" AS timestamp_ntz)")
