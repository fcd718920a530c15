"""What a stream reads of a table: each appended row once, in order, and an error wherever that is not known."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyspark.sql import types as spark
from pyspark.sql.types import StructField, StructType
from support.tables.changes_by_others import (
    cherry_pick,
    drop_branch,
    expire,
    head_of,
    plain_catalog,
    plain_table,
    register_edited,
    set_branch,
    set_columns,
)
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_equal, delete_ids, entries, with_ids
from support.tables.follower import ALL, Follower
from support.tables.rewrites import rewrite_manifests
from support.tables.sink import NAME, Sink, local, rows

from iceberg_ds.errors import DataFileError, OptionError, SchemaMismatchError, StreamHistoryError

KINDS = pytest.mark.parametrize("tells_start", [True, False], ids=["4.2", "4.1"])


def append_files(sink: Sink, *ids: int, **options: Any) -> int:
    """Append a file for each id in one snapshot, and return the snapshot's id."""
    parts = [rows(number) for number in ids]
    sink.commit(sink.write(*parts, plan=sink.plan(**options)))
    return head_of(sink, options.get("branch", "main"))


def refused(query: Follower) -> str:
    """Return why the query fails."""
    with pytest.raises(StreamHistoryError) as raised:
        query.batches()
    return str(raised.value)


@KINDS
def test_each_appended_row_comes_once(sink: Sink, *, tells_start: bool) -> None:
    """Rows would be lost or doubled."""
    query = Follower(sink=sink, tells_start=tells_start)
    sink.append(1, 2)
    append_files(sink, 3, 4)

    assert query.batches() == [[1, 2, 3, 4]]
    assert query.batches() == []
    sink.append(5)
    assert query.batches() == [[5]]
    query.stop()
    assert query.batches() == []
    sink.append(6)
    query.stop()
    assert query.batches() == [[6]]


@KINDS
def test_stream_of_an_empty_table_waits(sink: Sink, *, tells_start: bool) -> None:
    """A query could only be started after the first write."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    query = Follower(sink=sink, tells_start=tells_start)

    assert query.batches() == []
    sink.append(1)
    assert query.ids() == [1]


@KINDS
def test_limits_cut_micro_batches_and_repeats_are_the_same(sink: Sink, *, tells_start: bool) -> None:
    """A first run would read the whole table at once, or a repeated micro-batch would have other rows."""
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "2"}, tells_start=tells_start)
    append_files(sink, 1, 2, 3)
    sink.append(4)
    append_files(sink, 5, 6, 7, 8, 9)

    first = query.batch(dies=True)
    rewrite(sink, rewrite_all="true")
    query.options = {"streaming_max_files_per_micro_batch": "3"}
    again = query.batch()

    assert first == again
    assert query.batches() == [[3, 4, 5], [6, 7, 8], [9]]


def test_rows_are_limited_by_whole_files(sink: Sink) -> None:
    """A micro-batch would be larger than asked for, or a file above the limit would hold the stream up."""
    for ids in ([1, 2], [3, 4], [5, 6, 7, 8], [9]):
        sink.append(*ids)
    query = Follower(sink=sink, options={"streaming_max_rows_per_micro_batch": "3"})

    assert query.batches() == [[1, 2], [3, 4], [5, 6, 7, 8], [9]]
    both = {"streaming_max_rows_per_micro_batch": "4", "streaming_max_files_per_micro_batch": "1"}
    assert Follower(sink=sink, options=both).batches() == [[1, 2], [3, 4], [5, 6, 7, 8], [9]]


def test_limits_do_not_count_if_spark_asks_for_everything(sink: Sink) -> None:
    """A query of `trigger(once=True)` would leave rows behind."""
    append_files(sink, 1, 2, 3)
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "1"})

    found = query.batch(limit=ALL)

    assert [row["id"] for row in found or []] == [1, 2, 3]


def test_available_now_reads_what_is_there_at_the_start(sink: Sink) -> None:
    """A query would never end beside a writer, or leave out rows."""
    append_files(sink, 1, 2, 3)
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "2"})
    query.start().prepareForTriggerAvailableNow()

    assert query.batch() is not None
    sink.append(4)
    assert query.batches() == [[3]]
    query.start().prepareForTriggerAvailableNow()
    sink.append(5)
    assert query.batches() == [[4]]
    assert query.batches() == []


def test_available_now_of_an_empty_table_reads_nothing(sink: Sink) -> None:
    """A query would wait for a first write."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    query = Follower(sink=sink)
    query.start().prepareForTriggerAvailableNow()
    sink.append(1)

    assert query.batches() == []
    query.stop()
    assert query.ids() == [1]


