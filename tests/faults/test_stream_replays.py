"""An epoch that Spark runs again, a checkpoint from the past, and two drivers with one query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from support.exhaustive import EXHAUSTIVE
from support.hooks.faults import Action, Fault, Point
from support.spark.jobs import dump, remove_last_commit
from support.spark.process import SparkProcess, wait_until
from support.spark.stream_runs import Stream

TIMEOUT_S = 300


@pytest.fixture
def finished(stream: Stream, spark: SparkSession) -> Stream:
    """Return a stream that has run three epochs."""
    stream.grow(3).run(spark)
    return stream


@pytest.fixture(scope="module")
def other_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkProcess]:
    """Return a Spark driver in a process of its own."""
    with SparkProcess(tmp_path_factory.mktemp("other-driver")) as process:
        yield process


def query_id(stream: Stream) -> str:
    """Return the id of the stream's query, as the table records it."""
    return str(stream.warehouse.snapshots()[-1]["spark.sql.streaming.queryId"])


def expire_all_but_newest(stream: Stream) -> None:
    """Expire every snapshot that the table can do without."""
    table = stream.warehouse.table()
    newest = table.metadata.current_snapshot_id
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != newest]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def remove_property(stream: Stream) -> None:
    """Remove the table property that records the stream's last epoch."""
    key = f"icebergsink.last-epoch.main.{query_id(stream)}"
    with stream.warehouse.table().transaction() as transaction:
        assert key in transaction.table_metadata.properties
        transaction.remove_properties(key)


def append_by_another_writer(stream: Stream, *ids: int) -> None:
    """Append rows that are not the stream's."""
    rows = {"id": pa.array(ids, pa.int64()), "name": pa.array(["other"] * len(ids))}
    stream.warehouse.table().append(pa.table(rows))


def end_of(query: StreamingQuery) -> str | None:
    """Wait for the end of a query; return its error, None if it went well."""
    try:
        assert query.awaitTermination(TIMEOUT_S)
    except StreamingQueryException as error:
        return str(error)
    return None


def test_replay_of_epoch_commits_once(finished: Stream, spark: SparkSession) -> None:
    """The rows of an epoch whose end Spark did not record would be in the table twice."""
    assert remove_last_commit(finished.checkpoint) == 2

    finished.run(spark)

    assert finished.snapshots() == 3
    assert not finished.orphans()


def test_replay_after_expiry_commits_once(finished: Stream, spark: SparkSession) -> None:
    """Expiring snapshots would forget the epoch, and its rows would come twice."""
    append_by_another_writer(finished, -1)
    expire_all_but_newest(finished)
    assert finished.snapshots() == 1
    remove_last_commit(finished.checkpoint)

    finished.job().run(spark)

    assert finished.ids() == [-1, *finished.source_ids()]
    assert finished.snapshots() == 1


def test_replay_after_another_writer_commits_once(finished: Stream, spark: SparkSession) -> None:
    """A commit of somebody else would hide the epoch's record, and its rows would come twice."""
    append_by_another_writer(finished, -2, -1)
    remove_last_commit(finished.checkpoint)

    finished.job().run(spark)

    assert finished.ids() == [-2, -1, *finished.source_ids()]
    assert finished.snapshots() == 4


def test_replay_without_property_commits_once(finished: Stream, spark: SparkSession) -> None:
    """Whoever tidies up table properties would have the rows of the last epoch twice."""
    remove_property(finished)
    append_by_another_writer(finished, -1)
    remove_last_commit(finished.checkpoint)

    finished.grow(1).job().run(spark)

    assert finished.ids() == [-1, *finished.source_ids()]
    assert finished.snapshots() == 5


@EXHAUSTIVE
def test_rolled_back_checkpoint_is_refused(finished: Stream, spark: SparkSession) -> None:
    """A restored backup of the checkpoint would bring the rows of two epochs into the table again."""
    backup = finished.copy("backup")
    finished.grow(2).run(spark)
    finished.roll_back_to(backup)

    with pytest.raises(StreamingQueryException, match="the checkpoint was rolled back"):
        finished.job().run(spark)

    finished.check_complete()
    assert finished.snapshots() == 5
    assert not finished.orphans()


@pytest.mark.exhaustive
def test_second_driver_behind_the_first_is_refused(
    finished: Stream, spark: SparkSession, other_driver: SparkProcess
) -> None:
    """A second driver that starts late from a copy of the checkpoint would double what the first has done since."""
    copy = finished.copy("copy")
    finished.grow(2).run(spark)

    error = other_driver.run(dump(copy.job()))

    assert error is not None
    assert "a second driver runs on it" in error
    finished.check_complete()
    assert finished.snapshots() == 5
    assert not finished.orphans()


@pytest.mark.exhaustive
def test_driver_that_was_overtaken_in_its_commit_is_refused(
    stream: Stream, spark: SparkSession, other_driver: SparkProcess
) -> None:
    """A driver that hangs in its commit while another one goes on would double the epoch once it wakes up."""
    fault = Fault(point=Point.BEFORE_COMMIT, action=Action.WAIT, fuse=stream.folder / "fuse", epoch_id=2)
    stream.grow(2)
    first = stream.start_live(spark, fault)
    try:
        first.processAllAvailable()
        copy = stream.copy("copy")
        stream.grow(1)
        wait_until(fault.barrier.exists, "the first driver is about to commit epoch 2")

        error = other_driver.run(dump(copy.job()))
        fault.barrier.unlink()

        assert error is None
        with pytest.raises(StreamingQueryException, match="another live driver of this query"):
            first.awaitTermination(TIMEOUT_S)
    finally:
        first.stop()
    stream.check_complete()
    assert stream.snapshots() == 3
    assert not stream.orphans()


@pytest.mark.exhaustive
def test_two_live_drivers_never_double_a_row(
    finished: Stream, spark: SparkSession, other_driver: SparkProcess, tmp_path: Path
) -> None:
    """Two drivers that race each other from the same checkpoint would both add the rows of an epoch."""
    copy = finished.copy("copy")
    # Both wait in their first commit, so that the race begins when both have come there.
    first_fault = Fault(point=Point.BEFORE_COMMIT, action=Action.WAIT, fuse=tmp_path / "first", epoch_id=3)
    other_fault = replace(first_fault, fuse=tmp_path / "other")
    finished.grow(6)
    other_driver.send(dump(copy.job(other_fault)))
    first = finished.job(first_fault).start(spark)
    try:
        wait_until(lambda: first_fault.barrier.exists() and other_fault.barrier.exists(), "both are about to commit")

        other_fault.barrier.unlink()
        first_fault.barrier.unlink()

        errors = [other_driver.wait_answer(), end_of(first)]
    finally:
        first.stop()
    # Who falls behind is refused; if neither does, each skips what the other one has committed.
    assert None in errors
    assert all("driver" in error for error in errors if error is not None)
    finished.check_complete()
    assert finished.snapshots() == 9
    assert not finished.orphans()
