"""Upserts by the package's own functions without Spark, and the program in which they are killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import types as spark
from support.keys.streams import BY_KEY, NAMES, Epoch, Event
from support.programs.forker import run_forked
from support.spark.local_frame import LocalFrame, without_moving_rows

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint, listen

TABLE = "db.t"
APP_ID = "query"
_TASKS = 2
_SCHEMA = spark.StructType(
    [spark.StructField(name, spark.StringType() if name in {"op", "region"} else spark.LongType()) for name in NAMES]
)


def frame_of(events: Sequence[Event]) -> Any:
    """Return events as `upsert` sees a DataFrame of them; the events of one key are in one task."""
    parts = [[event for event in events if event[1] % _TASKS == number] for number in range(_TASKS)]
    rows = [[dict(zip(NAMES, event, strict=True)) for event in part] for part in parts]
    return LocalFrame(parts=rows, schema=_SCHEMA)


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

    def run(self, listener: Callable[[FaultPoint], None] = lambda _: None) -> None:
        """Upsert, and tell of each step."""
        waiting = [self.meanwhile] if self.meanwhile else []

        def act(step: FaultPoint) -> None:
            if step is FaultPoint.COMMIT_BEGUN and waiting:
                listen(None)
                _upsert(self.options, "somebody else", 0, waiting.pop())
                listen(act)
            listener(step)

        with _listening(act):
            _upsert(self.options, APP_ID, self.epoch_id, self.epoch)

    def die(self, step: FaultPoint, number: int) -> None:
        """Upsert in this process, and be killed when it comes to `step` for the time `number`, from 1."""
        left = number

        def act(reached: FaultPoint) -> None:
            nonlocal left
            left -= reached is step
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        self.run(act)


@contextmanager
def _listening(listener: Callable[[FaultPoint], None]) -> Iterator[None]:
    listen(listener)
    try:
        yield
    finally:
        listen(None)


def _upsert(options: Mapping[str, str], app_id: str, epoch_id: int, epoch: Epoch) -> None:
    write = iceberg_ds.upsert_into(TABLE, options={**options, **BY_KEY, "txn-app-id": app_id})
    with without_moving_rows():
        write(frame_of([event for part in epoch for event in part]), epoch_id)


def die_in_upsert(upsert: Upsert, step: FaultPoint, number: int = 1) -> None:
    """Upsert in a process of its own that is killed when it comes to `step` for the time `number`, and assert it."""
    arguments = (json.dumps(asdict(upsert)), step.name, str(number))
    assert run_forked("support.programs.upserter", *arguments) == -signal.SIGKILL


def main(upsert: str, name: str, number: str) -> None:
    """Upsert, and die."""
    Upsert(**json.loads(upsert)).die(FaultPoint[name], int(number))
