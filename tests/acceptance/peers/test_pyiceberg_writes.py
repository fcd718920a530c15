"""PyIceberg: its suites of appends, overwrites, branches and files."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import NestedField
from support.checks.reader import rows_of
from support.peer.cases import DIFFERS, Peer
from support.peer.tables import PeerTable, array, columns, mapping, required
from support.peer.writes import check, found, operations, put, replace, sink_of, tasks
from support.tables.sink import arrow_batch, local

from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.writers.row_predicates import RangeCheck
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

PYICEBERG = Peer(name="apache/iceberg-python", suites="tests/integration/test_writes/test_writes.py")

PAIR = columns(id="integer", name="string")
EVERYTHING = columns(
    id="integer",
    flag="boolean",
    text="string",
    long="long",
    float="float",
    double="double",
    timestamp="timestamp_ntz",
    instant="timestamp",
    date="date",
    binary="binary",
    price="decimal(9,2)",
)
FIRST: tuple[Any, ...] = (
    1,
    False,
    "a",
    1,
    0.0,
    0.0,
    datetime.fromisoformat("2023-01-01T19:25:00"),
    datetime(2023, 1, 1, 19, 25, tzinfo=timezone.utc),
    date(2023, 1, 1),
    b"\x01",
    Decimal("1.25"),
)
NULLS = (None,) * len(FIRST)
LAST: tuple[Any, ...] = (
    9,
    True,
    "z" * 22,
    9,
    0.9,
    0.9,
    datetime.fromisoformat("2023-03-01T19:25:00"),
    datetime(2023, 3, 1, 19, 25, tzinfo=timezone.utc),
    date(2023, 3, 1),
    b"\x12",
    Decimal("-9999999.99"),
)
# Floats of four bytes come back as what they are.
LAST = (*LAST[:4], 0.5, *LAST[5:])
THREE = [FIRST, NULLS, LAST]
VERSIONS = pytest.mark.parametrize("version", ["1", "2"])


@PYICEBERG.case("test_query_count", "test_query_filter_null")
@VERSIONS
def test_rows_with_nulls_of_every_type(table: PeerTable, version: str) -> None:
    """Values beside nulls would be lost, or read as others."""
    put(table, EVERYTHING, THREE, format_version=version)

    check(table, *THREE)
    for name in EVERYTHING.names:
        assert len(table.rows(row_filter=f"{name} is null")) == 1
        assert len(table.rows(row_filter=f"{name} is not null")) == 2


@PYICEBERG.case("test_query_filter_only_nulls", "test_summaries_with_only_nulls")
@VERSIONS
def test_rows_of_nulls_alone(table: PeerTable, version: str) -> None:
    """Columns without any value would be left out of files or metrics."""
    put(table, EVERYTHING, [NULLS, NULLS], format_version=version)

    check(table, NULLS, NULLS)
    assert len(table.rows(row_filter="text is null")) == 2
    assert table.rows(row_filter="text is not null") == []


@PYICEBERG.case("test_query_filter_without_data")
@VERSIONS
def test_append_without_rows(table: PeerTable, version: str) -> None:
    """An empty batch would fail a pipeline, or leave no table for the next step."""
    put(table, EVERYTHING, [], format_version=version)

    check(table)
    assert table.load().schema().column_names == EVERYTHING.names


@PYICEBERG.case("test_query_filter_appended_null")
@VERSIONS
def test_second_append_keeps_the_first(table: PeerTable, version: str) -> None:
    """An append would replace rows."""
    for _ in range(2):
        put(table, EVERYTHING, THREE, format_version=version)

    check(table, *THREE, *THREE)
    assert len(table.rows(row_filter="date is null")) == 2


@PYICEBERG.case("test_query_filter_v1_v2_append_null")
def test_append_after_the_format_was_upgraded(table: PeerTable) -> None:
    """A table whose version somebody raises between two writes would lose the older rows."""
    put(table, EVERYTHING, THREE, format_version="1")
    with table.load().transaction() as transaction:
        transaction.upgrade_table_version(2)

    put(table, EVERYTHING, THREE)

    check(table, *THREE, *THREE)
    assert table.load().metadata.format_version == 2


@PYICEBERG.case(
    "test_summaries",
    verdict=DIFFERS(
        "an overwrite is one snapshot, not a delete and an append",
        see="coming-from/iceberg-runtime.md",
    ),
)
def test_summaries_of_appends_and_an_overwrite(table: PeerTable) -> None:
    """Readers would see the empty table between the two halves of an overwrite; totals would be wrong."""
    put(table, PAIR, [(1, "a"), (2, "b")])
    put(table, PAIR, [(3, "c")])
    before = table.summary()
    replace(table, PAIR, [(4, "d")])

    check(table, (4, "d"))
    assert operations(table) == ["append", "append", "overwrite"]
    assert (before["added-records"], before["total-records"], before["total-data-files"]) == ("1", "3", "2")
    assert int(before["total-files-size"]) > int(before["added-files-size"]) > 0
    after = table.summary()
    assert (after["deleted-data-files"], after["deleted-records"]) == ("2", "3")
    assert (after["added-data-files"], after["total-records"], after["total-data-files"]) == ("1", "1", "1")
    assert after["removed-files-size"] == before["total-files-size"]
    assert after["total-files-size"] == after["added-files-size"]


@PYICEBERG.case("test_summaries_partial_overwrite")
def test_summary_of_a_file_that_is_rewritten_in_part(table: PeerTable) -> None:
    """Counts of a rewritten file would be wrong, and rows beside the range lost."""
    put(table, PAIR, [(1, "AB"), (2, "CD"), (3, "EF"), (1, "CD"), (1, "EF")], partition_by="id")
    replace(table, PAIR, [], replace_where="id = 1 AND name = 'AB'")

    check(table, (2, "CD"), (3, "EF"), (1, "CD"), (1, "EF"))
    summary = table.summary()
    assert summary["operation"] == "overwrite"
    assert (summary["added-data-files"], summary["added-records"]) == ("1", "2")
    assert (summary["deleted-data-files"], summary["deleted-records"]) == ("1", "3")
    assert (summary["changed-partition-count"], summary["total-records"]) == ("1", "4")


@PYICEBERG.case("test_data_files")
def test_manifests_of_an_overwrite_between_appends(table: PeerTable) -> None:
    """Incremental readers would miss files that came or went."""
    put(table, PAIR, [(1, "a")])
    replace(table, PAIR, [(2, "b")])
    put(table, PAIR, [(3, "c")])

    check(table, (2, "b"), (3, "c"))
    loaded = table.load()
    counts = [
        sorted((found.added_files_count, found.deleted_files_count) for found in snapshot.manifests(loaded.io))
        for snapshot in table.snapshots()
    ]
    assert sum(deleted or 0 for _, deleted in counts[1]) == 1
    assert sum(added or 0 for added, _ in counts[1]) == 1
    assert [added for added, _ in counts[2]].count(1) == 2


@PYICEBERG.case("test_object_storage_data_files")
@VERSIONS
def test_files_of_an_object_store_layout(table: PeerTable, version: str) -> None:
    """All files would have one prefix, which object stores throttle."""
    layout = {"table-property.write.object-storage.enabled": "true"}
    for _ in range(2):
        put(table, PAIR, [(1, "a")], format_version=version, **layout)

    check(table, (1, "a"), (1, "a"))
    data = f"{table.load().location()}/data/"
    for file in table.files():
        folders = file.file_path.removeprefix(data).split("/")[:-1]
        assert [len(folder) for folder in folders] == [4, 4, 4, 8]
        assert set("".join(folders)) <= {"0", "1"}


@PYICEBERG.case(
    "test_python_writes_special_character_column_with_spark_reads",
    "test_cross_platform_special_character_compatibility",
)
@pytest.mark.parametrize("name", ["letter/abc", "😎", "a b", "9x", "x.y", "with`tick", "ä,ö;(x)"])
def test_columns_with_special_characters(table: PeerTable, name: str) -> None:
    """Columns that Avro or Parquet cannot name would be lost, or their values."""
    schema = columns(**{"id": "integer", name: "string", "address": columns(**{name: "string"})})
    put(table, schema, [(1, "a", {name: "x"}), (2, None, None)])

    check(table, (1, "a", {name: "x"}), (2, None, None))
    assert table.load().schema().column_names[:2] == ["id", name]


@PYICEBERG.case("test_sanitize_character_partitioned", "test_sanitize_character_partitioned_avro_bug")
@pytest.mark.parametrize("name", ["some.id", "some-id", "9id", "😎"])
def test_partition_columns_with_special_characters(table: PeerTable, name: str) -> None:
    """Manifests of such a partition could not be read."""
    quoted = f"`{name}`"
    put(table, columns(**{name: "integer", "data": "string"}), [(1, "a"), (2, "b"), (1, "c")], partition_by=quoted)

    check(table, (1, "a"), (2, "b"), (1, "c"))
    assert sorted(file.partition[0] for file in table.files()) == [1, 2]


@PYICEBERG.case("test_python_writes_with_small_and_large_types_spark_reads")
def test_small_types(table: PeerTable) -> None:
    """Bytes and shorts, which Iceberg does not have, would not be written."""
    small = columns(tiny="byte", short="short", text="string", bytes="binary", texts=array("string"))
    put(table, small, [(-128, 32767, "x", b"y", ["a", None]), (None, None, None, None, None)])

    check(table, (-128, 32767, "x", b"y", ["a", None]), (None, None, None, None, None))
    assert [str(field.field_type) for field in table.load().schema().fields[:2]] == ["int", "int"]


@PYICEBERG.case("test_write_bin_pack_data_files")
def test_files_are_cut_by_their_target_size(table: PeerTable) -> None:
    """A large write would end in one file, or lose rows where files are cut."""
    rows = [(number, f"{number * 7919 % 100_003:032d}") for number in range(20_000)]
    put(
        table,
        PAIR,
        rows,
        target_file_size_bytes="20000",
        **{"table-property.write.parquet.row-group-size-bytes": "9000"},
    )

    assert len(table.files()) > 2
    assert sorted(found(table)) == rows


@PYICEBERG.case("test_write_parquet_compression_properties")
@pytest.mark.parametrize(
    ("properties", "codec"),
    [
        ({}, "ZSTD"),
        ({"compression-codec": "uncompressed"}, "UNCOMPRESSED"),
        ({"compression-codec": "gzip"}, "GZIP"),
        ({"compression-codec": "zstd", "compression-level": "1"}, "ZSTD"),
        ({"compression-codec": "snappy"}, "SNAPPY"),
    ],
)
def test_compression_by_properties(table: PeerTable, properties: dict[str, str], codec: str) -> None:
    """Files would have another codec than the table says."""
    named = {f"table-property.write.parquet.{name}": value for name, value in properties.items()}
    put(table, PAIR, [(1, "a" * 500)], **named)

    check(table, (1, "a" * 500))
    (file,) = table.files()
    assert pq.read_metadata(local(file.file_path)).row_group(0).column(1).compression == codec


@PYICEBERG.case("test_write_parquet_other_properties", "test_write_parquet_unsupported_properties")
@pytest.mark.parametrize(
    "name",
    ["row-group-size-bytes", "page-size-bytes", "dict-size-bytes", "page-row-limit"],
)
def test_other_properties_of_parquet(table: PeerTable, name: str) -> None:
    """A property of the table would stop writes, or cost rows."""
    rows = [(number, f"text {number % 10}") for number in range(3000)]
    put(table, PAIR, rows, **{f"table-property.write.parquet.{name}": "1000"})

    assert sorted(found(table)) == rows


@PYICEBERG.case("test_write_and_evolve", "test_evolve_and_write")
def test_write_after_somebody_added_a_column(table: PeerTable) -> None:
    """A table that changed under a pipeline could not be written any more, or older rows would not be read."""
    put(table, columns(foo="string"), [("a",), (None,)])
    with table.load().update_schema() as update:
        update.add_column("bar", iceberg.IntegerType())
    put(table, columns(foo="string", bar="integer"), [("z", 9)])
    put(table, columns(foo="string", bar="integer", baz="double"), [("y", 8, 0.5)], merge_schema="true")

    check(table, ("a", None, None), (None, None, None), ("z", 9, None), ("y", 8, 0.5))


@PYICEBERG.case("test_create_table_transaction")
@VERSIONS
def test_table_is_created_with_its_rows(table: PeerTable, version: str) -> None:
    """Readers would find a table without rows, or none after a failure half-way."""
    written = tasks(table, EVERYTHING, [FIRST], [NULLS, LAST], format_version=version)
    assert not table.exists()

    written.commit()

    check(table, *THREE)
    assert operations(table) == ["append"]


@PYICEBERG.case("test_create_table_with_non_default_values")
def test_table_with_a_spec_and_an_order_of_its_own(table: PeerTable) -> None:
    """Ids of specs and orders that do not begin at 0 would be mixed up."""
    schema = Schema(NestedField(1, "id", iceberg.IntegerType()), NestedField(2, "name", iceberg.StringType()))
    spec = PartitionSpec(PartitionField(1, 1001, IdentityTransform(), "integer_partition"), spec_id=1)
    order = SortOrder(SortField(source_id=2, transform=IdentityTransform()))
    table.create(schema, spec, order)

    put(table, PAIR, [(2, "b"), (1, "z"), (2, "a"), (2, None)])

    check(table, (2, "b"), (1, "z"), (2, "a"), (2, None))
    files = {file.partition[0]: pq.read_table(local(file.file_path))["name"].to_pylist() for file in table.files()}
    assert files == {1: ["z"], 2: [None, "a", "b"]}


@PYICEBERG.case("test_write_within_transaction")
def test_columns_and_rows_of_an_overwrite_land_together(table: PeerTable) -> None:
    """Readers would meet the new columns with the old rows."""
    put(table, PAIR, [(1, "a")])
    wider = columns(id="integer", name="string", price="double")
    before = table.load().metadata.metadata_log
    replace(table, wider, [(2, "b", 0.5)], schema_evolution="full")

    check(table, (2, "b", 0.5))
    first, second = table.snapshots()
    assert (first.schema_id, second.schema_id) == (0, 1)
    assert len(table.load().metadata.metadata_log) == len(before) + 1


@PYICEBERG.case("test_table_write_subset_of_schema")
def test_columns_that_are_not_written_are_null(table: PeerTable) -> None:
    """A pipeline that knows fewer columns than the table could not write."""
    put(table, EVERYTHING, [FIRST])
    put(table, columns(text="string", id="integer"), [("b", 2)])

    check(table, FIRST, (2, None, "b", *NULLS[3:]))


@PYICEBERG.case("test_table_write_out_of_order_schema")
def test_columns_in_another_order(table: PeerTable) -> None:
    """Values would land in the wrong columns."""
    put(table, PAIR, [(1, "a")])
    put(table, columns(name="string", id="integer"), [("b", 2)])
    replace(table, columns(name="string", id="integer"), [("c", 2)], replace_where="id = 2")

    check(table, (1, "a"), (2, "c"))


@PYICEBERG.case("test_table_write_schema_with_valid_nullability_diff")
def test_nullable_columns_into_required_ones(table: PeerTable) -> None:
    """What Spark calls nullable without knowing could not be written, or a null would get into a required column."""
    put(table, required(PAIR, "id"), [(1, "a")], use_nullable_query_schema="false")
    put(table, PAIR, [(2, None)])
    with pytest.raises(SchemaMismatchError, match="null"):
        put(table, PAIR, [(None, "c")])

    check(table, (1, "a"), (2, None))


@PYICEBERG.case("test_table_write_schema_with_valid_upcast")
def test_narrower_types_into_wider_ones(table: PeerTable) -> None:
    """Types that always fit would be refused."""
    wide = columns(
        long="long", double="double", price="decimal(18,2)", list=array("long"), map=mapping("long", "double")
    )
    narrow = columns(
        long="integer", double="float", price="decimal(9,2)", list=array("integer"), map=mapping("integer", "float")
    )
    put(table, wide, [(1 << 40, 0.1, Decimal("1.25"), [1 << 40], {1 << 40: 0.1})])
    put(table, narrow, [(2, 0.5, Decimal("2.25"), [2, None], {2: 0.5})])

    first = (1 << 40, 0.1, Decimal("1.25"), [1 << 40], [(1 << 40, 0.1)])
    check(table, first, (2, 0.5, Decimal("2.25"), [2, None], [(2, 0.5)]))


@PYICEBERG.case("test_merge_manifests", "test_merge_manifests_file_content")
def test_manifests_are_merged_if_the_table_asks_for_it(table: PeerTable) -> None:
    """Each commit would add a manifest for ever, or a merge lose files."""
    merging = {
        "table-property.commit.manifest-merge.enabled": "true",
        "table-property.commit.manifest.min-count-to-merge": "1",
    }
    for number in range(4):
        put(table, PAIR, [(number, "a")], **merging)

    check(table, *((number, "a") for number in range(4)))
    assert len(table.last().manifests(table.load().io)) < 4


@PYICEBERG.case("test_overwrite_all_data_with_filter")
def test_overwrite_with_a_predicate_that_is_true_of_all(table: PeerTable) -> None:
    """Rows of the old table would stay."""
    put(table, PAIR, [(1, "a"), (2, "b"), (3, None)])
    replace(table, PAIR, [(4, "d")], replace_where="id IS NOT NULL")

    check(table, (4, "d"))


@PYICEBERG.case("test_delete_threshold")
def test_delete_of_days_and_parts_of_days(table: PeerTable) -> None:
    """Rows beside the deleted range would go, or those in it stay."""
    days = columns(created="date", relevance="integer")
    rows = [(date(2024, 1, 1 + number % 10), number % 10) for number in range(100)]
    put(table, days, rows, partition_by="created")
    replace(table, days, [], replace_where="created > DATE '2024-01-08' OR relevance = 3")

    check(table, *(row for row in rows if row[0] <= date(2024, 1, 8) and row[1] != 3))


@PYICEBERG.case("test_rewrite_manifest_after_partition_evolution")
def test_files_of_two_specs_are_replaced_together(table: PeerTable) -> None:
    """A file of the older spec would stay, or take its manifest's other files along."""
    category = columns(category="string", id="integer")
    put(table, category, [("A", 1), ("B", 2)], partition_by="category")
    put(table, category, [("A", 3), ("B", 4)], partition_by="bucket(2, id)", evolve_partitioning="true")
    replace(table, category, [("A", 5)], replace_where="category = 'A'")

    check(table, ("B", 2), ("B", 4), ("A", 5))


