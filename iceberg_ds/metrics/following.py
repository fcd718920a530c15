"""Follows files of reports: reads what is new, counts it, and survives a file that is damaged, replaced or gone."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from iceberg_ds.errors import OptionError
from iceberg_ds.metrics.counters import Counted, Counters
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.metrics.report_file import ReportReader, older, target

logger = logging.getLogger(__name__)

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
        OptionError: There is none.
    """
    given = [files] if isinstance(files, (str, os.PathLike)) else list(files)
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
