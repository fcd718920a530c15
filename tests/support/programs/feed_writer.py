"""The program of a driver that writes epochs into many tables, and is killed: it goes on from its checkpoint.

Its arguments are the options of the write (JSON), the file of the checkpoint, the number of epochs, the steps after
which it dies, and whether the catalog takes requests for several tables. Every epoch writes its own number as `id` into
each of `TABLES`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from support.programs.forker import run_forked
from support.tables.routed import RoutedSink

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.fault_points import FaultPoint, listen

TABLES = ("customers", "items", "orders", "payments")
_TOGETHER, _SINGLY = "together", "singly"


def feed(  # noqa: PLR0913  # one for each choice of the test
    warehouse: Path, options: Mapping[str, str], checkpoint: Path, epochs: int, *, steps: int, is_together: bool
) -> bool:
    """Write epochs in a process of its own that is killed after some steps; return whether it came to the end first.

    Args:
        warehouse: The warehouse of the embedded catalog.
        options: Options of the write beside `route-by`, with underscores in their names.
        checkpoint: Where the number of the next epoch stands.
        epochs: How many epochs there are.
        steps: After how many of the driver's steps it dies.
        is_together: Whether the catalog takes requests for several tables.
    """
    way = _TOGETHER if is_together else _SINGLY
    arguments = [str(warehouse), json.dumps(dict(options)), str(checkpoint), str(epochs), str(steps), way]
    code = run_forked("support.programs.feed_writer", *arguments)
    assert code in (0, -signal.SIGKILL)
    return code == 0


def main(warehouse: str, given: str, checkpoint: str, epochs: str, steps: str, way: str) -> None:  # noqa: PLR0913, PLR0917
    """Write, and die."""
    if way == _SINGLY:
        CatalogClient.takes_many_tables = property(lambda _: False)  # type: ignore[method-assign,assignment]
    taken = itertools.count(1)

    def die(_: FaultPoint) -> None:
        if next(taken) == int(steps):
            os.kill(os.getpid(), signal.SIGKILL)

    listen(die)
    sink = RoutedSink.of(Path(warehouse), **json.loads(given))
    place = Path(checkpoint)
    for number in range(int(place.read_text()) if place.exists() else 0, int(epochs)):
        sink.append(*({"kind": name, "id": number} for name in TABLES), epoch_id=number)
        place.write_text(str(number + 1))
