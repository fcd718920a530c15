"""What Delta's suites ask of MERGE and of change feeds, as far as it is a row that replaces that of its key."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType
from support.peer.cases import DELTA, DIFFERS
from support.peer.frames import (
    INT,
    LONG,
    STRING,
    VOID,
    Frame,
    found,
    found_by_key,
    frame,
    ordered,
    save,
    struct,
    upsert,
)
from support.peer.tables import PeerTable

from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError

SESSION = DIFFERS(
    "settings of the session do not reach the sink: each write is numbered by its options",
    see="coming-from/delta.md",
)
BY_VERSION = {"keys": "id", "operation-column": "_change_type", "sequence-by": "_commit_version"}


def pairs(*rows: tuple[int | None, int | None]) -> Frame:
    """Return rows of a key and a value."""
    return frame({"key": INT, "value": INT}, *rows)


def changes(*rows: tuple[int, str | None, str, int]) -> Frame:
    """Return rows of a table's change data feed, without the times of its commits."""
    return frame({"id": LONG, "name": STRING, "_change_type": STRING, "_commit_version": LONG}, *rows)


@DELTA.case(
    "MergeIntoBasicTests.basic case - merge to Delta table",
    "MergeIntoExtendedSyntaxTests.update + conditional insert",
)
@pytest.mark.parametrize("layout", [{}, {"partition-by": "key"}], ids=["unpartitioned", "partitioned"])
def test_rows_replace_those_of_their_keys(table: PeerTable, layout: dict[str, str]) -> None:
    """Rows of other keys would be lost, or old ones stay beside the new."""
    save(table, pairs((2, 2), (1, 4)), options=layout)
    result = upsert(table, pairs((1, 1), (0, 3)), "key")

    assert found(table) == [(0, 3), (1, 1), (2, 2)]
    assert (result.rows, result.replaced_rows) == (2, 1)


@DELTA.case(
    "MergeIntoBasicTests.basic case - upsert with only rows inserted", "MergeIntoBasicTests.basic case - only insert"
)
def test_rows_of_new_keys_replace_nothing(table: PeerTable) -> None:
    """Rows of other keys would be lost."""
    save(table, pairs((1, 1), (2, 2)))
    result = upsert(table, pairs((3, 3), (4, 4)), "key")

    assert found(table) == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert result.replaced_rows == 0


@DELTA.case("MergeIntoBasicTests.basic case - only update")
def test_rows_of_known_keys_add_none(table: PeerTable) -> None:
    """A key would be there twice."""
    save(table, pairs((1, 1), (2, 2)))
    upsert(table, pairs((1, 7), (2, 8)), "key")

    assert found(table) == [(1, 7), (2, 8)]


@DELTA.case("MergeIntoBasicTests.basic case - both source and target are empty")
def test_no_rows_into_an_empty_table_change_nothing(table: PeerTable) -> None:
    """An empty batch would end the job."""
    upsert(table, pairs(), "key")
    upsert(table, pairs(), "key")

    assert found(table) == []


@DELTA.case("MergeIntoSuiteBaseMiscTests.self merge")
def test_table_is_upserted_into_itself(table: PeerTable) -> None:
    """Rows would be doubled, or lost as they are replaced by themselves."""
    save(table, pairs((1, 1), (2, 2)))
    upsert(table, pairs((1, 1), (2, 2)), "key")

    assert found(table) == [(1, 1), (2, 2)]


@DELTA.case("MergeIntoSuiteBaseMiscTests.More than one target rows match the same source row")
def test_all_rows_of_a_key_are_replaced_by_one(table: PeerTable) -> None:
    """A row that was there twice would stay once beside the new one."""
    save(table, pairs((1, 1), (1, 2), (2, 2)))
    save(table, pairs((1, 3)))
    result = upsert(table, pairs((1, 9)), "key")

    assert found(table) == [(1, 9), (2, 2)]
    assert result.replaced_rows == 3


