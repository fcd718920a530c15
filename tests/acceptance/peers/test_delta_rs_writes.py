"""delta-rs: the suite of `write_deltalake`."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DataType, DecimalType
from support.peer.cases import DELTA_RS, DIFFERS
from support.peer.frames import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Frame,
    found,
    frame,
    names,
    ordered,
    save,
    struct,
)
from support.peer.tables import PeerTable

from iceberg_ds.errors import OptionError, RefusedRowsError, SchemaMismatchError

MERGE = {"mergeSchema": "true"}
OVERWRITE = {"overwriteSchema": "true"}
SAMPLE: dict[str, DataType] = {"id": STRING, "price": LONG, "sold": INT, "deleted": BOOLEAN}
LOCAL = datetime(2026, 1, 1, 12, 5, 7)  # noqa: DTZ001


def sample(*numbers: int) -> Frame:
    """Return rows of sold things."""
    return frame(SAMPLE, *((str(number), number, number, False) for number in numbers))


def pair(number: int = 1, text: str = "foo") -> Frame:
    """Return a row of a number and a text."""
    return frame({"some_int": INT, "some_str": STRING}, (number, text))


@DELTA_RS.case("test_writer.test_roundtrip_basic", "test_writer.test_write_pandas")
def test_rows_come_back(table: PeerTable) -> None:
    """Rows would be lost."""
    save(table, sample(1, 2, 3))

    assert found(table) == list(sample(1, 2, 3).rows)
    assert len(table.snapshots()) == 1


@DELTA_RS.case("test_writer.test_enforce_schema_rust_writer")
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_columns_that_do_not_fit_are_refused(table: PeerTable, mode: str) -> None:
    """Values would be lost, or nulls be in their place."""
    save(table, sample(1))

    with pytest.raises(SchemaMismatchError, match="x"):
        save(table, frame({"x": LONG}, (1,), (2,)), mode)

    assert found(table) == list(sample(1).rows)


@DELTA_RS.case("test_writer.test_update_schema", "test_writer.test_update_schema_rust_writer_invalid")
def test_overwrite_brings_other_columns_if_asked_for(table: PeerTable) -> None:
    """A table could not be made anew under its name."""
    save(table, sample(1))
    other = frame({"x5": LONG}, (1,), (2,), (3,))

    with pytest.raises(SchemaMismatchError, match="x5"):
        save(table, other, "overwrite")

    save(table, other, "overwrite", OVERWRITE)
    assert names(table) == ["x5"]
    assert found(table) == [(1,), (2,), (3,)]


@DELTA_RS.case("test_writer.test_overwrite_schema", "test_writer.test_update_schema_rust_writer_append")
def test_append_cannot_replace_the_columns(table: PeerTable) -> None:
    """Old rows would lose their values."""
    save(table, sample(1))

    with pytest.raises(OptionError, match="overwriteSchema"):
        save(table, frame({"x1": LONG}, (1,)), options=OVERWRITE)

    assert names(table) == list(SAMPLE)


@DELTA_RS.case("test_writer.test_merge_schema")
def test_append_adds_columns(table: PeerTable) -> None:
    """A table could not grow with its source."""
    save(table, sample(1))
    save(table, frame({"new_x": INT, "new_y": INT}, (1, 2)), options=MERGE)

    assert names(table) == [*SAMPLE, "new_x", "new_y"]
    assert found(table) == ordered(("1", 1, 1, False, None, None), (None, None, None, None, 1, 2))


@DELTA_RS.case("test_writer.test_merge_schema_rust_writer_with_overwrite")
def test_overwrite_that_adds_columns_keeps_those_that_it_lacks(table: PeerTable) -> None:
    """A column that readers know would be gone."""
    save(table, frame({"a": LONG, "b": LONG, "c": LONG}, (1, 1, 10)))
    save(table, frame({"a": LONG, "b": LONG}, (100, 1)), "overwrite", MERGE)

    assert names(table) == ["a", "b", "c"]
    assert found(table) == [(100, 1, None)]


@DELTA_RS.case(
    "test_writer.test_overwrite_schema_can_change_partition_by",
    "test_writer.test_overwrite_schema_can_remove_partition_by",
    verdict=DIFFERS("evolve-partitioning=true is asked for beside overwriteSchema", see="coming-from/delta.md"),
)
@pytest.mark.parametrize("asked", ["some_int", ""], ids=["changed", "removed"])
def test_overwrite_changes_the_partitioning_if_asked_for(table: PeerTable, asked: str) -> None:
    """The layout of a table would change unasked, or could not be changed."""
    save(table, pair(), options={"partition-by": "some_str", "table-property.owner": "ann"})

    with pytest.raises(OptionError, match="partition-by"):
        save(table, pair(), "overwrite", {**OVERWRITE, "partition-by": asked})

    save(table, pair(2), "overwrite", {**OVERWRITE, "partition-by": asked, "evolve-partitioning": "true"})
    assert [field.name for field in table.load().spec().fields if str(field.transform) != "void"] == (
        [asked] if asked else []
    )
    assert table.load().properties["owner"] == "ann"
    assert found(table) == [(2, "foo")]


@DELTA_RS.case("test_writer.test_replace_where_rejects_partition_by_change")
def test_range_cannot_change_the_partitioning(table: PeerTable) -> None:
    """Rows outside of the range would be in a layout of another table."""
    save(table, pair(), options={"partition-by": "some_str"})

    with pytest.raises(OptionError, match="overwriteSchema"):
        save(table, pair(), "overwrite", {**OVERWRITE, "partition-by": "some_int", "replaceWhere": "some_int = 1"})

    with pytest.raises(OptionError, match="partition-by"):
        save(table, pair(), "overwrite", {"partition-by": "some_int", "replaceWhere": "some_int = 1"})


@DELTA_RS.case("test_writer.test_fails_wrong_partitioning")
def test_append_with_another_partitioning_is_refused(table: PeerTable) -> None:
    """Files would be laid out otherwise than the user asked for."""
    save(table, pair())

    with pytest.raises(OptionError, match="partition-by"):
        save(table, pair(2), options={"partition-by": "some_int"})


@DELTA_RS.case(
    "test_writer.test_write_type_castable_types",
    "test_writer.test_rust_decimal_cast",
    verdict=DIFFERS("a type that does not fit is refused, never cast", see="coming-from/delta.md"),
)
@pytest.mark.parametrize(
    ("kind", "value"),
    [(STRING, "2"), (STRING, "hello"), (LONG, 1000), (DecimalType(10, 0), Decimal(10))],
    ids=["text", "no number", "long", "decimal"],
)
def test_values_that_could_be_cast_are_refused(table: PeerTable, kind: DataType, value: Any) -> None:
    """A write would fail or not by the values that come."""
    save(table, pair())

    with pytest.raises(SchemaMismatchError, match="some_int"):
        save(table, frame({"some_int": kind}, (value,)), options=MERGE)


_PARTITIONS: dict[str, tuple[DataType, Any, Any]] = {
    "number": (LONG, 1, 2),
    "decimal": (DecimalType(5, 1), Decimal("1.5"), Decimal("2.5")),
    "truth": (BOOLEAN, True, False),
    "day": (DATE, date(2022, 1, 1), date(2022, 1, 2)),
    "time": (TIMESTAMP, datetime(2022, 1, 1, tzinfo=timezone.utc), datetime(2022, 1, 2, tzinfo=timezone.utc)),
    "local time": (TIMESTAMP_NTZ, LOCAL, LOCAL.replace(day=2)),
    "text": (STRING, "x y/z", "ü"),
    "bytes": (BINARY, b"\x00\xff", b""),
}


@DELTA_RS.case(
    "test_writer.test_roundtrip_partitioned",
    "test_writer.test_roundtrip_null_partition",
    "test_writer.test_writer_partitioning",
    "test_writer.test_issue_1651_roundtrip_timestamp",
)
@pytest.mark.parametrize("kind", list(_PARTITIONS))
def test_partitions_of_every_type_come_back(table: PeerTable, kind: str) -> None:
    """A partition's value would be another one for its readers."""
    column, one, other = _PARTITIONS[kind]
    rows = [(one, 1), (other, 2), (None, 3)]
    save(table, frame({"p": column, "val": LONG}, *rows), options={"partition-by": "p"})

    assert found(table) == ordered(*rows)
    assert len(table.files()) == 3


