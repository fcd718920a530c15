"""Which differences between a DataFrame and a table change the table, which are written as they are, which refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.sql import types as spark
from support.tables.metadata import metadata_of

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.compatibility import can_still_read
from iceberg_ds.table.schema_evolution import (
    EvolutionPolicy,
    SchemaEvolution,
    metadata_with,
    propose_request,
    propose_schema,
)

STRICT = EvolutionPolicy(mode="strict")
ADD = EvolutionPolicy(mode="add-columns")
FULL = EvolutionPolicy(mode="full")
DROP = EvolutionPolicy(mode="full", drop_missing_columns=True)
REPLACE = EvolutionPolicy(mode="full", replace_types=True)
ALL = [STRICT, ADD, FULL, DROP, REPLACE]

LONG, STRING = spark.LongType(), spark.StringType()


def frame(**columns: spark.DataType) -> spark.StructType:
    """Return a DataFrame's schema with these nullable columns."""
    return spark.StructType([spark.StructField(name, data_type) for name, data_type in columns.items()])


def not_null(name: str, data_type: spark.DataType) -> spark.StructType:
    """Return a DataFrame's schema with one column that is never null."""
    return spark.StructType([spark.StructField(name, data_type, nullable=False)])


def of(*fields: NestedField, keys: tuple[int, ...] = ()) -> Schema:
    """Return a table's schema with these fields."""
    return Schema(*fields, identifier_field_ids=list(keys))


def proposed(
    dataframe: spark.StructType, table: Schema | TableMetadata, policy: EvolutionPolicy = FULL
) -> Schema | None:
    """Return the proposal, having checked what is true of every one of them."""
    metadata = table if not isinstance(table, Schema) else metadata_of(schemas=[table])
    schema = propose_schema(dataframe, metadata, policy, table_name="db.t")
    if schema is not None:
        after = metadata_with(metadata, schema, table_name="db.t")
        assert propose_schema(dataframe, after, policy, table_name="db.t") is None
        assert can_still_read(metadata.schema(), schema) == []
        assert min(schema.field_ids - metadata.schema().field_ids, default=10**9) > metadata.last_column_id
    return schema


def changed(dataframe: spark.StructType, table: Schema | TableMetadata, policy: EvolutionPolicy = FULL) -> Schema:
    """Return the proposal, which there must be."""
    schema = proposed(dataframe, table, policy)
    assert schema is not None
    return schema


def refusal(dataframe: spark.StructType, table: Schema | TableMetadata, policy: EvolutionPolicy = FULL) -> str:
    """Return the text of the error that the policy raises."""
    with pytest.raises(SchemaMismatchError) as raised:
        proposed(dataframe, table, policy)
    return str(raised.value)


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.mode)
def test_dataframe_that_fits_changes_nothing(policy: EvolutionPolicy) -> None:
    """Every write would commit a schema, and conflict with every other one."""
    table = of(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))

    assert proposed(frame(name=STRING, ID=spark.IntegerType()), table, policy) is None


@pytest.mark.parametrize("policy", [ADD, FULL], ids=lambda policy: policy.mode)
def test_new_columns_are_added_at_the_end_as_optional_with_their_comments(policy: EvolutionPolicy) -> None:
    """Old rows could not be read any more, or columns would change places."""
    table = of(NestedField(7, "id", LongType(), doc="key"), NestedField(3, "name", StringType()))
    new = spark.StructField("new", spark.DoubleType(), nullable=False, metadata={"comment": "added"})

    schema = changed(spark.StructType([new, *frame(name=STRING, id=LONG, other=STRING)]), table, policy)

    assert schema.fields == (
        NestedField(7, "id", LongType(), doc="key"),
        NestedField(3, "name", StringType()),
        NestedField(8, "new", DoubleType(), required=False, doc="added"),
        NestedField(9, "other", StringType()),
    )


