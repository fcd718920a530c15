"""`follow_reports`: hands each new report to a function, from a thread of the process that started the streams."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.delivery import described
from iceberg_ds.metrics.following import Files, ReportFiles
from iceberg_ds.metrics.report import CommitReport

logger = logging.getLogger(__name__)

# Seconds that `close` waits for a reporter that hangs.
_CLOSE_S = 10.0


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
