"""apache/iceberg, Spark and core: the suites of streams, of the writer's options, of layout and of where files go."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, NestedField, StringType
from support.catalogs.faulty_catalog import FaultyCatalog, refusal
from support.peer.cases import DIFFERS, ICEBERG
from support.peer.tables import PeerTable, columns, simple
from support.tables.sink import Sink, local, rows

import iceberg_ds
from iceberg_ds.errors import CommitConflictError, OptionError, UnsupportedTableError

COLUMNS = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "data", StringType()))
OPTIONS = "coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta"
SETTINGS = "coming-from/iceberg-runtime.md#settings-of-the-session"
RUNTIME = "coming-from/iceberg-runtime.md"
FIRST, SECOND = simple((1, "1"), (2, "2")), simple((3, "3"), (4, "4"))


@ICEBERG.case("TestStructuredStreaming.testStreamingWriteAppendMode")
def test_repeated_epoch_lands_once(table: PeerTable) -> None:
    """A driver that dies before Spark's note would double the epoch."""
    table.append(FIRST, of_epoch=0)
    table.append(SECOND, of_epoch=1)

    table.append(SECOND, of_epoch=1)

    assert table.rows() == FIRST + SECOND
    assert len(table.snapshots()) == 2


@ICEBERG.case(
    "TestStructuredStreaming.testStreamingWriteAppendModeWithMergeAppend",
    verdict=DIFFERS(
        "the table's property says whether manifests are merged; `use-merge-append-for-streaming` is refused",
        see=OPTIONS,
    ),
)
def test_merging_of_manifests_is_no_option_of_a_stream(table: PeerTable) -> None:
    """The option would be passed over, and manifests pile up."""
    with pytest.raises(OptionError, match=r"commit.manifest-merge.enabled"):
        table.append(FIRST, of_epoch=0, use_merge_append_for_streaming="true")


@ICEBERG.case("TestStructuredStreaming.testStreamingWriteCompleteMode")
def test_repeated_epoch_of_a_complete_stream(table: PeerTable) -> None:
    """Counts of an older epoch would stay beside the newer ones."""
    table.overwrite(simple((1, "1"), (1, "2")), of_epoch=0)
    table.overwrite(simple((2, "1"), (3, "2"), (1, "3")), of_epoch=1)

    table.overwrite(simple((2, "1"), (3, "2"), (1, "3")), of_epoch=1)

    assert sorted((row["data"], row["id"]) for row in table.rows()) == [("1", 2), ("2", 3), ("3", 1)]
    assert len(table.snapshots()) == 2


@ICEBERG.case("TestStructuredStreaming.testStreamingWriteCompleteModeWithProjection")
def test_complete_stream_that_lacks_an_optional_column(table: PeerTable) -> None:
    """A stream of some columns would be refused, or shift values into others."""
    table.create(COLUMNS)
    only_id = columns(id="integer")

    table.overwrite([{"id": 1}], schema=only_id, of_epoch=0)
    for _ in range(2):
        table.overwrite([{"id": number} for number in (1, 2, 3)], schema=only_id, of_epoch=1)

    assert table.rows() == simple((1, None), (2, None), (3, None))


@ICEBERG.case("TestStructuredStreaming.testStreamingWriteDataFilesInTableSortOrder")
def test_files_of_a_stream_name_their_sort_order(table: PeerTable) -> None:
    """Readers could not use the order that the rows are in."""
    table.create(COLUMNS, sort_order=SortOrder(SortField(source_id=1, transform=IdentityTransform())))

    table.append(simple((2, "2"), (1, "1")), of_epoch=0)

    assert {file.sort_order_id for file in table.files()} == {table.load().sort_order().order_id}
    assert [row["id"] for row in table.load().scan().to_arrow().to_pylist()] == [1, 2]