@pytest.mark.parametrize("option", ["starting_snapshot_id", "stream_from_timestamp"])
def test_available_now_that_begins_after_all_there_is_reads_nothing(sink: Sink, option: str) -> None:
    """A query that begins where a batch has read up to would fail, if nothing was appended since."""
    sink.append(1)
    begin = {"starting_snapshot_id": head_of(sink), "stream_from_timestamp": head_time(sink) + 60_000}[option]
    query = Follower(sink=sink, options={option: str(begin)})
    query.start().prepareForTriggerAvailableNow()

    assert query.batches() == []
    sink.append(2)
    assert query.batches() == []
    query.stop()
    query.start().prepareForTriggerAvailableNow()
    assert query.ids() == ([2] if option == "starting_snapshot_id" else [])


def test_available_now_whose_end_was_taken_back_fails(sink: Sink) -> None:
    """A query would go on from a state that its table no longer has."""
    sink.append(1)
    first = head_of(sink)
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "1"})
    sink.append(2)
    query.start().prepareForTriggerAvailableNow()
    query.batch()
    set_branch(sink, "main", first)

    assert "was set back" in refused(query)


@KINDS
def test_compactions_are_passed_over(sink: Sink, *, tells_start: bool) -> None:
    """Compacted rows would come again."""
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "1"}, tells_start=tells_start)
    append_files(sink, 1, 2, 3)
    query.batch()
    rewrite(sink, rewrite_all="true")
    rewrite_manifests(sink)
    sink.append(4)
    rewrite(sink, rewrite_all="true")

    assert query.ids() == [2, 3, 4]
    assert query.committed is not None
    assert query.committed["snapshot"] == head_of(sink)  # the snapshots before may expire


def test_merged_manifests_have_the_files_of_their_snapshot_alone(sink: Sink) -> None:
    """Files that a commit lists again, in a manifest of its own, would be read again."""
    sink.append(1)
    with sink.table().transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    query = Follower(sink=sink)

    assert query.ids() == [1]
    for number in range(2, 6):
        sink.append(number)
    assert query.ids() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on_change": "skip"}, [1, 2, 3, 4, 6]),
        ({"on_change": "added-files"}, [1, 2, 3, 4, 5, 6]),
        ({"streaming_skip_overwrite_snapshots": "true", "streaming_skip_delete_snapshots": "true"}, [1, 2, 3, 4, 6]),
    ],
)
def test_changes_are_treated_as_chosen(sink: Sink, options: dict[str, str], expected: list[int]) -> None:
    """A user who knows what the changes mean could not go on, or got other rows than chosen."""
    append_files(sink, 1, 2)
    append_files(sink, 3, 4)
    delete_ids(sink, 1)
    sink.overwrite(rows(5))
    sink.append(6)
    query = Follower(sink=sink, options=options)

    assert query.ids() == expected


def test_rows_before_a_change_come_and_then_the_stream_fails(sink: Sink) -> None:
    """Rows that changed would be missed silently, or rows before the change would not come."""
    sink.append(1)
    sink.append(2)
    sink.overwrite(rows(3))
    sink.append(4)
    query = Follower(sink=sink)

    assert [row["id"] for row in query.batch() or []] == [1, 2]
    told = refused(query)
    table = sink.table()
    assert f"snapshot {table.metadata.snapshots[2].snapshot_id} of branch 'main' (operation overwrite)" in told
    assert "on-change=skip" in told
    query.stop()
    query.options = {"on_change": "skip"}
    assert query.ids() == [4]