@DELTA.case("MergeIntoExtendedSyntaxTests.only update with multiple matches")
def test_two_rows_of_one_key_are_refused(table: PeerTable) -> None:
    """Which of them is in the table would be up to chance."""
    save(table, pairs((1, 1)))

    with pytest.raises(RefusedRowsError, match="several rows"):
        upsert(table, pairs((1, 2), (1, 3)), "key")

    assert found(table) == [(1, 1)]


@DELTA.case("MergeIntoSuiteBaseMiscTests.merge on partitioned table with special chars")
def test_keys_hold_a_partition_with_special_characters(table: PeerTable) -> None:
    """A partition's rows would not be found, and be doubled."""
    parts = ["part%1", "part 2", "part/3", "part=4"]
    columns = {"key": INT, "part": STRING, "value": INT}
    save(table, frame(columns, *((1, part, 0) for part in parts)), options={"partition-by": "part"})
    upsert(table, frame(columns, *((1, part, 7) for part in parts[1:]), (1, "part%5", 7)), "key, part")

    assert found(table) == ordered((1, "part%1", 0), (1, "part%5", 7), *((1, part, 7) for part in parts[1:]))


@DELTA.case("MergeIntoNullTypeTests.NullType in source non-key column")
def test_column_without_a_type_brings_nulls_by_key(table: PeerTable) -> None:
    """A batch of JSON without a single value would end the job."""
    save(table, pairs((1, 1), (2, 2)))
    upsert(table, frame({"key": INT, "value": VOID}, (1, None)), "key")

    assert found(table) == [(1, None), (2, 2)]


@DELTA.case(
    "MergeIntoNullTypeTests.NullType in source key column with nulls in target key column",
    verdict=DIFFERS(
        "rows without a key are refused: null is the key of none, also where the table has such rows",
        see="keys/table.md#keys-partitions-and-types",
    ),
)
def test_row_without_a_key_is_refused(table: PeerTable) -> None:
    """A row would come with every run, and never be replaced."""
    save(table, pairs((None, 2), (1, 4)))

    with pytest.raises(RefusedRowsError, match="key"):
        upsert(table, pairs((None, 1)), "key")

    assert found(table) == [(None, 2), (1, 4)]


@DELTA.case(
    "MergeIntoSchemaEvolutionCoreTests.new column with only insert *",
    "MergeIntoSchemaEvolutionCoreTests.new column with only update *",
)
def test_upsert_adds_a_column_if_asked_for(table: PeerTable) -> None:
    """A table could not grow with its feed."""
    save(table, pairs((0, 0), (1, 10)))
    more = frame({"key": INT, "value": INT, "extra": STRING}, (1, 1, "extra1"), (2, 2, "extra2"))

    with pytest.raises(SchemaMismatchError, match="extra"):
        upsert(table, more, "key")

    upsert(table, more, "key", {"mergeSchema": "true"})
    assert found(table) == [(0, 0, None), (1, 1, "extra1"), (2, 2, "extra2")]


@DELTA.case(
    "MergeIntoBasicTests.basic case - not all columns are specified in update",
    verdict=DIFFERS("a row replaces the whole row of its key: columns that it lacks get nulls", see="columns.md"),
)
def test_columns_that_a_row_lacks_are_not_kept(table: PeerTable) -> None:
    """A user would trust old values to stay that are gone."""
    save(table, frame({"key": INT, "a": INT, "b": INT}, (1, 1, 1), (2, 2, 2)))
    upsert(table, frame({"key": INT, "a": INT}, (1, 7)), "key")

    assert found(table) == ordered((1, 7, None), (2, 2, 2))


@DELTA.case("MergeIntoBasicTests.basic case - columns are specified in wrong order")
def test_columns_of_an_upsert_are_matched_by_name(table: PeerTable) -> None:
    """Values would come into each other's columns."""
    save(table, pairs((1, 1)))
    upsert(table, frame({"value": INT, "key": INT}, (7, 1), (8, 2)), "key")

    assert found(table) == [(1, 7), (2, 8)]


