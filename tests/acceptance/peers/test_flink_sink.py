"""apache/iceberg, Flink: the suites of its sink, its writers, its committer and of rows with keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg import types as iceberg
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from support.peer.cases import DIFFERS, Peer
from support.peer.tables import SIMPLE, PeerTable, columns
from support.peer.writes import Values, check, count, found, operations, put, replace, tasks
from support.tables.sink import QUERY, local

from iceberg_ds.errors import CommitConflictError, OptionError, RefusedRowsError, SchemaMismatchError
from iceberg_ds.planning.plan_write import WriteMode

FLINK = Peer(name="apache/iceberg", suites="the sink of Flink")

OTHER_QUERY = "11111111-2222-4333-8444-555555555555"
LAYOUTS = pytest.mark.parametrize("layout", [{}, {"partition_by": "data"}], ids=["plain", "partitioned"])
EVENTS = columns(op="string", id="integer", data="string", number="integer")
FEED = {"operation_column": "op", "sequence_by": "number"}

Event = tuple[str, int, str]


def numbered(events: Sequence[Event]) -> list[Values]:
    """Return events in the order in which Flink sends them, which Spark does not keep."""
    return [(*event, number) for number, event in enumerate(events)]


def send(table: PeerTable, epoch: int, *events: Event, keys: str, **options: str) -> None:
    """Write an epoch of a change feed, in one task."""
    put(table, EVENTS, numbered(events), of_epoch=epoch, keys=keys, **FEED, **options)


def pairs(table: PeerTable, branch: str = "main") -> list[tuple[int, str]]:
    """Return the rows without their numbers."""
    return sorted(row[:2] for row in found(table, branch))


@FLINK.case(
    "TestFlinkIcebergSink.testWriteRow", "TestFlinkIcebergSink.testWriteRowData", "TestIcebergSink.testWriteRow"
)
@LAYOUTS
@pytest.mark.parametrize("count_of_tasks", [1, 2, 4])
def test_rows_of_several_writers(table: PeerTable, layout: dict[str, str], count_of_tasks: int) -> None:
    """Rows of one of the writers would be lost."""
    parts = [[(number, text) for text in ("hello", "world", "foo")] for number in range(count_of_tasks)]
    put(table, SIMPLE, *parts, of_epoch=0, **layout)

    check(table, *(row for part in parts for row in part))


@FLINK.case(
    "TestFlinkIcebergSinkBranch.testWriteRowWithFlinkSchema", "TestIcebergSinkBranch.testWriteRowWithTableSchema"
)
def test_stream_into_a_branch(table: PeerTable) -> None:
    """Readers of `main` would see rows of the branch."""
    put(table, SIMPLE, [(1, "main")])
    put(table, SIMPLE, [(2, "side")], of_epoch=0, branch="side", create_branch="true")
    put(table, SIMPLE, [(3, "side")], of_epoch=1, branch="side")

    check(table, (1, "main"))
    check(table, (1, "main"), (2, "side"), (3, "side"), branch="side")


@FLINK.case(
    "TestFlinkIcebergSinkExtended.testOverrideWriteConfigWithUnknownFileFormat",
    "TestIcebergSink.testOverrideWriteConfigWithUnknownFileFormat",
)
def test_unknown_file_format(table: PeerTable) -> None:
    """A typing error would write files that nobody reads."""
    with pytest.raises(OptionError, match="UNRECOGNIZED"):
        put(table, SIMPLE, [(1, "a")], write_format="UNRECOGNIZED")

    assert not table.exists()


@FLINK.case("TestFlinkIcebergSinkExtended.testTwoSinksInDisjointedDAG", "TestIcebergSink.testTwoSinksInDisjointedDAG")
def test_two_streams_into_two_tables(table: PeerTable) -> None:
    """Rows or properties of one stream would come into the other's table."""
    left, right = table.named("db.left"), table.named("db.right")
    put(left, SIMPLE, [(1, "left")], of_epoch=0, **{"snapshot-property.flink.test": "left"})
    put(right, SIMPLE, [(2, "right")], of_epoch=0, query=OTHER_QUERY, **{"snapshot-property.direction": "right"})

    check(left, (1, "left"))
    check(right, (2, "right"))
    assert left.summary()["flink.test"] == "left"
    assert "flink.test" not in right.summary()
    assert right.summary()["direction"] == "right"


