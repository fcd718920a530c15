"""Rows with keys through Spark: batches, streams of changes, what is refused, and tables that others write, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from support.checks.reader import listed
from support.exhaustive import EXHAUSTIVE, few
from support.keys.streams import BY_KEY, COLUMNS, FEED, Epoch, Event, KeyedStream, check_tidy, rows_after, rows_in
from support.spark.jobs import numbered, remove_last_commit
from support.spark.tables import FORMAT, Warehouse, read_with_chdb

import iceberg_ds

PARTITIONED: dict[str, dict[str, str]] = {
    "not": {},
    "by a column that moves": {"partition-by": "region"},
    "by the key": {"partition-by": "bucket(3, id)"},
}
OLD = ((1, "EU", 1, 1), (2, "EU", 2, 1), (3, "US", 3, 1))
ROW = "id BIGINT, region STRING, amount BIGINT, lsn BIGINT"


def upsert(rows: DataFrame, house: Warehouse, keys: str = "id", name: str = "db.t", **options: str) -> None:
    """Write rows by key; `_` in the name of an option stands for `-`."""
    house.append(rows, name, keys=keys, **options)


def changes(spark: SparkSession, *events: Event) -> DataFrame:
    """Return events of a feed in one task each."""
    rows = [dict(zip(("op", "id", "region", "amount", "lsn"), event, strict=True)) for event in events]
    return spark.createDataFrame(rows, COLUMNS).repartition(len(events)) if rows else spark.createDataFrame([], COLUMNS)


@pytest.fixture
def old(spark: SparkSession, house: Warehouse) -> Warehouse:
    """Return the catalog of a table with key `id` and the rows `OLD`."""
    upsert(spark.createDataFrame(OLD, ROW).coalesce(1), house)
    return house


def files_of(house: Warehouse) -> dict[str, int]:
    """Return how many files the table has of rows, and of deletes."""
    found = listed(house.table())
    return {content.name: len(found[content]) for content in DataFileContent if found[content]}


def test_batch_replaces_the_rows_of_its_keys(spark: SparkSession, house: Warehouse) -> None:
    """An upsert would append, lose the rows that it does not name, or make a table whose keys nobody knows."""
    upsert(numbered(spark, 0, 100), house)
    upsert(numbered(spark, 90, 110).selectExpr("id", "concat('new ', id) AS name"), house)

    table = house.table()
    fields = {table.schema().find_field(number).name for number in table.schema().identifier_field_ids}
    assert fields == {"id"}
    assert table.schema().find_field("id").required
    expected = [(i, f"{'row' if i < 90 else 'new'} {i}") for i in range(110)]
    assert rows_in(house) == expected
    assert [tuple(row.values()) for row in read_with_chdb(house.folder / "db" / "t")] == expected
    check_tidy(house)


@pytest.mark.parametrize("partitioned", few(1, PARTITIONED))
def test_stream_of_changes_leaves_the_last_row_of_each_key(
    spark: SparkSession, tmp_path: Path, partitioned: str
) -> None:
    """Rows would survive their delete or their move, or a key have two."""
    stream = KeyedStream(folder=tmp_path, options={**BY_KEY, **PARTITIONED[partitioned]})

    for number in range(len(FEED)):
        stream.run(spark, FEED[number])
        assert stream.rows() == rows_after(FEED[: number + 1])
        assert stream.snapshots() == number + 1

    names = [field.name for field in stream.house.table().schema().fields]
    assert names == ["id", "region", "amount", "lsn"]
    assert files_of(stream.house)["POSITION_DELETES"] >= 2  # keys 5 and 7 had rows that lost to another task
    check_tidy(stream.house)


def test_epochs_of_one_run_follow_each_other(spark: SparkSession, tmp_path: Path) -> None:
    """A stream that runs on would take its second epoch's rows for older than the first one's."""
    late: Epoch = ([("u", 4, "EU", 44, 2)], [("d", 6, None, None, 1)])  # lower sequences, in a later epoch

    stream = KeyedStream(folder=tmp_path).run(spark, *FEED, late)

    assert stream.rows() == rows_after([*FEED, late])
    assert stream.snapshots() == 4


@EXHAUSTIVE
def test_replayed_epoch_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A restart would bring rows back that another writer has replaced since."""
    stream = KeyedStream(folder=tmp_path).run(spark, *FEED)
    upsert(spark.createDataFrame([(4, "XX", 0, 99)], ROW), stream.house)
    before = stream.rows()
    assert remove_last_commit(stream.checkpoint) == 2

    stream.run(spark)

    assert stream.rows() == before
    assert (4, "XX", 0, 99) in before
    assert stream.snapshots() == 4
    check_tidy(stream.house)
    more: Epoch = ([("u", 4, "EU", 45, 20)], [("c", 8, "EU", 80, 21)])
    assert stream.run(spark, more).rows() == rows_after([more], before)


