"""Dates that became timestamps, which version 3 allows: rows of older files are found, whose metrics tell of days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from operator import itemgetter

import pyspark.sql.types as spark
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, NestedField, StringType, TimestampType
from support.keys.upserts import commit_upsert
from support.tables.changes_by_others import set_columns
from support.tables.data_rewrites import rewrite
from support.tables.reading import read_by_tasks
from support.tables.sink import Sink

from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.planning.plan_write import WriteMode

DAY = date(2026, 11, 29)
COLUMNS = spark.StructType([spark.StructField("at", spark.DateType()), spark.StructField("name", spark.StringType())])
LATER = spark.StructType(
    [spark.StructField("at", spark.TimestampNTZType()), spark.StructField("name", spark.StringType())]
)
BEFORE = {"at": datetime.fromisoformat("2026-11-28"), "name": "before"}
NEW = [{"at": datetime.fromisoformat("2026-11-29"), "name": "new"}]


@pytest.fixture
def promoted(sink: Sink) -> Sink:
    """Return the sink of a table with a row of `DAY`, and one of the day before, whose dates became timestamps."""
    sink.create(Schema(NestedField(1, "at", DateType()), NestedField(2, "name", StringType())), format_version="3")
    rows = [{"at": DAY, "name": "old"}, {"at": date(2026, 11, 28), "name": "before"}]
    sink.commit(sink.write(rows, schema=COLUMNS, plan=sink.plan(COLUMNS)))
    set_columns(sink, NestedField(1, "at", TimestampType()), NestedField(2, "name", StringType()))
    return sink


@pytest.mark.parametrize("where", ["at = '2026-11-29 00:00:00'", "at > '2026-11-28 12:00:00'"])
def test_filter_finds_the_rows(promoted: Sink, where: str) -> None:
    """Readers would miss rows: their days were taken for microseconds of 1970."""
    assert [row["name"] for row in read_by_tasks(promoted, where=where)] == ["old"]


def replace_where(sink: Sink) -> None:
    """Replace the rows of the day."""
    plan = sink.plan(LATER, WriteMode.OVERWRITE, replace_where="at >= '2026-11-29 00:00:00'")
    sink.commit(sink.write(NEW, schema=LATER, plan=plan))


def upsert(sink: Sink, encoding: RowEncoding = "position") -> None:
    """Write the row of the day by its key."""
    plan = sink.plan(LATER, WriteMode.UPSERT, keys=("at",))
    commit_upsert(sink, plan, encoding, sink.write(NEW, schema=LATER, plan=plan))


def upsert_again(sink: Sink) -> None:
    """Write the row of the day by its key, and the file of the old row again."""
    upsert(sink, "copy-on-write")


@pytest.mark.parametrize("write", [replace_where, upsert, upsert_again])
def test_old_rows_are_replaced(promoted: Sink, write: Callable[[Sink], None]) -> None:
    """The table would have the old rows beside the new ones."""
    write(promoted)

    assert sorted(read_by_tasks(promoted), key=itemgetter("at")) == [BEFORE, *NEW]


def test_compaction_keeps_the_days(promoted: Sink) -> None:
    """A row would get another day, or the rewrite fail."""
    rewrite(promoted, min_input_files="1", rewrite_all="true")

    assert BEFORE in read_by_tasks(promoted, where="at < '2026-11-29 00:00:00'")
