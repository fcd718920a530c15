"""Is a copy that a killed job brings up to date by changes the same as its source? A script.

    python tests/faults/copy_by_changes.py --minutes 60 --seed 1 --runtime

One process changes a table all the time: a change feed by key, with equality deletes, with deletes by position and with
files written again; updates and deletes of rows; conversions, compactions, and the expiry of all snapshots that the
copy has taken. Another one copies the table by its changes, as docs/reading.md shows it, again and again. Each round
kills Python, Java and all workers of the second at a random moment, or as a copy's files are written. Then the copy
must have the rows of the snapshot of the source that it says it has come to. In the end it must have those of the
source, and other readers read both. Exits with 1 if anything is not as it must be.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from support.checks.delete_soundness import check_deletes
from support.checks.invariants import check_sound, unreferenced_files
from support.checks.reader import rows_of
from support.checks.same_rows import difference
from support.checks.version_3 import check_version_3
from support.keys.random_feed import RandomFeed, Values
from support.keys.streams import BY_KEY, COLUMNS, NAMES
from support.kill_scripts import folder_of, parser_of, readings, say, swept, telling, verdict
from support.spark.jobs import CallJob, CopyJob, EventsJob, Job, dump
from support.spark.kills import Drivers, Moment, changed_at, folders_of, wait_for_change, wait_for_s
from support.spark.neighbour import Neighbour
from support.spark.tables import Warehouse

SOURCE, COPY = "db.customers", "db.copied"
FIRST_PORTIONS = 3
VERSIONS = ("2", "3")
LAST_ROUND_TIMEOUT_S = 900
# So many snapshots the source may be ahead: then it waits for the copy.
MOST_AHEAD = (4, 16, 60)
_LOOK_EVERY_S = 0.2
_LONGEST_ROUND_S = 30.0
_MOST_CHANGES = 12
_MORE_THAN_A_ROUND = 10_000
_COPIED = "copied-up-to"
_COLUMNS = NAMES[1:]
# Above all keys of the feed.
_MANY = 1_000_000
_REWRITTEN = {"rewrite-all": "true"}


def copied_up_to(table: Table) -> int | None:
    """Return the snapshot of the source that a copy says it has come to; None if no snapshot says it."""
    told = [snapshot for snapshot in _in_order(table) if _property(snapshot) is not None]
    return int(str(_property(told[-1]))) if told else None


def _in_order(table: Table) -> list[Snapshot]:
    return sorted(table.metadata.snapshots, key=lambda one: one.sequence_number or 0)


def _property(snapshot: Snapshot) -> str | None:
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(_COPIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The source, which is fed at random, and its copy, in one catalog.

    Attributes:
        feed: Draws the events, and keeps them as files.
        source_version: Format version of the source.
        copy_version: Format version of the copy.
    """

    feed: RandomFeed
    source_version: str
    copy_version: str

    @property
    def house(self) -> Warehouse:
        """The catalog."""
        return self.feed.stream.house

    @property
    def source(self) -> Table:
        """The source as it is now."""
        return self.house.table(SOURCE)

    @property
    def copy(self) -> Table | None:
        """The copy as it is now; None before it is there."""
        return self.house.table(COPY) if self.house.has_table(COPY) else None

    def copying(self, times: int) -> CopyJob:
        """Return the job that copies so often."""
        return CopyJob(
            source=SOURCE,
            copy=COPY,
            options=self.house.options,
            writing={"format-version": self.copy_version},
            times=times,
        )

    def portion(self, *, encoding: str | None = None) -> EventsJob:
        """Draw a portion of the feed; return the write that brings it into the source.

        Args:
            encoding: The `delete-encoding` of an `upsert`; None for equality deletes by `format("icebergsink")`.
        """
        self.feed.grow(1)
        told = {} if encoding is None else {"delete-encoding": encoding}
        return EventsJob(
            files=[str(file) for file in self.feed.files(self.feed.portions - 1)],
            columns=COLUMNS,
            options={
                **self.house.options,
                **BY_KEY,
                "partition-by": "region",
                "format-version": self.source_version,
                **told,
            },
            is_searched=encoding is not None,
            table=SOURCE,
        )

    def taken(self) -> list[int]:
        """Return the snapshots of the source that the copy needs no more, oldest first."""
        return self._parted()[0]

    def ahead(self) -> int:
        """Return how many snapshots the source has that the copy has not."""
        return len(self._parted()[1])

    def _parted(self) -> tuple[list[int], list[int]]:
        """Return the snapshots of the source before the one that the copy has come to, and those after it."""
        copy = self.copy
        up_to = None if copy is None else copied_up_to(copy)
        ids = [snapshot.snapshot_id for snapshot in _in_order(self.source)]
        return (ids[: ids.index(up_to)], ids[ids.index(up_to) + 1 :]) if up_to in ids else ([], ids)

    def call(self, function: str, table: str = SOURCE, **arguments: Any) -> CallJob:
        """Return the call of a function of the package."""
        options = {**self.house.options, **arguments.pop("options", {})}
        return CallJob(function=function, arguments={"table": table, **arguments, "options": options})


