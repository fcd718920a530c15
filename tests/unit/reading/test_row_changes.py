"""Streams of changes, row by row: what was written again unchanged is none, and keys tell updates apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as spark
from support.exhaustive import examples
from support.tables.changes_by_others import expire, head_of
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_ids
from support.tables.follower import Follower
from support.tables.sink import Row, Sink, rows

from iceberg_ds.errors import OptionError, StreamHistoryError, UnsupportedTableError
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


def named(number: int, name: str) -> Row:
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

    with pytest.raises(StreamHistoryError, match=rf"changes rows of snapshot {gone}, which has expired"):
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


@pytest.mark.parametrize(
    ("options", "error", "expected"),
    [
        ({"keys": "id"}, OptionError, "option keys goes with on-change=changes"),
        ({**CHANGES, "keys": "nope"}, OptionError, "it has no column 'nope'"),
        ({**CHANGES, "keys": "_pos"}, OptionError, "'_pos' is no column of the table"),
        ({**CHANGES, "keys": "[id"}, OptionError, "option 'keys' is no list in JSON"),
    ],
)
def test_wrong_keys_are_refused(sink: Sink, options: dict[str, str], error: type[Exception], expected: str) -> None:
    """Updates would be told apart by nothing."""
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
