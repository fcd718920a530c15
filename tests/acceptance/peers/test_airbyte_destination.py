"""Airbyte: the cases of its destinations for Iceberg tables, and of what they share."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from support.peer.cases import DIFFERS, Peer
from support.peer.tables import PeerTable, array, columns, required
from support.peer.writes import check, found, put, replace, tasks, upsert

from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError
from iceberg_ds.planning.plan_write import WriteMode

AIRBYTE = Peer(name="airbytehq/airbyte", suites="destination-s3-data-lake and load-iceberg-parquet")

FULL = {"schema_evolution": "full"}
DROPPING = {**FULL, "drop_missing_columns": "true"}
USERS = columns(id1="long", id2="long", updated_at="timestamp", name="string", deleted_at="timestamp")
DEDUP = {"keys": "id1, id2", "sequence_by": "updated_at", "delete_when": "deleted_at IS NOT NULL"}


def day(number: int) -> datetime:
    """Return a day of January 2000."""
    return datetime(2000, 1, number, tzinfo=timezone.utc)


@AIRBYTE.case("BasicFunctionalityIntegrationTest.testBasicWrite", "BasicFunctionalityIntegrationTest.testAppend")
def test_two_syncs_append(table: PeerTable) -> None:
    """The second sync would replace the first."""
    schema = columns(id="long", name="string")
    put(table, schema, [(1, "foo")])
    put(table, schema, [(1, "bar")])

    check(table, (1, "foo"), (1, "bar"))


@AIRBYTE.case("BasicFunctionalityIntegrationTest.testAppendSchemaEvolution")
def test_sync_with_other_columns(table: PeerTable) -> None:
    """A source that changes would stop its syncs."""
    put(table, columns(id="long", to_drop="string", same="long"), [(1, "gone", 1)])
    put(table, columns(id="long", same="long", to_add="string"), [(2, 2, "new")], **DROPPING)

    check(table, (1, 1, None), (2, 2, "new"))


@AIRBYTE.case("BasicFunctionalityIntegrationTest.testDedup", "BasicFunctionalityIntegrationTest.testDedupNoCursor")
@pytest.mark.parametrize("is_upserted", [False, True])
def test_sync_deduplicates(table: PeerTable, *, is_upserted: bool) -> None:
    """Old rows would stay, deleted ones come back, or of one sync the older row win."""
    write = upsert if is_upserted else put
    first = [(1, 200, day(1), "Alice1", None), (1, 200, day(2), "Alice2", None), (1, 201, day(1), "Bob", None)]
    write(table, USERS, first, **DEDUP)
    second = [(1, 200, day(3), "Alice3", None), (1, 201, day(4), None, day(4)), (2, 200, day(1), "Cem", None)]
    write(table, USERS, second, **DEDUP)

    check(table, (1, 200, day(3), "Alice3", None), (2, 200, day(1), "Cem", None))


@AIRBYTE.case(
    "BasicFunctionalityIntegrationTest.testDedupWithStringKey",
    "BasicFunctionalityIntegrationTest.testDedupWithNullCursor",
)
def test_rows_without_a_cursor(table: PeerTable) -> None:
    """A row without a cursor would win over one that has it."""
    schema = columns(id="string", cursor="long", name="string")
    put(table, schema, [("9cf9", None, "null"), ("9cf9", 1, "one")], keys="id", sequence_by="cursor")
    put(table, schema, [("aaaa", None, "alone")], keys="id", sequence_by="cursor")

    check(table, ("9cf9", 1, "one"), ("aaaa", None, "alone"))


@AIRBYTE.case("BasicFunctionalityIntegrationTest.testDedupChangePk")
def test_primary_key_changes(table: PeerTable) -> None:
    """Rows would be deleted by a key that is no longer one."""
    schema = columns(id1="long", id2="long", id3="long", name="string")
    put(table, schema, [(1, 200, 1, "Alice"), (1, 201, 1, "Bob")], keys="id1, id2")
    with pytest.raises(OptionError, match="evolve-keys"):
        put(table, schema, [(1, 300, 1, "Alice")], keys="id1, id3")

    check(table, (1, 200, 1, "Alice"), (1, 201, 1, "Bob"))


@AIRBYTE.case("BasicFunctionalityIntegrationTest.testDedupChangeCursor")
def test_cursor_changes(table: PeerTable) -> None:
    """Rows with the old cursor could not be replaced any more."""
    put(
        table,
        columns(id="long", old="long", name="string"),
        [(1, 1, "foo"), (1, 2, "foo2")],
        keys="id",
        sequence_by="old",
    )
    changed = columns(id="long", new="long", name="string")
    put(table, changed, [(1, 1, "bar"), (1, 3, "bar3")], keys="id", sequence_by="new", **DROPPING)

    check(table, (1, "bar3", 3))


@AIRBYTE.case("BasicFunctionalityIntegrationTest.testDedupWithinOneSync")
def test_equal_cursors_of_one_key(table: PeerTable) -> None:
    """One of two rows would win by chance."""
    tied = [(1, 200, day(1), "Alice", None), (1, 200, day(1), "Bob", None)]
    with pytest.raises(RefusedRowsError, match="id1"):
        put(table, USERS, tied, **DEDUP)
    put(table, USERS, tied, keys_not_enforced="true", **DEDUP)

    assert len(found(table)) == 1


@AIRBYTE.case("BasicFunctionalityIntegrationTest.testSoftDelete")
def test_deleted_rows_stay_if_asked(table: PeerTable) -> None:
    """Rows that the source deleted would be gone, though history is wanted."""
    soft = {"keys": "id", "sequence_by": "at", "operation_column": "op", "soft_delete_column": "gone"}
    schema = columns(id="long", at="long", name="string", op="string")
    put(table, schema, [(1, 1, "foo", "c"), (2, 1, "bar", "c")], **soft)
    put(table, schema, [(1, 2, "foo", "d")], **soft)

    check(table, (1, 2, "foo", True), (2, 1, "bar", False))


@AIRBYTE.case(
    "BasicFunctionalityIntegrationTest.testTruncateRefresh", "BasicFunctionalityIntegrationTest.testOverwriteSync"
)
def test_refresh_replaces_all_rows(table: PeerTable) -> None:
    """Rows that the source no longer has would stay."""
    schema = columns(id="long", name="string")
    put(table, schema, [(1, "first"), (2, "first")])
    replace(table, schema, [(1, "second")])

    check(table, (1, "second"))


@AIRBYTE.case(
    "BasicFunctionalityIntegrationTest.testInterruptedTruncateWithPriorData",
    "BasicFunctionalityIntegrationTest.testInterruptedTruncateWithoutPriorData",
)
def test_refresh_that_is_interrupted(table: PeerTable) -> None:
    """Readers would see half of the new rows, or none of the old ones."""
    schema = columns(id="long", name="string")
    put(table, schema, [(1, "old"), (2, "old")])
    tasks(table, schema, [(1, "lost")], mode=WriteMode.OVERWRITE)
    before = found(table)
    replace(table, schema, [(1, "new")])

    assert sorted(before) == [(1, "old"), (2, "old")]
    assert found(table) == [(1, "new")]


@AIRBYTE.case(
    "BasicFunctionalityIntegrationTest.testOverwriteSchemaEvolution",
    "IcebergTableSynchronizerTest.test overwrite on incompatible type change",
)
def test_refresh_with_other_types(table: PeerTable) -> None:
    """A source whose types changed could never be refreshed."""
    put(table, columns(id="long", age="integer", gone="string"), [(1, 30, "x")])
    replace(table, columns(id="long", age="string"), [(2, "thirty")], overwriteSchema="true")

    check(table, (2, "thirty"))
    assert [str(field.field_type) for field in table.load().schema().fields] == ["long", "string"]


@AIRBYTE.case(
    "BasicFunctionalityIntegrationTest.testFunkyCharacters", "BasicFunctionalityIntegrationTest.testNamingCollisions"
)
@pytest.mark.parametrize(
    "name", ["emoji_\U0001f600", "space name", "double.dot", "quote'd", 'double"quote', "UPPER", "1st", "slash/name"]
)
def test_strange_names(table: PeerTable, name: str) -> None:
    """Columns with such names would be lost, or two of them be one."""
    schema = columns(**{name: "string", "other": "long"})
    put(table.named(f"db.`{name.replace('/', '_')}`"), columns(id="long"), [(1,)])
    put(table, schema, [("x", 1)])
    put(table, schema, [("y", 2)])

    check(table, ("x", 1), ("y", 2))


@AIRBYTE.case(
    "BasicFunctionalityIntegrationTest.testManyStreamsCompletion",
    "BasicFunctionalityIntegrationTest.testMidSyncCheckpointingStreamState",
)
def test_many_tables_of_one_namespace(table: PeerTable) -> None:
    """The tables of one source would hinder each other."""
    for number in range(5):
        for epoch in range(2):
            put(table.named(f"db.t{number}"), columns(id="long"), [(number * 10 + epoch,)], of_epoch=epoch)

    for number in range(5):
        check(table.named(f"db.t{number}"), (number * 10,), (number * 10 + 1,))


@AIRBYTE.case("BasicFunctionalityIntegrationTest.testContainerTypes", "BasicFunctionalityIntegrationTest.testUnions")
@pytest.mark.parametrize("as_json", [False, True])
def test_objects_and_arrays(table: PeerTable, *, as_json: bool) -> None:
    """Nested values would be lost, or could not be kept as text."""
    schema = columns(id="long", object=columns(a="string", b="long"), list=array("long"))
    row = (1, {"a": "x", "b": None}, [1, None])
    put(table, schema, [row, (2, None, None)], **({"nested_as_json": "true"} if as_json else {}))

    text = (1, '{"a":"x","b":null}', "[1,null]")
    check(table, text if as_json else row, (2, None, None))


@AIRBYTE.case(
    "IcebergTableSynchronizerTest.test no changes - should do nothing", "IcebergTypesComparatorTest.testNoChanges"
)
def test_sync_that_changes_no_column(table: PeerTable) -> None:
    """Each sync would add a schema, for ever."""
    for number in range(3):
        put(table, columns(id="integer"), [(number,)], **DROPPING)

    check(table, (0,), (1,), (2,))
    assert len(table.load().metadata.schemas) == 1


@AIRBYTE.case("IcebergTableSynchronizerTest.test remove columns", "IcebergTypesComparatorTest.testRemovedColumns")
def test_column_is_removed(table: PeerTable) -> None:
    """A column that is gone from the source would stay for ever."""
    put(table, columns(id="integer", remove_me="string"), [(1, "a")])
    put(table, columns(id="integer"), [(2,)], **DROPPING)

    check(table, (1,), (2,))


@AIRBYTE.case(
    "IcebergTableSynchronizerTest.test newly optional columns", "IcebergTypesComparatorTest.testRequiredToOptional"
)
def test_column_becomes_optional(table: PeerTable) -> None:
    """A source whose column gets nulls would stop."""
    put(table, required(columns(id="integer", v="string")), [(1, "a")], use_nullable_query_schema="false")
    put(table, columns(id="integer", v="string"), [(2, None)], **FULL)

    check(table, (1, "a"), (2, None))


@AIRBYTE.case(
    "IcebergTableSynchronizerTest.test add new columns - top level",
    "IcebergTableSynchronizerTest.test add new columns - nested one-level",
)
def test_columns_are_added(table: PeerTable) -> None:
    """A new column, or a new field of an object, would be lost."""
    put(table, columns(id="integer", user=columns(id="integer")), [(1, {"id": 1})])
    after = columns(id="integer", user=columns(id="integer", name="string"), new="string")
    put(table, after, [(2, {"id": 2, "name": "x"}, "y")], **FULL)

    check(table, (1, {"id": 1, "name": None}, None), (2, {"id": 2, "name": "x"}, "y"))


@AIRBYTE.case(
    "IcebergTableSynchronizerTest.test add new columns - more than one-level nesting throws",
    verdict=DIFFERS("fields are added at any depth", see="columns.md"),
)
def test_fields_are_added_at_any_depth(table: PeerTable) -> None:
    """A deep field would be lost, or stop the sync."""
    put(table, columns(a=columns(b=columns(c="integer"))), [({"b": {"c": 1}},)])
    put(table, columns(a=columns(b=columns(c="integer", d="string"))), [({"b": {"c": 2, "d": "x"}},)], **FULL)

    check(table, ({"b": {"c": 1, "d": None}},), ({"b": {"c": 2, "d": "x"}},))


@AIRBYTE.case("IcebergTableSynchronizerTest.test update identifier fields")
def test_table_gets_keys(table: PeerTable) -> None:
    """A table that was appended to could never be deduplicated."""
    fields = [NestedField(1, "id", iceberg.StringType(), required=True), NestedField(2, "v", iceberg.LongType())]
    table.create(Schema(*fields))
    schema = columns(id="string", v="long")
    put(table, schema, [("a", 1), ("b", 1)])
    put(table, schema, [("a", 2)], keys="id", evolve_keys="true")

    check(table, ("a", 2), ("b", 1))
    assert table.load().schema().identifier_field_names() == {"id"}


@AIRBYTE.case("IcebergTableSynchronizerTest.test multiple operations in one pass")
def test_many_changes_at_once(table: PeerTable) -> None:
    """One change would hinder another, and the sync stop half-way."""
    before = required(columns(id="integer", remove="string", optional="integer", upgrade="integer"), "id", "optional")
    put(table, before, [(1, "x", 1, 1)], use_nullable_query_schema="false")
    after = required(columns(id="integer", optional="integer", upgrade="long", brand_new="float"), "id")
    put(table, after, [(2, None, 1 << 40, 0.5)], **DROPPING)

    check(table, (1, 1, 1, None), (2, None, 1 << 40, 0.5))


@AIRBYTE.case(
    "IcebergSuperTypeFinderTest.testIntToLongPromotion",
    "IcebergSuperTypeFinderTest.testFloatToDoublePromotion",
    "IcebergSuperTypeFinderTest.testDecimalPrecisionWidening",
    "IcebergTableSynchronizerTest.test update data type to supertype",
)
@pytest.mark.parametrize(
    ("before", "after", "old", "new"),
    [
        ("integer", "long", 1, 1 << 40),
        ("float", "double", 0.5, 0.1),
        ("decimal(10,2)", "decimal(20,2)", Decimal("1.25"), Decimal("123456789012345678.25")),
    ],
)
def test_supertypes(table: PeerTable, before: str, after: str, old: Any, new: Any) -> None:
    """Wider values would stop the sync, and narrower ones after them, too."""
    put(table, columns(v=before), [(old,)])
    put(table, columns(v=after), [(new,)], **FULL)
    put(table, columns(v=before), [(old,)], **FULL)

    check(table, (old,), (new,), (old,))


@AIRBYTE.case(
    "IcebergSuperTypeFinderTest.testIntToDoubleIsNotAllowed",
    "IcebergSuperTypeFinderTest.testPromotionIsNotAllowedByIceberg",
    "IcebergSuperTypeFinderTest.testDifferentTimestampZoneThrows",
    "IcebergSuperTypeFinderTest.testPrimitiveToNonPrimitiveThrows",
    "IcebergSuperTypeFinderTest.testNonPrimitiveToPrimitiveThrows",
    "IcebergSuperTypeFinderTest.testBinaryIsUnsupported",
    "IcebergSuperTypeFinderTest.testDecimalToIntIsNotAllowed",
    "IcebergTableSynchronizerTest.test fail on incompatible type change",
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("integer", "double"),
        ("integer", "float"),
        ("timestamp", "timestamp_ntz"),
        ("integer", columns(x="string")),
        (columns(x="string"), "integer"),
        ("binary", "integer"),
        ("decimal(10,2)", "integer"),
        ("decimal(10,2)", "decimal(12,3)"),
        ("integer", "string"),
        ("date", "timestamp"),
    ],
)
def test_types_without_a_supertype(table: PeerTable, before: Any, after: Any) -> None:
    """Values would be cast in silence, or old rows not be read any more."""
    put(table, columns(v=before), [(None,)])
    with pytest.raises(SchemaMismatchError, match="v"):
        put(table, columns(v=after), [(None,)], **FULL)

    check(table, (None,))


@AIRBYTE.case("IcebergSuperTypeFinderTest.testFixedIsUnsupported", "IcebergSuperTypeFinderTest.testUUIDIsUnsupported")
@pytest.mark.parametrize("of", [iceberg.FixedType(16), iceberg.UUIDType()])
def test_numbers_into_uuids_and_fixed_bytes(table: PeerTable, of: iceberg.PrimitiveType) -> None:
    """Numbers would be taken for bytes."""
    table.create(Schema(NestedField(1, "v", of)))
    with pytest.raises(SchemaMismatchError, match="v"):
        put(table, columns(v="integer"), [(1,)], **FULL)

    check(table)


@AIRBYTE.case("BaseDeltaTaskWriterTest", "DeleteIndexEndToEndTest", "PositionalDeleteEndToEndTest", "TouchedKeysTest")
def test_deletes_across_syncs_and_tasks(table: PeerTable) -> None:
    """A key that several tasks touch would be there twice, or not at all."""
    schema = columns(id="long", n="long", op="string")
    feed = {"keys": "id", "sequence_by": "n", "operation_column": "op"}
    put(table, schema, [(1, 1, "c"), (2, 1, "c")], [(1, 2, "u"), (3, 1, "c")], [(2, 3, "d"), (1, 0, "d")], **feed)
    put(table, schema, [(3, 5, "d")], [(3, 6, "c"), (2, 4, "c")], [(2, 2, "d")], **feed)

    check(table, (1, 2), (3, 6), (2, 4))


@AIRBYTE.case("IcebergUtilCreateNamespaceTest", "TableIdGeneratorTest", "S3DataLakeDestinationsCheckerTest")
def test_namespaces_of_several_levels(table: PeerTable) -> None:
    """A table would be made in another namespace than its source has."""
    for name in ("db.t", "other.db.t", "`db.t`.t"):
        put(table.named(name), columns(id="long"), [(len(name),)])

    for name in ("db.t", "other.db.t", "`db.t`.t"):
        assert table.named(name).rows() == [{"id": len(name)}]
