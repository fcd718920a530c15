"""Metadata tables of files and partitions, as Arrow tables."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)
from pyspark.sql import types as spark
from support.keys.messages import KEYED_SCHEMA, Event
from support.keys.upserts import apart, upsert
from support.tables.changes_by_others import (
    add_column_of_version_3,
    expire,
    head_of,
    plain_table,
    set_branch,
    set_columns,
)
from support.tables.delete_files import delete_equal, delete_positions, entries, with_ids
from support.tables.regions import REGIONS, in_region, partitioned, run
from support.tables.sink import Row, Sink

from iceberg_ds.reading.file_tables import entries_table, files_table, partitions_table, position_deletes_table
from iceberg_ds.reading.scan import SnapshotChoice, plan_scan
from iceberg_ds.table.variant import VariantType

FILE = [
    *("content", "file_path", "file_format", "spec_id", "partition", "record_count", "file_size_in_bytes"),
    *("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"),
    *("key_metadata", "split_offsets", "equality_ids", "sort_order_id"),
    *("first_row_id", "referenced_data_file", "content_offset", "content_size_in_bytes"),
]
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


def files(sink: Sink, content: ManifestContent | None = None, branch: str = "main") -> list[Row]:
    """Return the rows of `files`, or of one of its halves, in the order of the files' ids."""
    table = sink.table()
    snapshot = table.snapshot_by_name(branch)
    found = files_table(table.metadata, table.io, [] if snapshot is None else [snapshot], content)
    return found.sort_by("file_path").to_pylist()


def partitions(sink: Sink) -> pa.Table:
    """Return the table `partitions`."""
    table = sink.table()
    return partitions_table(table.metadata, table.io, table.current_snapshot())


def by_partition(sink: Sink, *columns: str) -> dict[Any, tuple[Any, ...]]:
    """Return these columns of `partitions` by the values of the partition."""
    rows = partitions(sink).to_pylist()
    return {tuple(row["partition"].values()): tuple(row[name] for name in columns) for row in rows}


def position_deletes(sink: Sink) -> pa.Table:
    """Return the table `position_deletes`."""
    table = sink.table()
    every = SnapshotChoice()
    plan = plan_scan("db.t", table.metadata, table.io, every, where=None, case_sensitive=True, time_zone=None)
    return position_deletes_table(table.metadata, table.io, plan)


def metrics(sink: Sink) -> Any:
    """Return the readable metrics of the only file."""
    (file,) = files(sink)
    return file["readable_metrics"]


def test_files_from_before_a_partition_field_was_renamed_keep_their_partitions(sink: Sink) -> None:
    """Files of the older spec would have null for a partition."""
    run(partitioned(sink), "append", in_region("EU", 1, 2))
    with plain_table(sink).update_spec() as change:
        change.rename_field("region", "area")
    run(sink, "append", in_region("EU", 3))
    run(sink, "append", in_region("US", 4))

    assert sorted((file["spec_id"], file["partition"]["area"]) for file in files(sink)) == [
        (0, "EU"),
        (1, "EU"),
        (1, "US"),
    ]
    assert by_partition(sink, "spec_id", "record_count", "file_count") == {("EU",): (1, 3, 2), ("US",): (1, 1, 1)}


def test_column_of_an_old_partition_spec_may_be_dropped(sink: Sink) -> None:
    """No metadata table of files could be read any more."""
    run(partitioned(sink), "append", in_region("EU", 1, 2))
    with plain_table(sink).update_spec() as change:
        change.remove_field("region")
    set_columns(sink, NestedField(1, "id", LongType()))
    sink.commit(sink.write([{"id": 3}], schema=spark.StructType([REGIONS["id"]])))

    assert {file["partition"]["region"] for file in files(sink)} == {"EU", None}
    assert by_partition(sink, "spec_id", "record_count") == {("EU",): (0, 2), (None,): (1, 1)}


def test_bounds_are_shown_as_reads_show_values(sink: Sink) -> None:
    """A table with a uuid, a time or bytes would have no table of files, or other values in it than in its rows."""
    number = UUID(int=10)
    values = {
        "bytes": b"\xff\x00",
        "digits": Decimal("-123456789012345678901234567890123456.78"),
        "fixed": b"abc",
        "text": "",
        "time": time(10, 0, 0, 500_000),
        "uuid": number.bytes,
    }
    kinds = (BinaryType(), DecimalType(38, 2), FixedType(3), StringType(), TimeType(), UUIDType())
    columns = [NestedField(at, name, kind) for at, (name, kind) in enumerate(zip(values, kinds, strict=True), 1)]
    sink.create(Schema(*columns))
    table = plain_table(sink)
    table.append(pa.Table.from_pylist([values], schema=table.schema().as_arrow()))

    shown = {name: column["lower_bound"] for name, column in metrics(sink).items()}

    assert shown == {**values, "time": "10:00:00.500000", "uuid": str(number)}