@FLINK.case("TestIcebergSink.testErrorOnNullForRequiredField")
def test_null_in_a_required_column(table: PeerTable) -> None:
    """A null in a required column would break the table for its readers."""
    required = NestedField(1, "id", iceberg.IntegerType(), required=True)
    table.create(Schema(required, NestedField(2, "data", iceberg.StringType())))
    with pytest.raises(SchemaMismatchError, match="id"):
        put(table, SIMPLE, [(None, "a")], of_epoch=0)

    check(table)


@FLINK.case("TestFlinkIcebergSinkDistributionMode.testOverrideWriteConfigWithUnknownDistributionMode")
def test_unknown_distribution_mode(table: PeerTable) -> None:
    """A typing error would be taken for the default."""
    with pytest.raises(OptionError, match="distribution-mode"):
        put(table, SIMPLE, [(1, "a")], distribution_mode="UNRECOGNIZED")

    assert not table.exists()


@FLINK.case(
    "TestFlinkIcebergSinkDistributionMode.testPartitionWriteMode",
    "TestFlinkIcebergSinkDistributionMode.testShuffleByPartitionWithSchema",
    verdict=DIFFERS(
        "a write moves no rows: `iceberg_ds.distribute` does it before the write",
        see="coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta",
    ),
)
def test_distribution_by_the_write_is_refused(table: PeerTable) -> None:
    """Files would be many and small, though the option says otherwise."""
    with pytest.raises(OptionError, match=r"iceberg_ds\.distribute"):
        put(table, SIMPLE, [(1, "a")], distribution_mode="hash")

    assert not table.exists()


@FLINK.case(
    "TestFlinkIcebergSinkDistributionMode.testJobNoneDistributeMode",
    "TestFlinkIcebergSinkDistributionMode.testJobNullDistributionMode",
)
@pytest.mark.parametrize("mode", [{}, {"distribution_mode": "none"}])
def test_each_task_writes_its_own_files(table: PeerTable, mode: dict[str, str]) -> None:
    """Rows would be moved though nobody asked for it."""
    put(table, SIMPLE, [(1, "a"), (2, "b")], [(3, "a"), (4, "b")], partition_by="data", **mode)

    check(table, (1, "a"), (2, "b"), (3, "a"), (4, "b"))
    assert len(table.files()) == 4


@FLINK.case("TestCompressionSettings.testCompressionParquet")
@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ({}, "ZSTD"),
        ({"table-property.write.parquet.compression-codec": "snappy"}, "SNAPPY"),
        ({"table-property.write.parquet.compression-codec": "snappy", "compression-codec": "gzip"}, "GZIP"),
    ],
)
def test_option_wins_over_the_property(table: PeerTable, options: dict[str, str], codec: str) -> None:
    """Files would have another codec than was asked for."""
    put(table, SIMPLE, [(1, "a" * 500)], of_epoch=0, **options)

    (file,) = table.files()
    assert pq.read_metadata(local(file.file_path)).row_group(0).column(1).compression == codec


@FLINK.case("TestIcebergStreamWriter.testWritingTable", "TestIcebergStreamWriter.testSnapshotTwice")
@LAYOUTS
def test_each_epoch_has_files_of_its_own(table: PeerTable, layout: dict[str, str]) -> None:
    """Rows of one epoch would come with another's."""
    put(table, SIMPLE, [(1, "hello"), (2, "world")], of_epoch=0, **layout)
    put(table, SIMPLE, [(3, "foo")], of_epoch=1, **layout)
    first, second = table.snapshots()

    check(table, (1, "hello"), (2, "world"), (3, "foo"))
    assert [row["id"] for row in table.rows(snapshot_id=first.snapshot_id)] == [1, 2]
    assert second.summary is not None
    assert second.summary["added-records"] == "1"


