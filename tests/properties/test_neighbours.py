"""Random neighbours in one folder, and entries in several catalogs: a clean-up of one leaves every other whole."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetPropertiesUpdate
from support.exhaustive import examples
from support.tables.changes_by_others import expire, plain_catalog, register_elsewhere, rename, set_branch
from support.tables.sink import Sink, embedded_options, local, rows

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.table.names import identifier_text

AGE_S = 9 * 86_400
FAST_RETRIES = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "1"}
PACKED = {"write.metadata.compression-codec": "gzip"}
NO_CLEAN_UP = {"write.metadata.delete-after-commit.enabled": "false", "write.metadata.previous-versions-max": "2"}

picks = st.integers(0, 5)


class Neighbours(RuleBasedStateMachine):
    """Entries of tables in catalogs, and the ids that each has to show whatever is cleaned up."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        options = embedded_options(self.folder / "warehouse")
        self.entries: list[tuple[Sink, list[int]]] = []
        self.numbers = itertools.count(1000)
        self.sink = Sink(catalog=connect(catalog_settings(options)), options=options)

    @initialize()
    def create(self) -> None:
        """Create the table."""
        self.sink.append(0)
        self.entries.append((self.sink, [0]))

    def teardown(self) -> None:
        """Clean up every entry, and remove all tables."""
        try:
            for pick in range(len(self.entries)):
                self.clean(pick)
        finally:
            shutil.rmtree(self.folder)

    def picked(self, pick: int) -> tuple[Sink, list[int]]:
        """Return an entry, and the ids that it has to show."""
        return self.entries[pick % len(self.entries)]

    @rule(pick=picks)
    def write(self, pick: int) -> None:
        """Write through an entry."""
        sink, ids = self.picked(pick)
        number = next(self.numbers)
        sink.append(number)
        ids.append(number)

    @rule(pick=picks)
    def others_compact(self, pick: int) -> None:
        """Write the rows of an entry into one file; expire all snapshots before if no other catalog shows one of them.

        Their files stay, as with PyIceberg, until they are deleted as orphans.
        """
        sink, ids = self.picked(pick)
        sink.overwrite(rows(*ids))
        if not self.is_shared(sink):
            expire(sink, cuts_parents=True)

    def is_shared(self, sink: Sink) -> bool:
        """Return whether several catalogs have the table: what one of them lets go of, another may stand at."""
        table_uuid = sink.table().metadata.table_uuid
        return sum(other.table().metadata.table_uuid == table_uuid for other, _ in self.entries) > 1

    @rule(pick=picks)
    def others_roll_back(self, pick: int) -> None:
        """Set an entry back behind what it appended last, if that is known."""
        sink, ids = self.picked(pick)
        table = sink.table()
        head = table.current_snapshot()
        if head is None or head.summary is None or head.summary.operation is not Operation.APPEND:
            return
        if head.parent_snapshot_id is not None and table.snapshot_by_id(head.parent_snapshot_id) is not None:
            set_branch(sink, "main", head.parent_snapshot_id)
            ids.pop()

    @rule(pick=picks, properties=st.sampled_from([FAST_RETRIES, PACKED, NO_CLEAN_UP]))
    def others_set(self, pick: int, properties: dict[str, str]) -> None:
        """Set properties that say how metadata is kept."""
        sink, _ = self.picked(pick)
        if properties is NO_CLEAN_UP and self.is_shared(sink):
            return
        sink.catalog.send(sink.table(), (), (SetPropertiesUpdate(updates=properties),))

    @rule(is_by_sink=st.booleans())
    def others_rename(self, *, is_by_sink: bool) -> None:
        """Rename `db.t` and make another: by the sink, or at the same location by an engine that looks at nothing."""
        at = next(number for number, (sink, _) in enumerate(self.entries) if sink is self.sink)
        location = self.sink.table().metadata.location
        schema = self.sink.table().schema()
        self.entries[at] = (rename(self.sink, f"db.old{len(self.entries)}"), self.entries[at][1])
        if not is_by_sink:
            plain_catalog(self.sink).create_table(self.sink.options.table, schema, location=location)
        self.sink.append(0)
        self.entries.append((self.sink, [0]))

    @rule(pick=picks, writes=st.sets(st.sampled_from(["here", "there"])))
    def others_register(self, pick: int, writes: set[str]) -> None:
        """Register a table in another catalog, too; perhaps both go on."""
        sink, ids = self.picked(pick)
        if sink.options.table == ("db", "t") and not NO_CLEAN_UP.items() <= sink.table().properties.items():
            warehouse = self.folder / f"elsewhere{len(self.entries)}"
            self.entries.append((register_elsewhere(sink, warehouse), [*ids]))
            for at in writes:
                self.write(pick if at == "here" else len(self.entries) - 1)

    @rule(pick=picks)
    def others_nest(self, pick: int) -> None:
        """Make a table below another's location."""
        sink, _ = self.picked(pick)
        table = sink.table()
        below = replace(sink, options=replace(sink.options, table=("db", f"below{len(self.entries)}")))
        place = f"{table.metadata.location}/{below.options.table[-1]}"
        plain_catalog(sink).create_table(below.options.table, table.schema(), location=place)
        below.append(0)
        self.entries.append((below, [0]))

    @rule(pick=picks)
    def clean(self, pick: int) -> None:
        """Delete the orphans of one entry, all files being old; what a killed write left there is among them."""
        sink, _ = self.picked(pick)
        sink.write(rows(99))
        then = time.time() - AGE_S
        for path in local(sink.table().metadata.location).rglob("*.*"):
            os.utime(path, (then, then))
        options = {"warehouse": str(sink.options.warehouse)}
        result = iceberg_ds.verify(identifier_text(sink.options.table), options=options, delete_orphans=True)
        if len(self.entries) == 1:
            assert result.ok, str(result)
            assert any(orphan.deleted for orphan in result.orphans)
        self.check()

    def check(self) -> None:
        """Check that nothing of any entry is gone."""
        for sink, ids in self.entries:
            assert sink.ids() == sorted(ids)


TestNeighbours = Neighbours.TestCase
TestNeighbours.settings = settings(stateful_step_count=8, max_examples=examples(30))