def drawn_change(tables: Tables, draw: random.Random) -> tuple[str, Job] | None:
    """Draw what becomes of the source next, with its name; None if there is nothing to expire."""
    names = {"feed": 6, "upsert": 3, "upsert, copy-on-write": 2, "update": 3, "delete": 2, "expire": 3}
    upkeep = {"convert": 1, "compact": 1, "compact all": 1, "sort": 1, "rewrite manifests": 1}
    if tables.source_version == "2":  # of later versions it is refused
        upkeep["rewrite deletes"] = 1
    (name,) = draw.choices([*names, *upkeep], [*names.values(), *upkeep.values()])
    jobs: dict[str, Callable[[], Job | None]] = {
        "feed": tables.portion,
        "upsert": lambda: tables.portion(encoding="auto"),
        "upsert, copy-on-write": lambda: tables.portion(encoding="copy-on-write"),
        "update": lambda: tables.call(
            "update", assignments={"amount": "amount + 1"}, where=_some_rows(draw), mode=_drawn_mode(draw)
        ),
        "delete": lambda: tables.call("delete_from", where=_some_rows(draw), mode=_drawn_mode(draw)),
        "expire": lambda: _expiry(tables, draw),
        "convert": lambda: tables.call("convert_deletes"),
        "compact": lambda: tables.call("rewrite_data_files"),
        "compact all": lambda: tables.call("rewrite_data_files", options=_REWRITTEN),
        "sort": lambda: tables.call("rewrite_data_files", options=_REWRITTEN, strategy="sort", sort_order="amount, id"),
        "rewrite deletes": lambda: tables.call("rewrite_position_delete_files", options=_REWRITTEN),
        "rewrite manifests": lambda: tables.call("rewrite_manifests"),
    }
    job = jobs[name]()
    return None if job is None else (name, job)


def _some_rows(draw: random.Random) -> str:
    """Return a predicate of few rows: every so many keys, or a range of amounts."""
    if draw.random() < 1 / 2:
        every = draw.randint(11, 40)
        return f"id % {every} = {draw.randrange(every)} AND id > 0"
    least = draw.randrange(_MANY)
    return f"amount BETWEEN {least} AND {least + _MANY // 20}"


def _drawn_mode(draw: random.Random) -> str:
    return draw.choice(["merge-on-read", "merge-on-read", "copy-on-write"])


def _expiry(tables: Tables, draw: random.Random) -> CallJob | None:
    """Return the expiry of snapshots that the copy needs no more, the oldest of them; None if there are none."""
    taken = tables.taken()
    if not taken:
        return None
    return tables.call("expire_snapshots", snapshot_ids=taken[: draw.choice([len(taken), draw.randint(1, len(taken))])])