@pytest.mark.parametrize("policy", [ADD, FULL], ids=lambda policy: policy.mode)
def test_new_nested_column_gets_ids_at_every_depth(policy: EvolutionPolicy) -> None:
    """Two fields would share an id, and readers mix them up."""
    metadata = metadata_of(schemas=[of(NestedField(1, "id", LongType()))]).model_copy(update={"last_column_id": 40})
    inner = not_null("x", LONG)

    schema = changed(frame(id=LONG, deep=spark.ArrayType(spark.MapType(STRING, inner))), metadata, policy)

    assert schema.field_ids == {1, 41, 42, 43, 44, 45}
    assert schema.find_field("deep").field_id == 41
    assert schema.find_field("deep.element.value.x").field_id == 45


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("mode", ["add-columns", "full"])
def test_fields_of_new_columns_are_optional_unless_asked_otherwise(
    mode: SchemaEvolution,
    is_asked: bool,  # noqa: FBT001
) -> None:
    """A column would refuse nulls in its elements only because the rows that brought it had none."""
    table = of(NestedField(1, "id", LongType()))
    inner = not_null("x", LONG)
    new = spark.StructType(
        [
            *frame(id=LONG),
            *not_null("l", spark.ArrayType(inner, containsNull=False)),
            *not_null("m", spark.MapType(STRING, inner, valueContainsNull=False)),
        ]
    )

    schema = changed(new, table, EvolutionPolicy(mode=mode, use_nullable_query_schema=is_asked))

    assert not any(field.required for field in schema.fields)
    nested = ("l.element", "l.element.x", "m.value", "m.value.x")
    assert [schema.find_field(name).required for name in nested] == [not is_asked] * 4
    assert schema.find_field("m.key").required


def test_fields_of_replaced_columns_are_optional() -> None:
    """The same where a column of another type takes the place of the table's."""
    table = of(NestedField(1, "l", LongType()))

    schema = changed(frame(l=spark.ArrayType(LONG, containsNull=False)), table, REPLACE)

    assert not schema.find_field("l.element").required


def test_ids_of_dropped_columns_are_not_used_again() -> None:
    """Values of the dropped column would come back in the new one."""
    past = Schema(NestedField(1, "id", LongType()), NestedField(9, "gone", StringType()), schema_id=0)
    metadata = metadata_of(schemas=[past, Schema(NestedField(1, "id", LongType()), schema_id=1)])
    metadata = metadata.model_copy(update={"last_column_id": 1})  # as a careless writer might leave it

    schema = propose_schema(frame(id=LONG, new=STRING), metadata, ADD, table_name="db.t")

    assert schema is not None
    assert schema.find_field("new").field_id == 10
    assert schema.schema_id == 2


@pytest.mark.parametrize("policy", [STRICT, ADD, FULL], ids=lambda policy: policy.mode)
def test_optional_columns_may_be_missing(policy: EvolutionPolicy) -> None:
    """A stream would fail as soon as somebody else adds a column."""
    inner = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", LongType()))
    table = of(NestedField(1, "id", LongType()), NestedField(2, "s", inner), NestedField(5, "name", StringType()))

    assert proposed(frame(id=LONG, s=frame(y=LONG)), table, policy) is None


def test_strict_refuses_what_add_columns_accepts() -> None:
    """A typo in a column's name would go unnoticed."""
    table = of(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))

    text = refusal(frame(id=LONG, nmae=STRING), table, STRICT)

    assert "column 'nmae' string is not in the table" in text
    assert "schema-evolution=add-columns" in text
    assert "ALTER TABLE db.t RENAME COLUMN name TO nmae" in text


@pytest.mark.parametrize("policy", [STRICT, ADD], ids=lambda policy: policy.mode)
def test_required_columns_that_are_missing_are_all_named(policy: EvolutionPolicy) -> None:
    """Rows would be written that no reader can read, or a user would learn of one column in each run."""
    inner = StructType(NestedField(3, "x", LongType()), NestedField(4, "y", LongType(), required=True))
    table = of(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "s", inner),
        NestedField(5, "name", StringType()),
        NestedField(6, "day", StringType(), required=True),
    )

    text = refusal(frame(s=frame(x=LONG)), table, policy)

    assert "column 'id' bigint is required in the table and missing in the DataFrame" in text
    assert "field 's.y' bigint is required in the table and missing in the DataFrame" in text
    assert "column 'day' string is required in the table and missing in the DataFrame" in text
    assert "'name'" not in text


