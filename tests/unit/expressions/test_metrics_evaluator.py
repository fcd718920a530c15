"""How much of a file lies in a replaced range: what metrics and partitions prove, and doubt where they do not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg import types as ice
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from support.tables.metadata import metadata_of

from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.expressions.metrics_evaluator import Coverage, FilterRange, PartitionRange
from iceberg_ds.expressions.parser import parse_predicate

SCHEMA = Schema(
    NestedField(1, "id", ice.LongType(), required=True),
    NestedField(2, "x", ice.DoubleType()),
    NestedField(3, "text", ice.StringType()),
    NestedField(4, "price", ice.DecimalType(20, 2)),
    NestedField(5, "ts", ice.TimestampType()),
    NestedField(6, "uuid", ice.UUIDType()),
)
OUTSIDE, PARTIAL, INSIDE = Coverage.OUTSIDE, Coverage.PARTIAL, Coverage.INSIDE


def spec(*fields: tuple[int, Transform[Any, Any]], spec_id: int = 0) -> PartitionSpec:
    """Return a spec of these source columns and transforms."""
    made = [PartitionField(source, 1000 + at, transform, f"p{at}") for at, (source, transform) in enumerate(fields)]
    return PartitionSpec(*made, spec_id=spec_id)


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """What a file's entry says of its columns, by their ids.

    Attributes:
        bounds: The lowest and the highest value.
        nulls: How many values are null.
        nans: How many are NaN.
        types: The types that the bounds were written with, where they are not today's.
    """

    bounds: Mapping[int, tuple[Any, Any]] = field(default_factory=dict)
    nulls: Mapping[int, int] = field(default_factory=dict)
    nans: Mapping[int, int] = field(default_factory=dict)
    types: Mapping[int, ice.PrimitiveType] = field(default_factory=dict)

    def encoded(self, side: int) -> dict[int, bytes]:
        """Return the lower (0) or upper (1) bounds as manifests hold them."""
        types = {column.field_id: column.field_type for column in SCHEMA.fields} | dict(self.types)
        return {key: to_bytes(types[key], pair[side]) for key, pair in self.bounds.items()}  # type: ignore[arg-type]


def data_file(partition: Sequence[Any] = (), metrics: Metrics = Metrics(), *, spec_id: int = 0) -> DataFile:
    """Return a data file of ten rows."""
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:///t/a.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=10,
        file_size_in_bytes=1,
        value_counts=dict.fromkeys(metrics.nulls, 10),
        null_value_counts=dict(metrics.nulls),
        nan_value_counts=dict(metrics.nans),
        lower_bounds=metrics.encoded(0),
        upper_bounds=metrics.encoded(1),
    )
    made.spec_id = spec_id
    return made


def by_filter(text: str, *specs: PartitionSpec, metadata: TableMetadata | None = None) -> FilterRange:
    """Return the range of the rows that satisfy a predicate."""
    made = metadata or metadata_of(schemas=[SCHEMA], specs=specs or [PartitionSpec(spec_id=0)])
    return FilterRange(made, parse_predicate(text), case_sensitive=False)


@pytest.mark.parametrize(
    ("text", "coverage"),
    [
        ("true", INSIDE),
        ("false", OUTSIDE),
        ("id >= 1", INSIDE),
        ("id > 1", PARTIAL),
        ("id < 1", OUTSIDE),
        ("id <= 9", INSIDE),
        ("id between 1 and 9", INSIDE),
        ("id = 5", PARTIAL),
        ("id = 10", OUTSIDE),
        ("id in (0, 10)", OUTSIDE),
        ("id in (0, 5)", PARTIAL),
        ("id <> 10", INSIDE),
        ("id <> 5", PARTIAL),
        ("id not in (0, 10)", INSIDE),
        ("id is null", OUTSIDE),
        ("id is not null", INSIDE),
        ("x < 100", INSIDE),
        ("x <> 100", INSIDE),
        ("x is nan", OUTSIDE),
        ("x is not nan", INSIDE),
        ("text is null", OUTSIDE),
        ("text like 'a%'", PARTIAL),
        ("text like 'c%'", OUTSIDE),
        ("id >= 1 and x < 100", INSIDE),
        ("id >= 1 and x > 100", OUTSIDE),
        ("id = 5 or x < 100", INSIDE),
        ("not (id < 1 or x > 100)", INSIDE),
    ],
)
def test_metrics_tell_how_much_of_a_file_lies_in_the_range(text: str, coverage: Coverage) -> None:
    """Files would be read for nothing, or rows outside the range be dropped with a file."""
    metrics = Metrics(bounds={1: (1, 9), 2: (0.5, 1.5), 3: ("a", "b")}, nulls={1: 0, 2: 0, 3: 0}, nans={2: 0})
    file = data_file(metrics=metrics)

    assert by_filter(text).coverage(file) is coverage


@pytest.mark.parametrize(
    "text", ["x < 100", "x = 1", "x in (1, 2)", "x <> 100", "x not in (100, 200)", "x is not null"]
)
@pytest.mark.parametrize("nulls", [{2: 1}, {}], ids=["with nulls", "nulls not counted"])
def test_file_that_may_hold_nulls_is_never_dropped_whole_by_a_comparison(text: str, nulls: dict[int, int]) -> None:
    """Rows with null, which no comparison is true of, would be dropped unseen."""
    file = data_file(metrics=Metrics(bounds={2: (1.0, 1.0)}, nulls=nulls, nans={2: 0}))

    assert by_filter(text).coverage(file) is PARTIAL


@pytest.mark.parametrize("text", ["x < 100", "x <= 100", "x = 1", "x in (1, 2)", "x between 0 and 9", "not x > 100"])
@pytest.mark.parametrize("nans", [{2: 1}, {}], ids=["with NaN", "NaN not counted"])
def test_file_that_may_hold_nan_is_never_dropped_whole_by_a_comparison(text: str, nans: dict[int, int]) -> None:
    """Rows with NaN, which bounds leave out and PyIceberg does not count, would be dropped unseen."""
    file = data_file(metrics=Metrics(bounds={2: (1.0, 1.0)}, nulls={2: 0}, nans=nans))

    assert by_filter(text).coverage(file) is PARTIAL


def test_file_of_nulls_alone_is_judged_by_that() -> None:
    """Files without a value in the column would be read again and again, or dropped wrongly."""
    file = data_file(metrics=Metrics(nulls={2: 10}, nans={2: 0}))

    assert by_filter("x is null").coverage(file) is INSIDE
    assert by_filter("x < 5").coverage(file) is OUTSIDE
    assert by_filter("x <> 5").coverage(file) is OUTSIDE
    assert by_filter("x not in (5, 6)").coverage(file) is OUTSIDE
    assert by_filter("x is nan").coverage(file) is OUTSIDE


def test_file_of_nan_alone_is_judged_by_that() -> None:
    """NaN would be taken for a value in some range."""
    file = data_file(metrics=Metrics(nulls={2: 0}, nans={2: 10}))

    assert by_filter("x is nan").coverage(file) is INSIDE
    assert by_filter("x <> 5").coverage(file) is INSIDE
    assert by_filter("x < 5").coverage(file) is OUTSIDE
    assert by_filter("x > 5").coverage(file) is INSIDE


def test_count_of_nan_in_a_column_without_nan_is_passed_over() -> None:
    """Rows of a writer that counts all values of a number as NaN would not be found, or stay."""
    file = data_file(metrics=Metrics(bounds={1: (1, 9)}, nulls={1: 0}, nans={1: 10}))

    assert by_filter("id = 5").coverage(file) is PARTIAL
    assert by_filter("id < 10").coverage(file) is INSIDE


@pytest.mark.parametrize("nans", [{2: 1}, {}], ids=["with NaN", "NaN not counted"])
def test_nan_is_above_all_values(nans: dict[int, int]) -> None:
    """Rows with NaN, which Spark takes for the greatest value, would stay."""
    file = data_file(metrics=Metrics(bounds={2: (1.0, 1.0)}, nulls={2: 0}, nans=nans))

    assert by_filter("x > 0").coverage(file) is INSIDE
    assert by_filter("x > 100").coverage(file) is PARTIAL
    assert by_filter("x = 'NaN'").coverage(file) is PARTIAL


def test_file_without_rows_matches_nothing() -> None:
    """Empty files would be written again and again."""
    file = data_file()
    file[4] = 0

    assert by_filter("x < 10").coverage(file) is OUTSIDE


@pytest.mark.parametrize(
    ("text", "coverage"),
    [
        ("to_date(ts) = '2026-01-02'", PARTIAL),
        ("to_date(ts) >= '2026-01-01'", INSIDE),
        ("cast(ts as date) = '2026-02-01'", OUTSIDE),
        ("ts::date < '2026-01-01'", OUTSIDE),
        ("year(ts) = 2026", INSIDE),
        ("year(ts) <> 2026", OUTSIDE),
        ("month(ts) = 5", PARTIAL),
        ("date_trunc('month', ts) = '2026-01-01'", INSIDE),
        ("date_trunc('day', ts) > '2026-01-03'", OUTSIDE),
        ("ts < DATE '2026-01-04'", INSIDE),
        ("ts >= '2027'", OUTSIDE),
        ("id + 1 > 5", PARTIAL),
        ("id + 1 > 10", OUTSIDE),
        ("id - 10 < 0", INSIDE),
        ("id < 9.5", INSIDE),
        ("id = 2.5", PARTIAL),
        ("id < 1e0", OUTSIDE),
        ("id % 2 = 0", PARTIAL),
        ("id <=> 10", OUTSIDE),
        ("id <=> null", OUTSIDE),
        ("id is distinct from 10", INSIDE),
        ("coalesce(id, 0) between 0 and 9", INSIDE),
        ("(id > 0) is true", INSIDE),
        ("(id > 9) is not false", OUTSIDE),
        ("id = id", PARTIAL),
        ("id > 9 or to_date(ts) < '2026-02-01'", INSIDE),
        ("text like '%b'", PARTIAL),
        ("text like 'b_c%'", PARTIAL),
        ("text like '_%' or id > 0", INSIDE),
        ("lower(text) = 'a'", PARTIAL),
        ("price > 100000000", OUTSIDE),
        ("price <= 2.555", INSIDE),
        ("price + 1 > 3", PARTIAL),
        ("price + 1 > 4", OUTSIDE),
    ],
)
def test_functions_that_keep_the_order_are_held_against_bounds(text: str, coverage: Coverage) -> None:
    """A day's rows would be replaced by writing the whole table again, or rows of other days dropped with a file."""
    bounds = {
        1: (1, 9),
        3: ("a", "c"),
        4: (Decimal("-1.00"), Decimal("2.50")),
        5: (1_767_225_600_000_000, 1_767_484_799_999_999),  # the first three days of 2026
    }
    file = data_file(metrics=Metrics(bounds=bounds, nulls=dict.fromkeys(bounds, 0)))

    assert by_filter(text).coverage(file) is coverage


