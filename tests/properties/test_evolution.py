"""Any table, any next DataFrame: the schema that takes both keeps every old field, and every row comes back."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import types as spark
from support.checks.invariants import check_sound
from support.tables.metadata import metadata_of
from support.tables.sink import Sink, embedded_options
from support.tables.strategies import EVERYTHING, ROW, Frame, struct_types, values

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.alter import alter_table
from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table.compatibility import can_still_read, children
from iceberg_ds.table.schema_evolution import EvolutionPolicy, metadata_with, propose_request, propose_schema
from iceberg_ds.table.spark_types import iceberg_schema

pytestmark = pytest.mark.usefixtures("waits")
FULL = EvolutionPolicy(mode="full")
POLICIES = [
    EvolutionPolicy(mode="strict"),
    EvolutionPolicy(mode="add-columns"),
    FULL,
    EvolutionPolicy(mode="full", is_nullability_known=False),
    EvolutionPolicy(mode="full", drop_missing_columns=True),
    EvolutionPolicy(mode="full", replace_types=True),
    EvolutionPolicy(mode="full", replace_types=True, drop_missing_columns=True),
]
_WHOLE_NUMBERS: list[spark.DataType] = [spark.ShortType(), spark.IntegerType(), spark.LongType()]
_SUCCESSORS: dict[type[spark.DataType], list[spark.DataType]] = {
    **{type(number): _WHOLE_NUMBERS for number in (spark.ByteType(), *_WHOLE_NUMBERS)},
    spark.FloatType: [spark.FloatType(), spark.DoubleType()],
}
_numbers = itertools.count()


def successors(schema: spark.StructType, *, is_nested: bool = False) -> st.SearchStrategy[spark.StructType]:
    """Return any struct that rows of `schema` can evolve into: some fields are gone, wider, nullable, new or moved."""
    added = struct_types(EVERYTHING, depth=1 + is_nested).map(
        lambda drawn: [field for field in drawn if field.name.lower() not in {*map(str.lower, schema.names)}]
    )
    kept = st.tuples(*(st.one_of(_successor(field), _successor(field), st.none()) for field in schema))
    return (
        st.tuples(kept, st.one_of(st.just([]), added))
        .map(lambda parts: [field for field in parts[0] if field is not None] + parts[1])
        .filter(bool)
        .flatmap(st.permutations)
        .map(lambda fields: spark.StructType(list(fields)))
    )


def _successor(field: spark.StructField) -> st.SearchStrategy[spark.StructField]:
    types = _successor_type(field.dataType)
    return st.builds(spark.StructField, st.just(field.name), types, st.just(True) | st.just(field.nullable))  # noqa: FBT003


def _successor_type(data_type: spark.DataType) -> st.SearchStrategy[spark.DataType]:
    match data_type:
        case spark.ByteType() | spark.ShortType() | spark.IntegerType() | spark.LongType() | spark.FloatType():
            return st.sampled_from(_SUCCESSORS[type(data_type)])
        case spark.DecimalType():
            scale = data_type.scale
            return st.integers(max(scale, 1), 38).map(lambda precision: spark.DecimalType(precision, scale))
        case spark.StructType():
            return successors(data_type, is_nested=True)
        case spark.ArrayType():
            return st.builds(spark.ArrayType, _successor_type(data_type.elementType), st.just(True))  # noqa: FBT003
        case spark.MapType():
            value = _successor_type(data_type.valueType)
            return st.builds(spark.MapType, st.just(data_type.keyType), value, st.just(True))  # noqa: FBT003
    return st.just(data_type)


@dataclass(frozen=True)
class Evolution:
    """A table's first rows, and rows of a DataFrame that it evolves for."""

    before: Frame
    after: Frame


def readable(data_type: spark.DataType, depth: int = 0) -> Any:
    """Return the type with nullable fields in inner structs: PyIceberg 0.12 cannot read a null one otherwise."""
    match data_type:
        case spark.StructType():
            fields = [(field, readable(field.dataType, depth + 1)) for field in data_type]
            return spark.StructType(
                [spark.StructField(field.name, inner, depth > 0 or field.nullable) for field, inner in fields]
            )
        case spark.ArrayType():
            return spark.ArrayType(readable(data_type.elementType, depth + 1), data_type.containsNull)
        case spark.MapType():
            value = readable(data_type.valueType, depth + 1)
            return spark.MapType(data_type.keyType, value, data_type.valueContainsNull)
    return data_type


@st.composite
def evolutions(draw: st.DrawFn) -> Evolution:
    """Return any two DataFrames of which the second one's schema is a successor of the first one's."""
    columns = readable(draw(struct_types(EVERYTHING)))
    return Evolution(draw(_frame(columns, 0)), draw(_frame(readable(draw(successors(columns))), 100)))


@st.composite
def _frame(draw: st.DrawFn, columns: spark.StructType, first: int) -> Frame:
    """Return one to four rows of these columns, numbered from `first`."""
    data = draw(st.lists(values(columns, EVERYTHING, nullable=False), min_size=1, max_size=4))
    schema = spark.StructType([spark.StructField(ROW, spark.LongType(), nullable=False), *columns])
    return Frame(schema, [{ROW: first + number, **drawn} for number, drawn in enumerate(data)])


def fields_of(schema: Schema) -> dict[int, NestedField]:
    """Return all fields at any depth by id."""
    return {field_id: schema.find_field(field_id) for field_id in schema.field_ids}


