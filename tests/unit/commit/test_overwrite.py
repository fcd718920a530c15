"""Overwrites: which rows go, which stay, and what the snapshot says of it, on all kinds of tables."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from pyspark.sql import types as spark
from support.checks.invariants import check_clean
from support.tables.damage import edit_list
from support.tables.delete_files import delete_ids, delete_positions, entries
from support.tables.regions import REGIONS, ids_by_region, in_region, partitioned, run, write
from support.tables.sink import NAME, Row, Sink, local, rows

import iceberg_ds
from iceberg_ds.errors import OptionError, RefusedRowsError, RowCountError, UnsupportedTableError

UTC = dt.timezone.utc
EU_AND_US = [*in_region("EU", 1, 2), *in_region("US", 3)]


@pytest.fixture(params=["1", "2"])
def regions(request: pytest.FixtureRequest, sink: Sink) -> Sink:
    """Return a table partitioned by region, of format version 1 or 2, with rows in two regions."""
    made = partitioned(sink, format_version=request.param)
    run(made, "append", EU_AND_US)
    return made


def summary(sink: Sink) -> dict[str, str]:
    """Return the summary of the newest snapshot."""
    snapshot = sink.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def snapshots(sink: Sink) -> int:
    """Return how many snapshots the table has."""
    return len(sink.table().metadata.snapshots)


def paths(sink: Sink) -> dict[str, str]:
    """Return the live data files by the first of their ids, as the bounds say."""
    return {
        str(int.from_bytes(entry.data_file.lower_bounds[1], "little")): entry.data_file.file_path
        for entry in entries(sink)
    }


def lose(path: str) -> None:
    """Make a data file unreadable."""
    local(path).write_bytes(b"lost")


def test_static_overwrite_replaces_all_rows_in_one_snapshot(regions: Sink) -> None:
    """Readers would see an empty table in between, or old rows beside new ones."""
    before = regions.table().current_snapshot()

    run(regions, "static", in_region("UK", 9))

    assert ids_by_region(regions) == {"UK": [9]}
    table = regions.table()
    after = table.current_snapshot()
    assert before is not None
    assert after is not None
    assert after.parent_snapshot_id == before.snapshot_id
    assert table.scan(snapshot_id=before.snapshot_id).to_arrow().num_rows == 3
    check_clean(table)


def test_static_is_the_default(regions: Sink) -> None:
    """`mode("overwrite")` would keep rows."""
    regions.overwrite(in_region("UK", 9), schema=REGIONS)

    assert ids_by_region(regions) == {"UK": [9]}


def test_overwrite_of_a_missing_table_creates_it(sink: Sink) -> None:
    """The first run of a job that replaces its table would fail."""
    run(partitioned(sink), "static", EU_AND_US)

    assert ids_by_region(sink) == {"EU": [1, 2], "US": [3]}
    assert summary(sink)["operation"] == "append"
    assert snapshots(sink) == 1
    check_clean(sink.table())


def test_dynamic_overwrite_replaces_the_partitions_in_the_data_alone(regions: Sink) -> None:
    """A day that is loaded again would cost all other days, or be there twice."""
    run(regions, "append", in_region("EU", 4))

    run(regions, "dynamic", [*in_region("EU", 5), *in_region("UK", 6), *in_region(None, 7)])

    assert ids_by_region(regions) == {"EU": [5], "UK": [6], "US": [3], None: [7]}
    check_clean(regions.table())


def test_dynamic_overwrite_counts_the_partitions_of_all_tasks(regions: Sink) -> None:
    """Partitions that only one task wrote would keep their old rows."""
    regions.overwrite(in_region("EU", 5), [], in_region("US", 6), schema=REGIONS, overwrite_mode="dynamic")

    assert ids_by_region(regions) == {"EU": [5], "US": [6]}


def test_dynamic_overwrite_of_a_table_without_partitions_replaces_all_rows(sink: Sink) -> None:
    """Rows would be doubled."""
    sink.append(1, 2)

    sink.overwrite(rows(3), overwrite_mode="dynamic")

    assert sink.ids() == [3]


def test_replace_where_replaces_the_rows_that_satisfy_the_predicate(regions: Sink) -> None:
    """Rows in the range would stay, or others go."""
    run(regions, "append", in_region("UK", 4, 5, 6))

    run(regions, "where id between 2 and 5", [*in_region("EU", 5), *in_region("UK", 2)])

    assert ids_by_region(regions) == {"EU": [1, 5], "UK": [2, 6]}
    check_clean(regions.table())


def test_files_that_lie_wholly_inside_or_outside_are_not_read(regions: Sink) -> None:
    """Replacing a day would cost reading the table."""
    run(regions, "append", in_region("UK", 10, 20))
    before = paths(regions)
    for path in before.values():
        lose(path)

    run(regions, "where id >= 10", in_region("UK", 11))
    run(regions, "dynamic", in_region("US", 3))

    after = paths(regions)
    assert after.keys() == {"1", "3", "11"}
    assert after["1"] == before["1"]


def test_static_overwrite_reads_no_old_file(regions: Sink) -> None:
    """A table with a lost file could never be replaced."""
    for path in paths(regions).values():
        lose(path)

    run(regions, "static", in_region("UK", 9))

    assert ids_by_region(regions) == {"UK": [9]}


def test_partition_with_long_values_is_replaced_without_reading(sink: Sink) -> None:
    """Bounds of texts end after 16 characters, so every load of one customer would rewrite all the others."""
    table = partitioned(sink)
    customers = [f"customer-number-{number}-of-three" for number in range(3)]
    for number, customer in enumerate(customers):
        run(table, "append", in_region(customer, number))
    before = paths(table)
    for path in before.values():
        lose(path)

    run(table, f"where region = '{customers[1]}'", in_region(customers[1], 9))

    assert paths(table).keys() == {"0", "2", "9"}


NUMBERS = spark.StructType(
    [spark.StructField("id", spark.LongType()), spark.StructField("x", spark.DoubleType())],
)


def numbers(**values: float | None) -> list[Row]:
    """Return rows with the ids `_1`, `_2`, ... and these values."""
    return [{"id": int(name.removeprefix("_")), "x": value} for name, value in values.items()]


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        ("x < 5", [2, 3, 4]),
        ("x >= 5", [1, 3]),
        ("x <> 1", [1, 3]),
        ("x is nan", [1, 3, 4]),
        ("x is null", [1, 2, 4]),
        ("not x < 5", [1, 3]),
        ("x not in (1, 9)", [1, 3, 4]),
        ("x in (1, 9) or x is null", [2]),
        ("x <= 'NaN'", [3]),
        ("not x > 'NaN'", [3]),
    ],
)
@pytest.mark.parametrize("writer", ["sink", "PyIceberg"])
def test_rows_with_null_and_nan_stay_unless_the_predicate_is_true_of_them(
    sink: Sink, writer: str, predicate: str, kept: list[int]
) -> None:
    """Rows with null and NaN would be lost, most of all from files of writers that count no NaN."""
    data = numbers(_1=1.0, _2=math.nan, _3=None, _4=9.0)
    sink.commit(sink.write(data if writer == "sink" else [], schema=NUMBERS))
    if writer == "PyIceberg":
        sink.table().append(pa.Table.from_pylist(data))

    sink.overwrite([], schema=NUMBERS, replace_where=predicate)

    assert sink.ids() == kept
    check_clean(sink.table())


@pytest.mark.parametrize("value", [math.nan, None])
def test_file_of_another_writer_keeps_its_nan_and_nulls(sink: Sink, value: float | None) -> None:
    """A file whose bounds lie inside the range would be dropped with the rows that bounds leave out."""
    sink.commit(sink.write([], schema=NUMBERS))
    sink.table().append(pa.Table.from_pylist(numbers(_1=1.0, _2=value)))

    sink.overwrite([], schema=NUMBERS, replace_where="x < 5")

    assert sink.ids() == [2]


def test_rows_outside_the_range_are_refused_by_count_and_example(regions: Sink) -> None:
    """Rows that the next run does not replace would be there twice after it."""
    parts = [in_region("US", 4, 5), in_region("EU", 6), in_region(None, 7)]

    with pytest.raises(RefusedRowsError, match=r"nothing was committed: 3 rows do not .*'id': 4, 'region': 'US'"):
        regions.overwrite(*parts, schema=REGIONS, replace_where="region = 'EU'")

    assert ids_by_region(regions) == {"EU": [1, 2], "US": [3]}
    check_clean(regions.table())


def test_static_overwrite_without_rows_empties_the_table(regions: Sink) -> None:
    """The rows of yesterday would stay, and look like those of today."""
    run(regions, "static", [])

    assert ids_by_region(regions) == {}
    assert summary(regions)["operation"] == "delete"
    check_clean(regions.table())


def test_replace_where_without_rows_empties_the_range(regions: Sink) -> None:
    """Rows that are gone from the source would stay."""
    run(regions, "where region = 'EU'", [])

    assert ids_by_region(regions) == {"US": [3]}
    assert summary(regions)["operation"] == "delete"
    check_clean(regions.table())


def test_dynamic_overwrite_without_rows_changes_nothing(regions: Sink) -> None:
    """An empty batch would empty the table."""
    result = run(regions, "dynamic", [])

    assert result.snapshot_id is None
    assert ids_by_region(regions) == {"EU": [1, 2], "US": [3]}
    assert snapshots(regions) == 1


def test_overwrite_that_removes_and_adds_nothing_makes_no_snapshot(regions: Sink) -> None:
    """The history would fill with snapshots that change nothing."""
    run(regions, "static", [])

    assert run(regions, "static", []).snapshot_id is None
    assert run(regions, "where region = 'EU'", []).snapshot_id is None
    assert run(regions, "where false", []).snapshot_id is None
    assert snapshots(regions) == 2


@pytest.mark.parametrize("kind", ["static", "dynamic", "where region = 'EU'"])
def test_overwrite_of_a_missing_table_without_rows_creates_it_empty(sink: Sink, kind: str) -> None:
    """The next reader would find no table."""
    run(partitioned(sink), kind, [])

    assert sink.rows() == []
    assert sink.table().spec().fields[0].name == "region"


def test_replace_where_that_no_row_satisfies_takes_no_rows(regions: Sink) -> None:
    """A mistake in a predicate would add rows that nothing ever replaces."""
    with pytest.raises(RefusedRowsError, match="1 rows do not satisfy"):
        run(regions, "where false", in_region("EU", 9))


@pytest.mark.parametrize(
    ("kind", "added", "expected"),
    [
        ("static", 1, {"operation": "overwrite", "added": 1, "deleted": 3, "files": (1, 2), "totals": (1, 1)}),
        ("static", 0, {"operation": "delete", "added": 0, "deleted": 3, "files": (0, 2), "totals": (0, 0)}),
        ("dynamic", 1, {"operation": "overwrite", "added": 1, "deleted": 2, "files": (1, 1), "totals": (2, 2)}),
        ("where id = 1", 1, {"operation": "overwrite", "added": 2, "deleted": 2, "files": (2, 1), "totals": (3, 3)}),
        ("where id = 7", 0, None),
    ],
)
def test_summary_counts_what_was_added_removed_and_is_there(
    regions: Sink, kind: str, added: int, expected: dict[str, Any] | None
) -> None:
    """Dashboards and audits on snapshot summaries would be wrong from here on."""
    run(regions, kind, in_region("EU", 1)[:added])

    if expected is None:
        assert snapshots(regions) == 1
        return
    found = summary(regions)
    assert found["operation"] == expected["operation"]
    assert found.get("added-records", "0") == str(expected["added"])
    assert found["deleted-records"] == str(expected["deleted"])
    assert (int(found.get("added-data-files", 0)), int(found["deleted-data-files"])) == expected["files"]
    assert (int(found["total-data-files"]), int(found["total-records"])) == expected["totals"]
    check_clean(regions.table())


def test_removed_files_are_listed_as_deleted_by_the_snapshot(regions: Sink) -> None:
    """Incremental readers and expiry would not know which files went."""
    removed = paths(regions)["1"]

    result = run(regions, "dynamic", in_region("EU", 9))

    deleted = [entry for entry in entries(regions, live=False) if entry.status is ManifestEntryStatus.DELETED]
    assert [entry.data_file.file_path for entry in deleted] == [removed]
    assert [entry.snapshot_id for entry in deleted] == [result.snapshot_id]


def test_kept_files_keep_their_place_in_the_history(regions: Sink) -> None:
    """Later deletes would apply to them or earlier ones not, and incremental readers see them as new."""
    run(regions, "append", in_region("EU", 4))
    before = {entry.data_file.file_path: entry for entry in entries(regions)}

    run(regions, "dynamic", in_region("EU", 9))

    kept = [entry for entry in entries(regions) if entry.status is ManifestEntryStatus.EXISTING]
    assert [path for path in before if path == paths(regions)["3"]] == [entry.data_file.file_path for entry in kept]
    for entry in kept:
        old = before[entry.data_file.file_path]
        assert entry.snapshot_id == old.snapshot_id
        assert (entry.sequence_number, entry.file_sequence_number) == (old.sequence_number, old.file_sequence_number)
        assert entry.data_file.lower_bounds == old.data_file.lower_bounds


def test_manifests_tell_the_lowest_sequence_number_of_their_files(sink: Sink) -> None:
    """Readers would skip deletes that apply to a file whose manifest was written again."""
    table = partitioned(sink)
    run(table, "append", EU_AND_US)
    run(table, "append", in_region("UK", 4))

    run(table, "dynamic", in_region("EU", 9))

    snapshot = table.table().current_snapshot()
    assert snapshot is not None
    found = {
        (manifest.sequence_number, manifest.min_sequence_number) for manifest in snapshot.manifests(table.table().io)
    }
    assert found == {(3, 3), (3, 1), (2, 2)}


def test_manifests_without_live_files_are_dropped_by_the_next_snapshot(regions: Sink) -> None:
    """The list of manifests would grow with every overwrite, and every reader read them all."""
    for number in range(5):
        run(regions, "static", in_region("EU", number))

    snapshot = regions.table().current_snapshot()
    assert snapshot is not None
    listed = snapshot.manifests(regions.table().io)
    assert [(manifest.added_files_count, manifest.deleted_files_count) for manifest in listed] == [(1, 0), (0, 1)]


def test_files_of_a_table_that_was_upgraded_are_replaced(sink: Sink) -> None:
    """Tables that began as version 1 could not be overwritten, or files in them lose their place."""
    table = partitioned(sink, format_version="1")
    run(table, "append", EU_AND_US)
    with table.table().transaction() as change:
        change.upgrade_table_version(2)
    run(table, "append", [*in_region("EU", 4), *in_region("US", 5)])

    run(table, "dynamic", in_region("EU", 9))
    run(table, "where id = 5", in_region("US", 5))

    assert ids_by_region(table) == {"EU": [9], "US": [3, 5]}
    assert {entry.sequence_number for entry in entries(table)} == {0, 2, 3}
    assert {entry.data_file.content for entry in entries(table)} == {DataFileContent.DATA}
    check_clean(table.table())


def evolve(sink: Sink) -> None:
    """Change the table's partitioning from region to region and bucket of id."""
    with sink.table().update_spec() as change:
        change.add_field("id", BucketTransform(2), "bucket")


