"""`_row_id` and `_last_updated_sequence_number`, read with both readers, and held against files and their manifests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate
from pyiceberg.types import LongType, NestedField
from pyspark.sql import DataFrame, SparkSession
from support.checks.reader import listed, visible_rows
from support.exhaustive import EXHAUSTIVE, few
from support.spark.tables import Warehouse
from support.tables.delete_files import add_in_partition, delete_equal, with_ids
from support.tables.sink import NAME, Sink, embedded_options

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import OptionError
from iceberg_ds.reading.python_scan import PythonScan
from iceberg_ds.reading.read import Reader
from iceberg_ds.reading.request import ReadRequest
from iceberg_ds.reading.spark_files import SparkFiles
from iceberg_ds.reading.spark_scan import SparkScan
from iceberg_ds.row_level.operation import PLACE
from iceberg_ds.snapshots.manifests import live_entries, live_manifests
from iceberg_ds.snapshots.version_3 import first_row_id
from iceberg_ds.table.requests import UpgradeFormatVersion

LINEAGE = ["_row_id", "_last_updated_sequence_number"]
READERS: tuple[Reader, ...] = ("spark", "python")
Lineage = dict[int, tuple[int | None, int | None]]


def sink_of(house: Warehouse) -> Sink:
    """Return the table without Spark."""
    options = embedded_options(house.folder)
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def both(spark: SparkSession, house: Warehouse, columns: list[str], **arguments: Any) -> list[tuple[Any, ...]]:
    """Read with both readers, and return the rows, which have to be the same."""
    first, second = (
        sorted(map(tuple, read(spark, house, columns, reader=reader, **arguments).collect()), key=str)
        for reader in READERS
    )

    assert first == second
    return first


def read(spark: SparkSession, house: Warehouse, columns: list[str], **arguments: Any) -> DataFrame:
    """Return rows of the table."""
    return iceberg_ds.read(spark, NAME, columns=columns, options=house.options, **arguments)


def lineage(spark: SparkSession, house: Warehouse, **arguments: Any) -> Lineage:
    """Return what both readers read, by the row's id; each row has another id of its own."""
    found = both(spark, house, ["id", *LINEAGE], **arguments)
    known = [row_id for _, row_id, _ in found if row_id is not None]

    assert len(set(known)) == len(known)
    return {number: (row_id, updated) for number, row_id, updated in found}


def told(house: Warehouse) -> Lineage:
    """Return what data files and their manifests tell of each visible row, by its id."""
    table = house.table()
    files = {file.path: file for file in listed(table)[DataFileContent.DATA]}
    manifests = live_manifests(table.io, table.current_snapshot())  # with their row ids
    entries = {entry.data_file.file_path: entry for manifest in manifests for entry in live_entries(table.io, manifest)}

    def of(path: str, position: int) -> Iterator[int | None]:
        columns, entry = files[path].by_field(), entries[path]
        first = first_row_id(entry.data_file)
        for number, inherited in (
            (2147483540, None if first is None else first + position),
            (2147483539, None if first is None else entry.sequence_number),
        ):
            own = columns[number][position] if number in columns else None
            yield inherited if own is None else own

    return {row["id"]: tuple(of(path, position)) for path, position, row in visible_rows(table)}  # type: ignore[misc]


def checked(spark: SparkSession, house: Warehouse) -> Lineage:
    """Return what both readers read of the table's newest snapshot, which is what its files tell."""
    found = lineage(spark, house)

    assert found == told(house)
    return found


def change(house: Warehouse, *updates: TableUpdate) -> None:
    """Change a table of version 3, which PyIceberg does not write."""
    sink = sink_of(house)
    sink.catalog.send(sink.table(), (), updates)


def some(spark: SparkSession, first: int, last: int) -> DataFrame:
    """Return rows with these ids, in one task."""
    return spark.range(first, last, numPartitions=1).selectExpr(
        "id", "cast(id % 3 as int) AS part", "concat('name ', id) AS name", "named_struct('x', id, 'y', array(id)) AS s"
    )