@PYICEBERG.case("test_writing_null_structs")
def test_null_structs_within_lists_and_structs(table: PeerTable) -> None:
    """A null struct would become a struct of nulls, or shift the values beside it."""
    inner = columns(x="integer", y="string")
    nested = columns(
        id="integer", one=inner, many=array(inner), deep=columns(inner=inner), map=mapping("string", inner)
    )
    rows: list[tuple[Any, ...]] = [
        (1, None, None, None, None),
        (2, {"x": None, "y": None}, [None, {"x": 1, "y": None}], {"inner": None}, [("k", None)]),
        (3, {"x": 3, "y": "c"}, [], {"inner": {"x": None, "y": "d"}}, []),
    ]
    put(table, nested, rows)

    # PyIceberg reads a null list of structs as an empty one.
    assert [tuple(row.values()) for row in rows_of(table.load())] == rows


@PYICEBERG.case("test_abort_table_transaction_on_exception")
def test_failed_task_leaves_the_table_as_it_was(table: PeerTable) -> None:
    """A part of the rows would be in the table."""
    put(table, required(PAIR, "id"), [(1, "a")], use_nullable_query_schema="false")
    with pytest.raises(SchemaMismatchError, match="id"):
        replace(table, PAIR, [(2, "b")], [(None, "c")])

    check(table, (1, "a"))
    assert operations(table) == ["append"]