WIDENED: list[tuple[IcebergType, spark.DataType, IcebergType]] = [
    (IntegerType(), LONG, LongType()),
    (FloatType(), spark.DoubleType(), DoubleType()),
    (DecimalType(9, 2), spark.DecimalType(18, 2), DecimalType(18, 2)),
]


@pytest.mark.parametrize(("before", "given", "after"), WIDENED, ids=str)
@pytest.mark.parametrize("policy", [STRICT, ADD], ids=lambda policy: policy.mode)
def test_types_are_widened_by_full_alone(
    before: IcebergType, given: spark.DataType, after: IcebergType, policy: EvolutionPolicy
) -> None:
    """A column would change its type though the user only allowed new ones."""
    table = of(NestedField(1, "c", before, required=True, doc="kept"))

    schema = changed(not_null("c", given), table)

    assert schema.fields == (NestedField(1, "c", after, required=True, doc="kept"),)
    assert "column 'c' is " in refusal(frame(c=given), table, policy)


def test_types_are_widened_inside_structs_lists_and_maps() -> None:
    """A nested column would stop a stream that a flat one does not."""
    inner = StructType(NestedField(2, "x", FloatType(), doc="kept"))
    table = of(
        NestedField(1, "s", inner),
        NestedField(3, "l", ListType(4, IntegerType(), element_required=True)),
        NestedField(5, "m", MapType(6, StringType(), 7, IntegerType(), value_required=False)),
    )
    given = frame(
        s=frame(x=spark.DoubleType()),
        l=spark.ArrayType(LONG, containsNull=False),
        m=spark.MapType(STRING, LONG),
    )

    schema = changed(given, table)

    assert schema.fields == (
        NestedField(1, "s", StructType(NestedField(2, "x", DoubleType(), doc="kept"))),
        NestedField(3, "l", ListType(4, LongType(), element_required=True)),
        NestedField(5, "m", MapType(6, StringType(), 7, LongType(), value_required=False)),
    )


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.mode)
@pytest.mark.parametrize("target", [BinaryType(), FixedType(3)], ids=str)
def test_values_that_are_checked_one_by_one_change_no_type(policy: EvolutionPolicy, target: IcebergType) -> None:
    """A column of fixed length would become one of any length."""
    assert proposed(frame(c=spark.BinaryType()), of(NestedField(1, "c", target)), policy) is None


@pytest.mark.parametrize("policy", [STRICT, ADD, FULL, DROP], ids=lambda policy: policy.mode)
@pytest.mark.parametrize(
    ("target", "given"),
    [
        (IntegerType(), STRING),
        (LongType(), spark.DoubleType()),
        (DecimalType(9, 2), spark.DecimalType(18, 3)),
        (StructType(NestedField(9, "x", LongType())), LONG),
        (ListType(9, LongType()), spark.ArrayType(STRING)),
    ],
    ids=str,
)
def test_incompatible_types_are_refused(policy: EvolutionPolicy, target: IcebergType, given: spark.DataType) -> None:
    """Old rows could not be read any more."""
    text = refusal(frame(c=given), of(NestedField(1, "c", target)), policy)

    assert "in the DataFrame and" in text


def test_nullable_column_makes_the_tables_optional_with_full_alone() -> None:
    """A user who lets a table follow the data would have a write fail for a null."""
    table = of(NestedField(1, "id", LongType(), required=True, doc="kept"))

    schema = changed(frame(id=LONG), table)

    assert schema.fields == (NestedField(1, "id", LongType(), required=False, doc="kept"),)
    assert proposed(frame(id=LONG), table, ADD) is None
    assert proposed(frame(id=LONG), table, STRICT) is None
    assert proposed(not_null("id", LONG), table) is None


