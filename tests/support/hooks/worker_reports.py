"""A hook that reports in what state calls find and leave their Python processes."""

from __future__ import annotations

import gc
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from support.hooks.hook import Call

from iceberg_ds.spark import workers


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """What a call found and left in its process.

    Attributes:
        role: What was called for.
        process: Its id.
        set_aside: How many objects the garbage collector left alone when the call ended.
        connections: How many of the process's connections were such as Spark's, over which a task's rows come.
    """

    role: str
    process: int
    set_aside: int
    connections: int


def read_worker_reports(folder: Path) -> list[WorkerReport]:
    """Return what the calls reported, in the order in which they ended."""
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return [WorkerReport(**json.loads(path.read_text())) for path in files]


class WorkerReports:
    """Writes a `WorkerReport` of each call that ends well into the folder that option `reports` names."""

    option: ClassVar[str] = "reports"

    def __init__(self, text: str) -> None:
        self._folder = Path(text)

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        """Report what the call finds and leaves."""
        connections = list(workers._local_connections())
        for connection in connections:
            connection.close()
        yield
        report = WorkerReport(
            role=call.role,
            process=os.getpid(),
            set_aside=gc.get_freeze_count(),
            connections=len(connections),
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / uuid.uuid4().hex).write_text(json.dumps(asdict(report)))
