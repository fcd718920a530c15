"""apache/iceberg, Spark: the suites of MERGE, UPDATE and DELETE, as far as writes by key do the same."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType
from support.checks.reader import rows_of
from support.peer.cases import DIFFERS, ICEBERG
from support.peer.tables import PeerTable, columns, simple
from support.tables.sink import Row

from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError

SETTINGS = "coming-from/iceberg-runtime.md#settings-of-the-session"
REFUSED = "keys/table.md#what-is-refused"
CHANGES = columns(id="integer", data="string", op="string")
OPERATIONS = {"keys": "id", "operation-column": "op"}


@pytest.fixture
def keyed(table: PeerTable) -> PeerTable:
    """Return the table, written by the key `id`."""
    return table.with_options(keys="id")


def found(table: PeerTable, branch: str = "main") -> list[Row]:
    """Return the rows as a reader of deletes sees them."""
    return sorted(rows_of(table.load(), branch), key=lambda row: row["id"])


def changes(*rows: tuple[int, str | None, str]) -> list[Row]:
    """Return rows of `CHANGES`."""
    return [{"id": key, "data": data, "op": operation} for key, data, operation in rows]


@ICEBERG.case(
    "TestMerge.testMergeWithMatchedAndNotMatchedClauses",
    "TestMerge.testMergeIntoPartitionedAndOrderedTable",
)
@pytest.mark.parametrize("layout", [{}, {"partition-by": "bucket(4, id)", "sort-by": "id"}])
def test_rows_of_known_keys_are_replaced_and_others_added(keyed: PeerTable, layout: dict[str, str]) -> None:
    """Old rows would stay beside the new ones, or new ones be lost."""
    keyed.append(simple((1, "one"), (6, "six")), options=layout)

    keyed.append(simple((1, "new"), (2, "two")))

    assert found(keyed) == simple((1, "new"), (2, "two"), (6, "six"))


@ICEBERG.case(
    "TestMerge.testMergeWithAllClauses",
    "TestMerge.testMergeWithTableWithNonNullableColumn",
    "TestMerge.testMergeWithAllCausesWithExplicitColumnSpecification",
)
def test_one_write_updates_inserts_and_deletes(table: PeerTable) -> None:
    """A change feed could not be applied in one snapshot."""
    table.append(changes((1, "one", "I"), (6, "six", "I")), schema=CHANGES, options=OPERATIONS)
    before = len(table.snapshots())

    table.append(changes((1, "new", "U"), (6, None, "D"), (2, "two", "I")), schema=CHANGES, options=OPERATIONS)

    assert found(table) == simple((1, "new"), (2, "two"))
    assert len(table.snapshots()) == before + 1


@ICEBERG.case("TestMerge.testMergeWithOnlyDeleteClause", "TestMerge.testMergeWithUnconditionalDelete")
def test_rows_are_deleted_by_key(table: PeerTable) -> None:
    """Deleted rows would stay, or others go with them."""
    table.append(changes((1, "one", "I"), (6, "six", "I")), schema=CHANGES, options=OPERATIONS)

    table.append(changes((6, None, "D"), (9, None, "D")), schema=CHANGES, options=OPERATIONS)

    assert found(table) == simple((1, "one"))


@ICEBERG.case("TestMerge.testMergeWithSingleConditionalDelete")
def test_rows_are_deleted_by_a_condition_on_the_source(table: PeerTable) -> None:
    """Rows that only look like deletes would go."""
    data = columns(id="integer", data="string")
    table.append(simple((1, "one"), (6, "six")), schema=data, keys="id")

    table.append(simple((6, "gone"), (1, "kept")), schema=data, keys="id", delete_when="data = 'gone'")

    assert found(table) == simple((1, "kept"))


@ICEBERG.case(
    "TestMerge.testMergeEmptyTable",
    "TestMerge.testMergeSinglePartitionPartitioning",
    "TestMerge.testMergeIntoEmptyTargetInsertAllNonMatchingRows",
)
def test_first_rows_of_an_empty_table(keyed: PeerTable) -> None:
    """The first load of a table by key would be refused, or lose rows."""
    key = NestedField(1, "id", IntegerType(), required=True)
    keyed.create(Schema(key, NestedField(2, "data", StringType()), identifier_field_ids=[1]))

    keyed.append(simple((0, "a")), simple((1, "b"), (2, None)))

    assert found(keyed) == simple((0, "a"), (1, "b"), (2, None))


@ICEBERG.case(
    "TestMerge.testMergeWithMultipleUpdatesForTargetRow",
    "TestMerge.testMergeWithMultipleUpdatesForTargetRowSmallTargetLargeSource",
    "TestMerge.testMergeWithMultipleUpdatesForTargetRowSmallTargetLargeSourceNoNotMatchedActions",
    "TestMerge.testMergeWithOneMatchingBranchButMultipleSourceRowsForTargetRow",
)
@pytest.mark.parametrize("parts", [[simple((1, "a"), (1, "b"))], [simple((1, "a")), simple((1, "b"))]])
def test_several_rows_of_a_key_without_an_order_are_refused(keyed: PeerTable, parts: list[list[Row]]) -> None:
    """One of the rows would win by chance."""
    keyed.append(simple((1, "one"), (6, "six")))

    with pytest.raises(RefusedRowsError, match=r"1 keys have several rows, and none comes last .*sequence-by"):
        keyed.append(*parts)
    keyed.append(*parts, sequence_by="data")

    assert found(keyed) == simple((1, "b"), (6, "six"))


@ICEBERG.case("TestMerge.testMergeWithNullsInTargetAndSource", verdict=DIFFERS("keys must not be null", see=REFUSED))
def test_null_is_no_key(keyed: PeerTable) -> None:
    """Rows without a key would replace one another, or pile up."""
    keyed.append(simple((2, "v2")))

    with pytest.raises(RefusedRowsError, match=r"null in a key column"):
        keyed.append(simple((None, "v1")))

    assert found(keyed) == simple((2, "v2"))


@ICEBERG.case("TestMerge.testMergeWithMissingOptionalColumnsInInsert")
def test_optional_columns_that_are_missing_get_nulls(keyed: PeerTable) -> None:
    """A source that lacks an optional column would be refused."""
    keyed.append(simple((1, "one")))

    keyed.append([{"id": 2}], schema=columns(id="integer"))

    assert found(keyed) == simple((1, "one"), (2, None))


@ICEBERG.case(
    "TestMerge.testMergeWithExtraColumnsInSource",
    verdict=DIFFERS("columns that the table lacks are refused: nothing but whole rows is written", see="columns.md"),
)
def test_extra_columns_of_the_source_are_refused(keyed: PeerTable) -> None:
    """Values of the source would be dropped in silence."""
    keyed.append(simple((1, "one")))

    with pytest.raises(SchemaMismatchError, match=r"'extra'"):
        keyed.append(
            [{"id": 1, "data": "x", "extra": -1}], schema=columns(id="integer", data="string", extra="integer")
        )


@ICEBERG.case("TestMerge.testMergeNonExistingBranch")
def test_branch_that_is_not_there(keyed: PeerTable) -> None:
    """Changes would go to a branch that nobody reads."""
    keyed.append(simple((1, "one")))

    with pytest.raises(OptionError, match=r"'test'"):
        keyed.append(simple((1, "new")), branch="test")


@ICEBERG.case(
    "TestMerge.testMergeToWapBranch",
    verdict=DIFFERS("the branch is named by option `branch`, not by the session", see=SETTINGS),
)
def test_changes_of_a_branch_leave_main_alone(keyed: PeerTable) -> None:
    """Changes that are to be audited would be shown."""
    keyed.append(simple((1, "one"), (2, "two")))

    keyed.append(simple((1, "new")), branch="audit", create_branch="true")

    assert found(keyed, "audit") == simple((1, "new"), (2, "two"))
    assert found(keyed) == simple((1, "one"), (2, "two"))


@ICEBERG.case("TestMerge.testMergeResolvesColumnsByName", "TestMerge.testMergeMixedCaseAlignsUpdateAndInsertActions")
def test_columns_in_another_order_and_case(keyed: PeerTable) -> None:
    """Values would land in the wrong column."""
    keyed.append(simple((1, "one")))

    keyed.append([{"DATA": "new", "Id": 1}], schema=columns(DATA="string", Id="integer"))

    assert found(keyed) == simple((1, "new"))


@ICEBERG.case("TestMerge.testMergeWithNonExistingColumns")
def test_key_that_is_no_column(table: PeerTable) -> None:
    """Rows would be replaced by another key than the one that was meant."""
    table.append(simple((1, "one")))

    with pytest.raises(OptionError, match=r"key column 'invalid_col' is not in the table"):
        table.append(simple((1, "new")), keys="invalid_col")


PARTITIONS = {
    "testMergeWithIdentityTransform": "id",
    "testMergeWithBucketTransform": "bucket(2, id)",
    "testMergeWithTruncateTransform": "truncate(1, id)",
}


@ICEBERG.case(*(f"TestMerge.{name}" for name in PARTITIONS))
@pytest.mark.parametrize("case", PARTITIONS)
def test_keys_in_partitions_of_any_transform(keyed: PeerTable, case: str) -> None:
    """Old rows in another partition would stay."""
    keyed.append(simple((1, "one"), (2, "two"), (3, "three")), partition_by=PARTITIONS[case])

    keyed.append(simple((2, "new"), (4, "four")))

    assert found(keyed) == simple((1, "one"), (2, "new"), (3, "three"), (4, "four"))


@ICEBERG.case(
    "TestMerge.testMergeWithInferredCasts", verdict=DIFFERS("nothing is cast but to a wider type", see="columns.md")
)
def test_values_of_another_type_are_refused(keyed: PeerTable) -> None:
    """Numbers would become texts in silence, and dates numbers."""
    keyed.append(simple((1, "one")))

    with pytest.raises(SchemaMismatchError, match=r"'data'"):
        keyed.append([{"id": 1, "data": -2}], schema=columns(id="integer", data="integer"))
