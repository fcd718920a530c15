"""Several writers at once: nobody's rows are lost, nobody's land twice, and nobody fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.spark_jobs import numbered
from support.spark_process import wait_until
from support.spark_tables import Warehouse

WRITERS = 2
TIMEOUT_S = 300


def append_at_once(house: Warehouse, folder: Path, appends: int) -> None:
    """Run processes that begin at the same moment, each of which appends `appends` times two rows."""
    folder.mkdir(parents=True)
    go = folder / "go"
    commands = [
        [sys.executable, "-m", "support.spark_less_writer", str(house.folder), str(folder), str(number), str(appends)]
        for number in range(WRITERS)
    ]
    processes = [
        subprocess.Popen(command, cwd=Path(__file__).parent.parent, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        wait_until(lambda: len(list(folder.glob("ready-*"))) == WRITERS or _any_ended(processes), "all are ready")
        go.touch()
        for process in processes:
            _, errors = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _any_ended(processes: Sequence[subprocess.Popen[str]]) -> bool:
    return any(process.poll() is not None for process in processes)


def rows_of_writers(appends: int) -> list[int]:
    """Return the ids that `append_at_once` writes, in order."""
    return sorted(1_000_000 * writer + row for writer in range(WRITERS) for row in range(2 * appends))


def activate(spark: SparkSession) -> None:
    """Make a session the active one of this thread: without, Spark 4.3 finds no Python data source in a new thread."""
    if spark._jvm is not None:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)


@pytest.mark.parametrize("repetition", range(3))
def test_processes_that_create_one_table_at_once_both_succeed(
    house: Warehouse, tmp_path: Path, repetition: int
) -> None:
    """Of two jobs that start together on a new table, one would fail or lose its rows."""
    append_at_once(house, tmp_path / f"race-{repetition}", appends=1)

    assert house.ids() == rows_of_writers(appends=1)
    assert len(house.snapshots()) == WRITERS
    assert house.data_files() == house.referenced()


def test_processes_that_append_at_once_lose_nothing(house: Warehouse, tmp_path: Path) -> None:
    """Under contention, commits would overwrite each other or give up."""
    appends = 20

    append_at_once(house, tmp_path / "race", appends=appends)

    assert house.ids() == rows_of_writers(appends)
    assert len(house.snapshots()) == WRITERS * appends
    assert house.data_files() == house.referenced()


def test_threads_of_one_session_append_at_once(spark: SparkSession, house: Warehouse) -> None:
    """Parallel jobs of one Spark session would fail, or take each other's commits."""
    frames = [numbered(spark, 100 * number, 100 * number + 50) for number in range(4)]

    with ThreadPoolExecutor(max_workers=2, initializer=activate, initargs=(spark,)) as threads:
        list(threads.map(house.append, frames))

    assert house.ids() == [100 * number + row for number in range(4) for row in range(50)]
    assert len(house.snapshots()) == 4
