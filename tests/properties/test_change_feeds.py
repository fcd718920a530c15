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
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField
from support.keys.change_feeds import ADDED, MARKED, SCHEMA, Key, Row, TaskOutput, commit, feed, run_task, sent
from support.keys.colliding_digests import one_digest
from support.keys.writes import LAYOUTS, keyed_plan, output_of, write

from iceberg_ds.cdc import dedup, task_changes
from iceberg_ds.plan import AddedColumns, ChangeFeed

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
NAMES = {"c": "insert", "I": "insert", "+U": "update", "update_postimage": "update", "d": "delete", "Delete": "delete"}
LSN, PART = NestedField(6, "lsn", LongType()), NestedField(7, "part", DoubleType())


@dataclass(frozen=True)
class Case:
    """A table, a feed, and its events in tasks and batches."""

    table: dict[Key, Row]
    feed: ChangeFeed
    tasks: list[list[list[Row]]]

    @property
    def schema(self) -> Schema:
        """The columns of the table."""
        return MARKED if self.feed.keeps_deleted else SCHEMA

    @property
    def added(self) -> AddedColumns | None:
        """What tasks fill in."""
        return ADDED if self.feed.keeps_deleted else None


def event_rows() -> st.SearchStrategy[Row]:
    """Return an event of one of a few keys, in one of a few moments."""
    return st.fixed_dictionaries(
        {
            "op": st.sampled_from(sorted(WORDS)),
            "id": st.integers(-1, 2),
            "region": st.sampled_from(["", "EU", "ü" * 70]),
            "amount": st.integers(0, 10**6),
            "digest": st.none() | st.just("x"),
            "lsn": st.none() | st.integers(-2, 40),
            "part": st.sampled_from([None, math.nan, -math.inf, -0.0, 0.0, 1.5]),
        }
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return any case; the table has some of the keys already."""
    is_enforced, keeps_deleted = draw(st.booleans()), draw(st.booleans())
    sequence = draw(st.sampled_from([(), (LSN,), (LSN,), (LSN, PART), (PART, LSN)]))
    tasks = draw(st.lists(st.lists(st.lists(event_rows(), max_size=8), max_size=3), min_size=1, max_size=4))
    held = draw(st.lists(st.tuples(st.integers(-1, 2), st.sampled_from(["", "EU", "ü" * 70])), unique=True))
    table = {key: {"id": key[0], "region": key[1], "amount": -1, "digest": "old"} for key in held}
    if keeps_deleted:
        table = {key: {**row, "gone": len(row["region"]) > 2, "_operation": None} for key, row in table.items()}
    changed = {"sequence": sequence, "is_enforced": is_enforced, "keeps_deleted": keeps_deleted}
    return Case(table=table, feed=feed(**changed), tasks=tasks)


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
    """Return the events of a key of which one leaves its row: none of a delete, unless deletes leave rows, too."""
    key = order(change_feed)
    highest = max(map(key, events))
    last = [event for event in events if key(event) == highest]
    rest = [event for event in last if WORDS[event["op"]] != BEFORE] or last
    is_deleted = all(WORDS[event["op"]] != ROW for event in rest)
    return [] if is_deleted and not change_feed.keeps_deleted else rest


def is_tie(rest: Sequence[Row]) -> bool:
    """Return whether nobody knows which of these wins; among deletes it does not matter."""
    return len(rest) > 1 and any(WORDS[event["op"]] == ROW for event in rest)


def stored(event: Row, change_feed: ChangeFeed) -> Row:
    """Return the columns of the table."""
    row = {name: event[name] for name in ("id", "region", "amount", "digest")}
    if not change_feed.keeps_deleted:
        return row
    return {**row, "gone": WORDS[event["op"]] != ROW, "_operation": NAMES.get(event["op"], "update_before")}


def by_key(case: Case) -> dict[Key, list[Row]]:
    """Return all events by key."""
    events: dict[Key, list[Row]] = defaultdict(list)
    for task in case.tasks:
        for event in (event for batch in task for event in batch):
            events[event["id"], event["region"]].append(event)
    return events


def decided(case: Case, batches: Sequence[pa.RecordBatch], number: int) -> TaskOutput:
    """Return what a task would write."""
    return run_task(case.feed, batches, partition_id=number, schema=case.schema, added=case.added)


def check(case: Case, run: Callable[[Case, Sequence[pa.RecordBatch], int], TaskOutput] = decided) -> None:
    """Hold what becomes of the table against the events, key by key; `run` runs a task."""
    outputs = [run(case, [sent(batch) for batch in task], number) for number, task in enumerate(case.tasks)]
    rows, duplicates = commit(case.table, case.feed, outputs)
    events = by_key(case)
    found = {key: candidates(of_key, case.feed) for key, of_key in events.items()}
    ties = {key for key, rest in found.items() if is_tie(rest)}

    assert duplicates.tied_count == (len(ties) if case.feed.is_enforced else 0)
    kept: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        kept[row["id"], row["region"]].append(row)
    for key, row in case.table.items():
        if key not in events:
            assert kept.pop(key) == [row]
    for key, rest in found.items():
        actual = kept.pop(key, [])
        may_win = [event for event in rest if WORDS[event["op"]] == ROW] if key in ties else rest
        assert len(actual) == min(len(may_win), 1)
        assert all(row in [stored(event, case.feed) for event in may_win] for row in actual)
    assert not kept


@given(cases())
def test_any_feed_makes_of_a_table_what_its_events_say(case: Case) -> None:
    """Rows would be lost, doubled or brought back, depending on how Spark laid them out."""
    check(case)


@given(cases())
def test_events_that_do_not_fit_in_memory_make_the_same(case: Case) -> None:
    """Large epochs would give other tables than small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_changes, "EVENT_BYTES", 0)
        patch.setattr(task_changes, "ROW_BYTES", 0)
        patch.setattr(dedup, "_MAX_WAITING", 1)
        check(case)


