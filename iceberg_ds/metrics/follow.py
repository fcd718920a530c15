"""Follows files of reports: what is new is read, then counted, or handed to a function by `follow_reports`.

A file may be damaged, replaced or gone meanwhile. The function is called from a thread of the process that follows.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.counters import Counted, Counters
from iceberg_ds.metrics.delivery import described
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.metrics.report_file import ReportReader, older, target

logger = logging.getLogger(__name__)

# Seconds that `close` waits for a reporter that hangs.
_CLOSE_S = 10.0

# One file of option `metrics-file`, or those of several streams.
Files: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class ReportFiles:
    """Several files of reports, read as one.

    Args:
        files: The files; they need not exist yet. One that is given twice is read once.

    Attributes:
        unreadable: Number of times so far that a file could not be read.

    Raises:
        OptionError: There is no file.
    """

    def __init__(self, files: Files) -> None:
        paths = paths_of(files)
        self.unreadable = 0
        self._readers = {path: ReportReader(path) for path in paths}
        self._warned: set[str] = set()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return tuple(self._readers)

    @property
    def malformed(self) -> int:
        """Number of lines so far that are no report."""
        return sum(reader.malformed for reader in self._readers.values())

    def new(self) -> Iterator[CommitReport]:
        """Yield the reports that came since the last call; a file that cannot be read is left out, with a warning."""
        for _, report in self.new_by_path():
            yield report

    def new_by_path(self) -> Iterator[tuple[Path, CommitReport]]:
        """Yield what `new` yields, each report with the path of its file."""
        for path, reader in self._readers.items():
            try:
                for report in reader.new():
                    yield path, report
            except OSError as problem:
                self.unreadable += 1
                unread = str(problem.filename or path)  # perhaps the older file alone
                if unread not in self._warned:
                    self._warned.add(unread)
                    reason = problem.strerror or problem
                    logger.warning(
                        "Reports on commits in %s are not counted while it cannot be read: %s", unread, reason
                    )

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers.values():
            reader.close()


def paths_of(files: Files) -> tuple[Path, ...]:
    """Return the absolute paths, each once, without files that are read as the older ones of others.

    Raises:
        OptionError: There is none, or one is no path.
    """
    given = list(files) if isinstance(files, Sequence) and not isinstance(files, str) else [files]
    if others := [file for file in given if not isinstance(file, (str, os.PathLike))]:
        raise OptionError(
            f"Cannot follow reports on commits: file is {others[0]!r}, expected the path of option 'metrics-file', or "
            "a list of paths."
        )
    if not given or not all(os.fspath(file) for file in given):
        raise OptionError("Cannot follow reports on commits: no file is given. Give the path of option 'metrics-file'.")
    # Links stay, for one may lead elsewhere later; a file that is given by its link, too, is read once.
    paths = dict.fromkeys(Path(os.path.abspath(Path(file).expanduser())) for file in given)  # noqa: PTH100  # see above
    by_target = {target(path): path for path in reversed(paths)}
    left_out = set(map(older, by_target))
    return tuple(path for path in paths if by_target.get(target(path)) == path and target(path) not in left_out)


class FollowedCounters:
    """Counts what files of reports tell; for any number of threads.

    Args:
        files: The files.
        seen: Is handed each new report and what it counts for.
    """

    def __init__(self, files: Files, seen: Callable[[CommitReport, Counted], object] | None = None) -> None:
        self._files = ReportFiles(files)
        self._counters = Counters()
        self._seen = seen
        self._lock = threading.RLock()

    @contextmanager
    def current(self) -> Iterator[Counters]:
        """Read what is new, once, and yield the sums, which no other thread changes within the block."""
        with self._lock:
            for report in self._files.new():
                counted = self._counters.take(report)
                if self._seen is not None:
                    self._seen(report, counted)
            yield self._counters

    @property
    def malformed(self) -> int:
        """Number of lines so far that are no report."""
        return self._files.malformed

    @property
    def unreadable(self) -> int:
        """Number of times so far that a file could not be read."""
        return self._files.unreadable

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._files.close()


class _Position:
    """How far a follower has come: the last report of each file that was handed over, kept in a small file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.last: dict[str, list[object] | None] = json.loads(path.read_text())
            self.last = dict(self.last.items())
        except FileNotFoundError:
            self.last = {}
        except (OSError, ValueError, AttributeError) as problem:
            raise OptionError(
                f"Cannot go on from position {str(path)!r}: {problem}. Delete the file to begin anew."
            ) from problem

    def note(self, path: Path, report: CommitReport | None) -> None:
        """Keep the last report of a file; None for a file without reports."""
        self.last[str(path)] = None if report is None else _identity(report)
        made = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        made.write_text(json.dumps(self.last))
        made.replace(self._path)


