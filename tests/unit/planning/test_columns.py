"""Which columns a write writes, and what tasks fill in."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import types as spark
from support.keys.messages import COLUMNS, events_feed
from support.tables.sink import SCHEMA, Sink, epoch, rows

from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.plan import AddedColumns, DeleteMark
from iceberg_ds.planning.plan_write import WriteMode

FEED = spark.StructType([*SCHEMA, spark.StructField("op", spark.StringType())])
KEYED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    identifier_field_ids=[1],
)
SOFT: dict[str, Any] = {"keys": ("id",), "operation_column": "op", "soft_delete_column": "gone"}
METADATA = ("_extracted_at", "_epoch_id", "_operation")


def with_column(name: str, data_type: spark.DataType) -> spark.StructType:
    """Return the feed with a column more."""
    return spark.StructType([*FEED, spark.StructField(name, data_type)])


def create_marked(sink: Sink, mark: IcebergType, *, required: bool = False) -> None:
    """Create a table with a column for marks."""
    sink.create(Schema(*KEYED.fields, NestedField(3, "Gone", mark, required=required), identifier_field_ids=[1]))


def planned(sink: Sink, columns: spark.StructType = FEED, **options: Any) -> AddedColumns:
    """Return what tasks are to fill in."""
    added = sink.plan(columns, **options).added
    assert added is not None
    return added


def test_write_without_such_options_fills_nothing_in(sink: Sink) -> None:
    """An append would have columns that nobody asked for."""
    plan = sink.plan()

    assert plan.added is None
    assert plan.in_epoch(epoch(4)).added is None
    assert plan.in_epoch(None) is plan


@pytest.mark.parametrize("keys", [None, ("id",)])
def test_new_table_gets_the_columns(sink: Sink, keys: tuple[str, ...] | None) -> None:
    """A user would have to make the columns before the first write."""
    before = time.time_ns() // 1000
    plan = sink.plan(FEED, keys=keys, operation_column="op", metadata_columns=METADATA, txn_app_id="a", txn_version=9)

    fields = {field.name: (field.field_type, field.required) for field in plan.schema.fields}
    assert fields["_extracted_at"] == (TimestamptzType(), False)
    assert fields["_epoch_id"] == (LongType(), False)
    assert fields["_operation"] == (StringType(), False)
    assert list(fields) == ["id", "name", *METADATA]
    assert plan.added is not None
    assert plan.added.names == METADATA
    assert before <= plan.added.instant_us <= time.time_ns() // 1000
    assert plan.added.number == 9
    assert plan.added.operation_column == (None if keys else "op")


def test_existing_table_gets_them_by_the_rules_of_evolution(sink: Sink) -> None:
    """A table would get columns without its owner's consent, or never."""
    sink.create(KEYED)

    with pytest.raises(SchemaMismatchError, match=r"column '_extracted_at' timestamp is not in the table"):
        sink.plan(metadata_columns=METADATA)
    plan = sink.plan(metadata_columns=METADATA, schema_evolution="add-columns")

    assert plan.schema.column_names == ["id", "name", *METADATA]
    assert sink.plan(metadata_columns=METADATA).schema == plan.schema


def test_column_of_the_dataframe_is_not_written_over(sink: Sink) -> None:
    """A user's own values would be lost."""
    for options in ({}, {"keys": ("id",)}):
        with pytest.raises(OptionError, match="column '_EPOCH_ID' is in the DataFrame, and option 'metadata-columns'"):
            sink.plan(with_column("_EPOCH_ID", spark.LongType()), metadata_columns=METADATA, **options)


def test_rows_of_an_epoch_have_its_number(sink: Sink) -> None:
    """Nobody could tell which epoch a row came with."""
    first = sink.plan(metadata_columns=METADATA, is_stream=True).in_epoch(epoch(0))
    sink.commit(sink.hand_over(rows(1), plan=first, of_epoch=epoch(0)))
    second = sink.plan(metadata_columns=METADATA, is_stream=True).in_epoch(epoch(1))
    sink.commit(sink.hand_over(rows(2), rows(3), plan=second, of_epoch=epoch(1)))

    found = sink.rows()
    assert [(row["id"], row["_epoch_id"], row["_operation"]) for row in found] == [
        (1, 0, "insert"),
        (2, 1, "insert"),
        (3, 1, "insert"),
    ]
    instants = [row["_extracted_at"] for row in found]
    assert instants[0] < instants[1] == instants[2]