def test_nullable_column_of_a_stream_tells_nothing() -> None:
    """Spark calls all columns of a stream nullable: its first epoch would make every required column optional."""
    table = of(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "s", StructType(NestedField(3, "x", LongType(), required=True))),
    )
    of_stream = replace(FULL, is_nullability_known=False)

    assert proposed(frame(id=LONG, s=not_null("x", LONG)), table, of_stream) is None
    nested = changed(frame(id=LONG, s=frame(x=LONG)), table, of_stream)
    assert nested.find_field("id").required
    assert not nested.find_field("s.x").required


def test_nested_fields_are_made_optional() -> None:
    """A null inside a struct, list or map would stop a stream that one in a column does not."""
    table = of(
        NestedField(1, "s", StructType(NestedField(2, "x", LongType(), required=True)), required=True),
        NestedField(3, "l", ListType(4, LongType(), element_required=True)),
        NestedField(5, "m", MapType(6, StringType(), 7, LongType(), value_required=True)),
    )

    schema = changed(frame(s=frame(x=LONG), l=spark.ArrayType(LONG), m=spark.MapType(STRING, LONG)), table)

    assert not any(schema.find_field(name).required for name in ("s", "s.x", "l.element", "m.value"))
    assert schema.find_field("m.key").required


def test_missing_required_column_becomes_optional_with_full_alone() -> None:
    """Rows without a value would stand in a column that promises to have one."""
    inner = StructType(NestedField(4, "x", LongType(), required=True), NestedField(5, "y", LongType(), required=True))
    table = of(
        NestedField(1, "id", LongType()), NestedField(2, "must", LongType(), required=True), NestedField(3, "s", inner)
    )
    given = frame(id=LONG, s=not_null("x", LONG))

    schema = changed(given, table)

    assert not schema.find_field("must").required
    assert not schema.find_field("s.y").required
    assert schema.find_field("s.x").required
    text = refusal(given, table, ADD)
    assert "column 'must' bigint is required in the table and missing" in text
    assert "field 's.y' bigint is required in the table and missing" in text


def test_nested_fields_are_added_with_full_alone() -> None:
    """A field would be added though the user only allowed new columns, or lost though they allowed all."""
    x = NestedField(9, "x", LongType(), doc="kept")
    table = of(
        NestedField(1, "s", StructType(x)),
        NestedField(2, "l", ListType(3, StructType(NestedField(10, "x", LongType())), element_required=False)),
        NestedField(
            4, "m", MapType(5, StringType(), 6, StructType(NestedField(11, "x", LongType())), value_required=False)
        ),
    )
    new = frame(x=LONG, y=STRING)

    schema = changed(frame(s=new, l=spark.ArrayType(new), m=spark.MapType(STRING, new)), table)

    assert schema.find_type("s") == StructType(x, NestedField(12, "y", StringType()))
    assert [schema.find_field(name).field_id for name in ("s.y", "l.element.y", "m.value.y")] == [12, 13, 14]
    assert "field 's.y' string is not in the table" in refusal(frame(s=new, l=spark.ArrayType(new)), table, ADD)


@pytest.mark.parametrize("policy", [STRICT, ADD, FULL, DROP], ids=lambda policy: policy.mode)
@pytest.mark.parametrize(
    "key",
    [frame(x=LONG, y=LONG), frame(y=LONG), frame(x=spark.LongType()), STRING],
    ids=["more", "other", "wider", "text"],
)
def test_keys_of_maps_never_change(policy: EvolutionPolicy, key: spark.DataType) -> None:
    """Two keys that were one would be two, or the other way round (spec: keys may not change)."""
    table = of(
        NestedField(
            1,
            "m",
            MapType(
                2, StructType(NestedField(9, "x", IntegerType(), required=True)), 3, LongType(), value_required=False
            ),
        )
    )

    assert "part of a map's key" in refusal(frame(m=spark.MapType(key, LONG)), table, policy)


