"""Reading with both readers: Spark's own Parquet reader, and Python tasks, held against a reader of the tests' own."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FixedType, ListType, LongType, NestedField, StringType, TimeType, UUIDType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from support.checks.reader import rows_of
from support.exhaustive import EXHAUSTIVE, few
from support.spark.tables import Warehouse
from support.tables.changes_by_others import add_column_of_version_3
from support.tables.delete_files import add_in_partition, delete_equal, delete_positions, entries, with_ids
from support.tables.sink import NAME, Sink, embedded_options, local

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.reading import file_marks, spark_keys
from iceberg_ds.spark.arrow_frame import arrow_frame

READERS = ("spark", "python")


def sink_of(house: Warehouse) -> Sink:
    """Return the table without Spark."""
    options = embedded_options(house.folder)
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame, in the order of all their values."""
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: str(list(row.values())))


def both(spark: SparkSession, house: Warehouse, **arguments: Any) -> list[dict[str, Any]]:
    """Read with both readers, and return the rows, which have to be the same."""
    first, second = (
        rows(iceberg_ds.read(spark, NAME, options=house.options, reader=reader, **arguments)) for reader in READERS
    )

    assert first == second
    return first


def events(spark: SparkSession, count: int = 100, first: int = 0) -> DataFrame:
    """Return rows of several types."""
    return spark.range(first, first + count).selectExpr(
        "id",
        "cast(id % 4 as int) AS part",
        "concat('name ', id) AS name",
        "cast(id AS double) / 4 AS ratio",
        "timestamp_seconds(id * 3600) AS at",
        "cast(timestamp_seconds(id * 3600) AS timestamp_ntz) AS local",
        "date_add(date '2026-11-01', cast(id AS int)) AS day",
        "cast(id AS decimal(9, 2)) AS price",
        "named_struct('x', id, 'inner', named_struct('y', array(id, null))) AS nested",
        "map(concat('k', id), id) AS pairs",
        "CASE WHEN id % 3 = 0 THEN NULL ELSE id % 2 = 0 END AS flag",
    )


@pytest.mark.parametrize(("beside", "scans"), [(5, 1), (50, 2)])
def test_few_rows_without_deletes_are_read_with_the_others(
    spark: SparkSession, house: Warehouse, capsys: pytest.CaptureFixture[str], beside: int, scans: int
) -> None:
    """Each read after an upsert would wait for a second scan, of the few rows that came; or many rows for a look."""
    house.append(events(spark).coalesce(1), format_version="3")
    iceberg_ds.delete_from(NAME, "id IN (3, 4)", spark, options=house.options)
    house.append(events(spark, beside, 100).coalesce(1))

    read = iceberg_ds.read(spark, NAME, options=house.options, reader="spark")

    capsys.readouterr()
    read.explain()
    assert capsys.readouterr().out.count("FileScan parquet") == scans
    assert {row["id"] for row in both(spark, house, columns=["id"])} == {*range(100 + beside)} - {3, 4}


def test_rows_of_all_types_come_back(spark: SparkSession, house: Warehouse) -> None:
    """What was written could not be read, or differently by each reader."""
    house.append(events(spark), partition_by="part, day(at)")

    found = both(spark, house)

    assert found == rows(events(spark))


def test_first_read_of_an_empty_table_has_its_columns(spark: SparkSession, house: Warehouse) -> None:
    """A job that reads before the first write would fail."""
    house.append(events(spark, 0))

    assert both(spark, house) == []
    assert iceberg_ds.read(spark, NAME, options=house.options).columns == events(spark).columns


def test_columns_are_chosen_and_ordered(spark: SparkSession, house: Warehouse) -> None:
    """A read of two columns would read all, or mix them up."""
    house.append(events(spark))

    frame = iceberg_ds.read(spark, NAME, columns=["name", "ID"], where="part = 1", options=house.options)

    assert frame.columns == ["name", "id"]
    assert both(spark, house, columns=["name", "id"], where="part = 1") == [
        {"name": f"name {number}", "id": number} for number in sorted(range(1, 100, 4), key=str)
    ]


def test_metadata_columns_say_where_a_row_is(spark: SparkSession, house: Warehouse) -> None:
    """Nobody could find the file that a wrong row is in."""
    house.append(events(spark, 10).coalesce(1))
    (entry,) = entries(sink_of(house))

    found = both(spark, house, columns=["id", "_file", "_pos", "_spec_id"])

    assert [(row["id"], row["_file"], row["_pos"], row["_spec_id"]) for row in found] == [
        (number, entry.data_file.file_path, number, 0) for number in range(10)
    ]


