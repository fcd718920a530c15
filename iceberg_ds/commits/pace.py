"""The clock and the count of attempts behind a retry policy, for loops that try until the table shows an outcome."""

from __future__ import annotations

import random
import time

from iceberg_ds.catalogs.answers import asked_wait_ms, is_lost_race
from iceberg_ds.commits.retry import RetryPolicy


class Pace:
    """Attempts so far, how many of them were lost to faster commits, and when they began."""

    def __init__(self) -> None:
        self.policy = RetryPolicy()  # until the table's own is known
        self._failures = 0
        self._lost_races = 0
        self._started = self._attempt_began = time.monotonic()

    def begin_attempt(self) -> bool:
        """Take the time, and return whether no further request may be sent after the failures so far."""
        self._attempt_began = time.monotonic()
        elapsed_ms = (self._attempt_began - self._started) * 1000
        return self.policy.is_exhausted(self._failures, elapsed_ms, lost_races=self._lost_races)

    def wait_after(self, problem: Exception | None) -> None:
        """Count an attempt that failed by `problem`, and sleep.

        None is for a request that the catalog confirmed: the next look is due at once, and should it not show the
        change, for it is an old one, the attempt counts as failed.
        """
        self._failures += 1
        if problem is None:
            return
        draw = random.random()  # noqa: S311  # jitter is no secret
        if is_lost_race(problem):
            self._lost_races += 1
            attempt_ms = (time.monotonic() - self._attempt_began) * 1000
            wait_ms = self.policy.wait_after_race_ms(self._lost_races, draw, attempt_ms=attempt_ms)
        else:
            others = self._failures - self._lost_races
            wait_ms = self.policy.wait_ms(others, draw, asked_ms=asked_wait_ms(problem))
        time.sleep(wait_ms / 1000)