# Options of the runtime that are refused here, each with words of what to do instead.
REFUSED: dict[str, tuple[str, str, str]] = {
    "TestDataSourceOptions.testWriteFormatOptionOverridesTableProperties": ("write-format", "avro", "parquet"),
    "TestSparkWriteConf.testDeleteGranularityWriteOption": ("delete-granularity", "file", "drop it"),
    "TestSparkWriteConf.testAdvisoryPartitionSize": ("advisory-partition-size", "1024", "iceberg_ds.distribute"),
    "TestSparkWriteConf.testSparkWriteConfDistributionModeWithWriteOption": (
        "distribution-mode",
        "hash",
        "iceberg_ds.distribute",
    ),
    "TestSparkWriteConf.testSortOrderWriteConf": ("output-sort-order-id", "1", "sort-by"),
    "TestSparkWriteConf.testSortOrderWriteConfWithInvalidId": ("output-sort-order-id", "999", "sort-by"),
    "TestSparkWriteConf.testShredVariantsWriteOptionOverridesSessionConf": ("shred-variants", "true", "variant"),
}


@ICEBERG.case(*REFUSED, verdict=DIFFERS("the option is refused, and the error says what takes its place", see=OPTIONS))
@pytest.mark.parametrize("case", REFUSED)
def test_options_of_the_runtime_that_are_refused(table: PeerTable, case: str) -> None:
    """An option would be passed over in silence."""
    name, value, instead = REFUSED[case]

    with pytest.raises(OptionError) as refused:
        table.append(FIRST, options={name: value})

    assert name in str(refused.value)
    assert instead in str(refused.value)
    assert not table.exists()


# Options of the runtime that mean what is done anyway.
ACCEPTED: dict[str, tuple[str, str]] = {
    "TestSparkWriteConf.testOptionCaseInsensitive": ("Target-File-SIZE-bytes", "1048576"),
    "TestSparkWriteConf.testSparkWriteConfDistributionModeWithEverything": ("distribution-mode", "none"),
    "TestSparkWriteConf.testShredVariantsDefault": ("shred-variants", "false"),
}


@ICEBERG.case(*ACCEPTED)
@pytest.mark.parametrize("case", ACCEPTED)
def test_options_of_the_runtime_that_mean_what_is_done(table: PeerTable, case: str) -> None:
    """A job could not be moved without its options being taken away."""
    name, value = ACCEPTED[case]

    table.append(FIRST, options={name: value})

    assert table.rows() == FIRST


@ICEBERG.case(
    "TestSparkWriteConf.testSparkWriteConfDistributionModeWithSessionConfig",
    "TestSparkWriteConf.testExtraSnapshotMetadataReflectsSessionConfig",
    "TestSparkWriteConf.testExtraSnapshotMetadataPersistedOnWrite",
    "TestSparkWriteConf.testSparkConfOverride",
    verdict=DIFFERS("settings of the session are not seen while a write is planned: give the options", see=SETTINGS),
)
@pytest.mark.parametrize("setting", ["distribution-mode", "snapshot-property.team", "compression-codec"])
def test_settings_of_the_session_are_not_options(table: PeerTable, setting: str) -> None:
    """A setting would be taken for an option, and passed over."""
    with pytest.raises(OptionError, match=r"spark.sql.iceberg"):
        table.append(FIRST, options={f"spark.sql.iceberg.{setting}": "x"})


@ICEBERG.case(
    "TestDataSourceOptions.testNoWriteFormatOption",
    verdict=DIFFERS("Parquet alone is written: a table whose default format is another is refused", see=RUNTIME),
)
@pytest.mark.parametrize("format_name", ["avro", "orc"])
def test_table_of_another_format_is_refused(table: PeerTable, format_name: str) -> None:
    """Files of a format that the table does not ask for would be mixed in."""
    table.create(COLUMNS, write__format__default=format_name)

    with pytest.raises(UnsupportedTableError, match=r"write.format.default"):
        table.append(FIRST)


@ICEBERG.case("TestDataSourceOptions.testExtraSnapshotMetadata")
def test_properties_of_the_user_are_in_the_summary(table: PeerTable) -> None:
    """Nobody could tell which job wrote a snapshot."""
    extra = {"snapshot-property.extra-key": "someValue", "snapshot-property.another-key": "anotherValue"}

    table.append(FIRST, options=extra)

    assert {"extra-key": "someValue", "another-key": "anotherValue"}.items() <= table.summary().items()


