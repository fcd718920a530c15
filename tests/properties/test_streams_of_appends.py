"""Any history, read by streams with any limits and restarts: each appended row comes once, in order."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.checks.reader import rows_of
from support.exhaustive import examples
from support.tables.changes_by_others import expire, plain_table
from support.tables.data_rewrites import data_paths, delete_paths, rewrite
from support.tables.delete_files import delete_ids
from support.tables.follower import Follower
from support.tables.rewrites import rewrite_manifests
from support.tables.sink import Sink, embedded_options, rows

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings

counts = st.integers(1, 4)
limits = st.one_of(
    st.integers(1, 3).map(lambda most: {"streaming_max_files_per_micro_batch": str(most)}),
    st.integers(1, 5).map(lambda most: {"streaming_max_rows_per_micro_batch": str(most)}),
)


class FollowedTable(RuleBasedStateMachine):
    """A table that others append to, change and tidy, and three streams that read it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        options = embedded_options(self.folder)
        self.sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        self.ids = itertools.count()
        self.appended: list[list[int]] = []  # by snapshot
        self.added: list[list[int]] = []  # by snapshot, those of overwrites among them

    @initialize(merges=st.booleans())
    def create(self, *, merges: bool) -> None:
        """Create the table with a first row, and start the streams."""
        self.streams = [
            (Follower(sink=self.sink, options={"on_change": choice}, tells_start=tells_start), [])
            for choice, tells_start in (("skip", True), ("added-files", True), ("skip", False))
        ]
        self.append(1)
        if merges:
            with self.sink.table().transaction() as change:
                change.set_properties({"commit.manifest.min-count-to-merge": "2"})

    def teardown(self) -> None:
        """Let all streams read to the end: they have all rows."""
        try:
            for query, got in self.streams:
                while (found := query.batch()) is not None:
                    got += [row["id"] for row in found]
                expected = self.added if query.options["on_change"] == "added-files" else self.appended
                assert sorted(got) == sorted(itertools.chain(*expected))
        finally:
            shutil.rmtree(self.folder)

    def new_ids(self, count: int) -> list[int]:
        """Return ids that no row has."""
        return list(itertools.islice(self.ids, count))

    @rule(count=counts)
    def append(self, count: int) -> None:
        """Append some rows, each in a file of its own."""
        ids = self.new_ids(count)
        self.sink.commit(self.sink.write(*(rows(number) for number in ids)))
        self.appended.append(ids)
        self.added.append(ids)

    @rule(count=counts)
    def append_one_file(self, count: int) -> None:
        """Append some rows in one file."""
        ids = self.new_ids(count)
        self.sink.append(*ids)
        self.appended.append(ids)
        self.added.append(ids)

    @rule(count=counts)
    def overwrite(self, count: int) -> None:
        """Replace all rows."""
        ids = self.new_ids(count)
        is_empty = not (data_paths(self.sink) or delete_paths(self.sink))
        self.sink.overwrite(*(rows(number) for number in ids))
        self.added.append(ids)
        if is_empty:  # there was nothing to replace
            self.appended.append(ids)

    @rule()
    def delete(self) -> None:
        """Delete a row by its key."""
        if visible := rows_of(self.sink.table()):
            delete_ids(self.sink, visible[0]["id"])

    @rule()
    def compact(self) -> None:
        """Write all files anew."""
        rewrite(self.sink, rewrite_all="true")

    @rule()
    def tidy_manifests(self) -> None:
        """Write the manifests anew."""
        rewrite_manifests(self.sink)

    @rule()
    def expire(self) -> None:
        """Expire all snapshots, as soon as all streams have read them."""
        table = plain_table(self.sink)
        head = table.metadata.current_snapshot_id
        ends = [query.committed or {} for query, _ in self.streams]
        if all(end.get("snapshot") == head and end["file"] == end["files"] for end in ends):
            expire(self.sink)

    @rule(number=st.integers(0, 2), limit=limits, dies=st.booleans())
    def read(self, number: int, limit: dict[str, Any], *, dies: bool) -> None:
        """Let a stream go on with other limits; what a driver read that died does not count."""
        query, got = self.streams[number]
        query.options = {"on_change": query.options["on_change"], **limit}
        query.stop()
        before = query.batch(dies=dies)
        if before is not None and not dies:
            got += [row["id"] for row in before]

    @rule(number=st.integers(0, 2))
    def catch_up(self, number: int) -> None:
        """Let a stream read all there is."""
        query, got = self.streams[number]
        query.options = {"on_change": query.options["on_change"]}
        query.stop()
        while (found := query.batch()) is not None:
            got += [row["id"] for row in found]

    @invariant()
    def rows_come_in_order(self) -> None:
        """What a stream has is all rows of its first snapshots, and some of the next."""
        for query, got in self.streams:
            expected = self.added if query.options["on_change"] == "added-files" else self.appended
            left = list(got)
            for ids in expected:
                own, left = left[: len(ids)], left[len(ids) :]
                assert set(own) <= set(ids)
                assert len(set(own)) == len(own)
                if len(own) < len(ids):
                    break
            assert left == []


TestFollowedTable = FollowedTable.TestCase
TestFollowedTable.settings = settings(stateful_step_count=20, max_examples=examples(90))
