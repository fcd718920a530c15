"""Streams of changes, row by row: what was written again unchanged is none, and keys tell updates apart."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField
from pyspark.sql import types as spark
from support.exhaustive import examples
from support.tables.changes_by_others import expire, head_of
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_ids
from support.tables.expiry import expired
from support.tables.follower import Follower
from support.tables.metadata import ID_AND_NAME
from support.tables.sink import Row, Sink, rows

from iceberg_ds.errors import OptionError, SchemaMismatchError, StreamHistoryError, UnsupportedTableError
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.reading import change_scan, scan
from iceberg_ds.reading.row_changes import carried_over
from iceberg_ds.table.spec_parser import parse_partition_by

CHANGES = {"on_change": "changes"}
KEYED = {**CHANGES, "keys": "id"}


def follow(sink: Sink, **options: str) -> list[list[tuple[str, int, str]]]:
    """Return the changes of each micro-batch, as kind, id and name."""
    query = Follower(sink=sink, options={**CHANGES, **options})
    found = []
    while (batch := query.batch()) is not None:
        found.append(shown(batch))
    return found


def shown(batch: list[Row]) -> list[tuple[str, int, str]]:
    """Return changes as kind, id and name, in order."""
    return sorted((row["_change_type"], row["id"], row["name"]) for row in batch)


def named(number: float, name: str) -> Row:
    """Return a row."""
    return {"id": number, "name": name}


def test_rows_that_an_overwrite_writes_again_are_no_changes(sink: Sink) -> None:
    """A consumer would do work for each row of the table, or count the rows twice."""
    sink.append(1, 2, 3, 3)
    sink.overwrite([*rows(2, 3), named(1, "other"), *rows(4)])

    assert follow(sink) == [
        [
            *(("DELETE", 1, "row 1"), ("DELETE", 3, "row 3"), ("INSERT", 1, "other"), ("INSERT", 1, "row 1")),
            *(("INSERT", number, f"row {number}") for number in (2, 3, 3, 4)),
        ]
    ]


def test_keys_tell_updates_from_deletes_and_inserts(sink: Sink) -> None:
    """A table that is copied by its changes would refuse two rows of one key, or take the wrong one."""
    sink.append(1, 2, 3)
    query = Follower(sink=sink, options=KEYED)
    assert shown(query.batch() or []) == [("INSERT", number, f"row {number}") for number in (1, 2, 3)]

    sink.overwrite([named(1, "one"), *rows(3, 4)])

    assert shown(query.batch() or []) == [
        ("DELETE", 2, "row 2"),
        ("INSERT", 4, "row 4"),
        ("UPDATE_AFTER", 1, "one"),
        ("UPDATE_BEFORE", 1, "row 1"),
    ]


def test_row_that_moves_to_another_partition_is_an_update(sink: Sink) -> None:
    """Its delete and its insert, read by two tasks, would be two changes of one key, and the delete might win."""
    by_name = sink.plan(partition_by=parse_partition_by("name"))
    sink.commit(sink.write([named(1, "a"), named(2, "b")], plan=by_name))
    query = Follower(sink=sink, options=KEYED)
    query.batch()
    sink.overwrite([named(1, "b"), named(2, "b")])

    assert shown(query.batch() or []) == [("UPDATE_AFTER", 1, "b"), ("UPDATE_BEFORE", 1, "a")]


def test_deletes_come_before_inserts(sink: Sink) -> None:
    """A consumer that applies rows as they come would delete what was just inserted."""
    sink.append(1)
    query = Follower(sink=sink, options=CHANGES)
    query.batch()
    sink.overwrite([named(1, "one")])

    assert [row["_change_type"] for row in query.batch() or []] == ["DELETE", "INSERT"]


def test_several_rows_of_one_key_are_refused(sink: Sink) -> None:
    """A consumer would take one of two rows, and lose the other."""
    sink.append(1, 2)
    query = Follower(sink=sink, options=KEYED)
    query.batch()
    sink.overwrite([*rows(1), named(2, "two"), named(2, "also two")])

    with pytest.raises(StreamHistoryError, match=rf"snapshot {head_of(sink)} changed several rows of one key: .*2"):
        query.batch()
    query.stop()
    query.options = CHANGES
    assert shown(query.batch() or []) == [("DELETE", 2, "row 2"), ("INSERT", 2, "also two"), ("INSERT", 2, "two")]


@pytest.mark.parametrize("limit", ["streaming_max_files_per_micro_batch", "streaming_max_rows_per_micro_batch"])
def test_snapshot_that_changes_rows_is_read_at_once(sink: Sink, limit: str) -> None:
    """A row that was written again would be deleted in one micro-batch and inserted in another."""
    sink.commit(sink.write(rows(1), rows(2), rows(3)))
    query = Follower(sink=sink, options={**CHANGES, limit: "1"})
    assert query.batches() == [[1], [2], [3]]

    sink.append(4)
    sink.overwrite(rows(1), rows(2), [named(3, "three")])

    assert query.batches() == [[4], [3, 3, 4]]


def test_compactions_and_skipped_snapshots_are_passed_over(sink: Sink) -> None:
    """Rows would be deleted and inserted that nobody changed, or that nobody wants."""
    sink.append(1, 2)
    sink.append(3)
    rewrite(sink, rewrite_all="true")
    delete_ids(sink, 2)
    sink.overwrite([named(1, "one")])

    first = [("INSERT", number, f"row {number}") for number in (1, 2, 3)]
    assert follow(sink, streaming_skip_overwrite_snapshots="true") == [first]
    changed = [("DELETE", 1, "row 1"), ("DELETE", 2, "row 2"), ("DELETE", 3, "row 3"), ("INSERT", 1, "one"), *first]
    assert follow(sink, streaming_skip_delete_snapshots="true") == [changed]


def test_rows_before_the_change_of_an_expired_snapshot_come(sink: Sink) -> None:
    """Rows would be passed over silently, or those before it would not come."""
    sink.append(1)
    query = Follower(sink=sink, options=CHANGES)
    assert query.batches() == [[1]]
    gone = head_of(sink)
    sink.overwrite([named(1, "one")])
    expire(sink)

    with pytest.raises(
        StreamHistoryError, match=rf"changes rows of snapshot {gone}, which has expired.* begin with a new"
    ):
        query.batch()
    query.stop()
    query.options = {"on_change": "added-files"}
    assert query.batches() == [[1]]


def test_rows_are_chosen_before_they_are_compared(sink: Sink) -> None:
    """A copy of some rows would keep a row that is none of them any more, or have an update of a row it never had."""
    sink.append(1, 2)
    sink.overwrite([named(1, "one"), named(2, "two")])
    query = Follower(sink=sink, options={**KEYED, "where": "name <> 'row 1' AND name <> 'two'"})

    assert shown(query.batch() or []) == [("DELETE", 2, "row 2"), ("INSERT", 1, "one"), ("INSERT", 2, "row 2")]


def test_rows_are_compared_whole_whatever_is_shown(sink: Sink) -> None:
    """An update of a column that is not asked for would be missing."""
    sink.append(1)
    query = Follower(sink=sink, options={**KEYED, "columns": "id, _change_type"})
    query.batch()
    sink.overwrite([named(1, "one")])

    assert query.batch() == [{"id": 1, "_change_type": "UPDATE_BEFORE"}, {"id": 1, "_change_type": "UPDATE_AFTER"}]


def test_ordinals_ascend_over_restarts(sink: Sink) -> None:
    """A consumer that orders changes by them would take an older row for a newer one."""
    sink.append(1)
    query = Follower(sink=sink, options=CHANGES)
    ordinals = []
    for name in ("one", "eins", "uno"):
        ordinals += [row["_change_ordinal"] for row in query.batch() or []]
        query.stop()
        sink.overwrite([named(1, name)])
    ordinals += [row["_change_ordinal"] for row in query.batch() or []]

    assert ordinals == [0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("columns", ["_change_type, _commit_snapshot_id", "_change_type, _pos"])
def test_changes_come_without_a_column_of_the_table(sink: Sink, columns: str) -> None:
    """Who counts changes would find none."""
    sink.append(1, 2, 3)

    query = Follower(sink=sink, options={**CHANGES, "columns": columns})

    assert [row["_change_type"] for row in query.batch() or []] == ["INSERT"] * 3


def test_rows_are_told_apart_by_their_ids_if_these_are_asked_for(sink: Sink) -> None:
    """A copy by ids would delete the row that stays, and keep one that is gone."""
    sink.create(ID_AND_NAME, format_version="3")
    sink.append(1, 1)
    query = Follower(sink=sink, options={**CHANGES, "columns": "id, _row_id, _change_type"})
    assert [row["_row_id"] for row in query.batch() or []] == [0, 1]

    sink.overwrite(rows(1))

    found = [(row["_change_type"], row["_row_id"]) for row in query.batch() or []]
    assert found == [("DELETE", 0), ("DELETE", 1), ("INSERT", 2)]


@pytest.mark.parametrize("begin", ["starting_snapshot_id", "stream_from_timestamp"])
def test_name_keeps_the_snapshot_that_the_first_change_is_of(sink: Sink, begin: str) -> None:
    """Expiry would take what tells which rows changed, although the query has a name."""
    sink.append(1)
    first = sink.table().metadata.snapshots[0]
    sink.overwrite([named(1, "one")])
    second = sink.table().metadata.snapshots[1]
    at = str(first.snapshot_id if begin == "starting_snapshot_id" else second.timestamp_ms)
    query = Follower(sink=sink, options={**CHANGES, "consumer_id": "copy", begin: at})
    found = query.batch(dies=True)
    sink.append(2)

    expired(sink, retain_last=1)

    assert query.batch() == found


def test_key_that_is_dropped_ends_the_query(sink: Sink) -> None:
    """All rows would have the key null, and count as updates of each other."""
    sink.append(1)
    query = Follower(sink=sink, options=KEYED)
    query.batch()
    query.keeps_schema = query.source.schema()
    with sink.table().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("id")

    with pytest.raises(SchemaMismatchError, match="keys names column 'id', which was dropped"):
        query.batch()


def test_rows_that_only_lack_a_dropped_column_are_no_changes(sink: Sink) -> None:
    """All rows that are written again would change, by a column that nobody reads."""
    sink.append(1, 2)
    query = Follower(sink=sink, options=CHANGES)
    query.batch()
    query.keeps_schema = query.source.schema()
    with sink.table().update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("name")
    only_ids = spark.StructType([spark.StructField("id", spark.LongType())])
    plan = sink.plan(only_ids, WriteMode.OVERWRITE)
    sink.commit(sink.write([{"id": 2}, {"id": 3}], schema=only_ids, plan=plan))

    assert shown(query.batch() or []) == [("DELETE", 1, "row 1"), ("INSERT", 3, None)]


def test_column_that_is_widened_ends_the_query_though_it_is_not_shown(sink: Sink) -> None:
    """Rows whose new values do not fit would be compared as they cannot be."""
    columns = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", IntegerType()))
    sink.create(columns)
    query = Follower(sink=sink, options={**CHANGES, "columns": "id, _change_type"})
    query.batch()
    with sink.table().update_schema() as change:
        change.update_column("n", LongType())

    with pytest.raises(SchemaMismatchError, match="column 'n' was of type int"):
        query.batch()


def test_partitions_that_only_lose_rows_are_spread_over_tasks(sink: Sink) -> None:
    """Each partition would be a task, and all files be read twice."""
    plan = sink.plan(partition_by=parse_partition_by("name"))
    sink.commit(sink.write([named(number, f"p{number}") for number in range(5)], plan=plan))
    query = Follower(sink=sink, options=CHANGES)
    query.batch()
    sink.overwrite([named(7, "p1"), named(8, "p2")])
    reader = query.start()
    begin = json.loads(query.planned[-1])

    files = [partition.files for partition in reader.partitions(begin, reader.latestOffset(begin))]

    assert sorted((len(one.tasks), bool(one.compared)) for one in files) == [(3, False), (4, True)]


def test_manifests_are_read_once_however_many_snapshots_change_rows(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that catches up would read all manifests of the table for each snapshot."""
    sink.append(1)
    query = Follower(sink=sink, options=CHANGES)
    query.batch()
    for number in range(6):
        delete_ids(sink, number)
    read: list[str] = []

    def live_files(io: Any, manifest: Any) -> Any:
        read.append(manifest.manifest_path)
        return scan.live_files(io, manifest)

    monkeypatch.setattr(change_scan, "live_files", live_files)

    assert query.batches() == [[1]]
    assert len(read) <= 1 + 6


