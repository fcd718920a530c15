"""Hands reports to those who asked for them, so that none of them can fail a commit or hold it up for long.

Each reporter has a thread of its own, which takes the reports of simultaneous commits one after the other, and ends
when none comes for a while. A commit hands out the reports on all of its tables, and then waits once for all reporters
together, at most `LIMIT_S`, so that a report is where it belongs before Spark notes the epoch as done; a reporter that
has taken none of them by then gets no further report until it has, and costs no further wait. What goes wrong is
logged once for each reporter in this process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import TypeAlias

from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.secrets import mask_text

logger = logging.getLogger(__name__)

Reporter: TypeAlias = Callable[[CommitReport], object]

# Seconds that a commit waits for reporters, all of them together.
LIMIT_S = 1.0
# Seconds after which a thread without reports ends: a program may name a new file for each day or table.
_IDLE_S = 10.0
# Characters of an error of others that are shown: hiding secrets in more could take longer than a commit waits.
_MOST_TEXT = 2_000


def described(problem: BaseException) -> str:
    """Return the class and the text of an error of others, without secrets; the class alone if it has no text."""
    try:
        text = f"{type(problem).__name__}: {problem}"
        if len(text) > _MOST_TEXT:
            before, _, address = (text := text[:_MOST_TEXT]).rpartition("://")
            if "@" not in address:  # the @ that tells of a password may have been cut off
                text = before or text
        return mask_text(text, {})
    except BaseException:  # its __str__ is code of others, too
        return type(problem).__name__


class Reporting:
    """The reporters of one kind of write in this process.

    Args:
        reporters: What takes reports, by the name that warnings use.
        is_in_summary: Whether the summary of the snapshot tells what the tasks took.

    Attributes:
        is_in_summary: The same.
    """

    def __init__(self, reporters: Sequence[tuple[str, Reporter]] = (), *, is_in_summary: bool = False) -> None:
        self.is_in_summary = is_in_summary
        self._lines = [_Line(name, reporter) for name, reporter in reporters]

    def report(self, report: CommitReport) -> None:
        """Hand the report to all reporters; they are waited for as `waiting_once` says. Raises nothing."""
        with waiting_once() as waiting:
            waiting += [(line, done) for line in self._lines if (done := line.take(report)) is not None]


@contextmanager
def waiting_once() -> Iterator[list[tuple[_Line, threading.Event]]]:
    """Wait at the end of the outermost such block of a thread, for at most `LIMIT_S` seconds, for all its reports.

    Yields:
        The reports that are waited for: who takes each, and what tells that it is taken.
    """
    if (outer := _waiting.get()) is not None:
        yield outer
        return
    waiting: list[tuple[_Line, threading.Event]] = []
    token = _waiting.set(waiting)
    try:
        yield waiting
    finally:
        _waiting.reset(token)
        until = time.monotonic() + LIMIT_S
        for _, done in waiting:
            done.wait(max(0.0, until - time.monotonic()))
        keeping_up = {line for line, done in waiting if done.is_set()}  # one that has only more to take is not late
        for line, done in waiting:
            if line not in keeping_up:
                line.give_up(done)


# The reports that the block of `waiting_once` under way waits for.
_waiting: ContextVar[list[tuple[_Line, threading.Event]] | None] = ContextVar("_waiting", default=None)


NO_REPORTING = Reporting()


class _Line:
    """One reporter and its thread."""

    def __init__(self, name: str, reporter: Reporter) -> None:
        self._name = name
        self._reporter = reporter
        self._begin()

    def _begin(self) -> None:
        self._process_id = os.getpid()
        self._queue: SimpleQueue[tuple[CommitReport, threading.Event]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        # Of reports that commits wait for no longer; empty while the reporter keeps up.
        self._late: list[threading.Event] = []
        self._has_warned = False

    def take(self, report: CommitReport) -> threading.Event | None:
        """Give the report to the thread; return the event that tells when it is taken, None if the thread is late."""
        if self._process_id != os.getpid():  # a fork takes neither the thread along nor what it was given
            self._begin()
        done = threading.Event()
        with self._lock:
            self._late = [late for late in self._late if not late.is_set()]
            if self._late:
                return None
            try:
                if self._thread is None or not self._thread.is_alive():
                    thread = threading.Thread(target=self._run, name=f"iceberg-ds-{self._name}", daemon=True)
                    thread.start()
                    self._thread = thread
            except RuntimeError as problem:  # no thread can be had, as while the interpreter exits
                self.warn(str(problem))
                return None
            self._queue.put((report, done))
        return done

    def give_up(self, done: threading.Event) -> None:
        """Give the thread no further report until it has taken this one."""
        with self._lock:
            self._late.append(done)
        self.warn(f"it has not taken a report in {LIMIT_S:g} s: it gets no other until it has")

    def warn(self, problem: str) -> None:
        """Log why reports are missing, the first time."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning("Reports on commits do not reach %s, and commits go on without: %s", self._name, problem)

    def _run(self) -> None:
        while (given := self._next()) is not None:
            report, done = given
            try:
                self._reporter(report)
            except BaseException as problem:  # of any code of others, which must not fail a commit
                self.warn(described(problem))
            finally:
                done.set()

    def _next(self) -> tuple[CommitReport, threading.Event] | None:
        """Return the next report, or None if none comes for a while, after which `take` starts another thread."""
        with suppress(Empty):
            return self._queue.get(timeout=_IDLE_S)
        with self._lock:
            with suppress(Empty):  # it came just now
                return self._queue.get_nowait()
            self._thread = None
            return None