@given(cases(), st.booleans())
def test_digests_that_all_meet_change_nothing(case: Case, has_little_memory: bool) -> None:  # noqa: FBT001  # drawn
    """Rows of one key would be lost to another key, by chance or because somebody made their digests equal."""
    with one_digest(), pytest.MonkeyPatch.context() as patch:
        if has_little_memory:
            patch.setattr(task_changes, "EVENT_BYTES", 0)
            patch.setattr(dedup, "_MAX_WAITING", 1)
        check(case)


@given(cases(), st.sampled_from(sorted(LAYOUTS)), st.booleans())
def test_what_tasks_write_makes_the_same(case: Case, layout: str, has_little_memory: bool) -> None:  # noqa: FBT001  # drawn
    """Files would have other rows than those that win, or lie otherwise than the commit is told."""

    def in_files(case: Case, batches: Sequence[pa.RecordBatch], number: int) -> TaskOutput:
        plan = keyed_plan(Path(folder), case.feed, schema=case.schema, added=case.added, **LAYOUTS[layout])
        return output_of(write(plan, batches, number), case.schema)

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        if has_little_memory:
            patch.setattr(task_changes, "EVENT_BYTES", 0)
            patch.setattr(task_changes, "ROW_BYTES", 0)
        check(case, in_files)


@given(cases())
def test_inserts_known_to_be_new_make_the_same_of_a_table_without_them(case: Case) -> None:
    """An insert would hide, or not hide, rows of the table that it should."""
    inserted = {key for key, events in by_key(case).items() if any(event["op"] in INSERTS for event in events)}
    names = [field.name for field in SCHEMA.fields]
    rows = {key: row for key, row in case.table.items() if key not in inserted}
    table = {key: {name: row[name] for name in names} for key, row in rows.items()}
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
        patch.setattr(task_changes, "EVENT_BYTES", 0)
        output = run_task(feed(), [sent(rows[start : start + 500]) for start in range(0, 5000, 500)])

    assert output.files == [[{"id": 1, "region": "EU", "amount": 4999, "digest": None}]]
    assert output.deleted == {(1, "EU")}
    assert pa.ipc.open_stream(output.report.key_report).read_all().num_rows == 1