def test_metrics_are_those_of_the_fields_without_fields_inside(sink: Sink) -> None:
    """Metrics of fields inside a column would not be shown, or under other names than the runtime's."""
    sink.create(
        Schema(
            NestedField(1, "s", StructType(NestedField(2, "n", IntegerType()))),
            NestedField(3, "l", ListType(4, IntegerType(), element_required=False)),
            NestedField(5, "id", IntegerType()),
        )
    )
    inside = spark.StructType().add("n", "integer")
    numbers = spark.ArrayType(spark.IntegerType())
    rows = spark.StructType().add("s", inside).add("l", numbers).add("id", "integer")
    sink.commit(sink.write([{"s": {"n": 7}, "l": [1], "id": 1}, {"id": None}], schema=rows))
    *others, last = sink.table().schema().fields
    set_columns(sink, *others, NestedField(last.field_id, "number", LongType()))

    found = metrics(sink)

    assert list(found) == ["l.element", "number", "s.n"]
    assert found["number"]["column_size"] > 0
    assert {name: found["number"][name] for name in ("value_count", "null_value_count", "nan_value_count")} == {
        "value_count": 2,
        "null_value_count": 1,
        "nan_value_count": None,
    }
    assert (found["number"]["lower_bound"], found["number"]["upper_bound"]) == (1, 1)
    assert (found["s.n"]["lower_bound"], found["s.n"]["upper_bound"]) == (7, 7)


@pytest.mark.parametrize("kind", ["geometry", "timestamp_ns"])
def test_columns_whose_bounds_spark_cannot_show_have_no_metrics(sink: Sink, kind: str) -> None:
    """One such column would take the table of files from a table, for all other columns too."""
    sink.append(1, 2)
    add_column_of_version_3(sink, kind)

    assert list(metrics(sink)) == ["id", "name"]


