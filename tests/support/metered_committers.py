"""Streams without Spark whose committers are killed many times, and a Prometheus that scrapes what they report."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.programs.metered_committer import REPORTS
from support.services.prometheus import Prometheus, serve_exporter, serve_prometheus
from support.services.server_process import free_port
from support.services.servers import TESTS
from support.spark.process import wait_until
from support.spark.tables import Warehouse

STREAMS = ("clicks", "orders")
_RUN_TIMEOUT_S = 900
_SCRAPE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterRun:
    """What a run has come to.

    Attributes:
        warehouse: The catalog; the table of a stream is `db.<name>`.
        prometheus: Has scraped all that was reported.
        began: When it began, in seconds since 1970.
        replays: How many replays were due, by the stream's name.
    """

    warehouse: Warehouse
    prometheus: Prometheus
    began: float
    replays: Mapping[str, int]


@contextmanager
def committer_run(folder: Path, kills: int, seed: int) -> Iterator[CommitterRun]:
    """Run two streams at the same time, into one file of reports, each of which is killed so many times.

    Args:
        folder: For everything.
        kills: How often each is killed.
        seed: Decides about the moments.
    """
    port, warehouse, began = free_port(), Warehouse(folder=folder / "warehouse"), time.time()
    with (
        serve_prometheus(folder / "prometheus", port) as prometheus,
        serve_exporter(folder / REPORTS, port, folder / "exporter.log"),
    ):
        replays = _commit_and_die(folder, kills, seed)
        snapshots = sum(len(warehouse.snapshots(f"db.{name}")) for name in STREAMS)
        wait_until(
            lambda: prometheus.last_total('iceberg_sink_commits_total{outcome="committed"}') >= snapshots,
            "Prometheus has scraped the last commit",
            _SCRAPE_TIMEOUT_S,
        )
        yield CommitterRun(warehouse=warehouse, prometheus=prometheus, began=began, replays=replays)


def _commit_and_die(folder: Path, kills: int, seed: int) -> dict[str, int]:
    program = (sys.executable, "-m", "support.programs.metered_committer", str(folder))
    running = {
        name: subprocess.Popen([*program, name, str(kills), str(number)], cwd=TESTS, stdout=subprocess.PIPE, text=True)
        for number, name in enumerate(STREAMS, start=seed)
    }
    try:
        printed = {name: process.communicate(timeout=_RUN_TIMEOUT_S)[0] for name, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
    assert [process.returncode for process in running.values()] == [0, 0]
    return {name: int(text) for name, text in printed.items()}
