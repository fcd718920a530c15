"""Run a server for as long as standard input stays open: `python server_guard.py SIGNAL USER command...`.

USER is empty for the starter's own. The starter holds the other end, so the server ends with it even if the starter
is killed. The server leads a process group of its own; what it leaves running is killed with it. Needs the standard
library alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

STOP_TIMEOUT_S = 5


def main() -> int:
    """Run the command until it ends or standard input does; return its exit status."""
    stop_signal, user, command = signal.Signals[sys.argv[1]], sys.argv[2] or None, sys.argv[3:]
    other = {} if user is None else {"user": user, "extra_groups": []}
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **other)
    for ending in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # of a whole run, from a terminal or `timeout`
        signal.signal(ending, lambda *_: server.send_signal(stop_signal))
    threading.Thread(target=_stop_at_the_end, args=(server, stop_signal), daemon=True).start()
    status = server.wait()
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    return status


def _stop_at_the_end(server: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    while os.read(0, 4096):  # not by sys.stdin, whose lock would be held when this program ends
        pass
    server.send_signal(stop_signal)
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    sys.exit(main())
