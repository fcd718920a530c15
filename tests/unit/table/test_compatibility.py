"""Spark's schema against Iceberg's: differences, readability."""

from __future__ import annotations

import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import types as spark
from support.tables.metadata import metadata_of

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.compatibility import can_still_read
from iceberg_ds.table.schema_evolution import EvolutionPolicy, propose_schema

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
    (spark.DayTimeIntervalType(), "interval day to second"),
    (spark.YearMonthIntervalType(), "interval year to month"),
    (spark.CalendarIntervalType(), "interval"),
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


def check_fits(
    dataframe: spark.StructType, schema: Schema, *, case_sensitive: bool | None = None, check_ordering: bool = False
) -> None:
    """Assert that the table takes this DataFrame as it is, with a policy that lets it change nothing."""
    policy = EvolutionPolicy(mode="strict", case_sensitive=case_sensitive, check_ordering=check_ordering)

    assert propose_schema(dataframe, metadata_of(schemas=[schema]), policy, table_name="db.t") is None


def refusal(
    dataframe: spark.StructType, schema: Schema, *, case_sensitive: bool | None = None, check_ordering: bool = False
) -> str:
    """Return the text of the error that this DataFrame raises for that table."""
    with pytest.raises(SchemaMismatchError) as raised:
        check_fits(dataframe, schema, case_sensitive=case_sensitive, check_ordering=check_ordering)
    return str(raised.value)


@pytest.mark.parametrize(("given", "expected"), EXACT, ids=str)
def test_column_fits_the_type_that_it_would_create(given: spark.DataType, expected: ice.IcebergType) -> None:
    """The second write into a table that the first one created would be refused."""
    check_fits(frame(c=given), table(("c", expected)))


@pytest.mark.parametrize(("given", "name"), REFUSED, ids=str)
def test_type_without_counterpart_is_refused_for_an_existing_column(given: spark.DataType, name: str) -> None:
    """Values would be changed silently, or the task would fail with a riddle."""
    assert f"column 'c' holds {name}" in refusal(frame(c=given), table(("c", ice.StringType())))


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
    assert "column 'id' is string in the DataFrame and bigint in the table" in text
    assert "column 'new' double is not in the table" in text
    assert "column 'gone'" not in text  # it is optional, and gets nulls
    assert "column 'must' date is required in the table and missing in the DataFrame" in text
    assert "column 'ts' is timestamp_ntz in the DataFrame and timestamp in the table: cast it to that" in text
    assert "column 's.x' is bigint in the DataFrame and int in the table" in text
    assert "field 's.extra' boolean is not in the table" in text
    assert "field 's.y'" not in text


@pytest.mark.parametrize(
    ("given", "own", "text"),
    [
        (
            spark.TimestampType(),
            ice.TimestampType(),
            "is timestamp in the DataFrame and timestamp_ntz in the table: cast",
        ),
        (
            spark.TimestampNTZType(),
            ice.TimestamptzType(),
            "is timestamp_ntz in the DataFrame and timestamp in the table",
        ),
        (spark.LongType(), ice.UUIDType(), "is bigint in the DataFrame and uuid in the table: give it as string"),
        (spark.LongType(), ice.FixedType(2), "and fixed[2] in the table: give it as binary"),
        (spark.LongType(), ice.TimeType(), "and time in the table: give it as string, such as 10:00:00.5"),
        (spark.LongType(), ice.DateType(), "and date in the table: Spark has no cast to that"),
        (spark.BinaryType(), ice.DecimalType(5, 2), "and decimal(5,2) in the table: Spark has no cast to that"),
        (
            spark.ArrayType(spark.LongType()),
            ice.StringType(),
            "is array<bigint> in the DataFrame and string in the table: cast",
        ),
        (
            spark.StringType(),
            ice.StructType(NestedField(9, "x", ice.LongType())),
            "and struct<x:bigint> in the table: Spark has no cast to that; read the text with from_json",
        ),
        (
            spark.LongType(),
            ice.ListType(9, ice.LongType()),
            "and array<bigint> in the table: Spark has no cast to that; make",
        ),
        (
            spark.LongType(),
            ice.MapType(8, ice.StringType(), 9, ice.LongType()),
            "and map<string,bigint> in the table: Spark",
        ),
    ],
)
def test_types_have_sparks_names_and_a_step_that_is_possible(
    given: spark.DataType, own: ice.IcebergType, text: str
) -> None:
    """A user would be told to cast timestamp to timestamp, or bigint to uuid, which Spark does not."""
    assert text in refusal(frame(v=given), table(("v", own)))


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

    check_fits(frame(NAME=spark.StringType(), ID=spark.LongType()), schema)


def test_name_that_differs_in_case_from_two_columns_is_refused() -> None:
    """Values would go into one of two columns, by luck."""
    schema = table(("id", ice.LongType()), ("ID", ice.LongType()))

    assert "column 'Id' could be any of 'id', 'ID' of the table" in refusal(frame(Id=spark.LongType()), schema)