def test_keys_that_are_equal_numbers_are_one_key(sink: Sink) -> None:
    """A row would be deleted and another inserted, where it was updated."""
    columns = spark.StructType(
        [spark.StructField("id", spark.DoubleType()), spark.StructField("name", spark.StringType())]
    )
    sink.commit(sink.write([named(0.0, "zero"), named(float("nan"), "none")], schema=columns))
    query = Follower(sink=sink, options=KEYED)
    query.batch()
    plan = sink.plan(columns, WriteMode.OVERWRITE)
    sink.commit(sink.write([named(-0.0, "null"), named(float("nan"), "nothing")], schema=columns, plan=plan))

    kinds = Counter(row["_change_type"] for row in query.batch() or [])
    assert kinds == {"UPDATE_BEFORE": 2, "UPDATE_AFTER": 2}


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"keys": "id"}, OptionError, "option 'keys' goes with on-change=changes"),
        ({**CHANGES, "keys": "nope"}, OptionError, "it has no column 'nope'"),
        ({**CHANGES, "keys": "_pos"}, OptionError, "'_pos' is no column of the table"),
        ({**CHANGES, "keys": "[id"}, OptionError, r"option 'keys' is '\[id': expected names with commas"),
        ({**CHANGES, "keys": "[]"}, OptionError, "option 'keys' names no column"),
        ({**CHANGES, "columns": "id, name"}, OptionError, "columns lacks '_change_type'"),
        ({"snapshotid": "1"}, OptionError, r"option 'snapshotid' is none of a read: did you mean 'snapshot-id'\?"),
        ({"nothing-like-it": "1"}, OptionError, r"none of a read: known options: .*warehouse, where, catalog\.\*"),
    ],
)
def test_wrong_options_are_refused(sink: Sink, options: dict[str, str], error: type[Exception], expected: str) -> None:
    """Updates would be told apart by nothing, or a slip would read what is not meant."""
    sink.append(1)
    query = Follower(sink=sink, options=options)

    with pytest.raises(error, match=expected):
        query.batch()


