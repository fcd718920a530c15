"""apache/iceberg, Spark: the suites of batch writes into tables, partitioned or not, and into their branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from support.catalogs.faulty_catalog import FaultyCatalog, When, state_unknown
from support.peer.cases import DIFFERS, ICEBERG
from support.peer.tables import PeerTable, columns, simple
from support.tables.sink import Sink, rows

from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.spark.session_settings import check_audit_settings

COLUMNS = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "data", StringType()))
LONG_COLUMNS = Schema(NestedField(1, "id", LongType()), NestedField(2, "data", StringType()))
BY_DATA = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "data"))
BY_ID = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
ABC = simple((1, "a"), (2, "b"), (3, "c"))
DE = simple((4, "d"), (5, "e"))

OPTIONS = "coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta"
NAMES = "coming-from/iceberg-runtime.md#what-else-the-runtime-reads-in-a-name"
RUNTIME = "coming-from/iceberg-runtime.md"

# Where a case of the peer writes: the table as such, and a branch of it.
TARGETS = pytest.mark.parametrize("branch", [None, "testBranch"])


def target_of(table: PeerTable, branch: str | None) -> PeerTable:
    """Return the table, written at that branch, which begins where the table stands."""
    if branch is None:
        return table
    fork(table, branch)
    return table.with_options(branch=branch)


def fork(table: PeerTable, branch: str | None) -> None:
    """Make the branch where the table stands, if it is not there yet."""
    loaded = table.load()
    if branch is not None and branch not in loaded.metadata.refs:
        loaded.manage_snapshots().create_branch(table.last().snapshot_id, branch).commit()


@ICEBERG.case("TestSparkDataWrite.testBasicWrite")
@TARGETS
def test_rows_and_row_counts_of_files(table: PeerTable, branch: str | None) -> None:
    """Rows would be missing, or the files' metrics would not say how many there are."""
    table.create(COLUMNS, BY_DATA)

    table.append(ABC)
    fork(table, branch)

    assert table.rows(branch) == ABC
    assert [file.record_count for file in table.files(branch)] == [1, 1, 1]
    assert all(file.file_size_in_bytes > 0 and file.split_offsets for file in table.files(branch))


@ICEBERG.case("TestSparkDataWrite.testAppend", "TestUnpartitionedWrites.testDataFrameV2Append")
@TARGETS
def test_append_keeps_the_rows_that_are_there(table: PeerTable, branch: str | None) -> None:
    """An append would replace rows."""
    table.append(ABC)

    target_of(table, branch).append(DE)

    assert table.rows(branch) == ABC + DE


@ICEBERG.case("TestSparkDataWrite.testEmptyOverwrite")
@TARGETS
def test_dynamic_overwrite_without_rows_changes_nothing(table: PeerTable, branch: str | None) -> None:
    """A day without news would empty the table."""
    table.append(ABC, partition_by="data")

    target_of(table, branch).overwrite([], overwrite_mode="dynamic")

    assert table.rows(branch) == ABC


@ICEBERG.case("TestSparkDataWrite.testOverwrite")
@TARGETS
def test_dynamic_overwrite_replaces_the_partitions_with_rows(table: PeerTable, branch: str | None) -> None:
    """Partitions would be replaced that no row is for, or old rows would stay beside the new ones."""
    table.append(simple((1, "a"), (2, "b"), (3, "c"), (4, "b")), partition_by="data")

    target_of(table, branch).overwrite(simple((2, "a"), (4, "b"), (6, "c")), overwrite_mode="dynamic")
    target_of(table, branch).overwrite(simple((7, "d")), overwrite_mode="dynamic")

    assert table.rows(branch) == simple((2, "a"), (4, "b"), (6, "c"), (7, "d"))


@ICEBERG.case("TestSparkDataWrite.testUnpartitionedOverwrite", "TestUnpartitionedWrites.testInsertOverwrite")
@TARGETS
def test_overwrite_with_the_same_rows_leaves_one_copy(table: PeerTable, branch: str | None) -> None:
    """An overwrite that is run again would double the rows."""
    table.append(ABC)

    target_of(table, branch).overwrite(ABC)

    assert table.rows(branch) == ABC


