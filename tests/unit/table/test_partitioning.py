"""Partition values against PyIceberg's scalar transforms and the spec's examples; the split keeps every row."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
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
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from support.checks.plain_metrics import physical
from support.tables.sink import Row

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.table import partitioning
from iceberg_ds.table.arrow_schema import file_shape
from iceberg_ds.table.partitioning import PartitionKey, PartitionPath, PartitionSplitter

UTC = dt.timezone.utc

DATES = [
    dt.date(1, 1, 1),
    dt.date(1969, 12, 31),
    dt.date(1969, 12, 1),
    dt.date(1969, 11, 30),
    dt.date(1969, 1, 1),
    dt.date(1968, 12, 31),
    dt.date(1970, 1, 1),
    dt.date(1968, 2, 29),
    dt.date(1900, 3, 1),
    dt.date(9999, 12, 31),
    None,
]
INSTANTS = [
    dt.datetime(1, 1, 1, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 23, 0, tzinfo=UTC),
    dt.datetime(1969, 12, 31, 22, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1969, 12, 31, tzinfo=UTC),
    dt.datetime(1969, 12, 30, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1969, 11, 30, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1969, 1, 1, tzinfo=UTC),
    dt.datetime(1968, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1968, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(1970, 1, 1, tzinfo=UTC),
    dt.datetime(1970, 1, 1, 0, 59, 59, 999999, tzinfo=UTC),
    dt.datetime(2026, 11, 21, 7, 30, 15, 123456, tzinfo=UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    None,
]
INTEGERS = [-(2**31) + 8, -(2**31) + 9, -11, -10, -1, 0, 1, 9, 10, 2**31 - 1, None]
LONGS = [-(2**63) + 100, -11, -10, -1, 0, 1, 34, 2**63 - 1, None]
TEXTS = [
    "",
    "a",
    "\U0001f600a\U0001f601b",
    "e\u0301x",
    "\x00y",
    "iceberg",
    "\U0001f600\U0001f601\U0001f602\U0001f603",
    "é" * 9,
    "a/b=c d",
    None,
]
BYTES = [b"", b"\x00\x01\x02\x03", b"\xff" * 9, None]
DECIMALS = [
    decimal.Decimal(text)
    for text in ("-99999.99", "-10.65", "-1.28", "-1.29", "-0.10", "-0.01", "0.00", "0.01", "1.27", "14.20", "99999.99")
] + [None]
DECIMALS_38 = [
    decimal.Decimal(text)
    for text in ("9" * 38, "-" + "9" * 37 + "0", str(10**37), str(-(10**37) - 7), "-1", "0", "127", "-128", "-129")
] + [None]
DECIMALS_38_10 = [decimal.Decimal("9" * 28 + "." + "9" * 10), decimal.Decimal("-0.0000000001"), None]
TIMES = [0, 81_068_000_000, 86_399_999_999, None]  # microseconds of a day
UUIDS = [uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, uuid.UUID(int=0).bytes, None]

SOURCES: dict[str, tuple[ice.PrimitiveType, list[Any]]] = {
    "int": (ice.IntegerType(), INTEGERS),
    "long": (ice.LongType(), LONGS),
    "string": (ice.StringType(), TEXTS),
    "binary": (ice.BinaryType(), BYTES),
    "decimal": (ice.DecimalType(9, 2), DECIMALS),
    "decimal38": (ice.DecimalType(38, 0), DECIMALS_38),
    "decimal38.10": (ice.DecimalType(38, 10), DECIMALS_38_10),
    "fixed": (ice.FixedType(4), [b"\x00\x01\x02\x03", b"\xff" * 4, None]),
    "uuid": (ice.UUIDType(), UUIDS),
    "date": (ice.DateType(), DATES),
    "time": (ice.TimeType(), TIMES),
    "timestamp": (ice.TimestampType(), INSTANTS),
    "timestamptz": (ice.TimestamptzType(), INSTANTS),
    "boolean": (ice.BooleanType(), [True, False, None]),
    "float": (ice.FloatType(), [-1.5, 0.25, math.inf, None]),
    "double": (ice.DoubleType(), [-1.5, 0.1, -math.inf, None]),
}
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    VoidTransform(),
    BucketTransform(16),
    BucketTransform(1),
    TruncateTransform(10),
    TruncateTransform(3),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
]
CASES = [
    pytest.param(transform, source_type, values, id=f"{transform}-{name}")
    for transform in TRANSFORMS
    for name, (source_type, values) in SOURCES.items()
    if transform.can_transform(source_type)
]


def one_column(field_type: ice.PrimitiveType, transform: Transform[Any, Any]) -> tuple[Schema, PartitionSpec]:
    """Return a schema of a column and a row number, and a spec on the column."""
    schema = Schema(NestedField(1, "c", field_type), NestedField(2, "row", ice.LongType()))
    return schema, spec_of((1, transform))


def spec_of(*fields: tuple[int, Transform[Any, Any]]) -> PartitionSpec:
    """Return a spec of these source ids and transforms."""
    return PartitionSpec(
        *(
            PartitionField(source_id=source_id, field_id=1000 + number, transform=transform, name=f"p{number}")
            for number, (source_id, transform) in enumerate(fields)
        )
    )


def batch_of(schema: Schema, data: list[Row]) -> pa.RecordBatch:
    """Return rows in the shape of the table's files."""
    return pa.RecordBatch.from_pylist(data, schema=file_shape(schema).schema)