@pytest.mark.parametrize(
    ("text", "coverage"),
    [
        ("to_date(tz) = '2026-01-05'", OUTSIDE),
        ("to_date(tz) >= '2025-12-29'", INSIDE),
        ("to_date(tz) = '2026-01-01'", PARTIAL),
        ("to_date(tz) < '2026-01-02'", PARTIAL),
        ("tz < '2026-01-01 20:00:00'", INSIDE),
        ("tz < '2026-01-01 18:00:00'", PARTIAL),
    ],
)
def test_clocks_that_change_are_given_room(text: str, coverage: Coverage) -> None:
    """Rows of the hour that clocks show twice would be dropped, or stay."""
    schema = Schema(NestedField(5, "tz", ice.TimestamptzType()))
    bounds = {5: (1_767_225_600_000_000, 1_767_311_999_999_999)}  # the first day of 2026, in UTC
    file = data_file(metrics=Metrics(bounds=bounds, nulls={5: 0}))
    metadata = metadata_of(schemas=[schema], specs=[PartitionSpec(spec_id=0)])
    found = FilterRange(metadata, parse_predicate(text), case_sensitive=False, time_zone="America/New_York")

    assert found.coverage(file) is coverage


def test_field_of_a_struct_may_always_be_null() -> None:
    """Rows whose struct is null would be dropped with the files of writers that do not count them."""
    schema = Schema(
        NestedField(9, "a", ice.StructType(NestedField(1, "b", ice.LongType(), required=True)), required=False)
    )
    metadata = metadata_of(schemas=[schema], specs=[PartitionSpec(spec_id=0)])
    file = data_file(metrics=Metrics(bounds={1: (1, 9)}, nulls={1: 0}))

    def coverage(text: str) -> Coverage:
        return FilterRange(metadata, parse_predicate(text), case_sensitive=False).coverage(file)

    assert coverage("a.b > 0") is PARTIAL
    assert coverage("a.b is null") is PARTIAL
    assert coverage("a.b > 9") is OUTSIDE


