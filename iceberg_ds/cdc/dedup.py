"""Pure: which event of a key wins, within a task and across the reports of several tasks; and those reports, as bytes.

Events are rows of one Arrow schema: the digest of the key, the key, the sequence, the rank, a number that breaks ties,
and other columns that the caller wants back. In sort order the last event of a key wins, and the event before it shows
whether the win is a tie. The digest only makes sorting fast: events are of one key if their keys are equal.

A task reports for each key: the digest; the key if it is short, or if no file has a row of it; the sequence and the
rank of the event that won in the task, and whether the win is a tie. Digests do not compress: a message grows by 9
bytes per key, plus the bytes of the sequence and of a short key. Knows only Arrow and the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from iceberg_ds.cdc.keys import DIGEST, plain_type, same_rows
from iceberg_ds.table.arrow_schema import one_batch
from iceberg_ds.table.sort_order import RowOrder

KEY_PREFIX, RANK, NUMBER = "key_", "rank", "number"
# From this many keys on, digests are searched in parts, by their first bits, so that each part fits in a cache.
_MANY = 100_000
_FIRST_BITS = 56
# Events of one key that wait for more events of it, before all but the two that count are released.
_MAX_WAITING = 1000
IS_TIED = "is_tied"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class Rank(IntEnum):
    """Precedence among events of one sequence."""

    BEFORE = 0
    DELETE = 1
    ROW = 2


def key_names(keys: Sequence[object]) -> list[str]:
    """Return the names of an event's key columns."""
    return [f"{KEY_PREFIX}{number}" for number in range(len(keys))]


def sequence_names(sequence: Sequence[NestedField]) -> list[str]:
    """Return the names of an event's sequence columns."""
    return [f"sequence_{number}" for number in range(len(sequence))]


def event_order(keys: Sequence[NestedField], sequence: Sequence[NestedField]) -> RowOrder:
    """Return the order of events: key by key, the winner last.

    Events have these columns first: the digest, the key, the sequence, rank and number.
    """
    types = [LongType(), *(field.field_type for field in (*keys, *sequence)), IntegerType(), LongType()]
    names = [DIGEST, *key_names(keys), *sequence_names(sequence), RANK, NUMBER]
    fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(zip(names, types, strict=True), 1)]
    order = [
        SortField(field.field_id, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST) for field in fields
    ]
    return RowOrder(SortOrder(*order), Schema(*fields))


def sort_events(events: pa.RecordBatch, order: RowOrder) -> pa.RecordBatch:
    """Return events in the order of `event_order`."""
    return events.take(order.positions(order.keys(events)))


def repeated(digests: pa.Array) -> pa.Array | None:
    """Return which events have a digest that occurs more than once, or None if no digest does."""
    if not _has_repeated(digests):
        return None
    counted = pc.value_counts(digests)
    several = counted.field("values").filter(pc.greater(counted.field("counts"), pa.scalar(1, pa.int64())))
    return pc.is_in(digests, value_set=several)