def test_columns_of_changes_are_those_of_streams_of_changes_alone(sink: Sink) -> None:
    """Another stream would show that rows were inserted of which it does not know."""
    sink.append(1)

    with pytest.raises(OptionError, match="it has no column '_change_type'"):
        _ = Follower(sink=sink, options={"columns": "id, _change_type"}).source.schema()


def test_table_with_such_a_column_is_refused(sink: Sink) -> None:
    """Its own values would be taken for what became of the rows."""
    schema = spark.StructType([spark.StructField("_change_type", spark.StringType())])
    sink.commit(sink.write([{"_change_type": "x"}], schema=schema))

    with pytest.raises(UnsupportedTableError, match="it has a column '_change_type' of its own"):
        _ = Follower(sink=sink, options=CHANGES).source.schema()


def test_checkpoint_from_before_is_read_on(sink: Sink) -> None:
    """A query would have to begin anew after an upgrade."""
    sink.append(1)
    query = Follower(sink=sink)
    query.batch()
    query.planned[-1] = query.planned[-1].replace(', "ordinal": 0', "")
    assert "ordinal" not in query.planned[-1]
    query.stop()
    sink.append(2)

    assert query.batches() == [[2]]


@settings(max_examples=examples(200))
@given(sides=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20))
def test_copies_are_carried_over_one_by_one(sides: list[tuple[int, bool]]) -> None:
    """Of rows that a snapshot has more often, or less often, the difference would be wrong."""
    rows = pa.table(
        {
            "row_1": pa.array([row for row, _ in sides], pa.uint64()),
            "row_2": pa.array([row for row, _ in sides], pa.uint64()),
            "inserted": pa.array([is_inserted for _, is_inserted in sides], pa.bool_()),
        }
    )

    left = Counter(
        side for side, is_carried in zip(sides, carried_over(rows).to_pylist(), strict=True) if not is_carried
    )

    expected: Counter[Any] = Counter()
    for row in {row for row, _ in sides}:
        more = sum(1 if is_inserted else -1 for number, is_inserted in sides if number == row)
        expected[row, more > 0] = abs(more)
    assert left == +expected


@pytest.mark.parametrize("first", [0, 1])
def test_rows_with_one_equal_digest_are_different(first: int) -> None:
    """Of two digests one would count alone, and rows with equal ones, which are found in a while, would vanish."""
    digests = {f"row_{number + 1}": pa.array([7, 8 if number == first else 7], pa.uint64()) for number in range(2)}

    assert carried_over(pa.table({**digests, "inserted": [True, False]})).to_pylist() == [False, False]
