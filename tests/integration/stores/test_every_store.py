"""Tables in every kind of store, on real servers: written, read by others, converted, checked and cleaned up there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import gcsfs
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType
from support.exhaustive import EXHAUSTIVE
from support.keys.conversions import ENCODINGS, convert, keyed_deletes
from support.keys.messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.services.bucket import Bucket
from support.services.cloud_stores import CloudBucket
from support.spark.jobs import numbered
from support.tables.changes_by_others import plain_catalog, rename
from support.tables.sink import NAME, SCHEMA, Row, Sink, arrow_batch, epoch, rows

import iceberg_ds
from iceberg_ds import DataFileError, OptionError
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import abort_write
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.inspect.verify import VerifyResult
from iceberg_ds.io.files import OBJECT_IO
from iceberg_ds.io.listing import file_at, files_of_part, listing_parts, stored_files
from iceberg_ds.options.parse import parse_options
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

Place = Bucket | CloudBucket
EPOCHS: Sequence[Sequence[Event]] = (
    [("I", 1, "EU", 1, 0), ("I", 2, "EU", 2, 0), ("I", 3, "US", 3, 0)],
    [("U", 2, "EU", 20, 1), ("D", 3, "US", None, 1)],
)


@pytest.fixture(autouse=True)
def _no_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep gcsfs, as PyIceberg uses it, from asking Google's own server for the layout of each bucket."""
    monkeypatch.setattr(gcsfs, "GCSFileSystem", gcsfs.core.GCSFileSystem)


@pytest.fixture
def options(place: Place, tmp_path: Path) -> dict[str, str]:
    """Return the options of writes to a SQL catalog with its tables in the bucket."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{place.location}/warehouse",
        "py-io-impl": OBJECT_IO,  # for PyIceberg's own clients of the catalog, too
        **place.properties,
    }
    return {"catalog": "stores", **{f"catalog.{key}": value for key, value in catalog.items()}}


@pytest.fixture
def sink(options: dict[str, str]) -> Sink:
    """Return a table in the bucket; it does not exist yet."""
    parsed = parse_options({"table": NAME, **options})
    return Sink(catalog=connect(catalog_settings(parsed)), options=parsed)


def data_files(place: Place) -> list[str]:
    """Return the keys of data files."""
    return [key for key in place.object_keys() if key.endswith(".parquet")]


def failures(result: VerifyResult) -> list[str]:
    """Return the names of the checks that failed."""
    return [check.name for check in result.failures]


def other_library(sink: Sink, place: Place) -> Catalog:
    """Return PyIceberg's own catalog of the table, with PyIceberg's own FileIO."""
    own = place.properties_of_fsspec if isinstance(place, CloudBucket) else {}
    properties = {**dict(catalog_settings(sink.options).properties), **own}
    return load_catalog("stores", **{**properties, "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})


def test_rows_are_appended_and_overwritten(sink: Sink) -> None:
    """A user could not write to such a store at all."""
    sink.append(1, 2)
    sink.append(3)
    assert sink.ids() == [1, 2, 3]
    sink.overwrite(rows(4), replace_where="id >= 2")

    assert sink.ids() == [1, 4]


def test_epoch_that_is_run_again_lands_once(sink: Sink) -> None:
    """A stream that comes back after a crash would write its rows twice."""
    for number in (0, 1, 1):
        sink.append(number, of_epoch=epoch(number))

    assert sink.ids() == [0, 1]


def test_table_that_another_library_made_takes_rows_of_both(sink: Sink, place: Place) -> None:
    """Tables that are there could not be written to."""
    catalog = other_library(sink, place)
    catalog.create_namespace("db")
    made = catalog.create_table(NAME, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    made.append(pa.table({"id": [1], "name": ["a"]}))
    sink.append(2)
    catalog.load_table(NAME).append(pa.table({"id": [3], "name": ["c"]}))

    assert sink.ids() == [1, 2, 3]


def test_writers_that_create_the_table_at_once_both_land(sink: Sink) -> None:
    """The table of one of several jobs would be another one's, or its rows be lost."""
    writers = [Sink(catalog=sink.catalog.another(), options=sink.options) for _ in range(2)]
    messages = [writer.write(rows(number)) for number, writer in enumerate(writers)]
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(writer.commit, sent) for writer, sent in zip(writers, messages, strict=True)]:
            done.result()

    assert sink.ids() == [0, 1]


