"""Which fault comes next: drawn from the run's seed, for each writer on its own, so that a seed always does the same.

What a seed does not decide is which process comes to a step first; that is up to the machine.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from chaos.events import Fault

from iceberg_ds.fault_points import FaultPoint

T = TypeVar("T")
# How often each kind of blow is drawn, in relation to the others.
_BLOWS = {
    Fault.KILL_PYTHON: 74,
    Fault.KILL_DRIVER: 6,
    Fault.ZOMBIE: 3,
    Fault.KILL_EXECUTOR: 5,
    Fault.FULL_DISK: 5,
    Fault.CLOCK: 7,
}
_STEPS: dict[Fault, dict[FaultPoint, int]] = {
    Fault.KILL_PYTHON: {
        FaultPoint.PLANNED: 10,
        FaultPoint.FILE_OPENED: 8,
        FaultPoint.FILE_CLOSED: 8,
        FaultPoint.TASK_WRITTEN: 10,
        FaultPoint.COMMIT_BEGUN: 8,
        FaultPoint.TABLE_LOADED: 10,
        FaultPoint.MANIFESTS_WRITTEN: 14,
        FaultPoint.REQUEST_ANSWERED: 14,
        FaultPoint.COMMITTED: 12,
        FaultPoint.CLEANING_UP: 6,
    },
    Fault.ZOMBIE: {FaultPoint.TABLE_LOADED: 1, FaultPoint.MANIFESTS_WRITTEN: 2},
    Fault.KILL_EXECUTOR: {FaultPoint.FILE_OPENED: 1, FaultPoint.FILE_CLOSED: 1, FaultPoint.TASK_WRITTEN: 2},
    Fault.FULL_DISK: {
        FaultPoint.PLANNED: 1,
        FaultPoint.FILE_OPENED: 2,
        FaultPoint.TABLE_LOADED: 2,
        FaultPoint.MANIFESTS_WRITTEN: 3,
    },
    Fault.CLOCK: {FaultPoint.PLANNED: 1, FaultPoint.COMMIT_BEGUN: 2, FaultPoint.TABLE_LOADED: 1},
}
_STEPS[Fault.KILL_DRIVER] = _STEPS[Fault.KILL_PYTHON]
_AT_RANDOM = {Fault.KILL_PYTHON: 0.25, Fault.KILL_DRIVER: 0.3}
_LONGEST_DELAY_S = 1.5
_LONGEST_ZOMBIE_S = 4.0
_LONGEST_FULL_S = 3.0
_JUMPS_S = (-86_400.0, -3_600.0, -61.0, 61.0, 3_600.0, 86_400.0)
# Steps that are come to after a kill only, and how often a kill is followed by one there.
_AFTER_LANDING = {FaultPoint.REQUEST_ANSWERED, FaultPoint.COMMITTED}
_AFTER_FAILURE = {
    FaultPoint.FILE_CLOSED,
    FaultPoint.TASK_WRITTEN,
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.MANIFESTS_WRITTEN,
}
_SKIPPED_AFTER = 0.35
_ABORTED_AFTER = 0.25

# What is done to all writers or to a whole query, one after the other.
CAMPAIGN_FAULTS = (
    Fault.COMPACTION,
    Fault.EXPIRY,
    Fault.CATALOG_AWAY,
    Fault.STORE_AWAY,
    Fault.SECOND_DRIVER,
    Fault.ROLLED_BACK_ONE,
    Fault.ROLLED_BACK_MANY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What hits a writer next.

    Attributes:
        fault: The fault.
        step: The step at which it strikes, None for a random moment.
        delay_s: The random moment, so long after it was drawn.
        amount: Seconds that it lasts, or by which the clock jumps.
        then: A step at which the same fault strikes right afterwards, None for none.
    """

    fault: Fault
    step: FaultPoint | None
    delay_s: float = 0
    amount: float = 0
    then: FaultPoint | None = None


class Blows:
    """The blows that one writer gets, one after the other.

    Args:
        seed: Decides about all of them.
        faults: The faults to draw from.
    """

    def __init__(self, seed: str, faults: Collection[Fault]) -> None:
        self._draw = random.Random(seed)  # noqa: S311  # no secret
        self._weights = {fault: weight for fault, weight in _BLOWS.items() if fault in faults}

    def next(self) -> Blow | None:
        """Draw the next one, None if there is no fault to draw from."""
        if not self._weights:
            return None
        draw = self._draw
        fault = _weighted(draw, self._weights)
        if draw.random() < _AT_RANDOM.get(fault, 0):
            return Blow(fault=fault, step=None, delay_s=draw.uniform(0, _LONGEST_DELAY_S))
        step = _weighted(draw, _STEPS[fault])
        return Blow(fault=fault, step=step, amount=self._amount(fault), then=self._then(fault, step))

    def _amount(self, fault: Fault) -> float:
        match fault:
            case Fault.ZOMBIE:
                return self._draw.uniform(0, _LONGEST_ZOMBIE_S)
            case Fault.FULL_DISK:
                return self._draw.uniform(0, _LONGEST_FULL_S)
            case Fault.CLOCK:
                return self._draw.choice(_JUMPS_S)
        return 0

    def _then(self, fault: Fault, step: FaultPoint) -> FaultPoint | None:
        draw = self._draw.random()
        if fault in {Fault.KILL_PYTHON, Fault.KILL_DRIVER} and step in _AFTER_LANDING and draw < _SKIPPED_AFTER:
            return FaultPoint.SKIPPED
        if fault is Fault.KILL_PYTHON and step in _AFTER_FAILURE and draw < _ABORTED_AFTER:
            return FaultPoint.ABORT_BEGUN
        return None


def campaign_faults(seed: str, faults: Collection[Fault]) -> Sequence[Fault]:
    """Return the faults of whole queries in the order in which they come, to be gone through again and again."""
    wanted = [fault for fault in CAMPAIGN_FAULTS if fault in faults]
    random.Random(seed).shuffle(wanted)  # noqa: S311  # no secret
    return wanted


def _weighted(draw: random.Random, weights: dict[T, int]) -> T:
    return draw.choices([*weights], [*weights.values()])[0]
