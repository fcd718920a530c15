"""Random numbered batches among what others do to branches and history: none is lost by a skip, and none doubled."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import NestedField, StringType
from support.checks.invariants import check_sound
from support.exhaustive import examples
from support.tables.changes_by_others import (
    cherry_pick,
    drop_branch,
    expire,
    plain_table,
    register_edited,
    set_branch,
    set_columns,
)
from support.tables.sink import IDENTIFIER, Sink, embedded_options, rows

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.errors import CommitConflictError, OptionError
from iceberg_ds.messages import TaskCommit

BRANCHES = ["main", "audit", "stage"]
FAST_RETRIES = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "1"}

branches = st.sampled_from(BRANCHES)
others = st.sampled_from(BRANCHES[1:])


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A numbered batch whose task has run.

    Attributes:
        branch: The branch that it is for.
        version: Its number, and the id of its row.
        messages: What its task reports.
        name_id: The field that column `name` was when it was planned.
    """

    branch: str
    version: int
    messages: list[TaskCommit]
    name_id: int


class Others(RuleBasedStateMachine):
    """A table whose branches many hands move.

    Batch `version` of application `load` has one row, whose id is the version; so what a branch has tells which batches
    it has. A plain batch has an id of its own, from 1,000 on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        options = embedded_options(self.folder)
        self.sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        self.plain_ids = itertools.count(1000)
        self.is_ahead = False
        self.pending: list[Batch] = []

    @initialize()
    def create(self) -> None:
        """Create the table, with a row and without waits."""
        self.sink.append(next(self.plain_ids))
        with plain_table(self.sink).transaction() as change:
            change.set_properties(FAST_RETRIES)

    def teardown(self) -> None:
        """Finish what is under way, and remove the table."""
        try:
            while self.pending:
                self.commit(self.pending.pop())
            self.no_row_is_there_twice()
            self.table_is_whole()
        finally:
            shutil.rmtree(self.folder)

    def refs(self) -> dict[str, int]:
        """Return the branches and their snapshots."""
        refs = self.sink.table().metadata.refs
        return {name: ref.snapshot_id for name, ref in refs.items() if name in BRANCHES}

    def ids(self, branch: str) -> list[int]:
        """Return the ids of a branch."""
        return [row["id"] for row in self.sink.rows_of(branch)] if branch in self.refs() else []

    @rule(branch=branches, version=st.integers(1, 4))
    def append_version(self, branch: str, version: int) -> None:
        """Write a numbered batch and commit it."""
        if (batch := self.begin(branch, version)) is not None:
            self.commit(batch)

    @precondition(lambda self: not self.pending)
    @rule(branch=branches, version=st.integers(1, 4))
    def begin_version(self, branch: str, version: int) -> None:
        """Write a numbered batch; others come before its commit."""
        if (batch := self.begin(branch, version)) is not None:
            self.pending.append(batch)

    @precondition(lambda self: self.pending)
    @rule()
    def commit_version(self) -> None:
        """Commit the batch that was written before."""
        self.commit(self.pending.pop())

    def begin(self, branch: str, version: int) -> Batch | None:
        """Plan a numbered batch and run its task; return None if it is refused."""
        try:
            plan = self.sink.plan(branch=branch, create_branch=branch != "main", txn_app_id="load", txn_version=version)
        except (CommitConflictError, OptionError):
            return None
        messages = self.sink.write(rows(version), plan=plan)
        return Batch(branch=branch, version=version, messages=messages, name_id=self.name_id())

    def commit(self, batch: Batch) -> None:
        """Commit a numbered batch: it lands, is skipped because it is there, or is refused."""
        branch, version = batch.branch, batch.version
        before = self.ids(branch)
        try:
            result = self.sink.commit(batch.messages)
        except (CommitConflictError, OptionError):
            assert self.ids(branch) == before
            return
        now = self.ids(branch if branch in self.refs() else "main")  # what a fork would begin with
        if result.was_replayed:
            # A version is skipped that is below one that is there, too.
            assert any(number >= version for number in now if number < 1000), (version, now)
            return
        assert now.count(version) == 1, (version, now)
        assert self.name_id() == batch.name_id, "the name that was written is another column by now"

    def name_id(self) -> int:
        """Return the field that column `name` is by now."""
        return self.sink.table().schema().find_field("name").field_id

    @rule(branch=branches)
    def append_plain(self, branch: str) -> None:
        """Write a batch that nobody numbers; it writes down what history tells."""
        if branch in self.refs() or branch == "main":
            plan = self.sink.plan(branch=branch)
            self.sink.commit(self.sink.write(rows(next(self.plain_ids)), plan=plan))
            assert max(self.shown(branch), default=0) <= self.recorded(branch).get("version", 0)

    @rule(branch=others)
    def publish(self, branch: str) -> None:
        """Publish a branch: main has its rows and loses none, or it is refused."""
        before = set(self.ids("main"))
        try:
            publish_branch(self.sink.catalog, IDENTIFIER, branch, "main")
        except CommitConflictError:
            assert set(self.ids("main")) == before
            return
        assert before <= set(self.ids("main"))
        assert set(self.ids(branch)) <= set(self.ids("main"))

    @rule(branch=others, at=branches)
    def others_set(self, branch: str, at: str) -> None:
        """Create a branch, or replace it, by SQL, where another one stands."""
        if (head := self.refs().get(at)) is not None:
            self.move(branch, head)

    @rule(branch=others, at=st.integers(0, 9))
    def others_set_to_a_snapshot(self, branch: str, at: int) -> None:
        """Create a branch, or replace it, by SQL at any snapshot (AS OF VERSION)."""
        snapshots = self.sink.table().metadata.snapshots
        chosen = snapshots[at % len(snapshots)]
        if chosen.summary is not None and chosen.summary.operation is not Operation.DELETE:
            self.move(branch, chosen.snapshot_id)

    def move(self, branch: str, head: int) -> None:
        """Create or move a branch by SQL, unless it gets rows of a version that no sink can see there."""
        before = self.refs().get(branch)
        set_branch(self.sink, branch, head)
        if self.is_told(branch):
            return
        if before is None:
            drop_branch(self.sink, branch)
        else:
            set_branch(self.sink, branch, before)

    def is_told(self, branch: str) -> bool:
        """Return whether the newest version of a branch stands in its history or properties, or in those of `main`."""
        newest = max((number for number in self.ids(branch) if number < 1000), default=0)
        metadata = self.sink.table().metadata
        told = max(self.shown(branch), default=0)
        if newest <= max(told, self.recorded(branch).get("version", 0)):
            return True
        main = self.recorded("main")
        oldest = metadata.snapshot_by_id(self.lineage(metadata.refs[branch].snapshot_id)[-1])
        is_cut = oldest is None or oldest.parent_snapshot_id is None
        return not is_cut and main.get("version") == newest and metadata.snapshot_by_id(main["snapshot-id"]) is None

    def shown(self, branch: str) -> list[int]:
        """Return the versions in the summaries of a branch's history."""
        metadata = self.sink.table().metadata
        line = [metadata.snapshot_by_id(number) for number in self.lineage(metadata.refs[branch].snapshot_id)]
        versions = [summary["icebergsink.txn-version"] for found in line if found and (summary := found.summary)]
        return [int(version) for version in versions if version]

    def recorded(self, branch: str) -> dict[str, Any]:
        """Return what the table property of a branch says, nothing if there is none."""
        text = self.sink.table().metadata.properties.get(f"icebergsink.last-txn.{branch}.load", "{}")
        found: dict[str, Any] = json.loads(text)
        return found

    @rule(branch=others)
    def others_fast_forward(self, branch: str) -> None:
        """Fast-forward main by SQL, if main lies behind the branch."""
        head, at = self.refs().get(branch), self.refs().get("main")
        if head is not None and at is not None and at in self.lineage(head):
            self.move("main", head)

    def lineage(self, head: int) -> list[int]:
        """Return the snapshots from one back to where history ends."""
        parents = {found.snapshot_id: found.parent_snapshot_id for found in self.sink.table().metadata.snapshots}
        found: list[int] = []
        at: int | None = head
        while at in parents:
            found.append(at)
            at = parents[at]
        return found

    @rule(branch=others)
    def others_drop(self, branch: str) -> None:
        """Drop a branch by SQL."""
        if branch in self.refs():
            drop_branch(self.sink, branch)

    @rule(branch=branches, back=st.integers(1, 3))
    def others_roll_back(self, branch: str, back: int) -> None:
        """Roll a branch back, but not into the middle of a compaction, which PyIceberg does in two commits."""
        if (head := self.refs().get(branch)) is None or len(line := self.lineage(head)) <= back:
            return
        chosen = self.sink.table().snapshot_by_id(line[back])
        if chosen is not None and chosen.summary is not None and chosen.summary.operation is not Operation.DELETE:
            self.move(branch, line[back])

    @precondition(lambda self: "main" in self.refs())
    @rule()
    def others_replace(self) -> None:
        """Replace the table by SQL, which keeps its uuid and properties."""
        drop_branch(self.sink, "main")
        plain_append(self.sink, next(self.plain_ids))

    @rule(branch=others)
    def others_cherry_pick(self, branch: str) -> None:
        """Cherry-pick the newest write of a branch to main, unless main has it."""
        head, at = self.refs().get(branch), self.refs().get("main")
        if head is None or at is None or head in self.lineage(at) or set(self.ids(branch)) & set(self.ids("main")):
            return
        cherry_pick(self.sink, head)

    @rule(branch=branches)
    def others_tag(self, branch: str) -> None:
        """Tag where a branch stands, which keeps that snapshot from expiring."""
        if (head := self.refs().get(branch)) is not None:
            with plain_table(self.sink).manage_snapshots() as change:
                change.create_tag(head, f"tag-{head}")

    @rule(number=st.integers(0, 9))
    def others_set_property(self, number: int) -> None:
        """Set a property."""
        with plain_table(self.sink).transaction() as change:
            change.set_properties({"owner": f"team {number}"})

    @precondition(lambda self: not self.is_ahead)
    @rule()
    def others_commit_with_a_clock_ahead(self) -> None:
        """Change the table by a machine whose clock is an hour ahead."""
        self.is_ahead = True
        register_edited(self.sink, _an_hour_ahead)

    @precondition(lambda self: "main" in self.refs())
    @rule()
    def others_compact(self) -> None:
        """Write the rows of main into one file, by an overwrite of PyIceberg that keeps them."""
        table = plain_table(self.sink)
        table.overwrite(table.scan().to_arrow())

    @rule()
    def others_drop_and_add_a_column(self) -> None:
        """Drop a column and add another one of its name."""
        schema = plain_table(self.sink).schema()
        again = NestedField(schema.highest_field_id + 1, "name", StringType())
        set_columns(self.sink, schema.find_field("id"), again)

    @rule(cuts_parents=st.booleans())
    def others_expire(self, *, cuts_parents: bool) -> None:
        """Expire history, unless that takes the last proof of a write, which no sink can see afterwards."""
        if not self.unproven():
            expire(self.sink, cuts_parents=cuts_parents)

    def unproven(self) -> bool:
        """Return whether a branch has a version that its properties do not tell of, or lacks one that they tell of."""
        properties = self.sink.table().metadata.properties
        for branch in self.refs():
            versions = [number for number in self.ids(branch) if number < 1000]
            text = properties.get(f"icebergsink.last-txn.{branch}.load", "")
            if versions and f'"version": {max(versions)},' not in text:
                return True
            if text and '"disproved"' not in text and json.loads(text)["version"] not in versions:
                return True
        return False

    @invariant()
    def no_row_is_there_twice(self) -> None:
        """Check that no branch has a row twice."""
        for branch in self.refs():
            found = self.ids(branch)
            assert len(found) == len(set(found)), (branch, found)

    @invariant()
    def table_is_whole(self) -> None:
        """Check that nothing refers to a file that is gone."""
        check_sound(self.sink.table())


def _an_hour_ahead(document: dict[str, Any]) -> None:
    document["last-updated-ms"] += 3_600_000


def plain_append(sink: Sink, number: int) -> None:
    """Append a row by PyIceberg."""
    table = plain_table(sink)
    table.append(
        table.schema().as_arrow().empty_table().from_pylist([{"id": number, "name": "x"}], table.schema().as_arrow())
    )


TestOthers = Others.TestCase
TestOthers.settings = settings(stateful_step_count=14, max_examples=examples(30))
