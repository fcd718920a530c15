"""The changes of one task: from the batches that Spark sends to rows to write and keys to delete.

Rows wait until all have come, because only then are the winners known: in memory as long as they are few, then on disk
in a `Sorter` or `Store` that the caller supplies. Knows neither files nor Spark, and commits nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from iceberg_ds.cdc.dedup import (
    IS_TIED,
    NUMBER,
    Decision,
    decide,
    encode_key_report,
    event_order,
    key_names,
    repeated,
    sequence_names,
    sort_events,
)
from iceberg_ds.cdc.keys import DIGEST, numbers_from
from iceberg_ds.cdc.reader import IS_KNOWN, DeleteTest, FeedReader, key_texts
from iceberg_ds.cdc.spark_hash import LayoutProof
from iceberg_ds.plan import MAX_EXAMPLES, AddedColumns, ChangeFeed, TaskKeys
from iceberg_ds.table.sort_order import RowOrder

# Most Arrow bytes of events that are decided in memory, and of rows that wait there.
EVENT_BYTES = 64 * 1024 * 1024
ROW_BYTES = 64 * 1024 * 1024
# Most keys that a task reports, and most that it reports even if its rows look distributed by key.
MAX_REPORTED_KEYS = 2_000_000
REPORTED_ANYWAY = 20_000

_NUMBERS = Schema(NestedField(1, NUMBER, LongType()))


class Sorter(Protocol):
    """Takes batches of one schema and gives back their rows in order, as `writers.spill.ExternalSort`."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows."""

    def sorted_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; equal rows keep the order in which they came."""

    def close(self) -> None:
        """Forget all rows."""


class Store(Protocol):
    """Takes batches of one schema and gives them back in the same order, as `writers.spill.Spool`."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches."""

    def close(self) -> None:
        """Forget all rows."""


class Events:
    """All events of a task: decided in memory, or sorted on disk if they are many."""

    def __init__(self, reader: FeedReader, sorter: Callable[[RowOrder], Sorter]) -> None:
        self._keys = key_names(reader.key_fields)
        self._sequence = sequence_names(reader.feed.sequence)
        self._order = event_order(reader.key_fields, reader.feed.sequence)
        self._sorter: Sorter | None = None
        self._make_sorter = sorter
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    @property
    def are_on_disk(self) -> bool:
        """Whether the events are too many for memory."""
        return self._sorter is not None

    def add(self, events: pa.RecordBatch) -> None:
        """Take events."""
        self._waiting.append(events)
        self._waiting_bytes += events.nbytes
        if self._waiting_bytes > EVENT_BYTES or self._sorter is not None:
            self._sorter = self._sorter or self._make_sorter(self._order)
            for batch in self._waiting:
                self._sorter.add(batch)
            self._waiting, self._waiting_bytes = [], 0

    def decisions(self) -> Iterator[Decision]:
        """Yield the decisions on all keys."""
        if self._sorter is not None:
            yield from decide(self._sorter.sorted_batches(), self._keys, self._sequence, IS_KNOWN)
            return
        waiting, self._waiting = self._waiting, []
        if waiting:
            yield from self._in_memory(pa.Table.from_batches(waiting))

    def close(self) -> None:
        """Forget all events."""
        self._waiting = []
        if self._sorter is not None:
            self._sorter.close()

    def _in_memory(self, events: pa.Table) -> Iterator[Decision]:
        several = repeated(events.column(DIGEST).combine_chunks())
        singles = events if several is None else events.filter(pc.invert(several))
        for single in singles.to_batches():
            yield Decision(
                winners=single,
                is_tied=pa.repeat(pa.scalar(value=False), single.num_rows),
                losers=single.slice(0, 0),
                is_any=single.column(IS_KNOWN),
            )
        if several is not None:
            (rest,) = events.filter(several).combine_chunks().to_batches()
            yield from decide([sort_events(rest, self._order)], self._keys, self._sequence, IS_KNOWN)