@pytest.mark.parametrize("options", few(1, [{"partition_by": "part"}, {}]))
def test_rows_inherit_from_their_files(spark: SparkSession, house: Warehouse, options: dict[str, str]) -> None:
    """A row could not be told from another one, or followed from state to state."""
    house.append(some(spark, 0, 20), format_version="3", **options)
    house.append(some(spark, 20, 25))
    house.append(some(spark, 25, 26))

    found = checked(spark, house)

    assert sorted(row_id for row_id, _ in found.values() if row_id is not None) == [*range(26)]
    assert [found[number][1] for number in (0, 19, 20, 24, 25)] == [1, 1, 2, 2, 3]
    assert found[25] == (25, 3)
    schema = read(spark, house, LINEAGE).schema
    assert [(field.name, field.dataType.simpleString()) for field in schema] == [(name, "bigint") for name in LINEAGE]


def test_deleted_rows_shift_no_other(spark: SparkSession, house: Warehouse) -> None:
    """A row would become the one before it as soon as another row is deleted."""
    house.append(some(spark, 0, 12), format_version="3", partition_by="part")
    before = checked(spark, house)
    iceberg_ds.delete_from(NAME, "id IN (0, 4, 5, 9)", spark, options=house.options)
    sink = sink_of(house)
    of = next(file.entry.data_file for file in listed(house.table())[DataFileContent.DATA] if "part=1" in file.path)
    delete_equal(sink, with_ids(pa.table({"id": [7]}), id=1), [1], of)

    after = checked(spark, house)

    assert after == {number: was for number, was in before.items() if number not in {0, 4, 5, 7, 9}}


@pytest.mark.parametrize("mode", few(1, ["copy-on-write", "merge-on-read"]))
def test_rows_that_move_stay_the_same_rows(spark: SparkSession, house: Warehouse, mode: Any) -> None:
    """A compaction would make other rows of all, to those who follow them by their ids."""
    for first in range(0, 30, 10):
        house.append(some(spark, first, first + 10), format_version="3")
    iceberg_ds.delete_from(NAME, "id IN (3, 14)", spark, options=house.options, mode=mode)
    before = checked(spark, house)
    options = {**house.options, "rewrite-all": "true"}
    iceberg_ds.rewrite_data_files(NAME, spark=spark, options=options, strategy="sort", sort_order="name DESC")

    after = checked(spark, house)
    assert after == before

    house.append(some(spark, 30, 33))
    appended = house.table().current_snapshot()
    assert appended is not None
    iceberg_ds.rewrite_data_files(NAME, spark=spark, options=options)
    found = checked(spark, house)
    assert {number: found[number] for number in after} == after
    assert {found[number][1] for number in (30, 31, 32)} == {appended.sequence_number}


@EXHAUSTIVE
def test_columns_are_chosen_ordered_and_filtered_by(spark: SparkSession, house: Warehouse) -> None:
    """Few columns would bring those of other rows, or a row not be found by its id."""
    house.append(some(spark, 0, 10), format_version="3", partition_by="part")
    iceberg_ds.rewrite_data_files(NAME, spark=spark, options={**house.options, "rewrite-all": "true"})
    house.append(some(spark, 10, 14))
    found = checked(spark, house)

    assert both(spark, house, ["_row_id"]) == sorted(((row_id,) for row_id, _ in found.values()), key=str)
    assert both(spark, house, ["_last_updated_sequence_number", "name"], where="id = 11 AND part = 2") == [
        ("name 11", found[11][1])
    ]
    assert both(spark, house, ["_row_id", "id"], where=f"_row_id = {found[12][0]}") == [(12, found[12][0])]
    assert both(spark, house, ["_row_id", "id"], where=f"_row_id = {found[2][0]}") == [(2, found[2][0])]
    named = both(spark, house, ["s", "_spec_id", "_last_updated_sequence_number", "_file", "_pos", "_row_id"])
    files = {file.path: file.entry.data_file for file in listed(house.table())[DataFileContent.DATA]}
    assert {s.x: (row_id, updated) for s, _, updated, _, _, row_id in named} == found
    assert {file for _, _, _, file, _, _ in named} == files.keys()


