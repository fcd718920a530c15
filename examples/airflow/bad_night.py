"""Run the DAG for one day through a bad night, then count the rows of the day. Each run is a process of its own.

The first run is killed after the task's commit, and begun anew. In this second run the task fails after its commit, and
Airflow retries it. The third one runs the day again after it has succeeded, as `airflow tasks clear` leads to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from itertools import count

DAY = datetime(2026, 11, 21, tzinfo=timezone.utc)
Write = Callable[[str], None]


def kill(write: Write) -> Write:
    """Return a function that writes a day, and dies before Airflow hears of it."""

    def write_and_die(day: str) -> None:
        write(day)
        os.kill(os.getpid(), signal.SIGKILL)

    return write_and_die


def fail_once(write: Write) -> Write:
    """Return a function that writes a day, and raises an error afterwards when it is first called."""
    tries = count(1)

    def write_and_fail(day: str) -> None:
        write(day)
        if next(tries) == 1:
            raise RuntimeError("This try fails after its commit.")

    return write_and_fail


def change_nothing(write: Write) -> Write:
    """Return the function as it is."""
    return write


FAULTS = {fault.__name__: fault for fault in (kill, fail_once, change_nothing)}


def run(fault: str) -> None:
    """Run the DAG for the day in this process, clearing what an earlier run of the day has left."""
    sys.path.insert(0, "dags")
    from nightly_load import nightly_load  # noqa: PLC0415  # the parent starts no Airflow

    dag = nightly_load()
    task = dag.get_task("load")
    task.python_callable = FAULTS[fault](task.python_callable)
    sys.exit(dag.test(logical_date=DAY).state != "success")


def main() -> None:
    """Run the night, and print how many rows the day has."""
    for fault, code in (("kill", -signal.SIGKILL), ("fail_once", 0), ("change_nothing", 0)):
        ended = subprocess.run([sys.executable, __file__, fault], check=False)
        print(f"run with fault {fault!r} ended with code {ended.returncode}", flush=True)
        if ended.returncode != code:
            sys.exit(f"It should have ended with code {code}.")
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415  # the children need none

    orders = load_catalog("lake").load_table("shop.orders")
    print(f"{DAY:%Y-%m-%d}:", orders.scan(f"day = '{DAY:%Y-%m-%d}'").to_arrow().num_rows, "rows")


if __name__ == "__main__":
    run(sys.argv[1]) if sys.argv[1:] else main()