@ICEBERG.case("TestCompressionSettings.testWriteDataWithDifferentSetting")
@pytest.mark.parametrize(
    ("options", "codec"),
    [
        ({}, "ZSTD"),
        ({"compression-codec": "gzip"}, "GZIP"),
        ({"compression-codec": "snappy"}, "SNAPPY"),
        ({"compression-codec": "zstd", "compression-level": "3"}, "ZSTD"),
        ({"table-property.write.parquet.compression-codec": "gzip"}, "GZIP"),
        ({"table-property.write.parquet.compression-codec": "gzip", "compression-codec": "zstd"}, "ZSTD"),
    ],
)
def test_files_are_compressed_as_asked(table: PeerTable, options: dict[str, str], codec: str) -> None:
    """Files would be larger than they need to be, or unreadable for an old reader."""
    table.append(FIRST, options=options)

    (file,) = table.files()
    assert pq.ParquetFile(local(file.file_path)).metadata.row_group(0).column(0).compression == codec


# Unordered rows into these layouts; the runtime needs a shuffle for them.
LAYOUTS: dict[str, dict[str, str]] = {
    "testDefaultLocalSort": {"partition-by": "c2, truncate(1, c3)"},
    "testPartitionColumnsArePrependedForRangeDistribution": {
        "partition-by": "c2, truncate(1, c3)",
        "sort-by": "c1, c3 desc",
    },
    "testSortOrderIncludesPartitionColumns": {
        "partition-by": "c2, truncate(1, c3)",
        "sort-by": "c1, c2, truncate(1, c3)",
    },
    "testHashDistribution": {"partition-by": "c2, truncate(1, c3)", "sort-by": "c1"},
    "testSortBucketTransformsWithoutExtensions": {"partition-by": "bucket(2, c1)", "sort-by": "bucket(2, c1), c2"},
}


@ICEBERG.case(*(f"TestRequiredDistributionAndOrdering.{name}" for name in LAYOUTS))
@pytest.mark.parametrize("case", LAYOUTS)
def test_unordered_rows_into_any_layout(table: PeerTable, case: str) -> None:
    """Rows in a bad order would be refused, or lost with a file that was closed too early."""
    schema = columns(c1="integer", c2="string", c3="string")
    data = [{"c1": number, "c2": "ABC"[number % 3], "c3": f"{'xyz'[number % 2]}{number}"} for number in range(30)]

    table.append(data[:15], data[15:], schema=schema, options=LAYOUTS[case], small_task_size_bytes="0")

    assert table.rows() == data
    parts = [file.partition for file in table.files()]
    assert len(parts) == 2 * len({repr(part) for part in parts})


@ICEBERG.case(
    "TestRequiredDistributionAndOrdering.testRangeDistributionWithQuotedColumnsNames",
    "TestRequiredDistributionAndOrdering.testHashDistributionWithQuotedColumnsNames",
)
def test_columns_whose_names_need_quotes(table: PeerTable) -> None:
    """A table with such names could not be written."""
    schema = columns(**{"c.1": "integer", "c`2": "string", "c 3": "string"})
    data: list[dict[str, Any]] = [{"c.1": number, "c`2": "ab"[number % 2], "c 3": f"x{number}"} for number in range(6)]
    layout = {"partition-by": "`c``2`, truncate(1, `c 3`)", "sort-by": "`c.1` desc"}

    table.append(data, schema=schema, options=layout)

    assert table.rows() == data
    assert len(table.files()) == 2