@EXHAUSTIVE
def test_columns_of_the_table_change_beside_them(spark: SparkSession, house: Warehouse) -> None:
    """A table could not be followed over a change of its columns."""
    house.append(some(spark, 0, 5), format_version="3")
    iceberg_ds.rewrite_data_files(NAME, spark=spark, options={**house.options, "rewrite-all": "true"})
    before = checked(spark, house)
    table = house.table()
    update = table.update_schema().rename_column("name", "title").add_column("more", LongType()).delete_column("part")
    change(house, *update._commit()[0])
    house.append(spark.sql("SELECT 5L AS id, 'five' AS title, named_struct('x', 5L, 'y', array(5L)) AS s, 7L AS more"))

    found = checked(spark, house)

    assert {number: found[number] for number in before} == before
    assert both(spark, house, ["title", "more", "_row_id"], where="id IN (1, 5)") == [
        ("five", 7, found[5][0]),
        ("name 1", None, found[1][0]),
    ]


def test_rows_have_no_ids_before_their_table_is_upgraded(spark: SparkSession, house: Warehouse) -> None:
    """A read of an older state would fail, or give rows ids that are those of other rows."""
    house.append(some(spark, 0, 4))
    snapshot = house.table().current_snapshot()
    assert snapshot is not None
    none = dict.fromkeys(range(4), (None, None))
    for name, reader in product(LINEAGE, READERS):
        with pytest.raises(OptionError, match=f"no column '{name}': it is of format version 2, and rows have ids from"):
            read(spark, house, ["id", name], reader=reader)
    change(house, UpgradeFormatVersion(format_version=3))
    assert checked(spark, house) == none
    house.append(some(spark, 4, 6))

    found = checked(spark, house)

    assert sorted(row_id for row_id, _ in found.values() if row_id is not None) == [*range(6)]
    assert (found[0][1], found[5][1]) == (1, 2)
    assert lineage(spark, house, snapshot_id=snapshot.snapshot_id) == none


def test_files_whose_rows_have_ids_are_read_beside_others(spark: SparkSession, house: Warehouse) -> None:
    """A row without an id would have one that is counted from nothing, or take that of another row."""
    house.append(some(spark, 0, 2), format_version="3")
    house.append(some(spark, 2, 4))
    request = ReadRequest.of({"table": NAME, **house.options, "columns": f"id, {', '.join(LINEAGE)}"})
    planned = request.plan(request.load_for_tasks())
    old, new = sorted(planned.plan.tasks, key=lambda task: task.work.sequence_number)
    without = replace(old, work=replace(old.work, data_file=with_first_row_id(old.data_file, None)))
    plan = replace(planned.plan, tasks=[without, new])
    expected = [(0, None, None), (1, None, None), (2, 2, 2), (3, 3, 2)]

    files = SparkFiles(spark=spark, io=planned.io, plan=plan)
    by_spark = SparkScan(files=files, fields=planned.fields, extras=planned.extras).frame()
    by_python = PythonScan.of(planned).rows(plan.tasks)

    assert sorted(map(tuple, by_spark.collect()), key=str) == expected
    assert [tuple(row.values()) for batch in by_python for row in batch.to_pylist()] == expected


def with_first_row_id(file: DataFile, number: int | None) -> DataFile:
    """Return the entry of a data file with another first row id."""
    found = DataFile.from_args(
        3,
        **{field.name: file[place] for place, field in enumerate(DATA_FILE_TYPE[3].fields)} | {"first_row_id": number},
    )
    found.spec_id = file.spec_id
    return found