@FLINK.case("TestIcebergStreamWriter.testTableWithTargetFileSize")
def test_writer_rolls_at_the_target_size(table: PeerTable) -> None:
    """One task would write one file of any size."""
    rows = [(number, f"{number * 7919:032d}") for number in range(8000)]
    cut = {
        "table-property.write.target-file-size-bytes": "8000",
        "table-property.write.parquet.row-group-size-bytes": "4000",
    }
    put(table, SIMPLE, rows, of_epoch=0, **cut)

    assert len(table.files()) > 2
    assert sorted(found(table)) == rows


@FLINK.case("TestIcebergStreamWriter.testPromotedFlinkDataType")
def test_bytes_and_shorts_become_ints(table: PeerTable) -> None:
    """Columns that are narrower than any of Iceberg's would be refused."""
    int_fields = [
        NestedField(number, name, iceberg.IntegerType()) for number, name in enumerate(("tiny", "small", "i"), 1)
    ]
    table.create(Schema(*int_fields))
    put(table, columns(tiny="byte", small="short", i="integer"), [(1, -32768, 101), (-128, 0, 102)], of_epoch=0)

    check(table, (1, -32768, 101), (-128, 0, 102))


@FLINK.case(
    "TestIcebergStreamWriter.testTableWithoutSnapshot",
    "TestIcebergFilesCommitter.testCommitTxnWithoutDataFiles",
    "TestIcebergCommitter.testCommitTxnWithoutDataFiles",
)
def test_epochs_without_rows_beside_others(table: PeerTable) -> None:
    """A quiet topic would stop the stream, or the next epoch be taken for one that has landed."""
    put(table, SIMPLE, [(1, "a")], of_epoch=0)
    for number in (1, 2, 3):
        put(table, SIMPLE, [], of_epoch=number)
    put(table, SIMPLE, [(2, "b")], of_epoch=4)
    put(table, SIMPLE, [(2, "b")], of_epoch=4)

    assert pairs(table) == [(1, "a"), (2, "b")]
    assert operations(table) == ["append", "append"]


@FLINK.case(
    "TestIcebergFilesCommitter.testCommitTxn",
    "TestIcebergCommitter.testCommitTxn",
    "TestIcebergCommitter.testSingleCommit",
)
@LAYOUTS
def test_each_epoch_is_one_snapshot(table: PeerTable, layout: dict[str, str]) -> None:
    """Readers would see half of an epoch, or an operator not which one landed."""
    rows = [(number, f"hello {number}") for number in range(1, 4)]
    for number, row in enumerate(rows):
        put(table, SIMPLE, [row], of_epoch=number, **layout)

    check(table, *rows)
    assert operations(table) == ["append"] * 3
    assert table.summary()["spark.sql.streaming.epochId"] == "2"
    assert table.summary()["spark.sql.streaming.queryId"] == QUERY


@FLINK.case(
    "TestIcebergFilesCommitter.testOrderedEventsBetweenCheckpoints",
    "TestIcebergCommitter.testOrderedEventsBetweenCheckpoints",
)
def test_next_epoch_is_written_before_the_first_is_committed(table: PeerTable) -> None:
    """Epochs that overlap would be mixed up."""
    put(table, SIMPLE, [(0, "start")], of_epoch=0)
    first = tasks(table, SIMPLE, [(1, "hello")], of_epoch=1)
    second = tasks(table, SIMPLE, [(2, "world")], of_epoch=2)
    first.commit()
    second.commit()

    check(table, (0, "start"), (1, "hello"), (2, "world"))


@FLINK.case(
    "TestIcebergFilesCommitter.testDisorderedEventsBetweenCheckpoints",
    "TestIcebergCommitter.testDisorderedEventsBetweenCheckpoints",
    "TestDynamicCommitter.testSkipsCommitRequestsForPreviousCheckpoints",
    verdict=DIFFERS(
        "an epoch below the last one is an error, not skipped: a checkpoint was rolled back, or two drivers run",
        see="exactly-once.md",
    ),
)
def test_epoch_below_the_last_one_is_refused(table: PeerTable) -> None:
    """Rows of a second driver would be dropped in silence."""
    put(table, SIMPLE, [(0, "start")], of_epoch=0)
    put(table, SIMPLE, [(1, "hello")], of_epoch=1)
    first = tasks(table, SIMPLE, [(2, "world")], of_epoch=0)
    with pytest.raises(CommitConflictError, match="epoch 0"):
        first.commit()

    check(table, (0, "start"), (1, "hello"))