class Changer:
    """Changes the source in another process for as long as it is let, one change after the other.

    Args:
        tables: The tables.
        neighbour: The process.
        seed: What the changes are drawn with.
        problems: Is told what goes wrong.
    """

    def __init__(self, tables: Tables, neighbour: Neighbour, seed: int, problems: list[str]) -> None:
        self._tables = tables
        self._neighbour = neighbour
        self._draw = random.Random(f"changes {seed}")  # noqa: S311  # no secret
        self._problems = problems

    def do(self, name: str, job: Job) -> None:
        """Do one change."""
        self._neighbour.begin(name, job)
        self._neighbour.finish()

    @contextmanager
    def at_work(self, most_ahead: int) -> Iterator[None]:
        """Change the source in the block, and come to an end with the change that is under way.

        Args:
            most_ahead: The source waits when it has so many snapshots that the copy has not.
        """
        ended = threading.Event()
        thread = threading.Thread(target=self._work, args=(ended, most_ahead), name="changer", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _work(self, ended: threading.Event, most_ahead: int) -> None:
        while not ended.is_set():
            try:
                if self._tables.ahead() >= most_ahead:
                    ended.wait(_LOOK_EVERY_S)
                elif (change := drawn_change(self._tables, self._draw)) is not None:
                    self.do(*change)
            except Exception as failure:
                self._problems.append(f"the source cannot be changed: {type(failure).__name__}: {failure}")
                return


class Aim(Enum):
    """What a kill waits for, once the job has worked for a while."""

    EARLY = "at that moment"
    ANY_CHANGE = "after some changes on the disk"
    WRITTEN = "when a copy's files were written"


@dataclass(frozen=True, slots=True)
class _Written:
    """The data files of the copy, looked at from outside: a copy that writes them has not landed."""

    tables: Tables

    def touched(self) -> list[int]:
        """Return when their folder was last changed."""
        data, _ = folders_of(self.tables.house, COPY)
        return changed_at(data)


@dataclass(slots=True, kw_only=True)
class Run:
    """The two tables, and all that happens to them.

    Attributes:
        tables: The tables.
        seed: What all is drawn with.
        problems: What is not as it must be.
        kills: How often the job was killed.
        met: How often a kill left files of a copy that had not landed, and how often it did not.
        landed: How many copies have landed.
        compared: How many snapshots of the source the copy was compared with.
        most_behind: The most snapshots that the source was ahead after a round.
        done: How often each change was done, and how often a conflict kept it from that.
        swept: What was left behind by the killed job, by kind, and removed in the end.
    """

    tables: Tables
    seed: int
    problems: list[str] = field(default_factory=list)
    kills: int = 0
    met: Counter[str] = field(default_factory=Counter)
    landed: set[int] = field(default_factory=set)
    compared: set[int] = field(default_factory=set)
    most_behind: int = 0
    done: Counter[str] = field(default_factory=Counter)
    swept: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, folder: Path, seed: int, version: str | None = None) -> Run:
        """Return one that has not begun; the format version of the source is drawn if none is given."""
        draw = random.Random(f"versions {seed}")  # noqa: S311  # no secret
        drawn, of_copy = draw.choice(VERSIONS), draw.choice(VERSIONS)
        tables = Tables(feed=RandomFeed(folder, seed), source_version=version or drawn, copy_version=of_copy)
        return cls(tables=tables, seed=seed)

    def touched(self) -> list[int]:
        """Return when the folders were last changed that the copying job writes to."""
        return changed_at(*folders_of(self.tables.house, COPY))

    def go(self, minutes: float, kills: int, *, with_runtime: bool) -> None:
        """Kill the job again and again, let it come to the end of the source, and look at all."""
        draw = random.Random(f"kills {self.seed}")  # noqa: S311  # no secret
        folder = self.tables.feed.stream.folder
        end = time.monotonic() + 60 * minutes
        neighbour = Neighbour(folder / "neighbour", self.problems)
        self.done = neighbour.done
        changer = Changer(self.tables, neighbour, self.seed, self.problems)
        drivers = Drivers(folder)
        try:
            for _ in range(FIRST_PORTIONS):
                changer.do("feed", self.tables.portion())
            while self.kills < kills and time.monotonic() < end:
                self._round(drivers, changer, draw)
            if (error := drivers.run(dump(self.tables.copying(2)), LAST_ROUND_TIMEOUT_S)) is not None:
                self.problems.append(f"the copy failed: {error}")
            self.look()
            self._read(neighbour, with_runtime=with_runtime)
        finally:
            drivers.close()
            neighbour.close()

    def _round(self, drivers: Drivers, changer: Changer, draw: random.Random) -> None:
        """Let the job copy in a driver, and kill it."""
        length_s, moment = draw.uniform(0, _LONGEST_ROUND_S), Moment.draw(draw, _MOST_CHANGES)
        aim, most_ahead = draw.choice(list(Aim)), draw.choice(MOST_AHEAD)
        before, landed, untouched = self._strays(), len(self.landed), self.touched()

        def wait(has_ended: Callable[[], bool]) -> None:
            if aim is Aim.EARLY:
                wait_for_s(length_s, has_ended)
                return
            wait_for_change(self, untouched, has_ended)
            wait_for_s(length_s, has_ended)
            if aim is Aim.ANY_CHANGE:
                moment.wait(self, self.touched(), has_ended)
                return
            written = _Written(self.tables)
            replace(moment, changes=1).wait(written, written.touched(), has_ended)

        with changer.at_work(most_ahead):
            error = drivers.kill(dump(self.tables.copying(_MORE_THAN_A_ROUND)), wait)
        if error is not None:
            self.problems.append(f"the copy failed: {error}")
        self.kills += 1
        met = (
            "files were there of a copy that had not landed" if self._strays() - before else "no files but landed ones"
        )
        self.met[met] += 1
        self.look()
        behind = self.tables.ahead()
        self.most_behind = max(self.most_behind, behind)
        upkeep = self._keep_up(changer, draw)
        say(
            f"kill {self.kills}, {length_s:.1f} s on, {aim.value}: {met}; "
            f"{len(self.landed) - landed} copies landed, {behind} snapshots behind; {sum(self.done.values())} changes "
            f"of the source; then: {upkeep}; problems: {len(self.problems)}"
        )

    def _strays(self) -> set[Path]:
        """Return the files of the copy that no snapshot refers to."""
        copy = self.tables.copy
        return set() if copy is None else unreferenced_files(copy)

    def _keep_up(self, changer: Changer, draw: random.Random) -> str:
        """Compact the copy, or let its snapshots expire, at times; return what was done.

        A snapshot stays that says how far the copy has come: the last one does so when this begins.
        """
        copy = self.tables.copy
        head = None if copy is None else copy.current_snapshot()
        if head is None or _property(head) is None or draw.random() < 1 / 2:
            return "nothing"
        changer.do("compact the copy", self.tables.call("rewrite_data_files", COPY, options=_REWRITTEN))
        kept = {"older_than": "now", "retain_last": draw.randint(2, 6)}
        changer.do("expire snapshots of the copy", self.tables.call("expire_snapshots", COPY, **kept))
        return f"compacted, {kept['retain_last']} snapshots kept"

    def look(self) -> None:
        """Look at the copy: its files, and the rows of the snapshot of the source that it has come to."""
        copy, source = self.tables.copy, self.tables.source
        if copy is None:
            return
        checks: list[Callable[[Table], None]] = [check_sound, check_deletes]
        if copy.metadata.format_version == 3:
            checks.append(check_version_3)
        for check in checks:
            try:
                check(copy)
            except AssertionError as problem:
                self._say(f"{check.__name__}: {problem}")
        self.landed |= {one.snapshot_id for one in copy.metadata.snapshots if _property(one) is not None}
        up_to = copied_up_to(copy)
        if up_to is None or source.metadata.snapshot_by_id(up_to) is None:
            self._say(f"the copy has come to snapshot {up_to}, which the source has not")
            return
        self.compared.add(up_to)
        if (differ := difference(_rows(copy), _rows(source, up_to))) is not None:
            self._say(f"the copy has come to snapshot {up_to}, and has {differ}")

    def compare(self, reader: str, rows: list[Values]) -> None:
        """Compare what a reader reads with what the source has in the end."""
        if (differ := difference(rows, _rows(self.tables.source))) is not None:
            self.problems.append(f"{reader} {differ}")

    def _say(self, problem: str) -> None:
        self.problems.append(f"after {self.kills} kills: {problem}")

    def _read(self, neighbour: Neighbour, *, with_runtime: bool) -> None:
        """Compare what readers read of both tables with the source, before and after orphans are removed."""
        house, folder = self.tables.house, self.tables.feed.stream.folder
        for name in (SOURCE, COPY):
            runtime = folder / f"peer-{name}" if with_runtime else None
            for reader, rows in readings(neighbour, house, name, _COLUMNS, runtime=runtime):
                self.compare(f"{reader} reads in {name}", rows)
            removed = swept(house, name, self.problems)
            self.swept += removed if name == COPY else Counter()
            for reader, rows in readings(neighbour, house, name, _COLUMNS, runtime=None):
                self.compare(f"{reader}, after orphans are removed, reads in {name}", rows)


