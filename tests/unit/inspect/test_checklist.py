"""How checks are made one after the other."""

from __future__ import annotations

import threading
import time

import pytest

from iceberg_ds.errors import OptionError
from iceberg_ds.inspect.checklist import CheckFailedError, Checklist, NotTriedError, within

SECRET = "a-very-secret-token"  # noqa: S105  # to be looked for


@pytest.fixture
def checklist() -> Checklist:
    """Return an empty list."""
    return Checklist({"token": SECRET}, 5.0)


def fail() -> tuple[str, None]:
    """Fail as a library does."""
    raise ConnectionRefusedError(111, f"refused for {SECRET}")


def test_what_was_found_is_returned_and_noted(checklist: Checklist) -> None:
    """Checks that build on it could not go on."""
    assert checklist.attempt("one", lambda: ("found", 7)) == 7
    (check,) = checklist.checks
    assert (check.name, check.outcome, check.detail) == ("one", "ok", "found")


def test_failure_is_noted_with_its_next_step_and_without_secrets(checklist: Checklist) -> None:
    """A check would end at the first failure, or show a secret."""
    assert checklist.attempt("one", fail) is None
    (check,) = checklist.checks
    assert check.outcome == "failed"
    assert "ConnectionRefusedError" in check.detail
    assert "Check host and port" in check.next_step
    assert SECRET not in str(check)


def test_what_rests_on_a_failure_is_not_tried(checklist: Checklist) -> None:
    """A user would get many failures for one reason."""
    made = []
    checklist.attempt("one", fail)
    checklist.attempt("two", lambda: (made.append(2) or "", None), needs=["one"])
    checklist.attempt("three", lambda: (made.append(3) or "", None), needs=["two"])
    checklist.attempt("four", lambda: (made.append(4) or "", None))

    assert made == [4]
    assert [check.outcome for check in checklist.checks] == ["failed", "skipped", "skipped", "ok"]
    assert "'one' did not pass" in checklist.checks[1].detail


def test_what_does_not_apply_is_skipped(checklist: Checklist) -> None:
    """A set-up would be called broken for what it does not need."""

    def not_here() -> tuple[str, None]:
        raise NotTriedError("only elsewhere")

    checklist.attempt("one", not_here)

    assert (checklist.checks[0].outcome, checklist.checks[0].detail) == ("skipped", "only elsewhere")


def test_next_step_is_not_said_twice(checklist: Checklist) -> None:
    """A user would read each sentence twice."""

    def refuse() -> tuple[str, None]:
        raise OptionError("Cannot write: drop the option.")

    def find() -> tuple[str, None]:
        raise CheckFailedError("too old", "Install a newer one.")

    checklist.attempt("one", refuse)
    checklist.attempt("two", find)

    assert [(check.detail, check.next_step) for check in checklist.checks] == [
        ("Cannot write: drop the option.", ""),
        ("too old", "Install a newer one."),
    ]


def test_call_that_hangs_is_given_up() -> None:
    """A check would hang as the job would."""
    hang = threading.Event()
    started = time.monotonic()

    with pytest.raises(TimeoutError, match=r"no answer in 0\.05 s"):
        within(0.05, hang.wait)

    hang.set()
    assert time.monotonic() - started < 5


def test_call_in_time_returns_and_raises() -> None:
    """What a check found would be lost."""
    assert within(5, lambda: 3) == 3
    with pytest.raises(ConnectionRefusedError):
        within(5, fail)
