"""A checkpoint that moves between `format("iceberg")` of Iceberg's Spark runtime and the sink, and back.

The runtime finds a landed epoch in the summaries of `main` and its ancestors, and nowhere else. The sink looks there,
too, and into its table property, which the runtime neither reads nor writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE, few
from support.peer.jvm_peer_streams import SharedStream, Writer
from support.spark.session import shared_session, stop_shared_session
from support.spark.stream_runs import ROWS_PER_FILE, Stream

ROWS_PER_EPOCH = 2 * ROWS_PER_FILE
COLUMNS = "id BIGINT, name STRING"


@pytest.fixture(scope="module", autouse=True)
def _spark_of_this_process() -> Iterator[None]:
    """Stop this process's Spark after the last test."""
    yield
    stop_shared_session()


@pytest.fixture
def query(tmp_path: Path, shared: SharedCatalog) -> SharedStream:
    """Return a query that has not run yet, into an empty table that the runtime has made."""
    shared.create_by_jvm(COLUMNS)
    return SharedStream(stream=Stream(folder=tmp_path), shared=shared, spark=shared_session("local[2]"))


@pytest.fixture(params=few(1, Writer), ids=lambda writer: f"first {writer.value}")
def first(request: pytest.FixtureRequest) -> Writer:
    """Return who runs the query before the other takes over."""
    writer: Writer = request.param
    return writer


@pytest.mark.exhaustive
def test_checkpoint_goes_there_and_back_again(query: SharedStream, first: Writer) -> None:
    """Whoever moves a stream from one sink to the other would lose the rows of an epoch, or have them twice."""
    for writer in (first, first.other, first, first.other):
        query.run(writer, epochs=2)
        query.check_ids()

    assert query.epochs() == list(range(8))
    assert query.stream.snapshots() == 8
    assert not query.stream.orphans()


@pytest.mark.exhaustive
def test_runtime_goes_on_with_a_table_that_the_sink_has_made(query: SharedStream) -> None:
    """A stream whose table the sink made could not go back to the runtime."""
    query.shared.jvm.run("DROP TABLE db.t PURGE")

    query.run(Writer.SINK, epochs=1)
    query.run(Writer.JVM, epochs=1)
    query.run(Writer.SINK, epochs=1)

    query.check_ids()
    assert query.epochs() == [0, 1, 2]


@EXHAUSTIVE
def test_epoch_that_the_other_has_landed_is_recognised(query: SharedStream, first: Writer) -> None:
    """A crash right before the switch would bring the rows of the last epoch twice."""
    query.run(first, epochs=2)
    assert query.lose_last_record() == 1

    query.run(first.other, epochs=1)
    query.check_ids()
    assert query.lose_last_record() == 2
    query.run(first, epochs=1)

    query.check_ids()
    assert query.epochs() == [0, 1, 2, 3]


@EXHAUSTIVE
def test_epoch_below_a_commit_of_somebody_else_is_recognised(query: SharedStream, first: Writer) -> None:
    """A commit of another writer would hide that the epoch has landed, and its rows would come twice."""
    query.run(first, epochs=1)
    query.append_by_another_writer(-1)
    assert query.lose_last_record() == 0

    query.run(first.other, epochs=1)
    query.append_by_another_writer(-2)
    assert query.lose_last_record() == 1
    query.run(first, epochs=1)

    query.check_ids(-2, -1)
    assert query.epochs() == [0, 1, 2]


@EXHAUSTIVE
def test_epoch_in_the_only_snapshot_left_is_recognised(query: SharedStream, first: Writer) -> None:
    """Expiring snapshots as far as they go would bring the rows of the last epoch twice."""
    query.run(first, epochs=2)
    query.expire_all_but_newest()
    assert query.lose_last_record() == 1

    query.run(first.other, epochs=1)
    query.expire_all_but_newest()
    assert query.lose_last_record() == 2
    query.run(first, epochs=1)

    query.check_ids()
    assert query.epochs() == [2, 3]