@pytest.mark.parametrize(
    ("bad", "words"),
    few(
        1,
        [
            ([("u", None, "EU", 1, 9), ("u", 8, "EU", 1, 9)], ["1 rows have a null in a key column", "{'id': None}"]),
            ([("u", 77, "EU", 1, 9), ("u", 77, "US", 2, 9)], ["1 keys have several rows", "{'id': 77}", "sequence-by"]),
            ([("u", 77, "EU", 1, 9), ("d", 77, None, None, 9)], ["1 keys have several rows", "{'id': 77}"]),
            ([("x", 8, "EU", 1, 9), (None, 9, "EU", 1, 9)], ["'x' (1 rows)", "null (1 rows)", "known words are"]),
        ],
    ),
    ids=["null key", "tie of rows", "tie with a delete", "unknown operation"],
)
def test_rows_that_are_no_changes_of_keys_commit_nothing(
    spark: SparkSession, old: Warehouse, tmp_path: Path, bad: list[Event], words: list[str]
) -> None:
    """Half an epoch would be in the table, or a stream stop without a word on what is wrong with its rows."""
    stream = KeyedStream(folder=tmp_path).feed((bad[:1], bad[1:]))

    with pytest.raises(StreamingQueryException) as stopped:
        stream.run(spark)
    with pytest.raises(PySparkException) as refused:
        upsert(changes(spark, *bad), old, sequence_by="lsn", operation_column="op")

    for error in (stopped, refused):
        assert "nothing was committed" in str(error.value)
        assert [word for word in words if word not in str(error.value)] == []
    assert rows_in(old) == list(OLD)
    assert stream.snapshots() == 1
    check_tidy(old)


@EXHAUSTIVE
def test_tie_leaves_one_row_if_keys_are_not_enforced(spark: SparkSession, old: Warehouse) -> None:
    """The option that lets a feed without an order through would leave two rows of a key."""
    tied = changes(spark, ("u", 1, "EU", 5, 9), ("u", 1, "US", 6, 9), ("d", 1, None, None, 9))

    upsert(tied, old, sequence_by="lsn", operation_column="op", keys_not_enforced="true")

    first, *rest = rows_in(old)
    assert first in {(1, "EU", 5, 9), (1, "US", 6, 9)}
    assert rest == list(OLD[1:])


def test_numbered_batches_of_foreach_batch_land_once(spark: SparkSession, tmp_path: Path) -> None:
    """A micro-batch that Spark repeats would undo what others have written to its keys since."""
    stream = KeyedStream(folder=tmp_path).feed(*FEED)
    house = stream.house

    def write(rows: DataFrame, epoch_id: int) -> None:
        for _ in range(2):
            numbered_batch = {"txn_app_id": "feed", "txn_version": str(epoch_id)}
            upsert(rows, house, sequence_by="lsn", operation_column="op", **numbered_batch)

    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2).json(str(stream.source))
    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(stream.checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)

    assert stream.rows() == rows_after(FEED)
    assert stream.snapshots() == len(FEED)
    check_tidy(house)


