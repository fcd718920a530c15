"""`Metrics`: sums, rates and averages over the commits that files of reports tell of, for programs and notebooks."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from math import ceil, floor
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.counters import SUCCESSES, Counted, Writers, is_later, is_success, not_ahead
from iceberg_ds.metrics.follow import Files, FollowedCounters
from iceberg_ds.metrics.report import CommitReport

_Number = TypeVar("_Number", int, float)

# The longest window, in seconds, and the most reports that are kept.
LONGEST_WINDOW_S = 3600
REPORTS_KEPT = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """Sums over commits; what follows from them are its properties, None where nothing was counted.

    Attributes:
        seconds: Seconds that the sums cover: from the start of the first commit to the end of the last one, or the
            length of the window.
        records_written: Rows that commits added to tables. Failed and repeated batches add nothing.
        bytes_written: Bytes of the data and delete files that commits added.
        files_created: Data and delete files that commits added.
        commits_success: Snapshots that were committed, each once, also those that only a replay tells of.
        commits_failed: Commits that ended with an error: conflict, unknown or failed.
        commits_replayed: Writes that the table had already, as after a restart.
        commits_empty: Commits without anything to add.
        commit_retries: Requests that were sent again, beyond the first of each commit.
        commit_conflicts: Requests that were lost to faster commits of others.
        batches_flushed: Committed batches of rows; commits without tasks, such as conversions of deletes, are none.
        batch_size_sum: Rows that Spark sent for these batches.
        batch_size_min: Rows of the smallest of these batches; None if there is none.
        batch_size_max: Rows of the largest of these batches; None if there is none.
        commits_timed: Commits that made a snapshot and whose duration is known.
        commit_seconds: Seconds that these took together.
    """

    seconds: float = 0.0
    records_written: int = 0
    bytes_written: int = 0
    files_created: int = 0
    commits_success: int = 0
    commits_failed: int = 0
    commits_replayed: int = 0
    commits_empty: int = 0
    commit_retries: int = 0
    commit_conflicts: int = 0
    batches_flushed: int = 0
    batch_size_sum: int = 0
    batch_size_min: int | None = None
    batch_size_max: int | None = None
    commits_timed: int = 0
    commit_seconds: float = 0.0

    @property
    def avg_commit_latency_ms(self) -> float | None:
        """Milliseconds that a commit took on average; None if the duration of no commit is known."""
        return _ratio(self.commit_seconds * 1000, self.commits_timed)

    @property
    def avg_batch_size(self) -> float | None:
        """Rows that Spark sent for a committed batch on average; None if no batch was committed."""
        return _ratio(self.batch_size_sum, self.batches_flushed)

    @property
    def records_per_second(self) -> float | None:
        """Rows written per second of `seconds`; None if these are 0."""
        return _ratio(self.records_written, self.seconds)

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes written per second of `seconds`; None if these are 0."""
        return _ratio(self.bytes_written, self.seconds)

    @property
    def success_rate(self) -> float | None:
        """Share of commits that succeeded, of those that succeeded or failed, 0 to 1; None before the first."""
        return _ratio(self.commits_success, self.commits_success + self.commits_failed)

    @property
    def commit_retry_rate(self) -> float | None:
        """Retries per commit that succeeded or failed, which may be above 1; None before the first."""
        return _ratio(self.commit_retries, self.commits_success + self.commits_failed)

    def to_json(self) -> str:
        """Return a JSON object with the attributes and the properties; null where nothing was counted."""
        return json.dumps(self.to_dict(), indent=2)

    def to_dict(self) -> dict[str, float | None]:
        """Return the attributes and the properties by name."""
        return {**asdict(self), **{name: getattr(self, name) for name in _PROPERTIES}}


_PROPERTIES = (
    "avg_commit_latency_ms",
    "avg_batch_size",
    "records_per_second",
    "bytes_per_second",
    "success_rate",
    "commit_retry_rate",
)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetrics:
    """The sums of one table, branch and stream.

    Attributes:
        table: Identifier of the table.
        branch: Branch that was written.
        stream: Name of the stream or application; empty without one.
        metrics: The sums.
        last_success_ms: When the last commit ended that found or brought its rows in the table, in milliseconds since
            1970; None if there was none.
        last_error: Class of the last error; None if there was none.
    """

    table: str
    branch: str
    stream: str
    metrics: MetricsSnapshot
    last_success_ms: int | None = None
    last_error: str | None = None


