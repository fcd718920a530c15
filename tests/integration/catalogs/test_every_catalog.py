"""What the sink promises, on every catalog: one suite, over one S3 server, read back by PyIceberg and by the JVM.

Glue is moto's, which enforces the version id of a change because `support/services/moto_server.py` makes it: what
passes here shows what the sink sends, and what it does when Glue refuses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's habit
from support.catalogs.catalog_table import CatalogTable
from support.exhaustive import EXHAUSTIVE
from support.services.fixtures import WITH_HALF, WITH_ONE
from support.spark.jobs import StreamJob, numbered, remove_last_commit, write_source
from support.tables.sink import rows

import iceberg_ds
from iceberg_ds.errors import UnsupportedTableError

WRITERS = 3
APPENDS = 3


def run_at_once(*steps: Callable[[], object]) -> list[str]:
    """Run steps in threads, all of them begun at one moment; return their errors."""
    errors: list[str] = []
    begin = threading.Barrier(len(steps))

    def run(step: Callable[[], object]) -> None:
        begin.wait()
        try:
            step()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=[step]) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_first_write_creates_the_table_and_the_next_adds_to_it(spark: SparkSession, table: CatalogTable) -> None:
    """A user's first job would fail on this catalog, or other engines would not read what it wrote."""
    table.write(numbered(spark, 0, 3))
    table.write(numbered(spark, 3, 5))

    table.check_rows([{"id": number, "name": f"row {number}"} for number in range(5)])


@pytest.mark.exhaustive
@WITH_ONE
def test_rows_of_version_3_have_ids_of_their_own(spark: SparkSession, table: CatalogTable) -> None:
    """A catalog would refuse the format, or number rows otherwise than our manifests do."""
    if table.service.name == "nessie":
        with pytest.raises(PySparkException, match="option 'format-version' is 3, which Nessie does not know: give 2"):
            table.write(numbered(spark, 0, 3), format_version="3")
        return
    variant = F.parse_json(F.lit('{"a": [1]}'))
    if "hive" in table.service.name:
        with pytest.raises(
            PySparkException, match="'v' is of type variant, and Hive's metastore takes no table with one"
        ):
            table.write(numbered(spark, 0, 3).withColumn("v", variant), format_version="3")
        variant = F.lit('{"a":[1]}')
    nothing = F.lit(None)
    table.write(numbered(spark, 0, 3).withColumn("v", variant).withColumn("nothing", nothing), format_version="3")
    added = numbered(spark, 3, 5).withColumn("more", variant).withColumn("void", nothing)
    table.write(added, schema_evolution="add-columns")
    iceberg_ds.delete_from(table.name, "id = 1", spark, options=table.options)

    for column in ("id", "_row_id"):
        assert sorted(table.peer.values(f"SELECT {column} FROM {table.name}")) == [0, 2, 3, 4]  # noqa: S608
    texts = f"SELECT CAST(coalesce(v, more) AS string) FROM {table.name}"  # noqa: S608
    assert table.peer.values(texts) == ['{"a":[1]}'] * 4


@WITH_ONE
def test_table_that_another_engine_made_takes_rows_of_both(spark: SparkSession, table: CatalogTable) -> None:
    """A table could not be shared with Iceberg's own Spark runtime."""
    table.peer.run(f"CREATE NAMESPACE {table.name.partition('.')[0]}")
    table.peer.run(f"CREATE TABLE {table.name} (id BIGINT, name STRING) USING iceberg")
    table.peer.run(f"INSERT INTO {table.name} VALUES (1, 'theirs')")  # noqa: S608  # no outside input
    table.write(numbered(spark, 2, 4))
    table.peer.run(f"INSERT INTO {table.name} VALUES (4, 'theirs')")  # noqa: S608  # no outside input

    table.check_ids(1, 2, 3, 4)


