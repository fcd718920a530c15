"""A short chaos run; `make chaos` takes longer ones, with every fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from chaos.events import Event, Fault, Kind, Log

KILLS = 3
ARGUMENTS = {
    "--kills": KILLS,
    "--seed": 269,
    "--streams": 1,
    "--epochs-ahead": 4,
    "--kills-between": 2,
    "--faults": "kill-python,kill-driver,compaction,expiry,rolled-back-one",
}


def _deaths(events: list[Event]) -> dict[int, list[Event]]:
    """Return what each process that was told to kill itself told afterwards."""
    killed = {
        event.pid: event.at_s
        for event in events
        if event.kind is Kind.FAULT and event.fault is Fault.KILL_PYTHON and event.is_planned
    }
    return {pid: [event for event in events if event.pid == pid and event.at_s > at_s] for pid, at_s in killed.items()}


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_short_run_has_every_row_once(tmp_path: Path) -> None:
    """Streams and batches that are killed at any step would lose or double rows."""
    script = Path(__file__).with_name("run_chaos.py")
    folder, result = tmp_path / "chaos", tmp_path / "result"
    arguments = [str(part) for pair in ARGUMENTS.items() for part in pair]
    command = [sys.executable, script, *arguments, "--folder", folder, "--result", result]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=840)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.with_suffix(".json").read_text())
    assert found["headline"] == "every row exactly once"
    assert found["kills"] >= KILLS
    assert "**Verdict: every row exactly once.**" in result.with_suffix(".md").read_text()
    log = Log(folder)
    deaths = _deaths(log.read())
    assert deaths
    assert not any(deaths.values()), "a process went on after its kill"