def test_column_of_the_same_name_is_read_as_it_is(spark: SparkSession, house: Warehouse) -> None:
    """A table of another writer would show numbers in place of the values that are in it."""
    house.catalog().create_namespace("db")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "_row_id", LongType()))
    house.catalog().create_table(NAME, schema, properties={"format-version": "2"})
    house.table().append(pa.table({"id": [1], "_row_id": [77]}))

    assert both(spark, house, ["id", "_row_id"]) == [(1, 77)]
    change(house, UpgradeFormatVersion(format_version=3))
    assert both(spark, house, ["_last_updated_sequence_number", "_row_id"]) == [(77, None)]


@pytest.mark.parametrize("with_ids_in_files", few(1, [True, False]))
def test_files_of_other_writers_give_their_rows_ids(
    spark: SparkSession, house: Warehouse, tmp_path: Path, *, with_ids_in_files: bool
) -> None:
    """Rows of files that lack columns, or that are read by the names of their columns, would have no ids."""
    house.append(some(spark, 0, 4), format_version="3", partition_by="part")
    rows = pa.table({"id": [7, 8]})
    path = tmp_path / "other.parquet"
    pq.write_table(with_ids(rows, id=1) if with_ids_in_files else rows, path)
    if not with_ids_in_files:
        mapping = house.table().schema().name_mapping.model_dump_json()
        change(house, SetPropertiesUpdate(updates={"schema.name-mapping.default": mapping}))
    add_in_partition(sink_of(house), path, {"part": 9}, rows=2)

    columns = ["id", "part", *LINEAGE]
    found = (
        both(spark, house, columns, where="part = 9")
        if with_ids_in_files
        else sorted(map(tuple, read(spark, house, columns, where="part = 9").collect()))
    )

    assert found == [(7, 9, 4, 2), (8, 9, 5, 2)]


@EXHAUSTIVE
def test_row_level_operations_may_read_them_with_the_place_of_a_row(spark: SparkSession, house: Warehouse) -> None:
    """A row that is updated could not keep its id."""
    house.append(some(spark, 0, 6), format_version="3", partition_by="part")
    iceberg_ds.delete_from(NAME, "id = 3", spark, options=house.options)
    names = [field.name for field in house.table().schema().fields]

    found = both(spark, house, [*names, *PLACE, *LINEAGE], where="part < 2")

    expected = told(house)
    assert [(row[0], row[-2:]) for row in found] == [(number, expected[number]) for number in (0, 1, 4)]
    assert both(spark, house, [*PLACE, *LINEAGE], where="id = 4") == [(*found[2][-4:-2], *expected[4])]


@EXHAUSTIVE
def test_streams_and_changes_bring_them(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Who copies a table could not tell which row of the copy was which."""
    iceberg_ds.register(spark)
    house.append(some(spark, 0, 4), format_version="3")
    house.append(some(spark, 4, 6))
    expected = checked(spark, house)
    stream = spark.readStream.format("icebergsource").options(**house.options, columns=f"id, {', '.join(LINEAGE)}")
    query = stream.load(NAME).writeStream.format("memory").queryName("followed").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    assert {row[0]: tuple(row[1:]) for row in spark.table("followed").collect()} == expected

    first = house.table().metadata.snapshots[0].snapshot_id
    iceberg_ds.delete_from(NAME, "id = 1", spark, options=house.options)
    options = {"columns": "id, _row_id, _last_updated_sequence_number, _change_type"}
    options["changes-after-snapshot-id"] = str(first)
    changes = spark.read.format("icebergsource").options(**house.options, **options).load(NAME)
    assert {(row[0], *row[1:]) for row in changes.collect()} == {
        (4, *expected[4], "INSERT"),
        (5, *expected[5], "INSERT"),
        (1, *expected[1], "DELETE"),
    }