@PYICEBERG.case("test_write_optional_list")
def test_lists_with_and_without_nulls(table: PeerTable) -> None:
    """Nulls and empty lists would be mixed up."""
    listed = columns(name="string", my_list=array("string"))
    rows = [("one", ["a", None]), ("two", None), ("three", []), ("four", [None])]
    put(table, listed, rows[:2])
    put(table, listed, rows[2:])

    check(table, *rows)


@PYICEBERG.case("test_double_commit_transaction")
def test_second_commit_of_the_same_write_changes_nothing(table: PeerTable) -> None:
    """A commit that is asked for twice would add its rows twice."""
    written = tasks(table, PAIR, [(1, "a")])
    written.commit()
    written.commit()

    check(table, (1, "a"))
    assert operations(table) == ["append"]


@PYICEBERG.case("test_read_write_decimals")
@pytest.mark.parametrize("precision", [1, 9, 10, 18, 19, 37, 38])
def test_decimals_of_every_width(table: PeerTable, precision: int) -> None:
    """Decimals at the limits of their physical types would change their values."""
    largest = Decimal(f"{10**precision - 1}E-1")
    put(table, columns(d=f"decimal({precision},1)"), [(largest,), (largest.copy_negate(),), (None,), (Decimal("0.1"),)])

    check(table, (largest,), (largest.copy_negate(),), (None,), (Decimal("0.1"),))


