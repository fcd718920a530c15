"""A stream without Spark that is killed again and again: it commits numbered epochs of a table, each with its report.

Its arguments are a folder, the stream's name, how often it is killed, and a seed. It commits in processes that are
forked from it and killed: at random moments, or when a commit has landed that was not reported. A new one begins with
the first epoch that is not in the checkpoint, a file that is written after each commit, as Spark does. The program
prints how many epochs were in the table and not in the checkpoint when it looked after a kill: so many replays are due,
each once, for no process is killed before it has committed an epoch that is new.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import count
from pathlib import Path

from pyspark.sql.types import LongType, StructField, StructType, TimestampType
from support.spark.tables import Warehouse
from support.tables.sink import Sink

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.options.parse import parse_options
from iceberg_ds.plan import EpochId

SCHEMA = StructType([StructField("id", LongType()), StructField("at", TimestampType())])
REPORTS = "commits.jsonl"
_MOST_ROWS = 50
_LONGEST_DELAY_S = 0.2
# Which commit of a process has landed when it dies by itself; the two before it may be a replay and are new.
_LAST_LANDING = 3
# What the last process commits beyond the first epoch that is new.
_AFTERWARDS = 3
_TIMEOUT_S = 300


def rows_of(epoch: int) -> list[dict[str, object]]:
    """Return the rows of an epoch, the same whenever it is repeated."""
    at = datetime.fromtimestamp(1_790_000_000 + epoch, timezone.utc)
    return [{"id": epoch * _MOST_ROWS + row, "at": at} for row in range(1 + epoch * 7 % _MOST_ROWS)]


def main() -> None:
    """Commit and die, again and again; print how many replays are due."""
    folder, name, kills, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    draw = random.Random(seed)  # noqa: S311  # no secret
    checkpoint, house = folder / f"{name}-checkpoint", Warehouse(folder=folder / "warehouse")
    replays = 0
    for _ in range(kills):
        begun, dies_unreported = _done(checkpoint), draw.random() < 1 / 2
        child = _fork(folder, name, begun + 1, None, dies_unreported=dies_unreported)
        if not dies_unreported:
            _wait_beyond(checkpoint, begun + 1, child)
            time.sleep(draw.uniform(0, _LONGEST_DELAY_S))
            os.kill(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            sys.exit("A process was not killed.")
        landed = [int(summary["spark.sql.streaming.epochId"] or -1) for summary in house.snapshots(f"db.{name}")]
        replays += max(landed) > _done(checkpoint)
    begun = _done(checkpoint)
    if os.waitpid(_fork(folder, name, begun + 1, begun + _AFTERWARDS), 0)[1]:
        sys.exit("The last process failed.")
    sys.stdout.write(f"{replays}\n")


def _fork(folder: Path, name: str, first: int, last: int | None, *, dies_unreported: bool = False) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if dies_unreported:
                listen(_die_at(_LAST_LANDING))
            _commit(folder, name, first, last)
            code = 0
        except BaseException:  # a forked process must not go on as its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def _commit(folder: Path, name: str, first: int, last: int | None) -> None:
    """Commit epochs from `first` to `last`; without an end if that is None."""
    options = parse_options(
        {
            "table": f"db.{name}",
            "warehouse": str(folder / "warehouse"),
            "metrics-file": str(folder / REPORTS),
            "stream-name": name,
        }
    )
    sink = Sink(catalog=connect(catalog_settings(options), options.reports), options=options)
    query_id = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    checkpoint = folder / f"{name}-checkpoint"
    for epoch in count(first) if last is None else range(first, last + 1):
        plan = sink.plan(SCHEMA, is_stream=True)
        of_epoch = EpochId(query_id=query_id, epoch_id=epoch)
        sink.commit(sink.write(rows_of(epoch), schema=SCHEMA, plan=plan, of_epoch=of_epoch))
        written = checkpoint.with_suffix(".new")
        written.write_text(str(epoch))
        written.replace(checkpoint)


def _die_at(landing: int) -> Callable[[FaultPoint], None]:
    """Return a listener that kills this process when so many commits have landed."""
    left = landing

    def die(point: FaultPoint) -> None:
        nonlocal left
        left -= point is FaultPoint.COMMITTED
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def _done(checkpoint: Path) -> int:
    return int(checkpoint.read_text()) if checkpoint.exists() else -1


def _wait_beyond(checkpoint: Path, epoch: int, child: int) -> None:
    """Wait until an epoch above this one is done."""
    deadline = time.monotonic() + _TIMEOUT_S
    while _done(checkpoint) <= epoch:
        if os.waitpid(child, os.WNOHANG)[0] or time.monotonic() > deadline:
            sys.exit("A process ended, or did nothing.")
        time.sleep(0.005)


if __name__ == "__main__":
    main()