@DELTA.case("MergeIntoNestedDataTests.update entire nested column", "MergeIntoNestedDataTests.updating array type")
def test_nested_values_are_replaced_as_a_whole(table: PeerTable) -> None:
    """Parts of an old value would stay within a new one."""
    columns = {"key": INT, "s": struct(a=INT, b=struct(c=STRING)), "l": ArrayType(INT)}
    save(table, frame(columns, (1, {"a": 1, "b": {"c": "x"}}, [1, 2]), (2, None, None)))
    upsert(table, frame(columns, (1, {"a": None, "b": {"c": "y"}}, [None]), (2, {"a": 3, "b": None}, [])), "key")

    assert found(table) == [(1, {"a": None, "b": {"c": "y"}}, [None]), (2, {"a": 3, "b": None}, [])]


@DELTA.case(
    "MergeIntoSuiteBaseMiscTests.Merge table using different data types - implicit casting, parts: true",
    "MergeIntoSuiteBaseMiscTests.Merge table using different data types - implicit casting, parts: false",
    verdict=DIFFERS("a type that does not fit is refused, never cast", see="coming-from/delta.md"),
)
def test_upsert_of_a_type_that_does_not_fit_is_refused(table: PeerTable) -> None:
    """Values that cannot be cast would become null."""
    save(table, pairs((1, 4), (2, 2)))

    with pytest.raises(SchemaMismatchError, match="value"):
        upsert(table, frame({"key": INT, "value": STRING}, (1, "5"), (3, "a")), "key")

    assert found(table) == [(1, 4), (2, 2)]


@DELTA.case(
    "DeltaSuite.idempotent write: idempotent DeltaTable merge",
    "DeltaSuite.idempotent write: idempotent SQL merge",
    verdict=SESSION,
)
def test_upsert_that_is_repeated_lands_once(table: PeerTable) -> None:
    """A retry would replace the rows that came after its first run."""
    for version, value in ((1, 0), (2, 2), (2, 7), (1, 8), (3, 3)):
        upsert(table, pairs((1, value)), "key", {"txnAppId": "merge", "txnVersion": str(version)})

    assert found(table) == [(1, 3)]
    assert len(table.snapshots()) == 3


# Deletes.


def operations(*rows: tuple[int, int | None, str]) -> Frame:
    """Return rows that say what they do."""
    return frame({"key": INT, "value": INT, "op": STRING}, *rows)


@DELTA.case("MergeIntoExtendedSyntaxTests.only delete")
def test_rows_that_say_delete_take_the_rows_of_their_keys(table: PeerTable) -> None:
    """Rows would stay that the source has deleted."""
    save(table, pairs((1, 1), (2, 2), (3, 3)))
    upsert(table, operations((2, None, "delete"), (9, None, "delete")), "key", {"operation-column": "op"})

    assert found(table) == [(1, 1), (3, 3)]


@DELTA.case(
    "DeltaSuite.idempotent write: idempotent DeltaTable delete",
    "DeltaSuite.idempotent write: idempotent SQL delete",
    verdict=SESSION,
)
def test_delete_that_is_repeated_lands_once(table: PeerTable) -> None:
    """A retry would delete a row that came back after its first run."""

    def delete(key: int, version: int) -> None:
        numbered = {"operation-column": "op", "txnAppId": "delete", "txnVersion": str(version)}
        upsert(table, operations((key, None, "delete")), "key", numbered)

    save(table, pairs((1, 1), (2, 2)))
    delete(1, version=1)
    save(table, pairs((1, 7)))
    delete(1, version=1)

    assert found(table) == [(1, 7), (2, 2)]


