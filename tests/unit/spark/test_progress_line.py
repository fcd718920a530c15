"""The line that tells how far Spark is: on a terminal alone, and gone at the end."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from iceberg_ds.spark import progress_line as module
from iceberg_ds.spark.progress_line import progress_line


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class _Stage:
    numTasks, numCompletedTasks = 12, 5  # noqa: N815  # Spark's names


class _Session:
    """A session with one active stage."""

    @property
    def sparkContext(self) -> _Session:  # noqa: N802  # Spark's names
        return self

    def statusTracker(self) -> _Session:  # noqa: N802
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return [7, 8]

    def getStageInfo(self, number: int) -> _Stage | None:  # noqa: N802
        return _Stage() if number == 7 else None


class _Remote:
    """A session of Spark Connect."""

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        raise RuntimeError("no JVM")


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_S", 0.01)


def shown(session: Any, stream: io.StringIO) -> str:
    """Return what is written to the stream during a short block."""
    with progress_line(session, stream):
        time.sleep(0.2)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("session", "text"), [(_Session(), "\r5 of 12 tasks done, 0 s\x1b[K"), (_Remote(), "\r0 s\x1b[K")]
)
def test_terminal_tells_how_far_the_tasks_are(session: Any, text: str) -> None:
    """A user could not tell a long rewrite from one that hangs."""
    found = shown(session, _Terminal())

    assert text in found
    assert found.endswith("\r\x1b[K")


def test_nothing_is_written_elsewhere() -> None:
    """A log, or the output of a scheduler, would be full of control characters."""
    assert shown(_Session(), io.StringIO()) == ""
    assert shown(None, _Terminal()) == ""