@ICEBERG.case(
    "TestSparkDataWrite.testUnpartitionedCreateWithTargetFileSizeViaTableProperties",
    "TestSparkDataWrite.testPartitionedCreateWithTargetFileSizeViaOption",
    "TestSparkDataWrite.testPartitionedFanoutCreateWithTargetFileSizeViaOption",
    "TestSparkDataWrite.testPartitionedFanoutCreateWithTargetFileSizeViaOption2",
    verdict=DIFFERS("a file ends where it has the target size, not at the next 1,000 rows", see=RUNTIME),
)
@pytest.mark.parametrize(
    ("spec", "properties", "options"),
    [
        (PartitionSpec(), {"write__target_file_size_bytes": "4"}, {}),
        (BY_DATA, {}, {"target_file_size_bytes": "4"}),
        (BY_DATA, {"write__spark__fanout__enabled": "true"}, {"target_file_size_bytes": "4"}),
        (BY_DATA, {}, {"target_file_size_bytes": "4", "fanout_enabled": "true"}),
    ],
)
def test_target_file_size_cuts_files_exactly(
    table: PeerTable, spec: PartitionSpec, properties: Mapping[str, str], options: Mapping[str, str]
) -> None:
    """One huge file would be written, whatever is asked for."""
    table.create(COLUMNS, spec, **properties)
    data = simple(*((number, letter) for number in range(5) for letter in "abcd"))

    table.append(data, small_task_size_bytes="0", **options)

    assert table.rows() == data
    assert [file.record_count for file in table.files()] == [1] * len(data)


@ICEBERG.case("TestSparkDataWrite.testViewsReturnRecentResults", "TestPartitionedWrites.testViewsReturnRecentResults")
@TARGETS
def test_reader_that_looks_again_sees_the_append(table: PeerTable, branch: str | None) -> None:
    """Readers would go on with the rows of yesterday."""
    table.append(ABC, partition_by="data")
    target = target_of(table, branch)
    before = table.rows(branch, row_filter="id = 1")

    target.append(simple((1, "a")))

    assert before == simple((1, "a"))
    assert table.rows(branch, row_filter="id = 1") == simple((1, "a"), (1, "a"))


@ICEBERG.case("TestSparkDataWrite.testWriteDataFilesInTableSortOrder")
def test_files_name_the_sort_order_that_they_follow(table: PeerTable) -> None:
    """Readers could not use the order that the rows are in."""
    table.create(COLUMNS, sort_order=BY_ID)
    data = simple(*((number, "a") for number in (7, 3, 9, 0, 5, 1)))

    table.append(data)

    order_id = table.load().sort_order().order_id
    assert order_id > 0
    assert {file.sort_order_id for file in table.files()} == {order_id}
    assert [row["id"] for row in table.load().scan().to_arrow().to_pylist()] == [0, 1, 3, 5, 7, 9]


@ICEBERG.case("TestSparkDataWrite.testWriteDataFilesUnsortedTable")
def test_files_of_an_unsorted_table_claim_no_order(table: PeerTable) -> None:
    """Readers would rely on an order that is not there."""
    table.append(simple((1, "a")))

    assert {file.sort_order_id for file in table.files()} <= {None, 0}


@ICEBERG.case("TestSparkDataWrite.testWriteDataFilesAfterSortOrderChange")
def test_files_before_and_after_a_table_gets_a_sort_order(table: PeerTable) -> None:
    """Old files would be taken for sorted ones."""
    table.append(simple((2, "a"), (1, "a")))
    with_order = table.load().update_sort_order()
    with_order.asc("id", IdentityTransform()).commit()

    table.append(simple((2, "a"), (1, "a")))

    found = {file.sort_order_id or 0 for file in table.files()}
    assert found == {0, table.load().sort_order().order_id}


