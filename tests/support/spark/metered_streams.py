"""Streams whose commits are reported to one file, killed again and again, and an exporter that Prometheus scrapes.

What they wrote is known from their sources and tables alone, so that what Prometheus has can be held against it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from support.hooks.faults import Action, Fault, Point
from support.hooks.hooked_sink import HookedSink
from support.services.prometheus import Prometheus, serve_exporter, serve_prometheus
from support.services.server_process import free_port
from support.spark.jobs import StreamJob, dump, write_file
from support.spark.process import SparkProcess, wait_until
from support.spark.tables import Warehouse

COLUMNS = "id BIGINT, name STRING, at TIMESTAMP"
_MOST_ROWS = 60
# A kill comes at most so long after the catalog was written to: the time of a commit and of what follows it.
_LONGEST_DELAY_S = 0.15
_LOOK_EVERY_S = 0.1
_WATCH_EVERY_S = 0.003
_ROUND_TIMEOUT_S = 300
_SCRAPE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredStream:
    """A stream of events into a table of its own, with its name.

    Attributes:
        name: Its `stream-name`; the table is `db.<name>`.
        folder: Holds what all streams share: the warehouse and the file of reports.
        behind: How old its events are when they come.
    """

    name: str
    folder: Path
    behind: timedelta = timedelta()

    @property
    def table(self) -> str:
        """The table's identifier."""
        return f"db.{self.name}"

    @property
    def warehouse(self) -> Warehouse:
        """The tables' catalog."""
        return Warehouse(folder=self.folder / "warehouse")

    @property
    def source(self) -> Path:
        """The folder of its source's files."""
        return self.folder / f"{self.name}-source"

    @property
    def checkpoint(self) -> Path:
        """The folder of its checkpoint."""
        return self.folder / f"{self.name}-checkpoint"

    def grow(self, files: int, draw: random.Random) -> None:
        """Add files to the source, one for each epoch, with some rows each."""
        first = len(list(self.source.glob("*.json")))
        at = (datetime.now(timezone.utc) - self.behind).isoformat()
        for number in range(first, first + files):
            rows = [
                {"id": number * _MOST_ROWS + row, "name": self.name, "at": at}
                for row in range(draw.randint(1, _MOST_ROWS))
            ]
            write_file(self.source, number, "".join(f"{json.dumps(row)}\n" for row in rows))

    def job(self, *, is_last: bool = False, fault: Fault | None = None) -> StreamJob:
        """Return the query; the last one takes what there is and ends."""
        options = {
            **self.warehouse.options,
            **({} if fault is None else fault.arm()),
            "metrics-file": str(reports(self.folder)),
            "stream-name": self.name,
            "event-time-column": "at",
        }
        return StreamJob(
            source=str(self.source),
            checkpoint=str(self.checkpoint),
            table=self.table,
            options=options,
            sink="icebergsink" if fault is None else HookedSink.name(),
            trigger={"availableNow": True} if is_last else {"processingTime": "0 seconds"},
            register=fault is None,
            columns=COLUMNS,
        )

    def rows_in_source(self) -> int:
        """Return how many rows its source has."""
        return sum(len(path.read_text().splitlines()) for path in self.source.glob("*.json"))

    def snapshots(self) -> int:
        """Return how many snapshots its table has; 0 without a table."""
        return len(self._epochs())

    def landed(self) -> int:
        """Return the last epoch in its table, -1 for none."""
        return max(self._epochs(), default=-1)

    def checkpointed(self) -> int:
        """Return the last epoch that Spark noted as done, -1 for none."""
        names = (path.name for path in self.checkpoint.glob("commits/*"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _epochs(self) -> list[int]:
        if not self.warehouse.has_table(self.table):
            return []
        return [int(summary["spark.sql.streaming.epochId"] or -1) for summary in self.warehouse.snapshots(self.table)]


def reports(folder: Path) -> Path:
    """Return the file of reports of all streams."""
    return folder / "reports" / "commits.jsonl"


@dataclass(slots=True, kw_only=True)
class MeteredRun:
    """What a run has come to.

    Attributes:
        folder: Everything is below it.
        streams: The streams, all in one driver.
        prometheus: Scrapes the exporter all the time.
        began: When it began, in seconds since 1970.
        replays: How many epochs of each stream were in the table when Spark did not know it, by the stream's name.
        kills: How often the driver was killed.
    """

    folder: Path
    streams: Sequence[MeteredStream]
    prometheus: Prometheus
    began: float = field(default_factory=time.time)
    replays: dict[str, int] = field(default_factory=dict)
    kills: int = 0

    def round(self, draw: random.Random, files: int, *, with_fault: bool = False) -> None:
        """Let the streams go on in a new driver, and kill it shortly after one of them has committed.

        Args:
            draw: Decides when.
            files: How many more epochs each stream has.
            with_fault: Whether the first stream's committer is killed before that, when a commit of it has landed and
                not been reported.
        """
        before = [stream.landed() for stream in self.streams]
        fault = (
            Fault(point=Point.AFTER_COMMIT, action=Action.KILL_WORKER, fuse=self.folder / "fuse")
            if with_fault
            else None
        )
        for stream in self.streams:
            stream.grow(files, draw)
        jobs = [stream.job(fault=fault if stream is self.streams[0] else None) for stream in self.streams]
        with SparkProcess(self.folder / f"driver-{self.kills}", program="support.programs.stream_fleet") as driver:
            driver.send(json.dumps([dump(job) for job in jobs]))
            for stream, landed in zip(self.streams, before, strict=True):
                # One that is due is repeated before a new one lands, and each is to be repeated once.
                wait_until(lambda s=stream, n=landed: s.landed() > n, f"{stream.name} goes on", _ROUND_TIMEOUT_S)
                time.sleep(_LOOK_EVERY_S)
            if fault is not None:
                assert fault.has_struck
            self._wait_for_write()
            time.sleep(draw.uniform(0, _LONGEST_DELAY_S))
        self.kills += 1
        for stream in self.streams:
            is_due = stream.landed() > stream.checkpointed()
            self.replays[stream.name] = self.replays.get(stream.name, 0) + is_due

    def finish(self) -> None:
        """Let the streams take all that there is, and wait until Prometheus has scraped what they reported."""
        with SparkProcess(self.folder / "driver-last", program="support.programs.stream_fleet") as driver:
            error = driver.run(
                json.dumps([dump(stream.job(is_last=True)) for stream in self.streams]), _ROUND_TIMEOUT_S
            )
        assert error is None, error
        snapshots = sum(stream.snapshots() for stream in self.streams)
        wait_until(
            lambda: self.prometheus.last_total('iceberg_sink_commits_total{outcome="committed"}') >= snapshots,
            "Prometheus has scraped the last commit",
            _SCRAPE_TIMEOUT_S,
        )

    def _wait_for_write(self) -> None:
        catalog = self.folder / "warehouse" / "catalog.db"
        written, deadline = catalog.stat().st_mtime_ns, time.monotonic() + _ROUND_TIMEOUT_S
        while catalog.stat().st_mtime_ns == written and time.monotonic() < deadline:
            time.sleep(_WATCH_EVERY_S)


@contextmanager
def metered_run(folder: Path, kills: int, files: int, seed: int, rules: Path | None = None) -> Iterator[MeteredRun]:
    """Run two streams whose driver is killed, and whose exporter is once; Prometheus runs on in the block.

    Args:
        folder: For everything.
        kills: How often the driver is killed.
        files: How many epochs each stream gets for each kill.
        seed: Decides about sizes and moments.
        rules: A file of rules for Prometheus.
    """
    draw = random.Random(seed)  # noqa: S311  # no secret
    streams = [
        MeteredStream(name="clicks", folder=folder),
        MeteredStream(name="orders", folder=folder, behind=timedelta(hours=1)),
    ]
    port = free_port()
    with ExitStack() as until_the_end:
        prometheus = until_the_end.enter_context(serve_prometheus(folder / "prometheus", port, rules))
        run = MeteredRun(folder=folder, streams=streams, prometheus=prometheus)
        with serve_exporter(reports(folder), port, folder / "exporter-1.log"):
            for number in range(kills // 2):
                run.round(draw, files, with_fault=number == 0)
        run.round(draw, files)  # without an exporter
        until_the_end.enter_context(serve_exporter(reports(folder), port, folder / "exporter-2.log"))
        for _ in range(kills - kills // 2 - 1):
            run.round(draw, files)
        run.finish()
        yield run
