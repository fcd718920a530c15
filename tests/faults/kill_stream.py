"""Does a stream that is killed at random moments lose or double a row? A script; `--kills 50` take some minutes.

    python tests/faults/kill_stream.py --kills 50 --seed 1

Each round starts Spark, lets the stream go on from its checkpoint, and kills Python, Java and all workers
shortly after it changed the disk for the n-th time, with n and the delay drawn anew, so that kills spread
over all steps of a micro-batch, on a fast machine and on a slow one. The last round runs to the end; then
the table is compared with the source. Exits with 1 if a row is missing or doubled.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.checks.version_3 import row_ids
from support.spark.jobs import dump
from support.spark.process import SparkProcess
from support.spark.stream_runs import FILES_PER_EPOCH, Stream

# More epochs than any round gets through, so that every kill meets a stream at work.
EPOCHS_AHEAD = 30
# A micro-batch makes about eight changes: it is planned, its tasks write, it is committed, Spark notes it.
MOST_CHANGES = 24
LONGEST_DELAY_S = 0.15
LAST_ROUND_TIMEOUT_S = 900
_CHANGES_TIMEOUT_S = 180
_LOOK_EVERY_S = 0.005


class Met(Enum):
    """What the disk shows of the moment of a kill."""

    LANDED = "the epoch had landed, and Spark did not know yet"
    WRITTEN = "data files of the epoch were there, and it had not landed"
    PLANNED = "the epoch was planned, and had no files"
    IDLE = "between two epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What the disk shows of a stream that does not run.

    Attributes:
        planned: The last epoch in Spark's log of planned ones, -1 for none.
        landed: The last epoch in the table.
        checkpointed: The last epoch in Spark's log of finished ones.
        orphans: Data files that are not in the table.
    """

    planned: int
    landed: int
    checkpointed: int
    orphans: frozenset[Path]

    @classmethod
    def of(cls, stream: Stream) -> Disk:
        """Look at the disk."""
        return cls(
            planned=_last_number(stream.checkpoint / "offsets"),
            landed=max(_landed_epochs(stream), default=-1),
            checkpointed=_last_number(stream.checkpoint / "commits"),
            orphans=frozenset(_orphans(stream)),
        )

    def met_since(self, before: Disk) -> Met:
        """Return what the kill met that came between `before` and this."""
        if self.landed > self.checkpointed:
            return Met.LANDED
        if self.planned == self.checkpointed:
            return Met.IDLE
        return Met.WRITTEN if self.orphans - before.orphans else Met.PLANNED


def _last_number(log: Path) -> int:
    return max((int(path.name) for path in log.glob("[0-9]*") if path.name.isdigit()), default=-1)


def _landed_epochs(stream: Stream) -> list[int]:
    """Return the epoch of each snapshot."""
    if not stream.warehouse.has_table():
        return []
    return [int(summary["spark.sql.streaming.epochId"] or -1) for summary in stream.warehouse.snapshots()]


def _orphans(stream: Stream) -> set[Path]:
    referenced = stream.warehouse.referenced() if stream.warehouse.has_table() else set()
    return stream.warehouse.data_files() - referenced


