"""The program of a committer of several tables that is killed: it commits an epoch, and dies at a step.

Its arguments are the sink's options (JSON), the file of pickled writes, the name of the step, how often it comes there,
and whether the catalog takes requests for several tables.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.programs.forker import run_forked

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.table_write import TableWrite
from iceberg_ds.commit.together import commit_tables
from iceberg_ds.fault_points import FaultPoint, listen
from iceberg_ds.options.parse import parse_options

_TOGETHER, _SINGLY = "together", "singly"


def die_in_epoch(  # noqa: PLR0913  # one for each choice of the test
    options: Mapping[str, str],
    writes: Sequence[TableWrite],
    step: FaultPoint,
    folder: Path,
    number: int = 1,
    *,
    is_together: bool = True,
) -> None:
    """Commit an epoch in a process of its own that is killed at `step`, and assert that it came to it.

    Args:
        options: The sink's options.
        writes: What there is to commit.
        step: Where it dies.
        folder: For the writes.
        number: Which time it comes there, from 1.
        is_together: Whether the catalog takes requests for several tables.
    """
    path = folder / f"writes-{step.name}-{number}"
    path.write_bytes(pickle.dumps(list(writes)))
    way = _TOGETHER if is_together else _SINGLY
    arguments = [json.dumps(dict(options)), str(path), step.name, str(number), way]
    assert run_forked("support.programs.epoch_committer", *arguments) == -signal.SIGKILL


def main(given: str, path: str, name: str, number: str, way: str) -> None:
    """Commit, and die."""
    if way == _SINGLY:
        CatalogClient.takes_many_tables = property(lambda _: False)  # type: ignore[method-assign,assignment]
    writes = pickle.loads(Path(path).read_bytes())  # noqa: S301  # made by the test that started this
    last, left = FaultPoint[name], int(number)

    def die(step: FaultPoint) -> None:
        nonlocal left
        left -= step is last
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    epoch = writes[0].commits[0].write.epoch
    commit_tables(connect(catalog_settings(parse_options(json.loads(given)))), writes, epoch_id=epoch.epoch_id)