@pytest.mark.parametrize(
    ("alias", "is_passed"),
    [("streaming_skip_delete_snapshots", True), ("streaming_skip_overwrite_snapshots", False)],
)
def test_alias_skips_its_own_operation_alone(sink: Sink, alias: str, *, is_passed: bool) -> None:
    """Overwrites would be passed over where a user allowed deletes."""
    append_files(sink, 1, 2)
    query = Follower(sink=sink, options={alias: "true"})
    query.batches()
    plain_table(sink).delete("id = 1")

    if is_passed:
        assert query.ids() == []
    else:
        assert "operation delete" in refused(query)


def test_deletes_by_key_are_a_change(sink: Sink) -> None:
    """A stream would show the old row and the new one, and not say so."""
    sink.append(1)
    query = Follower(sink=sink)
    query.batches()
    delete_equal(sink, with_ids(pa.table({"id": [1]}), id=1), [1])

    assert "changes rows" in refused(query)


def test_stream_begins_with_all_rows_of_the_oldest_snapshot(sink: Sink) -> None:
    """Rows whose snapshots have expired would be missing, and deleted ones would come back."""
    for number in (1, 2, 3):
        sink.append(number)
    delete_ids(sink, 2)
    expire(sink)
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "2"})
    first = query.batch(dies=True)
    sink.append(4)

    assert [row["id"] for row in first or []] in ([1], [3])
    assert sorted(query.ids()) == [1, 3, 4]


def test_file_that_is_added_again_has_all_its_rows(sink: Sink) -> None:
    """Rows that were deleted from a file would be missing, too, where it was taken out and imported again."""
    sink.append(1, 2)
    [file] = [task.file for task in plain_table(sink).scan().plan_files()]
    delete_equal(sink, with_ids(pa.table({"id": [1]}), id=1), [1])
    expire(sink)
    table = plain_table(sink)
    with table.transaction() as change, change.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(file)
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    query = Follower(sink=sink, options={"on_change": "skip"})

    assert query.batches() == [[1, 2, 2]]


def test_snapshot_that_lacks_files_is_an_error(sink: Sink) -> None:
    """Files that a writer marked as added by another snapshot would be passed over."""
    sink.append(1)
    query = Follower(sink=sink)
    query.batches()
    append_files(sink, 2, 3)

    def counted(document: dict[str, Any]) -> None:
        document["snapshots"][-1]["summary"]["added-data-files"] = "3"

    register_edited(sink, counted)

    assert "says that it added 3 data files, and its manifests have 2" in refused(query)


def test_first_micro_batch_whose_beginning_expired_is_an_error(sink: Sink) -> None:
    """It would be repeated with other rows than before."""
    for number in (1, 2):
        sink.append(number)
    query = Follower(sink=sink)
    query.batch(dies=True)
    expire(sink)

    assert "begins with all rows of snapshot" in refused(query)


def test_first_micro_batch_whose_first_snapshot_expired_is_an_error(sink: Sink) -> None:
    """It would be repeated with other rows than before, in as many files."""
    sink.append(1)
    first = head_of(sink)
    sink.overwrite(rows(2))
    sink.append(3)
    query = Follower(sink=sink, options={"on_change": "skip"})
    assert [row["id"] for row in query.batch(dies=True) or []] == [1, 3]

    def without_first(document: dict[str, Any]) -> None:
        document["snapshots"] = [kept for kept in document["snapshots"] if kept["snapshot-id"] != first]
        document["snapshot-log"] = []

    register_edited(sink, without_first)

    assert f"begins with all rows of snapshot {first}" in refused(query)


