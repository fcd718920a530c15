"""Does a stream that looks after its own table, and is killed in the middle of that, keep all rows? A script.

    python tests/faults/maintain_keyed_stream.py --minutes 60 --seed 1 --runtime

A change feed is streamed by key into a table of format version 2, with equality deletes. The same process maintains the
table by a policy that makes each kind of step due every few epochs. Each round starts Spark, lets the stream go on from
its checkpoint, and kills Python, Java and all workers at a random moment. A maintainer that was killed leaves a lease
behind that keeps others off for two minutes: some rounds end within it, and others last longer. After each round the
table must have the rows of the source, in sound files. The last round runs to the end; then the table must be as
healthy as the policy says, other readers read it, and what the kills left behind is removed. Exits with 1 if anything
is not as it must be.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.checks.delete_soundness import check_deletes
from support.checks.invariants import check_sound
from support.checks.reader import rows_of
from support.checks.same_rows import difference
from support.keys.random_feed import FILES, RandomFeed, Values, portions_in
from support.keys.streams import NAMES
from support.kill_scripts import folder_of, parser_of, readings, say, swept, telling, verdict
from support.spark.jobs import MaintainedJob, dump
from support.spark.kills import Drivers, Met, Moment, Watched, wait_for_change, wait_for_s
from support.spark.maintenance_steps import StepNotes
from support.spark.neighbour import CONFLICT, Neighbour

import iceberg_ds
from iceberg_ds.maintenance.lease import Holder, holder_of
from iceberg_ds.maintenance.policy import Step

TABLE = "db.t"
# An epoch adds six data files, three equality delete files, some position deletes and two manifests.
POLICY = {
    "max_equality_delete_files": 6,
    "max_small_files": 30,
    "max_position_delete_files": 6,
    "max_manifests": 12,
    "max_snapshots": 20,
    "min_snapshot_age_s": 0,
}
MAX_METADATA_BYTES = 1_000_000
LOOK_EVERY_S = 0.5
# Seconds from epoch to epoch: fast streams leave much to do, slow ones let maintenance come through all steps.
PACES_S = (0, 2, 4)
# More than a stream gets through, so that every kill meets one at work.
PORTIONS_AHEAD, FASTEST_EPOCH_S = 20, 2 / 3
LAST_ROUND_TIMEOUT_S = 1800
_MOST_CHANGES = 12
_LONGEST_S = 60.0
_COLUMNS = NAMES[1:]
_FIGURES = ("data_files", "delete_files", "snapshots", "metadata_bytes")


def draw_length_s(draw: random.Random, leased_s: float) -> float:
    """Draw for how long a round lasts at least, from its first change of the disk on.

    Args:
        draw: Draws.
        leased_s: For so long a maintainer that was killed still keeps others off, 0 if none does. Half of such rounds
            end within that time, mostly, and the others after it.
    """
    after = leased_s if draw.random() < 1 / 2 else 0.0
    return after + draw.uniform(0, _LONGEST_S)


def too_many(health: iceberg_ds.TableHealth) -> list[str]:
    """Return which figures of a table are above what the policy says, or are unknown."""
    figures: dict[str, tuple[int | None, float]] = {
        "equality delete files": (health.equality_delete_files, POLICY["max_equality_delete_files"]),
        "small data files": (health.small_files, POLICY["max_small_files"]),
        "position delete files": (health.position_delete_files, POLICY["max_position_delete_files"]),
        "manifests": (health.data_manifests + health.delete_manifests, POLICY["max_manifests"]),
        "snapshots": (health.snapshots, POLICY["max_snapshots"]),
        "bytes of metadata": (health.metadata_bytes, MAX_METADATA_BYTES),
    }
    return [
        f"the table has {figure} {name}, and may have {most}"
        for name, (figure, most) in figures.items()
        if figure is None or figure > most
    ]


@dataclass(slots=True, kw_only=True)
class Run:
    """A feed, its stream, and all that happens to them.

    Attributes:
        feed: The feed.
        seed: What all is drawn with.
        problems: What is not as it must be.
        met: What each kill met of the stream.
        leases: How often a lease was there after a kill: that of the killed process, or of one that was killed before.
        under_way: How often a kill came in the middle of each step of maintenance.
        landed: How often each step of maintenance changed the table.
        idle: How often each found nothing to do.
        conflicts: How often each was given up because of a conflict.
        health: How the table did after each round.
        swept: What was left behind, by kind, and removed in the end.
        portions: How many portions were in the table when it was last looked at.
    """

    feed: RandomFeed
    seed: int
    problems: list[str] = field(default_factory=list)
    met: list[Met] = field(default_factory=list)
    leases: Counter[str] = field(default_factory=Counter)
    under_way: Counter[str] = field(default_factory=Counter)
    landed: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    health: list[iceberg_ds.TableHealth] = field(default_factory=list)
    swept: Counter[str] = field(default_factory=Counter)
    portions: int = 0

    @classmethod
    def of(cls, folder: Path, seed: int) -> Run:
        """Return one that has not begun."""
        return cls(feed=RandomFeed(folder, seed), seed=seed)

    @property
    def watched(self) -> Watched:
        """The stream as it is seen from outside."""
        return Watched(checkpoint=self.feed.stream.checkpoint, warehouse=self.feed.stream.house)

    @property
    def has_rows(self) -> bool:
        """Whether the table is there, and has a snapshot."""
        house = self.feed.stream.house
        return house.has_table() and bool(house.table().metadata.snapshots)

    def job(self, steps: Path) -> MaintainedJob:
        """Return the stream that maintains its table; it takes what there is, ends, and notes its steps in a file."""
        return MaintainedJob(
            **asdict(self.feed.job()),
            catalog=self.feed.stream.house.options,
            policy=POLICY,
            every_s=LOOK_EVERY_S,
            steps=str(steps),
            longest_s=LAST_ROUND_TIMEOUT_S,
        )

    def go(self, minutes: float, kills: int, *, with_runtime: bool) -> None:
        """Kill the stream again and again, let it run to the end, and look at all."""
        draw = random.Random(f"maintained {self.seed}")  # noqa: S311  # no secret
        end = time.monotonic() + 60 * minutes
        drivers = Drivers(self.feed.stream.folder)
        try:
            while len(self.met) < kills and time.monotonic() < end:
                self._round(drivers, draw)
            steps = self._steps("last")
            if (error := drivers.run(dump(self.job(steps)), LAST_ROUND_TIMEOUT_S)) is not None:
                self.problems.append(f"the stream failed: {error}")
            self._count(StepNotes.read(steps))
        finally:
            drivers.close()
        self.look()
        self._maintain()
        self._read(with_runtime=with_runtime)

    def _round(self, drivers: Drivers, draw: random.Random) -> None:
        """Let the stream go on in a driver, and kill it."""
        before, holder, steps = self.watched.disk(), self._holder(), self._steps(str(drivers.killed + 1))
        length_s, pace_s = draw_length_s(draw, _left_s(holder)), draw.choice(PACES_S)
        moment = Moment.draw(draw, _MOST_CHANGES)
        waiting = self.feed.portions - 1 - before.checkpointed
        self.feed.grow(max(0, PORTIONS_AHEAD + int(length_s / max(pace_s, FASTEST_EPOCH_S)) - waiting))

        job = replace(self.job(steps), trigger={"processingTime": f"{pace_s} seconds"})
        untouched = self.watched.touched()

        def wait(has_ended: Callable[[], bool]) -> None:
            wait_for_change(self.watched, untouched, has_ended)
            wait_for_s(length_s, has_ended)
            moment.wait(self.watched, self.watched.touched(), has_ended)

        if (error := drivers.kill(dump(job), wait)) is not None:
            self.problems.append(f"the stream failed: {error}")
        self.met.append(self.watched.disk().met_since(before))
        lease = _lease(holder, self._holder())
        self.leases[lease] += 1
        notes = StepNotes.read(steps)
        self._count(notes)
        self.look()
        say(
            f"kill {len(self.met)}, an epoch each {pace_s} s, {length_s:.1f} s, {moment.changes} changes and "
            f"{moment.delay_s:.3f} s on, {self.portions} portions seen: {self.met[-1].value}; "
            f"{notes.landed.total()} steps, then {notes.under_way or 'no step'} under way, {lease}; "
            f"{_figures(self.health[-1:])}; "
            f"problems: {len(self.problems)}"
        )

    def _steps(self, name: str) -> Path:
        return self.feed.stream.folder / f"steps-{name}.jsonl"

    def _holder(self) -> Holder | None:
        """Return who has the lease on the table now."""
        house = self.feed.stream.house
        return holder_of(house.table().metadata, _now_ms()) if house.has_table() else None

    def _count(self, notes: StepNotes) -> None:
        """Count what a process noted of its steps; a step that fails for another reason than a conflict is wrong."""
        self.landed += notes.landed
        self.idle += notes.idle
        self.under_way[notes.under_way or "none"] += 1
        for step, error, text in notes.failed:
            if error == CONFLICT:
                self.conflicts[step] += 1
            else:
                self.problems.append(f"{step} failed: {error}: {text}")

    def look(self) -> None:
        """Look at the table: rows, files and health; nothing may write meanwhile."""
        if not self.has_rows:
            return
        table = self.feed.stream.house.table()
        for check in (check_sound, check_deletes):
            try:
                check(table)
            except AssertionError as problem:
                self._say(f"{check.__name__}: {problem}")
        try:
            self._check_rows([tuple(row[name] for name in _COLUMNS) for row in rows_of(table)])
        except AssertionError as problem:
            self._say(f"the table {problem}")
        epochs = Counter(self.watched.landed_epochs())
        if repeated := [epoch for epoch, times in epochs.items() if times > 1]:
            self._say(f"epochs {repeated} have landed more than once")
        self.health.append(iceberg_ds.table_health(TABLE, options=self.feed.stream.house.options))

    def _check_rows(self, found: list[Values]) -> None:
        """Assert that the table has what the source has, as far as an epoch reaches that Spark may not know yet."""
        portions = portions_in(found)
        assert portions >= self.portions, f"has gone back from {self.portions} portions to {portions}"
        self.portions = portions
        epoch, finished = self.feed.epoch_of(portions), self.watched.checkpointed()
        assert epoch in {finished, finished + 1}, f"is of epoch {epoch}, and Spark has finished {finished}"
        differ = difference(found, self.feed.rows(portions).values())
        assert differ is None, f"of {portions} portions has {differ}"

    def compare(self, reader: str, rows: Iterable[Values]) -> None:
        """Compare what a reader reads with what the table must have in the end."""
        differ = difference(rows, self.feed.rows(self.feed.portions).values())
        if differ is not None:
            self.problems.append(f"{reader} reads {differ}")

    def _say(self, problem: str) -> None:
        self.problems.append(f"after {len(self.met)} kills: {problem}")

    def _maintain(self) -> None:
        """Maintain the table once more, and see that it is as healthy as the policy says."""
        wait_for_s(_left_s(self._holder()), lambda: False)
        policy = iceberg_ds.MaintenancePolicy.of(POLICY)
        result = iceberg_ds.maintain(TABLE, options=self.feed.stream.house.options, policy=policy)
        if not result.ok or result.after is None:
            self.problems.append(f"the last maintenance: {result}")
        self.look()
        self.problems += too_many(self.health[-1])

    def _read(self, *, with_runtime: bool) -> None:
        """Compare what readers read, before and after all that kills left behind is removed."""
        house, folder = self.feed.stream.house, self.feed.stream.folder
        neighbour = Neighbour(folder / "neighbour", self.problems)
        try:
            for round_of in ("before", "after"):
                runtime = folder / f"peer-{round_of}" if with_runtime else None
                for reader, rows in readings(neighbour, house, TABLE, _COLUMNS, runtime=runtime):
                    self.compare(f"{round_of} orphans are removed {reader}", rows)
                if round_of == "before":
                    iceberg_ds.convert_deletes(TABLE, options=house.options)  # so that ClickHouse can read the table
                    self.swept = swept(house, TABLE, self.problems)
        finally:
            neighbour.close()


def _lease(before: Holder | None, after: Holder | None) -> str:
    """Return in words whose lease there is after a kill."""
    if after is None:
        return "without a lease"
    is_same = before is not None and before.owner == after.owner
    return "within the lease of one that was killed before" if is_same else "holding the lease"


def _left_s(holder: Holder | None) -> float:
    """Return for how many seconds a lease holds."""
    return 0.0 if holder is None else max(0.0, (holder.until_ms - _now_ms()) / 1000)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _figures(health: Sequence[iceberg_ds.TableHealth]) -> str:
    """Return in words how a table did: one figure of each kind, or the first, the last and the most of them."""
    if not health:
        return "no table yet"
    told = []
    for name in _FIGURES:
        figures = [getattr(one, name) or 0 for one in health]
        ends = [f"{figures[0]:,}", *([f"{figures[-1]:,}", f"at most {max(figures):,}"] if len(figures) > 1 else [])]
        told.append(f"{name.replace('_', ' ')} {', '.join(ends)}")
    return "; ".join(told)


def report(run: Run, seconds: float) -> bool:
    """Print how it went; return whether all is as it must be."""
    say(f"\n{len(run.met)} kills in {seconds:.0f} s, seed {run.seed}")
    for kind in Met:
        say(f"  {run.met.count(kind):4d}  {kind.value}; files may be those of maintenance")
    for lease, times in run.leases.most_common():
        say(f"  {times:4d}  {lease}")
    say(f"steps that kills and the end met under way: {dict(run.under_way)}")
    for step in Step:
        name = step.value
        say(f"  {name}: {run.landed[name]} landed, {run.idle[name]} had nothing to do, {run.conflicts[name]} conflicts")
    say(f"looks at the table given up after a conflict: {run.conflicts['maintain']}")
    say(f"{run.feed.portions} portions of {FILES} files in the source, {run.portions} in the table")
    say(f"health after each round, first, last and most: {_figures(run.health)}")
    say(f"{run.swept.total()} files were left behind, in no snapshot, and removed: {dict(run.swept)}")
    return verdict(run.problems, "every row, in a healthy table", run.feed.stream.folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return its exit code."""
    options = parser_of(__doc__).parse_args(arguments)
    run = Run.of(folder_of(options.folder, "maintain-keyed-stream"), options.seed)
    started = time.monotonic()
    with telling(run.problems):
        run.go(options.minutes, options.kills, with_runtime=options.runtime)
    return 0 if report(run, time.monotonic() - started) else 1


if __name__ == "__main__":
    sys.exit(main())
