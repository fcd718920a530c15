"""Rows that stay of a file that is replaced in part: all of them, as they were, in files as the table wants them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import types as spark
from support.checks.invariants import check_clean
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE
from support.tables.delete_files import delete_positions, entries
from support.tables.regions import REGIONS, ids_by_region, in_region, partitioned, run
from support.tables.sink import Row, Sink, local, rows

from iceberg_ds.commit import overwrite as rewriting
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.writers import rolling

UTC = dt.timezone.utc
STRUCT = spark.StructType([spark.StructField("a", spark.LongType()), spark.StructField("b", spark.StringType())])
EVERYTHING = spark.StructType(
    [
        spark.StructField("id", spark.LongType(), nullable=False),
        spark.StructField("flag", spark.BooleanType()),
        spark.StructField("tiny", spark.ByteType()),
        spark.StructField("f", spark.FloatType()),
        spark.StructField("d", spark.DoubleType()),
        spark.StructField("price", spark.DecimalType(38, 10)),
        spark.StructField("text", spark.StringType()),
        spark.StructField("bytes", spark.BinaryType()),
        spark.StructField("day", spark.DateType()),
        spark.StructField("ts", spark.TimestampNTZType()),
        spark.StructField("tstz", spark.TimestampType()),
        spark.StructField("struct", STRUCT),
        spark.StructField("list", spark.ArrayType(STRUCT)),
        spark.StructField("map", spark.MapType(spark.StringType(), spark.ArrayType(spark.LongType()))),
    ]
)
FULL: list[Row] = [
    {
        "id": 1,
        "flag": True,
        "tiny": -128,
        "f": 0.1,
        "d": -0.0,
        "price": Decimal("-9999999999999999999999999999.0000000001"),
        "text": "ünï 😀\x00",
        "bytes": b"\x00\xff",
        "day": dt.date(1, 1, 1),
        "ts": dt.datetime(1, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001  # without zone
        "tstz": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "struct": {"a": None, "b": ""},
        "list": [{"a": 1, "b": None}, None],
        "map": [("k", [1, None]), ("", None)],
    },
    {"id": 2, "f": math.nan, "d": math.inf, "struct": None, "list": [], "map": []},
    {"id": 3, "struct": {"a": None, "b": None}, "list": None, "map": None},
    {"id": 4, "text": "goes"},
]


def exact(found: list[Row]) -> list[str]:
    """Return rows as text, which tells NaN, signs of zeros and nulls at any depth."""
    return [repr(row) for row in found]


@pytest.mark.parametrize("format_version", ["1", "2"])
def test_rows_that_stay_keep_every_value(sink: Sink, format_version: str) -> None:
    """Values would change when somebody else's rows are replaced."""
    plan = sink.plan(EVERYTHING, format_version=format_version)
    sink.commit(sink.write(FULL, schema=EVERYTHING, plan=plan))
    before = sink.rows()

    sink.overwrite([], schema=EVERYTHING, replace_where="text = 'goes'")

    assert exact(sink.rows()) == exact(before[:3])
    check_clean(sink.table())


@pytest.mark.parametrize("bits", [10, 11, 12])
def test_rows_that_stay_are_all_written_whatever_their_bytes(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """A committed row outside the range would be gone: sizes of slices are rounded up, and left nothing for it."""
    schema = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("doc", spark.StringType())])
    for number in range(bits):
        schema = schema.add(f"b{number}", spark.BooleanType())
    texts = ["goes", "x" * 5_000, "x" * 5_000, None]
    flags = {f"b{number}": True for number in range(bits)}
    sink.commit(sink.write([{"id": n, "doc": text, **flags} for n, text in enumerate(texts)], schema=schema))
    monkeypatch.setattr(rolling, "ROW_GROUP_BYTES", 4_000)

    sink.overwrite([], schema=schema, replace_where="doc = 'goes'")

    assert sink.ids() == [1, 2, 3]
    check_clean(sink.table())


def test_rows_of_another_writers_file_keep_every_value(sink: Sink) -> None:
    """Types that other writers choose, such as large strings, would fail or change."""
    sink.commit(sink.write([], schema=EVERYTHING))
    table = sink.table()
    table.append(pa.Table.from_pylist(FULL, schema=table.schema().as_arrow()))
    before = sink.rows()

    sink.overwrite([], schema=EVERYTHING, replace_where="text = 'goes'")

    assert exact(sink.rows()) == exact(before[:3])
    check_clean(sink.table())


def test_rewritten_files_have_metrics_and_field_ids(sink: Sink) -> None:
    """Readers would skip nothing in such files, or not find their columns."""
    sink.append(1, 2, 3)
    (old,) = entries(sink)

    sink.overwrite([], replace_where="id = 2")

    (new,) = entries(sink)
    assert new.data_file.record_count == 2
    assert new.data_file.lower_bounds[1] == (1).to_bytes(8, "little")
    assert new.data_file.upper_bounds[1] == (3).to_bytes(8, "little")
    assert new.data_file.null_value_counts == {1: 0, 2: 0}
    before, after = (pq.read_schema(local(entry.data_file.file_path)) for entry in (old, new))
    assert after.equals(before, check_metadata=True)