@FLINK.case(
    "TestIcebergFilesCommitter.testRecoveryFromValidSnapshot",
    "TestIcebergCommitter.testStateRestoreFromPreJobWithCommitted",
    "TestIcebergFilesCommitterDuplicateCommitRace",
)
def test_epoch_that_landed_is_not_committed_again(table: PeerTable) -> None:
    """After a restart the rows of the last epoch would be there twice."""
    put(table, SIMPLE, [(1, "hello")], of_epoch=0)
    put(table, SIMPLE, [(2, "world")], of_epoch=1)
    put(table, SIMPLE, [(2, "world")], of_epoch=1)
    put(table, SIMPLE, [(3, "foo")], of_epoch=2)

    check(table, (1, "hello"), (2, "world"), (3, "foo"))
    assert len(table.snapshots()) == 3


@FLINK.case(
    "TestIcebergFilesCommitter.testRecoveryFromSnapshotWithoutCompletedNotification",
    "TestIcebergCommitter.testRecoveryFromSnapshotWithoutCompletedNotification",
    "TestIcebergCommitter.testStateRestoreFromPreJobWithUncommitted",
)
def test_epoch_that_did_not_land_is_written_again(table: PeerTable) -> None:
    """Rows whose driver died before the commit would be lost."""
    put(table, SIMPLE, [(1, "hello")], of_epoch=0)
    tasks(table, SIMPLE, [(2, "world")], of_epoch=1)
    put(table, SIMPLE, [(2, "world")], of_epoch=1)

    assert pairs(table) == [(1, "hello"), (2, "world")]
    assert len(table.snapshots()) == 2


@FLINK.case(
    "TestIcebergFilesCommitter.testStartAnotherJobToWriteSameTable",
    "TestIcebergCommitter.testStartAnotherJobToWriteSameTable",
)
def test_second_stream_begins_where_the_first_ended(table: PeerTable) -> None:
    """Epochs of a new stream would be taken for those of the old one, and lost."""
    put(table, SIMPLE, [(1, "hello")], of_epoch=0)
    put(table, SIMPLE, [(2, "world")], of_epoch=1)
    put(table, SIMPLE, [(3, "foo")], of_epoch=0, query=OTHER_QUERY)
    put(table, SIMPLE, [(4, "bar")], of_epoch=1, query=OTHER_QUERY)

    check(table, (1, "hello"), (2, "world"), (3, "foo"), (4, "bar"))


@FLINK.case(
    "TestIcebergFilesCommitter.testMultipleJobsWriteSameTable",
    "TestIcebergFilesCommitter.testMultipleSinksRecoveryFromValidSnapshot",
    "TestIcebergCommitter.testMultipleJobsWriteSameTable",
    "TestIcebergCommitter.testMultipleSinksRecoveryFromValidSnapshot",
)
def test_two_streams_into_one_table(table: PeerTable) -> None:
    """An epoch of one stream would hide that of the other, or be repeated after a restart."""
    for number in range(3):
        for _ in range(2):
            put(table, SIMPLE, [(number, "one")], of_epoch=number)
            put(table, SIMPLE, [(number, "two")], of_epoch=number, query=OTHER_QUERY)

    check(table, *((number, of) for number in range(3) for of in ("one", "two")))


@FLINK.case(
    "TestIcebergFilesCommitter.testBoundedStream", "TestIcebergStreamWriter.testBoundedStreamCloseWithEmittingDataFiles"
)
def test_batch_without_epochs(table: PeerTable) -> None:
    """A batch would be taken for a repeated one."""
    for _ in range(2):
        put(table, SIMPLE, [(1, "word")])

    check(table, (1, "word"), (1, "word"))
    assert "spark.sql.streaming.epochId" not in table.summary()


