"""Rows are replaced by keys that tasks have written and that are in no snapshot: marked, or left out of new files."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.snapshots import Operation
from support.conversions import ENCODINGS, keyed_deletes
from support.invariants import check_sound
from support.keyed_messages import KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keyed_reader import listed, rows_of
from support.tables import Sink

from iceberg_ds.commits.commit import commit_swap
from iceberg_ds.commits.swapping import StaleWorkError
from iceberg_ds.resolving.job import resolve
from iceberg_ds.resolving.live_files import SnapshotReader, key_types
from iceberg_ds.resolving.resolution import Goal, Resolution, ResolvedSwap
from iceberg_ds.resolving.scan import KeySource, plan_work
from iceberg_ds.resolving.values import ResolvePlan, RowEncoding


def put(sink: Sink, *events: Event) -> None:
    """Write events by key, with deletes by key."""
    sink.commit(keyed_tasks(plan_by_keys(sink), list(events)))


def values(sink: Sink) -> list[tuple[Any, ...]]:
    """Return the rows."""
    return sorted(tuple(row.values()) for row in rows_of(sink.table()))


class Upsert:
    """A write whose keys are searched for in the table."""

    def __init__(self, sink: Sink, encoding: RowEncoding, *events: Event) -> None:
        self._sink = sink
        self._plan = plan_by_keys(sink)
        (self._message,) = keyed_tasks(self._plan, list(events))
        self._encoding: RowEncoding = encoding
        self._reader, self._resolution = SnapshotReader(), Resolution()
        sources = tuple(KeySource(data_file=file, sequence_number=None) for file in self._message.delete_files)
        types = key_types(sink.table().metadata, [1])
        self._goal = Goal(paths=frozenset(), key_types=types, written=sources)

    def search(self) -> int:
        """Search the table as it is now, and return how many files were searched."""
        table = self._sink.table()
        files = self._reader.read(table.io, table.current_snapshot()).files
        work = plan_work(files, self._goal.sources(files), table.specs(), self._goal.key_types)
        work = [item for item in work if not self._resolution.covers(item)]
        plan = ResolvePlan(
            write=self._plan, specs=table.specs(), key_types=self._goal.key_types, encoding=self._encoding
        )
        self._resolution.take(resolve(None, plan, work))
        return len(work)

    def commit(self) -> None:
        """Commit the rows and what was found."""
        swap = ResolvedSwap(self._goal, self._resolution, "main", self._reader, self._sink.table().specs())
        found = self._resolution.added
        added = found.with_files(self._message.data_files)
        # A name of its own for each try, because manifests of an earlier one are deleted.
        write = replace(self._message.write, changes=None, delete_spec_id=None, operation_id=str(uuid.uuid4()))
        commit_swap(self._sink.catalog, write, added, swap)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_are_replaced_without_deletes_by_key(sink: Sink, encoding: RowEncoding) -> None:
    """An upsert for all readers would leave old rows, or hide its own."""
    sink.create(KEYED_SCHEMA)
    put(sink, *[("I", key, "EU", key, 0) for key in range(5)])
    upsert = Upsert(sink, encoding, ("U", 1, "US", 10, 1), ("D", 3, "EU", None, 1), ("U", 9, "US", 90, 1))

    upsert.search()
    upsert.commit()

    assert values(sink) == [(0, "EU", 0), (1, "US", 10), (2, "EU", 2), (4, "EU", 4), (9, "US", 90)]
    snapshot = sink.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.OVERWRITE
    assert len(keyed_deletes(sink.table())) == 1  # of the first write
    assert bool(listed(sink.table())[DataFileContent.POSITION_DELETES]) == (encoding == "position")
    check_sound(sink.table())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_that_come_meanwhile_are_searched_too(sink: Sink, encoding: RowEncoding) -> None:
    """Two upserts of one key at once would leave two rows."""
    sink.create(KEYED_SCHEMA)
    put(sink, *[("I", key, "EU", key, 0) for key in range(5)])
    upsert = Upsert(sink, encoding, ("U", 1, "US", 10, 1), ("U", 7, "US", 70, 1))
    upsert.search()
    put(sink, ("U", 1, "DE", 11, 0), ("U", 7, "DE", 7, 0))

    with pytest.raises(StaleWorkError, match="brought"):
        upsert.commit()
    assert upsert.search() == 1
    upsert.commit()

    assert values(sink) == [(0, "EU", 0), (1, "US", 10), *[(key, "EU", key) for key in (2, 3, 4)], (7, "US", 70)]
    check_sound(sink.table())