def check_kept(before: Schema, after: Schema, policy: EvolutionPolicy) -> None:
    """Assert that what is left of the old fields is what it was, in the order that it had, and nothing else is old."""
    old, new = fields_of(before), fields_of(after)
    for field_id in old.keys() & new.keys():
        assert (new[field_id].name, new[field_id].doc) == (old[field_id].name, old[field_id].doc)
        assert old[field_id].required or new[field_id].optional
        left = [child.field_id for child in children(new[field_id].field_type)]
        assert [held.field_id for held in children(old[field_id].field_type) if held.field_id in new] == [
            held for held in left if held in old
        ]
    assert all(field_id > before.highest_field_id for field_id in new.keys() - old.keys())
    assert all(field.optional for field in after.fields if field.field_id not in old)
    if not policy.drop_missing_columns and not policy.replace_types:
        assert old.keys() <= new.keys()


@given(
    table=struct_types(EVERYTHING),
    dataframe=struct_types(EVERYTHING),
    policy=st.builds(replace, st.sampled_from(POLICIES), case_sensitive=st.sampled_from([None, True, False])),
)
def test_any_proposal_keeps_old_rows_readable_and_is_the_last_one(
    table: spark.StructType, dataframe: spark.StructType, policy: EvolutionPolicy
) -> None:
    """A table could not be read any more, or would change with every write."""
    metadata = metadata_of(schemas=[iceberg_schema(table)])
    try:
        schema = propose_schema(dataframe, metadata, policy, table_name="db.t")
    except SchemaMismatchError:
        return
    if schema is None:
        return

    after = metadata_with(metadata, schema, table_name="db.t")
    assert policy.mode != "strict"
    assert can_still_read(metadata.schema(), schema) == []
    check_kept(metadata.schema(), schema, policy)
    assert propose_schema(dataframe, after, policy, table_name="db.t") is None


@given(before=struct_types(EVERYTHING), data=st.data())
def test_dataframe_that_only_evolves_is_taken_in_one_step_or_in_several(
    before: spark.StructType, data: st.DataObject
) -> None:
    """A stream would stop at a change that keeps all rows readable, or two streams take turns in changing a table."""
    metadata = metadata_of(schemas=[iceberg_schema(before)])
    first, second = data.draw(successors(before)), data.draw(successors(before))
    taken = []

    for dataframe in (first, before, second, first):
        try:
            schema = propose_schema(dataframe, metadata, FULL, table_name="db.t")
        except SchemaMismatchError:
            assert dataframe is second  # what the first has added, it may have with another type
            continue
        taken.append(dataframe)
        if schema is not None:
            check_kept(metadata.schema(), schema, FULL)
            metadata = metadata_with(metadata, schema, table_name="db.t")

    assert [propose_schema(dataframe, metadata, FULL, table_name="db.t") for dataframe in taken] == [None] * len(taken)


@pytest.fixture(scope="module")
def any_sink(tmp_path_factory: pytest.TempPathFactory) -> Sink:
    """Return a sink into one catalog for all examples; each makes its own table."""
    options = embedded_options(tmp_path_factory.mktemp("evolution") / "warehouse")
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def projected(value: Any, given: spark.DataType | None, target: spark.DataType) -> Any:
    """Return a value as the table reads it: null where it lacks a field, and no null lists, which PyIceberg empties."""
    match target:
        case spark.StructType():
            if value is None or not isinstance(given, spark.StructType):
                return None
            held = {field.name: field.dataType for field in given}
            return tuple(
                projected(value[field.name] if field.name in held else None, held.get(field.name), field.dataType)
                for field in target
            )
        case spark.ArrayType():
            inner = given.elementType if isinstance(given, spark.ArrayType) else None
            return tuple(projected(item, inner, target.elementType) for item in value or [])
        case spark.MapType():
            inner = given.valueType if isinstance(given, spark.MapType) else None
            return tuple((key, projected(item, inner, target.valueType)) for key, item in value or [])
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def shape_of(schema: Schema) -> spark.DataType:
    """Return the structs, lists and maps of `schema` as Spark's types; all flat ones are void."""

    def of(field: NestedField) -> spark.DataType:
        held = children(field.field_type)
        match str(field.field_type).partition("<")[0]:
            case "struct":
                return spark.StructType([spark.StructField(child.name, of(child)) for child in held])
            case "list":
                return spark.ArrayType(of(held[0]))
            case "map":
                return spark.MapType(spark.StringType(), of(held[1]))
        return spark.NullType()

    return spark.StructType([spark.StructField(field.name, of(field)) for field in schema.fields])


@given(evolution=evolutions())
def test_rows_of_before_and_after_come_back_with_nulls_for_what_they_lack(any_sink: Sink, evolution: Evolution) -> None:
    """Rows would be lost, or stand in another column, once a table has changed."""
    identifier = ("db", f"t{next(_numbers)}")
    own = Sink(catalog=any_sink.catalog, options=replace(any_sink.options, table=identifier))
    own.commit(own.write(evolution.before.rows, schema=evolution.before.schema))
    alter_table(
        own.catalog,
        identifier,
        lambda metadata: propose_request(evolution.after.schema, metadata, FULL, table_name="t"),
    )
    own.commit(
        own.write(
            evolution.after.rows,
            schema=evolution.after.schema,
            plan=own.plan(evolution.after.schema, schema_evolution="full"),
        )
    )

    table = own.table()
    shape = shape_of(table.schema())
    expected = [
        projected(row, frame.schema, shape) for frame in (evolution.before, evolution.after) for row in frame.rows
    ]
    read = [projected(row, shape, shape) for row in table.scan().to_arrow().to_pylist()]
    assert table.schema().fields[0].name == ROW
    assert sorted(read, key=lambda row: row[0]) == expected
    check_sound(table)
