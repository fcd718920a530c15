"""The program of a rewrite that is killed: rewrites manifests, data files or position delete files; dies at a step.

Its arguments are the table, the options (JSON), what is rewritten, the name of the step, and how often it comes there.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from typing import Literal, TypeAlias

from support.programs.forker import run_forked

import iceberg_ds
from iceberg_ds.fault_points import FaultPoint, listen

Rewrite: TypeAlias = Literal["manifests", "positions", "data"]


def die_in_rewrite(table: str, options: Mapping[str, str], what: Rewrite, step: FaultPoint, number: int = 1) -> None:
    """Rewrite in a process of its own that is killed when it comes to `step`, and assert that it did.

    Args:
        table: The table.
        options: Lead to its catalog.
        what: What is rewritten.
        step: Where it dies.
        number: Which time, from 1.
    """
    arguments = [table, json.dumps(dict(options)), what, step.name, str(number)]
    assert run_forked("support.programs.rewriter", *arguments) == -signal.SIGKILL


def main(table: str, options: str, what: Rewrite, name: str, number: str) -> None:
    """Rewrite, and die."""
    left = int(number)

    def die(step: FaultPoint) -> None:
        nonlocal left
        left -= step is FaultPoint[name]
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    if what == "manifests":
        iceberg_ds.rewrite_manifests(table, options=json.loads(options))
    elif what == "data":
        iceberg_ds.rewrite_data_files(table, options={**json.loads(options), "rewrite-all": "true"})
    else:
        iceberg_ds.rewrite_position_delete_files(table, options={**json.loads(options), "min-input-files": "2"})