class Rows:
    """Rows in the order in which they come: the first rows in memory, further rows on disk.

    Args:
        spool: Makes the store of the further rows.
    """

    def __init__(self, spool: Callable[[], Store]) -> None:
        self._others = spool()
        self._waiting: deque[pa.RecordBatch] = deque()
        self._bytes = 0

    def add(self, rows: pa.RecordBatch, own_bytes: int) -> None:
        """Take rows; `own_bytes` is their memory in bytes that they do not share."""
        self._bytes += own_bytes
        if self._bytes <= ROW_BYTES:
            self._waiting.append(rows)
        else:
            self._others.add(rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, and release those in memory."""
        while self._waiting:
            yield self._waiting.popleft()
        yield from self._others.batches()

    def close(self) -> None:
        """Forget all rows."""
        self._waiting.clear()
        self._others.close()


class InOrder:
    """Numbers in ascending order, taken little by little."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rest: pa.Array | None = pa.array([], pa.int64())

    def below(self, end: int) -> pa.Array | None:
        """Return the numbers below `end` that were not taken yet, or None."""
        taken = []
        while self._rest is not None:
            is_below = pc.less(self._rest, pa.scalar(end, pa.int64()))
            taken.append(self._rest.filter(is_below))
            self._rest = self._rest.filter(pc.invert(is_below))
            if len(self._rest):
                break
            batch = next(self._batches, None)
            self._rest = None if batch is None else batch.column(0)
        return pa.concat_arrays(taken) if any(map(len, taken)) else None


class TaskChanges:
    """What the rows of one task change: first `add` all, then take `keys_to_delete`, then `rows`, then `report`.

    Args:
        feed: How rows are read.
        schema: The table's schema.
        case_sensitive: How the DataFrame's columns are found, see `find_position`.
        partition_id: The task's number, from 0.
        seed: 8 bytes, the same in all tasks of a write and different in every write.
        sorter: Makes a sorter for an order of rows.
        spool: Makes a store that keeps rows in the order in which they come.
        is_delete: Tells which rows satisfy the feed's `delete_when`; None if there is no `delete_when`.
        added: Columns to fill in, or None.
    """

    def __init__(  # noqa: PLR0913  # most are given by name
        self,
        feed: ChangeFeed,
        schema: Schema,
        *,
        case_sensitive: bool | None,
        partition_id: int,
        seed: bytes,
        sorter: Callable[[RowOrder], Sorter],
        spool: Callable[[], Store],
        is_delete: DeleteTest | None = None,
        added: AddedColumns | None = None,
    ) -> None:
        self._reader = FeedReader(
            feed, schema, case_sensitive=case_sensitive, seed=seed, is_delete=is_delete, added=added
        )
        self._proof = LayoutProof(partition_id)
        self._events = Events(self._reader, sorter)
        self._rows = Rows(spool)
        self._width = len(schema.fields)
        self._lost = sorter(_by_number())
        self._deleted: list[pa.RecordBatch] = []
        self._row_count = 0
        self._rowless_count = 0
        self._lost_count = 0
        self._key_count = 0
        self._tied_rows = sorter(_by_number())
        self._tied_keys: list[str] = []
        self._tied_count = 0

    @property
    def row_schema(self) -> pa.Schema:
        """The schema of `rows`: the columns of the table's files, then those that `report` gets back for every row."""
        return self._reader.row_schema.append(pa.field(IS_TIED, pa.bool_()))

    @property
    def delete_schema(self) -> pa.Schema:
        """The schema of `keys_to_delete`: that of an equality-delete file, or of keys to look for in the table."""
        return self._reader.delete_schema

    @property
    def is_reported(self) -> bool:
        """Whether `report` reads columns of the written rows; known after `keys_to_delete`."""
        is_asked = self._proof.modulus == 1 or self._reader.feed.counts_stored
        most = MAX_REPORTED_KEYS if is_asked else REPORTED_ANYWAY
        return self._key_count <= most

    @property
    def left_out(self) -> dict[str, int]:
        """How many of the added rows are not to be written, by reason; known after `keys_to_delete`."""
        return {
            "without a key": self._reader.null_keys.count,
            "without a known operation": sum(self._reader.unknown_operations.values()),
            "that delete": self._rowless_count,
            "that lose to others of their keys": self._lost_count,
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch as Spark sent it.

        Raises:
            SchemaMismatchError: A required column holds a null in a row that is to be written.
            OSError: Rows could not be kept on disk.
        """
        changes = self._reader.read(batch, self._row_count)
        if not changes.events.num_rows:
            return
        self._row_count += changes.rows.num_rows
        self._proof.note(changes.keys, self._reader.sent_key_types)
        self._events.add(changes.events)
        if changes.rows.num_rows:
            # Events in memory share digests and sequences with the rows.
            own = changes.rows if self._events.are_on_disk else changes.rows.select(range(self._width))
            self._rows.add(changes.rows, own.nbytes)

    def keys_to_delete(self) -> Iterator[pa.RecordBatch]:
        """Decide which events win, and yield the keys that the table may have rows of."""
        for decision in self._events.decisions():
            winners = decision.winners
            self._key_count += winners.num_rows
            self._note_losers(decision.losers)
            if decision.is_tied.true_count:
                self._note_tied(winners.filter(decision.is_tied))
            is_row = winners.column(NUMBER).is_valid()
            self._rowless_count += len(is_row) - is_row.true_count
            if is_row.true_count < len(is_row) and self._key_count <= MAX_REPORTED_KEYS:
                self._deleted.append(self._reader.report_of_events(winners.filter(pc.invert(is_row))))
            keys = _chosen(self._reader.deletes_of(winners), decision.is_any)
            if keys.num_rows:
                yield keys

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that win, in the order in which they came."""
        lost, tied = InOrder(self._lost.sorted_batches()), InOrder(self._tied_rows.sorted_batches())
        start = 0
        for rows in self._rows.batches():
            numbers = numbers_from(start, rows.num_rows)
            start += rows.num_rows
            marked = _with_column(rows, _among(numbers, tied.below(start)), self.row_schema)
            is_lost = _among(numbers, lost.below(start))
            if is_lost.true_count:
                marked = marked.filter(pc.invert(is_lost))
            if marked.num_rows:
                yield marked

    def report(self, written: Iterable[pa.RecordBatch]) -> TaskKeys:
        """Return the report on the task's keys, for the commit.

        Args:
            written: The columns of `rows` after those of the table's files, of all rows that were written: file after
                file as the message lists them, in the order of the rows in each file. Ignored unless `is_reported`.
        """
        key_report = None
        if self.is_reported:
            images = (self._reader.report_of_rows(batch) for batch in written)
            key_report = encode_key_report([*images, *self._deleted], self._reader.key_report_schema)
        return TaskKeys(
            count=self._key_count,
            modulus=self._proof.modulus,
            key_report=key_report,
            tied_keys=tuple(self._tied_keys),
            tied_count=self._tied_count,
            null_keys=self._reader.null_keys,
            unknown_operations=dict(self._reader.unknown_operations),
        )

    def close(self) -> None:
        """Forget all rows, in memory and on disk."""
        for kept in (self._rows, self._lost, self._tied_rows, self._events):
            kept.close()

    def _note_losers(self, losers: pa.RecordBatch) -> None:
        numbers = losers.column(NUMBER).drop_null()
        self._lost_count += len(numbers)
        self._rowless_count += losers.num_rows - len(numbers)
        if len(numbers):
            self._lost.add(pa.RecordBatch.from_arrays([numbers], names=[NUMBER]))

    def _note_tied(self, tied: pa.RecordBatch) -> None:
        self._tied_count += tied.num_rows
        self._tied_rows.add(tied.select([NUMBER]))
        self._tied_keys += key_texts(self._reader.keys_of(tied.slice(0, MAX_EXAMPLES - len(self._tied_keys))))


def _by_number() -> RowOrder:
    ascending = SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST)
    return RowOrder(SortOrder(ascending), _NUMBERS)


def _chosen(keys: pa.RecordBatch, mask: pa.Array | None) -> pa.RecordBatch:
    return keys if mask is None or mask.true_count == len(mask) else keys.filter(mask)


def _among(ascending: pa.Array, numbers: pa.Array | None) -> pa.Array:
    """Return which of the `ascending` numbers are among `numbers`."""
    if numbers is None:
        return pa.repeat(pa.scalar(value=False), len(ascending))
    return pc.is_in(ascending, value_set=numbers)


def _with_column(rows: pa.RecordBatch, column: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*rows.columns, column], schema=schema)
