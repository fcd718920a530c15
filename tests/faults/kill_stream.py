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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.checks.version_3 import row_ids
from support.spark.jobs import dump
from support.spark.kills import Drivers, Met, Moment, Watched
from support.spark.stream_runs import FILES_PER_EPOCH, Stream

# More epochs than any round gets through, so that every kill meets a stream at work.
EPOCHS_AHEAD = 30
LAST_ROUND_TIMEOUT_S = 900


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # a script


def watched(stream: Stream) -> Watched:
    """Return the stream as it is seen from outside."""
    return Watched(checkpoint=stream.checkpoint, warehouse=stream.warehouse)


def kill_in_round(stream: Stream, drivers: Drivers, moment: Moment) -> Met:
    """Let the stream go on in a driver and kill it; return what the kill met."""
    seen = watched(stream)
    waiting = len(stream.source_files()) // FILES_PER_EPOCH - 1 - seen.checkpointed()
    stream.grow(max(0, EPOCHS_AHEAD - waiting))
    before, untouched = seen.disk(), seen.touched()
    error = drivers.kill(dump(stream.job()), lambda has_ended: moment.wait(seen, untouched, has_ended))
    if error is not None:
        raise RuntimeError(f"The stream failed: {error}")
    return seen.disk().met_since(before)


def kill_again_and_again(stream: Stream, kills: int, seed: int) -> list[Met]:
    """Kill the stream so often, then let it run to the end; return what each kill met."""
    draw = random.Random(seed)  # noqa: S311  # no secret
    met: list[Met] = []
    drivers = Drivers(stream.folder)
    try:
        for number in range(1, kills + 1):
            moment = Moment.draw(draw)
            met.append(kill_in_round(stream, drivers, moment))
            landed = watched(stream).disk().landed + 1
            _say(
                f"kill {number}, {moment.changes} changes and {moment.delay_s:.3f} s on, {landed} epochs landed: "
                f"{met[-1].value}"
            )
        error = drivers.run(dump(stream.job()), LAST_ROUND_TIMEOUT_S)
        if error is not None:
            raise RuntimeError(f"The last round failed: {error}")
    finally:
        drivers.close()
    return met


def report(stream: Stream, met: Sequence[Met], seed: int, seconds: float) -> bool:
    """Print how it went; return whether every row is in the table exactly once."""
    found = Counter(stream.warehouse.table().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())
    expected = set(stream.source_ids())
    lost = expected - found.keys()
    strange = found.keys() - expected
    doubled = [row for row, times in found.items() if times > 1]
    epochs = watched(stream).landed_epochs()
    in_order = sorted(epochs) == list(range(stream.snapshots()))
    once = not lost and not strange and not doubled and in_order
    if stream.version == "3":
        named = len(row_ids(stream.warehouse.table()))
        _say(f"{named} row ids")
        once = once and named == found.total()

    _say(f"\n{len(met)} kills in {seconds:.0f} s, seed {seed}")
    for kind in Met:
        _say(f"  {met.count(kind):4d}  {kind.value}")
    _say(f"{met.count(Met.LANDED)} replays of an epoch that had landed")
    _say(f"{len(watched(stream).orphans())} data files of killed tasks are left behind, in no table")
    _say(f"{len(epochs)} epochs, each one snapshot: {in_order}")
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