def test_appends_and_upserts_share_a_table(spark: SparkSession, old: Warehouse) -> None:
    """A writer without keys would be stopped, or its rows stay when their key is written again."""
    old.append(spark.createDataFrame([(2, "US", 22, 0), (4, "US", 4, 0)], ROW))
    both = rows_in(old)

    upsert(spark.createDataFrame([(2, "DE", 23, 0)], ROW), old)

    assert both == sorted([*OLD, (2, "US", 22, 0), (4, "US", 4, 0)])
    assert rows_in(old) == [OLD[0], (2, "DE", 23, 0), OLD[2], (4, "US", 4, 0)]


@pytest.mark.exhaustive
def test_stream_of_appends_beside_a_stream_of_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Two streams with one table would stop each other, or lose rows of one of them."""
    changing = KeyedStream(folder=tmp_path).feed(*FEED)
    adding = KeyedStream(folder=tmp_path, name="appends", options={})
    new = [(100 + number, "EU", number, number) for number in range(8)]
    adding.feed(*(([(None, *new[n])], [(None, *new[n + 1])]) for n in range(0, 8, 2)))
    changing.house.append(spark.createDataFrame([], ROW), keys="id")  # the table

    queries = [changing.job().start(spark)]
    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2).json(str(adding.source)).drop("op")
    writer = rows.writeStream.format(FORMAT).options(**adding.house.options)
    writer = writer.option("checkpointLocation", str(adding.checkpoint))
    queries.append(writer.trigger(availableNow=True).start("db.t"))
    for query in queries:
        assert query.awaitTermination(300)

    assert changing.rows() == sorted([*rows_after(FEED), *new])
    assert changing.snapshots() >= len(FEED) + 4
    check_tidy(changing.house)


@EXHAUSTIVE
def test_branch_is_written_by_key_apart_from_main(spark: SparkSession, old: Warehouse, tmp_path: Path) -> None:
    """Changes that are to be checked before would show at once, or miss the rows that main has."""
    stream = KeyedStream(folder=tmp_path).asking(branch="audit", create_branch="true").run(spark, *FEED)

    assert stream.rows("audit") == rows_after(FEED, OLD)
    assert rows_in(old) == list(OLD)
    iceberg_ds.publish("db.t", "audit", options=old.options)
    assert rows_in(old) == rows_after(FEED, OLD)


def test_staged_changes_are_published_with_their_deletes(spark: SparkSession, old: Warehouse) -> None:
    """Changes would be missing on main, or rows be there without the deletes that belong to them."""
    for epoch in FEED:
        rows = changes(spark, *(event for part in epoch for event in part))
        upsert(rows, old, sequence_by="lsn", operation_column="op", staging_branch="staging")

    assert rows_in(old) == rows_in(old, "staging") == rows_after(FEED, OLD)
    assert len(old.snapshots()) == 1 + len(FEED)


@EXHAUSTIVE
def test_distributed_rows_are_written_by_key(spark: SparkSession, old: Warehouse) -> None:
    """Rows that were distributed would be compared all the same, or a key have two rows."""
    new = [(number % 50, "EU", number, number) for number in range(200)]
    rows = iceberg_ds.distribute(spark.createDataFrame(new, ROW).repartition(4), keys=["id"], num_partitions=3)

    upsert(rows, old, sequence_by="lsn")

    assert rows_in(old) == sorted((number % 50, "EU", number, number) for number in range(150, 200))
    assert files_of(old) == {"DATA": 4, "EQUALITY_DELETES": 4}
    check_tidy(old)


@EXHAUSTIVE
def test_predicate_says_what_is_deleted(spark: SparkSession, old: Warehouse) -> None:
    """Rows that a feed marks as deleted would stay, or others go."""
    new = [(1, "EU", 0, 2, True), (2, "XX", 9, 2, None), (4, "EU", -1, 2, False), (5, "EU", 5, 2, False)]
    rows = spark.createDataFrame(new, f"{ROW}, gone BOOLEAN")

    upsert(rows, old, delete_when="gone = true OR amount < 0", schema_evolution="add-columns")

    assert rows_in(old) == [(2, "XX", 9, 2, None), (*OLD[2], None), (5, "EU", 5, 2, False)]


@EXHAUSTIVE
def test_keys_of_a_table_are_changed_only_if_asked_to(spark: SparkSession, old: Warehouse) -> None:
    """A misspelt key would change a table for all of its writers."""
    rows = spark.createDataFrame([(1, "US", 10, 2), (1, "EU", 11, 2)], ROW)
    required = Schema(*(field.model_copy(update={"required": True}) for field in old.table().schema().fields))
    old.catalog().create_table("db.required", required)

    with pytest.raises(PySparkException, match="the table's identifier fields are id: give evolve-keys=true"):
        upsert(rows, old, "id, region")
    with pytest.raises(PySparkException, match="region"):  # null in the table
        upsert(rows, old, "id, region", evolve_keys="true")
    upsert(rows, old, "id, region", "db.required", evolve_keys="true")
    upsert(rows.selectExpr("id", "region", "amount + 1 AS amount", "lsn"), old, "region, id", "db.required")

    assert rows_in(old) == list(OLD)
    assert rows_in(old, name="db.required") == [(1, "EU", 12, 2), (1, "US", 11, 2)]
    assert len(old.snapshots("db.required")) == 2


def test_table_of_version_1_is_refused_with_the_way_to_upgrade(spark: SparkSession, house: Warehouse) -> None:
    """Deletes would be written that no reader of that version knows."""
    catalog = house.catalog()
    catalog.create_namespace_if_not_exists("db")
    fields = NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())
    schema = Schema(*fields, identifier_field_ids=[1])
    catalog.create_table("db.t", schema, properties={"format-version": "1"})

    with pytest.raises(PySparkException, match=r"ALTER TABLE .*SET TBLPROPERTIES \('format-version'='2'\)"):
        upsert(numbered(spark, 0, 2), house)

    assert house.table().metadata.format_version == 1
    assert house.snapshots() == []
    assert house.data_files() == set()


@pytest.mark.exhaustive
def test_columns_that_come_with_an_epoch_are_added_with_it(spark: SparkSession, old: Warehouse, tmp_path: Path) -> None:
    """A change feed would stop with each column that its source gets, or lose the values."""
    stream = KeyedStream(folder=tmp_path).asking(schema_evolution="add-columns").feed(*FEED)
    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2).json(str(stream.source))
    more = rows.selectExpr("*", "amount * 2 AS twice")
    writer = more.writeStream.format(FORMAT).options(**old.options, **stream.options)

    query = writer.option("checkpointLocation", str(stream.checkpoint)).trigger(availableNow=True).start("db.t")
    assert query.awaitTermination(300)

    by_epochs = {row[0]: (*row, row[2] * 2) for row in rows_after(FEED)}
    assert rows_in(old) == sorted(by_epochs.get(row[0], (*row, None)) for row in rows_after(FEED, OLD))
    assert len(old.snapshots()) == 1 + len(FEED)


@EXHAUSTIVE
def test_inserts_that_are_new_are_a_plain_append(spark: SparkSession, old: Warehouse) -> None:
    """Tables of append-only feeds would be closed to readers that know no deletes."""
    new = changes(spark, ("c", 10, "EU", 1, 1), ("c", 11, "EU", 1, 1))

    upsert(new, old, sequence_by="lsn", operation_column="op", inserts_are_new="true")

    assert files_of(old)["EQUALITY_DELETES"] == 1  # of the first write
    assert "added-delete-files" not in old.snapshots()[-1]
    assert rows_in(old) == [*OLD, (10, "EU", 1, 1), (11, "EU", 1, 1)]