class Metrics:
    """The sums, rates and averages of all commits that files of reports tell of, from the oldest report that is kept.

    Each call reads first what is new in the files. A file that does not exist, or cannot be read, counts nothing; a
    line that is no report is left out. Any number of threads may use it.

    Args:
        file: The path of option `metrics-file`, or those of several streams.

    Raises:
        OptionError: There is no file.
    """

    def __init__(self, file: Files) -> None:
        self._lock = threading.RLock()
        self._sums = _Sums()
        self._writers = Writers()
        self._by_writer: dict[tuple[str, ...], _OfWriter] = {}
        self._by_second: dict[int, _Sums] = {}
        self._reports: deque[CommitReport] = deque(maxlen=REPORTS_KEPT)
        self._counters = FollowedCounters(file, self._take)

    @property
    def totals(self) -> MetricsSnapshot:
        """The sums of all commits, or of those since `snapshot_and_reset`."""
        return self.snapshot()

    @property
    def tables(self) -> tuple[TableMetrics, ...]:
        """The sums of each table, branch and stream, by name; streams beyond 1,000 of these together as `other`."""
        with self._lock:
            self._read()
            return tuple(
                TableMetrics(
                    table=table,
                    branch=branch,
                    stream=stream,
                    metrics=of_writer.sums.snapshot(),
                    last_success_ms=of_writer.last_success_ms,
                    last_error=of_writer.last_error,
                )
                for (table, branch, stream), of_writer in sorted(self._by_writer.items())
            )

    @property
    def malformed(self) -> int:
        """Number of lines that are no report."""
        with self._lock:
            self._read()
            return self._counters.malformed

    @property
    def unreadable(self) -> int:
        """Number of times that a file could not be read; one that does not exist does not count."""
        with self._lock:
            self._read()
            return self._counters.unreadable

    def snapshot(self) -> MetricsSnapshot:
        """Return the sums of all commits, or of those since `snapshot_and_reset`."""
        with self._lock:
            self._read()
            return self._sums.snapshot()

    def snapshot_and_reset(self) -> MetricsSnapshot:
        """Return the sums and begin them anew; no commit is missed in between, and none is in both.

        Windows, tables, reports and Prometheus' counters, which may not go back, stay as they are.
        """
        with self._lock:
            self._read()
            sums, self._sums = self._sums, _Sums()
            return sums.snapshot()

    def window(self, seconds: float) -> MetricsSnapshot:
        """Return the sums of the commits that ended within the last seconds, by whole seconds of the clock.

        Args:
            seconds: Length of the window, at most 3,600 s.

        Raises:
            OptionError: The window is longer, or empty.
        """
        if not 0 < seconds <= LONGEST_WINDOW_S:
            raise OptionError(f"Cannot sum up the last {seconds:g} s: expected up to {LONGEST_WINDOW_S} s, above 0.")
        with self._lock:
            self._read()
            now = floor(time.time())
            sums = _Sums()
            for second, of_second in self._by_second.items():
                if now - ceil(seconds) < second <= now:  # this machine's clock may have been ahead
                    sums.merge(of_second)
            return sums.snapshot(float(seconds))

    def reports(self, n: int = 10) -> tuple[CommitReport, ...]:
        """Return the last reports that were read, the newest last.

        Args:
            n: How many, at most 1,000.
        """
        with self._lock:
            self._read()
            return tuple(self._reports)[-n:] if n > 0 else ()

    def to_json(self) -> str:
        """Return a JSON object: `totals`, `tables` (a list), `malformed`; null where nothing was counted."""
        with self._lock:
            self._read()
            found = {
                "totals": self._sums.snapshot().to_dict(),
                "tables": [{**asdict(table), "metrics": table.metrics.to_dict()} for table in self.tables],
                "malformed": self._counters.malformed,
            }
        return json.dumps(found, indent=2)

    def to_prometheus(self) -> str:
        """Return the metrics in Prometheus' text format.

        Raises:
            OptionError: The extra `prometheus` is not installed.
        """
        from iceberg_ds.metrics.prometheus import exposition  # noqa: PLC0415  # an extra, which sums need not

        with self._lock, self._counters.current() as counters:
            return exposition(counters)

    def close(self) -> None:
        """Close the files."""
        self._counters.close()

    def _read(self) -> None:
        with self._counters.current():
            pass

    def _take(self, report: CommitReport, counted: Counted) -> None:
        if counted.is_repeated:
            return
        self._reports.append(report)
        if counted.is_maintenance:
            return
        now = time.time()
        ended = not_ahead(report, now)
        second = ended.at_ms // 1000
        self._sums.take(ended, counted)
        self._by_writer.setdefault(self._writers.of(ended), _OfWriter()).take(ended, counted, now)
        if second > now - LONGEST_WINDOW_S:
            self._by_second.setdefault(second, _Sums()).take(ended, counted)
        if len(self._by_second) > 2 * LONGEST_WINDOW_S:
            kept = sorted(self._by_second)[-LONGEST_WINDOW_S:]
            self._by_second = {second: self._by_second[second] for second in kept}


