"""The file of reports: one line of JSON for each commit, written by committers and followed by whoever counts.

Spark commits in processes of its own, which come and go; the file is what lasts. Any number of streams may write to it,
each with one short write under a lock of the file. At `LARGEST_BYTES` it is renamed to end in `.1`, in place of an
older one, so that it stays bounded. A process that is killed while it writes leaves a part of a line, which readers
leave out. Readers of any number follow the file by themselves and take no lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from iceberg_ds.metrics.report import CommitReport

# Some 40,000 reports; with the older file twice as many are kept.
LARGEST_BYTES = 32 * 1024 * 1024

_NEWLINE = b"\n"
# A line that is longer is no report.
_READ_BYTES = 1024 * 1024


class ReportWriter:
    """Appends reports to a file.

    Args:
        path: The file; it and its folder are made when the first report comes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, report: CommitReport) -> None:
        """Append a report.

        Raises:
            OSError: The file cannot be written, or is no regular file.
        """
        path = target(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        line = report.to_json().encode() + _NEWLINE
        while not self._append(path, line):
            pass  # another process has renamed the file meanwhile

    def _append(self, path: Path, line: bytes) -> bool:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o644)
        try:
            _require_file(path, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_at(path, descriptor):
                return False
            size = os.fstat(descriptor).st_size
            if size and size + len(line) > LARGEST_BYTES:
                path.replace(older(path))
                return False
            is_torn = size > 0 and os.pread(descriptor, 1, size - 1) != _NEWLINE
            _write(descriptor, _NEWLINE + line if is_torn else line, size)
        finally:
            os.close(descriptor)
        return True


def target(path: Path) -> Path:
    """Return the file that a path leads to over links: it is renamed, not the link."""
    return Path(os.path.realpath(path))


def older(path: Path) -> Path:
    """Return where the reports are that came before those in the file."""
    return path.with_name(path.name + ".1")


def last_report(path: Path, query_id: str, table: str | None = None) -> CommitReport | None:
    """Return the last report on a query in the file, or in the one before it, or None if neither has one.

    Args:
        path: The file; it need not exist.
        query_id: Spark's id of the query, which is the application's name of upserts that it makes for each batch.
        table: Identifier of the only table that counts; None for any.
    """
    file = target(path)
    for part in (file, older(file)):
        if not part.is_file():  # a pipe would wait for a writer
            continue
        try:
            lines = part.read_bytes().split(_NEWLINE)
        except OSError:
            continue
        for line in reversed(lines):
            if query_id.encode() in line:
                with suppress(ValueError):
                    report = CommitReport.from_json(line.decode())
                    if query_id in (report.query_id, report.stream) and table in (None, report.table):
                        return report
    return None


def _write(descriptor: int, content: bytes, size: int) -> None:
    """Append all of the content, or raise OSError and leave none of it."""
    try:
        written = os.write(descriptor, content)
    except OSError:
        _take_back(descriptor, size)
        raise
    if written < len(content):  # the disk is full
        _take_back(descriptor, size)
        raise OSError(f"only {written} of {len(content)} bytes could be written")


def _take_back(descriptor: int, size: int) -> None:
    with suppress(OSError):  # the error of the write says more; readers leave a part of a line out
        os.ftruncate(descriptor, size)


def _require_file(path: Path, descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def _is_at(path: Path, descriptor: int | None) -> bool:
    if descriptor is None:
        return False
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


class ReportReader:
    """Follows a file of reports, over renaming, from the oldest report that is kept; yields each report once.

    Args:
        path: The file; it need not exist yet.

    Attributes:
        malformed: Number of lines so far that are no report.
    """

    def __init__(self, path: Path) -> None:
        self.malformed = 0
        self._given = path
        self._path = target(path)
        self._older = older(self._path)
        self._is_closed = False
        self._descriptor: int | None = None
        # The file that was read before this one stays open: else another file could get its number (inode).
        self._previous: int | None = None
        self._consumed = 0  # bytes, up to the end of the last whole line
        self._is_in_long_line = False
        # Why the older file is left out, until it is told.
        self._left_out: OSError | None = None

    def new(self) -> Iterator[CommitReport]:
        """Yield the reports that came since the last call; in the first call all that are kept, after `close` none.

        Raises:
            OSError: The file cannot be read, or is no regular file; or the older one, after all reports of the file.
        """
        self._path = target(self._given)  # a link may lead elsewhere by now
        self._older = older(self._path)
        while not self._is_closed:
            yield from self._read()
            if _is_at(self._path, self._descriptor):
                break
            yield from self._read()  # what came just before the file was renamed
            if not self._go_on():
                break
        if self._left_out is not None:
            problem, self._left_out = self._left_out, None
            raise problem

    def close(self) -> None:
        """Close the file; no report is read from then on."""
        self._is_closed = True
        _close(self._descriptor)
        _close(self._previous)
        self._descriptor = self._previous = None

    def _go_on(self) -> bool:
        """Open the file that follows the open one, which may be the older one at first; return whether there is one."""
        following = _opened(self._path)
        try:
            # Looked at only now: what is renamed from here on has been opened.
            is_known = any(_is_at(self._older, known) for known in (self._descriptor, self._previous, following))
            between = None if is_known else _opened(self._older)
        except OSError as problem:
            if following is None:
                raise
            between, self._left_out = None, problem
        if between is not None:
            _close(following)
            following = between
        if following is None:
            return False
        _close(self._previous)
        self._descriptor, self._previous = following, self._descriptor
        self._consumed, self._is_in_long_line = 0, False
        return True

    def _read(self) -> Iterator[CommitReport]:
        """Yield the reports of whole lines: a writer may take a part of a line back."""
        if self._descriptor is None:
            return
        if os.fstat(self._descriptor).st_size < self._consumed:  # it was emptied
            self._consumed, self._is_in_long_line = 0, False
        while content := os.pread(self._descriptor, _READ_BYTES, self._consumed):
            *lines, rest = content.split(_NEWLINE)
            for line in lines:
                self._consumed += len(line) + len(_NEWLINE)
                yield from self._parsed(line)
            if not lines:
                if len(rest) < _READ_BYTES:
                    return
                self._consumed += len(rest)
                self._is_in_long_line = True

    def _parsed(self, line: bytes) -> Iterator[CommitReport]:
        is_end_of_long_line, self._is_in_long_line = self._is_in_long_line, False
        if not line and not is_end_of_long_line:
            return
        try:
            report = None if is_end_of_long_line else CommitReport.from_json(line.decode())
        except ValueError:  # malformed JSON or text, too
            report = None
        if report is None:
            self.malformed += 1
        else:
            yield report


def _opened(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for a writer
    except FileNotFoundError:
        return None
    try:
        _require_file(path, descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
