"""Any change feed, in any layout, makes of a table what the events make of a dictionary one by one."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import DoubleType, LongType, NestedField
from support.change_feeds import Key, Row, TaskOutput, commit, feed, run_task, sent
from support.keyed_writes import LAYOUTS, keyed_plan, output_of, write

from iceberg_ds.changes import waiting, winners
from iceberg_ds.changes.values import ChangeFeed

BEFORE, DELETE, ROW = range(3)
WORDS = {
    "c": ROW,
    "I": ROW,
    "+U": ROW,
    "update_postimage": ROW,
    "-U": BEFORE,
    "UPDATE_PREIMAGE": BEFORE,
    "d": DELETE,
    "Delete": DELETE,
}
INSERTS = {"c", "I"}
LSN, PART = NestedField(6, "lsn", LongType()), NestedField(7, "part", DoubleType())


@dataclass(frozen=True)
class Case:
    """A table, a feed, and its events in tasks and batches."""

    table: dict[Key, Row]
    feed: ChangeFeed
    tasks: list[list[list[Row]]]


def event_rows() -> st.SearchStrategy[Row]:
    """Return an event of one of a few keys, in one of a few moments."""
    return st.fixed_dictionaries(
        {
            "op": st.sampled_from(sorted(WORDS)),
            "id": st.integers(-1, 2),
            "region": st.sampled_from(["", "EU", "ü" * 70]),
            "amount": st.integers(0, 10**6),
            "high": st.none() | st.just("x"),
            "lsn": st.none() | st.integers(-2, 40),
            "part": st.sampled_from([None, math.nan, -math.inf, -0.0, 0.0, 1.5]),
        }
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return any case; the table has some of the keys already."""
    is_enforced = draw(st.booleans())
    sequence = draw(st.sampled_from([(), (LSN,), (LSN,), (LSN, PART), (PART, LSN)]))
    tasks = draw(st.lists(st.lists(st.lists(event_rows(), max_size=8), max_size=3), min_size=1, max_size=4))
    held = draw(st.lists(st.tuples(st.integers(-1, 2), st.sampled_from(["", "EU", "ü" * 70])), unique=True))
    table = {key: {"id": key[0], "region": key[1], "amount": -1, "high": "old"} for key in held}
    return Case(table=table, feed=feed(sequence=sequence, is_enforced=is_enforced), tasks=tasks)


def compared(one: Any, other: Any) -> int:
    """Return -1, 0 or 1: nulls are the lowest, NaN the highest."""
    ranks = [(value is not None, isinstance(value, float) and math.isnan(value)) for value in (one, other)]
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if one is None or ranks[0][1] or one == other:
        return 0
    return -1 if one < other else 1


def order(change_feed: ChangeFeed) -> Any:
    """Return the key to sort events by."""
    names = [field.name for field in change_feed.sequence]

    def compare(one: Row, other: Row) -> int:
        return next((found for name in names if (found := compared(one[name], other[name]))), 0)

    return cmp_to_key(compare)


def candidates(events: Sequence[Row], change_feed: ChangeFeed) -> list[Row]:
    """Return the events of a key that may win: more than one is a tie, none but deletes is a delete."""
    key = order(change_feed)
    highest = max(map(key, events))
    last = [event for event in events if key(event) == highest]
    rest = [event for event in last if WORDS[event["op"]] != BEFORE] or last
    is_deleted = all(WORDS[event["op"]] != ROW for event in rest)
    return [] if is_deleted else rest


def stored(event: Row) -> Row:
    """Return the columns of the table."""
    return {name: event[name] for name in ("id", "region", "amount", "high")}


def by_key(case: Case) -> dict[Key, list[Row]]:
    """Return all events by key."""
    events: dict[Key, list[Row]] = defaultdict(list)
    for task in case.tasks:
        for event in (event for batch in task for event in batch):
            events[event["id"], event["region"]].append(event)
    return events


