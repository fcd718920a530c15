"""The one loop that brings a change into a table, and how often and how long it tries again.

It loads the table, looks, sends one request and looks again. No answer of the catalog is believed on its own: what the
table shows at the next look is the outcome (the protocol is the docstring of `commit`). The change itself decides what
to look for and what to send.

Whether, how often and how long a commit is tried again is decided by the table's `commit.retry.*` properties and the
clock. An attempt fails for one of two reasons. If something is out of order, many waiting writers must spread out ever
more: full-jitter back-off (M. Brooker, "Exponential Backoff And Jitter", 2015). Or another commit was faster. Then the
catalog is well, an attempt is lost only if another lands, and ever longer waits do harm: a writer that has just landed
starts without a wait and wins again, and a loser falls behind, as on Ethernet (K. Ramakrishnan, H. Yang, "The Ethernet
Capture Effect", 1994). So the wait after a lost race is measured by the time that an attempt takes here and now, and
becomes shorter with each lost race: the longer a writer has waited, the sooner it is back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, fields
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from iceberg_ds.catalog.answers import (
    CommitAnswerLostError,
    CommitRefusedError,
    asked_wait_ms,
    is_lost_race,
    stays_refused,
)
from iceberg_ds.error_hints import LASTING, hint_for
from iceberg_ds.errors import CatalogError
from iceberg_ds.parsing import whole_number

if TYPE_CHECKING:
    from iceberg_ds.catalog.client import CatalogClient

Outcome_co = TypeVar("Outcome_co", covariant=True)

# Ceiling of the wait after the first lost race, in attempts: about twice the number of writers that share a table well.
# With a lower one, losers meet again and waste attempts on each other; with a higher one, other writers get ahead.
_SPREAD = 16
# Highest value of Iceberg's properties, which are 32-bit integers; no clock waits as long as larger ones may say.
_HIGHEST_INT = 2**31 - 1


class TableChange(Protocol[Outcome_co]):
    """A change on its way into a table."""

    def load(self) -> Table:
        """Return the table as the catalog has it now.

        Raises:
            CatalogError: The catalog cannot be reached; the loop waits and asks again.
        """

    def look(self, table: Table, base: Table | None) -> Outcome_co | None:
        """Return the outcome if the table shows one, or None if a request is due; raise if the change can never land.

        Args:
            table: The table, freshly loaded.
            base: The table that the last request was made for; None before the first request.
        """

    def send(self, table: Table) -> Outcome_co | Exception | None:
        """Send one request for the table.

        Returns:
            The outcome; or the failure, which the next look confirms or refutes; or None if the catalog confirmed the
            request and the next look shows what is left to do.
        """

    def give_up(self, table: Table, problem: Exception | None) -> NoReturn:
        """Raise, because no further request is sent; the last one failed with `problem`."""

    def give_up_unseen(self, unreachable: CatalogError) -> NoReturn:
        """Raise, because no further request is sent, and the table cannot be loaded to find out about the last one."""

    def waits_for_catalog(self) -> bool:
        """Return whether a catalog that cannot be reached is asked again."""


def find_patiently(catalog: CatalogClient, identifier: Identifier) -> Table | None:
    """Load a table, or return None if it does not exist; ask a catalog that cannot be reached again, as commits do.

    Raises:
        CatalogError: It cannot be reached.
    """
    pace = Pace()
    while True:
        is_exhausted = pace.begin_attempt()
        try:
            return catalog.find_table(identifier)
        except CatalogError as unreachable:
            if is_exhausted:
                raise
            pace.wait_after(unreachable)


def bring_in(change: TableChange[Outcome_co], tried: Attempts | None = None) -> Outcome_co:
    """Load, look and send repeatedly until the table shows what became of `change`; raises what `change` raises.

    Args:
        change: The change.
        tried: What was tried so far, and goes on here; None for nothing. Notes what is tried here.
    """
    tried = tried or Attempts()
    if tried.problem is not None:
        tried.pace.wait_after(tried.problem)
    while True:
        is_exhausted = tried.pace.begin_attempt()
        try:
            table = change.load()
        except CatalogError as unreachable:
            tried.problem = unreachable
            if is_exhausted or not change.waits_for_catalog():
                change.give_up_unseen(unreachable)
        else:
            tried.pace.policy = RetryPolicy.of(table.metadata.properties)
            outcome = change.look(table, tried.base)
            if outcome is not None:
                return outcome
            if is_exhausted or would_fail_again(tried.problem) or stays_refused(tried.problem, tried.base, table):
                change.give_up(table, tried.problem)
            tried.base = table
            sent = change.send(table)
            if sent is not None and not isinstance(sent, Exception):
                tried.problem = None
                return sent
            tried.problem = sent
        tried.pace.wait_after(tried.problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long a commit is tried again. The names of the properties are Iceberg's.

    Attributes:
        num_retries: How often a failed attempt is repeated; 0 for never. More often than Iceberg's default (4):
            an append never conflicts with another one, it only has to win a turn. Delta Lake's kernel takes 200, too.
        num_other_retries: How many of these for reasons other than a lost race; a table's own number holds for both.
        min_wait_ms: Ceiling of the first wait.
        max_wait_ms: Highest ceiling of a wait.
        total_timeout_ms: No attempt begins later than this after the first.
    """

    num_retries: int = 200
    num_other_retries: int = 30
    min_wait_ms: int = 100
    max_wait_ms: int = 2_000
    total_timeout_ms: int = 1_800_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> RetryPolicy:
        """Return the policy of a table; a property that is no whole number counts as not set."""
        default = cls()

        def number(name: str, otherwise: int) -> int:
            return whole_number(properties, f"commit.retry.{name}", otherwise, most=_HIGHEST_INT)

        return cls(
            num_retries=number("num-retries", default.num_retries),
            num_other_retries=number("num-retries", default.num_other_retries),
            min_wait_ms=number("min-wait-ms", default.min_wait_ms),
            max_wait_ms=number("max-wait-ms", default.max_wait_ms),
            total_timeout_ms=number("total-timeout-ms", default.total_timeout_ms),
        )

    @classmethod
    def most_patient(cls, policies: Iterable[RetryPolicy]) -> RetryPolicy:
        """Return the policy with the highest of each number, for a request that changes several tables."""
        found = [astuple(policy) for policy in policies]
        return cls(
            **{own.name: max(numbers) for own, numbers in zip(fields(cls), zip(*found, strict=True), strict=True)}
        )

    def is_exhausted(self, failed_attempts: int, elapsed_ms: float, *, lost_races: int = 0) -> bool:
        """Return whether there is no further attempt after `failed_attempts` in `elapsed_ms`.

        Args:
            failed_attempts: Number of failed attempts.
            elapsed_ms: Time since the first attempt began, in milliseconds.
            lost_races: How many attempts failed because another commit was faster.
        """
        return (
            failed_attempts > self.num_retries
            or failed_attempts - lost_races > self.num_other_retries
            or elapsed_ms >= self.total_timeout_ms
        )

    def wait_ms(self, failed_attempts: int, draw: float, *, asked_ms: float = 0) -> float:
        """Return the wait before the next attempt, in milliseconds, after a failure other than a lost race.

        Args:
            failed_attempts: Number of such failures, from 1.
            draw: Random number in [0, 1).
            asked_ms: Shortest wait that the catalog asks for; the draw spreads the writers that it asks at once.
        """
        doubled = self.min_wait_ms << min(failed_attempts - 1, 30)
        return asked_ms + draw * min(self.max_wait_ms, doubled)

    def wait_after_race_ms(self, lost_races: int, draw: float, *, attempt_ms: float) -> float:
        """Return the wait before the next attempt, in milliseconds, after one that was lost to a faster commit.

        Args:
            lost_races: Number of lost races, from 1.
            draw: Random number in [0, 1).
            attempt_ms: How long the last attempt took, from its load of the table to the refusal.
        """
        shortest = max(attempt_ms, self.min_wait_ms) if lost_races == 1 else attempt_ms
        return draw * min(self.max_wait_ms, max(shortest, _SPREAD * attempt_ms / lost_races))


