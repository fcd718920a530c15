"""`follow_reports`: hands each new report to a function, from a thread of the process that started the streams."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from types import TracebackType

from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.delivery import Reporter
from iceberg_ds.metrics.following import Files, ReportFiles
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.secrets import mask_text

logger = logging.getLogger(__name__)

# Seconds that `close` waits for a reporter that hangs.
_CLOSE_S = 10.0


class ReportFollower:
    """Hands over reports until it is closed; see `follow_reports`. Closes itself at the end of `with`."""

    def __init__(self, files: ReportFiles, reporter: Reporter, interval_s: float) -> None:
        self._files = files
        self._reporter = reporter
        self._interval_s = interval_s
        self._has_warned = False
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
        while not self._is_closed.wait(self._interval_s):
            self._hand_over(self._files.new())
        self._hand_over(self._files.new())
        self._files.close()

    def _hand_over(self, reports: Iterable[CommitReport]) -> None:
        for report in reports:
            try:
                self._reporter(report)
            except Exception as problem:  # of any code of others
                if not self._has_warned:
                    self._has_warned = True
                    text = mask_text(f"{type(problem).__name__}: {problem}", {})
                    logger.warning("A report on a commit was not taken, and following goes on: %s", text)


def follow_reports(
    file: Files,
    reporter: Callable[[CommitReport], object],
    *,
    interval_s: float = 1.0,
    from_start: bool = False,
) -> ReportFollower:
    """Hand each new report to a function, such as an `OpenTelemetryReporter`, from a thread of this process.

    What the function raises is logged once and ends nothing. If it has a method `remember`, that gets the reports that
    are in the file already, so that it knows later replays of their commits.

    Args:
        file: The path of option `metrics-file`, or those of several streams. It need not exist yet.
        reporter: Takes a report; one after the other.
        interval_s: Seconds between two looks at the file.
        from_start: Whether the reports that are in the file already are handed over, too.

    Returns:
        The follower, which runs until it is closed, or the process ends.

    Raises:
        OptionError: There is no file, or the interval is not above 0.
    """
    if not interval_s > 0:
        raise OptionError(f"Cannot look for reports every {interval_s:g} s: expected seconds above 0.")
    files = ReportFiles(file)
    if not from_start:
        remember = getattr(reporter, "remember", _ignore)
        for report in files.new():
            remember(report)
    return ReportFollower(files, reporter, interval_s)


def _ignore(_: CommitReport) -> None:
    """Leave a report out."""