def append_now(sink: Sink, *data: Row) -> None:
    """Append rows with the table's own partitioning."""
    sink.commit(sink.write(data, schema=REGIONS, plan=sink.plan(REGIONS, partition_by=None)))


@pytest.mark.parametrize(
    ("predicate", "left"),
    [
        ("true", {"EU": [9]}),
        ("region = 'EU'", {"EU": [9], "US": [3, 5]}),
        ("id in (2, 3, 9)", {"EU": [1, 4, 9], "US": [5]}),
    ],
)
def test_ranges_are_replaced_across_partition_specs(
    regions: Sink, predicate: str, left: dict[str | None, list[int]]
) -> None:
    """Rows that were written before the partitioning changed would stay, or be lost."""
    evolve(regions)
    append_now(regions, *in_region("EU", 4), *in_region("US", 5))

    run(regions, f"where {predicate}", in_region("EU", 9), partition_by=None)

    assert ids_by_region(regions) == left
    assert {entry.data_file.spec_id for entry in entries(regions)} <= {0, 1}
    check_clean(regions.table())


def test_dynamic_overwrite_is_refused_while_files_of_another_spec_are_there(regions: Sink) -> None:
    """Rows of replaced partitions would stay, in files that do not say to which of them they belong."""
    evolve(regions)

    with pytest.raises(UnsupportedTableError, match=r"written by partition spec 0.*Use replace-where"):
        run(regions, "dynamic", in_region("EU", 9), partition_by=None)

    check_clean(regions.table())
    run(regions, "static", EU_AND_US, partition_by=None)
    run(regions, "dynamic", in_region("EU", 1), partition_by=None)
    assert 1 in ids_by_region(regions)["EU"]
    assert ids_by_region(regions)["US"] == [3]