def split(spec: PartitionSpec, schema: Schema, data: list[Row]) -> list[tuple[tuple[object, ...], list[Row]]]:
    """Return the rows of each partition."""
    parts = PartitionSplitter(spec, schema).split(batch_of(schema, data))
    return [(key.values, rows.to_pylist()) for key, rows in parts]


@pytest.mark.parametrize(("transform", "source_type", "values"), CASES)
def test_partition_value_is_the_one_of_the_scalar_transform(
    transform: Transform[Any, Any], source_type: ice.PrimitiveType, values: list[Any]
) -> None:
    """A query for a partition value would not find its rows."""
    schema, spec = one_column(source_type, transform)
    scalar = transform.transform(source_type)

    parts = split(spec, schema, [{"c": value, "row": number} for number, value in enumerate(values)])

    found = {row["row"]: key[0] for key, rows in parts for row in rows}
    assert found == {number: scalar(physical(value)) for number, value in enumerate(values)}


JUST_BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
SPEC_VALUES: list[tuple[Transform[Any, Any], ice.PrimitiveType, Any, Any]] = [
    (YearTransform(), ice.TimestamptzType(), JUST_BEFORE_1970, -1),
    (MonthTransform(), ice.TimestamptzType(), JUST_BEFORE_1970, -1),
    (DayTransform(), ice.TimestamptzType(), JUST_BEFORE_1970, -1),
    (HourTransform(), ice.TimestamptzType(), JUST_BEFORE_1970, -1),
    (YearTransform(), ice.DateType(), dt.date(1969, 1, 1), -1),
    (YearTransform(), ice.DateType(), dt.date(1968, 12, 31), -2),
    (MonthTransform(), ice.DateType(), dt.date(1969, 12, 1), -1),
    (MonthTransform(), ice.DateType(), dt.date(1969, 11, 30), -2),
    (DayTransform(), ice.DateType(), dt.date(2017, 12, 1), 17501),
    (YearTransform(), ice.DateType(), dt.date(2017, 12, 1), 47),
    (MonthTransform(), ice.DateType(), dt.date(2017, 12, 1), 575),
    (HourTransform(), ice.TimestampType(), dt.datetime(2017, 12, 1, 10, 12, 55, 38194, tzinfo=UTC), 420034),
    (TruncateTransform(10), ice.IntegerType(), 1, 0),
    (TruncateTransform(10), ice.IntegerType(), -1, -10),
    (TruncateTransform(10), ice.LongType(), -1, -10),
    (TruncateTransform(8), ice.IntegerType(), -(2**31), -(2**31)),
    (TruncateTransform(8), ice.LongType(), -(2**63), -(2**63)),
    (TruncateTransform(2**31 - 1), ice.IntegerType(), 2**31 - 1, 2**31 - 1),
    (TruncateTransform(50), ice.DecimalType(9, 2), decimal.Decimal("10.65"), decimal.Decimal("10.50")),
    (TruncateTransform(10), ice.DecimalType(9, 2), decimal.Decimal("-0.05"), decimal.Decimal("-0.10")),
    (TruncateTransform(10), ice.DecimalType(38, 0), decimal.Decimal("9" * 38), decimal.Decimal("9" * 37 + "0")),
    (TruncateTransform(3), ice.StringType(), "iceberg", "ice"),
    (TruncateTransform(2), ice.StringType(), "\U0001f600a\U0001f601", "\U0001f600a"),
    (TruncateTransform(2), ice.StringType(), "e\u0301x", "e\u0301"),
    (TruncateTransform(3), ice.BinaryType(), b"\x01\x02\x03\x04", b"\x01\x02\x03"),
]