def test_schema_evolves_with_the_rows_that_need_it(sink: Sink) -> None:
    """A new column would stop the job, or its values be lost."""
    sink.append(1)
    more = StructType([*SCHEMA, StructField("amount", LongType())])
    new: list[Row] = [{"id": 2, "name": "b", "amount": 5}]
    sink.commit(sink.write(new, schema=more, plan=sink.plan(more, schema_evolution="add-columns")))

    assert sink.rows() == [{"id": 1, "name": "row 1", "amount": None}, *new]


def test_rows_are_published_from_a_branch(sink: Sink, options: dict[str, str]) -> None:
    """Rows could not be checked before readers see them."""
    sink.append(1)
    plan = sink.plan(branch="audit", create_branch=True)
    sink.commit(sink.write(rows(2), plan=plan))
    assert (sink.ids(), [row["id"] for row in sink.rows_of("audit")]) == ([1], [1, 2])
    iceberg_ds.publish(NAME, "audit", options=options)

    assert sink.ids() == [1, 2]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_changes_by_key_are_written_and_converted(sink: Sink, encoding: RowEncoding) -> None:
    """Changes would stay as deletes by key, which many readers do not understand."""
    sink.create(KEYED_SCHEMA)
    for number, events in enumerate(EPOCHS):
        sink.commit(keyed_tasks(plan_by_keys(sink), events, of_epoch=epoch(number)))
    convert(sink, encoding)

    assert keyed_deletes(sink.table()) == []
    assert [tuple(row.values()) for row in sink.rows()] == [(1, "EU", 1), (2, "EU", 20)]


def test_writers_at_once_lose_no_row(sink: Sink) -> None:
    """Rows of one of several jobs would vanish."""
    sink.append(0)
    writers = [Sink(catalog=sink.catalog.another(), options=sink.options) for _ in range(3)]
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(writer.append, number) for number, writer in enumerate(writers, start=1)]:
            done.result()

    assert sink.ids() == [0, 1, 2, 3]


def test_rows_of_many_partitions_go_to_their_own_objects(place: Place, options: dict[str, str]) -> None:
    """A partitioned table could not be written there, or values with special characters would be lost."""
    parsed = parse_options({"table": NAME, "partition-by": "name", **options})
    sink = Sink(catalog=connect(catalog_settings(parsed)), options=parsed)
    data: list[Row] = [{"id": 1, "name": "a/b c"}, {"id": 2, "name": "ü&=?#"}, {"id": 3, "name": None}]
    sink.commit(sink.write(data))

    assert sink.rows() == data
    assert len(data_files(place)) == 3


@pytest.mark.parametrize("name", ["a b", "100%", "a%20b", "a+b", "a:b;c", "ü日本", "a&b=c,d*'\"", "a@b"])
def test_objects_in_such_folders_are_found_again(sink: Sink, place: Place, name: str) -> None:
    """A second append would take the place of the first, or of a stranger's object."""
    named = Sink(catalog=sink.catalog, options=replace(sink.options, location=f"{place.location}/{name}"))

    named.append(1, 2)
    named.append(3)

    assert named.ids() == [1, 2, 3]
    assert name in {key.split("/")[0] for key in place.object_keys()}


@pytest.mark.parametrize("name", ["a#b", "a?b", ".."])
def test_objects_that_readers_do_not_agree_on_are_refused(sink: Sink, place: Place, name: str) -> None:
    """Iceberg's Java library would look for another object."""
    named = replace(sink, options=replace(sink.options, location=f"{place.location}/{name}/t"))
    with pytest.raises(OptionError, match=r"its location is .*which readers do not agree on"):
        named.append(1)

    assert place.object_keys() == []


def test_failed_task_leaves_no_file(sink: Sink, place: Place) -> None:
    """Files of failed tasks would fill the bucket."""
    plan = sink.plan()
    plan = replace(plan, write=replace(plan.write, files=replace(plan.write.files, target_file_size_bytes=1)))

    def upstream() -> Iterator[pa.RecordBatch]:
        for number in range(3):
            yield arrow_batch(rows(number), SCHEMA)
            assert number == 0 or data_files(place) != []
        raise KeyError("upstream")

    with pytest.raises(DataFileError, match="upstream"):
        write_task(plan, upstream(), TaskAttempt(partition_id=0, task_attempt_id=0))

    assert data_files(place) == []