def would_fail_again(problem: Exception | None) -> bool:
    """Return whether files of the commit cannot be written for a lasting reason, in the table or in the store."""
    if problem is None or isinstance(problem, CommitRefusedError | CommitAnswerLostError | CatalogError):
        return False
    return isinstance(problem, TypeError | ValueError | AttributeError | LookupError) or (
        hint_for(problem).cause in LASTING
    )


class Pace:
    """Attempts so far, how many of them were lost to faster commits, and when they began."""

    def __init__(self) -> None:
        self.policy = RetryPolicy()  # until the table's own is known
        self._failures = 0
        self._lost_races = 0
        self._started = self._stopped = self._attempt_began = time.monotonic()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Let the time of the block count, and none between two such blocks."""
        self._started += time.monotonic() - self._stopped
        try:
            yield
        finally:
            self._stopped = time.monotonic()

    def begin_attempt(self) -> bool:
        """Note the time, and return whether no further request may be sent after the failures so far."""
        self._attempt_began = time.monotonic()
        elapsed_ms = (self._attempt_began - self._started) * 1000
        return self.policy.is_exhausted(self._failures, elapsed_ms, lost_races=self._lost_races)

    def wait_after(self, problem: Exception | None) -> None:
        """Count an attempt that failed with `problem`, and sleep.

        None stands for a request that the catalog confirmed: the next look is due at once, and if that look does not
        show the change, because it sees an old table, the attempt counts as failed.
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


@dataclass(slots=True, kw_only=True)
class Attempts:
    """What was tried so far to bring a change in.

    Attributes:
        pace: How often, and since when.
        base: The table that the last request was made for; None before the first request.
        problem: Why the last attempt failed; None if none has.
    """

    pace: Pace = field(default_factory=Pace)
    base: Table | None = None
    problem: Exception | None = None