@pytest.mark.parametrize(("transform", "source_type", "value", "expected"), SPEC_VALUES, ids=str)
def test_partition_value_is_the_specs(
    transform: Transform[Any, Any], source_type: ice.PrimitiveType, value: Any, expected: Any
) -> None:
    """Other engines would look for the row in another partition. Values: spec, "Partition Transforms"."""
    schema, spec = one_column(source_type, transform)

    parts = split(spec, schema, [{"c": value, "row": 0}])

    assert [key for key, _ in parts] == [(expected,)]


OVERFLOWING: list[tuple[Transform[Any, Any], ice.PrimitiveType, Any]] = [
    (TruncateTransform(10), ice.IntegerType(), -(2**31)),
    (TruncateTransform(10), ice.LongType(), -(2**63)),
    (TruncateTransform(10), ice.DecimalType(4, 2), decimal.Decimal("-99.99")),
    (TruncateTransform(10), ice.DecimalType(38, 0), decimal.Decimal("-" + "9" * 38)),
    (TruncateTransform(2**31 - 1), ice.DecimalType(38, 10), decimal.Decimal("-" + "9" * 28 + "." + "9" * 10)),
    (HourTransform(), ice.TimestampType(), 2**31 * 3600 * 10**6),
    (HourTransform(), ice.TimestamptzType(), -(2**31) * 3600 * 10**6 - 1),
]


@pytest.mark.parametrize(("transform", "source_type", "value"), OVERFLOWING, ids=str)
def test_value_whose_partition_value_would_overflow_is_refused(
    transform: Transform[Any, Any], source_type: ice.PrimitiveType, value: Any
) -> None:
    """The row would go into a partition, of a wrapped or a null value, where no query looks for it."""
    schema, spec = one_column(source_type, transform)

    with pytest.raises(SchemaMismatchError, match="'c' is out of range for partition field 'p0'"):
        split(spec, schema, [{"c": None, "row": 0}, {"c": value, "row": 1}])