def test_partitions_are_refused_where_there_are_none(spark: SparkSession, house: Warehouse) -> None:
    """An empty struct says nothing, and a stream could not follow a change of the specs."""
    house.append(events(spark, 3))
    for reader in READERS:
        with pytest.raises(OptionError, match="no column '_partition': it never had partitions"):
            iceberg_ds.read(spark, "db.t", columns=["id", "_partition"], options=house.options, reader=reader)
    stream = spark.readStream.format("icebergsource").options(**house.options, columns="_partition")
    with pytest.raises(Exception, match="'_partition'"):
        stream.load("db.t").writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def test_files_are_passed_over_by_partition_and_metrics(spark: SparkSession, house: Warehouse) -> None:
    """A read of one day would open the files of all days."""
    house.append(events(spark), partition_by="part")
    house.append(events(spark, 100, 1000), partition_by="part")

    frame = iceberg_ds.read(spark, NAME, where="part = 2 AND id < 500", options=house.options)

    assert {path.split("part=")[1][0] for path in frame.inputFiles()} == {"2"}
    assert len(frame.inputFiles()) == sum("part=2" in path for path in frame.inputFiles())
    assert both(spark, house, columns=["id"], where="part = 2 AND id < 10") == [{"id": 2}, {"id": 6}]


def test_predicate_that_only_spark_knows_filters_rows(spark: SparkSession, house: Warehouse) -> None:
    """A predicate beyond those that files are passed over by would be refused, or ignored."""
    house.append(events(spark))

    assert both(spark, house, columns=["id"], where="name RLIKE 'name 1$' OR CASE WHEN id = 7 THEN true END") == [
        {"id": 1},
        {"id": 7},
    ]


@pytest.mark.parametrize("partition_by", [None, "part"])
def test_deleted_rows_stay_away(spark: SparkSession, house: Warehouse, partition_by: str | None) -> None:
    """Deleted rows would come back."""
    house.append(events(spark), **({} if partition_by is None else {"partition_by": partition_by}))
    sink = sink_of(house)
    for entry in entries(sink):
        delete_positions(sink, entry.data_file.file_path, [0, 2, entry.data_file.record_count - 1])
    of = next(entry.data_file for entry in entries(sink) if entry.data_file.equality_ids is None)
    delete_equal(sink, with_ids(pa.table({"id": range(20, 60)}), id=1), [1], of)
    house.append(events(spark, 5, 40), **({} if partition_by is None else {"partition_by": partition_by}))

    found = both(spark, house)

    assert [row["id"] for row in found] == [row["id"] for row in rows_of(house.table())]
    assert len(found) < 105


def test_equality_deletes_with_nulls_delete_nulls(spark: SparkSession, house: Warehouse) -> None:
    """Rows without a value would be deleted never, or all of them."""
    house.append(spark.range(12).selectExpr("id", "IF(id % 3 = 0, NULL, id) AS n", "id % 4 AS part"))
    keys = pa.table({"n": pa.array([None, 5], pa.int64()), "part": pa.array([0, 1], pa.int64())})
    delete_equal(sink_of(house), with_ids(keys, n=2, part=3), [2, 3])

    found = both(spark, house, columns=["id"])

    assert sorted(row["id"] for row in found) == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


@EXHAUSTIVE
@pytest.mark.parametrize(("most_keys", "zone"), few(1, product([spark_keys.MOST_KEYS, 0], ["America/New_York", "UTC"])))
def test_keys_of_all_types_delete(
    spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch, most_keys: int, zone: str
) -> None:
    """Keys of a type that the driver, or Spark, reads otherwise would delete nothing, or other rows."""
    monkeypatch.setattr(spark_keys, "MOST_KEYS", most_keys)
    spark.conf.set("spark.sql.session.timeZone", zone)
    rows = spark.range(9, numPartitions=1).selectExpr(
        "id",
        "cast(id AS int) AS n",
        "concat('k', id) AS text",
        "cast(id AS decimal(9, 2)) AS price",
        "date_add(date '1500-11-01', cast(id AS int)) AS day",
        "timestamp_micros(id * 3600000001) AS at",
        "cast(timestamp_micros(id * 3600000001) AS timestamp_ntz) AS local",
        "cast(concat('b', id) AS binary) AS raw",
        "id = 3 AS flag",
    )
    house.append(rows)
    fields = {field.name: field.field_id for field in house.table().schema().fields}
    sink, written = sink_of(house), house.rows()
    for number, name in enumerate([*fields][:-1]):
        delete_equal(
            sink, with_ids(written.select([name]).slice(number % 3, 1), **{name: fields[name]}), [fields[name]]
        )
        house.append(rows.where(f"id = {number % 3}"))  # newer rows of the same keys stay
    delete_equal(sink, with_ids(written.slice(5, 1), **fields), [*fields.values()])

    found = both(spark, house, columns=["id"])

    assert sorted(row["id"] for row in found) == sorted(row["id"] for row in rows_of(house.table()))
    assert sorted({row["id"] for row in found}) == [0, 1, 2, 3, 4, 6, 7, 8]