def test_repeat_with_another_beginning_is_refused(sink: Sink) -> None:
    """A micro-batch that was written in part would be repeated with other rows."""
    for number in (1, 2, 3):
        sink.append(number)
    first, second, _ = (snapshot.snapshot_id for snapshot in sink.table().metadata.snapshots)
    query = Follower(sink=sink, options={"starting_snapshot_id": str(first)})
    assert [row["id"] for row in query.batch(dies=True) or []] == [2, 3]
    query.options = {"starting_snapshot_id": str(second)}
    assert "had 2 files, and would have 1 now" in refused(query)
    query.options = {}
    query.stop()
    assert "begins with files that a snapshot added" in refused(query)
    query.options = {"starting_snapshot_id": str(first)}
    query.stop()
    assert query.ids() == [2, 3]


@KINDS
def test_read_snapshot_may_expire_if_the_next_names_it(sink: Sink, *, tells_start: bool) -> None:
    """Each expiry would end a stream that has read everything."""
    query = Follower(sink=sink, tells_start=tells_start)
    sink.append(1)
    assert query.ids() == [1]
    query.stop()
    sink.append(2)
    expire(sink)

    assert query.ids() == [2]


@pytest.mark.parametrize("cuts_parents", [True, False])
def test_expired_history_is_an_error(sink: Sink, *, cuts_parents: bool) -> None:
    """Rows that expired unread would be missing, and nobody would know."""
    query = Follower(sink=sink)
    sink.append(1)
    first = head_of(sink)
    query.batches()
    sink.append(2)
    sink.append(3)
    expire(sink, cuts_parents=cuts_parents)

    told = refused(query)
    assert f"snapshot {first}, up to which it was read, has expired" in told
    assert "starting-snapshot-id" in told


def test_rest_of_an_expired_snapshot_is_an_error(sink: Sink) -> None:
    """The files that were still to be read of a snapshot would be passed over."""
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "1"})
    append_files(sink, 1, 2)
    query.batch()
    sink.append(3)
    expire(sink)

    assert "has expired" in refused(query)


def test_branch_that_was_set_back_is_an_error_until_it_is_set_forward(sink: Sink) -> None:
    """Rows that were taken back stay in the target, and rows after them would be read from an unknown place."""
    query = Follower(sink=sink)
    sink.append(1)
    first = head_of(sink)
    sink.append(2)
    second = head_of(sink)
    query.batches()
    set_branch(sink, "main", first)
    assert f"snapshot {second}, up to which it was read, is not in the history" in refused(query)
    sink.append(3)
    assert "was set back" in refused(query)

    set_branch(sink, "main", second)

    assert query.ids() == []
    sink.append(4)
    assert query.ids() == [4]


def test_replaced_table_is_an_error(sink: Sink) -> None:
    """`CREATE OR REPLACE TABLE` would be read as if it were appended."""
    query = Follower(sink=sink)
    sink.append(1)
    query.batches()
    drop_branch(sink, "main")
    assert "is not in the history" in refused(query)
    sink.append(2)

    assert "is not in the history" in refused(query)


@KINDS
def test_other_table_of_the_same_name_is_refused(sink: Sink, *, tells_start: bool) -> None:
    """The rows of another table would come out as if they were the next ones."""
    query = Follower(sink=sink, tells_start=tells_start)
    sink.append(1)
    query.batches()
    query.stop()
    plain_catalog(sink).drop_table(NAME)
    sink.append(2)

    assert "it is another table" in refused(query)


@pytest.mark.parametrize("is_empty", [True, False])
def test_first_micro_batch_of_another_table_is_refused(sink: Sink, *, is_empty: bool) -> None:
    """A table that was dropped and made anew while the first micro-batch was under way would be mixed with it."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    if not is_empty:
        sink.append(1)
    query = Follower(sink=sink)
    reader = query.start()
    query.planned = [json.dumps(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))]
    query.stop()
    plain_catalog(sink).drop_table(NAME)
    sink.append(2)

    assert "it is another table" in refused(query)


def test_first_micro_batch_may_be_empty(sink: Sink) -> None:
    """Spark runs one for an empty table, and begins at its end."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    query = Follower(sink=sink)
    reader = query.start()
    query.planned = [json.dumps(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))]
    query.stop()
    sink.append(1)

    assert query.batch() == []
    assert query.ids() == [1]