def _identity(report: CommitReport) -> list[object]:
    """Return what tells a report from all others, also for a later version that adds attributes."""
    return [report.table_uuid, report.snapshot_id, report.outcome, report.at_ms, report.duration_ms]


class ReportFollower:
    """Hands over reports until it is closed; see `follow_reports`. Closes itself at the end of `with`."""

    def __init__(
        self,
        file: Files,
        reporter: Callable[[CommitReport], object],
        *,
        interval_s: float,
        from_start: bool,
        position: str | os.PathLike[str] | None,
    ) -> None:
        self._position = None if position is None else _Position(Path(position).expanduser().absolute())
        self._files = ReportFiles(file)
        self._reporter = reporter
        self._interval_s = interval_s
        self._has_warned = False
        self._missed = self._begin(from_start=from_start)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="iceberg-ds-follow-reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hand over what is left, for at most 10 s, and end; a second call does nothing."""
        self._is_closed.set()
        self._thread.join(_CLOSE_S)

    def __enter__(self) -> ReportFollower:  # noqa: PYI034  # Python 3.10 has no Self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        for path, report in self._missed:
            self._hand_over(path, report)
        self._missed = []
        while not self._is_closed.wait(self._interval_s):
            self._hand_over_new()
        self._hand_over_new()
        self._files.close()

    def _begin(self, *, from_start: bool) -> list[tuple[Path, CommitReport]]:
        """Return what came after the position; without one remember what is there, or return it."""
        last = {} if self._position is None else dict(self._position.last)
        found: dict[Path, list[CommitReport]] = {path: [] for path in self._files.paths}
        if not (from_start and not last):
            for path, report in self._files.new_by_path():
                found[path].append(report)
        missed: list[tuple[Path, CommitReport]] = []
        for path, reports in found.items():
            count = 0 if from_start else len(reports)
            if str(path) in last:  # all of it, if the report is no longer kept
                places = [number for number, one in enumerate(reports, 1) if _identity(one) == last[str(path)]]
                count = places[-1] if places else 0
            self._remember(reports[:count])
            if str(path) not in last:
                self._note(path, reports[count - 1] if count else None)
            missed += [(path, report) for report in reports[count:]]
        return missed

    def _remember(self, reports: list[CommitReport]) -> None:
        remember = getattr(self._reporter, "remember", _ignore)
        for report in reports:
            try:
                remember(report)
            except BaseException as problem:  # of any code of others
                self._warn(described(problem))

    def _hand_over_new(self) -> None:
        for path, report in self._files.new_by_path():
            self._hand_over(path, report)

    def _hand_over(self, path: Path, report: CommitReport) -> None:
        try:
            self._reporter(report)
        except BaseException as problem:  # of any code of others, which must not end the thread
            self._warn(described(problem))
        self._note(path, report)

    def _note(self, path: Path, report: CommitReport | None) -> None:
        if self._position is not None:
            try:
                self._position.note(path, report)
            except OSError as problem:
                self._warn(f"how far it is cannot be kept: {problem}")

    def _warn(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning("A report on a commit was not taken, and following goes on: %s", problem)


def follow_reports(
    file: Files,
    reporter: Callable[[CommitReport], object],
    *,
    interval_s: float = 1.0,
    from_start: bool = False,
    position: str | os.PathLike[str] | None = None,
) -> ReportFollower:
    """Hand each new report to a function, such as an `OpenTelemetryReporter`, from a thread of this process.

    What the function raises is logged once and ends nothing. If it has a method `remember`, that gets the reports that
    are in the file already, so that it knows later replays of their commits.

    Args:
        file: The path of option `metrics-file`, or those of several streams. It need not exist yet.
        reporter: Takes a report; one after the other.
        interval_s: Seconds between two looks at the file.
        from_start: Whether the reports that are in the file already are handed over, too.
        position: Path of a small file, one for each follower, that keeps how far it has come: after a restart it goes
            on behind the last report that it handed over, at least once each. None keeps nothing: what a driver that
            died did not hand over is remembered at the next start, and never handed over.

    Returns:
        The follower, which runs until it is closed, or the process ends.

    Raises:
        OptionError: There is no file, the position cannot be read, or the interval is not above 0, or endless.
    """
    if not 0 < interval_s <= threading.TIMEOUT_MAX:
        raise OptionError(f"Cannot look for reports every {interval_s:g} s: expected seconds above 0.")
    return ReportFollower(file, reporter, interval_s=interval_s, from_start=from_start, position=position)


def _ignore(_: CommitReport) -> None:
    """Leave a report out."""
