"""Pure: which written rows lose to other tasks' events of the same keys, and why a write must be refused for its keys.

Only tasks that may share keys are compared (`spark_hash.can_share`); each such task must have sent a report. Digests
tell which events to compare; then the keys of these events are compared, read from the written rows where the report
lacks them. The winner is chosen by the same rule as within a task (`dedup`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField

from iceberg_ds.cdc.dedup import (
    IS_TIED,
    KEY_PREFIX,
    NUMBER,
    RANK,
    Rank,
    decide,
    decode_key_report,
    event_order,
    repeated,
    sequence_names,
    sort_events,
)
from iceberg_ds.cdc.keys import DIGEST, numbered, numbers_from
from iceberg_ds.cdc.row_kind import count_words, describe_words
from iceberg_ds.cdc.spark_hash import can_share
from iceberg_ds.plan import MAX_EXAMPLES, TaskKeys

_IS_LATE = "is_late"
_PLACE_BITS = 40

# Returns the key columns of written rows in the form of `keys.plain`, from the task's number and the rows' numbers
# over all files of the task, ascending.
ReadKeys: TypeAlias = Callable[[int, Sequence[int]], Sequence[pa.Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossTaskDuplicates:
    """Outcome of deduplication across tasks.

    Attributes:
        losers: Written rows that lose, by task number: row numbers from 0 over all files of the task, ascending.
        tied_count: How many keys have no winner, if ties are errors.
        tied_keys: Some of the tied keys, as text.
        tied_rows: Other tied keys, each as the task number and row number of a row that has the key.
        unproven: Numbers of tasks that may share keys with other tasks and did not report them: losers are unknown.
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
        """Whether the losing rows are known."""
        return not (self.unproven or self.unreported)


def find_duplicates(  # noqa: PLR0913  # most are given by name
    tasks: Sequence[TaskKeys],
    sequence: Sequence[NestedField],
    *,
    read_keys: ReadKeys,
    is_enforced: bool,
    keeps_deleted: bool = False,
    late: pa.Table | None = None,
) -> CrossTaskDuplicates:
    """Return which written rows lose, and what prevents the commit.

    Args:
        tasks: The reports, in the order of the tasks' numbers from 0.
        sequence: The feed's sequence columns.
        read_keys: Reads the keys of written rows.
        is_enforced: Whether ties are errors.
        keeps_deleted: Whether deletes leave rows, so that every reported key has a row.
        late: Digests and keys, in the form of `keys.plain`, all of whose events lose to rows of the table; None for
            no such keys.
    """
    sharing = _tasks_that_share(tasks)
    if unproven := tuple(number for number in sharing if tasks[number].key_report is None):
        return CrossTaskDuplicates(losers={}, unproven=unproven)
    silent = tuple(number for number, task in enumerate(tasks) if task.count and task.key_report is None)
    if late is not None and silent:
        return CrossTaskDuplicates(losers={}, unreported=silent)
    needed = sharing if late is None else range(len(tasks))
    events = {
        number: _events(number, content) for number in needed if (content := tasks[number].key_report) is not None
    }
    lowest_row = Rank.BEFORE if keeps_deleted else Rank.ROW
    doubtful = _with_keys(_doubtful(events, sharing, late), read_keys)
    outcome = _compare(doubtful, late, sequence)
    losers = {} if outcome is None else _by_task(_written(outcome.lost, lowest_row))
    if not is_enforced:
        return CrossTaskDuplicates(losers=losers)
    tied = _tied_places(events.values(), outcome)
    apart = [task for number, task in enumerate(tasks) if number not in events]
    texts = [text for task in apart for text in task.tied_keys][:MAX_EXAMPLES]
    return CrossTaskDuplicates(
        losers=losers,
        tied_count=len(tied) + sum(task.tied_count for task in apart),
        tied_keys=tuple(texts),
        tied_rows=tuple(map(_task_and_row, tied.slice(0, MAX_EXAMPLES - len(texts)).to_pylist())),
    )