def _touched(stream: Stream) -> list[int]:
    """Return when the folders that a running stream writes to were last changed."""
    table = stream.warehouse.folder / "db" / "t"
    checkpoint = [stream.checkpoint / "offsets", stream.checkpoint / "commits"]
    folders = [*checkpoint, table / "data", table / "metadata", stream.warehouse.folder]  # SQLite's journal is there
    return [folder.stat().st_mtime_ns if folder.exists() else 0 for folder in folders]


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # a script


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When to kill.

    Attributes:
        changes: So many changes on the disk after the stream was started,
        delay_s: and so long after the last of them.
    """

    changes: int
    delay_s: float

    @classmethod
    def draw(cls, draw: random.Random) -> Moment:
        """Draw one."""
        return cls(changes=draw.randint(1, MOST_CHANGES), delay_s=draw.uniform(0, LONGEST_DELAY_S))

    def wait(self, stream: Stream, untouched: Sequence[int]) -> None:
        """Wait for it; the folders were last changed at `untouched` when the stream was started."""
        left, last = self.changes, untouched
        deadline = time.monotonic() + _CHANGES_TIMEOUT_S
        while left > 0:
            now = _touched(stream)
            left -= sum(before != after for before, after in zip(last, now, strict=True))
            last = now
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"The stream changed the disk only {self.changes - left} times; see {stream.folder}."
                )
            time.sleep(_LOOK_EVERY_S)
        time.sleep(self.delay_s)


def kill_in_round(stream: Stream, driver: SparkProcess, moment: Moment) -> Met:
    """Let the stream go on in `driver` and kill it; return what the kill met."""
    waiting = len(stream.source_files()) // FILES_PER_EPOCH - 1 - _last_number(stream.checkpoint / "commits")
    stream.grow(max(0, EPOCHS_AHEAD - waiting))
    before, untouched = Disk.of(stream), _touched(stream)
    try:
        driver.send(dump(stream.job()))
        moment.wait(stream, untouched)
    finally:
        driver.close()
    return Disk.of(stream).met_since(before)


def kill_again_and_again(stream: Stream, kills: int, seed: int) -> list[Met]:
    """Kill the stream so often, then let it run to the end; return what each kill met."""
    draw = random.Random(seed)  # noqa: S311  # no secret
    met: list[Met] = []
    next_driver = SparkProcess(stream.folder / "round-0")
    try:
        for number in range(1, kills + 1):
            driver, next_driver = next_driver, SparkProcess(stream.folder / f"round-{number}")
            moment = Moment.draw(draw)
            met.append(kill_in_round(stream, driver, moment))
            landed = Disk.of(stream).landed + 1
            _say(
                f"kill {number}, {moment.changes} changes and {moment.delay_s:.3f} s on, {landed} epochs landed: "
                f"{met[-1].value}"
            )
        error = next_driver.run(dump(stream.job()), LAST_ROUND_TIMEOUT_S)
        if error is not None:
            raise RuntimeError(f"The last round failed: {error}")
    finally:
        next_driver.close()
    return met


def report(stream: Stream, met: Sequence[Met], seed: int, seconds: float) -> bool:
    """Print how it went; return whether every row is in the table exactly once."""
    found = Counter(stream.warehouse.table().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
    expected = set(stream.source_ids())
    lost = expected - found.keys()
    strange = found.keys() - expected
    doubled = [row for row, times in found.items() if times > 1]
    epochs = _landed_epochs(stream)
    once = not lost and not strange and not doubled and sorted(epochs) == list(range(len(epochs)))
    if stream.version == "3":
        named = len(row_ids(stream.warehouse.table()))
        _say(f"{named} row ids")
        once = once and named == found.total()

    _say(f"\n{len(met)} kills in {seconds:.0f} s, seed {seed}")
    for kind in Met:
        _say(f"  {met.count(kind):4d}  {kind.value}")
    _say(f"{met.count(Met.LANDED)} replays of an epoch that had landed")
    _say(f"{len(_orphans(stream))} data files of killed tasks are left behind, in no table")
    _say(f"{len(epochs)} epochs, each one snapshot: {sorted(epochs) == list(range(len(epochs)))}")
    _say(f"{len(expected)} rows in the source, {found.total()} in the table")
    _say(f"{len(lost)} lost, {len(doubled)} doubled, {len(strange)} of unknown origin")
    _say("VERDICT: every row exactly once" if once else f"VERDICT: BROKEN; see {stream.folder}")
    return once


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="a new folder for everything; a temporary one by default")
    parser.add_argument("--format-version", choices=["2", "3"], default="2", help="that of the table")
    options = parser.parse_args(arguments)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="kill-stream-"))).resolve()
    stream = Stream(folder=folder, version=options.format_version)
    started = time.monotonic()
    met = kill_again_and_again(stream, options.kills, options.seed)
    return 0 if report(stream, met, options.seed, time.monotonic() - started) else 1


if __name__ == "__main__":
    sys.exit(main())