@DELTA_RS.case("test_writer.test_roundtrip_multi_partitioned")
def test_table_is_partitioned_by_two_columns(table: PeerTable) -> None:
    """A partition that agrees in one of two values would be taken for the same."""
    save(table, sample(1, 2, 3), options={"partition-by": "sold, deleted"})

    assert found(table) == list(sample(1, 2, 3).rows)
    assert len(table.files()) == 3


_TWO_LEVELS: dict[str, tuple[DataType, Any, Any]] = {
    kind: _PARTITIONS[kind] for kind in ("number", "truth", "day", "time", "local time")
}


@DELTA_RS.case(
    "test_writer.test_partition_overwrite",
    "test_writer.test_replace_where_overwrite",
    "test_writer.test_replace_where_overwrite_partitioned",
)
@pytest.mark.parametrize("layout", [{}, {"partition-by": "p1, p2"}], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("kind", list(_TWO_LEVELS))
def test_range_of_two_levels_of_partitions_is_replaced(table: PeerTable, kind: str, layout: dict[str, str]) -> None:
    """Partitions outside of the range would be lost."""
    column, one, other = _TWO_LEVELS[kind]
    columns = {"p1": STRING, "p2": column, "val": LONG}
    save(table, frame(columns, ("1", one, 1), ("1", other, 1), ("2", one, 1), ("2", other, 1)), options=layout)
    save(table, frame(columns, ("1", other, 2), ("1", one, 2)), "overwrite", {"replaceWhere": "p1 = '1'"})

    assert found(table) == ordered(("1", one, 2), ("1", other, 2), ("2", one, 1), ("2", other, 1))


@DELTA_RS.case("test_writer.test_replace_where_overwrite_preserves_mixed_case_columns")
def test_predicate_names_a_column_with_capital_letters(table: PeerTable) -> None:
    """A column with capital letters could not say what is replaced."""
    columns = {"userId": LONG, "isActive": BOOLEAN}
    save(table, frame(columns, (1, True), (2, False)))
    save(table, frame(columns, (3, False)), "overwrite", {"replaceWhere": "isactive = false"})

    assert names(table) == ["userId", "isActive"]
    assert found(table) == [(1, True), (3, False)]


@DELTA_RS.case("test_writer.test_partition_overwrite_with_new_partition")
def test_range_of_the_second_level_is_replaced(table: PeerTable) -> None:
    """Partitions of the other values would be lost."""
    columns = {"p1": STRING, "p2": LONG, "val": LONG}
    save(table, frame(columns, ("1", 1, 1), ("2", 1, 1)), options={"partition-by": "p1, p2"})
    save(table, frame(columns, ("1", 2, 2), ("2", 2, 3)), "overwrite", {"replaceWhere": "p2 = 2"})

    assert found(table) == [("1", 1, 1), ("1", 2, 2), ("2", 1, 1), ("2", 2, 3)]


@DELTA_RS.case("test_writer.test_partition_overwrite_with_non_partitioned_data")
def test_range_of_an_unpartitioned_table_is_replaced(table: PeerTable) -> None:
    """A table would need partitions for a range to be replaced."""
    columns = {"p1": STRING, "val": LONG}
    save(table, frame(columns, ("1", 1), ("2", 1)))
    save(table, frame(columns, ("1", 9)), "overwrite", {"replaceWhere": "p1 = '1'"})

    assert found(table) == [("1", 9), ("2", 1)]


@DELTA_RS.case("test_writer.test_partition_overwrite_with_wrong_partition")
@pytest.mark.parametrize(("predicate", "error"), [("p999 = '1'", OptionError), ("p1 = '1'", RefusedRowsError)])
def test_range_that_the_rows_are_not_of_is_refused(table: PeerTable, predicate: str, error: type[Exception]) -> None:
    """Rows would come into a range that nobody replaced."""
    columns = {"p1": STRING, "val": LONG}
    save(table, frame(columns, ("1", 1), ("2", 1)), options={"partition-by": "p1"})

    with pytest.raises(error, match="replace-where"):
        save(table, frame(columns, ("1", 9), ("2", 9)), "overwrite", {"replaceWhere": predicate})

    assert found(table) == [("1", 1), ("2", 1)]


@DELTA_RS.case("test_writer.test_predicate_out_of_bounds")
def test_range_brings_columns_and_creates_the_table(table: PeerTable) -> None:
    """The first run of a job would fail, or a later one that brings a column."""
    options = {**MERGE, "partition-by": "date", "replaceWhere": "date == '20240731'"}
    save(table, frame({"ins": STRING, "date": STRING, "f1": LONG}, ("A", "20240731", 100)), "overwrite", options)
    save(table, frame({"ins": STRING, "date": STRING, "fb": LONG}, ("G", "20240731", 777)), "overwrite", options)

    assert names(table) == ["ins", "date", "f1", "fb"]
    assert found(table) == [("G", "20240731", None, 777)]


@DELTA_RS.case("test_writer.test_write_type_coercion_predicate")
def test_range_of_a_text_is_replaced(table: PeerTable) -> None:
    """Rows outside of the range would be lost."""
    columns = {"A": LONG, "B": STRING, "C": STRING}
    save(table, frame(columns, (1, "hi", "a"), (2, "hello", "b")))
    save(table, frame(columns, (10, "yeah", "a")), "overwrite", {"replaceWhere": "C = 'a'"})

    assert found(table) == [(2, "hello", "b"), (10, "yeah", "a")]


@DELTA_RS.case("test_writer.test_dots_in_column_names_2624")
def test_range_of_a_partition_column_with_a_dot_is_replaced(table: PeerTable) -> None:
    """A column with a dot would be taken for a field of a struct."""
    columns = {"Product.Id": STRING, "Cost": LONG}
    layout = {"partition-by": "`Product.Id`"}
    save(table, frame(columns, ("x-0", 10), ("x-1", 11), ("x-2", 12)), options=layout)
    save(table, frame(columns, ("x-1", 101)), "overwrite", {**layout, "replaceWhere": "`Product.Id` = 'x-1'"})

    assert found(table) == [("x-0", 10), ("x-1", 101), ("x-2", 12)]


@DELTA_RS.case("test_writer.test_url_encoding")
@pytest.mark.parametrize("value", ["1 2", "a/b", "50%", "x=y", "ü#?"])
def test_range_of_a_partition_that_paths_encode_is_replaced(table: PeerTable, value: str) -> None:
    """A partition's rows would not be found, and be doubled."""
    columns = {"id": STRING, "price": LONG}
    save(table, frame(columns, (value, 0), ("z", 1)), options={"partition-by": "id"})
    save(table, frame(columns, (value, 10)), "overwrite", {"replaceWhere": f"id = '{value}'"})

    assert found(table) == ordered((value, 10), ("z", 1))


@DELTA_RS.case("test_writer.test_url_encoding_timestamp")
def test_range_of_values_in_partitions_of_times_is_replaced(table: PeerTable) -> None:
    """Files of a partition whose path holds a time would not be found."""
    columns = {"time": TIMESTAMP_NTZ, "value": LONG}
    save(table, frame(columns, (LOCAL, 10), (LOCAL, 5)), options={"partition-by": "time"})
    save(table, frame(columns, (LOCAL, 11)), "overwrite", {"replaceWhere": "value >= 10"})

    assert found(table) == [(LOCAL, 5), (LOCAL, 11)]


@DELTA_RS.case("test_writer.test_writer_stats", "test_writer.test_writer_null_stats")
def test_files_have_counts_and_bounds(table: PeerTable) -> None:
    """Readers would have to read all files for one value."""
    save(table, frame({"i": LONG, "s": STRING}, (1, None), (5, "b"), (None, None), (3, "a")))

    [file] = table.files()
    nulls = {1: 1, 2: 2}
    assert file.record_count == 4
    assert file.null_value_counts == nulls
    assert [len(list(table.load().scan(row_filter=text).plan_files())) for text in ("i > 5", "i >= 5", "s < 'a'")] == [
        0,
        1,
        0,
    ]


@DELTA_RS.case("test_writer.test_float_values")
def test_bounds_of_infinities_hide_no_row(table: PeerTable) -> None:
    """Rows with an infinite number would not be found."""
    rows = [(0, 0.0), (1, math.inf), (2, None), (3, -math.inf)]
    save(table, frame({"id": LONG, "x": DOUBLE}, *rows))

    assert found(table) == rows
    assert [
        table.load().scan(row_filter=text).to_arrow()["id"].to_pylist() for text in ("x > 1000000.5", "x < -1000000.5")
    ] == [[1], [3]]


@DELTA_RS.case(
    "test_writer.test_list_values_with_null_elements_and_empty_lists_read_with_default_stats",
    "test_writer.test_container_null_count_stats_keep_parquet_values",
    "test_writer.test_polars_write_array",
)
def test_lists_with_nulls_and_without_elements_come_back(table: PeerTable) -> None:
    """An empty list would become null, or a null within one be lost."""
    rows = [(1, [1, None]), (2, []), (3, None), (4, [None])]
    save(table, frame({"id": LONG, "l": ArrayType(LONG)}, *rows))

    assert found(table) == rows


@DELTA_RS.case("test_writer.test_handles_binary_data", "test_writer.test_write_binary_col_without_dssc")
def test_bytes_come_back(table: PeerTable) -> None:
    """Bytes would be read as a text."""
    rows = [(1, b"\x00\x00\xff\xff"), (2, b""), (3, b"x" * 1000)]
    save(table, frame({"id": LONG, "field_one": BINARY}, *rows))

    assert found(table) == rows


@DELTA_RS.case("test_writer.test_write_large_decimal")
def test_decimals_of_any_size_come_back(table: PeerTable) -> None:
    """Digits would be lost."""
    rows = [(Decimal("11111111111111111.00"),), (Decimal("22222.00"),), (Decimal("333333333333.33"),)]
    save(table, frame({"c": DecimalType(19, 2)}, *rows))

    assert found(table) == ordered(*rows)


@DELTA_RS.case("test_writer.test_schema_cols_diff_order")
def test_columns_in_another_order_keep_the_tables(table: PeerTable) -> None:
    """Values would come into each other's columns, or readers see another order with each write."""
    save(table, frame({"foo": STRING, "bar": LONG, "baz": DOUBLE}, ("A", 1, 2.0)))
    save(table, frame({"baz": DOUBLE, "bar": LONG, "foo": STRING}, (3.0, 4, "B")))

    assert names(table) == ["foo", "bar", "baz"]
    assert found(table) == [("A", 1, 2.0), ("B", 4, 3.0)]


@DELTA_RS.case(
    "test_writer.test_empty",
    verdict=DIFFERS("a batch without rows makes no snapshot", see="coming-from/delta.md"),
)
def test_batch_without_rows_makes_no_snapshot(table: PeerTable) -> None:
    """A job that often has nothing to write would fill the history."""
    save(table, sample(1))
    save(table, sample())

    assert found(table) == list(sample(1).rows)
    assert len(table.snapshots()) == 1


@DELTA_RS.case("test_writer.test_empty_data_write")
def test_batch_without_rows_creates_the_table(table: PeerTable) -> None:
    """Readers would find no table where a job has run."""
    save(table, sample())

    assert names(table) == list(SAMPLE)
    assert found(table) == []


@DELTA_RS.case("test_writer.test_write_timestamp", "test_writer.test_write_timestampntz")
def test_times_with_and_without_a_zone_come_back(table: PeerTable) -> None:
    """A time would be shifted by a zone."""
    rows = [(datetime(2023, 3, 29, 1, 2, 3, 4, tzinfo=timezone.utc), LOCAL), (None, None)]
    save(table, frame({"tz": TIMESTAMP, "ntz": TIMESTAMP_NTZ}, *rows))

    assert found(table) == ordered(*rows)


@DELTA_RS.case("test_writer.test_write_timestamp_ntz_nested")
def test_times_within_lists_and_structs_come_back(table: PeerTable) -> None:
    """A time would be shifted by a zone where it is nested."""
    columns = {"id": LONG, "l": ArrayType(TIMESTAMP_NTZ), "s": struct(at=TIMESTAMP_NTZ)}
    rows = [(1, [LOCAL], {"at": LOCAL}), (2, [None], {"at": None})]
    save(table, frame(columns, *rows))

    assert found(table) == rows


@DELTA_RS.case("test_writer.test_write_schema_evolved_same_metadata_id")
def test_table_stays_the_same_as_its_columns_change(table: PeerTable) -> None:
    """Streams that read the table would take it for another one."""
    save(table, frame({"foo": STRING}, ("1",)), "overwrite")
    before = table.load().metadata.table_uuid
    save(table, frame({"foo": STRING, "bar": LONG}, ("1", 1)), "overwrite", MERGE)
    save(table, frame({"baz": LONG}, (1,)), "overwrite", OVERWRITE)

    assert table.load().metadata.table_uuid == before


@DELTA_RS.case(
    "test_writer.test_write_concurrent_blind_appends",
    verdict=DIFFERS(
        "of two runs of one version one lands and the other is skipped; it does not fail",
        see="streams.md#batches-that-may-be-repeated",
    ),
)
def test_of_two_appends_that_began_at_once_both_land_unless_they_are_one_run(table: PeerTable) -> None:
    """Rows would be lost, or those of one run be doubled."""
    numbered = {"txnAppId": "app", "txnVersion": "1"}
    save(table, sample(0))
    sinks = [table.sink(options) for options in ({}, {}, numbered, numbered)]
    plans = [sink.plan(sample().schema) for sink in sinks]
    written = [
        sink.hand_over(*sample(number).parts, schema=sample().schema, plan=plan)
        for number, (sink, plan) in enumerate(zip(sinks, plans, strict=True), 1)
    ]
    for sink, messages in zip(sinks, written, strict=True):
        sink.commit(messages)

    assert [row[0] for row in found(table)] == ["0", "1", "2", "3"]


@DELTA_RS.case(
    "test_writer.test_write_transactions",
    verdict=DIFFERS("a write has one application and one version", see="streams.md#batches-that-may-be-repeated"),
)
def test_runs_of_two_applications_are_counted_apart(table: PeerTable) -> None:
    """A run would be skipped because of another application's number."""
    for app, version in (("app_1", 1), ("app_2", 2), ("app_1", 2), ("app_2", 2)):
        save(table, sample(version), options={"txnAppId": app, "txnVersion": str(version)})

    assert len(found(table)) == 3


@DELTA_RS.case("test_writer.test_roundtrip_metadata", "test_commit_properties.test_commit_properties_write")
def test_properties_of_a_commit_stand_in_its_summary(table: PeerTable) -> None:
    """Nobody could say later which run wrote a snapshot."""
    save(table, sample(1), options={"snapshot-property.owner": "John Doe"})

    assert table.summary()["owner"] == "John Doe"
