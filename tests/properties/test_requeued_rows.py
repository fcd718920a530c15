"""Random writes, deaths, renames, replacements and requeues: no row that was sent is in the table twice, or lost.

The oracle is a set: what the source has sent since the table's rows last began anew. A requeue either leaves the table
with exactly these rows, or refuses, and then writes nothing more and names a way on, which is taken.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.table.snapshots import Snapshot
from support.exhaustive import examples
from support.spark.requeued_frame import Frame, Session
from support.tables.bad_rows import SENT, TABLE, quarantining, sent, write
from support.tables.changes_by_others import drop_branch, expire, plain_catalog, plain_table, rename, set_branch
from support.tables.sink import Row, Sink, embedded_options, epoch

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import CommitConflictError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.multi_table.requeue import RequeueResult, requeue
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.table.names import identifier_text

NUMBERS = ("none", "epochs", "versions")
HOW = ("same", "mended", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A write: its rows by their ids, and what numbers it."""

    good: frozenset[int]
    bad: frozenset[int]
    mode: WriteMode
    choices: dict[str, Any]

    @property
    def ids(self) -> frozenset[int]:
        """The ids of all rows."""
        return self.good | self.bad

    @property
    def rows(self) -> list[Row]:
        """The rows; no try of the bad ones can be written."""
        good = [(str(number), "1", None) for number in sorted(self.good)]
        return sent(*good, *((str(number), f"bad {number}", None) for number in sorted(self.bad)))


def mended(bad: Any, before: Callable[[], None]) -> Any:
    """Return the rows of a quarantine with another value in place of the bad one."""
    rows = [{"id": json.loads(row["row"])["id"], "amount": "2", "token": None} for row in bad.rows]
    return Frame(rows, SENT, before)