def test_key_that_the_table_has_dropped_still_deletes(spark: SparkSession, house: Warehouse) -> None:
    """Rows deleted by a column that is gone would come back."""
    house.append(events(spark, 12))
    sink = sink_of(house)
    delete_equal(sink, with_ids(pa.table({"name": ["name 3", "name 5"]}), name=3), [3])
    house.table().update_schema().delete_column("name").commit()

    found = both(spark, house, columns=["id"])

    assert sorted(row["id"] for row in found) == [0, 1, 2, 4, 6, 7, 8, 9, 10, 11]


def test_columns_are_found_by_field_id(spark: SparkSession, house: Warehouse) -> None:
    """Renamed columns would be null, and a name that moved to another column would show that one's values."""
    house.append(spark.range(10).selectExpr("id", "id + 100 AS a", "id + 200 AS b", "named_struct('x', id) AS s"))
    with house.table().update_schema() as update:
        update.rename_column("a", "c")
    with house.table().update_schema() as update:
        update.rename_column("b", "a").rename_column("s.x", "y")
    with house.table().update_schema() as update:
        update.add_column("b", StringType())
    with house.table().update_schema() as update:
        update.add_column(("s", "x"), StringType())

    assert both(spark, house, where="a = 205")[0] == {
        "id": 5,
        "c": 105,
        "a": 205,
        "s": {"y": 5, "x": None},
        "b": None,
    }
    assert both(spark, house, columns=["id"], where="a = 105") == []
    assert both(spark, house, columns=["id"], where="b IS NULL AND c = 103") == [{"id": 3}]
    assert both(spark, house, columns=["id"], where="s.y = 4 AND s.x IS NULL") == [{"id": 4}]


def test_widened_columns_are_compared_in_their_new_type(spark: SparkSession, house: Warehouse) -> None:
    """Spark pushes filters down in the type of the file: rows could be passed over."""
    house.append(spark.range(3).selectExpr("cast(id * 1000000000 AS int) AS n", "cast(0.1 AS float) AS f"))
    with house.table().update_schema() as update:
        update.update_column("n", LongType()).update_column("f", DoubleType())

    assert len(both(spark, house, where="n < 5000000000")) == 3
    assert both(spark, house, where="n = 5000000000") == []
    assert len(both(spark, house, where="f > 0.1D")) == 3


def test_older_states_are_read_by_id_time_branch_and_tag(spark: SparkSession, house: Warehouse) -> None:
    """Nobody could look at the table as it was."""
    house.append(spark.range(1).toDF("id"))
    first = house.table().current_snapshot()
    assert first is not None
    house.table().manage_snapshots().create_tag(first.snapshot_id, "old").create_branch(
        first.snapshot_id, "side"
    ).commit()
    house.append(spark.range(1, 2).selectExpr("id", "'x' AS more"), schema_evolution="add-columns")
    house.append(spark.range(5, 6).toDF("id"), branch="side")
    moment = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, dt.timezone.utc)

    assert both(spark, house) == [{"id": 0, "more": None}, {"id": 1, "more": "x"}]
    for choice in (
        {"snapshot_id": first.snapshot_id},
        {"as_of": moment},
        {"as_of": first.timestamp_ms},
        {"tag": "old"},
    ):
        assert both(spark, house, **choice) == [{"id": 0}]
    assert both(spark, house, branch="side") == [{"id": 0, "more": None}, {"id": 5, "more": None}]


def test_read_is_of_one_snapshot(spark: SparkSession, house: Warehouse) -> None:
    """A DataFrame that is used twice would have different rows, once others have written."""
    house.append(spark.range(3).toDF("id"))
    frames = [iceberg_ds.read(spark, NAME, options=house.options, reader=reader) for reader in READERS]
    house.append(spark.range(3, 6).toDF("id"))

    assert [frame.count() for frame in frames] == [3, 3]


