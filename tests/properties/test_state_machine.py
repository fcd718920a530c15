"""Random writes of all kinds to several branches, beside others: the table equals a serial model all along."""

from __future__ import annotations

import itertools
import math
import operator
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import IntegerType, NestedField
from pyspark.sql import types as spark
from support.catalogs.faulty_catalog import FaultyCatalog, When, connection_lost, refusal, timed_out
from support.checks.invariants import check_clean
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.predicates.strategies import KINDS, Kind, Predicate, predicates, values
from support.tables.changes_by_others import set_columns
from support.tables.delete_files import entries
from support.tables.sink import IDENTIFIER, Row, Sink, embedded_options, epoch

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.errors import CommitConflictError, UnsupportedTableError
from iceberg_ds.messages import TaskCommit
from iceberg_ds.planning.plan_write import WriteMode

COLUMNS: dict[str, Kind] = {
    "id": replace(KINDS["long"], values=tuple(range(0, 40, 7))),
    "region": replace(KINDS["string"], values=("EU", "US", "customer-number-1-of-two", "customer-number-2-of-two")),
    "x": replace(KINDS["double"], values=(-1.5, 0.0, 7.0, math.nan)),
}
NUMBER = replace(KINDS["int"], values=(0, 1, 7))  # what the columns hold that are added on the way
PARTITIONINGS: list[tuple[str, Transform[Any, Any]]] = [
    ("region", IdentityTransform()),
    ("id", BucketTransform(2)),
    ("x", IdentityTransform()),
]
# PyIceberg's scan loses NaN: Arrow takes the bounds in Parquet's footer, which leave them out, for all values.
FILTERED = [name for name, kind in COLUMNS.items() if not kind.has_nan]
COMPARISONS = {"=": (EqualTo, operator.eq), "<": (LessThan, operator.lt), ">=": (GreaterThanOrEqual, operator.ge)}
KINDS_OF_WRITES = ["append", "static", "dynamic", "where"]
BRANCHES = ["main", "audit", "release"]
MAX_ADDED_COLUMNS = 2
# What others do to columns that were added: each is one change of the schema.
CHANGES_OF_COLUMNS = ["drop", "drop and add", "rename", "swap"]
FAST_RETRIES = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "1"}

some_rows = st.lists(
    st.fixed_dictionaries({"region": values(COLUMNS["region"]), "x": values(COLUMNS["x"]), "added": values(NUMBER)}),
    max_size=4,
)
branches = st.sampled_from(BRANCHES)
faults = st.lists(st.sampled_from([refusal, connection_lost, timed_out]), max_size=2)


@dataclass
class Branch:
    """What the model knows of a branch.

    Attributes:
        rows: Its rows.
        history: The snapshots that lie behind it, oldest first.
    """

    rows: list[Row] = field(default_factory=list)
    history: list[int] = field(default_factory=list)

    def fork(self) -> Branch:
        """Return a branch that begins with this one."""
        return Branch(rows=list(self.rows), history=list(self.history))

    def leads_to(self, other: Branch) -> bool:
        """Return whether the other one has all of its snapshots."""
        return other.history[: len(self.history)] == self.history


@dataclass(frozen=True, kw_only=True)
class Write:
    """One write.

    Attributes:
        branch: The branch that its rows become part of.
        rows: What it writes.
        is_in_range: Tells which rows it replaces; none of them if it appends.
        range_text: The predicate that says so, empty if none does.
        fields: Which field each name was of when the write began.
        is_serializable: Rows that come into its range meanwhile are a conflict.
        base: The branch when the write began.
        specs: The partition specs of the table and of the branch's files then, the table's first.
        messages: What its task reports.
    """

    branch: str
    rows: list[Row]
    is_in_range: Callable[[Row], bool]
    range_text: str
    fields: dict[str, str]
    is_serializable: bool
    base: Branch
    specs: tuple[int, ...]
    messages: list[TaskCommit]