def test_nullable_field_of_a_key_is_left_to_the_rows() -> None:
    """A map could not be written whose keys have no null in fact."""
    key = StructType(NestedField(9, "x", LongType(), required=True))
    table = of(NestedField(1, "m", MapType(2, key, 3, LongType(), value_required=False)))

    assert proposed(frame(m=spark.MapType(frame(x=LONG), LONG)), table) is None


def test_missing_columns_are_dropped_only_if_asked_for() -> None:
    """A user would lose a column because one DataFrame lacks it."""
    inner = StructType(NestedField(4, "x", LongType()), NestedField(5, "y", LongType(), required=True))
    table = of(
        NestedField(1, "id", LongType()), NestedField(2, "gone", LongType(), required=True), NestedField(3, "s", inner)
    )
    given = frame(id=LONG, s=frame(x=LONG))

    schema = changed(given, table, DROP)

    assert schema.fields == (
        NestedField(1, "id", LongType()),
        NestedField(3, "s", StructType(NestedField(4, "x", LongType()))),
    )
    assert changed(given, table, FULL).field_ids == {1, 2, 3, 4, 5}


def bound(**changes: Any) -> TableMetadata:
    """Return a table that is partitioned, sorted and keyed by its columns."""
    schema = of(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "ts", TimestamptzType(), required=True),
        NestedField(3, "s", StructType(NestedField(4, "region", StringType()), NestedField(6, "x", LongType()))),
        NestedField(5, "score", LongType()),
        NestedField(7, "free", LongType()),
        NestedField(8, "was", StringType()),
        NestedField(9, "void", StringType()),
        keys=(1,),
    )
    old = PartitionSpec(
        PartitionField(8, 1000, BucketTransform(4), "was_bucket"), PartitionField(9, 1003, VoidTransform(), "void")
    )
    new = PartitionSpec(
        PartitionField(2, 1001, DayTransform(), "ts_day"),
        PartitionField(4, 1002, IdentityTransform(), "s.region"),
        spec_id=1,
    )
    metadata = metadata_of(schemas=[schema], specs=[old, new])
    order = SortOrder(SortField(5, IdentityTransform()), order_id=3)
    return metadata.model_copy(update={"sort_orders": [order], "default_sort_order_id": 3, **changes})


def test_columns_that_the_table_depends_on_are_not_dropped() -> None:
    """Files could not be found by partition, or rows by key, and readers would fail."""
    text = refusal(frame(free=LONG), bound(), DROP)

    lines = text.splitlines()[1:]
    assert [line.split("'")[1] for line in lines] == ["id", "ts", "s", "score", "was"]
    assert "an identifier field of the table is 'id'" in text
    assert "the table is, or was, partitioned by 'ts'" in text
    assert "the table is, or was, partitioned by 's.region'" in text
    assert "the table is sorted by 'score'" in text
    assert "the table is, or was, partitioned by 'was'" in text


def test_columns_that_the_table_does_not_depend_on_are_dropped_beside_them() -> None:
    """A table with partitions could not lose any column."""
    given = frame(id=LONG, ts=spark.TimestampType(), s=frame(region=STRING), score=LONG, was=STRING)

    schema = changed(given, bound(), replace(DROP, is_nullability_known=False))

    assert schema.field_ids == {1, 2, 3, 4, 5, 8}
    assert schema.identifier_field_ids == [1]


def test_source_of_a_partition_may_become_optional() -> None:
    """A stream would stop for a missing column that the table can do without: null is a partition, too."""
    given = frame(id=LONG, free=LONG)

    assert not changed(given, bound()).find_field("ts").required


@pytest.mark.parametrize("policy", [FULL, DROP], ids=["full", "drop"])
def test_identifier_fields_stay_required(policy: EvolutionPolicy) -> None:
    """Rows would have no key, and the table's metadata would be refused by other engines."""
    table = of(NestedField(1, "id", IntegerType(), required=True), NestedField(2, "v", LongType()), keys=(1,))

    assert "column 'id'" in refusal(frame(v=LONG), table, policy)
    assert proposed(frame(id=spark.IntegerType(), v=LONG), table, policy) is None
    widened = changed(frame(id=LONG, v=LONG), table, policy)
    assert widened.fields[0] == NestedField(1, "id", LongType(), required=True)
    assert widened.identifier_field_ids == [1]