@pytest.mark.parametrize("file_format", [FileFormat.AVRO, FileFormat.ORC])
def test_file_of_another_format_is_refused_by_name_before_it_is_read(sink: Sink, file_format: FileFormat) -> None:
    """A user would wait for all tries, and look for a fault of the storage."""
    sink.append(1)
    strange = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{sink.table().location()}/data/strange",
        file_format=file_format,
        partition=Record(),
        record_count=2,
        file_size_in_bytes=1,
    )
    with sink.table().transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(strange)

    with pytest.raises(UnsupportedTableError, match=rf"data/strange must be written again, .* {file_format.value}"):
        sink.overwrite([], replace_where="id = 1")

    assert len(entries(sink)) == 2


def test_predicate_without_a_value_for_some_row_fails_at_once(sink: Sink) -> None:
    """A user would wait for all tries, or rows would go of which it cannot be told."""
    sink.append(1, 2**63 - 1)

    with pytest.raises(UnsupportedTableError, match="the predicate has no value for some row: overflow"):
        sink.overwrite([], replace_where="id + 1 = 2")

    assert sink.ids() == [1, 2**63 - 1]
    check_clean(sink.table())


@pytest.mark.parametrize("kind", ["static", "dynamic", "where id < 3", "where id = 1 or id = 9"])
def test_table_whose_partition_column_was_dropped_is_overwritten(regions: Sink, kind: str) -> None:
    """Tables that were once partitioned by a column that is gone could never be overwritten any more."""
    with regions.table().update_spec() as change:
        change.remove_field("region")
    with regions.table().update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("region")
    ids = spark.StructType([spark.StructField("id", spark.LongType())])
    options = {"replace_where": kind.removeprefix("where ")} if kind.startswith("where") else {"overwrite_mode": kind}

    regions.overwrite([{"id": 1}], schema=ids, partition_by=None, **options)

    expected = {"static": [1], "dynamic": [1], "where id < 3": [1, 3], "where id = 1 or id = 9": [1, 2, 3]}
    assert regions.ids() == expected[kind]
    check_clean(regions.table())