def test_feed_is_appended_with_differences(sink: Sink) -> None:
    """A table of changes would not sum up to what its source has."""
    plan = sink.plan(FEED, operation_column="OP", metadata_columns=("_diff",), small_task_size_bytes=0)
    events = [("c", 1), ("-U", 1), ("+U", 2), ("d", 2)]
    sink.commit(
        sink.hand_over([{"op": word, "id": number, "name": "x"} for word, number in events], schema=FEED, plan=plan)
    )

    assert plan.schema.column_names == ["id", "name", "_diff"]
    found = sorted((row["id"], row["_diff"]) for row in sink.rows())
    assert found == [(1, -1), (1, 1), (2, -1), (2, 1)]


def test_feed_without_keys_that_does_not_fit_is_refused_before_any_task(sink: Sink) -> None:
    """Each task would fail with an error of its own."""
    asked: dict[str, Any] = {"metadata_columns": ("_operation",), "operation_column": "opp", "delete_when": "gone = 1"}

    with pytest.raises(OptionError, match=r"operation column 'opp' is not in the DataFrame.*there is no column 'gone'"):
        sink.plan(FEED, **asked)
    with pytest.raises(OptionError, match="'operation-column' and 'delete-when' are for change feeds"):
        sink.plan(FEED, WriteMode.OVERWRITE, metadata_columns=("_operation",), operation_column="op")
    assert sink.catalog.find_table(("db", "t")) is None


def test_overwrites_have_the_columns(sink: Sink) -> None:
    """A full refresh could not tell when it was made."""
    plan = sink.plan(SCHEMA, WriteMode.OVERWRITE, metadata_columns=METADATA)

    assert plan.schema.column_names == ["id", "name", *METADATA]


def test_marks_are_booleans_in_a_new_table(sink: Sink) -> None:
    """A user would have to make the column before the first write."""
    plan = sink.plan(FEED, **SOFT)

    assert plan.schema.find_field("gone").field_type == BooleanType()
    assert plan.schema.column_names == ["id", "name", "gone"]
    assert plan.added is not None
    assert plan.added.mark == DeleteMark(column="gone")
    assert plan.write.changes is not None
    assert plan.write.changes.keeps_deleted


@pytest.mark.parametrize(
    ("sent", "stored", "has_zone"),
    [(spark.TimestampType(), TimestamptzType(), True), (spark.TimestampNTZType(), TimestampType(), False)],
)
def test_marks_are_of_the_type_of_their_column(
    sink: Sink,
    sent: spark.DataType,
    stored: IcebergType,
    has_zone: bool,  # noqa: FBT001  # a parameter
) -> None:
    """A table that says when a row was deleted could not be written."""
    of_dataframe = planned(sink, with_column("GONE", sent), **SOFT).mark
    create_marked(sink, stored)
    of_table = planned(sink, **SOFT).mark

    assert of_dataframe == DeleteMark(column="GONE", is_time=True, has_zone=has_zone)
    assert of_table == DeleteMark(column="Gone", is_time=True, has_zone=has_zone)
    assert planned(sink, with_column("gone", sent), **SOFT).mark == DeleteMark(
        column="gone", is_time=True, has_zone=has_zone
    )


def test_marks_of_other_types_are_refused(sink: Sink) -> None:
    """A stream would fail at its first delete, or mark rows with something that nobody reads."""
    with pytest.raises(
        OptionError, match="column 'gone' is string in the DataFrame: option 'soft-delete-column' needs"
    ):
        sink.plan(with_column("gone", spark.StringType()), **SOFT)
    create_marked(sink, DateType())
    with pytest.raises(OptionError, match="column 'Gone' is date in the table: option 'soft-delete-column' needs"):
        sink.plan(FEED, **SOFT)


def test_required_times_are_refused(sink: Sink) -> None:
    """A stream would fail at its first row that is not deleted."""
    create_marked(sink, TimestamptzType(), required=True)

    with pytest.raises(OptionError, match="rows that are not deleted have no time in it: make it optional"):
        sink.plan(FEED, **SOFT)


def test_mark_that_the_table_lacks_is_added_by_the_rules_of_evolution(sink: Sink) -> None:
    """A table would get a column without its owner's consent, or deletes would leave rows that nothing marks."""
    sink.create(KEYED)

    with pytest.raises(SchemaMismatchError, match="column 'gone' boolean is not in the table"):
        sink.plan(FEED, **SOFT)
    assert sink.plan(FEED, **SOFT, schema_evolution="add-columns").schema.column_names == ["id", "name", "gone"]


def test_feed_of_plain_upserts_keeps_nothing(sink: Sink) -> None:
    """Deletes would leave rows that nobody asked for."""
    plan = sink.plan(COLUMNS, keys=("id",))

    assert plan.write.changes is not None
    assert not plan.write.changes.keeps_deleted
    assert not events_feed().keeps_deleted
