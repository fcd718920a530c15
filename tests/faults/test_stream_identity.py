"""Streams whose checkpoint was wiped or copied, in real Spark, with `stream-name` and without."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.spark.jobs import dump
from support.spark.process import SparkProcess
from support.spark.stream_runs import Stream

NAME = {"stream_name": "orders"}


def query_id(stream: Stream) -> str:
    """Return the id of the query that committed last."""
    return str(stream.warehouse.snapshots()[-1]["spark.sql.streaming.queryId"])


@pytest.fixture
def finished(stream: Stream, spark: SparkSession) -> Stream:
    """Return a stream with a name that has run two epochs."""
    stream.grow(2).job(**NAME).run(spark)
    return stream


@EXHAUSTIVE
def test_wiped_checkpoint_is_refused_and_accepted_once(finished: Stream, spark: SparkSession) -> None:
    """A stream whose checkpoint was lost would write all rows of its source again, with each loss."""
    first = query_id(finished)
    shutil.rmtree(finished.checkpoint)

    with pytest.raises(StreamingQueryException, match=f"written by another query, {first}, whose last epoch 1 was"):
        finished.job(**NAME).run(spark)

    finished.check_complete()
    assert not finished.orphans()
    shutil.rmtree(finished.source)
    finished.grow(1)
    finished.job(**NAME, accept_new_checkpoint="true").run(spark)
    assert len(finished.ids()) == 2 * 50 + 50
    shutil.rmtree(finished.checkpoint)
    with pytest.raises(StreamingQueryException, match="has been used up"):
        finished.job(**NAME, accept_new_checkpoint="true").run(spark)
    assert len(finished.ids()) == 2 * 50 + 50
    assert not finished.orphans()


@pytest.mark.exhaustive
def test_wiped_checkpoint_is_refused_after_expiry(finished: Stream, spark: SparkSession) -> None:
    """A stream would forget its identity with its last snapshot."""
    table = finished.warehouse.table()
    table.maintenance.expire_snapshots().by_ids([table.metadata.snapshots[0].snapshot_id]).commit()
    shutil.rmtree(finished.checkpoint)

    with pytest.raises(StreamingQueryException, match="whose last epoch 1 was committed at"):
        finished.job(**NAME).run(spark)

    finished.check_complete()


@pytest.mark.exhaustive
def test_restored_checkpoint_goes_on(finished: Stream, spark: SparkSession) -> None:
    """The way on that the error names would not work."""
    backup = finished.copy("backup")
    shutil.rmtree(finished.checkpoint)
    with pytest.raises(StreamingQueryException, match="Restore the checkpoint"):
        finished.job(**NAME).run(spark)
    finished.roll_back_to(backup)

    finished.grow(1).job(**NAME).run(spark)

    finished.check_complete()


@pytest.mark.exhaustive
def test_copied_checkpoint_that_was_left_behind_is_refused(finished: Stream, spark: SparkSession) -> None:
    """A second driver from a copy of the checkpoint would double what the first has done since."""
    copy = finished.copy("copy")
    finished.grow(1).job(**NAME).run(spark)
    finished.grow(1).job(**NAME).run(spark)

    with pytest.raises(StreamingQueryException, match="the table already holds epoch 3 of this query"):
        copy.job(**NAME).run(spark)

    finished.check_complete()


@EXHAUSTIVE
def test_copied_checkpoint_of_another_stream_is_refused_under_the_name(finished: Stream, spark: SparkSession) -> None:
    """A checkpoint that was copied from another stream would take the place of the right one."""
    other = replace(finished, checkpoint_name="other")
    replace(other.job(), table="db.other").run(spark)
    finished.roll_back_to(other)

    with pytest.raises(StreamingQueryException, match="written by another query"):
        finished.grow(1).job(**NAME).run(spark)

    assert finished.ids() == finished.source_ids()[:100]


@EXHAUSTIVE
def test_two_streams_with_names_of_their_own_share_a_table(finished: Stream, spark: SparkSession) -> None:
    """Two streams into one table could not both be protected."""
    other = replace(finished, checkpoint_name="other")

    other.job(stream_name="clicks").run(spark)
    finished.grow(1).job(**NAME).run(spark)
    other.job(stream_name="clicks").run(spark)

    assert finished.ids() == sorted([*finished.source_ids(), *finished.source_ids()])


@pytest.mark.exhaustive
def test_new_query_beside_another_is_warned_of_once(stream: Stream, tmp_path: Path) -> None:
    """A wiped checkpoint would double all rows, and nobody notice; or each epoch would write the warning again."""
    stream.grow(2)
    with SparkProcess(tmp_path / "driver") as driver:
        assert driver.run(dump(stream.job())) is None
        assert "has rows of another query" not in driver.log()
        first = query_id(stream)
        assert driver.run(dump(replace(stream, checkpoint_name="new").job())) is None
        assert driver.run(dump(stream.grow(1).job())) is None
        assert driver.run(dump(replace(stream, checkpoint_name="new").job())) is None
        log = driver.log()

    assert log.count("has rows of another query") == 1
    assert f"has rows of another query: {first}, whose last epoch 1 was committed" in log