@pytest.mark.parametrize("offset", ['{"logOffset": 3}', "5", '"x"', "[1]", "{}"])
def test_checkpoint_of_another_source_is_refused(sink: Sink, offset: str) -> None:
    """A checkpoint that was mixed up would be read as the beginning."""
    sink.append(1)
    query = Follower(sink=sink, planned=[offset, offset], done=1)

    assert "is no offset of icebergsource" in refused(query)


def test_checkpoint_of_more_files_than_there_are_is_refused(sink: Sink) -> None:
    """Rows that come later would be taken for the rest of what was read."""
    sink.append(1)
    query = Follower(sink=sink)
    query.batches()
    query.planned = [text.replace('"file": 1', '"file": 2') for text in query.planned]
    query.stop()

    assert "is no offset of icebergsource" in refused(query)


def test_checkpoint_without_what_later_versions_note_goes_on(sink: Sink) -> None:
    """A query could not be started by a newer version."""
    append_files(sink, 1, 2)
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "1"})
    query.batch()
    query.batch(dies=True)

    def older(text: str) -> str:
        return json.dumps({key: value for key, value in json.loads(text).items() if key not in {"ordinal", "paths"}})

    query.planned = [older(text) for text in query.planned]
    append_files(sink, 3)

    assert query.ids() == [2, 3]


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("is_running", [False, True])
def test_what_came_into_an_empty_table_and_expired_is_an_error(sink: Sink, *, is_named: bool, is_running: bool) -> None:
    """Rows that were appended after the query began would never come."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    query = Follower(sink=sink, options={"consumer_id": "copy"} if is_named else {})
    if is_running:
        assert query.batches() == []
    else:
        reader = query.start()
        query.planned = [json.dumps(reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))]
        assert query.batch() == []
        query.stop()
    sink.append(1, 2)
    sink.overwrite(rows(3))
    expire(sink)

    assert "had no snapshot when the stream began" in refused(query)


def test_replacement_of_a_table_that_was_empty_is_an_error(sink: Sink) -> None:
    """Rows from before it would never come, and its first snapshot looks like the first of all."""
    sink.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    query = Follower(sink=sink)
    assert query.batches() == []
    sink.append(1)
    drop_branch(sink, "main")
    sink.append(2)

    assert "had no snapshot when the stream began" in refused(query)


def test_stream_begins_at_a_time_of_history_that_others_cut(sink: Sink) -> None:
    """The first snapshot after all rows were deleted looks like the first of all, once its parents are cut off."""
    sink.append(1)
    begin = head_time(sink)
    plain_table(sink).delete()
    sink.append(2)
    assert Follower(sink=sink, options={"stream_from_timestamp": str(begin), "on_change": "skip"}).ids() == [1, 2]
    expire(sink, cuts_parents=True)

    assert "has expired" in refused(Follower(sink=sink, options={"stream_from_timestamp": str(begin)}))


def test_branches_are_read(sink: Sink) -> None:
    """Only `main` could be followed, or its rows came into the stream of a branch."""
    sink.append(1)
    set_branch(sink, "b", head_of(sink))
    append_files(sink, 2, branch="b")
    query = Follower(sink=sink, options={"branch": "b"})
    sink.append(3)

    assert query.ids() == [1, 2]
    cherry_pick(sink, head_of(sink), branch="b")
    assert query.ids() == [3]
    set_branch(sink, "main", head_of(sink, "b"))
    assert Follower(sink=sink).ids() == [1, 2, 3]
    drop_branch(sink, "b")
    assert "it has no branch 'b'" in refused(query)


def test_stream_begins_after_a_snapshot(sink: Sink) -> None:
    """A stream could not go on where a batch has read up to."""
    sink.append(1)
    first = head_of(sink)
    sink.append(2)
    assert Follower(sink=sink, options={"starting_snapshot_id": str(first)}).ids() == [2]
    late = Follower(sink=sink, options={"starting_snapshot_id": str(head_of(sink))})
    assert late.ids() == []
    sink.append(3)
    assert late.ids() == [3]

    assert "starting-snapshot-id is 5" in refused(Follower(sink=sink, options={"starting_snapshot_id": "5"}))


def test_stream_begins_at_a_time(sink: Sink) -> None:
    """Older rows would come, or those of that very moment would not."""
    for number in (1, 2, 3):
        sink.append(number)
    times = [snapshot.timestamp_ms for snapshot in sink.table().metadata.snapshots]

    def since(moment: int) -> Follower:
        return Follower(sink=sink, options={"stream_from_timestamp": str(moment)})

    assert since(times[0]).ids() == [1, 2, 3]
    assert since(times[0] + 1).ids() == [number for number in (2, 3) if times[number - 1] > times[0]]
    assert since(times[2] + 60_000).ids() == []
    expire(sink)
    assert "has expired" in refused(since(times[2]))
    sink.append(4)
    assert since(head_time(sink)).ids()[-1] == 4


def test_clock_that_went_back_hides_no_snapshot(sink: Sink) -> None:
    """Rows of the time that was asked for would be passed over, where a later writer's clock was behind."""
    for number in (1, 2, 3):
        sink.append(number)

    def timed(document: dict[str, Any]) -> None:
        for snapshot, moment in zip(document["snapshots"], (100_000, 200_000, 150_000), strict=True):
            snapshot["timestamp-ms"] = moment
        document["snapshot-log"] = []

    register_edited(sink, timed)

    assert Follower(sink=sink, options={"stream_from_timestamp": "180000"}).ids() == [2, 3]