@FLINK.case("TestIcebergFilesCommitter.testSpecEvolution")
@pytest.mark.parametrize("replayed", [False, True])
def test_partitioning_changes_between_tasks_and_commit(table: PeerTable, *, replayed: bool) -> None:
    """Files of the older spec would be listed under the new one, and their rows not be found."""
    put(table, SIMPLE, [(1, "hello")], of_epoch=0, partition_by="data")
    under_way = tasks(table, SIMPLE, [(2, "world")], of_epoch=1)
    with table.load().update_spec() as update:
        update.add_field("id", "bucket[4]", "id_bucket")
    under_way.commit()
    if replayed:
        under_way.commit()
    put(table, SIMPLE, [(3, "foo")], of_epoch=2)

    check(table, (1, "hello"), (2, "world"), (3, "foo"))
    assert sorted(file.spec_id for file in table.files()) == [0, 0, 1]


@FLINK.case(
    "TestIcebergFilesCommitter.testDeleteFiles", "TestIcebergFilesCommitter.testCommitTwoCheckpointsInSingleTxn"
)
def test_epochs_of_deletes_alone(table: PeerTable) -> None:
    """Deletes would not reach rows of earlier epochs."""
    send(table, 0, ("+I", 1, "aaa"), ("+I", 2, "bbb"), keys="id, data")
    send(table, 1, ("-D", 1, "aaa"), keys="id, data")
    send(table, 2, ("-D", 2, "bbb"), ("-D", 3, "nobody"), keys="id, data")

    check(table)


@FLINK.case("TestFlinkIcebergSinkV2.testChangeLogOnIdKey", "TestIcebergSinkV2.testChangeLogOnIdKey")
@LAYOUTS
def test_changelog_by_id(table: PeerTable, layout: dict[str, str]) -> None:
    """Older values of a row would come back, or its last one be lost."""
    send(table, 0, ("+I", 1, "a"), ("-D", 1, "a"), ("+I", 1, "b"), ("+I", 2, "a"), ("-D", 2, "a"), keys="id", **layout)
    first = pairs(table)
    send(table, 1, ("+I", 2, "b"), ("-U", 2, "b"), ("+U", 2, "c"), ("-D", 2, "c"), ("+I", 2, "d"), keys="id")
    second = pairs(table)
    send(table, 2, ("-U", 1, "b"), ("+U", 1, "c"), ("-D", 2, "d"), keys="id")

    assert [first, second, pairs(table)] == [[(1, "b")], [(1, "b"), (2, "d")], [(1, "c")]]


@FLINK.case(
    "TestFlinkIcebergSinkV2.testChangeLogOnDataKey",
    "TestFlinkIcebergSinkV2.testChangeLogOnSameKey",
    "TestFlinkIcebergSinkV2.testChangeLogOnIdDataKey",
    verdict=DIFFERS(
        "an insert of a key that the table has takes the old row's place, where Flink leaves both rows",
        see="keys/meaning.md",
    ),
)
@LAYOUTS
@pytest.mark.parametrize("keys", ["data", "id, data"])
def test_insert_of_a_key_that_is_there(table: PeerTable, layout: dict[str, str], keys: str) -> None:
    """A key would be in the table twice after a source is read again."""
    send(table, 0, ("+I", 1, "a"), ("-D", 1, "a"), ("+I", 2, "b"), keys=keys, **layout)
    send(table, 1, ("-U", 2, "b"), ("+U", 1, "c"), ("+I", 1, "a"), keys=keys)
    send(table, 2, ("+I", 1, "a"), ("+I", 1, "c"), ("-D", 2, "b"), keys=keys)

    assert pairs(table) == [(1, "a"), (1, "c")]