def _has_repeated(digests: pa.Array) -> bool:
    if len(digests) < _MANY:
        return len(pc.unique(digests)) < len(digests)
    parts = pc.shift_right(digests, pa.scalar(_FIRST_BITS, pa.uint64())).cast(pa.uint8())
    order = pc.array_sort_indices(parts)
    clustered, start = digests.take(order), 0
    for end in pc.run_end_encode(parts.take(order)).run_ends.to_pylist():
        if len(pc.unique(clustered.slice(start, end - start))) < end - start:
            return True
        start = end
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Winners and losers among the events of some keys.

    Attributes:
        winners: The winning event of each key.
        is_tied: For each winner, whether another event might have won as well.
        losers: All other events.
        is_any: For each winner, whether the flag is set in any event of the key; None if no flag was asked for.
    """

    winners: pa.RecordBatch
    is_tied: pa.Array
    losers: pa.RecordBatch
    is_any: pa.Array | None = None


def decide(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str], sequence: Sequence[str], flag: str | None = None
) -> Iterator[Decision]:
    """Yield winners and losers, from events in the order of `event_order`.

    Args:
        batches: The events; those of one key may lie in several batches.
        keys: Names of the key columns.
        sequence: Names of the sequence columns.
        flag: Name of a boolean column to combine over all events of a key, or None.
    """
    waiting: pa.RecordBatch | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        events = batch if waiting is None else one_batch([waiting, batch])
        ends = _ends([events.column(name) for name in (DIGEST, *keys)])
        complete = pc.indices_nonzero(ends)[-1].as_py() + 1 if ends.true_count else 0
        if complete:
            yield _decide(events.slice(0, complete), ends.slice(0, complete), [DIGEST, *keys, *sequence], flag)
        waiting = events.slice(complete)
        if waiting.num_rows > _MAX_WAITING:
            let_go, waiting = _shortened(waiting, flag)
            yield let_go
    if waiting is not None and waiting.num_rows:
        yield _decide(waiting, _last_only(waiting.num_rows), [DIGEST, *keys, *sequence], flag)


def _decide(events: pa.RecordBatch, ends: pa.Array, shared: Sequence[str], flag: str | None) -> Decision:
    """Return the decision; `ends` marks the last event of each key, and tied events agree in all `shared` columns."""
    positions = pc.indices_nonzero(ends).cast(pa.int64())
    winners = events.take(positions)
    previous = pc.max_element_wise(pc.subtract(positions, pa.scalar(1, pa.int64())), pa.scalar(0, pa.int64()))
    before = events.take(previous)
    is_tied = pc.and_(
        pc.equal(winners.column(RANK), pa.scalar(Rank.ROW, pa.int32())),
        pc.greater(before.column(RANK), pa.scalar(Rank.BEFORE, pa.int32())),
    )
    is_tied = pc.and_(is_tied, pc.less(previous, positions))
    alike = same_rows([winners.column(name) for name in shared], [before.column(name) for name in shared])
    return Decision(
        winners=winners,
        is_tied=pc.and_(is_tied, alike),
        losers=events.filter(pc.invert(ends)),
        is_any=None if flag is None else _is_any(events.column(flag), positions),
    )


def _is_any(flags: pa.Array, ends: pa.Array) -> pa.Array:
    counted = pc.cumulative_sum(flags.cast(pa.int64())).take(ends)
    earlier = pa.concat_arrays([pa.array([0], pa.int64()), counted.slice(0, len(counted) - 1)])
    return pc.greater(counted, earlier)


def _shortened(events: pa.RecordBatch, flag: str | None) -> tuple[Decision, pa.RecordBatch]:
    """Release all but the last two of a key's events; only these two count, and they get the flag of all events."""
    kept = events.slice(events.num_rows - 2)
    if flag is not None:
        is_set = events.column(flag).true_count > 0
        kept = kept.set_column(kept.schema.get_field_index(flag), flag, pa.repeat(is_set, kept.num_rows))
    let_go = Decision(
        winners=events.slice(0, 0),
        is_tied=pa.array([], pa.bool_()),
        losers=events.slice(0, events.num_rows - 2),
        is_any=None if flag is None else pa.array([], pa.bool_()),
    )
    return let_go, pa.RecordBatch.from_arrays(kept.columns, schema=events.schema)


def _ends(columns: Sequence[pa.Array]) -> pa.Array:
    """Return for each row whether the next row differs; false for the last row, whose next row is unknown."""
    length = len(columns[0])
    before, after = ([column.slice(start, length - 1) for column in columns] for start in (0, 1))
    return pa.concat_arrays([pc.invert(same_rows(before, after)), pa.array([False])])


def _last_only(length: int) -> pa.Array:
    return pa.concat_arrays([pa.repeat(pa.scalar(value=False), length - 1), pa.array([True])])


def key_report_schema(keys: Sequence[pa.Field], sequence: Sequence[pa.Field]) -> pa.Schema:
    """Return the schema of a key report; a key is null where it must be read from the written row."""
    plain_keys = [field.with_type(plain_type(field.type)) for field in keys]
    outcome = [pa.field(RANK, pa.int8()), pa.field(IS_TIED, pa.bool_())]
    return pa.schema([pa.field(DIGEST, pa.uint64()), *plain_keys, *sequence, *outcome])


def encode_key_report(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """Return a key report, of `key_report_schema`, as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_OPTIONS) as stream:
        for batch in batches:
            stream.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decode_key_report(content: bytes) -> pa.Table:
    """Return the key report that `encode_key_report` made."""
    return pa.ipc.open_stream(content).read_all()