def test_required_column_may_hold_nulls_that_were_not_counted() -> None:
    """Rows of files that were written before the column was required would be dropped, or stay."""
    file = data_file(metrics=Metrics(bounds={1: (1, 9)}))

    assert by_filter("id > 0").coverage(file) is PARTIAL
    assert by_filter("id is null").coverage(file) is PARTIAL


def test_partition_and_metrics_that_contradict_each_other_prove_nothing() -> None:
    """Rows of a file whose entry is wrong would be dropped, or stay."""
    file = data_file([20], metrics=Metrics(bounds={1: (1, 9)}, nulls={1: 0}))
    by_id = spec((1, IdentityTransform()))

    for text in ("id = 20", "id = 5", "id < 100", "id is null"):
        assert by_filter(text, by_id).coverage(file) is PARTIAL


@pytest.mark.parametrize("text", ["id = 1", "x is null", "text <> 'a'", "x is nan", "price > 1", "ts < '2026-01-01'"])
def test_file_without_metrics_is_read(text: str) -> None:
    """Rows of files whose columns were not measured would be dropped, or stay."""
    assert by_filter(text).coverage(data_file()) is PARTIAL


def test_bounds_written_before_a_column_was_widened_still_tell() -> None:
    """A range over a widened column would fail, or drop files by bounds of other width."""
    bounds = {1: (5, 6), 2: (1.5, 1.5), 4: (Decimal("-1.00"), Decimal("1.28"))}
    types = {1: ice.IntegerType(), 2: ice.FloatType(), 4: ice.DecimalType(5, 2)}
    file = data_file(metrics=Metrics(bounds=bounds, types=types, nulls={1: 0, 2: 0, 4: 0}, nans={2: 0}))

    for text in ("id = 99", "x = 99", "price = 99"):
        assert by_filter(text).coverage(file) is not INSIDE
    for text in ("id >= 5", "x = 1.5", "price between -1 and 1.28"):
        assert by_filter(text).coverage(file) is not OUTSIDE