def file_positions(rows: Sequence[int], file_rows: Sequence[int]) -> dict[int, list[int]]:
    """Return the positions of a task's rows in their files, by the number of the file, both from 0.

    Args:
        rows: Numbers of the rows, from 0 over all files, ascending.
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
    """Return the numbers of tasks that may have a key of another task."""
    with_keys = [(number, task.modulus) for number, task in enumerate(tasks) if task.count]
    if all(modulus % len(tasks) == 0 for _, modulus in with_keys):
        return []  # the layout of one repartition by key: no two tasks share a key
    return [one[0] for one in with_keys if any(one[0] != other[0] and can_share(one, other) for other in with_keys)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Outcome of comparing the events of equal keys.

    Attributes:
        lost: Events that lose to events of other tasks or to rows of the table; each once.
        tied: Places of winners that tie with another task's event and are not late.
    """

    lost: pa.RecordBatch
    tied: pa.Array


def _doubtful(events: Mapping[int, pa.Table], sharing: Sequence[int], late: pa.Table | None) -> pa.RecordBatch | None:
    """Return the events whose digests occur in several tasks or in late keys, in the order of their places."""
    several = _several([chunk for number in sharing for chunk in events[number].column(DIGEST).chunks])
    of_late = [] if late is None else late.column(DIGEST).chunks
    chosen = []
    for number, reported in events.items():
        wanted = pa.concat_arrays([*([several] if number in sharing else []), *of_late, several.slice(0, 0)])
        if len(wanted):
            chosen.append(reported.filter(pc.is_in(reported.column(DIGEST), value_set=wanted)))
    batches = pa.concat_tables(chosen).combine_chunks().to_batches() if chosen else []
    return batches[0] if batches else None


def _several(digests: Sequence[pa.Array]) -> pa.Array:
    """Return the digests that occur more than once."""
    together = pa.concat_arrays([*digests, pa.array([], pa.uint64())])
    is_repeated = repeated(together)
    return together.slice(0, 0) if is_repeated is None else pc.unique(together.filter(is_repeated))


def _with_keys(doubtful: pa.RecordBatch | None, read_keys: ReadKeys) -> pa.RecordBatch | None:
    """Return the events, with the keys filled in that reports lack."""
    if doubtful is None:
        return None
    names = _key_columns(doubtful.schema)
    is_unsaid = doubtful.column(names[0]).is_null()
    if not is_unsaid.true_count:
        return doubtful
    rows = _by_task(doubtful.column(NUMBER).filter(is_unsaid))
    read = [read_keys(task, numbers) for task, numbers in rows.items()]
    for name, parts in zip(names, zip(*read, strict=True), strict=True):
        filled = pc.replace_with_mask(doubtful.column(name), is_unsaid, pa.concat_arrays(parts))
        doubtful = doubtful.set_column(doubtful.schema.get_field_index(name), name, filled)
    return doubtful


def _compare(
    doubtful: pa.RecordBatch | None, late: pa.Table | None, sequence: Sequence[NestedField]
) -> _Outcome | None:
    """Return the outcome of comparing events with equal keys, or None if no event is in doubt."""
    if doubtful is None:
        return None
    names = _key_columns(doubtful.schema)
    keys = pa.table({name: doubtful.column(name) for name in names})
    if late is not None:
        keys = pa.concat_tables([keys, late.select(names)])
    numbers = numbered([column.combine_chunks() for column in keys.columns])
    ours, of_late = numbers.slice(0, doubtful.num_rows), numbers.slice(doubtful.num_rows)
    is_late = pc.is_in(ours, value_set=of_late)
    # The number of the key stands where the digest was.
    ordered = [*sequence_names(sequence), RANK, NUMBER]
    events = pa.RecordBatch.from_arrays(
        [ours, *(doubtful.column(name) for name in ordered), is_late], names=[DIGEST, *ordered, _IS_LATE]
    )
    lost, tied = [events.filter(is_late)], []
    for decision in decide([sort_events(events, event_order([], sequence))], [], sequence_names(sequence)):
        lost.append(decision.losers.filter(pc.invert(decision.losers.column(_IS_LATE))))
        is_tied = pc.and_not(decision.is_tied, decision.winners.column(_IS_LATE))
        tied.append(decision.winners.column(NUMBER).filter(is_tied))
    (all_lost,) = pa.Table.from_batches(lost).combine_chunks().to_batches() or [events.slice(0, 0)]
    return _Outcome(lost=all_lost, tied=pa.concat_arrays(tied))


def _written(events: pa.RecordBatch, lowest_row: Rank) -> pa.Array:
    """Return the places of the events that were written as rows, those of `lowest_row` or a higher rank."""
    return events.column(NUMBER).filter(pc.greater_equal(events.column(RANK), pa.scalar(lowest_row, pa.int32())))


