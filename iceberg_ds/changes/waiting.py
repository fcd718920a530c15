"""What waits in a task until its last row has come: events and rows, in memory as long as they are few.

Beyond that they wait in what is handed in (`Sorter`, `Store`), which keeps them on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_ds.changes.digests import DIGEST
from iceberg_ds.changes.reading import IS_KNOWN, FeedReader
from iceberg_ds.changes.winners import (
    Decision,
    decide,
    event_order,
    key_names,
    repeated,
    sequence_names,
    sort_events,
)
from iceberg_ds.layouts.sorting import RowOrder

# Arrow bytes of events that are decided in memory, and of rows that wait there.
EVENT_BYTES = 64 * 1024 * 1024
ROW_BYTES = 64 * 1024 * 1024


class Sorter(Protocol):
    """Takes batches of one schema and gives back their rows in order, as `writing.external_sort.ExternalSort`."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows."""

    def sorted_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order; rows that are equal keep theirs."""

    def close(self) -> None:
        """Forget all rows."""


class Store(Protocol):
    """Takes batches of one schema and gives them back as they came, as `writing.spool.Spool`."""

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
        """Whether they are too many for the memory."""
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
        """Yield who wins."""
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
    """Rows in the order in which they come: the first ones in memory, the others on disk if they are many.

    Args:
        spool: Makes what keeps the others.
    """

    def __init__(self, spool: Callable[[], Store]) -> None:
        self._others = spool()
        self._waiting: deque[pa.RecordBatch] = deque()
        self._bytes = 0

    def add(self, rows: pa.RecordBatch, own_bytes: int) -> None:
        """Take rows; `own_bytes` is what they take in memory that nobody else holds."""
        self._bytes += own_bytes
        if self._bytes <= ROW_BYTES:
            self._waiting.append(rows)
        else:
            self._others.add(rows)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, and let go of those in memory."""
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
        """Return the numbers below `end` that were not taken yet, None if there is none."""
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