@pytest.mark.exhaustive
def test_switch_without_a_crash_needs_no_record(query: SharedStream, first: Writer) -> None:
    """A stream whose records have all expired could not be moved, though Spark knows where it stands."""
    for writer in (first, first.other, first):
        query.run(writer, epochs=2)
        query.append_by_another_writer(-1)
        query.expire_all_but_newest()

    query.run(first.other, epochs=1)

    query.check_ids(-1, -1, -1)
    assert query.epochs() == [6]


@pytest.mark.exhaustive
def test_record_of_the_sink_is_older_than_that_of_the_runtime(query: SharedStream) -> None:
    """The sink's table property, left from before the runtime took over, would hide what the runtime did."""
    query.run(Writer.SINK, epochs=2)
    query.run(Writer.JVM, epochs=2)
    (query_id,) = {summary["spark.sql.streaming.queryId"] for summary in query.stream.warehouse.snapshots()}
    assert '"epoch-id": 1' in query.stream.warehouse.table().properties[f"icebergsink.last-epoch.main.{query_id!s}"]
    query.expire_all_but_newest()
    assert query.lose_last_record() == 3

    query.run(Writer.SINK, epochs=1)

    query.check_ids()
    assert query.epochs() == [3, 4]


@pytest.mark.exhaustive
def test_first_epoch_of_the_sink_outlives_every_expiry(query: SharedStream) -> None:
    """A stream that came from the runtime would stay as easy to double as it was there."""
    query.run(Writer.JVM, epochs=2)
    query.run(Writer.SINK, epochs=1)
    query.append_by_another_writer(-1)
    query.expire_all_but_newest()
    assert query.lose_last_record() == 2

    query.run(Writer.SINK, epochs=1)

    query.check_ids(-1)
    assert query.epochs() == [3]


@EXHAUSTIVE
def test_checkpoint_from_before_the_runtime_took_over_is_refused(query: SharedStream) -> None:
    """A backup of the checkpoint would bring the rows that the runtime has written since into the table again."""
    query.run(Writer.SINK, epochs=2)
    backup = query.stream.copy("backup")
    query.run(Writer.JVM, epochs=2)
    query.stream.roll_back_to(backup)

    with pytest.raises(StreamingQueryException, match="the checkpoint was rolled back"):
        query.run(Writer.SINK)

    query.check_ids()
    assert query.epochs() == [0, 1, 2, 3]
    assert not query.stream.orphans()


@pytest.mark.exhaustive
def test_limit_runtime_does_not_see_an_epoch_of_the_sink_that_expired(query: SharedStream) -> None:
    """The documentation would promise more than the runtime can see: it knows no table property."""
    query.run(Writer.SINK, epochs=2)
    query.append_by_another_writer(-1)
    query.expire_all_but_newest()
    assert query.lose_last_record() == 1

    query.run(Writer.JVM)

    last = query.stream.source_ids()[-ROWS_PER_EPOCH:]
    query.check_exactly([-1, *query.stream.source_ids(), *last])


@pytest.mark.exhaustive
def test_limit_sink_does_not_see_an_epoch_of_the_runtime_that_expired(query: SharedStream) -> None:
    """The documentation would promise more than the sink can see: the runtime leaves no table property."""
    query.run(Writer.JVM, epochs=2)
    query.append_by_another_writer(-1)
    query.expire_all_but_newest()
    assert query.lose_last_record() == 1

    query.run(Writer.SINK)

    last = query.stream.source_ids()[-ROWS_PER_EPOCH:]
    query.check_exactly([-1, *query.stream.source_ids(), *last])


@pytest.mark.exhaustive
def test_limit_runtime_skips_the_epochs_of_a_rolled_back_checkpoint_in_silence(query: SharedStream) -> None:
    """The documentation would promise the sink's refusal from the runtime, too."""
    query.run(Writer.JVM, epochs=1)
    backup = query.stream.copy("backup")
    query.run(Writer.SINK, epochs=2)
    query.stream.roll_back_to(backup)

    query.run(Writer.JVM)

    query.check_ids()
    assert query.epochs() == [0, 1, 2]
    assert query.stream.orphans()  # it wrote the rows again and left them
