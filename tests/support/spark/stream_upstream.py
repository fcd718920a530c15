"""What stands between a DataFrame's rows and the sink in a test: rows that are held back, and then fail.

Importable by Spark's workers through PYTHONPATH.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkContext

_WAIT_S = 120
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """A function for `udf` that returns what it gets, except for one row, where it waits and then fails.

    Attributes:
        row: Id of that row.
        gate: The file that it waits for before it fails.
    """

    row: int
    gate: Path

    def __call__(self, row: int) -> int:
        """Return the id, or fail."""
        if row == self.row:
            deadline = time.monotonic() + _WAIT_S
            while not self.gate.exists() and time.monotonic() < deadline:
                time.sleep(_LOOK_EVERY_S)
            raise RuntimeError("planned fault above the sink")
        return row


def finished_tasks(context: SparkContext) -> int:
    """Return how many tasks of the stages that run now have finished."""
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage_id) for stage_id in tracker.getActiveStageIds()]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)
