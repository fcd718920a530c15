"""The program of a conversion that is killed: converts the deletes of a table, and dies at a step if it comes to it.

Its arguments are the table, the options (JSON), the encoding, the name of the step, and how often it comes there.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping

from support.programs.forker import run_forked

import iceberg_ds
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.fault_points import FaultPoint, listen


def die_in_conversion(
    table: str, options: Mapping[str, str], encoding: RowEncoding, step: FaultPoint, number: int = 1
) -> None:
    """Convert in a process of its own that is killed when it comes to `step`, and assert that it did.

    Args:
        table: The table.
        options: Lead to its catalog.
        encoding: That of the conversion.
        step: Where it dies.
        number: Which time, from 1.
    """
    arguments = [table, json.dumps(dict(options)), encoding, step.name, str(number)]
    assert run_forked("support.programs.converter", *arguments) == -signal.SIGKILL


def main(table: str, options: str, encoding: RowEncoding, name: str, number: str) -> None:
    """Convert, and die."""
    left = int(number)

    def die(step: FaultPoint) -> None:
        nonlocal left
        left -= step is FaultPoint[name]
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    iceberg_ds.convert_deletes(table, encoding=encoding, options=json.loads(options))