def _rows(table: Table, snapshot_id: int | None = None) -> list[Values]:
    """Return the rows of a snapshot, or of the head."""
    return [tuple(row[name] for name in _COLUMNS) for row in rows_of(table, snapshot_id=snapshot_id)]


def report(run: Run, seconds: float) -> bool:
    """Print how it went; return whether all is as it must be."""
    tables = run.tables
    versions = f"the source has format version {tables.source_version}, the copy {tables.copy_version}"
    say(f"\n{run.kills} kills in {seconds:.0f} s, seed {run.seed}; {versions}")
    for met, times in run.met.most_common():
        say(f"  {times:4d}  {met}")
    say(f"the other process: {dict(run.done)}")
    say(f"{len(run.landed)} copies seen to land, {len(run.compared)} snapshots of the source compared with the copy")
    say(f"at most {run.most_behind} snapshots behind after a round")
    say(f"{len(_rows(tables.source))} rows in the end")
    say(f"{run.swept.total()} files of the copy were left behind, in no snapshot, and removed: {dict(run.swept)}")
    return verdict(run.problems, "the copy is its source", tables.feed.stream.folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return its exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--format-version", choices=VERSIONS, help="that of the source; drawn by default")
    options = parser.parse_args(arguments)
    run = Run.of(folder_of(options.folder, "copy-by-changes"), options.seed, options.format_version)
    started = time.monotonic()
    with telling(run.problems):
        run.go(options.minutes, options.kills, with_runtime=options.runtime)
    return 0 if report(run, time.monotonic() - started) else 1


if __name__ == "__main__":
    sys.exit(main())
