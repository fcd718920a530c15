"""Any history, expired in any way, killed anywhere, beside others: what stays is whole, and what went is gone."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, forbidden, refusal
from support.checks.invariants import unreferenced_files
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.keys.conversions import compact, convert
from support.keys.messages import KEYED_SCHEMA, events_feed, keyed_tasks, plan_by_keys
from support.tables.changes_by_others import drop_branch, set_branch, set_tag
from support.tables.sink import NAME, Sink, embedded_options, local

import iceberg_ds
from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.maintenance.expire_snapshots import Expiry, Wish

FAST_RETRIES = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "1", "commit.retry.num-retries": "3"}
STEPS = [FaultPoint.SNAPSHOTS_EXPIRED, FaultPoint.CLEANING_UP]
HOUR_MS = 3_600_000

branches = st.sampled_from(["main", "b"])
writers = st.sampled_from(["one", "two"])
places = st.integers(0, 20)
Rows = dict[int, tuple[int, str, int]]
Marks = dict[str, tuple[int, int]]


class Killed(BaseException):
    """The process is gone: nothing that catches errors sees this one."""


@contextmanager
def at(step: FaultPoint, number: int, action: Callable[[], object]) -> Iterator[None]:
    """Do something when this process comes to a step for the so manieth time."""
    left = number

    def act(reached: FaultPoint) -> None:
        nonlocal left
        left -= reached is step
        if reached is step and left == 0:
            listen(None)  # what it does comes to steps, too
            action()

    listen(act)
    try:
        yield
    finally:
        listen(None)


def die() -> None:
    """End the process."""
    raise Killed


def lineage(metadata: TableMetadata, snapshot_id: int) -> set[int]:
    """Return the snapshots behind one, itself included, as far as they are there."""
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    found: set[int] = set()
    current: int | None = snapshot_id
    while current in parents and current not in found:
        found.add(current)
        current = parents[current]
    return found


def files_of(table: Table, snapshot_id: int) -> set[Path]:
    """Return what a snapshot names: its manifest list, manifests and live files, read one by one."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    found = {snapshot.manifest_list}
    for manifest in snapshot.manifests(table.io):
        found.add(manifest.manifest_path)
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        found |= {one.data_file.file_path for one in entries if one.status is not ManifestEntryStatus.DELETED}
    return {local(path) for path in found}