def test_case_that_counts_keeps_names_apart() -> None:
    """A user who says that case counts would have values in another column."""
    schema = table(("id", ice.LongType()))

    text = refusal(frame(ID=spark.LongType()), schema, case_sensitive=True)

    assert "column 'ID' bigint is not in the table" in text
    assert "ALTER TABLE db.t RENAME COLUMN id TO ID" in text


def test_case_that_never_counts_does_not_prefer_the_exact_name() -> None:
    """A user who says that case never counts would have values in one of two columns, by luck."""
    schema = table(("id", ice.LongType()), ("ID", ice.LongType()))

    assert "column 'id' could be any of 'id', 'ID'" in refusal(frame(id=spark.LongType()), schema, case_sensitive=False)


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A")])
@pytest.mark.parametrize("is_nested", [False, True])
def test_repeated_names_do_not_fit(names: tuple[str, str], is_nested: bool) -> None:  # noqa: FBT001
    """One of two columns would overwrite the other."""
    dataframe = spark.StructType([spark.StructField(name, spark.LongType()) for name in names])
    schema = table(("a", ice.LongType()))
    if is_nested:
        dataframe, schema = frame(s=dataframe), table(("s", ice.StructType(NestedField(9, "a", ice.LongType()))))

    path = "s." if is_nested else ""
    assert f"columns '{path}{names[0]}' and '{path}{names[1]}' have the same name" in refusal(dataframe, schema)


def test_renamed_column_is_recognised_and_told_how_to_rename() -> None:
    """A user would drop a column and add another, and lose its values."""
    schema = table(("id", ice.LongType()), ("old", ice.StringType()))

    text = refusal(frame(id=spark.LongType(), new=spark.StringType()), schema)

    assert "a renamed column looks like one that is missing and one that is new" in text
    assert "ALTER TABLE db.t RENAME COLUMN old TO new" in text
    assert "rename_column('old', 'new')" in text


@pytest.mark.parametrize("extra", [{}, {"old": spark.StringType(), "new": spark.StringType()}])
def test_no_rename_is_suggested_when_columns_are_only_missing_or_only_new(extra: dict[str, spark.DataType]) -> None:
    """A user would be sent in the wrong direction."""
    schema = table(("id", ice.LongType()), ("old", ice.StringType()))

    assert "renamed" not in refusal(frame(id=spark.StringType(), **extra), schema)


def test_no_rename_is_suggested_across_structs() -> None:
    """A column cannot be moved into a struct by renaming it."""
    schema = table(("s", ice.StructType(NestedField(9, "x", ice.LongType()))), ("old", ice.LongType()))
    inner = spark.StructType([spark.StructField(name, spark.LongType()) for name in ("x", "new")])

    assert "renamed" not in refusal(frame(s=inner), schema)


def test_order_of_columns_counts_only_if_asked_for() -> None:
    """A user who relies on positions would not learn that they differ."""
    schema = table(("a", ice.LongType()), ("b", ice.LongType()), ("c", ice.LongType()))
    dataframe = frame(a=spark.LongType(), c=spark.LongType(), b=spark.LongType())

    check_fits(dataframe, schema)

    text = refusal(dataframe, schema, check_ordering=True)
    assert "columns 'c' and 'b' come in the other order in the table" in text


def test_order_of_fields_counts_too() -> None:
    """The same, one level deeper."""
    schema = table(
        ("s", ice.StructType(NestedField(9, "x", ice.LongType()), NestedField(10, "y", ice.LongType()))),
    )
    dataframe = frame(s=frame(y=spark.LongType(), x=spark.LongType()))

    assert "columns 's.y' and 's.x' come in the other order" in refusal(dataframe, schema, check_ordering=True)


def test_column_without_a_name_does_not_fit() -> None:
    """The catalog would answer with a riddle."""
    dataframe = spark.StructType([spark.StructField("", spark.LongType())])

    assert "a column has no name: name it" in refusal(dataframe, table(("id", ice.LongType())))


def test_key_of_a_map_says_that_it_cannot_change() -> None:
    """A user would be told to widen or add what the spec lets nobody widen or add."""
    key = ice.StructType(NestedField(10, "x", ice.IntegerType()), NestedField(11, "gone", ice.StringType()))
    schema = table(("m", ice.MapType(12, key, 13, ice.LongType(), value_required=False)))
    dataframe = frame(m=spark.MapType(frame(x=spark.LongType(), new=spark.LongType()), spark.LongType()))

    lines = refusal(dataframe, schema).splitlines()[1:]

    assert [line.split("'")[1] for line in lines] == ["m.key.x", "m.key.new", "m.key.gone"]
    assert all("it is part of a map's key, which cannot change" in line for line in lines)


def test_nullable_column_may_feed_a_required_one() -> None:
    """Spark makes nearly every column nullable: no table with a required column could be written."""
    check_fits(frame(id=spark.LongType()), table(("id", ice.LongType(), True)))


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
