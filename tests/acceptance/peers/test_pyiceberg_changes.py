"""PyIceberg: its suites of partitioned writes, deletes and partial overwrites, upserts and races."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from typing import Any

import pytest
from pyiceberg import types as iceberg
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import NestedField
from support.catalogs.faulty_catalog import FaultyCatalog
from support.peer.cases import DIFFERS, Peer
from support.peer.tables import PeerTable, columns
from support.peer.writes import Written, check, count, operations, put, replace, tasks, upsert
from support.tables.sink import Sink, rows

from iceberg_ds.errors import (
    CommitConflictError,
    OptionError,
    RefusedRowsError,
    SchemaMismatchError,
    UnsupportedTableError,
)
from iceberg_ds.planning.plan_write import WriteMode

PARTITIONED = Peer(name="apache/iceberg-python", suites="tests/integration/test_writes/test_partitioned_writes.py")
DELETES = Peer(name="apache/iceberg-python", suites="tests/integration/test_deletes.py")
RACES = Peer(name="apache/iceberg-python", suites="test_optimistic_concurrency.py and tests/table/test_commit_retry.py")
UPSERTS = Peer(name="apache/iceberg-python", suites="tests/table/test_upsert.py")

PAIR = columns(number_partitioned="integer", number="integer")
BY_NUMBER = {"partition_by": "number_partitioned"}

TYPES: dict[str, tuple[str, Any, Any]] = {
    "boolean": ("boolean", False, True),
    "integer": ("integer", 1, 9),
    "long": ("long", 1, 9),
    "string": ("string", "a", "z" * 22),
    "date": ("date", date(2023, 1, 1), date(2023, 3, 1)),
    "timestamp": (
        "timestamp_ntz",
        datetime.fromisoformat("2023-01-01T19:25:00"),
        datetime.fromisoformat("2023-03-01T19:25:00"),
    ),
    "instant": (
        "timestamp",
        datetime(2023, 1, 1, 19, 25, tzinfo=timezone.utc),
        datetime(2023, 3, 1, 19, 25, tzinfo=timezone.utc),
    ),
    "binary": ("binary", b"\x01", b"\x12"),
}
EACH_TYPE = pytest.mark.parametrize("name", list(TYPES))
VERSIONS = pytest.mark.parametrize("version", ["1", "2"])


@PARTITIONED.case(
    "test_query_filter_null_partitioned",
    "test_query_filter_appended_null_partitioned",
    "test_data_files_with_table_partitioned_with_null",
)
@VERSIONS
@EACH_TYPE
def test_identity_partitions_with_null(table: PeerTable, name: str, version: str) -> None:
    """Rows without a value would be lost, or filed under one."""
    of, first, last = TYPES[name]
    data = [(1, first), (2, None), (3, last)]
    for _ in range(2):
        put(table, columns(id="integer", part=of), data, partition_by="part", format_version=version)

    check(table, *data, *data)
    assert len(table.files()) == 6
    assert len(table.rows(row_filter="part is null")) == 2


@PARTITIONED.case("test_query_filter_only_nulls_partitioned")
@EACH_TYPE
def test_partitions_of_nulls_alone(table: PeerTable, name: str) -> None:
    """A partition column that has no value yet would stop a pipeline."""
    put(table, columns(id="integer", part=TYPES[name][0]), [(1, None), (2, None)], partition_by="part")

    check(table, (1, None), (2, None))
    assert [file.partition[0] for file in table.files()] == [None]


@PARTITIONED.case("test_query_filter_without_data_partitioned")
def test_partitioned_table_without_rows(table: PeerTable) -> None:
    """An empty batch would leave a table without its partitioning."""
    put(table, PAIR, [], **BY_NUMBER)

    check(table)
    assert [field.name for field in table.load().spec().fields] == ["number_partitioned"]


@PARTITIONED.case("test_query_filter_dynamic_partition_overwrite_null_partitioned")
@EACH_TYPE
def test_dynamic_overwrite_of_the_null_partition(table: PeerTable, name: str) -> None:
    """Old rows without a value would stay beside the new ones, or other partitions go with them."""
    of, first, last = TYPES[name]
    schema = columns(id="integer", part=of)
    put(table, schema, [(1, first), (2, None), (3, last)], partition_by="part")
    replace(table, schema, [(4, None), (5, last)], overwrite_mode="dynamic")

    check(table, (1, first), (4, None), (5, last))


@PARTITIONED.case("test_query_filter_v1_v2_append_null")
def test_partitioned_table_whose_format_was_upgraded(table: PeerTable) -> None:
    """Partitions of the older format would not be read any more."""
    put(table, PAIR, [(1, 1), (None, 2)], format_version="1", **BY_NUMBER)
    with table.load().transaction() as transaction:
        transaction.upgrade_table_version(2)
    put(table, PAIR, [(1, 3), (None, 4)])

    check(table, (1, 1), (None, 2), (1, 3), (None, 4))


@PARTITIONED.case("test_object_storage_location_provider_excludes_partition_path")
@pytest.mark.parametrize("is_told", ["true", "false"])
def test_partitions_in_paths_of_an_object_store_layout(table: PeerTable, is_told: str) -> None:
    """Paths would tell of partitions, or not, against what the table says."""
    layout = {
        "table-property.write.object-storage.enabled": "true",
        "table-property.write.object-storage.partitioned-paths": is_told,
    }
    put(table, PAIR, [(1, 1)], **BY_NUMBER, **layout)

    check(table, (1, 1))
    (file,) = table.files()
    assert ("/number_partitioned=1/" in file.file_path) == (is_told == "true")


@PARTITIONED.case(
    "test_dynamic_partition_overwrite_non_identity_transform",
    verdict=DIFFERS(
        "works with every transform: PyIceberg refuses all but `identity`",
        see="coming-from/iceberg-runtime.md",
    ),
)
@pytest.mark.parametrize("transform", ["bucket(1, number)", "truncate(100, number)"])
def test_dynamic_overwrite_of_other_partitions_than_values(table: PeerTable, transform: str) -> None:
    """Rows of a partition that the data has would stay."""
    put(table, PAIR, [(1, 1), (2, 2)], partition_by=transform)
    replace(table, PAIR, [(3, 3)], overwrite_mode="dynamic")

    check(table, (3, 3))


@PARTITIONED.case(
    "test_dynamic_partition_overwrite_invalid_on_unpartitioned_table",
    verdict=DIFFERS(
        "the whole table is one partition, and replaced, as Iceberg's Spark runtime does it",
        see="coming-from/iceberg-runtime.md",
    ),
)
def test_dynamic_overwrite_without_partitions(table: PeerTable) -> None:
    """Old rows would stay beside those that replace them."""
    put(table, PAIR, [(1, 1), (2, 2)])
    replace(table, PAIR, [(3, 3)], overwrite_mode="dynamic")

    check(table, (3, 3))


@PARTITIONED.case(
    "test_dynamic_partition_overwrite_unpartitioned_evolve_to_identity_transform",
    "test_dynamic_partition_overwrite_evolve_partition",
    verdict=DIFFERS(
        "refused while the table has files of an older spec, whose partitions cannot be told",
        see="limits.md",
    ),
)
@pytest.mark.parametrize("before", [{}, {"partition_by": "number"}])
def test_dynamic_overwrite_beside_files_of_an_older_spec(table: PeerTable, before: dict[str, str]) -> None:
    """Rows would be replaced that are of other partitions, or stay though they are of these."""
    put(table, PAIR, [(1, 1), (2, 2)], **before)
    put(table, PAIR, [(1, 3)], evolve_partitioning="true", **BY_NUMBER)
    with pytest.raises(UnsupportedTableError, match="partition spec 0"):
        replace(table, PAIR, [(1, 4)], overwrite_mode="dynamic")

    check(table, (1, 1), (2, 2), (1, 3))


@PARTITIONED.case("test_dynamic_partition_overwrite_rename_column")
def test_dynamic_overwrite_after_the_column_was_renamed(table: PeerTable) -> None:
    """The partition would not be found under its new name."""
    put(table, PAIR, [(1, 1), (2, 2)], **BY_NUMBER)
    with table.load().update_schema() as update:
        update.rename_column("number_partitioned", "place")
    replace(table, columns(place="integer", number="integer"), [(1, 3)], overwrite_mode="dynamic")

    check(table, (2, 2), (1, 3))


@PARTITIONED.case("test_summaries_with_null")
def test_summaries_of_partitioned_writes(table: PeerTable) -> None:
    """Counts of files and partitions would be wrong."""
    data = [(1, 1), (None, 2), (3, 3)]
    put(table, PAIR, data, **BY_NUMBER)
    put(table, PAIR, data)
    appended = table.summary()
    replace(table, PAIR, data[:2], overwrite_mode="dynamic")
    replaced = table.summary()

    check(table, (1, 1), (None, 2), (3, 3), (3, 3))
    assert (appended["changed-partition-count"], appended["added-data-files"]) == ("3", "3")
    assert (appended["total-data-files"], appended["total-records"]) == ("6", "6")
    assert (replaced["deleted-data-files"], replaced["deleted-records"]) == ("4", "4")
    assert (replaced["changed-partition-count"], replaced["total-records"]) == ("2", "4")


@PARTITIONED.case("test_invalid_arguments")
def test_partitioned_write_of_other_columns(table: PeerTable) -> None:
    """Rows without their partition column would be filed under null."""
    put(table, PAIR, [(1, 1)], **BY_NUMBER)
    with pytest.raises(SchemaMismatchError, match="place"):
        put(table, columns(place="integer", number="integer"), [(1, 1)])

    check(table, (1, 1))


@PARTITIONED.case(
    "test_truncate_transform",
    "test_bucket_transform",
    "test_identity_and_bucket_transform_spec",
    "test_unsupported_transform",
)
@pytest.mark.parametrize(
    "by",
    ["truncate(3, number)", "truncate(1, text)", "bucket(4, number)", "bucket(4, text)", "text, bucket(2, number)"],
)
def test_partitions_of_transforms(table: PeerTable, by: str) -> None:
    """Rows would be filed under other partitions than readers look in."""
    schema = columns(number="integer", text="string")
    data = [(1, "associate"), (2, "arrest"), (5, "alcohol"), (None, None), (-7, "")]
    put(table, schema, data, partition_by=by)

    check(table, *data)
    for number, text in data:
        asked = f"number == {number} and text == '{text}'" if number is not None else "number is null and text is null"
        assert len(table.rows(row_filter=asked)) == 1


@PARTITIONED.case("test_append_ymd_transform_partitioned", "test_append_transform_partition_verify_partitions_count")
@pytest.mark.parametrize("name", ["date", "timestamp", "instant"])
@pytest.mark.parametrize(("transform", "parts"), [("year", 2), ("month", 3), ("day", 3), ("hour", 4)])
def test_partitions_of_times(table: PeerTable, name: str, transform: str, parts: int) -> None:
    """Rows would be filed under another day than theirs."""
    zone = timezone.utc if name == "instant" else None
    texts = ["2022-12-31T23:00:00", "2023-01-01T00:00:00", "2023-01-01T11:55:59"]
    times = [datetime.fromisoformat(text).replace(tzinfo=zone) for text in texts]
    values = [time.date() for time in times] if name == "date" else times
    schema = columns(id="integer", at=TYPES[name][0])
    if (name, transform) == ("date", "hour"):
        with pytest.raises(OptionError, match="hour"):
            put(table, schema, [(1, values[0])], partition_by="hour(at)")
        return

    data = [(number, value) for number, value in enumerate([*values, None])]
    put(table, schema, data, partition_by=f"{transform}(at)")

    check(table, *data)
    assert len({str(file.partition) for file in table.files()}) == {2: 3, 3: 3, 4: 4}[parts]


@PARTITIONED.case("test_append_multiple_partitions")
def test_partitions_of_two_columns(table: PeerTable) -> None:
    """Rows of one pair of values would be filed with those of another."""
    schema = columns(text="string", flag="boolean")
    data = [(text, flag) for text in ("a", "b", None) for flag in (True, False, None)]
    put(table, schema, data, data, partition_by="text, flag")

    check(table, *data, *data)
    assert len({str(file.partition) for file in table.files()}) == 9


@PARTITIONED.case(
    "test_stage_only_dynamic_partition_overwrite_files",
    verdict=DIFFERS(
        "snapshots that belong to no branch are not made: rows are staged on a branch and published",
        see="coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta",
    ),
)
def test_dynamic_overwrite_is_staged_on_a_branch(table: PeerTable) -> None:
    """Readers of `main` would see what is not published."""
    put(table, PAIR, [(1, 1), (2, 2)], **BY_NUMBER)
    replace(table, PAIR, [(1, 3)], overwrite_mode="dynamic", branch="staged", create_branch="true")

    check(table, (1, 1), (2, 2))
    check(table, (2, 2), (1, 3), branch="staged")


@DELETES.case("test_partitioned_table_delete_full_file")
@VERSIONS
def test_range_of_whole_files_is_deleted_unread(table: PeerTable, version: str) -> None:
    """Files of other partitions would go, too."""
    put(table, PAIR, [(10, 20), (10, 30)], format_version=version, **BY_NUMBER)
    put(table, PAIR, [(11, 20), (11, 30)])
    replace(table, PAIR, [], replace_where="number_partitioned = 10")

    check(table, (11, 20), (11, 30))
    assert "added-data-files" not in table.summary()


@DELETES.case("test_partitioned_table_rewrite", "test_rewrite_partitioned_table_with_null")
@VERSIONS
@pytest.mark.parametrize("kept", [30, None])
def test_range_of_parts_of_files(table: PeerTable, version: str, kept: int | None) -> None:
    """Rows beside the range, those with null among them, would go."""
    put(table, PAIR, [(10, 20), (10, 30)], format_version=version, **BY_NUMBER)
    put(table, PAIR, [(11, 20), (11, kept)])
    replace(table, PAIR, [], replace_where="number = 20")

    check(table, (10, 30), (11, kept))
    assert operations(table) == ["append", "append", "overwrite"]


@DELETES.case("test_partitioned_table_no_match", "test_delete_no_match", "test_delete_on_empty_table")
@pytest.mark.parametrize("data", [[(10, 20), (10, 30)], []])
def test_range_without_any_row(table: PeerTable, data: list[tuple[int, int]]) -> None:
    """Rows outside of the range would go."""
    put(table, PAIR, data, **BY_NUMBER)
    replace(table, PAIR, [], replace_where="number_partitioned = 22")

    check(table, *data)
    assert operations(table) == ["append"] * bool(data)


@DELETES.case(
    "test_delete_partitioned_table_positional_deletes", "test_partitioned_table_positional_deletes_sequence_number"
)
def test_rows_that_are_marked_stay_deleted_in_rewritten_files(table: PeerTable) -> None:
    """A row that was deleted by its position would come back."""
    keyed = {"keys": "number", "delete_when": "number_partitioned = -1"}
    data = [(10, 20), (10, 30), (10, 40), (11, 50)]
    put(table, PAIR, data)
    upsert(table, PAIR, [(-1, 30)], **keyed)
    assert count(table, DataFileContent.POSITION_DELETES) == 1
    replace(table, PAIR, [], replace_where="number = 40")

    check(table, (10, 20), (11, 50))


@DELETES.case("test_overwrite_partitioned_table", "test_delete_overwrite")
@VERSIONS
def test_range_is_replaced_by_rows(table: PeerTable, version: str) -> None:
    """Old rows of the range would stay, or rows beside it go."""
    put(table, PAIR, [(10, 1), (10, 2)], format_version=version, **BY_NUMBER)
    put(table, PAIR, [(11, 3)])
    replace(table, PAIR, [(10, 4), (10, 5)], replace_where="number_partitioned = 10")
    with pytest.raises(RefusedRowsError, match="1 row"):
        replace(table, PAIR, [(12, 6)], replace_where="number_partitioned = 10")

    check(table, (11, 3), (10, 4), (10, 5))


@DELETES.case("test_delete_truncate")
def test_overwrite_without_rows_empties_the_table(table: PeerTable) -> None:
    """Rows of yesterday would stay in a table that is empty today."""
    put(table, PAIR, [(1, 1)])
    replace(table, PAIR, [])

    check(table)
    assert table.summary()["deleted-records"] == "1"


@DELETES.case("test_delete_overwrite_table_with_null", "test_delete_overwrite_table_with_nan")
@pytest.mark.parametrize(("where", "kept"), [("f = 1.0D", [None]), ("f IS NULL", [1.0]), ("f <> 1.0D", [1.0, None])])
def test_nulls_and_nans_beside_a_range(table: PeerTable, where: str, kept: list[float | None]) -> None:
    """A comparison would take rows without a value along."""
    schema = columns(f="double")
    put(table, schema, [(1.0,), (None,), (float("nan"),)])
    replace(table, schema, [], replace_where=where)

    values = [row["f"] for row in table.rows()]
    assert sum(value is not None and math.isnan(value) for value in values) == (where != "f <> 1.0D")
    assert [value for value in values if value is None or not math.isnan(value)] == sorted(kept, key=bool)


@DELETES.case(
    "test_delete_after_partition_evolution_from_unpartitioned", "test_delete_after_partition_evolution_from_partitioned"
)
@pytest.mark.parametrize("before", [{}, {"partition_by": "bucket(2, number)"}])
def test_range_over_files_of_two_specs(table: PeerTable, before: dict[str, str]) -> None:
    """Rows of the range would stay in files of the older spec."""
    put(table, PAIR, [(10, 1), (11, 2)], **before)
    put(table, PAIR, [(10, 3), (11, 4)], evolve_partitioning="true", **BY_NUMBER)
    replace(table, PAIR, [], replace_where="number_partitioned = 10")

    check(table, (11, 2), (11, 4))


@DELETES.case(
    "test_overwrite_with_filter_case_insensitive",
    "test_delete_with_filter_case_insensitive",
    "test_overwrite_with_filter_case_sensitive",
    "test_delete_with_filter_case_sensitive",
)
def test_case_of_columns_in_predicates_counts_if_asked(table: PeerTable) -> None:
    """A predicate would miss its column, or find another one."""
    put(table, PAIR, [(10, 1), (11, 2)])
    with pytest.raises(OptionError, match="NUMBER"):
        replace(table, PAIR, [(10, 3)], replace_where="NUMBER_partitioned = 10", case_sensitive="true")
    replace(table, PAIR, [(10, 4)], replace_where="NUMBER_partitioned = 10", case_sensitive="false")

    check(table, (11, 2), (10, 4))


@DELETES.case(
    "test_overwrite_with_filter_case_sensitive_by_default",
    "test_delete_with_filter_case_sensitive_by_default",
    verdict=DIFFERS("a name that differs in case alone is found by default, as in Spark", see="options.md"),
)
def test_case_of_columns_in_predicates_by_default(table: PeerTable) -> None:
    """A predicate that Spark takes would be refused."""
    put(table, PAIR, [(10, 1), (11, 2)])
    replace(table, PAIR, [], replace_where="Number_Partitioned = 10")

    check(table, (11, 2))


@DELETES.case("test_manifest_entry_after_deletes", "test_manifest_entry_snapshot_id_after_partial_deletes")
def test_entries_of_deleted_files_name_the_snapshot(table: PeerTable) -> None:
    """Incremental readers would not see what a delete took away."""
    put(table, PAIR, [(10, 1)], [(10, 2)])
    replace(table, PAIR, [], replace_where="number = 1")

    check(table, (10, 2))
    last, loaded = table.last(), table.load()
    entries = [
        (entry.status.name, entry.snapshot_id)
        for manifest in last.manifests(loaded.io)
        for entry in manifest.fetch_manifest_entry(loaded.io, discard_deleted=False)
    ]
    assert ("DELETED", last.snapshot_id) in entries
    assert [status for status, _ in entries].count("DELETED") == 1


def two_writes(table: PeerTable, first: str, second: str) -> tuple[Written, Written]:
    """Plan two writes of the same table before either is committed."""
    put(table, PAIR, [(1, 1), (2, 2)], **BY_NUMBER)

    def begin(what: str) -> Written:
        if what == "append":
            return tasks(table, PAIR, [(1, 3)])
        return tasks(table, PAIR, [], mode=WriteMode.OVERWRITE, replace_where=what)

    return begin(first), begin(second)


@RACES.case("test_conflict_append_append")
def test_two_appends_at_once(table: PeerTable) -> None:
    """One of two appends would be lost."""
    for write in two_writes(table, "append", "append"):
        write.commit()

    check(table, (1, 1), (2, 2), (1, 3), (1, 3))


@RACES.case("test_conflict_delete_append", "test_concurrent_delete_append_retries_successfully")
def test_append_that_lands_after_a_delete(table: PeerTable) -> None:
    """The delete would take the new rows along, or bring the old ones back."""
    for write in two_writes(table, "number_partitioned = 1", "append"):
        write.commit()

    check(table, (2, 2), (1, 3))


@RACES.case("test_conflict_append_delete", "test_concurrent_append_delete_raises_validation_exception")
def test_delete_that_lands_after_an_append(table: PeerTable) -> None:
    """Rows that nobody had seen would be deleted."""
    append, delete = two_writes(table, "append", "number_partitioned = 1")
    append.commit()
    with pytest.raises(CommitConflictError, match="nothing was committed"):
        delete.commit()

    check(table, (1, 1), (2, 2), (1, 3))


@RACES.case("test_conflict_delete_delete", "test_concurrent_delete_delete_raises_validation_exception")
def test_two_deletes_of_the_same_rows(table: PeerTable) -> None:
    """Rows would come back, or the totals count them twice."""
    first, second = two_writes(table, "number_partitioned = 1", "number_partitioned = 1")
    first.commit()
    with pytest.raises(CommitConflictError, match="removed by another writer"):
        second.commit()

    check(table, (2, 2))
    assert table.summary()["total-records"] == "1"


@RACES.case(
    "test_concurrent_deletes_on_different_partitions_succeed",
    "test_concurrent_partial_deletes_on_different_partitions_succeed",
)
@pytest.mark.parametrize("rest", ["", " AND number > 0"])
def test_two_deletes_of_other_partitions(table: PeerTable, rest: str) -> None:
    """The later delete would bring back what the first one took, or be refused."""
    for write in two_writes(table, f"number_partitioned = 1{rest}", f"number_partitioned = 2{rest}"):
        write.commit()

    check(table)


@RACES.case("test_concurrent_overwrite_overwrite_raises_validation_exception")
def test_two_overwrites_of_the_same_range(table: PeerTable) -> None:
    """Both sets of rows would be in the table."""
    put(table, PAIR, [(1, 1), (2, 2)])
    first, second = (
        tasks(table, PAIR, [(1, number)], mode=WriteMode.OVERWRITE, replace_where="number_partitioned = 1")
        for number in (3, 4)
    )
    first.commit()
    with pytest.raises(CommitConflictError, match="into the replaced range"):
        second.commit()

    check(table, (2, 2), (1, 3))


@RACES.case("test_concurrent_overwrite_append_retries_successfully")
def test_append_that_lands_after_an_overwrite(table: PeerTable) -> None:
    """The append would bring back the rows that were replaced, or be lost."""
    put(table, PAIR, [(1, 1)])
    append = tasks(table, PAIR, [(2, 2)])
    replace(table, PAIR, [(3, 3)])
    append.commit()

    check(table, (3, 3), (2, 2))


@RACES.case(
    "test_snapshot_isolation_allows_concurrent_append_delete",
    "test_snapshot_isolation_delete_does_not_remove_rows_it_never_saw",
)
def test_snapshot_isolation_keeps_rows_that_came_meanwhile(table: PeerTable) -> None:
    """Rows that nobody had seen would be deleted."""
    put(table, PAIR, [(1, 1), (2, 2)], **BY_NUMBER)
    delete = tasks(
        table, PAIR, [], mode=WriteMode.OVERWRITE, replace_where="number_partitioned = 1", isolation_level="snapshot"
    )
    put(table, PAIR, [(1, 3)])
    delete.commit()

    check(table, (2, 2), (1, 3))


@RACES.case(
    "test_writer_that_started_on_an_empty_table_still_validates",
    "test_delete_that_matched_nothing_at_staging_still_validates",
)
@pytest.mark.parametrize("before", [[], [(2, 2)]])
def test_delete_of_nothing_sees_rows_that_came_meanwhile(table: PeerTable, before: list[tuple[int, int]]) -> None:
    """A delete that promised an empty range would leave rows in it in silence."""
    put(table, PAIR, before)
    delete = tasks(table, PAIR, [], mode=WriteMode.OVERWRITE, replace_where="number_partitioned = 1")
    put(table, PAIR, [(1, 3)])
    with pytest.raises(CommitConflictError):
        delete.commit()

    check(table, *before, (1, 3))


@RACES.case("test_delete_that_matched_nothing_without_concurrent_commit_succeeds")
def test_delete_of_nothing_alone(table: PeerTable) -> None:
    """A delete that finds nothing would fail."""
    put(table, PAIR, [(2, 2)])
    delete = tasks(table, PAIR, [], mode=WriteMode.OVERWRITE, replace_where="number_partitioned = 1")
    delete.commit()

    check(table, (2, 2))


@RACES.case("test_commit_retry_on_non_main_branch", "test_commit_retry_delete_on_non_main_branch")
def test_races_on_a_branch(table: PeerTable) -> None:
    """A lost race would put the rows of a branch on `main`."""
    put(table, PAIR, [(1, 1), (2, 2)])
    put(table, PAIR, [(3, 3)], branch="side", create_branch="true")
    append = tasks(table, PAIR, [(4, 4)], branch="side")
    delete = tasks(table, PAIR, [], mode=WriteMode.OVERWRITE, replace_where="number = 1", branch="side")
    put(table, PAIR, [(5, 5)])
    delete.commit()
    append.commit()

    check(table, (1, 1), (2, 2), (5, 5))
    check(table, (2, 2), (3, 3), (4, 4), branch="side")


@RACES.case("test_commit_retry_on_commit_failed", "test_refresh_for_retry_resets_producer_state")
def test_commit_that_is_refused_twice(faulty_sink: Sink, faulty_catalog: FaultyCatalog, waits: list[float]) -> None:
    """A lost race would lose the rows."""
    faulty_sink.append(1)
    faulty_catalog.fail_next(2, lambda: CommitFailedException("race"))
    faulty_sink.append(2)

    assert faulty_sink.ids() == [1, 2]
    assert waits


@RACES.case("test_retry_exhaustion_raises_commit_failed")
def test_commit_that_is_refused_for_ever(faulty_sink: Sink, faulty_catalog: FaultyCatalog, waits: list[float]) -> None:
    """A commit would be tried for ever, or be believed to have landed."""
    properties = {"commit.retry.num-retries": "2"}
    faulty_sink.commit(faulty_sink.write(rows(1), plan=faulty_sink.plan(table_properties=properties)))
    faulty_catalog.fail_next(9, lambda: CommitFailedException("race"))
    with pytest.raises(CommitConflictError):
        faulty_sink.append(2)

    faulty_catalog.forget()
    assert waits
    assert faulty_sink.ids() == [1]
    assert faulty_catalog.commits == 4  # one of the first append, then one and two retries


KEYED = columns(order_id="integer", order_date="date", order_type="string")
DAY = date(2021, 1, 1)


def orders(first: int, last: int, kind: str) -> list[tuple[int, date, str]]:
    """Return orders with these numbers."""
    return [(number, DAY, kind) for number in range(first, last + 1)]


@UPSERTS.case("test_merge_rows")
@pytest.mark.parametrize(("sent", "there"), [((1, 2), (2, 3)), ((501, 1500), (1, 1000))])
def test_rows_are_updated_and_inserted(table: PeerTable, sent: tuple[int, int], there: tuple[int, int]) -> None:
    """Old rows would stay beside the new ones, or rows of other keys go."""
    put(table, KEYED, orders(*there, "A"))
    result = upsert(table, KEYED, orders(*sent, "B"), keys="order_id")

    kept = [order for order in orders(*there, "A") if not sent[0] <= order[0] <= sent[1]]
    check(table, *kept, *orders(*sent, "B"))
    assert result.rows == sent[1] - sent[0] + 1


@UPSERTS.case(
    "test_merge_scenario_skip_upd_row",
    verdict=DIFFERS("rows that are equal are written again: only keys are compared", see="keys/meaning.md"),
)
def test_row_that_is_the_same_is_written_again(table: PeerTable) -> None:
    """A row that did not change would be lost or doubled."""
    put(table, KEYED, orders(1, 2, "A"))
    result = upsert(table, KEYED, [(1, DAY, "A"), (2, DAY, "B"), (3, DAY, "A")], keys="order_id")

    check(table, (1, DAY, "A"), (2, DAY, "B"), (3, DAY, "A"))
    assert result.rows == 3


@UPSERTS.case(
    "test_merge_scenario_date_as_key", "test_merge_scenario_string_as_key", "test_merge_scenario_composite_key"
)
@pytest.mark.parametrize("keys", ["order_date", "order_type", "order_id, order_date"])
def test_keys_of_other_types(table: PeerTable, keys: str) -> None:
    """Old rows would not be found by such a key."""
    days = [date(2021, 1, number) for number in (1, 2, 3)]
    schema = columns(order_id="integer", order_date="date", order_type="string", value="integer")
    put(table, schema, [(1, days[0], "abc", 1), (2, days[1], "def", 1)])
    upsert(table, schema, [(2, days[1], "def", 2), (3, days[2], "ghi", 2)], keys=keys)

    check(table, (1, days[0], "abc", 1), (2, days[1], "def", 2), (3, days[2], "ghi", 2))


@UPSERTS.case("test_merge_source_dups", "test_transaction")
@pytest.mark.parametrize("parts", [1, 2])
def test_key_that_is_sent_twice(table: PeerTable, parts: int) -> None:
    """One of two rows would win by chance."""
    put(table, KEYED, orders(1, 10, "A"))
    sent = orders(5, 15, "B")
    twice = [[*sent, sent[0]]] if parts == 1 else [sent, sent[:1]]
    with pytest.raises(RefusedRowsError, match="order_id"):
        upsert(table, KEYED, *twice, keys="order_id")

    check(table, *orders(1, 10, "A"))


@UPSERTS.case("test_key_cols_misaligned")
def test_key_that_the_rows_lack(table: PeerTable) -> None:
    """Rows would be written without their key."""
    put(table, KEYED, orders(1, 1, "A"))
    with pytest.raises((OptionError, SchemaMismatchError), match="order_id"):
        upsert(
            table,
            columns(item_id="integer", order_date="date", order_type="string"),
            orders(1, 1, "B"),
            keys="order_id",
        )

    check(table, *orders(1, 1, "A"))


@UPSERTS.case("test_upsert_with_identifier_fields", "test_upsert_into_empty_table", "test_upsert_snapshot_properties")
@pytest.mark.parametrize("before", [[], [("Amsterdam", 921402), ("Drachten", 45019)]])
def test_keys_are_the_identifier_fields(table: PeerTable, before: list[tuple[str, int]]) -> None:
    """An upsert would use other keys than the table has, or fail where there is nothing to replace."""
    city = columns(city="string", population="integer")
    fields = [
        NestedField(1, "city", iceberg.StringType(), required=True),
        NestedField(2, "population", iceberg.IntegerType(), required=True),
    ]
    table.create(Schema(*fields, identifier_field_ids=[1]))
    put(table, city, before)
    upsert(table, city, [("Drachten", 45505), ("Berlin", 3432000)], keys="city", **{"snapshot-property.test": "value"})

    check(table, *(row for row in before if row[0] != "Drachten"), ("Drachten", 45505), ("Berlin", 3432000))
    assert table.summary()["test"] == "value"
    with pytest.raises(OptionError, match="city"):
        upsert(table, city, [("Paris", 1)], keys="population")


@UPSERTS.case(
    "test_upsert_with_duplicate_rows_in_table",
    verdict=DIFFERS("all old rows of the key are replaced by the new one", see="keys/meaning.md"),
)
def test_key_that_the_table_has_twice(table: PeerTable) -> None:
    """A key that was doubled once could never be put right."""
    put(table, KEYED, [(1, DAY, "A"), (1, DAY, "A"), (2, DAY, "A")])
    upsert(table, KEYED, [(1, DAY, "B")], keys="order_id")

    check(table, (1, DAY, "B"), (2, DAY, "A"))


@UPSERTS.case("test_upsert_without_identifier_fields")
def test_upsert_without_keys(table: PeerTable) -> None:
    """Rows would be appended though the old ones are there."""
    put(table, KEYED, orders(1, 1, "A"))
    with pytest.raises(OptionError, match="keys"):
        upsert(table, KEYED, orders(1, 1, "B"))

    check(table, *orders(1, 1, "A"))


@UPSERTS.case("test_upsert_with_struct_field_as_non_join_key")
def test_structs_beside_the_key(table: PeerTable) -> None:
    """Values within structs would be lost."""
    schema = columns(id="integer", nested=columns(one="string", two="string"))
    put(table, schema, [(1, {"one": "a", "two": "b"})])
    upsert(table, schema, [(2, {"one": "a", "two": "b"}), (1, {"one": "a", "two": None})], keys="id")

    check(table, (2, {"one": "a", "two": "b"}), (1, {"one": "a", "two": None}))


@UPSERTS.case("test_upsert_with_struct_field_as_join_key")
def test_structs_as_keys_are_refused(table: PeerTable) -> None:
    """Two structs that look equal would be two keys, or the other way round."""
    schema = columns(id="integer", nested=columns(one="string"))
    put(table, schema, [(1, {"one": "a"})])
    with pytest.raises(OptionError, match="nested"):
        upsert(table, schema, [(2, {"one": "a"})], keys="nested")

    check(table, (1, {"one": "a"}))


@UPSERTS.case("test_upsert_with_nulls")
def test_nulls_are_replaced_by_values_and_back(table: PeerTable) -> None:
    """A null would keep the old value, or a value not replace a null."""
    schema = columns(foo="string", bar="integer", baz="boolean")
    put(table, schema, [("apple", None, False), ("banana", 3, False)])
    upsert(table, schema, [("apple", 7, False), ("banana", None, None)], keys="foo")

    check(table, ("apple", 7, False), ("banana", None, None))


@UPSERTS.case("test_upsert_on_table_partitioned_by_transform")
def test_key_beside_the_partition_column(table: PeerTable) -> None:
    """The old row would be looked for in the wrong partition, and stay."""
    fields = [
        NestedField(1, "k", iceberg.StringType()),
        NestedField(2, "v", iceberg.IntegerType()),
        NestedField(3, "ts", iceberg.TimestampType()),
    ]
    table.create(Schema(*fields), PartitionSpec(PartitionField(3, 1000, DayTransform(), "ts_day")))
    schema = columns(k="string", v="integer", ts="timestamp_ntz")
    time, moved = datetime.fromisoformat("2026-01-06T12:00:00"), datetime.fromisoformat("2026-02-06T12:00:00")
    put(table, schema, [("a", 1, time), ("b", 1, time)])
    upsert(table, schema, [("a", 2, moved)], keys="k")

    check(table, ("a", 2, moved), ("b", 1, time))


@UPSERTS.case("test_transaction_multiple_upserts")
def test_upserts_in_turn(table: PeerTable) -> None:
    """The second upsert would not see the rows of the first."""
    schema = columns(id="integer", name="string")
    put(table, schema, [(1, "Alice")])
    upsert(table, schema, [(2, "Bob"), (1, "Alicia")], keys="id")
    upsert(table, schema, [(2, "Bobby"), (3, "Cem")], keys="id")

    check(table, (1, "Alicia"), (2, "Bobby"), (3, "Cem"))


@UPSERTS.case(
    "test_stage_only_upsert",
    verdict=DIFFERS(
        "snapshots that belong to no branch are not made: rows are staged on a branch and published",
        see="coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta",
    ),
)
def test_upsert_is_staged_on_a_branch(table: PeerTable) -> None:
    """Readers of `main` would see what is not published."""
    schema = columns(id="integer", name="string")
    put(table, schema, [(1, "a")])
    upsert(table, schema, [(1, "b"), (2, "b")], keys="id", branch="staged", create_branch="true")

    check(table, (1, "a"))
    check(table, (1, "b"), (2, "b"), branch="staged")