def head_time(sink: Sink) -> int:
    """Return when the last snapshot was made."""
    return sink.table().metadata.snapshots[-1].timestamp_ms


def test_columns_are_those_of_the_start(sink: Sink) -> None:
    """A renamed column would be null, a new one would break the query, or values come from another column."""
    sink.append(1)
    query = Follower(sink=sink)
    assert query.batch() == rows(1)
    columns = query.source.schema()
    set_columns(sink, NestedField(1, "key", LongType()), NestedField(3, "name", StringType()))
    sink.commit(sink.write([{"key": 2, "name": "other"}], schema=sink_columns("key", "name")))

    assert query.batch() == [{"id": 2, "name": None}]
    sink.commit(sink.write([{"key": 3, "name": "other"}], schema=sink_columns("key", "name")))
    query.stop()
    query.keeps_schema = columns
    assert query.batch() == [{"id": 3, "name": None}]
    query.stop()
    query.keeps_schema = None
    sink.commit(sink.write([{"key": 4, "name": "more"}], schema=sink_columns("key", "name")))
    assert query.batch() == [{"key": 4, "name": "more"}]


def sink_columns(key: str, name: str) -> StructType:
    """Return the columns of a write."""
    return StructType([StructField(key, spark.LongType()), StructField(name, spark.StringType())])


def test_retyped_column_is_an_error_until_the_restart(sink: Sink) -> None:
    """Values beyond the old type would be cut."""
    sink.create(Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType())))
    narrow = StructType([StructField("id", spark.IntegerType()), StructField("name", spark.StringType())])
    sink.commit(sink.write(rows(1), schema=narrow))
    query = Follower(sink=sink)
    assert query.ids() == [1]
    with sink.table().update_schema() as update:
        update.update_column("id", LongType())
    sink.append(2**40)

    with pytest.raises(SchemaMismatchError, match=r"'id' was of type int, and is of type long now.*start the query"):
        query.batch()
    query.stop()
    assert query.ids() == [2**40]


