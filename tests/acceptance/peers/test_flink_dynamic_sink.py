"""apache/iceberg, Flink: the suites of its dynamic sink, as far as they are of one table at a time."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyiceberg import types as iceberg
from pyiceberg.exceptions import CommitFailedException, ServiceUnavailableError
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql.types import StructType
from support.catalogs.faulty_catalog import FaultyCatalog, When
from support.peer.cases import DIFFERS, Peer
from support.peer.tables import PeerTable, array, columns, mapping, required
from support.peer.writes import check, put, tasks
from support.tables.sink import IDENTIFIER, Sink

from iceberg_ds.errors import SchemaMismatchError

DYNAMIC = Peer(name="apache/iceberg", suites="the dynamic sink of Flink")

ID = columns(id="integer")
PAIR = columns(id="integer", data="string")
FULL = {"schema_evolution": "full"}
PRIMITIVES: dict[str, str] = {
    "text": "string",
    "flag": "boolean",
    "i": "integer",
    "l": "long",
    "f": "float",
    "d": "double",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "raw": "binary",
    "price": "decimal(10,2)",
}


def types(table: PeerTable) -> dict[str, str]:
    """Return the type of each column, optional ones with a question mark."""
    return {field.name: f"{field.field_type}{'' if field.required else '?'}" for field in table.load().schema().fields}


def nulls(schema: StructType) -> tuple[None, ...]:
    """Return a row without any value."""
    return (None,) * len(schema)


@DYNAMIC.case(
    "TestDynamicIcebergSink.testWrite",
    "TestTableUpdater.testTableCreation",
    "TestTableUpdater.testNamespaceAndTableCreation",
)
def test_table_and_namespace_come_with_the_first_rows(table: PeerTable) -> None:
    """A table that is not there would stop the stream."""
    other = table.named("new.levels.t")
    put(other, PAIR, [(1, "a")], of_epoch=0)

    check(other, (1, "a"))


@DYNAMIC.case("TestTableUpdater.testTableAlreadyExists", "TestTableUpdater.testTableCreationWithExistingNamespace")
def test_table_that_somebody_makes_meanwhile(table: PeerTable) -> None:
    """The second of two first writers would replace the table of the other."""
    put(table.named("db.other"), PAIR, [(0, "other")])
    first, second = tasks(table, PAIR, [(1, "a")]), tasks(table, PAIR, [(2, "b")])
    first.commit()
    second.commit()

    check(table, (1, "a"), (2, "b"))


@DYNAMIC.case("TestDynamicIcebergSink.testWritePartitioned", "TestTableUpdater.testSpecCreation")
def test_new_table_is_partitioned_as_asked(table: PeerTable) -> None:
    """The table would stay without partitions for ever."""
    put(table, PAIR, [(1, "a"), (2, "b")], of_epoch=0, partition_by="bucket(10, id)")

    check(table, (1, "a"), (2, "b"))
    assert [str(field.transform) for field in table.load().spec().fields] == ["bucket[10]"]


@DYNAMIC.case("TestDynamicIcebergSink.testWritePartitionedAdjustSchemaIdsInSpec")
def test_partitioning_by_a_column_whose_id_is_another(table: PeerTable) -> None:
    """The spec would name the id of another column."""
    fields = [NestedField(10, "data", iceberg.StringType()), NestedField(20, "id", iceberg.IntegerType())]
    table.create(Schema(*fields))
    put(table, PAIR, [(1, "a"), (2, "b")], partition_by="id", evolve_partitioning="true")

    check(table, ("a", 1), ("b", 2))
    assert sorted(file.partition[0] for file in table.files()) == [1, 2]


@DYNAMIC.case("TestDynamicIcebergSink.testPartitionSpecEvolution")
def test_partitioning_follows_the_stream(table: PeerTable) -> None:
    """Rows would be filed by the old spec, or older files be lost."""
    put(table, PAIR, [(1, "a")], of_epoch=0, partition_by="bucket(10, data)")
    put(table, PAIR, [(2, "b")], of_epoch=1, partition_by="bucket(5, data)", evolve_partitioning="true")
    put(table, PAIR, [(3, "c")], of_epoch=2, partition_by="", evolve_partitioning="true")

    check(table, (1, "a"), (2, "b"), (3, "c"))
    assert len({file.spec_id for file in table.files()}) == 3


@DYNAMIC.case(
    "TestDynamicIcebergSink.testSchemaEvolutionFieldOrderChanges",
    "TestEvolveSchemaVisitor.testChangeOrderTopLevelPrimitives",
)
def test_order_of_columns_changes(table: PeerTable) -> None:
    """Values would land in the wrong column."""
    put(table, PAIR, [(1, "a")], of_epoch=0)
    put(table, columns(data="string", id="integer"), [("b", 2)], of_epoch=1, **FULL)

    check(table, (1, "a"), (2, "b"))


@DYNAMIC.case("TestDynamicIcebergSink.testSchemaEvolutionAddField", "TestEvolveSchemaVisitor.testAddTopLevelPrimitives")
def test_new_columns_of_every_type(table: PeerTable) -> None:
    """A new column would stop the stream, or get another type."""
    put(table, ID, [(1,)], of_epoch=0)
    wider = columns(id="integer", **PRIMITIVES)
    put(table, wider, [(2, *nulls(columns(**PRIMITIVES)))], of_epoch=1, **FULL)

    check(table, (1, *nulls(columns(**PRIMITIVES))), (2, *nulls(columns(**PRIMITIVES))))
    assert all(of.endswith("?") for of in types(table).values())
    assert types(table)["price"] == "decimal(10, 2)?"


@DYNAMIC.case(
    "TestDynamicIcebergSink.testRowEvolutionNullMissingOptionalField",
    "TestEvolveSchemaVisitor.testPreserveUnusedColumns",
    "TestCompareSchemasVisitor.testNoRequiredChangeForNonMatchingField",
)
def test_optional_columns_that_are_missing(table: PeerTable) -> None:
    """A column that one epoch lacks would be dropped, or stop the stream."""
    put(table, PAIR, [(1, "a")], of_epoch=0)
    put(table, ID, [(2,)], of_epoch=1)

    check(table, (1, "a"), (2, None))


@DYNAMIC.case(
    "TestDynamicIcebergSink.testRowEvolutionMakeMissingRequiredFieldOptional",
    "TestEvolveSchemaVisitor.testMakeTopLevelPrimitivesOptional",
    "TestCompareSchemasVisitor.testRequiredChangeForNonMatchingField",
)
def test_required_columns_that_are_missing_become_optional(table: PeerTable) -> None:
    """A column that is no longer sent would stop the stream for ever."""
    put(table, required(PAIR), [(1, "a")], of_epoch=0, use_nullable_query_schema="false")
    with pytest.raises(SchemaMismatchError, match="data"):
        put(table, ID, [(2,)], of_epoch=1)
    put(table, ID, [(2,)], of_epoch=1, **FULL)

    check(table, (1, "a"), (2, None))
    assert types(table)["data"] == "string?"


@DYNAMIC.case(
    "TestCompareSchemasVisitor.testRequiredChangeForMatchingField",
    "TestEvolveSchemaVisitor.testCaseInsensitiveMakeFieldOptional",
)
def test_nullable_column_makes_the_tables_optional(table: PeerTable) -> None:
    """A null that the user allows would be refused for ever."""
    put(table, required(PAIR), [(1, "a")], use_nullable_query_schema="false")
    put(table, PAIR, [(2, None)], **FULL)

    check(table, (1, "a"), (2, None))


@DYNAMIC.case(
    "TestDynamicIcebergSink.testSchemaEvolutionNonBackwardsCompatible",
    "TestEvolveSchemaVisitor.testReplaceListWithPrimitive",
    "TestEvolveSchemaVisitor.testDetectInvalidTopLevelList",
    "TestEvolveSchemaVisitor.testDetectInvalidTopLevelMapValue",
    "TestEvolveSchemaVisitor.testDetectInvalidTopLevelMapKey",
    "TestCompareSchemasVisitor.testDifferentType",
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("integer", "string"),
        (array("string"), "string"),
        (array("string"), array("long")),
        (mapping("string", "string"), mapping("string", "long")),
        (mapping("string", "string"), mapping("long", "string")),
        (columns(x="integer"), "integer"),
        ("double", "long"),
    ],
)
def test_types_that_do_not_fit(table: PeerTable, before: Any, after: Any) -> None:
    """Values would be cast in silence, or old rows could not be read any more."""
    put(table, columns(id="integer", a=before), [(1, None)])
    with pytest.raises(SchemaMismatchError, match=r"\ba\b"):
        put(table, columns(id="integer", a=after), [(2, None)], **FULL)

    check(table, (1, None))


@DYNAMIC.case("TestDynamicIcebergSink.testOptInDropUnusedColumns", "TestEvolveSchemaVisitor.testDropUnusedColumns")
def test_unused_columns_are_dropped_if_asked(table: PeerTable) -> None:
    """Columns that nobody sends any more would stay, or be dropped without being asked."""
    wide = columns(a="string", b=columns(one="string", two="string"), c="integer")
    put(table, wide, [("x", {"one": "1", "two": "2"}, 3)])
    put(table, columns(a="string", b=columns(two="string")), [("y", {"two": "5"})], drop_missing_columns="true", **FULL)

    check(table, ("x", {"two": "2"}), ("y", {"two": "5"}))


@DYNAMIC.case("TestCompareSchemasVisitor.testDropUnusedColumnsWithRequiredField")
def test_required_columns_are_dropped_if_asked(table: PeerTable) -> None:
    """A required column that is gone would refuse every row."""
    put(table, required(PAIR), [(1, "a")], use_nullable_query_schema="false")
    put(table, required(ID), [(2,)], drop_missing_columns="true", **FULL)

    check(table, (1,), (2,))


@DYNAMIC.case(
    "TestDynamicIcebergSink.testCaseInsensitiveSchemaMatching", "TestEvolveSchemaVisitor.testCaseInsensitiveAddField"
)
def test_case_of_columns_does_not_count(table: PeerTable) -> None:
    """A column would be added a second time under another spelling."""
    put(table, PAIR, [(1, "a")])
    put(table, columns(ID="integer", Data="string", AGE="integer"), [(2, "b", 30)], case_sensitive="false", **FULL)

    check(table, (1, "a", None), (2, "b", 30))
    assert list(types(table)) == ["id", "data", "AGE"]


@DYNAMIC.case(
    "TestDynamicIcebergSink.testCaseSensitiveSchemaMatchingCreatesNewFields",
    "TestEvolveSchemaVisitor.testCaseSensitiveDoesNotMatch",
)
def test_case_of_columns_counts_if_asked(table: PeerTable) -> None:
    """Two columns that differ in case alone would be one."""
    put(table, PAIR, [(1, "a")])
    put(table, columns(id="integer", DATA="string"), [(2, "b")], case_sensitive="true", **FULL)

    check(table, (1, "a", None), (2, None, "b"))


@DYNAMIC.case(
    "TestEvolveSchemaVisitor.testCaseInsensitiveNestedStructField",
    "TestCompareSchemasVisitor.testCaseInsensitiveNestedStruct",
)
def test_case_of_nested_fields_does_not_count(table: PeerTable) -> None:
    """A field of a struct would be added a second time under another spelling."""
    put(table, columns(one=columns(first="string")), [({"first": "a"},)])
    after = columns(ONE=columns(FIRST="string", SECOND="integer"))
    put(table, after, [({"FIRST": "b", "SECOND": 2},)], case_sensitive="false", **FULL)

    check(table, ({"first": "a", "SECOND": None},), ({"first": "b", "SECOND": 2},))


@DYNAMIC.case(
    "TestEvolveSchemaVisitor.testTypePromoteIntegerToLong",
    "TestEvolveSchemaVisitor.testTypePromoteFloatToDouble",
    "TestEvolveSchemaVisitor.testTypePromoteDecimalToFixedScaleWithWiderPrecision",
)
@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("integer", "long", 1, 1 << 40),
        ("float", "double", 0.5, 0.1),
        ("decimal(20,1)", "decimal(22,1)", Decimal("1.5"), Decimal("123456789012345678901.5")),
    ],
)
def test_types_are_widened(table: PeerTable, before: str, after: str, old: Any, new: Any) -> None:
    """A wider value would stop the stream, or old values be read wrongly."""
    put(table, columns(a=before), [(old,)], of_epoch=0)
    put(table, columns(a=after), [(new,)], of_epoch=1, **FULL)

    check(table, (old,), (new,))


@DYNAMIC.case(
    "TestTableUpdater.testAddColumnWithDataConverterNarrowing",
    "TestEvolveSchemaVisitor.testAddColumnWithResidualNarrowingDoesNotFail",
)
def test_new_column_beside_a_narrower_one(table: PeerTable) -> None:
    """A column that fits as it is would hinder the new one."""
    put(table, columns(id="long"), [(1 << 40,)])
    put(table, columns(id="integer", age="integer"), [(2, 30)], **FULL)

    check(table, (1 << 40, None), (2, 30))


@DYNAMIC.case(
    "TestEvolveSchemaVisitor.testTypeNarrowDoubleToFloatIsLeftToConversion",
)
def test_floats_into_a_column_of_doubles(table: PeerTable) -> None:
    """The column would be narrowed, and lose digits."""
    put(table, columns(a="double"), [(0.1,)])
    put(table, columns(a="float"), [(0.5,)], **FULL)

    check(table, (0.1,), (0.5,))


@DYNAMIC.case(
    "TestTableUpdater.testAddColumnWithDateToTimestampConversion",
    "TestEvolveSchemaVisitor.testAddColumnWithResidualDateToTimestampDoesNotFail",
    verdict=DIFFERS("dates into a column of timestamps are refused: cast them", see="types.md"),
)
def test_dates_into_a_column_of_timestamps(table: PeerTable) -> None:
    """A day would become midnight of some time zone in silence."""
    put(table, columns(ts="timestamp_ntz"), [(None,)])
    with pytest.raises(SchemaMismatchError, match="ts"):
        put(table, columns(ts="date", age="integer"), [(None, 1)], **FULL)

    check(table, (None,))


@DYNAMIC.case(
    "TestEvolveSchemaVisitor.testAddTopLevelListOfPrimitives",
    "TestEvolveSchemaVisitor.testAddTopLevelMapOfPrimitives",
    "TestEvolveSchemaVisitor.testAddTopLevelStructOfPrimitives",
    "TestEvolveSchemaVisitor.addNewTopLevelStruct",
)
def test_new_nested_columns(table: PeerTable) -> None:
    """A new list, map or struct would stop the stream."""
    put(table, ID, [(1,)])
    inner = columns(d1=columns(d2="string"), list=array("double"))
    after = columns(id="integer", list=array("date"), map=mapping("string", "long"), struct=inner)
    put(table, after, [(2, [None], [("k", 5)], {"d1": {"d2": "x"}, "list": [0.5, None]})], **FULL)

    check(table, (1, None, None, None), (2, [None], [("k", 5)], {"d1": {"d2": "x"}, "list": [0.5, None]}))


@DYNAMIC.case(
    "TestEvolveSchemaVisitor.testAddNestedPrimitive",
    "TestEvolveSchemaVisitor.testAddNestedPrimitives",
    "TestEvolveSchemaVisitor.testAddNestedStruct",
    "TestEvolveSchemaVisitor.testAppendNestedStruct",
    "TestCompareSchemasVisitor.testStructChanged",
)
def test_new_fields_within_structs(table: PeerTable) -> None:
    """A field of a struct would be dropped from rows, or stop the stream."""
    put(table, columns(s1=columns(s2=columns(s3="string"))), [({"s2": {"s3": "a"}},)])
    after = columns(s1=columns(s2=columns(s3="string", repeat=columns(s1=columns(s2="string"), i="integer"))))
    row = {"s2": {"s3": "b", "repeat": {"s1": {"s2": "x"}, "i": 1}}}
    put(table, after, [(row,)], **FULL)

    check(table, ({"s2": {"s3": "a", "repeat": None}},), (row,))


@DYNAMIC.case(
    "TestEvolveSchemaVisitor.testAddPrimitiveToNestedStruct",
    "TestEvolveSchemaVisitor.testAddNestedLists",
    "TestEvolveSchemaVisitor.testAddNestedMaps",
    "TestCompareSchemasVisitor.testListChanged",
    "TestCompareSchemasVisitor.testMapChanged",
)
def test_new_and_wider_fields_within_lists_and_maps(table: PeerTable) -> None:
    """Structs within lists or maps could never change."""
    before, after = columns(number="integer"), columns(number="long", time="date")
    put(
        table,
        columns(list=array(array(before)), map=mapping("string", before)),
        [([[{"number": 1}]], [("k", {"number": 2})])],
    )
    new = ([[{"number": 1 << 40, "time": None}]], [("k", {"number": 3, "time": None})])
    put(table, columns(list=array(array(after)), map=mapping("string", after)), [new], **FULL)

    check(table, ([[{"number": 1, "time": None}]], [("k", {"number": 2, "time": None})]), new)


@DYNAMIC.case(
    "TestEvolveSchemaVisitor.testMakeNestedPrimitiveOptional", "TestEvolveSchemaVisitor.testMakeNestedStructOptional"
)
def test_fields_within_structs_become_optional(table: PeerTable) -> None:
    """A field that is no longer sent would stop the stream for ever."""
    put(
        table,
        columns(s=required(columns(a="string", b="string"))),
        [({"a": "x", "b": "y"},)],
        use_nullable_query_schema="false",
    )
    put(table, columns(s=columns(a="string")), [({"a": "z"},)], **FULL)

    check(table, ({"a": "x", "b": "y"},), ({"a": "z", "b": None},))


@DYNAMIC.case("TestEvolveSchemaVisitor.testIdentifyFieldsByName", "TestCompareSchemasVisitor.testSchemaDifferentId")
def test_ids_of_the_table_stay(table: PeerTable) -> None:
    """Old files would be read by the wrong ids."""
    table.create(Schema(NestedField(1, "other", iceberg.StringType()), NestedField(42, "data", iceberg.StringType())))
    put(table, columns(data="string"), [("a",)], **FULL)
    with table.load().update_schema() as update:
        update.rename_column("data", "renamed")
    put(table, columns(renamed="string"), [("b",)], **FULL)

    check(table, (None, "a"), (None, "b"))


@DYNAMIC.case("TestCompareSchemasVisitor.testSchema", "TestDynamicIcebergSink.testWriteMultipleTablesWithSchemaChanges")
def test_schema_that_fits_makes_no_new_one(table: PeerTable) -> None:
    """Each epoch would add a schema, for ever."""
    wide = columns(id="integer", data="string", nested=columns(x="integer"), list=array("string"))
    for number in range(3):
        put(table, wide, [(number, None, None, None)], of_epoch=number, **FULL)
        put(table.named("db.other"), PAIR, [(number, "x")], of_epoch=number, **FULL)

    check(table, *((number, None, None, None) for number in range(3)))
    assert len(table.load().metadata.schemas) == 1


@DYNAMIC.case("TestDynamicIcebergSink.testMultipleBranches", "TestTableUpdater.testBranchCreationAndCaching")
def test_epochs_of_several_branches(table: PeerTable) -> None:
    """An epoch of one branch would be taken for that of another."""
    put(table, PAIR, [(0, "main")])
    for number in range(2):
        for branch in ("one", "two"):
            for _ in range(2):
                put(table, PAIR, [(number, branch)], of_epoch=number, branch=branch, create_branch="true")

    check(table, (0, "main"))
    for branch in ("one", "two"):
        check(table, (0, "main"), (0, branch), (1, branch), branch=branch)


@DYNAMIC.case("TestDynamicIcebergSink.testMultipleTables", "TestDynamicIcebergSink.testMultipleTablesPartitioned")
@pytest.mark.parametrize("layout", [{}, {"partition_by": "bucket(4, id)"}])
def test_one_epoch_into_two_tables(table: PeerTable, layout: dict[str, str]) -> None:
    """The second table would be skipped, because the first has the epoch."""
    for name in ("db.one", "db.two"):
        for _ in range(2):
            put(table.named(name), PAIR, [(1, name)], txn_app_id="both", txn_version="7", **layout)

    for name in ("db.one", "db.two"):
        check(table.named(name), (1, name))


@DYNAMIC.case("TestDynamicIcebergSink.testUpsert", "TestDynamicCommitter.testCommitDeltaTxnWithAppendFiles")
def test_upserts_beside_appends(table: PeerTable) -> None:
    """Appended rows would be deleted by the keys of an earlier epoch."""
    put(table, PAIR, [(1, "a"), (2, "b")], of_epoch=0, keys="id")
    put(table, PAIR, [(1, "c")], of_epoch=1, keys="id")
    put(table, PAIR, [(1, "appended")])

    check(table, (1, "c"), (2, "b"), (1, "appended"))


@DYNAMIC.case(
    "TestDynamicIcebergSink.testUpsertV3",
    "TestDynamicIcebergSink.testMultiFormatVersion",
)
@pytest.mark.parametrize("version", ["2", "3"])
def test_upsert_into_a_table_of_each_version(table: PeerTable, version: str) -> None:
    """Deletes would be written that version 3 does not allow."""
    put(table, PAIR, [(1, "a"), (2, "b")], keys="id", format_version=version)
    put(table, PAIR, [(1, "c")], keys="id")

    check(table, (1, "c"), (2, "b"))


@DYNAMIC.case(
    "TestDynamicIcebergSink.testCommitFailedBeforeOrAfterCommit",
    "TestDynamicIcebergSink.testCommitConcurrency",
    "TestDynamicCommitter.testTableBranchAtomicCommitWithFailures",
)
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("error", [CommitFailedException, ServiceUnavailableError])
def test_commit_that_fails_before_or_after_it_landed(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, waits: list[float], when: When, error: type[Exception]
) -> None:
    """An epoch whose answer was lost would be committed twice, or not at all."""
    faulty_sink.append(1)
    faulty_catalog.fail_next(1, lambda: error("lost"), when=when)
    faulty_sink.append(2)
    faulty_sink.append(3)

    assert faulty_sink.ids() == [1, 2, 3]
    assert len(list(faulty_sink.catalog.reading_anew().load_table(IDENTIFIER).metadata.snapshot_log)) == 3
    assert len(waits) <= 1
