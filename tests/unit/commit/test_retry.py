"""How often and how long a commit is tried again."""

from __future__ import annotations

import pytest

from iceberg_ds.commit.retry import RetryPolicy


def test_table_properties_set_the_policy() -> None:
    """A user could not tune retries for many concurrent writers."""
    policy = RetryPolicy.of(
        {
            "commit.retry.num-retries": "7",
            "commit.retry.min-wait-ms": "11",
            "commit.retry.max-wait-ms": "13",
            "commit.retry.total-timeout-ms": "17",
        }
    )

    assert policy == RetryPolicy(
        num_retries=7, num_other_retries=7, min_wait_ms=11, max_wait_ms=13, total_timeout_ms=17
    )


@pytest.mark.parametrize("text", ["", "many", "-1", "1.5", "²", " ", str(2**31), "9" * 5000])
def test_property_that_is_no_whole_number_counts_as_not_set(text: str) -> None:
    """A typo in a table property would fail every commit."""
    names = ("num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms")

    assert RetryPolicy.of({f"commit.retry.{name}": text for name in names}) == RetryPolicy()


def test_no_retries_means_one_attempt() -> None:
    """A user who forbids retries would get one, or no attempt at all."""
    policy = RetryPolicy(num_retries=0)

    assert not policy.is_exhausted(failed_attempts=0, elapsed_ms=0)
    assert policy.is_exhausted(failed_attempts=1, elapsed_ms=0)


def test_each_retry_is_used() -> None:
    """A commit would be given up before its last chance."""
    policy = RetryPolicy(num_retries=3)

    assert not policy.is_exhausted(failed_attempts=3, elapsed_ms=0)
    assert policy.is_exhausted(failed_attempts=4, elapsed_ms=0)


def test_lost_races_do_not_use_up_the_retries_of_other_failures() -> None:
    """A writer among many that meets one broken connection would give up."""
    policy = RetryPolicy(num_retries=9, num_other_retries=2)

    assert not policy.is_exhausted(failed_attempts=9, elapsed_ms=0, lost_races=7)
    assert policy.is_exhausted(failed_attempts=9, elapsed_ms=0, lost_races=6)
    assert policy.is_exhausted(failed_attempts=10, elapsed_ms=0, lost_races=10)


def test_time_is_up_after_the_total_timeout() -> None:
    """A commit would hang on for as long as the catalog is away."""
    policy = RetryPolicy(total_timeout_ms=1000)

    assert not policy.is_exhausted(failed_attempts=1, elapsed_ms=999.9)
    assert policy.is_exhausted(failed_attempts=1, elapsed_ms=1000)


def test_ceiling_doubles_up_to_the_highest() -> None:
    """Many writers would hammer the catalog, or starve."""
    policy = RetryPolicy(min_wait_ms=100, max_wait_ms=1000)

    assert [policy.wait_ms(failures, draw=1) for failures in range(1, 7)] == [100, 200, 400, 800, 1000, 1000]


def test_wait_is_drawn_from_nothing_to_the_ceiling() -> None:
    """Writers that collided once would collide again and again."""
    policy = RetryPolicy(min_wait_ms=100, max_wait_ms=1000)

    assert policy.wait_ms(3, draw=0) == 0
    assert policy.wait_ms(3, draw=0.25) == 100


def test_wait_after_very_many_failures_stays_finite() -> None:
    """A writer that retries for hours would crash on a huge number."""
    assert RetryPolicy().wait_ms(100_000, draw=1) == 2000


def test_wait_after_a_race_becomes_shorter_with_each_race_that_is_lost() -> None:
    """A writer that has lost often would fall further and further behind those that have just landed."""
    policy = RetryPolicy(max_wait_ms=60_000)
    ceilings = [policy.wait_after_race_ms(lost, draw=1, attempt_ms=500) for lost in (1, 2, 4, 8, 16, 99)]

    assert ceilings == [8_000, 4_000, 2_000, 1_000, 500, 500]
    assert policy.wait_after_race_ms(2, draw=0.25, attempt_ms=500) == 1_000


def test_wait_after_a_race_stays_within_what_the_table_allows() -> None:
    """The table's `commit.retry.min-wait-ms` and `max-wait-ms` would mean nothing in a race."""
    policy = RetryPolicy(min_wait_ms=100, max_wait_ms=1_000)

    assert policy.wait_after_race_ms(1, draw=1, attempt_ms=2) == 100
    assert policy.wait_after_race_ms(2, draw=1, attempt_ms=2) == 16
    assert policy.wait_after_race_ms(1, draw=1, attempt_ms=500) == 1_000
    assert policy.wait_after_race_ms(99, draw=1, attempt_ms=5_000) == 1_000
