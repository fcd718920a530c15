"""The program of writers without Spark: takes the steps that Spark's processes take, when a file tells it to begin.

Its arguments are files with a `WriterJob` each. It runs each in a process of its own, forked once all is loaded, and
ends with the number of those that failed. A process writes the line of a `RacedCommit` after each commit.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from support.keys.upserts import commit_upsert
from support.programs.races import RacedCommit, WriterJob, to_json
from support.tables.sink import Sink, rows

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.options.parse import parse_options
from iceberg_ds.planning.plan_write import WriteMode

_TIMEOUT_S = 300


def main() -> None:
    """Fork a process for each job, and wait for them."""
    children = [_fork(WriterJob.read(Path(path))) for path in sys.argv[1:]]
    sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))


def _fork(job: WriterJob) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _run(job)
            code = 0
        except BaseException:  # a forked process must not go on as its parent
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def _run(job: WriterJob) -> None:
    """Append two rows to the table, or upsert them if there are keys, as often as the job says."""
    folder = Path(job.folder)
    options = parse_options(job.options)
    (folder / f"ready-{job.number}").touch()
    deadline = time.monotonic() + _TIMEOUT_S
    while not (folder / "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError("Nobody said go.")
        time.sleep(0.001)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    with job.results.open("w") as results:
        for ids in job.ids:
            results.write(f"{to_json(asdict(_append(sink, job.number, ids)))}\n")


def _append(sink: Sink, number: int, ids: Sequence[int]) -> RacedCommit:
    """Write and commit rows."""
    attempts = 0

    def count(step: FaultPoint) -> None:
        nonlocal attempts
        attempts += step is FaultPoint.MANIFESTS_WRITTEN

    listen(count)
    plan = sink.plan(mode=WriteMode.UPSERT if sink.options.keys else WriteMode.APPEND)
    messages = sink.write(rows(*ids), plan=plan)
    began_s = time.monotonic()
    error = ""
    try:
        if sink.options.keys:
            commit_upsert(sink, plan, "position", messages)
        else:
            sink.commit(messages)
    except IcebergSinkError as failure:  # whoever runs the race wants to know how many failed
        error = f"{type(failure).__name__}: {failure}"
    return RacedCommit(writer=number, began_s=began_s, ended_s=time.monotonic(), attempts=attempts, error=error)


if __name__ == "__main__":
    main()