@EXHAUSTIVE
def test_uuid_fixed_and_time_are_read(spark: SparkSession, house: Warehouse) -> None:
    """Tables of other engines could not be read."""
    text = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    house.catalog().create_namespace("db")
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "u", UUIDType()), NestedField(3, "f", FixedType(3))
    )
    house.catalog().create_table(NAME, schema)
    house.append(spark.sql(f"SELECT 1L AS id, '{text}' AS u, X'010203' AS f"))

    assert both(spark, house) == [{"id": 1, "u": text, "f": bytearray(b"\1\2\3")}]

    with house.table().update_schema() as update:
        update.add_column("t", TimeType()).add_column("us", ListType(9, UUIDType(), element_required=False))
    house.append(spark.sql(f"SELECT 2L AS id, '{text}' AS u, X'010203' AS f, '10:00:00.5' AS t, array('{text}') AS us"))

    found = rows(iceberg_ds.read(spark, NAME, options=house.options, where="id = 2"))

    assert found == [{"id": 2, "u": text, "f": bytearray(b"\1\2\3"), "t": "10:00:00.500000", "us": [text]}]
    with pytest.raises(UnsupportedTableError, match="column 't' has values of type time"):
        iceberg_ds.read(spark, NAME, options=house.options, reader="spark")


@pytest.mark.parametrize("folder", few(1, ["a ü", "[b] {1} *"]))
def test_paths_with_any_signs_are_read(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    """Spark would take brackets for a pattern, or read a percent sign as an escape."""
    house = Warehouse(folder=tmp_path / folder)
    values = ["x y", "a/b", "50%25", "ü", "[z]", "{q,r}", "a+b=c", "#?"]
    house.append(spark.createDataFrame([(value,) for value in values], "name string"), partition_by="name")
    sink = sink_of(house)
    for entry in entries(sink)[:2]:
        delete_positions(sink, entry.data_file.file_path, [0])

    frame = iceberg_ds.read(spark, NAME, options=house.options)

    assert [row["name"] for row in rows(frame)] == [row["name"] for row in rows_of(house.table())]
    if "*" not in folder:
        assert rows(frame) == both(spark, house)


@EXHAUSTIVE
def test_files_of_one_size_are_told_apart(
    spark: SparkSession, house: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletes of one file would hide rows of another one."""
    monkeypatch.setattr(file_marks, "_FURTHER_PORTIONS", 1)
    for number in range(12):
        house.append(spark.range(number * 10, number * 10 + 10).coalesce(1).toDF("id"))
    sink = sink_of(house)
    files = [entry.data_file for entry in entries(sink)]
    assert len({file.file_size_in_bytes for file in files}) < len(files) // 2
    for number, file in enumerate(files):
        delete_positions(sink, file.file_path, [number % 10])

    assert [row["id"] for row in both(spark, house)] == [row["id"] for row in rows_of(house.table())]


def test_file_that_is_no_longer_as_its_manifest_says_fails(spark: SparkSession, house: Warehouse) -> None:
    """Deleted rows would be shown, if a file cannot be told from others any more."""
    for number in range(2):
        house.append(spark.range(number * 10, number * 10 + 10 + number * 90).coalesce(1).toDF("id"))
    sink = sink_of(house)
    first, second = (entry.data_file.file_path for entry in entries(sink))
    delete_positions(sink, first, [0])
    delete_positions(sink, second, [1])
    frame = iceberg_ds.read(spark, NAME, options=house.options, reader="spark")
    with local(first).open("ab") as file:
        file.write(b"PAR1")

    with pytest.raises(
        Exception, match=r"none of the files of the table|not a Parquet file|Encountered error while reading"
    ):
        frame.collect()


@pytest.mark.parametrize("reader", READERS)
def test_missing_file_is_named(spark: SparkSession, house: Warehouse, reader: Any) -> None:
    """Spark would leave out the rows of a file that is gone, whatever its settings."""
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    house.append(events(spark, 10), partition_by="part")
    path = entries(sink_of(house))[1].data_file.file_path
    local(path).unlink()

    try:
        with pytest.raises(Exception, match=re.escape(path.rpartition("/")[2])):
            iceberg_ds.read(spark, NAME, options=house.options, reader=reader).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@EXHAUSTIVE
def test_damaged_file_fails_the_read(spark: SparkSession, house: Warehouse) -> None:
    """Rows of a damaged file would be missing, if the session is told to pass over damaged files."""
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    house.append(spark.range(1000).coalesce(1))
    path = local(entries(sink_of(house))[0].data_file.file_path)
    content = bytearray(path.read_bytes())
    content[-20:-8] = b"x" * 12
    path.write_bytes(content)

    try:
        for reader in READERS:
            with pytest.raises(Exception, match=r"magic|[Ff]ooter|Thrift|deserialize"):
                iceberg_ds.read(spark, NAME, options=house.options, reader=reader).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


def test_files_without_field_ids_are_read_by_name_mapping(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """Files that were added to the table as they were would show nothing but nulls."""
    house.append(spark.range(3).selectExpr("id", "named_struct('x', id) AS s", "'EU' AS region"), partition_by="region")
    plain = pa.table({"id": [7, 8], "s": pa.array([{"x": 1}, {"x": None}]), "unknown": [1, 2]})
    path = tmp_path / "region=US" / "plain.parquet"
    path.parent.mkdir()
    pq.write_table(plain, path)
    table = house.table()
    mapping = table.schema().name_mapping.model_dump_json()
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": mapping})
    add_in_partition(sink_of(house), path, {"region": "US"}, rows=2)

    found = rows(iceberg_ds.read(spark, NAME, options=house.options))

    assert found[-2:] == [{"id": 7, "s": {"x": 1}, "region": "US"}, {"id": 8, "s": {"x": None}, "region": "US"}]
    assert len(found) == 5


def test_column_that_a_file_lacks_has_the_value_of_its_partition(
    spark: SparkSession, house: Warehouse, tmp_path: Path
) -> None:
    """Files of other writers do not hold the columns that they are partitioned by: these would be null."""
    house.append(
        spark.range(1).selectExpr("id", "'EU' AS region", "date '2026-01-01' AS day"), partition_by="region, day"
    )
    path = tmp_path / "with-ids.parquet"
    pq.write_table(with_ids(pa.table({"id": [7]}), id=1), path)
    add_in_partition(sink_of(house), path, {"region": "US", "day": 20_000}, rows=1)

    assert both(spark, house, where="region = 'US'") == [{"id": 7, "region": "US", "day": dt.date(2024, 10, 4)}]


def test_wrong_arguments_are_refused(spark: SparkSession, house: Warehouse) -> None:
    """A user would not learn what is wrong."""
    house.append(spark.range(3).toDF("id"))

    def refusal(**arguments: Any) -> str:
        with pytest.raises(OptionError) as raised:
            iceberg_ds.read(spark, NAME, **{"options": house.options, **arguments})
        return str(raised.value)

    assert refusal(columns=["id", "nope"]) == "Cannot read db.t: it has no column 'nope' (columns: id)."
    assert refusal(columns="id") == "Cannot read db.t: columns is the text 'id', expected a list of names."
    assert "a column is named twice" in refusal(columns=["id", "ID"])
    assert "it has no snapshot 5" in refusal(snapshot_id=5)
    assert "it has no snapshot of 1970" in refusal(as_of=1000)
    assert "it has no snapshot of -1000000000000000 ms" in refusal(as_of=-(10**15))
    assert "expected a time with a time zone" in refusal(as_of="2026-01-01")
    assert refusal(branch="side") == "Cannot read db.t: it has no branch 'side' (it has: main)."
    assert refusal(tag="old") == "Cannot read db.t: it has no tag 'old' (it has: none)."
    assert "snapshot_id and tag name a snapshot each" in refusal(snapshot_id=5, tag="old")
    assert "expected a list of names" in refusal(columns=5)
    assert "where is Column<'id'>, expected a text or None" in refusal(where=F.col("id"))
    assert "reader is 'fast', expected one of auto, spark, python" in refusal(reader="fast")
    assert "option 'partition-by' is none of a read" in refusal(options={**house.options, "partition-by": "id"})
    assert "option 'keys' goes with on-change=changes" in refusal(options={**house.options, "keys": "id"})
    assert "where is no predicate on its columns: [UNRESOLVED_COLUMN" in refusal(where="nope = 1")
    assert "where is no predicate on its columns: " in refusal(where="nope = 1", reader="python")
    assert "where is no predicate on its columns: [PARSE_SYNTAX_ERROR]" in refusal(where="id = = 1")
    with pytest.raises(TableNotFoundError):
        iceberg_ds.read(spark, "db.none", options=house.options)


def test_source_reads_by_options_and_in_sql(spark: SparkSession, house: Warehouse) -> None:
    """Users of `format()` and of SQL could not read."""
    iceberg_ds.register(spark)
    house.append(events(spark, 20), partition_by="part")

    frame = spark.read.format("icebergsource").options(**house.options).option("columns", "id, name")
    spark.sql(f"CREATE TEMPORARY VIEW v USING icebergsource OPTIONS (table 'db.t', warehouse '{house.folder}')")

    assert rows(frame.option("where", "part = 1 AND id > 10").load(NAME)) == [
        {"id": 13, "name": "name 13"},
        {"id": 17, "name": "name 17"},
    ]
    assert rows(spark.sql("SELECT count(*) AS n FROM v WHERE part = 1")) == [{"n": 5}]
    with pytest.raises(Exception, match="option 'partition-by' is none of a read"):
        frame.option("partition-by", "id").load(NAME)


@pytest.mark.parametrize("counts", [(0, 2), (0, 0, 1, 1), (2, 0, 2), (2, 0)])
def test_rows_of_the_driver_come_whole(spark: SparkSession, counts: tuple[int, ...]) -> None:
    """Rows of metadata tables would be missing, and rows come back that are deleted by key."""
    schema = pa.schema([("id", pa.int64())])
    parts = [pa.table({"id": range(count)}, schema=schema) for count in counts]

    assert arrow_frame(spark, pa.concat_tables(parts)).count() == sum(counts)


def test_filters_of_a_dataframe_pass_files_over(spark: SparkSession, house: Warehouse) -> None:
    """The Python engine would read a whole table for a few of its rows."""
    iceberg_ds.register(spark)
    house.append(events(spark, 20), partition_by="part")
    for path in house.data_files():
        if "part=1" not in str(path):
            path.unlink()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("icebergsource").options(**house.options).load(NAME)

        assert rows(frame.where("part = 1 AND id > 10").select("id")) == [{"id": 13}, {"id": 17}]
        with pytest.raises(PySparkException, match="is missing or damaged"):
            frame.where("part = 2").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_metadata_tables_are_read(spark: SparkSession, house: Warehouse) -> None:
    """A user without the runtime could not see snapshots, files and partitions in Spark."""
    house.append(events(spark, 20), partition_by="part")
    first = house.table().current_snapshot()
    house.append(events(spark, 5), partition_by="part")
    sink = sink_of(house)
    path = entries(sink)[0].data_file.file_path
    delete_positions(sink, path, [1])
    assert first is not None

    def table(name: str, **arguments: Any) -> DataFrame:
        return iceberg_ds.read(spark, f"{NAME}.{name}", options=house.options, **arguments)

    assert [row["operation"] for row in table("snapshots").collect()] == ["append", "append", "overwrite"]
    assert table("files", where="content = 0", columns=["file_path"]).count() == len(entries(sink)) - 1
    assert table("files", snapshot_id=first.snapshot_id).selectExpr("sum(record_count)").collect() == [(20,)]
    assert rows(table("partitions", columns=["partition"]))[0] == {"partition": {"part": 0}}
    assert rows(table("position_deletes", columns=["file_path", "pos"])) == [{"file_path": path, "pos": 1}]
    assert table("history").count() == table("metadata_log_entries").count() == 3
    assert table("refs").columns[:2] == ["name", "type"]
    assert table("entries").count() == len(entries(sink))
    assert table("manifests").count() >= 2
    with pytest.raises(OptionError, match="it has no column 'none'"):
        table("refs", columns=["none"])
    with pytest.raises(OptionError, match="columns names none"):
        table("refs", columns=[])
    with pytest.raises(OptionError, match=r"db\.t\.snapshots of one snapshot: it tells of the whole table"):
        table("snapshots", snapshot_id=first.snapshot_id)
    with pytest.raises(TableNotFoundError):
        table("nothing")


@EXHAUSTIVE
def test_filters_find_nan_and_negative_zero(spark: SparkSession, house: Warehouse) -> None:
    """The statistics of Parquet leave them out: Spark would pass over their rows."""
    house.append(spark.sql("SELECT 1 AS id, double('NaN') AS f UNION ALL SELECT 2, -1 * double(0)").coalesce(1))

    for where, wanted in (("f > 5", 1), ("f != 0", 1), ("f = double('NaN')", 1), ("f = 0", 2), ("f >= 0 AND f < 1", 2)):
        assert both(spark, house, columns=["id"], where=where) == [{"id": wanted}]
        assert rows(iceberg_ds.read(spark, NAME, options=house.options).where(where).select("id")) == [{"id": wanted}]


@pytest.mark.parametrize("column", few(1, ["s.inner.t", "d", "s.d"]))
def test_filters_find_days_that_julius_caesar_had(spark: SparkSession, house: Warehouse, column: str) -> None:
    """Spark shifts the ten days that the Gregorian calendar left out as it pushes a filter down."""
    day, time = "date'1582-10-10'", "timestamp'1582-10-10 01:02:03Z'"
    nested = f"named_struct('d', {day}, 'inner', named_struct('t', {time}))"
    house.append(spark.sql(f"SELECT 1 AS id, {day} AS d, {nested} AS s"))
    value = time if column.endswith("t") else day

    for where in (f"{column} = {value}", f"{column} >= {value}", f"{column} <= {value}"):
        assert both(spark, house, columns=["id"], where=where) == [{"id": 1}]
        assert rows(iceberg_ds.read(spark, NAME, options=house.options).where(where).select("id")) == [{"id": 1}]
    iceberg_ds.delete_from(NAME, f"{column} >= {value}", spark, options=house.options)
    assert house.rows().num_rows == 0


@pytest.fixture
def java_in_tokyo(spark: SparkSession) -> Iterator[None]:
    """Let Spark's JVM have another time zone."""
    zone = spark._jvm.java.util.TimeZone
    before = zone.getDefault()
    zone.setDefault(zone.getTimeZone("Asia/Tokyo"))
    yield
    zone.setDefault(before)


@pytest.mark.usefixtures("java_in_tokyo")
@pytest.mark.parametrize("column", few(1, ["s.t", "t"]))
def test_filters_find_times_before_a_zone_had_its_offset(spark: SparkSession, house: Warehouse, column: str) -> None:
    """Spark shifts what was local mean time, by the zone of its JVM, as it pushes a filter down."""
    time = "timestamp'1887-12-31 14:50:00Z'"
    house.append(spark.sql(f"SELECT 1 AS id, {time} AS t, named_struct('t', {time}) AS s"))

    for where in (f"{column} = {time}", f"{column} >= {time}"):
        assert both(spark, house, columns=["id"], where=where) == [{"id": 1}]
        assert rows(iceberg_ds.read(spark, NAME, options=house.options).where(where).select("id")) == [{"id": 1}]


def test_filters_mean_columns_whose_old_names_have_expired(spark: SparkSession, house: Warehouse) -> None:
    """A filter would be pushed down to the column that had the name in older files, once old schemas are gone."""
    house.append(spark.range(3).selectExpr("id", "id + 100 AS a", "id + 200 AS b"))
    for old, new in (("a", "c"), ("b", "a")):
        house.table().update_schema().rename_column(old, new).commit()
    house.append(spark.sql("SELECT 50L AS id, 150L AS c, 250L AS a"))

    iceberg_ds.expire_snapshots(NAME, "now", 1, options=house.options, clean_expired_metadata=True)

    assert len(house.table().metadata.schemas) == 1
    assert both(spark, house, columns=["id"], where="a = 201") == [{"id": 1}]


def test_row_is_deleted_by_a_column_that_its_file_lacks(spark: SparkSession, house: Warehouse, tmp_path: Path) -> None:
    """Deleted rows of a partition whose files do not hold its column would come back."""
    house.append(spark.sql("SELECT 1L AS id, 'US' AS region"), partition_by="region")
    path, sink = tmp_path / "with-ids.parquet", sink_of(house)
    pq.write_table(with_ids(pa.table({"id": [7, 8]}), id=1), path)
    add_in_partition(sink, path, {"region": "EU"}, rows=2)
    of = next(entry.data_file for entry in entries(sink) if "with-ids" in entry.data_file.file_path)
    delete_equal(sink, with_ids(pa.table({"region": ["EU"]}), region=2), [2], of)

    assert both(spark, house) == [{"id": 1, "region": "US"}]


@pytest.mark.parametrize(
    ("setting", "value", "where"),
    few(
        1,
        [
            ("spark.sql.ansi.doubleQuotedIdentifiers", "true", 'a = "b"'),
            ("spark.sql.parser.escapedStringLiterals", "true", r"a = 'x\ny'"),
            ("spark.sql.ansi.enabled", "false", "f = 16777217"),
        ],
    ),
)
def test_setting_that_changes_predicates_loses_no_row(
    spark: SparkSession, house: Warehouse, setting: str, value: str, where: str
) -> None:
    """Files would be passed over by what the predicate does not mean in this session."""
    house.append(spark.sql(r"SELECT r'x\ny' AS a, r'x\ny' AS b, float(16777217) AS f"))
    before = spark.conf.get(setting)
    spark.conf.set(setting, value)
    try:
        found = iceberg_ds.read(spark, NAME, where=where, options=house.options)

        assert found.count() == iceberg_ds.read(spark, NAME, options=house.options).where(where).count() == 1
    finally:
        spark.conf.set(setting, str(before))


@EXHAUSTIVE
def test_names_with_any_signs_are_deleted_by(spark: SparkSession, house: Warehouse) -> None:
    """Tables with such names could not be read once they have deletes."""
    for number, name in enumerate(("a.b", "c`d", "__row_index")):
        named, quoted = f"db.t{number}", name.replace("`", "``")
        house.append(spark.range(4).selectExpr("id", f"id AS `{quoted}`"), name=named)
        options = embedded_options(house.folder, table=named)
        sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        delete_equal(sink, with_ids(pa.table({name: [1]}), **{name: 2}), [2])

        assert sorted(row["id"] for row in iceberg_ds.read(spark, named, options=house.options).collect()) == [0, 2, 3]


def test_times_of_metadata_tables_are_those_of_the_table(spark: SparkSession, house: Warehouse) -> None:
    """They would be off by the distance of the session's zone from UTC."""
    house.append(spark.range(1).toDF("id"))
    snapshot = house.table().current_snapshot()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    assert snapshot is not None

    found = iceberg_ds.read(spark, f"{NAME}.snapshots", options=house.options).selectExpr("unix_millis(committed_at)")

    assert found.collect() == [(snapshot.timestamp_ms,)]


def test_filters_and_columns_reach_the_files(
    spark: SparkSession, house: Warehouse, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark would read all columns and all rows, and a copy of the table would carry field ids of this one."""
    rows = spark.sql("SELECT id, id * 2 AS n, named_struct('x', id, 'y', 'text') AS s, 'text' AS t FROM range(10)")
    house.append(rows)

    read = iceberg_ds.read(spark, "db.t", options=house.options, reader="spark")
    assert not any(column.metadata for column in read.schema)
    read.where("n > 4 AND t = 'text'").select("id", "s.x").explain("formatted")
    plan = capsys.readouterr().out
    assert "GreaterThan(n,4)" in plan
    assert "EqualTo(t,text)" in plan
    assert "ReadSchema: struct<id:bigint,n:bigint,s:struct<x:bigint>,t:string>" in plan


@pytest.mark.parametrize("setting", ["spark.sql.parser.quotedRegexColumnNames", "spark.sql.variable.substitute"])
def test_names_are_neither_patterns_nor_variables(spark: SparkSession, house: Warehouse, setting: str) -> None:
    """A column would have the values of another one, and an update would store them."""
    names = ["a.b", "axb", "a+", "aa", "cost ${cur}", "${spark.master}"]
    columns = [F.lit(float(number)).alias(name) for number, name in enumerate(names)]
    house.append(spark.range(2).select("id", *columns).coalesce(1))
    spark.conf.set(setting, "true")
    try:
        found = both(spark, house)
    finally:
        spark.conf.unset(setting)

    assert found == [{"id": key, **{name: float(number) for number, name in enumerate(names)}} for key in range(2)]


@pytest.mark.parametrize("reader", few(1, ["auto", "spark", "python"]))
def test_table_with_a_column_without_a_spark_type_is_read_without_it(
    spark: SparkSession, house: Warehouse, reader: Any
) -> None:
    """A table with one geometry could not be read at all, and no error would name the column."""
    house.append(events(spark, 3))
    add_column_of_version_3(sink_of(house), "geometry")
    named = "column 'other' holds geometry, which has no exact Spark type here: name the other columns in 'columns'"

    with pytest.raises(UnsupportedTableError, match=f"Cannot read db.t: {named}"):
        iceberg_ds.read(spark, NAME, options=house.options, reader=reader)
    with pytest.raises(UnsupportedTableError, match=f"Cannot read db.t: {named}"):
        iceberg_ds.read_changes(spark, NAME, options=house.options, reader=reader)
    with pytest.raises(UnsupportedTableError, match=r"Cannot write to db\.t: column 'other' is of type geometry"):
        iceberg_ds.delete_from(NAME, "id = 1", spark, options=house.options)

    found = iceberg_ds.read(spark, NAME, options=house.options, columns=["id"], where="id > 0", reader=reader)
    assert rows(found) == [{"id": 1}, {"id": 2}]
    changes = iceberg_ds.read_changes(spark, NAME, options=house.options, columns=["id"], reader=reader)
    assert rows(changes.select("id")) == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_changes_that_are_compared_by_a_column_without_a_spark_type_are_refused(
    spark: SparkSession, house: Warehouse
) -> None:
    """The user would be told to leave a column out that is left out already."""
    house.append(events(spark, 3))
    iceberg_ds.update(NAME, {"name": "'x'"}, "id = 0", spark, options=house.options)
    add_column_of_version_3(sink_of(house), "geometry")

    said = "all columns of which are compared, and column 'other' holds geometry"
    with pytest.raises(UnsupportedTableError, match=said):
        iceberg_ds.read_changes(spark, NAME, options=house.options, columns=["id"])