@PYICEBERG.case("test_uuid_partitioning")
@pytest.mark.parametrize("transform", ["identity", "bucket[16]"])
def test_partitions_of_uuids(table: PeerTable, transform: str) -> None:
    """Rows would be filed under another partition than readers look in."""
    schema = Schema(NestedField(1, "uuid", iceberg.UUIDType()))
    table.create(schema, PartitionSpec(PartitionField(1, 1000, parse_transform(transform), "uuid_part")))
    values = [f"{number:08x}-0000-4000-8000-000000000{number:03d}" for number in range(3)]
    put(table, columns(uuid="string"), [(value,) for value in values])

    assert sorted(str(UUID(bytes=value) if isinstance(value, bytes) else value) for (value,) in found(table)) == values
    parts = {file.partition[0] for file in table.files()}
    assert parts == ({UUID(value) for value in values} if transform == "identity" else parts & set(range(16)))


@PYICEBERG.case("test_append_to_non_existing_branch")
def test_branch_that_is_not_there(table: PeerTable) -> None:
    """A typing error would make a branch that nobody reads."""
    put(table, PAIR, [(1, "a")])
    with pytest.raises(OptionError, match="nobody"):
        put(table, PAIR, [(2, "b")], branch="nobody")

    check(table, (1, "a"))


