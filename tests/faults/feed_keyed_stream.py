"""Does a killed stream of changes leave the rows of its source, each the same row as before? A script.

    python tests/faults/feed_keyed_stream.py --minutes 10 --seed 1 --runtime

A change feed is streamed by key into a table of format version 3 that never has equality deletes. Each round starts
Spark, lets the stream go on from its checkpoint, and kills Python, Java and all workers at a random moment; then the
index of keys is deleted or damaged at times. Beside the stream and between the rounds another process compacts, changes
rows of keys that the feed does not touch, and expires snapshots. After each round all new snapshots are compared with
the source's files: rows, row ids, epochs. The last round runs to the end, and other readers read the table. Exits with
1 if anything is not as it must be.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.checks.invariants import check_sound
from support.checks.version_3 import check_version_3
from support.keys.random_feed import FILES, RESTING, RandomFeed, Witness
from support.keys.streams import NAMES
from support.kill_scripts import folder_of, parser_of, proved, read_by_runtime, say, verdict
from support.spark.jobs import CallJob, dump
from support.spark.kills import Drivers, Met, Moment, Watched
from support.spark.neighbour import Neighbour
from support.tables.expiry import soon_ms

import iceberg_ds

TABLE = "db.t"
PORTIONS_AHEAD = 12
# More than of a stream alone: an epoch by keys makes twice as many, and what goes on beside it makes some, too.
_MOST_CHANGES = 72
LAST_ROUND_TIMEOUT_S = 900
_COLUMNS = [*NAMES[1:], "_row_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What another writer does to the table.

    Attributes:
        name: What it is called in the report.
        function: The function of the package.
        arguments: Its arguments.
        changed: The keys to whose amounts it adds 1.
    """

    name: str
    function: str
    arguments: dict[str, Any]
    changed: range = range(0)

    @classmethod
    def draw(cls, draw: random.Random) -> Action:
        """Draw one."""
        (name,) = draw.choices(
            ["compact", "compact all", "sort", "update", "expire", "rewrite manifests"], [2, 3, 1, 4, 2, 1]
        )
        match name:
            case "compact":
                return cls(name=name, function="rewrite_data_files", arguments={})
            case "compact all":
                arguments: dict[str, Any] = {"options": {"rewrite-all": "true"}}
                return cls(name=name, function="rewrite_data_files", arguments=arguments)
            case "sort":
                order = draw.choice(["amount DESC, id", "id", "lsn"])
                arguments = {"options": {"rewrite-all": "true"}, "strategy": "sort", "sort_order": order}
                return cls(name=name, function="rewrite_data_files", arguments=arguments)
            case "update":
                first = draw.choice(RESTING)
                changed = range(first, draw.randint(first, RESTING[-1]) + 1)
                arguments = {
                    "assignments": {"amount": "amount + 1"},
                    "where": f"id BETWEEN {changed[0]} AND {changed[-1]}",
                    "mode": draw.choice(["merge-on-read", "merge-on-read", "copy-on-write"]),
                }
                return cls(name=name, function="update", arguments=arguments, changed=changed)
            case "expire":
                arguments = {"older_than": soon_ms(), "retain_last": draw.randint(1, 8)}
                return cls(name=name, function="expire_snapshots", arguments=arguments)
        return cls(name=name, function="rewrite_manifests", arguments={})

    def job(self, options: dict[str, str]) -> CallJob:
        """Return the call; `options` lead to the catalog."""
        arguments = {**self.arguments, "options": {**options, **self.arguments.get("options", {})}}
        return CallJob(function=self.function, arguments={"table": TABLE, **arguments})


