"""The servers of the tests: they end with their starter, however it ends, and a failed start shows why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.services.server_process import HOST, Server, ServerError, accepts, free_port
from support.spark.process import wait_until

_TESTS = Path(__file__).parents[1]
_STARTER = """
import sys, time
from pathlib import Path
from support.services.server_process import Server, accepts
port, log = int(sys.argv[1]), Path(sys.argv[2])
command = [sys.executable, "-m", "http.server", str(port), "--bind", sys.argv[3]]
with Server(name="a server", command=command, log=log, is_ready=lambda: accepts(port)).running():
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_server_ends_with_a_starter_that_is_ended(tmp_path: Path, ending: signal.Signals) -> None:
    """Each run of the tests that is broken off would leave servers behind, and their ports taken."""
    port = free_port()
    command = [sys.executable, "-c", _STARTER, str(port), str(tmp_path / "log"), HOST]
    environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"ready\n"
        was_up = accepts(port)
        if ending is signal.SIGKILL:
            starter.send_signal(ending)
        else:  # as a terminal and `timeout` do, to all processes of the run
            os.killpg(starter.pid, ending)

    assert was_up
    wait_until(lambda: not accepts(port), "the server is gone", 20)


def test_server_is_gone_after_its_block(tmp_path: Path) -> None:
    """A test would meet the server of another one."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", HOST]
    with Server(name="a server", command=command, log=tmp_path / "log", is_ready=lambda: accepts(port)).running():
        was_up = accepts(port)

    assert was_up
    assert not accepts(port)


def test_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    """Nobody would learn why a server does not start on another machine."""
    command = [sys.executable, "-c", "raise SystemExit('no such option')"]
    server = Server(name="The server", command=command, log=tmp_path / "log", is_ready=lambda: False)

    with pytest.raises(ServerError, match=r"(?s)The server ended with 1.*no such option"), server.running():
        pass