def test_kept_entries_of_a_dropped_partition_column_keep_its_values(regions: Sink) -> None:
    """Files would be found under another partition than they were written to."""
    with regions.table().update_spec() as change:
        change.remove_field("region")
    with regions.table().update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("region")
    ids = spark.StructType([spark.StructField("id", spark.LongType())])

    regions.overwrite([], schema=ids, partition_by=None, replace_where="id = 3")

    assert [entry.data_file.partition[0] for entry in entries(regions)] == ["EU"]


PARTITION_VALUES: dict[str, tuple[ice.PrimitiveType, spark.DataType, list[Any], list[Any]]] = {
    "boolean": (ice.BooleanType(), spark.BooleanType(), [True, None], [False]),
    "int": (ice.IntegerType(), spark.IntegerType(), [0, -(2**31)], [None, 2**31 - 1]),
    "long": (ice.LongType(), spark.LongType(), [1, None], [2, -3]),
    "float": (ice.FloatType(), spark.FloatType(), [0.1, math.nan, -0.0], [None, 1.5, math.inf]),
    "double": (ice.DoubleType(), spark.DoubleType(), [0.1, math.nan, -0.0], [None, 1.5, -math.inf]),
    "date": (ice.DateType(), spark.DateType(), [dt.date(2026, 11, 1), dt.date(1, 1, 1)], [None, dt.date(1969, 12, 31)]),
    "timestamp": (
        ice.TimestampType(),
        spark.TimestampNTZType(),
        [dt.datetime(2026, 11, 1, 1, 2, 3, 4), dt.datetime(1960, 1, 1)],  # noqa: DTZ001  # without zone
        [None, dt.datetime(2026, 11, 2)],  # noqa: DTZ001
    ),
    "timestamptz": (
        ice.TimestamptzType(),
        spark.TimestampType(),
        [dt.datetime(2026, 11, 1, 1, 2, 3, 4, tzinfo=UTC), None],
        [dt.datetime(1960, 11, 1, tzinfo=UTC)],
    ),
    "decimal": (ice.DecimalType(10, 2), spark.DecimalType(10, 2), [Decimal("1.10"), Decimal("-5.00")], [Decimal(0)]),
    "decimal38": (ice.DecimalType(38, 0), spark.DecimalType(38, 0), [Decimal("9" * 38)], [None, Decimal(-9)]),
    "string": (ice.StringType(), spark.StringType(), ["a", "é/ b=ü😀%", ""], [None, "A", "NaN", "null"]),
    "uuid": (ice.UUIDType(), spark.StringType(), [str(uuid.UUID(int=1))], [None, str(uuid.UUID(int=2))]),
    "fixed": (ice.FixedType(3), spark.BinaryType(), [b"abc"], [None, b"\xff\x00\x01"]),
    "binary": (ice.BinaryType(), spark.BinaryType(), [b"abc", b""], [None, b"\xff\x00\x01"]),
}
if hasattr(spark, "TimeType"):  # new in Spark 4.1
    PARTITION_VALUES["time"] = (ice.TimeType(), spark.TimeType(), [dt.time(1, 2, 3)], [None, dt.time(23)])
