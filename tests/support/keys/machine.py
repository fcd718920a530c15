"""A table with keys under random change feeds, other writers and failures, held against a dictionary at every step.

`KeyedTable` is a state machine of Hypothesis; tests choose how many steps it takes, and may add rules. A row of the
model is a dictionary by field id, since columns get other names on the way.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyspark.sql import types as spark
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, refusal, timed_out
from support.checks.delete_soundness import check_deletes
from support.checks.invariants import check_sound, unreferenced_files
from support.checks.reader import listed, rows_of
from support.faults.io import FAULTY_IO, Doing, FileFault, FileKind, Harm, strike
from support.keys.messages import keyed_task
from support.spark.tables import Warehouse, read_with_chdb
from support.tables.changes_by_others import set_columns
from support.tables.sink import NAME, Sink, arrow_batch, epoch, local

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.cdc import task_changes
from iceberg_ds.cdc.spark_hash import spark_hash
from iceberg_ds.commit.commit import abort_write
from iceberg_ds.errors import CommitConflictError, IcebergSinkError, RefusedRowsError, SchemaMismatchError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.messages import TaskCommit
from iceberg_ds.options.parse import parse_options

ID, REGION, AMOUNT, LSN = 1, 2, 3, 4
KEYS = {"by id": (ID,), "by region and id": (REGION, ID)}
PARTS: list[tuple[int, Transform[Any, Any]]] = [
    (REGION, IdentityTransform()),
    (ID, BucketTransform(2)),
    (AMOUNT, BucketTransform(2)),
]
SPARK_TYPES: dict[type, spark.DataType] = {
    IntegerType: spark.IntegerType(),
    LongType: spark.LongType(),
    StringType: spark.StringType(),
}
REGIONS = ("EU", "US", "DE")
TASKS = 3
MAX_ADDED_COLUMNS = 2
SMALL, LARGE = 1, 2**29
COLUMN_CHANGES = ["add", "rename", "widen", "drop", "drop and add"]
FAST_RETRIES = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "1"}
STEPS_OF_COMMITS = [
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.TABLE_LOADED,
    FaultPoint.FILE_CLOSED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.COMMITTED,
]

Row = dict[int, Any]
Key = tuple[Any, ...]

changes = st.tuples(
    st.sampled_from(["I", "u", "D", "move"]),
    st.integers(0, 4),
    st.sampled_from(REGIONS),
    st.one_of(st.none(), st.integers(0, 9)),
    st.integers(0, 4),
)
feeds = st.lists(changes, min_size=1, max_size=8)
plain_rows = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(REGIONS)), max_size=3)
faults = st.lists(st.sampled_from([refusal, connection_lost, timed_out]), max_size=2)
queries = st.sampled_from(["query-a", "query-b"])
file_faults = st.builds(
    FileFault,
    file=st.sampled_from(FileKind),
    doing=st.sampled_from([Doing.OPEN, Doing.WRITE, Doing.CLOSE]),
    harm=st.sampled_from([Harm.FAIL, Harm.FAIL_LATE]),
    numbers=st.sampled_from([frozenset({1}), frozenset({2}), None]),
)


class Killed(BaseException):
    """The process is gone: nothing that catches errors sees this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A row of the feed: what it does, and the table's columns by their ids."""

    operation: str
    row: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An epoch whose tasks have run.

    Attributes:
        query: Its query.
        epoch_id: Its number.
        events: What it says, in order.
        messages: What its tasks report.
        shape: How often the table had been changed when it was planned.
        columns: The field ids of its columns then, by name.
    """

    query: str
    epoch_id: int
    events: list[Event]
    messages: list[TaskCommit]
    shape: int
    columns: dict[str, int]


class KeyedTable(RuleBasedStateMachine):
    """The table and its model: the rows of each key, of which writers without keys may leave several."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        options = parse_options({"table": NAME, "catalog.py-io-impl": FAULTY_IO, **self.house.catalog_options})
        settings = catalog_settings(options)
        self.faulty = FaultyCatalog(load_catalog(settings.name, **dict(settings.properties)))
        client = CatalogClient(self.faulty, settings)  # type: ignore[arg-type]  # it has the methods that are called
        self.sink = Sink(catalog=connect(settings), options=options)
        self.failing = Sink(catalog=client, options=options)
        self.keys: tuple[int, ...] = (ID,)
        self.model: dict[Key, list[Row]] = {}
        self.history: dict[int, dict[Key, list[Row]]] = {}
        self.epochs: defaultdict[str, int] = defaultdict(int)
        self.pending: list[Pending] = []
        self.shape = 0
        self.numbers = itertools.count(1)
        self.litter: set[str] = set()
        self.has_expired = False

    @property
    def house(self) -> Warehouse:
        """The table's catalog."""
        return Warehouse(folder=self.folder)

    @initialize(
        keys=st.sampled_from(sorted(KEYS)),
        parts=st.lists(st.sampled_from(PARTS), max_size=1),
        has_small_id=st.booleans(),
    )
    def create(self, keys: str, parts: list[tuple[int, Transform[Any, Any]]], *, has_small_id: bool) -> None:
        """Create the table."""
        self.keys = KEYS[keys]
        fields = [
            NestedField(ID, "id", IntegerType() if has_small_id else LongType(), required=True),
            NestedField(REGION, "region", StringType(), required=True),
            NestedField(AMOUNT, "amount", IntegerType()),
            NestedField(LSN, "lsn", LongType()),
        ]
        partitioned = [PartitionField(source, 1000 + n, how, f"p{n}") for n, (source, how) in enumerate(parts)]
        schema = Schema(*fields, identifier_field_ids=list(self.keys))
        self.sink.create(schema, PartitionSpec(*partitioned))
        with self.sink.table().transaction() as change:
            change.set_properties(FAST_RETRIES)

    def teardown(self) -> None:
        """Finish what is under way, read with a library, and see that nothing lies around that should not."""
        try:
            while self.pending:
                self.commit(self.pending.pop(), [], When.BEFORE)
            self.table_equals_the_model()
            table = self.sink.table()
            if table.metadata.snapshots and _is_read_by_clickhouse(table):
                found = read_with_chdb(local(table.location()), order="1")
                assert _sorted(list(row.values()) for row in found) == self.expected(table)
            if not self.has_expired:
                left = unreferenced_files(table)
                assert [path for path in left if not any(name in path.name for name in self.litter)] == []
        finally:
            shutil.rmtree(self.folder)

    def expected(self, table: Table) -> list[list[Any]]:
        """Return the model's rows with the table's columns as they are now."""
        ids = [field.field_id for field in table.schema().fields]
        return _sorted([row.get(number) for number in ids] for rows in self.model.values() for row in rows)

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return tuple(row[number] for number in self.keys)

    def note(self) -> None:
        """Take note of which rows the newest snapshot has."""
        head = self.sink.table().current_snapshot()
        if head is not None:
            self.history[head.snapshot_id] = {key: list(rows) for key, rows in self.model.items()}

    # What comes of a feed.

    def events(self, feed: Sequence[Any], base: int) -> list[Event]:
        """Return the events of a feed, in order; a change that moves a key has two."""
        added = [field.field_id for field in self.sink.table().schema().fields if field.field_id > LSN]
        found = []
        for number, (operation, key, region, amount, other) in enumerate(feed, base):
            row = {ID: key, REGION: region, AMOUNT: amount, LSN: number, **dict.fromkeys(added, number)}
            if operation == "move":
                found += [Event(operation="-U", row=row), Event(operation="+U", row={**row, ID: other})]
            elif operation == "D":
                gone = {number: value if number in {*self.keys, LSN} else None for number, value in row.items()}
                found.append(Event(operation="D", row=gone))
            else:
                found.append(Event(operation=operation, row=row))
        return found

    def apply(self, events: Sequence[Event]) -> None:
        """Do to the model what an epoch does to the table."""
        for event in sorted(events, key=lambda event: (event.row[LSN], event.operation != "-U")):
            self.model.pop(self.key_of(event.row), None)
            if event.operation not in {"D", "-U"}:
                self.model[self.key_of(event.row)] = [event.row]
        self.note()

    def run_tasks(self, query: str, epoch_id: int, events: Sequence[Event], data: st.DataObject) -> list[TaskCommit]:
        """Plan an epoch and run its tasks, with the rows in any order and in any of them, or distributed by key."""
        table = self.sink.table()
        names = {field.field_id: field.name for field in table.schema().fields}
        columns = [
            spark.StructField(field.name, SPARK_TYPES[type(field.field_type)]) for field in table.schema().fields
        ]
        frame = spark.StructType([*columns, spark.StructField("op", spark.StringType())])
        plan = self.sink.plan(
            frame,
            is_stream=True,
            keys=tuple(names[number] for number in self.keys),
            sequence_by=(names[LSN],),
            operation_column="op",
            target_file_size_bytes=data.draw(st.sampled_from([SMALL, LARGE]), "file size"),
        )
        order = data.draw(st.permutations(range(len(events))), "order")
        sent = [
            {"op": events[n].operation, **{names[i]: value for i, value in events[n].row.items() if i in names}}
            for n in order
        ]
        batch = arrow_batch(sent, frame)
        is_distributed = data.draw(st.booleans(), "is distributed")
        if is_distributed:
            hashes = spark_hash([batch.column(names[number]) for number in self.keys])
            assert hashes is not None
            tasks = [number % TASKS for number in hashes.to_pylist()]
        else:
            tasks = data.draw(st.lists(st.integers(0, TASKS - 1), min_size=len(sent), max_size=len(sent)), "tasks")
        of_epoch = epoch(epoch_id, query)
        # Distributed tasks prove what they can, and report nothing.
        most = 0 if is_distributed else task_changes.REPORTED_ANYWAY
        with patch.object(task_changes, "REPORTED_ANYWAY", most):
            return [
                keyed_task(plan, number, batch.filter(pa.array([task == number for task in tasks])), of_epoch)
                for number in range(TASKS)
            ]

    def begin(self, query: str, feed: Sequence[Any], data: st.DataObject) -> Pending:
        """Run the tasks of a query's next epoch."""
        events = self.events(feed, data.draw(st.integers(0, 20), "first sequence"))
        return self.pending_of(query, events, self.run_tasks(query, self.epochs[query], events, data))

    def pending_of(self, query: str, events: list[Event], messages: list[TaskCommit]) -> Pending:
        """Return a query's next epoch, as the table is now."""
        return Pending(
            query=query,
            epoch_id=self.epochs[query],
            events=events,
            messages=messages,
            shape=self.shape,
            columns=self.columns(),
        )

    def columns(self) -> dict[str, int]:
        """Return the field ids of the table's columns by name."""
        return {field.name: field.field_id for field in self.sink.table().schema().fields}

    def commit(self, write: Pending, errors: Sequence[Callable[[], Exception]], when: When) -> bool:
        """Commit an epoch among failures; return whether it landed, as it must but for changes under it."""
        for error in errors[: 1 if when is When.AFTER else None]:
            self.faulty.fail_next(1, error, when=when)
        try:
            result = self.failing.commit(write.messages)
        except (CommitConflictError, SchemaMismatchError):
            assert write.shape != self.shape, "a conflict with nobody"
            return False
        finally:
            self.faulty.forget()
        assert result.snapshot_id == write.messages[0].write.snapshot_id
        now = self.columns()
        assert all(now.get(name, number) == number for name, number in write.columns.items()), "values are lost"
        self.landed(write)
        return True

    def landed(self, write: Pending) -> None:
        """Go on to the next epoch."""
        self.epochs[write.query] += 1
        self.apply(write.events)

    def replay(self, write: Pending, data: st.DataObject) -> bool:
        """Run an epoch again, its rows divided otherwise; return whether the table had it."""
        messages = self.run_tasks(write.query, write.epoch_id, write.events, data)
        return self.sink.commit(messages).was_replayed

    @rule(query=queries, feed=feeds, errors=faults, when=st.sampled_from(When), replays=st.booleans(), data=st.data())
    @precondition(lambda self: not self.pending)
    def run_an_epoch(  # noqa: PLR0913  # one case
        self,
        *,
        query: str,
        feed: list[Any],
        errors: list[Callable[[], Exception]],
        when: When,
        replays: bool,
        data: st.DataObject,
    ) -> None:
        """Write and commit among failures; replay it, perhaps."""
        write = self.begin(query, feed, data)
        assert self.commit(write, errors, when)
        if replays:
            assert self.replay(write, data)

    @rule(query=queries, feed=feeds, data=st.data())
    @precondition(lambda self: not self.pending)
    def begin_an_epoch(self, query: str, feed: list[Any], data: st.DataObject) -> None:
        """Let an epoch begin that others will be faster than."""
        self.pending.append(self.begin(query, feed, data))

    @rule(errors=faults, when=st.sampled_from(When), data=st.data())
    @precondition(lambda self: self.pending)
    def commit_an_epoch(self, errors: list[Callable[[], Exception]], when: When, data: st.DataObject) -> None:
        """Commit it; if the table was changed under it, the query starts again."""
        self.commit_or_start_again(self.pending.pop(), errors, when, data)

    def commit_or_start_again(
        self, write: Pending, errors: Sequence[Callable[[], Exception]], when: When, data: st.DataObject
    ) -> None:
        """Commit an epoch, which is run again if the table was changed under it."""
        if not self.commit(write, errors, when):
            assert not self.replay(write, data)
            self.landed(write)

    @rule(
        query=queries,
        feed=feeds,
        others=st.lists(st.sampled_from(["append", "append", "partitioning", "columns"]), min_size=1, max_size=3),
        errors=faults,
        data=st.data(),
    )
    @precondition(lambda self: not self.pending)
    def be_overtaken(
        self,
        query: str,
        feed: list[Any],
        others: list[str],
        errors: list[Callable[[], Exception]],
        data: st.DataObject,
    ) -> None:
        """Let others append and change the table while an epoch is written."""
        write = self.begin(query, feed, data)
        for other in others:
            if other == "append":
                self.add_rows([(key, region) for _, key, region, _, _ in feed[:2]], is_ours=False)
            elif other == "partitioning":
                self.repartition(data.draw(st.sampled_from(PARTS), "partitioning"))
            else:
                self.alter_columns(data.draw(st.sampled_from(COLUMN_CHANGES), "change of columns"), data)
        self.commit_or_start_again(write, errors, When.BEFORE, data)

    @rule(query=queries, feed=feeds, step=st.sampled_from(STEPS_OF_COMMITS), aborts=st.booleans(), data=st.data())
    @precondition(lambda self: not self.pending)
    def die_in_a_commit(
        self, *, query: str, feed: list[Any], step: FaultPoint, aborts: bool, data: st.DataObject
    ) -> None:
        """Die at a step of a commit; Spark may ask another process to abort, and the epoch is run again."""
        write = self.begin(query, feed, data)
        identity = write.messages[0].write
        with _dying_at(step):
            self.sink.commit(write.messages)
        has_landed = self.sink.table().metadata.snapshot_by_id(identity.snapshot_id) is not None
        if not has_landed:
            self.litter.add(identity.operation_id)
        if aborts:
            abort_write(self.sink.catalog, write.messages)
        assert self.replay(write, data) == has_landed
        self.landed(write)

    @rule(query=queries, feed=feeds, fault=file_faults, data=st.data())
    @precondition(lambda self: not self.pending)
    def fail_with_files(self, query: str, feed: list[Any], fault: FileFault, data: st.DataObject) -> None:
        """Let the storage fail in tasks or in the commit; the epoch is run again until it is there."""
        messages: list[TaskCommit] = []
        events = self.events(feed, data.draw(st.integers(0, 20), "first sequence"))
        write = self.pending_of(query, events, messages)
        with strike(fault):
            try:
                messages += self.run_tasks(query, write.epoch_id, events, data)
                self.sink.commit(messages)
            except (IcebergSinkError, OSError):
                if messages:
                    self.litter.add(messages[0].write.operation_id)
                else:  # of tasks that were done Spark knows the files, and asks for their end
                    self.has_expired = True
        self.replay(write, data)
        self.landed(write)

    @rule(feed=feeds, query=queries, data=st.data())
    @precondition(lambda self: not self.pending)
    def give_an_epoch_up(self, feed: list[Any], query: str, data: st.DataObject) -> None:
        """Lose a task: nothing is committed, and the files of all others go."""
        write = self.begin(query, feed, data)
        *rest, last = write.messages
        self.litter.add(last.write.operation_id)
        abort_write(self.sink.catalog, [*rest, None])
        paths = [file.file_path for message in rest for file in (*message.data_files, *message.delete_files)]
        assert not any(local(path).exists() for path in paths)

    @rule(feed=feeds, query=queries, data=st.data())
    @precondition(lambda self: not self.pending)
    def refuse_a_tie(self, feed: list[Any], query: str, data: st.DataObject) -> None:
        """Refuse an epoch in which two rows of a key come last."""
        events = self.events([*feed, ("u", 9, "EU", 1, 0)], 0)
        messages = self.run_tasks(query, self.epochs[query], [*events, events[-1]], data)
        try:
            self.sink.commit(messages)
        except RefusedRowsError as refused:
            assert "1 keys have several rows" in str(refused)  # noqa: PT017  # more than one error would do
        else:
            raise AssertionError("a tie was committed")

    # What others do.

    @rule(drawn=plain_rows, is_ours=st.booleans())
    def append(self, drawn: list[tuple[int, str]], *, is_ours: bool) -> None:
        """Let a writer append that knows no keys."""
        self.add_rows(drawn, is_ours=is_ours)

    def add_rows(self, drawn: list[tuple[int, str]], *, is_ours: bool) -> None:
        """Append rows without keys, which come beside those of the same key."""
        table = self.sink.table()
        schema = table.schema()
        rows: list[Row] = [{ID: key, REGION: region, AMOUNT: 1, LSN: next(self.numbers)} for key, region in drawn]
        named = [{f.name: row.get(f.field_id) for f in schema.fields} for row in rows]
        if is_ours:
            columns = [spark.StructField(f.name, SPARK_TYPES[type(f.field_type)]) for f in schema.fields]
            frame = spark.StructType(columns)
            self.sink.commit(self.sink.write(named, schema=frame, plan=self.sink.plan(frame)))
        elif named:
            table.append(pa.Table.from_pylist(named, schema=schema.as_arrow()))
        present = {field.field_id for field in schema.fields}
        for row in rows:
            kept = {number: value for number, value in row.items() if number in present}
            self.model.setdefault(self.key_of(row), []).append(kept)
        self.note()

    @rule(part=st.sampled_from(PARTS))
    def change_partitioning(self, part: tuple[int, Transform[Any, Any]]) -> None:
        """Partition by something else."""
        self.repartition(part)

    def repartition(self, part: tuple[int, Transform[Any, Any]]) -> None:
        """Add a partition field, or remove it if it is there."""
        table, (source, transform) = self.sink.table(), part
        if source not in {field.field_id for field in table.schema().fields}:
            return
        found = [f.name for f in table.spec().fields if (f.source_id, f.transform) == part]
        with table.update_spec() as change:
            if found:
                change.remove_field(found[0])
            else:
                name = table.schema().find_field(source).name
                change.add_field(name, transform, f"part{next(self.numbers)}")
        self.shape += 1

    @rule(what=st.sampled_from(COLUMN_CHANGES), data=st.data())
    def change_columns(self, what: str, data: st.DataObject) -> None:
        """Change the columns."""
        self.alter_columns(what, data)

    def alter_columns(self, what: str, data: st.DataObject) -> None:
        """Add, rename, widen or drop a column, or drop one and add another of its name."""
        table = self.sink.table()
        fields = table.schema().fields
        partitioned = {part.source_id for spec in table.specs().values() for part in spec.fields}
        if what == "add" and len(fields) >= LSN + MAX_ADDED_COLUMNS:
            return
        candidates = {
            "add": fields,
            "rename": fields,
            "widen": [field for field in fields if isinstance(field.field_type, IntegerType)],
        }.get(what, [field for field in fields if field.field_id not in {*partitioned, ID, REGION, LSN}])
        if not candidates:
            return
        field = data.draw(st.sampled_from(sorted(candidates, key=lambda field: field.field_id)), "column")
        self.shape += 1
        if what == "drop and add":
            again = NestedField(table.metadata.last_column_id + 1, field.name, IntegerType())
            set_columns(self.sink, *(kept for kept in fields if kept is not field), again)
            return
        name = f"c{next(self.numbers)}"
        with table.update_schema(allow_incompatible_changes=True) as change:
            if what == "add":
                change.add_column(name, IntegerType())
            elif what == "rename":
                change.rename_column(field.name, name)
            elif what == "widen":
                change.update_column(field.name, LongType())
            else:
                change.delete_column(field.name)

    @rule(data=st.data())
    @precondition(lambda self: len(self.history) > 1 and not self.pending)
    def roll_back(self, data: st.DataObject) -> None:
        """Let somebody roll the table back."""
        table = self.sink.table()
        present = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id in self.history]
        chosen = data.draw(st.sampled_from(present), "snapshot")
        table.manage_snapshots().set_current_snapshot(snapshot_id=chosen).commit()
        self.model = {key: list(rows) for key, rows in self.history[chosen].items()}

    @rule()
    def expire(self) -> None:
        """Expire every snapshot that the table can do without."""
        table = self.sink.table()
        head = table.metadata.current_snapshot_id
        old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id != head]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()
            self.has_expired = True

    @invariant()
    def table_equals_the_model(self) -> None:
        """Compare all rows, and look at every file."""
        table = self.sink.table()
        check_sound(table)
        check_deletes(table)
        assert _sorted(list(row.values()) for row in rows_of(table)) == self.expected(table)


def _sorted(rows: Iterator[list[Any]]) -> list[list[Any]]:
    return sorted(rows, key=str)


def _is_read_by_clickhouse(table: Table) -> bool:
    """Return whether ClickHouse reads all deletes.

    It passes over those of the whole table that hide rows of partitions, and fails where a column has one name in them
    and another one in the data.
    """
    files = listed(table)
    specs = {file.spec_id for file in files[DataFileContent.DATA]}
    deletes = files[DataFileContent.EQUALITY_DELETES]
    names = {(number, schema.find_column_name(number)) for schema in table.metadata.schemas for number in (ID, REGION)}
    return len(names) == len({ID, REGION}) and all({file.spec_id} == specs for file in deletes)


@contextmanager
def _dying_at(last: FaultPoint) -> Iterator[None]:
    def die(step: FaultPoint) -> None:
        if step is last:
            raise Killed

    listen(die)
    try:
        yield
    except Killed:
        pass
    finally:
        listen(None)