@PYICEBERG.case("test_append_to_existing_branch", "test_overwrite_to_existing_branch", "test_delete_to_existing_branch")
def test_writes_to_a_branch_leave_main_alone(table: PeerTable) -> None:
    """Readers of `main` would see rows that are not published."""
    put(table, PAIR, [(1, "a"), (2, "b")])
    put(table, PAIR, [(3, "c")], branch="test", create_branch="true")
    check(table, (1, "a"), (2, "b"), (3, "c"), branch="test")
    replace(table, PAIR, [(4, "d")], branch="test", replace_where="id >= 2")
    check(table, (1, "a"), (4, "d"), branch="test")
    replace(table, PAIR, [], branch="test", replace_where="id = 1")

    check(table, (4, "d"), branch="test")
    check(table, (1, "a"), (2, "b"))


@PYICEBERG.case("test_intertwined_branch_writes")
def test_branches_that_are_written_in_turn(table: PeerTable) -> None:
    """Rows of one branch would come into the other."""
    put(table, PAIR, [(1, "a")])
    put(table, PAIR, [(2, "b")], branch="one", create_branch="true")
    put(table, PAIR, [(3, "c")], branch="two", create_branch="true")
    put(table, PAIR, [(4, "d")])
    put(table, PAIR, [(5, "e")], branch="one")
    replace(table, PAIR, [(6, "f")], branch="two")

    check(table, (1, "a"), (4, "d"))
    check(table, (1, "a"), (2, "b"), (5, "e"), branch="one")
    check(table, (6, "f"), branch="two")


