"""Writes into a `PeerTable` as users of Spark ask for them: a DataFrame, a mode, and options in anybody's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import types as spark
from pyspark.sql.types import DataType, StructField, StructType
from support.checks.reader import rows_of
from support.peer.tables import PeerTable

from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.deletes.upsert import UpsertCommit, UpsertResult
from iceberg_ds.planning.plan_write import WriteMode

BOOLEAN = spark.BooleanType()
SHORT = spark.ShortType()
INT = spark.IntegerType()
LONG = spark.LongType()
FLOAT = spark.FloatType()
DOUBLE = spark.DoubleType()
STRING = spark.StringType()
BINARY = spark.BinaryType()
DATE = spark.DateType()
TIMESTAMP = spark.TimestampType()
TIMESTAMP_NTZ = spark.TimestampNTZType()
VOID = spark.NullType()

Values = tuple[Any, ...]
Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Frame:
    """What a DataFrame is to a sink: columns, and rows in two tasks."""

    schema: StructType
    rows: Sequence[Values]

    @property
    def parts(self) -> list[list[dict[str, Any]]]:
        """The rows of each task."""
        named = [dict(zip(self.schema.names, row, strict=True)) for row in self.rows]
        return [named[::2], named[1::2]]


def frame(columns: Mapping[str, DataType], *rows: Values, required: Sequence[str] = ()) -> Frame:
    """Return rows of these columns, all of them nullable but those that are `required`."""
    fields = [StructField(name, found, nullable=name not in required) for name, found in columns.items()]
    return Frame(StructType(fields), rows)


def struct(**fields: DataType) -> StructType:
    """Return a struct of optional fields."""
    return StructType([StructField(name, found) for name, found in fields.items()])


def save(table: PeerTable, data: Frame, mode: str = "append", options: Options | None = None) -> CommitResult:
    """Write a batch as `df.write.mode(mode).options(**options).save("db.t")` does."""
    return table.write(*data.parts, schema=data.schema, mode=WriteMode[mode.upper()], options=options)


def stream(
    table: PeerTable, number: int, data: Frame, output_mode: str = "append", options: Options | None = None
) -> CommitResult:
    """Write an epoch as a query with this output mode and these options does."""
    mode = WriteMode.OVERWRITE if output_mode == "complete" else WriteMode.APPEND
    return table.write(*data.parts, schema=data.schema, mode=mode, of_epoch=number, options=options)


def upsert(table: PeerTable, data: Frame, keys: str, options: Options | None = None) -> UpsertResult:
    """Write rows as `iceberg_ds.upsert(df, "db.t", keys=keys, options=options)` does."""
    sink = table.sink({**table.options, **(options or {}), "keys": keys})
    plan = sink.plan(data.schema, WriteMode.UPSERT)
    messages = sink.write(*data.parts, schema=data.schema, plan=plan)
    return UpsertCommit(sink.catalog, plan, "position", None).run(messages)


def found(table: PeerTable) -> list[Values]:
    """Return the rows of the table as PyIceberg reads them, in their natural order."""
    return ordered(*(tuple(row.values()) for row in table.load().scan().to_arrow().to_pylist()))


def found_by_key(table: PeerTable) -> list[Values]:
    """Return the rows of a table with deletes by keys, which PyIceberg does not read, in their natural order."""
    return ordered(*(tuple(row.values()) for row in rows_of(table.load())))


def ordered(*rows: Values) -> list[Values]:
    """Return rows in their natural order, null first; nested values in that of their text."""
    return sorted(rows, key=lambda row: [_rank(value) for value in row])


def _rank(value: Any) -> tuple[bool, Any]:
    if isinstance(value, dict | list):
        return True, repr(value)
    return value is not None, 0 if value is None else value


def names(table: PeerTable) -> list[str]:
    """Return the names of the table's columns."""
    return list(table.load().schema().column_names)
