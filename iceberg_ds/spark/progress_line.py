"""A line on a terminal that tells how far the jobs of a Spark session are; nothing where the output is no terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EVERY_S = 0.5
_BEGIN, _ERASE = "\r", "\x1b[K"  # of a line


@contextmanager
def progress_line(spark: SparkSession | None, stream: TextIO) -> Iterator[None]:
    """Show how many tasks are done, and for how long the block has run, and take the line away at its end.

    Args:
        spark: The session; None if there is none.
        stream: Where the line goes, if it is a terminal.
    """
    if spark is None or not stream.isatty():
        yield
        return
    ended = threading.Event()
    began = time.monotonic()

    def show() -> None:
        while not ended.wait(_EVERY_S):
            stream.write(f"{_BEGIN}{_text(spark, time.monotonic() - began)}{_ERASE}")
            stream.flush()

    thread = threading.Thread(target=show, name="iceberg-ds-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        stream.write(f"{_BEGIN}{_ERASE}")
        stream.flush()


def _text(spark: SparkSession, seconds: float) -> str:
    """Return what the line says; Spark Connect does not tell of tasks."""
    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
    except Exception:  # Spark Connect has no SparkContext, and a session may have ended
        stages = []
    if not stages:
        return f"{seconds:,.0f} s"
    done, tasks = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return f"{done:,} of {tasks:,} tasks done, {seconds:,.0f} s"