@PYICEBERG.case(
    "test_stage_only_append",
    "test_stage_only_delete",
    "test_stage_only_overwrite_files",
    verdict=DIFFERS(
        "snapshots that belong to no branch are not made: rows are staged on a branch and published",
        see="coming-from/iceberg-runtime.md#options-of-icebergs-runtime-and-of-delta",
    ),
)
def test_staged_rows_are_on_a_branch(table: PeerTable) -> None:
    """A staged snapshot would be swept away by the next expiry."""
    put(table, PAIR, [(1, "a")])
    with pytest.raises(OptionError, match="belong to no branch"):
        put(table, PAIR, [(2, "b")], **{"spark.wap.id": "stage"})
    put(table, PAIR, [(2, "b")], branch="staged", create_branch="true")

    check(table, (1, "a"))
    check(table, (1, "a"), (2, "b"), branch="staged")


@PYICEBERG.case("test_v3_write_and_read_row_lineage")
def test_rows_of_version_3_have_ids(table: PeerTable) -> None:
    """Rows would be written without the lineage that version 3 promises."""
    put(table, PAIR, [(1, "a")], format_version="3")
    put(table, PAIR, [(2, "b"), (3, "c")])

    check(table, (1, "a"), (2, "b"), (3, "c"))
    snapshots = sink_of(table).table().metadata.snapshots
    assert [(one.first_row_id, one.added_rows) for one in snapshots] == [(0, 1), (1, 2)]


