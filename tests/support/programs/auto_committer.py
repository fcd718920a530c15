"""The program of a committer that maintains its table and is killed while it does: it commits epochs, and dies.

Its arguments are the table, the options of the write (JSON), how many epochs it commits, and the name of the step at
which it dies, if its maintenance comes there.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Mapping

from support.programs.forker import run_forked
from support.tables.sink import Sink, epoch

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.maintenance.auto import maintain_after
from iceberg_ds.options.parse import parse_options


def die_in_maintenance(table: str, options: Mapping[str, str], epochs: int, step: FaultPoint) -> None:
    """Commit epochs in a process of its own that is killed when its maintenance comes to `step`; assert that it did."""
    arguments = [table, json.dumps(dict(options)), str(epochs), step.name]
    assert run_forked("support.programs.auto_committer", *arguments) == -signal.SIGKILL


def main(table: str, options: str, epochs: str, name: str) -> None:
    """Commit, and die."""

    def die(step: FaultPoint) -> None:
        if step is FaultPoint[name] and threading.current_thread() is not threading.main_thread():
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    parsed = parse_options({**json.loads(options), "table": table})
    sink = Sink(catalog=connect(catalog_settings(parsed)), options=parsed)
    for number in range(int(epochs)):
        result = sink.append(number, of_epoch=epoch(number))
        maintain_after(sink.catalog, lambda _: parsed, [result])