TRANSFORMS: dict[str, tuple[Transform[Any, Any], str]] = {
    "bucket of uuid": (BucketTransform(97), "uuid"),
    "bucket of fixed": (BucketTransform(97), "fixed"),
    "bucket of decimal": (BucketTransform(97), "decimal"),
    "truncated string": (TruncateTransform(4), "string"),
    "truncated binary": (TruncateTransform(2), "binary"),
    "truncated decimal": (TruncateTransform(50), "decimal"),
    "hour": (HourTransform(), "timestamp"),
    "day of timestamp": (DayTransform(), "timestamp"),
    "day of date": (DayTransform(), "date"),
    "month": (MonthTransform(), "date"),
    "year": (YearTransform(), "timestamptz"),
}
CASES = {**{name: (IdentityTransform(), name) for name in PARTITION_VALUES if name != "fixed"}, **TRANSFORMS}


@pytest.mark.parametrize("format_version", ["1", "2"])
@pytest.mark.parametrize("case", CASES)
def test_partitions_by_values_of_every_type_are_replaced(sink: Sink, case: str, format_version: str) -> None:
    """Rows of such partitions would be doubled, or neighbouring ones dropped."""
    transform, name = CASES[case]
    kind, spark_kind, replaced, kept = PARTITION_VALUES[name]
    spec = PartitionSpec(PartitionField(2, 1000, transform, "p"))
    sink.create(
        Schema(NestedField(1, "id", ice.LongType()), NestedField(2, "v", kind)), spec, format_version=format_version
    )
    schema = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("v", spark_kind)])
    data = [{"id": number, "v": value} for number, value in enumerate([*kept, *replaced])]
    sink.commit(sink.write(data, schema=schema))
    sink.commit(sink.write(data, schema=schema))

    for first in (100, 200):  # the second reads what the first has written again
        fresh = [{"id": first + number, "v": value} for number, value in enumerate(replaced)]
        sink.overwrite(fresh, schema=schema, overwrite_mode="dynamic")

    old = list(range(len(kept)))
    assert sink.ids() == [*sorted(old + old), *range(200, 200 + len(replaced))]
    check_clean(sink.table())


