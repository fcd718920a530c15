"""Upserts by the package's own functions without Spark, and the program in which they are killed.

The program is told on its standard input, a line of JSON each, what to upsert and where to die; it forks a process
that does so, which is cheaper than one that has all to load, and answers with its exit code.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import types as spark
from support.jvm_peer import TESTS
from support.keyed_streams import BY_KEY, NAMES, Epoch, Event
from support.tables import arrow_batch

import iceberg_ds
from iceberg_ds.steps import Step, listen
from iceberg_ds.upserts import job, upserting

TABLE = "db.t"
APP_ID = "query"
_TASKS = 2
_SCHEMA = spark.StructType(
    [spark.StructField(name, spark.StringType() if name in {"op", "region"} else spark.LongType()) for name in NAMES]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Events as `upsert` sees a DataFrame of them, whose tasks run in this process."""

    events: Sequence[Event]
    schema: spark.StructType = _SCHEMA
    isStreaming: bool = False  # noqa: N815  # Spark's name
    sparkSession: None = None  # noqa: N815

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Any:  # noqa: N802
        """Return what runs the tasks; the events of one key are in one."""

        def collect() -> list[dict[str, Any]]:
            parts = [[event for event in self.events if event[1] % _TASKS == number] for number in range(_TASKS)]
            return [row for number, part in enumerate(parts) for row in _run(task, number, part)]

        return SimpleNamespace(collect=collect)


def _run(task: Callable[..., Iterator[pa.RecordBatch]], number: int, events: Sequence[Event]) -> list[dict[str, Any]]:
    batch = arrow_batch([dict(zip(NAMES, event, strict=True)) for event in events], _SCHEMA)
    context = SimpleNamespace(partitionId=lambda: number, taskAttemptId=lambda: number, attemptNumber=lambda: 0)
    with patch.object(job.TaskContext, "get", lambda: context):
        return [row for answer in task(iter([batch])) for row in answer.to_pylist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsert:
    """One micro-batch that the function of `upsert_into` is given.

    Attributes:
        options: Lead to the catalog, and say how old rows are taken away.
        epoch_id: Its number.
        epoch: Its events.
        meanwhile: Events that somebody else upserts between its search and its commit.
    """

    options: Mapping[str, str]
    epoch_id: int
    epoch: Epoch
    meanwhile: Epoch = field(default_factory=list)

    def run(self, listener: Callable[[Step], None] = lambda _: None) -> None:
        """Upsert, and tell of each step."""
        waiting = [self.meanwhile] if self.meanwhile else []

        def act(step: Step) -> None:
            if step is Step.COMMIT_BEGUN and waiting:
                listen(None)
                _upsert(self.options, "somebody else", 0, waiting.pop())
                listen(act)
            listener(step)

        with _listening(act):
            _upsert(self.options, APP_ID, self.epoch_id, self.epoch)

    def die(self, step: Step, number: int) -> None:
        """Upsert in this process, and be killed when it comes to `step` for the time `number`, from 1."""
        left = number

        def act(reached: Step) -> None:
            nonlocal left
            left -= reached is step
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        self.run(act)


@contextmanager
def _listening(listener: Callable[[Step], None]) -> Iterator[None]:
    listen(listener)
    try:
        yield
    finally:
        listen(None)


def _upsert(options: Mapping[str, str], app_id: str, epoch_id: int, epoch: Epoch) -> None:
    write = iceberg_ds.upsert_into(TABLE, options={**options, **BY_KEY, "txn-app-id": app_id})
    frame: Any = Frame(events=[event for part in epoch for event in part])
    with patch.object(upserting, "distribute", lambda rows, **_: rows):
        write(frame, epoch_id)


class Upserter:
    """The program, from its start to its end."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "support.upserter"]
        self._process = subprocess.Popen(command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def die(self, upsert: Upsert, step: Step, number: int = 1) -> None:
        """Let it upsert in a process that is killed when it comes to `step` for the time `number`.

        Raises:
            AssertionError: It does not come there.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([asdict(upsert), step.name, number]) + "\n")
        self._process.stdin.flush()
        assert int(self._process.stdout.readline()) == -signal.SIGKILL

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def main() -> None:
    """Fork a process for each line, and wait for it."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                values, step, number = json.loads(line)
                Upsert(**values).die(Step[step], number)
                code = 0
            except BaseException:  # a forked process must not go on as its parent
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