@FLINK.case(
    "TestFlinkIcebergSinkV2.testUpsertOnIdKey",
    "TestIcebergSinkV2.testUpsertOnIdKey",
    "TestFlinkIcebergSinkV2Branch.testUpsertOnIdKey",
)
@pytest.mark.parametrize("branch", ["main", "side"])
@LAYOUTS
def test_upserts_by_id(table: PeerTable, layout: dict[str, str], branch: str) -> None:
    """Old rows would stay beside the new ones."""
    put(table, EVENTS, [], keys="id", **FEED, **layout)
    to = {} if branch == "main" else {"branch": branch, "create_branch": "true"}
    put(table, EVENTS, [("+I", 9, "nine", 0)], keys="id", **FEED)
    send(table, 0, ("+I", 1, "a"), ("+U", 1, "b"), keys="id", **to)
    send(table, 1, ("+I", 1, "c"), keys="id", **to)
    send(table, 2, ("+U", 1, "d"), ("+I", 1, "e"), keys="id", **to)

    assert pairs(table, branch) == [(1, "e"), (9, "nine")]
    assert branch == "main" or pairs(table) == [(9, "nine")]


@FLINK.case(
    "TestFlinkIcebergSinkV2.testUpsertOnDataKey",
    "TestFlinkIcebergSinkV2.testUpsertOnIdDataKey",
    "TestDeltaTaskWriter.testPartitionedTableWithDataAsKey",
    "TestDeltaTaskWriter.testPartitionedTableWithDataAndIdAsKey",
)
@LAYOUTS
@pytest.mark.parametrize(
    ("keys", "expected"),
    [("data", [(6, "a"), (7, "b")]), ("id, data", [(1, "a"), (2, "a"), (4, "a"), (5, "b"), (6, "a"), (7, "b")])],
)
def test_upserts_by_other_keys(table: PeerTable, layout: dict[str, str], keys: str, expected: list[Any]) -> None:
    """Rows of other keys would go, or old ones of these stay."""
    send(table, 0, ("+I", 1, "a"), ("+I", 2, "a"), ("+I", 3, "b"), keys=keys, **layout)
    send(table, 1, ("+U", 4, "a"), ("-U", 3, "b"), ("+U", 5, "b"), keys=keys)
    send(table, 2, ("+I", 6, "a"), ("+U", 7, "b"), keys=keys)

    assert pairs(table) == expected


@FLINK.case("TestFlinkIcebergSinkV2.testUpsertOnlyDeletesOnDataKey", "TestDeltaTaskWriter.testPartitionedPureEqDeletes")
@LAYOUTS
def test_deletes_of_keys_that_are_not_there(table: PeerTable, layout: dict[str, str]) -> None:
    """A delete that finds nothing would fail the epoch, or leave a row."""
    send(table, 0, ("+I", 1, "a"), keys="data", **layout)
    send(table, 1, ("-D", 1, "a"), ("-D", 2, "b"), keys="data")

    assert pairs(table) == []
    assert "added-data-files" not in table.summary()


@FLINK.case("TestFlinkIcebergSinkV2.testUpsertModeCheck", "TestIcebergSinkV2.testUpsertModeCheck")
def test_overwrite_by_keys_is_refused(table: PeerTable) -> None:
    """One of two contradicting options would be passed over."""
    with pytest.raises(OptionError, match="keys"):
        replace(table, EVENTS, numbered([("+I", 1, "a")]), keys="id, data", **FEED)

    assert not table.exists()


@FLINK.case(
    "TestFlinkIcebergSinkV2.testCheckAndGetEqualityFieldIds",
    verdict=DIFFERS(
        "keys other than the table's identifier fields are refused unless `evolve-keys` is `true`",
        see="keys/table.md#keys-partitions-and-types",
    ),
)
def test_keys_other_than_the_identifier_fields(table: PeerTable) -> None:
    """Two writers of one table would delete by other keys."""
    send(table, 0, ("+I", 1, "a"), keys="id, data")
    with pytest.raises(OptionError, match="evolve-keys"):
        send(table, 1, ("+I", 2, "b"), keys="data")
    send(table, 1, ("+I", 2, "a"), keys="data", evolve_keys="true")

    assert pairs(table) == [(2, "a")]