def test_truncated_bounds_prove_nothing_beyond_their_length() -> None:
    """Rows with another long text of the same beginning would be dropped."""
    file = data_file(metrics=Metrics(bounds={3: ("customer-0000000", "customer-0000001")}, nulls={3: 0}))

    assert by_filter("text = 'customer-0000000'").coverage(file) is PARTIAL
    assert by_filter("text = 'customer-0000000-of-three'").coverage(file) is PARTIAL
    assert by_filter("text like 'customer-0000000%'").coverage(file) is PARTIAL
    assert by_filter("text like 'customer-%'").coverage(file) is INSIDE
    assert by_filter("text < 'd'").coverage(file) is INSIDE


def test_partition_that_is_the_columns_value_decides_without_metrics() -> None:
    """Every file would be read where metrics are off, or texts are longer than their bounds."""
    by_text = spec((3, IdentityTransform()))
    long = "customer-0000000-of-three"

    def coverage(text: str, value: object) -> Coverage:
        return by_filter(text, by_text).coverage(data_file([value]))

    assert coverage(f"text = '{long}'", long) is INSIDE
    assert coverage(f"text = '{long}'", long + "!") is OUTSIDE
    assert coverage(f"text = '{long}'", None) is OUTSIDE
    assert coverage(f"text <> '{long}'", None) is OUTSIDE
    assert coverage(f"text not in ('{long}', 'b')", None) is OUTSIDE
    assert coverage("text not like 'a%'", None) is OUTSIDE
    assert coverage("text not like 'a%'", "b") is INSIDE
    assert coverage("text is null", None) is INSIDE
    assert coverage("text is null", "a") is OUTSIDE
    assert coverage(f"text = '{long}' and id = 5", long) is PARTIAL
    assert coverage(f"text = '{long}' or id = 5", long) is INSIDE
    assert coverage(f"text = '{long}' or id = 5", "b") is PARTIAL