def test_write_that_is_given_up_leaves_no_file(sink: Sink, place: Place) -> None:
    """Files of failed jobs would fill the bucket."""
    messages = sink.write(rows(1), rows(2))
    assert len(data_files(place)) == 2
    abort_write(sink.catalog, [messages[0], messages[1], None])

    assert data_files(place) == []


def test_table_is_verified_and_cleaned_up(sink: Sink, options: dict[str, str]) -> None:
    """A table in such a store could be neither proven whole nor cleaned up."""
    for number in range(3):
        sink.append(number, of_epoch=epoch(number))
    (left,) = (found.file_path for message in sink.write(rows(9), schema=SCHEMA) for found in message.data_files)

    result = iceberg_ds.verify(NAME, options=options, deep=True, older_than="0s", delete_orphans=True, force=True)

    assert result.ok, str(result)
    assert [(orphan.path, orphan.deleted) for orphan in result.orphans] == [(left, True)]
    assert iceberg_ds.verify(NAME, options=options, older_than="0s").orphans == ()
    assert sink.ids() == [0, 1, 2]


def test_parts_of_a_listing_list_all_of_it(sink: Sink) -> None:
    """Spark's tasks would miss files of a store, and see other tables' metadata not at all."""
    for number in range(2):
        sink.append(number, of_epoch=epoch(number))
    table = sink.table()
    properties, location = table.io.properties, table.metadata.location
    with table.io.new_output(f"{location}/data/p=a b%20/x.parquet").create() as stream:
        stream.write(b"123")
    whole = list(stored_files(properties, location))

    for wanted in (1, 3, 50):
        parts = listing_parts(properties, location, wanted)
        found = [file for part in parts for file in files_of_part(properties, part)]
        assert sorted(found, key=lambda file: file.path) == sorted(whole, key=lambda file: file.path)
    assert {part.location.removeprefix(location) for part in parts} == {"", "/data/", "/data/p=a b%20/", "/metadata/"}
    assert [file_at(properties, file.path) for file in whole] == whole
    assert file_at(properties, f"{location}/data") is None


@EXHAUSTIVE
def test_orphans_are_removed_by_spark(spark: SparkSession, sink: Sink, options: dict[str, str]) -> None:
    """A large table in such a store could not be cleaned up, or its tasks would need the catalog."""
    for number in range(2):
        sink.append(number, of_epoch=epoch(number))
    (left,) = (found.file_path for message in sink.write(rows(9), schema=SCHEMA) for found in message.data_files)
    respelled = {"s3://": "s3a://", "gs://": "gcs://", "abfs://": "abfss://"}
    spelling = next((left.replace(old, new) for old, new in respelled.items() if left.startswith(old)), left)
    inventory = spark.sql(f"SELECT '{spelling}' AS file_path, TIMESTAMP '2020-01-01' AS last_modified")

    kept = iceberg_ds.remove_orphan_files(NAME, spark, options=options, file_list=inventory)
    result = iceberg_ds.remove_orphan_files(
        NAME, spark, options=options, older_than="now", force=True, max_concurrent_deletes=2
    )

    assert (kept.orphan_files_count, kept.too_young) == (0, 0)  # the inventory is wrong about its age
    assert [(orphan.path, orphan.deleted) for orphan in result.orphan_files] == [(left, True)]
    assert sink.ids() == [0, 1]