def test_structs_around_identifier_fields_stay_required() -> None:
    """The same, one level higher."""
    inner = StructType(NestedField(2, "id", LongType(), required=True))
    table = of(NestedField(1, "s", inner, required=True), NestedField(3, "v", LongType()), keys=(2,))

    assert proposed(frame(s=frame(id=LONG), v=LONG), table) is None
    assert "identifier fields must have values" in refusal(frame(v=LONG), table)
    assert "identifier field of the table is 's.id'" in refusal(frame(v=LONG), table, DROP)
    assert "identifier field of the table is 's.id'" in refusal(frame(s=LONG, v=LONG), table, REPLACE)


@pytest.mark.parametrize("name", ["ts_day", "was_bucket"])
def test_new_column_does_not_take_the_name_of_a_partition_field(name: str) -> None:
    """The table could not be loaded by engines that look partitions up by name."""
    given = spark.StructType(
        [
            *frame(ts=spark.TimestampType(), s=frame(region=STRING, x=LONG), score=LONG),
            *frame(id=LONG, free=LONG, was=STRING, void=STRING),
            spark.StructField(name, STRING),
        ]
    )

    assert f"column '{name}' is new and has the name of a partition field" in refusal(given, bound(), ADD)


def test_incompatible_column_is_replaced_under_a_new_id_if_all_rows_are() -> None:
    """Values of the old type would be read as the new one."""
    table = of(
        NestedField(1, "a", LongType(), required=True, doc="kept"),
        NestedField(2, "b", StringType()),
        NestedField(3, "s", StructType(NestedField(4, "x", LongType()), NestedField(5, "y", LongType()))),
    )
    given = spark.StructType(
        [
            spark.StructField("A", STRING, nullable=False),
            spark.StructField("b", spark.ArrayType(LONG), metadata={"comment": "new"}),
            spark.StructField("s", frame(x=spark.BooleanType(), y=LONG)),
        ]
    )

    schema = changed(given, table, REPLACE)

    assert schema.fields == (
        NestedField(6, "a", StringType(), required=False, doc="kept"),
        NestedField(7, "b", ListType(8, LongType(), element_required=False), doc="new"),
        NestedField(3, "s", StructType(NestedField(9, "x", schema.find_type("s.x")), NestedField(5, "y", LongType()))),
    )
    assert str(schema.find_type("s.x")) == "boolean"


def test_incompatible_element_or_key_replaces_the_column_around_it() -> None:
    """A list would have elements of another type under the id that the old ones had."""
    table = of(
        NestedField(1, "l", ListType(2, LongType())),
        NestedField(3, "m", MapType(4, LongType(), 5, StructType(NestedField(6, "x", LongType())))),
    )

    schema = changed(frame(l=spark.ArrayType(STRING), m=spark.MapType(STRING, frame(x=STRING))), table, REPLACE)

    assert schema.field_ids.isdisjoint(table.field_ids)
    assert str(schema.find_type("m.value.x")) == "string"


@pytest.mark.parametrize("column", ["ts", "was", "score"])
def test_column_that_the_table_depends_on_is_not_replaced(column: str) -> None:
    """Files could not be found by partition."""
    types: dict[str, spark.DataType] = {
        "id": LONG,
        "ts": spark.TimestampType(),
        "score": LONG,
        "was": STRING,
        column: spark.BooleanType(),
    }

    text = refusal(frame(**types), bound(), REPLACE)

    assert f"column '{column}' is boolean" in text
    assert "cannot be replaced, because the table is" in text