@pytest.mark.parametrize(("text", "coverage"), [("x < 5", OUTSIDE), ("x <> 5", INSIDE), ("x is nan", INSIDE)])
def test_partition_of_nan_is_judged_as_nan(text: str, coverage: Coverage) -> None:
    """NaN would be taken for a value in some range."""
    assert by_filter(text, spec((2, IdentityTransform()))).coverage(data_file([math.nan])) is coverage


@pytest.mark.parametrize(
    ("transform", "source", "value", "text", "coverage"),
    [
        (DayTransform(), 5, 20_000, "ts < '2024-10-04'", OUTSIDE),
        (DayTransform(), 5, 20_000, "ts < '2024-10-04 12:00:00'", PARTIAL),
        (DayTransform(), 5, 20_000, "ts < '2024-10-05'", PARTIAL),
        (DayTransform(), 5, -1, "ts >= '1970-01-01'", OUTSIDE),
        (DayTransform(), 5, 0, "ts < '1970-01-01'", PARTIAL),
        (DayTransform(), 5, 0, "ts < '1969-12-31'", OUTSIDE),
        (DayTransform(), 5, -1, "ts < '1969-12-31 00:00:01'", PARTIAL),
        (TruncateTransform(3), 3, "abc", "text = 'abd'", OUTSIDE),
        (TruncateTransform(3), 3, "abc", "text = 'abcd'", PARTIAL),
        (TruncateTransform(3), 3, "abc", "text like 'abcd%'", PARTIAL),
        (TruncateTransform(3), 3, "abc", "text like 'b%'", OUTSIDE),
        (TruncateTransform(3), 3, None, "text <> 'b'", OUTSIDE),
        (BucketTransform(1), 1, 0, "id = 7", PARTIAL),
        (BucketTransform(16), 1, 99, "id = 7", OUTSIDE),
        (BucketTransform(16), 1, 99, "id > 7", PARTIAL),
        (VoidTransform(), 1, None, "id = 7", PARTIAL),
    ],
)
def test_partition_of_a_transform_only_rules_out(
    transform: Transform[Any, Any], source: int, value: object, text: str, coverage: Coverage
) -> None:
    """Rows at the edge of a day or a bucket would be dropped, or stay."""
    assert by_filter(text, spec((source, transform))).coverage(data_file([value])) is coverage


def test_partition_value_of_a_uuid_is_recognised_as_it_is_read() -> None:
    """Rows of a partition by UUID would not be found, because it is read in another form than compared."""
    value = UUID(int=7)
    by_uuid = spec((6, IdentityTransform()))

    assert by_filter(f"uuid = '{value}'", by_uuid).coverage(data_file([value])) is not OUTSIDE


def summary(low: object, high: object, kind: ice.PrimitiveType, *, null: bool = False) -> PartitionFieldSummary:
    """Return what a manifest list says of a partition field."""
    return PartitionFieldSummary(null, None, to_bytes(kind, low), to_bytes(kind, high))  # type: ignore[arg-type]


def manifest(*partitions: PartitionFieldSummary, spec_id: int = 0) -> ManifestFile:
    """Return a manifest of files with such partitions."""
    return ManifestFile.from_args(partition_spec_id=spec_id, partitions=list(partitions))


def test_manifest_is_skipped_if_no_partition_of_it_can_match() -> None:
    """Every manifest of the table would be read for one day's rows."""
    specs = [spec((5, DayTransform()), spec_id=0), spec((3, IdentityTransform()), spec_id=1)]
    of_day = manifest(summary(20_000, 20_001, ice.IntegerType()))
    of_text = manifest(summary("a", "b", ice.StringType(), null=True), spec_id=1)

    assert by_filter("ts >= '2024-10-05' and ts < '2024-10-06'", *specs).may_touch(of_day)
    assert not by_filter("ts >= '2024-10-06'", *specs).may_touch(of_day)
    assert by_filter("ts >= '2024-10-06'", *specs).may_touch(of_text)
    assert not by_filter("text = 'c'", *specs).may_touch(of_text)
    assert by_filter("text is null", *specs).may_touch(of_text)
    assert by_filter("text is null", *specs).may_touch(of_day)
    assert by_filter("true", *specs).may_touch(of_day)


