"""Which tasks hand their rows over, and that they refuse what they always refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.keys.messages import by_keys
from support.tables.sink import SCHEMA, Sink, embedded_options, rows

from iceberg_ds.errors import SchemaMismatchError
from iceberg_ds.plan import WritePlan
from iceberg_ds.writers.reporting import FULL_SHARES, MOST_PARTITIONS, share_of

LIMIT = 256 * 1024
MIB = 1024 * 1024


def hands_over(sink: Sink, plan: WritePlan, *ids: int) -> bool:
    """Return whether a task with these rows hands them over; else it writes files."""
    (message,) = sink.hand_over(rows(*ids), plan=plan)
    assert bool(message.data_files) != (message.rows is not None)
    return message.rows is not None


def test_few_rows_are_handed_over_and_many_are_not(sink: Sink) -> None:
    """Small tasks would leave small files, or the driver would write what many tasks write side by side."""
    plan = sink.plan()

    assert hands_over(sink, plan, 1)
    assert not hands_over(sink, plan, *range(20_000))


def test_rows_that_reach_a_file_size_are_written_at_once(sink: Sink) -> None:
    """A table with small files by its own choice would have its driver write all of them."""
    assert not hands_over(sink, sink.plan(target_file_size_bytes=100), *range(50))


def test_option_lets_every_task_write_its_own_files(sink: Sink) -> None:
    """A driver without access to the data's place could commit nothing."""
    assert not hands_over(sink, sink.plan(small_task_size_bytes=0), 1)


def test_write_by_keys_hands_nothing_over(sink: Sink) -> None:
    """The commit could not hide a row whose key another task met later."""
    plan = by_keys(sink.plan())

    assert share_of(plan, 0) == 0
    assert not hands_over(sink, plan, 1)


def test_task_without_rows_hands_nothing_over(sink: Sink) -> None:
    """Idle tasks would make files without rows."""
    (message,) = sink.hand_over(rows())

    assert (message.data_files, message.rows) == ((), None)


def test_rows_of_many_partitions_stay_with_the_task(sink: Sink) -> None:
    """The driver would write one after the other what tasks write side by side."""
    by_id = replace(sink.options, partition_by=embedded_options(sink_warehouse(sink), partition_by="id").partition_by)
    plan = replace(sink, options=by_id).plan()

    assert hands_over(sink, plan, *range(MOST_PARTITIONS))
    assert not hands_over(sink, plan, *range(MOST_PARTITIONS + 1))


def sink_warehouse(sink: Sink) -> object:
    """Return the folder of the embedded catalog."""
    return sink.options.warehouse


def test_null_in_a_required_column_is_refused_by_the_task(sink: Sink) -> None:
    """The table could not be read."""
    sink.create(Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())))
    plan = sink.plan()

    with pytest.raises(SchemaMismatchError, match="'id', which is required"):
        sink.hand_over([{"id": None, "name": "x"}], schema=SCHEMA, plan=plan)


@pytest.mark.parametrize("tasks", [2, 64, 200, 10_000, 100_000])
def test_all_tasks_together_stay_far_below_what_spark_takes_from_them(sink: Sink, tasks: int) -> None:
    """Spark would stop the job at spark.driver.maxResultSize (1 GiB), or the driver would run out of memory."""
    plan = sink.plan()
    shares = [share_of(plan, number) for number in range(tasks)]

    assert shares[0] == shares[min(tasks, FULL_SHARES) - 1] == LIMIT
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) < 140 * MIB


def test_local_files_are_written_by_tasks_of_other_machines(sink: Sink) -> None:
    """Small writes would work on a cluster without a shared file system, and the first large one would not."""
    plan = sink.plan()

    assert share_of(plan, 0) == LIMIT
    assert share_of(replace(plan, driver_host="another"), 0) == 0
    assert share_of(replace(plan, driver_host="another", location="s3://bucket/t"), 0) == LIMIT


def test_message_holds_the_rows_once_and_little_else(sink: Sink) -> None:
    """Ten thousand tasks would fill the driver's memory."""
    (message,) = sink.hand_over(rows(*range(1000)))

    assert message.rows is not None
    assert message.rows.record_count == 1000
    assert len(message.rows.arrow_stream) < 24_000
    assert "arrow_stream" not in repr(message)