@ICEBERG.case(
    "TestRequiredDistributionAndOrdering.testDisabledDistributionAndOrdering",
    verdict=DIFFERS("rows of partitions in any order are no error: each partition gets one file a task", see=OPTIONS),
)
def test_unordered_rows_without_the_tables_order(table: PeerTable) -> None:
    """A job would fail because its rows are not clustered."""
    schema = columns(c1="integer", c2="string")
    data = [{"c1": number, "c2": "ABC"[number % 3]} for number in range(9)]

    table.append(
        data, schema=schema, partition_by="c2", use_table_distribution_and_ordering="false", fanout_enabled="false"
    )

    assert table.rows() == data
    assert [file.record_count for file in table.files()] == [3, 3, 3]


@ICEBERG.case("TestLocationProvider.testDefaultLocationProvider")
def test_files_lie_below_the_tables_data_folder(table: PeerTable) -> None:
    """Files would lie where nobody looks after them."""
    table.append(FIRST)

    (file,) = table.files()
    assert file.file_path.startswith(f"{table.load().location()}/data/")


@ICEBERG.case("TestLocationProvider.testDefaultLocationProviderWithCustomDataLocation")
def test_files_lie_where_the_table_says(table: PeerTable) -> None:
    """A folder for data with its own rules would not be used."""
    place = f"file://{table.warehouse.parent}/new_location"
    table.create(COLUMNS, write__data__path=place)

    table.append(FIRST)

    (file,) = table.files()
    assert file.file_path.rpartition("/")[0] == place


@ICEBERG.case("TestLocationProvider.testObjectStorageWithinTableLocation", "TestLocationProvider.testHashInjection")
def test_object_storage_gets_hashed_folders(table: PeerTable) -> None:
    """One prefix would get all requests of a store."""
    table.create(COLUMNS, write__object_storage__enabled="true")

    table.append(FIRST)

    (file,) = table.files()
    parts = file.file_path.removeprefix(f"{table.load().location()}/").split("/")
    assert parts[0] == "data"
    assert [len(part) for part in parts[1:5]] == [4, 4, 4, 8]
    assert set("".join(parts[1:5])) <= {"0", "1"}
    assert len(parts) == 6


@ICEBERG.case("TestLocationProvider.testEncodedFieldNameInPartitionPath")
def test_partition_in_a_path_is_encoded(table: PeerTable) -> None:
    """Names with signs of their own would lead elsewhere."""
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "data#1", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "data#1"))
    table.create(schema, spec, write__object_storage__enabled="true")

    table.append([{"id": 1, "data#1": "val#1"}], schema=columns(**{"id": "integer", "data#1": "string"}))

    (file,) = table.files()
    assert file.file_path.split("/")[-2] == f"{quote('data#1')}={quote('val#1')}"


@ICEBERG.case("TestLocationProvider.testExcludePartitionInPath")
def test_partition_is_left_out_of_paths_on_request(table: PeerTable) -> None:
    """Paths would tell the values of a partition."""
    table.append(
        FIRST,
        partition_by="data",
        options={
            "table-property.write.object-storage.enabled": "true",
            "table-property.write.object-storage.partitioned-paths": "false",
        },
    )

    assert all("data=" not in file.file_path for file in table.files())
    assert table.rows() == FIRST


@ICEBERG.case(
    "TestLocationProvider.testDynamicallyLoadedLocationProviderNotFound",
    "TestLocationProvider.testNoArgDynamicallyLoadedLocationProvider",
    "TestLocationProvider.testTwoArgDynamicallyLoadedLocationProvider",
    verdict=DIFFERS(
        "a table cannot name a class that is loaded; Java's are refused by name",
        see="threat-model.md#a-tables-properties",
    ),
)
def test_location_provider_of_java_is_refused(table: PeerTable) -> None:
    """Files would go to another place than the one that the class says."""
    table.create(COLUMNS, write__location_provider__impl="com.example.Provider")

    with pytest.raises(UnsupportedTableError, match=r"write.location-provider.impl"):
        table.append(FIRST)


@ICEBERG.case("TestFastAppend.testIncreaseNumRetries", "TestFastAppend.testRefreshBeforeCommit")
def test_lost_races_are_tried_again(faulty_sink: Sink, faulty_catalog: FaultyCatalog, waits: list[float]) -> None:
    """A busy table would refuse every second append."""
    faulty_sink.append(1)
    faulty_catalog.fail_next(3, refusal)

    faulty_sink.append(2)

    assert faulty_sink.rows() == rows(1, 2)
    assert len(waits) == 3