def test_spec_whose_column_was_dropped_says_nothing() -> None:
    """A table could not be overwritten in part any more, or its old files be skipped."""
    specs = [PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "gone"), spec_id=0), PartitionSpec(spec_id=1)]

    assert by_filter("id = 5", *specs).coverage(data_file(["a"])) is PARTIAL
    assert by_filter("id = 5", *specs).may_touch(manifest(PartitionFieldSummary(True, None, None, None)))  # noqa: FBT003


def test_predicate_that_does_not_fit_the_schema_any_more_is_refused() -> None:
    """A column that was dropped while the rows were written would be taken for another one."""
    with pytest.raises(ValueError, match="no column 'gone'"):
        by_filter("gone = 5")


def partitions(*files: DataFile, specs: Sequence[PartitionSpec]) -> PartitionRange:
    """Return the partitions of these files."""
    return PartitionRange(metadata_of(schemas=[SCHEMA], specs=specs), files, "db.t")


@pytest.mark.parametrize(
    ("written", "read", "is_same"),
    [
        (None, None, True),
        (None, 0, False),
        (0, None, False),
        ("null", None, False),
        ("", "", True),
        ("ünï/ =", "ünï/ =", True),
        ("a", "A", False),
        (math.nan, float("nan"), True),
        ("NaN", "NaN", True),
        (-0.0, 0.0, False),
        (0.1, 0.10000000149011612, False),
        (b"\x00\xff", b"\x00\xff", True),
        (Decimal("1.10"), Decimal("1.10"), True),
        (UUID(int=7).bytes, UUID(int=7), True),
        (UUID(int=7).bytes, UUID(int=8), False),
    ],
)
def test_partition_is_recognised_however_its_value_was_read(written: object, read: object, *, is_same: bool) -> None:
    """Rows of a replaced partition would stay beside the new ones, or those of another one be dropped."""
    by_text = spec((3, IdentityTransform()))

    coverage = partitions(data_file([written]), specs=[by_text]).coverage(data_file([read]))

    assert coverage is (INSIDE if is_same else OUTSIDE)


def test_partition_of_several_fields_is_replaced_only_if_all_are_the_same() -> None:
    """Rows of neighbouring partitions would be dropped."""
    specs = [spec((3, IdentityTransform()), (1, BucketTransform(4)))]
    replaced = partitions(data_file(["a", 1]), data_file(["b", 2]), specs=specs)

    assert replaced.coverage(data_file(["a", 1])) is INSIDE
    assert replaced.coverage(data_file(["b", 2])) is INSIDE
    assert replaced.coverage(data_file(["a", 2])) is OUTSIDE


@pytest.mark.parametrize("only", [spec(), spec((1, VoidTransform()), (3, VoidTransform()))], ids=["none", "void"])
def test_table_without_partitions_is_replaced_whole(only: PartitionSpec) -> None:
    """Rows of an unpartitioned table would be doubled by a dynamic overwrite, or refused."""
    replaced = partitions(data_file([None] * len(only.fields)), specs=[only])

    assert replaced.is_everything
    assert replaced.coverage(data_file([], spec_id=7)) is INSIDE


def test_no_rows_replace_no_partition() -> None:
    """An empty batch would empty the table."""
    replaced = partitions(specs=[spec()])

    assert not replaced.is_everything
    assert not replaced.may_touch(manifest())


def test_partitions_are_those_of_the_spec_that_the_rows_were_written_with() -> None:
    """Rows would be dropped because a partition of another kind has the same value, if the spec changes meanwhile."""
    specs = [spec((3, IdentityTransform()), spec_id=0), spec((3, TruncateTransform(2)), spec_id=1)]
    replaced = partitions(data_file(["EU"], spec_id=0), specs=specs)

    assert replaced.coverage(data_file(["EU"], spec_id=0)) is INSIDE
    with pytest.raises(UnsupportedTableError, match="written by partition spec 1 and these rows by 0"):
        replaced.coverage(data_file(["EU"], spec_id=1))


def test_file_of_another_spec_is_refused() -> None:
    """Rows that belong to a replaced partition would stay beside the new ones, because their file does not say so."""
    specs = [spec((3, IdentityTransform()), spec_id=0), spec((1, BucketTransform(4)), spec_id=1)]

    with pytest.raises(UnsupportedTableError, match=r"a.parquet was written by partition spec 0.*Use replace-where"):
        partitions(data_file([1], spec_id=1), specs=specs).coverage(data_file(["a"], spec_id=0))
