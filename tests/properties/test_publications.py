"""Random epochs that are converted and published, killed anywhere, beside others: main is as it should be."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.catalog import load_catalog
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, forbidden, refusal
from support.checks.invariants import check_sound, unreferenced_files
from support.exhaustive import examples
from support.keys.conversions import compact
from support.keys.messages import KEYED_SCHEMA, Event, events_feed, keyed_tasks, plan_by_keys
from support.keys.publications import STAGING, applied, keyed_deletes_of, put, tasks, values
from support.tables.sink import NAME, Sink, embedded_options, epoch

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import abort_write
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.fault_points import FaultPoint, listen

FAST_RETRIES = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "1", "commit.retry.num-retries": "3"}
# Each query has keys of its own, so that it does not matter which of two epochs is published first.
KEYS = {"query-a": range(5), "query-b": range(10, 15)}
OTHERS_FROM = 100
STEPS = [
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
    FaultPoint.SKIPPED,
    FaultPoint.PLANNED,
    FaultPoint.TASK_WRITTEN,
    FaultPoint.PUBLISHED,
]

queries = st.sampled_from(sorted(KEYS))
changes = st.lists(
    st.tuples(st.sampled_from("IUD"), st.integers(0, 4), st.integers(0, 9)), min_size=1, unique_by=lambda made: made[1]
)
moments = st.tuples(st.sampled_from(STEPS), st.integers(1, 2))
catalog_faults = st.tuples(
    st.integers(0, 2), st.sampled_from([refusal, connection_lost, forbidden]), st.sampled_from(When)
)


class Killed(BaseException):
    """The process is gone: nothing that catches errors sees this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An epoch that its query was not told to be done: it may be on main already."""

    number: int
    events: list[Event]


@contextmanager
def at(step: FaultPoint, number: int, action: Any) -> Iterator[None]:
    """Do something when this process comes to a step for the so manieth time."""
    left = number

    def act(reached: FaultPoint) -> None:
        nonlocal left
        left -= reached is step
        if reached is step and left == 0:
            listen(None)  # what it does comes to steps, too
            try:
                action()
            finally:
                listen(act)

    listen(act)
    try:
        yield
    finally:
        listen(None)


def die() -> None:
    """End the process."""
    raise Killed


class PublishedTable(RuleBasedStateMachine):
    """A table that two queries and others write to; what its main has, dictionaries say for each query."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        options = embedded_options(self.folder)
        named = catalog_settings(options)
        self.faulty = FaultyCatalog(load_catalog(named.name, **dict(named.properties)))
        client = CatalogClient(self.faulty, named)  # type: ignore[arg-type]  # it has the methods that are called
        self.sink = Sink(catalog=connect(named), options=options)
        self.failing = Sink(catalog=client, options=options)
        self.done: dict[str, list[tuple[Any, ...]]] = {name: [] for name in KEYS}
        self.numbers: defaultdict[str, int] = defaultdict(int)
        self.pending: dict[str, Pending] = {}
        self.others: list[tuple[Any, ...]] = []
        self.ids = itertools.count(OTHERS_FROM)
        self.checked = 0

    @initialize()
    def create(self) -> None:
        """Create the table, without a snapshot."""
        self.sink.create(KEYED_SCHEMA)
        with self.sink.table().transaction() as change:
            change.set_properties(FAST_RETRIES)

    def teardown(self) -> None:
        """Let all queries end what they began, and see that nothing waits or is missing."""
        try:
            for query in sorted(KEYS):
                self.run(query, [("U", 0, 1)])
                assert query not in self.pending
            self.main_is_what_was_said()
            table = self.sink.table()
            assert set(table.metadata.refs) == {"main"}
            check_sound(table)
            options = {"warehouse": str(self.sink.options.warehouse)}
            found = iceberg_ds.verify(NAME, options=options, older_than="0s", delete_orphans=True, force=True)
            assert found.ok, str(found)
            assert unreferenced_files(table) == set()
            self.main_is_what_was_said()
        finally:
            shutil.rmtree(self.folder)

    @rule(query=queries, made=changes)
    def run(self, query: str, made: list[tuple[str, int, int]]) -> None:
        """Run an epoch, that which was not done again, until it is done."""
        pending = self._begin(query, made)
        try:
            put(self.sink, epoch(pending.number, query), pending.events)
        except IcebergSinkError:  # what waits was staged beside a main that has moved on: then it comes again
            put(self.sink, epoch(pending.number, query), pending.events)
        self._end(query)

    @rule(query=queries, made=changes, moment=moments)
    def die(self, query: str, made: list[tuple[str, int, int]], moment: tuple[FaultPoint, int]) -> None:
        """Run an epoch in a process that is killed."""
        pending = self._begin(query, made)
        with suppress(Killed, IcebergSinkError), at(*moment, die):
            put(self.sink, epoch(pending.number, query), pending.events)
            self._end(query)

    @rule(query=queries, made=changes, moment=moments, fault=st.none() | catalog_faults)
    def meet_others(
        self, query: str, made: list[tuple[str, int, int]], moment: tuple[FaultPoint, int], fault: Any
    ) -> None:
        """Run an epoch while another writer commits to main, and the catalog fails."""
        pending = self._begin(query, made)
        messages = tasks(self.failing, epoch(pending.number, query), pending.events)
        if fault is not None:
            number, error, when = fault
            self.faulty.pass_next(number)
            self.faulty.fail_next(1, error, when=when)
        with at(*moment, self.compact):
            try:
                self.failing.commit(messages)
                self._end(query)
            except IcebergSinkError:
                abort_write(self.sink.catalog, messages)
        self.faulty.forget()

    @rule()
    def compact(self) -> None:
        """Move main on, with the same rows."""
        if self.sink.table().metadata.snapshots:
            compact(self.sink)

    @rule()
    def insert(self) -> None:
        """Let another writer add a row to main."""
        row = (next(self.ids), "EU", 1)
        plan = plan_by_keys(self.sink, replace(events_feed(), trusts_inserts=True))
        self.sink.commit(keyed_tasks(plan, [("I", *row, 0)]))
        self.others.append(row)

    @precondition(lambda self: STAGING in self.sink.table().metadata.refs)
    @rule()
    def drop(self) -> None:
        """Drop the staging branch with all that waits: those who wrote it come again."""
        with self.sink.table().manage_snapshots() as refs:
            refs.remove_branch(STAGING)

    @rule(query=queries)
    def replay(self, query: str) -> None:
        """Run the last epoch that was done once more, as a driver does that died before it wrote that down."""
        if self.numbers[query] and query not in self.pending:
            before = self.sink.table().metadata.snapshot_log
            result = put(self.sink, epoch(self.numbers[query] - 1, query), [("U", KEYS[query][0], "XX", 99, 99)])
            assert result.was_replayed
            waited = len(self.sink.table().metadata.snapshot_log) - len(before)
            assert waited <= 1

    @invariant()
    def main_is_what_was_said(self) -> None:
        """Every query's rows are those of its last epoch that is done, or with the one that is not known to be."""
        table = self.sink.table()
        log = table.metadata.snapshot_log
        for entry in log[self.checked :]:
            assert keyed_deletes_of(table, entry.snapshot_id) == []
        self.checked = len(log)
        found = values(self.sink)
        for query, keys in KEYS.items():
            rows = [row for row in found if row[0] in keys]
            pending = self.pending.get(query)
            assert rows in [self.done[query], *([applied(self.done[query], pending.events)] if pending else [])]
        assert [row for row in found if row[0] >= OTHERS_FROM] == self.others

    def _begin(self, query: str, made: list[tuple[str, int, int]]) -> Pending:
        events: list[Event] = [(operation, KEYS[query][key], "EU", amount, 0) for operation, key, amount in made]
        return self.pending.setdefault(query, Pending(number=self.numbers[query], events=events))

    def _end(self, query: str) -> None:
        self.done[query] = applied(self.done[query], self.pending.pop(query).events)
        self.numbers[query] += 1


TestPublishedTable = PublishedTable.TestCase
TestPublishedTable.settings = settings(stateful_step_count=10, max_examples=examples(30))