FIRST = spark.StructType(
    [
        spark.StructField("id", spark.LongType()),
        spark.StructField("i", spark.IntegerType()),
        spark.StructField("f", spark.FloatType()),
        spark.StructField("d", spark.DecimalType(5, 2)),
        spark.StructField("gone", spark.IntegerType()),
    ]
)
SECOND = spark.StructType(
    [
        spark.StructField("ID", spark.LongType()),
        spark.StructField("i", spark.LongType()),
        spark.StructField("f", spark.DoubleType()),
        spark.StructField("d", spark.DecimalType(20, 2)),
        spark.StructField("new", spark.StringType()),
        spark.StructField("gone", spark.IntegerType()),
    ]
)


@pytest.mark.parametrize(
    ("predicate", "gone"),
    [
        ("i = 2", [2]),
        ("i > 2 and i < 7", [3, 4, 5, 6]),
        ("i >= 0", range(10)),
        ("f > 0.35 and f < 0.45", [4]),
        ("f > 0.15", range(2, 10)),
        ("d = 0.4", [4]),
        ("d between 0.8 and 1", [8, 9]),
        ("new is null", [0, 1, 2, 3, 4]),
        ("new <> 'n9'", [5, 6, 7, 8]),
        ("new like 'n%'", [5, 6, 7, 8, 9]),
        ("gone is null", [0, 1, 2, 3, 4]),
        ("gone = 1", []),
        ("gone <> 9", [5, 6, 7, 8]),
        ("gone not in (1, 2)", [5, 6, 7, 8, 9]),
        ("id = 9 or id = 0", [0, 9]),
    ],
)
@pytest.mark.parametrize("format_version", ["1", "2"])
def test_files_of_an_older_schema_are_replaced_by_what_they_mean_today(
    sink: Sink, format_version: str, predicate: str, gone: range | list[int]
) -> None:
    """Rows of files from before a column was widened, added, renamed, or dropped and added, would be mistaken."""
    sink.commit(
        sink.write(
            [{"id": n, "i": n, "f": n / 10, "d": Decimal(n) / 10, "gone": n} for n in range(5)],
            schema=FIRST,
            plan=sink.plan(FIRST, format_version=format_version),
        )
    )
    with sink.table().update_schema(allow_incompatible_changes=True) as change:
        change.update_column("i", ice.LongType()).update_column("f", ice.DoubleType())
        change.update_column("d", ice.DecimalType(20, 2)).add_column("new", ice.StringType())
        change.delete_column("gone").rename_column("id", "ID")
    with sink.table().update_schema() as change:
        change.add_column("gone", ice.IntegerType())
    second = [{"ID": n, "i": n, "f": n / 10, "d": Decimal(n) / 10, "new": f"n{n}", "gone": n} for n in range(5, 10)]
    sink.commit(sink.write(second, schema=SECOND))

    sink.overwrite([], schema=SECOND, replace_where=predicate)

    assert [row["ID"] for row in sink.rows()] == [n for n in range(10) if n not in gone]
    check_clean(sink.table())