def decided(change_feed: ChangeFeed, batches: Sequence[pa.RecordBatch], number: int) -> TaskOutput:
    """Return what a task would write."""
    return run_task(change_feed, batches, partition_id=number)


def check(case: Case, run: Callable[[ChangeFeed, Sequence[pa.RecordBatch], int], TaskOutput] = decided) -> None:
    """Hold what becomes of the table against the events, key by key; `run` runs a task."""
    outputs = [run(case.feed, [sent(batch) for batch in task], number) for number, task in enumerate(case.tasks)]
    rows, settlement = commit(case.table, case.feed, outputs)
    events = by_key(case)
    found = {key: candidates(of_key, case.feed) for key, of_key in events.items()}
    ties = {key for key, rest in found.items() if len(rest) > 1}

    assert settlement.tied_count == (len(ties) if case.feed.is_enforced else 0)
    kept: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        kept[row["id"], row["region"]].append(row)
    for key, row in case.table.items():
        if key not in events:
            assert kept.pop(key) == [row]
    for key, rest in found.items():
        actual = kept.pop(key, [])
        if key in ties:
            assert len(actual) == 1
            assert actual[0] in [stored(event) for event in rest if WORDS[event["op"]] == ROW]
        else:
            assert actual == [stored(event) for event in rest]
    assert not kept


@given(cases())
def test_any_feed_makes_of_a_table_what_its_events_say(case: Case) -> None:
    """Rows would be lost, doubled or brought back, depending on how Spark laid them out."""
    check(case)


@given(cases())
def test_events_that_do_not_fit_in_memory_make_the_same(case: Case) -> None:
    """Large epochs would give other tables than small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "EVENT_BYTES", 0)
        patch.setattr(waiting, "ROW_BYTES", 0)
        patch.setattr(winners, "_MAX_WAITING", 1)
        check(case)


@given(cases(), st.sampled_from(sorted(LAYOUTS)), st.booleans())
def test_what_tasks_write_makes_the_same(case: Case, layout: str, has_little_memory: bool) -> None:  # noqa: FBT001  # drawn
    """Files would have other rows than those that win, or lie otherwise than the commit is told."""

    def in_files(change_feed: ChangeFeed, batches: Sequence[pa.RecordBatch], number: int) -> TaskOutput:
        return output_of(write(keyed_plan(Path(folder), change_feed, **LAYOUTS[layout]), batches, number))

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        if has_little_memory:
            patch.setattr(waiting, "EVENT_BYTES", 0)
            patch.setattr(waiting, "ROW_BYTES", 0)
        check(case, in_files)


@given(cases())
def test_inserts_known_to_be_new_make_the_same_of_a_table_without_them(case: Case) -> None:
    """An insert would hide, or not hide, rows of the table that it should."""
    inserted = {key for key, events in by_key(case).items() if any(event["op"] in INSERTS for event in events)}
    table = {key: row for key, row in case.table.items() if key not in inserted}
    check(Case(table=table, feed=feed(sequence=case.feed.sequence, trusts_inserts=True), tasks=case.tasks))


@given(cases(), st.randoms(use_true_random=False))
def test_the_layout_changes_nothing(case: Case, random: Any) -> None:
    """A repartition would change what is in the table."""
    events = [event for task in case.tasks for batch in task for event in batch]
    random.shuffle(events)
    moved = [[events[start::3]] for start in range(3)]

    check(Case(table=case.table, feed=case.feed, tasks=moved))


def test_a_key_has_many_events_in_one_task() -> None:
    """A hot key would fill the memory, or keep more rows than one."""
    rows = [{"op": "u", "id": 1, "region": "EU", "amount": lsn, "lsn": lsn} for lsn in range(5000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "EVENT_BYTES", 0)
        output = run_task(feed(), [sent(rows[start : start + 500]) for start in range(0, 5000, 500)])

    assert output.files == [[{"id": 1, "region": "EU", "amount": 4999, "high": None}]]
    assert output.deleted == {(1, "EU")}
    assert pa.ipc.open_stream(output.report.evidence).read_all().num_rows == 1