def test_column_that_where_names_may_not_be_dropped(sink: Sink) -> None:
    """All later rows would be passed over, since the column is null in their files."""
    sink.append(1)
    query = Follower(sink=sink, options={"columns": "id", "where": "name LIKE 'row%'"})
    assert query.ids() == [1]
    set_columns(sink, NestedField(1, "id", LongType()), NestedField(3, "other", StringType()))
    sink.commit(sink.write([{"id": 2, "other": "row 2"}], schema=sink_columns("id", "other")))

    with pytest.raises(SchemaMismatchError, match="where names column 'name', which was dropped"):
        query.batch()


def test_columns_and_rows_are_chosen(sink: Sink) -> None:
    """All columns and rows would go through Python."""
    append_files(sink, 1, 2, 3)
    query = Follower(sink=sink, options={"columns": "name, _pos", "where": "id > 1"})

    assert query.batch() == [{"name": "row 2", "_pos": 0}, {"name": "row 3", "_pos": 0}]
    with pytest.raises(OptionError, match="where is no predicate"):
        Follower(sink=sink, options={"where": "nope = 1"}).batch()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"on_change": "ignore"}, "expected one of fail, skip, added-files, changes"),
        ({"streaming_max_files_per_micro_batch": "0"}, "expected a whole number above 0"),
        ({"streaming_max_rows_per_micro_batch": "x"}, "expected a whole number above 0"),
        ({"streaming_skip_delete_snapshots": "yes"}, "expected true or false"),
        ({"starting_snapshot_id": "1", "stream_from_timestamp": "2"}, "both say where the stream begins: give one"),
        ({"snapshot_id": "1"}, "option 'snapshot-id' is none of a stream"),
        ({"tag": "x"}, "option 'tag' is none of a stream"),
    ],
)
def test_wrong_options_are_refused(sink: Sink, options: dict[str, str], expected: str) -> None:
    """An option would be ignored."""
    sink.append(1)
    query = Follower(sink=sink, options=options, keeps_schema=Follower(sink=sink).source.schema())

    with pytest.raises(OptionError, match=expected):
        query.start()


def test_options_of_streams_are_refused_in_batches(sink: Sink) -> None:
    """A batch would be thought to be limited."""
    sink.append(1)
    source = Follower(sink=sink, options={"on_change": "skip"}).source

    with pytest.raises(OptionError, match="option 'on-change' is none of a batch"):
        source.reader(source.schema())


def test_reader_takes_no_options_into_tasks(sink: Sink) -> None:
    """Secrets of the catalog would be sent to the executors."""
    sink.append(1)
    reader = Follower(sink=sink).start()

    assert str(sink.options.warehouse) in str(reader.__dict__)
    assert str(sink.options.warehouse).encode() not in pickle.dumps(reader)


@pytest.mark.parametrize("kind", ["reader", "streamReader"])
def test_source_takes_no_options_into_tasks(sink: Sink, kind: str) -> None:
    """Spark sends the data source with the function that reads: secrets of the catalog would go along."""
    sink.append(1)
    source = Follower(sink=sink).source
    columns = source.schema()
    folder = str(sink.options.warehouse).encode()
    assert folder in pickle.dumps(source)

    getattr(source, kind)(columns)

    assert folder not in pickle.dumps(source)


def test_progress_shows_the_end_of_the_branch(sink: Sink) -> None:
    """Nobody would see how far a stream is behind."""
    append_files(sink, 1, 2)
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "1"})
    query.batch()
    assert query.reader is not None

    head = query.reader.reportLatestOffset()
    assert (head["snapshot"], head["file"], head["files"]) == (head_of(sink), 2, 2)


def test_replacement_that_adds_rows_is_a_change(sink: Sink) -> None:
    """Rows that another writer added under the name of a compaction would be missed."""
    sink.append(1)
    query = Follower(sink=sink)
    query.batches()
    sink.append(2)

    def replacing(document: dict[str, Any]) -> None:
        document["snapshots"][-1]["summary"]["operation"] = "replace"

    register_edited(sink, replacing)

    assert "operation replace, but with 1 rows in place of 0" in refused(query)


