"""Pure: which rows of a write lose to what other tasks say of the same keys.

Only tasks that may share keys are held against each other (`spark_hash.can_share`); of these each must have sent
evidence. What wins among them follows the very rule by which a task chooses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField

from iceberg_ds.changes.digests import HIGH, LOW, Digests
from iceberg_ds.changes.evidence import decode_evidence
from iceberg_ds.changes.spark_hash import can_share
from iceberg_ds.changes.values import MAX_EXAMPLES, TaskKeys
from iceberg_ds.changes.winners import (
    NUMBER,
    RANK,
    Rank,
    decide,
    event_order,
    repeated,
    sequence_names,
    sort_events,
)

_TASK = "task"
_PLACE_BITS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What tasks' reports come to.

    Attributes:
        losers: By the task's number: which of its written rows lose, counted from 0 over all of its files, ascending.
        tied_count: How many keys have no winner, if ties are errors.
        tied_keys: Some of them as text.
        tied_rows: Others of them, by task and number of a row that has the key.
        unproven: Numbers of tasks that may share keys with others and did not report them, so that nothing can be said.
        unreported: Numbers of tasks that did not report their keys, though some keys lose to rows of the table.
    """

    losers: Mapping[int, Sequence[int]]
    tied_count: int = 0
    tied_keys: tuple[str, ...] = ()
    tied_rows: tuple[tuple[int, int], ...] = ()
    unproven: tuple[int, ...] = ()
    unreported: tuple[int, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether it can be said which rows lose."""
        return not (self.unproven or self.unreported)


def settle(
    tasks: Sequence[TaskKeys],
    sequence: Sequence[NestedField],
    *,
    is_enforced: bool,
    keeps_deleted: bool = False,
    late: Digests | None = None,
) -> Settlement:
    """Return which written rows lose, and what prevents the commit.

    Args:
        tasks: The reports, in the order of the tasks' numbers from 0.
        sequence: The feed's sequence columns.
        is_enforced: Whether ties are errors.
        keeps_deleted: Whether deletes leave rows, so that every key that is reported has one.
        late: Keys whose events lose to rows of the table, whatever they are; None for none.
    """
    sharing = _tasks_that_share(tasks)
    if unproven := tuple(number for number in sharing if tasks[number].evidence is None):
        return Settlement(losers={}, unproven=unproven)
    silent = tuple(number for number, task in enumerate(tasks) if task.count and task.evidence is None)
    if late is not None and silent:
        return Settlement(losers={}, unreported=silent)
    needed = sharing if late is None else range(len(tasks))
    events = {number: _events(number, content) for number in needed if (content := tasks[number].evidence) is not None}
    lowest_row = Rank.BEFORE if keeps_deleted else Rank.ROW
    found = _collide([events[number] for number in sharing], sequence, lowest_row)
    losers = (
        found.losers if late is None else _joined(found.losers, _late_rows(list(events.values()), late, lowest_row))
    )
    if not is_enforced:
        return Settlement(losers=losers)
    # A tie for nothing is none.
    lost = _pairs(late) if late is not None and any((found.tied, *(task.tied for task in tasks))) else set()
    between = [place for digest, place in found.tied.items() if digest not in lost]
    own = [
        tied.text
        for number, task in enumerate(tasks)
        for tied in task.tied
        if found.winning_task.get(tied.digest, number) == number
        and tied.digest not in found.tied
        and tied.digest not in lost
    ]
    unnamed = sum(task.tied_count - len(task.tied) for task in tasks)
    return Settlement(
        losers=losers,
        tied_count=len(between) + len(own) + unnamed,
        tied_keys=tuple(own[:MAX_EXAMPLES]),
        tied_rows=tuple(between[: MAX_EXAMPLES - len(own[:MAX_EXAMPLES])]),
    )


def file_positions(rows: Sequence[int], file_rows: Sequence[int]) -> dict[int, list[int]]:
    """Return where rows of a task lie: positions in the file, by the number of the file, both from 0.

    Args:
        rows: Numbers of rows over all files, ascending.
        file_rows: How many rows each file has.
    """
    found: dict[int, list[int]] = defaultdict(list)
    file, start = 0, 0
    for row in rows:
        while row >= start + file_rows[file]:
            start += file_rows[file]
            file += 1
        found[file].append(row - start)
    return dict(found)


def _tasks_that_share(tasks: Sequence[TaskKeys]) -> list[int]:
    """Return the numbers of tasks that may have a key of another one."""
    with_keys = [(number, task.modulus) for number, task in enumerate(tasks) if task.count]
    if all(modulus % len(tasks) == 0 for _, modulus in with_keys):
        return []  # the layout of one repartition by key: nobody need be held against anybody
    return [one[0] for one in with_keys if any(one[0] != other[0] and can_share(one, other) for other in with_keys)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collisions:
    """What colliding digests come to: rows that lose, the task that wins each key, and ties between tasks."""

    losers: Mapping[int, Sequence[int]]
    winning_task: Mapping[tuple[int, int], int]
    tied: Mapping[tuple[int, int], tuple[int, int]]


def _collide(reported: Sequence[pa.Table], sequence: Sequence[NestedField], lowest_row: Rank) -> _Collisions:
    """Return what colliding digests come to; what has `lowest_row` or a higher rank was written as a row."""
    losers: dict[int, list[int]] = defaultdict(list)
    winning: dict[tuple[int, int], int] = {}
    tied: dict[tuple[int, int], tuple[int, int]] = {}
    events = _colliding_events(reported)
    order = event_order(sequence)
    for decision in decide([sort_events(events, order)] if events is not None else [], sequence_names(sequence)):
        lost = decision.losers.filter(pc.greater_equal(decision.losers.column(RANK), pa.scalar(lowest_row, pa.int32())))
        for task, rows in _by_task(lost.column(NUMBER)).items():
            losers[task] += rows
        columns = (decision.winners.column(name).to_pylist() for name in (HIGH, LOW, NUMBER))
        for high, low, place, is_tied in zip(*columns, decision.is_tied.to_pylist(), strict=True):
            winning[high, low] = place >> _PLACE_BITS
            if is_tied:
                tied[high, low] = (place >> _PLACE_BITS, place & ((1 << _PLACE_BITS) - 1))
    return _Collisions(
        losers={task: sorted(rows) for task, rows in sorted(losers.items())}, winning_task=winning, tied=tied
    )


def _late_rows(reported: Sequence[pa.Table], late: Digests, lowest_row: Rank) -> dict[int, list[int]]:
    """Return, by task, the written rows of keys that lose to rows of the table."""
    if not reported:
        return {}
    events = pa.concat_tables([part.select([HIGH, LOW, RANK, NUMBER]) for part in reported])
    keys = pa.table({HIGH: late.high, LOW: late.low})
    lost = events.join(keys, keys=[HIGH, LOW], join_type="left semi")
    is_row = pc.greater_equal(lost.column(RANK), pa.scalar(lowest_row, pa.int32()))
    return _by_task(lost.column(NUMBER).filter(is_row).combine_chunks())


def _by_task(places: pa.Array) -> dict[int, list[int]]:
    """Return the rows at these places by task, ascending."""
    found: dict[int, list[int]] = defaultdict(list)
    for place in places.sort().to_pylist():
        found[place >> _PLACE_BITS].append(place & ((1 << _PLACE_BITS) - 1))
    return dict(found)


def _pairs(digests: Digests) -> set[tuple[int, int]]:
    return set(zip(digests.high.to_pylist(), digests.low.to_pylist(), strict=True))


def _joined(one: Mapping[int, Sequence[int]], other: Mapping[int, Sequence[int]]) -> Mapping[int, Sequence[int]]:
    if not one:  # as it is but for keys that Spark and the table tell apart in different ways
        return other
    return {task: sorted({*one.get(task, ()), *other.get(task, ())}) for task in sorted({*one, *other})}


def _colliding_events(reported: Sequence[pa.Table]) -> pa.RecordBatch | None:
    """Return those of the events whose keys several tasks may have."""
    if not reported:
        return None
    batches = pa.concat_tables(reported).combine_chunks().to_batches()
    if not batches:
        return None
    (events,) = batches
    several = repeated(events.column(HIGH))
    return None if several is None else events.filter(several)


def _events(task: int, content: bytes) -> pa.Table:
    """Return as events what a task reports; the number says task and row."""
    table = decode_evidence(content)
    first = task << _PLACE_BITS
    places = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), table.num_rows), start=first - 1)
    ranks = table.column(RANK).cast(pa.int32())
    return table.set_column(table.schema.get_field_index(RANK), RANK, ranks).append_column(NUMBER, places)