@PYICEBERG.case("test_append_record_batch_reader", "test_append_record_batch_reader_multifile")
def test_many_batches_of_one_task(table: PeerTable) -> None:
    """Rows of later batches would be lost."""
    sink = sink_of(table)
    plan = sink.plan(PAIR)
    rows = [(number, str(number)) for number in range(50)]
    sent = [{"id": number, "name": name} for number, name in rows]
    batches = [arrow_batch(sent[start : start + 10], PAIR) for start in range(0, 50, 10)]
    attempt = TaskAttempt(partition_id=0, task_attempt_id=0)
    files = write_task(plan, batches, attempt, RangeCheck(plan))
    sink.commit([TaskCommit(plan.write, 0, files, counts=RowCounts(received=50))])

    check(table, *rows)


@PYICEBERG.case("test_overwrite_record_batch_reader")
def test_overwrite_by_many_tasks(table: PeerTable) -> None:
    """Rows of later tasks would be lost, or replace those of earlier ones."""
    put(table, PAIR, [(number, "old") for number in range(50)])
    replace(table, PAIR, *([(number, "new")] for number in range(5)))

    check(table, *((number, "new") for number in range(5)))


@PYICEBERG.case("test_table_properties_raise_for_none_value", "test_table_properties_int_value")
def test_properties_of_a_new_table(table: PeerTable) -> None:
    """Properties would be lost, or one that locks other engines out would be set."""
    put(table, PAIR, [(1, "a")], **{"table-property.property": "42"})
    with pytest.raises(OptionError, match=r"commit\.retry\.num-retries"):
        put(table.named("db.other"), PAIR, [(1, "a")], **{"table-property.commit.retry.num-retries": "None"})

    assert table.load().properties["property"] == "42"
    assert not table.named("db.other").exists()


@PYICEBERG.case("test_write_all_timestamp_precision")
def test_times_to_the_microsecond(table: PeerTable) -> None:
    """Times would be rounded, or moved by a time zone."""
    times = columns(ts="timestamp_ntz", instant="timestamp")
    zone = timezone.utc
    rows = [
        (datetime.fromisoformat("1969-12-31T23:59:59.999999"), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=zone)),
        (datetime.fromisoformat("0001-01-01T00:00:00"), datetime(1, 1, 1, tzinfo=zone)),
        (datetime.fromisoformat("9999-12-31T23:59:59.000001"), datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=zone)),
    ]
    put(table, times, rows)

    check(table, *rows)


@PYICEBERG.case("test_invalid_arguments")
def test_columns_of_other_types_are_refused_together(table: PeerTable) -> None:
    """A value would be cast in silence."""
    put(table, columns(id="integer", name="string", price="double"), [(1, "a", 0.5)])
    with pytest.raises(SchemaMismatchError, match=r"(?s)id.*name.*price"):
        put(table, columns(id="string", name="integer", price="string"), [("1", 1, "x")])

    check(table, (1, "a", 0.5))