def damage_index(folder: Path, draw: random.Random) -> str | None:
    """Do something to the index of keys that nothing uses, or leave it; return what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    what = draw.choice(["deleted", "lost a file", "has a wrong byte", "was cut", None, None, None])
    if not files or what is None:
        return None
    file = draw.choice(files)
    content = bytearray(file.read_bytes())
    match what:
        case "deleted":
            shutil.rmtree(folder)
        case "lost a file":
            file.unlink()
        case "has a wrong byte":
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
            file.write_bytes(content)
        case "was cut":
            file.write_bytes(content[: draw.randrange(len(content))])
    return what


@dataclass(slots=True, kw_only=True)
class Run:
    """A feed, its stream, and all that happens to them.

    Attributes:
        feed: The feed.
        index: The folder of the index of keys.
        seed: What all is drawn with.
        met: What each kill met.
        damaged: What was done to the index.
    """

    feed: RandomFeed
    index: Path
    witness: Witness
    seed: int
    met: list[Met] = field(default_factory=list)
    damaged: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, folder: Path, seed: int) -> Run:
        """Return one that has not begun."""
        index = folder / "keys"
        options = {"delete-encoding": "deletion-vector", "format-version": "3", "key-index-folder": str(index)}
        feed = RandomFeed(folder, seed, options)
        return cls(feed=feed, index=index, witness=Witness(feed), seed=seed)

    @property
    def watched(self) -> Watched:
        """The stream as it is seen from outside."""
        return Watched(checkpoint=self.feed.stream.checkpoint, warehouse=self.feed.stream.house)

    def go(self, minutes: float, kills: int, *, with_runtime: bool) -> Neighbour:
        """Kill the stream again and again, let it run to the end, and look at all; return what the neighbour did."""
        draw = random.Random(f"kills {self.seed}")  # noqa: S311  # no secret
        folder = self.feed.stream.folder
        end = time.monotonic() + 60 * minutes
        neighbour = Neighbour(folder / "neighbour", self.witness.problems)
        drivers = Drivers(folder)
        try:
            while len(self.met) < kills and time.monotonic() < end:
                self._round(drivers, neighbour, draw)
            self._begin(neighbour, self._drawn(draw, 3))
            if (error := drivers.run(dump(self.feed.job()), LAST_ROUND_TIMEOUT_S)) is not None:
                self.witness.problems.append(f"the stream failed: {error}")
            neighbour.finish()
            self.look()
            self._read(neighbour, with_runtime=with_runtime)
        finally:
            drivers.close()
            neighbour.close()
        return neighbour

    def _round(self, drivers: Drivers, neighbour: Neighbour, draw: random.Random) -> None:
        """Let the stream go on in a driver, and kill it."""
        waiting = self.feed.portions - 1 - self.watched.checkpointed()
        self.feed.grow(max(0, PORTIONS_AHEAD - waiting))
        moment, beside = Moment.draw(draw, _MOST_CHANGES), self._drawn(draw, 2)
        before, untouched = self.watched.disk(), self.watched.touched()

        def wait(has_ended: Callable[[], bool]) -> None:
            self._begin(neighbour, beside)
            moment.wait(self.watched, untouched, has_ended)

        if (error := drivers.kill(dump(self.feed.job()), wait)) is not None:
            self.witness.problems.append(f"the stream failed: {error}")
        neighbour.finish()
        self.met.append(self.watched.disk().met_since(before))
        damage = damage_index(self.index, draw)
        if damage is not None:
            self.damaged[damage] += 1
        self.look()
        between = self._drawn(draw, 1)
        self._begin(neighbour, between)
        neighbour.finish()
        self.look()
        say(
            f"kill {len(self.met)}, {moment.changes} changes and {moment.delay_s:.3f} s on, "
            f"{max(self.witness.epochs.values(), default=-1) + 1} epochs seen: {self.met[-1].value}; "
            f"beside: {_names(beside)}; then: {_names(between)}; index: {damage or 'as it was'}; "
            f"problems: {len(self.witness.problems)}"
        )

    def _begin(self, neighbour: Neighbour, actions: Sequence[Action]) -> None:
        """Let the neighbour act, one action after the other."""
        for action in actions:
            neighbour.begin(action.name, action.job(self.feed.stream.house.options), partial(self._note, action))

    def _note(self, action: Action) -> None:
        amounts = self.witness.amounts
        amounts.update({key: amounts[key] + 1 for key in action.changed})

    def _drawn(self, draw: random.Random, most: int) -> list[Action]:
        """Draw actions; none before there is a table with rows."""
        actions = [Action.draw(draw) for _ in range(draw.randint(0, most))]
        house = self.feed.stream.house
        return actions if house.has_table() and house.table().metadata.snapshots else []

    def look(self) -> None:
        """Look at what is new in the table."""
        house = self.feed.stream.house
        if house.has_table() and house.table().metadata.snapshots:
            self.witness.look(house.table())

    def _read(self, neighbour: Neighbour, *, with_runtime: bool) -> None:
        """Compare what readers read, before and after all is compacted."""
        house = self.feed.stream.house
        self.witness.compare("iceberg_ds.read", neighbour.read(TABLE, _COLUMNS, house.options))
        self._begin(neighbour, [Action(name="compact all", function="rewrite_data_files", arguments=_ALL)])
        neighbour.finish()
        self.look()
        rows = neighbour.read(TABLE, _COLUMNS, house.options)
        self.witness.compare("iceberg_ds.read, after a compaction,", rows)
        if with_runtime:
            rows = read_by_runtime(self.feed.stream.folder / "peer", house, TABLE, _COLUMNS)
            self.witness.compare("Iceberg's Spark runtime", rows)

    def check(self) -> iceberg_ds.VerifyResult:
        """Look at what does not follow from the source: the table must be whole; return what `verify` says."""
        table = self.feed.stream.house.table()
        for check in (check_sound, check_version_3):
            try:
                check(table)
            except AssertionError as problem:
                self.witness.problems.append(f"{check.__name__}: {problem}")
        return proved(self.feed.stream.house, TABLE, self.witness.problems)


_ALL = {"options": {"rewrite-all": "true"}}


def _names(actions: Sequence[Action]) -> str:
    return ", ".join(action.name for action in actions) or "nothing"


def report(run: Run, seconds: float, done: Counter[str]) -> bool:
    """Print how it went; return whether all is as it must be."""
    witness, verified = run.witness, run.check()
    epochs = set(witness.epochs.values())
    say(f"\n{len(run.met)} kills in {seconds:.0f} s, seed {run.seed}")
    for kind in Met:
        say(f"  {run.met.count(kind):4d}  {kind.value}")
    say(f"the other process: {dict(done)}")
    say(f"the index of keys: {dict(run.damaged)}")
    say(f"{run.feed.portions} portions of {FILES} files in the source; {len(epochs)} epochs seen in a snapshot each")
    say(f"{witness.snapshots} snapshots compared with the source, {len(witness.ids)} rows with one id each")
    say(f"{len(run.feed.rows(run.feed.portions))} rows in the end")
    kinds = Counter(Path(orphan.path).suffix for orphan in verified.orphans)
    say(f"{kinds.total()} files are left behind, in no snapshot: {dict(kinds)}")
    return verdict(witness.problems, "every row, and the same row", run.feed.stream.folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return its exit code."""
    options = parser_of(__doc__).parse_args(arguments)
    run = Run.of(folder_of(options.folder, "feed-keyed-stream"), options.seed)
    started = time.monotonic()
    neighbour = run.go(options.minutes, options.kills, with_runtime=options.runtime)
    return 0 if report(run, time.monotonic() - started, neighbour.done) else 1


if __name__ == "__main__":
    sys.exit(main())
