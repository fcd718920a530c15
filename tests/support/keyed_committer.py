"""The program of a committer that is killed: commits the messages in a file, and dies at a step if it comes to it.

Its arguments are the sink's options (JSON), the file of pickled messages, and the name of the step.
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

from iceberg_ds.catalogs.client import connect
from iceberg_ds.catalogs.settings import catalog_settings
from iceberg_ds.commits.commit import commit_write
from iceberg_ds.messages import TaskCommit
from iceberg_ds.options import parse_options
from iceberg_ds.steps import Step, listen

_TIMEOUT_S = 120


def die_in_commit(options: Mapping[str, str], messages: Sequence[TaskCommit], step: Step, folder: Path) -> None:
    """Commit in a process of its own that is killed at `step`, and assert that it came to it.

    Args:
        options: The sink's options, the table's name among them.
        messages: What the tasks report.
        step: Where it dies.
        folder: For the messages.
    """
    path = folder / f"messages-{step.name}"
    path.write_bytes(pickle.dumps(list(messages)))
    command = [sys.executable, "-m", "support.keyed_committer", json.dumps(dict(options)), str(path), step.name]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


def main() -> None:
    """Commit, and die."""
    options = parse_options(json.loads(sys.argv[1]))
    messages = pickle.loads(Path(sys.argv[2]).read_bytes())  # noqa: S301  # made by the test that started this
    last = Step[sys.argv[3]]

    def die(step: Step) -> None:
        if step is last:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    epoch = messages[0].write.epoch
    commit_write(connect(catalog_settings(options)), messages, epoch_id=epoch.epoch_id if epoch else None)


if __name__ == "__main__":
    main()