def _tied_places(events: Iterable[pa.Table], outcome: _Outcome | None) -> pa.Array:
    """Return the places of ties for the win, of one task or of several, ascending."""
    own = [reported.column(NUMBER).filter(reported.column(IS_TIED)).combine_chunks() for reported in events]
    places = pa.concat_arrays([*own, pa.array([], pa.int64())])
    if outcome is not None:
        left = places.filter(pc.invert(pc.is_in(places, value_set=outcome.lost.column(NUMBER))))
        places = pc.unique(pa.concat_arrays([left, outcome.tied]))
    return places.sort()


def _by_task(places: pa.Array) -> dict[int, list[int]]:
    """Return the rows at these places by task, both ascending."""
    found: dict[int, list[int]] = defaultdict(list)
    for task, row in map(_task_and_row, places.sort().to_pylist()):
        found[task].append(row)
    return dict(found)


def _task_and_row(place: int) -> tuple[int, int]:
    return place >> _PLACE_BITS, place & ((1 << _PLACE_BITS) - 1)


def _key_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the key columns, which stand between the digest and the sequence."""
    return [name for name in schema.names if name.startswith(KEY_PREFIX)]


def _events(task: int, content: bytes) -> pa.Table:
    """Return a key report as events; the number of an event encodes task and row."""
    table = decode_key_report(content)
    places = numbers_from(task << _PLACE_BITS, table.num_rows)
    ranks = table.column(RANK).cast(pa.int32())
    return table.set_column(table.schema.get_field_index(RANK), RANK, ranks).append_column(NUMBER, places)


def why_refused(tasks: Sequence[TaskKeys], duplicates: CrossTaskDuplicates, key_names: Sequence[str]) -> list[str]:
    """Return the reasons to refuse the write, each with its next step; empty if the write may be committed.

    Args:
        tasks: The reports of all tasks.
        duplicates: Outcome of deduplication across these tasks.
        key_names: Names of the key columns.
    """
    return [
        *_null_keys(tasks),
        *_unknown_operations(tasks),
        *_ties(duplicates),
        *_unproven(tasks, duplicates, key_names),
        *_unreported(tasks, duplicates),
    ]


def _null_keys(tasks: Sequence[TaskKeys]) -> list[str]:
    count = sum(task.null_keys.count for task in tasks)
    examples = [text for task in tasks for text in task.null_keys.examples][:MAX_EXAMPLES]
    if not count:
        return []
    return [f"{count} rows have a null in a key column ({'; '.join(examples)}): filter them, or choose other keys"]


def _unknown_operations(tasks: Sequence[TaskKeys]) -> list[str]:
    words: Counter[str] = Counter()
    for task in tasks:
        count_words(words, dict(task.unknown_operations))
    if not words:
        return []
    named = ", ".join(f"{word} ({count} rows)" for word, count in words.most_common())
    return [f"the operation column has {named}, and known words are {describe_words()}: filter or translate them"]


def _ties(duplicates: CrossTaskDuplicates) -> list[str]:
    if not duplicates.tied_count:
        return []
    examples = f" ({'; '.join(duplicates.tied_keys)})" if duplicates.tied_keys else ""
    reason = (
        f"{duplicates.tied_count} keys have several rows, and none comes last{examples}: give sequence-by=... with "
        "columns that order them, or keys-not-enforced=true if any of them will do"
    )
    return [reason]


def _unproven(tasks: Sequence[TaskKeys], duplicates: CrossTaskDuplicates, key_names: Sequence[str]) -> list[str]:
    if not duplicates.unproven:
        return []
    number = duplicates.unproven[0]
    named = ", ".join(repr(name) for name in key_names)
    reason = (
        f"{len(duplicates.unproven)} tasks (such as {number}, with {tasks[number].count} keys) have too many keys to "
        "compare and may have keys that others have, too: distribute the rows by key with "
        f"iceberg_ds.distribute(df, keys=[{named}])"
    )
    return [reason]


def _unreported(tasks: Sequence[TaskKeys], duplicates: CrossTaskDuplicates) -> list[str]:
    if not duplicates.unreported:
        return []
    number = duplicates.unreported[0]
    reason = (
        f"{len(duplicates.unreported)} tasks (such as {number}, with {tasks[number].count} keys) have too many keys to "
        "tell which of their rows are late: write fewer rows at once, or with more tasks (spark.default.parallelism)"
    )
    return [reason]