def test_append_that_removes_files_is_a_change(sink: Sink) -> None:
    """Rows that another writer removed under the name of an append would stay in the target."""
    sink.append(1)
    query = Follower(sink=sink)
    query.batches()
    sink.overwrite(rows(2))

    def appending(document: dict[str, Any]) -> None:
        document["snapshots"][-1]["summary"]["operation"] = "append"

    register_edited(sink, appending)

    assert "operation append, but with deleted-data-files 1" in refused(query)


def test_repeat_with_other_options_is_refused(sink: Sink) -> None:
    """A micro-batch that is repeated would have other rows than the first time."""
    sink.append(1)
    sink.append(2)
    query = Follower(sink=sink, options={"on_change": "added-files"})
    query.batches()
    sink.overwrite(rows(3))
    query.batch(dies=True)
    query.options = {"on_change": "skip"}

    assert "Start the query with the options that it had" in refused(query)
    assert replace(query, options={"on_change": "added-files"}, reader=None).ids() == [3]


def test_repeat_with_other_options_is_refused_wherever_the_change_is(sink: Sink) -> None:
    """Rows of a change in the middle of a micro-batch would be in one attempt only."""
    sink.append(1)
    query = Follower(sink=sink, options={"on_change": "added-files"})
    query.batches()
    sink.overwrite(rows(2))
    sink.append(3)
    query.batch(dies=True)
    query.options = {"on_change": "skip"}

    assert "had 2 files, and would have 1 now" in refused(query)
    assert replace(query, options={"on_change": "added-files"}, reader=None).ids() == [2, 3]


def test_repeat_with_other_files_of_that_number_is_refused(sink: Sink) -> None:
    """Rows of the first attempt, some of which were written, would never come again."""
    append_files(sink, 1, 2)
    append_files(sink, 3)
    query = Follower(sink=sink, options={"on_change": "changes", "streaming_skip_overwrite_snapshots": "true"})
    query.batches()
    plain_table(sink).delete("id in (1, 2)")
    sink.overwrite(rows(3), replace_where="id = 3")
    append_files(sink, 4)
    kept = dict(query.options)
    assert [row["id"] for row in query.batch(dies=True) or []] == [1, 2, 4]
    query.options = {"on_change": "changes", "streaming_skip_delete_snapshots": "true"}

    assert "had 3 files, and would have others now" in refused(query)
    assert replace(query, options=kept, reader=None).ids() == [1, 2, 4]


@pytest.mark.parametrize("is_cut", [False, True])
def test_data_file_that_cannot_be_read_is_named(sink: Sink, *, is_cut: bool) -> None:
    """A query would end without a word on what is missing, or blame the table's types."""
    sink.append(1)
    query = Follower(sink=sink)
    path = Path(local(entries(sink)[0].data_file.file_path))
    if is_cut:
        path.write_bytes(path.read_bytes()[:-20])
    else:
        path.unlink()

    with pytest.raises(
        DataFileError, match=rf"Cannot read db.t: data file .*{path.name} is missing or damaged: "
    ) as raised:
        query.batches()
    assert "iceberg_ds.verify names what is missing" in str(raised.value)


def test_rows_from_before_a_column_have_its_initial_default(sink: Sink) -> None:
    """They would have null in it."""
    sink.append(1)

    def with_default(document: dict[str, Any]) -> None:
        document["format-version"], document["next-row-id"] = 3, 1
        document["snapshots"][0].update({"first-row-id": 0, "added-rows": 1})
        schema = {**document["schemas"][-1], "schema-id": 7}
        column = {"id": 3, "name": "n", "type": "long", "required": False, "initial-default": 5, "write-default": 5}
        document["schemas"].append({**schema, "fields": [*schema["fields"], column]})
        document["current-schema-id"], document["last-column-id"] = 7, 3

    register_edited(sink, with_default)

    assert [row["n"] for row in Follower(sink=sink).batch()] == [5]