def test_age_of_objects_is_told_by_the_clock_of_their_store(
    sink: Sink, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects of a write that runs would be deleted by a machine whose clock is ahead."""
    sink.append(1)
    sink.write(rows(9), schema=SCHEMA)
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 30 * 86_400 * 10**9)

    result = iceberg_ds.verify(NAME, options=options, delete_orphans=True)

    assert result.ok, str(result)
    assert result.orphans == ()


def test_table_that_was_renamed_shares_its_folder_with_none(sink: Sink, options: dict[str, str]) -> None:
    """Two tables in one folder of a bucket could not be cleaned up any more, or take each other's rows."""
    sink.append(1)
    old = rename(sink, "db.t_old")
    sink.append(9)
    place = old.table().metadata.location

    assert sink.table().metadata.location.startswith(f"{place}-")
    made = plain_catalog(sink).create_table("db.beside", sink.table().schema(), location=place)
    result = iceberg_ds.verify("db.t_old", options=options, older_than="0s", delete_orphans=True, force=True)
    assert f"another table (uuid {made.metadata.table_uuid}, at {place})" in result.failures[0].detail
    assert old.ids() == [1]


def test_object_that_is_missing_is_found_and_no_secret_is_shown(
    sink: Sink, options: dict[str, str], place: Place
) -> None:
    """Lost rows would not be noticed, or the report would give away the keys of the store."""
    sink.append(1)
    table = sink.table()
    path = table.inspect.files()["file_path"][0].as_py()
    table.io.delete(path)

    result = iceberg_ds.verify(NAME, options=options)

    assert failures(result) == ["data files"]
    assert f"data file {path} is missing" in result.failures[0].detail
    secret = list(place.properties.values())[-1]
    assert len(secret) > 4
    assert secret not in f"{result} {result.to_json()}"


def test_check_tries_the_store_and_leaves_nothing(options: dict[str, str], place: Place) -> None:
    """A missing right would be found when a job has run for an hour."""
    load_catalog("stores", **{key.removeprefix("catalog."): text for key, text in options.items() if "." in key})
    result = iceberg_ds.check(NAME, options=options)
    tried = {check.name: check.outcome for check in result.checks if check.name.startswith(("storage: ", "clock"))}

    assert result.ok, str(result)
    assert set(tried.values()) == {"ok"}
    assert place.object_keys() == []


def test_table_is_read_through_another_library(sink: Sink, place: Place) -> None:
    """Files would be where, or as, nobody else finds them."""
    sink.append(1, 2)
    found = other_library(sink, place).load_table(NAME).scan().to_arrow()

    assert sorted(found["id"].to_pylist()) == [1, 2]


def test_dataframe_is_written_by_spark(spark: SparkSession, sink: Sink, options: dict[str, str]) -> None:
    """Spark's workers could not reach the store."""
    numbered(spark, 0, 100).write.format("icebergsink").mode("append").options(**options).save(NAME)

    assert sink.ids() == list(range(100))


@EXHAUSTIVE
def test_copy_that_is_kept_by_a_stream_of_changes_is_the_table(
    spark: SparkSession, sink: Sink, options: dict[str, str], tmp_path: Path
) -> None:
    """Rows of a copy in such a store would be lost, or stay although they were deleted."""
    reading = {**options, "on-change": "changes", "keys": "id"}
    keyed = {**options, "keys": "id", "operation-column": "_change_type", "sequence-by": "_change_ordinal"}

    def copy() -> None:
        changes = spark.readStream.format("icebergsource").options(**reading).load(NAME)
        writer = changes.drop("_commit_snapshot_id", "_commit_timestamp").writeStream.format("icebergsink")
        writer = writer.options(**keyed).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start("db.copy").awaitTermination()

    def names(table: str) -> list[str]:
        return [row["name"] for row in iceberg_ds.read(spark, table, options=options).sort("id").collect()]

    sink.append(*range(6))
    copy()
    iceberg_ds.delete_from(NAME, "id = 1", spark, options=options)
    iceberg_ds.update(NAME, {"name": "'two'"}, "id = 2", spark, options=options, mode="copy-on-write")
    some = spark.createDataFrame([(3, "three"), (9, "nine")], "id BIGINT, name STRING")
    iceberg_ds.upsert(some, NAME, keys="id", options=options)
    copy()

    assert names("db.copy") == names(NAME) == ["row 0", "two", "three", "row 4", "row 5", "nine"]


def test_missing_bucket_is_named(sink: Sink, place: Place) -> None:
    """A user would not learn that the bucket is not there."""
    plan = sink.plan()
    missing = place.location.replace(place.name, "no-such-bucket")
    with pytest.raises(DataFileError, match=r"no-such-bucket"):
        write_task(
            replace(plan, location=f"{missing}/t"),
            [arrow_batch(rows(1), SCHEMA)],
            TaskAttempt(partition_id=0, task_attempt_id=0),
        )
