"""A table that is partitioned by every transform of every key type at once, and writes into it by keys."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
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
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.keys.upserts import commit_upsert
from support.tables.sink import Row, Sink, local

from iceberg_ds.deletes.upsert import UpsertResult
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.planning.plan_write import WriteMode

UTC = dt.timezone.utc


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that the table is partitioned by.

    Attributes:
        kind: Its type in the table.
        sent: Its type in a DataFrame.
        values: Its values, row by row.
    """

    kind: PrimitiveType
    sent: spark.DataType
    values: tuple[Any, ...]


KEYS = {
    "flag": Column(kind=BooleanType(), sent=spark.BooleanType(), values=(True, False, True)),
    "number": Column(kind=IntegerType(), sent=spark.IntegerType(), values=(-5, 0, 7)),
    "big": Column(kind=LongType(), sent=spark.LongType(), values=(-5, 0, 2**40)),
    "price": Column(
        kind=DecimalType(9, 2),
        sent=spark.DecimalType(9, 2),
        values=tuple(map(decimal.Decimal, ("1.10", "-2.00", "0.00"))),
    ),
    "wide": Column(
        kind=DecimalType(38, 20),
        sent=spark.DecimalType(38, 20),
        values=tuple(map(decimal.Decimal, ("1.1", "-123456789012345678", "0"))),
    ),
    "day": Column(
        kind=DateType(),
        sent=spark.DateType(),
        values=tuple(map(dt.date.fromisoformat, ("1969-12-31", "1970-01-01", "2026-11-22"))),
    ),
    "local": Column(
        kind=TimestampType(),
        sent=spark.TimestampNTZType(),
        values=tuple(map(dt.datetime.fromisoformat, ("1969-12-31T23:59:59", "1970-01-01", "2026-11-22T03:04:05"))),
    ),
    "at": Column(
        kind=TimestamptzType(),
        sent=spark.TimestampType(),
        values=(
            dt.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
            dt.datetime(1970, 1, 1, tzinfo=UTC),
            dt.datetime(2026, 11, 22, 3, 4, 5, 6, tzinfo=UTC),
        ),
    ),
    "text": Column(kind=StringType(), sent=spark.StringType(), values=("", "a b", "ü/#?%:..\n")),
    "uuid": Column(
        kind=UUIDType(),
        sent=spark.StringType(),
        values=tuple(str(UUID(int=number)) for number in (1, 2**127 + 5, 2**64)),
    ),
    "raw": Column(kind=BinaryType(), sent=spark.BinaryType(), values=(b"", b"\xff\x00", b"abc")),
    "three": Column(kind=FixedType(3), sent=spark.BinaryType(), values=(b"abc", b"\xff\x00z", b"\x00\x00\x00")),
    "time": Column(kind=TimeType(), sent=spark.StringType(), values=("00:00:00", "00:00:01", "23:59:59.000001")),
}
# Types that are no keys, and values that are not equal to themselves, or equal to others.
OTHERS = {
    "single": Column(kind=FloatType(), sent=spark.FloatType(), values=(math.nan, -0.0, 0.0)),
    "double": Column(kind=DoubleType(), sent=spark.DoubleType(), values=(0.0, math.nan, -0.0)),
    "nothing": Column(kind=UUIDType(), sent=spark.StringType(), values=(None, str(UUID(int=7)), None)),
    "maybe": Column(kind=StringType(), sent=spark.StringType(), values=(None, "", "null")),
}
COUNT = 3
_TRANSFORMS: tuple[Transform[Any, Any], ...] = (
    IdentityTransform(),
    BucketTransform(4),
    TruncateTransform(2),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryPartition:
    """A table whose rows have a key, a partition and a sequence each, and a value that changes.

    Attributes:
        columns: What it is partitioned by, by name.
        are_keys: Whether these columns are the key; else it is the column `id`, which partitions do not tell.
    """

    columns: dict[str, Column]
    are_keys: bool

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        fields = [
            NestedField(number, name, column.kind, required=self.are_keys)
            for number, (name, column) in enumerate(self.columns.items(), start=10)
        ]
        key_ids = [field.field_id for field in fields] if self.are_keys else [1]
        own = [NestedField(1, "id", LongType(), required=True)]
        own += [NestedField(number, name, LongType()) for number, name in ((2, "value"), (3, "lsn"))]
        return Schema(*own, *fields, identifier_field_ids=key_ids)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return tuple(self.columns) if self.are_keys else ("id",)

    @property
    def spec(self) -> PartitionSpec:
        """Every transform of every column, those of `fixed` as they are left out: readers do not agree on them."""
        schema = self.schema
        pairs = [
            (schema.find_field(name).field_id, transform)
            for name, column in self.columns.items()
            for transform in _TRANSFORMS
            if transform.can_transform(column.kind)
            and not (isinstance(column.kind, FixedType) and isinstance(transform, IdentityTransform))
        ]
        fields = [PartitionField(of, 1000 + n, transform, f"p{n}") for n, (of, transform) in enumerate(pairs)]
        return PartitionSpec(*fields)

    @property
    def sent(self) -> StructType:
        """The schema of its DataFrames."""
        own = [StructField(name, spark.LongType()) for name in ("id", "value", "lsn")]
        return StructType([*own, *(StructField(name, column.sent) for name, column in self.columns.items())])

    def rows(self, value: int, lsn: int = 1) -> list[Row]:
        """Return a row of each key, with this value and sequence."""
        return [
            {
                "id": number,
                "value": value,
                "lsn": lsn,
                **{name: column.values[number] for name, column in self.columns.items()},
            }
            for number in range(COUNT)
        ]

    def append(self, sink: Sink, value: int) -> None:
        """Append a row of each key."""
        sink.commit(sink.write(self.rows(value), schema=self.sent))

    def append_lacking(self, sink: Sink, rows: Sequence[Row]) -> list[Row]:
        """Append rows in files without the columns of identity partitions; return what these files had with them."""
        messages = sink.write(rows, schema=self.sent)
        files = [data_file for message in messages for data_file in message.data_files]
        full = [row for file in files for row in pq.read_table(local(file.file_path), partitioning=None).to_pylist()]
        lacked = [name for name, column in self.columns.items() if not isinstance(column.kind, FixedType)]
        sink.commit(
            [replace(task, data_files=tuple(_without(file, lacked) for file in task.data_files)) for task in messages]
        )
        return full

    def upsert(self, sink: Sink, encoding: RowEncoding, value: int, lsn: int = 1, **options: Any) -> UpsertResult:
        """Upsert a row of each key."""
        plan = sink.plan(self.sent, WriteMode.UPSERT, keys=self.keys, **options)
        messages = sink.write(self.rows(value, lsn), schema=self.sent, plan=plan)
        return commit_upsert(sink, plan, encoding, messages)

    def write_by_keys(self, sink: Sink, value: int) -> None:
        """Write a row of each key, and delete older ones by their keys."""
        plan = sink.plan(self.sent, keys=self.keys, delete_encoding="equality")
        sink.commit(sink.write(self.rows(value), schema=self.sent, plan=plan))


BY_KEYS = EveryPartition(columns=KEYS, are_keys=True)
BY_OTHERS = EveryPartition(columns=OTHERS, are_keys=False)


def _without(data_file: DataFile, names: Sequence[str]) -> DataFile:
    """Write a file again without some columns, and return its entry, which has no metrics."""
    path = local(data_file.file_path)
    pq.write_table(pq.read_table(path, partitioning=None).drop_columns(list(names)), path)
    lacking = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=data_file.file_path,
        file_format=FileFormat.PARQUET,
        partition=data_file.partition,
        record_count=data_file.record_count,
        file_size_in_bytes=path.stat().st_size,
    )
    lacking.spec_id = data_file.spec_id
    return lacking


def values_of(rows: Sequence[Row]) -> list[int]:
    """Return the values of rows, ascending."""
    return sorted(row["value"] for row in rows)