def test_rows_that_position_deletes_hide_do_not_come_back(sink: Sink) -> None:
    """Deleted rows would reappear when their file is written again without its deletes."""
    sink.append(1, 2, 3, 4, 5, 6)
    (entry,) = entries(sink)
    delete_positions(sink, entry.data_file.file_path, [0, 3])

    sink.overwrite(rows(2, 7), replace_where="id = 2 or id >= 6")

    assert sink.ids() == [2, 3, 5, 7]
    check_clean(sink.table())


def test_static_overwrite_drops_delete_files_too(sink: Sink) -> None:
    """Every reader would read deletes of files that are long gone."""
    sink.append(1, 2, 3)
    (entry,) = entries(sink)
    delete_positions(sink, entry.data_file.file_path, [0])
    delete_ids(sink, 2)

    sink.overwrite(rows(2))

    assert sink.ids() == [2]
    assert [entry.data_file.content for entry in entries(sink)] == [DataFileContent.DATA]
    assert summary(sink)["removed-delete-files"] == "2"
    assert summary(sink)["total-position-deletes"] == "0"
    assert summary(sink)["total-equality-deletes"] == "0"
    check_clean(sink.table())


def test_file_with_equality_deletes_is_not_replaced_in_part(sink: Sink) -> None:
    """Rows that another engine deleted would come back, because they cannot be told here."""
    sink.append(1, 2, 3)
    sink.append(8, 9)
    delete_ids(sink, 2)

    with pytest.raises(UnsupportedTableError, match=r"replace-where, nothing was committed.*equality deletes.*Compact"):
        sink.overwrite([], replace_where="id = 3")

    sink.overwrite([], replace_where="id >= 8")
    assert len([entry for entry in entries(sink) if entry.data_file.content == DataFileContent.DATA]) == 1
    check_clean(sink.table())