def test_rewritten_rows_go_where_the_tables_partitioning_puts_them_now(sink: Sink) -> None:
    """Files would hold rows of several partitions, which readers then skip or read wrongly."""
    run(sink, "append", [*in_region("EU", 1, 2), *in_region("US", 3), *in_region(None, 4)])
    with sink.table().update_spec() as change:
        change.add_field("region", IdentityTransform(), "region")

    run(sink, "where id = 2", [])

    assert ids_by_region(sink) == {"EU": [1], "US": [3], None: [4]}
    assert {entry.data_file.partition[0]: entry.data_file.record_count for entry in entries(sink)} == {
        "EU": 1,
        "US": 1,
        None: 1,
    }
    assert sink.table().scan(row_filter="region = 'US'").to_arrow()["id"].to_pylist() == [3]
    check_clean(sink.table())


def test_rows_are_rewritten_with_the_columns_that_the_table_has_now(sink: Sink) -> None:
    """Columns that were added since would be missing, and dropped ones come back."""
    run(sink, "append", in_region("EU", 1, 2))
    with sink.table().update_schema(allow_incompatible_changes=True) as change:
        change.add_column("note", ice.StringType()).delete_column("region")
    schema = spark.StructType([REGIONS["id"], spark.StructField("note", spark.StringType())])

    sink.overwrite([{"id": 2, "note": "new"}], schema=schema, replace_where="id = 2")

    assert sink.rows() == [{"id": 1, "note": None}, {"id": 2, "note": "new"}]
    for entry in entries(sink):
        assert pq.read_schema(local(entry.data_file.file_path)).names == ["id", "note"]


def test_every_row_of_a_file_may_turn_out_to_go_or_to_stay(sink: Sink) -> None:
    """An empty file would be written, or the rows be lost, where bounds promise more than is there."""
    sink.append(1, 5)
    sink.append(11, 15)

    sink.overwrite([], replace_where="id in (1, 5) or id = 13")

    assert sink.ids() == [11, 15]
    assert [entry.data_file.record_count for entry in entries(sink)] == [2]
    check_clean(sink.table())


def test_several_files_are_rewritten_each_into_its_own(sink: Sink) -> None:
    """Rows of one file would be lost among those of others."""
    for first in range(0, 50, 10):
        sink.append(*range(first, first + 10))

    sink.overwrite(rows(5, 15), replace_where="id = 5 or id = 15 or id = 25")

    assert sink.ids() == [number for number in range(50) if number != 25]
    check_clean(sink.table())


def test_position_deletes_hide_the_same_rows_after_rewriting(sink: Sink) -> None:
    """Deleted rows would come back, or their neighbours go, most of all beyond the first batch of a file."""
    count = 200_000
    sink.append(*range(count))
    (entry,) = entries(sink)
    deleted = [0, 1, 70_000, 131_071, 131_072, 199_998]
    delete_positions(sink, entry.data_file.file_path, deleted)

    sink.overwrite([], replace_where="id = 100000")

    gone = {*deleted, 100_000}
    assert sink.ids() == [number for number in range(count) if number not in gone]


def test_file_that_is_listed_twice_is_not_rewritten(sink: Sink) -> None:
    """A row that is hidden in one entry of the file and shown in the other one would be lost, or come back."""
    sink.append(1, 2, 3)
    (entry,) = entries(sink)
    delete_positions(sink, entry.data_file.file_path, [0])
    again = sink.plan().write
    sink.commit([TaskCommit(again, 0, (entry.data_file,), counts=RowCounts(received=3))])

    with pytest.raises(UnsupportedTableError, match=r"\.parquet must be written again, and the table lists it more"):
        sink.overwrite([], replace_where="id = 3")

    assert [row["id"] for row in rows_of(sink.table())] == [1, 2, 2, 3, 3]


def test_file_without_field_ids_is_not_rewritten(sink: Sink) -> None:
    """Values would be taken for those of other columns; or the error would not say what to do."""
    sink.append(1, 2)
    (entry,) = entries(sink)
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), local(entry.data_file.file_path))

    with pytest.raises(
        UnsupportedTableError,
        match=r"Cannot write some rows of .*\.parquet again, nothing was committed: its columns.* have no field "
        r"ids, .* added to the table, and the table has no property schema",
    ):
        sink.overwrite([], replace_where="id = 2")


def test_row_that_is_deleted_by_a_file_in_another_partition_stays_deleted(sink: Sink) -> None:
    """Readers apply a delete file that names one data file to it wherever it stands: the row would come back."""
    regions = partitioned(sink)
    run(regions, "append", [*in_region("EU", 1, 2, 3), *in_region("US", 9)])
    eu, us = sorted((entry.data_file for entry in entries(sink)), key=lambda file: -file.record_count)
    delete_positions(sink, eu.file_path, [0], beside=us.file_path)
    assert ids_by_region(sink) == {"EU": [2, 3], "US": [9]}

    run(regions, "where id = 3", [], isolation_level="snapshot")

    assert ids_by_region(sink) == {"EU": [2], "US": [9]}


@EXHAUSTIVE
def test_rewriting_a_large_file_holds_a_part_of_it_in_memory(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replacing a few rows of a table with large files would need memory for a whole file, and end the driver."""
    count = 600_000
    wide = pa.table({"id": pa.array(range(count), pa.int64()), "name": pa.array([f"{n:0300d}" for n in range(count)])})
    whole = wide.nbytes
    sink.append(1)
    sink.table().append(wide)
    del wide
    messages = sink.write_over([], replace_where="id = 300000")
    before, used = pa.total_allocated_bytes(), []
    read_rows = rewriting.read_rows

    def watched(*arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_rows(*arguments):
            used.append(pa.total_allocated_bytes() - before)
            yield batch

    monkeypatch.setattr(rewriting, "read_rows", watched)

    sink.commit(messages)

    assert len(used) > 2
    assert max(used) < 0.8 * whole