@DELTA.case(
    "MergeIntoExtendedSyntaxTests.conditional update + conditional delete + conditional insert",
    "MergeIntoExtendedSyntaxTests.update + conditional delete",
)
def test_rows_insert_update_and_delete_at_once(table: PeerTable) -> None:
    """Changes of one batch would need several commits, and readers see the table between them."""
    save(table, pairs((0, 0), (1, 10), (3, 30)))
    batch = operations((0, 5, "update"), (1, None, "delete"), (2, 20, "insert"))
    upsert(table, batch, "key", {"operation-column": "op"})

    assert found(table) == [(0, 5), (2, 20), (3, 30)]
    assert len(table.snapshots()) == 2


@DELTA.case(
    "MergeIntoExtendedSyntaxTests.only conditional delete", "MergeIntoExtendedSyntaxTests.conditional update + delete"
)
def test_rows_that_satisfy_a_predicate_delete(table: PeerTable) -> None:
    """A source that marks its deletes in a column would have to be rewritten."""
    save(table, pairs((0, 0), (1, 10)))
    upsert(table, pairs((0, 5), (1, -1)), "key", {"delete-when": "value < 0"})

    assert found(table) == [(0, 5)]


@DELTA.case(
    "MergeIntoNotMatchedBySourceCDCPart1Tests.unconditional delete only when not matched by source",
    verdict=DIFFERS(
        "keys of which no row comes stay; replace-where or an overwrite takes what the source no longer has",
        see="coming-from/delta.md",
    ),
)
def test_keys_of_which_no_row_comes_stay(table: PeerTable) -> None:
    """Rows that a batch does not speak of would be lost."""
    save(table, pairs((1, 1), (2, 2)))
    upsert(table, pairs((1, 7)), "key")
    upserted = found(table)
    save(table, pairs((1, 8)), "overwrite", {"replaceWhere": "key > 0"})

    assert upserted == [(1, 7), (2, 2)]
    assert found(table) == [(1, 8)]


@DELTA.case(
    "MergeIntoBasicTests.basic case - update value from both source and target table",
    verdict=DIFFERS("rows are written as they come: no expression reads the table's", see="coming-from/delta.md"),
)
def test_row_is_written_as_it_comes(table: PeerTable) -> None:
    """A sum would be made of values that nobody asked to add."""
    save(table, pairs((1, 10)))
    upsert(table, pairs((1, 5)), "key")

    assert found(table) == [(1, 5)]


# Change data feeds.


@DELTA.case("DeltaCDCSuite.changes from table by name", "MergeCDCTests.merge CDC - update + delete + insert together")
@pytest.mark.parametrize("whole", [True, False], ids=["one batch", "a batch a version"])
def test_change_data_feed_becomes_the_table_that_it_tells_of(table: PeerTable, whole: bool) -> None:  # noqa: FBT001
    """A copy of a table would differ from it."""
    feed = [
        (1, "ann", "insert", 0),
        (2, "bob", "insert", 0),
        (3, "eve", "insert", 0),
        (1, "ann", "update_preimage", 1),
        (1, "anna", "update_postimage", 1),
        (2, "bob", "delete", 2),
    ]
    batches = [feed] if whole else [[row for row in feed if row[3] == version] for version in range(3)]
    for batch in batches:
        save(table, changes(*batch), options=BY_VERSION)

    assert [row[:2] for row in found_by_key(table)] == [(1, "anna"), (3, "eve")]


@DELTA.case("DeltaCDCSuite.multiple references on same table", "DeltaCDCSuite.Repeated delete")
def test_feed_that_comes_twice_changes_nothing(table: PeerTable) -> None:
    """Rows would be doubled, or a deleted one be back."""
    feed = changes((1, "ann", "insert", 0), (2, "bob", "insert", 0), (2, "bob", "delete", 1))
    save(table, feed, options=BY_VERSION)
    save(table, feed, options=BY_VERSION)

    assert [row[:2] for row in found_by_key(table)] == [(1, "ann")]