def test_columns_with_any_name_are_compared(sink: Sink) -> None:
    """Tables with such columns could not be overwritten in part, or rows be lost."""
    names = ["id", "a.b", "with space", "Ünï", "x-y", "select", "1st"]
    schema = spark.StructType([spark.StructField(name, spark.LongType()) for name in names])
    sink.commit(sink.write([dict.fromkeys(names, number) for number in range(9)], schema=schema))

    for number, name in enumerate(names, start=1):
        sink.overwrite([], schema=schema, replace_where=f"`{name.upper()}` = {number}")

    assert sink.ids() == [0, 8]


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        ("missing = 1", "no column 'missing'"),
        ("id = 'x'", "'id' is bigint: 'x' is no bigint"),
        ("name = 5", "column 'name' is string, and each of its texts"),
        ("id < true", "Spark does not compare bigint with boolean"),
    ],
)
def test_predicate_that_does_not_fit_the_table_is_refused_before_any_task(
    sink: Sink, predicate: str, reason: str
) -> None:
    """Hours of writing would end in an error that the driver could have told at once."""
    sink.append(1)

    with pytest.raises(OptionError, match=f"option 'replace-where': .*{reason}"):
        sink.write_over(rows(1), replace_where=predicate)


def test_void_partitions_count_as_none(sink: Sink) -> None:
    """A version 1 table whose partitioning was removed would keep its old rows."""
    schema = Schema(NestedField(1, "id", ice.LongType()), NestedField(2, "region", ice.StringType()))
    sink.create(schema, PartitionSpec(PartitionField(2, 1000, VoidTransform(), "region")), format_version="1")
    append_now(sink, *in_region("EU", 1))

    run(sink, "dynamic", in_region("US", 2))

    assert ids_by_region(sink) == {"US": [2]}


def test_rows_that_come_back_unchanged_are_there_once(regions: Sink) -> None:
    """Running a job again would double its rows."""
    for kind in ("static", "dynamic", "where region in ('EU', 'US')"):
        for _ in range(2):
            run(regions, kind, EU_AND_US)
            assert ids_by_region(regions) == {"EU": [1, 2], "US": [3]}


def test_predicate_keeps_its_meaning_until_the_commit(regions: Sink) -> None:
    """A column that was dropped meanwhile would be taken for another, or the write be tried for minutes."""
    messages = write(regions, "where region = 'EU'", in_region("EU", 9))
    with regions.table().update_spec() as change:
        change.remove_field("region")
    with regions.table().update_schema() as schema:
        schema.rename_column("region", "country")

    with pytest.raises(Exception, match="no column 'region'"):
        regions.commit(messages)

    assert regions.ids() == [1, 2, 3]
    check_clean(regions.table())


def test_manifest_list_that_another_writer_counted_wrongly_is_named(sink: Sink) -> None:
    """The error would blame this sink, and tell nothing that helps."""
    sink.append(1, 2)

    def miscount(listed: list[ManifestFile]) -> list[ManifestFile]:
        listed[0][10] = 7  # added_rows_count
        return listed

    edit_list(sink, miscount)

    with pytest.raises(RowCountError, match=r"`iceberg-ds verify` tells.*rewrite_manifests mends the list"):
        sink.overwrite(rows(3))

    failed = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}).failures
    assert "manifests" in [check.name for check in failed]