@FLINK.case("TestDeltaTaskWriter.testUnpartitioned", "TestDeltaTaskWriter.testPartitioned")
@LAYOUTS
def test_changes_of_one_task(table: PeerTable, layout: dict[str, str]) -> None:
    """A row that was overtaken within a task would be in the table."""
    events = [
        ("+I", 1, "a"),
        ("+I", 2, "b"),
        ("-U", 2, "b"),
        ("+U", 2, "c"),
        ("+I", 3, "d"),
        ("-D", 3, "d"),
        ("+I", 4, "e"),
    ]
    send(table, 0, *events, keys="id", **layout)

    assert pairs(table) == [(1, "a"), (2, "c"), (4, "e")]
    assert table.summary()["added-records"] == "3"


@FLINK.case("TestDeltaTaskWriter.testUnpartitionedPureEqDeletes")
def test_deletes_alone_write_no_data_file(table: PeerTable) -> None:
    """Empty data files would pile up."""
    send(table, 0, ("+I", 1, "a"), keys="id")
    send(table, 1, ("-D", 1, "a"), ("-D", 2, "b"), keys="id")

    assert pairs(table) == []
    assert count(table, DataFileContent.DATA) == 1
    assert count(table, DataFileContent.EQUALITY_DELETES) == 2


@FLINK.case("TestDeltaTaskWriter.testUnpartitionedAbort", "TestDeltaTaskWriter.testPartitionedAbort")
@LAYOUTS
def test_task_that_fails_leaves_no_file(table: PeerTable, layout: dict[str, str]) -> None:
    """Files of failed tasks would pile up."""
    send(table, 0, ("+I", 1, "a"), keys="id", **layout)
    before = table.data_files_on_disk()
    with pytest.raises(RefusedRowsError, match="nonsense"):
        send(table, 1, ("+I", 2, "b"), ("nonsense", 3, "c"), keys="id")

    assert table.data_files_on_disk() == before
    assert pairs(table) == [(1, "a")]


@FLINK.case("TestDeltaTaskWriter.testEqualityColumnOnCustomPrecisionTSColumn")
def test_times_as_keys(table: PeerTable) -> None:
    """Two times of one millisecond would be one key."""
    schema = columns(id="integer", ts="timestamp_ntz")
    times = [datetime.fromisoformat(f"2026-01-01T00:00:00.00000{number}") for number in (1, 2)]
    put(table, schema, [(1, times[0]), (2, times[1])], of_epoch=0, keys="ts")
    put(table, schema, [(3, times[1])], of_epoch=1, keys="ts")

    check(table, (1, times[0]), (3, times[1]))


KEYED = columns(id="integer", data="string", dt="date")
DAY, NEXT_DAY = date(2022, 3, 1), date(2022, 3, 2)


@FLINK.case(
    "TestFlinkUpsert.testUpsertAndQuery",
    "TestFlinkUpsert.testUpsertOptions",
    "TestFlinkUpsert.testPrimaryKeyFieldsAtBeginningOfSchema",
    "TestFlinkUpsert.testPrimaryKeyFieldsAtEndOfTableSchema",
)
@pytest.mark.parametrize("order", [("id", "dt", "data"), ("data", "id", "dt")])
@pytest.mark.parametrize("layout", [{}, {"partition_by": "dt"}])
def test_upserts_of_a_table_with_a_primary_key(table: PeerTable, order: Sequence[str], layout: dict[str, str]) -> None:
    """Where keys stand among the columns would count."""
    types = {"id": "integer", "dt": "date", "data": "string"}
    schema = columns(**{name: types[name] for name in order})

    def rows(*values: tuple[int, date, str]) -> list[Values]:
        named = [dict(zip(("id", "dt", "data"), value, strict=True)) for value in values]
        return [tuple(row[name] for name in order) for row in named]

    put(
        table,
        schema,
        rows((1, DAY, "Bill"), (2, DAY, "Jane"), (2, NEXT_DAY, "Jane")),
        of_epoch=0,
        keys="id, dt",
        **layout,
    )
    put(table, schema, rows((1, DAY, "Anna"), (2, DAY, "Jo")), of_epoch=1, keys="id, dt")

    check(table, *rows((1, DAY, "Anna"), (2, DAY, "Jo"), (2, NEXT_DAY, "Jane")))