@pytest.mark.parametrize("value", [2**31 * 3600 * 10**6 - 1, -(2**31) * 3600 * 10**6])
def test_hours_up_to_the_limit_are_kept(value: int) -> None:
    """Rows would be refused for nothing."""
    schema, spec = one_column(ice.TimestampType(), HourTransform())

    parts = PartitionSplitter(spec, schema).split(batch_of(schema, [{"c": value, "row": 0}]))

    assert [key.values for key, _ in parts] == [(value // (3600 * 10**6),)]


SPEC_BUCKETS: list[tuple[ice.PrimitiveType, Any, int]] = [
    (ice.IntegerType(), 34, 2017239379),
    (ice.LongType(), 34, 2017239379),
    (ice.DecimalType(4, 2), decimal.Decimal("14.20"), -500754589),
    (ice.DateType(), dt.date(2017, 11, 16), -653330422),
    (ice.TimestampType(), dt.datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), -2047944441),
    (ice.TimestamptzType(), dt.datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), -2047944441),
    (ice.TimestampType(), dt.datetime(2017, 11, 16, 22, 31, 8, 1, tzinfo=UTC), -1207196810),
    (ice.TimeType(), dt.time(22, 31, 8), -662762989),
    (ice.StringType(), "iceberg", 1210000089),
    (ice.UUIDType(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
    (ice.FixedType(4), b"\x00\x01\x02\x03", -188683207),
    (ice.BinaryType(), b"\x00\x01\x02\x03", -188683207),
]


@pytest.mark.parametrize(("source_type", "value", "hashed"), SPEC_BUCKETS, ids=str)
@pytest.mark.parametrize("buckets", [1, 16, 1000, 2**31 - 1])
def test_bucket_is_the_one_of_the_specs_hash_values(
    source_type: ice.PrimitiveType, value: Any, hashed: int, buckets: int
) -> None:
    """A query by another engine for one key would look into another bucket. Values: spec, appendix B."""
    schema, spec = one_column(source_type, BucketTransform(buckets))

    parts = split(spec, schema, [{"c": value, "row": 0}])

    assert [key for key, _ in parts] == [((hashed & 0x7FFF_FFFF) % buckets,)]


def test_rows_keep_their_order_and_none_is_lost() -> None:
    """A task's rows would be shuffled or lost."""
    schema, spec = one_column(ice.IntegerType(), TruncateTransform(10))
    data = [{"c": (number * 7919) % 50, "row": number} for number in range(500)]

    parts = split(spec, schema, data)

    assert len(parts) == 5
    for (truncated,), rows in parts:
        assert rows == [row for row in data if row["c"] // 10 * 10 == truncated]


def test_each_partition_of_a_batch_comes_once() -> None:
    """Every batch would open more files than it has partitions."""
    schema, spec = one_column(ice.StringType(), IdentityTransform())
    data = [{"c": "ab"[number % 2] if number % 3 else None, "row": number} for number in range(60)]

    keys = [key for key, _ in split(spec, schema, data)]

    assert sorted(keys, key=str) == [("a",), ("b",), (None,)]


def test_many_columns_tell_apart_every_combination() -> None:
    """Rows of different partitions would be mixed in one file, and queries would miss them."""
    names = "abcd"
    schema = Schema(*(NestedField(number, name, ice.LongType()) for number, name in enumerate(names, start=1)))
    spec = spec_of(*((number, IdentityTransform()) for number in range(1, 5)))
    data = [
        {"a": number % 7 or None, "b": number % 5 or None, "c": number % 11 or None, "d": number % 3 or None}
        for number in range(3000)
    ]

    parts = split(spec, schema, data)

    expected = {tuple(row[name] for name in names) for row in data}
    assert {key for key, _ in parts} == expected
    assert len(parts) == len(expected)
    assert all(tuple(row[name] for name in names) == key for key, rows in parts for row in rows)
    assert sum(len(rows) for _, rows in parts) == len(data)


def test_one_source_may_have_several_transforms() -> None:
    """Tables partitioned by day and by bucket of one column could not be written."""
    schema = Schema(NestedField(1, "c", ice.TimestamptzType()))
    spec = spec_of((1, YearTransform()), (1, HourTransform()), (1, BucketTransform(4)))

    parts = split(spec, schema, [{"c": value} for value in INSTANTS])

    transforms = [field.transform.transform(ice.TimestamptzType()) for field in spec.fields]
    assert {key for key, _ in parts} == {tuple(scalar(physical(value)) for scalar in transforms) for value in INSTANTS}


def test_source_inside_structs_is_found_and_null_above_it_is_null() -> None:
    """Tables partitioned by a nested field could not be written."""
    schema = Schema(
        NestedField(1, "id", ice.LongType()),
        NestedField(
            2, "s", ice.StructType(NestedField(3, "t", ice.StructType(NestedField(4, "region", ice.StringType()))))
        ),
    )
    data = [
        {"id": 1, "s": {"t": {"region": "EU"}}},
        {"id": 2, "s": None},
        {"id": 3, "s": {"t": None}},
        {"id": 4, "s": {"t": {"region": None}}},
        {"id": 5, "s": {"t": {"region": "EU"}}},
    ]

    parts = split(spec_of((4, IdentityTransform())), schema, data)

    assert {key: [row["id"] for row in rows] for key, rows in parts} == {("EU",): [1, 5], (None,): [2, 3, 4]}


@pytest.mark.parametrize("start", range(4))
def test_slice_of_a_batch_is_split_by_its_own_rows(start: int) -> None:
    """Rows would go into the partition of other rows."""
    schema = Schema(
        NestedField(1, "s", ice.StructType(NestedField(2, "x", ice.StringType()))),
        NestedField(3, "row", ice.LongType()),
    )
    data = [
        {"s": {"x": text} if text else None, "row": number} for number, text in enumerate(["a", None, "b", "a", "b"])
    ]

    parts = PartitionSplitter(spec_of((2, IdentityTransform())), schema).split(batch_of(schema, data).slice(start))

    for key, rows in parts:
        assert all((row["s"] or {"x": None})["x"] == key.values[0] for row in rows.to_pylist())


# Days and microseconds since 1970 of the ends of what Spark's and Iceberg's types hold, and of what Python's do; years
# and months as Java's `ChronoUnit` counts them.
FAR_OFF = [
    (ice.DateType(), 2**31 - 1, 5_879_610, 12 * 5_879_610 + 6),
    (ice.DateType(), -(2**31), -5_879_611, 12 * -5_879_611 + 5),
    (ice.DateType(), 96_000_000, 262_839, 3_154_068 + 12 - 12),
    (ice.TimestampType(), 2**63 - 1, 292_277, 12 * 292_277),
    (ice.TimestamptzType(), -(2**63), -292_278, 12 * -292_278 + 11),
]


@pytest.mark.parametrize(("source_type", "value", "year", "month"), FAR_OFF, ids=str)
def test_years_that_python_does_not_know_have_partitions(
    source_type: ice.PrimitiveType, value: int, year: int, month: int
) -> None:
    """Rows that Iceberg's Java library writes would be refused as out of range."""
    for transform, expected in ((YearTransform(), year), (MonthTransform(), month)):
        schema, spec = one_column(source_type, transform)
        kind = file_shape(schema).schema.field(0).type
        near = [None, 0, -1, 1]  # a batch of which one value alone is far off
        values = pa.array([*near, value], pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)
        batch = pa.RecordBatch.from_arrays([values, pa.array(range(5), pa.int64())], schema=file_shape(schema).schema)

        found = {row: key.values[0] for key, rows in PartitionSplitter(spec, schema).split(batch) for row in ids(rows)}

        assert found == {0: None, 1: 0, 2: -1, 3: 0, 4: expected}


def ids(rows: pa.RecordBatch) -> list[int]:
    """Return the values of the second column."""
    return list(rows.column(1).to_pylist())


@given(days=st.lists(st.integers(-90_000_000, 90_000_000), min_size=1, max_size=40))
def test_years_and_months_are_those_of_pyiceberg_wherever_it_has_them(days: list[int]) -> None:
    """Two batches with the same date would go to different partitions, because one has a date far off beside it."""
    dates = pa.array(days, pa.int32()).view(pa.date32())
    instants = pc.multiply(pa.array(days, pa.int64()), 86_400_000_000).view(pa.timestamp("us"))

    for values, kind in ((dates, ice.DateType()), (instants, ice.TimestampType())):
        months = MonthTransform().pyarrow_transform(kind)(values)
        years = YearTransform().pyarrow_transform(kind)(values)
        assert partitioning._months(values).to_pylist() == months.to_pylist()
        assert partitioning._floor_divide(partitioning._months(values), 12).to_pylist() == years.to_pylist()


@pytest.mark.parametrize("source_type", [ice.FloatType(), ice.DoubleType()], ids=str)
def test_zeros_of_either_sign_are_two_partitions(source_type: ice.PrimitiveType) -> None:
    """Readers that take a column from its partition would read 0.0 for -0.0, depending on how rows were written."""
    schema, spec = one_column(source_type, IdentityTransform())
    data = [{"c": value, "row": 0} for value in (0.0, -0.0, 0.0, -0.0)]

    keys = [PartitionKey(key) for _ in range(2) for key, _ in split(spec, schema, data)]

    assert len(keys) == 4
    assert {str(key.values[0]) for key in set(keys)} == {"0.0", "-0.0"}
    assert len(set(keys)) == 2


def test_nan_rows_are_one_partition() -> None:
    """Every batch with a NaN would leave another small file."""
    schema, spec = one_column(ice.DoubleType(), IdentityTransform())
    data = [{"c": value, "row": 0} for value in (math.nan, 1.0, math.nan)]

    keys = [PartitionKey(key) for _ in range(2) for key, _ in split(spec, schema, data)]

    assert len(keys) == 4
    assert len(set(keys)) == 2


def test_void_source_may_have_been_dropped() -> None:
    """Version 1 tables whose partition field and column were dropped could not be written."""
    schema = Schema(NestedField(2, "row", ice.LongType()))

    parts = split(spec_of((1, VoidTransform())), schema, [{"row": 1}, {"row": 2}])

    assert parts == [((None,), [{"row": 1}, {"row": 2}])]


def test_unknown_transform_is_refused_by_its_fields_name() -> None:
    """Rows would get a wrong partition value."""
    schema, spec = one_column(ice.LongType(), UnknownTransform("zorder"))

    with pytest.raises(ValueError, match="p0"):
        PartitionSplitter(spec, schema)


def test_key_is_a_manifests_partition_tuple() -> None:
    """Manifests would hold the values of other fields."""
    key = PartitionKey((1, None, "x"))

    assert list(key.record()) == [1, None, "x"]
    assert len(PartitionKey(()).record()) == 0


def test_folder_is_named_as_iceberg_does() -> None:
    """People and tools that look for `day=2026-11-21` would not find it."""
    schema = Schema(
        NestedField(1, "ts", ice.TimestamptzType()),
        NestedField(2, "region", ice.StringType()),
        NestedField(3, "n", ice.LongType()),
    )
    spec = PartitionSpec(
        PartitionField(1, 1000, DayTransform(), "day"),
        PartitionField(2, 1001, IdentityTransform(), "region"),
        PartitionField(3, 1002, BucketTransform(8), "n_bucket"),
    )

    path = PartitionPath(Record(20778, "a/b c", None), spec, schema).to_path()

    assert path == "day=2026-11-21/region=a%2Fb+c/n_bucket=null"


@pytest.mark.parametrize("transform", [BucketTransform(16), TruncateTransform(10), IdentityTransform()])
def test_decimals_are_split_wherever_they_lie_in_memory(transform: Transform[Any, Any]) -> None:
    """A task with a single batch from Spark would abort in PyIceberg's native code."""
    schema, spec = one_column(ice.DecimalType(9, 2), transform)
    decimals = pa.array([value for value in DECIMALS if value is not None], pa.decimal128(9, 2))
    data = pa.py_buffer(bytes(8) + decimals.buffers()[1].to_pybytes()).slice(8)
    shifted = pa.Array.from_buffers(decimals.type, len(decimals), [None, data])
    rows = pa.RecordBatch.from_arrays([shifted, pa.array(range(len(decimals)))], schema=file_shape(schema).schema)

    parts = {key.values: part["row"].to_pylist() for key, part in PartitionSplitter(spec, schema).split(rows)}

    assert data.address % 16
    scalar = transform.transform(ice.DecimalType(9, 2))
    assert all(scalar(decimals[row].as_py()) == value for (value,), found in parts.items() for row in found)


def test_folder_of_a_date_beyond_pythons_has_its_number() -> None:
    """One row of the year 10000 would fail the write."""
    schema, spec = one_column(ice.TimestampType(), DayTransform())

    assert PartitionPath(Record(3_000_000), spec, schema).to_path() == "p0=3000000"
