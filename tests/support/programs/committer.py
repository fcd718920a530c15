"""The program of a committer that is killed: commits the messages in a file, and dies at a step if it comes to it.

Its arguments are the sink's options (JSON), the file of pickled messages, the name of the step, and how often it comes
there.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.programs.forker import run_forked
from support.tables.sink import Sink

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.messages import TaskCommit
from iceberg_ds.options.parse import parse_options


def die_in_commit(
    options: Mapping[str, str], messages: Sequence[TaskCommit], step: FaultPoint, folder: Path, number: int = 1
) -> None:
    """Commit in a process of its own that is killed at `step`, and assert that it came to it.

    Args:
        options: The sink's options, the table's name among them.
        messages: What the tasks report.
        step: Where it dies.
        folder: For the messages.
        number: Which time it comes there, from 1.
    """
    path = folder / f"messages-{step.name}"
    path.write_bytes(pickle.dumps(list(messages)))
    arguments = [json.dumps(dict(options)), str(path), step.name, str(number)]
    assert run_forked("support.programs.committer", *arguments) == -signal.SIGKILL


def main(given: str, path: str, name: str, number: str) -> None:
    """Commit, and die."""
    options = parse_options(json.loads(given))
    messages = pickle.loads(Path(path).read_bytes())  # noqa: S301  # made by the test that started this
    last, left = FaultPoint[name], int(number)

    def die(step: FaultPoint) -> None:
        nonlocal left
        left -= step is last
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    Sink(catalog=connect(catalog_settings(options)), options=options).commit(messages)