@FLINK.case("TestFlinkUpsert.testPrimaryKeyEqualToPartitionKey")
def test_key_is_the_partition(table: PeerTable) -> None:
    """Deletes by partition would miss the row of their own key."""
    put(table, KEYED, [(1, "Bill", DAY), (2, "Jane", DAY)], of_epoch=0, keys="id", partition_by="id")
    put(table, KEYED, [(1, "Anna", NEXT_DAY)], of_epoch=1, keys="id")

    check(table, (1, "Anna", NEXT_DAY), (2, "Jane", DAY))


@FLINK.case("TestFlinkTableSink.testInsertFromSourceTable")
def test_values_and_nulls_of_a_query(table: PeerTable) -> None:
    """Nulls would become values."""
    put(table, SIMPLE, [(1, "hello"), (2, None), (None, "bar")])

    check(table, (1, "hello"), (2, None), (None, "bar"))


@FLINK.case("TestFlinkTableSink.testOverwriteTable")
def test_overwrite_of_the_whole_table(table: PeerTable) -> None:
    """Old rows would stay."""
    put(table, SIMPLE, [(1, "a")])
    replace(table, SIMPLE, [(2, "b")])

    check(table, (2, "b"))


@FLINK.case("TestFlinkTableSink.testReplacePartitions", "TestDynamicCommitter.testReplacePartitions")
@pytest.mark.parametrize("of_epoch", [None, 0])
def test_overwrite_of_the_partitions_that_come(table: PeerTable, of_epoch: int | None) -> None:
    """Partitions that the data does not have would be emptied."""
    put(table, SIMPLE, [(1, "a"), (2, "b"), (3, "c")], partition_by="data")
    replace(table, SIMPLE, [(5, "a"), (4, "b")], overwrite_mode="dynamic", of_epoch=of_epoch)

    check(table, (5, "a"), (4, "b"), (3, "c"))


@FLINK.case("TestFlinkTableSink.testInsertIntoPartition")
def test_rows_of_one_partition(table: PeerTable) -> None:
    """Rows of another partition would be written into the one that is named."""
    put(table, SIMPLE, [(1, "a"), (2, "b")], partition_by="data")
    replace(table, SIMPLE, [(3, "a"), (4, "a")], replace_where="data = 'a'")
    with pytest.raises(RefusedRowsError):
        replace(table, SIMPLE, [(5, "b")], replace_where="data = 'a'")

    check(table, (2, "b"), (3, "a"), (4, "a"))


def under_way(table: PeerTable, mode: WriteMode) -> Any:
    """Return an epoch whose tasks have ended."""
    return tasks(table, SIMPLE, [(1, "a")], of_epoch=0, mode=mode)


@FLINK.case("TestDynamicIcebergSink.testCommitsOnceWhenConcurrentDuplicateCommit")
@pytest.mark.parametrize("mode", [WriteMode.APPEND, WriteMode.OVERWRITE])
def test_epoch_that_two_drivers_commit(table: PeerTable, mode: WriteMode) -> None:
    """Rows of an epoch that two drivers commit would be there twice."""
    put(table, SIMPLE, [(0, "start")])
    first, second = under_way(table, mode), under_way(table, mode)
    first.commit()
    second.commit()

    check(table, *([(0, "start")] if mode is WriteMode.APPEND else []), (1, "a"))


@FLINK.case(
    "TestDynamicIcebergSink.testSkipsAlreadyCommittedDataAfterJobIdChanges",
    "TestDynamicCommitter.testSkipsAlreadyCommittedDataAfterJobIdChanges",
    verdict=DIFFERS(
        "a new checkpoint is a new stream; under a `stream-name` it is refused until `accept-new-checkpoint`",
        see="exactly-once.md",
    ),
)
def test_new_checkpoint_under_the_name_of_a_stream(table: PeerTable) -> None:
    """A stream that lost its checkpoint would write its source again in silence."""
    put(table, SIMPLE, [(1, "a")], of_epoch=0, stream_name="clicks")
    with pytest.raises(CommitConflictError, match="clicks"):
        put(table, SIMPLE, [(1, "a")], of_epoch=0, query=OTHER_QUERY, stream_name="clicks")

    check(table, (1, "a"))