def test_variants_have_no_metrics(sink: Sink) -> None:
    """A table with a variant would have no table of files."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "v", VariantType())), format_version="3")
    sink.commit(sink.write([{"id": 1}], schema=spark.StructType().add("id", "long")))

    assert list(metrics(sink)) == ["id"]


def test_table_without_a_snapshot_has_no_rows(sink: Sink) -> None:
    """A new table would look broken, or its tables would have other columns than afterwards."""
    sink.create(KEYED_SCHEMA, BY_REGION)
    table = sink.table()
    metadata, io = table.metadata, table.io
    empty = [files_table(metadata, io, []), entries_table(metadata, io, None), partitions(sink), position_deletes(sink)]
    upsert(sink, "position", *apart([("I", 1, "EU", 1, 1)]))

    assert [rows.num_rows for rows in empty] == [0, 0, 0, 0]
    assert all(column.num_chunks for rows in empty for column in rows.columns)  # PySpark fails on a struct without one
    table = sink.table()
    assert files_table(table.metadata, io, table.metadata.snapshots).schema.equals(empty[0].schema)
    assert entries_table(table.metadata, io, table.current_snapshot()).schema.equals(empty[1].schema)
    assert partitions(sink).schema.equals(empty[2].schema)


def test_table_that_never_had_partitions_has_no_column_of_them(sink: Sink) -> None:
    """Spark does not take a struct without fields, and the runtime has no such column."""
    sink.append(1, 2)
    sink.append(3)

    assert "partition" not in files(sink)[0]
    assert partitions(sink).column_names[0] == "record_count"
    assert partitions(sink).column("record_count").to_pylist() == [3]
    assert position_deletes(sink).column_names == ["file_path", "pos", "spec_id", "delete_file_path"]


def test_deletion_vectors_are_among_the_files(sink: Sink) -> None:
    """Users could not see what hides rows, of which file, nor the ids of rows."""
    sink.create(KEYED_SCHEMA, BY_REGION, format_version="3")
    events: list[Event] = [("I", number, "EU" if number % 2 else "US", number, 1) for number in range(6)]
    upsert(sink, "position", events)
    upsert(sink, "position", [("D", number, "EU", number, 2) for number in (1, 5)])

    data, vectors = files(sink, ManifestContent.DATA), files(sink, ManifestContent.DELETES)

    assert list(data[0]) == [*FILE, "readable_metrics"]
    assert sorted(file["first_row_id"] for file in data) == [0, 3]
    (of,) = (file for file in data if file["partition"]["region"] == "EU")
    (vector,) = vectors
    assert (vector["content"], vector["file_format"], vector["record_count"]) == (1, "PUFFIN", 2)
    assert (vector["referenced_data_file"], vector["partition"]) == (of["file_path"], {"region": "EU"})
    assert len(files(sink)) == 3
    assert position_deletes(sink).to_pylist() == [
        {
            "file_path": of["file_path"],
            "pos": position,
            "partition": {"region": "EU"},
            "spec_id": 0,
            "delete_file_path": vector["file_path"],
            "content_offset": vector["content_offset"],
            "content_size_in_bytes": vector["content_size_in_bytes"],
        }
        for position in (0, 2)
    ]


def test_deletes_are_counted_by_content(sink: Sink) -> None:
    """A user could not tell which partitions need a rewrite."""
    run(partitioned(sink), "append", [*in_region("EU", 1, 2), *in_region("US", 3, 4)])
    of = {entry.data_file.partition[0]: entry.data_file for entry in entries(sink)}
    delete_positions(sink, of["EU"].file_path, [1])
    delete_equal(sink, with_ids(pa.table({"id": [3, 4]}), id=1), [1], of=of["US"])

    deletes = (
        *("position_delete_record_count", "position_delete_file_count"),
        *("equality_delete_record_count", "equality_delete_file_count", "last_updated_snapshot_id"),
    )
    first = sink.table().metadata.snapshots[1].snapshot_id
    assert by_partition(sink, *deletes) == {("EU",): (1, 1, 0, 0, first), ("US",): (0, 0, 2, 1, head_of(sink))}
    (found,) = position_deletes(sink).to_pylist()
    assert (found["file_path"], found["pos"], found["partition"]) == (of["EU"].file_path, 1, {"region": "EU"})
    assert found["delete_file_path"] != of["EU"].file_path


def test_entries_tell_of_the_files_that_a_snapshot_removed(sink: Sink) -> None:
    """A user could not see what a commit did."""
    run(partitioned(sink), "append", [*in_region("EU", 1, 2), *in_region("US", 4, 5, 6)])
    first = head_of(sink)
    run(sink, "dynamic", in_region("EU", 3))
    table = sink.table()

    found = entries_table(table.metadata, table.io, table.current_snapshot()).to_pylist()

    assert sorted((row["status"], row["data_file"]["record_count"], row["sequence_number"]) for row in found) == [
        (0, 3, 1),
        (1, 1, 2),
        (2, 2, 1),
    ]
    assert {row["status"]: row["snapshot_id"] for row in found} == {0: first, 1: head_of(sink), 2: head_of(sink)}
    assert sorted(file["record_count"] for file in files(sink)) == [1, 3]
    assert list(found[0]["data_file"]) == FILE
    assert found[0]["readable_metrics"]["id"]["lower_bound"] in {1, 3}


def test_files_are_those_of_the_snapshots_that_are_asked_for(sink: Sink) -> None:
    """Files of another branch would be listed, or a file once for each snapshot that has it."""
    sink.append(1)
    set_branch(sink, "audit", head_of(sink))
    sink.append(2)
    sink.append(3)
    table = sink.table()

    assert len(files(sink)) == 3
    assert len(files(sink, branch="audit")) == 1
    assert files_table(table.metadata, table.io, table.metadata.snapshots).num_rows == 3


def test_partition_whose_snapshots_expired_keeps_its_spec(sink: Sink) -> None:
    """It would be taken for one of another spec."""
    run(partitioned(sink), "append", in_region("EU", 1))
    with plain_table(sink).update_spec() as change:
        change.add_identity("id")
    run(sink, "append", in_region("EU", 2))
    run(sink, "append", in_region("US", 3))
    expire(sink)

    found = by_partition(sink, "spec_id", "last_updated_snapshot_id")

    assert found == {("EU", None): (0, None), ("EU", 2): (1, None), ("US", 3): (1, head_of(sink))}