@ICEBERG.case(
    "TestSparkDataWrite.testCommitUnknownException",
    verdict=DIFFERS(
        "a commit whose answer is lost is looked up in the table and found: no error, and nobody writes the rows again",
        see="exactly-once.md#how-it-is-tested",
    ),
)
def test_commit_whose_answer_is_lost_is_found(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """The user would write the rows again that had landed."""
    faulty_sink.append(1, 2)
    faulty_catalog.fail_next(1, state_unknown, when=When.AFTER)

    faulty_sink.append(3)

    assert faulty_sink.rows() == rows(1, 2, 3)


@ICEBERG.case("TestUnpartitionedWrites.testInsertAppend", "TestUnpartitionedWritesToBranch.testInsertAppend")
@TARGETS
def test_long_ids_are_appended(table: PeerTable, branch: str | None) -> None:
    """Integers of a DataFrame would not fit a table of longs."""
    table.create(LONG_COLUMNS)
    table.append(ABC)

    target_of(table, branch).append(DE)

    assert table.rows(branch) == ABC + DE
    assert branch in (None, "main") or table.rows() == ABC


@ICEBERG.case(
    "TestUnpartitionedWrites.testInsertAppendAtSnapshot",
    "TestUnpartitionedWrites.testInsertOverwriteAtSnapshot",
)
def test_snapshot_is_no_place_to_write_to(table: PeerTable) -> None:
    """Rows would go to a table of a strange name, or change what a snapshot was."""
    table.append(ABC)
    snapshot = table.named(f"db.t.snapshot_id_{table.last().snapshot_id}")

    for write in (snapshot.append, snapshot.overwrite):
        with pytest.raises(OptionError, match=r"there is db.t, whose tags and snapshots cannot be written to"):
            write(DE)

    assert table.rows() == ABC
    assert not snapshot.exists()


@ICEBERG.case(
    "TestUnpartitionedWrites.testDataFrameV2DynamicOverwrite", "TestUnpartitionedWritesToBranch.testInsertOverwrite"
)
@TARGETS
def test_dynamic_overwrite_of_an_unpartitioned_table_replaces_all(table: PeerTable, branch: str | None) -> None:
    """Rows of an unpartitioned table would be kept although it is all one partition."""
    table.append(ABC)

    target_of(table, branch).overwrite(DE, overwrite_mode="dynamic")

    assert table.rows(branch) == DE


@ICEBERG.case(
    "TestUnpartitionedWrites.testDataFrameV2Overwrite",
    verdict=DIFFERS(
        "the same rows are replaced by `replace-where`, but new rows must satisfy the predicate themselves",
        see=RUNTIME,
    ),
)
@TARGETS
def test_overwrite_by_a_condition(table: PeerTable, branch: str | None) -> None:
    """Rows beyond the condition would be lost, or rows brought in that the next run does not replace."""
    table.append(ABC)
    target = target_of(table, branch)

    with pytest.raises(ValueError, match=r"do not satisfy"):
        target.overwrite(DE, replace_where="id <= 3")
    target.overwrite(simple((0, "z")), replace_where="id <= 2")

    assert table.rows(branch) == simple((0, "z"), (3, "c"))


@ICEBERG.case("TestUnpartitionedWritesToBranch.testInsertIntoNonExistingBranchFails")
def test_branch_that_is_not_there_is_not_made_by_itself(table: PeerTable) -> None:
    """A misspelt branch would take the rows, and nobody would read them."""
    table.append(ABC)

    with pytest.raises(OptionError, match=r"'not-there'.*create-branch=true"):
        table.append(DE, branch="not-there")

    assert set(table.load().metadata.refs) == {"main"}


@ICEBERG.case(
    "TestUnpartitionedWritesToBranch.testDataFrameV2Append",
    "TestPartitionedWritesToBranch.testDataFrameV2Append",
    verdict=DIFFERS("a branch is named by option `branch`; `db.t.branch_x` is refused, and says so", see=NAMES),
)
def test_branch_behind_the_name_of_the_table(table: PeerTable) -> None:
    """Rows for a branch would go to a new table that nobody looks at."""
    table.append(ABC, partition_by="truncate(3, id)")
    by_name = table.named("db.t.branch_audit")

    with pytest.raises(OptionError, match=r"there is db.t. To write to its branch 'audit'.*branch=audit"):
        by_name.append(DE)

    assert not by_name.exists()


@ICEBERG.case(
    "TestFastAppend.testAppendToBranchEmptyTable",
    verdict=DIFFERS("a branch is forked from a snapshot: a table without any is written on `main` first", see=NAMES),
)
def test_branch_of_a_table_without_snapshots(table: PeerTable) -> None:
    """The branch would have no history in common with `main`, and could never be published."""
    table.create(COLUMNS)

    with pytest.raises(OptionError, match=r"cannot be forked, because the table has no snapshot yet. Write to main"):
        table.append(ABC, branch="audit", create_branch="true")


@ICEBERG.case("TestPartitionedWrites.testInsertAppend", "TestPartitionedWrites.testDataFrameV2Append")
@TARGETS
def test_append_to_partitions_by_truncated_ids(table: PeerTable, branch: str | None) -> None:
    """Rows would be filed in the wrong range of ids."""
    table.append(ABC, partition_by="truncate(3, id)")

    target_of(table, branch).append(DE)

    assert table.rows(branch) == ABC + DE
    assert sorted({file.partition[0] for file in table.files(branch)}) == [0, 3]


@ICEBERG.case(
    "TestPartitionedWrites.testInsertOverwrite",
    "TestPartitionedWrites.testDataFrameV2DynamicOverwrite",
    "TestPartitionedWritesToBranch.testInsertOverwrite",
)
@TARGETS
def test_dynamic_overwrite_of_partitions_by_truncated_ids(table: PeerTable, branch: str | None) -> None:
    """Rows of a range that no new row is in would be lost."""
    table.append(ABC, partition_by="truncate(3, id)")

    # 4 and 5 are in the partition of 3.
    target_of(table, branch).overwrite(DE, overwrite_mode="dynamic")

    assert table.rows(branch) == simple((1, "a"), (2, "b"), (4, "d"), (5, "e"))


@ICEBERG.case("TestPartitionedWrites.testDataFrameV2Overwrite")
@TARGETS
def test_overwrite_of_the_range_of_a_partition(table: PeerTable, branch: str | None) -> None:
    """Rows outside the range would go with it."""
    table.append(ABC, partition_by="truncate(3, id)")
    target = target_of(table, branch)

    target.overwrite(simple((1, "x"), (2, "y")), replace_where="id < 3")

    assert table.rows(branch) == simple((1, "x"), (2, "y"), (3, "c"))


@ICEBERG.case(
    "TestPartitionedWrites.testWriteWithOutputSpec",
    verdict=DIFFERS("files get the table's current partition spec, and `output-spec-id` is refused", see=OPTIONS),
)
def test_partition_spec_of_a_write_cannot_be_chosen(table: PeerTable) -> None:
    """The option would be passed over, and files be filed by another spec than asked for."""
    table.append(ABC, partition_by="truncate(3, id)")

    with pytest.raises(OptionError, match=r"output-spec-id.*evolve-partitioning=true"):
        table.append(DE, output_spec_id="0")
    table.append(DE, partition_by="data", evolve_partitioning="true")

    assert {file.spec_id for file in table.files()} == {0, 1}
    assert table.rows() == ABC + DE


@ICEBERG.case("TestPartitionedWritesToBranch.testInsertAppend", "TestSnapshotSelection.testSnapshotSelectionByBranch")
def test_branch_has_its_rows_and_main_its_own(table: PeerTable) -> None:
    """Rows that are to be audited would be shown, or those of `main` be missing in the branch."""
    table.append(ABC, partition_by="truncate(3, id)")

    table.append(DE, branch="audit", create_branch="true")
    table.append(simple((6, "f")))

    assert table.rows("audit") == ABC + DE
    assert table.rows() == [*ABC, *simple((6, "f"))]


@ICEBERG.case("TestSnapshotSelection.testWritingToBranchAfterSchemaChange")
def test_branch_is_written_by_the_schema_of_the_table(table: PeerTable) -> None:
    """A branch that is older than a column could not be written, or would lose its values."""
    table.append(ABC, branch="main")
    fork(table, "audit")
    with table.load().update_schema() as update:
        update.add_column("zip", IntegerType())

    wider = [{"id": 4, "data": "d", "zip": 12345}]
    table.append(wider, schema=columns(id="integer", data="string", zip="integer"), branch="audit")

    assert table.rows("audit") == [*({**row, "zip": None} for row in ABC), *wider]
    assert [row["id"] for row in table.rows()] == [1, 2, 3]


@ICEBERG.case("TestFastAppend.testAppendToTagFails")
def test_tag_is_no_place_to_write_to(table: PeerTable) -> None:
    """A release that was marked would change."""
    table.append(ABC)
    snapshot_id = table.last().snapshot_id
    table.load().manage_snapshots().create_tag(snapshot_id, "v1").commit()

    with pytest.raises(OptionError, match=r"'v1' is a tag"):
        table.append(DE, branch="v1")

    assert table.rows("v1") == ABC


def with_settings(table: PeerTable, settings: Mapping[str, str], **options: str) -> None:
    """Check a write as its tasks do in a session with these settings, for a table whose writes are audited first."""
    sink = table.with_options(**options).sink()
    check_audit_settings(replace(sink.plan(columns(id="integer", data="string")), is_audited=True), settings.get)


@ICEBERG.case("TestPartitionedWritesToWapBranch.testBranchAndWapBranchCannotBothBeSetForWrite")
def test_branch_of_the_write_and_another_of_the_session(table: PeerTable) -> None:
    """Rows would go to one of two branches, and the user would look in the other."""
    table.append(ABC)

    with pytest.raises(OptionError, match=r"spark.wap.branch=audit.*goes to branch 'test2'"):
        with_settings(table, {"spark.wap.branch": "audit"}, branch="test2", create_branch="true")


@ICEBERG.case("TestPartitionedWritesToWapBranch.testWapIdAndWapBranchCannotBothBeSetForWrite")
def test_audit_id_of_the_session_is_refused_beside_a_branch(table: PeerTable) -> None:
    """Rows would be shown that were to be staged under an id."""
    table.append(ABC)

    with pytest.raises(OptionError, match=r"spark.wap.id=17"):
        with_settings(table, {"spark.wap.id": "17", "spark.wap.branch": "audit"}, branch="audit", create_branch="true")


@ICEBERG.case(
    "TestPartitionedWritesToWapBranch.testInsertAppend",
    verdict=DIFFERS(
        "`spark.wap.branch` alone does not lead a write to the branch; a write that goes elsewhere is refused",
        see="coming-from/iceberg-runtime.md#settings-of-the-session",
    ),
)
def test_audit_branch_of_the_session_is_not_passed_over(table: PeerTable) -> None:
    """Rows that were to be audited first would be shown to every reader."""
    table.append(ABC)

    with pytest.raises(OptionError, match=r"Give option branch=audit"):
        with_settings(table, {"spark.wap.branch": "audit"})
    with_settings(table, {"spark.wap.branch": "audit"}, branch="audit", create_branch="true")


@ICEBERG.case("TestPartitionedWritesAsSelect.testInsertAsSelectAppend")
def test_unordered_rows_go_to_their_partitions(table: PeerTable) -> None:
    """Rows that are not clustered would be refused, or land in another partition."""
    data = simple(*((number, "abc"[number % 3]) for number in range(30)))

    table.append(data, partition_by="data")

    assert table.rows() == data
    assert sorted((file.partition[0], file.record_count) for file in table.files()) == [("a", 10), ("b", 10), ("c", 10)]


@ICEBERG.case("TestPartitionedWritesAsSelect.testInsertAsSelectWithBucket")
def test_unordered_rows_go_to_their_buckets(table: PeerTable) -> None:
    """Readers that look into one bucket would not find the row."""
    data = simple(*((number, f"{number:x}") for number in range(40)))

    table.append(data, partition_by="bucket(8, data)")

    bucket = parse_transform("bucket[8]").transform(StringType())
    by_bucket: dict[int, int] = {}
    for row in data:
        by_bucket[bucket(row["data"])] = by_bucket.get(bucket(row["data"]), 0) + 1
    assert table.rows() == data
    assert {file.partition[0]: file.record_count for file in table.files()} == by_bucket


@ICEBERG.case("TestPartitionedWritesAsSelect.testInsertAsSelectWithTruncate")
def test_unordered_rows_go_to_their_truncated_texts(table: PeerTable) -> None:
    """Texts beyond ASCII would be cut within a character."""
    data = simple((1, "äöü"), (2, "äöx"), (3, "ä"), (4, "😀😀😀"), (5, None))

    table.append(data, partition_by="truncate(2, data)")

    assert table.rows() == data
    assert {file.partition[0] for file in table.files()} == {"äö", "ä", "😀😀", None}


@ICEBERG.case(
    "TestWriteAborts.testBatchAppend",
    verdict=DIFFERS("rows of partitions in any order are no error: each partition gets one file a task", see=OPTIONS),
)
def test_rows_of_closed_partitions_are_no_error(table: PeerTable) -> None:
    """A job whose rows are not clustered would fail as under the runtime, or leave files behind."""
    table.create(COLUMNS, BY_DATA)

    table.append(
        simple((1, "a"), (2, "b"), (3, "a"), (4, "b")),
        use_table_distribution_and_ordering="false",
        fanout_enabled="false",
        small_task_size_bytes="0",
    )

    assert [file.record_count for file in table.files()] == [2, 2]
    assert len(table.data_files_on_disk()) == 2


@ICEBERG.case(
    "TestForwardCompatibility.testSparkWriteFailsUnknownTransform",
    "TestForwardCompatibility.testSparkStreamingWriteFailsUnknownTransform",
)
@pytest.mark.parametrize("of_epoch", [None, 0])
def test_partitions_by_a_transform_of_the_future(table: PeerTable, of_epoch: int | None) -> None:
    """Rows would be filed by a guess, and readers that know the transform would not find them."""
    table.create(COLUMNS, PartitionSpec(PartitionField(1, 1000, parse_transform("zero"), "id_zero")))

    with pytest.raises(UnsupportedTableError, match=r"zero"):
        table.append(ABC, of_epoch=of_epoch)

    assert table.rows() == []