class ExpiredTable(RuleBasedStateMachine):
    """A table with two branches, tags and two writers; dictionaries say what each snapshot has."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        options = embedded_options(self.folder)
        named = catalog_settings(options)
        self.faulty = FaultyCatalog(load_catalog(named.name, **dict(named.properties)))
        client = CatalogClient(self.faulty, named)  # type: ignore[arg-type]  # it has the methods that are called
        self.sink = Sink(catalog=connect(named), options=options)
        self.failing = Sink(catalog=client, options=options)
        self.rows: dict[int, Rows] = {}  # by snapshot
        self.marks: dict[str, Marks] = {}  # by branch: number and snapshot of each writer's last write
        self.versions, self.ids = itertools.count(1), itertools.count(100)
        self.is_littered = False

    @initialize()
    def create(self) -> None:
        """Create the table with a first snapshot."""
        self.sink.create(KEYED_SCHEMA)
        with self.sink.table().transaction() as change:
            change.set_properties(FAST_RETRIES)
        self.add("main", "one")

    def teardown(self) -> None:
        """See that orphans can be deleted, and nothing else lies around."""
        try:
            self.clean_up()
        finally:
            shutil.rmtree(self.folder)

    @rule(branch=branches, writer=writers)
    def add(self, branch: str, writer: str) -> None:
        """Append a numbered batch with a new row."""
        if branch in self.heads() or branch == "main":
            row = (next(self.ids), "EU", 1)
            self.write(branch, writer, [("I", *row, 0)], replace(events_feed(), trusts_inserts=True))

    @rule(branch=branches, writer=writers, key=st.integers(0, 3), is_deleted=st.booleans())
    def change(self, branch: str, writer: str, key: int, is_deleted: bool) -> None:  # noqa: FBT001
        """Write a numbered batch by keys, which deletes by key."""
        if branch in self.heads():
            amount = next(self.versions)
            self.write(branch, writer, [("D" if is_deleted else "U", key, "EU", amount, amount)])

    def write(self, branch: str, writer: str, events: list[Any], feed: Any = None) -> None:
        """Write a numbered batch, and note what the branch has then."""
        number = next(self.versions)
        before = self.rows.get(self.heads().get(branch, 0), {})
        plan = plan_by_keys(self.sink, feed, branch=branch, txn_app_id=writer, txn_version=number)
        result = self.sink.commit(keyed_tasks(plan, events))
        assert result.snapshot_id is not None
        after = {key: row for key, row in before.items() if key != events[0][1]}
        if events[0][0] != "D":
            after[events[0][1]] = events[0][1:4]
        self.rows[result.snapshot_id] = after
        self.marks.setdefault(branch, {})[writer] = (number, result.snapshot_id)

    @rule()
    def rewrite(self) -> None:
        """Write the rows of main into other files."""
        before = self.rows[self.heads()["main"]]
        compact(self.sink)
        self.rows[self.heads()["main"]] = before

    @rule()
    def convert(self) -> None:
        """Turn deletes by key into deletes by position."""
        before = self.rows[self.heads()["main"]]
        convert(self.sink)
        self.rows[self.heads()["main"]] = before

    @rule(branch=branches, place=places)
    def move(self, branch: str, place: int) -> None:
        """Let SQL make a branch at a snapshot, or set it back or forward."""
        table = self.sink.table()
        snapshot_id = table.metadata.snapshots[place % len(table.metadata.snapshots)].snapshot_id
        if snapshot_id not in self.rows:
            return
        set_branch(self.sink, branch, snapshot_id)
        behind = lineage(table.metadata, snapshot_id)
        # A mark counts on the branch if its history shows the write when it is moved.
        newest: Marks = {}
        for known in self.marks.values():
            for writer, (number, written) in known.items():
                if written in behind and newest.get(writer, (0, 0))[0] < number:
                    newest[writer] = (number, written)
        self.marks[branch] = newest

    @rule(place=places)
    def tag(self, place: int) -> None:
        """Tag a snapshot."""
        snapshots = self.sink.table().metadata.snapshots
        set_tag(self.sink, f"t{place % 2}", snapshots[place % len(snapshots)].snapshot_id)

    @rule(name=st.sampled_from(["b", "t0", "t1"]))
    def drop(self, name: str) -> None:
        """Drop a branch or tag."""
        if name in self.heads():
            drop_branch(self.sink, name)
            self.marks.pop(name, None)

    @rule(branch=branches, writer=writers)
    def repeat(self, branch: str, writer: str) -> None:
        """Repeat the last write of a writer: it is skipped."""
        if branch in self.heads() and writer in self.marks.get(branch, {}):
            number, _ = self.marks[branch][writer]
            plan = plan_by_keys(self.sink, branch=branch, txn_app_id=writer, txn_version=number)
            assert self.sink.commit(keyed_tasks(plan, [("U", 99, "XX", 99, 99)])).was_replayed

    @rule(
        age=places,
        retain_last=st.none() | st.integers(1, 3),
        named=st.sampled_from([[], [], [], [], [0], [1], [0, 2]]),
        death=st.none() | st.tuples(st.sampled_from(STEPS), st.integers(1, 3)),
        fault=st.none() | st.tuples(st.sampled_from([refusal, connection_lost, forbidden]), st.sampled_from(When)),
        stale=st.none() | st.sampled_from(["after the request", "before the deletion"]),
        meanwhile=st.none() | st.integers(0, 1),
    )
    def expire(  # noqa: PLR0913
        self,
        *,
        age: int,
        retain_last: int | None,
        named: list[int],
        death: tuple[FaultPoint, int] | None,
        fault: Any,
        stale: str | None,
        meanwhile: int | None,
    ) -> None:
        """Expire snapshots, in a process that may be killed, with a catalog that may fail, beside another writer."""
        for writer in itertools.islice(itertools.cycle(["one", "two"]), max(0, 4 - len(self.rows_behind_main()))):
            self.add("main", writer)
        before = self.sink.table()
        files = {one.snapshot_id: files_of(before, one.snapshot_id) for one in before.metadata.snapshots}
        times = sorted(one.timestamp_ms for one in before.metadata.snapshots)
        older_than_ms = (times[age] if age < len(times) else times[-1]) + (HOUR_MS if age > len(times) else 0)
        known = [one.snapshot_id for one in before.metadata.snapshots]
        wish = Wish.of(older_than_ms, retain_last, {known[place % len(known)] for place in named})
        if fault is not None:
            self.faulty.fail_next(1, fault[0], when=fault[1])
        if stale == "after the request":
            self.faulty.after_commit(self.faulty.commits + 1, lambda: self.faulty.serve_stale(before))
        if meanwhile == 0:
            self.faulty.before_commit(self.faulty.commits + 1, lambda: self.add("main", "two"))
        moment, act = death or (FaultPoint.SNAPSHOTS_EXPIRED, 1), die if death else (lambda: None)
        if not death and stale == "before the deletion":
            act = lambda: self.faulty.serve_stale(before)  # noqa: E731
        elif not death and meanwhile == 1:
            act = lambda: self.add("main", "two")  # noqa: E731
        result = None
        with suppress(Killed, IcebergSinkError), at(*moment, act):
            result = Expiry(self.failing.catalog, self.sink.options.table, wish).run(dry_run=False)
        self.faulty.forget()
        self.faulty.begin()
        self.faulty._stale.clear()
        self.faulty._before_commit.clear()
        self.faulty._after_commit.clear()
        after = self.sink.table()
        gone = set(files) - {one.snapshot_id for one in after.metadata.snapshots}
        if result is None:
            self.is_littered |= bool(gone) or fault is not None
            return
        assert set(result.snapshot_ids) >= gone
        came = set(result.snapshot_ids) - gone  # committed meanwhile, beside all branches
        assert not came & {one.snapshot_id for one in after.metadata.snapshots}
        kept = [files_of(after, one.snapshot_id) for one in after.metadata.snapshots]
        freed = set().union(*(files[one] for one in gone)) - set().union(*kept)
        there = {path for path in freed if path.exists()}
        assert (result.left_files > 0) == bool(there)
        # What an attempt left that was refused for a commit beside all branches is litter, too.
        self.is_littered |= bool(there) or fault is not None
        deleted = sum(number for name, number in vars_of(result).items() if name.startswith("deleted_"))
        assert deleted + len(there) == len(freed) or came

    @rule()
    def clean_up(self) -> None:
        """Delete orphans, which are what killed expiries have left."""
        options = {"warehouse": str(self.sink.options.warehouse)}
        found = iceberg_ds.verify(NAME, options=options, older_than="0s", delete_orphans=True, force=True)
        # That a branch was set back behind a write is told there, and is as it should be here.
        assert {check.name for check in found.failures} <= {"epoch markers"}, str(found)
        assert self.is_littered or not found.orphans
        assert unreferenced_files(self.sink.table()) == set()
        self.is_littered = False

    @invariant()
    def what_stays_is_whole(self) -> None:
        """Every snapshot reads as it was written, and every file that any of them names is there."""
        table = self.sink.table()
        for snapshot in table.metadata.snapshots:
            assert all(path.exists() for path in files_of(table, snapshot.snapshot_id))
            if snapshot.snapshot_id in self.rows:
                expected = [row for _, row in sorted(self.rows[snapshot.snapshot_id].items())]
                assert sorted(tuple(row.values()) for row in read(table, snapshot.snapshot_id)) == expected

    def rows_behind_main(self) -> set[int]:
        """Return the snapshots of main that are there."""
        return lineage(self.sink.table().metadata, self.heads()["main"])

    def heads(self) -> dict[str, int]:
        """Return where branches and tags stand."""
        return {name: ref.snapshot_id for name, ref in self.sink.table().metadata.refs.items()}


def read(table: Table, snapshot_id: int) -> list[dict[str, Any]]:
    """Return the rows of a snapshot, by a reader that follows the spec alone."""
    ref = SnapshotRef(snapshot_id=snapshot_id, snapshot_ref_type=SnapshotRefType.BRANCH)
    metadata = table.metadata.model_copy(update={"refs": {"read": ref}})
    return rows_of(Table(table.name(), metadata, table.metadata_location, table.io, table.catalog), "read")


def vars_of(result: iceberg_ds.ExpireResult) -> dict[str, Any]:
    """Return the attributes of a result."""
    return {name: getattr(result, name) for name in result.__slots__}


TestExpiredTable = ExpiredTable.TestCase
TestExpiredTable.settings = settings(stateful_step_count=14, max_examples=examples(30))
