"""The program of a committer that is killed: commits the messages in a file, and dies at a step if it comes to it.

Its arguments are the sink's options (JSON), the file of pickled messages, the name of the step, and how often it comes
there.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.jvm_peer import TESTS
from support.tables import Sink

from iceberg_ds.catalogs.client import connect
from iceberg_ds.catalogs.settings import catalog_settings
from iceberg_ds.messages import TaskCommit
from iceberg_ds.options import parse_options
from iceberg_ds.steps import Step, listen

_TIMEOUT_S = 120


def die_in_commit(
    options: Mapping[str, str], messages: Sequence[TaskCommit], step: Step, folder: Path, number: int = 1
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
    command = [sys.executable, "-m", "support.keyed_committer", *arguments]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def main() -> None:
    """Commit, and die."""
    options = parse_options(json.loads(sys.argv[1]))
    messages = pickle.loads(Path(sys.argv[2]).read_bytes())  # noqa: S301  # made by the test that started this
    last, left = Step[sys.argv[3]], int(sys.argv[4])

    def die(step: Step) -> None:
        nonlocal left
        left -= step is last
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    Sink(catalog=connect(catalog_settings(options)), options=options).commit(messages)


if __name__ == "__main__":
    main()
