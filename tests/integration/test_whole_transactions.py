"""`whole_transactions` through Spark: every snapshot has whole transactions, whatever dies, and no value changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE, few
from support.hooks.faults import Action, Fault, Point
from support.hooks.hooked_sink import HookedSink
from support.spark.jobs import FeedJob, StreamJob, dump
from support.spark.process import SparkProcess
from support.spark.tables import Warehouse
from support.spark.transaction_feed import COLUMNS, write_feed

import iceberg_ds
from iceberg_ds.errors import OptionError, SchemaMismatchError

FILES, TRANSACTIONS = 6, 20
OF_FEED = "db.plain"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """Return a driver whose workers find pandas."""
    with SparkProcess(tmp_path_factory.mktemp("driver"), finds_pandas=True) as process:
        yield process


def job(folder: Path, house: Warehouse, *faults: Fault, has_ends: bool = True, **more: int) -> FeedJob:
    """Return the stream into the table, a file an epoch of Spark's."""
    armed = faults[0].arm(*faults[1:]) if faults else {}
    return FeedJob(
        source=str(folder / "source"),
        checkpoint=str(folder / "checkpoint"),
        options={**house.options, **armed},
        sink=HookedSink.name(),
        columns=COLUMNS,
        has_ends=has_ends,
        **more,  # type: ignore[arg-type]
    )


def rows_of_feed(spark: SparkSession, folder: Path, house: Warehouse) -> pa.Table:
    """Return all changes of the feed as the sink writes them if nothing holds them back."""
    StreamJob(
        source=str(folder / "source"),
        checkpoint=str(folder / "plain"),
        table=OF_FEED,
        options=house.options,
        where="is_end IS NULL",
        columns=COLUMNS,
        files_per_epoch=FILES,
        register=True,
    ).run(spark)
    return house.rows(OF_FEED).drop_columns(["is_end", "count"])


def amounts_of_snapshots(house: Warehouse) -> list[int]:
    """Return what the amounts of all rows are together in each snapshot."""
    table = house.table()
    found = (table.scan(snapshot_id=snapshot.snapshot_id).to_arrow() for snapshot in table.metadata.snapshots)
    return [pc.sum(rows["amount"]).as_py() for rows in found]


@pytest.mark.parametrize(
    ("point", "action"),
    few(
        0,
        [
            (Point.AFTER_COMMIT, Action.KILL_DRIVER),
            (Point.BEFORE_COMMIT, Action.KILL_DRIVER),
            (Point.IN_TASK, Action.KILL_WORKER),
            (Point.AFTER_COMMIT, Action.RAISE),
        ],
    ),
)
def test_stream_that_dies_shows_whole_transactions_and_has_each_change_once(  # noqa: PLR0913, PLR0917  # fixtures
    spark: SparkSession, driver: SparkProcess, house: Warehouse, tmp_path: Path, point: object, action: Action
) -> None:
    """Readers would see a part of a transaction, or what was held would be lost or doubled by a crash."""
    write_feed(tmp_path / "source", TRANSACTIONS, FILES, has_ends=True, seed=1)
    fault = Fault(point=point, action=action, fuse=tmp_path / "fuse", epoch_id=2)  # type: ignore[arg-type]
    with SparkProcess(tmp_path / "first", finds_pandas=True) as first:
        first.send(dump(job(tmp_path, house, fault)))
        if action is Action.KILL_DRIVER:
            first.wait_java_dead()
        else:
            assert first.wait_answer() is not None
    assert fault.has_struck

    assert driver.run(dump(job(tmp_path, house))) is None

    amounts = amounts_of_snapshots(house)
    assert len(amounts) > FILES // 2
    assert set(amounts) == {0}
    assert house.rows().sort_by("position") == rows_of_feed(spark, tmp_path, house).sort_by("position")


@EXHAUSTIVE
def test_last_transaction_of_a_feed_without_ends_is_held(
    spark: SparkSession, driver: SparkProcess, house: Warehouse, tmp_path: Path
) -> None:
    """A transaction that may go on would be shown in part."""
    write_feed(tmp_path / "source", TRANSACTIONS, FILES, has_ends=False, seed=2)

    assert driver.run(dump(job(tmp_path, house, has_ends=False))) is None

    assert set(amounts_of_snapshots(house)) == {0}
    all_rows = rows_of_feed(spark, tmp_path, house).sort_by("position")
    last = pc.equal(all_rows["transaction"], f"t{TRANSACTIONS - 1}")
    assert house.rows().sort_by("position") == all_rows.filter(pc.invert(last))


@EXHAUSTIVE
def test_more_than_may_be_held_fails_the_query_and_loses_nothing(
    driver: SparkProcess, house: Warehouse, tmp_path: Path
) -> None:
    """A feed without ends of transactions would fill the state without a word."""
    write_feed(tmp_path / "source", TRANSACTIONS, FILES, has_ends=True, seed=1)

    assert driver.run(dump(job(tmp_path, house, max_held_bytes=1))) is not None
    assert "and max_held_bytes is 1. Transaction 't" in driver.log()
    assert driver.run(dump(job(tmp_path, house))) is None
    assert set(amounts_of_snapshots(house)) == {0}


def test_arguments_that_do_not_fit_are_refused(spark: SparkSession) -> None:
    """Transactions would be divided, and nobody would know why."""
    source = spark.readStream.format("rate").load()
    feed = source.selectExpr("CAST(value AS STRING) AS tx", "value AS at", "value > 1 AS ends", "timestamp AS time")

    def refusal(error: type[Exception], *, of: object = feed, **arguments: object) -> str:
        with pytest.raises(error) as caught:
            iceberg_ds.whole_transactions(of, **{"transaction": "tx", "position": "at", **arguments})  # type: ignore[arg-type]
        return str(caught.value)

    assert "this is no stream" in refusal(OptionError, of=spark.range(3))
    assert "count needs end" in refusal(OptionError, count="at")
    assert "position names 'time', which is timestamp" in refusal(OptionError, position="time")
    assert "end names 'at', which is bigint. It must be BOOLEAN" in refusal(OptionError, end="at")
    assert "count names 'tx', which is string" in refusal(OptionError, end="ends", count="tx")
    assert "transaction names 'time', which is timestamp" in refusal(OptionError, transaction="time")
    assert "max_held_bytes is 0" in refusal(OptionError, max_held_bytes=0)
    assert "transaction names 'id', and the DataFrame has tx, at, ends" in refusal(
        SchemaMismatchError, transaction="id"
    )
    doubled = feed.selectExpr("*", "at AS tx")
    assert "several columns are named tx" in refusal(SchemaMismatchError, of=doubled)
    taken = feed.selectExpr("*", "at AS `icebergsink.position`")
    assert "several columns are named icebergsink.position" in refusal(SchemaMismatchError, of=taken)