@EXHAUSTIVE
@WITH_ONE
def test_stream_goes_on_after_a_restart_and_an_epoch_run_again_is_not_written_again(
    spark: SparkSession, table: CatalogTable, tmp_path: Path
) -> None:
    """A restart would lose rows of a stream, and a crash between commit and checkpoint would double them."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    job = StreamJob(source=str(source), checkpoint=str(checkpoint), options=table.options, table=table.name)
    write_source(source, [range(3), range(3, 6)])
    job.run(spark)
    remove_last_commit(checkpoint)
    job.run(spark)
    table.check_ids(*range(6))
    write_source(source, [range(6, 9)], first_file=2)
    job.run(spark)

    table.check_ids(*range(9))


@WITH_HALF
def test_writers_that_create_the_table_at_once_both_land(table: CatalogTable) -> None:
    """Of two jobs that both find no table, one would replace the table with the rows of the other in it."""
    writers = [table.sink(number) for number in range(WRITERS)]
    written = [sink.write(rows(number)) for number, sink in enumerate(writers)]  # both have found no table
    errors = run_at_once(*(partial(sink.commit, messages) for sink, messages in zip(writers, written, strict=True)))

    assert errors == []
    table.check_ids(*range(WRITERS))


@WITH_HALF
def test_writers_that_append_at_once_lose_no_row(table: CatalogTable) -> None:
    """Rows of jobs that run beside one another would be lost."""
    writers = [table.sink(number) for number in range(WRITERS)]
    writers[0].append(0)

    def append(number: int) -> None:
        for turn in range(APPENDS):
            writers[number].append(1 + number * APPENDS + turn)

    errors = run_at_once(*(partial(append, number) for number in range(WRITERS)))

    assert errors == []
    table.check_ids(*range(1 + WRITERS * APPENDS))


@WITH_ONE
def test_schema_evolves_with_the_rows_that_need_it(spark: SparkSession, table: CatalogTable) -> None:
    """A new column would be refused by this catalog, or other engines would not see it."""
    table.write(numbered(spark, 0, 1))
    table.write(numbered(spark, 1, 2).selectExpr("*", "id * 2 AS twice"), schema_evolution="add-columns")

    table.check_rows([{"id": 0, "name": "row 0", "twice": None}, {"id": 1, "name": "row 1", "twice": 2}])


@WITH_ONE
def test_overwrites_replace_what_they_name(spark: SparkSession, table: CatalogTable) -> None:
    """An overwrite would leave old rows, or take others with it."""
    table.write(numbered(spark, 0, 4))
    table.write(numbered(spark, 2, 4).selectExpr("id", "'again' AS name"), "overwrite", replace_where="id >= 2")
    replaced = [(row["id"], row["name"]) for row in table.rows()]
    table.write(numbered(spark, 7, 8), "overwrite")

    assert replaced == [(0, "row 0"), (1, "row 1"), (2, "again"), (3, "again")]
    table.check_rows([{"id": 7, "name": "row 7"}])


@WITH_ONE
def test_partitioned_table_is_pruned_by_other_engines(spark: SparkSession, table: CatalogTable) -> None:
    """Readers would miss rows, or read every file for one day."""
    timed = spark.range(0, 20, 1, 2).selectExpr("id", "timestamp_seconds(1700000000 + id * 20000) AS ts")
    table.write(timed, partition_by="day(ts)")
    table.write(timed.where("id < 4").selectExpr("id + 100 AS id", "ts"), "overwrite", overwrite_mode="dynamic")
    days = table.peer.sql(f"SELECT partition.ts_day AS day FROM {table.name}.partitions")  # noqa: S608  # no outside input
    late = table.peer.values(f"SELECT id FROM {table.name} WHERE ts >= '2023-11-18' ORDER BY id")  # noqa: S608  # likewise

    assert len(days) == len({row["day"] for row in days}) == 6
    assert [row["id"] for row in table.rows()] == [*range(5, 20), *range(100, 104)]
    assert late == list(range(14, 20))


@pytest.mark.exhaustive
@WITH_ONE
def test_table_is_kept_in_order(spark: SparkSession, table: CatalogTable) -> None:
    """Small files, old snapshots and what failed writes left would stay on this catalog, or rows go with them."""
    for first in range(0, 9, 3):
        table.write(numbered(spark, first, first + 3))
    name, options = table.name, table.options
    assert iceberg_ds.rewrite_manifests(name, options=options).added_manifests_count == 1
    iceberg_ds.delete_from(name, "id = 1", spark, options=options)
    iceberg_ds.upsert(spark.createDataFrame([(2, "two")], "id BIGINT, name STRING"), name, keys="id", options=options)
    rewriting = {**options, "rewrite-all": "true", "remove-dangling-deletes": "true"}

    assert iceberg_ds.rewrite_data_files(name, spark, options=rewriting).added_data_files_count == 1
    if table.service.name == "nessie":  # other branches may need what this one does not
        with pytest.raises(UnsupportedTableError, match="other branches of this catalog"):
            iceberg_ds.expire_snapshots(name, older_than="now", options=options)
        with pytest.raises(UnsupportedTableError, match="other branches of this catalog"):
            iceberg_ds.remove_orphan_files(name, options=options)
    else:
        table.sink(0).write(rows(99))  # it never commits
        expired = iceberg_ds.expire_snapshots(name, older_than="now", retain_last=1, options=options)
        removed = iceberg_ds.remove_orphan_files(name, older_than="now", force=True, options=options)
        assert (expired.left_files, removed.deleted_files_count) == (0, 1)
        assert len(table.commits()) == 1

    assert iceberg_ds.verify(name, options=options, deep=True).ok
    names = {number: f"row {number}" for number in range(9) if number != 1} | {2: "two"}
    table.check_rows([{"id": number, "name": text} for number, text in sorted(names.items())])