class Writes(RuleBasedStateMachine):
    """A table and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        options = embedded_options(self.folder)
        catalog = catalog_settings(options)
        self.faulty = FaultyCatalog(load_catalog(catalog.name, **dict(catalog.properties)))
        client = CatalogClient(self.faulty, catalog)  # type: ignore[arg-type]  # it has the methods that are called
        self.sink = Sink(catalog=connect(catalog), options=options)
        self.failing = Sink(catalog=client, options=options)
        self.model: dict[str, Branch] = {"main": Branch()}
        # The fields behind the names of columns that were added; rows of the model go by fields.
        self.added: dict[str, str] = {}
        self.pending: list[Write] = []
        self.ids = itertools.count()
        self.numbers = itertools.count()

    @initialize(format_version=st.sampled_from("12"))
    def create(self, format_version: str) -> None:
        """Create the table."""
        fields = [NestedField(at, name, kind.iceberg) for at, (name, kind) in enumerate(COLUMNS.items(), 1)]
        self.sink.create(Schema(*fields), format_version=format_version)
        with self.sink.table().transaction() as change:
            change.set_properties(FAST_RETRIES)

    def teardown(self) -> None:
        """Finish what is under way, check that nothing lies around, and remove it."""
        try:
            while self.pending:
                self.commit(self.pending.pop(), [], When.BEFORE)
            self.branches_equal_the_model()
            check_clean(self.sink.table())
        finally:
            shutil.rmtree(self.folder)

    @property
    def columns(self) -> dict[str, Kind]:
        """The columns that the table has now."""
        return COLUMNS | dict.fromkeys(self.added, NUMBER)

    @property
    def schema(self) -> spark.StructType:
        """The DataFrame's schema."""
        return spark.StructType([spark.StructField(name, kind.spark) for name, kind in self.columns.items()])

    def new_rows(self, drawn: Sequence[Row]) -> list[Row]:
        """Return rows that no other write has."""
        return [
            {"id": next(self.ids), "region": row["region"], "x": row["x"], **dict.fromkeys(self.added, row["added"])}
            for row in drawn
        ]

    @property
    def fields(self) -> dict[str, str]:
        """Which field each column is by now."""
        return {name: name for name in COLUMNS} | self.added

    def by_field(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows by fields."""
        return [{self.fields[name]: value for name, value in row.items()} for row in rows]

    def begin(self, kind: str, branch: str, drawn: Sequence[Row], data: st.DataObject, **options: Any) -> Write:
        """Plan a write and run its task; before the first snapshot there is only main."""
        branch = branch if any(known.history for known in self.model.values()) else "main"
        rows, spec = self.new_rows(drawn), self.sink.table().spec()
        predicate = data.draw(predicates(self.columns), "range") if kind == "where" else None
        if predicate is not None:
            rows = [row for row in rows if predicate.holds(row)]
        is_serializable = kind != "append" and data.draw(st.booleans(), "is serializable")
        if kind != "append":
            options["isolation_level"] = "serializable" if is_serializable else "snapshot"
        if predicate is not None:
            options["replace_where"] = predicate.text
        elif kind != "append":
            options["overwrite_mode"] = kind
        mode = WriteMode.APPEND if kind == "append" else WriteMode.OVERWRITE
        plan = self.sink.plan(self.schema, mode, branch=branch, create_branch=branch != "main", **options)
        of_epoch = epoch(0, f"query-{next(self.numbers)}") if "staging_branch" not in options else None
        return Write(
            branch=branch,
            rows=self.by_field(rows),
            is_in_range=self.range_of(kind, rows, predicate),
            range_text="" if predicate is None else predicate.text,
            fields=self.fields,
            is_serializable=is_serializable,
            base=self.model.get(branch, self.model["main"]).fork(),
            specs=(spec.spec_id, *self.specs_of(branch)),
            messages=self.sink.write(rows, schema=self.schema, plan=plan, of_epoch=of_epoch),
        )

    def range_of(self, kind: str, rows: Sequence[Row], predicate: Predicate | None) -> Callable[[Row], bool]:
        """Return which rows such a write replaces."""
        if predicate is not None:
            fields = self.fields
            return lambda row: predicate.holds({name: row.get(field) for name, field in fields.items()})
        if kind == "dynamic":
            fields = [(f.source_id, f.transform) for f in self.sink.table().spec().fields]
            replaced = {_partition(fields, row) for row in rows}
            return lambda row: _partition(fields, row) in replaced
        return lambda _: kind == "static"

    def commit(self, write: Write, errors: Sequence[Callable[[], Exception]], when: When) -> None:
        """Commit a write among failures, and do the same to the model."""
        for error in errors[: 1 if when is When.AFTER else None]:
            self.faulty.fail_next(1, error, when=when)
        before = self.model.get(write.branch, self.model["main"])
        try:
            result = self.failing.commit(write.messages)
        except CommitConflictError:
            is_of_columns = self.means_others(write)
            assert is_of_columns or before.history != write.base.history, "a conflict with nobody"
        except UnsupportedTableError:
            assert {*write.specs, *self.specs_of(write.branch)} != {write.specs[0]}, "no file of another spec"
        else:
            # Without rows and without a range there is nothing that a name could be wrong for.
            assert result.snapshot_id is None or not self.means_others(write), "a name that means another column"
            self.apply(write, before, result)
        finally:
            self.faulty.forget()

    def means_others(self, write: Write) -> bool:
        """Return whether a name that was written is another column by now, or one of the range is none."""
        now = self.fields
        return any(
            now.get(name, field) != field or (name not in now and name in write.range_text)
            for name, field in write.fields.items()
        )

    def apply(self, write: Write, before: Branch, result: CommitResult) -> None:
        """Do to the model what a write did to its branch."""
        seen = {row["id"] for row in write.base.rows}
        in_range = [row for row in before.rows if write.is_in_range(row)]
        if write.is_serializable:
            assert all(row["id"] in seen for row in in_range), "rows that it never saw"
        gone = {row["id"] for row in in_range if row["id"] in seen}
        if result.snapshot_id is None:
            assert not write.rows
            assert not gone
            return
        rows = [row for row in before.rows if row["id"] not in gone]
        self.model[write.branch] = Branch(rows=rows + write.rows, history=[*before.history, result.snapshot_id])

    def specs_of(self, branch: str) -> set[int]:
        """Return the partition specs of a branch's files, or of those of main if it is missing."""
        branch = branch if branch in self.model else "main"
        return (
            {entry.data_file.spec_id for entry in entries(self.sink, branch)} if self.model[branch].history else set()
        )

    @rule(
        kind=st.sampled_from(KINDS_OF_WRITES),
        branch=branches,
        drawn=some_rows,
        data=st.data(),
    )
    def write_at_once(
        self,
        kind: str,
        branch: str,
        drawn: list[Row],
        data: st.DataObject,
    ) -> None:
        """Write and commit among failures."""
        write = self.begin(kind, branch, drawn, data)
        self.commit(write, data.draw(faults), data.draw(st.sampled_from(When)))

    @rule(kind=st.sampled_from(KINDS_OF_WRITES), branch=branches, drawn=some_rows, data=st.data())
    @precondition(lambda self: len(self.pending) < 2)
    def begin_a_write(self, kind: str, branch: str, drawn: list[Row], data: st.DataObject) -> None:
        """Let a write begin that others will be faster than."""
        self.pending.append(self.begin(kind, branch, drawn, data))

    @rule(errors=faults, when=st.sampled_from(When))
    @precondition(lambda self: self.pending)
    def commit_a_write(self, errors: list[Callable[[], Exception]], when: When) -> None:
        """Commit the write that began first."""
        self.commit(self.pending.pop(0), errors, when)

    @rule(kind=st.sampled_from(KINDS_OF_WRITES), drawn=some_rows, data=st.data())
    def write_staged(self, kind: str, drawn: list[Row], data: st.DataObject) -> None:
        """Write to a staging branch and publish it."""
        write = self.begin(kind, "main", drawn, data, staging_branch="staging")
        self.commit(write, [], When.BEFORE)

    @rule(branch=st.sampled_from(BRANCHES[1:]), errors=faults, when=st.sampled_from(When))
    @precondition(lambda self: len(self.model) > 1)
    def publish(self, branch: str, errors: list[Callable[[], Exception]], when: When) -> None:
        """Publish a branch, if main has not moved on."""
        for error in errors[: 1 if when is When.AFTER else None]:
            self.faulty.fail_next(1, error, when=when)
        main, ahead = self.model["main"], self.model.get(branch)
        try:
            publish_branch(self.failing.catalog, IDENTIFIER, branch, "main")
        except CommitConflictError:
            assert ahead is None or not (main.leads_to(ahead) or ahead.leads_to(main))
        else:
            assert ahead is not None
            assert main.leads_to(ahead) or ahead.leads_to(main)
            if main.leads_to(ahead):
                self.model["main"] = ahead.fork()
        finally:
            self.faulty.forget()

    @rule(drawn=some_rows)
    def append_by_pyiceberg(self, drawn: list[Row]) -> None:
        """Let a writer append that counts no NaN; it cannot partition by them."""
        table = self.sink.table()
        by_x = any(table.schema().find_column_name(part.source_id) == "x" for part in table.spec().fields)
        rows = [row for row in self.new_rows(drawn) if not (by_x and row["x"] != row["x"])]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
        main, snapshot = self.model["main"], table.current_snapshot()
        assert snapshot is not None
        rows = self.by_field(rows)
        self.model["main"] = Branch(rows=main.rows + rows, history=[*main.history, snapshot.snapshot_id])

    @rule()
    @precondition(lambda self: len(self.added) < MAX_ADDED_COLUMNS)
    def add_a_column(self) -> None:
        """Add a column, maybe of a name that another one had."""
        name = next(name for name in ("added 0", "added 1") if name not in self.added)
        with self.sink.table().update_schema() as change:
            change.add_column(name, IntegerType())
        self.added[name] = f"field {next(self.numbers)}"

    @rule(how=st.sampled_from(CHANGES_OF_COLUMNS), data=st.data())
    @precondition(lambda self: self.added)
    def change_a_column(self, how: str, data: st.DataObject) -> None:
        """Let others drop a column that was added, add it again, rename it, or give it the name of another one."""
        schema = self.sink.table().schema()
        found = [schema.find_field(name) for name in self.added]
        chosen = data.draw(st.sampled_from(found), "column")
        names = {field.field_id: field.name for field in found}
        free = next(name for name in ("added 0", "added 1", "added 2") if name not in self.added)
        match how:
            case "drop":
                del names[chosen.field_id]
            case "rename":
                names[chosen.field_id] = free
            case "swap":
                names = dict(zip(names, reversed(names.values()), strict=True))
        fields = {number: self.added[schema.find_field(number).name] for number in names}
        if how == "drop and add":
            del names[chosen.field_id], fields[chosen.field_id]
            number = 1 + self.sink.table().metadata.last_column_id
            names[number], fields[number] = chosen.name, f"field {next(self.numbers)}"
        kept = [field for field in schema.fields if field.name not in self.added]
        set_columns(self.sink, *kept, *(NestedField(number, name, IntegerType()) for number, name in names.items()))
        self.added = {name: fields[number] for number, name in names.items()}

    @rule(partitioning=st.sampled_from(PARTITIONINGS))
    def change_partitioning(self, partitioning: tuple[str, Transform[Any, Any]]) -> None:
        """Add a partition field, or remove it if it is there; a version 1 table keeps what it has."""
        table, (column, transform) = self.sink.table(), partitioning
        source_id = table.schema().find_field(column).field_id
        found = [f.name for f in table.spec().fields if (f.source_id, f.transform) == (source_id, transform)]
        if found and table.metadata.format_version == 1:
            return
        with table.update_spec() as change:
            if found:
                change.remove_field(found[0])
            else:
                change.add_field(column, transform, f"p{next(self.numbers)}")

    @rule(column=st.sampled_from(FILTERED), sign=st.sampled_from(list(COMPARISONS)), data=st.data())
    def filter_rows(self, column: str, sign: str, data: st.DataObject) -> None:
        """Find by a filter, which readers skip files with, exactly the rows that satisfy it."""
        value, table = data.draw(st.sampled_from(COLUMNS[column].values), "value"), self.sink.table()
        expression, holds = COMPARISONS[sign]
        for name, branch in self.model.items():
            if branch.history:
                snapshot_id = table.metadata.refs[name].snapshot_id
                scan = table.scan(row_filter=expression(column, value), snapshot_id=snapshot_id)
                known = [row for row in branch.rows if row[column] is not None]
                expected = [row["id"] for row in known if holds(row[column], value)]
                assert sorted(scan.to_arrow()["id"].to_pylist()) == sorted(expected)

    @invariant()
    def branches_equal_the_model(self) -> None:
        """Compare every branch with the model, row by row."""
        table = self.sink.table()
        refs = table.metadata.refs
        for name, branch in self.model.items():
            assert (name in refs) == bool(branch.history)
            if branch.history:
                assert refs[name].snapshot_id == branch.history[-1]
                found = self.by_field(rows_of(table, name))
                assert _plain(found, self.fields.values()) == _plain(branch.rows, self.fields.values())


def _partition(fields: Sequence[tuple[int, Transform[Any, Any]]], row: Row) -> tuple[object, ...]:
    sources = list(COLUMNS.items())
    values_of = [(sources[source_id - 1], transform) for source_id, transform in fields]
    return tuple(transform.transform(kind.iceberg)(row[name]) for (name, kind), transform in values_of)


def _plain(rows: Sequence[Row], fields: Collection[str]) -> list[str]:
    """Return rows as text, which tells NaN and nulls; a column that was added later is null."""
    return sorted(str([row.get(field) for field in fields]) for row in rows)


TestWrites = Writes.TestCase
TestWrites.settings = settings(stateful_step_count=20, max_examples=examples(30))
