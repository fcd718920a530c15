"""The script that kills a stream at random moments, with few of them; `make test-kills` takes more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", ["2", "3"])
def test_killed_stream_has_every_row_once(tmp_path: Path, version: str) -> None:
    """A stream that is killed in the middle of anything would lose or double rows."""
    script = Path(__file__).with_name("kill_stream.py")
    told = ["--kills", "2", "--folder", str(tmp_path / "killed"), "--format-version", version]
    command = [sys.executable, str(script), *told]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kills" in done.stdout
    assert "VERDICT: every row exactly once" in done.stdout
