"""How what checks found is told."""

from __future__ import annotations

import json

from iceberg_ds.inspect.checklist import Check, CheckResult

GOOD = Check(name="catalog", outcome="ok", seconds=0.5, detail="it answers")
BAD = Check(name="storage", outcome="failed", where="worker-1", detail="403", next_step="Allow it.")
SKIPPED = Check(name="executors", outcome="skipped", detail="not asked")


def test_result_is_good_unless_something_failed() -> None:
    """A job would be held up by what was not tried, or go on after a failure."""
    assert CheckResult(checks=(GOOD, SKIPPED)).ok
    assert not CheckResult(checks=(GOOD, BAD)).ok
    assert CheckResult(checks=(GOOD, BAD)).failures == (BAD,)


def test_text_shows_place_time_and_next_step() -> None:
    """A user in a notebook would not see what to do."""
    assert str(CheckResult(checks=(GOOD, BAD, SKIPPED))).splitlines() == [
        "+ catalog (0.50 s): it answers",
        "x storage [worker-1] (0.00 s): 403",
        "    next: Allow it.",
        "- executors (0.00 s): not asked",
    ]


def test_json_has_every_attribute() -> None:
    """A program could not read what was found."""
    told = json.loads(CheckResult(checks=(BAD,)).to_json())

    assert told == {
        "ok": False,
        "checks": [
            {
                "name": "storage",
                "outcome": "failed",
                "where": "worker-1",
                "seconds": 0.0,
                "detail": "403",
                "next_step": "Allow it.",
            }
        ],
    }