@DELTA.case("UpdateCDCSuite.CDC for unconditional update")
def test_update_of_a_key_leaves_no_row_behind(table: PeerTable) -> None:
    """The row would be there under both keys."""
    moved = changes((1, "ann", "update_preimage", 1), (7, "ann", "update_postimage", 1))
    save(table, changes((1, "ann", "insert", 0)), options=BY_VERSION)
    save(table, moved, options=BY_VERSION)

    assert [row[:2] for row in found_by_key(table)] == [(7, "ann")]


@DELTA.case(
    "DeltaCDCSuite.batch write: append, dynamic partition overwrite + CDF",
    verdict=DIFFERS(
        "the delete and the insert of one key in one version are a tie: keys-not-enforced=true lets the row win",
        see="keys/feeds.md",
    ),
)
def test_feed_of_an_overwrite_is_a_tie(table: PeerTable) -> None:
    """A row would be lost or kept by chance."""
    save(table, changes((1, "a", "insert", 0), (2, "b", "insert", 0)), options=BY_VERSION)
    overwrite = changes((1, "a", "delete", 1), (1, "new", "insert", 1))

    with pytest.raises(RefusedRowsError, match="1"):
        save(table, overwrite, options=BY_VERSION)

    save(table, overwrite, options={**BY_VERSION, "keys-not-enforced": "true"})
    assert [row[:2] for row in found_by_key(table)] == [(1, "new"), (2, "b")]


@DELTA.case(
    "DeltaCDCSuite.writes with metadata columns",
    verdict=DIFFERS(
        "columns of a change data feed are columns like any other: those that the write reads are told by options",
        see="keys/feeds.md",
    ),
)
def test_columns_of_a_feed_are_written_if_no_option_reads_them(table: PeerTable) -> None:
    """A table of changes could not be kept."""
    save(table, changes((1, "ann", "insert", 0), (1, "ann", "delete", 1)))

    assert found(table) == ordered((1, "ann", "insert", 0), (1, "ann", "delete", 1))


# Rows that are replaced by the values of columns.


@DELTA.case(
    "DeltaInsertReplaceUsingDFWriterTests.replaceUsing with single column",
    "DeltaInsertReplaceUsingDFWriterTests.replaceUsing with multiple columns",
    "DeltaInsertReplaceOnDFWriterTests.basic replaceOn with single matching column",
    verdict=DIFFERS(
        "refused: keys, replace-where or overwrite-mode=dynamic take its place",
        see="coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta",
    ),
)
@pytest.mark.parametrize("option", ["replaceUsing", "replaceOn", "targetAlias"])
def test_options_of_selective_overwrites_say_what_to_give_instead(table: PeerTable, option: str) -> None:
    """An overwrite of some rows would replace all of them."""
    save(table, pairs((1, 1)))

    with pytest.raises(OptionError, match=f"(?s)'{option}' of Delta.*(upsert|replace-where)"):
        save(table, pairs((2, 2)), "overwrite", {option: "key"})

    assert found(table) == [(1, 1)]


@DELTA.case(
    "DeltaInsertReplaceUsingDFWriterTests.replaceUsing with NULL values in matching column",
    "DeltaInsertReplaceUsingDFWriterTests.replaceUsing on partitioned table with matching on partition column",
    verdict=DIFFERS(
        "overwrite-mode=dynamic replaces the partitions of the rows, that of null among them",
        see="coming-from/delta.md",
    ),
)
def test_groups_of_rows_are_replaced_by_partition(table: PeerTable) -> None:
    """A group could not be replaced by one that has fewer rows."""
    save(table, pairs((1, 1), (1, 2), (None, 3), (2, 4)), options={"partition-by": "key"})
    save(table, pairs((1, 9), (None, 8)), "overwrite", {"partitionOverwriteMode": "dynamic"})

    assert found(table) == [(None, 8), (1, 9), (2, 4)]
