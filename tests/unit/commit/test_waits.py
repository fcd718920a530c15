"""How attempts are counted and waited for."""

from __future__ import annotations

import pytest

from iceberg_ds.catalog.answers import CommitAnswerLostError, CommitRefusedError
from iceberg_ds.commit.retry import Pace, RetryPolicy

LOST_RACE = CommitRefusedError("branch main has changed", is_lasting=False, is_lost_race=True)
THROTTLED = CommitRefusedError("slow down", is_lasting=False, retry_after_ms=3_000)
NO_ANSWER = CommitAnswerLostError("connection reset")


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    """Return a pace whose draws are the highest that there are."""
    monkeypatch.setattr("random.random", lambda: 1.0)
    return Pace()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time, which stands still until a test moves it."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_wait_after_a_lost_race_is_measured_by_the_attempt(clock: list[float], pace: Pace, waits: list[float]) -> None:
    """Where attempts take half a second, losers that are back after 100 ms would only disturb each other."""
    pace.policy = RetryPolicy(max_wait_ms=60_000)
    for _ in range(2):
        pace.begin_attempt()
        clock[0] += 0.5
        pace.wait_after(LOST_RACE)

    assert waits == [8.0, 4.0]


def test_failure_that_is_no_lost_race_backs_off(clock: list[float], pace: Pace, waits: list[float]) -> None:
    """A catalog that is away or overloaded would be asked at the pace of a race."""
    for problem in (NO_ANSWER, LOST_RACE, THROTTLED, NO_ANSWER):
        pace.begin_attempt()
        clock[0] += 0.0625
        pace.wait_after(problem)

    assert waits == [0.1, 1.0, 3.2, 0.4]


@pytest.mark.usefixtures("waits")
def test_races_are_run_for_longer_than_an_outage_is_sat_out(pace: Pace) -> None:
    """A writer among many would give up though the catalog is well, or a job seem to hang though it is down."""
    outage = Pace()
    for _ in range(RetryPolicy().num_other_retries + 1):
        pace.wait_after(LOST_RACE)
        outage.wait_after(NO_ANSWER)

    assert not pace.begin_attempt()
    assert outage.begin_attempt()


@pytest.mark.usefixtures("waits")
def test_number_of_the_table_limits_lost_races_too(pace: Pace) -> None:
    """A user who allows two retries would get two hundred."""
    pace.policy = RetryPolicy.of({"commit.retry.num-retries": "2"})
    exhausted = []
    for _ in range(3):
        pace.wait_after(LOST_RACE)
        exhausted.append(pace.begin_attempt())

    assert exhausted == [False, False, True]


def test_confirmed_request_is_looked_at_without_a_wait_and_counts(pace: Pace, waits: list[float]) -> None:
    """Each change would take a wait longer, or an answer that never shows it would be asked for without end."""
    pace.policy = RetryPolicy.of({"commit.retry.num-retries": "1"})
    exhausted = []
    for _ in range(2):
        pace.wait_after(None)
        exhausted.append(pace.begin_attempt())

    assert exhausted == [False, True]
    assert waits == []
