"""apache/iceberg, Spark and core: the suites of columns that come, go and change, and of tables made by a write."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from support.peer.cases import DIFFERS, ICEBERG
from support.peer.tables import SIMPLE, PeerTable, array, columns, mapping, required, simple

from iceberg_ds.errors import OptionError, SchemaMismatchError

AB = simple((1, "a"), (2, "b"))
WIDER = columns(id="integer", data="string", new_col="float")
CD = [{"id": 3, "data": "c", "new_col": 12.0}, {"id": 4, "data": "d", "new_col": None}]
AB_AND_CD = [*({**row, "new_col": None} for row in AB), *CD]

COLUMNS = "columns.md"
SETTINGS = "coming-from/iceberg-runtime.md#settings-of-the-session"
RUNTIME = "coming-from/iceberg-runtime.md"


def type_of(table: PeerTable, column: str) -> IcebergType:
    """Return the type of a column or field."""
    return table.load().schema().find_type(column)


@ICEBERG.case("TestDataFrameWriterV2.testMergeSchemaFailsWithoutWriterOption")
def test_new_column_is_refused_if_the_write_does_not_ask_for_it(table: PeerTable) -> None:
    """A column that is written by mistake would stay in the table for ever, or its values be dropped."""
    table.append(AB)

    with pytest.raises(SchemaMismatchError, match=r"'new_col' float is not in the table"):
        table.append(CD, schema=WIDER)

    assert table.rows() == AB


@ICEBERG.case(
    "TestDataFrameWriterV2.testMergeSchemaWithoutAcceptAnySchema",
    verdict=DIFFERS("`merge-schema` needs no table property `write.spark.accept-any-schema`", see=RUNTIME),
)
@ICEBERG.case(
    "TestDataFrameWriterV2.testMergeSchemaSparkProperty", "TestDataFrameWriterV2.testMergeSchemaIcebergProperty"
)
@pytest.mark.parametrize("option", ["mergeSchema", "merge-schema"])
def test_new_column_is_added_if_the_write_asks_for_it(table: PeerTable, option: str) -> None:
    """A table could not grow with its source."""
    table.append(AB)

    table.append(CD, schema=WIDER, options={option: "true"})

    assert table.rows() == AB_AND_CD
    assert isinstance(type_of(table, "new_col"), FloatType)


@ICEBERG.case("TestDataFrameWriterV2.testWriteWithCaseSensitiveOption")
def test_case_of_names_counts_if_asked(table: PeerTable) -> None:
    """A column in another case would be added beside its twin, or be taken for it."""
    table.append(AB)
    shouted = columns(ID="integer", DaTa="string")
    data = [{"ID": 3, "DaTa": "c"}]

    table.append(data, schema=shouted, merge_schema="true")
    before = table.load().schema().column_names
    table.append(data, schema=shouted, merge_schema="true", case_sensitive="true")

    assert before == ["id", "data"]
    assert table.load().schema().column_names == ["id", "data", "ID", "DaTa"]


@ICEBERG.case(
    "TestDataFrameWriterV2.testMergeSchemaSparkConfiguration",
    verdict=DIFFERS("settings of the session are not seen while a write is planned: give the option", see=SETTINGS),
)
def test_setting_of_the_session_does_not_change_the_schema(table: PeerTable) -> None:
    """A column would be added because of a setting of another job in the session."""
    table.append(AB)

    with pytest.raises(OptionError, match=r"spark.sql.iceberg.merge-schema"):
        table.append(CD, schema=WIDER, options={"spark.sql.iceberg.merge-schema": "true"})


@ICEBERG.case(
    "TestDataFrameWriterV2.testMergeSchemaIgnoreCastingLongToInt",
    "TestDataFrameWriterV2.testMergeSchemaIgnoreCastingDoubleToFloat",
    "TestDataFrameWriterV2.testMergeSchemaIgnoreCastingDecimalToDecimalWithNarrowerPrecision",
    "TestSchemaUnionByFieldName.testIgnoreTypePromoteLongToInt",
    "TestSchemaUnionByFieldName.testIgnoreTypePromoteDoubleToFloat",
    "TestSchemaUnionByFieldName.testIgnoreTypePromoteDecimalToNarrowerPrecision",
)
@pytest.mark.parametrize(
    ("wide", "narrow", "value"),
    [("long", "integer", 7), ("double", "float", 0.5), ("decimal(6,2)", "decimal(4,2)", Decimal("12.34"))],
)
@pytest.mark.parametrize("evolution", ["add-columns", "full"])
def test_narrower_type_leaves_the_column_as_it_is(
    table: PeerTable, wide: str, narrow: str, value: Any, evolution: str
) -> None:
    """Old values would be cut to the new type, or the job be refused."""
    table.append([{"id": value}], schema=columns(id=wide))
    before = type_of(table, "id")

    table.append([{"id": value}], schema=columns(id=narrow), schema_evolution=evolution)

    assert type_of(table, "id") == before
    assert table.rows() == [{"id": value}] * 2


@ICEBERG.case(
    "TestSchemaUnionByFieldName.testTypePromoteIntegerToLong",
    "TestSchemaUnionByFieldName.testTypePromoteFloatToDouble",
    "TestSchemaUnionByFieldName.testTypePromoteDecimalToFixedScaleWithWiderPrecision",
)
@pytest.mark.parametrize(
    ("narrow", "wide", "old", "new"),
    [
        ("integer", "long", 7, 1 << 40),
        ("float", "double", 0.5, 1e300),
        ("decimal(4,2)", "decimal(22,2)", Decimal("12.34"), Decimal("12345678901234567890.12")),
    ],
)
def test_wider_type_widens_the_column(table: PeerTable, narrow: str, wide: str, old: Any, new: Any) -> None:
    """Values would be cut, or the table could never take larger ones."""
    table.append([{"id": old}], schema=columns(id=narrow))

    with pytest.raises(SchemaMismatchError, match=r"'id'"):
        table.append([{"id": new}], schema=columns(id=wide), merge_schema="true")
    table.append([{"id": new}], schema=columns(id=wide), schema_evolution="full")

    assert table.rows() == [{"id": old}, {"id": new}]


@ICEBERG.case("TestDataFrameWriterV2Coercion.testByteAndShortCoercion")
@pytest.mark.parametrize("kind", ["byte", "short"])
def test_bytes_and_shorts_become_integers(table: PeerTable, kind: str) -> None:
    """Small integers could not be written at all."""
    table.overwrite(AB, schema=columns(id=kind, data="string"), write_format="parquet")

    assert table.rows() == AB
    assert isinstance(type_of(table, "id"), IntegerType)


ADDED = {
    "TestSchemaUnionByFieldName.testAddTopLevelPrimitives": ("double", 0.5),
    "TestSchemaUnionByFieldName.testAddTopLevelListOfPrimitives": (array("long"), [1, None]),
    "TestSchemaUnionByFieldName.testAddTopLevelMapOfPrimitives": (mapping("string", "long"), [("a", 1)]),
    "TestSchemaUnionByFieldName.testAddTopLevelStructOfPrimitives": (
        columns(x="long", y="string"),
        {"x": 1, "y": None},
    ),
    "TestSchemaUnionByFieldName.addNewTopLevelStruct": (
        columns(m=mapping("string", columns(z=array("double")))),
        {"m": [("k", {"z": [1.0, None]})]},
    ),
}


@ICEBERG.case(*ADDED)
@pytest.mark.parametrize("case", ADDED)
def test_new_columns_of_any_type_are_added(table: PeerTable, case: str) -> None:
    """A source could not bring lists, maps or structs."""
    of_type, value = ADDED[case]
    table.append([{"id": 1}], schema=columns(id="long"))

    table.append([{"id": 2, "c": value}], schema=columns(id="long", c=of_type), merge_schema="true")

    assert table.rows() == [{"id": 1, "c": None}, {"id": 2, "c": value}]
    assert not table.load().schema().find_field("c").required


# A struct `s` in the table and in the DataFrame, and the value that comes with the second.
NESTED: dict[str, tuple[Any, Any, Any]] = {
    "testAddNestedPrimitive": (columns(x="long"), columns(x="long", y="long"), {"x": 1, "y": 2}),
    "testAddNestedPrimitives": (
        columns(x="long"),
        columns(x="long", y="double", z="string"),
        {"x": 1, "y": 0.5, "z": "z"},
    ),
    "testAddNestedLists": (columns(x="long"), columns(x="long", y=array(array("long"))), {"x": 1, "y": [[1], []]}),
    "testAddNestedMaps": (
        columns(x="long"),
        columns(x="long", y=mapping("string", mapping("string", "long"))),
        {"x": 1, "y": [("a", [("b", 1)])]},
    ),
    "testAddNestedStruct": (
        columns(x="long"),
        columns(x="long", y=columns(z=columns(w="string"))),
        {"x": 1, "y": {"z": {"w": "deep"}}},
    ),
    "testAppendNestedStruct": (
        columns(x=columns(y=columns(z="long"))),
        columns(x=columns(y=columns(z="long", more="string"))),
        {"x": {"y": {"z": 1, "more": "m"}}},
    ),
    "testAppendNestedLists": (
        columns(x=array(columns(y="long"))),
        columns(x=array(columns(y="long", z="long"))),
        {"x": [{"y": 1, "z": 2}]},
    ),
    "testAddPrimitiveToNestedStruct": (
        columns(x=mapping("string", columns(y="long"))),
        columns(x=mapping("string", columns(y="long", z="long"))),
        {"x": [("k", {"y": 1, "z": 2})]},
    ),
}


@ICEBERG.case(
    *(f"TestSchemaUnionByFieldName.{name}" for name in NESTED),
    verdict=DIFFERS(
        "fields of structs are added with `schema-evolution=full`; `merge-schema` adds columns alone", see=COLUMNS
    ),
)
@pytest.mark.parametrize("case", NESTED)
def test_new_fields_of_structs_are_added_at_any_depth(table: PeerTable, case: str) -> None:
    """Values of new fields would be dropped, or land in another field."""
    before, after, value = NESTED[case]
    table.append([{"id": 1, "s": None}], schema=columns(id="long", s=before))

    with pytest.raises(SchemaMismatchError, match=r"'s[.']"):
        table.append([{"id": 2, "s": value}], schema=columns(id="long", s=after), merge_schema="true")
    table.append([{"id": 2, "s": value}], schema=columns(id="long", s=after), schema_evolution="full")

    assert table.rows() == [{"id": 1, "s": None}, {"id": 2, "s": value}]


@ICEBERG.case(
    "TestSchemaUnionByFieldName.testDetectInvalidTopLevelList",
    "TestSchemaUnionByFieldName.testDetectInvalidTopLevelMapValue",
    "TestSchemaUnionByFieldName.testDetectInvalidTopLevelMapKey",
    "TestSchemaUnionByFieldName.testReplaceListWithPrimitive",
)
@pytest.mark.parametrize(
    ("before", "after", "value"),
    [
        (array("string"), array("long"), [1]),
        (mapping("string", "string"), mapping("string", "long"), [("a", 1)]),
        (mapping("string", "string"), mapping("long", "string"), [(1, "a")]),
        (array("string"), "string", "a"),
    ],
)
@pytest.mark.parametrize("evolution", ["strict", "add-columns", "full"])
def test_types_that_do_not_fit_are_refused(
    table: PeerTable, before: Any, after: Any, value: Any, evolution: str
) -> None:
    """Values would be cast in silence, or old rows could not be read any more."""
    table.append([{"c": None}], schema=columns(c=before))

    with pytest.raises(SchemaMismatchError, match=r"'c[.']"):
        table.append([{"c": value}], schema=columns(c=after), schema_evolution=evolution)

    assert table.rows() == [{"c": None}]


@ICEBERG.case("TestSchemaUnionByFieldName.testMirroredSchemas")
def test_same_columns_change_nothing(table: PeerTable) -> None:
    """Each write would make a new schema, and metadata would grow without end."""
    schema = columns(a="long", b=columns(c=array("string")), d=mapping("string", "double"))
    table.append([{"a": 1, "b": None, "d": None}], schema=schema)

    table.append([{"a": 2, "b": {"c": ["x"]}, "d": None}], schema=schema, schema_evolution="full")

    assert len(table.load().metadata.schemas) == 1


# What the types of `AvroDataTestBase` are in Spark, with values of each.
SHAPES: dict[str, tuple[Any, list[Any]]] = {
    "testSimpleStruct": (columns(a="long", b="string"), [{"a": 1, "b": "x"}, None]),
    "testStructWithOptionalFields": (columns(a="long", b="double"), [{"a": None, "b": None}]),
    "testNestedStruct": (columns(a=columns(b=columns(c="date"))), [{"a": {"b": {"c": date(1, 1, 1)}}}, {"a": None}]),
    "testArray": (array("string"), [["a", None], [], None]),
    "testArrayOfStructs": (array(columns(x="integer")), [[{"x": 1}, None, {"x": None}]]),
    "testMap": (mapping("string", "string"), [[("a", "b"), ("c", None)], []]),
    "testNumericMapKey": (mapping("long", "string"), [[(1, "b")], None]),
    "testComplexMapKey": (mapping(columns(i="long", s="string"), "string"), [[({"i": 1, "s": "k"}, "v")]]),
    "testMapOfStructs": (mapping("string", columns(x="double")), [[("k", {"x": 0.5}), ("l", None)]]),
    "testMixedTypes": (
        columns(l=array(mapping("string", columns(z=array("decimal(9,2)"))))),
        [{"l": [[("a", {"z": [Decimal("1.50"), None]})], []]}],
    ),
}


@ICEBERG.case(*(f"TestParquetDataFrameWrite.{name}" for name in SHAPES))
@pytest.mark.parametrize("case", SHAPES)
def test_nested_values_come_back_as_they_were(table: PeerTable, case: str) -> None:
    """Nested values would be lost or changed on their way."""
    of_type, values = SHAPES[case]
    data = [{"id": number, "c": value} for number, value in enumerate(values)]

    table.append(data, schema=columns(id="long", c=of_type))

    assert table.rows() == data


@ICEBERG.case("TestParquetDataFrameWrite.testStructWithRequiredFields")
def test_required_fields_of_a_struct(table: PeerTable) -> None:
    """A table with required fields could not be written from a DataFrame whose fields are nullable."""
    point = StructType(NestedField(3, "x", LongType(), required=True), NestedField(4, "y", LongType(), required=True))
    table.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "p", point)))
    data = [{"id": 1, "p": {"x": 1, "y": 2}}, {"id": 2, "p": None}]

    table.append(data, schema=columns(id="long", p=columns(x="long", y="long")))

    assert table.rows() == data


@ICEBERG.case("TestParquetDataFrameWrite.testMissingRequiredWithoutDefault")
def test_missing_required_column_is_refused(table: PeerTable) -> None:
    """Null would be in a required column, and readers would fail."""
    table.create(
        Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "missing", StringType(), required=True))
    )

    with pytest.raises(SchemaMismatchError, match=r"'missing'"):
        table.append([{"id": 1}], schema=columns(id="long"))


@ICEBERG.case("TestParquetDataFrameWrite.testUnknownListType", "TestParquetDataFrameWrite.testUnknownMapType")
@pytest.mark.parametrize("of_type", [array("void"), mapping("string", "void")])
def test_values_without_a_type_within_lists_and_maps(table: PeerTable, of_type: Any) -> None:
    """A column would be created that no reader understands."""
    with pytest.raises(SchemaMismatchError, match=r"'c[.']"):
        table.append([{"c": None}], schema=columns(c=of_type))

    assert not table.exists()


@ICEBERG.case("TestParquetDataFrameWrite.testAlternateLocation")
def test_data_goes_where_the_table_says(table: PeerTable) -> None:
    """Files would be in a place that the user does not look after."""
    place = table.warehouse.parent / "elsewhere"

    table.append(AB, options={"table-property.write.data.path": f"file://{place}"})

    assert table.rows() == AB
    assert all(file.file_path.startswith(f"file://{place}/") for file in table.files())


# How values of a table's types are handed over by Spark, which has no such types.
PRIMITIVES: dict[str, tuple[IcebergType, str, Any]] = {
    "uuid": (UUIDType(), "string", "0b9f2c1e-1111-4222-8333-444455556666"),
    "fixed": (FixedType(7), "binary", b"\x00\x01\x02\x03\x04\x05\x06"),
    "binary": (BinaryType(), "binary", b"\xff\x00"),
    "decimal": (DecimalType(38, 10), "decimal(38,10)", Decimal("-1.0000000001")),
    "timestamptz": (TimestamptzType(), "timestamp", datetime(1600, 1, 1, tzinfo=timezone.utc)),
    "timestamp": (TimestampType(), "timestamp_ntz", datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    "float": (FloatType(), "float", -math.inf),
    "double": (DoubleType(), "double", 5e-324),
}


@ICEBERG.case("TestParquetDataFrameWrite.testTypeSchema")
@pytest.mark.parametrize("kind", PRIMITIVES)
def test_primitive_values_come_back_as_they_were(table: PeerTable, kind: str) -> None:
    """Values at the edge of their type would be changed."""
    of_type, spark_type, value = PRIMITIVES[kind]
    table.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "c", of_type)))

    table.append([{"id": 1, "c": value}, {"id": 2, "c": None}], schema=columns(id="long", c=spark_type))

    first, second = table.rows()
    assert str(first["c"]) == str(value)
    assert second["c"] is None


@ICEBERG.case("TestCreateTableAsSelect.testUnpartitionedCTAS", "TestCreateTableAsSelect.testDataFrameV2Create")
def test_write_creates_a_table_with_optional_columns(table: PeerTable) -> None:
    """The next write, which may have nulls, would be refused."""
    table.append(AB, schema=required(SIMPLE))

    assert table.rows() == AB
    assert table.load().schema() == Schema(NestedField(1, "id", IntegerType()), NestedField(2, "data", StringType()))
    assert table.load().spec().is_unpartitioned()


@ICEBERG.case(
    "TestCreateTableAsSelect.testPartitionedCTAS", "TestCreateTableAsSelect.testCTASWriteDistributionModeRespected"
)
@pytest.mark.parametrize(("spec", "text"), [("id", "identity"), ("bucket(2, id)", "bucket[2]")])
def test_write_creates_a_partitioned_table(table: PeerTable, spec: str, text: str) -> None:
    """The table would have other partitions than asked for, for ever."""
    table.append(AB, partition_by=spec)

    (partition_field,) = table.load().spec().fields
    assert (str(partition_field.transform), partition_field.source_id) == (text, 1)
    assert table.rows() == AB


@ICEBERG.case(
    "TestCreateTableAsSelect.testRTAS",
    "TestCreateTableAsSelect.testDataFrameV2Replace",
    "TestCreateTableAsSelect.testDataFrameV2CreateOrReplace",
    "TestCreateTableAsSelect.testCreateRTAS",
    verdict=DIFFERS(
        'all rows and columns are replaced in one snapshot by `mode("overwrite")` with `schema-evolution=full`; '
        "the table, its history and its properties stay",
        see=COLUMNS,
    ),
)
def test_rows_and_columns_are_replaced_at_once(table: PeerTable) -> None:
    """Readers would see the old rows with the new columns, or history would be gone."""
    table.append(AB, options={"table-property.prop1": "val1"})
    uuid = table.load().metadata.table_uuid
    data = [{"id": 1, "data": 1.5, "part": "odd"}]

    table.overwrite(data, schema=columns(id="integer", data="double", part="string"), schema_evolution="full")

    assert table.rows() == data
    assert table.load().metadata.table_uuid == uuid
    assert table.load().properties["prop1"] == "val1"
    assert len(table.snapshots()) == 2


@ICEBERG.case("TestCreateTableAsSelect.testCreateRTASWithPartitionSpecChanging")
def test_partitions_change_as_all_rows_are_replaced(table: PeerTable) -> None:
    """New rows would be filed by the old partitions."""
    table.append(AB, partition_by="data")

    table.overwrite(AB, partition_by="bucket(4, id)", evolve_partitioning="true")

    assert table.rows() == AB
    assert {file.spec_id for file in table.files()} == {table.load().spec().spec_id}
    assert [str(one.transform) for one in table.load().spec().fields] == ["bucket[4]"]


MOMENT, LOCAL = datetime(2021, 1, 1, 12, tzinfo=timezone.utc), datetime(2021, 1, 1, 12)  # noqa: DTZ001


@ICEBERG.case(
    "TestTimestampWithoutZone.testAppendTimestampWithoutZone",
    "TestTimestampWithoutZone.testAppendTimestampWithZone",
    "TestTimestampWithoutZone.testCreateAsSelectWithTimestampWithoutZone",
    "TestTimestampWithoutZone.testCreateNewTableShouldHaveTimestampWithZoneIcebergType",
    "TestTimestampWithoutZone.testCreateNewTableShouldHaveTimestampWithoutZoneIcebergType",
    "TestTimestampWithoutZone.testUnpartitionedTimestampWithoutZone",
    "TestTimestampWithoutZone.testUnpartitionedTimestampWithoutZoneAppend",
)
def test_timestamps_with_and_without_a_zone(table: PeerTable) -> None:
    """Times would be moved by the zone of the session."""
    both = columns(id="long", tz="timestamp", ntz="timestamp_ntz")
    data = [{"id": 1, "tz": MOMENT, "ntz": LOCAL}]

    table.append(data, schema=both)
    table.append([{"id": 2, "tz": MOMENT, "ntz": LOCAL}], schema=both)

    assert isinstance(type_of(table, "tz"), TimestamptzType)
    assert isinstance(type_of(table, "ntz"), TimestampType)
    assert table.rows() == [*data, {"id": 2, "tz": MOMENT, "ntz": LOCAL}]