class World:
    """A table, its quarantine, a source that begins anew when the table does, and a user who mends rows."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder, self.random = folder, random
        options = embedded_options(folder, on_bad_row="quarantine", quarantine_table="db.bad")
        self.sink = Sink(catalog=connect(catalog_settings(options)), options=options)
        self.ids, self.numbers, self.lives = itertools.count(1), itertools.count(), itertools.count()
        self.life = 0
        self.expected: frozenset[int] = frozenset()
        self.at: dict[int, frozenset[int]] = {}  # what is expected of the table at a snapshot
        self.last: Made | None = None
        self.dead: Made | None = None  # was killed when the quarantine had its rows, and is to be repeated
        self.is_early = False  # rows of the dead write were requeued before it came again
        self.is_disturbed = False  # something happened since the last requeue that expired history would hide
        quarantining(self.sink)

    def wanted(self) -> frozenset[int]:
        """Return what may be in the table: a requeue may write the bad rows of a dead driver before it comes again."""
        return self.expected | (self.dead.bad if self.dead is not None else frozenset())

    def note(self) -> None:
        """Keep what is expected of the table as it stands."""
        head = plain_table(self.sink).current_snapshot()
        self.at[0 if head is None else head.snapshot_id] = self.expected

    def begin_anew(self, expected: frozenset[int] = frozenset()) -> None:
        """Let the table have other rows, and the source begin from there."""
        self.expected, self.life, self.is_disturbed = expected, next(self.lives) + 1, True
        self.note()

    def send(self, made: Made) -> None:
        """Write, and expect the rows."""
        write(self.sink, made.rows, mode=made.mode, **made.choices)
        replaces = made.mode is WriteMode.OVERWRITE
        self.expected = made.ids if replaces else self.expected | made.ids
        self.is_disturbed |= replaces
        self.last = made
        self.note()

    def made(self, by: str, mode: WriteMode, good: frozenset[int], bad: frozenset[int]) -> Made:
        """Return a new write."""
        number, choices = next(self.numbers), {}
        if by == "epochs":
            choices = {"of_epoch": epoch(number, f"query-{self.life}")}
        elif by == "versions":
            choices = {"txn_app_id": f"app-{self.life}", "txn_version": number}
        return Made(good=good, bad=bad, mode=mode, choices=choices)

    def new_rows(self) -> None:
        """Write new rows; the driver may die when the quarantine has its rows, if the write has a number."""
        by, dies = self.random.choice(NUMBERS), self.random.random() < 1 / 3
        mode = self.random.choice([WriteMode.APPEND, WriteMode.APPEND, WriteMode.OVERWRITE])
        count = self.random.choice([(0, 1), (1, 1), (1, 1), (1, 0)])
        if self.dead is not None:
            return
        good, bad = (frozenset(itertools.islice(self.ids, each)) for each in count)
        made = self.made(by, mode, good, bad)
        if not (dies and bad and by != "none"):
            self.send(made)
            return

        def hear(reached: FaultPoint) -> None:
            if reached is FaultPoint.QUARANTINED:
                listen(None)
                raise KeyboardInterrupt

        listen(hear)
        try:
            self.send(made)
        except KeyboardInterrupt:
            self.dead, self.is_early = made, False
        listen(None)

    def repeat(self) -> None:
        """Write the rows of the dead driver again."""
        if self.dead is not None:
            dead, self.dead = self.dead, None
            self.send(dead)

    def send_again(self) -> None:
        """Let the source send the rows of the last write again, which the table lost; its bad ones mended or not."""
        by, how = self.random.choice(NUMBERS), self.random.choice(HOW)
        if how == "none" or self.dead is not None or self.last is None or self.last.ids & self.expected:
            return
        good, bad = (self.last.ids, frozenset[int]()) if how == "mended" else (self.last.good, self.last.bad)
        self.send(self.made(by, WriteMode.APPEND, good, bad))

    def nightly(self) -> None:
        """Write all rows anew, in place of those that are there."""
        by, how = self.random.choice(NUMBERS), self.random.choice(HOW)
        if self.dead is not None or self.last is None or not self.expected:
            return
        bad = self.last.bad & self.expected if how == "same" else frozenset()
        self.send(self.made(by, WriteMode.OVERWRITE, self.expected - bad, bad))

    def rename(self) -> None:
        """Give the table another name."""
        self.sink = rename(self.sink, "db.u" if self.sink.options.table[-1] == "t" else "db.t")

    def rows_are_gone(self) -> None:
        """CREATE OR REPLACE TABLE, or drop the table and make it anew, or set it back by a snapshot."""
        change = self.random.choice(["replace", "drop", "set-back"])
        if self.is_early:
            return
        head = plain_table(self.sink).current_snapshot()
        if change == "drop":
            plain_catalog(self.sink).drop_table(self.sink.options.table)
            self.sink.create(TABLE)
            self.at = {}
            self.begin_anew()
        elif change == "replace" and head is not None:
            drop_branch(self.sink, "main")
            self.begin_anew()
        elif change == "set-back" and head is not None and (before := self.before(head)) is not None:
            set_branch(self.sink, "main", before)
            self.begin_anew(self.at[before])
        else:
            return
        self.send_again()

    def before(self, head: Snapshot) -> int | None:
        """Return the snapshot before the last one, None if it has expired."""
        kept = {snapshot.snapshot_id for snapshot in plain_table(self.sink).metadata.snapshots}
        return head.parent_snapshot_id if head.parent_snapshot_id in kept & self.at.keys() else None

    def expire(self) -> None:
        """Expire the table's history, unless it alone tells what happened since the last requeue."""
        if not self.is_disturbed and plain_table(self.sink).current_snapshot() is not None:
            expire(self.sink)

    def expire_quarantine(self) -> None:
        """Expire the history of the quarantine."""
        bad = replace(self.sink, options=replace(self.sink.options, table=("db", "bad")))
        if self.dead is None and plain_catalog(bad).table_exists("db.bad"):
            expire(bad)

    def requeue(self) -> None:
        """Mend the rows, and write them; take the way on where it is unknown which ones.

        Others may act while the first call is about to write a batch.
        """
        others = self.random.choice([None, None, World.nightly, World.rename, World.rows_are_gone])
        if not plain_catalog(self.sink).table_exists("db.bad"):
            return
        try:
            self.call(None if self.dead is not None else others)
        except (UnsupportedTableError, CommitConflictError):
            self.repeat()
            try:
                self.call()
            except (UnsupportedTableError, CommitConflictError) as refused:
                self.decide(str(refused))
                assert self.call().rows == 0
        self.is_early = self.is_disturbed = self.dead is not None
        found = set(self.ids_now())
        assert self.expected <= found <= self.wanted()
        self.note()

    def call(self, others: Callable[[World], None] | None = None) -> RequeueResult:
        """Requeue; `others` act once, before a batch of the first two is written, None if they do not."""
        left = [others] if self.random.random() < 1 / 2 else [None, others]

        def act() -> None:
            if left and (now := left.pop(0)) is not None:
                now(self)

        options, table = {"warehouse": str(self.folder)}, identifier_text(self.sink.options.table)
        return requeue(Session(), "db.bad", table, options=options, transform=partial(mended, before=act))  # type: ignore[arg-type]

    def decide(self, refused: str) -> None:
        """Write the rows that the table lacks, in a batch of one's own, as an error says."""
        quarantine = plain_catalog(self.sink).load_table("db.bad").metadata
        lacked = self.wanted() - set(self.ids_now())
        told = re.search(r"txn-app-id='(.+)' and txn-version=(\d+)", refused)
        app_id, version = told.groups() if told else (f"requeue {quarantine.table_uuid}", None)
        if told is None:  # rows that were requeued, and that the table was set back behind
            key = re.search(r"table property '(icebergsink\.last-txn\.[^']+)'", refused)
            assert key is not None, refused
        with plain_table(self.sink).transaction() as change:
            change.remove_properties(
                *(key for key in plain_table(self.sink).properties if "last-txn.main.requeue" in key)
            )
        own = {"txn_app_id": app_id, "txn_version": int(version or quarantine.last_sequence_number)}
        write(self.sink, sent(*((str(number), "3", None) for number in sorted(lacked))), **own)

    def ids_now(self) -> list[int]:
        """Return the ids of the table's rows."""
        return self.sink.ids()

    def check(self) -> None:
        """Check that each row is there once, and is one that was sent."""
        found = self.ids_now()
        assert len(found) == len(set(found))
        assert set(found) <= self.wanted()


STEPS = {
    World.new_rows: 5,
    World.repeat: 2,
    World.nightly: 2,
    World.rows_are_gone: 2,
    World.rename: 1,
    World.expire: 1,
    World.expire_quarantine: 0.3,
    World.requeue: 3,
}


@pytest.mark.parametrize("seed", range(examples(90)))
def test_no_row_comes_twice_or_is_lost(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A requeue would write rows that the table has, or leave out rows that it lacks, without a word."""
    monkeypatch.setattr(CatalogClient, "is_atomic_over_tables", property(lambda _: False))
    random = Random(seed)  # noqa: S311  # of a test
    world, taken = World(tmp_path, random), []

    for step in random.choices([*STEPS], [*STEPS.values()], k=14):
        taken.append(step.__name__)
        step(world)
        world.check()
    world.repeat()
    world.requeue()

    assert world.ids_now() == sorted(world.expected), taken