def test_types_are_not_replaced_without_full() -> None:
    """A strict write would change a table."""
    table = of(NestedField(1, "a", LongType()))

    for policy in (replace(STRICT, replace_types=True), replace(ADD, replace_types=True)):
        assert "column 'a' is string" in refusal(frame(a=STRING), table, policy)


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.mode)
def test_names_and_types_that_no_table_takes_are_refused_by_every_policy(policy: EvolutionPolicy) -> None:
    """The catalog would answer with a riddle, or a column would be lost."""
    table = of(NestedField(1, "id", LongType()), NestedField(2, "ID", LongType()))
    inner = spark.StructType([spark.StructField("x", LONG), spark.StructField("X", LONG)])
    given = spark.StructType(
        [
            *frame(Id=LONG, v=spark.CalendarIntervalType(), twice=LONG, TWICE=LONG, s=inner),
            spark.StructField("", LONG),
        ]
    )

    text = refusal(given, table, policy)

    assert "column 'Id' could be any of 'id', 'ID'" in text
    assert "column 'v' is not in the table and holds interval" in text
    assert "columns 'twice' and 'TWICE' have the same name" in text
    assert "column 's' is not in the table and holds a struct whose columns 'x' and 'X' have the same name" in text
    assert "a column has no name" in text


def test_all_refusals_of_a_policy_are_named_at_once_and_what_it_allows_is_not() -> None:
    """A user would fix one column per run."""
    table = of(
        NestedField(1, "a", LongType()), NestedField(2, "b", LongType(), required=True), NestedField(3, "c", LongType())
    )

    text = refusal(frame(a=STRING, new=LONG), table, ADD)

    assert [line.split("'")[1] for line in text.splitlines()[1:]] == ["a", "b"]


def test_case_decides_what_is_new() -> None:
    """A column would be added beside the one that it means, or go into one that it does not mean."""
    table = of(NestedField(1, "id", LongType()))

    assert proposed(frame(ID=LONG), table, ADD) is None
    assert proposed(frame(ID=LONG), table, replace(ADD, case_sensitive=False)) is None
    exact = changed(frame(ID=LONG), table, replace(ADD, case_sensitive=True))
    assert [field.name for field in exact.fields] == ["id", "ID"]


def test_case_that_counts_keeps_new_fields_apart() -> None:
    """A user who says that case counts could not write a struct with two such names."""
    given = frame(id=LONG, s=frame(x=LONG, X=LONG))

    schema = changed(given, of(NestedField(1, "id", LongType())), replace(ADD, case_sensitive=True))

    assert {"s.x", "s.X"} <= {*schema.column_names}


def test_order_is_refused_if_it_is_checked() -> None:
    """A user who relies on positions would not learn that they differ."""
    table = of(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    given = frame(new=LONG, b=LONG, a=LONG)

    assert "columns 'b' and 'a' come in the other order" in refusal(given, table, replace(ADD, check_ordering=True))
    assert [field.name for field in changed(given, table, ADD).fields] == ["a", "b", "new"]


def test_new_name_that_means_two_columns_is_refused() -> None:
    """The table could not be loaded any more: a name in it would mean two columns."""
    table = of(NestedField(1, "a", StructType(NestedField(2, "b", LongType()))))
    given = spark.StructType([*frame(a=frame(b=LONG)), spark.StructField("a.b", LONG)])

    assert "a.b" in refusal(given, table, ADD)


def test_defaults_are_kept() -> None:
    """Rows without a value would change theirs when somebody adds a column."""
    kept = NestedField(1, "a", LongType(), required=True, doc="kept", initial_default=5, write_default=6)

    schema = changed(spark.StructType([*not_null("a", LONG), *frame(new=LONG)]), of(kept), ADD)

    assert schema.fields[0] == kept
    assert (schema.fields[0].initial_default, schema.fields[0].write_default) == (5, 6)


def test_request_asks_for_nothing_if_nothing_changes() -> None:
    """Every write would commit a schema."""
    metadata = metadata_of(schemas=[of(NestedField(1, "id", LongType()))])

    assert propose_request(frame(id=LONG), metadata, FULL, table_name="db.t") is None
    assert propose_request(frame(id=LONG, new=LONG), metadata, FULL, table_name="db.t") is not None