@ICEBERG.case("TestFastAppend.testIncludedPartitionSummaries")
def test_summary_tells_of_partitions_up_to_the_limit(table: PeerTable) -> None:
    """Incremental jobs would not know which partitions have changed."""
    table.append(simple((1, "a")), partition_by="data", options={"table-property.write.summary.partition-limit": "1"})

    summary = table.summary()
    assert summary["partition-summaries-included"] == "true"
    assert summary["changed-partition-count"] == "1"
    assert "added-records=1" in summary["partitions.data=a"]


@ICEBERG.case("TestFastAppend.testIncludedPartitionSummaryLimit")
def test_summary_beyond_the_limit_only_counts(table: PeerTable) -> None:
    """Summaries would grow with each partition."""
    table.append(FIRST, partition_by="data", options={"table-property.write.summary.partition-limit": "1"})

    summary = table.summary()
    assert summary["changed-partition-count"] == "2"
    assert not any(key.startswith("partition") for key in summary)


@ICEBERG.case("TestFastAppend.testDefaultPartitionSummaries", "TestMergeAppend.testDefaultPartitionSummaries")
def test_summary_counts_partitions_by_default(table: PeerTable) -> None:
    """Summaries would grow with each partition, unasked."""
    table.append(FIRST, partition_by="data")

    summary = table.summary()
    assert summary["changed-partition-count"] == "2"
    assert not any(key.startswith("partition") for key in summary)


@ICEBERG.case("TestSnapshotSummary.testFileSizeSummary")
def test_summary_counts_files_rows_and_bytes(table: PeerTable) -> None:
    """Totals would drift from what is there."""
    table.append(FIRST, partition_by="data")
    table.overwrite(simple((9, "1")), overwrite_mode="dynamic")

    summary, files = table.summary(), table.files()
    assert summary["total-files-size"] == str(sum(file.file_size_in_bytes for file in files))
    assert summary["total-data-files"] == str(len(files))
    assert summary["total-records"] == "2"
    assert (summary["added-records"], summary["deleted-records"]) == ("1", "1")


def staged(table: PeerTable) -> None:
    """Write a table, and more rows to its branch `audit`."""
    table.append(FIRST)
    table.append(SECOND, branch="audit", create_branch="true")


@ICEBERG.case(
    "TestSnapshotManager.testFastForward", "TestFastForwardBranchProcedure.testFastForwardBranchUsingPositionalArgs"
)
def test_branch_is_published(table: PeerTable) -> None:
    """Audited rows could not be shown in one step."""
    staged(table)

    iceberg_ds.publish("db.t", "audit", options={"warehouse": str(table.warehouse)})

    assert table.rows() == FIRST + SECOND


@ICEBERG.case(
    "TestSnapshotManager.testFastForwardWhenFromIsNotAncestorFails",
    "TestFastForwardBranchProcedure.testFastForwardWhenTargetIsNotAncestorFails",
)
def test_branch_that_has_diverged_is_not_published(table: PeerTable) -> None:
    """Rows that came to `main` meanwhile would be lost."""
    staged(table)
    table.append(simple((9, "9")))

    with pytest.raises(CommitConflictError, match=r"main"):
        iceberg_ds.publish("db.t", "audit", options={"warehouse": str(table.warehouse)})

    assert table.rows() == [*FIRST, *simple((9, "9"))]


@ICEBERG.case("TestSnapshotManager.testFastForwardBranchNonExistingToFails")
def test_branch_that_is_not_there_is_not_published(table: PeerTable) -> None:
    """A misspelt branch would count as published."""
    table.append(FIRST)

    with pytest.raises(CommitConflictError, match=r"'nope'"):
        iceberg_ds.publish("db.t", "nope", options={"warehouse": str(table.warehouse)})
