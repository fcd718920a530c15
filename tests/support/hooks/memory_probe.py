"""A hook that searches the whole memory of the processes that tasks and committers run in for a secret."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from support.hooks.hook import Call

# In these forms the secret is not itself in the memory of who looks for it.
_FIRST_PART = "MARKED-SECRET"
_SECRET = re.compile(b"MARKED[-]SECRET[-]7f3a")


def secret() -> str:
    """Return the secret that the probes look for."""
    return f"{_FIRST_PART}-7f3a"


def holds_secret() -> bool:
    """Return whether the secret is anywhere in the memory of this process."""
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for region in maps:
            span, mode, *_ = region.split()
            start, end = (int(part, 16) for part in span.split("-"))
            if mode.startswith("rw") and _holds_secret(memory.fileno(), start, end):
                return True
    return False


def _holds_secret(memory: int, start: int, end: int) -> bool:
    try:
        return _SECRET.search(os.pread(memory, end - start, start)) is not None
    except OSError:  # a region of the kernel's own
        return False


def read_probes(folder: Path) -> dict[str, set[str]]:
    """Return what the processes reported, by their roles."""
    reports: dict[str, set[str]] = {}
    for path in folder.iterdir():
        role, _, text = path.read_text().partition(": ")
        reports.setdefault(role, set()).add(text)
    return reports


class MemoryProbe:
    """Reports into the folder that option `probe` names whether a process holds the secret.

    The planned writer is pickled once more than Spark does, before that, and what came of it goes to tasks.
    """

    option: ClassVar[str] = "probe"

    def __init__(self, text: str) -> None:
        self._folder = Path(text)
        self._early = b""

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """Search before a task runs, and after a commit or an abort."""
        if call.role == "task":
            self._report(call.role)
        yield
        if call.role == "plan":
            self._early = pickle.dumps(call.writer)
        elif call.role != "task":
            self._report(call.role)

    def _report(self, role: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        report = self._folder / f"{role}-{os.getpid()}-{len(list(self._folder.iterdir()))}"
        report.write_text(f"{role}: secret {holds_secret()}")
