"""Pure: how often and how long a commit is tried again, by the table's `commit.retry.*` properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Back-off with full jitter: each wait is drawn between nothing and a ceiling that doubles.

    The names are Iceberg's. More retries with a lower ceiling than Iceberg's defaults: an append never
    conflicts with another one, it only has to win a turn, and long waits make writers starve.
    Source: M. Brooker, "Exponential Backoff And Jitter", 2015.

    Attributes:
        num_retries: How often a failed attempt is repeated, 0 for never.
        min_wait_ms: Ceiling of the first wait.
        max_wait_ms: Highest ceiling of a wait.
        total_timeout_ms: No attempt begins later than this after the first.
    """

    num_retries: int = 30
    min_wait_ms: int = 100
    max_wait_ms: int = 2_000
    total_timeout_ms: int = 1_800_000

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> RetryPolicy:
        """Return the policy of a table; a property that is no whole number counts as not set."""
        default = cls()

        def number(name: str, otherwise: int) -> int:
            text = properties.get(f"commit.retry.{name}", "")
            return int(text) if text.isascii() and text.isdigit() else otherwise

        return cls(
            num_retries=number("num-retries", default.num_retries),
            min_wait_ms=number("min-wait-ms", default.min_wait_ms),
            max_wait_ms=number("max-wait-ms", default.max_wait_ms),
            total_timeout_ms=number("total-timeout-ms", default.total_timeout_ms),
        )

    def is_exhausted(self, failed_attempts: int, elapsed_ms: float) -> bool:
        """Return whether there is no further attempt after `failed_attempts` in `elapsed_ms`."""
        return failed_attempts > self.num_retries or elapsed_ms >= self.total_timeout_ms

    def wait_ms(self, failed_attempts: int, draw: float, *, asked_ms: float = 0) -> float:
        """Return the wait before the next attempt.

        Args:
            failed_attempts: How many have failed, from 1.
            draw: Random number in [0, 1).
            asked_ms: What the catalog asks to wait at least; the draw spreads those that it asks at once.
        """
        doubled = self.min_wait_ms << min(failed_attempts - 1, 30)
        return asked_ms + draw * min(self.max_wait_ms, doubled)