@dataclass(slots=True)
class _Sums:
    """Sums that grow."""

    sums: dict[str, float] = field(default_factory=dict)
    smallest: int | None = None
    largest: int | None = None
    start_ms: float | None = None
    end_ms: float | None = None

    def take(self, report: CommitReport, counted: Counted) -> None:
        """Add a report."""
        for name, number in _numbers(report, counted).items():
            self.sums[name] = self.sums.get(name, 0) + number
        size = report.tasks.rows if counted.is_commit and report.tasks.tasks else None
        self._span(size, size, report.at_ms - report.duration_ms, report.at_ms)

    def merge(self, other: _Sums) -> None:
        """Add other sums."""
        for name, number in other.sums.items():
            self.sums[name] = self.sums.get(name, 0) + number
        self._span(other.smallest, other.largest, other.start_ms, other.end_ms)

    def snapshot(self, seconds: float | None = None) -> MetricsSnapshot:
        """Return the sums; `seconds` is the length of a window, else they cover the time of their commits."""
        if seconds is None:
            seconds = ((self.end_ms or 0) - (self.start_ms or 0)) / 1000
        sums: dict[str, Any] = self.sums
        return MetricsSnapshot(seconds=seconds, batch_size_min=self.smallest, batch_size_max=self.largest, **sums)

    def _span(self, smallest: int | None, largest: int | None, start_ms: float | None, end_ms: float | None) -> None:
        self.smallest = _smaller(self.smallest, smallest)
        self.largest = _larger(self.largest, largest)
        self.start_ms = _smaller(self.start_ms, start_ms)
        self.end_ms = _larger(self.end_ms, end_ms)


def _smaller(one: _Number | None, other: _Number | None) -> _Number | None:
    return other if one is None else one if other is None else min(one, other)


def _larger(one: _Number | None, other: _Number | None) -> _Number | None:
    return other if one is None else one if other is None else max(one, other)


def _numbers(report: CommitReport, counted: Counted) -> dict[str, float]:
    """Return what a report adds to the sums of that name."""
    counts = report.counts if counted.is_new_snapshot else {}
    is_batch = counted.is_commit and report.tasks.tasks > 0
    return {
        "records_written": counts.get("added-records", 0),
        "bytes_written": counts.get("added-files-size-bytes", 0),
        "files_created": counts.get("added-data-files", 0) + counts.get("added-delete-files", 0),
        "commits_success": "committed" in counted.outcomes,
        "commits_failed": report.outcome not in SUCCESSES,
        "commits_replayed": "replayed" in counted.outcomes,
        "commits_empty": "empty" in counted.outcomes,
        "commit_retries": max(0, report.attempts - 1),
        "commit_conflicts": report.conflicts,
        "batches_flushed": is_batch,
        "batch_size_sum": report.tasks.rows if is_batch else 0,
        "commits_timed": counted.is_commit,
        "commit_seconds": report.duration_ms / 1000 if counted.is_commit else 0.0,
    }


@dataclass(slots=True)
class _OfWriter:
    sums: _Sums = field(default_factory=_Sums)
    last_success_ms: int | None = None
    last_error: str | None = None

    def take(self, report: CommitReport, counted: Counted, now_s: float) -> None:
        self.sums.take(report, counted)
        if report.error is not None:
            self.last_error = report.error
        if is_success(report) and is_later(report.at_ms, self.last_success_ms, now_s * 1000):
            self.last_success_ms = report.at_ms


def print_metrics(metrics: Metrics, console: Console) -> None:
    """Print a table with the sums of each table, branch and stream."""
    shown = Table(show_header=True, header_style="bold")
    for title in ("table", "branch", "stream"):
        shown.add_column(title, overflow="fold")
    for title in ("commits", "failed", "rows", "MB", "ms/commit", "retries"):
        shown.add_column(title, justify="right")
    for title in ("last success (UTC)", "last error"):
        shown.add_column(title, no_wrap=True)
    for one in metrics.tables:
        sums = one.metrics
        latency = sums.avg_commit_latency_ms
        shown.add_row(
            _shown(one.table),
            _shown(one.branch),
            _shown(one.stream or "-"),
            f"{sums.commits_success:,}",
            f"[red]{sums.commits_failed:,}[/red]" if sums.commits_failed else "0",
            f"{sums.records_written:,}",
            f"{sums.bytes_written / 1e6:,.1f}",
            "-" if latency is None else f"{latency:,.0f}",
            f"{sums.commit_retries:,}",
            _time(one.last_success_ms),
            _shown(one.last_error or "-"),
        )
    console.print(shown)
    if metrics.malformed:
        console.print(f"Lines that are no report, and were left out: {metrics.malformed:,}.")


def _shown(text: str) -> str:
    """Return text that a terminal shows and does not obey, with escapes for what cannot be printed."""
    return escape("".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text))


def _time(at_ms: int | None) -> str:
    if at_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a clock that was far off
        return f"{at_ms} ms"
